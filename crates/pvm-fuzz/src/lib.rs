//! Fuzz targets: what they have in common.
//!
//! A crate that reads what outsiders write has a module `fuzz` with a list of [`Target`]s. It is
//! compiled for tests, which replay the files of `fuzz/corpus`, and with `--cfg fuzzing` for the
//! engine in `fuzz/engine`; nothing else knows of it. See docs/testing.md, "Bytes from nowhere".
#![forbid(unsafe_code)]

pub use arbitrary::Result;

use rustix::time::{ClockId, clock_gettime};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The longest that a decoder may take for one input, be it at work or asleep: other programs that keep
/// the machine busy do not count. The engine itself ends what takes much longer.
pub const TIME_MAX: Duration = Duration::from_secs(1);

/// Bytes that are used up to choose things.
pub struct Unstructured<'a>(arbitrary::Unstructured<'a>);

impl<'a> Unstructured<'a> {
    /// Chooses by these bytes.
    pub fn new(bytes: &'a [u8]) -> Unstructured<'a> {
        Unstructured(arbitrary::Unstructured::new(bytes))
    }
    /// Whether all have been used.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
    /// Any value.
    pub fn arbitrary<T: arbitrary::Arbitrary<'a>>(&mut self) -> Result<T> {
        self.0.arbitrary()
    }
    /// Some of the bytes themselves, at most 255.
    pub fn bytes_of_some_length(&mut self) -> Result<&'a [u8]> {
        let wanted: u8 = self.0.arbitrary()?;
        self.0.bytes(usize::from(wanted).min(self.0.len()))
    }
}

/// A decoder, and how bytes come to it.
#[derive(Clone, Copy)]
pub struct Target {
    /// Its name, and that of its folder in `fuzz/corpus`.
    pub name: &'static str,
    /// Feeds it with bytes. Panics when something is wrong.
    pub run: fn(&[u8]),
    /// What it consists of.
    pub decoder: &'static [Source],
}

/// A part of a decoder: a file, from the root of the tree, and in it all lines or, where it has
/// other things too, those of some functions.
#[derive(Clone, Copy)]
pub struct Source {
    /// The file.
    pub file: &'static str,
    /// The names of its functions; empty for all there is.
    pub functions: &'static [&'static str],
}

/// A whole file.
pub const fn file(file: &'static str) -> Source {
    Source { file, functions: &[] }
}

/// Some functions of a file.
pub const fn part(file: &'static str, functions: &'static [&'static str]) -> Source {
    Source { file, functions }
}

impl Target {
    /// Feeds the decoder. Panics when it takes too long, or finds something wrong.
    pub fn feed(&self, bytes: &[u8]) {
        let (start, before) = (Instant::now(), processor_time());
        (self.run)(bytes);
        let spent = processor_time() - before;
        assert!(spent <= TIME_MAX, "{}: {spent:?} for one input", self.name);
        if start.elapsed() > TIME_MAX {
            self.feed_patiently(bytes);
        }
    }

    /// Feeds it once more: has it slept, or was there no core for it?
    #[cold]
    fn feed_patiently(&self, bytes: &[u8]) {
        let (start, before) = (Instant::now(), without_core());
        (self.run)(bytes);
        let spent = start.elapsed().saturating_sub(without_core().saturating_sub(before));
        assert!(spent <= TIME_MAX, "{}: {spent:?} for one input", self.name);
    }

    /// Feeds the decoder with every file of its corpus, and says how many there were.
    pub fn replay(&self) -> usize {
        let files = files_of(&corpus(self.name));
        for file in &files {
            let bytes = std::fs::read(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
            eprintln!("{}", file.display());
            self.feed(&bytes);
        }
        files.len()
    }
}

/// Replays the corpora of some targets, none of which may be empty. What a target says of its decoder must be
/// there too.
pub fn replay_all(targets: &[Target]) {
    for target in targets {
        target.decoder.iter().for_each(Source::verify);
        assert!(target.replay() > 0, "{} has no corpus", target.name);
    }
}

impl Source {
    /// Panics where the file, or one of the functions in it, is not there.
    fn verify(&self) {
        let path = root().join(self.file);
        let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        for name in self.functions {
            let is_there = [format!("fn {name}("), format!("fn {name}<")].iter().any(|start| text.contains(start));
            assert!(is_there, "{} has no function {name}", self.file);
        }
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Where the corpus of a target is.
pub fn corpus(target: &str) -> PathBuf {
    root().join("fuzz/corpus").join(target)
}

/// The files in a folder, in order; none if it is not there.
pub fn files_of(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(|path| path.is_file()).collect();
    files.sort();
    files
}

fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// How long this thread was ready to run, and did not.
fn without_core() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanoseconds = text.split_whitespace().nth(1).and_then(|word| word.parse().ok());
    Duration::from_nanos(nanoseconds.unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

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
