//! The daemon's part in carrying messages between hosts.
use super::Daemon;
use super::direct::DEBUG_ROUTES;
use crate::broadcast::{Broadcast, DatagramSent};
use crate::connections::Connections;
use crate::route::{Route, RouteContext, RouteEvent};
use crate::source::Source;
use pvm_core::datagram_error::DatagramError;
use pvm_core::flows::multicast::Advice;
use pvm_core::flows::multicast::datagram::BODY_PART;
use pvm_core::machine::Machine;
use pvm_core::tid::Tid;
use pvm_core::wire::{Frame, RELEASE_DATAGRAM_BYTES_MAX};
use pvm_fmp::Endpoint;
use pvm_net::ByteStream;
use rustix::event::epoll::{self, EventFlags};
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;

/// Datagrams to all hosts that are handled in a row before other events are.
const DATAGRAMS_IN_A_ROW_MAX: usize = 256;

/// The parts of the daemon that the route needs.
struct DaemonContext<'a> {
    machine: &'a Machine,
    connections: &'a mut Connections,
    broadcast: &'a mut Broadcast,
}

impl RouteContext for DaemonContext<'_> {
    fn accepts_messages(&self, task: Tid) -> bool {
        self.machine.takes_messages(task)
    }
    fn is_member(&self, host: Tid) -> bool {
        self.machine.has_host(host)
    }
    fn node_number(&self, host: Tid) -> Option<u32> {
        self.machine.node_number(host)
    }
    fn traces_routes(&self) -> bool {
        self.machine.debug_mask() & DEBUG_ROUTES != 0
    }
    fn encrypts(&self) -> bool {
        !self.machine.trusts_network()
    }
    fn datagram_bytes(&self) -> Option<usize> {
        self.broadcast.datagram_bytes()
    }
    fn join_group(&mut self) -> bool {
        self.broadcast.open()
    }
    fn send_datagram(&mut self, datagram: &[u8]) -> DatagramSent {
        self.broadcast.send(datagram)
    }
    fn introduce(&mut self, task: Tid, endpoint: &mut Endpoint) -> io::Result<()> {
        self.connections.introduce_daemon(task, endpoint)
    }
    fn ring(&mut self, task: Tid) {
        self.connections.ring(task);
    }
}

/// Borrows only the parts that the context needs, so that the route can be borrowed at the same time.
macro_rules! context {
    ($daemon:expr) => {
        DaemonContext {
            machine: &$daemon.machine,
            connections: &mut $daemon.connections,
            broadcast: &mut $daemon.broadcast,
        }
    };
}

impl Daemon {
    /// Lets the route carry messages. Returns whether the loop may sleep now. If so, tasks ring the daemon's doorbell
    /// from now on.
    pub(super) fn step_route(&mut self) -> bool {
        if !self.route.is_due() {
            return true;
        }
        self.route.wake(false);
        let mut is_active = self.route.step(&mut context!(self));
        while let Some(event) = self.route.poll_event() {
            self.dispatch_route_event(event);
            self.execute_actions();
            is_active = true;
        }
        !is_active && self.route.prepare_park(&context!(self))
    }

    pub(super) fn dispatch_route_event(&mut self, event: RouteEvent) {
        let now = self.now();
        match event {
            RouteEvent::Frame { from, frame } => self.machine.handle_frame_in_flow(now, from, *frame),
            RouteEvent::Wanted { host } => self.machine.want_link(now, host),
            RouteEvent::Broken { host, why } => {
                self.log.line(&format!("data link to {host}: {why}"));
                self.on_link_down(host);
            }
            RouteEvent::Cut { host, why } => {
                self.log.line(&format!("data link to {host}: {why}; another one is made"));
                self.machine.handle_data_down(now, host);
            }
            RouteEvent::Note(text) => self.log.line(&text),
            RouteEvent::Advice(Advice(words)) => self.connections.tell_advice(words),
            RouteEvent::Lost { task, why } => self.log.line(&format!("cannot send to {task}: {why}")),
        }
    }

    /// Hands the data link to `host` to the route, by one of two methods: `Route::attach` for the first link to a host,
    /// `Route::resume` for a link that replaces a broken one.
    pub(super) fn attach_data(&mut self, host: Tid, data: ByteStream, attach: fn(&mut Route, Tid, ByteStream)) {
        let flags = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        match epoll::add(&self.epoll, data.as_fd(), Source::Data(host).data(), flags) {
            Ok(()) => {
                let own = rustix::net::getsockname(data.as_fd()).ok();
                let own = own.and_then(|address| SocketAddr::try_from(address).ok());
                // A listener for both families has mapped addresses.
                self.broadcast.note_link(own.map(|address| address.ip().to_canonical()));
                attach(&mut self.route, host, data);
                if self.route.is_broadcaster() {
                    self.open_broadcast();
                }
            }
            Err(errno) => self.dispatch_route_event(RouteEvent::Cut { host, why: errno.to_string() }),
        }
    }

    /// Handles datagrams to all hosts. What cannot be used is dropped and counted: anybody may send datagrams.
    pub(super) fn receive_datagrams(&mut self) {
        let mut buffer = self.broadcast.take_buffer();
        for _ in 0..DATAGRAMS_IN_A_ROW_MAX {
            let Some(datagram) = self.broadcast.receive(&mut buffer) else { break };
            let result = match datagram.first() {
                Some(&BODY_PART) => self.route.on_datagram(datagram, &mut context!(self)),
                _ => Err(DatagramError::Malformed),
            };
            self.count_refusal(result);
        }
        self.broadcast.return_buffer(buffer);
    }

    fn count_refusal(&mut self, result: Result<(), DatagramError>) {
        if let Some(line) = result.err().and_then(|error| self.refused_datagrams.count(error)) {
            self.log.line(&line);
        }
    }

    /// Handles a release of a barrier. Mostly it is the only one, and epoll tells if it is not.
    pub(super) fn receive_release(&mut self) {
        let mut buffer = [0; RELEASE_DATAGRAM_BYTES_MAX + 1];
        let Some(datagram) = self.broadcast.receive_release(&mut buffer) else { return };
        let result = self.machine.handle_broadcast(self.started.elapsed(), datagram);
        self.count_refusal(result);
    }

    /// Lets tasks hear releases of barriers. If one cannot, or if there are none, this daemon hears them.
    pub(super) fn open_release_sockets(&mut self, tasks: &[Tid]) {
        if tasks.is_empty() {
            // If this fails, the master repeats releases on the control link.
            let _ = self.broadcast.hear_releases();
        }
        for task in tasks.iter().filter(|task| !self.connections.hears_releases(**task)).collect::<Vec<_>>() {
            let given = self.broadcast.release_socket().map(|socket| {
                self.connections.give_release_socket(*task, socket.as_fd());
            });
            if given.is_err() {
                let _ = self.broadcast.hear_releases();
            }
        }
    }

    /// Sends a release of the machine to all hosts. The machine expects that it may be lost.
    pub(super) fn broadcast_for_machine(&mut self, bytes: &[u8]) {
        if self.open_broadcast() {
            self.broadcast.send_release(bytes);
            self.log_broadcast_failure();
        }
    }

    /// Opens the socket for datagrams to all hosts, unless it is open. Returns whether it is open.
    pub(super) fn open_broadcast(&mut self) -> bool {
        let is_open = self.broadcast.open();
        self.log_broadcast_failure();
        is_open
    }

    fn log_broadcast_failure(&mut self) {
        if let Some(complaint) = self.broadcast.take_complaint() {
            self.log.line(&complaint);
        }
    }

    /// Notes that the socket of a data link is ready.
    pub(super) fn on_data_ready(&mut self, host: Tid, flags: EventFlags) {
        let ended = flags.intersects(EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR);
        self.route.on_socket_ready(host, flags.contains(EventFlags::IN), flags.contains(EventFlags::OUT), ended);
    }

    /// Sends a frame on the control link to a host, after the messages that were sent to its tasks earlier.
    pub(super) fn send_host(&mut self, host: Tid, frame: &Frame) {
        if frame.is_ordered() && self.route.fence(host) {
            self.host_links.send(host, &Frame::Fence);
        }
        self.host_links.send(host, frame);
    }

    /// Sends a frame to a task of another host, after the messages that were sent to the task earlier.
    pub(super) fn send_along(&mut self, to: Tid, frame: &Frame) {
        // The host may have been removed since the machine decided this.
        if self.machine.has_host(to.host()) {
            self.route.send_along(to, frame);
        }
    }

    /// Introduces a task and this daemon to each other.
    pub(super) fn introduce_self(&mut self, task: Tid) {
        if let Err(error) = self.connections.introduce_daemon(task, self.route.endpoint()) {
            self.log.line(&format!("cannot carry messages of {task}: {error}"));
            self.machine.handle_not_introduced(task, self.machine.own_host());
        }
    }

    /// Takes the messages that tasks have sent to other hosts until now. To be called before a frame or output of a task is
    /// handled.
    pub(super) fn take_from_all(&mut self) {
        self.route.take_from_all(&context!(self));
    }

    /// Takes all messages that an ending task has sent to other hosts.
    pub(super) fn drain(&mut self, task: Tid) {
        self.route.drain(task, &context!(self));
    }
}
