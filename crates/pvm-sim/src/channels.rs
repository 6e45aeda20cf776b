//! The channel between two tasks of different hosts (`pvm_core::channel`), with lanes that break, stall, are left and come
//! back, and a peer that may die. Each run checks that every message comes once and in order, that nobody waits for ever, and
//! that both tasks are on a lane again when all is well.
use crate::prng::Prng;
use crate::{Coverage, Violation};
use pvm_core::channel::{Fallback, GivenUp, Lane, LaneEnd, LaneKind, Peers, Receipts, Step, Unacknowledged, Wish};
use pvm_core::tid::Tid;
use std::collections::VecDeque;
use std::time::Duration;

const TIDS: [Tid; 2] = [Tid(0x40001), Tid(0x80001)];
const STEPS: usize = 600;
/// How many rounds the tasks have to receive all messages once nothing fails any more.
const ROUNDS_MAX: usize = 2000;
/// How many frames a connection holds on their way, and after how many messages a side acknowledges them.
const FRAMES_MAX: usize = 8;
const ACKNOWLEDGED_MESSAGES: u32 = 3;
const WISH: Wish = Wish { by_program: false, may_use_fabric: false, may_use_direct: true };

/// What travels by the default route.
enum Relayed {
    User(u32),
    RouteSwitch,
    Fallback(Fallback),
}

/// What travels on a lane. `received`: how many messages its sender has received.
enum Frame {
    Hello,
    Message { number: u32, received: u32 },
    Acknowledgement { received: u32 },
    Leaving,
}

/// The state of the connection of a lane.
#[derive(PartialEq)]
enum Connection {
    Carries,
    /// Nothing moves at the moment.
    Stalls,
    /// It has broken; what still comes is on its way already.
    Broken,
    /// One side has closed it.
    Closed,
}

/// A lane that the daemons have made.
struct Wire {
    connection: Connection,
    /// The frames on their way to each side.
    to: [VecDeque<Frame>; 2],
    /// Whether each side has taken its end, or refused it.
    is_offered: [bool; 2],
}

/// This side of a lane.
struct End {
    lane: Lane,
    queue: Unacknowledged<u32>,
    reported: u32,
}

struct Side {
    peers: Peers,
    receipts: Receipts<()>,
    end: Option<End>,
    repeats: u32,
    sent: u32,
    expected: u32,
}

struct Pair {
    prng: Prng,
    now: Duration,
    sides: [Side; 2],
    relayed: [VecDeque<Relayed>; 2],
    wire: Option<Wire>,
    is_dead: bool,
    tried: Coverage,
}

/// Runs one seed, and adds to what was tried. Returns what is wrong.
pub fn run(seed: u64, tried: &mut Coverage) -> Option<Violation> {
    let side = || Side {
        peers: Peers::new(Some("4")),
        receipts: Receipts::default(),
        end: None,
        repeats: 0,
        sent: 0,
        expected: 0,
    };
    let mut pair = Pair {
        prng: Prng::new(seed, 11),
        now: Duration::ZERO,
        sides: [side(), side()],
        relayed: Default::default(),
        wire: None,
        is_dead: false,
        tried: Coverage::default(),
    };
    let result = pair.run();
    tried.add(&pair.tried);
    result.err().map(|text| Violation { invariant: "channel", text, hosts: Vec::new() })
}

impl Pair {
    fn run(&mut self) -> Result<(), String> {
        for _ in 0..STEPS {
            self.step()?;
        }
        if self.prng.chance(300) {
            return self.end_with_a_death();
        }
        self.settle()?;
        // After the longest pause, enough messages bring both sides back to a lane.
        for _ in 0..20 {
            self.now += Duration::from_secs(700);
            (0..2).for_each(|side| self.send(side));
            self.settle()?;
        }
        let carries = |side: &Side| side.end.as_ref().is_some_and(|end| end.lane.carries() && end.lane.is_reading());
        if self.sides.iter().all(carries) { Ok(()) } else { Err("the tasks are not on a lane again".to_owned()) }
    }

    fn step(&mut self) -> Result<(), String> {
        let side = self.prng.below(2);
        self.now += Duration::from_micros(self.prng.size(5_000_000) as u64);
        match self.prng.weighted(&[40, 40, 10, 3, 4, 3, 3]) {
            0 => (0..=self.prng.size(6)).for_each(|_| self.send(side)),
            1 => self.poll(side)?,
            2 => self.offer(side),
            3 => self.disturb(),
            4 => self.leave(side),
            5 => self.give_up(side),
            _ => {
                // A stall that is noticed, or the task means to leave.
                self.sides[side].end.iter_mut().for_each(|end| end.lane.handle_break());
                self.fall_back(side);
            }
        }
        Ok(())
    }

    /// Lets all messages come, while nothing fails.
    fn settle(&mut self) -> Result<(), String> {
        for _ in 0..ROUNDS_MAX {
            if let Some(wire) = self.wire.as_mut().filter(|wire| wire.connection == Connection::Stalls) {
                wire.connection = Connection::Carries;
            }
            for side in 0..2 {
                self.offer(side);
                self.poll(side)?;
            }
            let [one, two] = &self.sides;
            let is_done = (one.expected, two.expected) == (two.sent, one.sent);
            let is_quiet = self.relayed.iter().all(VecDeque::is_empty);
            let lanes_rest = self.sides.iter().all(|side| side.end.as_ref().is_none_or(|end| !end.lane.falls_back()));
            if is_done && is_quiet && lanes_rest {
                return Ok(());
            }
        }
        let [one, two] = &self.sides;
        Err(format!("only {} of {} and {} of {} messages came", two.expected, one.sent, one.expected, two.sent))
    }

    /// Lets the second task die. What it has sent still comes, in order, unless the lane has lost it or the task has kept it in
    /// its memory; then the first task finds the end of the lane.
    fn end_with_a_death(&mut self) -> Result<(), String> {
        self.is_dead = true;
        let is_broken = self.wire.as_ref().is_some_and(|wire| wire.connection == Connection::Broken);
        let kept = |end: &End| !end.queue.is_empty() && (end.lane.falls_back() || !end.queue.all_written());
        let reads = |end: &End| !end.lane.is_read_closed() && !end.lane.falls_back();
        let [one, two] = &self.sides;
        let has_all = two
            .end
            .as_ref()
            .is_none_or(|end| end.queue.is_empty() || !kept(end) && !is_broken && one.end.as_ref().is_some_and(reads));
        if let Some(wire) = self.wire.as_mut().filter(|_| !is_broken) {
            wire.connection = Connection::Closed;
        }
        // First all that its daemon relays, then what is on the lane: behind both, there is nothing.
        for _ in 0..ROUNDS_MAX {
            self.offer(0);
            self.poll(0)?;
        }
        let [one, two] = &self.sides;
        if has_all && one.expected != two.sent {
            return Err(format!("only {} of {} messages of the dead task came", one.expected, two.sent));
        }
        match &one.end {
            Some(end) if !end.lane.is_read_closed() => Err("the end of the lane was not found".to_owned()),
            _ => Ok(()),
        }
    }

    // ----- the network

    /// Breaks or stalls the connection, or ends a stall.
    fn disturb(&mut self) {
        let Some(wire) = &mut self.wire else { return };
        wire.connection = match (&wire.connection, self.prng.below(3)) {
            (Connection::Carries, 0) => Connection::Stalls,
            (Connection::Stalls, 0 | 1) => Connection::Carries,
            (Connection::Carries | Connection::Stalls, _) => {
                wire.to.iter_mut().for_each(|frames| frames.truncate(self.prng.below(frames.len() + 1)));
                Connection::Broken
            }
            _ => return,
        };
    }

    /// Hands a side its end of the lane that the daemons have made. The side accepts or refuses it.
    fn offer(&mut self, side: usize) {
        let Some(wire) = &mut self.wire else { return };
        if std::mem::replace(&mut wire.is_offered[side], true) {
            return;
        }
        let (peer, own) = (TIDS[1 - side], &mut self.sides[side]);
        if own.end.is_some() || own.receipts.is_open(peer) {
            wire.connection = Connection::Closed;
            own.peers.handle_break(LaneKind::Direct, peer, self.now);
            return self.forget_wire();
        }
        let mut end = End { lane: Lane::default(), queue: Unacknowledged::default(), reported: 0 };
        if side == 0 {
            end.lane.say_hello();
            wire.to[1].push_back(Frame::Hello);
        }
        own.receipts.open(peer, end.lane.received_counter(), ());
        own.peers.handle_made(peer);
        own.end = Some(end);
    }

    /// Writes a frame to the other side. Returns `None` if the connection has failed, and whether it took the frame.
    fn write(&mut self, side: usize, frame: Frame) -> Option<bool> {
        let wire = self.wire.as_mut()?;
        match wire.connection {
            Connection::Carries | Connection::Stalls => {
                let has_room = wire.to[1 - side].len() < FRAMES_MAX;
                if has_room {
                    wire.to[1 - side].push_back(frame);
                }
                Some(has_room)
            }
            // It is not always noticed at once; what is written then is lost.
            Connection::Broken if self.prng.chance(500) => Some(true),
            Connection::Broken | Connection::Closed => None,
        }
    }

    /// Removes this side's end of the lane.
    fn close(&mut self, side: usize) {
        self.sides[side].end = None;
        if let Some(wire) = &mut self.wire {
            if wire.connection != Connection::Broken {
                wire.connection = Connection::Closed;
            }
            wire.to[side].clear();
        }
        self.forget_wire();
    }

    fn forget_wire(&mut self) {
        let is_over = self.wire.as_ref().is_some_and(|wire| {
            wire.is_offered == [true; 2] && matches!(wire.connection, Connection::Broken | Connection::Closed)
        });
        if is_over && self.sides.iter().all(|side| side.end.is_none()) {
            self.wire = None;
        }
    }

    // ----- a task

    fn send(&mut self, side: usize) {
        let (peer, now) = (TIDS[1 - side], self.now);
        let number = self.sides[side].sent;
        self.sides[side].sent += 1;
        if self.sides[side].end.as_ref().is_some_and(|end| end.lane.carries()) {
            return self.send_on_lane(side, number);
        }
        self.relayed[1 - side].push_back(Relayed::User(number));
        let own = &mut self.sides[side];
        if let Some(end) = &mut own.end {
            return end.lane.count_by_default_route();
        }
        own.peers.count_message(peer, 1 << 20, now);
        // Lanes have no names. A fallback message about an earlier one comes before the pause is over after which the daemons
        // make the next one.
        let is_clear = !self.relayed.iter().flatten().any(|relayed| matches!(relayed, Relayed::Fallback(_)));
        if is_clear && self.wire.is_none() && own.peers.wanted(peer, WISH, now).is_some() {
            own.peers.handle_request(LaneKind::Direct, peer);
            self.wire = Some(Wire { connection: Connection::Carries, to: Default::default(), is_offered: [false; 2] });
        }
    }

    fn send_on_lane(&mut self, side: usize, number: u32) {
        self.flush(side);
        let Some(end) = &self.sides[side].end else { return };
        let received = end.lane.received();
        let may_write = !end.lane.falls_back() && end.queue.all_written();
        let written = may_write && self.write_or_break(side, Frame::Message { number, received });
        let Some(end) = &mut self.sides[side].end else { return };
        end.queue.push(number, written);
        self.fall_back(side);
    }

    /// Writes a frame, or begins the fallback. Returns whether the connection took it.
    fn write_or_break(&mut self, side: usize, frame: Frame) -> bool {
        let written = self.write(side, frame);
        if let (None, Some(end)) = (written, &mut self.sides[side].end) {
            end.lane.handle_break();
        }
        written == Some(true)
    }

    /// Writes queued messages, and an acknowledgement that is due.
    fn flush(&mut self, side: usize) {
        loop {
            let Some(end) = self.sides[side].end.as_mut().filter(|end| !end.lane.falls_back()) else { return };
            let received = end.lane.received();
            let Some(number) = end.queue.next_unwritten().copied() else { break };
            if !self.write_or_break(side, Frame::Message { number, received }) {
                return;
            }
            self.sides[side].end.iter_mut().for_each(|end| end.queue.mark_written());
        }
        let Some(end) = &self.sides[side].end else { return };
        let received = end.lane.received();
        if received.wrapping_sub(end.reported) >= ACKNOWLEDGED_MESSAGES
            && self.write_or_break(side, Frame::Acknowledgement { received })
        {
            self.sides[side].end.iter_mut().for_each(|end| end.reported = received);
        }
    }

    /// Leaves the lane for a multicast.
    fn leave(&mut self, side: usize) {
        let may_leave = |end: &End| end.lane.may_leave(end.queue.is_empty());
        if self.sides[side].end.as_ref().is_some_and(may_leave) && self.write_or_break(side, Frame::Leaving) {
            self.sides[side].end.iter_mut().for_each(|end| end.lane.handle_left());
        }
        self.fall_back(side);
    }

    fn give_up(&mut self, side: usize) {
        let reasons = [GivenUp::Unread, GivenUp::Unheard, GivenUp::Burst, GivenUp::ForFabric, GivenUp::Company];
        let why = *self.prng.pick(&reasons).expect("there are reasons");
        self.sides[side].end.iter_mut().for_each(|end| end.lane.give_up(why));
        self.fall_back(side);
    }

    /// Takes in some of what has come, and does what follows from it.
    fn poll(&mut self, side: usize) -> Result<(), String> {
        for _ in 0..=self.prng.size(6) {
            let Some(relayed) = self.relayed[side].pop_front() else { break };
            self.handle_relayed(side, relayed)?;
        }
        for _ in 0..=self.prng.size(6) {
            if !self.read(side)? {
                break;
            }
        }
        if self.sides[side].end.as_ref().is_some_and(|end| end.lane.may_switch()) {
            self.relayed[1 - side].push_back(Relayed::RouteSwitch);
            self.tried.lanes_used += 1;
            self.sides[side].end.iter_mut().for_each(|end| end.lane.handle_switched(end.queue.sent_count()));
        }
        self.flush(side);
        self.fall_back(side);
        Ok(())
    }

    fn handle_relayed(&mut self, side: usize, relayed: Relayed) -> Result<(), String> {
        let (peer, own) = (TIDS[1 - side], &mut self.sides[side]);
        match relayed {
            Relayed::User(_) if own.repeats > 0 => {
                own.repeats -= 1;
                self.tried.repeats += 1;
                Ok(())
            }
            Relayed::User(number) => self.deliver(side, number),
            Relayed::RouteSwitch => {
                own.end.iter_mut().for_each(|end| end.lane.handle_route_switch());
                Ok(())
            }
            Relayed::Fallback(fallback) => {
                let (repeats, is_known) = own.receipts.handle_fallback(peer, fallback);
                own.repeats = repeats;
                let answers = own.end.as_mut().is_some_and(|end| end.lane.handle_fallback(fallback.is_given_up));
                if !answers && !is_known {
                    self.relayed[1 - side].push_back(Relayed::Fallback(Fallback::ANSWER));
                }
                Ok(())
            }
        }
    }

    fn deliver(&mut self, side: usize, number: u32) -> Result<(), String> {
        let expected = self.sides[side].expected;
        self.sides[side].expected += 1;
        if number == expected { Ok(()) } else { Err(format!("message {number} came in place of {expected}")) }
    }

    /// Reads the next frame. Returns whether there may be more.
    fn read(&mut self, side: usize) -> Result<bool, String> {
        let (Some(end), Some(wire)) = (&mut self.sides[side].end, &mut self.wire) else { return Ok(false) };
        let waits = matches!(wire.to[side].front(), Some(Frame::Message { .. })) && !end.lane.peer_has_switched();
        if wire.connection == Connection::Stalls || end.lane.is_read_closed() || waits {
            return Ok(false);
        }
        let Some(frame) = wire.to[side].pop_front() else {
            return if wire.connection == Connection::Carries { Ok(false) } else { self.read_end(side) };
        };
        match frame {
            Frame::Hello => {
                end.lane.handle_hello();
                if end.lane.say_hello() {
                    self.write_or_break(side, Frame::Hello);
                }
            }
            Frame::Leaving => end.lane.handle_leaving(),
            Frame::Acknowledgement { received } => return self.acknowledge(side, received).map(|()| true),
            Frame::Message { number, received } => {
                self.acknowledge(side, received)?;
                self.sides[side].end.iter().for_each(|end| end.lane.count_received());
                self.deliver(side, number)?;
            }
        }
        Ok(true)
    }

    fn acknowledge(&mut self, side: usize, received: u32) -> Result<(), String> {
        let Some(end) = &mut self.sides[side].end else { return Ok(()) };
        if end.lane.takes_acknowledgements() && end.queue.acknowledge(received).is_none() {
            return Err(format!("a false acknowledgement: {received}"));
        }
        Ok(())
    }

    fn read_end(&mut self, side: usize) -> Result<bool, String> {
        let is_clean = self.wire.as_ref().is_some_and(|wire| wire.connection == Connection::Closed);
        let Some(end) = &mut self.sides[side].end else { return Ok(false) };
        match end.lane.handle_end(is_clean) {
            LaneEnd::PeerGone if !self.is_dead => return Err("a living peer was taken for dead".to_owned()),
            LaneEnd::PeerGone => self.close(side),
            LaneEnd::NeverMade => {
                self.sides[side].receipts.remove(TIDS[1 - side]);
                self.sides[side].peers.handle_break(LaneKind::Direct, TIDS[1 - side], self.now);
                self.close(side);
            }
            LaneEnd::FallsBack => {}
        }
        Ok(false)
    }

    /// Sends on the default route what the fallback needs.
    fn fall_back(&mut self, side: usize) {
        let peer = TIDS[1 - side];
        while let Some(end) = &mut self.sides[side].end {
            match end.lane.next_step(&end.queue) {
                Some(Step::Announce(fallback)) => {
                    let (why, carried) = (end.lane.given_up(), end.lane.carries());
                    end.lane.handle_announced();
                    self.tried.fallbacks += 1;
                    self.relayed[1 - side].push_back(Relayed::Fallback(fallback));
                    self.sides[side].peers.handle_fallback(LaneKind::Direct, peer, why, carried, self.now);
                }
                Some(Step::Repeat) => {
                    self.relayed[1 - side].extend(end.queue.pop_front().map(Relayed::User));
                }
                None => {
                    if end.lane.has_fallen_back() && end.lane.is_read_closed() {
                        self.close(side);
                    }
                    return;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_message_comes_once_and_in_order_whatever_happens_to_the_lanes() {
        let mut tried = Coverage::default();
        for seed in 0..3000 {
            assert_eq!(run(seed, &mut tried), None, "seed {seed}");
        }
        assert!(tried.lanes_used > 10_000 && tried.fallbacks > 10_000 && tried.repeats > 1000, "{tried:?}");
    }
}
