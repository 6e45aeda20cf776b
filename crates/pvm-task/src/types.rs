//! Small types of the interface.
use pvm_core::codes::Code;
use pvm_core::state_line::Wanted;
use std::ops::Range;

/// Any sender, any tag, any context.
pub const ANY: i32 = -1;

/// The contexts of the messages that operations of groups send.
pub(crate) const GROUP_CONTEXTS: Range<i32> = i32::MIN..-(1 << 30);
/// The context of FMP's messages (module `fmp`).
pub(crate) const FMP_CONTEXT: i32 = GROUP_CONTEXTS.end;
/// The contexts of messages that are not PVM's: those of groups and of FMP. A receive accepts a message in such a
/// context only if its filter names the context.
pub(crate) const PRIVATE_CONTEXTS: Range<i32> = GROUP_CONTEXTS.start..FMP_CONTEXT + 1;

/// The messages that a receive accepts; [`ANY`] (-1) in a field accepts all values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Filter {
    /// The sender's tid as PVM shows it (an `int`: the daemon is `0x80000000`).
    pub src: i32,
    /// The tag.
    pub tag: i32,
    /// The context.
    pub ctx: i32,
}

impl Filter {
    /// Returns what the filter accepts, for the state line.
    pub fn wanted(&self) -> Wanted {
        Wanted::new(self.src, self.tag, self.ctx)
    }

    /// Returns whether the filter accepts a message with these words.
    #[inline]
    pub(crate) fn accepts(&self, src: i32, tag: i32, ctx: i32) -> bool {
        (self.tag == tag || self.tag == ANY)
            && (self.src == src || self.src == ANY)
            && (self.ctx == ctx || (self.ctx == ANY && !PRIVATE_CONTEXTS.contains(&ctx)))
    }
}

/// The result of `pvm_getminfo`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[allow(missing_docs)]
pub struct MessageInfo {
    pub len: i32,
    pub ctx: i32,
    pub tag: i32,
    pub wid: i32,
    pub enc: i32,
    pub crc: i32,
    pub src: i32,
    pub dst: i32,
}

/// How the items of a buffer are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoding {
    /// `PvmDataDefault`: XDR's widths in native byte order.
    Default,
    /// `PvmDataRaw`: native bytes.
    Raw,
    /// `PvmDataInPlace`: native bytes that are read from the user's memory when the message is sent.
    InPlace,
    /// `PvmDataTrace`: as `Default`, marked as a trace event.
    Trace,
    /// Items in the native format of a host whose format differs from ours. Only items of type byte can be unpacked:
    /// unpacking does not convert the others.
    Foreign,
}

/// The types of items, except strings (contract 1.7, data types).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Kind {
    Byte,
    Short,
    Int,
    Float,
    Cplx,
    Double,
    Dcplx,
    Long,
    Ushort,
    Uint,
    Ulong,
}

impl Kind {
    /// Returns the native size of one item in bytes.
    pub const fn size(self) -> usize {
        match self {
            Kind::Byte => 1,
            Kind::Short | Kind::Ushort => 2,
            Kind::Int | Kind::Uint | Kind::Float => 4,
            Kind::Long | Kind::Ulong => size_of::<usize>(),
            Kind::Cplx | Kind::Double => 8,
            Kind::Dcplx => 16,
        }
    }
    /// Returns the kind of a `PVM_*` data type; `None` for `PVM_STR` and unknown types.
    pub const fn from_number(number: i32) -> Option<Kind> {
        Some(match number {
            1 => Kind::Byte,
            2 => Kind::Short,
            3 => Kind::Int,
            4 => Kind::Float,
            5 => Kind::Cplx,
            6 => Kind::Double,
            7 => Kind::Dcplx,
            8 => Kind::Long,
            9 => Kind::Ushort,
            10 => Kind::Uint,
            11 => Kind::Ulong,
            _ => return None,
        })
    }
}

/// A piece of the user's memory that was packed in place.
pub trait Source {
    /// Returns the bytes as they are now. Called when the message is sent (or stored).
    fn bytes(&self) -> &[u8];
}

/// The result of a send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Submit {
    /// The message was sent (or dropped, if there is no such task).
    Done,
    /// Nothing was sent, since the daemon introduces the peer first. Call [`Task::progress`](crate::Task::progress),
    /// then repeat the send with the same arguments, until the send returns `Done`.
    Again,
}

/// A request that was sent to the daemon.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub struct Ticket(pub(crate) u32);

/// The result of a one-call receive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Delivered {
    /// The sender.
    pub src: i32,
    /// The tag.
    pub tag: i32,
    /// The wait id.
    pub wid: i32,
    /// The length of the message in bytes, even if the message did not fit.
    pub len: usize,
    /// Why items of another format are missing: `Overflow` if a value does not fit; then it and all items after it are
    /// missing.
    pub failure: Option<Code>,
}

/// A message handler that has to run now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HandlerCall {
    /// The handler's id.
    pub handler: i32,
    /// The `function` that was passed to `add_handler`.
    pub function: u64,
    /// The message.
    pub mid: i32,
}
