//! The port table (papers F2, H3): one on each host, written by the daemon, read by every task.
//!
//! A task's slot is the low bits of its tid, so its entry is found without a search.
use crate::file::{self, read_only, seal_for_readers};
use crate::segment_layout::Apart;
use crate::sync::{AtomicU32, AtomicU64, Ordering, ReadOnlyLoad};
use crate::{SLOTS, mapping};
use rustix::mm::ProtFlags;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;

/// The first word of the table: the bytes of "hpvmport".
const MAGIC: u64 = u64::from_be_bytes(*b"hpvmport");

#[repr(C)]
struct Table {
    magic: AtomicU64,
    cores: AtomicU32,
    tasks: Apart<Tasks>,
    entries: Apart<[Entry; SLOTS]>,
    /// By slot: the number of the last frame to the task that was a message of the daemon, or introduced a peer; 0 for none. With
    /// [`ONLY`] if it was the only one. They lie apart from the entries, which change with every frame: each send reads one of
    /// them.
    last_messages: Apart<[AtomicU64; SLOTS]>,
    /// What tasks should know about multicasts (`pvm_core::flows::multicast::Advice`). The daemon of an earlier version leaves it at
    /// 0: nothing is known.
    advice: Apart<[AtomicU64; ADVICE_WORDS]>,
}

#[repr(C)]
struct Tasks {
    /// The number of connected tasks on this host, and of those that are awake.
    connected: AtomicU32,
    awake: AtomicU32,
    /// How often the tasks that may send messages have become several, or ceased to be: even while there is one at most, odd
    /// while there are several.
    company: AtomicU32,
}

#[repr(C)]
struct Entry {
    /// The tid of the living task that has this slot; 0 for none.
    tid: AtomicU32,
    /// The number of control frames that the daemon has sent to the task; wraps.
    frames: AtomicU32,
}

/// Marks the number of a frame if the task has been sent no other frame of this kind: it has one peer at most.
pub(crate) const ONLY: u64 = 1 << 32;

/// The number of words about multicasts.
pub const ADVICE_WORDS: usize = 16;

const TABLE_BYTES: usize = size_of::<Table>().next_multiple_of(4096);

struct Mapped(NonNull<Table>);

impl Mapped {
    fn new(table: BorrowedFd<'_>, protection: ProtFlags) -> io::Result<Mapped> {
        Ok(Mapped(mapping::map(table, 0, TABLE_BYTES, protection)?.cast()))
    }
    fn table(&self) -> &Table {
        // SAFETY: the mapping is at least as large as the table (the file's size was set or
        // checked), page-aligned, and the table is made of atomics.
        unsafe { self.0.as_ref() }
    }
    fn entry(&self, tid: u32) -> &Entry {
        &self.table().entries.0[tid as usize % SLOTS]
    }
    fn last_message(&self, tid: u32) -> &AtomicU64 {
        &self.table().last_messages.0[tid as usize % SLOTS]
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: made by `new`; no reference outlives `self`.
        unsafe { mapping::unmap(self.0.cast(), TABLE_BYTES) };
    }
}

/// The daemon's side of the port table.
pub struct PortTable {
    mapped: Mapped,
    readable: OwnedFd,
}

impl PortTable {
    /// Makes the table; `cores` is how many processors tasks may use.
    pub fn new(cores: u32) -> io::Result<PortTable> {
        let file = file::make("hpvm-ports", TABLE_BYTES as u64)?;
        let mapped = Mapped::new(file.as_fd(), ProtFlags::READ | ProtFlags::WRITE)?;
        seal_for_readers(&file)?;
        mapped.table().magic.store(MAGIC, Ordering::Relaxed);
        mapped.table().cores.store(cores, Ordering::Relaxed);
        let readable = read_only(&file)?;
        Ok(PortTable { mapped, readable })
    }
    /// Returns a descriptor that can only be read, for `ToTask::Welcome`.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.readable.as_fd()
    }
    /// Notes that a task lives, whether it has connected already or is about to.
    pub fn set(&self, tid: u32) {
        let entry = self.mapped.entry(tid);
        entry.frames.store(0, Ordering::Relaxed);
        self.mapped.last_message(tid).store(0, Ordering::Relaxed);
        // Pair `task lives`: whoever sees the tid does not see the frame counts of the slot's previous task.
        entry.tid.store(tid, Ordering::Release);
    }
    /// Notes that a task is dead.
    pub fn clear(&self, tid: u32) {
        // Pair `task lives`: whoever sees that the task is dead sees everything that the daemon did before.
        self.mapped.entry(tid).tid.store(0, Ordering::Release);
        // A process that still believes to be that task looks at its socket.
        self.frame_sent(tid);
    }
    /// Returns how many frames were sent to the task; wraps.
    pub fn frames_to(&self, tid: u32) -> u32 {
        self.mapped.entry(tid).frames.load(Ordering::Relaxed)
    }
    /// Counts a frame in the task's control socket. Call it after each write.
    pub fn frame_sent(&self, tid: u32) {
        // Pair `frame sent`: whoever sees the count finds the frame in the socket.
        self.mapped.entry(tid).frames.fetch_add(1, Ordering::Release);
    }
    /// Does what [`PortTable::frame_sent`] does, for a frame that is a message of the daemon. What tasks of this host queue to
    /// the task from now on is received after it.
    pub fn message_sent(&self, tid: u32) {
        self.frame_sent(tid);
        self.message_queued(tid, 0);
    }
    /// Notes that a message of the daemon to the task will be sent when this many further frames have been, and itself.
    pub fn message_queued(&self, tid: u32, frames_to_come: u32) {
        let number = self.mapped.entry(tid).frames.load(Ordering::Relaxed).wrapping_add(frames_to_come);
        let (word, only) = (self.mapped.last_message(tid), u64::from(number) | ONLY);
        let before = word.load(Ordering::Relaxed);
        let is_only = before == 0 || before == only;
        // A receiver that learns the number from a sender's queue waits for the frame itself, whatever it sees here.
        word.store(if is_only { only } else { u64::from(number) }, Ordering::Relaxed);
    }
    /// Tells the tasks of this host about multicasts.
    pub fn set_advice(&self, words: [u64; ADVICE_WORDS]) {
        for (place, word) in words.into_iter().enumerate() {
            // No other word belongs to it: a task that sees an old one takes the way that was best before.
            self.mapped.table().advice.0[place].store(word, Ordering::Relaxed);
        }
    }
    /// Sets the number of connected tasks on this host, and of those that are awake.
    pub fn set_tasks(&self, connected: u32, awake: u32) {
        let tasks = &self.mapped.table().tasks.0;
        tasks.connected.store(connected, Ordering::Relaxed);
        tasks.awake.store(awake, Ordering::Relaxed);
    }
    /// Notes whether several tasks of this host may send messages.
    pub fn set_company(&self, several: bool) {
        let word = &self.mapped.table().tasks.0.company;
        let changes = word.load(Ordering::Relaxed);
        if (changes % 2 == 1) != several {
            // Pair `company`: a task that learns anything from one that has come since sees that it has come.
            word.store(changes.wrapping_add(1), Ordering::Release);
        }
    }
}

/// A task's side of the port table.
pub struct PortView(Mapped);

impl PortView {
    /// Maps the table that arrived with `ToTask::Welcome`.
    pub fn new(table: OwnedFd) -> io::Result<PortView> {
        let wrong = || io::Error::new(io::ErrorKind::InvalidData, "not a port table");
        if !file::keeps_length(table.as_fd()) || rustix::fs::fstat(&table)?.st_size as usize != TABLE_BYTES {
            return Err(wrong());
        }
        let mapped = Mapped::new(table.as_fd(), ProtFlags::READ)?;
        if mapped.table().magic.load_relaxed() != MAGIC {
            return Err(wrong());
        }
        Ok(PortView(mapped))
    }
    /// Returns whether the task lives.
    pub fn alive(&self, tid: u32) -> bool {
        // Pair `task lives`.
        self.0.entry(tid).tid.load_acquire() == tid
    }
    /// Returns how many frames the daemon has sent to that task since its entry was set; wraps.
    pub fn frames(&self, tid: u32) -> u32 {
        // Pair `frame sent`.
        self.0.entry(tid).frames.load_acquire()
    }
    /// Returns where the number of the last frame to that task stands that was a message of the daemon. The number is 0 if
    /// there was none; without a table it stays 0. With [`ONLY`] if it was the only one.
    pub(crate) fn last_message(ports: Option<&PortView>, tid: u32) -> &AtomicU64 {
        static NONE: AtomicU64 = AtomicU64::new(0);
        ports.map_or(&NONE, |ports| ports.0.last_message(tid))
    }
    /// Returns a word of what tasks should know about multicasts.
    pub fn advice(&self, place: usize) -> u64 {
        self.0.table().advice.0[place % ADVICE_WORDS].load_relaxed()
    }
    /// Returns how often the tasks that may send messages have become several, or ceased to be: an odd number if they are.
    #[inline]
    pub fn company(&self) -> u32 {
        // Pair `company`.
        self.0.table().tasks.0.company.load_acquire()
    }
    /// Returns whether the tasks that are awake outnumber cores.
    #[inline]
    pub fn crowded(&self) -> bool {
        let table = self.0.table();
        table.tasks.0.awake.load_relaxed() > table.cores.load_relaxed()
    }
    /// Returns whether all tasks together outnumber cores.
    pub fn may_be_crowded(&self) -> bool {
        let table = self.0.table();
        table.tasks.0.connected.load_relaxed() > table.cores.load_relaxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_view_sees_what_the_daemon_writes() {
        let table = PortTable::new(2).unwrap();
        let view = PortView::new(table.descriptor().try_clone_to_owned().unwrap()).unwrap();
        let last_message = || PortView::last_message(Some(&view), 0x40001).load_relaxed();
        assert!(!view.alive(0x40001));
        table.set(0x40001);
        assert!(view.alive(0x40001) && !view.alive(0x80001) && !view.alive(0x50001));
        table.frame_sent(0x40001);
        assert_eq!((view.frames(0x40001), last_message()), (1, 0));
        table.message_sent(0x40001);
        table.frame_sent(0x40001);
        assert_eq!((view.frames(0x40001), last_message()), (3, 2 | ONLY));
        table.message_queued(0x40001, 5);
        assert_eq!((view.frames(0x40001), last_message()), (3, 8));
        table.message_queued(0x40001, 5);
        assert_eq!(last_message(), 8);
        table.set_tasks(3, 3);
        assert!(view.crowded() && view.may_be_crowded());
        table.set_tasks(3, 2);
        assert!(!view.crowded() && view.may_be_crowded());
        let companies = [false, true, true, false, true].map(|several| {
            table.set_company(several);
            view.company()
        });
        assert_eq!(companies, [0, 1, 1, 2, 3]);
        assert_eq!(view.advice(3), 0);
        table.set_advice([7; ADVICE_WORDS]);
        assert_eq!(view.advice(3), 7);
        table.clear(0x40001);
        assert!(!view.alive(0x40001));
        table.set(0x40001);
        assert_eq!((view.frames(0x40001), last_message()), (0, 0));
        // A frame that is announced first.
        table.message_queued(0x40001, 1);
        assert_eq!(last_message(), 1 | ONLY);
        table.message_sent(0x40001);
        assert_eq!(last_message(), 1 | ONLY);
    }

    #[test]
    fn a_task_cannot_write_the_table() {
        let table = PortTable::new(2).unwrap();
        let file = table.descriptor().try_clone_to_owned().unwrap();
        assert!(Mapped::new(file.as_fd(), ProtFlags::READ | ProtFlags::WRITE).is_err());
        // Even a process that has the right to open the file again for writing cannot write to it.
        let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file));
        let again = std::fs::File::options().read(true).write(true).open(path).unwrap();
        assert!(Mapped::new(again.as_fd(), ProtFlags::READ | ProtFlags::WRITE).is_err());
        assert!(std::os::unix::fs::FileExt::write_at(&again, &[1; 8], 0).is_err());
        table.set(0x40001);
        assert!(PortView::new(file).unwrap().alive(0x40001));
    }

    #[test]
    fn another_file_is_no_port_table() {
        let file = rustix::fs::memfd_create("x", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        assert!(PortView::new(file).is_err());
    }
}
