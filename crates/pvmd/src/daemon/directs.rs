//! Direct links between tasks of this host and of others: how they come to be, and how they end.
//!
//! The daemon keeps a descriptor of each link that its tasks have. When a task ends, however that
//! happens, the kernel still has what the task wrote last; the daemon says that this was all, and
//! holds the connection until the other side has read it. When a host is lost, its links are closed
//! at this end, so that nobody waits for more from them.
//!
//! A task that leaves hands over what its links have not taken yet, in memory of nobody's. The daemon
//! writes it to the socket as the other side takes it, and only then says that this was all.
use super::Daemon;
use crate::source::Source;
use pvm_core::machine::{Action, DirectTicket};
use pvm_core::proto::{Direct, ToTask};
use pvm_core::tid::Tid;
use pvm_core::wire::DirectCall;
use pvm_net::{KeyPair, Link, NoRandomness, Token, Tokens};
use rustix::event::epoll::{self, EventFlags};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown};
use rustix::process::Resource;
use std::collections::HashMap;
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
/// Bytes that are sent at a time in the place of a task that has left.
const REST_STEP_BYTES: usize = 64 << 10;
/// How often, before others have their turn.
const REST_STEPS_IN_TURN: usize = 16;

/// A link that is being made.
struct Meeting {
    task: Tid,
    peer: Tid,
    ticket: DirectTicket,
    secret: [u8; 32],
    calls: bool,
}

/// What a task that has left still had to send.
struct Rest {
    memory: OwnedFd,
    at: u64,
    end: u64,
}

impl Rest {
    /// Sends as much as the socket takes. Says whether that was all; an error also where nobody takes it
    /// any more.
    fn go_on(&mut self, socket: &OwnedFd) -> Result<bool, Errno> {
        let mut bytes = [0; REST_STEP_BYTES];
        for _ in 0..REST_STEPS_IN_TURN {
            let wanted = bytes.len().min((self.end - self.at) as usize);
            let count = rustix::io::pread(&self.memory, &mut bytes[..wanted], self.at)?;
            if count == 0 {
                return Ok(true);
            }
            // The task had the socket too and may have told it to wait.
            match rustix::net::send(socket, &bytes[..count], SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
                Ok(sent) => self.at += sent as u64,
                Err(Errno::AGAIN | Errno::INTR) => break,
                Err(errno) => return Err(errno),
            }
        }
        Ok(self.at == self.end)
    }
}

/// A link that a task has, or has had.
struct Held {
    task: Tid,
    peer: Tid,
    socket: OwnedFd,
    /// The task is gone.
    runs_out: bool,
    /// What is to be sent in its place.
    rest: Option<Rest>,
}

impl Held {
    /// What is watched for.
    fn interest(&self) -> EventFlags {
        let mut flags = EventFlags::RDHUP;
        flags.set(EventFlags::IN, self.runs_out);
        flags.set(EventFlags::OUT, self.rest.is_some());
        flags
    }

    /// Goes on with the rest; when all is sent for a task that is gone, says so to the other side.
    fn go_on(&mut self) -> Result<(), Errno> {
        if let Some(rest) = &mut self.rest {
            if !rest.go_on(&self.socket)? {
                return Ok(());
            }
            self.rest = None;
        }
        if self.runs_out { rustix::net::shutdown(&self.socket, Shutdown::Write) } else { Ok(()) }
    }
}

/// The direct links of this host.
pub struct Directs {
    epoll: Rc<OwnedFd>,
    meetings: HashMap<u64, Meeting>,
    held: HashMap<u32, Held>,
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

impl Directs {
    /// None yet.
    pub fn new(epoll: Rc<OwnedFd>) -> Directs {
        let limit = rustix::process::getrlimit(Resource::Nofile).current;
        let share = limit.map_or(LINKS_MAX, |limit| (limit / DESCRIPTOR_SHARE) as usize);
        let links_max = share.min(LINKS_MAX);
        Directs { epoll, meetings: HashMap::new(), held: HashMap::new(), last: 0, links_max }
    }

    fn has_room(&self) -> bool {
        self.meetings.len() + self.held.len() < self.links_max
    }

    /// Keeps a descriptor of a link that a task is given.
    fn hold(&mut self, task: Tid, peer: Tid, socket: OwnedFd) -> Result<(), Errno> {
        loop {
            self.last = self.last.wrapping_add(1);
            if !self.held.contains_key(&self.last) {
                break;
            }
        }
        epoll::add(&self.epoll, &socket, Source::Direct(self.last).data(), EventFlags::RDHUP)?;
        self.held.insert(self.last, Held { task, peer, socket, runs_out: false, rest: None });
        Ok(())
    }

    fn close(&mut self, number: u32) {
        if let Some(held) = self.held.remove(&number) {
            // The task's own descriptor would keep it there.
            let _ = epoll::delete(&self.epoll, &held.socket);
        }
    }

    /// The other side has closed, or there is something for a task that is gone, or room for its rest.
    pub fn ready(&mut self, number: u32, flags: EventFlags) {
        if flags.contains(EventFlags::OUT) && self.go_on(number).is_err() {
            return self.close(number);
        }
        if !flags.intersects(!EventFlags::OUT) {
            return;
        }
        let Some(held) = self.held.get(&number) else { return };
        if !held.runs_out {
            // What that side sent stays for the task; what the task still sends nobody wants.
            return self.close(number);
        }
        let mut rubbish = [0; DISCARD_BYTES];
        match rustix::net::recv(&held.socket, &mut rubbish[..], RecvFlags::DONTWAIT) {
            Ok((_, 1..)) | Err(Errno::AGAIN | Errno::INTR) => {}
            _ => self.close(number),
        }
    }

    /// Goes on with what is to be sent for a task, and watches for what matters then.
    fn go_on(&mut self, number: u32) -> Result<(), Errno> {
        let Some(held) = self.held.get_mut(&number) else { return Ok(()) };
        held.go_on()?;
        epoll::modify(&self.epoll, &held.socket, Source::Direct(number).data(), held.interest())
    }

    /// A task that leaves hands over what the link to that peer has not taken: so many bytes of that memory.
    pub fn take_over(&mut self, task: Tid, peer: Tid, bytes: u64, memory: OwnedFd) {
        // A file on a disk, or a pipe, could make the daemon wait.
        if rustix::fs::fcntl_get_seals(&memory).is_err() {
            return;
        }
        let is_meant = |held: &Held| held.task == task && held.peer == peer && !held.runs_out && held.rest.is_none();
        // The other side may have closed it meanwhile: then nobody wants the rest.
        let Some((number, held)) = self.held.iter_mut().find(|(_, held)| is_meant(held)) else { return };
        held.rest = Some(Rest { memory, at: 0, end: bytes });
        let number = *number;
        if self.go_on(number).is_err() {
            self.close(number);
        }
    }

    /// The task is gone. Were its links closed with something unread, the kernel would throw away
    /// what the other side has not got yet.
    pub fn let_run_out(&mut self, task: Tid) {
        let ours = self.held.iter_mut().filter(|(_, held)| held.task == task && !held.runs_out);
        let mut numbers = Vec::new();
        for (number, held) in ours {
            held.runs_out = true;
            numbers.push(*number);
        }
        for number in numbers {
            if self.go_on(number).is_err() {
                self.close(number);
            }
        }
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
    pub(super) fn act_on_directs(&mut self, action: Action) {
        match action {
            Action::ExpectDirect { ticket, task, peer } => {
                let call = if self.directs.has_room() { make_up_call().ok() } else { None };
                if let Some(DirectCall { shown, back, secret }) = call.clone() {
                    let number = number_of(ticket);
                    self.directs.meetings.insert(number, Meeting { task, peer, ticket, secret, calls: false });
                    let (shown, back) = (Token::from_bytes(shown), Token::from_bytes(back));
                    self.links.expect(number, Tokens { shown, back });
                }
                self.machine.handle_direct_expected(ticket, call);
            }
            Action::CallDirect { ticket, .. } if !self.directs.has_room() => {
                self.machine.handle_direct_ended(ticket, false);
            }
            Action::CallDirect { ticket, task, peer, addresses, call } => {
                let DirectCall { shown, back, secret } = call;
                let number = number_of(ticket);
                self.directs.meetings.insert(number, Meeting { task, peer, ticket, secret, calls: true });
                let (shown, back) = (Token::from_bytes(shown), Token::from_bytes(back));
                self.links.meet(number, &addresses, Tokens { shown, back });
            }
            Action::CancelDirect { ticket } => {
                self.directs.meetings.remove(&number_of(ticket));
                self.links.cancel(number_of(ticket));
            }
            _ => {}
        }
    }

    /// The connection for a link stands: it goes to the task.
    pub(super) fn direct_met(&mut self, number: u64, link: &Link) {
        let Some(Meeting { task, peer, ticket, secret, calls }) = self.directs.meetings.remove(&number) else { return };
        let secret = self.links.encrypts().then_some(secret);
        let frame = ToTask::Direct(Direct { peer, calls, secret });
        let lives = self.connections.of_task(task).is_some();
        let socket = link.as_fd().try_clone_to_owned().ok().filter(|_| lives);
        let held = socket.is_some_and(|socket| self.directs.hold(task, peer, socket).is_ok());
        if held {
            self.connections.send_with(task, &frame, &[link.as_fd()]);
            self.remark_route(&format!("{task} and {peer} have a direct link"));
        }
        self.machine.handle_direct_ended(ticket, held);
    }

    pub(super) fn direct_not_met(&mut self, number: u64, reason: &str) {
        let Some(Meeting { task, peer, ticket, .. }) = self.directs.meetings.remove(&number) else { return };
        self.remark_route(&format!("no direct link between {task} and {peer}: {reason}"));
        self.machine.handle_direct_ended(ticket, false);
    }

    fn remark_route(&mut self, text: &str) {
        if self.machine.debug_mask() & DEBUG_ROUTES != 0 {
            self.log.line(text);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::epoll::CreateFlags;
    use rustix::net::{AddressFamily, SocketFlags, SocketType};

    #[test]
    fn there_are_so_many_direct_links_and_no_more() {
        let epoll = Rc::new(epoll::create(CreateFlags::CLOEXEC).unwrap());
        let mut directs = Directs { links_max: 2, ..Directs::new(epoll) };
        let (task, peer) = (Tid(0x40001), Tid(0x80001));
        for _ in 0..2 {
            assert!(directs.has_room());
            let (socket, _) =
                rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
            directs.hold(task, peer, socket).unwrap();
        }
        assert!(!directs.has_room());
        directs.forget_host(peer.host());
        assert!(directs.has_room());
    }
}
