//! TLS 1.3 with raw public keys on both sides.
//!
//! There are no certificates, names or resumed sessions: each side proves that it has the key that the other side
//! expects. There is one key exchange, one signature scheme, and two cipher suites.
use crate::aegis;
use crate::buffer::Buffer;
use crate::keys::{KeyPair, PublicKey};
use crate::records::{RECORD_EXTRA_BYTES, Records};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{AlwaysResolvesClientRawPublicKeys, Resumption, UnbufferedClientConnection};
use rustls::crypto::ring as provider;
use rustls::crypto::{CryptoProvider, verify_tls13_signature_with_raw_key};
use rustls::pki_types::{CertificateDer, ServerName, SubjectPublicKeyInfoDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{AlwaysResolvesServerRawPublicKeys, NoServerSessionStorage, UnbufferedServerConnection};
use rustls::sign::{CertifiedKey, Signer, SigningKey};
use rustls::unbuffered::{ConnectionState, EncodeError, UnbufferedStatus};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName, Error, ServerConfig, SignatureAlgorithm,
    SignatureScheme, version,
};
use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

/// The protocol that both sides must speak. Whoever changes the format of frames must also change this name.
const PROTOCOL: &[u8] = b"hpvm/1";

/// The keys that may connect.
#[derive(Debug, Default)]
pub struct Known(Mutex<HashSet<PublicKey>>);

impl Known {
    /// Lets a key connect from now on.
    pub fn add(&self, key: PublicKey) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(key);
    }

    /// Refuses a key from now on. The caller must close the existing links to the owner of this key.
    pub fn remove(&self, key: &PublicKey) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
    }

    /// Returns whether a key may connect.
    pub fn has(&self, key: &PublicKey) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).contains(key)
    }
}

/// The keys that are needed to make links: this host's key, and the keys that may connect.
#[derive(Clone)]
pub struct Identity {
    public: PublicKey,
    provider: Arc<CryptoProvider>,
    certified: Arc<CertifiedKey>,
    server: Arc<ServerConfig>,
    known: Arc<Known>,
}

impl Identity {
    /// Makes an identity that accepts no key yet.
    pub fn new(pair: KeyPair) -> Identity {
        Identity::with_provider(pair, Arc::new(small_provider()))
    }

    fn with_provider(pair: KeyPair, provider: Arc<CryptoProvider>) -> Identity {
        let public = pair.public();
        let info = CertificateDer::from(public.to_info());
        let certified = Arc::new(CertifiedKey::new(vec![info], Arc::new(OwnKey(Arc::new(pair)))));
        let known = Arc::new(Known::default());
        let verifier = Arc::new(Verifier { expected: Expected::Known(known.clone()), provider: provider.clone() });
        let mut server = ServerConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&[&version::TLS13])
            .expect("the provider has TLS 1.3")
            .with_client_cert_verifier(verifier)
            .with_cert_resolver(Arc::new(AlwaysResolvesServerRawPublicKeys::new(certified.clone())));
        server.alpn_protocols = vec![PROTOCOL.to_vec()];
        server.session_storage = Arc::new(NoServerSessionStorage {});
        server.send_tls13_tickets = 0;
        server.enable_secret_extraction = true;
        Identity { public, provider, certified, server: Arc::new(server), known }
    }

    /// Returns this host's public key.
    pub fn public(&self) -> PublicKey {
        self.public
    }

    /// Returns the keys that may connect.
    pub fn known(&self) -> &Known {
        &self.known
    }

    /// Makes the calling side of a connection to the peer with the given key, and to no other.
    pub(crate) fn client(&self, peer: PublicKey) -> Result<Tls, Error> {
        let verifier = Arc::new(Verifier { expected: Expected::One(peer), provider: self.provider.clone() });
        let mut config = ClientConfig::builder_with_provider(self.provider.clone())
            .with_protocol_versions(&[&version::TLS13])?
            .dangerous()
            .with_custom_certificate_verifier(verifier)
            .with_client_cert_resolver(Arc::new(AlwaysResolvesClientRawPublicKeys::new(self.certified.clone())));
        config.alpn_protocols = vec![PROTOCOL.to_vec()];
        config.resumption = Resumption::disabled();
        config.enable_sni = false;
        config.enable_secret_extraction = true;
        let name = ServerName::try_from("hpvm").expect("a name");
        let connection = UnbufferedClientConnection::new(Arc::new(config), name)?;
        Ok(Tls::new(Handshake::Client(connection)))
    }

    /// Makes the called side of a connection. It accepts all known keys.
    pub(crate) fn server(&self) -> Result<Tls, Error> {
        let connection = UnbufferedServerConnection::new(self.server.clone())?;
        Ok(Tls::new(Handshake::Server(connection)))
    }
}

impl std::fmt::Debug for Identity {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "the identity of {}", self.public)
    }
}

/// Returns a cryptography provider with only the few algorithms that are used.
fn small_provider() -> CryptoProvider {
    CryptoProvider {
        // The calling side chooses the first suite that the called side has. Only processors on which the first one
        // is fast have it.
        cipher_suites: aegis::suite()
            .into_iter()
            .chain([
                provider::cipher_suite::TLS13_AES_128_GCM_SHA256,
                provider::cipher_suite::TLS13_CHACHA20_POLY1305_SHA256,
            ])
            .collect(),
        kx_groups: vec![provider::kx_group::X25519],
        ..provider::default_provider()
    }
}

/// This host's key, in the form that TLS needs.
#[derive(Debug, Clone)]
struct OwnKey(Arc<KeyPair>);

impl SigningKey for OwnKey {
    fn choose_scheme(&self, offered: &[SignatureScheme]) -> Option<Box<dyn Signer>> {
        offered.contains(&SignatureScheme::ED25519).then(|| Box::new(self.clone()) as Box<dyn Signer>)
    }

    fn public_key(&self) -> Option<SubjectPublicKeyInfoDer<'_>> {
        Some(self.0.public().to_info().into())
    }

    fn algorithm(&self) -> SignatureAlgorithm {
        SignatureAlgorithm::ED25519
    }
}

impl Signer for OwnKey {
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, Error> {
        Ok(self.0.sign(message))
    }

    fn scheme(&self) -> SignatureScheme {
        SignatureScheme::ED25519
    }
}

/// The keys that a verifier accepts.
#[derive(Debug)]
enum Expected {
    One(PublicKey),
    Known(Arc<Known>),
}

/// Verifies the peer: accepts the expected keys and nothing else.
#[derive(Debug)]
struct Verifier {
    expected: Expected,
    provider: Arc<CryptoProvider>,
}

impl Verifier {
    fn check(&self, shown: &CertificateDer<'_>, others: &[CertificateDer<'_>]) -> Result<(), Error> {
        let key = PublicKey::from_info(shown).filter(|_| others.is_empty());
        let key = key.ok_or(Error::InvalidCertificate(CertificateError::BadEncoding))?;
        let fits = match &self.expected {
            Expected::One(expected) => *expected == key,
            Expected::Known(known) => known.has(&key),
        };
        if fits { Ok(()) } else { Err(Error::InvalidCertificate(CertificateError::UnknownIssuer)) }
    }

    fn check_signature(
        &self,
        message: &[u8],
        shown: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let info = SubjectPublicKeyInfoDer::from(shown.as_ref());
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature_with_raw_key(message, &info, signature, algorithms)
    }
}

/// Fails, since TLS 1.2 is not supported.
fn too_old() -> Result<HandshakeSignatureValid, Error> {
    Err(Error::General("TLS 1.2 is not spoken here".into()))
}

/// The common part of the verifiers for servers and clients: raw keys of one kind, and only TLS 1.3.
macro_rules! signatures_by_raw_keys {
    () => {
        fn verify_tls12_signature(
            &self,
            _: &[u8],
            _: &CertificateDer<'_>,
            _: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            too_old()
        }

        fn verify_tls13_signature(
            &self,
            message: &[u8],
            shown: &CertificateDer<'_>,
            signature: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            self.check_signature(message, shown, signature)
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            vec![SignatureScheme::ED25519]
        }

        fn requires_raw_public_keys(&self) -> bool {
            true
        }
    };
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        shown: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _status: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.check(shown, others).map(|()| ServerCertVerified::assertion())
    }

    signatures_by_raw_keys!();
}

impl ClientCertVerifier for Verifier {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        shown: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.check(shown, others).map(|()| ClientCertVerified::assertion())
    }

    signatures_by_raw_keys!();
}

/// A connection during its handshake.
enum Handshake {
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
    fn step(&mut self, incoming: &mut [u8], out: &mut Buffer, clear: &mut Clear<'_>) -> (usize, Result<Step, Error>) {
        match self {
            Handshake::Client(connection) => act(connection.process_tls_records(incoming), out, clear),
            Handshake::Server(connection) => act(connection.process_tls_records(incoming), out, clear),
        }
    }

    fn into_records(self) -> Result<Records, Error> {
        match self {
            Handshake::Client(connection) => Records::of_client(connection),
            Handshake::Server(connection) => Records::of_server(connection),
        }
    }
}

/// The destination of decrypted bytes.
pub(crate) struct Clear<'a> {
    /// The number of bytes that are passed to `take` without being copied into `kept`.
    straight: usize,
    take: &'a mut dyn FnMut(&[u8]),
    /// The buffer for all further bytes.
    kept: &'a mut Buffer,
}

impl<'a> Clear<'a> {
    pub fn new(straight: usize, take: &'a mut dyn FnMut(&[u8]), kept: &'a mut Buffer) -> Clear<'a> {
        Clear { straight, take, kept }
    }

    /// Returns how many more bytes are to be passed to `take`.
    pub fn straight_left(&self) -> usize {
        self.straight
    }

    /// Takes decrypted bytes.
    pub fn arrived(&mut self, bytes: &[u8]) {
        let (first, rest) = bytes.split_at(bytes.len().min(self.straight));
        if !first.is_empty() {
            self.straight -= first.len();
            (self.take)(first);
        }
        self.kept.append(rest);
    }
}

/// A TLS connection without its socket.
pub(crate) struct Tls {
    stage: Stage,
    /// Bytes that were read from the socket and are not decrypted yet.
    cipher: Buffer,
}

enum Stage {
    Handshake(Box<Handshake>),
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
    fn new(handshake: Handshake) -> Tls {
        Tls { stage: Stage::Handshake(Box::new(handshake)), cipher: Buffer::default() }
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
            Stage::Handshake(_) => None,
            Stage::Ready(peer, _) => Some(*peer),
            Stage::Failed(_, peer) => *peer,
        }
    }

    /// Decrypts the bytes that have been read, and writes the answers that the protocol requires. Returns whether the
    /// peer may still send more.
    pub fn advance(&mut self, out: &mut Buffer, clear: &mut Clear<'_>) -> Result<bool, Error> {
        let mut result = Ok(true);
        if let Stage::Handshake(handshake) = &mut self.stage {
            result = shake_hands(handshake, &mut self.cipher, out, clear);
            if let (Ok(true), false) = (&result, handshake.is_running()) {
                result = self.complete().map(|()| true);
            }
        }
        if let (Ok(true), Stage::Ready(_, records)) = (&result, &mut self.stage) {
            result = records.decrypt(&mut self.cipher, out, clear);
        }
        if let Stage::Failed(error, _) = &self.stage {
            return Err(error.clone());
        }
        if let Err(error) = &result {
            self.stage = Stage::Failed(error.clone(), self.peer());
        }
        result
    }

    /// Ends the handshake.
    fn complete(&mut self) -> Result<(), Error> {
        let stage = std::mem::replace(&mut self.stage, Stage::Failed(Error::HandshakeNotComplete, None));
        if let Stage::Handshake(handshake) = stage {
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
            Stage::Handshake(_) => Err(Error::HandshakeNotComplete),
            Stage::Ready(_, records) => records.encrypt_by(bytes, fill, out),
            Stage::Failed(error, _) => Err(error.clone()),
        }
    }
}

/// Continues a handshake until nothing can be done before the peer sends more. Returns whether the peer may still send.
fn shake_hands(
    handshake: &mut Handshake,
    cipher: &mut Buffer,
    out: &mut Buffer,
    clear: &mut Clear<'_>,
) -> Result<bool, Error> {
    let mut open = true;
    loop {
        let (discard, step) = handshake.step(cipher.filled_mut(), out, clear);
        cipher.consume(discard);
        match step {
            Ok(Step::Again) => {}
            Ok(Step::Idle) => return Ok(open),
            Ok(Step::Closed) => open = false,
            Err(error) => {
                // Sends the alert that may be pending, and does nothing else: rustls expects its input unchanged, and
                // takes no input while it has an alert to send. Further errors are ignored: the first error is reported.
                if handshake.wants_write() {
                    drop(handshake.step(cipher.filled_mut(), out, clear));
                }
                return Err(error);
            }
        }
    }
}

/// Takes one step of a handshake, for the calling or the called side. Returns how much of the input to discard, and what
/// is needed next.
fn act<Data>(
    status: UnbufferedStatus<'_, '_, Data>,
    out: &mut Buffer,
    clear: &mut Clear<'_>,
) -> (usize, Result<Step, Error>) {
    let UnbufferedStatus { mut discard, state } = status;
    let step = match state {
        Err(error) => Err(error),
        Ok(ConnectionState::ReadTraffic(mut traffic)) => loop {
            match traffic.next_record() {
                None => break Ok(Step::Again),
                Some(Err(error)) => break Err(error),
                Some(Ok(record)) => {
                    discard += record.discard;
                    clear.arrived(record.payload);
                }
            }
        },
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
    use rustls::crypto::CipherSuiteCommon;
    use rustls::{SupportedCipherSuite, Tls13CipherSuite};

    /// The number of TLS records that one key may encrypt in this test.
    const LIMIT: u64 = 20;

    /// Returns a provider whose keys must be renewed soon.
    fn short_lived_keys() -> Arc<CryptoProvider> {
        let Some(suite) = provider::cipher_suite::TLS13_AES_128_GCM_SHA256.tls13() else { panic!("not of TLS 1.3") };
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

    fn ends(provider: &Arc<CryptoProvider>) -> Ends {
        let identity = || Identity::with_provider(KeyPair::generate().unwrap(), provider.clone());
        let (one, other) = (identity(), identity());
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

    #[test]
    fn keys_that_wear_out_are_renewed_without_a_gap() {
        let mut ends = ends(&short_lived_keys());
        let data: Vec<u8> = (0..100_000_u32).map(|index| (index * 7) as u8).collect();
        for round in 0..10 * LIMIT as usize {
            let bytes = if round % 7 == 0 { data.len() } else { round };
            for from in 0..2 {
                ends.send(from, &data[..bytes]);
            }
            // The answers that key renewals require are passed to the other end, too.
            ends.pass();
            ends.pass();
            for plain in &mut ends.plain {
                assert!(plain.filled() == &data[..bytes], "round {round}: {} bytes", plain.len());
                plain.consume(bytes);
            }
        }
    }
}
