//! The records of TLS 1.3 (RFC 8446, section 5) after the handshake.
//!
//! rustls makes the keys. It can also encrypt, but copies each byte twice on the way in and twice on the way out, which
//! took longer than the encryption ([decision 49](../../../docs/decisions/0049-tls-records-in-place-aegis.md)). Here bytes
//! are copied into the record that is sent, encrypted there, and decrypted where they were read.
use crate::aegis;
use crate::buffer::Buffer;
use ring::aead::{AES_128_GCM, Aad, Algorithm, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use rustls::client::{ClientConnectionData, UnbufferedClientConnection};
use rustls::crypto::cipher::NONCE_LEN;
use rustls::kernel::KernelConnection;
use rustls::server::{ServerConnectionData, UnbufferedServerConnection};
use rustls::{AlertDescription, ConnectionTrafficSecrets, Error, ExtractedSecrets, InvalidMessage, PeerMisbehaved};
use zeroize::Zeroizing;

/// Bytes of data in one record.
pub(crate) const RECORD_BYTES: usize = 16 << 10;
/// How many bytes of a record are not data, padding apart.
pub(crate) const RECORD_EXTRA_BYTES: usize = RECORD_HEAD_BYTES + 1 + TAG_BYTES;

/// Bytes of a record before its payload.
pub(crate) const RECORD_HEAD_BYTES: usize = 5;
const TAG_BYTES: usize = 16;
/// The most bytes that a record may have after its head.
pub(crate) const RECORD_PAYLOAD_BYTES_MAX: usize = RECORD_BYTES + 256;
/// How many times a peer may renew its keys without sending data. More would only cost time.
const RENEWALS_MAX: u32 = 32;

/// Types of content.
const ALERT: u8 = 21;
const HANDSHAKE: u8 = 22;
const DATA: u8 = 23;

/// The level of an alert that ends the connection.
const FATAL: u8 = 2;

/// The message that announces new keys, without its last byte.
const KEY_UPDATE: [u8; 4] = [24, 0, 0, 1];
/// The last byte of a key update: whether the peer should renew its keys too.
const NOT_REQUESTED: u8 = 0;
pub(crate) const REQUESTED: u8 = 1;

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

/// What rustls keeps of a connection, to make the keys that follow.
enum Secrets {
    Client(KernelConnection<ClientConnectionData>),
    Server(KernelConnection<ServerConnectionData>),
}

impl Secrets {
    fn next_sending(&mut self) -> Result<(u64, ConnectionTrafficSecrets), Error> {
        match self {
            Secrets::Client(connection) => connection.update_tx_secret(),
            Secrets::Server(connection) => connection.update_tx_secret(),
        }
    }

    fn next_receiving(&mut self) -> Result<(u64, ConnectionTrafficSecrets), Error> {
        match self {
            Secrets::Client(connection) => connection.update_rx_secret(),
            Secrets::Server(connection) => connection.update_rx_secret(),
        }
    }
}

/// The cipher that both sides have agreed on.
#[derive(Clone, Copy)]
enum Suite {
    Aegis,
    Ring(&'static Algorithm),
}

/// A key with its cipher.
enum Cipher {
    Aegis(Zeroizing<[u8; aegis::KEY_BYTES]>),
    Ring(Box<LessSafeKey>),
}

/// The records of one direction.
struct Direction {
    cipher: Cipher,
    iv: Zeroizing<[u8; NONCE_LEN]>,
    /// The number of the next record under this key.
    number: u64,
}

impl Direction {
    fn new(suite: Suite, (number, secrets): (u64, ConnectionTrafficSecrets)) -> Result<Direction, Error> {
        let (ConnectionTrafficSecrets::Aes128Gcm { key, iv } | ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv }) =
            &secrets
        else {
            return Err(Error::General("a cipher that is never offered".into()));
        };
        let cipher = match suite {
            Suite::Aegis => Cipher::Aegis(Zeroizing::new(key.as_ref().try_into().map_err(|_| Error::EncryptError)?)),
            Suite::Ring(algorithm) => {
                let key = UnboundKey::new(algorithm, key.as_ref()).map_err(|_| Error::EncryptError)?;
                Cipher::Ring(Box::new(LessSafeKey::new(key)))
            }
        };
        let iv = Zeroizing::new(iv.as_ref().try_into().map_err(|_| Error::EncryptError)?);
        Ok(Direction { cipher, iv, number })
    }

    /// Returns the nonce of the next record. No two records under a key have the same.
    fn nonce(&mut self) -> [u8; NONCE_LEN] {
        let mut nonce = *self.iv;
        for (byte, of_number) in nonce[NONCE_LEN - 8..].iter_mut().zip(self.number.to_be_bytes()) {
            *byte ^= of_number;
        }
        self.number += 1;
        nonce
    }

    fn seal(&mut self, head: [u8; RECORD_HEAD_BYTES], inner: &mut [u8]) -> Result<[u8; TAG_BYTES], Error> {
        let nonce = self.nonce();
        match &self.cipher {
            Cipher::Aegis(key) => Ok(aegis::seal(key, nonce, &head, inner)),
            Cipher::Ring(key) => {
                let nonce = Nonce::assume_unique_for_key(nonce);
                let tag = key.seal_in_place_separate_tag(nonce, Aad::from(head), inner);
                tag.map_err(|_| Error::EncryptError)?.as_ref().try_into().map_err(|_| Error::EncryptError)
            }
        }
    }

    /// Decrypts in place. Returns the content with its type and padding.
    fn open<'a>(&mut self, head: [u8; RECORD_HEAD_BYTES], payload: &'a mut [u8]) -> Result<&'a [u8], Error> {
        let nonce = self.nonce();
        match &self.cipher {
            Cipher::Aegis(key) => {
                aegis::open(key, nonce, &head, payload).map(|inner| &*inner).ok_or(Error::DecryptError)
            }
            Cipher::Ring(key) => {
                let opened = key.open_in_place(Nonce::assume_unique_for_key(nonce), Aad::from(head), payload);
                opened.map(|inner| &*inner).map_err(|_| Error::DecryptError)
            }
        }
    }
}

/// Encrypts and decrypts what is sent after the handshake.
pub(crate) struct Records {
    secrets: Secrets,
    suite: Suite,
    sending: Direction,
    receiving: Direction,
    /// How many records one key may encrypt.
    records_max: u64,
    /// How many times the peer has renewed its keys since it sent data.
    renewals: u32,
    /// Whether the peer has asked for new keys of this side. They are announced before the next data, so that a peer that
    /// asks again and again causes one answer.
    owes_renewal: bool,
}

impl Records {
    /// Takes over a connection of the calling side after its handshake.
    pub fn of_client(connection: UnbufferedClientConnection) -> Result<Records, Error> {
        let (keys, connection) = connection.dangerous_into_kernel_connection()?;
        let suite = connection.negotiated_cipher_suite();
        Records::new(keys, suite, Secrets::Client(connection))
    }

    /// Takes over a connection of the called side after its handshake.
    pub fn of_server(connection: UnbufferedServerConnection) -> Result<Records, Error> {
        let (keys, connection) = connection.dangerous_into_kernel_connection()?;
        let suite = connection.negotiated_cipher_suite();
        Records::new(keys, suite, Secrets::Server(connection))
    }

    fn new(keys: ExtractedSecrets, suite: rustls::SupportedCipherSuite, secrets: Secrets) -> Result<Records, Error> {
        let of_tls13 = suite.tls13().ok_or(Error::HandshakeNotComplete)?;
        let records_max = of_tls13.common.confidentiality_limit;
        let suite = match (suite.suite(), &keys.tx.1) {
            (aegis::SUITE, _) => Suite::Aegis,
            (_, ConnectionTrafficSecrets::Chacha20Poly1305 { .. }) => Suite::Ring(&CHACHA20_POLY1305),
            _ => Suite::Ring(&AES_128_GCM),
        };
        let (sending, receiving) = (Direction::new(suite, keys.tx)?, Direction::new(suite, keys.rx)?);
        Ok(Records { secrets, suite, sending, receiving, records_max, renewals: 0, owes_renewal: false })
    }

    /// Returns which cipher suite both sides have agreed on.
    #[cfg(test)]
    pub fn suite(&self) -> rustls::CipherSuite {
        match &self.secrets {
            Secrets::Client(connection) => connection.negotiated_cipher_suite().suite(),
            Secrets::Server(connection) => connection.negotiated_cipher_suite().suite(),
        }
    }

    /// Encrypts `bytes` bytes. `fill` provides these bytes, a record at a time, so that each record is encrypted while
    /// it is in the nearest cache.
    pub fn encrypt_by(&mut self, bytes: usize, fill: &mut dyn FnMut(&mut [u8]), out: &mut Buffer) -> Result<(), Error> {
        // This makes room for all records at once, so that none has to be moved.
        out.space(bytes + bytes.div_ceil(RECORD_BYTES) * RECORD_EXTRA_BYTES);
        let mut left = bytes;
        while left > 0 {
            // The last record of a key announces the next key.
            if self.owes_renewal || self.sending.number >= self.records_max - 1 {
                self.renew_sending(NOT_REQUESTED, out)?;
            }
            let count = left.min(RECORD_BYTES);
            self.seal(DATA, count, fill, out)?;
            left -= count;
        }
        Ok(())
    }

    /// Appends one record of this type.
    pub fn seal(
        &mut self,
        content: u8,
        bytes: usize,
        fill: &mut dyn FnMut(&mut [u8]),
        out: &mut Buffer,
    ) -> Result<(), Error> {
        let payload_bytes = bytes + 1 + TAG_BYTES;
        let [high, low] = (payload_bytes as u16).to_be_bytes();
        let head = [DATA, 3, 3, high, low];
        let record = &mut out.space(RECORD_HEAD_BYTES + payload_bytes)[..RECORD_HEAD_BYTES + payload_bytes];
        record[..RECORD_HEAD_BYTES].copy_from_slice(&head);
        let (inner, tag) = record[RECORD_HEAD_BYTES..].split_at_mut(bytes + 1);
        fill(&mut inner[..bytes]);
        inner[bytes] = content;
        tag.copy_from_slice(&self.sending.seal(head, inner)?);
        out.commit(RECORD_HEAD_BYTES + payload_bytes);
        Ok(())
    }

    /// Announces a new key for what is sent from now on, and takes it. `asked`: whether the peer should renew its key too.
    pub fn renew_sending(&mut self, asked: u8, out: &mut Buffer) -> Result<(), Error> {
        let [a, b, c, d] = KEY_UPDATE;
        let message = [a, b, c, d, asked];
        self.seal(HANDSHAKE, message.len(), &mut |into| into.copy_from_slice(&message), out)?;
        self.take_next_sending()
    }

    /// Takes the next key for what is sent. The peer has been told.
    pub fn take_next_sending(&mut self) -> Result<(), Error> {
        self.sending = Direction::new(self.suite, self.secrets.next_sending()?)?;
        self.owes_renewal = false;
        Ok(())
    }

    /// Decrypts all complete records in `cipher`. Returns whether the peer may still send more. After an error, `out` has
    /// the alert for the peer, and nothing more can be received.
    pub fn decrypt(&mut self, cipher: &mut Buffer, out: &mut Buffer, clear: &mut Clear<'_>) -> Result<bool, Error> {
        let result = self.decrypt_all(cipher, clear);
        if let Some(alert) = result.as_ref().err().and_then(alert_of) {
            let alert = [FATAL, u8::from(alert)];
            // The first error is reported.
            let _ = self.seal(ALERT, alert.len(), &mut |into| into.copy_from_slice(&alert), out);
        }
        result
    }

    fn decrypt_all(&mut self, cipher: &mut Buffer, clear: &mut Clear<'_>) -> Result<bool, Error> {
        loop {
            let Some((head, rest)) = cipher.filled_mut().split_first_chunk_mut::<RECORD_HEAD_BYTES>() else {
                return Ok(true);
            };
            let head = *head;
            let [kind, _, _, high, low] = head;
            let bytes = usize::from(u16::from_be_bytes([high, low]));
            if kind != DATA {
                return Err(unexpected("a record in clear after the handshake"));
            }
            if bytes > RECORD_PAYLOAD_BYTES_MAX {
                return Err(Error::PeerSentOversizedRecord);
            }
            let Some(payload) = rest.get_mut(..bytes) else { return Ok(true) };
            let inner = self.receiving.open(head, payload)?;
            let Some(end) = inner.iter().rposition(|byte| *byte != 0) else {
                return Err(unexpected("a record without a type"));
            };
            let (content, kind) = (&inner[..end], inner[end]);
            if content.len() > RECORD_BYTES {
                return Err(Error::PeerSentOversizedRecord);
            }
            match (kind, content) {
                (DATA, []) => {}
                (DATA, _) => {
                    self.renewals = 0;
                    clear.arrived(content);
                }
                (ALERT, [_, alert]) => match AlertDescription::from(*alert) {
                    AlertDescription::CloseNotify => return Ok(false),
                    alert => return Err(Error::AlertReceived(alert)),
                },
                (HANDSHAKE, [a, b, c, d, asked @ (NOT_REQUESTED | REQUESTED)]) if [*a, *b, *c, *d] == KEY_UPDATE => {
                    self.renewals += 1;
                    if self.renewals > RENEWALS_MAX {
                        return Err(Error::PeerMisbehaved(PeerMisbehaved::TooManyKeyUpdateRequests));
                    }
                    self.receiving = Direction::new(self.suite, self.secrets.next_receiving()?)?;
                    self.owes_renewal |= *asked == REQUESTED;
                }
                _ => return Err(unexpected("a message that nobody sends after the handshake")),
            }
            cipher.consume(RECORD_HEAD_BYTES + bytes);
        }
    }
}

fn unexpected(what: &'static str) -> Error {
    Error::InvalidMessage(InvalidMessage::UnexpectedMessage(what))
}

/// Returns what the peer is told of an error, if it is the peer's.
fn alert_of(error: &Error) -> Option<AlertDescription> {
    match error {
        Error::DecryptError => Some(AlertDescription::BadRecordMac),
        Error::PeerSentOversizedRecord => Some(AlertDescription::RecordOverflow),
        Error::InvalidMessage(_) | Error::PeerMisbehaved(_) => Some(AlertDescription::UnexpectedMessage),
        Error::AlertReceived(_) => None,
        _ => Some(AlertDescription::InternalError),
    }
}
