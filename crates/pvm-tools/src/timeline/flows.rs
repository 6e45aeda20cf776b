//! Which receive belongs to which send: messages of one sender, receiver, context and tag come in
//! the order in which they were sent, so the oldest of each belong together. What the two tasks tell
//! of it can come in any order.
use pvm_core::tid::Tid;
use std::collections::{HashMap, VecDeque};

/// A time in microseconds.
pub type Point = i64;

/// What a message can be told by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Message {
    pub src: Tid,
    pub dst: Tid,
    pub ctx: i32,
    pub tag: i32,
}

/// Ends of arrows whose other ends are not known yet: sends, or receives, never both.
#[derive(Default)]
struct Loose {
    sends: VecDeque<Point>,
    receives: VecDeque<Point>,
}

/// The messages under way.
#[derive(Default)]
pub struct Flows {
    loose: HashMap<Message, Loose>,
    last: u64,
}

impl Flows {
    /// A message was sent; when it was received, if that is known.
    pub fn sent(&mut self, message: Message, at: Point) -> Option<Point> {
        let loose = self.loose.entry(message).or_default();
        let received = loose.receives.pop_front();
        if received.is_none() {
            loose.sends.push_back(at);
        }
        received
    }

    /// A message was received; when it was sent, if that is known.
    pub fn received(&mut self, message: Message, at: Point) -> Option<Point> {
        let loose = self.loose.entry(message).or_default();
        let sent = loose.sends.pop_front();
        if sent.is_none() {
            loose.receives.push_back(at);
        }
        sent
    }

    /// A number for the next arrow.
    pub fn next_number(&mut self) -> u64 {
        self.last += 1;
        self.last
    }
}
