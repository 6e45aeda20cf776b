//! Bytes from nowhere on a data link: what a hostile host sends, up to the memory of tasks
//! (docs/testing.md).
use super::*;
use pvm_core::flows::{CHUNK_BYTES_MAX, Credit, Piece, frames};
use pvm_fmp::ports::PortTable;
use pvm_fmp::{Arrival, FAR, Sink};
use pvm_fuzz::{Source, Unstructured, file, part};
use pvm_net::{Identity, KeyPair, Link};
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use std::rc::Rc;

/// What takes it in.
pub const DECODER: &[Source] = &[
    file("crates/pvmd/src/route/inlet.rs"),
    file("crates/pvmd/src/route/cable.rs"),
    part("crates/pvmd/src/route/outlet.rs", &["acknowledged", "resume"]),
    part("crates/pvm-core/src/flows/record.rs", &["acknowledge", "resume"]),
    part(
        "crates/pvmd/src/route/mod.rs",
        &[
            "frame",
            "deliver",
            "is_introduced",
            "hand_over",
            "hear",
            "hear_all",
            "failed",
            "resume",
            "ready",
            "forget_task",
            "forget_host",
            "fmt",
            "from",
        ],
    ),
    file("crates/pvm-core/src/flows/intake.rs"),
];

const OWN: Tid = Tid(0x40000);
/// The host whose daemon is not what it should be.
const HOSTILE: Tid = Tid(0x80000);
/// Whom it may name: its own task, ours, one that can be introduced to nobody, ours that is not there,
/// those of another host, hosts, nobody.
const NAMES: [u32; 9] = [0x80001, 0x40001, 0x40002, 0x40003, 0x40009, 0xc0001, 0x40000, 0x80000, 0];
/// The longest body in these tests, in bytes.
const BODY_BYTES_MAX: u32 = 3 << 20;
/// Bytes that wait for the socket before the host says no more.
const PENDING_BYTES_MAX: usize = 1 << 20;

/// The tasks of this host.
struct Places(HashMap<Tid, [OwnedFd; 2]>);

impl Around for Places {
    fn takes(&self, task: Tid) -> bool {
        self.0.contains_key(&task) || task.0 == NAMES[3]
    }
    fn knows(&self, host: Tid) -> bool {
        host == HOSTILE
    }
    fn introduce(&mut self, task: Tid, endpoint: &mut Endpoint) -> io::Result<()> {
        let [segment, bell] = self.0.get(&task).ok_or(io::ErrorKind::OutOfMemory)?;
        endpoint.connect(task.0, segment.try_clone()?, bell.try_clone()?)
    }
    fn ring(&mut self, _task: Tid) {}
}

/// A task: counts what it has taken.
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
            Arrival::InTransit(offer) => {
                let mut room = vec![0; offer.len()];
                assert!(offer.take(&mut room).is_ok());
            }
            Arrival::Remote(_) => panic!("the daemon lends its bodies"),
        }
        self.0 += 1;
    }
}

/// A daemon with tasks, and the other end of its data link.
struct World {
    route: Route,
    places: Places,
    tasks: Vec<Task>,
    /// The hostile host's end; none when it has closed.
    far: Option<Pipe>,
    /// What it has said and the socket has not taken.
    pending: Vec<u8>,
    broken: bool,
    encrypted: bool,
    ports: PortTable,
}

/// The bytes say what the host does, one thing after another.
pub fn data_inlet(bytes: &[u8]) {
    let mut from = Unstructured::new(bytes);
    // Ends when there are no more bytes.
    let _ = deeds(&mut from);
}

fn deeds(from: &mut Unstructured<'_>) -> pvm_fuzz::Result<()> {
    let mut world = World::new(from.arbitrary()?);
    while !from.is_empty() && !world.broken {
        world.deed(from)?;
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
        let mut places = Places(HashMap::new());
        let task = |name: &u32| {
            ports.set(*name);
            let mut endpoint = Endpoint::new().expect("memory");
            endpoint.enrolled(*name, PortView::new(descriptor()).expect("a table"));
            let [segment, bell] = route.descriptors().expect("descriptors");
            endpoint.connect(OWN.0, segment, bell).expect("the daemon");
            places.0.insert(Tid(*name), endpoint.descriptors().expect("descriptors"));
            Task { tid: Tid(*name), endpoint, taken: Taken::default() }
        };
        let tasks = NAMES[1..3].iter().map(task).collect();
        let (near, far) = pipes(encrypted);
        route.attach(HOSTILE, near);
        World { route, places, tasks, far: Some(far), pending: Vec::new(), broken: false, encrypted, ports }
    }

    fn deed(&mut self, from: &mut Unstructured<'_>) -> pvm_fuzz::Result<()> {
        match from.arbitrary::<u8>()? % 12 {
            0 => self.pending.extend(from.bytes_of_some_length()?),
            1..=3 => self.start(from)?,
            4 => {
                let (transfer, bytes) = (from.arbitrary::<u8>()?.into(), usize::from(from.arbitrary::<u16>()?) + 1);
                self.say(&Piece::Chunk { transfer, range: 0..bytes, body: Rc::new(()) }, bytes);
            }
            5 => {
                let (dst, frame) = (name(from)?, from.bytes_of_some_length()?.to_vec());
                let piece = Piece::Along { dst, frame: frame.clone() };
                self.say(&piece, 0);
                self.pending.extend(frame);
            }
            6 => {
                let (dst, bytes) = (name(from)?, from.arbitrary::<u32>()?.into());
                frames::write_credit(&Credit { host: OWN, dst, bytes }, &mut self.pending);
            }
            7 => self.task_does(from)?,
            8 => self.breaks(from)?,
            _ => self.turn(),
        }
        Ok(())
    }

    /// The connection ends; or, if it has, there is another one, on which the host says how far it has come.
    fn breaks(&mut self, from: &mut Unstructured<'_>) -> pvm_fuzz::Result<()> {
        if self.far.take().is_none() {
            let (near, far) = pipes(self.encrypted);
            self.route.unplug(HOSTILE);
            self.route.resume(HOSTILE, near);
            (self.far, self.pending) = (Some(far), Vec::new());
            let position = from.arbitrary::<u8>()?.into();
            frames::write_acknowledged(position, &mut self.pending);
        }
        Ok(())
    }

    /// A message begins.
    fn start(&mut self, from: &mut Unstructured<'_>) -> pvm_fuzz::Result<()> {
        let (src, dst, transfer) = (name(from)?, name(from)?, from.arbitrary::<u8>()?.into());
        let bytes = match from.arbitrary::<u8>()? % 4 {
            0 => u32::from(from.arbitrary::<u8>()?),
            1 => u32::from(from.arbitrary::<u16>()?),
            2 => CHUNK_BYTES_MAX as u32 + u32::from(from.arbitrary::<u8>()?) - 8,
            _ => from.arbitrary::<u32>()? % BODY_BYTES_MAX,
        } as usize;
        let count = from.arbitrary::<u8>()? % 4;
        let others = (0..count).map(|_| name(from)).collect::<pvm_fuzz::Result<_>>()?;
        let letter = Letter { src, dst, others, meta: [1, 2, 3, 4, 5], bytes };
        let first = bytes.min(CHUNK_BYTES_MAX);
        self.say(&Piece::Start { transfer, letter, first, body: Rc::new(()) }, first);
        Ok(())
    }

    fn say(&mut self, piece: &Piece<()>, body: usize) {
        frames::write_piece(piece, &mut self.pending);
        self.pending.resize(self.pending.len() + body, 7);
    }

    /// Something that tasks of this host do meanwhile.
    fn task_does(&mut self, from: &mut Unstructured<'_>) -> pvm_fuzz::Result<()> {
        let (which, what) = (usize::from(from.arbitrary::<u8>()?) % self.tasks.len().max(1), from.arbitrary::<u8>()?);
        let Some(task) = self.tasks.get_mut(which) else { return Ok(()) };
        match what % 4 {
            0 => {
                let tid = task.tid;
                self.ports.clear(tid.0);
                self.places.0.remove(&tid);
                self.route.drain(tid, &self.places);
                self.route.forget_task(tid);
                self.tasks.swap_remove(which);
            }
            1 => {
                let body = vec![9; usize::from(from.arbitrary::<u16>()?)];
                // Its receiver takes nothing, and returns credit as it likes.
                let _ = task.endpoint.send_bytes(OWN.0, [1, 2, 3, 4, 5, NAMES[0]], &body);
            }
            _ => task.take(),
        }
        Ok(())
    }

    /// A turn of the daemon's loop.
    fn turn(&mut self) {
        if let Some(far) = &mut self.far {
            let count = far.write(&self.pending).unwrap_or(0);
            self.pending.drain(..count);
        }
        self.pending.truncate(PENDING_BYTES_MAX);
        self.route.ready(HOSTILE, true, true, self.far.is_none());
        self.route.turn(&mut self.places);
        self.route.lie_down(&self.places);
        self.route.rise(true);
        while let Some(event) = self.route.poll_event() {
            match event {
                Event::Frame { from, .. } => assert_eq!(from, HOSTILE),
                Event::Broken { host, why } => {
                    assert!(host == HOSTILE && !why.is_empty());
                    self.broken = true;
                }
                Event::Cut { host, why } => assert!(host == HOSTILE && !why.is_empty()),
                Event::Lost { task, .. } => assert_eq!(task.0, NAMES[3]),
                Event::Wanted { host } => assert_eq!(host, HOSTILE),
            }
        }
    }

    /// The host is given up: what it sent can be taken, and then nothing is kept for it.
    fn end(mut self) {
        self.turn();
        self.route.forget_host(HOSTILE);
        self.turn();
        for task in &mut self.tasks {
            task.take();
            self.route.hear(task.tid);
        }
        assert!(self.route.lent.is_empty() && self.route.undelivered.is_empty());
        assert_eq!((self.route.intake.arriving(), self.route.intake.holders().count()), (0, 0));
    }
}

impl Task {
    fn take(&mut self) {
        while self.endpoint.poll(&mut self.taken) > 0 {}
        // What was taken last is given back by the next look.
        self.endpoint.poll(&mut self.taken);
    }
}

/// Somebody whom the host names.
fn name(from: &mut Unstructured<'_>) -> pvm_fuzz::Result<Tid> {
    let number = usize::from(from.arbitrary::<u8>()?) % (NAMES.len() + 1);
    Ok(Tid(match NAMES.get(number) {
        Some(name) => *name,
        None => from.arbitrary()?,
    }))
}

/// Two ends of a data link that stands.
pub(super) fn pipes(encrypted: bool) -> (Pipe, Pipe) {
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
    (near.into_pipe(), far.into_pipe())
}
