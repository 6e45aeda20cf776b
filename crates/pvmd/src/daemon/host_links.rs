//! Links to other hosts: what the machine wants of them, what it is told of them.
use super::Daemon;
use crate::frame_budget::FrameBudget;
use crate::host_links::{HostLinks, LinkEvent};
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

/// The links of a daemon; the master may call if there is one.
pub(super) fn links(settings: &Settings, connector: Connector, epoll: Rc<OwnedFd>) -> crate::Result<HostLinks> {
    let machine = &settings.machine;
    let own = match machine.rank {
        Rank::Master => Tid::host_number(1),
        Rank::Slave { own, .. } => own,
    };
    let mut links = HostLinks::new(connector, own, machine.host_timeout, epoll)?;
    links.set_shared(machine.trusted, machine.host_timeout);
    links.limit_backlog(settings.backlog_bytes_max);
    if let (Rank::Slave { master, .. }, Some(key)) = (machine.rank, settings.master_key) {
        links.know(master, key);
    }
    Ok(links)
}

impl Daemon {
    /// The host does not belong to the machine any more.
    pub(super) fn forget_host(&mut self, host: Tid) {
        self.parent(host, false);
        self.route.forget_host(host);
        self.direct_links.forget_host(host);
        self.links.forget(host);
    }

    pub(super) fn call_data(&mut self, host: Tid, addresses: &[SocketAddr], DataCall { shown, back }: DataCall) {
        let [shown, back] = [shown, back].map(Token::from_bytes);
        self.links.call_data(host, addresses, Tokens { shown, back });
    }

    pub(super) fn drop_data(&mut self, host: Tid) {
        self.route.disconnect(host);
        self.links.cancel_data(host);
    }

    /// A host that has lost its data link, or is to have a new one, may call for it.
    pub(super) fn expect_data(&mut self, host: Tid) {
        let call = Tokens::generate().ok().map(|tokens| {
            let call = DataCall { shown: *tokens.shown.as_bytes(), back: *tokens.back.as_bytes() };
            self.links.expect_data(host, tokens);
            call
        });
        self.machine.handle_data_expected(self.now(), host, call);
    }

    /// When the links request_link to be looked at without anything having come.
    pub(super) fn next_link_limit(&self) -> Option<Duration> {
        self.links.next_wakeup().map(|when| when.saturating_duration_since(Instant::now()))
    }

    /// Something has happened with callers, or with those whom we call.
    pub(super) fn step_links(&mut self) {
        self.links.step();
        self.dispatch_link_events();
    }

    /// Tells the machine what has become of links.
    pub(super) fn dispatch_link_events(&mut self) {
        while let Some(event) = self.links.poll_event() {
            match event {
                LinkEvent::Up { host, data } => {
                    self.machine.handle_link_up(self.now(), host);
                    self.attach_data(host, data, Route::attach);
                    self.parent(host, true);
                    // What came with the handshake shows on no socket.
                    self.unfinished_hosts.insert(host);
                }
                LinkEvent::Down { host } => self.on_link_down(host),
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

    pub(super) fn on_link_down(&mut self, host: Tid) {
        self.route.detach(host);
        self.links.drop_link(host);
        self.machine.handle_link_down(self.now(), host);
        self.parent(host, false);
    }

    pub(super) fn on_control_ready(&mut self, host: Tid, flags: EventFlags) {
        if flags.contains(EventFlags::OUT) {
            self.links.flush(host);
            self.dispatch_link_events();
            // What goes to the log may have waited for that.
            self.release_outputs();
        }
        let came = flags.intersects(EventFlags::IN | EventFlags::HUP | EventFlags::ERR);
        // One turn for each.
        if came && !self.unfinished_hosts.contains(&host) {
            self.receive_from_host(host);
        }
    }

    /// Takes frames of a host.
    pub(super) fn receive_from_host(&mut self, host: Tid) {
        self.take_frames_of_host(host);
        // Collectors there may have taken what is printed here.
        self.release_outputs();
    }

    fn take_frames_of_host(&mut self, host: Tid) {
        let mut budget = FrameBudget::new();
        while budget.take() {
            let Some(frame) = self.links.receive(host) else {
                // A part of one is a sign of life too.
                self.machine.handle_heard(self.now(), host);
                self.dispatch_link_events();
                return self.execute_actions();
            };
            self.machine.handle_host_frame(self.now(), host, frame);
            self.execute_actions();
        }
        if self.links.has_unread(host) {
            self.unfinished_hosts.insert(host);
        }
    }
}
