//! The routes of two daemons and their tasks in one process, joined by a real socket.
use super::test_context::TestContext;
use super::*;
use pvm_core::flows::{MESSAGE_BYTES, MessageHeader};
use pvm_fmp::ports::PortTable;
use pvm_fmp::{Arrival, FAR, Remote, Sink};
use pvm_fmp::{Meta, Sent};
use pvm_net::Link;
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;

/// So many small messages that the daemon stops reading from their sender. Unoptimized code gets fewer messages, since
/// it is slow.
const FLOOD: u32 = if cfg!(debug_assertions) { 200_000 } else { 1_000_000 };

/// A host: its port table and its tasks.
pub(super) struct Host {
    pub tid: Tid,
    ports: PortTable,
    pub route: Route,
    pub context: TestContext,
    pub frames: Vec<Frame>,
    /// The number of connections whose end this host has noticed.
    pub cuts: usize,
}

/// A task that keeps what it has received.
pub(super) struct Task {
    pub tid: Tid,
    host: Tid,
    pub endpoint: Endpoint,
    pub taken: Taken,
}

/// Also the gaps, with the number of messages taken before; 0 messages close the gaps for a host.
#[derive(Default)]
pub(super) struct Taken(pub Vec<(Tid, [u32; 5], Vec<u8>)>, KeptBodies, Vec<(Tid, u32, usize)>);

/// The messages whose bodies a task has left in the daemon's heap: the place among those taken, and the body.
#[derive(Default)]
struct KeptBodies {
    is_wanted: bool,
    bodies: Vec<(usize, Remote)>,
}

impl Sink for Taken {
    fn arrived(&mut self, from: u32, meta: Meta, body: Arrival<'_>) {
        assert!(pvm_fmp::is_daemon(from));
        let bytes = match body {
            Arrival::Inline(inline) => {
                let mut bytes = vec![0; inline.len()];
                inline.copy_to(&mut bytes);
                bytes
            }
            Arrival::InTransit(body) => match self.1.is_wanted.then(|| body.keep()).flatten() {
                Some(kept) => {
                    self.1.bodies.push((self.0.len(), kept));
                    Vec::new()
                }
                None => {
                    let mut bytes = vec![0; body.len()];
                    assert!(body.take(&mut bytes).is_ok());
                    bytes
                }
            },
            Arrival::Remote(_) => panic!("the daemon lends its bodies"),
        };
        let [ctx, tag, wid, enc, format, far] = meta;
        self.0.push((Tid(far), [ctx, tag, wid, enc, format], bytes));
    }
    fn gap(&mut self, host: u32, count: u32) {
        self.2.push((Tid(host), count, self.0.len()));
    }
    fn no_more(&mut self, host: u32) -> bool {
        self.2.push((Tid(host), 0, self.0.len()));
        true
    }
}

impl Task {
    pub fn send(&mut self, to: Tid, number: u32, body: &[u8]) {
        let sent = self.endpoint.send_bytes(self.host.0, [number, 1, 2, 3, 4, to.0], body);
        assert!(matches!(sent, Ok(Sent::Done)));
    }
    pub fn multicast(&mut self, to: &[Tid], number: u32, body: &[u8]) {
        let list: Vec<u8> = to.iter().flat_map(|tid| tid.0.to_ne_bytes()).collect();
        self.send(Tid(pvm_core::flows::LIST), 0, &list);
        self.send(Tid(pvm_core::flows::LISTED), number, body);
    }
    pub fn take(&mut self) {
        while self.endpoint.poll(&mut self.taken) > 0 {}
        self.endpoint.poll(&mut self.taken);
    }
    /// From now on leaves bodies in the daemon's heap where it can, until [`Task::let_go`].
    pub fn keep(&mut self) {
        self.taken.1.is_wanted = true;
    }
    /// Reads the bodies that were left in the daemon's heap, and returns the memory to the daemon. Returns how many
    /// there were.
    pub fn let_go(&mut self) -> usize {
        let bodies = std::mem::take(&mut self.taken.1.bodies);
        for (place, body) in &bodies {
            let bytes = &mut self.taken.0[*place].2;
            bytes.resize(body.len(), 0);
            body.read(0, bytes);
        }
        let count = bodies.len();
        drop(bodies);
        self.endpoint.poll(&mut self.taken);
        count
    }
    /// Returns the numbers of the messages from one sender.
    pub fn numbers(&self, from: Tid) -> Vec<u32> {
        self.taken.0.iter().filter(|(src, ..)| *src == from).map(|(_, meta, _)| meta[0]).collect()
    }
}

impl Host {
    pub fn new(tid: u32) -> Host {
        let (tid, ports) = (Tid(tid), PortTable::new(64).unwrap());
        ports.set(tid.0);
        let route = Route::new(tid, ports.descriptor().try_clone_to_owned().unwrap()).unwrap();
        let members = (1..=5).map(Tid::host_number).collect();
        let context = TestContext { members, ..TestContext::default() };
        Host { tid, ports, route, context, frames: Vec::new(), cuts: 0 }
    }
    pub fn task(&mut self, number: u32) -> Task {
        let tid = Tid(self.tid.0 + number);
        self.ports.set(tid.0);
        let mut endpoint = Endpoint::new().unwrap();
        let view = PortView::new(self.ports.descriptor().try_clone_to_owned().unwrap()).unwrap();
        endpoint.enrolled(tid.0, view);
        let [segment, bell] = self.route.descriptors().unwrap();
        endpoint.connect(self.tid.0, segment, bell).unwrap();
        self.context.tasks.insert(tid, endpoint.descriptors().unwrap());
        self.context.introduce(tid, self.route.endpoint()).unwrap();
        Task { tid, host: self.tid, endpoint, taken: Taken::default() }
    }
    /// Takes one step, as the daemon's loop does.
    pub fn turn(&mut self) -> bool {
        // The real loop gets one event for a ready socket; checking all sockets each time is harmless.
        let hosts: Vec<Tid> = self.route.data_links.keys().copied().collect();
        hosts.iter().for_each(|host| self.route.on_socket_ready(*host, true, true, false));
        let mut more = self.route.step(&mut self.context) || !self.route.prepare_park(&self.context);
        self.route.wake(true);
        while let Some(event) = self.route.poll_event() {
            more = true;
            match event {
                RouteEvent::Frame { frame, .. } => self.frames.push(*frame),
                RouteEvent::Wanted { .. } | RouteEvent::Note(_) | RouteEvent::Advice(_) => {}
                RouteEvent::Cut { .. } => self.cuts += 1,
                other => panic!("{other:?}"),
            }
        }
        more
    }
    pub fn dies(&mut self, task: &Task) {
        self.route.drain(task.tid, &self.context);
        self.ports.clear(task.tid.0);
        self.context.tasks.remove(&task.tid);
        self.route.forget_task(task.tid);
    }
    pub fn heap_bytes(&mut self) -> usize {
        self.route.lent.values().flat_map(Lent::blocks).map(Block::capacity).sum()
    }
}

fn streams() -> (ByteStream, ByteStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (far, _) = listener.accept().unwrap();
    let stream = |socket: TcpStream| {
        socket.set_nonblocking(true).unwrap();
        let mut link = Link::clear(socket.into());
        link.trust(Duration::from_secs(10)).unwrap();
        link.into_byte_stream()
    };
    (stream(near), stream(far))
}

pub(super) fn join(one: &mut Host, other: &mut Host) {
    let (near, far) = streams();
    assert!(near.as_fd().try_clone_to_owned().is_ok());
    one.route.attach(other.tid, near);
    other.route.attach(one.tid, far);
}

fn two() -> (Host, Host) {
    let (mut one, mut other) = (Host::new(0x40000), Host::new(0x80000));
    join(&mut one, &mut other);
    (one, other)
}

/// Steps until no message has moved for a while. Meanwhile `tasks` receive their messages.
pub(super) fn settle(hosts: [&mut Host; 2], tasks: &mut [&mut Task]) {
    let mut quiet = 0;
    while quiet < 50 {
        let before: usize = tasks.iter().map(|task| task.taken.0.len()).sum();
        let mut moved = false;
        for host in [0, 1] {
            moved |= hosts[host].turn();
        }
        tasks.iter_mut().for_each(|task| task.take());
        let after: usize = tasks.iter().map(|task| task.taken.0.len()).sum();
        quiet = if moved || after > before { 0 } else { quiet + 1 };
        if quiet > 10 {
            std::thread::sleep(Duration::from_micros(200));
        }
    }
}

pub(super) fn pattern(bytes: usize, seed: u32) -> Vec<u8> {
    (0..bytes).map(|at| (at as u32).wrapping_mul(31).wrapping_add(seed) as u8).collect()
}

#[test]
fn messages_of_every_size_cross_in_order() {
    let (mut one, mut other) = two();
    let (mut a, mut b) = (one.task(1), other.task(7));
    let sizes = [0, 1, 8, 504, 505, 4096, 65_535, 65_536, 65_537, 300_000, 64 << 20, 3];
    for (number, bytes) in sizes.into_iter().enumerate() {
        a.send(b.tid, number as u32, &pattern(bytes, number as u32));
    }
    settle([&mut one, &mut other], &mut [&mut a, &mut b]);
    for ((number, bytes), (src, meta, body)) in sizes.into_iter().enumerate().zip(&b.taken.0) {
        assert_eq!((*src, *meta), (a.tid, [number as u32, 1, 2, 3, 4]));
        assert!(*body == pattern(bytes, number as u32), "{bytes} bytes");
    }
    assert_eq!(b.taken.0.len(), sizes.len());
    b.send(a.tid, 9, b"back");
    settle([&mut one, &mut other], &mut [&mut a, &mut b]);
    assert_eq!(a.taken.0, [(b.tid, [9, 1, 2, 3, 4], b"back".to_vec())]);
}

#[test]
fn a_receiver_that_takes_nothing_holds_nobody_else_up_and_costs_the_daemons_little() {
    let (mut one, mut other) = two();
    let (mut flood, mut fair) = (one.task(1), one.task(2));
    let (mut lazy, mut keen) = (other.task(1), other.task(2));
    for number in 0..FLOOD {
        flood.send(lazy.tid, number, &number.to_ne_bytes());
    }
    for number in 0..1000 {
        fair.send(keen.tid, number, &pattern(number as usize * 10, number));
    }
    settle([&mut one, &mut other], &mut [&mut flood, &mut fair, &mut keen]);
    assert_eq!(keen.numbers(fair.tid), (0..1000).collect::<Vec<_>>());
    let held = one.route.egress_flows.flows.held_bytes();
    assert!((pvm_core::flows::HELD_BYTES_MAX..pvm_core::flows::HELD_BYTES_MAX + (1 << 17)).contains(&held), "{held}");
    assert!(other.heap_bytes() <= 1 << 20);
    settle([&mut one, &mut other], &mut [&mut flood, &mut fair, &mut keen, &mut lazy]);
    assert_eq!(lazy.numbers(flood.tid), (0..FLOOD).collect::<Vec<_>>());
    assert_eq!((one.route.egress_flows.flows.held_bytes(), other.heap_bytes()), (0, 0));
}

#[test]
fn long_messages_to_a_receiver_that_takes_nothing_stay_with_their_sender() {
    let (mut one, mut other) = two();
    let (mut a, mut b) = (one.task(1), other.task(1));
    for number in 0..30 {
        a.send(b.tid, number, &pattern(1 << 20, number));
    }
    settle([&mut one, &mut other], &mut [&mut a]);
    assert!(other.heap_bytes() <= 1 << 20, "one message at most");
    settle([&mut one, &mut other], &mut [&mut a, &mut b]);
    assert_eq!(b.numbers(a.tid), (0..30).collect::<Vec<_>>());
    assert_eq!(other.heap_bytes(), 0);
}

#[test]
fn a_body_that_a_task_keeps_stays_until_it_lets_go_and_holds_nobody_up() {
    let (mut one, mut other) = two();
    let (mut a, mut b, mut c) = (one.task(1), other.task(1), other.task(2));
    [&mut b, &mut c].into_iter().for_each(Task::keep);
    for number in 0..8 {
        a.send(b.tid, number, &pattern(1 << 20, number));
        a.send(c.tid, number, &pattern(1 << 20, number));
    }
    settle([&mut one, &mut other], &mut [&mut a, &mut b, &mut c]);
    assert_eq!(b.numbers(a.tid), (0..8).collect::<Vec<_>>(), "what is kept counts as read");
    assert_eq!(other.heap_bytes(), 2 << 20, "each keeps the first one; the others were copied");
    assert_eq!(b.let_go(), 1);
    other.turn();
    assert_eq!(other.heap_bytes(), 1 << 20);
    assert!(b.taken.0.iter().all(|(_, meta, body)| *body == pattern(1 << 20, meta[0])));
    // The next one can be kept again, and a task that dies keeps nothing.
    a.send(b.tid, 8, &pattern(100_000, 8));
    settle([&mut one, &mut other], &mut [&mut a, &mut b, &mut c]);
    assert_eq!(other.heap_bytes() >> 10, (1 << 10) + 100);
    other.dies(&c);
    assert_eq!(b.let_go(), 1);
    assert!(other.route.trim() || other.route.trim(), "an idle daemon frees it without a turn");
    assert_eq!(other.heap_bytes(), 0);
    assert!(b.taken.0.iter().all(|(_, meta, body)| *body == pattern(body.len(), meta[0])));
}

#[test]
fn a_daemon_does_not_sleep_over_what_a_task_was_to_tell() {
    let (mut one, mut other) = two();
    let (mut a, mut b) = (one.task(1), other.task(1));
    for number in 0..4 {
        a.send(b.tid, number, &pattern(1 << 20, number));
    }
    settle([&mut one, &mut other], &mut [&mut a]);
    assert!(!other.route.ring_positions.is_empty());
    // The task reads after the daemon's last poll before a sleep. It sees that the daemon is not asleep yet, and does
    // not ring.
    while other.route.step(&mut other.context) {}
    b.take();
    assert!(!other.route.prepare_park(&other.context));
    other.route.wake(false);
    settle([&mut one, &mut other], &mut [&mut a, &mut b]);
    assert_eq!(b.numbers(a.tid), [0, 1, 2, 3]);
}

#[test]
fn an_end_that_is_told_and_does_not_come_holds_nobody_up() {
    let (mut one, mut other) = two();
    let (mut a, mut b) = (one.task(1), other.task(1));
    // The event is late: it reports the end of an earlier socket to this host.
    other.route.on_socket_ready(one.tid, true, true, true);
    settle([&mut one, &mut other], &mut []);
    a.send(b.tid, 1, &pattern(100_000, 1));
    other.route.on_socket_ready(one.tid, true, true, true);
    settle([&mut one, &mut other], &mut [&mut a, &mut b]);
    assert_eq!(b.numbers(a.tid), [1]);
}

#[test]
fn complete_messages_of_a_dead_sender_arrive_and_news_of_its_death_come_after_them() {
    let (mut one, mut other) = two();
    let (mut a, mut b) = (one.task(1), other.task(1));
    for number in 0..200 {
        a.send(b.tid, number, &pattern(100_000, number));
    }
    one.dies(&a);
    drop(a.endpoint);
    let died = Frame::Died { tid: a.tid, watcher: b.tid };
    one.route.send_along(b.tid, &died);
    settle([&mut one, &mut other], &mut []);
    assert!(other.frames.is_empty(), "it waits behind the messages");
    settle([&mut one, &mut other], &mut [&mut b]);
    assert_eq!(b.numbers(a.tid), (0..200).collect::<Vec<_>>());
    assert!(b.taken.0.iter().all(|(_, meta, body)| *body == pattern(100_000, meta[0])));
    assert_eq!(other.frames, [died]);
    assert_eq!(one.route.egress_flows.flows.held_bytes(), 0);
}

#[test]
fn a_dead_receiver_returns_its_window() {
    let (mut one, mut other) = two();
    let (mut a, mut b, mut c) = (one.task(1), other.task(1), other.task(2));
    for number in 0..20 {
        a.send(b.tid, number, &pattern(200_000, number));
        a.send(c.tid, number, b"short");
    }
    settle([&mut one, &mut other], &mut [&mut c]);
    other.dies(&b);
    settle([&mut one, &mut other], &mut [&mut a, &mut c]);
    assert_eq!(c.numbers(a.tid).len(), 20);
    assert!(!one.route.egress_flows.flows.has_items(other.tid) && one.route.egress_flows.flows.held_bytes() == 0);
    assert_eq!(other.heap_bytes(), 0);
    b.taken.0.clear();
}

#[test]
fn what_is_for_nobody_takes_no_memory_and_returns_its_window() {
    let (mut one, mut other) = two();
    let (mut a, mut b) = (one.task(1), other.task(1));
    let nobody = Tid(other.tid.0 + 9);
    for number in 0..3 {
        a.send(nobody, number, &pattern(32 << 20, number));
    }
    a.send(b.tid, 3, &pattern(300_000, 3));
    settle([&mut one, &mut other], &mut [&mut a, &mut b]);
    assert_eq!(b.numbers(a.tid), [3]);
    assert!(b.taken.0[0].2 == pattern(300_000, 3));
    assert!(!other.route.endpoint.has_excess(), "nothing of that size was ever taken");
    assert!(one.route.egress_flows.flows.is_idle(), "its window came back");
}

#[test]
fn a_multicast_reaches_each_and_crosses_once() {
    let (mut one, mut other) = two();
    let mut a = one.task(1);
    let (mut b, mut c, mut d) = (other.task(1), other.task(2), other.task(3));
    let everybody = [b.tid, c.tid, d.tid, Tid(0x80009), Tid(0xc0001), a.tid];
    for number in 0..10 {
        a.multicast(&everybody, number, &pattern(300_000, number));
        a.multicast(&everybody, 100 + number, b"few");
        a.send(c.tid, 200 + number, b"alone");
    }
    settle([&mut one, &mut other], &mut [&mut a, &mut b, &mut c, &mut d]);
    let numbers: Vec<u32> = (0..10).flat_map(|number| [number, 100 + number]).collect();
    assert_eq!((b.numbers(a.tid), d.numbers(a.tid)), (numbers.clone(), numbers));
    assert_eq!(c.numbers(a.tid).len(), 30);
    assert!(b.taken.0.iter().all(|(_, meta, body)| meta[0] > 9 || *body == pattern(300_000, meta[0])));
}

#[test]
fn a_task_that_was_never_introduced_gets_its_messages() {
    let (mut one, mut other) = two();
    let mut a = one.task(1);
    let tid = Tid(0x80005);
    other.ports.set(tid.0);
    let pvm_fmp::PreallocatedEndpoint { own: [segment, bell], shown } = pvm_fmp::PreallocatedEndpoint::new().unwrap();
    other.context.tasks.insert(tid, shown);
    a.send(tid, 1, b"early");
    settle([&mut one, &mut other], &mut [&mut a]);
    assert_eq!(other.context.introduced, [tid]);
    let mut endpoint = Endpoint::adopt(segment, bell).unwrap();
    let view = PortView::new(other.ports.descriptor().try_clone_to_owned().unwrap()).unwrap();
    endpoint.enrolled(tid.0, view);
    let [segment, bell] = other.route.descriptors().unwrap();
    endpoint.connect(other.tid.0, segment, bell).unwrap();
    let mut task = Task { tid, host: other.tid, endpoint, taken: Taken::default() };
    task.take();
    assert_eq!(task.numbers(a.tid), [1]);
}

#[test]
fn what_waits_for_a_link_goes_when_it_comes_and_is_dropped_with_its_host() {
    let (mut one, mut other) = (Host::new(0x40000), Host::new(0x80000));
    let (mut a, mut b) = (one.task(1), other.task(1));
    a.send(b.tid, 1, b"early");
    one.route.step(&mut one.context);
    assert_eq!(one.route.poll_event(), Some(RouteEvent::Wanted { host: other.tid }));
    assert_eq!(one.route.poll_event(), None);
    join(&mut one, &mut other);
    settle([&mut one, &mut other], &mut [&mut b]);
    assert_eq!(b.numbers(a.tid), [1]);
    one.route.detach(other.tid);
    a.send(b.tid, 2, &pattern(100_000, 1));
    one.turn();
    assert!(one.route.egress_flows.flows.held_bytes() > 0);
    one.route.forget_host(other.tid);
    assert!(one.route.egress_flows.flows.is_idle());
}

#[test]
fn a_host_that_speaks_for_others_or_talks_rubbish_is_cut_off() {
    for rubbish in [true, false] {
        let (mut one, other) = (Host::new(0x40000), Host::new(0x80000));
        let (near, mut far) = streams();
        one.route.attach(other.tid, near);
        let mut bytes = vec![0xee; 100];
        if !rubbish {
            let header =
                MessageHeader { src: Tid(0xc0001), dst: Tid(0x40001), others: Vec::new(), meta: [0; 5], bytes: 1 };
            let piece = pvm_core::flows::DataFrame::Start { transfer: 1, header, first: 1, body: std::rc::Rc::new(()) };
            bytes.clear();
            pvm_core::flows::frames::write_header(&piece, &mut bytes);
            bytes.push(0);
        }
        far.write(&bytes).unwrap();
        std::thread::sleep(Duration::from_millis(20));
        one.route.on_socket_ready(other.tid, true, false, false);
        one.route.step(&mut one.context);
        assert!(matches!(one.route.poll_event(), Some(RouteEvent::Broken { host, .. }) if host == other.tid));
        assert!(one.route.data_links.is_empty());
    }
}

#[test]
fn all_that_a_task_has_queued_is_taken_before_what_it_says_is_heeded() {
    const COUNT: u32 = 5000;
    let (mut one, mut other) = two();
    let (mut a, mut b) = (one.task(1), other.task(1));
    (0..COUNT).for_each(|number| a.send(b.tid, number, b"before"));
    one.route.take_from_all(&one.context);
    assert!(one.route.egress_flows.flows.held_bytes() >= u64::from(COUNT) * MESSAGE_BYTES);
    a.send(b.tid, COUNT, b"after");
    settle([&mut one, &mut other], &mut [&mut a, &mut b]);
    assert_eq!(b.numbers(a.tid), (0..=COUNT).collect::<Vec<_>>());
}

#[test]
fn a_list_of_more_receivers_than_there_can_be_is_nobodys() {
    let (mut one, mut other) = two();
    let (mut a, mut b) = (one.task(1), other.task(1));
    a.multicast(&vec![b.tid; egress::LIST_BYTES_MAX / 4], 1, b"taken");
    a.multicast(&vec![b.tid; egress::LIST_BYTES_MAX / 4 + 1], 2, b"for nobody");
    settle([&mut one, &mut other], &mut [&mut a, &mut b]);
    assert_eq!(b.numbers(a.tid), [1]);
    assert!(one.route.egress_flows.lists.is_empty());
}

#[test]
fn a_task_cannot_speak_for_another() {
    let (mut one, mut other) = two();
    let (mut a, mut b) = (one.task(1), other.task(1));
    // The message itself names only its receiver. The sender is known, since the message is in the sender's queue.
    let sent = a.endpoint.send_bytes(one.tid.0, [5, 0, 0, 0, 0, b.tid.0], b"x");
    assert!(matches!(sent, Ok(Sent::Done)));
    for nowhere in [Tid(0), Tid(0x80000), Tid(0xc0001), one.tid, a.tid, Tid(0xffff_ffff)] {
        a.send(nowhere, 6, b"lost");
    }
    settle([&mut one, &mut other], &mut [&mut a, &mut b]);
    assert_eq!(b.taken.0.len(), 1);
    assert_eq!((b.taken.0[0].0, FAR), (a.tid, 5));
}

#[test]
fn what_is_sent_later_does_not_arrive_earlier_whichever_tasks_receive() {
    let (mut one, mut other) = two();
    let (mut a, mut b, mut c) = (one.task(1), other.task(1), other.task(2));
    // More than the window of a flow, and nobody reads.
    (0..5).for_each(|number| a.send(b.tid, number, &pattern(200_000, number)));
    a.send(b.tid, 5, b"before");
    settle([&mut one, &mut other], &mut [&mut a, &mut c]);
    a.send(c.tid, 6, b"after");
    a.send(c.tid, 7, b"after");
    settle([&mut one, &mut other], &mut [&mut a, &mut c]);
    assert_eq!(c.numbers(a.tid), [6, 7], "it does not wait for another task");
    // What that task reads first has a gap for all that is still missing.
    b.endpoint.poll(&mut b.taken);
    let [(host, count, place)] = b.taken.2[..] else { panic!("one gap: {:?}", b.taken.2) };
    assert_eq!((host, count as usize, place), (one.tid, 6 - place, b.taken.0.len()));
    settle([&mut one, &mut other], &mut [&mut a, &mut b, &mut c]);
    assert_eq!(b.numbers(a.tid), (0..6).collect::<Vec<_>>());
    assert_eq!((b.taken.2.len(), c.taken.2.len()), (1, 0));
}

#[test]
fn streams_to_several_tasks_that_read_need_no_gaps() {
    let (mut one, mut other) = two();
    let (mut a, mut b, mut c) = (one.task(1), other.task(1), other.task(2));
    for number in 0..500 {
        a.send(b.tid, number, &pattern(10, number));
        a.send(c.tid, number, &pattern(1000, number));
        a.multicast(&[b.tid, c.tid], number, &pattern(2000, number));
    }
    settle([&mut one, &mut other], &mut [&mut a, &mut b, &mut c]);
    assert_eq!((b.taken.0.len(), c.taken.0.len()), (1000, 1000));
    let gaps = b.taken.2.len() + c.taken.2.len();
    assert!(gaps <= 20, "{gaps} gaps");
}

#[test]
fn the_gaps_for_a_lost_host_are_closed() {
    let (mut one, mut other) = two();
    let (mut a, mut b, mut c) = (one.task(1), other.task(1), other.task(2));
    (0..5).for_each(|number| a.send(b.tid, number, &pattern(300_000, number)));
    settle([&mut one, &mut other], &mut [&mut a]);
    a.send(c.tid, 6, b"after");
    settle([&mut one, &mut other], &mut [&mut a, &mut c]);
    other.route.forget_host(one.tid);
    settle([&mut one, &mut other], &mut [&mut b]);
    let got = b.numbers(a.tid).len();
    assert!(got < 5);
    assert_eq!(
        b.taken.2.iter().map(|(host, count, _)| (*host, *count == 0)).collect::<Vec<_>>(),
        [(one.tid, false), (one.tid, true)]
    );
    assert!(other.route.undelivered.is_empty());
}

#[test]
fn gaps_wait_for_memory_and_nothing_passes_them() {
    let (mut one, mut other) = two();
    let (a, mut b) = (one.task(1), other.task(1));
    let header = MessageHeader { src: a.tid, dst: b.tid, others: Vec::new(), meta: [9; 5], bytes: 1 };
    other.route.undelivered.push_back(Undelivered::Gap { dst: b.tid, host: one.tid, count: 1 });
    other.route.deliver(one.tid, &header, &Payload::Short(vec![1]), &mut other.context);
    assert_eq!(other.route.undelivered.len(), 2);
    settle([&mut one, &mut other], &mut [&mut b]);
    assert_eq!((b.taken.2.as_slice(), b.taken.0.len()), ([(one.tid, 1, 0)].as_slice(), 1));
}
