//! Connections of tasks, from the listening socket to the first frame.
use super::Daemon;
use crate::source::Source;
use pvm_link::ControlSocket;
use rustix::event::epoll::{self, EventFlags};
use rustix::io::Errno;
use rustix::net::SocketFlags;
use std::time::Instant;

/// Connections accepted in a row before other events are handled.
const ACCEPTS_IN_A_ROW_MAX: usize = 64;

impl Daemon {
    /// Accepts connections of tasks.
    pub(super) fn accept(&mut self) {
        for _ in 0..ACCEPTS_IN_A_ROW_MAX {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            let socket = match rustix::net::accept_with(&self.socket_directory.listener, flags) {
                Ok(socket) => socket,
                Err(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) => {
                    return self.pause_accepting();
                }
                Err(_) => return,
            };
            // This fails for processes of other users.
            let Ok(socket) = ControlSocket::new(socket) else { continue };
            let connection = self.connections.add(socket);
            let client = self.connections.get_mut(connection).expect("added just now");
            let data = Source::Client(connection).data();
            if epoll::add(&self.epoll, client.socket.as_fd(), data, EventFlags::IN).is_err() {
                self.connections.close(connection);
            }
        }
    }

    /// Stops to watch for new connections for a while.
    pub(super) fn pause_accepting(&mut self) {
        self.watch_listener(EventFlags::empty());
        self.pending.pause_accepting(Instant::now());
    }

    /// Watches the listening socket for connections, or does not.
    pub(super) fn watch_listener(&self, flags: EventFlags) {
        // This fails only before tasks may connect.
        let _ = epoll::modify(&self.epoll, &self.socket_directory.listener, Source::Listener.data(), flags);
    }
}
