//! Direct links between tasks of this host and of others: how they come to be, and how they end.
//!
//! The daemon keeps a descriptor of each link that its tasks have. When a task ends, however that
//! happens, the kernel still has what the task wrote last; the daemon says that this was all, and
//! holds the connection until the other side has read it. When a host is lost, its links are closed
//! at this end, so that nobody waits for more from them.
use super::Daemon;
use crate::source::Source;
use pvm_core::machine::DirectTicket;
use pvm_core::proto::{Direct, ToTask};
use pvm_core::tid::Tid;
use pvm_core::wire::DirectCall;
use pvm_net::{KeyPair, Link, NoRandomness, Token, Tokens};
use rustix::event::epoll::{self, EventFlags};
use rustix::io::Errno;
use rustix::net::{RecvFlags, Shutdown};
use rustix::process::Resource;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;

/// Of the descriptors that the daemon may have, one in so many is for direct links.
const DESCRIPTOR_SHARE: u64 = 4;
/// Direct links of all tasks of the host, at most a quarter of the descriptors that the daemon may have.
///
/// * Filled by: tasks of all hosts
/// * Setting: the limit of open files, `ulimit -n`
/// * Reached: the link is refused, and the default route stays
/// * Test: `there_are_so_many_direct_links_and_no_more`
const LINKS_MAX: usize = 4096;
/// The bit of the debug mask for routes.
const DEBUG_ROUTES: i32 = 0x4000;
/// Bytes of a link without a reader that are thrown away at a time.
const DISCARD_BYTES: usize = 64 << 10;

/// A link that is being made.
struct PendingLink {
    task: Tid,
    peer: Tid,
    ticket: DirectTicket,
    secret: [u8; 32],
    calls: bool,
}

/// A link that a task has, or has had.
struct HeldLink {
    task: Tid,
    peer: Tid,
    socket: OwnedFd,
    /// The task is gone.
    task_is_gone: bool,
}

impl HeldLink {
    /// The task is gone: says so to the other side, behind what the task has written.
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
}

fn number_of(ticket: DirectTicket) -> u64 {
    u64::from(ticket.host.0) << 32 | u64::from(ticket.number)
}

fn make_up_call() -> Result<DirectCall, NoRandomness> {
    let Tokens { shown, back } = Tokens::generate()?;
    Ok(DirectCall { shown: *shown.as_bytes(), back: *back.as_bytes(), secret: *KeyPair::generate()?.secret() })
}

impl DirectLinks {
    /// None yet.
    pub fn new(epoll: Rc<OwnedFd>) -> DirectLinks {
        let limit = rustix::process::getrlimit(Resource::Nofile).current;
        let share = limit.map_or(LINKS_MAX, |limit| (limit / DESCRIPTOR_SHARE) as usize);
        let links_max = share.min(LINKS_MAX);
        DirectLinks { epoll, pending: HashMap::new(), held: HashMap::new(), last: 0, links_max }
    }

    fn has_room(&self) -> bool {
        self.pending.len() + self.held.len() < self.links_max
    }

    /// Whether the task has a link to that peer. It wants no second one.
    fn has_link(&self, task: Tid, peer: Tid) -> bool {
        self.held.values().any(|held| (held.task, held.peer) == (task, peer) && !held.task_is_gone)
    }

    /// Whether this host calls for such a link. All links of two tasks are made by calls of the same host,
    /// so no second one comes to be while it heeds this.
    fn calls(&self, task: Tid, peer: Tid) -> bool {
        self.pending
            .values()
            .any(|pending_link| pending_link.calls && (pending_link.task, pending_link.peer) == (task, peer))
    }

    /// Keeps a descriptor of a link that a task is given. Gives its number.
    fn hold(&mut self, task: Tid, peer: Tid, socket: OwnedFd) -> Result<u32, Errno> {
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
            // The task's own descriptor would keep it there.
            let _ = epoll::delete(&self.epoll, &held.socket);
        }
    }

    /// The other side has closed, or there is something for a task that is gone.
    pub fn ready(&mut self, number: u32) {
        let Some(held) = self.held.get(&number) else { return };
        if !held.task_is_gone {
            // What that side sent stays for the task; what the task still sends nobody wants.
            return self.close(number);
        }
        let mut rubbish = [0; DISCARD_BYTES];
        match rustix::net::recv(&held.socket, &mut rubbish[..], RecvFlags::DONTWAIT) {
            Ok((_, 1..)) | Err(Errno::AGAIN | Errno::INTR) => {}
            _ => self.close(number),
        }
    }

    /// The task is gone. Were its links closed with something unread, the kernel would throw away
    /// what the other side has not got yet.
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

    /// The host is lost: nothing more comes from there.
    pub fn forget_host(&mut self, host: Tid) {
        let theirs = self.held.iter().filter(|(_, held)| held.peer.host() == host);
        let theirs: Vec<u32> = theirs.map(|(number, _)| *number).collect();
        for number in theirs {
            if let Some(held) = self.held.get(&number) {
                // Has the task find the end behind what has come.
                let _ = rustix::net::shutdown(&held.socket, Shutdown::Both);
            }
            self.close(number);
        }
    }
}

impl Daemon {
    pub(super) fn expect_direct(&mut self, ticket: DirectTicket, task: Tid, peer: Tid) {
        let refused = !self.direct_links.has_room() || self.direct_links.has_link(task, peer);
        let call = if refused { None } else { make_up_call().ok() };
        if let Some(DirectCall { shown, back, secret }) = call.clone() {
            let number = number_of(ticket);
            self.direct_links.pending.insert(number, PendingLink { task, peer, ticket, secret, calls: false });
            let (shown, back) = (Token::from_bytes(shown), Token::from_bytes(back));
            self.links.expect(number, Tokens { shown, back });
        }
        self.machine.handle_direct_expected(ticket, call);
    }

    pub(super) fn call_direct(
        &mut self,
        ticket: DirectTicket,
        [task, peer]: [Tid; 2],
        addresses: &[SocketAddr],
        call: DirectCall,
    ) {
        let doubled = self.direct_links.has_link(task, peer) || self.direct_links.calls(task, peer);
        if doubled || !self.direct_links.has_room() {
            return self.machine.handle_direct_ended(ticket, false);
        }
        let DirectCall { shown, back, secret } = call;
        let number = number_of(ticket);
        self.direct_links.pending.insert(number, PendingLink { task, peer, ticket, secret, calls: true });
        let (shown, back) = (Token::from_bytes(shown), Token::from_bytes(back));
        self.links.meet(number, addresses, Tokens { shown, back });
    }

    /// Nobody wants that link any more.
    pub(super) fn cancel_direct(&mut self, ticket: DirectTicket) {
        self.direct_links.pending.remove(&number_of(ticket));
        self.links.cancel(number_of(ticket));
    }

    /// The connection for a link stands: it goes to the task.
    pub(super) fn on_direct_ready(&mut self, number: u64, link: &Link) {
        let Some(PendingLink { task, peer, ticket, secret, calls }) = self.direct_links.pending.remove(&number) else {
            return;
        };
        let secret = self.links.encrypts().then_some(secret);
        let wanted = self.connections.of_task(task).is_some() && !self.direct_links.has_link(task, peer);
        let socket = link.as_fd().try_clone_to_owned().ok().filter(|_| wanted);
        let held = socket.and_then(|socket| self.direct_links.hold(task, peer, socket).ok());
        if held.is_some() {
            let frame = ToTask::Direct(Direct { peer, calls, secret });
            self.connections.send_with(task, &frame, &[link.as_fd()]);
            self.log_route(&format!("{task} and {peer} have a direct link"));
        }
        self.machine.handle_direct_ended(ticket, held.is_some());
    }

    pub(super) fn on_direct_failed(&mut self, number: u64, reason: &str) {
        let Some(PendingLink { task, peer, ticket, .. }) = self.direct_links.pending.remove(&number) else { return };
        self.log_route(&format!("no direct link between {task} and {peer}: {reason}"));
        self.machine.handle_direct_ended(ticket, false);
    }

    fn log_route(&mut self, text: &str) {
        if self.machine.debug_mask() & DEBUG_ROUTES != 0 {
            self.log.line(text);
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

    /// A link of the two; its number, and the other side's end.
    fn linked(direct_links: &mut DirectLinks) -> (u32, OwnedFd) {
        let (near, far) =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
        (direct_links.hold(TASK, PEER, near).unwrap(), far)
    }

    /// What has come on a link.
    fn came(far: &OwnedFd) -> Result<Vec<u8>, Errno> {
        let mut bytes = [0; 64];
        let (count, _) = rustix::net::recv(far, &mut bytes[..], RecvFlags::DONTWAIT)?;
        Ok(bytes[..count].to_vec())
    }

    #[test]
    fn there_are_so_many_direct_links_and_no_more() {
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
        // What still comes for it is thrown away, until the other side closes too.
        assert_eq!(rustix::net::send(&far, b"late", SendFlags::NOSIGNAL), Ok(4));
        direct_links.ready(number);
        assert!(direct_links.held.contains_key(&number));
        drop(far);
        direct_links.ready(number);
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
            assert!(!direct_links.calls(TASK, PEER));
            let ticket = DirectTicket { host: TASK.host(), number };
            let pending_link = PendingLink { task: TASK, peer: PEER, ticket, secret: [0; 32], calls };
            direct_links.pending.insert(number_of(ticket), pending_link);
        }
        assert!(direct_links.calls(TASK, PEER) && !direct_links.calls(PEER, TASK));
    }
}
