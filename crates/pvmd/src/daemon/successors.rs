//! Tasks whose process this daemon has not started, and tasks that continue in a child of their process.
use super::Daemon;
use crate::frame_budget::FrameBudget;
use crate::source::Source;
use pvm_core::machine::Connection;
use pvm_core::tid::Tid;
use rustix::event::epoll::{self, EventFlags};
use rustix::process::{Pid, PidfdFlags};
use std::os::fd::{AsRawFd, OwnedFd};

impl Daemon {
    /// Watches the process of a task, unless this daemon has started it.
    pub(super) fn watch_peer_process(&mut self, connection: Connection, tid: Tid) {
        let started = self.processes.id_of(tid);
        let Some(client) = self.connections.get_mut(connection) else { return };
        let process = client.socket.peer_process();
        let Some(number) = Pid::from_raw(process).filter(|_| started != Some(process)) else { return };
        // Without a pidfd, the end of the connection shows that the process has ended.
        let Ok(pidfd) = rustix::process::pidfd_open(number, PidfdFlags::empty()) else { return };
        self.watch_process(connection, pidfd);
    }

    /// Watches the process at the other end of a connection.
    fn watch_process(&mut self, connection: Connection, pidfd: OwnedFd) {
        let Some(client) = self.connections.get_mut(connection) else { return };
        if epoll::add(&self.epoll, &pidfd, Source::Peer(connection).data(), EventFlags::IN).is_ok() {
            client.process = Some(pidfd);
        }
    }

    /// Handles the end of a task's process. The system closes the sockets of a process before it reports the end: if
    /// the connection is still open, a child of the process holds it and is the task now.
    pub(super) fn on_peer_ended(&mut self, connection: Connection) {
        self.receive(connection, FrameBudget::unlimited());
        let Some(client) = self.connections.get_mut(connection) else { return };
        client.process = None;
        match client.tid.filter(|_| !client.write_closed) {
            Some(tid) => self.machine.handle_process_changed(tid, 0),
            None => self.close(connection),
        }
    }

    /// Handles the message of a child process that takes the task over.
    pub(super) fn on_successor(&mut self, connection: Connection, descriptors: Vec<OwnedFd>) {
        let Some(tid) = self.connections.get_mut(connection).and_then(|client| client.tid) else { return };
        let Ok([pidfd]) = <[OwnedFd; 1]>::try_from(descriptors) else { return };
        let Some(process) = process_of(&pidfd) else { return };
        self.machine.handle_process_changed(tid, process);
        self.watch_process(connection, pidfd);
        self.log_task_event(tid, "goes on in another process");
    }

    /// Answers a program that uses the library of PVM 3.4 instead of hpvm's, and logs what to do.
    pub(super) fn refuse_legacy_library(&mut self, connection: Connection) {
        let Some(client) = self.connections.get_mut(connection) else { return };
        client.socket.answer_legacy_library();
        let process = client.socket.peer_process();
        let program = std::fs::read_link(format!("/proc/{process}/exe")).unwrap_or_default();
        self.log.line(&format!(
            "{program:?} (process {process}) has the library of PVM 3.4 and cannot join hpvm: it must find hpvm's \
             libpvm3.so.3 first, see PROGRAMS FOR PVM in hpvm(7)",
        ));
        self.close(connection);
    }
}

/// Returns the process that a descriptor refers to, if it is a pidfd of a process that lives and is visible here.
fn process_of(pidfd: &OwnedFd) -> Option<i32> {
    let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", pidfd.as_raw_fd())).ok()?;
    let number = info.lines().find_map(|line| line.strip_prefix("Pid:"))?.trim().parse().ok()?;
    Some(number).filter(|number| *number > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pidfd_tells_its_process() {
        let own = rustix::process::getpid();
        let pidfd = rustix::process::pidfd_open(own, PidfdFlags::empty()).unwrap();
        assert_eq!(process_of(&pidfd), Some(own.as_raw_nonzero().get()));
        let file = std::fs::File::open("/dev/null").unwrap();
        assert_eq!(process_of(&file.into()), None);
    }
}
