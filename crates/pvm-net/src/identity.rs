//! Who may make links: TLS 1.3 with raw public keys on both sides.
//!
//! There are no certificates, names or resumed sessions: each side proves that it has the key that the other side
//! expects. There is one key exchange, one signature scheme, and three cipher suites.
use crate::aegis;
use crate::keys::{KeyPair, PublicKey};
use crate::tls::{Handshake, Tls};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{AlwaysResolvesClientRawPublicKeys, Resumption, UnbufferedClientConnection};
use rustls::crypto::ring as provider;
use rustls::crypto::{CryptoProvider, verify_tls13_signature_with_raw_key};
use rustls::pki_types::{CertificateDer, ServerName, SubjectPublicKeyInfoDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{AlwaysResolvesServerRawPublicKeys, NoServerSessionStorage, UnbufferedServerConnection};
use rustls::sign::{CertifiedKey, Signer, SigningKey};
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

    pub(crate) fn with_provider(pair: KeyPair, provider: Arc<CryptoProvider>) -> Identity {
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
        let name = ServerName::try_from("hpvm").expect("a name");
        let connection = UnbufferedClientConnection::new(Arc::new(self.client_config(peer)?), name)?;
        Ok(Tls::new(Handshake::Client(connection)))
    }

    pub(crate) fn client_config(&self, peer: PublicKey) -> Result<ClientConfig, Error> {
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
        Ok(config)
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
pub(crate) fn small_provider() -> CryptoProvider {
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
