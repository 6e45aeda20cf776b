//! The peers of a task, and its table of records for them.

use super::{BELLS_MAX, Endpoint};
use crate::doorbell;
use crate::extents::Mapping;
use crate::heap::Block;
use crate::outstanding::Outstanding;
use crate::owner::Owner;
use crate::peer::{Peer, RecordPointer, RendezvousState};
use crate::ports::PortView;
use crate::segment_layout::{FIRST_RECORDS, PEERS_MAX, PeerRecord, table_piece};
use crate::sync::Ordering;
use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;
use std::rc::Rc;

/// Zeroes, as long as the smallest piece of a table. They are written once or several times to clear a new piece.
const ZEROES: [u8; FIRST_RECORDS * size_of::<PeerRecord>()] = [0; FIRST_RECORDS * size_of::<PeerRecord>()];

/// How many times a task waits in vain for a multicast of a peer.
const PATIENCE: u8 = 3;

impl Endpoint {
    /// Adds a peer that the daemon introduced (`ToTask::Peer`). A second introduction is ignored.
    pub fn connect(&mut self, tid: u32, segment: OwnedFd, bell: OwnedFd) -> io::Result<()> {
        self.try_connect(tid, [segment, bell]).map_err(|(error, _)| error)
    }

    /// Does what [`Endpoint::connect`] does; `peer` holds the peer's segment and doorbell. If the call fails, it
    /// returns both, so that the caller can try again after a lack of memory.
    pub fn try_connect(&mut self, tid: u32, peer: [OwnedFd; 2]) -> Result<(), (io::Error, [OwnedFd; 2])> {
        if self.is_connected(tid) {
            return Ok(());
        }
        match self.ready_for(tid, &peer) {
            Ok((mapping, our_record)) => self.add_peer(tid, mapping, our_record, peer),
            Err(error) => return Err((error, peer)),
        }
        Ok(())
    }

    /// Returns a mapping of the peer's segment, and a record of our table for the peer.
    fn ready_for(&mut self, tid: u32, [segment, bell]: &[OwnedFd; 2]) -> io::Result<(Mapping, usize)> {
        let mapping = Mapping::of_peer(segment)?;
        if !doorbell::is_bell(bell.as_fd()) {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "not a doorbell"));
        }
        Ok((mapping, self.take_record(tid).ok_or(io::ErrorKind::OutOfMemory)?))
    }

    fn add_peer(&mut self, tid: u32, mapping: Mapping, our_record: usize, [_, bell]: [OwnedFd; 2]) {
        let our_record = RecordPointer::own(&self.heap, our_record);
        let owner = Owner {
            mapping,
            released: RefCell::default(),
            released_bytes: Cell::new(0),
            timed: Cell::new(None),
            kept: Cell::default(),
            dirty: self.dirty.clone(),
        };
        let keep_bell = self.bells < BELLS_MAX || crate::is_daemon(tid);
        self.bells += usize::from(keep_bell);
        let peer = Box::new(Peer {
            tid,
            owner: Rc::new(owner),
            bell: keep_bell.then_some(bell.into()),
            rung: Cell::new(0),
            our_record,
            their_record: None,
            searched: None,
            saved_records: 0,
            last_message: NonNull::from(PortView::last_message(self.ports.as_ref(), tid)),
            after_frame: 0,
            out: None,
            inbound: None,
            patience: PATIENCE,
            listed: 0,
            damaged: false,
            outstanding: Outstanding::default(),
            rendezvous: RendezvousState::default(),
            clock: self.clock.clone(),
            pair: Box::default(),
        });
        let index = match self.peers.iter().position(Option::is_none) {
            Some(index) => index,
            None => {
                self.peers.push(None);
                self.peers.len() - 1
            }
        };
        self.peers[index] = Some(peer);
        let slot = slot_of(tid);
        if self.by_slot.len() <= slot {
            self.by_slot.resize(slot + 1, 0);
        }
        self.by_slot[slot] = index as u32 + 1;
        self.order.insert(0, index);
    }

    /// Takes a record of our table for the peer.
    fn take_record(&mut self, tid: u32) -> Option<usize> {
        let index = match self.free_records.pop() {
            Some(index) => index,
            None => {
                self.make_records(self.used_records + 1)?;
                self.used_records += 1;
                self.used_records - 1
            }
        };
        let heap = self.heap.borrow();
        let mapping = &heap.source().mapping;
        let (header, record) = (mapping.header(), mapping.peer_record(index)?);
        for word in [&record.ring, &record.rendezvous, &record.consumed, &record.taken, &record.mark] {
            word.store(0, Ordering::Relaxed);
        }
        // Pair `record taken`: whoever finds the record finds it clean.
        record.tid.store(tid, Ordering::Release);
        // Pair `table changed`: whoever sees the new version sees the length and the record.
        header.peers.0.store(self.used_records as u32, Ordering::Relaxed);
        header.table_version.fetch_add(1, Ordering::Release);
        Some(index)
    }

    /// Makes our table at least `count` records long. All pieces of the table except the first lie in the heap, and
    /// stay there.
    pub(super) fn make_records(&mut self, count: usize) -> Option<()> {
        let piece = (0..).find(|piece| table_piece(*piece).0 + table_piece(*piece).1 >= count)?;
        if count > PEERS_MAX {
            return None;
        }
        for piece in self.tables.len() + 1..=piece {
            let bytes = table_piece(piece).1 * size_of::<PeerRecord>();
            let block = Block::allocate(&self.heap, bytes).ok()?;
            for at in (0..bytes).step_by(ZEROES.len()) {
                block.write(at, &ZEROES);
            }
            // Pair `table piece made`: whoever sees the offset of the piece sees clean records.
            self.heap.borrow().source().mapping.header().tables[piece].store(block.offset(), Ordering::Release);
            self.tables.push(block);
        }
        Some(())
    }

    /// Returns whether this task knows the peer of that tid, and so can send to it.
    #[inline]
    pub fn is_connected(&self, tid: u32) -> bool {
        self.index_of(tid).is_some()
    }

    #[inline(always)]
    pub(super) fn index_of(&self, tid: u32) -> Option<usize> {
        let index = (*self.by_slot.get(slot_of(tid))?).checked_sub(1)? as usize;
        (self.peers[index].as_ref()?.tid == tid).then_some(index)
    }

    /// Removes a dead peer (`ToTask::PeerGone`); call after [`Endpoint::poll_dead`]. Bodies that the peer has sent stay
    /// readable while this task holds them.
    pub fn peer_gone(&mut self, tid: u32) {
        let Some(index) = self.index_of(tid) else { return };
        let peer = self.peers[index].take().expect("found just now");
        self.by_slot[slot_of(tid)] = 0;
        self.order.retain(|other| *other != index);
        self.bells -= usize::from(peer.bell.is_some());
        // This store orders nothing: the record is cleaned when it is taken again.
        peer.our_record.get().tid.store(0, Ordering::Relaxed);
        self.free_records.push(peer.our_record.index);
    }
}

fn slot_of(tid: u32) -> usize {
    tid as usize % crate::SLOTS
}
