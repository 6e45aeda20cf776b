//! The frames of a data link. A frame has a length (`u32`; the length itself is not counted), a kind (`u8`), and the
//! fields of that kind. All numbers are little endian. The bytes of a body are at the end of the frame, so that they
//! can be sent from the body's memory and received into it without a copy.
use super::message::{MessageHeader, ProtocolViolation};
use super::multicast::{Announcement, BODY_SECRET_BYTES, BodyKey, BodyRequest, DIGEST_BYTES, REPORT_RANGES_MAX};
use super::pacing::is_paced;
use super::{CHUNK_BYTES_MAX, Credit, DataFrame};
use crate::tid::{SLOT_MASK, Tid};
use std::ops::Range;

/// An in-band frame of a daemon.
///
/// * Filled by: each other host
/// * Setting: none, both daemons use the same limit
/// * Reached: the link to the host is closed, and the host is lost
/// * Test: `a_frame_that_is_too_long_is_a_violation`
pub const IN_BAND_PAYLOAD_BYTES_MAX: usize = 64 << 20;
/// The header of a frame, including the list of receivers: everything before the body or the in-band frame.
///
/// * Filled by: each other host
/// * Setting: none, a host cannot have more tasks, so no list of receivers is longer
/// * Reached: the link to the host is closed, and the host is lost
/// * Test: `a_frame_that_is_too_long_is_a_violation`
pub const HEADER_BYTES_MAX: usize = ANNOUNCE_BYTES + 4 * SLOT_MASK as usize;

/// The length of the first two fields: length and kind.
const LEAD_BYTES: usize = 5;
/// The length of the header of a message without further receivers: sender, receiver, five words, length of the body,
/// count of further receivers.
const MESSAGE_BYTES: usize = 4 + 4 + 20 + 8 + 4;
/// The length of the header of a `Start` frame without further receivers: transfer, header of the message.
const START_BYTES: usize = LEAD_BYTES + 4 + MESSAGE_BYTES;
const CHUNK_BYTES: usize = LEAD_BYTES + 4;
const IN_BAND_BYTES: usize = LEAD_BYTES + 4;
const CREDIT_BYTES: usize = LEAD_BYTES + 4 + 8;
/// The length of the name of a body: origin and secret.
const KEY_BYTES: usize = 4 + BODY_SECRET_BYTES;
/// The length of the fields of an announcement that precede those of a `Start` frame without a transfer: name, digest,
/// parent, number of children.
const ANNOUNCEMENT_BYTES: usize = KEY_BYTES + DIGEST_BYTES + 4 + 4;
const ANNOUNCE_BYTES: usize = LEAD_BYTES + ANNOUNCEMENT_BYTES + MESSAGE_BYTES;
const REQUEST_BYTES: usize = LEAD_BYTES + KEY_BYTES + 4 + 8;
/// The length of a report without its ranges: name, round, number of ranges.
const REPORT_BYTES: usize = LEAD_BYTES + KEY_BYTES + 4 + 4;
const RANGE_BYTES: usize = 4 + 4;
const PART_BYTES: usize = LEAD_BYTES + KEY_BYTES + 8;
/// The length of an acknowledgement.
pub const ACKNOWLEDGED_BYTES: usize = LEAD_BYTES + 8;
const GRANT_BYTES: usize = LEAD_BYTES + 8;
const MARK_BYTES: usize = LEAD_BYTES + 4 + 4;

const START: u8 = 1;
const CHUNK: u8 = 2;
const IN_BAND: u8 = 3;
const CREDIT: u8 = 4;
const ACKNOWLEDGED: u8 = 5;
const ANNOUNCE: u8 = 6;
const REQUEST: u8 = 7;
const PART: u8 = 8;
const REPORT: u8 = 9;
const MARK: u8 = 10;

const FETCH: u32 = 1;
const CANCEL: u32 = 2;
const RECEIVED: u32 = 3;
const UNAVAILABLE: u32 = 4;
const READY: u32 = 5;
const GRANT: u8 = 20;

/// The header of a frame: all of it but the payload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FrameHeader {
    /// A message, or the first chunk of one.
    Start {
        /// The number of the message, which its further chunks repeat.
        transfer: u32,
        /// The header of the message.
        header: MessageHeader,
        /// The number of bytes of the body that follow the header.
        first: usize,
    },
    /// A further chunk of a message.
    Chunk {
        /// The number of the message.
        transfer: u32,
        /// The number of bytes that follow.
        bytes: usize,
    },
    /// An in-band frame of the sending daemon.
    InBand {
        /// The task in whose flow the frame travels.
        dst: Tid,
        /// The number of bytes that follow.
        bytes: usize,
    },
    /// A multicast whose body the receiver of the frame fetches.
    Announce {
        /// The header of the message.
        header: MessageHeader,
        /// What the receiver must know about the body.
        announcement: Announcement,
    },
    /// A request or report about the body of a multicast.
    Request {
        /// The body.
        key: BodyKey,
        /// The request.
        request: BodyRequest,
    },
    /// A part of the body of a multicast.
    Part {
        /// The body.
        key: BodyKey,
        /// The position of the part in the body, in bytes.
        at: u64,
        /// The number of bytes that follow.
        bytes: usize,
    },
    /// The number of further messages of a flow that come before everything that follows to other tasks.
    Mark {
        /// The receiver of the flow.
        dst: Tid,
        /// The number of messages.
        count: u32,
    },
    /// Credit for the flow to a task.
    Credit {
        /// The task.
        dst: Tid,
        /// The number of bytes.
        bytes: u64,
    },
    /// An acknowledgement of all bytes received on the link up to a position. A connection that replaces another one
    /// begins with an acknowledgement, whose own bytes are not counted.
    Acknowledged {
        /// The number of bytes received since the link was first made.
        position: u64,
    },
    /// A new limit for the bytes of long messages.
    Grant {
        /// The number of such bytes that may have been sent in all.
        up_to: u64,
    },
}

impl FrameHeader {
    /// Returns the number of bytes of the frame that follow the header.
    pub fn following_bytes(&self) -> usize {
        match self {
            FrameHeader::Start { first, .. } => *first,
            FrameHeader::Chunk { bytes, .. } | FrameHeader::InBand { bytes, .. } | FrameHeader::Part { bytes, .. } => {
                *bytes
            }
            FrameHeader::Announce { .. }
            | FrameHeader::Request { .. }
            | FrameHeader::Mark { .. }
            | FrameHeader::Credit { .. }
            | FrameHeader::Acknowledged { .. }
            | FrameHeader::Grant { .. } => 0,
        }
    }
}

/// Appends the header of a frame. The caller sends the bytes that follow the header.
pub fn write_header<P>(frame: &DataFrame<P>, out: &mut Vec<u8>) {
    match frame {
        DataFrame::Start { transfer, header, first, .. } => {
            lead(out, START, START_BYTES + 4 * header.others.len() + first);
            out.extend_from_slice(&transfer.to_le_bytes());
            write_message(header, out);
        }
        DataFrame::Announce { header, announcement } => {
            let Announcement { key, digest, parent, children, part_bytes } = announcement;
            // A broadcast has no parent, and parts of this length in place of children.
            let (parent, children) = part_bytes.map_or((*parent, *children), |part_bytes| (Tid::NONE, part_bytes));
            lead(out, ANNOUNCE, ANNOUNCE_BYTES + 4 * header.others.len());
            write_key(key, out);
            out.extend_from_slice(digest);
            out.extend_from_slice(&parent.0.to_le_bytes());
            out.extend_from_slice(&children.to_le_bytes());
            write_message(header, out);
        }
        DataFrame::Request { key, request: BodyRequest::Report { round, missing } } => {
            lead(out, REPORT, REPORT_BYTES + RANGE_BYTES * missing.len());
            write_key(key, out);
            let ranges = missing.iter().flat_map(|range| [range.start, range.end]);
            for word in [*round, missing.len() as u32].into_iter().chain(ranges) {
                out.extend_from_slice(&word.to_le_bytes());
            }
        }
        DataFrame::Request { key, request } => {
            lead(out, REQUEST, REQUEST_BYTES);
            write_key(key, out);
            let (kind, at) = match request {
                BodyRequest::Fetch { at } => (FETCH, *at),
                BodyRequest::Cancel => (CANCEL, 0),
                BodyRequest::Received => (RECEIVED, 0),
                BodyRequest::Unavailable => (UNAVAILABLE, 0),
                BodyRequest::Ready => (READY, 0),
                BodyRequest::Report { .. } => unreachable!("a report is a frame of its own"),
            };
            out.extend_from_slice(&kind.to_le_bytes());
            out.extend_from_slice(&at.to_le_bytes());
        }
        DataFrame::Part { key, range, .. } => {
            lead(out, PART, PART_BYTES + range.len());
            write_key(key, out);
            out.extend_from_slice(&(range.start as u64).to_le_bytes());
        }
        DataFrame::Chunk { transfer, range, .. } => {
            lead(out, CHUNK, CHUNK_BYTES + range.len());
            out.extend_from_slice(&transfer.to_le_bytes());
        }
        DataFrame::Mark { dst, count } => {
            lead(out, MARK, MARK_BYTES);
            out.extend_from_slice(&dst.0.to_le_bytes());
            out.extend_from_slice(&count.to_le_bytes());
        }
        DataFrame::InBand { dst, payload } => {
            lead(out, IN_BAND, IN_BAND_BYTES + payload.len());
            out.extend_from_slice(&dst.0.to_le_bytes());
        }
    }
}

/// Appends the header of a message.
fn write_message(header: &MessageHeader, out: &mut Vec<u8>) {
    let [a, b, c, d, e] = header.meta;
    for word in [header.src.0, header.dst.0, a, b, c, d, e] {
        out.extend_from_slice(&word.to_le_bytes());
    }
    out.extend_from_slice(&(header.bytes as u64).to_le_bytes());
    out.extend_from_slice(&(header.others.len() as u32).to_le_bytes());
    header.others.iter().for_each(|tid| out.extend_from_slice(&tid.0.to_le_bytes()));
}

/// Appends the name of a body.
fn write_key(key: &BodyKey, out: &mut Vec<u8>) {
    out.extend_from_slice(&key.origin.0.to_le_bytes());
    out.extend_from_slice(&key.secret);
}

/// Appends a frame that returns credit.
pub fn write_credit(credit: &Credit, out: &mut Vec<u8>) {
    lead(out, CREDIT, CREDIT_BYTES);
    out.extend_from_slice(&credit.dst.0.to_le_bytes());
    out.extend_from_slice(&credit.bytes.to_le_bytes());
}

/// Appends an acknowledgement.
pub fn write_acknowledged(position: u64, out: &mut Vec<u8>) {
    lead(out, ACKNOWLEDGED, ACKNOWLEDGED_BYTES);
    out.extend_from_slice(&position.to_le_bytes());
}

/// Appends a grant.
pub fn write_grant(up_to: u64, out: &mut Vec<u8>) {
    lead(out, GRANT, GRANT_BYTES);
    out.extend_from_slice(&up_to.to_le_bytes());
}

/// Appends the length and the kind of a frame. `whole` is the length of the frame in bytes, including the length field.
fn lead(out: &mut Vec<u8>, kind: u8, whole: usize) {
    out.extend_from_slice(&((whole - 4) as u32).to_le_bytes());
    out.push(kind);
}

/// A reader of the words of a header.
struct Words<'a>(&'a [u8]);

impl Words<'_> {
    fn word(&mut self) -> u32 {
        let (word, rest) = self.0.split_first_chunk::<4>().expect("the length was checked");
        self.0 = rest;
        u32::from_le_bytes(*word)
    }
    fn long(&mut self) -> u64 {
        let low = u64::from(self.word());
        low | u64::from(self.word()) << 32
    }
    fn bytes<const N: usize>(&mut self) -> [u8; N] {
        let (bytes, rest) = self.0.split_first_chunk::<N>().expect("the length was checked");
        self.0 = rest;
        *bytes
    }
    fn key(&mut self) -> BodyKey {
        BodyKey { origin: Tid(self.word()), secret: self.bytes() }
    }
}

/// Parses the header at the beginning of `bytes`. Returns the header and its length, or `None` while the header is
/// incomplete.
pub fn read_header(bytes: &[u8]) -> Result<Option<(FrameHeader, usize)>, ProtocolViolation> {
    let Some(lead) = bytes.first_chunk::<LEAD_BYTES>() else { return Ok(None) };
    let whole = u32::from_le_bytes([lead[0], lead[1], lead[2], lead[3]]) as usize + 4;
    let (head_bytes, limit) = match lead[4] {
        START => (START_BYTES, HEADER_BYTES_MAX + CHUNK_BYTES_MAX),
        CHUNK => (CHUNK_BYTES, CHUNK_BYTES + CHUNK_BYTES_MAX),
        IN_BAND => (IN_BAND_BYTES, IN_BAND_BYTES + IN_BAND_PAYLOAD_BYTES_MAX),
        CREDIT => (CREDIT_BYTES, CREDIT_BYTES),
        ACKNOWLEDGED => (ACKNOWLEDGED_BYTES, ACKNOWLEDGED_BYTES),
        ANNOUNCE => (ANNOUNCE_BYTES, HEADER_BYTES_MAX),
        REQUEST => (REQUEST_BYTES, REQUEST_BYTES),
        PART => (PART_BYTES, PART_BYTES + CHUNK_BYTES_MAX),
        REPORT => (REPORT_BYTES, REPORT_BYTES + RANGE_BYTES * REPORT_RANGES_MAX),
        GRANT => (GRANT_BYTES, GRANT_BYTES),
        MARK => (MARK_BYTES, MARK_BYTES),
        _ => return Err(ProtocolViolation),
    };
    let rest = whole.checked_sub(head_bytes).filter(|_| whole <= limit).ok_or(ProtocolViolation)?;
    let Some(head) = bytes.get(LEAD_BYTES..head_bytes) else { return Ok(None) };
    let mut words = Words(head);
    let head = match lead[4] {
        START => return read_start(words, bytes, rest),
        ANNOUNCE => return read_announcement(words, bytes, rest),
        REPORT => return read_report(words, bytes, rest),
        REQUEST => FrameHeader::Request { key: words.key(), request: read_request(&mut words)? },
        PART => FrameHeader::Part { key: words.key(), at: words.long(), bytes: rest },
        CHUNK => FrameHeader::Chunk { transfer: words.word(), bytes: rest },
        IN_BAND => FrameHeader::InBand { dst: Tid(words.word()), bytes: rest },
        ACKNOWLEDGED => FrameHeader::Acknowledged { position: words.long() },
        MARK => FrameHeader::Mark { dst: Tid(words.word()), count: words.word() },
        GRANT => FrameHeader::Grant { up_to: words.long() },
        _ => FrameHeader::Credit { dst: Tid(words.word()), bytes: words.long() },
    };
    Ok(Some((head, head_bytes)))
}

/// Parses a request or report about a body, after its name.
fn read_request(words: &mut Words<'_>) -> Result<BodyRequest, ProtocolViolation> {
    Ok(match (words.word(), words.long()) {
        (FETCH, at) => BodyRequest::Fetch { at },
        (CANCEL, 0) => BodyRequest::Cancel,
        (RECEIVED, 0) => BodyRequest::Received,
        (UNAVAILABLE, 0) => BodyRequest::Unavailable,
        (READY, 0) => BodyRequest::Ready,
        _ => return Err(ProtocolViolation),
    })
}

/// Parses a report. `rest` is the number of bytes of the frame after its fixed part.
fn read_report(
    mut words: Words<'_>,
    bytes: &[u8],
    rest: usize,
) -> Result<Option<(FrameHeader, usize)>, ProtocolViolation> {
    let (key, round, count) = (words.key(), words.word(), words.word() as usize);
    if count > REPORT_RANGES_MAX || rest != RANGE_BYTES * count {
        return Err(ProtocolViolation);
    }
    let end = REPORT_BYTES + rest;
    let Some(list) = bytes.get(REPORT_BYTES..end) else { return Ok(None) };
    let mut list = Words(list);
    let missing: Vec<Range<u32>> = (0..count).map(|_| list.word()..list.word()).collect();
    // Ranges that overlap would cost their sum: 512 times all parts of a body.
    let ascend = missing.iter().all(|range| range.start < range.end)
        && missing.windows(2).all(|ranges| ranges[0].end <= ranges[1].start);
    if !ascend {
        return Err(ProtocolViolation);
    }
    Ok(Some((FrameHeader::Request { key, request: BodyRequest::Report { round, missing } }, end)))
}

/// Parses the header of a message: `words` is at its fixed part, which ends at the position `end` of the frame. `rest` is
/// the number of bytes of the frame after that part. Returns the header, its end, and how many bytes follow it.
fn read_message(
    words: &mut Words<'_>,
    bytes: &[u8],
    end: usize,
    rest: usize,
) -> Result<Option<(MessageHeader, usize, usize)>, ProtocolViolation> {
    let (src, dst) = (Tid(words.word()), Tid(words.word()));
    let meta = std::array::from_fn(|_| words.word());
    let (length, count) = (words.long(), words.word() as usize);
    let length = usize::try_from(length).map_err(|_| ProtocolViolation)?;
    if count > SLOT_MASK as usize || length > i32::MAX as usize {
        return Err(ProtocolViolation);
    }
    let behind = rest.checked_sub(4 * count).ok_or(ProtocolViolation)?;
    let Some(list) = bytes.get(end..end + 4 * count) else { return Ok(None) };
    let mut list = Words(list);
    let others = (0..count).map(|_| Tid(list.word())).collect();
    Ok(Some((MessageHeader { src, dst, others, meta, bytes: length }, end + 4 * count, behind)))
}

/// Parses the header of a `Start` frame. `rest` is the number of bytes of the frame after its fixed part.
fn read_start(
    mut words: Words<'_>,
    bytes: &[u8],
    rest: usize,
) -> Result<Option<(FrameHeader, usize)>, ProtocolViolation> {
    let transfer = words.word();
    let Some((header, end, first)) = read_message(&mut words, bytes, START_BYTES, rest)? else { return Ok(None) };
    // Only a paced message may begin with fewer bytes than fit in the frame.
    let most = header.bytes.min(CHUNK_BYTES_MAX);
    if first > most || (first < most && !is_paced(header.bytes)) {
        return Err(ProtocolViolation);
    }
    Ok(Some((FrameHeader::Start { transfer, header, first }, end)))
}

/// Parses an announcement. `rest` is the number of bytes of the frame after its fixed part.
fn read_announcement(
    mut words: Words<'_>,
    bytes: &[u8],
    rest: usize,
) -> Result<Option<(FrameHeader, usize)>, ProtocolViolation> {
    let (key, digest) = (words.key(), words.bytes());
    let (parent, children) = (Tid(words.word()), words.word());
    let announcement = match parent {
        Tid::NONE => Announcement { key, digest, parent: key.origin, children: 0, part_bytes: Some(children) },
        _ => Announcement { key, digest, parent, children, part_bytes: None },
    };
    let Some((header, end, behind)) = read_message(&mut words, bytes, ANNOUNCE_BYTES, rest)? else { return Ok(None) };
    if behind != 0 {
        return Err(ProtocolViolation);
    }
    Ok(Some((FrameHeader::Announce { header, announcement }, end)))
}
