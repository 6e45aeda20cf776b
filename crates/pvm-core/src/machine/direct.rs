//! Links of their own between two tasks of different hosts (`PvmRouteDirect`).
//!
//! A task asks its daemon, and that asks the daemon of the other task. If that task lives and does not
//! refuse links, the two daemons come to a connection and hand its ends to the two tasks: the host of
//! the higher number makes up secrets and awaits the call of the other. Nobody waits for a link:
//! until both tasks have it, and always where there is none, messages go by way of the daemons.
use super::{Action, Machine};
use crate::codes::Code;
use crate::proto::Reply;
use crate::tid::Tid;
use crate::wire::{DirectCall, Frame};
use std::collections::{BTreeMap, BTreeSet};

/// Links between two tasks that wait for the one of this host to enrol.
///
/// * Filled by: all other hosts
/// * Setting: none, who gets no link goes on by the default route
/// * Reached: the link is refused
/// * Test: `so_many_links_wait_for_a_task_and_no_more`
pub(super) const WAITING_MAX: usize = 4096;

/// Names a link that is being made: the host whose task has asked for it, and its number there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DirectTicket {
    /// The asker's host.
    pub host: Tid,
    /// Its number for the link.
    pub number: u32,
}

/// A link that a task of this host has asked for.
struct Ask {
    task: Tid,
    wait: u32,
    peer: Tid,
}

/// A link to a task that has not enrolled yet.
struct Waiting {
    number: u32,
    from: Tid,
    to: Tid,
    call: Option<DirectCall>,
}

/// What this host knows of links that are being made.
#[derive(Default)]
pub(super) struct Directs {
    last: u32,
    asks: BTreeMap<u32, Ask>,
    waiting: Vec<Waiting>,
    /// Tasks that refuse links.
    refusing: BTreeSet<Tid>,
}

impl Directs {
    pub fn is_idle(&self) -> bool {
        self.asks.is_empty() && self.waiting.is_empty() && self.refusing.is_empty()
    }
    fn ask_of(&self, peer: Tid, number: u32) -> Option<&Ask> {
        self.asks.get(&number).filter(|ask| ask.peer.host() == peer.host())
    }
    /// Whether that task has asked for a link to that peer.
    fn asks(&self, task: Tid, peer: Tid) -> bool {
        self.asks.values().any(|ask| ask.task == task && ask.peer == peer)
    }
}

impl Machine {
    fn own_ticket(&self, number: u32) -> DirectTicket {
        DirectTicket { host: self.own_host(), number }
    }

    pub(super) fn allow_direct(&mut self, from: Tid, allowed: bool) -> Result<Reply, Code> {
        match allowed {
            true => self.directs.refusing.remove(&from),
            false => self.directs.refusing.insert(from),
        };
        Ok(Reply::Done)
    }

    /// A task of this host asks for a link.
    pub(super) fn ask_direct(&mut self, from: Tid, wait: u32, to: Tid) {
        let refusal = match to.is_task() && to.host() != self.own_host() {
            false => Some(Code::BadParam),
            true if !self.may_live(to) => Some(Code::NoTask),
            true if self.directs.asks(from, to) => Some(Code::Already),
            true => None,
        };
        if let Some(code) = refusal {
            return self.reply(from, wait, Err(code));
        }
        self.directs.last = self.directs.last.wrapping_add(1);
        let number = self.directs.last;
        self.directs.asks.insert(number, Ask { task: from, wait, peer: to });
        if self.own_host() < to.host() {
            // The other side makes up how to call, if its task wants to be called.
            self.send_host(to.host(), Frame::Direct { number, from, to, call: None });
        } else {
            let ticket = self.own_ticket(number);
            self.actions.push_back(Action::ExpectDirect { ticket, task: from, peer: to });
        }
    }

    /// A task of another host asks for a link to one of this host.
    pub(super) fn direct_asked(&mut self, number: u32, from: Tid, to: Tid, call: Option<DirectCall>) {
        // Of two links for the same two tasks the one is made for which the lower host has asked.
        let twice = self.own_host() < from.host() && self.directs.asks(to, from);
        if !self.tasks.takes_frames(to) || twice || self.directs.refusing.contains(&to) {
            return self.send_host(from.host(), Frame::DirectRefused { number });
        }
        if !self.tasks.is_connected(to) {
            if self.directs.waiting.len() >= WAITING_MAX {
                return self.send_host(from.host(), Frame::DirectRefused { number });
            }
            return self.directs.waiting.push(Waiting { number, from, to, call });
        }
        let (ticket, task, peer) = (DirectTicket { host: from.host(), number }, to, from);
        match call {
            Some(call) if self.own_host() < from.host() => {
                let addresses = self.addresses_of(from.host());
                self.actions.push_back(Action::CallDirect { ticket, task, peer, addresses, call });
            }
            None if from.host() < self.own_host() => {
                self.actions.push_back(Action::ExpectDirect { ticket, task, peer });
            }
            _ => self.send_host(from.host(), Frame::DirectRefused { number }),
        }
    }

    /// The task has enrolled: others may have asked for links to it.
    pub(super) fn answer_direct_asks(&mut self, tid: Tid) {
        let (ours, others) = std::mem::take(&mut self.directs.waiting).into_iter().partition(|ask| ask.to == tid);
        self.directs.waiting = others;
        let ours: Vec<Waiting> = ours;
        for Waiting { number, from, to, call } in ours {
            self.direct_asked(number, from, to, call);
        }
    }

    /// How another host can call for that link, as [`Action::ExpectDirect`] has asked; `None` where
    /// there is no room for one more, or the two tasks have a link.
    pub fn handle_direct_expected(&mut self, ticket: DirectTicket, call: Option<DirectCall>) {
        let number = ticket.number;
        if ticket.host == self.own_host() {
            match (self.directs.asks.get(&number), call) {
                (Some(&Ask { task: from, peer: to, .. }), Some(call)) => {
                    self.send_host(to.host(), Frame::Direct { number, from, to, call: Some(call) });
                }
                _ => self.end_ask(number, Err(Code::OutOfRes)),
            }
        } else {
            let frame = match call {
                Some(call) => Frame::DirectCall { number, call },
                None => Frame::DirectRefused { number },
            };
            self.send_host(ticket.host, frame);
        }
    }

    /// The other host expects to be called.
    pub(super) fn direct_may_call(&mut self, from: Tid, number: u32, call: DirectCall) {
        let Some(&Ask { task, peer, .. }) = self.directs.ask_of(from, number) else { return };
        let (ticket, addresses) = (self.own_ticket(number), self.addresses_of(from));
        self.actions.push_back(Action::CallDirect { ticket, task, peer, addresses, call });
    }

    pub(super) fn direct_refused(&mut self, from: Tid, number: u32) {
        if self.directs.ask_of(from, number).is_some() {
            self.actions.push_back(Action::CancelDirect { ticket: self.own_ticket(number) });
            self.end_ask(number, Err(Code::Denied));
        }
    }

    /// The task has its end of the link, or will not get it.
    pub fn handle_direct_ended(&mut self, ticket: DirectTicket, done: bool) {
        if ticket.host == self.own_host() {
            self.end_ask(ticket.number, if done { Ok(Reply::Done) } else { Err(Code::HostFail) });
        } else if !done {
            self.send_host(ticket.host, Frame::DirectRefused { number: ticket.number });
        }
    }

    fn end_ask(&mut self, number: u32, answer: Result<Reply, Code>) {
        if let Some(ask) = self.directs.asks.remove(&number) {
            self.reply(ask.task, ask.wait, answer);
        }
    }

    /// The task has left.
    pub(super) fn forget_directs_of(&mut self, tid: Tid) {
        self.directs.refusing.remove(&tid);
        let own = self.own_host();
        let over: Vec<u32> = self.directs.asks.iter().filter(|(_, ask)| ask.task == tid).map(|(it, _)| *it).collect();
        for number in over {
            self.directs.asks.remove(&number);
            self.actions.push_back(Action::CancelDirect { ticket: DirectTicket { host: own, number } });
        }
        let (theirs, others) = std::mem::take(&mut self.directs.waiting).into_iter().partition(|ask| ask.to == tid);
        self.directs.waiting = others;
        let theirs: Vec<Waiting> = theirs;
        for Waiting { number, from, .. } in theirs {
            self.send_host(from.host(), Frame::DirectRefused { number });
        }
    }

    /// The host is lost.
    pub(super) fn forget_directs_to(&mut self, host: Tid) {
        self.directs.waiting.retain(|ask| ask.from.host() != host);
        let lost = self.directs.asks.iter().filter(|(_, ask)| ask.peer.host() == host);
        let lost: Vec<u32> = lost.map(|(number, _)| *number).collect();
        for number in lost {
            self.actions.push_back(Action::CancelDirect { ticket: self.own_ticket(number) });
            self.end_ask(number, Err(Code::HostFail));
        }
    }
}
