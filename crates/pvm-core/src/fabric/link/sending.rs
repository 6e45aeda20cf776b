//! Which frame is sent next.
use super::super::frame::{EAGER_HEAD_BYTES, PART_HEAD_BYTES, eager_head, part_head};
use super::{
    BodyPart, Form, HEADER_BYTES, Header, Kept, Kind, Lacking, Link, Message, OFFER_BYTES, Offered, PIECE_TAG_BYTES,
    Piece, Ready,
};

/// What is next of the messages.
struct Next<'a> {
    kind: Kind,
    /// What follows the header.
    fields: [u8; OFFER_BYTES],
    fields_bytes: usize,
    content: &'a [u8],
    body: Option<BodyPart>,
}

impl<'a> Next<'a> {
    fn new(kind: Kind, content: &'a [u8]) -> Next<'a> {
        Next { kind, fields: [0; OFFER_BYTES], fields_bytes: 0, content, body: None }
    }

    fn with(mut self, fields: &[u8]) -> Next<'a> {
        self.fields[..fields.len()].copy_from_slice(fields);
        self.fields_bytes = fields.len();
        self
    }
}

impl Link {
    /// Returns the piece that is to be made ready next, if the peer has a buffer for its frame.
    pub fn lacking(&self) -> Option<Lacking> {
        let next =
            self.kept.get(self.in_flight).filter(|next| next.form == Form::InPieces && self.next_piece.is_none())?;
        let Message::Long(_, whole) = next.message else { return None };
        (self.counted_sent < self.allowed).then_some(Lacking {
            message: self.taken_by_peer + self.in_flight as u64,
            number: self.pieces_sent,
            at: self.offered_bytes,
            bytes: whole.bytes - self.offered_bytes,
        })
    }

    /// Takes the piece that was lacking, with at least one byte and not more than were left.
    pub fn add_piece(&mut self, place: Offered, tag: [u8; PIECE_TAG_BYTES]) {
        let lacking = self.lacking().expect("a piece is lacking");
        assert!((1..=lacking.bytes).contains(&place.bytes), "the piece fits its body");
        self.next_piece = Some(Piece { body_bytes: lacking.at + lacking.bytes, place, tag });
    }

    /// Returns the next frame, if there is something to send and the peer has a buffer for it. `seal_bytes` are added to
    /// each frame.
    pub fn ready(&mut self, seal_bytes: usize) -> Option<Ready<'_>> {
        let has_credit = self.counted_sent < self.allowed;
        let frame_bytes = self.short_bytes_max(seal_bytes);
        let count = if has_credit { self.gather(frame_bytes) } else { 0 };
        let grant = (self.grantable() >= self.grant_step()).then_some(Kind::Grant);
        let next = match self.next_to_send(frame_bytes).filter(|_| has_credit) {
            Some(_) if count > 1 => Next::new(Kind::Several, &self.several),
            Some(next) => next,
            None if has_credit && self.tells_wanted() => Next::new(Kind::Wanted, self.wanted.as_deref().unwrap_or(&[])),
            None if has_credit && self.owes_taken => Next::new(grant.unwrap_or(Kind::Taken), &[]),
            None => Next::new(grant?, &[]),
        };
        let header = Header {
            link: self.peer_link,
            kind: next.kind,
            wishes: self.wishes,
            serial: self.frames_sent,
            allowed: (self.counted_received + u64::from(self.credits)) as u32,
            taken: self.pieces_taken() as u32,
        };
        let mut ready = Ready {
            head: [0; HEADER_BYTES + OFFER_BYTES],
            head_bytes: HEADER_BYTES + next.fields_bytes,
            content: next.content,
            body: next.body,
            serial: self.frames_sent,
        };
        ready.head[..HEADER_BYTES].copy_from_slice(&header.bytes());
        ready.head[HEADER_BYTES..].copy_from_slice(&next.fields);
        let amount = if next.kind == Kind::Several { count } else { next.body.map_or(0, |part| part.bytes) };
        self.prepared.set(Some((next.kind, amount)));
        Some(ready)
    }

    /// Puts the next messages together, as many as fit into this many bytes. Returns their number, if there are several;
    /// if not, nothing was done.
    fn gather(&mut self, bytes_max: usize) -> usize {
        let mut count = 0;
        if self.kept.len() < self.in_flight + 2 {
            return count;
        }
        self.several.clear();
        for Kept { message, form } in self.kept.range(self.in_flight..) {
            let (kind, content, piece) = match message {
                Message::Short(content) => (Kind::Short, content, None),
                Message::Long(..) if *form != Form::Whole => break,
                Message::Long(content, place) => (Kind::Offer, content, Some(Piece::whole(*place).bytes())),
            };
            let fields = piece.as_ref().map_or(&[][..], |piece| &piece[..]);
            if self.several.len() + PART_HEAD_BYTES + fields.len() + content.len() > bytes_max {
                break;
            }
            self.several.extend_from_slice(&part_head(kind, fields.len() + content.len()));
            self.several.extend_from_slice(fields);
            self.several.extend_from_slice(content);
            count += 1;
        }
        count
    }

    /// Returns what is next of the messages. `frame_bytes`: how many bytes may follow the header.
    fn next_to_send(&self, frame_bytes: usize) -> Option<Next<'_>> {
        let next = self.kept.get(self.in_flight)?;
        let (content, whole) = match &next.message {
            Message::Short(content) => return Some(Next::new(Kind::Short, content)),
            Message::Long(content, whole) => (content, whole),
        };
        let is_first = self.offered_bytes == 0;
        Some(match next.form {
            Form::Whole => Next::new(Kind::Offer, content).with(&Piece::whole(*whole).bytes()),
            Form::InPieces if is_first => Next::new(Kind::Offer, content).with(&self.next_piece?.bytes()),
            Form::InPieces => Next::new(Kind::Piece, &[]).with(&self.next_piece?.bytes()),
            Form::Eager => {
                let (at, left) = (self.offered_bytes as usize, (whole.bytes - self.offered_bytes) as usize);
                let (frame, room) = match is_first {
                    true => {
                        let head = eager_head(whole.bytes, content.len());
                        (Next::new(Kind::Eager, content).with(&head), frame_bytes - EAGER_HEAD_BYTES - content.len())
                    }
                    false => (Next::new(Kind::More, &[]), frame_bytes),
                };
                Next { body: Some(BodyPart { at, bytes: left.min(room), is_last: left <= room }), ..frame }
            }
        })
    }

    /// Records that the frame of [`Link::ready`] was sent.
    pub fn sent(&mut self) {
        let Some((kind, amount)) = self.prepared.take() else { return };
        self.frames_sent += 1;
        self.counted_sent += u64::from(kind != Kind::Grant);
        match kind {
            Kind::Several => (0..amount).for_each(|_| self.message_sent()),
            Kind::Short | Kind::Offer | Kind::Piece => match self.next_piece.take() {
                Some(piece) if self.offered_bytes + piece.place.bytes < piece.body_bytes => {
                    self.offered_bytes += piece.place.bytes;
                    self.pieces_sent += 1;
                }
                _ => self.message_sent(),
            },
            Kind::Eager | Kind::More => {
                self.offered_bytes += amount as u64;
                let next = self.kept.get(self.in_flight).map(|kept| &kept.message);
                if matches!(next, Some(Message::Long(_, whole)) if whole.bytes == self.offered_bytes) {
                    self.message_sent();
                }
            }
            Kind::Wanted => self.wanted = None,
            Kind::Grant | Kind::Taken => {}
        }
        self.told_allowed = self.counted_received + u64::from(self.credits);
        self.told_taken = self.pieces_taken();
        self.owes_taken = false;
        self.untold_bytes = 0;
        self.has_untold_piece &= !self.arrivals.is_empty();
    }

    /// Records that a message, or the last piece of its body, was sent.
    fn message_sent(&mut self) {
        self.pieces_sent += 1;
        self.in_flight += 1;
        self.offered_bytes = 0;
        self.ends.push_back(self.pieces_sent);
    }
}
