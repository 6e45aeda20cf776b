//! The direct links between tasks of this host and tasks of other hosts.
//!
//! The daemon keeps a descriptor of each link that its tasks have. When a task ends, for whatever reason, the kernel
//! may still hold the last bytes that the task wrote. The daemon then shuts the socket down for writing, and keeps the
//! connection until the other side has read everything. When a host is lost, this side closes the links to that host,
//! so that no task waits for more data from it.
use crate::source::Source;
use pvm_core::machine::DirectTicket;
use pvm_core::proto::LinkCause;
use pvm_core::tid::Tid;
use pvm_core::wire::DirectCall;
use pvm_net::{KeyPair, NoRandomness, Tokens};
use rustix::event::epoll::{self, EventFlags};
use rustix::io::Errno;
use rustix::net::{RecvFlags, Shutdown};
use rustix::process::Resource;
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Direct links may use one in `DESCRIPTOR_DIVISOR` of the daemon's descriptors.
const DESCRIPTOR_DIVISOR: u64 = 4;
/// Direct links of all tasks of the host, at most a quarter of the descriptors that the daemon may have.
///
/// * Filled by: tasks of all hosts
/// * Setting: the limit of open files, `ulimit -n`
/// * Reached: the link is refused, and the default route stays
/// * Test: `direct_links_are_limited`
const LINKS_MAX: usize = 4096;
/// How long tasks with new links are told that packets of several senders to this host were lost at once. The cause is
/// the network, which outlives tasks.
const OVERFLOW_MEMORY: Duration = Duration::from_secs(600);
/// Bytes discarded at a time on a link whose task is gone.
const DISCARD_BYTES: usize = 64 << 10;

/// A link that is being made.
pub struct PendingLink {
    /// The task of this host.
    pub task: Tid,
    /// The task of the other host.
    pub peer: Tid,
    /// Why they get a link.
    pub cause: LinkCause,
    /// The number that the machine uses for the link.
    pub ticket: DirectTicket,
    /// The key material of the link.
    pub secret: [u8; 32],
    /// Whether this host calls the other host.
    pub calls: bool,
}

/// A link that a task has, or had.
struct HeldLink {
    task: Tid,
    peer: Tid,
    socket: OwnedFd,
    task_is_gone: bool,
}

impl HeldLink {
    /// Ends the stream to the other side. The other side first receives everything that the task has written.
    fn shut_down(&mut self) -> Result<(), Errno> {
        self.task_is_gone = true;
        rustix::net::shutdown(&self.socket, Shutdown::Write)
    }
}

/// The direct links of this host.
pub struct DirectLinks {
    epoll: Rc<OwnedFd>,
    pending: HashMap<u64, PendingLink>,
    held: HashMap<u32, HeldLink>,
    last: u32,
    links_max: usize,
    /// When a task last reported that packets of several senders were lost at once.
    overflowed: Option<Instant>,
}

/// Returns the id of a pending link for the connector.
pub fn id_of(ticket: DirectTicket) -> u64 {
    u64::from(ticket.host.0) << 32 | u64::from(ticket.number)
}

fn generate_call() -> Result<DirectCall, NoRandomness> {
    let Tokens { shown, back } = Tokens::generate()?;
    Ok(DirectCall { shown: *shown.as_bytes(), back: *back.as_bytes(), secret: *KeyPair::generate()?.secret() })
}

impl DirectLinks {
    /// Starts without any link.
    pub fn new(epoll: Rc<OwnedFd>) -> DirectLinks {
        let limit = rustix::process::getrlimit(Resource::Nofile).current;
        let share = limit.map_or(LINKS_MAX, |limit| (limit / DESCRIPTOR_DIVISOR) as usize);
        let links_max = share.min(LINKS_MAX);
        DirectLinks { epoll, pending: HashMap::new(), held: HashMap::new(), last: 0, links_max, overflowed: None }
    }

    /// Notes that a task of this host has lost packets of several senders at once.
    pub fn on_overflow(&mut self) {
        self.overflowed = Some(Instant::now());
    }

    /// Returns whether this happened a short time ago.
    pub fn has_overflowed(&self) -> bool {
        self.overflowed.is_some_and(|when| when.elapsed() < OVERFLOW_MEMORY)
    }

    fn has_room(&self) -> bool {
        self.pending.len() + self.held.len() < self.links_max
    }

    /// Returns whether a living task has a link to that peer. Two tasks never have more than one link.
    pub fn has_link(&self, task: Tid, peer: Tid) -> bool {
        self.held.values().any(|held| (held.task, held.peer) == (task, peer) && !held.task_is_gone)
    }

    /// Returns whether this host is already calling the other host for a link of these two tasks. For any two tasks the
    /// same host always calls, so this check prevents a second link.
    fn is_calling(&self, task: Tid, peer: Tid) -> bool {
        self.pending.values().any(|pending| pending.calls && (pending.task, pending.peer) == (task, peer))
    }

    // ----- links that are being made

    /// Prepares for a call from the other host. Returns the secrets for the call, or `None` if the link is refused.
    pub fn expect(&mut self, ticket: DirectTicket, [task, peer]: [Tid; 2], cause: LinkCause) -> Option<DirectCall> {
        if !self.has_room() || self.has_link(task, peer) {
            return None;
        }
        let call = generate_call().ok()?;
        let pending = PendingLink { task, peer, cause, ticket, secret: call.secret, calls: false };
        self.pending.insert(id_of(ticket), pending);
        Some(call)
    }

    /// Begins a call to the other host. Returns false if the link is refused.
    pub fn begin_call(
        &mut self,
        ticket: DirectTicket,
        [task, peer]: [Tid; 2],
        cause: LinkCause,
        secret: [u8; 32],
    ) -> bool {
        let is_second = self.has_link(task, peer) || self.is_calling(task, peer);
        let accepted = !is_second && self.has_room();
        if accepted {
            self.pending.insert(id_of(ticket), PendingLink { task, peer, cause, ticket, secret, calls: true });
        }
        accepted
    }

    /// Takes out a pending link that has been made, has failed, or is not wanted any more.
    pub fn take_pending(&mut self, id: u64) -> Option<PendingLink> {
        self.pending.remove(&id)
    }

    // ----- links that tasks have

    /// Keeps a descriptor of a link that is handed to a task. Returns the number of the link.
    pub fn hold(&mut self, task: Tid, peer: Tid, socket: OwnedFd) -> Result<u32, Errno> {
        loop {
            self.last = self.last.wrapping_add(1);
            if !self.held.contains_key(&self.last) {
                break;
            }
        }
        epoll::add(&self.epoll, &socket, Source::Direct(self.last).data(), EventFlags::RDHUP)?;
        self.held.insert(self.last, HeldLink { task, peer, socket, task_is_gone: false });
        Ok(self.last)
    }

    fn close(&mut self, number: u32) {
        if let Some(held) = self.held.remove(&number) {
            // Closing the socket here would not remove it from `epoll`, since the task also has a descriptor of it.
            let _ = epoll::delete(&self.epoll, &held.socket);
        }
    }

    /// Handles a ready socket: the other side has closed, or there is data for a task that is gone.
    pub fn on_ready(&mut self, number: u32) {
        let Some(held) = self.held.get(&number) else { return };
        if !held.task_is_gone {
            // The task can still read what the other side sent. Nobody reads what the task sends from now on.
            return self.close(number);
        }
        let mut discarded = [0; DISCARD_BYTES];
        match rustix::net::recv(&held.socket, &mut discarded[..], RecvFlags::DONTWAIT) {
            Ok((_, 1..)) | Err(Errno::AGAIN | Errno::INTR) => {}
            _ => self.close(number),
        }
    }

    /// Ends the links of a task that is gone, and discards data that still arrives. Closing a socket with unread data
    /// would make the kernel drop data that the other side has not received yet.
    pub fn end_links_of_task(&mut self, task: Tid) {
        let mut broken = Vec::new();
        for (number, held) in self.held.iter_mut().filter(|(_, held)| held.task == task && !held.task_is_gone) {
            let data = Source::Direct(*number).data();
            let watched = epoll::modify(&self.epoll, &held.socket, data, EventFlags::RDHUP | EventFlags::IN);
            if held.shut_down().and(watched).is_err() {
                broken.push(*number);
            }
        }
        broken.into_iter().for_each(|number| self.close(number));
    }

    /// Ends the links to a host that is lost.
    pub fn forget_host(&mut self, host: Tid) {
        let numbers = self.held.iter().filter(|(_, held)| held.peer.host() == host);
        let numbers: Vec<u32> = numbers.map(|(number, _)| *number).collect();
        for number in numbers {
            if let Some(held) = self.held.get(&number) {
                // The task can still read what has been received, and then reaches the end of the stream.
                let _ = rustix::net::shutdown(&held.socket, Shutdown::Both);
            }
            self.close(number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::epoll::CreateFlags;
    use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType};

    const TASK: Tid = Tid(0x40001);
    const PEER: Tid = Tid(0x80001);

    fn none_yet() -> DirectLinks {
        DirectLinks::new(Rc::new(epoll::create(CreateFlags::CLOEXEC).unwrap()))
    }

    /// Makes a link of the two tasks. Returns its number and the other side's end.
    fn linked(direct_links: &mut DirectLinks) -> (u32, OwnedFd) {
        let (near, far) =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
        (direct_links.hold(TASK, PEER, near).unwrap(), far)
    }

    /// Returns the bytes that have arrived on a link.
    fn came(far: &OwnedFd) -> Result<Vec<u8>, Errno> {
        let mut bytes = [0; 64];
        let (count, _) = rustix::net::recv(far, &mut bytes[..], RecvFlags::DONTWAIT)?;
        Ok(bytes[..count].to_vec())
    }

    #[test]
    fn direct_links_are_limited() {
        let mut direct_links = DirectLinks { links_max: 2, ..none_yet() };
        for _ in 0..2 {
            assert!(direct_links.has_room());
            linked(&mut direct_links);
        }
        assert!(!direct_links.has_room());
        direct_links.forget_host(PEER.host());
        assert!(direct_links.has_room());
    }

    #[test]
    fn the_links_of_a_task_that_is_gone_end_behind_what_it_wrote() {
        let mut direct_links = none_yet();
        let (number, far) = linked(&mut direct_links);
        let written = rustix::net::send(&direct_links.held[&number].socket, b"last", SendFlags::NOSIGNAL);
        assert_eq!(written, Ok(4));
        direct_links.end_links_of_task(PEER);
        assert_eq!(came(&far), Ok(b"last".to_vec()));
        assert_eq!(came(&far), Err(Errno::AGAIN));
        direct_links.end_links_of_task(TASK);
        assert_eq!(came(&far), Ok(Vec::new()));
        // Data that still arrives for the task is discarded, until the other side closes too.
        assert_eq!(rustix::net::send(&far, b"late", SendFlags::NOSIGNAL), Ok(4));
        direct_links.on_ready(number);
        assert!(direct_links.held.contains_key(&number));
        drop(far);
        direct_links.on_ready(number);
        assert!(!direct_links.held.contains_key(&number));
    }

    #[test]
    fn two_tasks_have_one_link_as_long_as_both_live() {
        let mut direct_links = none_yet();
        assert!(!direct_links.has_link(TASK, PEER));
        let _far = linked(&mut direct_links);
        assert!(direct_links.has_link(TASK, PEER));
        assert!(!direct_links.has_link(TASK, Tid(0x80002)) && !direct_links.has_link(Tid(0x40002), PEER));
        direct_links.end_links_of_task(TASK);
        assert!(!direct_links.has_link(TASK, PEER));
    }

    #[test]
    fn one_call_at_a_time_is_made_for_a_link_of_two_tasks() {
        let mut direct_links = none_yet();
        for (number, calls) in [(1, false), (2, true)] {
            assert!(!direct_links.is_calling(TASK, PEER));
            let ticket = DirectTicket { host: TASK.host(), number };
            let pending_link =
                PendingLink { task: TASK, peer: PEER, cause: LinkCause::Program, ticket, secret: [0; 32], calls };
            direct_links.pending.insert(id_of(ticket), pending_link);
        }
        assert!(direct_links.is_calling(TASK, PEER) && !direct_links.is_calling(PEER, TASK));
    }
}
