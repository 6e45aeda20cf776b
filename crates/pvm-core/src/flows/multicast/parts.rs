//! The parts of a body that a host has heard.
use std::ops::Range;

/// A report names at most this many ranges of missing parts; the sender repairs these first.
///
/// * Filled by: each network that loses datagrams
/// * Setting: none, the limit has no visible effect
/// * Reached: the ranges beyond it are named by the next report
/// * Test: `a_report_is_bounded`
pub const REPORT_RANGES_MAX: usize = 512;

/// A set of the parts of a body. The last part may be shorter than the others.
pub struct Parts {
    bytes: usize,
    part_bytes: usize,
    words: Vec<u64>,
    /// How many parts are absent.
    absent: u32,
}

impl Parts {
    /// Makes the empty set of the parts of a body.
    pub fn new(bytes: usize, part_bytes: usize) -> Parts {
        let count = count_of(bytes, part_bytes);
        Parts { bytes, part_bytes, words: vec![0; (count as usize).div_ceil(64)], absent: count }
    }

    /// Returns whether the set has a part.
    pub fn contains(&self, part: u32) -> bool {
        self.words.get(part as usize / 64).is_some_and(|word| word >> (part % 64) & 1 == 1)
    }

    /// Adds a part that is absent.
    pub fn insert(&mut self, part: u32) {
        self.words[part as usize / 64] |= 1 << (part % 64);
        self.absent -= 1;
    }

    /// Returns whether all parts are there.
    pub fn is_complete(&self) -> bool {
        self.absent == 0
    }

    /// Returns where a part lies in the body, in bytes. Returns `None` if there is no such part.
    pub fn range(&self, part: u32) -> Option<Range<usize>> {
        range_of(self.bytes, self.part_bytes, part)
    }

    /// Returns how many bytes precede the first absent part.
    pub fn leading_bytes(&self) -> usize {
        let full = self.words.iter().take_while(|word| **word == u64::MAX).count();
        let more = self.words.get(full).map_or(0, |word| word.trailing_ones() as usize);
        self.bytes.min((64 * full + more) * self.part_bytes)
    }

    /// Returns the absent ones among the first `sent` parts: the first [`REPORT_RANGES_MAX`] ranges.
    pub fn missing(&self, sent: u32) -> Vec<Range<u32>> {
        let sent = sent.min(count_of(self.bytes, self.part_bytes));
        let mut ranges: Vec<Range<u32>> = Vec::new();
        for part in (0..sent).filter(|part| !self.contains(*part)) {
            let count = ranges.len();
            match ranges.last_mut() {
                Some(last) if last.end == part => last.end += 1,
                _ if count == REPORT_RANGES_MAX => break,
                _ => ranges.push(part..part + 1),
            }
        }
        ranges
    }
}

/// Returns the number of parts of a body.
pub fn count_of(bytes: usize, part_bytes: usize) -> u32 {
    u32::try_from(bytes.div_ceil(part_bytes)).expect("a body has less than 2 GiB")
}

/// Returns where a part lies in a body. Returns `None` if there is no such part.
pub fn range_of(bytes: usize, part_bytes: usize, part: u32) -> Option<Range<usize>> {
    let begin = (part as usize).checked_mul(part_bytes).filter(|begin| *begin < bytes)?;
    Some(begin..bytes.min(begin + part_bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::iter::once;

    #[test]
    fn what_is_missing_is_known() {
        let mut parts = Parts::new(100 * 1000 + 1, 1000);
        assert_eq!((parts.range(99), parts.range(100)), (Some(99_000..100_000), Some(100_000..100_001)));
        assert_eq!((parts.range(101), parts.range(u32::MAX)), (None, None));
        assert_eq!(parts.leading_bytes(), 0);
        assert!(parts.missing(3).into_iter().eq(once(0..3)) && parts.missing(u32::MAX).into_iter().eq(once(0..101)));
        (0..101).filter(|part| ![70, 71, 100].contains(part)).for_each(|part| parts.insert(part));
        assert!(parts.missing(71).into_iter().eq(once(70..71)));
        assert_eq!((parts.leading_bytes(), parts.missing(101)), (70_000, vec![70..72, 100..101]));
        assert!(parts.contains(69) && !parts.contains(70) && !parts.contains(9999) && !parts.is_complete());
        [70, 71, 100].into_iter().for_each(|part| parts.insert(part));
        assert!(parts.is_complete() && parts.missing(101).is_empty());
        assert_eq!(parts.leading_bytes(), 100_001);
    }

    #[test]
    fn a_report_is_bounded() {
        let mut parts = Parts::new(4 * REPORT_RANGES_MAX, 1);
        (0..4 * REPORT_RANGES_MAX as u32).step_by(2).for_each(|part| parts.insert(part));
        let missing = parts.missing(u32::MAX);
        assert_eq!((missing.len(), missing.first()), (REPORT_RANGES_MAX, Some(&(1..2))));
    }
}
