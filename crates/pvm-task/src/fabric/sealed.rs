//! Frames and pieces of bodies that only the two tasks of a link can read.
use pvm_core::fabric::{BodyMemory, HEADER_BYTES, Header, Link, Violation};
use pvm_net::{SECRET_BYTES, Seal, TAG_BYTES};

/// How many bytes longer a sealed frame is.
pub(super) const FRAME_SEAL_BYTES: usize = TAG_BYTES;
/// Numbers of pieces are distinguished from those of frames by this bit.
const OF_PIECE: u64 = 1 << 63;

/// The secrets of a link, which the daemons give to both tasks. One for each direction, so that no number is used twice
/// with one of them.
pub struct Secrets {
    /// Seals what this task sends.
    pub sending: [u8; SECRET_BYTES],
    /// Seals what the peer sends.
    pub receiving: [u8; SECRET_BYTES],
}

pub(super) struct Seals {
    sending: Seal,
    receiving: Seal,
}

impl Seals {
    pub fn new(secrets: &Secrets) -> Seals {
        Seals { sending: Seal::new(&secrets.sending, true), receiving: Seal::new(&secrets.receiving, true) }
    }

    /// Seals a frame, and writes it to `frame`, which has its length. The first part begins with the header, which is
    /// authenticated but not encrypted.
    pub fn seal_frame(&self, serial: u64, [first, parts @ ..]: [&[u8]; 3], frame: &mut [u8]) {
        let (header, fields) = first.split_at(HEADER_BYTES);
        self.sending.seal_to(serial, header, &[fields, parts[0], parts[1]], frame);
    }

    /// Opens a frame, and lets the link take it in; bytes of a body are opened into their place. Returns `None` if the frame is
    /// not the peer's, or a repetition by somebody else.
    pub fn take_in(
        &self,
        frame: &mut [u8],
        link: &mut Link,
        memory: &mut dyn BodyMemory,
    ) -> Option<Result<(), Violation>> {
        let (header, rest) = Header::read(frame).filter(|(header, _)| link.awaits(header.serial))?;
        let bytes = rest.len().checked_sub(TAG_BYTES)?;
        let Some(room) = link.room_for(&header, bytes, memory) else {
            let bytes = self.receiving.open(header.serial, HEADER_BYTES, frame)?.len();
            return Some(link.receive(&frame[..HEADER_BYTES + bytes], memory));
        };
        if self.receiving.open_to(header.serial, HEADER_BYTES, frame, room) {
            return Some(link.receive_written(&header, bytes, memory));
        }
        link.forget_room(bytes);
        None
    }

    /// Seals a piece of a body into other memory, and returns its tag, which travels in the frame.
    pub fn seal_piece(&self, number: u64, piece: &[u8], sealed: &mut [u8]) -> [u8; TAG_BYTES] {
        self.sending.seal_apart(OF_PIECE | number, piece, sealed)
    }

    /// Opens a piece in place. Returns false if it is not the peer's.
    pub fn open_piece(&self, number: u64, tag: [u8; TAG_BYTES], piece: &mut [u8]) -> bool {
        // Nothing was sealed if there is nothing; the frame has said so.
        piece.is_empty() || self.receiving.open_apart(OF_PIECE | number, tag, piece)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pvm_core::fabric::{ArrivedBody, Event, Introduction};

    const FRAME_BYTES: u32 = 400;
    const BODY_BYTES: usize = 1000;

    fn pair() -> [Link; 2] {
        let end =
            |link| Introduction { provider: "p".into(), address: vec![1], link, credits: 4, frame_bytes: FRAME_BYTES };
        [(1, 2), (2, 1)].map(|(ours, theirs)| Link::new(&end(ours), &end(theirs), 1 << 20).unwrap())
    }

    /// Puts all bodies into the same place.
    struct Place(Vec<u8>);

    impl BodyMemory for Place {
        fn reserve(&mut self, bytes: usize, _: Option<(u64, &[u8])>) -> Option<ArrivedBody> {
            self.0 = vec![0; bytes];
            Some(ArrivedBody::Placed { bytes })
        }

        fn part(&mut self, at: usize, bytes: usize) -> Option<&mut [u8]> {
            self.0.get_mut(at..at + bytes)
        }
    }

    #[test]
    fn a_forged_frame_amid_a_body_is_dropped_and_the_body_arrives_whole() {
        let body: Vec<u8> = (0..BODY_BYTES).map(|at| at as u8).collect();
        let secrets = Secrets { sending: [1; SECRET_BYTES], receiving: [2; SECRET_BYTES] };
        let mirrored = Secrets { sending: secrets.receiving, receiving: secrets.sending };
        let (seals, peer_seals) = (Seals::new(&secrets), Seals::new(&mirrored));
        let mut place = Place(Vec::new());
        let memories: [&mut dyn BodyMemory; 2] = [&mut |bytes| Some(Vec::with_capacity(bytes)), &mut place];
        for memory in memories {
            let [mut one, mut other] = pair();
            one.send_eager(vec![7], BODY_BYTES);
            let mut refused = 0;
            while let Some(ready) = one.ready(FRAME_SEAL_BYTES) {
                let part = ready.body.map_or(&[][..], |part| &body[part.at..part.at + part.bytes]);
                let mut frame = vec![0; ready.head().len() + ready.content.len() + part.len() + FRAME_SEAL_BYTES];
                seals.seal_frame(ready.serial, [ready.head(), ready.content, part], &mut frame);
                assert!(!frame.windows(20).any(|bytes| body.windows(20).any(|part| part == bytes)));
                one.sent();
                for at in [0, HEADER_BYTES - 1, HEADER_BYTES, frame.len() / 2, frame.len() - 1] {
                    let mut forged = frame.clone();
                    forged[at] ^= 1;
                    refused += u32::from(peer_seals.take_in(&mut forged, &mut other, memory).is_none());
                }
                assert!(peer_seals.take_in(&mut frame[..HEADER_BYTES + 3].to_vec(), &mut other, memory).is_none());
                assert_eq!(peer_seals.take_in(&mut frame.clone(), &mut other, memory), Some(Ok(())));
                assert!(peer_seals.take_in(&mut frame, &mut other, memory).is_none(), "twice");
            }
            assert_eq!(refused, 5 * 3, "each forged frame of three");
            let arrived = std::iter::from_fn(|| other.poll_event()).last();
            let Some(Event::Message { content, body: arrived, .. }) = arrived else { panic!("{arrived:?}") };
            assert_eq!(content, [7]);
            assert!(arrived == ArrivedBody::Here(body.clone()) || arrived == ArrivedBody::Placed { bytes: BODY_BYTES });
        }
        assert_eq!(place.0, body);
    }
}
