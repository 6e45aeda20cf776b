//! The daemon that the route asks in tests.
use super::RouteContext;
use crate::broadcast::DatagramSent;
use pvm_core::tid::Tid;
use pvm_fmp::Endpoint;
use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;

/// A daemon in tests.
#[derive(Default)]
pub struct TestContext {
    /// The segments and doorbells of the tasks of this host.
    pub tasks: HashMap<Tid, [OwnedFd; 2]>,
    /// A task for which there is no memory.
    pub no_memory: Option<Tid>,
    pub members: Vec<Tid>,
    pub trusts_network: bool,
    /// The length of the longest datagram, if this host can send some.
    pub datagram_bytes: Option<usize>,
    /// The datagrams that were sent.
    pub sent: Vec<Vec<u8>>,
    pub introduced: Vec<Tid>,
    pub rung: usize,
}

impl RouteContext for TestContext {
    fn accepts_messages(&self, task: Tid) -> bool {
        self.tasks.contains_key(&task) || self.no_memory == Some(task)
    }
    fn is_member(&self, host: Tid) -> bool {
        self.members.contains(&host)
    }
    fn node_number(&self, _host: Tid) -> Option<u32> {
        None
    }
    fn traces_routes(&self) -> bool {
        true
    }
    fn encrypts(&self) -> bool {
        !self.trusts_network
    }
    fn datagram_bytes(&self) -> Option<usize> {
        self.datagram_bytes
    }
    fn join_group(&mut self) -> bool {
        true
    }
    fn send_datagram(&mut self, datagram: &[u8]) -> DatagramSent {
        if self.datagram_bytes.is_none() {
            return DatagramSent::Never;
        }
        self.sent.push(datagram.to_vec());
        DatagramSent::Done
    }
    fn introduce(&mut self, task: Tid, endpoint: &mut Endpoint) -> io::Result<()> {
        let [segment, bell] = self.tasks.get(&task).ok_or(io::ErrorKind::OutOfMemory)?;
        self.introduced.push(task);
        endpoint.connect(task.0, segment.try_clone()?, bell.try_clone()?)
    }
    fn ring(&mut self, _task: Tid) {
        self.rung += 1;
    }
}
