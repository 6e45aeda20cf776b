//! What comes in on a data link.
use super::{Around, Cargo, Failure, Route, is_short};
use pvm_core::flows::frames::{ACKNOWLEDGED_BYTES, FrameHeader, read_header};
use pvm_core::flows::{AckTracker, MessageHeader, ProtocolViolation};
use pvm_core::tid::Tid;
use pvm_fmp::Block;
use pvm_net::{LinkError, Pipe};
use rustix::io::Errno;
use std::io;
use std::os::fd::AsFd;

/// Bytes read in one go where it is not known what will come.
const READ_BYTES: usize = 64 << 10;
/// Bytes read behind the end of a body: the head of the next frame, and hardly more of its body.
const BEHIND_BYTES: usize = 256;
/// Bytes taken from one link before others have their turn.
const TURN_BYTES: usize = 1 << 20;
/// The same in reads: encrypted bytes can be much work and few bytes.
const TURN_READS: usize = 64;
/// The other side, which keeps what it has sent, is told each time that so many bytes have come; earlier where
/// something goes there anyway.
const ACKNOWLEDGED_EVERY: u64 = 128 << 10;

/// What is to be done with a body when it is there.
enum Then {
    /// It is the whole message.
    Deliver(MessageHeader),
    /// More of it will come.
    Begin { transfer: u32, header: MessageHeader },
    /// It is more of a message.
    Add { transfer: u32, bytes: usize },
}

/// A body, or a piece of one, on its way to its block.
struct Incoming {
    /// Absent for a message for nobody: that is read and dropped.
    block: Option<Block>,
    at: usize,
    left: usize,
    then: Then,
}

/// What has been read and not dealt with.
pub(super) struct Inlet {
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    incoming: Option<Incoming>,
    /// How much has been read.
    pub receipts: AckTracker,
    /// The socket may have more.
    pub readable: bool,
    /// The peer has closed; what it sent before is still to be read.
    pub ended: bool,
    /// The next message finds no memory.
    pub stalled: bool,
    /// Long bodies come: what follows one is not read before it is known where it belongs.
    long: bool,
}

impl Default for Inlet {
    fn default() -> Inlet {
        Inlet {
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
    /// Read more; so many bytes at least are missing.
    Read(usize),
    /// Go on.
    Again,
    /// A frame has come: the daemon deals with it first.
    Stop,
    /// There is no memory for what comes: the host has none to spare, whatever is on its way to a single task
    /// (`FLOW_WINDOW_BYTES`). The link waits for some, as the senders of this host do.
    Stall,
}

impl Inlet {
    fn filled(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    fn consume(&mut self, bytes: usize) {
        self.start += bytes;
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
    }

    /// Moves what has been read of the body into its block; says whether it is all there.
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

    /// Reads once; gives how many bytes came, and notes whether the socket may have more.
    fn read(&mut self, pipe: &mut Pipe, least: usize) -> Result<usize, LinkError> {
        let count = self.read_some(pipe, least)?;
        self.receipts.count_received(count as u64);
        Ok(count)
    }

    fn read_some(&mut self, pipe: &mut Pipe, least: usize) -> Result<usize, LinkError> {
        if let Some(count) = self.read_straight(pipe)? {
            return Ok(count);
        }
        if let Some(count) = self.read_decrypted(pipe)? {
            return Ok(count);
        }
        self.buffer.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.end - self.start);
        let ahead = if self.long && pipe.is_encrypted() { BEHIND_BYTES } else { READ_BYTES };
        let wanted = self.end + least.max(ahead);
        if self.buffer.len() < wanted {
            self.buffer.resize(wanted, 0);
        }
        let count = pipe.read(&mut self.buffer[self.end..wanted])?;
        self.readable = match pipe.is_encrypted() {
            true => count > 0 || pipe.has_unread() || self.ends(),
            // A socket that gives less than asked for is empty, and tells when it no longer is.
            false => self.end + count == wanted || pipe.has_unread() || self.ends(),
        };
        self.end += count;
        Ok(count)
    }

    /// Whether the peer has closed, told once: one more read then finds the end.
    fn ends(&mut self) -> bool {
        std::mem::take(&mut self.ended)
    }

    /// Reads the rest of a body to where it belongs, if the link lets us.
    fn read_straight(&mut self, pipe: &mut Pipe) -> Result<Option<usize>, LinkError> {
        let Some(Incoming { block: Some(block), at, left, .. }) = &mut self.incoming else { return Ok(None) };
        if pipe.plain_socket().is_none() {
            return Ok(None);
        }
        if self.buffer.len() < BEHIND_BYTES {
            self.buffer.resize(BEHIND_BYTES, 0);
        }
        let wanted = *left + BEHIND_BYTES;
        let count = match block.read_from(pipe.as_fd(), *at, *left, &mut self.buffer[..BEHIND_BYTES]) {
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

    /// The same on an encrypted link: from where it was decrypted.
    fn read_decrypted(&mut self, pipe: &mut Pipe) -> Result<Option<usize>, LinkError> {
        let incoming = self.incoming.as_mut().filter(|_| pipe.is_encrypted());
        let Some(Incoming { block: Some(block), at, left, .. }) = incoming else { return Ok(None) };
        let count = pipe.read_by(*left, &mut |bytes| {
            block.write(*at, bytes);
            *at += bytes.len();
        })?;
        *left -= count;
        self.readable = count > 0 || pipe.has_unread() || self.ends();
        Ok(Some(count))
    }

    /// Gives back what a long frame has needed.
    fn release(&mut self) {
        if self.start == self.end && self.buffer.len() > READ_BYTES {
            self.buffer = Vec::new();
        }
    }
}

impl Route {
    /// Takes what has come from a host; says whether there may be more at once.
    pub(super) fn pull(&mut self, host: Tid, around: &mut dyn Around) -> Result<bool, Failure> {
        let (mut taken, mut reads) = (0, 0);
        while taken < TURN_BYTES && reads < TURN_READS && self.undelivered.is_empty() {
            let Some(cable) = self.cables.get_mut(&host) else { return Ok(false) };
            let next = match cable.inlet.incoming.is_some() {
                true if cable.inlet.fill_block() => {
                    self.body_is_there(host, around)?;
                    Next::Again
                }
                true => Next::Read(1),
                false => self.next_head(host, around)?,
            };
            let Some(cable) = self.cables.get_mut(&host) else { return Ok(false) };
            cable.inlet.stalled = false;
            match next {
                Next::Again => {}
                Next::Stop => return Ok(true),
                Next::Stall => {
                    cable.inlet.stalled = true;
                    return Ok(false);
                }
                Next::Read(least) => match cable.connection().filter(|(_, inlet, _)| inlet.readable) {
                    Some((pipe, inlet, _)) => {
                        taken += inlet.read(pipe, least)?;
                        reads += 1;
                    }
                    None => {
                        cable.inlet.release();
                        return Ok(false);
                    }
                },
            }
        }
        Ok(self.undelivered.is_empty())
    }

    /// Deals with the next frame, or with the beginning of it.
    fn next_head(&mut self, host: Tid, around: &mut dyn Around) -> Result<Next, Failure> {
        let Some(cable) = self.cables.get_mut(&host) else { return Ok(Next::Again) };
        let inlet = &mut cable.inlet;
        let Some((head, head_bytes)) = read_header(inlet.filled())? else { return Ok(Next::Read(1)) };
        let there = inlet.end - inlet.start - head_bytes;
        match head {
            FrameHeader::Credit { dst, bytes } => {
                inlet.consume(head_bytes);
                if dst.host() != host {
                    return Err(Failure::Strange);
                }
                self.departures.flows.credit(dst, bytes);
                Ok(Next::Again)
            }
            FrameHeader::Acknowledged { position } => {
                inlet.consume(head_bytes);
                inlet.receipts.count_acknowledgement(ACKNOWLEDGED_BYTES as u64);
                cable.outlet.acknowledged(position)?;
                Ok(Next::Again)
            }
            FrameHeader::InBand { bytes, .. } if there < bytes => Ok(Next::Read(bytes - there)),
            FrameHeader::InBand { bytes, .. } => {
                let frame = inlet.filled()[head_bytes..head_bytes + bytes].to_vec();
                inlet.consume(head_bytes + bytes);
                self.frame(host, &frame)?;
                Ok(Next::Stop)
            }
            FrameHeader::Start { header, .. } if !is_proper(host, self.own, &header) => Err(Failure::Strange),
            FrameHeader::Start { header, .. } if is_short(header.bytes) => {
                if there < header.bytes {
                    return Ok(Next::Read(header.bytes - there));
                }
                inlet.long = false;
                let body = inlet.filled()[head_bytes..head_bytes + header.bytes].to_vec();
                inlet.consume(head_bytes + header.bytes);
                self.intake.admit(host, &header)?;
                self.deliver(host, &header, &Cargo::Short(body), around);
                Ok(Next::Again)
            }
            FrameHeader::Start { transfer, header, first } => {
                // What is for nobody needs no memory, and must not wait for it.
                let block = match header.receivers().any(|dst| around.takes(dst)) {
                    false => None,
                    true => match self.endpoint.allocate(header.bytes) {
                        Ok(block) => Some(block),
                        Err(_) => return Ok(Next::Stall),
                    },
                };
                inlet.consume(head_bytes);
                self.intake.admit(host, &header)?;
                let whole = first == header.bytes;
                let then = if whole { Then::Deliver(header) } else { Then::Begin { transfer, header } };
                inlet.long = true;
                inlet.incoming = Some(Incoming { block, at: 0, left: first, then });
                Ok(Next::Again)
            }
            FrameHeader::Chunk { transfer, bytes } => {
                let chunk = self.intake.chunk_place(host, transfer, bytes)?;
                let then = Then::Add { transfer, bytes };
                let incoming = Incoming { block: chunk.block.clone(), at: chunk.at, left: bytes, then };
                inlet.consume(head_bytes);
                inlet.long = true;
                inlet.incoming = Some(incoming);
                Ok(Next::Again)
            }
        }
    }

    fn body_is_there(&mut self, host: Tid, around: &mut dyn Around) -> Result<(), ProtocolViolation> {
        let Some(cable) = self.cables.get_mut(&host) else { return Ok(()) };
        let Some(Incoming { block, at, then, .. }) = cable.inlet.incoming.take() else { return Ok(()) };
        match then {
            Then::Deliver(header) => self.deliver_long(host, &header, block, around),
            Then::Begin { transfer, header } => self.intake.begin(host, transfer, header, block, at)?,
            Then::Add { transfer, bytes } => {
                if let Some((header, block)) = self.intake.chunk_placed(host, transfer, bytes) {
                    self.deliver_long(host, &header, block, around);
                }
            }
        }
        Ok(())
    }

    fn deliver_long(&mut self, host: Tid, header: &MessageHeader, block: Option<Block>, around: &mut dyn Around) {
        match block {
            Some(block) => self.deliver(host, header, &Cargo::Long(block), around),
            None => header.receivers().for_each(|dst| self.intake.dropped(dst, host, header.bytes)),
        }
    }
}

/// Whether that host may send that to us: for its own tasks, to ours.
fn is_proper(host: Tid, own: Tid, header: &MessageHeader) -> bool {
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
        assert!(is_proper(host, own, &header(task, receiver)));
        for src in [host, Tid::DAEMON, Tid(task.0 | DAEMON_BIT), Tid(task.0 | GROUP_BIT), receiver, Tid::NONE] {
            assert!(!is_proper(host, own, &header(src, receiver)), "{src}");
        }
        for dst in [own, Tid(receiver.0 | DAEMON_BIT), task, Tid::NONE] {
            assert!(!is_proper(host, own, &header(task, dst)), "{dst}");
        }
    }
}
