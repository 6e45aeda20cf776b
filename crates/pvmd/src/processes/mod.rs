//! The processes of this host's tasks: how they are started, signalled and ended, and their standard streams.
//!
//! * `spawner` and `launch`: prepare processes; `starters`: threads that start them;
//! * `outputs`: the pipes that tasks print to;
//! * `inputs`: the pipes from which tasks read;
//! * `cores`: the cores to which tasks are bound.
mod cores;
pub mod inputs;
mod launch;
pub mod outputs;
pub mod spawner;
mod starters;

use crate::settings::Settings;
use crate::source::{Source, Stream};
use inputs::Inputs;
use outputs::Outputs;
use pvm_core::machine::Start;
use pvm_core::proto::ByteBuf;
use pvm_core::proto::{TaskEnd, Usage};
use pvm_core::tid::Tid;
use pvm_fmp::{Addressee, end_of_child, send_signal};
use rustix::event::epoll::{self, EventFlags};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, waitid};
use rustix::process::{PidfdFlags, pidfd_open};
use spawner::{Kept, ProcessSpawner, SpawnError};
use starters::{Failure, Starters};
use std::collections::{BTreeMap, HashMap};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use std::rc::Rc;

/// The process of a task.
struct Running {
    process: Pid,
    /// Readable when the process has ended.
    pidfd: OwnedFd,
    /// The core to which the process is bound, if it is.
    _core: Option<cores::Claim>,
}

impl Running {
    fn number(&self) -> i32 {
        self.process.as_raw_nonzero().get()
    }
}

/// A process that is being started.
struct Starting {
    tid: Tid,
    cookie: u32,
    path: ByteBuf,
    kept: Kept,
    /// Whether its task is still expected.
    is_wanted: bool,
}

/// A start that has ended.
pub struct Started {
    pub tid: Tid,
    /// The program.
    pub path: ByteBuf,
    /// The number of the process, or why there is none.
    pub result: Result<i32, SpawnError>,
    /// Whether the failure is news, and not that of another process of the same spawn.
    pub is_news: bool,
}

/// The processes that this daemon has started for tasks.
pub struct Processes {
    epoll: Rc<OwnedFd>,
    spawner: ProcessSpawner,
    starters: Starters,
    /// The processes that are being started, by the number of their job.
    starting: BTreeMap<u64, Starting>,
    last_job: u64,
    running: HashMap<Tid, Running>,
    /// Processes that were killed because nobody expects them, and whose status is still to be read.
    killed: Vec<Pid>,
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
    pub fn new(spawner: ProcessSpawner, epoll: Rc<OwnedFd>) -> std::io::Result<Processes> {
        let (outputs, inputs) = (Outputs::new(epoll.clone()), Inputs::new(epoll.clone()));
        let starters = Starters::new()?;
        epoll::add(&epoll, starters.bell(), Source::Started.data(), EventFlags::IN)?;
        Ok(Processes {
            epoll,
            spawner,
            starters,
            starting: BTreeMap::new(),
            last_job: 0,
            running: HashMap::new(),
            killed: Vec::new(),
            groups: HashMap::new(),
            outputs,
            inputs,
        })
    }

    /// Returns a text that states the limit of the daemon's descriptors and how to change this limit.
    pub fn descriptor_limit(&self) -> String {
        self.spawner.descriptor_limit()
    }

    /// Explains an error of the system, and names the limit that was reached.
    pub fn explain(&self, error: std::io::Error) -> SpawnError {
        self.spawner.spawn_error(error)
    }

    /// Begins to start the processes of tasks; [`Processes::take_started`] tells the results. Returns the starts that have
    /// failed already. After an error, processes that were not tried have the same error.
    pub fn start(&mut self, settings: &Settings, starts: &[Start]) -> Vec<Started> {
        let (mut jobs, mut failure) = (Vec::with_capacity(starts.len()), None);
        for start in starts {
            self.last_job += 1;
            match self.spawner.prepare(self.last_job, settings, start) {
                Ok((job, kept)) => {
                    let (tid, cookie, path) = (start.tid, start.cookie, start.path.clone());
                    self.starting.insert(self.last_job, Starting { tid, cookie, path, kept, is_wanted: true });
                    jobs.push(job);
                }
                Err(error) => {
                    failure = Some(self.spawner.spawn_error(error));
                    break;
                }
            }
        }
        let not_tried = &starts[jobs.len()..];
        if !jobs.is_empty() {
            self.starters.begin(jobs);
        }
        let failed = |(place, start): (usize, &Start)| {
            let error = failure.clone()?;
            Some(Started { tid: start.tid, path: start.path.clone(), result: Err(error), is_news: place == 0 })
        };
        not_tried.iter().enumerate().filter_map(failed).collect()
    }

    /// Returns the starts that have ended since the last call.
    pub fn take_started(&mut self) -> Vec<Started> {
        let ended = self.starters.take_ended();
        ended.into_iter().filter_map(|(job, result)| self.end_start(job, result)).collect()
    }

    /// Ends a start. A process that nobody expects any more is killed.
    fn end_start(&mut self, job: u64, result: Result<Pid, Failure>) -> Option<Started> {
        let Starting { tid, path, kept, is_wanted, .. } = self.starting.remove(&job)?;
        let is_news = result.as_ref().err().is_none_or(|failure| failure.was_tried);
        let result = match result {
            Ok(process) if !is_wanted => {
                self.kill(process);
                return None;
            }
            Ok(process) => self.watch(tid, process, kept).map_err(|errno| {
                self.kill(process);
                self.spawner.spawn_error(errno.into())
            }),
            Err(_) if !is_wanted => return None,
            Err(failure) => Err(self.spawner.spawn_error(failure.error)),
        };
        Some(Started { tid, path, result, is_news })
    }

    /// Returns whether a process that has this cookie is being started.
    pub fn is_starting(&self, cookie: u32) -> bool {
        self.starting.values().any(|starting| starting.cookie == cookie && starting.is_wanted)
    }

    /// Kills a process that no task has.
    fn kill(&mut self, process: Pid) {
        // Its status is not read yet, so no other process has its number.
        send_signal(Addressee::Process(process), Signal::KILL.as_raw());
        self.killed.push(process);
    }

    /// Reads the status of killed processes that have ended.
    pub fn bury(&mut self) {
        self.killed.retain(|process| matches!(end_of_child(*process), Ok(None)));
    }

    fn watch(&mut self, tid: Tid, process: Pid, kept: Kept) -> rustix::io::Result<i32> {
        let Kept { output, errors, input, leads, core } = kept;
        let pidfd = pidfd_open(process, PidfdFlags::empty())?;
        let streams = [(Stream::Output, Some(output)), (Stream::Errors, errors)];
        let streams: Vec<_> = streams.into_iter().filter_map(|(stream, end)| Some((stream, end?))).collect();
        let add = |descriptor: BorrowedFd<'_>, source: Source| {
            epoll::add(&self.epoll, descriptor, source.data(), EventFlags::IN)
        };
        add(pidfd.as_fd(), Source::Process(tid)).and_then(|()| {
            streams.iter().try_for_each(|(stream, end)| add(end.as_fd(), Source::Output(tid, *stream)))
        })?;
        self.groups.extend(leads.then_some((tid, process)));
        self.running.insert(tid, Running { process, pidfd, _core: core });
        streams.into_iter().for_each(|(stream, end)| self.outputs.insert(tid, stream, end));
        input.into_iter().for_each(|pipe| self.inputs.insert(tid, pipe));
        Ok(process.as_raw_nonzero().get())
    }

    /// Returns the id of the process that was started for a task, while the process runs.
    pub fn id_of(&self, tid: Tid) -> Option<i32> {
        self.running.get(&tid).map(Running::number)
    }

    /// Sends a signal to the process of a task. `peer`: the pidfd of the process at the other end of the task's
    /// connection, if this daemon has not started that process.
    pub fn signal(&self, tid: Tid, process: i32, signal: i32, peer: Option<BorrowedFd<'_>>) {
        let own = self.running.get(&tid).filter(|running| running.number() == process);
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
        if by_signal && task.is_none_or(|process| process == running.number()) {
            send_signal(Addressee::Group(*group), Signal::KILL.as_raw());
        }
    }

    /// Returns how a process has ended, and what it has used; `None` if it has not ended. This can be asked once.
    pub fn end(&mut self, tid: Tid) -> Option<TaskEnd> {
        let Running { process, pidfd, .. } = self.running.get(&tid)?;
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        if matches!(waitid(WaitId::PidFd(pidfd.as_fd()), options), Ok(None)) {
            return None;
        }
        // An error means that the status was delivered elsewhere.
        let ended = end_of_child(*process).ok().flatten();
        Some(ended.map_or_else(TaskEnd::default, |ended| TaskEnd {
            status: ended.status,
            usage: Usage {
                user_us: ended.user.as_micros() as u64,
                system_us: ended.system.as_micros() as u64,
                memory_max_bytes: ended.memory_max_bytes,
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

    /// Forgets the streams and the process group of a task that is gone, and that its process is expected.
    pub fn forget_task(&mut self, tid: Tid) {
        let starters = &mut self.starters;
        self.starting.retain(|job, starting| {
            starting.is_wanted &= starting.tid != tid;
            starting.is_wanted || !starters.cancel(*job)
        });
        self.outputs.remove(tid);
        self.inputs.close(tid);
        self.groups.remove(&tid);
    }
}

#[cfg(test)]
mod tests;
