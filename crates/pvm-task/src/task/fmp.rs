//! FMP by itself (`docs/fmp.md`): send, receive, probe local, probe network; no buffers, no packing, no handlers.
//!
//! Its messages take the routes of PVM's messages, with two differences: all of them have the context [`FMP_CONTEXT`],
//! and a receive takes a message whole or not at all. No call of PVM accepts that context, and no call of FMP accepts
//! another one, so messages of both kinds can be queued for one task at the same time.
use super::Task;
use super::fast_path::FastSend;
use crate::message::{Message, OWN_DSIG};
use crate::target::Target;
use crate::types::{ANY, Delivered, FMP_CONTEXT, Filter, Kind, Submit};
use pvm_core::codes::Code;
use pvm_core::tid::Tid;
use pvm_fmp::Arrival;

/// The senders whose messages a probe finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FmpSide {
    /// The tasks of this host, this task included.
    Local,
    /// The tasks of other hosts.
    Network,
}

/// A message of FMP that has arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FmpFound {
    /// The sender.
    pub source: i32,
    /// The tag.
    pub tag: i32,
    /// The length in bytes.
    pub bytes: usize,
}

/// The result of a receive that has found a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FmpReceived {
    /// The message was received.
    Whole(FmpFound),
    /// The message is longer than the memory for it, and stays queued.
    TooLong(FmpFound),
}

impl From<Delivered> for FmpFound {
    #[inline(always)]
    fn from(delivered: Delivered) -> FmpFound {
        FmpFound { source: delivered.src, tag: delivered.tag, bytes: delivered.len }
    }
}

/// The caller's memory for a message. It takes no message that is longer.
struct WholeMessage<'a> {
    room: &'a mut [u8],
    /// Whether a message that arrives has been too long. Later messages must not overtake it.
    passed: bool,
    /// Whether the queued message was too long.
    too_long: bool,
}

impl Target for WholeMessage<'_> {
    #[inline]
    fn take(&mut self, wid: i32, body: Arrival<'_>) -> Option<usize> {
        self.room.take(wid, body)
    }

    #[inline]
    fn take_queued(&mut self, message: &Message) {
        self.room.take_queued(message);
    }

    fn room(&mut self) -> Option<&mut [u8]> {
        // If a longer message was queued, only that message may be received.
        (!self.passed).then_some(&mut *self.room)
    }

    #[inline]
    fn accepts(&mut self, body: &Arrival<'_>) -> bool {
        let bytes = match body {
            Arrival::Inline(inline) => inline.len(),
            Arrival::Remote(remote) => remote.len(),
            Arrival::InTransit(body) => body.len(),
        };
        self.passed |= bytes > self.room.len();
        !self.passed
    }

    #[inline]
    fn accepts_queued(&mut self, bytes: usize) -> bool {
        self.too_long = bytes > self.room.len();
        !self.too_long
    }
}

/// FMP. No call waits: repeat a receive as [`Task::try_precv`] is repeated.
impl Task {
    /// Returns the filter for messages of FMP; [`ANY`] stands for any sender and any tag. Fails with `BadParam` if no
    /// task can have that tid, or no message that tag.
    #[inline]
    pub fn fmp_filter(source: i32, tag: i32) -> Result<Filter, Code> {
        let possible = (source == ANY || is_task(source)) && (tag == ANY || tag >= 0);
        if possible { Ok(Filter { src: source, tag, ctx: FMP_CONTEXT }) } else { Err(Code::BadParam) }
    }

    /// Sends a message; the fast path of [`Task::fmp_send`].
    #[inline(always)]
    pub fn fmp_send_fast(&mut self, to: i32, tag: i32, body: &[u8]) -> FastSend {
        self.send_bytes_fast(to, FMP_CONTEXT, tag, body)
    }

    /// Receives a message; the fast path of [`Task::try_fmp_receive`].
    #[inline(always)]
    pub fn fmp_receive_fast(&mut self, source: i32, tag: i32, room: &mut [u8]) -> Option<FmpFound> {
        let filter = Filter { src: source, tag, ctx: FMP_CONTEXT };
        self.precv_fast(&filter, room).map(FmpFound::from)
    }

    /// Sends a message. Fails with `BadParam` if `to` cannot be a task or `tag` is negative. A message to a task that
    /// does not exist is dropped.
    #[inline]
    pub fn fmp_send(&mut self, to: i32, tag: i32, body: &[u8]) -> Result<Submit, Code> {
        if !is_task(to) || tag < 0 {
            return Err(Code::BadParam);
        }
        self.send_slice(Tid(to as u32), [FMP_CONTEXT, tag, 0, OWN_DSIG, OWN_DSIG, 0].map(|word| word as u32), body)
    }

    /// Tries once to receive the oldest message that the filter accepts. A message that is longer than `room` stays
    /// queued.
    #[inline]
    pub fn try_fmp_receive(&mut self, filter: &Filter, room: &mut [u8]) -> Option<FmpReceived> {
        if let Some((envelope, recent, _)) = self.probe_recent(filter, true, false) {
            let fits = recent.len() <= room.len();
            if let Some(bytes) = fits.then(|| recent.take(room)).flatten() {
                return Some(FmpReceived::Whole(envelope.delivered(bytes).into()));
            }
        }
        let mut target = WholeMessage { room, passed: false, too_long: false };
        let found = self.try_precv_into(filter, Kind::Byte, &mut target);
        // As every call that waits: handlers of PVM run meanwhile.
        self.reveal_all();
        let found = found?.into();
        Some(if target.too_long { FmpReceived::TooLong(found) } else { FmpReceived::Whole(found) })
    }

    /// Returns the oldest message that has arrived from that side and that the filter accepts. The message is not
    /// received.
    pub fn fmp_probe(&mut self, filter: &Filter, side: FmpSide) -> Option<FmpFound> {
        let found = self.fmp_find(filter, side);
        if found.is_some() {
            return found;
        }
        self.take_in_all();
        self.fmp_find(filter, side)
    }

    fn fmp_find(&mut self, filter: &Filter, side: FmpSide) -> Option<FmpFound> {
        let here = Tid(self.own_tid() as u32).host();
        let wanted = |message: &Message| (Tid(message.src as u32).host() == here) == (side == FmpSide::Local);
        let message = self.state.store.find_where(filter, wanted)?;
        Some(FmpFound { source: message.src, tag: message.tag, bytes: message.len() })
    }
}

/// Returns whether a task can have this tid.
#[inline]
fn is_task(tid: i32) -> bool {
    let tid = Tid(tid as u32);
    tid.is_task() && !tid.is_service()
}

#[cfg(test)]
#[path = "fmp_tests.rs"]
mod tests;
