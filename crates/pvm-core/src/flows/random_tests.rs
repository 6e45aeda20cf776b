//! Random tests of both sides of flows: messages arrive in order for each pair of tasks, none is lost or duplicated,
//! the bounds hold, and a task that consumes no messages does not block other tasks.
use super::pacing::Pacer;
use super::*;
use crate::prng::Prng;
use crate::time::Time;

const HOME: Tid = Tid(0x40000);
const HOSTS: u32 = 3;
const TASKS: u32 = 4;
/// The task that consumes no message until the end of the test.
const LAZY: Tid = Tid(0x80001);

/// A task as the receiving daemon sees it: the messages delivered to it, and how many of them it has consumed.
#[derive(Default)]
struct Receiver {
    given: Vec<(Tid, u32)>,
    taken: usize,
    waiting_bytes: u64,
    /// The numbers of all messages that were sent to it, and for how many of them it has gaps.
    sent: Vec<u32>,
    gaps: u32,
}

struct World {
    prng: Prng,
    flows: Flows<u32>,
    pacers: HashMap<Tid, Pacer>,
    /// Advances with each frame.
    now: Time,
    inbound_flows: HashMap<Tid, InboundFlows<u32>>,
    receivers: HashMap<Tid, Receiver>,
    sent: HashMap<(Tid, Tid), Vec<u32>>,
    bytes: HashMap<u32, usize>,
    last: u32,
    /// How many marks and gaps there were.
    marks: usize,
    gaps: usize,
}

impl World {
    fn new(seed: u64) -> World {
        let tid = |host: u32, task: u32| Tid((host + 2) << 18 | (task + 1));
        let tids = (0..HOSTS).flat_map(|host| (0..TASKS).map(move |task| tid(host, task)));
        World {
            prng: Prng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1),
            flows: Flows::new(),
            pacers: (0..HOSTS).map(|host| (Tid((host + 2) << 18), Pacer::new())).collect(),
            now: Time::ZERO,
            inbound_flows: (0..HOSTS).map(|host| (Tid((host + 2) << 18), InboundFlows::new())).collect(),
            receivers: tids.map(|tid| (tid, Receiver::default())).collect(),
            sent: HashMap::new(),
            bytes: HashMap::new(),
            last: 0,
            marks: 0,
            gaps: 0,
        }
    }

    fn receiver(&mut self) -> Tid {
        Tid((self.prng.below(u64::from(HOSTS)) as u32 + 2) << 18 | (self.prng.below(u64::from(TASKS)) as u32 + 1))
    }

    fn size(&mut self) -> usize {
        let magnitude = self.prng.below(22);
        self.prng.below(1 << magnitude) as usize
    }

    fn send(&mut self) {
        let src = Tid(HOME.0 | self.prng.below(3) as u32 + 1);
        if !self.flows.may_take(src) {
            return;
        }
        self.last += 1;
        let (number, bytes) = (self.last, self.size());
        self.bytes.insert(number, bytes);
        let mut dsts: Vec<Tid> = (0..=self.prng.below(6).saturating_sub(3)).map(|_| self.receiver()).collect();
        dsts.sort_unstable();
        dsts.dedup();
        dsts.iter().for_each(|dst| self.sent.entry((src, *dst)).or_default().push(number));
        dsts.iter().for_each(|dst| self.receivers.get_mut(dst).unwrap().sent.push(number));
        match dsts[..] {
            [dst] => self.flows.send(src, dst, [number; 5], bytes, bytes.min(500), number),
            _ => self.flows.multicast(src, &dsts, [number; 5], (bytes, bytes.min(500)), number, Delivery::default()),
        }
        assert!(self.flows.held_bytes() <= 3 * (HELD_BYTES_MAX + 3 * 1000));
    }

    /// Sends a few frames to one host. Returns whether it has sent any frame.
    fn carry(&mut self, host: Tid, frames: u64) -> bool {
        let mut some = false;
        for _ in 0..frames {
            let Some(frame) = self.flows.next(host) else { break };
            some = true;
            self.pace(host, &frame);
            let inbound = self.inbound_flows.get_mut(&host).unwrap();
            if let DataFrame::Start { header, .. } = &frame {
                inbound.admit(HOME, header).unwrap();
            }
            let whole = match frame {
                DataFrame::Start { header, first, body, .. } if first == header.bytes => Some((header, *body)),
                DataFrame::Start { transfer, header, first, body } => {
                    inbound.begin(HOME, transfer, header, *body, first).unwrap();
                    None
                }
                DataFrame::Chunk { transfer, range, body } => {
                    let place = inbound.chunk_place(HOME, transfer, range.len()).unwrap();
                    assert_eq!((*place.block, place.at), (*body, range.start));
                    inbound.chunk_placed(HOME, transfer, range.len())
                }
                DataFrame::Mark { dst, count } => {
                    inbound.arrivals.marked(HOME, dst, count).unwrap();
                    self.marks += 1;
                    None
                }
                DataFrame::InBand { .. } => None,
                other => panic!("no multicast goes along a tree here: {other:?}"),
            };
            if let Some((header, number)) = whole {
                self.hand_out(host, &header, number);
            }
        }
        some | self.grant(host)
    }

    /// Counts the bytes of a frame. Sometimes, others send to the host too.
    fn pace(&mut self, host: Tid, frame: &DataFrame<u32>) {
        let pacer = self.pacers.get_mut(&host).unwrap();
        let other = Tid(0x140000);
        match frame {
            DataFrame::Start { transfer, header, first, .. } => {
                pacer.handle_start(HOME, *transfer, header.bytes);
                pacer.handle_bytes(HOME, *transfer, *first);
                if self.prng.below(8) == 0 {
                    pacer.handle_start(other, *transfer, header.bytes);
                }
            }
            DataFrame::Chunk { transfer, range, .. } => {
                assert!(!range.is_empty());
                pacer.handle_bytes(HOME, *transfer, range.len());
                pacer.handle_bytes(other, *transfer, range.len());
            }
            _ => {}
        }
    }

    /// Sends the grants of a host. Returns whether a grant has arrived.
    fn grant(&mut self, host: Tid) -> bool {
        self.now += Time::from_millis(50);
        let pacer = self.pacers.get_mut(&host).unwrap();
        pacer.handle_time(self.now);
        let mut some = false;
        while let Some(grant) = pacer.poll_grant() {
            if grant.host == HOME {
                self.flows.grant(host, grant.up_to);
                some = true;
            }
        }
        some
    }

    fn hand_out(&mut self, host: Tid, header: &MessageHeader, number: u32) {
        assert_eq!((header.bytes, header.meta), (self.bytes[&number], [number; 5]));
        let dsts: Vec<Tid> = header.receivers().collect();
        let arrivals = &mut self.inbound_flows.get_mut(&host).unwrap().arrivals;
        while let Some(gap) = arrivals.gap_before_next(HOME, &dsts) {
            self.receivers.get_mut(&gap.dst).unwrap().gaps += gap.count;
            self.gaps += 1;
        }
        self.check_order(host, number);
        for dst in header.receivers() {
            let receiver = self.receivers.get_mut(&dst).unwrap();
            // Check the window: either all messages fit into it, or at most a quantum was in flight before the last
            // message.
            let before = receiver.waiting_bytes;
            receiver.waiting_bytes += cost(header.bytes);
            assert!(before <= FLOW_QUANTUM_BYTES || receiver.waiting_bytes <= FLOW_WINDOW_BYTES, "{before}");
            receiver.given.push((header.src, number));
            receiver.gaps = receiver.gaps.saturating_sub(1);
            let mark = receiver.given.len() as u64;
            self.inbound_flows.get_mut(&host).unwrap().delivered(dst, HOME, header.bytes, mark);
        }
    }

    /// Checks that each task of the host has what was sent before this message, or gaps for it.
    fn check_order(&self, host: Tid, number: u32) {
        for (dst, receiver) in self.receivers.iter().filter(|(dst, _)| dst.host() == host) {
            let before = receiver.sent.partition_point(|other| *other < number);
            let lacks = before.saturating_sub(receiver.given.len());
            assert!(lacks <= receiver.gaps as usize, "{dst} has {} gaps, and lacks {lacks} messages", receiver.gaps);
        }
    }

    /// Consumes some messages of a task. The task wakes its daemon only when it reaches the read position that the
    /// daemon has set.
    fn take(&mut self, dst: Tid, count: usize) {
        let receiver = self.receivers.get_mut(&dst).unwrap();
        let end = receiver.given.len().min(receiver.taken + count);
        for (_, number) in &receiver.given[receiver.taken..end] {
            receiver.waiting_bytes -= cost(self.bytes[number]);
        }
        receiver.taken = end;
        let inbound = self.inbound_flows.get_mut(&dst.host()).unwrap();
        if inbound.wakeup_mark(dst).is_some_and(|mark| mark <= end as u64) {
            inbound.consumed_to(dst, end as u64);
        }
        while let Some(credit) = inbound.poll_credit() {
            assert_eq!(credit.host, HOME);
            self.flows.credit(credit.dst, credit.bytes);
        }
    }

    /// Runs until nothing changes. The task `except` consumes nothing.
    fn settle(&mut self, except: Option<Tid>) {
        loop {
            let mut moved = false;
            let hosts: Vec<Tid> = self.inbound_flows.keys().copied().collect();
            for host in hosts {
                moved |= self.carry(host, 1000) || self.pacers[&host].next_wakeup().is_some();
            }
            let tids: Vec<Tid> = self.receivers.keys().copied().filter(|tid| Some(*tid) != except).collect();
            for tid in tids {
                moved |= self.receivers[&tid].taken < self.receivers[&tid].given.len();
                self.take(tid, usize::MAX / 2);
            }
            if !moved {
                return;
            }
        }
    }

    fn check(&self, except: Option<Tid>) {
        for ((src, dst), numbers) in self.sent.iter().filter(|((_, dst), _)| Some(*dst) != except) {
            let given = self.receivers[dst].given.iter().filter(|(from, _)| from == src);
            assert!(given.map(|(_, number)| number).eq(numbers), "from {src} to {dst}");
        }
    }
}

/// Runs a world. Returns how many marks and gaps there were.
fn live(seed: u64) -> [usize; 2] {
    let mut world = World::new(seed);
    for _ in 0..400 {
        match world.prng.below(4) {
            0 => (0..world.prng.below(20)).for_each(|_| world.send()),
            1 => {
                let dst = world.receiver();
                if dst != LAZY {
                    let count = world.prng.below(30) as usize;
                    world.take(dst, count);
                }
            }
            _ => {
                let (host, frames) = (world.receiver().host(), world.prng.below(40));
                world.carry(host, frames);
            }
        }
    }
    world.settle(Some(LAZY));
    world.check(Some(LAZY));
    world.settle(None);
    world.check(None);
    assert!(world.inbound_flows.values().all(|inbound| inbound.arriving() == 0) && world.flows.held_bytes() == 0);
    let tids: Vec<Tid> = world.receivers.keys().copied().collect();
    for tid in tids {
        world.inbound_flows.get_mut(&tid.host()).unwrap().task_gone(tid);
        world.take(tid, 0);
    }
    assert!(world.flows.is_idle() && world.receivers.values().all(|receiver| receiver.gaps == 0));
    [world.marks, world.gaps]
}

#[test]
fn each_message_arrives_once_and_in_order() {
    let counts: Vec<[usize; 2]> = (1..=150).map(live).collect();
    for place in 0..2 {
        assert!(counts.iter().map(|counts| counts[place]).sum::<usize>() > 1000, "there were too few: {counts:?}");
    }
}
