//! Signals, `pvm_tickle`, halt.
use super::action::Action;
use super::core::{Core, SubMachine};
use super::event::Event;
use super::mailbox::Mailboxes;
use super::membership::Membership;
use super::request_kinds::DECLARE_FAILED;
use super::spawn::Spawns;
use crate::codes::Code;
use crate::proto::{Reply, ToTask};
use crate::tid::Tid;
use crate::time::Time;
use crate::wire::Frame;
use std::time::Duration;

/// The signals that a halt sends: `SIGTERM`, then `SIGKILL`.
const SIGNAL_TERMINATE: i32 = 15;
const SIGNAL_KILL: i32 = 9;
/// How long the daemon waits for killed processes to vanish before it stops.
const KILLED_WAIT: Duration = Duration::from_secs(2);
/// How much longer the master waits if there are other hosts, because those hosts have just begun to kill their tasks.
const LEAVING_WAIT: Duration = Duration::from_secs(1);
/// The maximum number of arguments of `pvm_tickle`.
const TICKLE_ARGUMENTS_MAX: usize = 10;

/// The progress of a halt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Halt {
    No,
    /// Tasks were asked to end; at the given time, those that still run are killed.
    Asked(Time),
    /// Tasks were killed; the daemon stops at the given time at the latest.
    Killed(Time),
    Stopped,
}

/// What is halted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scope {
    /// All hosts, by the master.
    Machine,
    Host,
}

/// The end of the daemon.
pub(super) struct Control {
    halt: Halt,
    scope: Scope,
    /// At a master whose deputy was lost without a sign that it ends, before a halt or during it: until when that one may still
    /// live. A deputy that has not heard of the halt would take the end of this daemon for its death.
    deputy_until: Time,
}

impl Default for Control {
    fn default() -> Control {
        Control { halt: Halt::No, scope: Scope::Host, deputy_until: Time::ZERO }
    }
}

impl SubMachine for Control {
    fn name(&self) -> &'static str {
        "halt"
    }
    fn is_idle(&self) -> bool {
        true
    }
    fn on_event(&mut self, core: &mut Core, event: &Event) {
        if matches!(event, Event::HostGone(host) if core.deputy == Some(*host)) {
            self.deputy_until = core.now + core.settings.host_timeout * 3 / 2;
        }
        let why = match event {
            _ if core.halting => return,
            // A host cannot work without its master.
            Event::MasterLost(why) => format!("lost the master {}: {why}", core.hosts.name_of(core.hosts.master())),
            Event::MajorityLost => {
                core.fall_silent();
                "lost most other hosts, which may have another master now".to_owned()
            }
            _ => return,
        };
        core.log(format!("{why}; this host ends with all its tasks"));
        self.scope = Scope::Host;
        self.begin_halt(core, None, &why);
    }
}

/// Sends a signal to the process of a task.
pub(super) fn signal(core: &mut Core, tid: Tid, signal: i32) -> Result<Reply, Code> {
    if !tid.is_task() {
        return Err(Code::BadParam);
    }
    if tid.host() != core.own_host() {
        core.send_host(tid.host(), Frame::Signal { tid, signal });
    } else {
        signal_here(core, tid, signal, false);
    }
    Ok(Reply::Done)
}

/// Sends a signal to the process group of a task of `pvm run`; if the task was not started as the leader of a group,
/// only to the task's process.
pub(super) fn signal_group(core: &mut Core, tid: Tid, signal: i32) -> Result<Reply, Code> {
    if !tid.is_task() {
        return Err(Code::BadParam);
    }
    if tid.host() != core.own_host() {
        core.send_host(tid.host(), Frame::SignalGroup { tid, signal });
    } else {
        signal_here(core, tid, signal, true);
    }
    Ok(Reply::Done)
}

/// Sends a signal to a task of this host, or to its group if it leads one. A process that is just being started gets it
/// then.
fn signal_here(core: &mut Core, tid: Tid, signal: i32, group: bool) {
    let Some(task) = core.tasks.get_mut(tid) else { return };
    let (is_starting, process) = (task.keep_signal(signal), task.process);
    match group && task.leads {
        _ if is_starting || process <= 0 => {}
        true => core.push(Action::SignalGroup { tid, process, signal }),
        false => core.push(Action::Signal { tid, process, signal }),
    }
}

/// The sub-machines that `pvm_tickle` reads and changes.
pub(super) struct TickleTargets<'a> {
    pub membership: &'a mut Membership,
    pub spawns: &'a Spawns,
    pub mailboxes: &'a Mailboxes,
}

/// Handles `pvm_tickle`.
pub(super) fn tickle(core: &mut Core, targets: &mut TickleTargets<'_>, arguments: &[i32]) -> Result<Reply, Code> {
    if arguments.is_empty() || arguments.len() > TICKLE_ARGUMENTS_MAX {
        return Err(Code::BadParam);
    }
    let argument = arguments.get(1).copied().unwrap_or(0);
    match arguments[0] {
        0..=4 => dump(core, targets, arguments[0]),
        5 => return Ok(Reply::Ints(vec![core.debug_mask])),
        6 => core.debug_mask = argument,
        9 => core.push(Action::LogStatistics { reset: argument != 0 }),
        DECLARE_FAILED => {
            // Only the master executes this.
            let host = Tid(argument as u32);
            let here = host.is_host() && host != core.own_host() && core.hosts.is_here(host);
            if here {
                targets.membership.lose_host(core, host, "declared to have failed");
            }
            return Ok(Reply::Ints(vec![i32::from(here)]));
        }
        _ => {}
    }
    Ok(Reply::Ints(Vec::new()))
}

/// Writes a table to the log.
fn dump(core: &mut Core, targets: &TickleTargets<'_>, what: i32) {
    let lines: Vec<String> = match what {
        1 => core.hosts.summary().collect(),
        2 => core.tasks.iter().map(|(tid, task)| format!("task {tid} {:?} {}", task.state, task.process)).collect(),
        3 => vec![format!("{} spawns under way", targets.spawns.pending())],
        4 => targets.mailboxes.summary().collect(),
        _ => vec![format!("{} tasks, {} actions queued", core.tasks.count(), core.actions.len())],
    };
    lines.into_iter().for_each(|line| core.log(line));
}

impl Control {
    pub fn next_wakeup(&self) -> Option<Time> {
        match self.halt {
            Halt::Asked(when) | Halt::Killed(when) => Some(when),
            Halt::No | Halt::Stopped => None,
        }
    }

    /// At the master, halts the machine; on another host, halts that host. All tasks are asked to end; those that
    /// daemons started are killed if they do not end; then [`Action::Stop`] follows. The task that asked gets an
    /// answer, but SIGTERM normally ends the task before it reads the answer. `why`: the reason, unless somebody has asked
    /// for it.
    pub fn halt(&mut self, core: &mut Core, asker: Option<(Tid, u32)>, why: &str) {
        if core.halting {
            return asker.into_iter().for_each(|(tid, wait)| core.reply(tid, wait, Ok(Reply::Done)));
        }
        self.scope = if core.is_master() { Scope::Machine } else { Scope::Host };
        self.begin_halt(core, asker, why);
    }

    fn begin_halt(&mut self, core: &mut Core, asker: Option<(Tid, u32)>, why: &str) {
        core.halting = true;
        self.halt = Halt::Asked(core.now + core.settings.halt_grace);
        match self.scope {
            Scope::Machine => core.hosts.others().into_iter().for_each(|host| core.send_host(host, Frame::Leave)),
            Scope::Host => core.push(Action::Withdraw),
        }
        let tasks: Vec<Tid> = core.tasks.iter().map(|(tid, _)| tid).collect();
        tasks.iter().for_each(|tid| signal_here(core, *tid, SIGNAL_TERMINATE, false));
        asker.into_iter().for_each(|(tid, wait)| core.reply(tid, wait, Ok(Reply::Done)));
        for tid in tasks {
            core.send(tid, ToTask::Halting(why.to_owned()));
        }
    }

    /// Takes the next step of a halt if it is due.
    pub fn on_time(&mut self, core: &mut Core) {
        match self.halt {
            Halt::Asked(when) if core.now >= when => {
                // Other hosts have just begun to kill their tasks.
                let wait = if core.hosts.has_others() { KILLED_WAIT + LEAVING_WAIT } else { KILLED_WAIT };
                self.halt = Halt::Killed(core.now + wait);
                let tasks: Vec<(Tid, i32)> = core.tasks.iter().map(|(tid, task)| (tid, task.started)).collect();
                for (tid, process) in tasks {
                    let is_starting = core.tasks.get_mut(tid).is_some_and(|task| task.keep_signal(SIGNAL_KILL));
                    if !is_starting && process > 0 {
                        core.push(Action::Signal { tid, process, signal: SIGNAL_KILL });
                    }
                }
            }
            Halt::Killed(when) if core.now >= when => match self.waits_for_deputy(core) {
                true => self.halt = Halt::Killed(core.now + core.settings.host_timeout / 4),
                false => self.stop(core),
            },
            _ => {}
        }
    }

    /// Ends a halt when no process and no other host is left.
    pub fn stop_when_empty(&mut self, core: &mut Core) {
        let waits = self.scope == Scope::Machine && core.hosts.has_others() || self.waits_for_deputy(core);
        if core.halting && !waits && core.tasks.iter().all(|(_, task)| task.started == 0 && !task.is_starting) {
            self.stop(core);
        }
    }

    fn waits_for_deputy(&self, core: &Core) -> bool {
        let is_here = core.deputy.is_some_and(|deputy| core.hosts.is_here(deputy));
        self.scope == Scope::Machine && (is_here || core.now < self.deputy_until)
    }

    /// Stops the daemon, once.
    fn stop(&mut self, core: &mut Core) {
        if self.halt != Halt::Stopped {
            self.halt = Halt::Stopped;
            if !core.is_master() {
                core.send_master(Frame::Leave);
            }
            core.push(Action::Stop);
        }
    }
}
