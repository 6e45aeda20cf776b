//! Fuzz target: untrusted input from the daemon, with descriptors.
use crate::member::Member;
use crate::requests::Purpose;
use crate::{Environment, Task};
use pvm_core::codes::Code;
use pvm_core::fabric::Wish;
use pvm_core::flows::pacing::Pacing;
use pvm_core::proto::{ByteBuf, Direct, LinkCause, Message, Order, Reply, Request, ToTask, TraceSettings, Welcome};
use pvm_core::tid::Tid;
use pvm_fmp::ports::PortTable;
use pvm_fmp::{Endpoint, GroupMemory, PreallocatedEndpoint};
use pvm_fuzz::{Source, Unstructured, part};
use pvm_link::ControlSocket;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// The functions that decode this input.
pub const DECODER: &[Source] = &[
    part(
        "crates/pvm-task/src/member/mod.rs",
        &["enter", "read_control", "on_frame", "on_reply", "on_peer", "wait_for_welcome", "lose_daemon"],
    ),
    part("crates/pvm-task/src/requests.rs", &["on_reply"]),
    part("crates/pvm-task/src/member/direct.rs", &["on_direct_link", "on_peer_exit"]),
    part("crates/pvm-task/src/direct/progress.rs", &["defer", "make", "drain"]),
    part("crates/pvm-task/src/groups/mod.rs", &["on_group"]),
];

const OWN: Tid = Tid(0x40001);
/// Tids that the daemon may name: a living task, a task of another host, the daemon itself, the task itself, a task
/// that does not exist.
const NAMES: [u32; 5] = [0x40002, 0x80001, 0x40000, OWN.0, 0x40005];

/// The daemon's side.
struct Daemon {
    socket: ControlSocket,
    ports: PortTable,
    group: GroupMemory,
    /// Segment and doorbell of another task of the host.
    shown: [OwnedFd; 2],
    /// The other sides of direct links.
    far: Vec<OwnedFd>,
}

/// Lets the bytes choose the frames of the daemon.
pub fn task_control(bytes: &[u8]) {
    // An error only means that no bytes are left.
    let _ = run(&mut Unstructured::new(bytes));
}

fn run(from: &mut Unstructured<'_>) -> pvm_fuzz::Result<()> {
    let (near, far) = ControlSocket::pair().expect("sockets");
    let mut daemon = Daemon::new(far);
    daemon.send_welcome(from)?;
    let environment = Environment::from_lookup(|_| None);
    // If another frame arrives in place of a welcome, enrollment ends at once.
    let Ok((mut member, _)) = Member::enter(near, &environment, None) else { return Ok(()) };
    let mut task = Task::new(&environment);
    let purposes = [
        Purpose::Caller,
        Purpose::Ignored,
        Purpose::Introduction(Tid(NAMES[0])),
        Purpose::Introduction(Tid(NAMES[4])),
        Purpose::Caller,
        Purpose::DirectLink(Tid(NAMES[0])),
        Purpose::AwaitedInfo,
        Purpose::InsteadOf(7),
    ];
    // A question about a fabric is answered by a request.
    let mut requests = purposes.len();
    for purpose in purposes {
        member.direct.open_requests += usize::from(matches!(purpose, Purpose::DirectLink(_)));
        // The connection may have ended.
        let _ = member.request(Request::Config, purpose);
    }
    while !from.is_empty() && member.daemon.is_some() {
        for _ in 0..=from.arbitrary::<u8>()? % 4 {
            daemon.send_random(from)?;
            requests += 1;
        }
        member.direct.draining = None;
        member.read_control(&mut task.state);
        member.poll(&mut task.state);
        assert!(member.requests.len() <= requests);
    }
    Ok(())
}

impl Daemon {
    fn new(socket: ControlSocket) -> Daemon {
        let ports = PortTable::new(16).expect("memory");
        let shown = Endpoint::new().and_then(|peer| peer.descriptors()).expect("memory");
        Daemon { socket, ports, group: GroupMemory::new().expect("memory"), shown, far: Vec::new() }
    }

    /// Sends the first frames, mostly a welcome.
    fn send_welcome(&mut self, from: &mut Unstructured<'_>) -> pvm_fuzz::Result<()> {
        let own = TraceSettings::default();
        let welcome = ToTask::Welcome(Welcome {
            tid: OWN,
            parent: 0,
            dsig: 1,
            own,
            resource_manager: Tid(from.arbitrary()?),
            fabric: Wish::default(),
            order: if from.arbitrary()? { Order::Hosts } else { Order::Pairs },
        });
        let ports = self.ports.descriptor().try_clone_to_owned().expect("a descriptor");
        match from.arbitrary::<u8>()? % 8 {
            0 => self.send(&ToTask::Refused(Code::BadVersion), &[]),
            1 => self.send(&welcome, &[]),
            2 => self.send(&ToTask::Halting(String::new()), &[]),
            3 => {
                let [segment, bell] = PreallocatedEndpoint::new().expect("memory").own;
                self.send(&welcome, &[ports.as_fd(), segment.as_fd(), bell.as_fd()]);
            }
            4 => {
                let others = self.shown.each_ref().map(|one| one.try_clone().expect("a descriptor"));
                self.send(&welcome, &[ports.as_fd(), others[1].as_fd(), others[0].as_fd()]);
            }
            5 => {
                let _ = self.socket.send(from.bytes_of_some_length()?, &[]);
            }
            _ => self.send(&welcome, &[ports.as_fd()]),
        }
        // This frame ends the wait of a task that has received no welcome.
        let refused = ToTask::Refused(Code::SysErr);
        if from.arbitrary::<u8>()? % 16 == 0 {
            self.send(&refused, &[]);
        }
        Ok(())
    }

    fn send(&mut self, frame: &ToTask, descriptors: &[BorrowedFd<'_>]) {
        // A frame that the socket does not take is lost.
        let _ = self.socket.send_to_task(frame, descriptors);
    }

    /// Sends a frame, with the right descriptors or with wrong ones.
    fn send_random(&mut self, from: &mut Unstructured<'_>) -> pvm_fuzz::Result<()> {
        let name = Tid(NAMES[usize::from(from.arbitrary::<u8>()?) % NAMES.len()]);
        let shown = self.shown.each_ref().map(|one| one.try_clone().expect("a descriptor"));
        match from.arbitrary::<u8>()? % 12 {
            0 => self.send(&ToTask::Peer(name), &[shown[0].as_fd(), shown[1].as_fd()]),
            1 => self.send(&ToTask::Peer(name), &[shown[1].as_fd(), shown[0].as_fd()]),
            2 => self.send(&ToTask::PeerGone(name), &[]),
            3 => {
                let wait = from.arbitrary::<u8>()? % 9;
                let reply = if from.arbitrary()? { Reply::Done } else { Reply::Error(Code::NoTask) };
                self.send(&ToTask::Reply { wait: wait.into(), reply }, &[]);
            }
            4 | 5 => {
                let [ctx, tag] = [from.arbitrary::<u8>()?, from.arbitrary::<u8>()?].map(|word| i32::from(word) - 9);
                let body = ByteBuf::from(from.bytes_of_some_length()?);
                let enc = i32::from(from.arbitrary::<u8>()?);
                let message = Message { src: name, dst: OWN, ctx, tag, wid: 0, enc, format: 0x0408_8841, body };
                self.send(&ToTask::Message(message), &[]);
            }
            6 => {
                let (near, far) = std::os::unix::net::UnixStream::pair().expect("sockets");
                near.set_nonblocking(true).expect("a socket");
                self.far.push(far.into());
                let secret = if from.arbitrary()? { Some([3; 32]) } else { None };
                let calls = from.arbitrary()?;
                let direct = Direct {
                    peer: name,
                    calls,
                    secret,
                    pacing: Pacing::OnLoss,
                    overflows: calls,
                    cause: LinkCause::Program,
                };
                self.send(&ToTask::Direct(direct), &[near.as_fd()]);
            }
            7 => self.send(&ToTask::Ended(name), &[]),
            8 => {
                let (choice, id) = (from.arbitrary::<u8>()? % 5, from.arbitrary::<u8>()?.into());
                let [membership, barrier] =
                    [self.group.membership_page(), self.group.barrier_page()].map(|one| one.try_clone_to_owned());
                let true_ones = [membership.expect("a descriptor"), barrier.expect("a descriptor")];
                let all = if choice < 3 { &true_ones } else { &shown };
                let count = usize::from(if choice < 3 { choice } else { choice - 2 });
                let all = [all[0].as_fd(), all[1].as_fd()];
                self.send(&ToTask::Group { id }, &all[..count]);
            }
            9 => self.send(&ToTask::Halting(String::new()), &[]),
            10 => {
                let _ = self.socket.send(from.bytes_of_some_length()?, &[]);
            }
            _ => self.far.clear(),
        }
        Ok(())
    }
}
