//! The flows to the tasks of one host, and the order in which their messages leave.
//!
//! Messages begin in the order in which they were queued, whichever tasks receive them. A flow that has to wait (for credit,
//! or behind a long message) may be overtaken by others. Before that happens, a **mark** tells the receiver's daemon how many
//! messages of that flow come before everything that the host is sent from then on.
use super::budget::SenderBudgets;
use super::flow::{Flow, Item, Listed, QueuedMessage, Transfer};
use super::marks::MARKS_OF_HOST_MAX;
use super::multicast::Announcement;
use super::pacing::SendLimit;
use super::{CHUNK_BYTES_MAX, DataFrame, MULTICAST_WAIT_BYTES_MAX, MessageHeader, cost};
use crate::tid::Tid;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::rc::Rc;

/// The flows to the tasks of one host.
pub(super) struct HostFlows<P> {
    pub flows: HashMap<Tid, Flow<P>>,
    /// The flows that may send a chunk of the message that they have begun, in round-robin order.
    pub run_queue: VecDeque<Tid>,
    /// The flows that can begin their first item, by the place of that item in the order of the host.
    ready: BTreeSet<(u64, Tid)>,
    /// The other flows that have items which are neither begun nor marked, by the place of the first of them.
    overtakable: BTreeSet<(u64, Tid)>,
    /// The place of the item that was queued last.
    last_place: u64,
    /// The place of the last fence.
    last_fence: u64,
    /// The number of marks whose messages have not all begun.
    pub marks: usize,
    /// The cost of what has begun since the last chunk. Messages that begin and chunks of others take turns.
    begun_since_chunk: u64,
    last_transfer: u32,
    /// The cost of the queued in-band frames.
    pub in_band_bytes: u64,
    pub limit: SendLimit,
}

/// What happens next.
pub(super) enum Turn {
    /// The flow sends a chunk.
    Chunk(Tid),
    /// The flow would be overtaken: its next messages are marked, or its in-band frame is sent.
    Mark(Tid),
    /// The flow begins its first item, which the others receive too.
    Begin { dst: Tid, others: Vec<Tid> },
}

impl<P> HostFlows<P> {
    pub fn new(limit_bytes: u64) -> HostFlows<P> {
        HostFlows {
            flows: HashMap::new(),
            run_queue: VecDeque::new(),
            ready: BTreeSet::new(),
            overtakable: BTreeSet::new(),
            last_place: 0,
            last_fence: 0,
            marks: 0,
            begun_since_chunk: 0,
            last_transfer: 0,
            in_band_bytes: 0,
            limit: SendLimit::new(limit_bytes),
        }
    }

    /// Returns a new place, after all others.
    pub fn next_place(&mut self) -> u64 {
        self.last_place += 1;
        self.last_place
    }

    /// Returns whether something was queued after the last fence.
    pub fn lacks_fence(&self) -> bool {
        self.last_place > self.last_fence
    }

    /// Notes that a fence was queued.
    pub fn note_fence(&mut self) {
        self.last_fence = self.last_place;
    }

    /// Lists a flow after a change: in the run queue, or in the order of the host.
    pub fn schedule(&mut self, dst: Tid) {
        let Some(flow) = self.flows.get_mut(&dst) else { return };
        if !flow.is_scheduled && flow.transfer.is_some() {
            flow.is_scheduled = true;
            self.run_queue.push_back(dst);
        }
        let listed = flow.to_be_listed();
        let before = std::mem::replace(&mut flow.listed, listed);
        if before == listed {
            return;
        }
        match before {
            Listed::Ready(place) => drop(self.ready.remove(&(place, dst))),
            Listed::Overtakable(place) => drop(self.overtakable.remove(&(place, dst))),
            Listed::Nowhere => {}
        }
        match listed {
            Listed::Ready(place) => drop(self.ready.insert((place, dst))),
            Listed::Overtakable(place) => drop(self.overtakable.insert((place, dst))),
            Listed::Nowhere => {}
        }
    }

    /// Removes a flow that is not needed any more.
    pub fn remove_idle(&mut self, dst: Tid) {
        if self.flows.get(&dst).is_some_and(|flow| flow.is_idle() && !flow.is_scheduled) {
            self.flows.remove(&dst);
        }
    }

    /// Returns what happens next, if anything can.
    pub fn next_turn(&mut self) -> Option<Turn> {
        if self.begun_since_chunk < CHUNK_BYTES_MAX as u64 {
            return self.next_to_begin().or_else(|| self.next_chunk());
        }
        self.next_chunk().or_else(|| self.next_to_begin())
    }

    fn next_chunk(&mut self) -> Option<Turn> {
        self.begun_since_chunk = 0;
        while let Some(dst) = self.run_queue.pop_front() {
            let Some(flow) = self.flows.get_mut(&dst) else { continue };
            flow.is_scheduled = false;
            if !flow.waits_for_grant(&self.limit) {
                return Some(Turn::Chunk(dst));
            }
            self.limit.wait(dst);
        }
        None
    }

    /// Returns the flow whose first item is the first one that can begin, or a flow that is to be marked before.
    fn next_to_begin(&self) -> Option<Turn> {
        let may_mark = self.marks < MARKS_OF_HOST_MAX;
        let mut passed = None;
        for (place, dst) in &self.ready {
            let flow = &self.flows[dst];
            let others = match flow.items.front() {
                Some(Item::Shared(message)) => self.companions(*dst, message),
                _ => Some(Vec::new()),
            };
            let Some(others) = others else {
                passed = passed.or(flow.first_unmarked().map(|_| *dst));
                continue;
            };
            // The members of a multicast have the same place.
            let first = self.overtakable.first().filter(|(first, _)| first <= place);
            return match first.map(|(_, dst)| *dst).or(passed).filter(|_| may_mark) {
                Some(dst) => Some(Turn::Mark(dst)),
                None => Some(Turn::Begin { dst: *dst, others }),
            };
        }
        None
    }

    /// Marks the next messages of a flow that are neither begun nor marked. An in-band frame behind marked ones is sent.
    pub fn mark(&mut self, dst: Tid) -> Option<DataFrame<P>> {
        let flow = self.flows.get_mut(&dst)?;
        let frame = match flow.take_in_band() {
            Some(payload) => {
                self.in_band_bytes -= cost(payload.len());
                DataFrame::InBand { dst, payload }
            }
            None => {
                self.marks += 1;
                DataFrame::Mark { dst, count: flow.mark() }
            }
        };
        self.schedule(dst);
        Some(frame)
    }

    /// Returns the next chunk of the message that a flow has begun.
    pub fn chunk(&mut self, dst: Tid, budgets: &mut SenderBudgets) -> Option<DataFrame<P>> {
        let flow = self.flows.get_mut(&dst)?;
        let message = flow.items.front().and_then(Item::message).expect("a transfer has a message");
        let transfer = flow.transfer.as_mut()?;
        let count = self.limit.take(message.bytes, CHUNK_BYTES_MAX.min(message.bytes - transfer.at));
        let range = transfer.at..transfer.at + count;
        transfer.at = range.end;
        let frame = DataFrame::Chunk { transfer: transfer.number, range, body: message.body.clone() };
        if transfer.at == message.bytes {
            self.finish(dst, budgets);
        }
        Some(frame)
    }

    /// Begins the first item of a flow, which is also the first item of the flows of `others`. `near`: see
    /// [`super::Flows::near_parents`].
    pub fn begin(
        &mut self,
        dst: Tid,
        others: Vec<Tid>,
        near: &[Tid],
        budgets: &mut SenderBudgets,
    ) -> Option<DataFrame<P>> {
        let flow = self.flows.get_mut(&dst)?;
        let announcement = match flow.items.front()? {
            Item::InBand(_) => {
                let payload = flow.take_in_band()?;
                self.in_band_bytes -= cost(payload.len());
                self.begun_since_chunk += cost(payload.len());
                return Some(DataFrame::InBand { dst, payload });
            }
            Item::Message(_) => None,
            Item::Shared(message) => message.relayed.as_ref().and_then(|relayed| relayed.announce(dst.host(), near)),
        };
        Some(self.start(dst, others, announcement, budgets))
    }

    /// Returns the members that receive a multicast together with `dst`, or `None` if the multicast should wait because
    /// further members will be ready soon.
    fn companions(&self, dst: Tid, message: &Rc<QueuedMessage<P>>) -> Option<Vec<Tid>> {
        let mut others = Vec::new();
        for (member, end) in message.members.borrow().iter().filter(|(member, _)| *member != dst) {
            let Some(flow) = self.flows.get(member) else { continue };
            if flow.holds_first(message) {
                if !flow.carried && flow.transfer.is_none() && flow.has_credit(cost(message.bytes)) {
                    others.push(*member);
                }
                continue;
            }
            // Do not wait for a member whose flow itself waits with a multicast: the two flows could wait for each
            // other forever.
            let at_multicast = matches!(flow.items.front(), Some(Item::Shared(_)));
            let makes_progress = flow.makes_progress() && !(flow.transfer.is_none() && !flow.carried && at_multicast);
            // In-band frames from behind the multicast may have begun.
            if makes_progress && end.saturating_sub(flow.begun) <= MULTICAST_WAIT_BYTES_MAX + cost(message.bytes) {
                return None;
            }
        }
        Some(others)
    }

    /// Starts the first message in the flow of `dst`, which is also the first message in the flows of `others`, or
    /// announces it.
    fn start(
        &mut self,
        dst: Tid,
        others: Vec<Tid>,
        announcement: Option<Announcement>,
        budgets: &mut SenderBudgets,
    ) -> DataFrame<P> {
        self.last_transfer = self.last_transfer.wrapping_add(1);
        let number = self.last_transfer;
        for other in &others {
            let flow = self.flows.get_mut(other).expect("the flow was found before");
            let cost = flow.items.front().map_or(0, Item::cost);
            self.marks -= flow.begin(cost);
            flow.carried = true;
            self.schedule(*other);
        }
        let flow = self.flows.get_mut(&dst).expect("the flow has its turn");
        let message = flow.items.front().and_then(Item::message).expect("the first item is a message");
        let header =
            MessageHeader { src: message.src, dst, others: others.clone(), meta: message.meta, bytes: message.bytes };
        let body = message.body.clone();
        self.marks -= flow.begin(cost(header.bytes));
        // An announcement contains no bytes of the body, so they do not count.
        let first = match announcement {
            Some(_) => 0,
            None => self.limit.take(header.bytes, header.bytes.min(CHUNK_BYTES_MAX)),
        };
        self.begun_since_chunk += cost(first);
        flow.transfer = Some(Transfer { number, at: first, others });
        if let Some(announcement) = announcement {
            self.finish(dst, budgets);
            return DataFrame::Announce { header, announcement };
        }
        if first == header.bytes {
            self.finish(dst, budgets);
        }
        DataFrame::Start { transfer: number, header, first, body }
    }

    /// Removes a message that was sent completely from the flow of `dst`, which sent it, and from the other flows for
    /// which it was sent.
    fn finish(&mut self, dst: Tid, budgets: &mut SenderBudgets) {
        let Some(flow) = self.flows.get_mut(&dst) else { return };
        let Some(transfer) = flow.transfer.take() else { return };
        for other in transfer.others {
            let flow = self.flows.get_mut(&other).expect("a flow with a carried message is not removed");
            flow.carried = false;
            if let Some(Item::Shared(message)) = flow.pop() {
                message.members.borrow_mut().retain(|(member, _)| *member != other);
            }
            self.schedule(other);
        }
        let Some(item) = self.flows.get_mut(&dst).and_then(Flow::pop) else { return };
        match item {
            Item::Message(message) => budgets.release(message.src, message.held),
            Item::Shared(message) => {
                message.members.borrow_mut().retain(|(member, _)| *member != dst);
                if message.members.borrow().is_empty() {
                    budgets.release(message.src, message.held);
                }
            }
            Item::InBand(_) => {}
        }
    }
}
