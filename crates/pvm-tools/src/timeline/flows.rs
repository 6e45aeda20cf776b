//! Matches receives with sends. Messages with equal sender, receiver, context and tag arrive in the order in which they
//! were sent, so the oldest send belongs to the oldest receive. The reports of the two tasks may arrive in any order.
use pvm_core::tid::Tid;
use std::collections::{HashMap, VecDeque};

/// A time in microseconds.
pub type Point = i64;

/// The values by which a receive is matched with its send.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Message {
    pub src: Tid,
    pub dst: Tid,
    pub ctx: i32,
    pub tag: i32,
}

/// The times of sends whose receives are not known yet, or of receives whose sends are not known yet; one of the lists
/// is always empty.
#[derive(Default)]
struct Loose {
    sends: VecDeque<Point>,
    receives: VecDeque<Point>,
}

/// The messages that only one side has reported.
#[derive(Default)]
pub struct Flows {
    loose: HashMap<Message, Loose>,
    last: u64,
}

impl Flows {
    /// Notes that a message was sent. Returns when it was received, if that is known.
    pub fn sent(&mut self, message: Message, at: Point) -> Option<Point> {
        let loose = self.loose.entry(message).or_default();
        let received = loose.receives.pop_front();
        if received.is_none() {
            loose.sends.push_back(at);
        }
        received
    }

    /// Notes that a message was received. Returns when it was sent, if that is known.
    pub fn received(&mut self, message: Message, at: Point) -> Option<Point> {
        let loose = self.loose.entry(message).or_default();
        let sent = loose.sends.pop_front();
        if sent.is_none() {
            loose.receives.push_back(at);
        }
        sent
    }

    /// Returns the number of the next arrow.
    pub fn next_number(&mut self) -> u64 {
        self.last += 1;
        self.last
    }
}
