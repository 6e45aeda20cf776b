//! Signals, tickle, halt.
use super::{Action, Machine, Time};
use crate::codes::Code;
use crate::proto::{Reply, ToTask};
use crate::tid::Tid;
use crate::wire::Frame;
use std::time::Duration;

/// The numbers of the signals that a halt uses.
const SIGNAL_TERMINATE: i32 = 15;
const SIGNAL_KILL: i32 = 9;
/// How long killed processes may take to vanish before the daemon ends all the same.
const KILLED_WAIT: Duration = Duration::from_secs(2);
/// How much longer the master waits for hosts that kill their last tasks.
const LEAVING_WAIT: Duration = Duration::from_secs(1);
/// `pvm_tickle` takes this many arguments at most.
const TICKLE_ARGUMENTS_MAX: usize = 10;
/// The first argument of a `pvm_tickle` that says of a host that it has failed.
const DECLARE_FAILED: i32 = 8;

/// The host that a `pvm_tickle` declares to have failed. The master decides that, as it does when somebody deletes
/// a host.
pub(super) fn declared_failed(arguments: &[i32]) -> Option<Tid> {
    match arguments {
        [DECLARE_FAILED, host, ..] => Some(Tid(*host as u32)),
        _ => None,
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Halt {
    No,
    /// Tasks were asked to end; they are killed then.
    Asked(Time),
    /// Tasks were killed; the daemon ends then.
    Killed(Time),
    Stopped,
}

/// What concerns the daemon as a whole.
pub(super) struct Control {
    halt: Halt,
    debug_mask: i32,
}

impl Default for Control {
    fn default() -> Control {
        Control { halt: Halt::No, debug_mask: 0 }
    }
}

impl Control {
    pub fn halting(&self) -> bool {
        self.halt != Halt::No
    }
    pub fn next_wakeup(&self) -> Option<Time> {
        match self.halt {
            Halt::Asked(when) | Halt::Killed(when) => Some(when),
            Halt::No | Halt::Stopped => None,
        }
    }
}

impl Machine {
    /// Sets the debug mask, as `pvmd -d` says.
    pub fn set_debug_mask(&mut self, mask: i32) {
        self.control.debug_mask = mask;
    }

    /// The debug mask, as set at the start or by `pvm_tickle`.
    pub fn debug_mask(&self) -> i32 {
        self.control.debug_mask
    }

    pub(super) fn signal(&mut self, tid: Tid, signal: i32) -> Result<Reply, Code> {
        if !tid.is_task() {
            return Err(Code::BadParam);
        }
        if tid.host() != self.own_host() {
            self.send_host(tid.host(), Frame::Signal { tid, signal });
        } else if let Some(task) = self.tasks.get(tid).filter(|task| task.process > 0) {
            self.actions.push_back(Action::Signal { tid, process: task.process, signal });
        }
        Ok(Reply::Done)
    }

    /// The same for all processes in the group of a task of `pvm run`: what it has started, and has not left it.
    pub(super) fn signal_group(&mut self, tid: Tid, signal: i32) -> Result<Reply, Code> {
        if !tid.is_task() {
            return Err(Code::BadParam);
        }
        if tid.host() != self.own_host() {
            self.send_host(tid.host(), Frame::SignalGroup { tid, signal });
        } else if let Some(task) = self.tasks.get(tid).filter(|task| task.process > 0) {
            let process = task.process;
            self.actions.push_back(match task.leads {
                true => Action::SignalGroup { tid, process, signal },
                false => Action::Signal { tid, process, signal },
            });
        }
        Ok(Reply::Done)
    }

    pub(super) fn tickle(&mut self, arguments: &[i32]) -> Result<Reply, Code> {
        if arguments.is_empty() || arguments.len() > TICKLE_ARGUMENTS_MAX {
            return Err(Code::BadParam);
        }
        let argument = arguments.get(1).copied().unwrap_or(0);
        match arguments[0] {
            0..=4 => self.dump(arguments[0]),
            5 => return Ok(Reply::Ints(vec![self.control.debug_mask])),
            6 => self.control.debug_mask = argument,
            DECLARE_FAILED => return Ok(Reply::Ints(vec![i32::from(self.declare_failed(Tid(argument as u32)))])),
            _ => {}
        }
        Ok(Reply::Ints(Vec::new()))
    }

    /// Writes a table to the log.
    fn dump(&mut self, what: i32) {
        let lines: Vec<String> = match what {
            1 => self.hosts.summary().collect(),
            2 => self.tasks.iter().map(|(tid, task)| format!("task {tid} {:?} {}", task.state, task.process)).collect(),
            3 => vec![format!("{} spawns under way", self.spawns.pending())],
            4 => self.mailboxes.summary().collect(),
            _ => vec![format!("{} tasks, {} actions queued", self.tasks.count(), self.actions.len())],
        };
        for line in lines {
            self.actions.push_back(Action::Log { tid: Tid::DAEMON, line: line.into_bytes() });
        }
    }

    /// Somebody says that a host has failed. Decided by the master.
    fn declare_failed(&mut self, host: Tid) -> bool {
        let there = host.is_host() && host != self.own_host() && self.hosts.is_here(host);
        if there {
            self.lose_host(host, "declared to have failed");
        }
        there
    }

    /// At the master the machine ends, elsewhere the host: all tasks are asked to end, those of the
    /// daemon's own are killed when they do not, then [`Action::Stop`] comes.
    pub fn halt(&mut self, now: Time) {
        self.halt_for(now, None);
    }

    /// Halts; answers the task that asked, which is to end by its signal before it reads the answer.
    pub(super) fn halt_for(&mut self, now: Time, asker: Option<(Tid, u32)>) {
        self.pass(now);
        if self.control.halting() {
            return asker.into_iter().for_each(|(tid, wait)| self.reply(tid, wait, Ok(Reply::Done)));
        }
        self.control.halt = Halt::Asked(self.now + self.settings.halt_grace);
        if self.hosts.is_master() {
            self.fail_add(Code::SysErr);
            self.hosts.others().into_iter().for_each(|host| self.send_host(host, Frame::Leave));
        }
        let tasks: Vec<(Tid, i32)> = self.tasks.iter().map(|(tid, task)| (tid, task.process)).collect();
        for &(tid, process) in tasks.iter().filter(|(_, process)| *process > 0) {
            self.actions.push_back(Action::Signal { tid, process, signal: SIGNAL_TERMINATE });
        }
        asker.into_iter().for_each(|(tid, wait)| self.reply(tid, wait, Ok(Reply::Done)));
        for (tid, _) in tasks {
            self.send(tid, ToTask::Halting);
        }
        self.stop_when_empty();
    }

    /// Without its master a host has no machine.
    pub(super) fn lose_master(&mut self, why: &str) {
        if !self.control.halting() {
            let name = self.name_of(self.hosts.master());
            self.log(format!("lost the master {name}: {why}; this host ends with all its tasks"));
            self.halt(self.now);
        }
    }

    pub(super) fn check_halt(&mut self, now: Time) {
        match self.control.halt {
            Halt::Asked(when) if now >= when => {
                // Other hosts have begun to kill just now.
                let wait = if self.hosts.has_others() { KILLED_WAIT + LEAVING_WAIT } else { KILLED_WAIT };
                self.control.halt = Halt::Killed(now + wait);
                for (tid, task) in self.tasks.iter().filter(|(_, task)| task.started > 0) {
                    self.actions.push_back(Action::Signal { tid, process: task.started, signal: SIGNAL_KILL });
                }
            }
            Halt::Killed(when) if now >= when => self.stop(),
            _ => {}
        }
    }

    pub(super) fn stop_when_empty(&mut self) {
        let waits = self.hosts.is_master() && self.hosts.has_others();
        if self.control.halting() && !waits && self.tasks.iter().all(|(_, task)| task.started == 0) {
            self.stop();
        }
    }

    fn stop(&mut self) {
        if self.control.halt != Halt::Stopped {
            self.control.halt = Halt::Stopped;
            if !self.hosts.is_master() {
                self.send_host(self.hosts.master(), Frame::Leave);
            }
            self.actions.push_back(Action::Stop);
        }
    }
}
