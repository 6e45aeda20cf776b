//! The fallback message, and what a task knows of lanes that may be gone when it comes.
use crate::encoding::{Reader, Writer};
use crate::tid::Tid;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;

/// What a fallback message says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fallback {
    /// How many messages the other side has acknowledged.
    pub acknowledged: u32,
    /// Whether the message answers another one: then its sender has no lane, and has sent nothing on one.
    pub answers: bool,
    /// Whether the sender has given up a lane that has not broken, so that a new one is no use at once.
    pub is_given_up: bool,
}

impl Fallback {
    /// The answer of a side that has no lane.
    pub const ANSWER: Fallback = Fallback { acknowledged: 0, answers: true, is_given_up: false };

    /// Returns the body of the message.
    pub fn encode(self) -> Vec<u8> {
        let words = [self.acknowledged as i32, i32::from(self.answers), i32::from(self.is_given_up)];
        words.into_iter().fold(Writer::new(), Writer::int).finish()
    }

    /// Reads the body of a message. Returns `None` if it is too short.
    pub fn decode(reader: &mut Reader<'_>) -> Option<Fallback> {
        let (acknowledged, answers) = (reader.int()? as u32, reader.int()? != 0);
        Some(Fallback { acknowledged, answers, is_given_up: reader.int().is_some_and(|word| word != 0) })
    }
}

/// What a task has received on a lane, kept until the peer's fallback message comes. `H`: what has come on it and was not
/// taken over.
#[derive(Debug)]
pub struct Receipt<H> {
    /// How many messages were received on the lane.
    pub count: Rc<Cell<u32>>,
    /// Whether the peer has exited.
    pub has_ended: bool,
    /// What has come and is counted already.
    pub held: H,
}

/// The receipts of all peers whose fallback may still come.
#[derive(Debug)]
pub struct Receipts<H>(BTreeMap<Tid, Receipt<H>>);

impl<H> Default for Receipts<H> {
    fn default() -> Receipts<H> {
        Receipts(BTreeMap::new())
    }
}

impl<H> Receipts<H> {
    /// Begins the receipt of a new lane, whose messages this counts.
    pub fn open(&mut self, peer: Tid, count: Rc<Cell<u32>>, held: H) {
        self.0.insert(peer, Receipt { count, has_ended: false, held });
    }

    /// Returns whether a peer may still have a lane to this task, even if this task has none any more.
    pub fn is_open(&self, peer: Tid) -> bool {
        self.0.get(&peer).is_some_and(|receipt| !receipt.has_ended)
    }

    /// Returns the receipt of a peer.
    pub fn get_mut(&mut self, peer: Tid) -> Option<&mut Receipt<H>> {
        self.0.get_mut(&peer)
    }

    /// Forgets the receipt of a peer from which nothing more comes.
    pub fn remove(&mut self, peer: Tid) {
        self.0.remove(&peer);
    }

    /// Handles the fallback message of a peer. Returns how many of the messages that follow are repeats, which have come on the
    /// lane, and whether the peer needs no answer, because this side has or had the lane.
    pub fn handle_fallback(&mut self, peer: Tid, fallback: Fallback) -> (u32, bool) {
        let receipt = self.0.remove(&peer);
        let is_known = receipt.is_some() || fallback.answers;
        // The sender of an answer has sent no messages on a lane.
        let repeats = receipt
            .filter(|_| !fallback.answers)
            .map_or(0, |receipt| receipt.count.get().wrapping_sub(fallback.acknowledged));
        // A peer that claims more acknowledged messages than this task has received breaks the rules.
        (if repeats > i32::MAX as u32 { 0 } else { repeats }, is_known)
    }
}
