//! What two tasks must know of each other before they can use a fabric. It travels through their daemons.
use serde::{Deserialize, Serialize};

/// The most bytes of an encoded introduction.
pub const INTRODUCTION_BYTES_MAX: usize = 512;

/// What a task tells another one, for one link.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Introduction {
    /// The provider's name. Only endpoints of the same provider understand each other.
    pub provider: String,
    /// The address of the task's endpoint.
    pub address: Vec<u8>,
    /// The name of the link, chosen at random: each frame of the other task begins with it.
    pub link: u64,
    /// How many counted frames the other task may have under way.
    pub credits: u32,
    /// The length of the longest frame that the task receives.
    pub frame_bytes: u32,
}

impl Introduction {
    /// Returns the introduction as bytes.
    pub fn encode(&self) -> Vec<u8> {
        postcard::to_stdvec(self).expect("strings and numbers can be encoded")
    }

    /// Reads an introduction. Returns `None` if the bytes are none, or too many.
    pub fn decode(bytes: &[u8]) -> Option<Introduction> {
        let bytes = (bytes.len() <= INTRODUCTION_BYTES_MAX).then_some(bytes)?;
        match postcard::take_from_bytes(bytes) {
            Ok((introduction, [])) => Some(introduction),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_introduction_is_read_as_it_was_written_and_nothing_else_is() {
        let introduction = Introduction {
            provider: "tcp;ofi_rxm".into(),
            address: vec![2, 0, 7, 8, 10, 77, 0, 1],
            link: u64::MAX,
            credits: 14,
            frame_bytes: 8192,
        };
        let mut bytes = introduction.encode();
        assert_eq!(Introduction::decode(&bytes), Some(introduction));
        assert!((0..bytes.len()).all(|end| Introduction::decode(&bytes[..end]).is_none()));
        bytes.push(0);
        assert_eq!(Introduction::decode(&bytes), None);
        let long = Introduction { provider: "x".repeat(600), address: vec![], link: 0, credits: 1, frame_bytes: 64 };
        assert_eq!(Introduction::decode(&long.encode()), None);
    }
}
