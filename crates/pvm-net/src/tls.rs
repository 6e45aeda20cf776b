//! TLS 1.3 (RFC 8446) without a socket: the handshake, which rustls does, and then [`Records`].
use crate::buffer::Buffer;
use crate::keys::PublicKey;
use crate::records::{Clear, RECORD_EXTRA_BYTES, RECORD_HEAD_BYTES, RECORD_PAYLOAD_BYTES_MAX, Records};
use rustls::Error;
use rustls::client::UnbufferedClientConnection;
use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{ConnectionState, EncodeError, UnbufferedStatus};

/// A connection during its handshake.
pub(crate) enum Handshake {
    Client(UnbufferedClientConnection),
    Server(UnbufferedServerConnection),
}

impl Handshake {
    fn is_running(&self) -> bool {
        match self {
            Handshake::Client(connection) => connection.is_handshaking(),
            Handshake::Server(connection) => connection.is_handshaking(),
        }
    }

    fn wants_write(&self) -> bool {
        match self {
            Handshake::Client(connection) => connection.wants_write(),
            Handshake::Server(connection) => connection.wants_write(),
        }
    }

    /// Returns the peer's key, once the peer has proved to have it.
    fn peer(&self) -> Option<PublicKey> {
        let shown = match self {
            Handshake::Client(connection) => connection.peer_certificates(),
            Handshake::Server(connection) => connection.peer_certificates(),
        };
        PublicKey::from_info(shown?.first()?)
    }

    /// Takes one step. Returns how much of the input to discard, and what is needed next.
    fn step(&mut self, incoming: &mut [u8], out: &mut Buffer) -> (usize, Result<Step, Error>) {
        match self {
            Handshake::Client(connection) => act(connection.process_tls_records(incoming), out),
            Handshake::Server(connection) => act(connection.process_tls_records(incoming), out),
        }
    }

    fn into_records(self) -> Result<Records, Error> {
        match self {
            Handshake::Client(connection) => Records::of_client(connection),
            Handshake::Server(connection) => Records::of_server(connection),
        }
    }
}

/// A TLS connection without its socket.
pub(crate) struct Tls {
    stage: Stage,
    /// Bytes that were read from the socket and are not decrypted yet.
    cipher: Buffer,
}

enum Stage {
    /// The handshake goes on. rustls has seen this many bytes of the input, and expects them again until it discards them.
    Handshake(Box<Handshake>, usize),
    /// The handshake is complete: the peer has proved to have this key.
    Ready(PublicKey, Box<Records>),
    /// The connection has failed with this error; the peer has been notified. Nothing more is sent or received.
    Failed(Error, Option<PublicKey>),
}

/// What the protocol needs next.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    /// Another call.
    Again,
    /// More bytes from the peer.
    Idle,
    /// Nothing: the peer has closed.
    Closed,
}

impl Tls {
    pub fn new(handshake: Handshake) -> Tls {
        Tls { stage: Stage::Handshake(Box::new(handshake), 0), cipher: Buffer::default() }
    }

    /// Returns the buffer for bytes from the socket.
    pub fn cipher(&mut self) -> &mut Buffer {
        &mut self.cipher
    }

    /// Returns whether the handshake is complete.
    pub fn is_ready(&self) -> bool {
        self.peer().is_some()
    }

    /// Returns the peer's key, once the peer has proved to have it.
    pub fn peer(&self) -> Option<PublicKey> {
        match &self.stage {
            Stage::Handshake(..) => None,
            Stage::Ready(peer, _) => Some(*peer),
            Stage::Failed(_, peer) => *peer,
        }
    }

    /// Decrypts the bytes that have been read, and writes the answers that the protocol requires. Returns whether the
    /// peer may still send more.
    pub fn advance(&mut self, out: &mut Buffer, clear: &mut Clear<'_>) -> Result<bool, Error> {
        if let Stage::Failed(error, _) = &self.stage {
            return Err(error.clone());
        }
        let result = self.advance_by_stage(out, clear);
        if let Err(error) = &result {
            self.stage = Stage::Failed(error.clone(), self.peer());
        }
        result
    }

    fn advance_by_stage(&mut self, out: &mut Buffer, clear: &mut Clear<'_>) -> Result<bool, Error> {
        if let Stage::Handshake(handshake, shown) = &mut self.stage {
            if !shake_hands(handshake, shown, &mut self.cipher, out)? {
                return Ok(false);
            }
            if !handshake.is_running() {
                self.complete()?;
            }
        }
        match &mut self.stage {
            Stage::Ready(_, records) => records.decrypt(&mut self.cipher, out, clear),
            _ => Ok(true),
        }
    }

    /// Ends the handshake. Not a part of its caller, whose frame on the stack would grow by 4 KiB for all records.
    #[inline(never)]
    #[cold]
    fn complete(&mut self) -> Result<(), Error> {
        let stage = std::mem::replace(&mut self.stage, Stage::Failed(Error::HandshakeNotComplete, None));
        if let Stage::Handshake(handshake, _) = stage {
            let peer = handshake.peer().ok_or(Error::NoCertificatesPresented)?;
            self.stage = Stage::Ready(peer, Box::new(handshake.into_records()?));
        }
        Ok(())
    }

    /// Encrypts the parts of frames.
    pub fn encrypt(&mut self, parts: &[&[u8]], out: &mut Buffer) -> Result<(), Error> {
        let mut parts = parts.iter().copied();
        let bytes = parts.clone().map(<[u8]>::len).sum();
        let mut part: &[u8] = &[];
        let mut fill = |mut into: &mut [u8]| {
            while !into.is_empty() {
                if part.is_empty() {
                    part = parts.next().expect("as many bytes as there are");
                }
                let count = part.len().min(into.len());
                let (now, later) = into.split_at_mut(count);
                now.copy_from_slice(&part[..count]);
                (part, into) = (&part[count..], later);
            }
        };
        self.encrypt_by(bytes, &mut fill, out)
    }

    /// Encrypts `bytes` bytes. `fill` provides these bytes, a record at a time.
    pub fn encrypt_by(&mut self, bytes: usize, fill: &mut dyn FnMut(&mut [u8]), out: &mut Buffer) -> Result<(), Error> {
        match &mut self.stage {
            Stage::Handshake(..) => Err(Error::HandshakeNotComplete),
            Stage::Ready(_, records) => records.encrypt_by(bytes, fill, out),
            Stage::Failed(error, _) => Err(error.clone()),
        }
    }

    /// Encrypts a record of any type and content.
    #[cfg(any(test, fuzzing))]
    pub fn encrypt_record(&mut self, kind: u8, content: &[u8], out: &mut Buffer) {
        if let Stage::Ready(_, records) = &mut self.stage {
            records.seal(kind, content.len(), &mut |into| into.copy_from_slice(content), out).expect("a record");
        }
    }
}

/// Continues a handshake until it is complete, or nothing can be done before the peer sends more. Returns whether the peer
/// may still send.
#[cold]
fn shake_hands(
    handshake: &mut Handshake,
    shown: &mut usize,
    cipher: &mut Buffer,
    out: &mut Buffer,
) -> Result<bool, Error> {
    let mut open = true;
    // rustls gets the records one after another, and so none that comes after the handshake.
    loop {
        let (discard, step) = handshake.step(&mut cipher.filled_mut()[..*shown], out);
        cipher.consume(discard);
        *shown -= discard;
        match step {
            Ok(Step::Again) => {}
            Ok(Step::Idle) => match next_record(&cipher.filled()[*shown..]) {
                Some(bytes) if open && handshake.is_running() => *shown += bytes,
                _ => return Ok(open),
            },
            Ok(Step::Closed) => open = false,
            Err(error) => {
                // Sends the alert that may be pending, and does nothing else: rustls expects its input unchanged, and
                // takes no input while it has an alert to send. Further errors are ignored: the first error is reported.
                if handshake.wants_write() {
                    drop(handshake.step(&mut cipher.filled_mut()[..*shown], out));
                }
                return Err(error);
            }
        }
    }
}

/// Returns the length of the first record, if all of it is there; of everything if that is not TLS.
fn next_record(bytes: &[u8]) -> Option<usize> {
    let record = RECORD_HEAD_BYTES + usize::from(u16::from_be_bytes([*bytes.get(3)?, *bytes.get(4)?]));
    let is_tls = matches!(bytes, [20..=23, 3, ..]) && record <= RECORD_HEAD_BYTES + RECORD_PAYLOAD_BYTES_MAX;
    if is_tls { (record <= bytes.len()).then_some(record) } else { Some(bytes.len()) }
}

/// Takes one step of a handshake, for the calling or the called side. Returns how much of the input to discard, and what
/// is needed next.
fn act<Data>(status: UnbufferedStatus<'_, '_, Data>, out: &mut Buffer) -> (usize, Result<Step, Error>) {
    let UnbufferedStatus { discard, state } = status;
    let step = match state {
        Err(error) => Err(error),
        Ok(ConnectionState::EncodeTlsData(mut encode)) => {
            let mut least = RECORD_EXTRA_BYTES;
            loop {
                match encode.encode(out.space(least)) {
                    Ok(count) => {
                        out.commit(count);
                        break Ok(Step::Again);
                    }
                    Err(EncodeError::InsufficientSize(size)) => least = size.required_size,
                    Err(EncodeError::AlreadyEncoded) => break Ok(Step::Again),
                }
            }
        }
        Ok(ConnectionState::TransmitTlsData(transmit)) => {
            // The data is in `out` already.
            transmit.done();
            Ok(Step::Again)
        }
        Ok(ConnectionState::PeerClosed | ConnectionState::Closed) => Ok(Step::Closed),
        Ok(ConnectionState::BlockedHandshake | ConnectionState::WriteTraffic(_)) => Ok(Step::Idle),
        Ok(_) => Err(Error::General("a state of TLS that is never asked for".into())),
    };
    (discard, step)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::{Identity, small_provider};
    use crate::keys::KeyPair;
    use crate::records::REQUESTED;
    use rustls::crypto::{CipherSuiteCommon, CryptoProvider};
    use rustls::{AlertDescription, CipherSuite, SupportedCipherSuite, Tls13CipherSuite};
    use std::sync::Arc;

    /// The number of TLS records that one key may encrypt in this test.
    const LIMIT: u64 = 20;

    /// Returns a provider with one suite, whose keys must be renewed soon.
    fn short_lived_keys(suite: &SupportedCipherSuite) -> Arc<CryptoProvider> {
        let suite = suite.tls13().expect("a suite of TLS 1.3");
        let common = CipherSuiteCommon {
            suite: suite.common.suite,
            hash_provider: suite.common.hash_provider,
            confidentiality_limit: LIMIT,
        };
        let suite =
            Tls13CipherSuite { common, hkdf_provider: suite.hkdf_provider, aead_alg: suite.aead_alg, quic: suite.quic };
        let suites = vec![SupportedCipherSuite::Tls13(Box::leak(Box::new(suite)))];
        Arc::new(CryptoProvider { cipher_suites: suites, ..small_provider() })
    }

    /// Returns a provider with the suites that have these names, in this order.
    fn provider_of(names: &[CipherSuite]) -> Arc<CryptoProvider> {
        let all = small_provider().cipher_suites;
        let named = |name: &CipherSuite| all.iter().copied().find(|suite| suite.suite() == *name);
        Arc::new(CryptoProvider { cipher_suites: names.iter().filter_map(named).collect(), ..small_provider() })
    }

    /// Both ends of a connection without sockets: each end reads what the other end sends.
    struct Ends {
        tls: [Tls; 2],
        out: [Buffer; 2],
        plain: [Buffer; 2],
    }

    impl Ends {
        fn pass(&mut self) {
            for (from, to) in [(0, 1), (1, 0)] {
                let bytes = self.out[from].filled().to_vec();
                self.out[from].consume(bytes.len());
                self.tls[to].cipher().append(&bytes);
                let (out, plain) = (&mut self.out[to], &mut self.plain[to]);
                assert!(self.tls[to].advance(out, &mut Clear::new(0, &mut |_| {}, plain)).unwrap());
            }
        }

        fn send(&mut self, from: usize, data: &[u8]) {
            let out = &mut self.out[from];
            self.tls[from].encrypt(&[data], out).unwrap();
        }
    }

    /// Makes a connection between two hosts with these providers.
    fn ends(providers: [&Arc<CryptoProvider>; 2]) -> Ends {
        let [one, other] =
            providers.map(|provider| Identity::with_provider(KeyPair::generate().unwrap(), provider.clone()));
        other.known().add(one.public());
        let tls = [one.client(other.public()).unwrap(), other.server().unwrap()];
        let mut ends = Ends { tls, out: Default::default(), plain: Default::default() };
        let (out, plain) = (&mut ends.out[0], &mut ends.plain[0]);
        ends.tls[0].advance(out, &mut Clear::new(0, &mut |_| {}, plain)).unwrap();
        while !ends.tls.iter().all(Tls::is_ready) {
            ends.pass();
        }
        ends
    }

    /// Passes one record of this type and content to an end of a new connection. Returns the error there, and the one of
    /// the other end, which is told.
    fn answer_to(kind: u8, content: &[u8]) -> (Result<bool, Error>, Result<bool, Error>) {
        let provider = Arc::new(small_provider());
        let Ends { tls: [mut one, mut other], .. } = ends([&provider, &provider]);
        let advance = |to: &mut Tls, sent: &mut Buffer| {
            to.cipher().append(sent.filled());
            *sent = Buffer::default();
            to.advance(sent, &mut Clear::new(0, &mut |_| {}, &mut Buffer::default()))
        };
        let mut sent = Buffer::default();
        one.encrypt_record(kind, content, &mut sent);
        (advance(&mut other, &mut sent), advance(&mut one, &mut sent))
    }

    #[test]
    fn keys_that_wear_out_are_renewed_without_a_gap() {
        for suite in small_provider().cipher_suites {
            let provider = short_lived_keys(&suite);
            let mut ends = ends([&provider, &provider]);
            let data: Vec<u8> = (0..100_000_u32).map(|index| (index * 7) as u8).collect();
            for round in 0..10 * LIMIT as usize {
                let bytes = if round % 7 == 0 { data.len() } else { round };
                for from in 0..2 {
                    ends.send(from, &data[..bytes]);
                }
                ends.pass();
                for plain in &mut ends.plain {
                    assert!(plain.filled() == &data[..bytes], "round {round}: {} bytes", plain.len());
                    plain.consume(bytes);
                }
            }
        }
    }

    #[test]
    fn hosts_agree_on_the_first_cipher_of_the_caller_that_both_have() {
        let names = small_provider().cipher_suites.iter().map(SupportedCipherSuite::suite).collect::<Vec<_>>();
        for (of_caller, of_called) in [(&names[..], &names[1..]), (&names[1..], &names[..]), (&names[..], &names[..])] {
            let mut ends = ends([&provider_of(of_caller), &provider_of(of_called)]);
            let expected = of_caller.iter().find(|name| of_called.contains(name));
            for tls in &ends.tls {
                let Stage::Ready(_, records) = &tls.stage else { panic!("not ready") };
                assert_eq!(Some(&records.suite()), expected);
            }
            ends.send(0, b"text");
            ends.pass();
            assert_eq!(ends.plain[1].filled(), b"text");
        }
    }

    /// rustls asks for a renewal of the other side's keys each time it renews its own.
    #[test]
    fn another_implementation_of_tls_is_understood_also_when_it_renews_all_keys() {
        let data = vec![7; 100_000];
        for suite in small_provider().cipher_suites {
            let provider = provider_of(&[suite.suite()]);
            let [one, other] =
                [1, 2].map(|number| Identity::with_provider(KeyPair::from_secret(&[number; 32]), provider.clone()));
            other.known().add(one.public());
            let mut peer = rustls::ClientConnection::new(
                Arc::new(one.client_config(other.public()).unwrap()),
                rustls::pki_types::ServerName::try_from("hpvm").unwrap(),
            )
            .unwrap();
            let (mut tls, mut out, mut plain) = (other.server().unwrap(), Buffer::default(), Buffer::default());
            let mut pass = |peer: &mut rustls::ClientConnection, data: Option<&[u8]>| {
                let mut received = Vec::new();
                for _ in 0..8 {
                    let mut sent = Vec::new();
                    while peer.wants_write() {
                        peer.write_tls(&mut sent).unwrap();
                    }
                    tls.cipher().append(&sent);
                    assert!(tls.advance(&mut out, &mut Clear::new(0, &mut |_| {}, &mut plain)).unwrap());
                    if let (true, Some(data)) = (received.is_empty(), data) {
                        tls.encrypt(&[data], &mut out).unwrap();
                    }
                    while !out.is_empty() {
                        let count = peer.read_tls(&mut out.filled()).unwrap();
                        out.consume(count);
                        peer.process_new_packets().unwrap();
                        let _ = std::io::Read::read_to_end(&mut peer.reader(), &mut received);
                    }
                    if received.len() == data.map_or(0, <[u8]>::len) && !peer.wants_write() {
                        break;
                    }
                }
                let said = plain.filled().to_vec();
                plain.consume(said.len());
                (said, received)
            };
            pass(&mut peer, None);
            for round in 0..5 {
                std::io::Write::write_all(&mut peer.writer(), &data[..round * 100]).unwrap();
                peer.refresh_traffic_keys().unwrap();
                std::io::Write::write_all(&mut peer.writer(), &data[..50_000]).unwrap();
                let (said, received) = pass(&mut peer, Some(&data));
                assert!(said == data[..round * 100 + 50_000] && received == data, "round {round}");
            }
        }
    }

    #[test]
    fn a_peer_that_breaks_the_protocol_after_its_handshake_is_told_and_sent_nothing_more() {
        let told = |alert| Err(Error::AlertReceived(alert));
        let unexpected = |content: &[u8], kind| {
            let (error, answer) = answer_to(kind, content);
            assert!(matches!(error, Err(Error::InvalidMessage(_))), "{kind} {content:?}: {error:?}");
            assert_eq!(answer, told(AlertDescription::UnexpectedMessage), "{kind} {content:?}");
        };
        // No type; a type that does not exist; a session ticket; key updates of wrong forms; alerts that are none.
        unexpected(&[0; 3], 0);
        unexpected(b"text", 24);
        unexpected(&[4, 0, 0, 0], 22);
        unexpected(&[24, 0, 0, 1], 22);
        unexpected(&[24, 0, 0, 1, 2], 22);
        unexpected(&[24, 0, 0, 1, 0, 24, 0, 0, 1, 0], 22);
        unexpected(&[2], 21);
        unexpected(&[], 21);
        let (error, answer) = answer_to(23, &[1; (16 << 10) + 1]);
        assert_eq!((error, answer), (Err(Error::PeerSentOversizedRecord), told(AlertDescription::RecordOverflow)));
        // An alert ends the connection and is not answered; an end is no error.
        assert_eq!(answer_to(21, &[2, 80]), (told(AlertDescription::InternalError), Ok(true)));
        assert_eq!(answer_to(21, &[1, 0]), (Ok(false), Ok(true)));
        // Records of no bytes, and padded ones, are none of that.
        assert_eq!(answer_to(23, &[]), (Ok(true), Ok(true)));
        assert_eq!(answer_to(0, &[b't', 23, 0, 0]), (Ok(true), Ok(true)));
    }

    /// What the caller sends right behind its handshake may come in the same read.
    #[test]
    fn records_behind_a_handshake_are_read_in_any_pieces() {
        let provider = Arc::new(small_provider());
        let [one, other] =
            [1, 2].map(|number| Identity::with_provider(KeyPair::from_secret(&[number; 32]), provider.clone()));
        other.known().add(one.public());
        for piece in [1, 2, 3, 5, 7, 100, 10_000] {
            let (mut caller, mut called) = (one.client(other.public()).unwrap(), other.server().unwrap());
            let (mut sent, mut answer, mut plain) = (Buffer::default(), Buffer::default(), Buffer::default());
            caller.advance(&mut sent, &mut Clear::new(0, &mut |_| {}, &mut Buffer::default())).unwrap();
            let mut is_said = false;
            let mut is_open = true;
            while !sent.is_empty() {
                let count = piece.min(sent.len());
                called.cipher().append(&sent.filled()[..count]);
                sent.consume(count);
                is_open = called.advance(&mut answer, &mut Clear::new(0, &mut |_| {}, &mut plain)).unwrap();
                caller.cipher().append(answer.filled());
                answer = Buffer::default();
                caller.advance(&mut sent, &mut Clear::new(0, &mut |_| {}, &mut Buffer::default())).unwrap();
                if caller.is_ready() && !is_said {
                    // New keys that are asked for, text, and the end.
                    caller.encrypt_record(22, &[24, 0, 0, 1, 1], &mut sent);
                    let Stage::Ready(_, records) = &mut caller.stage else { panic!("not ready") };
                    records.take_next_sending().unwrap();
                    caller.encrypt(&[b"text"], &mut sent).unwrap();
                    caller.encrypt_record(21, &[1, 0], &mut sent);
                    is_said = true;
                }
            }
            assert!(called.is_ready() && is_said && !is_open, "pieces of {piece}");
            assert_eq!(plain.filled(), b"text");
            // The called side renews its keys with its next data.
            called.encrypt(&[b"answer"], &mut answer).unwrap();
            caller.cipher().append(answer.filled());
            let mut heard = Buffer::default();
            assert!(caller.advance(&mut sent, &mut Clear::new(0, &mut |_| {}, &mut heard)).unwrap());
            assert_eq!(heard.filled(), b"answer");
        }
    }

    /// A handshake message may be spread over records, which come in several reads.
    #[test]
    fn a_handshake_message_in_several_records_is_waited_for() {
        let mut called = Identity::new(KeyPair::generate().unwrap()).server().unwrap();
        let mut out = Buffer::default();
        let mut advance = |called: &mut Tls, bytes: &[u8]| {
            called.cipher().append(bytes);
            called.advance(&mut out, &mut Clear::new(0, &mut |_| {}, &mut Buffer::default()))
        };
        // The beginning of a client's greeting of 8,000 bytes, and of the record that follows.
        assert_eq!(advance(&mut called, &[22, 3, 1, 0, 8, 1, 0, 31, 64, 3, 3, 0, 0]), Ok(true));
        for _ in 0..10 {
            assert_eq!(advance(&mut called, &[22, 3, 3]), Ok(true));
            assert_eq!(advance(&mut called, &[0, 4, 1, 2, 3, 4, 22]), Ok(true));
            assert_eq!(advance(&mut called, &[3, 3, 0, 1, 7]), Ok(true));
        }
        assert!(!called.is_ready());
        assert!(advance(&mut called, &[99; 100]).is_err());
    }

    /// Neither does it make this side keep answers for it.
    #[test]
    fn a_peer_that_only_renews_its_keys_is_given_up() {
        let provider = Arc::new(small_provider());
        let Ends { tls: [mut one, mut other], .. } = ends([&provider, &provider]);
        let mut out = Buffer::default();
        for count in 1.. {
            let Stage::Ready(_, records) = &mut one.stage else { panic!("not ready") };
            records.renew_sending(REQUESTED, &mut out).unwrap();
            // Records without data are none.
            one.encrypt_record(23, &[], &mut out);
            other.cipher().append(out.filled());
            out = Buffer::default();
            let result = other.advance(&mut out, &mut Clear::new(0, &mut |_| {}, &mut Buffer::default()));
            match result {
                Ok(open) => assert!(open && out.is_empty() && count < 100),
                Err(error) => {
                    assert_eq!(error, Error::PeerMisbehaved(rustls::PeerMisbehaved::TooManyKeyUpdateRequests));
                    assert!(count > 10 && !out.is_empty());
                    assert_eq!(other.encrypt(&[b"text"], &mut out), Err(error));
                    break;
                }
            }
        }
    }
}
