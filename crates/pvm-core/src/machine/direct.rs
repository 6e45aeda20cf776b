//! Direct links between two tasks on different hosts (`PvmRouteDirect`).
//!
//! A task asks its daemon, which asks the daemon of the other task. If the other task lives and accepts direct links,
//! the two daemons make a connection and hand its ends to the two tasks: the daemon of the host with the higher number
//! makes secrets and expects the call of the other daemon. No task waits for a link: messages travel by way of the
//! daemons until both tasks have the link, and also if the link is refused.
use super::action::{Action, DirectTicket};
use super::core::{Core, SubMachine};
use super::event::Event;
use crate::codes::Code;
use crate::proto::Reply;
use crate::tid::Tid;
use crate::wire::{DirectCall, Frame};
use std::collections::{BTreeMap, BTreeSet};

/// Requests for a direct link to a task of this host that has not enrolled yet.
///
/// * Filled by: all other hosts
/// * Setting: none, since messages without a link take the default route
/// * Reached: the link is refused
/// * Test: `the_links_that_wait_for_a_task_are_limited`
pub(super) const WAITING_MAX: usize = 4096;

/// A direct link that a task of this host has requested.
struct LinkRequest {
    task: Tid,
    wait: u32,
    peer: Tid,
}

/// A request from another host for a link to a task that has not enrolled yet.
struct DeferredRequest {
    number: u32,
    from: Tid,
    to: Tid,
    call: Option<DirectCall>,
}

/// Direct links that are being set up.
#[derive(Default)]
pub(super) struct Directs {
    /// The number assigned last to a request.
    last: u32,
    /// Requests of tasks of this host, by number.
    requests: BTreeMap<u32, LinkRequest>,
    /// Requests from other hosts for links to tasks of this host that have not enrolled yet.
    deferred: Vec<DeferredRequest>,
    /// Tasks that refuse direct links.
    refusing: BTreeSet<Tid>,
}

impl SubMachine for Directs {
    fn name(&self) -> &'static str {
        "direct links"
    }
    fn is_idle(&self) -> bool {
        self.requests.is_empty() && self.deferred.is_empty() && self.refusing.is_empty()
    }
    fn on_event(&mut self, core: &mut Core, event: &Event) {
        match event {
            Event::TaskEnrolled { tid, .. } => self.serve_deferred(core, *tid),
            Event::TaskLeft { tid, .. } => self.forget_task(core, *tid),
            Event::HostGone(host) => self.forget_host(core, *host),
            _ => {}
        }
    }
}

/// Returns the ticket of a request of this host.
fn own_ticket(core: &Core, number: u32) -> DirectTicket {
    DirectTicket { host: core.own_host(), number }
}

impl Directs {
    /// Returns a request of this host, if it is for a link to the host of `peer`.
    fn request_to(&self, peer: Tid, number: u32) -> Option<&LinkRequest> {
        self.requests.get(&number).filter(|ask| ask.peer.host() == peer.host())
    }
    /// Returns whether that task has requested a link to that peer.
    fn has_requested(&self, task: Tid, peer: Tid) -> bool {
        self.requests.values().any(|ask| ask.task == task && ask.peer == peer)
    }

    /// Sets whether a task accepts direct links.
    pub fn allow(&mut self, from: Tid, allowed: bool) -> Result<Reply, Code> {
        match allowed {
            true => self.refusing.remove(&from),
            false => self.refusing.insert(from),
        };
        Ok(Reply::Done)
    }

    /// Returns whether a task of this host refuses links.
    pub fn refuses(&self, task: Tid) -> bool {
        self.refusing.contains(&task)
    }

    /// Handles a link request from a task of this host.
    pub fn ask(&mut self, core: &mut Core, from: Tid, wait: u32, to: Tid) {
        let refusal = match to.is_task() && to.host() != core.own_host() {
            false => Some(Code::BadParam),
            true if !core.may_live(to) => Some(Code::NoTask),
            true if self.has_requested(from, to) => Some(Code::Already),
            true => None,
        };
        if let Some(code) = refusal {
            return core.reply(from, wait, Err(code));
        }
        self.last = self.last.wrapping_add(1);
        let number = self.last;
        self.requests.insert(number, LinkRequest { task: from, wait, peer: to });
        if core.own_host() < to.host() {
            // The other host prepares for the call, if its task accepts links.
            core.send_host(to.host(), Frame::Direct { number, from, to, call: None });
        } else {
            let ticket = own_ticket(core, number);
            core.push(Action::ExpectDirect { ticket, task: from, peer: to });
        }
    }

    /// Handles a request from another host for a link to a task of this host.
    pub fn link_requested(&mut self, core: &mut Core, number: u32, from: Tid, to: Tid, call: Option<DirectCall>) {
        // If both tasks ask, the request from the host with the lower number wins.
        let twice = core.own_host() < from.host() && self.has_requested(to, from);
        if !core.tasks.takes_frames(to) || twice || self.refusing.contains(&to) {
            return core.send_host(from.host(), Frame::DirectRefused { number });
        }
        if !core.tasks.is_connected(to) {
            if self.deferred.len() >= WAITING_MAX {
                return core.send_host(from.host(), Frame::DirectRefused { number });
            }
            return self.deferred.push(DeferredRequest { number, from, to, call });
        }
        let (ticket, task, peer) = (DirectTicket { host: from.host(), number }, to, from);
        match call {
            Some(call) if core.own_host() < from.host() => {
                let addresses = core.hosts.addresses_of(from.host());
                core.push(Action::CallDirect { ticket, task, peer, addresses, call });
            }
            None if from.host() < core.own_host() => {
                core.push(Action::ExpectDirect { ticket, task, peer });
            }
            _ => core.send_host(from.host(), Frame::DirectRefused { number }),
        }
    }

    /// Handles the requests that waited for a task to enroll.
    fn serve_deferred(&mut self, core: &mut Core, tid: Tid) {
        let (ours, others) = std::mem::take(&mut self.deferred).into_iter().partition(|ask| ask.to == tid);
        self.deferred = others;
        let ours: Vec<DeferredRequest> = ours;
        for DeferredRequest { number, from, to, call } in ours {
            self.link_requested(core, number, from, to, call);
        }
    }

    /// Handles the result of [`Action::ExpectDirect`]: the secrets for the other host's call, or `None` if this daemon
    /// cannot hold more links or the two tasks have a link already.
    pub fn expected(&mut self, core: &mut Core, ticket: DirectTicket, call: Option<DirectCall>) {
        let number = ticket.number;
        if ticket.host == core.own_host() {
            match (self.requests.get(&number), call) {
                (Some(&LinkRequest { task: from, peer: to, .. }), Some(call)) => {
                    core.send_host(to.host(), Frame::Direct { number, from, to, call: Some(call) });
                }
                _ => self.finish_request(core, number, Err(Code::OutOfRes)),
            }
        } else {
            let frame = match call {
                Some(call) => Frame::DirectCall { number, call },
                None => Frame::DirectRefused { number },
            };
            core.send_host(ticket.host, frame);
        }
    }

    /// Handles the news that the other host expects the call.
    pub fn call_allowed(&mut self, core: &mut Core, from: Tid, number: u32, call: DirectCall) {
        let Some(&LinkRequest { task, peer, .. }) = self.request_to(from, number) else { return };
        let (ticket, addresses) = (own_ticket(core, number), core.hosts.addresses_of(from));
        core.push(Action::CallDirect { ticket, task, peer, addresses, call });
    }

    /// Handles the news that the other host refuses the link.
    pub fn refused(&mut self, core: &mut Core, from: Tid, number: u32) {
        if self.request_to(from, number).is_some() {
            core.push(Action::CancelDirect { ticket: own_ticket(core, number) });
            self.finish_request(core, number, Err(Code::Denied));
        }
    }

    /// Handles the news that the task has its end of the link, or will not get one.
    pub fn link_ended(&mut self, core: &mut Core, ticket: DirectTicket, done: bool) {
        if ticket.host == core.own_host() {
            self.finish_request(core, ticket.number, if done { Ok(Reply::Done) } else { Err(Code::HostFail) });
        } else if !done {
            core.send_host(ticket.host, Frame::DirectRefused { number: ticket.number });
        }
    }

    /// Answers and forgets a request.
    fn finish_request(&mut self, core: &mut Core, number: u32, answer: Result<Reply, Code>) {
        if let Some(ask) = self.requests.remove(&number) {
            core.reply(ask.task, ask.wait, answer);
        }
    }

    /// Drops the requests of a task that has left, and refuses the requests of other tasks for links to this task.
    fn forget_task(&mut self, core: &mut Core, tid: Tid) {
        self.refusing.remove(&tid);
        let own = core.own_host();
        let over: Vec<u32> = self.requests.iter().filter(|(_, ask)| ask.task == tid).map(|(it, _)| *it).collect();
        for number in over {
            self.requests.remove(&number);
            core.push(Action::CancelDirect { ticket: DirectTicket { host: own, number } });
        }
        let (theirs, others) = std::mem::take(&mut self.deferred).into_iter().partition(|ask| ask.to == tid);
        self.deferred = others;
        let theirs: Vec<DeferredRequest> = theirs;
        for DeferredRequest { number, from, .. } in theirs {
            core.send_host(from.host(), Frame::DirectRefused { number });
        }
    }

    /// Fails the requests that concern a lost host.
    fn forget_host(&mut self, core: &mut Core, host: Tid) {
        self.deferred.retain(|ask| ask.from.host() != host);
        let lost = self.requests.iter().filter(|(_, ask)| ask.peer.host() == host);
        let lost: Vec<u32> = lost.map(|(number, _)| *number).collect();
        for number in lost {
            core.push(Action::CancelDirect { ticket: own_ticket(core, number) });
            self.finish_request(core, number, Err(Code::HostFail));
        }
    }
}
