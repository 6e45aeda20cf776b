//! The processes of this host's tasks: how they are started, signalled and ended, and their standard streams.
//!
//! * `spawner`: starts processes; `starters`: several at the same time;
//! * `outputs`: the pipes that tasks print to;
//! * `inputs`: the pipes from which tasks read;
//! * `cores`: the cores to which tasks are bound.
mod cores;
pub mod inputs;
pub mod outputs;
pub mod spawner;
mod starters;

use crate::settings::Settings;
use crate::source::{Source, Stream};
use inputs::Inputs;
use outputs::Outputs;
use pvm_core::codes::Code;
use pvm_core::machine::Start;
use pvm_core::proto::{TaskEnd, Usage};
use pvm_core::tid::Tid;
use pvm_fmp::{Addressee, send_signal};
use rustix::event::epoll::{self, EventFlags};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, waitid};
use spawner::{Process, ProcessSpawner, SpawnError};
use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ExitStatus};
use std::rc::Rc;
use wait4::Wait4;

/// The process of a task.
struct Running {
    child: Child,
    /// Readable when the process has ended.
    pidfd: OwnedFd,
    /// The core to which the process is bound, if it is.
    _core: Option<cores::Claim>,
}

/// The processes that this daemon has started for tasks.
pub struct Processes {
    epoll: Rc<OwnedFd>,
    spawner: ProcessSpawner,
    running: HashMap<Tid, Running>,
    /// Process groups that tasks lead. A group stays here until its task is gone, which can be later than the end of
    /// the process.
    groups: HashMap<Tid, Pid>,
    /// What tasks print. A pipe can outlive the process, for example if the process was a script that started the task.
    pub outputs: Outputs,
    /// Standard inputs of tasks, to which the daemon writes the data of requests.
    pub inputs: Inputs,
}

impl Processes {
    /// Starts without any process.
    pub fn new(spawner: ProcessSpawner, epoll: Rc<OwnedFd>) -> Processes {
        let (outputs, inputs) = (Outputs::new(epoll.clone()), Inputs::new(epoll.clone()));
        Processes { epoll, spawner, running: HashMap::new(), groups: HashMap::new(), outputs, inputs }
    }

    /// Returns a text that states the limit of the daemon's descriptors and how to change this limit.
    pub fn descriptor_limit(&self) -> String {
        self.spawner.descriptor_limit()
    }

    /// Explains an error of the system, and names the limit that was reached.
    pub fn explain(&self, error: std::io::Error) -> SpawnError {
        self.spawner.spawn_error(error)
    }

    /// Starts the processes of tasks. Returns their process ids, in the same order. After an error, processes that were
    /// not tried have the same error.
    pub fn start(&mut self, settings: &Settings, starts: &[Start]) -> Vec<Result<i32, SpawnError>> {
        let processes = self.spawner.start_all(settings, starts);
        let watch = |(start, process): (&Start, Result<Process, SpawnError>)| {
            let process = self.watch(start.tid, process?);
            process.map_err(|errno| SpawnError { code: Code::OutOfRes, why: errno.to_string() })
        };
        starts.iter().zip(processes).map(watch).collect()
    }

    fn watch(&mut self, tid: Tid, process: Process) -> rustix::io::Result<i32> {
        let Process { child, pidfd, output, errors, input, leads, core } = process;
        let number = child.id() as i32;
        let streams = [(Stream::Output, Some(output)), (Stream::Errors, errors)];
        let streams: Vec<_> = streams.into_iter().filter_map(|(stream, end)| Some((stream, end?))).collect();
        let add = |descriptor: BorrowedFd<'_>, source: Source| {
            epoll::add(&self.epoll, descriptor, source.data(), EventFlags::IN)
        };
        let result = add(pidfd.as_fd(), Source::Process(tid))
            .and_then(|()| streams.iter().try_for_each(|(stream, end)| add(end.as_fd(), Source::Output(tid, *stream))));
        let mut running = Running { child, pidfd, _core: core };
        if let Err(errno) = result {
            let _ = running.child.kill().and_then(|()| running.child.wait());
            return Err(errno);
        }
        self.groups.extend(leads.then(|| (tid, Pid::from_child(&running.child))));
        self.running.insert(tid, running);
        streams.into_iter().for_each(|(stream, end)| self.outputs.insert(tid, stream, end));
        input.into_iter().for_each(|pipe| self.inputs.insert(tid, pipe));
        Ok(number)
    }

    /// Returns the id of the process that was started for a task, while the process runs.
    pub fn id_of(&self, tid: Tid) -> Option<i32> {
        self.running.get(&tid).map(|running| running.child.id() as i32)
    }

    /// Sends a signal to the process of a task. `peer`: the pidfd of the process at the other end of the task's
    /// connection, if this daemon has not started that process.
    pub fn signal(&self, tid: Tid, process: i32, signal: i32, peer: Option<BorrowedFd<'_>>) {
        let own = self.running.get(&tid).filter(|running| running.child.id() as i32 == process);
        match (own.map(|running| running.pidfd.as_fd()).or(peer), Pid::from_raw(process)) {
            (Some(pidfd), _) => send_signal(Addressee::Pidfd(pidfd), signal),
            (None, Some(process)) => send_signal(Addressee::Process(process), signal),
            (None, None) => {}
        }
    }

    /// Sends a signal to the process group of a task.
    ///
    /// No other group can get the group's number while a process of the group exists. The leader exists until its
    /// status is read; if a child of the leader has become the task, this child exists.
    pub fn signal_group(&self, tid: Tid, process: i32, signal: i32, peer: Option<BorrowedFd<'_>>) {
        let group_of_task = Pid::from_raw(process).and_then(|process| rustix::process::getpgid(Some(process)).ok());
        let group = self.groups.get(&tid).copied();
        if let Some(group) = group.filter(|_| self.running.contains_key(&tid) || group_of_task == group) {
            send_signal(Addressee::Group(group), signal);
        }
        // The task may have moved to another group.
        if group_of_task.is_none() || group_of_task != group {
            self.signal(tid, process, signal, peer);
        }
    }

    /// Kills the process group of a task of `pvm run` whose process was ended by a signal. The status of the process
    /// has not been read yet, so the number still belongs to the group. `task`: the process that is the task now; if it
    /// is another member of the group, the group is not killed.
    pub fn kill_group_after_signal(&self, tid: Tid, task: Option<i32>) {
        let Some((running, group)) = self.running.get(&tid).zip(self.groups.get(&tid)) else { return };
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let status = waitid(WaitId::PidFd(running.pidfd.as_fd()), options);
        let by_signal = status.is_ok_and(|status| status.is_some_and(|status| status.terminating_signal().is_some()));
        if by_signal && task.is_none_or(|process| process == running.child.id() as i32) {
            send_signal(Addressee::Group(*group), Signal::KILL.as_raw());
        }
    }

    /// Returns how a process has ended, and what it has used; `None` if it has not ended. This can be asked once.
    pub fn end(&mut self, tid: Tid) -> Option<TaskEnd> {
        let Running { child, pidfd, .. } = self.running.get_mut(&tid)?;
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        if matches!(waitid(WaitId::PidFd(pidfd.as_fd()), options), Ok(None)) {
            return None;
        }
        // The process has ended, so this does not block. An error means that the status was delivered elsewhere.
        let ended = child.wait4().ok();
        Some(ended.map_or_else(TaskEnd::default, |ended| TaskEnd {
            status: ended.status.into_raw(),
            usage: Usage {
                user_us: ended.rusage.utime.as_micros() as u64,
                system_us: ended.rusage.stime.as_micros() as u64,
                memory_max_bytes: ended.rusage.maxrss,
            },
        }))
    }

    /// Forgets a process that has ended, and its standard input. The output of the process can still be read.
    pub fn remove(&mut self, tid: Tid) {
        self.inputs.close(tid);
        let Some(running) = self.running.remove(&tid) else { return };
        // Closing the descriptor is not enough: a child that was just forked, and has not executed its program, holds
        // it too. Fails only for a descriptor that is not watched.
        let _ = epoll::delete(&self.epoll, running.pidfd);
    }

    /// Forgets the streams and the process group of a task that is gone.
    pub fn forget_task(&mut self, tid: Tid) {
        self.outputs.remove(tid);
        self.inputs.close(tid);
        self.groups.remove(&tid);
    }
}

/// Returns the status of a child that has ended.
pub fn status_of(child: &mut Child) -> Option<ExitStatus> {
    // An error means that the status was delivered elsewhere: the child has ended.
    child.try_wait().unwrap_or_else(|_| Some(ExitStatus::default()))
}

#[cfg(test)]
mod tests;
