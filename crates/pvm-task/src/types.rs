//! The small types of the interface.
use pvm_core::codes::Code;

/// Any sender, any tag, any context.
pub const ANY: i32 = -1;

/// The contexts of the library's own messages between tasks, which no receive of the user accepts
/// unless it names one.
pub(crate) const PRIVATE_CONTEXTS: std::ops::Range<i32> = i32::MIN..-(1 << 30);

/// Which messages a receive accepts; [`ANY`] (-1) accepts all of that kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Filter {
    /// The sender's tid as PVM shows it (`i32`, so that the daemon is `0x80000000`).
    pub src: i32,
    /// The tag.
    pub tag: i32,
    /// The context.
    pub ctx: i32,
}

/// What `pvm_getminfo` shows, field for field.
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
    /// `PvmDataInPlace`: native bytes, read from the user's memory when the message is sent.
    InPlace,
    /// `PvmDataTrace`: as `Default`, marked as a trace event.
    Trace,
    /// Native bytes of a machine with another format; only bytes can be unpacked.
    Foreign,
}

/// The types of items (contract 1.7, data types, strings apart).
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
    /// Native bytes of one item.
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
    /// The kind of a `PVM_*` data type; `None` for `PVM_STR` and unknown ones.
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

/// A piece of the user's memory packed in place.
pub trait Source {
    /// The bytes as they are now; called when the message is sent (or stored).
    fn bytes(&self) -> &[u8];
}

/// What a send did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Submit {
    /// The message is on its way (or was dropped because nobody is there).
    Done,
    /// The daemon introduces the peer first: [`Task::progress`](crate::Task::progress), then call
    /// again with the same arguments until it says `Done`. Nothing was sent yet.
    Again,
}

/// A request on its way to the daemon.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub struct Ticket(pub(crate) u32);

/// What a one-call receive brought.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Delivered {
    /// The sender.
    pub src: i32,
    /// The tag.
    pub tag: i32,
    /// The wait id.
    pub wid: i32,
    /// The length of the message in bytes, also where it was longer than the room for it.
    pub len: usize,
    /// Items of another format that cannot be had: `Overflow` from the first on that does not fit.
    pub failure: Option<Code>,
}

/// A message handler that has to run now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HandlerCall {
    /// The handler, as `add_handler` named it.
    pub handler: i32,
    /// What the caller of `add_handler` gave to find its function.
    pub function: u64,
    /// The message.
    pub mid: i32,
}
