//! The master moves to another host, so that its own host can leave the machine (`pvm_delhosts`, `pvm drain`).
//!
//! Whoever deletes or drains the master's host has asked for the move. The master keeps that request and later ones, waits
//! until nothing is under way that others have to acknowledge, and then hands over at one instant
//! ([`crate::machine::handover`]). The next master decides the requests.
use super::Joining;
use crate::machine::core::Core;
use crate::machine::request_kinds::is_of_master;
use crate::proto::{ByteBuf, Request};
use crate::tid::Tid;
use std::collections::BTreeSet;

/// A request that the next master decides: task, wait id, request.
pub(in crate::machine) type HeldRequest = (Tid, u32, Request);

/// Whether the master is to move.
#[derive(Default)]
pub(in crate::machine) enum Moving {
    #[default]
    Stays,
    /// It is to move to another host than these. `asked`: that host was asked whether it lives.
    Wanted { named: BTreeSet<Tid>, held: Vec<HeldRequest>, asked: Option<Tid> },
}

impl Moving {
    pub fn is_wanted(&self) -> bool {
        matches!(self, Moving::Wanted { .. })
    }

    /// Takes a request of the master's if the next master is to decide it; otherwise returns it.
    pub fn hold(&mut self, core: &Core, joining: &Joining, from: Tid, wait: u32, request: Request) -> Option<Request> {
        let is_kept = is_of_master(&request) && request != Request::Halt;
        if !core.is_master() || core.halting || !is_kept {
            return Some(request);
        }
        let (names, waits) = match &request {
            // What is asked about other hosts is decided here. If the next master decided it, two masters that are to leave
            // could hand over to each other for ever.
            Request::DeleteHosts(names) | Request::DrainHosts { names, drain: true } => {
                (names.as_slice(), names_master(core, names))
            }
            Request::DrainHosts { .. } => (&[][..], false),
            Request::AddHosts(_) => (&[][..], true),
            // While hosts join, which may take a minute, all other requests are decided here.
            _ => (&[][..], joining.is_idle()),
        };
        match self {
            Moving::Wanted { held, .. } if waits => {
                held.push((from, wait, request));
                None
            }
            Moving::Stays if names_master(core, names) => {
                let named = names.iter().filter_map(|name| core.hosts.find(name)).collect();
                if successor(core, &named).is_none() {
                    return Some(request);
                }
                *self = Moving::Wanted { named, held: vec![(from, wait, request)], asked: None };
                None
            }
            _ => Some(request),
        }
    }

    /// Returns the next master.
    pub fn next_master(&self, core: &Core) -> Option<Tid> {
        match self {
            Moving::Stays => None,
            Moving::Wanted { named, .. } => successor(core, named),
        }
    }

    /// Returns the host that was asked whether it lives.
    pub fn asked(&self) -> Option<Tid> {
        match self {
            Moving::Stays => None,
            Moving::Wanted { asked, .. } => *asked,
        }
    }

    /// Notes that a host was asked whether it lives.
    pub fn set_asked(&mut self, host: Option<Tid>) {
        if let Moving::Wanted { asked, .. } = self {
            *asked = host;
        }
    }

    /// Returns whether a request of that task or host is held.
    pub fn holds_request_of(&self, asker: Tid) -> bool {
        matches!(self, Moving::Wanted { held, .. } if held.iter().any(|(from, ..)| *from == asker))
    }

    /// Ends the move, or gives it up. Returns the requests that were held.
    pub fn take_held(&mut self) -> Vec<HeldRequest> {
        match std::mem::take(self) {
            Moving::Stays => Vec::new(),
            Moving::Wanted { held, .. } => held,
        }
    }

    /// Forgets the requests of tasks that have gone.
    pub(super) fn forget(&mut self, is_gone: impl Fn(Tid) -> bool) {
        if let Moving::Wanted { held, .. } = self {
            held.retain(|(task, ..)| !is_gone(*task));
        }
    }
}

/// Returns whether one of the names is that of the master's host. `.` never is: another host would take it for its own name.
fn names_master(core: &Core, names: &[ByteBuf]) -> bool {
    names.iter().any(|name| name.as_slice() != b"." && core.hosts.find(name) == Some(core.own_host()))
}

/// Returns the host that becomes the master if the present one leaves: of those that are not `named` and have a link, the one
/// that has been in the machine for the longest time, if possible one that takes new tasks.
fn successor(core: &Core, named: &BTreeSet<Tid>) -> Option<Tid> {
    let hosts: Vec<Tid> = core.linked_hosts().filter(|host| !named.contains(host)).collect();
    hosts.iter().find(|host| !core.hosts.is_draining(**host)).or(hosts.first()).copied()
}
