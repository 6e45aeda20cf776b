//! Words as the body of an entry.
use crate::queue::Entry;

/// Returns the three words of an entry whose body lies outside the queue.
pub(super) fn words_of(entry: &Entry<'_>) -> [u64; 3] {
    let mut words = [0u8; 24];
    entry.copy_to(&mut words);
    [0, 8, 16].map(|from| u64::from_ne_bytes(words[from..from + 8].try_into().expect("eight")))
}

pub(super) fn bytes_of<const WORDS: usize, const BYTES: usize>(words: [u64; WORDS]) -> [u8; BYTES] {
    let mut bytes = [0; BYTES];
    for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
        place.copy_from_slice(&word.to_ne_bytes());
    }
    bytes
}
