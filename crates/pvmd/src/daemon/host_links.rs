//! Links to other hosts. This file passes the machine's orders to the links, and the links' events to the machine.
use super::Daemon;
use crate::frame_budget::FrameBudget;
use crate::host_links::{HostLinks, LinkEvent, Received};
use crate::route::Route;
use crate::settings::Settings;
use pvm_core::machine::Rank;
use pvm_core::tid::Tid;
use pvm_core::wire::DataCall;
use pvm_net::{Connector, Token, Tokens};
use rustix::event::epoll::EventFlags;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Makes the links of a daemon. If the master is another host, the master may connect.
pub(super) fn new_links(settings: &Settings, connector: Connector, epoll: Rc<OwnedFd>) -> crate::Result<HostLinks> {
    let machine = &settings.machine;
    let own = match machine.rank {
        Rank::Master => Tid::host_number(1),
        Rank::Slave { own, .. } => own,
    };
    let mut links = HostLinks::new(connector, own, machine.host_timeout, epoll)?;
    links.set_shared(machine.trusted, machine.host_timeout);
    links.limit_backlog(settings.backlog_bytes_max);
    if let (Rank::Slave { master, .. }, Some(key)) = (machine.rank, settings.master_key) {
        links.add_host(master, key);
        links.set_starter(master);
    }
    Ok(links)
}

impl Daemon {
    /// Removes a host that does not belong to the machine any more.
    pub(super) fn remove_host(&mut self, host: Tid) {
        self.set_tree_spawn_parent(host, false);
        self.route.forget_host(host);
        self.direct_links.forget_host(host);
        self.host_links.remove_host(host);
        self.job_watch.daemon_ended();
    }

    /// Connects to a host for a new data link.
    pub(super) fn connect_data(&mut self, host: Tid, addresses: &[SocketAddr], DataCall { shown, back }: DataCall) {
        let [shown, back] = [shown, back].map(Token::from_bytes);
        self.host_links.connect_data(host, addresses, Tokens { shown, back });
    }

    /// Drops the data link to a host. A new one may be made later.
    pub(super) fn drop_data(&mut self, host: Tid) {
        self.route.disconnect(host);
        self.host_links.cancel_data(host);
    }

    /// Prepares to accept a new data link from a host.
    pub(super) fn expect_data(&mut self, host: Tid) {
        let call = Tokens::generate().ok().map(|tokens| {
            let call = DataCall { shown: *tokens.shown.as_bytes(), back: *tokens.back.as_bytes() };
            self.host_links.expect_data(host, tokens);
            call
        });
        self.machine.handle_data_expected(self.now(), host, call);
    }

    /// Returns the time after which [`Daemon::step_links`] is due even if no event occurs.
    pub(super) fn time_to_next_link_step(&self) -> Option<Duration> {
        self.host_links.next_wakeup().map(|when| when.saturating_duration_since(Instant::now()))
    }

    /// Accepts, makes and closes connections of the links.
    pub(super) fn step_links(&mut self) {
        self.host_links.step();
        self.dispatch_link_events();
    }

    /// Writes the frames that this step has gathered for other hosts.
    pub(super) fn flush_links(&mut self) {
        // A link that breaks leads to further frames.
        while self.host_links.flush_all() {
            self.dispatch_link_events();
            self.execute_actions();
        }
    }

    /// Passes the events of the links to the machine.
    pub(super) fn dispatch_link_events(&mut self) {
        while let Some(event) = self.host_links.poll_event() {
            match event {
                LinkEvent::Up { host, data } => {
                    self.machine.handle_link_up(self.now(), host);
                    self.attach_data(host, data, Route::attach);
                    self.set_tree_spawn_parent(host, true);
                    // No event reports frames that arrived together with the handshake.
                    self.pending.add_host(host);
                }
                LinkEvent::Down { host } => self.on_link_down(host),
                LinkEvent::Broken { host, how } => self.machine.handle_link_broken(self.now(), host, how),
                LinkEvent::Resumed { host } => {
                    self.machine.handle_link_resumed(self.now(), host);
                    self.pending.add_host(host);
                }
                LinkEvent::CallFailed { host, why } => self.machine.handle_call_failed(self.now(), host, why),
                LinkEvent::DataUp { host, data } => {
                    self.machine.handle_data_up(self.now(), host);
                    self.log.line(&format!("the data link to {host} stands again"));
                    self.attach_data(host, data, Route::resume);
                }
                LinkEvent::DataDown { host } => self.machine.handle_data_down(self.now(), host),
                LinkEvent::DirectReady { ticket, link } => self.on_direct_ready(ticket, &link),
                LinkEvent::DirectFailed { ticket, reason } => self.on_direct_failed(ticket, &reason),
                LinkEvent::Log(text) => self.log.line(&text),
            }
        }
    }

    /// Ends both links to a host and tells the machine.
    pub(super) fn on_link_down(&mut self, host: Tid) {
        self.route.detach(host);
        self.host_links.drop_link(host);
        self.machine.handle_link_down(self.now(), host);
        self.set_tree_spawn_parent(host, false);
    }

    /// Handles a ready socket of a control link.
    pub(super) fn on_control_ready(&mut self, host: Tid, flags: EventFlags) {
        if flags.contains(EventFlags::OUT) {
            self.host_links.flush(host);
            self.dispatch_link_events();
            // Output for the log may have waited for this link.
            self.resume_outputs();
        }
        let is_readable = flags.intersects(EventFlags::IN | EventFlags::HUP | EventFlags::ERR);
        // Each host has one frame budget in a step.
        if is_readable && !self.pending.has_host(host) {
            self.receive_from_host(host);
        }
    }

    /// Handles as many frames of a host as its budget allows.
    pub(super) fn receive_from_host(&mut self, host: Tid) {
        self.handle_host_frames(host);
        // Collectors on that host may have taken output of this host's tasks.
        self.resume_outputs();
    }

    fn handle_host_frames(&mut self, host: Tid) {
        let mut budget = FrameBudget::new();
        self.host_links.expect_more(host);
        while budget.take() {
            let Some(received) = self.host_links.receive(host) else {
                // Even an incomplete frame shows that the host is alive, but the end of a connection does not.
                if self.host_links.has_connection(host) {
                    self.machine.handle_heard(self.now(), host);
                }
                self.dispatch_link_events();
                return self.execute_actions();
            };
            match received {
                Received::Frame(frame) => self.machine.handle_host_frame(self.now(), host, frame),
                Received::Acknowledgement => self.machine.handle_heard(self.now(), host),
            }
            self.execute_actions();
        }
        if self.host_links.has_unread(host) {
            self.pending.add_host(host);
        }
    }
}
