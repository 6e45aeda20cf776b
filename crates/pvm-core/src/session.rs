//! The session of two daemons on their control link, which outlives its connections.
//!
//! Both daemons count what they have sent and received since the session began; nothing on the wire carries a number. Each
//! keeps its frames until the other side has acknowledged them. A connection begins with one acknowledgement from each side;
//! each then continues at the position that the other has named, so that every frame comes once and in order. The counting
//! itself is that of the data link ([`RetransmitQueue`], [`AckTracker`]).
use crate::flows::{AckTracker, ProtocolViolation, RetransmitQueue};

/// What a frame counts for besides its bytes: roughly the memory that it takes while it is kept.
const FRAME_BYTES: u64 = 32;
/// An acknowledgement is sent by itself when this number of bytes has come. Until then it waits for the next frame to the
/// other side, at the latest the next heartbeat.
const ACKNOWLEDGED_EVERY: u64 = 64 << 10;

/// More waits for the other side than may wait: it does not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backlog;

/// The connection of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Connection {
    /// There is none.
    Broken,
    /// There is one; the acknowledgement with which the other side begins has not come.
    Greeting,
    /// Frames are sent and received.
    Open,
}

/// One side of a session.
pub struct Session {
    connection: Connection,
    sent: RetransmitQueue<Vec<u8>>,
    received: AckTracker,
    kept_bytes_max: u64,
    /// The length of the longest kept frame that alone exceeds the limit. The other side needs time to read it, and is not
    /// given up for what is added meanwhile.
    oversize_bytes: u64,
}

/// Returns for how much a frame counts.
pub fn counted(frame_bytes: usize) -> u64 {
    FRAME_BYTES + frame_bytes as u64
}

impl Session {
    /// Begins a session, without a connection. Another frame is accepted as long as no more bytes than `kept_bytes_max` are
    /// kept.
    pub fn new(kept_bytes_max: usize) -> Session {
        Session {
            connection: Connection::Broken,
            sent: RetransmitQueue::default(),
            received: AckTracker::new(ACKNOWLEDGED_EVERY),
            kept_bytes_max: kept_bytes_max as u64,
            oversize_bytes: 0,
        }
    }

    // ----- connections

    /// Takes a new connection, in the place of the one before. Returns the acknowledgement that must be sent first.
    pub fn connect(&mut self) -> u64 {
        self.connection = Connection::Greeting;
        self.received.take_position()
    }

    /// Notes that the connection has broken.
    pub fn disconnect(&mut self) {
        self.connection = Connection::Broken;
    }

    /// Returns whether the connection carries frames.
    pub fn is_open(&self) -> bool {
        self.connection == Connection::Open
    }

    // ----- sending

    /// Adds a frame, which [`Session::next_frame`] returns when its turn has come.
    pub fn send(&mut self, frame: Vec<u8>) -> Result<(), Backlog> {
        let kept = self.sent.unacknowledged();
        if kept == 0 {
            self.oversize_bytes = 0;
        }
        if kept > self.kept_bytes_max.saturating_add(self.oversize_bytes) {
            return Err(Backlog);
        }
        let bytes = counted(frame.len());
        if bytes > self.kept_bytes_max {
            self.oversize_bytes = self.oversize_bytes.max(bytes);
        }
        self.sent.push(frame, bytes);
        Ok(())
    }

    /// Returns the frame that is to be written next on the connection.
    pub fn next_frame(&self) -> Option<&[u8]> {
        let (frame, _) = self.sent.current().filter(|_| self.is_open())?;
        Some(frame)
    }

    /// Notes that the connection has taken the frame that [`Session::next_frame`] returns.
    pub fn mark_written(&mut self) {
        let bytes = self.sent.current().map_or(0, |(frame, _)| counted(frame.len()));
        self.sent.advance(bytes);
    }

    /// Returns whether the connection has taken all frames.
    pub fn is_all_written(&self) -> bool {
        self.is_open() && self.sent.is_all_sent()
    }

    /// Returns how many bytes are kept for the other side.
    pub fn kept_bytes(&self) -> usize {
        usize::try_from(self.sent.unacknowledged()).unwrap_or(usize::MAX)
    }

    /// Handles an acknowledgement. The first one on a connection tells where to continue.
    pub fn handle_acknowledgement(&mut self, position: u64) -> Result<(), ProtocolViolation> {
        match self.connection {
            Connection::Open => self.sent.acknowledge(position, drop),
            Connection::Greeting => {
                // If both sides have called at once, this may be a connection that the other side has replaced: it has
                // acknowledged more since. What is sent here is then not read.
                self.sent.resume(position.max(self.sent.acknowledged()), drop)?;
                // Only whole frames are acknowledged.
                if self.sent.current().is_some_and(|(_, done)| done > 0) {
                    return Err(ProtocolViolation);
                }
                self.connection = Connection::Open;
                Ok(())
            }
            Connection::Broken => Err(ProtocolViolation),
        }
    }

    // ----- receiving

    /// Counts a frame of the other side, which is to be handled now. The other side sends its acknowledgement first.
    pub fn count_received(&mut self, frame_bytes: usize) -> Result<(), ProtocolViolation> {
        if !self.is_open() {
            return Err(ProtocolViolation);
        }
        self.received.count_received(counted(frame_bytes));
        Ok(())
    }

    /// Returns the acknowledgement that is to be sent now, if there is anything to acknowledge. `with_frames`: frames are
    /// written as well; otherwise it may wait.
    pub fn take_acknowledgement(&mut self, with_frames: bool) -> Option<u64> {
        let is_wanted = if with_frames { self.received.has_unacknowledged() } else { self.received.is_due() };
        (is_wanted && self.is_open()).then(|| self.received.take_position())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prng::Prng;
    use std::collections::VecDeque;

    const LIMIT: usize = 1 << 20;

    /// What one side has put on the connection for the other.
    enum Item {
        Acknowledged(u64),
        Frame(Vec<u8>),
    }

    struct End {
        session: Session,
        /// What is on its way to this side.
        wire: VecDeque<Item>,
        sent: u32,
        came: u32,
    }

    impl End {
        fn new() -> End {
            End { session: Session::new(LIMIT), wire: VecDeque::new(), sent: 0, came: 0 }
        }
        fn write(&mut self, other: &mut VecDeque<Item>) {
            let writes = self.session.next_frame().is_some();
            other.extend(self.session.take_acknowledgement(writes).map(Item::Acknowledged));
            while let Some(frame) = self.session.next_frame().map(<[u8]>::to_vec) {
                self.session.mark_written();
                other.push_back(Item::Frame(frame));
            }
        }
        fn take(&mut self) {
            match self.wire.pop_front() {
                Some(Item::Acknowledged(position)) => assert_eq!(self.session.handle_acknowledgement(position), Ok(())),
                Some(Item::Frame(frame)) => {
                    assert_eq!(self.session.count_received(frame.len()), Ok(()));
                    assert_eq!(frame[..4], self.came.to_le_bytes());
                    self.came += 1;
                }
                None => {}
            }
        }
    }

    fn connect(ends: &mut [End; 2]) {
        ends.iter_mut().for_each(|end| end.wire.clear());
        for at in [0, 1] {
            let position = ends[at].session.connect();
            ends[1 - at].wire.push_back(Item::Acknowledged(position));
        }
    }

    fn connected() -> [End; 2] {
        let mut ends = [End::new(), End::new()];
        connect(&mut ends);
        ends.iter_mut().for_each(End::take);
        ends
    }

    #[test]
    fn each_frame_comes_once_and_in_order_wherever_connections_break() {
        for seed in 1..=60 {
            let (mut prng, mut ends, mut stands) = (Prng(seed), connected(), true);
            let mut nowhere = VecDeque::new();
            for _ in 0..3000 {
                let at = prng.below(2) as usize;
                match prng.below(40) {
                    // What is on its way is lost. A side may notice the break only by the next connection.
                    0 => {
                        stands = false;
                        let noticed = prng.below(3) as usize;
                        ends.iter_mut().for_each(|end| end.wire.clear());
                        ends.get_mut(noticed).into_iter().for_each(|end| end.session.disconnect());
                    }
                    1 => {
                        stands = true;
                        connect(&mut ends);
                    }
                    2..10 => {
                        let mut frame = ends[at].sent.to_le_bytes().to_vec();
                        frame.resize(4 + prng.below(20_000) as usize, 7);
                        if ends[at].session.send(frame) == Ok(()) {
                            ends[at].sent += 1;
                        }
                    }
                    10..20 => {
                        let [one, other] = &mut ends;
                        let (from, to) = if at == 0 { (one, other) } else { (other, one) };
                        from.write(if stands { &mut to.wire } else { &mut nowhere });
                    }
                    _ => ends[at].take(),
                }
            }
            connect(&mut ends);
            for _ in 0..3 {
                let [one, other] = &mut ends;
                while !one.wire.is_empty() || !other.wire.is_empty() {
                    one.take();
                    other.take();
                }
                one.write(&mut other.wire);
                other.write(&mut one.wire);
            }
            let [one, other] = ends.map(|end| (end.sent, end.came, end.session.kept_bytes()));
            assert!(one.0 == other.1 && other.0 == one.1 && one.0 > 100, "seed {seed}: {one:?} {other:?}");
            assert!(
                one.2.max(other.2) < ACKNOWLEDGED_EVERY as usize + 30_000,
                "what is acknowledged is kept no longer"
            );
        }
    }

    #[test]
    fn nothing_is_sent_before_the_other_side_has_said_what_it_has() {
        let mut session = Session::new(LIMIT);
        session.send(vec![1]).unwrap();
        assert_eq!(session.next_frame(), None);
        assert_eq!(session.connect(), 0);
        assert_eq!(session.next_frame(), None);
        assert_eq!(session.count_received(1), Err(ProtocolViolation), "its acknowledgement comes first");
        session.handle_acknowledgement(0).unwrap();
        assert_eq!(session.next_frame(), Some(&[1][..]));
        session.mark_written();
        session.disconnect();
        assert_eq!(session.take_acknowledgement(true), None);
        assert_eq!(session.next_frame(), None);
        session.connect();
        session.handle_acknowledgement(0).unwrap();
        assert_eq!(session.next_frame(), Some(&[1][..]), "once more");
    }

    #[test]
    fn false_acknowledgements_are_violations() {
        let opened = |frames: usize, written: usize| {
            let mut session = Session::new(LIMIT);
            (0..frames).for_each(|_| session.send(vec![1; 8]).unwrap());
            session.connect();
            session.handle_acknowledgement(0).unwrap();
            (0..written).for_each(|_| session.mark_written());
            session
        };
        let one = counted(8);
        assert_eq!(opened(2, 1).handle_acknowledgement(one + 1), Err(ProtocolViolation), "not written yet");
        assert_eq!(opened(2, 1).handle_acknowledgement(one), Ok(()));
        for (position, result) in
            [(0, Ok(())), (one, Ok(())), (one + 1, Err(ProtocolViolation)), (one - 1, Err(ProtocolViolation))]
        {
            let mut session = opened(2, 1);
            session.connect();
            assert_eq!(session.handle_acknowledgement(position), result, "continued at {position}");
            assert_eq!(session.next_frame().is_some(), result.is_ok(), "after a violation nothing is sent");
        }
        let mut session = opened(2, 2);
        session.handle_acknowledgement(one).unwrap();
        session.connect();
        assert_eq!(
            session.handle_acknowledgement(0),
            Ok(()),
            "an old connection, from before the last acknowledgement"
        );
        session.mark_written();
        assert_eq!(session.next_frame(), None, "the first frame is not sent again");
    }

    #[test]
    fn acknowledgements_go_with_frames_or_when_much_has_come() {
        let [mut one, _] = connected();
        assert_eq!(one.session.take_acknowledgement(true), None, "there is nothing to acknowledge");
        one.session.count_received(100).unwrap();
        assert_eq!(one.session.take_acknowledgement(false), None, "it may wait");
        assert_eq!(one.session.take_acknowledgement(true), Some(counted(100)));
        one.session.count_received(ACKNOWLEDGED_EVERY as usize).unwrap();
        assert!(one.session.take_acknowledgement(false).is_some());
        assert_eq!(one.session.take_acknowledgement(true), None);
    }

    #[test]
    fn what_is_kept_is_limited_but_one_frame_may_be_longer() {
        let mut session = Session::new(1000);
        assert_eq!(session.send(vec![0; 5000]), Ok(()));
        while session.send(vec![0; 68]) == Ok(()) {}
        assert_eq!(session.kept_bytes() as u64, counted(5000) + 1000 + counted(68) - 1000 % counted(68));
        session.connect();
        session.handle_acknowledgement(0).unwrap();
        while session.next_frame().is_some() {
            session.mark_written();
        }
        session.handle_acknowledgement(session.kept_bytes() as u64).unwrap();
        (0..11).for_each(|_| session.send(vec![0; 68]).unwrap());
        assert_eq!(session.send(vec![0; 68]), Err(Backlog));
    }
}
