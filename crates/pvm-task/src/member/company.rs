//! Links that no program has asked for, and the order of messages between two hosts.
//!
//! The daemons keep the order of all messages from one host to another, whichever tasks send and receive them. A message on
//! a link of two tasks takes another way: it could come before one that another task has sent before, and after one that
//! another task has sent because of it. So the links that no program has asked for are there only between hosts with one
//! task each. The daemons refuse others. A task that has company later decides by itself, in its own calls:
//!
//! * Before it sends on such a link, it looks at the port table. If other tasks have come, it falls back first.
//! * Before another task can learn anything from it, it falls back, too: a task of its host by an introduction, a spawn or
//!   another request; a task of the host of a peer by a message.
//! * What its queues hold is taken in before it takes over what it has read from links.
//!
//! The fallback puts the announcement and all messages that the peer has not acknowledged into the queue to the daemon, so
//! they are ahead of everything that happens because of the act. A task that sends nothing and meets nobody need not do
//! anything: what is on the link was sent before, and its receiver is the only one that knows of it.
//!
//! `HPVM_ORDER=pairs` switches all this off.
use super::Member;
use crate::state::State;
use pvm_core::channel::LaneKind;
use pvm_core::proto::{Order, Request};
use pvm_core::tid::Tid;

/// What a task knows of the other tasks of its host.
pub(crate) struct Company {
    order: Order,
    /// What the port table said of the company ([`pvm_fmp::ports::PortView::company`]) when this task had left all links,
    /// and was alone.
    left_at: u32,
    /// What it said when this task had taken in everything that the others had sent, and was alone.
    taken_in_at: u32,
}

impl Company {
    pub fn new(order: Order) -> Company {
        Company { order, left_at: 0, taken_in_at: 0 }
    }
}

/// Returns whether the port table says that a task is alone.
fn is_alone(word: u32) -> bool {
    word % 2 == 0
}

impl Member {
    /// Returns what the port table says of the company; always the same if the order between hosts need not be kept.
    #[inline]
    fn company_word(&self) -> u32 {
        match self.company.order {
            Order::Hosts => self.endpoint.ports().map_or(0, |ports| ports.company()),
            Order::Pairs => 0,
        }
    }

    /// Returns whether to ask for links now: the program does, or this task is alone.
    pub fn may_ask_for_links(&self) -> bool {
        self.direct.wants_links() || is_alone(self.company_word())
    }

    /// Leaves all links that no program has asked for if other tasks have come since the last call, even if they have gone
    /// again: their messages may be on the way. Returns whether this task is alone.
    #[inline]
    pub fn leave_links_in_company(&mut self) -> bool {
        let word = self.company_word();
        word == self.company.left_at || self.leave_links_after(word)
    }

    #[cold]
    fn leave_links_after(&mut self, word: u32) -> bool {
        self.leave_unasked_links(|_| true);
        if is_alone(word) {
            self.company.left_at = word;
        }
        is_alone(word)
    }

    /// Leaves the links to these peers that no program has asked for.
    pub fn leave_unasked_links(&mut self, is_meant: impl Fn(Tid) -> bool) {
        if self.company.order == Order::Pairs || self.direct.wants_links() {
            return;
        }
        if self.direct.leave_unasked(&is_meant) {
            self.fall_back(LaneKind::Direct);
        }
        if self.fabric.leave_unasked(&is_meant) {
            self.fall_back(LaneKind::Fabric);
        }
    }

    /// Leaves the links to other tasks of the host of `to`, before `to` gets a message by the default route.
    pub fn leave_links_beside(&mut self, to: Tid) {
        if self.direct.is_active() || self.fabric.is_active() {
            self.leave_unasked_links(|peer| peer != to && peer.host() == to.host());
        }
    }

    /// Leaves the links to other tasks of the host of a receiver of a multicast, if the daemons will send it to that one: the
    /// tasks of a host get it in the same way.
    pub fn leave_links_for(&mut self, to: Tid) {
        if to.host() != self.tid.host() && !self.has_link_to(to) {
            self.leave_links_beside(to);
        }
    }

    /// Leaves links before a request by which other tasks may learn something.
    pub fn leave_links_before(&mut self, request: &Request) {
        match request {
            // The child acts when it has come, and then needs no introduction to do so.
            Request::Spawn(_) => self.leave_unasked_links(|_| true),
            // Introductions to tasks are handled where they begin.
            Request::Connect(_) => {}
            Request::Direct { .. } | Request::AllowDirect(_) => {}
            Request::Fabric { .. } | Request::FabricAnswer { .. } => {}
            _ => _ = self.leave_links_in_company(),
        }
    }

    /// Returns whether a message on a link may be read straight into the program's memory: there are links, and no messages of
    /// other tasks may have to go first.
    pub fn may_receive_in_place(&self) -> bool {
        let has_unasked = || self.direct.has_unasked() || self.fabric.has_unasked();
        (self.direct.is_active() || self.fabric.is_active())
            && (self.company_word() == self.company.taken_in_at || self.direct.wants_links() || !has_unasked())
    }

    /// Returns what the port table says of the company if other tasks may have sent what has to go before the messages that
    /// were read from links.
    fn company_before_links(&self) -> Option<u32> {
        let word = self.company_word();
        let is_due = word != self.company.taken_in_at && (self.direct.has_arrived() || self.fabric.has_arrived());
        is_due.then_some(word)
    }

    /// Takes in what the queues hold, if messages were read from links and there are other tasks. Returns whether it did.
    pub fn take_in_before_links(&mut self, state: &mut State) -> bool {
        let is_due = self.company_before_links().is_some();
        if is_due && self.endpoint.poll_all_through(state) > 0 {
            // Nobody sleeps before it has searched again, even if all messages of the links turn out to be repeats.
            (self.may_have_more, state.news) = (true, true);
            self.parker.wake();
        }
        is_due
    }

    /// Does the same, and reads the frames of the daemon, since they may introduce a task that has sent something. Leaves the
    /// links of this task.
    pub fn take_in_all_before_links(&mut self, state: &mut State) {
        let Some(word) = self.company_before_links() else { return };
        if self.control_may_be_ready() {
            self.read_control(state);
            // Whoever reads frames does something after that.
            self.request_socket_poll();
        }
        self.take_in_before_links(state);
        self.leave_links_in_company();
        if is_alone(word) && !self.is_draining() {
            self.company.taken_in_at = word;
        }
    }
}
