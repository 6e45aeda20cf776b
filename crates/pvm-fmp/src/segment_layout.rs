//! What lies where in a segment: [`Header`], then the first [`PeerRecord`]s, then the heap, which also holds the further
//! records.
use crate::multicasts::Multicasts;
use crate::parker::Parker;
use crate::state_line::StateWords;
use crate::sync::{AtomicU32, AtomicU64};
use crate::traffic::TrafficWords;

/// The first word of a segment: the bytes of "hpvmseg7", which stand for this layout of segments and queues.
pub const MAGIC: u64 = u64::from_be_bytes(*b"hpvmseg7");
/// The largest number of peers that a task can have, or claim to have, at a time.
///
/// * Filled by: each task of the host, in its own segment
/// * Setting: none, a host cannot have more tasks than this
/// * Reached: other tasks ignore the further records, and do not search such a long table after each of its changes
/// * Test: `a_long_table_that_changes_all_the_time_is_not_searched_all_the_time`
pub const PEERS_MAX: usize = 65_536;
/// The number of records of the peer table right behind the header: one page.
pub const FIRST_RECORDS: usize = 32;
/// The number of pieces of the peer table: those first records, a second piece of the same length, and then each piece
/// twice as long as the one before.
const TABLES: usize = (PEERS_MAX / FIRST_RECORDS).ilog2() as usize + 1;
/// The length of the first extent, in bytes. Each peer maps this extent.
pub const FIRST_BYTES: u64 = 64 << 10;
/// The largest number of extents behind the first one. Mostly each is as long as all earlier ones together.
pub const EXTENTS_MAX: usize = 64;
/// Largest length of a segment, in bytes.
pub const SEGMENT_BYTES_MAX: u64 = 64 << 30;
/// The offset at which the heap begins, in bytes.
pub const HEAP_START: u64 = (size_of::<Header>() + FIRST_RECORDS * size_of::<PeerRecord>()) as u64;
/// The size of a page, in bytes.
pub const PAGE_BYTES: u64 = 4096;

/// What the owner publishes to all peers. Words that change lie in other cache lines than words that do not change.
#[repr(C, align(4096))]
pub struct Header {
    pub magic: AtomicU64,
    /// Process id of the owner, for `process_vm_readv`.
    pub pid: AtomicU32,
    _pad: AtomicU32,
    /// A random number, and its address in the owner's memory. The number proves that the process id means the owner:
    /// in another process namespace the same id may mean another process.
    pub nonce: AtomicU64,
    pub nonce_address: AtomicU64,
    /// How many records of the peer table are or were in use.
    pub peers: Apart<AtomicU32>,
    pub table_version: AtomicU32,
    /// Whether the owner sleeps.
    pub parker: Apart<Parker>,
    /// What the owner waits for in a one-call receive (`pvm_precv`).
    pub posted: Apart<PostedWords>,
    /// The multicasts of the owner.
    pub multicasts: Apart<Multicasts>,
    /// Where each extent behind the first one ends; 0 for none yet.
    pub ends: Apart<[AtomicU64; EXTENTS_MAX]>,
    /// The offsets of the pieces of the peer table, except the first one; 0 for none yet.
    pub tables: [AtomicU64; TABLES],
    /// What the owner does.
    pub state: Apart<StateWords>,
    /// How much it has sent and received.
    pub traffic: Apart<TrafficWords>,
}

/// Returns the first record of a piece of the peer table, and how many records the piece has.
pub fn table_piece(piece: usize) -> (usize, usize) {
    match piece {
        0 => (0, FIRST_RECORDS),
        _ => (FIRST_RECORDS << (piece - 1), FIRST_RECORDS << (piece - 1)),
    }
}

/// A value in a cache line of its own.
#[repr(C, align(64))]
pub struct Apart<T>(pub T);

/// [`crate::Posted`] in shared memory. It is only a hint: a torn read costs time, never data.
#[repr(C)]
pub struct PostedWords {
    pub active: AtomicU32,
    pub from: AtomicU32,
    pub mask: [AtomicU32; 6],
    pub value: [AtomicU32; 6],
}

/// The record of a peer: what the owner publishes for that peer, as a sender to it and as a receiver from it.
#[repr(C, align(128))]
pub struct PeerRecord {
    /// The peer's tid; 0 for a free record.
    pub tid: AtomicU32,
    /// The number of slots of the first ring, as an exponent of two.
    pub ring_shift: AtomicU32,
    /// Where the first ring to the peer begins; 0 for none yet.
    pub ring: AtomicU64,
    /// The number of the last rendezvous, times four, and its state ([`crate::rendezvous`]).
    pub rendezvous: AtomicU64,
    /// After a fall-back to eager: the offset of the body, its length, its token.
    pub eager_offset: AtomicU64,
    pub eager_bytes: AtomicU64,
    pub eager_token: AtomicU64,
    /// The offset from which on the sender has claimed the body of the rendezvous; from `back_done` on, it has copied
    /// the body.
    pub back: AtomicU64,
    pub back_done: AtomicU64,
    /// The number of half-slots read from the peer's queue, over all its rings.
    pub consumed: AtomicU64,
    /// The number of the peer's last rendezvous that has been answered, times four, plus one if the owner asked for the
    /// body in the heap instead of copying it.
    pub taken: AtomicU64,
    /// The number of the rendezvous whose sender may write to the receive buffer below; 0 for none.
    pub into_number: AtomicU64,
    pub into_address: AtomicU64,
    pub into_bytes: AtomicU64,
    /// The offset up to which the receiver has claimed the body of the rendezvous.
    pub front: AtomicU64,
    /// A position in a queue, in half-slots; 0 for none. If the owner is a daemon, it wants to be rung when the peer has
    /// read the queue from the daemon up to there. If the owner is a task and the peer its daemon, the task still reads
    /// the payload of the entry that ends there, in the daemon's heap.
    pub mark: AtomicU64,
}

const _: () = assert!(size_of::<Header>() == 4096 && size_of::<PeerRecord>() == 128);
