//! The table of messages and the active buffers (contract 2.1). A mid is the number of a message or buffer. Nothing
//! here needs a daemon.
use crate::envelope::Envelope;
use crate::message::queue::Queue;
use crate::message::{Large, Message, SlotState};
use crate::types::Filter;
use pvm_core::codes::Code;
use pvm_fmp::{BodyInTransit, NotTaken};

/// Free slots beyond this number keep no memory for a body.
const KEPT_BODIES_MAX: usize = 1024;
/// A table with more slots than this shrinks when most of it is free.
const TABLE_KEPT_MAX: usize = 4096;

/// The most spare memory, in bytes, that a task keeps for the next long body.
const SPARE_BYTES_MAX: usize = 16 << 20;
/// More than this is an excess: it is freed once nothing has arrived for a while.
const SPARE_IDLE_BYTES_MAX: usize = 2 << 20;
/// After more bodies than this that were too short for the spare memory, the memory of such a body takes its place.
const SPARE_MISFITS_MAX: u32 = 4;
/// If the task has gone to sleep more often than this since spare memory was last used, spare memory that is no excess is
/// freed.
const SPARE_SLEEPS_MAX: u32 = 2;

/// All messages of the task, by mid.
pub(crate) struct Store {
    /// The message of mid m is in slot m - 1.
    pub table: Vec<Message>,
    /// Free slots. The last one in the list is used first.
    free: Vec<u32>,
    pub queue: Queue,
    /// Spare memory: the memory of a freed long body, kept for the next one. New memory would be mapped page by page.
    spare: Vec<u8>,
    /// Whether freed memory is kept as spare memory. True once a long body has been copied to private memory, for
    /// example a body from another host.
    keeps_spare: bool,
    /// How often the task has gone to sleep since spare memory was last used.
    sleeps: u32,
    /// How many bodies were freed since then that are too short for the spare memory.
    misfits: u32,
    /// The active send buffer, 0 for none.
    pub send: i32,
    /// The active receive buffer, 0 for none.
    pub receive: i32,
}

impl Store {
    pub fn new() -> Store {
        Store {
            table: Vec::new(),
            free: Vec::new(),
            queue: Queue::new(),
            spare: Vec::new(),
            keeps_spare: false,
            sleeps: 0,
            misfits: 0,
            send: 0,
            receive: 0,
        }
    }

    /// Returns an empty buffer for a body of `bytes` bytes. Uses the spare memory, unless more than half of it would
    /// stay unused.
    pub fn take_spare(&mut self, bytes: usize) -> Vec<u8> {
        self.keeps_spare = true;
        self.sleeps = 0;
        if self.spare.capacity() > 2 * bytes {
            return Vec::new();
        }
        let mut spare = std::mem::take(&mut self.spare);
        spare.clear();
        spare
    }

    /// Takes a slot for a message with this header, and without a body.
    #[inline]
    pub fn new_message(&mut self, envelope: &Envelope) -> u32 {
        let slot = self.take_slot(SlotState::Buffer);
        let message = &mut self.table[slot as usize];
        (message.src, message.dst) = (envelope.src, envelope.dst);
        (message.ctx, message.tag, message.wid) = (envelope.ctx, envelope.tag, envelope.wid);
        (message.enc, message.format) = (envelope.enc, envelope.format);
        slot
    }

    /// Keeps a body in transit for a message that goes to the queue or to a receive buffer: copies it to memory of this
    /// task, unless the sender has fallen back to eager, or the daemon allows the task to keep it where it lies.
    #[cold]
    pub fn keep_in_transit(&mut self, body: BodyInTransit<'_>) -> Option<Large> {
        if let Some(remote) = body.keep() {
            return Some(Large::Remote(remote));
        }
        // If there is no memory, the body is dropped here, and the message arrives again later.
        let mut data = self.take_spare(body.len());
        data.try_reserve_exact(body.len()).ok()?;
        match body.take_all(&mut data) {
            Ok(()) => Some(Large::Bytes(data)),
            Err(NotTaken::Eager(remote)) => Some(Large::Remote(remote)),
            Err(NotTaken::Later | NotTaken::Lost) => None,
        }
    }

    /// Returns a slot for a new message. The caller sets the header words and the body.
    #[inline]
    pub fn take_slot(&mut self, state: SlotState) -> u32 {
        let slot = match self.free.pop() {
            Some(slot) => slot,
            None => {
                self.table.push(Message::vacant());
                self.table.len() as u32 - 1
            }
        };
        let message = &mut self.table[slot as usize];
        message.state = state;
        message.position = 0;
        slot
    }

    /// Returns the memory of a body that was freed, if it is kept, for whoever fills it again. From now on one is kept.
    pub fn give_spare(&mut self) -> Option<Vec<u8>> {
        self.keeps_spare = true;
        (self.spare.capacity() > 0).then(|| std::mem::take(&mut self.spare))
    }

    /// Lets `work` use the spare memory, for a body that the program will free. From now on some is kept.
    pub fn with_spare<T>(&mut self, work: impl FnOnce(&mut Vec<u8>) -> T) -> T {
        self.keeps_spare = true;
        let before = self.spare.capacity();
        let result = work(&mut self.spare);
        if self.spare.capacity() < before {
            (self.sleeps, self.misfits) = (0, 0);
        }
        result
    }

    /// Keeps the memory of a freed body if it is longer than the spare memory, or if several bodies were too short for that.
    fn keep(&mut self, bytes: Vec<u8>) {
        let (new, old) = (bytes.capacity(), self.spare.capacity());
        self.misfits += u32::from(2 * new < old);
        if self.keeps_spare && new <= SPARE_BYTES_MAX && (new > old || self.misfits > SPARE_MISFITS_MAX) {
            (self.spare, self.misfits) = (bytes, 0);
        }
    }

    /// Returns whether there is more spare memory than an idle task keeps.
    pub fn has_excess(&self) -> bool {
        self.spare.capacity() > SPARE_IDLE_BYTES_MAX
    }

    /// Frees the spare memory if it is more than that.
    pub fn free_excess(&mut self) {
        if self.has_excess() {
            self.spare = Vec::new();
        }
    }

    /// Frees a message, whatever its state.
    #[inline]
    pub fn free(&mut self, mid: i32) {
        let slot = mid as u32 - 1;
        match self.table[slot as usize].state {
            SlotState::Free => return,
            SlotState::Buffer => {}
            SlotState::Queued => self.queue.remove(&mut self.table, slot),
        }
        let message = &mut self.table[slot as usize];
        message.state = SlotState::Free;
        if !matches!(message.large, Large::None) {
            let large = std::mem::replace(&mut message.large, Large::None);
            if let Large::Bytes(bytes) = large {
                self.keep(bytes);
            }
        }
        let message = &mut self.table[slot as usize];
        message.small.clear();
        if self.free.len() >= KEPT_BODIES_MAX {
            message.small = Vec::new();
        }
        self.free.push(slot);
        if self.send == mid {
            self.send = 0;
        }
        if self.receive == mid {
            self.receive = 0;
        }
    }

    /// Returns a buffer of the user that can be refilled in place. Refilling has the same effect as freeing the buffer
    /// and making a new one: the new buffer would get the freed slot, so only the header words and the short body
    /// change.
    #[inline(always)]
    pub fn reusable(&mut self, mid: i32) -> Option<&mut Message> {
        let message = self.table.get_mut((mid as usize).wrapping_sub(1))?;
        (message.state == SlotState::Buffer && matches!(message.large, Large::None)).then_some(message)
    }

    /// Frees memory that is no longer needed, apart from an excess. Called before the task sleeps.
    pub fn tidy(&mut self) {
        self.sleeps = self.sleeps.saturating_add(1);
        if self.sleeps > SPARE_SLEEPS_MAX && !self.has_excess() {
            self.spare = Vec::new();
            self.keeps_spare = false;
        }
        if self.table.len() <= TABLE_KEPT_MAX || self.free.len() < self.table.len() / 4 * 3 {
            return;
        }
        let end = self.table.iter().rposition(|message| message.state != SlotState::Free).map_or(0, |last| last + 1);
        self.table.truncate(end);
        self.table.shrink_to_fit();
        self.free.retain(|slot| (*slot as usize) < end);
        self.free.shrink_to_fit();
    }

    /// Returns the message with that mid. Fails with `BadParam` for a number that cannot be a mid, and with `NoSuchBuf`
    /// if there is no such message.
    pub fn get(&self, mid: i32) -> Result<&Message, Code> {
        let slot = usize::try_from(mid).ok().and_then(|mid| mid.checked_sub(1)).ok_or(Code::BadParam)?;
        self.table.get(slot).filter(|message| message.state != SlotState::Free).ok_or(Code::NoSuchBuf)
    }

    /// See [`Store::get`].
    pub fn get_mut(&mut self, mid: i32) -> Result<&mut Message, Code> {
        self.get(mid)?;
        Ok(&mut self.table[mid as usize - 1])
    }

    /// Returns the active send buffer.
    #[inline]
    pub fn sending(&mut self) -> Result<&mut Message, Code> {
        active(&mut self.table, self.send)
    }

    /// Returns the active receive buffer.
    #[inline]
    pub fn receiving(&mut self) -> Result<&mut Message, Code> {
        active(&mut self.table, self.receive)
    }

    /// Adds a message to the end of the queue.
    #[inline]
    pub fn enqueue(&mut self, slot: u32) {
        self.queue.push(&mut self.table, slot);
    }

    /// Makes a queued message the active receive buffer; frees the former one.
    #[inline]
    pub fn receive(&mut self, slot: u32) -> i32 {
        self.take_out(slot);
        self.activate(slot)
    }

    /// Makes a queued message a buffer of the user.
    #[inline]
    pub fn take_out(&mut self, slot: u32) {
        self.queue.remove(&mut self.table, slot);
        self.table[slot as usize].state = SlotState::Buffer;
    }

    /// Makes a buffer the active receive buffer; frees the former one.
    #[inline]
    pub fn activate(&mut self, slot: u32) -> i32 {
        if self.receive != 0 {
            self.free(self.receive);
        }
        self.receive = slot as i32 + 1;
        self.receive
    }

    /// Returns the oldest queued message that the filter accepts.
    #[inline]
    pub fn find(&mut self, filter: &Filter) -> Option<u32> {
        self.queue.find(&mut self.table, filter)
    }

    /// Returns the oldest queued message that both the filter and `accept` accept.
    pub fn find_where(&mut self, filter: &Filter, accept: impl Fn(&Message) -> bool) -> Option<&Message> {
        let slot = self.queue.find_where(&mut self.table, filter, accept)?;
        Some(&self.table[slot as usize])
    }

    /// Returns the oldest visible message that the filter accepts.
    #[inline]
    pub fn find_visible(&mut self, filter: &Filter) -> Option<u32> {
        self.queue.find_visible(&mut self.table, filter)
    }

    /// Frees all queued messages.
    pub fn clear_queue(&mut self) {
        let queued: Vec<u32> = self.queue.walk(&self.table).collect();
        for slot in queued {
            self.free(slot as i32 + 1);
        }
    }
}

#[inline]
fn active(table: &mut [Message], mid: i32) -> Result<&mut Message, Code> {
    // Mid 0 stands for no buffer; `wrapping_sub` makes its index too large for the table.
    table.get_mut((mid as usize).wrapping_sub(1)).ok_or(Code::NoBuf)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Receives a long body into private memory and frees it.
    fn receive_and_free(store: &mut Store, bytes: usize) {
        let mut data = store.take_spare(bytes);
        data.resize(bytes, 1);
        let slot = store.take_slot(SlotState::Buffer);
        store.table[slot as usize].large = Large::Bytes(data);
        store.free(slot as i32 + 1);
    }

    #[test]
    fn memory_of_a_long_body_serves_the_next_one_and_is_freed_when_none_come() {
        let mut store = Store::new();
        receive_and_free(&mut store, 1 << 20);
        store.tidy();
        assert!(store.take_spare(1 << 20).capacity() >= 1 << 20);
        receive_and_free(&mut store, 1 << 20);
        for _ in 0..SPARE_SLEEPS_MAX + 1 {
            store.tidy();
        }
        assert_eq!(store.spare.capacity(), 0);
    }

    #[test]
    fn more_than_an_idle_task_keeps_is_freed_when_it_is_idle() {
        let mut store = Store::new();
        receive_and_free(&mut store, SPARE_IDLE_BYTES_MAX);
        assert!(!store.has_excess());
        receive_and_free(&mut store, SPARE_IDLE_BYTES_MAX + 1);
        (0..SPARE_SLEEPS_MAX + 1).for_each(|_| store.tidy());
        // A sleep in the middle of an exchange of long messages.
        assert!(store.has_excess());
        store.free_excess();
        assert_eq!(store.spare.capacity(), 0);
    }

    #[test]
    fn memory_that_is_too_long_for_the_next_bodies_makes_room() {
        let mut store = Store::new();
        receive_and_free(&mut store, 8 << 20);
        for number in 0..10 {
            let is_kept = store.spare.capacity() >= 8 << 20;
            assert_eq!(is_kept, number <= SPARE_MISFITS_MAX);
            receive_and_free(&mut store, 1 << 20);
        }
        assert!((1 << 20..2 << 20).contains(&store.spare.capacity()));
    }

    #[test]
    fn spare_memory_that_is_used_from_time_to_time_stays() {
        let mut store = Store::new();
        receive_and_free(&mut store, 1 << 20);
        for _ in 0..10 {
            (0..SPARE_SLEEPS_MAX).for_each(|_| store.tidy());
            let body = store.with_spare(std::mem::take);
            assert!(body.capacity() >= 1 << 20);
            store.with_spare(|spare| *spare = body);
        }
    }
}
