//! What a peer may not do on a link.
use std::fmt;

/// What a peer may not do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Violation {
    /// The bytes are no frame of this link.
    NoFrame,
    /// A frame came twice, or its number is beyond those for which the sender had credits.
    Serial,
    /// A frame without credit.
    NoCredit,
    /// A grant that grants too little, or more than there are buffers.
    Grant,
    /// It reports messages as taken that were not sent.
    Taken,
    /// It offers a body that is longer than any.
    Length,
    /// A piece that does not fit its body, or something else before the last piece of a body.
    Piece,
    /// It waits for a message after others that were not sent.
    Wanted,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Violation::NoFrame => "the bytes are no frame",
            Violation::Serial => "a frame came twice or far too early",
            Violation::NoCredit => "a frame without credit",
            Violation::Grant => "a wrong grant",
            Violation::Taken => "messages were reported as taken that were not sent",
            Violation::Length => "a body that is too long",
            Violation::Piece => "a piece that does not fit its body",
            Violation::Wanted => "a receive that waits for no message",
        })
    }
}

impl std::error::Error for Violation {}
