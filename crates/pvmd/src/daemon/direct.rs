//! Direct links between tasks: carries out the steps that the machine orders.
use super::Daemon;
use pvm_core::machine::DirectTicket;
use pvm_core::proto::{Direct, LinkCause, ToTask};
use pvm_core::tid::Tid;
use pvm_core::wire::DirectCall;
use pvm_net::{Link, Token, Tokens};
use std::net::SocketAddr;
use std::os::fd::AsFd;

use crate::direct_links::{PendingLink, id_of};

/// The bit of the debug mask that makes the daemon log direct links.
pub(super) const DEBUG_ROUTES: i32 = 0x4000;

impl Daemon {
    /// Prepares to accept the other host's call, which makes a link between two tasks.
    pub(super) fn expect_direct(&mut self, ticket: DirectTicket, tasks: [Tid; 2], cause: LinkCause) {
        let call = self.direct_links.expect(ticket, tasks, cause);
        if let Some(DirectCall { shown, back, .. }) = &call {
            let [shown, back] = [*shown, *back].map(Token::from_bytes);
            self.host_links.expect_direct(id_of(ticket), Tokens { shown, back });
        }
        self.machine.handle_direct_expected(ticket, call);
    }

    /// Calls the other host, to make a link between two tasks.
    pub(super) fn call_direct(
        &mut self,
        ticket: DirectTicket,
        tasks: [Tid; 2],
        cause: LinkCause,
        addresses: &[SocketAddr],
        DirectCall { shown, back, secret }: DirectCall,
    ) {
        if !self.direct_links.begin_call(ticket, tasks, cause, secret) {
            return self.machine.handle_direct_ended(ticket, false);
        }
        let [shown, back] = [shown, back].map(Token::from_bytes);
        self.host_links.connect_direct(id_of(ticket), addresses, Tokens { shown, back });
    }

    /// Stops making a link that is not wanted any more.
    pub(super) fn cancel_direct(&mut self, ticket: DirectTicket) {
        self.direct_links.take_pending(id_of(ticket));
        self.host_links.cancel_direct(id_of(ticket));
    }

    /// Hands a connection to the task that asked for the link.
    pub(super) fn on_direct_ready(&mut self, id: u64, link: &Link) {
        let Some(PendingLink { task, peer, cause, ticket, secret, calls }) = self.direct_links.take_pending(id) else {
            return;
        };
        let secret = self.host_links.encrypts().then_some(secret);
        let wanted = self.connections.of_task(task).is_some() && !self.direct_links.has_link(task, peer);
        let socket = link.as_fd().try_clone_to_owned().ok().filter(|_| wanted);
        let held = socket.and_then(|socket| self.direct_links.hold(task, peer, socket).ok());
        if held.is_some() {
            let pacing = self.route.pacer().pacing();
            let overflows = self.route.pacer().is_pacing() || self.direct_links.has_overflowed();
            let frame = ToTask::Direct(Direct { peer, calls, secret, pacing, overflows, cause });
            self.connections.send_with(task, &frame, &[link.as_fd()]);
            self.log_route(&format!("{task} and {peer} have a direct link"));
        }
        self.machine.handle_direct_ended(ticket, held.is_some());
    }

    /// Tells the machine that a link could not be made.
    pub(super) fn on_direct_failed(&mut self, id: u64, reason: &str) {
        let Some(PendingLink { task, peer, ticket, .. }) = self.direct_links.take_pending(id) else { return };
        self.log_route(&format!("no direct link between {task} and {peer}: {reason}"));
        self.machine.handle_direct_ended(ticket, false);
    }

    fn log_route(&mut self, text: &str) {
        if self.machine.debug_mask() & DEBUG_ROUTES != 0 {
            self.log.line(text);
        }
    }
}
