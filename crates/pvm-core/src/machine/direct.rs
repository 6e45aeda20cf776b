//! Links of their own between two tasks of different hosts (`PvmRouteDirect`).
//!
//! A task asks its daemon, and that asks the daemon of the other task. If that task lives and does not
//! refuse links, the two daemons come to a connection and hand its ends to the two tasks: the host of
//! the higher number makes up secrets and awaits the call of the other. Nobody waits for a link:
//! until both tasks have it, and always where there is none, messages go by way of the daemons.
use super::action::{Action, DirectTicket};
use super::core::{Core, SubMachine};
use super::event::Event;
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

impl SubMachine for Directs {
    fn name(&self) -> &'static str {
        "direct links"
    }
    fn is_idle(&self) -> bool {
        self.asks.is_empty() && self.waiting.is_empty() && self.refusing.is_empty()
    }
    fn on_event(&mut self, core: &mut Core, event: &Event) {
        match event {
            Event::TaskEnrolled { tid, .. } => self.answer_waiting(core, *tid),
            Event::TaskLeft { tid, .. } => self.forget_task(core, *tid),
            Event::HostGone(host) => self.forget_host(core, *host),
            _ => {}
        }
    }
}

fn own_ticket(core: &Core, number: u32) -> DirectTicket {
    DirectTicket { host: core.own_host(), number }
}

impl Directs {
    fn ask_of(&self, peer: Tid, number: u32) -> Option<&Ask> {
        self.asks.get(&number).filter(|ask| ask.peer.host() == peer.host())
    }
    /// Whether that task has asked for a link to that peer.
    fn asks(&self, task: Tid, peer: Tid) -> bool {
        self.asks.values().any(|ask| ask.task == task && ask.peer == peer)
    }
}

impl Directs {
    pub fn allow(&mut self, from: Tid, allowed: bool) -> Result<Reply, Code> {
        match allowed {
            true => self.refusing.remove(&from),
            false => self.refusing.insert(from),
        };
        Ok(Reply::Done)
    }

    /// A task of this host asks for a link.
    pub fn ask(&mut self, core: &mut Core, from: Tid, wait: u32, to: Tid) {
        let refusal = match to.is_task() && to.host() != core.own_host() {
            false => Some(Code::BadParam),
            true if !core.may_live(to) => Some(Code::NoTask),
            true if self.asks(from, to) => Some(Code::Already),
            true => None,
        };
        if let Some(code) = refusal {
            return core.reply(from, wait, Err(code));
        }
        self.last = self.last.wrapping_add(1);
        let number = self.last;
        self.asks.insert(number, Ask { task: from, wait, peer: to });
        if core.own_host() < to.host() {
            // The other side makes up how to call, if its task wants to be called.
            core.send_host(to.host(), Frame::Direct { number, from, to, call: None });
        } else {
            let ticket = own_ticket(core, number);
            core.push(Action::ExpectDirect { ticket, task: from, peer: to });
        }
    }

    /// A task of another host asks for a link to one of this host.
    pub fn asked(&mut self, core: &mut Core, number: u32, from: Tid, to: Tid, call: Option<DirectCall>) {
        // Of two links for the same two tasks the one is made for which the lower host has asked.
        let twice = core.own_host() < from.host() && self.asks(to, from);
        if !core.tasks.takes_frames(to) || twice || self.refusing.contains(&to) {
            return core.send_host(from.host(), Frame::DirectRefused { number });
        }
        if !core.tasks.is_connected(to) {
            if self.waiting.len() >= WAITING_MAX {
                return core.send_host(from.host(), Frame::DirectRefused { number });
            }
            return self.waiting.push(Waiting { number, from, to, call });
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

    /// The task has enrolled: others may have asked for links to it.
    fn answer_waiting(&mut self, core: &mut Core, tid: Tid) {
        let (ours, others) = std::mem::take(&mut self.waiting).into_iter().partition(|ask| ask.to == tid);
        self.waiting = others;
        let ours: Vec<Waiting> = ours;
        for Waiting { number, from, to, call } in ours {
            self.asked(core, number, from, to, call);
        }
    }

    /// How another host can call for that link, as [`Action::ExpectDirect`] has asked; `None` where
    /// there is no room for one more, or the two tasks have a link.
    pub fn expected(&mut self, core: &mut Core, ticket: DirectTicket, call: Option<DirectCall>) {
        let number = ticket.number;
        if ticket.host == core.own_host() {
            match (self.asks.get(&number), call) {
                (Some(&Ask { task: from, peer: to, .. }), Some(call)) => {
                    core.send_host(to.host(), Frame::Direct { number, from, to, call: Some(call) });
                }
                _ => self.end_ask(core, number, Err(Code::OutOfRes)),
            }
        } else {
            let frame = match call {
                Some(call) => Frame::DirectCall { number, call },
                None => Frame::DirectRefused { number },
            };
            core.send_host(ticket.host, frame);
        }
    }

    /// The other host expects to be called.
    pub fn may_call(&mut self, core: &mut Core, from: Tid, number: u32, call: DirectCall) {
        let Some(&Ask { task, peer, .. }) = self.ask_of(from, number) else { return };
        let (ticket, addresses) = (own_ticket(core, number), core.hosts.addresses_of(from));
        core.push(Action::CallDirect { ticket, task, peer, addresses, call });
    }

    pub fn refused(&mut self, core: &mut Core, from: Tid, number: u32) {
        if self.ask_of(from, number).is_some() {
            core.push(Action::CancelDirect { ticket: own_ticket(core, number) });
            self.end_ask(core, number, Err(Code::Denied));
        }
    }

    /// The task has its end of the link, or will not get it.
    pub fn ended(&mut self, core: &mut Core, ticket: DirectTicket, done: bool) {
        if ticket.host == core.own_host() {
            self.end_ask(core, ticket.number, if done { Ok(Reply::Done) } else { Err(Code::HostFail) });
        } else if !done {
            core.send_host(ticket.host, Frame::DirectRefused { number: ticket.number });
        }
    }

    fn end_ask(&mut self, core: &mut Core, number: u32, answer: Result<Reply, Code>) {
        if let Some(ask) = self.asks.remove(&number) {
            core.reply(ask.task, ask.wait, answer);
        }
    }

    /// The task has left.
    fn forget_task(&mut self, core: &mut Core, tid: Tid) {
        self.refusing.remove(&tid);
        let own = core.own_host();
        let over: Vec<u32> = self.asks.iter().filter(|(_, ask)| ask.task == tid).map(|(it, _)| *it).collect();
        for number in over {
            self.asks.remove(&number);
            core.push(Action::CancelDirect { ticket: DirectTicket { host: own, number } });
        }
        let (theirs, others) = std::mem::take(&mut self.waiting).into_iter().partition(|ask| ask.to == tid);
        self.waiting = others;
        let theirs: Vec<Waiting> = theirs;
        for Waiting { number, from, .. } in theirs {
            core.send_host(from.host(), Frame::DirectRefused { number });
        }
    }

    /// The host is lost.
    fn forget_host(&mut self, core: &mut Core, host: Tid) {
        self.waiting.retain(|ask| ask.from.host() != host);
        let lost = self.asks.iter().filter(|(_, ask)| ask.peer.host() == host);
        let lost: Vec<u32> = lost.map(|(number, _)| *number).collect();
        for number in lost {
            core.push(Action::CancelDirect { ticket: own_ticket(core, number) });
            self.end_ask(core, number, Err(Code::HostFail));
        }
    }
}
