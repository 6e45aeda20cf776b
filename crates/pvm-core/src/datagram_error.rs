//! Why a datagram to all hosts is not used. Anybody on the network may send such datagrams.

/// Why a datagram is not used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DatagramError {
    /// It is no datagram of this protocol: truncated, too long, or of an unknown kind.
    Malformed,
    /// Its seal or its value is false, so it comes from nobody who has the key that it names.
    Forged,
    /// It belongs to a body or a barrier for which nobody waits here, or it has come before. In the absence of attacks
    /// such datagrams are frequent: all hosts receive what only some of them wait for.
    Unexpected,
}
