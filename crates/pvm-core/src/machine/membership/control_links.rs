//! Control links: they are made, watched, made again, and given up.
//!
//! The end of a connection is not the end of a host: the session goes on with another connection. A host is lost if it was
//! silent for the host timeout, or if its daemon has provably ended. A call for the new connection proves that: nobody listens
//! any more where the daemon was. If the other host has no address to be called at, its own end of the connection is the
//! proof, since a daemon that lives never closes it.
//!
//! Of two hosts, the one with the lower number calls at once, the other one a little later: the first may not know yet that
//! the connection has broken. If both call at the same time and disagree which connection is the newest, both connections
//! end, and the next call settles it.
use super::{Membership, beat_interval};
use crate::machine::action::Action;
use crate::machine::core::Core;
use crate::machine::event::{Event, Loss};
use crate::machine::links::{Call, CallFailure, Link, LinkBreak, State};
use crate::machine::pending_acks::TIMEOUTS_MAX;
use crate::tid::Tid;
use crate::time::Time;
use crate::wire::Frame;

/// A connection that was silent for the host timeout divided by this may not carry any more, and is replaced.
const QUIETS_PER_TIMEOUT: u32 = 2;
/// The host with the higher number calls later by the host timeout divided by this.
const TURNS_PER_TIMEOUT: u32 = 10;
/// The same for the first call after a break that this host has noticed: the other host has noticed it, too, unless it has
/// died. A daemon that is killed before it has read everything resets its connections, so a reset may be the first sign of that.
const FIRST_TURNS_PER_TIMEOUT: u32 = 100;

impl Membership {
    /// Handles the news that both links to the host are up.
    pub fn link_up(&mut self, core: &mut Core, host: Tid) {
        if !core.hosts.is_known(host) {
            // The host has been removed meanwhile.
            return core.push(Action::ForgetHost { host });
        }
        let frames = match core.links.get_mut(host).map(|link| &mut link.state) {
            Some(State::Wanted { frames, .. }) => std::mem::take(frames),
            Some(_) => return,
            None => Vec::new(),
        };
        core.links.begin(host, State::Up, core.now, beat_interval(core));
        self.data_links.begin(host, core.now);
        for frame in frames {
            core.push(Action::SendHost { host, frame });
        }
        self.joining.host_linked(core, host);
    }

    /// Handles the proof that the daemon of the host has ended.
    fn link_ended(&mut self, core: &mut Core, host: Tid, why: &str) {
        match host == core.hosts.master() && core.deputy.is_some() {
            true => lose_master(core, Loss::Proven),
            false => {
                // While this master slept, its deputy may have become the master, and have ended then.
                let may_have_succeeded = core.is_master() && core.now < core.may_be_out_until;
                core.deputy.take_if(|deputy| *deputy == host && !may_have_succeeded);
                self.link_lost(core, host, why);
            }
        }
    }

    /// Handles the news that a link to the host could not be opened, or that its session has ended.
    pub fn link_lost(&mut self, core: &mut Core, host: Tid, why: &str) {
        let Some(link) = core.links.get_mut(host) else { return };
        if matches!(link.state, State::Failed) {
            return;
        }
        if link.is_optional && matches!(link.state, State::Wanted { .. }) {
            return core.links.remove(host);
        }
        link.state = State::Failed;
        if core.is_master() {
            self.lose_host(core, host, why);
        } else if host == core.hosts.master() {
            lose_master(core, Loss::Silent(why.to_owned()));
        } else if !core.halting {
            core.send_master(Frame::Suspect(host));
        }
    }

    // ----- connections that break

    /// Handles the news that the connection has broken.
    pub fn link_broken(&mut self, core: &mut Core, host: Tid, how: LinkBreak) {
        let call = match core.links.get(host).map(|link| &link.state) {
            Some(State::Up) => None,
            Some(State::Quiet(call)) => Some(*call),
            _ => return,
        };
        let (now, timeout) = (core.now, core.settings.host_timeout);
        let is_first = core.links.get(host).is_some_and(|link| link.attempts.is_first(now, timeout));
        let call = match (how, call.unwrap_or_else(|| next_call(core, host))) {
            // Only a daemon that ends closes its connection so: what remains is to prove it.
            (LinkBreak::Ended, Call::At(_)) => Call::At(now),
            (LinkBreak::Lost, Call::At(when)) if is_first => {
                Call::At(when.min(now + timeout / FIRST_TURNS_PER_TIMEOUT))
            }
            (_, call) => call,
        };
        if call == Call::Awaited && how == LinkBreak::Ended {
            // That is no proof for a new master: a master that has removed this host closes the connection, too.
            return self.link_lost(core, host, "it has closed the connection");
        }
        set_state(core, host, State::Broken(call));
        self.watch_link(core, host);
    }

    /// Handles the news that there is a new connection, whichever host has called.
    pub fn link_resumed(&mut self, core: &mut Core, host: Tid) {
        let Some(link) = core.links.get_mut(host).filter(|link| link.state.has_session()) else { return };
        link.state = State::Up;
        link.quality.connection_begins();
        core.links.heard(host, core.now);
        self.watch_link(core, host);
        self.settle_suspicions(core);
    }

    /// Handles the news that a call for a new connection has failed.
    pub fn call_failed(&mut self, core: &mut Core, host: Tid, why: CallFailure) {
        let state = match core.links.get(host).map(|link| &link.state) {
            Some(State::Quiet(Call::Begun)) => State::Quiet,
            Some(State::Broken(Call::Begun)) => State::Broken,
            _ => return,
        };
        if why == CallFailure::Absent {
            return self.link_ended(core, host, "its daemon has ended");
        }
        let call = next_call(core, host);
        let hears = core.links.get(host).is_some_and(|link| core.now < quiet_at(core, link));
        let state = state(call);
        set_state(core, host, if hears && matches!(state, State::Quiet(_)) { State::Up } else { state });
        self.watch_link(core, host);
    }

    // ----- time

    /// Does what is due on a link, and plans the next time.
    pub fn watch_link(&mut self, core: &mut Core, host: Tid) {
        if let Some(next) = self.check_link(core, host) {
            core.links.set_deadline(host, next);
        }
    }

    /// Does what is due on a link, or ends the link if it was silent for too long; returns its next deadline.
    fn check_link(&mut self, core: &mut Core, host: Tid) -> Option<Time> {
        let (now, timeout) = (core.now, core.settings.host_timeout);
        let link = core.links.get(host)?;
        let silent_at = link.last_received + timeout;
        // The other host is to call this one, and the master's request for that may wait behind many other frames. If it calls in
        // vain, it says so itself.
        let is_called = core.own_host() > host && host != core.hosts.master();
        let patience = if is_called { timeout * TIMEOUTS_MAX } else { timeout };
        let lost = match &link.state {
            State::Failed => return None,
            // The daemon still tries to open it, and will report the result.
            State::Wanted { .. } if link.is_optional => return Some(now + timeout),
            State::Wanted { since, .. } if now >= *since + patience => "it cannot be reached".to_owned(),
            // Not later: a daemon that does nothing for long takes itself for suspended.
            State::Wanted { since, .. } => return Some((*since + patience).min(now + beat_interval(core))),
            _ if now >= silent_at => format!("silent for {} s", timeout.as_secs_f32()),
            _ => {
                let beat = send_beat(core, host)?;
                return Some(beat.min(silent_at).min(call_if_due(core, host)?));
            }
        };
        self.link_lost(core, host, &lost);
        None
    }
}

/// Handles the loss of the master.
fn lose_master(core: &mut Core, loss: Loss) {
    let master = core.hosts.master();
    core.links.get_mut(master).into_iter().for_each(|link| link.state = State::Failed);
    core.raise(match core.deputy {
        Some(_) => Event::MasterGone(loss),
        None => Event::MasterLost(loss.to_string()),
    });
}

/// Sends a beat if one is due; returns when the next one is. Beats are sent on a connection that has broken, too: a side need
/// not know that.
fn send_beat(core: &mut Core, host: Tid) -> Option<Time> {
    let (now, interval, is_master) = (core.now, beat_interval(core), core.is_master());
    let link = core.links.get_mut(host)?;
    let counts = is_master && link.quality.pass(now, link.last_received, interval);
    let beats = now >= link.sent + interval;
    if beats {
        link.sent = now;
    }
    let next = link.sent + interval;
    if counts {
        core.push(Action::CountRetransmissions { host });
    }
    if beats {
        core.push(Action::SendHost { host, frame: Frame::Beat });
    }
    Some(next)
}

/// Calls for a new connection if a call is due; returns when this must be looked at again.
fn call_if_due(core: &mut Core, host: Tid) -> Option<Time> {
    let (now, timeout) = (core.now, core.settings.host_timeout);
    let link = core.links.get(host)?;
    let (state, call): (fn(Call) -> State, Call) = match link.state {
        State::Up => {
            if now < quiet_at(core, link) {
                return Some(quiet_at(core, link));
            }
            (State::Quiet, next_call(core, host))
        }
        State::Quiet(call) => (State::Quiet, call),
        State::Broken(call) => (State::Broken, call),
        State::Wanted { .. } | State::Failed => return None,
    };
    let call = match call {
        Call::At(when) if now >= when => {
            core.links.get_mut(host)?.attempts.begin(now);
            core.push(Action::ReopenLink { host, addresses: core.hosts.callable_addresses_of(host) });
            Call::Begun
        }
        call => call,
    };
    set_state(core, host, state(call));
    Some(if let Call::At(when) = call { when } else { now + timeout })
}

/// Returns from when on the connection may not carry any more.
fn quiet_at(core: &Core, link: &Link) -> Time {
    link.last_received + core.settings.host_timeout / QUIETS_PER_TIMEOUT
}

fn set_state(core: &mut Core, host: Tid, state: State) {
    if let Some(link) = core.links.get_mut(host) {
        link.state = state;
    }
}

/// Returns the next call that this host makes.
fn next_call(core: &mut Core, host: Tid) -> Call {
    let (now, timeout) = (core.now, core.settings.host_timeout);
    if core.hosts.callable_addresses_of(host).is_empty() {
        return Call::Awaited;
    }
    let turn = if core.own_host() < host { Time::ZERO } else { timeout / TURNS_PER_TIMEOUT };
    core.links.get_mut(host).map_or(Call::Awaited, |link| Call::At(link.attempts.next(now, timeout) + turn))
}
