//! Programs with the library of PVM 3.4. Their first packet is recognised, and answered so that the library reports a
//! protocol mismatch instead of trying again.

/// The beginning of the first packet of such a library: the receiver is the daemon, the sender a task without a tid.
const TO_DAEMON: [u8; 8] = [0x80, 0, 0, 0, 0xff, 0xff, 0xff, 0xff];
/// The length of a packet's head: receiver, sender, length, flags.
const PACKET_HEAD_BYTES: usize = 16;
/// The length of a message's head, behind the packet's head: encoding, tag, context, and an id for the answer.
const MESSAGE_HEAD_BYTES: usize = 32;
/// The flags of a packet that is a whole message.
const WHOLE: u32 = 3 << 24;
/// The answer, which the library takes for the version of the daemon's protocol; the version of PVM 3.4 is 1318.
const PROTOCOL: u32 = 0;

/// Returns whether `bytes` begin as a packet of the library of PVM 3.4 does. No frame begins with these bytes: in the
/// head of a frame, they would announce too many descriptors.
pub fn begins(bytes: &[u8]) -> bool {
    bytes.starts_with(&TO_DAEMON)
}

/// Returns the answer that makes the library report a protocol mismatch; `None` until the library's first packet is
/// complete.
pub fn answer(packet: &[u8]) -> Option<Vec<u8>> {
    let head = packet.get(PACKET_HEAD_BYTES..PACKET_HEAD_BYTES + MESSAGE_HEAD_BYTES)?;
    let (receiver, sender) = (packet.get(4..8)?, packet.get(..4)?);
    let length = (MESSAGE_HEAD_BYTES + size_of_val(&PROTOCOL)) as u32;
    Some([receiver, sender, &length.to_be_bytes(), &WHOLE.to_be_bytes(), head, &PROTOCOL.to_be_bytes()].concat())
}
