//! The PVM library of a simulated program: requests, introductions, queues.
use crate::event::Event;
use crate::ids::TaskId;
use crate::program::{Entry, Open, QueuedMessage, Stage, Unsent, Waiting};
use crate::world::World;
use pvm_core::proto::{Message, Reply, Request, ToDaemon, ToTask};
use pvm_core::tid::Tid;
use std::rc::Rc;

impl World {
    // ----- Receiving

    /// Lets a task read a frame from its socket.
    pub fn read_from_daemon(&mut self, task: TaskId) {
        let one = &mut self.tasks[task];
        let Some(frame) = one.from_daemon.pop_front() else { return };
        match (one.stage, frame) {
            (Stage::Starting, ToTask::Welcome(welcome)) => {
                one.stage = Stage::Enrolled;
                one.learn(Tid(welcome.parent.max(0) as u32));
                one.own = welcome.own;
                self.plan_step(task);
                self.plan_take(task);
            }
            (Stage::Starting, ToTask::Refused(_)) => one.stage = Stage::Dead,
            (Stage::Enrolled, frame) => self.frame_for_task(task, frame),
            _ => {}
        }
    }

    fn frame_for_task(&mut self, task: TaskId, frame: ToTask) {
        match frame {
            ToTask::Reply { wait, reply } => self.replied(task, wait, reply),
            ToTask::Message(message) => {
                // What was queued earlier must be taken first.
                self.take_in(task);
                match self.tasks[task].backlog.is_empty() {
                    true => self.message_of_daemon(task, &message),
                    false => self.tasks[task].backlog.push_back(Waiting::OfDaemon(message)),
                }
            }
            ToTask::Peer(tid) => drop(self.tasks[task].introduced.insert(tid)),
            ToTask::PeerGone(tid) => {
                self.take_in(task);
                self.tasks[task].introduced.remove(&tid);
            }
            _ => {}
        }
    }

    fn message_of_daemon(&mut self, task: TaskId, message: &Message) {
        let (tid, host) = (self.tasks[task].tid, self.nodes[self.tasks[task].node].tid);
        self.trace.line(self.now, host, || format!("{tid} gets {message:?}"));
        self.trace.number(u64::from(tid.0) << 32 | u64::from(message.tag as u32));
        if !self.checks.collected(tid, message) {
            self.notified(tid, message);
        }
    }

    /// Lets a task poll its queues.
    pub fn take(&mut self, task: TaskId) {
        let one = &mut self.tasks[task];
        if one.silent_until > self.now && one.is_enrolled() {
            let until = one.silent_until;
            return self.queue.push(until, Event::Take(task));
        }
        one.take_planned = false;
        // A task that starts will poll when it has been welcomed. One that has ended receives nothing any more.
        if one.is_enrolled() {
            self.take_in(task);
        }
    }

    /// Takes everything from a task's queues, and receives what is not behind a gap.
    fn take_in(&mut self, task: TaskId) {
        let own = self.nodes[self.tasks[task].node].tid;
        let mut some = false;
        while let Some(entry) = self.tasks[task].inbox.pop_front() {
            let one = &mut self.tasks[task];
            match entry {
                Entry::Gap { host, count } => one.backlog.push_back(Waiting::Gap { host, count, arrived: Vec::new() }),
                Entry::NoMore(from) => one.backlog.iter_mut().for_each(|waiting| match waiting {
                    Waiting::Gap { host, count, .. } if *host == from => *count = 0,
                    _ => {}
                }),
                Entry::Message(message) => {
                    let is_far = message.src.host() != own;
                    one.from_daemon_taken += u64::from(is_far);
                    some |= is_far;
                    one.add_to_backlog(message);
                }
            }
            self.release_backlog(task);
        }
        if some {
            let (late, mark) = (self.short_time(), self.tasks[task].from_daemon_taken);
            self.queue.push(self.now + late, Event::Released(task, mark));
        }
    }

    fn release_backlog(&mut self, task: TaskId) {
        loop {
            let backlog = &mut self.tasks[task].backlog;
            let Some(first) = backlog.front_mut() else { return };
            if let Waiting::Gap { count, arrived, .. } = first {
                let (is_open, arrived) = (*count > 0, std::mem::take(arrived));
                arrived.iter().for_each(|message| self.received(task, message));
                if is_open {
                    return;
                }
            }
            match self.tasks[task].backlog.pop_front() {
                Some(Waiting::Message(message)) => self.received(task, &message),
                Some(Waiting::OfDaemon(message)) => self.message_of_daemon(task, &message),
                Some(Waiting::Gap { .. }) | None => {}
            }
        }
    }

    fn received(&mut self, task: TaskId, message: &QueuedMessage) {
        let one = &mut self.tasks[task];
        if !one.is_enrolled() {
            return;
        }
        let tid = one.tid;
        self.received_at = self.now;
        let one = &mut self.tasks[task];
        one.learn(message.src);
        message.known_task.into_iter().for_each(|tid| one.learn(tid));
        let number = message.to.iter().find(|(dst, _)| *dst == tid).map(|(_, number)| *number);
        self.trace.number(u64::from(tid.0) << 32 | u64::from(message.src.0));
        let host = self.nodes[self.tasks[task].node].tid;
        self.trace.line(self.now, host, || format!("{tid} has number {number:?} of {}", message.src));
        if let Some(number) = message.multicast {
            self.checks.multicast_arrived(message.src, tid, number);
        }
        self.checks.message(message.src, tid, number);
        self.checks.ordered_receive(tid, message.order);
    }

    /// Schedules a poll of a task's queues by the task.
    pub fn plan_take(&mut self, task: TaskId) {
        if !std::mem::replace(&mut self.tasks[task].take_planned, true) {
            let late = self.short_time();
            self.queue.push(self.now + late, Event::Take(task));
        }
    }

    // ----- Sending

    /// Sends a request of a task to its daemon.
    pub fn ask(&mut self, task: TaskId, request: Request) {
        let now = self.now;
        let one = &mut self.tasks[task];
        assert!(one.open.is_none(), "a program does one thing at a time");
        one.last_wait += 1;
        one.open = Some(Open { wait: one.last_wait, request: request.clone(), at: now });
        let (tid, wait) = (one.tid, one.last_wait);
        self.checks.asked(tid, &request);
        self.send_to_daemon(task, ToDaemon::Request { wait, request });
    }

    fn replied(&mut self, task: TaskId, wait: u32, reply: Reply) {
        let (tid, host) = (self.tasks[task].tid, self.nodes[self.tasks[task].node].tid);
        self.trace.line(self.now, host, || format!("{tid} gets reply {reply:?}"));
        let open = self.tasks[task].open.take();
        let Some(open) = open.filter(|open| open.wait == wait) else {
            let text = format!("{tid} got an answer to what it does not ask (any more): {reply:?}");
            return self.checks.fail("requests", &text, &[host]);
        };
        self.checks.replied(tid, &open.request, &reply);
        if let Reply::Info(entry) = &reply {
            let number = entry.body.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
            let keeper = self.nodes[self.office.master].tid;
            self.checks.ordered_entry(tid, number, keeper);
        }
        if let Request::Connect(to) = open.request {
            self.connected(task, to, &reply);
        } else {
            self.learn_from(task, &open.request, &reply);
            self.plan_step(task);
        }
    }

    /// Sends a message to the receivers that exist.
    pub fn send_message(&mut self, task: TaskId, to: Vec<Tid>, bytes: usize) {
        self.tasks[task].unsent = Some(Unsent { to, bytes });
        self.push_unsent(task);
    }

    fn connected(&mut self, task: TaskId, to: Tid, reply: &Reply) {
        let one = &mut self.tasks[task];
        if *reply == Reply::Done && !one.introduced.contains(&to) {
            let (tid, host) = (one.tid, self.nodes[one.node].tid);
            return self.checks.fail("requests", &format!("{tid} was not introduced to {to}"), &[host]);
        }
        if let (Reply::Error(_), Some(unsent)) = (reply, &mut one.unsent) {
            unsent.to.retain(|tid| *tid != to && (to.is_task() || tid.host() == to));
        }
        self.push_unsent(task);
    }

    fn push_unsent(&mut self, task: TaskId) {
        let Some(unsent) = self.tasks[task].unsent.take() else { return };
        let own = self.nodes[self.tasks[task].node].tid;
        let door = |tid: &Tid| if tid.host() == own { *tid } else { own };
        let missing = unsent.to.iter().map(door).find(|tid| !self.tasks[task].introduced.contains(tid));
        if let Some(missing) = missing {
            self.tasks[task].unsent = Some(unsent);
            return self.ask(task, Request::Connect(missing));
        }
        if !unsent.to.is_empty() {
            self.post(task, own, &unsent);
        }
        self.plan_step(task);
    }

    fn post(&mut self, task: TaskId, own: Tid, unsent: &Unsent) {
        let one = &mut self.tasks[task];
        let (src, node, known_task) = (one.tid, one.node, one.prng.pick(&one.known).copied());
        let to: Vec<(Tid, u64)> = unsent.to.iter().map(|dst| (*dst, self.checks.sent(src, *dst))).collect();
        self.trace.line(self.now, own, || format!("{src} sends {to:?}"));
        let multicast = (to.len() > 1).then(|| self.checks.multicast(src, &unsent.to));
        self.last_message += 1;
        let order = self.last_message;
        self.checks.ordered_send(src, &unsent.to, order);
        let message = Rc::new(QueuedMessage { src, to, order, bytes: unsent.bytes, multicast, known_task });
        for dst in unsent.to.iter().filter(|dst| dst.host() == own) {
            if let Some(other) = self.nodes[node].tasks.get(dst).copied() {
                self.tasks[other].inbox.push_back(Entry::Message(message.clone()));
                self.plan_take(other);
            }
        }
        if unsent.to.iter().any(|dst| dst.host() != own) {
            self.tasks[task].to_daemon_queue.push_back(message);
            self.plan_poll(task);
        }
    }
}
