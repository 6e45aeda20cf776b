//! The receiving direction of a data link.
use super::link_failure::LinkFailure;
use super::{Payload, Route, RouteContext, is_short};
use pvm_core::flows::frames::{ACKNOWLEDGED_BYTES, FrameHeader, read_header};
use pvm_core::flows::multicast::BodyKey;
use pvm_core::flows::{AckTracker, CHUNK_BYTES_MAX, MessageHeader, ProtocolViolation};
use pvm_core::tid::Tid;
use pvm_fmp::{Block, NoMemory};
use pvm_net::{ByteStream, LinkError};
use rustix::io::Errno;
use std::io;
use std::os::fd::AsFd;

/// Bytes read at a time while the length of the next frame is not known.
const READ_BYTES: usize = 64 << 10;
/// Bytes read beyond the end of a body: enough for the head of the next frame and a little of that frame's body.
const BEHIND_BYTES: usize = 256;
/// The number of bytes after which a step reads no more from one link.
const STEP_BYTES: usize = 1 << 20;
/// The same number while this host relays a body: so each part is sent on before much else is read.
const RELAY_STEP_BYTES: usize = CHUNK_BYTES_MAX;
/// The largest number of reads from one link in a step: on an encrypted link, even few bytes can be much work.
const STEP_READS: usize = 64;
/// The other side keeps sent bytes until they are acknowledged. An acknowledgement is due after this number of bytes;
/// it is sent earlier if this side sends messages on the link.
const ACKNOWLEDGED_EVERY: u64 = 128 << 10;

/// What to do when a body is complete.
pub(super) enum OnComplete {
    /// Deliver it: it is a whole message.
    Deliver(MessageHeader),
    /// Begin a transfer: further pieces of the message will follow.
    Begin { transfer: u32, header: MessageHeader },
    /// Continue a transfer.
    Add { transfer: u32, bytes: usize },
    /// Add a part to the body of an announced multicast.
    AddPart { key: BodyKey, at: usize, bytes: usize },
    /// Nothing: the bytes were not wanted.
    Drop,
}

/// A body, or a piece of a body, that is being read into its block.
pub(super) struct Incoming {
    /// Absent for a message without a receiver, whose body is read and dropped.
    pub block: Option<Block>,
    pub at: usize,
    pub left: usize,
    /// The number of the message; `None` for a part of a multicast's body, which is not paced.
    pub transfer: Option<u32>,
    /// The position in the body up to which the pacer has counted.
    pub counted: usize,
    pub then: OnComplete,
}

/// The state of the receiving direction: the bytes that have been read and not handled.
pub(super) struct ReceiveState {
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    incoming: Option<Incoming>,
    /// How many bytes have been read, and how many of them have been acknowledged.
    pub receipts: AckTracker,
    /// Whether the socket may have more bytes.
    pub readable: bool,
    /// Whether the other side has closed. The last bytes that it sent may still have to be read.
    pub ended: bool,
    /// Whether there is no memory for the next message.
    pub stalled: bool,
    /// Whether the last body was long. If so, an encrypted link reads only few bytes ahead, until their destination is
    /// known.
    long: bool,
}

impl Default for ReceiveState {
    fn default() -> ReceiveState {
        ReceiveState {
            buffer: Vec::new(),
            start: 0,
            end: 0,
            incoming: None,
            receipts: AckTracker::new(ACKNOWLEDGED_EVERY),
            readable: true,
            ended: false,
            stalled: false,
            long: false,
        }
    }
}

/// What to do next.
enum Next {
    /// Read; at least this number of bytes is missing.
    Read(usize),
    /// Continue.
    Again,
    /// Stop: the daemon handles a frame first.
    Stop,
    /// Wait: there is no memory for the body. The window of one task (`FLOW_WINDOW_BYTES`) is small, so this can happen
    /// only if the host is short of memory. The link waits for memory, as senders on this host do.
    Stall,
}

impl ReceiveState {
    fn filled(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    fn consume(&mut self, bytes: usize) {
        self.start += bytes;
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
    }

    /// Copies into the block the part of the body that has been read. Returns whether the body is complete.
    fn fill_block(&mut self) -> bool {
        let Some(incoming) = &mut self.incoming else { return false };
        let count = incoming.left.min(self.end - self.start);
        if count > 0 {
            if let Some(block) = &incoming.block {
                block.write(incoming.at, &self.buffer[self.start..self.start + count]);
            }
            (incoming.at, incoming.left) = (incoming.at + count, incoming.left - count);
            let left = incoming.left;
            self.consume(count);
            return left == 0;
        }
        incoming.left == 0
    }

    /// Drops the rest of a part of this body, if one is being read.
    pub fn drop_part(&mut self, key: BodyKey) {
        let is_part =
            |incoming: &Incoming| matches!(incoming.then, OnComplete::AddPart { key: other, .. } if other == key);
        if let Some(incoming) = self.incoming.as_mut().filter(|incoming| is_part(incoming)) {
            (incoming.block, incoming.then) = (None, OnComplete::Drop);
        }
    }

    /// Reads once. Returns how many bytes were read, and notes whether the socket may have more.
    fn read(&mut self, stream: &mut ByteStream, least: usize) -> Result<usize, LinkError> {
        let count = self.read_some(stream, least)?;
        self.receipts.count_received(count as u64);
        Ok(count)
    }

    fn read_some(&mut self, stream: &mut ByteStream, least: usize) -> Result<usize, LinkError> {
        stream.expect_more();
        if let Some(count) = self.read_to_block(stream)? {
            return Ok(count);
        }
        if let Some(count) = self.read_decrypted(stream)? {
            return Ok(count);
        }
        self.buffer.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.end - self.start);
        let ahead = if self.long && stream.is_encrypted() { BEHIND_BYTES } else { READ_BYTES };
        let wanted = self.end + least.max(ahead);
        if self.buffer.len() < wanted {
            self.buffer.resize(wanted, 0);
        }
        let count = stream.read(&mut self.buffer[self.end..wanted])?;
        self.readable = match stream.is_encrypted() {
            true => count > 0 && !stream.is_drained() || stream.has_unread() || self.ends(),
            // A socket that returns less than was asked for is empty; `epoll` reports when it has more.
            false => self.end + count == wanted || stream.has_unread() || self.ends(),
        };
        self.end += count;
        Ok(count)
    }

    /// Returns true a single time after the other side has closed, so that one more read finds the end.
    fn ends(&mut self) -> bool {
        std::mem::take(&mut self.ended)
    }

    /// Reads the rest of a body directly into its block, if the link is in clear.
    fn read_to_block(&mut self, stream: &mut ByteStream) -> Result<Option<usize>, LinkError> {
        let Some(Incoming { block: Some(block), at, left, .. }) = &mut self.incoming else { return Ok(None) };
        if stream.plain_socket().is_none() {
            return Ok(None);
        }
        if self.buffer.len() < BEHIND_BYTES {
            self.buffer.resize(BEHIND_BYTES, 0);
        }
        let wanted = *left + BEHIND_BYTES;
        let count = match block.read_from(stream.as_fd(), *at, *left, &mut self.buffer[..BEHIND_BYTES]) {
            Ok(0) => return Err(LinkError::Closed),
            Ok(count) => count,
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => 0,
            Err(error) => return Err(Errno::from_io_error(&error).map_or(LinkError::Closed, LinkError::from)),
        };
        let body = count.min(*left);
        (*at, *left) = (*at + body, *left - body);
        (self.start, self.end) = (0, count - body);
        self.readable = count == wanted || self.ends();
        Ok(Some(count))
    }

    /// Copies the rest of a body of an encrypted link into its block as it is decrypted.
    fn read_decrypted(&mut self, stream: &mut ByteStream) -> Result<Option<usize>, LinkError> {
        let incoming = self.incoming.as_mut().filter(|_| stream.is_encrypted());
        let Some(Incoming { block: Some(block), at, left, .. }) = incoming else { return Ok(None) };
        let count = stream.read_by(*left, &mut |bytes| {
            block.write(*at, bytes);
            *at += bytes.len();
        })?;
        *left -= count;
        self.readable = count > 0 && !stream.is_drained() || stream.has_unread() || self.ends();
        Ok(Some(count))
    }

    /// Frees the memory that a long frame has needed.
    fn release(&mut self) {
        if self.start == self.end && self.buffer.len() > READ_BYTES {
            self.buffer = Vec::new();
        }
    }
}

impl Route {
    /// Handles the frames that have arrived from a host. Returns whether an immediate further call may find more
    /// frames.
    pub(super) fn receive_from(&mut self, host: Tid, context: &mut dyn RouteContext) -> Result<bool, LinkFailure> {
        let result = self.receive_frames(host, context);
        self.count_incoming(host);
        result
    }

    /// Tells the pacer how much of the body that is being read has arrived.
    fn count_incoming(&mut self, host: Tid) {
        let incoming = self.data_links.get_mut(&host).and_then(|data_link| data_link.receive.incoming.as_mut());
        if let Some(Incoming { at, transfer, counted, .. }) = incoming {
            let bytes = *at - std::mem::replace(counted, *at);
            if let Some(transfer) = transfer {
                self.pacer.handle_bytes(host, *transfer, bytes);
            }
        }
    }

    /// Returns after how many bytes a step reads no more from one link.
    fn step_bytes(&self) -> usize {
        if self.egress_flows.flows.is_relaying() { RELAY_STEP_BYTES } else { STEP_BYTES }
    }

    fn receive_frames(&mut self, host: Tid, context: &mut dyn RouteContext) -> Result<bool, LinkFailure> {
        let (mut taken, mut reads) = (0, 0);
        while taken < self.step_bytes() && reads < STEP_READS && self.undelivered.is_empty() {
            let Some(data_link) = self.data_links.get_mut(&host) else { return Ok(false) };
            let next = match data_link.receive.incoming.is_some() {
                true if data_link.receive.fill_block() => {
                    self.on_body_complete(host, context)?;
                    Next::Again
                }
                true => Next::Read(1),
                false => self.next_head(host, context)?,
            };
            let Some(data_link) = self.data_links.get_mut(&host) else { return Ok(false) };
            data_link.receive.stalled = false;
            match next {
                Next::Again => {}
                Next::Stop => return Ok(true),
                Next::Stall => {
                    data_link.receive.stalled = true;
                    return Ok(false);
                }
                Next::Read(least) => match data_link.connection().filter(|(_, receive, _)| receive.readable) {
                    Some((stream, receive, _)) => {
                        taken += receive.read(stream, least)?;
                        reads += 1;
                    }
                    None => {
                        data_link.receive.release();
                        return Ok(false);
                    }
                },
            }
        }
        Ok(self.undelivered.is_empty())
    }

    /// Handles the next frame, or its beginning.
    fn next_head(&mut self, host: Tid, context: &mut dyn RouteContext) -> Result<Next, LinkFailure> {
        let Some(data_link) = self.data_links.get_mut(&host) else { return Ok(Next::Again) };
        let receive = &mut data_link.receive;
        let Some((head, head_bytes)) = read_header(receive.filled())? else { return Ok(Next::Read(1)) };
        let there = receive.end - receive.start - head_bytes;
        match head {
            FrameHeader::Credit { dst, bytes } => {
                receive.consume(head_bytes);
                if dst.host() != host {
                    return Err(LinkFailure::ProtocolViolation);
                }
                self.egress_flows.flows.credit(dst, bytes);
                Ok(Next::Again)
            }
            FrameHeader::Acknowledged { position } => {
                receive.consume(head_bytes);
                receive.receipts.count_acknowledgement(ACKNOWLEDGED_BYTES as u64);
                data_link.transmit.acknowledged(position)?;
                Ok(Next::Again)
            }
            FrameHeader::Grant { up_to } => {
                receive.consume(head_bytes);
                self.egress_flows.flows.grant(host, up_to);
                Ok(Next::Again)
            }
            FrameHeader::InBand { bytes, .. } if there < bytes => Ok(Next::Read(bytes - there)),
            FrameHeader::InBand { bytes, .. } => self.next_frame(host, head_bytes, bytes, context),
            FrameHeader::Mark { dst, count } => {
                receive.consume(head_bytes);
                if dst.host() != self.own || !dst.is_task() {
                    return Err(LinkFailure::ProtocolViolation);
                }
                self.intake.arrivals.marked(host, dst, count)?;
                Ok(Next::Again)
            }
            FrameHeader::Request { key, request } => {
                receive.consume(head_bytes);
                self.on_body_request(host, key, request)?;
                Ok(Next::Again)
            }
            FrameHeader::Announce { header, announcement }
                if announcement.key.origin != host || !has_valid_addresses(host, self.own, &header) =>
            {
                Err(LinkFailure::ProtocolViolation)
            }
            FrameHeader::Announce { header, announcement } => {
                let Ok(block) = self.allocate(&header, context) else { return Ok(Next::Stall) };
                if let Some(data_link) = self.data_links.get_mut(&host) {
                    data_link.receive.consume(head_bytes);
                }
                self.on_announcement(host, header, announcement, block, context)?;
                Ok(Next::Again)
            }
            FrameHeader::Part { key, at, bytes } => {
                receive.consume(head_bytes);
                receive.long = true;
                let incoming = self.place_part(host, key, at, bytes);
                if let Some(data_link) = self.data_links.get_mut(&host) {
                    data_link.receive.incoming = Some(incoming);
                }
                Ok(Next::Again)
            }
            FrameHeader::Start { header, .. } if !has_valid_addresses(host, self.own, &header) => {
                Err(LinkFailure::ProtocolViolation)
            }
            FrameHeader::Start { header, .. } if is_short(header.bytes) => {
                if there < header.bytes {
                    return Ok(Next::Read(header.bytes - there));
                }
                receive.long = false;
                let body = receive.filled()[head_bytes..head_bytes + header.bytes].to_vec();
                receive.consume(head_bytes + header.bytes);
                self.intake.admit(host, &header)?;
                self.deliver(host, &header, &Payload::Short(body), context);
                Ok(Next::Again)
            }
            FrameHeader::Start { transfer, header, first } => {
                let Ok(block) = self.allocate(&header, context) else { return Ok(Next::Stall) };
                let Some(data_link) = self.data_links.get_mut(&host) else { return Ok(Next::Again) };
                let receive = &mut data_link.receive;
                receive.consume(head_bytes);
                self.intake.admit(host, &header)?;
                self.pacer.handle_start(host, transfer, header.bytes);
                let whole = first == header.bytes;
                let then = if whole { OnComplete::Deliver(header) } else { OnComplete::Begin { transfer, header } };
                receive.long = true;
                receive.incoming =
                    Some(Incoming { block, at: 0, left: first, transfer: Some(transfer), counted: 0, then });
                Ok(Next::Again)
            }
            FrameHeader::Chunk { transfer, bytes } => {
                let chunk = self.intake.chunk_place(host, transfer, bytes)?;
                let (block, at, then) = (chunk.block.clone(), chunk.at, OnComplete::Add { transfer, bytes });
                let incoming = Incoming { block, at, left: bytes, transfer: Some(transfer), counted: at, then };
                receive.consume(head_bytes);
                receive.long = true;
                receive.incoming = Some(incoming);
                Ok(Next::Again)
            }
        }
    }

    /// Passes on an in-band frame that has arrived. What it causes comes after all that the host has sent before.
    fn next_frame(
        &mut self,
        host: Tid,
        head_bytes: usize,
        bytes: usize,
        context: &mut dyn RouteContext,
    ) -> Result<Next, LinkFailure> {
        self.make_gaps(host, None, context);
        if !self.undelivered.is_empty() {
            return Ok(Next::Stall);
        }
        let Some(data_link) = self.data_links.get_mut(&host) else { return Ok(Next::Again) };
        let receive = &mut data_link.receive;
        let frame = receive.filled()[head_bytes..head_bytes + bytes].to_vec();
        receive.consume(head_bytes + bytes);
        self.on_frame(host, &frame)?;
        Ok(Next::Stop)
    }

    fn on_body_complete(&mut self, host: Tid, context: &mut dyn RouteContext) -> Result<(), ProtocolViolation> {
        self.count_incoming(host);
        let Some(data_link) = self.data_links.get_mut(&host) else { return Ok(()) };
        let Some(Incoming { block, at, then, .. }) = data_link.receive.incoming.take() else { return Ok(()) };
        match then {
            OnComplete::Deliver(header) => self.deliver_long(host, &header, block, context),
            OnComplete::Begin { transfer, header } => self.intake.begin(host, transfer, header, block, at)?,
            OnComplete::Add { transfer, bytes } => {
                if let Some((header, block)) = self.intake.chunk_placed(host, transfer, bytes) {
                    self.deliver_long(host, &header, block, context);
                }
            }
            OnComplete::AddPart { key, at, bytes } => self.on_part(host, key, at, bytes, context),
            OnComplete::Drop => {}
        }
        Ok(())
    }

    /// Allocates the memory for the body of a message. A message without a receiver needs none, and must not wait for
    /// any.
    fn allocate(&mut self, header: &MessageHeader, context: &dyn RouteContext) -> Result<Option<Block>, NoMemory> {
        match header.receivers().any(|dst| context.accepts_messages(dst)) {
            false => Ok(None),
            true => self.endpoint.allocate(header.bytes).map(Some),
        }
    }

    fn deliver_long(
        &mut self,
        host: Tid,
        header: &MessageHeader,
        block: Option<Block>,
        context: &mut dyn RouteContext,
    ) {
        match block {
            Some(block) => self.deliver(host, header, &Payload::Block(block), context),
            None => header.receivers().for_each(|dst| self.intake.dropped(dst, host, header.bytes)),
        }
    }
}

/// Returns whether a host may send this message: the sender is a task of that host, and all receivers are tasks of this
/// host.
fn has_valid_addresses(host: Tid, own: Tid, header: &MessageHeader) -> bool {
    let named_well = header.src.host() == host && header.src.is_task();
    named_well && header.receivers().all(|dst| dst.host() == own && dst.is_task())
}

#[cfg(test)]
mod tests {
    use super::*;
    use pvm_core::tid::{DAEMON_BIT, GROUP_BIT};

    #[test]
    fn a_host_sends_for_its_own_tasks_alone_and_not_in_the_name_of_its_daemon() {
        let (host, own) = (Tid::host_number(2), Tid::host_number(3));
        let header = |src, dst| MessageHeader { src, dst, others: Vec::new(), meta: [0; 5], bytes: 1 };
        let (task, receiver) = (Tid(host.0 | 1), Tid(own.0 | 1));
        assert!(has_valid_addresses(host, own, &header(task, receiver)));
        for src in [host, Tid::DAEMON, Tid(task.0 | DAEMON_BIT), Tid(task.0 | GROUP_BIT), receiver, Tid::NONE] {
            assert!(!has_valid_addresses(host, own, &header(src, receiver)), "{src}");
        }
        for dst in [own, Tid(receiver.0 | DAEMON_BIT), task, Tid::NONE] {
            assert!(!has_valid_addresses(host, own, &header(task, dst)), "{dst}");
        }
    }
}
