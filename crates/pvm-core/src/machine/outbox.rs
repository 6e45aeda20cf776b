//! The functions that send: to tasks, to hosts, to the log, and answers to requests.
use super::action::Action;
use super::core::{Core, SLEEPS_PER_TIMEOUT};
use super::links::State;
use crate::codes::Code;
use crate::proto::{Message, Reply, ToTask};
use crate::tid::{DAEMON_BIT, Tid};
use crate::wire::Frame;

impl Core {
    /// Queues an action after all earlier ones.
    pub fn push(&mut self, action: Action) {
        self.actions.push_back(action);
    }

    /// Adds a line about the daemon itself to the log.
    pub fn log(&mut self, line: impl Into<String>) {
        self.push(Action::Log { tid: Tid::DAEMON, line: line.into().into_bytes() });
    }

    // ----- to tasks

    /// Sends a frame to a task of this host.
    pub fn send(&mut self, to: Tid, frame: ToTask) {
        if self.tasks.takes_frames(to) {
            self.push(Action::Send { to, frame });
        }
    }

    /// Sends a message to a task, wherever it lives. If the message goes to another host, the sender `Tid::DAEMON` is
    /// replaced by the tid of this daemon, because `Tid::DAEMON` would mean the daemon of that host there.
    pub fn send_message(&mut self, mut message: Message) {
        let to = message.dst;
        if to.host() == self.own_host() {
            self.send(to, ToTask::Message(message));
        } else if to.is_task() && self.hosts.is_known(to.host()) {
            if message.src == Tid::DAEMON {
                message.src = Tid(DAEMON_BIT | self.own_host().0);
            }
            self.push(Action::SendAlong { to, frame: Frame::Deliver(message) });
        }
    }

    /// Sends a message from this daemon to a task.
    pub fn tell(&mut self, to: Tid, ctx: i32, tag: i32, wid: i32, body: Vec<u8>) {
        self.send_message(own_message(to, ctx, tag, wid, body));
    }

    // ----- answers

    /// Counts a request as open. If too many requests are open, answers it with an error and returns false.
    pub fn admit(&mut self, from: Tid, wait: u32) -> bool {
        let admitted = self.requests.begin(from, self.hosts.own(), &self.settings.limits);
        if !admitted {
            self.answer(from, wait, Reply::Error(Code::OutOfRes));
        }
        admitted
    }

    /// Answers a request that [`Core::admit`] has admitted.
    pub fn reply(&mut self, to: Tid, wait: u32, answer: Result<Reply, Code>) {
        self.requests.end(to);
        self.answer(to, wait, answer.unwrap_or_else(Reply::Error));
    }

    fn answer(&mut self, to: Tid, wait: u32, reply: Reply) {
        match to.host() == self.own_host() {
            true => self.send(to, ToTask::Reply { wait, reply }),
            false => self.send_host(to.host(), Frame::Reply { wait, reply }),
        }
    }

    // ----- to hosts

    /// Sends a frame to another host as soon as the link is up. Frames to hosts outside the machine are dropped.
    pub fn send_host(&mut self, host: Tid, frame: Frame) {
        if !self.hosts.is_known(host) {
            return;
        }
        let Some(frame) = self.keep_awaited(host, frame) else { return };
        let now = self.now;
        let Some(link) = self.links.get_mut(host) else { return self.make_link(host, vec![frame]) };
        match &mut link.state {
            State::Up | State::Quiet(_) | State::Broken(_) => {
                link.sent = now;
                self.push(Action::SendHost { host, frame });
            }
            State::Wanted { frames, .. } => {
                link.is_optional = false;
                frames.push(frame);
            }
            State::Failed => {}
        }
    }

    /// Lets the frames of a host go on that have waited for its messages for too long, or are too many.
    pub fn expire_fences(&mut self, host: Tid) {
        if self.links.expire_fences(host, self.now, self.settings.host_timeout) {
            self.push(Action::OrderLost { host });
        }
    }

    /// Sends a frame to the master; only for hosts other than the master.
    pub fn send_master(&mut self, frame: Frame) {
        self.send_host(self.hosts.master(), frame);
    }

    /// Opens the link to a host if there is none.
    pub fn want_link(&mut self, host: Tid) {
        match self.links.get_mut(host) {
            Some(link) => link.is_optional = false,
            None if self.hosts.is_known(host) => self.make_link(host, Vec::new()),
            None => {}
        }
    }

    /// Opens the link to a host if there is none. If this fails, nobody is to blame. Only the host with the lower tid
    /// may call this.
    pub fn try_link(&mut self, host: Tid) {
        if self.hosts.is_known(host) && self.links.get(host).is_none() && self.own_host() < host {
            self.make_link(host, Vec::new());
            self.links.get_mut(host).into_iter().for_each(|link| link.is_optional = true);
        }
    }

    /// Begins to open the link to a host; `frames` wait for it.
    fn make_link(&mut self, host: Tid, frames: Vec<Frame>) {
        let (own, master, now) = (self.own_host(), self.hosts.master(), self.now);
        // Well before a daemon without other work would take itself for suspended.
        let look_after = self.settings.host_timeout / (2 * SLEEPS_PER_TIMEOUT);
        self.links.begin(host, State::Wanted { since: now, frames }, now, look_after);
        // The master calls a host that is to join; that host does not know other addresses.
        let calls = own < host && self.hosts.is_welcomed() || self.hosts.joining(host).is_some();
        if calls {
            let addresses = self.hosts.addresses_of(host);
            self.push(Action::OpenLink { host, addresses });
        } else if host != master {
            // The host with the lower tid connects to the other. The master does so without a request, so only other
            // hosts are asked.
            self.send_master(Frame::PleaseConnect { to: host, from: own });
        }
    }
}

/// Makes a message from this daemon.
pub(super) fn own_message(dst: Tid, ctx: i32, tag: i32, wid: i32, body: Vec<u8>) -> Message {
    Message { wid, ..Message::new(Tid::DAEMON, dst, ctx, tag, body) }
}
