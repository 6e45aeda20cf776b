//! Untrusted input on a data link: the bytes of a hostile host, on their way to the memory of tasks (docs/testing.md).
use super::digests::digest_of;
use super::test_context::TestContext;
use super::*;
use pvm_core::flows::MessageHeader;
use pvm_core::flows::multicast::datagram::{DatagramHead, HEAD_BYTES};
use pvm_core::flows::multicast::{Announcement, BodyKey, BodyRequest};
use pvm_core::flows::pacing::is_paced;
use pvm_core::flows::{CHUNK_BYTES_MAX, Credit, DataFrame, frames};
use pvm_fmp::Meta;
use pvm_fmp::ports::PortTable;
use pvm_fmp::{Arrival, FAR, Sink};
use pvm_fuzz::{Source, Unstructured, file, part};
use pvm_net::{Identity, KeyPair, Link, Seal};
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use std::rc::Rc;

/// The code that decodes this input.
pub const DECODER: &[Source] = &[
    file("crates/pvmd/src/route/receive.rs"),
    file("crates/pvmd/src/route/announced.rs"),
    file("crates/pvmd/src/route/data_link.rs"),
    file("crates/pvmd/src/route/digests.rs"),
    part("crates/pvmd/src/route/datagrams.rs", &["listen", "on_datagram"]),
    part("crates/pvm-core/src/flows/multicast/datagram.rs", &["read"]),
    file("crates/pvm-core/src/flows/multicast/parts.rs"),
    part("crates/pvm-net/src/seal.rs", &["open"]),
    part("crates/pvmd/src/route/transmit.rs", &["acknowledged", "resume"]),
    part("crates/pvm-core/src/flows/retransmit.rs", &["acknowledge", "resume"]),
    part("crates/pvmd/src/route/read_progress.rs", &["update_read_progress", "update_all_read_progress"]),
    part(
        "crates/pvmd/src/route/mod.rs",
        &["on_frame", "on_link_failure", "resume", "on_socket_ready", "forget_task", "forget_host"],
    ),
    file("crates/pvmd/src/route/delivery.rs"),
    file("crates/pvm-core/src/flows/arrivals.rs"),
    file("crates/pvm-core/src/flows/inbound.rs"),
    file("crates/pvm-core/src/flows/multicast/fetches.rs"),
    file("crates/pvm-core/src/flows/multicast/in_order.rs"),
    part("crates/pvm-core/src/flows/multicast/bodies.rs", &["relay", "grow", "refuse", "fetch", "cancel", "next_part"]),
    part(
        "crates/pvm-core/src/flows/pacing/receiver.rs",
        &["handle_start", "handle_bytes", "count", "under_way", "demand", "serve_only_host", "refill", "set_limit"],
    ),
];

const OWN: Tid = Tid(0x40000);
/// The hostile host.
const HOSTILE: Tid = Tid(0x80000);
/// Another host, which is never connected.
const OTHER: Tid = Tid(0xc0000);
/// The tids that the hostile host may name: its own task, tasks of this host (one of them without memory, one absent),
/// a task of another host, hosts, none.
const NAMES: [u32; 9] = [0x80001, 0x40001, 0x40002, 0x40003, 0x40009, 0xc0001, 0x40000, 0x80000, 0];
/// The longest body in these tests, in bytes.
const BODY_BYTES_MAX: u32 = 3 << 20;
/// The byte of which bodies consist.
const FILLER: u8 = 7;
/// The hostile host sends no more while this number of bytes waits for the socket.
const PENDING_BYTES_MAX: usize = 1 << 20;

/// A task that counts what it has received.
struct Task {
    tid: Tid,
    endpoint: Endpoint,
    taken: Taken,
}

#[derive(Default)]
struct Taken(usize);

impl Sink for Taken {
    fn arrived(&mut self, from: u32, meta: Meta, body: Arrival<'_>) {
        assert_eq!((Tid(from), Tid(meta[FAR]).host()), (OWN, HOSTILE), "nobody speaks for another");
        match body {
            Arrival::Inline(inline) => assert_eq!(inline.copy_to(&mut vec![0; inline.len()]), inline.len()),
            Arrival::InTransit(body) => {
                let mut room = vec![0; body.len()];
                assert!(body.take(&mut room).is_ok());
            }
            Arrival::Remote(_) => panic!("the daemon lends its bodies"),
        }
        self.0 += 1;
    }
}

/// A daemon with tasks, and the other end of its data link.
struct World {
    route: Route,
    context: TestContext,
    tasks: Vec<Task>,
    /// The hostile host's end; absent when it has closed.
    far: Option<ByteStream>,
    /// Bytes that the hostile host has sent and the socket has not taken.
    pending: Vec<u8>,
    broken: bool,
    encrypted: bool,
    ports: PortTable,
}

/// Runs the actions of the hostile host, as the bytes describe them.
pub fn data_receive(bytes: &[u8]) {
    let mut from = Unstructured::new(bytes);
    // An error means that no bytes are left.
    let _ = run_actions(&mut from);
}

fn run_actions(from: &mut Unstructured<'_>) -> pvm_fuzz::Result<()> {
    let mut world = World::new(from.arbitrary()?);
    while !from.is_empty() && !world.broken {
        world.act(from)?;
    }
    world.end();
    Ok(())
}

impl World {
    fn new(encrypted: bool) -> World {
        let ports = PortTable::new(16).expect("memory");
        ports.set(OWN.0);
        let descriptor = || ports.descriptor().try_clone_to_owned().expect("a descriptor");
        let mut route = Route::new(OWN, descriptor()).expect("memory");
        let mut context =
            TestContext { members: vec![HOSTILE, OTHER], no_memory: Some(Tid(NAMES[3])), ..TestContext::default() };
        context.trusts_network = !encrypted;
        let task = |name: &u32| {
            ports.set(*name);
            let mut endpoint = Endpoint::new().expect("memory");
            endpoint.enrolled(*name, PortView::new(descriptor()).expect("a table"));
            let [segment, bell] = route.descriptors().expect("descriptors");
            endpoint.connect(OWN.0, segment, bell).expect("the daemon");
            context.tasks.insert(Tid(*name), endpoint.descriptors().expect("descriptors"));
            Task { tid: Tid(*name), endpoint, taken: Taken::default() }
        };
        let tasks = NAMES[1..3].iter().map(task).collect();
        let (near, far) = streams(encrypted);
        route.attach(HOSTILE, near);
        World { route, context, tasks, far: Some(far), pending: Vec::new(), broken: false, encrypted, ports }
    }

    fn act(&mut self, from: &mut Unstructured<'_>) -> pvm_fuzz::Result<()> {
        match from.arbitrary::<u8>()? % 13 {
            0 => self.pending.extend(from.bytes_of_some_length()?),
            1..=3 => self.start(from)?,
            4 => {
                let (transfer, bytes) = (from.arbitrary::<u8>()?.into(), usize::from(from.arbitrary::<u16>()?) + 1);
                self.send(&DataFrame::Chunk { transfer, range: 0..bytes, body: Rc::new(()) }, bytes);
            }
            5 => {
                let (dst, frame) = (name(from)?, from.bytes_of_some_length()?.to_vec());
                let piece = DataFrame::InBand { dst, payload: frame.clone() };
                self.send(&piece, 0);
                self.pending.extend(frame);
            }
            6 => {
                let (dst, bytes) = (name(from)?, from.arbitrary::<u32>()?.into());
                frames::write_credit(&Credit { host: OWN, dst, bytes }, &mut self.pending);
            }
            10 => frames::write_grant(from.arbitrary::<u32>()?.into(), &mut self.pending),
            7 => self.act_as_task(from)?,
            8 => self.break_or_resume(from)?,
            9 => self.multicast(from)?,
            12 => self.route.tick(),
            _ => self.turn(),
        }
        Ok(())
    }

    /// Closes the connection. If it is closed already, opens another one, on which the host first sends the position up
    /// to which it acknowledges.
    fn break_or_resume(&mut self, from: &mut Unstructured<'_>) -> pvm_fuzz::Result<()> {
        if self.far.take().is_none() {
            let (near, far) = streams(self.encrypted);
            self.route.disconnect(HOSTILE);
            self.route.resume(HOSTILE, near);
            (self.far, self.pending) = (Some(far), Vec::new());
            let position = from.arbitrary::<u8>()?.into();
            frames::write_acknowledged(position, &mut self.pending);
        }
        Ok(())
    }

    /// Announces a message, sends a request for a body, a report about it or a part of it, or marks messages.
    fn multicast(&mut self, from: &mut Unstructured<'_>) -> pvm_fuzz::Result<()> {
        let (what, number) = (from.arbitrary::<u8>()?, from.arbitrary::<u8>()? % 4);
        let origin = if from.arbitrary::<u8>()? % 4 > 0 { HOSTILE } else { name(from)? };
        let key = BodyKey { origin, secret: [number; 16] };
        match what % 8 {
            0..=2 => {
                let header = message_header(from)?;
                let part_bytes = (what % 8 == 2).then_some(u32::from(what) * 64);
                // All bytes that this host sends in bodies are the same.
                let is_true = (what / 8) % 2 == 1;
                let digest = if is_true { digest_of(0..header.bytes, |_, into| into.fill(FILLER)) } else { [0; 32] };
                let parent = name(from)?.host();
                let announcement = Announcement { key, digest, parent, children: what.into(), part_bytes };
                self.send(&DataFrame::Announce { header, announcement }, 0);
            }
            3 => {
                let at = u64::from(from.arbitrary::<u32>()?);
                let (round, missing) = (number.into(), Vec::from([0..number.into(), u32::MAX - 1..u32::MAX]));
                let requests = [
                    BodyRequest::Fetch { at },
                    BodyRequest::Cancel,
                    BodyRequest::Received,
                    BodyRequest::Unavailable,
                    BodyRequest::Ready,
                    BodyRequest::Report { round, missing },
                ];
                let request = requests[usize::from(what / 8) % requests.len()].clone();
                self.send(&DataFrame::Request { key, request }, 0);
            }
            4 => self.broadcast(key, from)?,
            5 => {
                let (dst, count) = (name(from)?, from.arbitrary::<u8>()?.into());
                self.send(&DataFrame::Mark { dst, count }, 0);
            }
            _ => {
                let place = self.route.intake.fetches.get(key).map_or(0, |(header, _)| header.bytes);
                let bytes = place.clamp(1, CHUNK_BYTES_MAX);
                let at = usize::from(from.arbitrary::<u8>()?) % 4 * bytes;
                self.send(&DataFrame::Part { key, range: at..at + bytes, body: Rc::new(()) }, bytes);
            }
        }
        Ok(())
    }

    /// Sends a datagram, which may be truncated or changed, with a part of a body.
    fn broadcast(&mut self, key: BodyKey, from: &mut Unstructured<'_>) -> pvm_fuzz::Result<()> {
        let seal = Seal::new(&key.secret, self.encrypted);
        let (part, serial) = (from.arbitrary::<u8>()?.into(), from.arbitrary::<u8>()?.into());
        let head = DatagramHead { name: seal.name(), serial, part, sent: part + 1, round: part % 4 };
        let mut datagram = Vec::new();
        head.write(&mut datagram);
        let bytes = self.route.intake.fetches.get(key).map_or(0, |(header, _)| header.bytes);
        datagram.resize(HEAD_BYTES + bytes.min(usize::from(from.arbitrary::<u16>()?)), FILLER);
        seal.seal(serial, HEAD_BYTES, &mut datagram);
        if from.arbitrary::<u8>()? % 8 == 0 {
            datagram.truncate(from.arbitrary::<u8>()?.into());
            datagram.iter_mut().take(20).for_each(|byte| *byte ^= part as u8);
        }
        let _ = self.route.on_datagram(&mut datagram, &mut self.context);
        Ok(())
    }

    /// Begins a message.
    fn start(&mut self, from: &mut Unstructured<'_>) -> pvm_fuzz::Result<()> {
        let (transfer, header) = (from.arbitrary::<u8>()?.into(), message_header(from)?);
        let most = header.bytes.min(CHUNK_BYTES_MAX);
        // Only the beginning of a message may come first.
        let first = if is_paced(header.bytes) && header.others.len() == 3 { most / 2 } else { most };
        self.send(&DataFrame::Start { transfer, header, first, body: Rc::new(()) }, first);
        Ok(())
    }

    fn send(&mut self, piece: &DataFrame<()>, body: usize) {
        frames::write_header(piece, &mut self.pending);
        self.pending.resize(self.pending.len() + body, FILLER);
    }

    /// Makes a task of this host end, send or receive.
    fn act_as_task(&mut self, from: &mut Unstructured<'_>) -> pvm_fuzz::Result<()> {
        let (which, what) = (usize::from(from.arbitrary::<u8>()?) % self.tasks.len().max(1), from.arbitrary::<u8>()?);
        let Some(task) = self.tasks.get_mut(which) else { return Ok(()) };
        match what % 4 {
            0 => {
                let tid = task.tid;
                self.ports.clear(tid.0);
                self.context.tasks.remove(&tid);
                self.route.drain(tid, &self.context);
                self.route.forget_task(tid);
                self.tasks.swap_remove(which);
            }
            1 => {
                let body = vec![9; usize::from(from.arbitrary::<u16>()?)];
                // The receiver of this message reads nothing, and returns arbitrary credit.
                let _ = task.endpoint.send_bytes(OWN.0, [1, 2, 3, 4, 5, NAMES[0]], &body);
            }
            _ => task.take(),
        }
        Ok(())
    }

    /// Takes one step, as the daemon's loop does.
    fn turn(&mut self) {
        if let Some(far) = &mut self.far {
            let count = far.write(&self.pending).unwrap_or(0);
            self.pending.drain(..count);
        }
        self.pending.truncate(PENDING_BYTES_MAX);
        self.route.on_socket_ready(HOSTILE, true, true, self.far.is_none());
        self.route.step(&mut self.context);
        self.route.prepare_park(&self.context);
        self.route.wake(true);
        while let Some(event) = self.route.poll_event() {
            match event {
                RouteEvent::Frame { from, .. } => assert_eq!(from, HOSTILE),
                RouteEvent::Broken { host, why } => {
                    assert!(host == HOSTILE && !why.is_empty());
                    self.broken = true;
                }
                RouteEvent::Cut { host, why } => assert!(host == HOSTILE && !why.is_empty()),
                RouteEvent::Lost { task, .. } => assert_eq!(task.0, NAMES[3]),
                RouteEvent::Wanted { host } => assert!([HOSTILE, OTHER].contains(&host)),
                RouteEvent::Note(text) => panic!("this host multicasts to one host: {text}"),
                RouteEvent::Advice(advice) => panic!("this host multicasts to one host: {advice:?}"),
            }
        }
    }

    /// Removes the host. Tasks can still receive what the host has sent; after that, the route keeps nothing for the
    /// host.
    fn end(mut self) {
        self.turn();
        self.route.forget_host(HOSTILE);
        self.turn();
        for task in &mut self.tasks {
            task.take();
            self.route.update_read_progress(task.tid);
        }
        assert!(self.route.lent.is_empty() && self.route.undelivered.is_empty() && self.route.held.is_empty());
        assert_eq!((self.route.intake.arriving(), self.route.intake.holders().count()), (0, 0));
    }
}

impl Task {
    fn take(&mut self) {
        while self.endpoint.poll(&mut self.taken) > 0 {}
        // The next poll hands back the blocks of the messages that were taken last.
        self.endpoint.poll(&mut self.taken);
    }
}

/// Returns the header of a message that the hostile host sends.
fn message_header(from: &mut Unstructured<'_>) -> pvm_fuzz::Result<MessageHeader> {
    let (src, dst) = (name(from)?, name(from)?);
    let bytes = match from.arbitrary::<u8>()? % 4 {
        0 => u32::from(from.arbitrary::<u8>()?),
        1 => u32::from(from.arbitrary::<u16>()?),
        2 => CHUNK_BYTES_MAX as u32 + u32::from(from.arbitrary::<u8>()?) - 8,
        _ => from.arbitrary::<u32>()? % BODY_BYTES_MAX,
    } as usize;
    let count = from.arbitrary::<u8>()? % 4;
    let others = (0..count).map(|_| name(from)).collect::<pvm_fuzz::Result<_>>()?;
    Ok(MessageHeader { src, dst, others, meta: [1, 2, 3, 4, 5], bytes })
}

/// Returns one of the tids that the hostile host may name.
fn name(from: &mut Unstructured<'_>) -> pvm_fuzz::Result<Tid> {
    let number = usize::from(from.arbitrary::<u8>()?) % (NAMES.len() + 1);
    Ok(Tid(match NAMES.get(number) {
        Some(name) => *name,
        None => from.arbitrary()?,
    }))
}

/// Makes the two ends of a data link.
pub(super) fn streams(encrypted: bool) -> (ByteStream, ByteStream) {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let (near, far) = rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None).expect("sockets");
    let (mut near, mut far) = match encrypted {
        false => (Link::clear(near), Link::clear(far)),
        true => {
            let identity = Identity::new(KeyPair::from_secret(&[1; 32]));
            let public = identity.public();
            identity.known().add(public);
            let far = Link::secure_to(far, &identity, public).expect("a link");
            (Link::secure_from(near, &identity).expect("a link"), far)
        }
    };
    while !near.handshake().expect("both know the key") | !far.handshake().expect("both know the key") {}
    [&mut near, &mut far].into_iter().for_each(Link::trust_as_it_is);
    (near.into_byte_stream(), far.into_byte_stream())
}
