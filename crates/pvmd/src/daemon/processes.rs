//! Processes of tasks, and what they print.
use super::{
    COLLECTOR_BACKLOG_BYTES_MAX, Daemon, LOG_BACKLOG_BYTES_MAX, LOGGED_BYTES, OUTPUT_BYTES, OUTPUT_IN_TURN_MAX,
    Running, Source,
};
use crate::children::Process;
use crate::turn::Turn;
use pvm_core::codes::Code;
use pvm_core::machine::{Connection, Start};
use pvm_core::tid::Tid;
use rustix::event::epoll::{self, EventFlags};
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

impl Daemon {
    pub(super) fn start(&mut self, start: &Start) {
        let result = self.nursery.start(&self.settings, start).map_err(|failure| {
            let (path, why) = (String::from_utf8_lossy(&start.path), failure.why);
            self.log.line(&format!("cannot start {path}: {why}"));
            failure.code
        });
        let result = result.and_then(|process| self.watch(start.tid, process));
        self.machine.handle_started(start.tid, result);
    }

    fn watch(&mut self, tid: Tid, process: Process) -> Result<i32, Code> {
        let Process { child, pidfd, output } = process;
        let number = child.id() as i32;
        let add = |descriptor: BorrowedFd<'_>, source: Source| {
            epoll::add(&self.epoll, descriptor, source.data(), EventFlags::IN).map_err(|_| Code::OutOfRes)
        };
        let result = add(pidfd.as_fd(), Source::Process(tid)).and_then(|()| add(output.as_fd(), Source::Output(tid)));
        let mut running = Running { child, pidfd };
        match result {
            Ok(()) => {
                self.running.insert(tid, running);
                self.outputs.insert(tid, output);
                Ok(number)
            }
            Err(code) => {
                let _ = running.child.kill().and_then(|()| running.child.wait());
                Err(code)
            }
        }
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
    fn hold_back(&mut self, tid: Tid) {
        let Some(output) = self.outputs.get(&tid) else { return };
        if epoll::delete(&self.epoll, output).is_ok() {
            self.held_back.push(tid);
        }
    }

    /// Reads again what was held back, where the collector has caught up.
    pub(super) fn release_outputs(&mut self) {
        for tid in std::mem::take(&mut self.held_back) {
            if self.is_behind(tid, 2) {
                self.held_back.push(tid);
            } else if let Some(output) = self.outputs.get(&tid) {
                // Without room in the kernel it stays unread until the process ends.
                let _ = epoll::add(&self.epoll, output, Source::Output(tid).data(), EventFlags::IN);
            }
        }
    }

    /// The socket of a connection has taken something: what other hosts have printed for that task may be
    /// taken, then.
    pub(super) fn collector_took(&mut self, connection: Connection) {
        let Some(client) = self.connections.get_mut(connection) else { return };
        let Some(tid) = client.tid else { return };
        if !self.machine.is_given_output(tid) {
            return;
        }
        // What has come since then counts as taken too: it is no more than may be under way.
        if client.mute || client.has_taken_what_waited() {
            self.machine.handle_output_taken(tid);
        }
    }

    /// Takes what a task has printed, as far as its collector keeps up.
    pub(super) fn take_output(&mut self, tid: Tid) {
        let mut turn = Turn::begin();
        while turn.goes_on() {
            if self.is_behind(tid, 1) {
                return self.hold_back(tid);
            }
            if !self.read_piece(tid) {
                return;
            }
            self.work();
        }
    }

    /// Takes all that a task has printed, the task having ended: no pipe holds more.
    pub(super) fn read_output(&mut self, tid: Tid) {
        let mut pieces = OUTPUT_IN_TURN_MAX / OUTPUT_BYTES;
        while pieces > 0 && self.read_piece(tid) {
            pieces -= 1;
        }
    }

    /// Reads once. Says whether there may be more.
    fn read_piece(&mut self, tid: Tid) -> bool {
        let mut data = [0; OUTPUT_BYTES];
        // Each line of the log takes its time.
        let bytes = if self.machine.collector_of(tid).is_some() { OUTPUT_BYTES } else { LOGGED_BYTES };
        let Some(output) = self.outputs.get(&tid) else { return false };
        match rustix::io::read(output, &mut data[..bytes]) {
            Ok(count) if count > 0 => self.machine.handle_output(tid, &data[..count]),
            Err(Errno::AGAIN | Errno::INTR) => return false,
            // The end, or a pipe that is broken.
            _ => drop(self.outputs.remove(&tid)),
        }
        true
    }

    /// A process has ended: first everything that it sent and printed, then its end.
    pub(super) fn process_ended(&mut self, tid: Tid) {
        let Some(running) = self.running.get_mut(&tid) else { return };
        let status = match running.child.try_wait() {
            Ok(Some(status)) => status,
            Ok(None) => return,
            // Somebody else was told how it ended.
            Err(_) => ExitStatus::default(),
        };
        if let Some(connection) = self.connections.of_task(tid) {
            self.receive(connection, Turn::unending());
        }
        self.drain(tid);
        self.work();
        self.read_output(tid);
        // Closing takes it out of `epoll`.
        self.running.remove(&tid);
        self.machine.handle_process_end(tid, status.into_raw());
    }
}
