//! The master hands over to its deputy, at one instant, because its host is to leave.
//!
//! 1. If the deputy is not the host that is to be the next master, the master chooses that one ([`super::deputy`]).
//! 2. The master waits until no add and no change is under way that others have to acknowledge, and until the deputy keeps
//!    everything. Meanwhile it keeps requests ([`super::membership::Moving`]). Then it asks the deputy whether it lives, by a mark.
//! 3. In one step it tells every host that the deputy is the master, and follows it like the others. Each host hears that behind
//!    everything that the former master has decided.
//! 4. The next master and all other hosts do what they do when a master is lost ([`super::succession`]); but the former one is
//!    a host like others.
//! 5. The new master deletes hosts only when all follow it, so that each of them is told.
//!
//! If the next master dies before it has the office, which takes the way to it, the machine ends.
use super::core::Core;
use super::membership::HeldRequest;
use super::parts::Parts;
use crate::proto::{ByteBuf, Request};
use crate::tid::Tid;
use crate::wire::Frame;

impl Parts {
    /// At the master: decides what had to wait until all hosts follow it. Does without a deputy that is to leave, or is not to be
    /// the next master.
    pub fn prepare_hand_over(&mut self, core: &mut Core) {
        let leaves = |deputy: &Tid| self.membership.is_to_leave(core, *deputy);
        if let Some(deputy) = self.deputies.host().filter(leaves) {
            self.deputies.depose(core, deputy);
        }
        for (task, wait, request) in self.membership.take_deletions(core) {
            self.decide(core, task, wait, request);
            self.settle(core);
        }
        if !self.may_hand_over(core) {
            return;
        }
        match (self.membership.moving.next_master(core), self.deputies.host()) {
            (None, _) => self.stay(core),
            (Some(next), Some(deputy)) if deputy != next => self.deputies.depose(core, deputy),
            _ => {}
        }
    }

    /// At the end of a step of the master: hands over to the deputy if that is wanted, and nothing is under way.
    pub fn hand_over_if_ready(&mut self, core: &mut Core) {
        let next = self.membership.moving.next_master(core);
        let Some(next) = next.filter(|next| self.may_hand_over(core) && self.deputies.is_ready(*next)) else { return };
        let is_idle = self.membership.is_idle_but_moving() && !self.groups.has_joiners();
        let is_quiet = is_idle && core.acks.oldest().is_none() && !core.holds_actions();
        if is_quiet && self.membership.moving.asked() == Some(next) {
            self.hand_over(core, next);
        } else if is_quiet {
            self.membership.moving.set_asked(Some(next));
            self.deputies.send(core, Vec::new());
        } else if self.deputies.has_all() {
            // It is asked again when nothing else is under way.
            self.membership.moving.set_asked(None);
        }
    }

    /// Lets this host leave the machine with its tasks. A master asks to be deleted, so it hands over first. If no other host can be
    /// the master, halts.
    pub fn leave_machine(&mut self, core: &mut Core) {
        let own = core.own_host();
        if !core.is_master() {
            self.halt(core, None);
        } else if !core.halting && !self.membership.moving.holds_request_of(own) {
            let name = ByteBuf::from(core.hosts.plain_name_of(own).into_bytes());
            self.decide(core, own, 0, Request::DeleteHosts(vec![name]));
        }
    }

    fn may_hand_over(&self, core: &Core) -> bool {
        let has_deletions = self.membership.has_deletions();
        self.membership.moving.is_wanted() && !core.halting && !core.awaits_hosts() && !has_deletions
    }

    /// Cancels the move, because no other host is left.
    fn stay(&mut self, core: &mut Core) {
        for (task, wait, request) in self.membership.moving.take_held() {
            self.decide(core, task, wait, request);
        }
        self.settle(core);
    }

    /// Makes the deputy the master.
    fn hand_over(&mut self, core: &mut Core, next: Tid) {
        for host in core.hosts.others() {
            core.send_host(host, Frame::NewMaster { master: next });
        }
        let news = self.groups.take_news(core.own_host());
        let unanswered = self.resign(core);
        self.follow(core, next, news);
        self.stop_backups(core);
        for (task, wait, request) in unanswered {
            self.remote.for_other_host(core, task, wait, request);
        }
    }

    /// Drops what only the master knows. Returns the unanswered requests of this host's tasks.
    fn resign(&mut self, core: &mut Core) -> Vec<HeldRequest> {
        let own = core.own_host();
        let held = self.membership.resign();
        let waiting = self.mailboxes.resign();
        let freezing = self.groups.resign(own);
        core.clients.clear();
        core.roles.hoster = None;
        for host in core.hosts.others() {
            core.requests.forget_host(host);
        }
        core.tasks.set_known_to_master();
        // The hosts of other tasks send their requests again.
        [held, waiting, freezing].into_iter().flatten().filter(|(task, ..)| task.host() == own).collect()
    }
}
