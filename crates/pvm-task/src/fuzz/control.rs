//! Bytes from nowhere for a member of the machine: what its daemon tells it, with descriptors.
use crate::control::{Fate, Member};
use crate::{Environment, Task};
use pvm_core::codes::Code;
use pvm_core::proto::{ByteBuf, Direct, Message, Reply, Request, ToTask, TraceSettings, Welcome};
use pvm_core::tid::Tid;
use pvm_fmp::ports::PortTable;
use pvm_fmp::{Endpoint, GroupMemory, PreallocatedEndpoint};
use pvm_fuzz::{Source, Unstructured, part};
use pvm_link::Link;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// What takes it in.
pub const DECODER: &[Source] = &[
    part(
        "crates/pvm-task/src/control.rs",
        &["enter", "read_control", "handle", "answer", "meet", "deliver", "wait_for_welcome", "lose_daemon"],
    ),
    part("crates/pvm-task/src/direct/mod.rs", &["add_direct", "peer_ended"]),
    part("crates/pvm-task/src/groups/mod.rs", &["group_arrived"]),
];

const OWN: Tid = Tid(0x40001);
/// Peers of which the daemon may tell: a living one, one elsewhere, the daemon itself, the task itself,
/// one that is not there.
const NAMES: [u32; 5] = [0x40002, 0x80001, 0x40000, OWN.0, 0x40005];

/// The side of the daemon.
struct Daemon {
    link: Link,
    ports: PortTable,
    group: GroupMemory,
    /// Segment and doorbell of a task of the host.
    shown: [OwnedFd; 2],
    /// The other ends of direct links.
    far: Vec<OwnedFd>,
}

/// The bytes say what the daemon says, one thing after another.
pub fn task_control(bytes: &[u8]) {
    // Ends when there are no more bytes.
    let _ = saying(&mut Unstructured::new(bytes));
}

fn saying(from: &mut Unstructured<'_>) -> pvm_fuzz::Result<()> {
    let (link, far) = Link::pair().expect("sockets");
    let mut daemon = Daemon::new(far);
    daemon.let_in(from)?;
    let environment = Environment::from_lookup(|_| None);
    // Whatever comes in the place of a welcome: there is an answer at once.
    let Ok((mut member, _)) = Member::enter(link, &environment, None) else { return Ok(()) };
    let mut task = Task::new(&environment);
    let fates = [
        Fate::Wanted,
        Fate::Unheeded,
        Fate::Introduction(Tid(NAMES[0])),
        Fate::Introduction(Tid(NAMES[4])),
        Fate::Wanted,
        Fate::Direct(Tid(NAMES[0])),
    ];
    let requests = fates.len();
    for fate in fates {
        member.direct.open_asks += usize::from(matches!(fate, Fate::Direct(_)));
        // One who is not heard any more has hung up.
        let _ = member.request(Request::Config, fate);
    }
    while !from.is_empty() && member.link.is_some() {
        for _ in 0..=from.arbitrary::<u8>()? % 4 {
            daemon.say(from)?;
        }
        member.direct.waits_for = None;
        member.read_control(&mut task.state);
        member.poll(&mut task.state);
        assert!(member.requests.len() <= requests);
    }
    Ok(())
}

impl Daemon {
    fn new(link: Link) -> Daemon {
        let ports = PortTable::new(16).expect("memory");
        let shown = Endpoint::new().and_then(|peer| peer.descriptors()).expect("memory");
        Daemon { link, ports, group: GroupMemory::new().expect("memory"), shown, far: Vec::new() }
    }

    /// What comes first, a welcome in most cases.
    fn let_in(&mut self, from: &mut Unstructured<'_>) -> pvm_fuzz::Result<()> {
        let own = TraceSettings::default();
        let welcome =
            ToTask::Welcome(Welcome { tid: OWN, parent: 0, dsig: 1, own, resource_manager: Tid(from.arbitrary()?) });
        let ports = self.ports.descriptor().try_clone_to_owned().expect("a descriptor");
        match from.arbitrary::<u8>()? % 8 {
            0 => self.tell(&ToTask::Refused(Code::BadVersion), &[]),
            1 => self.tell(&welcome, &[]),
            2 => self.tell(&ToTask::Halting, &[]),
            3 => {
                let [segment, bell] = PreallocatedEndpoint::new().expect("memory").own;
                self.tell(&welcome, &[ports.as_fd(), segment.as_fd(), bell.as_fd()]);
            }
            4 => {
                let others = self.shown.each_ref().map(|one| one.try_clone().expect("a descriptor"));
                self.tell(&welcome, &[ports.as_fd(), others[1].as_fd(), others[0].as_fd()]);
            }
            5 => {
                let _ = self.link.send(from.bytes_of_some_length()?, &[]);
            }
            _ => self.tell(&welcome, &[ports.as_fd()]),
        }
        // It waits for no more than this.
        let refused = ToTask::Refused(Code::SysErr);
        if from.arbitrary::<u8>()? % 16 == 0 {
            self.tell(&refused, &[]);
        }
        Ok(())
    }

    fn tell(&mut self, frame: &ToTask, descriptors: &[BorrowedFd<'_>]) {
        // What the socket does not take never comes.
        let _ = self.link.send_to_task(frame, descriptors);
    }

    /// A frame, with the descriptors that belong to it or others.
    fn say(&mut self, from: &mut Unstructured<'_>) -> pvm_fuzz::Result<()> {
        let name = Tid(NAMES[usize::from(from.arbitrary::<u8>()?) % NAMES.len()]);
        let shown = self.shown.each_ref().map(|one| one.try_clone().expect("a descriptor"));
        match from.arbitrary::<u8>()? % 12 {
            0 => self.tell(&ToTask::Peer(name), &[shown[0].as_fd(), shown[1].as_fd()]),
            1 => self.tell(&ToTask::Peer(name), &[shown[1].as_fd(), shown[0].as_fd()]),
            2 => self.tell(&ToTask::PeerGone(name), &[]),
            3 => {
                let wait = from.arbitrary::<u8>()? % 9;
                let reply = if from.arbitrary()? { Reply::Done } else { Reply::Error(Code::NoTask) };
                self.tell(&ToTask::Reply { wait: wait.into(), reply }, &[]);
            }
            4 | 5 => {
                let [ctx, tag] = [from.arbitrary::<u8>()?, from.arbitrary::<u8>()?].map(|word| i32::from(word) - 9);
                let body = ByteBuf::from(from.bytes_of_some_length()?);
                let enc = i32::from(from.arbitrary::<u8>()?);
                let message = Message { src: name, dst: OWN, ctx, tag, wid: 0, enc, format: 0x0408_8841, body };
                self.tell(&ToTask::Message(message), &[]);
            }
            6 => {
                let (near, far) = std::os::unix::net::UnixStream::pair().expect("sockets");
                near.set_nonblocking(true).expect("a socket");
                self.far.push(far.into());
                let secret = if from.arbitrary()? { Some([3; 32]) } else { None };
                let direct = Direct { peer: name, calls: from.arbitrary()?, secret };
                self.tell(&ToTask::Direct(direct), &[near.as_fd()]);
            }
            7 => self.tell(&ToTask::Ended(name), &[]),
            8 => {
                let (choice, id) = (from.arbitrary::<u8>()? % 5, from.arbitrary::<u8>()?.into());
                let [list, board] =
                    [self.group.membership_page(), self.group.barrier_page()].map(|one| one.try_clone_to_owned());
                let true_ones = [list.expect("a descriptor"), board.expect("a descriptor")];
                let all = if choice < 3 { &true_ones } else { &shown };
                let count = usize::from(if choice < 3 { choice } else { choice - 2 });
                let all = [all[0].as_fd(), all[1].as_fd()];
                self.tell(&ToTask::Group { id }, &all[..count]);
            }
            9 => self.tell(&ToTask::Halting, &[]),
            10 => {
                let _ = self.link.send(from.bytes_of_some_length()?, &[]);
            }
            _ => self.far.clear(),
        }
        Ok(())
    }
}
