//! The next message of the peer that sent last; the message is still in the queue.
use crate::peer::Inbound;
use crate::queue::Short;
use crate::{Immediate, Meta};

/// A short message that can be taken; see [`super::Endpoint::probe_recent_short`].
pub struct RecentShort<'a> {
    /// The tid of the sender.
    pub from: u32,
    pub(super) short: Short<'a>,
    pub(super) inbound: &'a mut Inbound,
    pub(super) shorts: &'a mut u32,
    pub(super) unpublished: &'a mut bool,
}

#[allow(clippy::len_without_is_empty)] // an empty message is a message, too
impl RecentShort<'_> {
    /// Returns the length of the message's body in bytes.
    #[inline(always)]
    pub fn len(&self) -> usize {
        self.short.len()
    }

    /// Returns the meta words of the message.
    #[inline(always)]
    pub fn meta(&self) -> Meta {
        self.short.meta()
    }

    /// Takes the message: copies its first bytes into `data`, up to the length of `data`. Returns the message's length.
    #[inline(always)]
    pub fn take(self, data: &mut [u8]) -> usize {
        self.short.copy_to(data);
        self.inbound.advance(self.short.half_slots());
        *self.shorts += 1;
        *self.unpublished = true;
        self.short.len()
    }
}

/// An immediate message that can be taken; see [`super::Endpoint::probe_recent_immediate`].
pub struct RecentImmediate<'a> {
    /// The message itself.
    pub immediate: Immediate,
    pub(super) inbound: &'a mut Inbound,
    pub(super) shorts: &'a mut u32,
    pub(super) unpublished: &'a mut bool,
}

impl RecentImmediate<'_> {
    /// Takes the message.
    #[inline(always)]
    pub fn take(self) -> Immediate {
        self.inbound.advance(1);
        *self.shorts += 1;
        *self.unpublished = true;
        self.immediate
    }
}
