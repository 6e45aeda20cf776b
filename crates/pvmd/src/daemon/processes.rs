//! Processes of tasks, and what they print.
use super::inputs::Input;
use super::{
    COLLECTOR_BACKLOG_BYTES_MAX, Daemon, LOG_BACKLOG_BYTES_MAX, LOGGED_BYTES, OUTPUT_BYTES, OUTPUT_IN_TURN_MAX,
    Running, Source,
};
use crate::frame_budget::FrameBudget;
use crate::process_spawner::{self, Process};
use crate::source::Stream;
use pvm_core::codes::Code;
use pvm_core::machine::{Connection, Start};
use pvm_core::tid::Tid;
use rustix::event::epoll::{self, EventFlags};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, waitid};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

impl Daemon {
    pub(super) fn start(&mut self, start: &Start) {
        let result = self.process_spawner.start(&self.settings, start).map_err(|failure| {
            let (path, why) = (String::from_utf8_lossy(&start.path), failure.why);
            self.log.line(&format!("cannot start {path}: {why}"));
            failure.code
        });
        let result = result.and_then(|process| self.watch(start.tid, process));
        self.machine.handle_started(start.tid, result);
    }

    fn watch(&mut self, tid: Tid, process: Process) -> Result<i32, Code> {
        let Process { child, pidfd, output, errors, input, leads } = process;
        let number = child.id() as i32;
        let streams = [(Stream::Output, Some(output)), (Stream::Errors, errors)];
        let streams: Vec<_> = streams.into_iter().filter_map(|(stream, end)| Some((stream, end?))).collect();
        let add = |descriptor: BorrowedFd<'_>, source: Source| {
            epoll::add(&self.epoll, descriptor, source.data(), EventFlags::IN).map_err(|_| Code::OutOfRes)
        };
        let result = add(pidfd.as_fd(), Source::Process(tid))
            .and_then(|()| streams.iter().try_for_each(|(stream, end)| add(end.as_fd(), Source::Output(tid, *stream))));
        let mut running = Running { child, pidfd };
        match result {
            Ok(()) => {
                self.groups_led.extend(leads.then(|| (tid, Pid::from_child(&running.child))));
                self.running.insert(tid, running);
                self.outputs.extend(streams.into_iter().map(|(stream, end)| ((tid, stream), end)));
                self.inputs.extend(input.map(|pipe| (tid, Input::new(pipe))));
                Ok(number)
            }
            Err(code) => {
                let _ = running.child.kill().and_then(|()| running.child.wait());
                Err(code)
            }
        }
    }

    pub(super) fn signal(&self, tid: Tid, process: i32, signal: i32) {
        let own = self.running.get(&tid).filter(|running| running.child.id() as i32 == process);
        process_spawner::signal(process, signal, own.map(|running| running.pidfd.as_fd()));
    }

    /// A group has its number as long as somebody is in it: its leader, of which the status has not been taken, or
    /// the task, where a child of the leader has become that.
    pub(super) fn signal_group(&self, tid: Tid, process: i32, signal: i32) {
        let group_of_task = Pid::from_raw(process).and_then(|process| rustix::process::getpgid(Some(process)).ok());
        let group = self.groups_led.get(&tid).copied();
        if let Some(group) = group.filter(|_| self.running.contains_key(&tid) || group_of_task == group) {
            process_spawner::signal_group(group, signal);
        }
        // It may have made itself a group of its own.
        if group_of_task.is_none() || group_of_task != group {
            self.signal(tid, process, signal);
        }
    }

    /// The task is gone: so are its descriptors.
    pub(super) fn forget_process(&mut self, tid: Tid) {
        Stream::ALL.iter().for_each(|stream| drop(self.outputs.remove(&(tid, *stream))));
        self.inputs.remove(&tid);
        self.groups_led.remove(&tid);
    }

    /// Whether the collector of a task's output has more to take than one part in so many of the most.
    fn is_behind(&mut self, tid: Tid, part: usize) -> bool {
        let Some(collector) = self.machine.collector_of(tid) else {
            // It goes to the log of the machine, which is the master's.
            return self.links.queued_bytes(self.machine.master()) > LOG_BACKLOG_BYTES_MAX / part;
        };
        if collector.host() != self.machine.own_host() {
            return self.machine.output_under_way(collector) > self.machine.far_output_max() / part as u64;
        }
        // A collector is not disconnected for what its tasks print.
        let most = COLLECTOR_BACKLOG_BYTES_MAX.min(self.settings.backlog_bytes_max / 2);
        self.connections.backlog_of(collector) > most / part
    }

    /// A task's pipe is left alone until its collector has caught up.
    fn hold_back(&mut self, tid: Tid, stream: Stream) {
        let Some(output) = self.outputs.get(&(tid, stream)) else { return };
        if epoll::delete(&self.epoll, output).is_ok() {
            self.held_back.push((tid, stream));
        }
    }

    /// Reads again what was held back, where the collector has caught up.
    pub(super) fn release_outputs(&mut self) {
        for (tid, stream) in std::mem::take(&mut self.held_back) {
            if self.is_behind(tid, 2) {
                self.held_back.push((tid, stream));
            } else if let Some(output) = self.outputs.get(&(tid, stream)) {
                // Without room in the kernel it stays unread until the process ends.
                let _ = epoll::add(&self.epoll, output, Source::Output(tid, stream).data(), EventFlags::IN);
            }
        }
    }

    /// The socket of a connection has taken something: what other hosts have printed for that task may be
    /// taken, then.
    pub(super) fn on_collector_progress(&mut self, connection: Connection) {
        let Some(client) = self.connections.get_mut(connection) else { return };
        let Some(tid) = client.tid else { return };
        if !self.machine.is_given_output(tid) {
            return;
        }
        // What has come since then counts as taken too: it is no more than may be under way.
        if client.write_closed || client.has_sent_backlog() {
            self.machine.handle_output_taken(tid);
        }
    }

    /// Takes what a task has printed, as far as its collector keeps up.
    pub(super) fn take_output(&mut self, tid: Tid, stream: Stream) {
        let mut budget = FrameBudget::new();
        while budget.take() {
            if self.is_behind(tid, 1) {
                return self.hold_back(tid, stream);
            }
            if self.read_piece(tid, stream) == 0 {
                return;
            }
            self.execute_actions();
        }
    }

    /// Takes all that a task has printed, the task having ended: no pipe holds more.
    pub(super) fn read_outputs(&mut self, tid: Tid) {
        for stream in Stream::ALL {
            let mut left = OUTPUT_IN_TURN_MAX;
            while left > 0 {
                match self.read_piece(tid, stream) {
                    0 => break,
                    count => left = left.saturating_sub(count),
                }
            }
        }
    }

    /// Reads once. How many bytes that gave; after none there are no more for now.
    fn read_piece(&mut self, tid: Tid, stream: Stream) -> usize {
        let mut data = [0; OUTPUT_BYTES];
        // Each line of the log takes its time.
        let bytes = if self.machine.collector_of(tid).is_some() { OUTPUT_BYTES } else { LOGGED_BYTES };
        let Some(output) = self.outputs.get(&(tid, stream)) else { return 0 };
        match rustix::io::read(output, &mut data[..bytes]) {
            Ok(count) if count > 0 => {
                match stream {
                    Stream::Output => self.machine.handle_output(tid, &data[..count]),
                    Stream::Errors => self.machine.handle_errors(tid, &data[..count]),
                }
                return count;
            }
            Err(Errno::AGAIN | Errno::INTR) => {}
            // The end, or a pipe that is broken.
            _ => drop(self.outputs.remove(&(tid, stream))),
        }
        0
    }

    /// A process has ended: first everything that it sent and printed, then its end.
    pub(super) fn on_process_ended(&mut self, tid: Tid) {
        self.end_group(tid);
        let Some(running) = self.running.get_mut(&tid) else { return };
        let status = match running.child.try_wait() {
            Ok(Some(status)) => status,
            Ok(None) => return,
            // Somebody else was told how it ended.
            Err(_) => ExitStatus::default(),
        };
        if let Some(connection) = self.connections.of_task(tid) {
            self.receive(connection, FrameBudget::unlimited());
        }
        self.drain(tid);
        self.execute_actions();
        self.read_outputs(tid);
        self.inputs.remove(&tid);
        // Closing takes it out of `epoll`.
        self.running.remove(&tid);
        self.machine.handle_process_end(tid, status.into_raw());
    }

    /// A task of `pvm run` that ends by a signal takes its process group with it, as long as its status has not
    /// been taken and the number is the group's. Not where another of the group is the task.
    fn end_group(&self, tid: Tid) {
        let Some((running, group)) = self.running.get(&tid).zip(self.groups_led.get(&tid)) else { return };
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let status = waitid(WaitId::PidFd(running.pidfd.as_fd()), options);
        let by_signal = status.is_ok_and(|status| status.is_some_and(|status| status.terminating_signal().is_some()));
        if by_signal && self.machine.process_of(tid).is_none_or(|process| process == running.child.id() as i32) {
            process_spawner::signal_group(*group, Signal::KILL.as_raw());
        }
    }
}
