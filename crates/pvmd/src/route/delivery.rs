//! Delivery: what has arrived from other hosts becomes visible to its receivers, in the order of the sending host.
use super::{Route, RouteContext, RouteEvent};
use pvm_core::flows::{Gap, MessageHeader};
use pvm_core::tid::Tid;
use pvm_fmp::{Block, Meta, SendError, Sent, SharedBody};

/// The body of a message that has arrived.
#[derive(Clone)]
pub(super) enum Payload {
    Short(Vec<u8>),
    Block(Block),
}

/// A message for one task.
pub(super) struct Message {
    from: Tid,
    dst: Tid,
    meta: Meta,
    bytes: usize,
    payload: Payload,
}

impl Message {
    pub fn new(from: Tid, dst: Tid, header: &MessageHeader, payload: &Payload) -> Message {
        Message { from, dst, meta: meta_of(header), bytes: header.bytes, payload: payload.clone() }
    }
}

/// What could not be queued to its receiver, for lack of memory.
pub(super) enum Undelivered {
    Message(Message),
    /// The next `count` messages of a host come before everything else.
    Gap {
        dst: Tid,
        host: Tid,
        count: u32,
    },
    /// No more messages of a host arrive.
    NoMore {
        dst: Tid,
        host: Tid,
    },
}

fn meta_of(header: &MessageHeader) -> Meta {
    let [ctx, tag, wid, enc, format] = header.meta;
    [ctx, tag, wid, enc, format, header.src.0]
}

impl Route {
    /// Delivers a complete message to its receivers.
    pub(super) fn deliver(
        &mut self,
        from: Tid,
        header: &MessageHeader,
        payload: &Payload,
        context: &mut dyn RouteContext,
    ) {
        if header.others.is_empty() {
            let message = Message::new(from, header.dst, header, payload);
            return match self.held.is_held(from, header.dst) {
                true => self.held.hold(from, header.dst, message),
                false => self.deliver_next(message, context),
            };
        }
        let dsts: Vec<Tid> = header.receivers().collect();
        if !dsts.iter().any(|dst| self.held.is_held(from, *dst)) {
            self.make_gaps(from, Some(&dsts), context);
            return self.deliver_at_once(from, header, &dsts, payload, context);
        }
        self.make_gaps(from, None, context);
        for dst in dsts {
            let message = Message::new(from, dst, header, payload);
            match self.held.is_held(from, dst) {
                true => self.held.hold(from, dst, message),
                false => self.deliver_to_task(message, context),
            }
        }
    }

    /// Delivers the next message of a flow.
    pub(super) fn deliver_next(&mut self, message: Message, context: &mut dyn RouteContext) {
        self.make_gaps(message.from, Some(&[message.dst]), context);
        self.deliver_to_task(message, context);
    }

    /// Makes gaps for what precedes the next messages of these tasks, and is not there yet; without tasks, for all that has
    /// begun to arrive.
    pub(super) fn make_gaps(&mut self, from: Tid, dsts: Option<&[Tid]>, context: &mut dyn RouteContext) {
        loop {
            let arrivals = &mut self.intake.arrivals;
            let gap = match dsts {
                Some(dsts) => arrivals.gap_before_next(from, dsts),
                None => arrivals.gap_before_all(from),
            };
            let Some(Gap { dst, count }) = gap else { return };
            if context.accepts_messages(dst) && self.is_introduced(dst, context) {
                self.queue_or_keep(Undelivered::Gap { dst, host: from, count }, context);
            }
        }
    }

    /// Delivers a message to a task, after all that was to be delivered before.
    pub(super) fn deliver_to_task(&mut self, message: Message, context: &mut dyn RouteContext) {
        self.was_active = true;
        if !context.accepts_messages(message.dst) || !self.is_introduced(message.dst, context) {
            return self.intake.dropped(message.dst, message.from, message.bytes);
        }
        self.queue_or_keep(Undelivered::Message(message), context);
    }

    /// Delivers a message to several tasks, which get it at the same instant.
    fn deliver_at_once(
        &mut self,
        from: Tid,
        header: &MessageHeader,
        dsts: &[Tid],
        payload: &Payload,
        context: &mut dyn RouteContext,
    ) {
        if !self.undelivered.is_empty() {
            self.make_gaps(from, None, context);
            let messages = dsts.iter().map(|dst| Message::new(from, *dst, header, payload));
            return messages.for_each(|message| self.deliver_to_task(message, context));
        }
        self.was_active = true;
        let mut to = Vec::with_capacity(dsts.len());
        for dst in dsts {
            match context.accepts_messages(*dst) && self.is_introduced(*dst, context) {
                true => to.push((dst.0, meta_of(header))),
                false => self.intake.dropped(*dst, from, header.bytes),
            }
        }
        let may_keep = self.endpoint.may_be_kept(header.bytes);
        let body = match payload {
            Payload::Short(body) => SharedBody::Bytes(body),
            Payload::Block(block) => SharedBody::Borrowed(block, header.bytes, may_keep),
        };
        let sent = self.endpoint.send_to_all(&to, body);
        for ((tid, _), sent) in to.into_iter().zip(sent) {
            let message = Message::new(from, Tid(tid), header, payload);
            if !self.note_sent(&message, sent, may_keep, context) {
                self.keep(Undelivered::Message(message));
            }
        }
    }

    fn is_introduced(&mut self, task: Tid, context: &mut dyn RouteContext) -> bool {
        if self.endpoint.is_connected(task.0) {
            return true;
        }
        self.has_peers = true;
        if let Err(error) = context.introduce(task, &mut self.endpoint) {
            self.events.push_back(RouteEvent::Lost { task, why: error.to_string() });
        }
        self.endpoint.is_connected(task.0)
    }

    fn queue_or_keep(&mut self, entry: Undelivered, context: &mut dyn RouteContext) {
        if !self.undelivered.is_empty() || !self.queue(&entry, context) {
            self.keep(entry);
        }
    }

    /// Keeps an entry until there is memory; all later ones wait behind it.
    fn keep(&mut self, entry: Undelivered) {
        if let Undelivered::Message(Message { from, dst, .. }) = entry {
            self.intake.arrivals.take(from, dst);
        }
        self.undelivered.push_back(entry);
    }

    /// Queues an entry to its receiver. Returns false if there is no memory.
    fn queue(&mut self, entry: &Undelivered, context: &mut dyn RouteContext) -> bool {
        match *entry {
            Undelivered::Message(ref message) => self.queue_to_task(message, context),
            Undelivered::Gap { dst, host, count } => {
                self.endpoint.send_gap(dst.0, host.0, count) != Err(SendError::NoMemory)
            }
            Undelivered::NoMore { dst, host } => match self.endpoint.send_no_more(dst.0, host.0) {
                Err(SendError::NoMemory) => false,
                sent => {
                    if sent == Ok(Sent::RingByDaemon) {
                        context.ring(dst);
                    }
                    true
                }
            },
        }
    }

    /// Queues a message to its receiver. Returns false if there is no memory.
    fn queue_to_task(&mut self, message: &Message, context: &mut dyn RouteContext) -> bool {
        let Message { dst, meta, bytes, ref payload, .. } = *message;
        let may_keep = self.endpoint.may_be_kept(bytes);
        let sent = match payload {
            Payload::Short(body) => self.endpoint.send_bytes(dst.0, meta, body),
            Payload::Block(block) => self.endpoint.send_borrowed(dst.0, meta, block, bytes, may_keep),
        };
        self.note_sent(message, sent, may_keep, context)
    }

    /// Notes the result of queueing a message. Returns false if there was no memory.
    fn note_sent(
        &mut self,
        message: &Message,
        sent: Result<Sent, SendError>,
        may_keep: bool,
        context: &mut dyn RouteContext,
    ) -> bool {
        let Message { from, dst, bytes, ref payload, .. } = *message;
        match sent {
            Err(SendError::NoMemory) => return false,
            Err(SendError::NotConnected) => self.intake.dropped(dst, from, bytes),
            Ok(sent) => {
                if sent == Sent::RingByDaemon {
                    context.ring(dst);
                }
                let end = self.endpoint.written(dst.0);
                if let Payload::Block(block) = payload {
                    self.lent.entry(dst).or_default().add(end, block.clone(), may_keep);
                }
                self.intake.delivered(dst, from, bytes, end);
                // A task that has been asked to ring the daemon when it has read up to a position will do so. Any other
                // task is asked now, after a check how far it has read.
                if !self.ring_positions.contains_key(&dst) {
                    self.update_read_progress(dst);
                }
            }
        }
        true
    }

    pub(super) fn retry_undelivered(&mut self, context: &mut dyn RouteContext) {
        while let Some(entry) = self.undelivered.pop_front() {
            if !self.queue(&entry, context) {
                self.undelivered.push_front(entry);
                return;
            }
        }
    }

    /// Drops what waits for a task that has gone.
    pub(super) fn forget_undelivered(&mut self, task: Tid) {
        let entries = std::mem::take(&mut self.undelivered);
        for entry in entries {
            match entry {
                Undelivered::Message(Message { from, dst, bytes, .. }) if dst == task => {
                    self.intake.dropped(dst, from, bytes);
                }
                Undelivered::Gap { dst, .. } | Undelivered::NoMore { dst, .. } if dst == task => {}
                entry => self.undelivered.push_back(entry),
            }
        }
        for (from, message) in self.held.task_gone(task) {
            self.intake.dropped(task, from, message.bytes);
        }
    }
}
