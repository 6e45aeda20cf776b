//! What all fuzz targets share.
//!
//! Each crate that reads untrusted input has a module `fuzz` with a list of [`Target`]s. The module is compiled for
//! tests, which replay the archives of `fuzz/corpus`, and with `--cfg fuzzing` for the engine in `fuzz/engine`; no
//! other build contains it. See docs/testing.md, "Untrusted input".
#![forbid(unsafe_code)]

pub mod corpus;
mod files;
mod source_tree;

pub use arbitrary::Result;
pub use files::files_of;
pub use source_tree::root;

use rustix::time::{ClockId, clock_gettime};
use std::time::{Duration, Instant};

/// The longest time that a decoder may run or sleep for one input. Time in which it waits for a core, because other
/// programs use all cores, is not counted. The engine itself ends an input that takes much longer.
pub const TIME_MAX: Duration = Duration::from_secs(1);

/// How often an input that has taken too long is repeated. The least time counts: a system that is short of memory, or that
/// takes the cores of a virtual machine away, makes a run longer, never shorter, and does not tell by how much.
const REPEATS_MAX: u32 = 5;

/// Input bytes from which a target takes its choices.
pub struct Unstructured<'a>(arbitrary::Unstructured<'a>);

impl<'a> Unstructured<'a> {
    /// Makes choices from these bytes.
    pub fn new(bytes: &'a [u8]) -> Unstructured<'a> {
        Unstructured(arbitrary::Unstructured::new(bytes))
    }
    /// Returns whether all bytes have been consumed.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
    /// Returns any value of a type.
    pub fn arbitrary<T: arbitrary::Arbitrary<'a>>(&mut self) -> Result<T> {
        self.0.arbitrary()
    }
    /// Consumes and returns some of the bytes, at most 255.
    pub fn bytes_of_some_length(&mut self) -> Result<&'a [u8]> {
        let wanted: u8 = self.0.arbitrary()?;
        self.0.bytes(usize::from(wanted).min(self.0.len()))
    }
}

/// A decoder, and a function that passes bytes to it.
#[derive(Clone, Copy)]
pub struct Target {
    /// The name, which is also the name of its archive in `fuzz/corpus`.
    pub name: &'static str,
    /// Passes bytes to the decoder. Panics if the decoder does anything wrong.
    pub run: fn(&[u8]),
    /// The source code of the decoder, for which line coverage is measured.
    pub decoder: &'static [Source],
}

/// A part of a decoder's source code: a whole file, or some functions of a file.
#[derive(Clone, Copy)]
pub struct Source {
    /// The file, relative to the root of the source tree.
    pub file: &'static str,
    /// The names of the functions that belong to the decoder; empty for the whole file.
    pub functions: &'static [&'static str],
}

/// Returns a whole file as a part of a decoder.
pub const fn file(file: &'static str) -> Source {
    Source { file, functions: &[] }
}

/// Returns some functions of a file as a part of a decoder.
pub const fn part(file: &'static str, functions: &'static [&'static str]) -> Source {
    Source { file, functions }
}

impl Target {
    /// Passes bytes to the decoder. Panics if the decoder does anything wrong or takes too long.
    pub fn feed(&self, bytes: &[u8]) {
        let start = Instant::now();
        (self.run)(bytes);
        if start.elapsed() > TIME_MAX {
            self.feed_again(bytes);
        }
    }

    /// Passes the bytes to the decoder again, until it does not take too long. Panics if it always does.
    #[cold]
    fn feed_again(&self, bytes: &[u8]) {
        let mut least = Duration::MAX;
        for _ in 0..REPEATS_MAX {
            least = least.min(self.measure(bytes));
            if least <= TIME_MAX {
                return;
            }
        }
        panic!("{}: {least:?} for one input", self.name);
    }

    /// Passes the bytes to the decoder. Returns for how long it has run or slept; time without a core is not counted.
    fn measure(&self, bytes: &[u8]) -> Duration {
        let (start, processor_before, waited_before) = (Instant::now(), processor_time(), time_without_core());
        (self.run)(bytes);
        // The clock is read last: a wait for a core between the two must not make the time too short.
        let waited = time_without_core().saturating_sub(waited_before);
        (processor_time() - processor_before).max(start.elapsed().saturating_sub(waited))
    }

    /// Passes every input of the corpus to the decoder, and returns the number of inputs.
    pub fn replay(&self) -> usize {
        let inputs = corpus::read(self.name).unwrap_or_else(|error| panic!("the corpus of {}: {error}", self.name));
        for input in &inputs {
            eprintln!("{} {}", self.name, input.name);
            self.feed(&input.bytes);
        }
        inputs.len()
    }
}

/// Replays the corpora of some targets. Panics if a corpus is empty, or if the source of a decoder is missing.
pub fn replay_all(targets: &[Target]) {
    for target in targets {
        target.decoder.iter().for_each(Source::verify);
        assert!(target.replay() > 0, "{} has no corpus", target.name);
    }
}

impl Source {
    /// Panics if the file or one of its functions is missing.
    fn verify(&self) {
        let path = root().join(self.file);
        let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        for name in self.functions {
            let is_there = [format!("fn {name}("), format!("fn {name}<")].iter().any(|start| text.contains(start));
            assert!(is_there, "{} has no function {name}", self.file);
        }
    }
}

#[allow(clippy::disallowed_methods)] // only in tests
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Returns for how long this thread was ready to run but had no core.
fn time_without_core() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanoseconds = text.split_whitespace().nth(1).and_then(|word| word.parse().ok());
    Duration::from_nanos(nanoseconds.unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

    #[test]
    #[should_panic(expected = "for one input")]
    fn a_decoder_that_takes_too_long_is_found() {
        let slow = |_: &[u8]| {
            let begin = processor_time();
            while processor_time() - begin <= TIME_MAX {}
        };
        Target { name: "slow", run: slow, decoder: &[] }.feed(&[]);
    }

    #[test]
    #[should_panic(expected = "for one input")]
    fn a_decoder_that_sleeps_too_long_is_found() {
        let sleepy = |_: &[u8]| std::thread::sleep(TIME_MAX);
        Target { name: "sleepy", run: sleepy, decoder: &[] }.feed(&[]);
    }

    #[test]
    fn an_input_that_takes_long_a_few_times_is_no_fault() {
        static RUNS: AtomicU32 = AtomicU32::new(0);
        let disturbed = |_: &[u8]| {
            if RUNS.fetch_add(1, Relaxed) < 3 {
                std::thread::sleep(TIME_MAX);
            }
        };
        Target { name: "disturbed", run: disturbed, decoder: &[] }.feed(&[]);
        assert!(RUNS.load(Relaxed) > 3);
    }

    #[test]
    #[should_panic(expected = "has no function no_such_one")]
    fn a_decoder_that_has_moved_is_found() {
        const DECODER: &[Source] = &[part("crates/pvm-fuzz/src/lib.rs", &["replay_all", "no_such_one"])];
        replay_all(&[Target { name: "no such target", run: |_| {}, decoder: DECODER }]);
    }

    #[test]
    #[should_panic(expected = "has no corpus")]
    fn a_target_without_a_corpus_is_found() {
        replay_all(&[Target { name: "no such target", run: |_| {}, decoder: &[] }]);
    }
}
