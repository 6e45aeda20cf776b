//! Processes of tasks, and what they print.
use super::{COLLECTOR_BACKLOG_BYTES_MAX, Daemon, OUTPUT_BYTES, OUTPUT_IN_TURN_MAX, Running, Source};
use crate::children::Process;
use pvm_core::codes::Code;
use pvm_core::machine::Start;
use pvm_core::tid::Tid;
use rustix::event::epoll::{self, EventFlags};
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::process::ExitStatusExt;

impl Daemon {
    pub(super) fn start(&mut self, start: &Start) {
        let result = self.nursery.start(&self.settings, start);
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

    /// Bytes that wait for the collector of a task's output.
    pub(super) fn backlog_of_collector(&mut self, tid: Tid) -> usize {
        let Some(collector) = self.machine.collector_of(tid) else { return 0 };
        self.connections.backlog_of(collector) + self.route.along_bytes(collector)
    }

    /// A collector is not disconnected for what its tasks print.
    pub(super) fn collector_backlog_max(&self) -> usize {
        COLLECTOR_BACKLOG_BYTES_MAX.min(self.settings.backlog_bytes_max / 2)
    }

    pub(super) fn hold_back(&mut self, tid: Tid) {
        let Some(output) = self.outputs.get(&tid) else { return };
        if epoll::delete(&self.epoll, output).is_ok() {
            self.held_back.push(tid);
        }
    }

    /// Reads again what was held back, where the collector has caught up.
    pub(super) fn release_outputs(&mut self) {
        for tid in std::mem::take(&mut self.held_back) {
            if self.backlog_of_collector(tid) > self.collector_backlog_max() / 2 {
                self.held_back.push(tid);
            } else if let Some(output) = self.outputs.get(&tid) {
                // Without room in the kernel it stays unread until the process ends.
                let _ = epoll::add(&self.epoll, output, Source::Output(tid).data(), EventFlags::IN);
            }
        }
    }

    pub(super) fn read_output(&mut self, tid: Tid) {
        let mut data = [0; OUTPUT_BYTES];
        let mut total = 0;
        while total < OUTPUT_IN_TURN_MAX {
            let Some(output) = self.outputs.get(&tid) else { return };
            match rustix::io::read(output, &mut data) {
                Ok(count) if count > 0 => {
                    total += count;
                    self.machine.handle_output(tid, &data[..count]);
                }
                Err(Errno::AGAIN | Errno::INTR) => return,
                // The end, or a pipe that is broken.
                _ => drop(self.outputs.remove(&tid)),
            }
        }
    }

    /// A process has ended: first everything that it sent and printed, then its end.
    pub(super) fn process_ended(&mut self, tid: Tid) {
        let Some(running) = self.running.get_mut(&tid) else { return };
        let Ok(Some(status)) = running.child.try_wait() else { return };
        if let Some(connection) = self.connections.of_task(tid) {
            self.receive(connection, usize::MAX);
        }
        self.drain(tid);
        self.work();
        self.read_output(tid);
        // Closing takes it out of `epoll`.
        self.running.remove(&tid);
        self.machine.handle_process_end(tid, status.into_raw());
    }
}
