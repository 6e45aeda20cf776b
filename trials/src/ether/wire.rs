//! What a hub and a switch have in common: the speed of the wire, frames, queues and counters.

use anyhow::{Result, bail};
use std::collections::VecDeque;
use std::fmt;
use std::rc::Rc;

/// A simulated time in nanoseconds since the start of the model. A bit takes a whole number of nanoseconds at every
/// rate.
pub type Time = u64;

/// A second in simulated time.
pub const SECOND: Time = 1_000_000_000;
/// Preamble and start delimiter in front of each frame.
pub const PREAMBLE_BITS: u64 = 64;
/// The least pause between two frames.
pub const GAP_BITS: u64 = 96;
/// The shortest frame, checksum included; shorter ones are padded.
pub const FRAME_BYTES_MIN: usize = 64;
/// The checksum at the end of a frame, which a TAP device neither passes nor expects.
pub const CHECKSUM_BYTES: usize = 4;
/// The destination, the source and the type at the start of a frame.
pub const HEADER_BYTES: usize = 14;

/// The speed of the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rate {
    /// 10 Mbit/s.
    Ten,
    /// 100 Mbit/s.
    Hundred,
    /// 1 Gbit/s.
    Gigabit,
}

impl Rate {
    /// Returns the rate with this number of Mbit/s.
    pub fn of_megabits(megabits: u64) -> Result<Rate> {
        match megabits {
            10 => Ok(Rate::Ten),
            100 => Ok(Rate::Hundred),
            1000 => Ok(Rate::Gigabit),
            other => bail!("{other} Mbit/s: the rates are 10, 100 and 1000 Mbit/s"),
        }
    }

    /// Returns the rate in Mbit/s.
    pub fn megabits(self) -> u64 {
        1000 / self.bit()
    }

    /// Returns the time that one bit takes.
    pub fn bit(self) -> Time {
        match self {
            Rate::Ten => 100,
            Rate::Hundred => 10,
            Rate::Gigabit => 1,
        }
    }

    /// Returns the time that a number of bits takes.
    pub fn bits(self, count: u64) -> Time {
        count * self.bit()
    }

    /// Returns the time that a number of bytes takes.
    pub fn bytes(self, count: usize) -> Time {
        self.bits(8 * count as u64)
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} Mbit/s", self.megabits())
    }
}

/// A frame as a host sends and receives it: header and data, without preamble, padding and checksum.
#[derive(Debug, Clone)]
pub struct Frame {
    /// The host that receives the frame; `None` if all others do.
    pub to: Option<usize>,
    /// The content. Copies of a frame share it.
    pub bytes: Rc<[u8]>,
}

impl Frame {
    /// Returns the length of the frame on the wire in bytes, without the preamble. The frame takes the same number of
    /// bytes in a queue.
    pub fn stored_bytes(&self) -> usize {
        (self.bytes.len() + CHECKSUM_BYTES).max(FRAME_BYTES_MIN)
    }
}

/// A frame that has arrived at a host.
#[derive(Debug)]
pub struct Delivery {
    /// When the last bit arrived.
    pub at: Time,
    /// The number of the host.
    pub to: usize,
    /// The frame.
    pub frame: Frame,
}

/// A queue that drops new frames when it is full. The frame on the wire stays in the queue until its last bit is sent.
#[derive(Debug)]
pub struct Queue {
    frames: VecDeque<Frame>,
    bytes: usize,
    bytes_max: usize,
    longest_bytes: usize,
    dropped: u64,
}

impl Queue {
    /// Makes an empty queue for at most this number of bytes.
    pub fn new(bytes_max: usize) -> Queue {
        Queue { frames: VecDeque::new(), bytes: 0, bytes_max, longest_bytes: 0, dropped: 0 }
    }

    /// Appends a frame, or drops it if it does not fit.
    pub fn push(&mut self, frame: Frame) {
        let bytes = frame.stored_bytes();
        if self.bytes + bytes > self.bytes_max {
            self.dropped += 1;
            return;
        }
        self.bytes += bytes;
        self.longest_bytes = self.longest_bytes.max(self.bytes);
        self.frames.push_back(frame);
    }

    /// Returns the first frame, which stays in the queue.
    pub fn first(&self) -> Option<&Frame> {
        self.frames.front()
    }

    /// Removes the first frame.
    pub fn pop(&mut self) -> Option<Frame> {
        let frame = self.frames.pop_front()?;
        self.bytes -= frame.stored_bytes();
        Some(frame)
    }

    /// Returns the number of frames that did not fit.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Returns the most bytes that have been in the queue at once.
    pub fn longest_bytes(&self) -> usize {
        self.longest_bytes
    }
}

/// What has happened at one host and its port since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PortCounters {
    /// Frames that the host has sent completely.
    pub sent: u64,
    /// Frames that the host has received.
    pub received: u64,
    /// Bytes of the received frames, checksum and padding included.
    pub received_bytes: u64,
    /// Attempts to send that ended in a collision.
    pub collisions: u64,
    /// Frames that were dropped after [`crate::ether::hub::ATTEMPTS_MAX`] attempts.
    pub given_up: u64,
    /// Frames that did not fit into the queue of the host.
    pub host_dropped: u64,
    /// The most bytes in the queue of the host.
    pub host_queue_bytes: usize,
    /// Frames to the host that did not fit into the buffer of its port in the switch.
    pub port_dropped: u64,
    /// The most bytes in that buffer.
    pub port_queue_bytes: usize,
}

/// The counters of all ports, and how well a run with devices kept up with the model.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counters {
    /// Those of each port, by the number of its host.
    pub ports: Vec<PortCounters>,
    /// The largest delay of a frame: how much later it reached a device than the model says; zero in a run without
    /// devices.
    pub latest: Time,
    /// The sum of the delays of all frames.
    pub late: Time,
    /// Frames that a device did not accept.
    pub refused: u64,
}

impl Counters {
    /// Returns the sum of one counter over all ports.
    pub fn sum(&self, counter: fn(&PortCounters) -> u64) -> u64 {
        self.ports.iter().map(counter).sum()
    }

    /// Returns all collisions.
    pub fn collisions(&self) -> u64 {
        self.sum(|port| port.collisions)
    }

    /// Returns all frames that were lost on the way.
    pub fn dropped(&self) -> u64 {
        self.sum(|port| port.given_up + port.host_dropped + port.port_dropped) + self.refused
    }
}

impl fmt::Display for Counters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:>6} {:>9} {:>9} {:>12} {:>10} {:>8} {:>12} {:>10} {:>12} {:>10}",
            "port",
            "sent",
            "received",
            "bytes",
            "collisions",
            "given up",
            "host dropped",
            "host queue",
            "port dropped",
            "port queue"
        )?;
        for (number, port) in self.ports.iter().enumerate() {
            writeln!(
                f,
                "{:>6} {:>9} {:>9} {:>12} {:>10} {:>8} {:>12} {:>10} {:>12} {:>10}",
                number + 1,
                port.sent,
                port.received,
                port.received_bytes,
                port.collisions,
                port.given_up,
                port.host_dropped,
                port.host_queue_bytes,
                port.port_dropped,
                port.port_queue_bytes
            )?;
        }
        let mean = self.late as f64 / 1e6 / self.sum(|port| port.received).max(1) as f64;
        let latest = self.latest as f64 / 1e6;
        write!(f, "frames not accepted by a device: {}; late by {mean:.3} ms, at most {latest:.3} ms", self.refused)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(length: usize) -> Frame {
        Frame { to: None, bytes: vec![0; length].into() }
    }

    #[test]
    fn a_short_frame_is_padded_and_a_long_one_gets_a_checksum() {
        assert_eq!(frame(42).stored_bytes(), 64);
        assert_eq!(frame(1514).stored_bytes(), 1518);
    }

    #[test]
    fn a_queue_drops_exactly_what_does_not_fit() {
        let mut queue = Queue::new(4000);
        for length in [1514, 1514, 1000, 500] {
            queue.push(frame(length));
        }
        assert_eq!((queue.dropped(), queue.longest_bytes()), (1, 1518 + 1518 + 504));
        queue.pop();
        queue.pop();
        queue.pop();
        assert!(queue.first().is_none() && queue.dropped() == 1);
    }

    #[test]
    fn a_rate_is_what_its_name_says() {
        for megabits in [10, 100, 1000] {
            let rate = Rate::of_megabits(megabits).unwrap();
            assert_eq!((rate.megabits(), rate.bits(megabits * 1_000_000)), (megabits, SECOND));
        }
        assert!(Rate::of_megabits(11).is_err());
    }
}
