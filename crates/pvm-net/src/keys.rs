//! Keys of daemons, and tokens that are valid for one connection.
use ring::rand::{SecureRandom, SystemRandom};
use ring::signature::{Ed25519KeyPair, KeyPair as _};
use std::fmt;
use std::str::FromStr;
use subtle::ConstantTimeEq;
use zeroize::{Zeroize, Zeroizing};

/// The length of a public key, of a private key, and of a token, in bytes.
pub const KEY_BYTES: usize = 32;

/// The bytes before an Ed25519 key in its standard form (RFC 8410, DER).
const INFO_PREFIX: [u8; 12] = [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];

/// The system has no random numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoRandomness;

impl fmt::Display for NoRandomness {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("the system gives no random numbers")
    }
}

impl std::error::Error for NoRandomness {}

/// The text is not 64 hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotAKey;

impl fmt::Display for NotAKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("not a key of 64 hexadecimal digits")
    }
}

impl std::error::Error for NotAKey {}

fn random() -> Result<Zeroizing<[u8; KEY_BYTES]>, NoRandomness> {
    let mut bytes = Zeroizing::new([0; KEY_BYTES]);
    SystemRandom::new().fill(&mut *bytes).map_err(|_| NoRandomness)?;
    Ok(bytes)
}

/// An Ed25519 public key. Written as text, the key has 64 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PublicKey(pub [u8; KEY_BYTES]);

impl PublicKey {
    /// Returns the key in its standard form, as TLS carries it.
    pub(crate) fn to_info(self) -> Vec<u8> {
        [&INFO_PREFIX[..], &self.0].concat()
    }

    /// Reads a key in its standard form.
    pub(crate) fn from_info(info: &[u8]) -> Option<PublicKey> {
        info.strip_prefix(&INFO_PREFIX)?.try_into().ok().map(PublicKey)
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(formatter, "{byte:02x}"))
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

impl FromStr for PublicKey {
    type Err = NotAKey;

    fn from_str(text: &str) -> Result<PublicKey, NotAKey> {
        if text.len() != 2 * KEY_BYTES || !text.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return Err(NotAKey);
        }
        let mut key = [0; KEY_BYTES];
        for (byte, digits) in key.iter_mut().zip(text.as_bytes().chunks(2)) {
            let digits = std::str::from_utf8(digits).map_err(|_| NotAKey)?;
            *byte = u8::from_str_radix(digits, 16).map_err(|_| NotAKey)?;
        }
        Ok(PublicKey(key))
    }
}

/// A private key with its public key. The private key is never written to a file, and is wiped when it is dropped.
pub struct KeyPair {
    secret: Zeroizing<[u8; KEY_BYTES]>,
    public: PublicKey,
}

impl KeyPair {
    /// Makes a new key.
    pub fn generate() -> Result<KeyPair, NoRandomness> {
        Ok(KeyPair::from_secret(&*random()?))
    }

    /// Makes the key pair of a given secret.
    pub fn from_secret(secret: &[u8; KEY_BYTES]) -> KeyPair {
        let pair = Ed25519KeyPair::from_seed_unchecked(secret).expect("any 32 bytes are a secret");
        let public = pair.public_key().as_ref().try_into().expect("32 bytes");
        KeyPair { secret: Zeroizing::new(*secret), public: PublicKey(public) }
    }

    /// Returns the public key.
    pub fn public(&self) -> PublicKey {
        self.public
    }

    /// Returns the secret, for a task that is given this key.
    pub fn secret(&self) -> &[u8; KEY_BYTES] {
        &self.secret
    }

    /// Signs a message. The expanded key exists only during the call.
    pub(crate) fn sign(&self, message: &[u8]) -> Vec<u8> {
        let pair = Ed25519KeyPair::from_seed_unchecked(&*self.secret).expect("any 32 bytes are a secret");
        pair.sign(message).as_ref().to_vec()
    }
}

impl fmt::Debug for KeyPair {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "the key pair of {}", self.public)
    }
}

/// A secret that is valid for one connection, and is wiped when it is dropped. Every comparison takes the same time,
/// whatever the bytes are.
#[derive(Clone)]
pub struct Token([u8; KEY_BYTES]);

impl Token {
    /// Makes a new token.
    pub fn generate() -> Result<Token, NoRandomness> {
        Ok(Token(*random()?))
    }

    /// Makes a token of the given bytes.
    pub fn from_bytes(bytes: [u8; KEY_BYTES]) -> Token {
        Token(bytes)
    }

    /// Returns the bytes, for the peer that must show the token.
    pub fn as_bytes(&self) -> &[u8; KEY_BYTES] {
        &self.0
    }

    /// Returns whether these bytes are the token.
    pub fn is(&self, shown: &[u8]) -> bool {
        self.0.ct_eq(shown).into()
    }
}

/// The two tokens of a link: the caller shows the first, the called side answers with the second. So each side knows
/// that the other side has the tokens from the same source.
#[derive(Debug, Clone)]
pub struct Tokens {
    /// Shown by the caller.
    pub shown: Token,
    /// The answer.
    pub back: Token,
}

impl Tokens {
    /// Makes new tokens.
    pub fn generate() -> Result<Tokens, NoRandomness> {
        Ok(Tokens { shown: Token::generate()?, back: Token::generate()? })
    }
}

impl Drop for Token {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a token")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_read_back_from_its_text_and_from_its_standard_form() {
        let key = KeyPair::generate().unwrap().public();
        assert_eq!(key.to_string().parse(), Ok(key));
        assert_eq!(PublicKey::from_info(&key.to_info()), Some(key));
        let text = key.to_string();
        for wrong in ["", "12", &text[1..], &format!("{text}0"), &format!("+{}", &text[1..])] {
            assert_eq!(wrong.parse::<PublicKey>(), Err(NotAKey), "{wrong}");
        }
        assert_eq!(PublicKey::from_info(&key.0), None);
    }

    #[test]
    fn a_pair_is_made_again_from_its_secret() {
        let pair = KeyPair::generate().unwrap();
        let again = KeyPair::from_secret(pair.secret());
        assert_eq!(pair.public(), again.public());
        assert_eq!(pair.sign(b"text"), again.sign(b"text"));
        assert_ne!(pair.public(), KeyPair::generate().unwrap().public());
    }

    #[test]
    fn a_token_is_known_by_all_its_bytes() {
        let token = Token::generate().unwrap();
        assert!(token.is(token.as_bytes()));
        assert!(!token.is(&token.as_bytes()[1..]));
        let mut other = *token.as_bytes();
        other[31] ^= 1;
        assert!(!token.is(&other));
    }

    #[test]
    fn nothing_secret_is_printed() {
        let pair = KeyPair::from_secret(&[7; 32]);
        assert!(!format!("{pair:?}").contains("0707"));
        assert_eq!(format!("{:?}", Token::from_bytes([7; 32])), "a token");
    }
}
