//! Streamed sends: bodies that are longer than a cell of pair memory ([`crate::stream`]).
use super::in_progress::receive_in_transit;
use super::wake::{Ringer, ring};
use super::words::{bytes_of, words_of};
use super::{Endpoint, LINGER, Step};
use crate::arrival::{Arrival, BodyInTransit, Outcome, Sink, Transit};
use crate::copy::CopyMode;
use crate::pair_memory::{CELL_BYTES_MAX, PairMemory};
use crate::queue::{Entry, Kind};
use crate::stream::{Spill, Stream};
use crate::streamed_body::StreamedBody;
use crate::{BODY_BYTES_MAX, Meta, NoMemory, SendError, Sent};
use std::cell::Cell;
use std::time::{Duration, Instant};

/// The length of the pieces in which a body is written, in bytes.
const PIECE_BYTES: usize = 32 << 10;
/// The longest time for which a receiver may read nothing, however long the body is: a few time slices of the kernel.
const LINGER_MAX: Duration = Duration::from_millis(10);
/// How often the sender looks for room between two looks at the clock.
const LOOKS: u32 = 64;

impl Endpoint {
    /// Sends a body that is longer than [`CELL_BYTES_MAX`] through a cell as through a ring, if this task holds a cell.
    #[cold]
    pub(super) fn send_streamed(
        &mut self,
        index: usize,
        meta: &Meta,
        body: &[u8],
        ringer: &mut Ringer<'_>,
    ) -> Option<Result<Sent, SendError>> {
        let by_rendezvous = self.rendezvous_is_set && body.len() >= self.rendezvous_bytes_min;
        // While tasks outnumber the cores, the receiver would often not be there to make room.
        if by_rendezvous || self.crowded() {
            return None;
        }
        let peer = self.peers[index].as_mut().filter(|peer| !crate::is_daemon(peer.tid))?;
        let (memory, cell) = peer.pair.take_for_stream()?;
        let (to, stream) = (peer.tid, memory.stream(cell));
        stream.begin();
        let (way, order) = peer.pair.order(&memory, body.len());
        self.open_stream = Some((memory.clone(), cell));
        let words = [u64::from(memory.generation) << 32 | u64::from(cell), body.len() as u64, order];
        let first = self.queue(to, Kind::Streamed, meta, &bytes_of::<3, 24>(words));
        match (&first, ringer) {
            (Err(_), _) => {
                self.open_stream = None;
                memory.keep(cell);
                return Some(first);
            }
            // The receiver can make room only if it is woken now.
            (Ok(Sent::RingByDaemon), Some(ring_by_daemon)) => ring_by_daemon(),
            _ => {}
        }
        let written = self.write_stream(index, &memory, cell, body, way.copy_in);
        if let Err(NoMemory) = written {
            self.withdraw_open_stream();
            return Some(Err(SendError::NoMemory));
        }
        self.open_stream = None;
        let peer = self.peers[index].as_ref().expect("connected");
        // The peer may have gone to sleep because the body was incomplete.
        Some(if ring(peer, self.barriers) == Sent::RingByDaemon { Ok(Sent::RingByDaemon) } else { first })
    }

    /// Tells the receiver of a streamed body that the rest will never come: there is no memory for it, or the program has
    /// left the call by `longjmp`, since its own memory has faulted.
    pub fn withdraw_open_stream(&mut self) {
        if let Some((memory, cell)) = self.open_stream.take() {
            memory.stream(cell).withdraw();
        }
    }

    /// Writes a body to a cell, round after round, as long as the receiver makes room, and the rest to the heap. If
    /// there is no memory for the rest, a receiver that has begun to read gets more time.
    fn write_stream(
        &mut self,
        index: usize,
        memory: &PairMemory,
        cell: u32,
        body: &[u8],
        mode: CopyMode,
    ) -> Result<(), NoMemory> {
        let (mut done, mut read, mut start) = (0, 0, None);
        loop {
            fill(memory, cell, body, mode, &mut done, &mut read);
            let peer = self.peers[index].as_mut().expect("connected");
            peer.pair.note_stream(read > 0);
            let to = peer.tid;
            if done == body.len() || self.spill(index, &memory.stream(cell), body, done).is_ok() {
                return Ok(());
            }
            if self.ports.as_ref().is_some_and(|ports| !ports.alive(to)) {
                // As with a rendezvous: what is sent to the dead is lost.
                return Ok(());
            }
            let waits = *start.get_or_insert_with(Instant::now);
            if read == 0 || waits.elapsed() > self.rendezvous_wait_max {
                return Err(NoMemory);
            }
            std::thread::sleep(Duration::from_micros(100));
        }
    }

    /// Writes the rest of a body, from byte `done` on, to the heap.
    #[cold]
    fn spill(&mut self, index: usize, stream: &Stream<'_>, body: &[u8], done: usize) -> Result<(), NoMemory> {
        let rest = &body[done..];
        let block = self.allocate(rest.len())?;
        let peer = self.peers[index].as_mut().expect("connected");
        let token = peer.outstanding.add([block.clone()]);
        stream.spill(Spill { start: done as u64, offset: block.offset(), token });
        peer.pair.copies_in.write(&block, 0, rest, PIECE_BYTES, |written| stream.advance(done + written));
        self.uncollected += rest.len();
        Ok(())
    }

    /// Receives a message whose body goes through a cell.
    pub(super) fn receive_streamed(&mut self, index: usize, entry: &Entry<'_>, sink: &mut impl Sink) -> Step {
        let [first, bytes, order] = words_of(entry);
        let (generation, cell) = ((first >> 32) as u32, first as u32);
        let peer = self.peers[index].as_mut().expect("connected");
        let Some(memory) = peer.pair.of(generation) else { return Step::Damaged };
        // The peer cannot pass what we hold.
        if !memory.may_arrive(cell) || memory.capacity() < CELL_BYTES_MAX || bytes > BODY_BYTES_MAX as u64 {
            return Step::Damaged;
        }
        peer.pair.note_order(&memory, bytes as usize, order);
        let (from, owner, bytes, ports) = (peer.tid, peer.owner.clone(), bytes as usize, &self.ports);
        let Some(inbound) = peer.inbound.as_mut() else { return Step::Damaged };
        let sender_lives = || ports.as_ref().is_some_and(|ports| ports.alive(from));
        let saved = &peer.pair.saved;
        let streamed =
            StreamedBody { owner: &owner, memory: &memory, cell, order, bytes, saved, sender_lives: &sender_lives };
        if let Some(remote) = streamed.complete() {
            sink.arrived(from, entry.meta(), Arrival::Remote(remote));
            return Step::Message;
        }
        let there = memory.stream(cell).available() as usize;
        let (outcome, transit) = (Cell::new(Outcome::Later), Transit::Streamed(streamed));
        let body = BodyInTransit { owner: &owner, bytes, sender_lives: &sender_lives, outcome: &outcome, transit };
        receive_in_transit(inbound, from, there, body, entry, sink)
    }
}

/// Writes a body to a cell from byte `done` on, round after round, until the receiver no longer makes room. `read` is how
/// many bytes the receiver had read when this task looked last.
fn fill(memory: &PairMemory, cell: u32, body: &[u8], mode: CopyMode, done: &mut usize, read: &mut usize) {
    let (stream, began) = (memory.stream(cell), Instant::now());
    while *done < body.len() {
        let end = (*done + PIECE_BYTES).min(body.len());
        if !stream.has_room(*done, end, read) {
            let patience = patience(began.elapsed(), *done, body.len() - *done);
            if !wait_for_room(&stream, *done, end, patience, read) {
                return;
            }
        }
        memory.write(cell, *done % stream.capacity, &body[*done..end], mode);
        *done = end;
        stream.advance(end);
    }
}

/// Returns how long a receiver may read nothing, after `done` bytes were written in `elapsed`, while `rest` bytes are left. To
/// write the rest to new memory takes at least as long as to write it to the cell. So the sender waits for half of that time:
/// a receiver that was interrupted, or has to wake up, is then cheaper than the heap.
fn patience(elapsed: Duration, done: usize, rest: usize) -> Duration {
    LINGER.max(elapsed.mul_f64(rest as f64 / done.max(1) as f64 / 2.0).min(LINGER_MAX))
}

/// Waits for room for bytes `done..end` until the receiver has read nothing for `patience`. Returns whether there is room.
#[cold]
fn wait_for_room(stream: &Stream<'_>, done: usize, end: usize, patience: Duration, read: &mut usize) -> bool {
    let (mut before, mut since, mut looks) = (*read, Instant::now(), 0);
    loop {
        if stream.has_room(done, end, read) {
            return true;
        }
        looks += 1;
        if looks % LOOKS == 0 {
            if *read > before {
                (before, since) = (*read, Instant::now());
            } else if since.elapsed() > patience {
                return false;
            }
        }
        std::hint::spin_loop();
    }
}

#[cfg(test)]
mod patience_tests {
    use super::*;

    #[test]
    fn the_sender_waits_for_half_of_the_time_that_the_rest_takes_within_limits() {
        let us = Duration::from_micros;
        assert_eq!(patience(us(100), 2 << 20, 1 << 20), LINGER, "a short rest");
        assert_eq!(patience(us(100), 2 << 20, 62 << 20), us(1550));
        assert_eq!(patience(us(100), 2 << 20, 1 << 40), LINGER_MAX);
        assert_eq!(patience(us(0), 0, 1), LINGER);
    }
}
