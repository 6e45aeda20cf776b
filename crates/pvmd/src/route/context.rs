//! What the route asks of the daemon.
use crate::broadcast::DatagramSent;
use pvm_core::tid::Tid;
use pvm_fmp::Endpoint;
use std::io;

/// The functions of the daemon that the route calls.
pub trait RouteContext {
    /// Returns whether messages can reach a task of this host, now or once it has enrolled.
    fn accepts_messages(&self, task: Tid) -> bool;
    /// Returns whether the host belongs to the machine.
    fn is_member(&self, host: Tid) -> bool;
    /// Returns the number of a host in the physical network, if it is known.
    fn node_number(&self, host: Tid) -> Option<u32>;
    /// Returns whether the log is to have lines about the ways that messages take.
    fn traces_routes(&self) -> bool;
    /// Returns whether data between hosts are encrypted.
    fn encrypts(&self) -> bool;
    /// Returns the length of the longest datagram to all hosts, in bytes, or `None` if this host can send none.
    fn datagram_bytes(&self) -> Option<usize>;
    /// Receives datagrams to all hosts from now on. Returns whether this is possible.
    fn join_group(&mut self) -> bool;
    /// Sends a datagram to all hosts.
    fn send_datagram(&mut self, datagram: &[u8]) -> DatagramSent;
    /// Introduces a task of this host and the daemon to each other.
    fn introduce(&mut self, task: Tid, endpoint: &mut Endpoint) -> io::Result<()>;
    /// Rings a task's doorbell.
    fn ring(&mut self, task: Tid);
}
