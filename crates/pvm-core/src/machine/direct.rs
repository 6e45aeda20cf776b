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
use crate::proto::{LinkCause, Reply};
use crate::tid::Tid;
use crate::time::Time;
use crate::wire::{DirectCall, Frame, Refusal};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Requests for a direct link to a task of this host that has not enrolled yet.
///
/// * Filled by: all other hosts
/// * Setting: none, since messages without a link take the default route
/// * Reached: the link is refused
/// * Test: `the_links_that_wait_for_a_task_are_limited`
pub(super) const WAITING_MAX: usize = 4096;

/// How long a request waits for a task to enroll. A program that was started and is no task would keep it for ever, and
/// a task with an open request looks for its answer at each send.
const DEFERRED_TIME_MAX: Duration = Duration::from_secs(10);

/// A direct link that a task of this host has requested.
struct LinkRequest {
    task: Tid,
    wait: u32,
    peer: Tid,
    cause: LinkCause,
}

/// A request from another host for a link to a task of this one.
pub(super) struct LinkQuestion {
    pub number: u32,
    pub from: Tid,
    pub to: Tid,
    pub cause: LinkCause,
}

/// A request from another host for a link to a task that has not enrolled yet.
struct DeferredRequest {
    question: LinkQuestion,
    call: Option<DirectCall>,
    /// When it is refused.
    until: Time,
}

/// Direct links that are being set up.
#[derive(Default)]
pub(super) struct Directs {
    /// The number assigned last to a request.
    last: u32,
    /// Requests of tasks of this host, by number.
    requests: BTreeMap<u32, LinkRequest>,
    /// Requests from other hosts for links to tasks of this host that have not enrolled yet, in the order of arrival.
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

/// Refuses requests of other hosts.
fn refuse_all(core: &mut Core, requests: Vec<DeferredRequest>) {
    for DeferredRequest { question: LinkQuestion { number, from, .. }, .. } in requests {
        core.send_host(from.host(), Frame::DirectRefused { number, why: Refusal::Denied });
    }
}

/// Returns the answer to a task that gets no link.
pub(super) fn answer_of(why: Refusal) -> Result<Reply, Code> {
    match why {
        Refusal::Denied => Err(Code::Denied),
        Refusal::Company => Ok(Reply::Company),
    }
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
    pub fn ask(&mut self, core: &mut Core, from: Tid, wait: u32, to: Tid, cause: LinkCause) {
        let refusal = match to.is_task() && to.host() != core.own_host() {
            false => Some(Code::BadParam),
            true if !core.may_live(to) => Some(Code::NoTask),
            true if self.has_requested(from, to) => Some(Code::Already),
            true => None,
        };
        if let Some(code) = refusal {
            return core.reply(from, wait, Err(code));
        }
        if !core.may_have_link(from, cause) {
            return core.reply(from, wait, Ok(Reply::Company));
        }
        self.last = self.last.wrapping_add(1);
        let number = self.last;
        self.requests.insert(number, LinkRequest { task: from, wait, peer: to, cause });
        if core.own_host() < to.host() {
            // The other host prepares for the call, if its task accepts links.
            core.send_host(to.host(), Frame::Direct { number, from, to, call: None, cause });
        } else {
            let ticket = own_ticket(core, number);
            core.push(Action::ExpectDirect { ticket, task: from, peer: to, cause });
        }
    }

    /// Handles a request from another host for a link to a task of this host.
    pub fn link_requested(&mut self, core: &mut Core, question: LinkQuestion, call: Option<DirectCall>) {
        let LinkQuestion { number, from, to, cause } = question;
        let refuse = |core: &mut Core, why| core.send_host(from.host(), Frame::DirectRefused { number, why });
        // If both tasks ask, the request from the host with the lower number wins.
        let twice = core.own_host() < from.host() && self.has_requested(to, from);
        if !core.tasks.takes_frames(to) || twice || self.refusing.contains(&to) {
            return refuse(core, Refusal::Denied);
        }
        if !core.may_have_link(to, cause) {
            return refuse(core, Refusal::Company);
        }
        if !core.tasks.is_connected(to) {
            if self.deferred.len() >= WAITING_MAX {
                return refuse(core, Refusal::Denied);
            }
            return self.deferred.push(DeferredRequest { question, call, until: core.now + DEFERRED_TIME_MAX });
        }
        let (ticket, task, peer) = (DirectTicket { host: from.host(), number }, to, from);
        match call {
            Some(call) if core.own_host() < from.host() => {
                let addresses = core.hosts.addresses_of(from.host());
                core.push(Action::CallDirect { ticket, task, peer, cause, addresses, call });
            }
            None if from.host() < core.own_host() => {
                core.push(Action::ExpectDirect { ticket, task, peer, cause });
            }
            _ => refuse(core, Refusal::Denied),
        }
    }

    /// Handles the requests that waited for a task to enroll.
    fn serve_deferred(&mut self, core: &mut Core, tid: Tid) {
        for DeferredRequest { question, call, .. } in self.take_deferred(tid) {
            self.link_requested(core, question, call);
        }
    }

    /// Returns when [`Directs::on_time`] must be called next.
    pub fn next_wakeup(&self) -> Option<Time> {
        self.deferred.first().map(|ask| ask.until)
    }

    /// Refuses the requests that have waited for too long.
    pub fn on_time(&mut self, core: &mut Core) {
        let count = self.deferred.iter().take_while(|ask| ask.until <= core.now).count();
        refuse_all(core, self.deferred.drain(..count).collect());
    }

    /// Takes out the requests that wait for a task to enroll.
    fn take_deferred(&mut self, tid: Tid) -> Vec<DeferredRequest> {
        let (ours, others) = std::mem::take(&mut self.deferred).into_iter().partition(|ask| ask.question.to == tid);
        self.deferred = others;
        ours
    }

    /// Handles the result of [`Action::ExpectDirect`]: the secrets for the other host's call, or `None` if this daemon
    /// cannot hold more links or the two tasks have a link already.
    pub fn expected(&mut self, core: &mut Core, ticket: DirectTicket, call: Option<DirectCall>) {
        let number = ticket.number;
        if ticket.host == core.own_host() {
            match (self.requests.get(&number), call) {
                (Some(&LinkRequest { task: from, peer: to, cause, .. }), Some(call)) => {
                    core.send_host(to.host(), Frame::Direct { number, from, to, call: Some(call), cause });
                }
                _ => self.finish_request(core, number, Err(Code::OutOfRes)),
            }
        } else {
            let frame = match call {
                Some(call) => Frame::DirectCall { number, call },
                None => Frame::DirectRefused { number, why: Refusal::Denied },
            };
            core.send_host(ticket.host, frame);
        }
    }

    /// Handles the news that the other host expects the call.
    pub fn call_allowed(&mut self, core: &mut Core, from: Tid, number: u32, call: DirectCall) {
        let Some(&LinkRequest { task, peer, cause, .. }) = self.request_to(from, number) else { return };
        let (ticket, addresses) = (own_ticket(core, number), core.hosts.addresses_of(from));
        core.push(Action::CallDirect { ticket, task, peer, cause, addresses, call });
    }

    /// Handles the news that the other host refuses the link.
    pub fn refused(&mut self, core: &mut Core, from: Tid, number: u32, why: Refusal) {
        if self.request_to(from, number).is_some() {
            core.push(Action::CancelDirect { ticket: own_ticket(core, number) });
            self.finish_request(core, number, answer_of(why));
        }
    }

    /// Handles the news that the task has its end of the link, or will not get one.
    pub fn link_ended(&mut self, core: &mut Core, ticket: DirectTicket, done: bool) {
        if ticket.host == core.own_host() {
            self.finish_request(core, ticket.number, if done { Ok(Reply::Done) } else { Err(Code::HostFail) });
        } else if !done {
            core.send_host(ticket.host, Frame::DirectRefused { number: ticket.number, why: Refusal::Denied });
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
        refuse_all(core, self.take_deferred(tid));
    }

    /// Fails the requests that concern a lost host.
    fn forget_host(&mut self, core: &mut Core, host: Tid) {
        self.deferred.retain(|ask| ask.question.from.host() != host);
        let lost = self.requests.iter().filter(|(_, ask)| ask.peer.host() == host);
        let lost: Vec<u32> = lost.map(|(number, _)| *number).collect();
        for number in lost {
            core.push(Action::CancelDirect { ticket: own_ticket(core, number) });
            self.finish_request(core, number, Err(Code::HostFail));
        }
    }
}
