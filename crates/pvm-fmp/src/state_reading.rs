//! How a daemon reads the state line and the traffic of a task: through the descriptor of the segment, so that no segment can harm it.
use crate::segment_layout::{Header, MAGIC};
use crate::state_line::{STATE_WORDS, StateLine, StateWords, line};
use crate::sync::{Ordering, fence};
use crate::traffic::TRAFFIC_WORDS;
use rustix::io::pread;
use std::mem::offset_of;
use std::os::fd::BorrowedFd;

/// How often a line is read again that its owner was just writing.
const TRIES: usize = 4;
/// Where the line is in the segment.
const OFFSET: u64 = offset_of!(Header, state) as u64;
const BYTES: usize = size_of::<StateWords>();

/// Reads the state line out of a segment. `None` if the segment has none: the owner has never waited, uses another
/// layout, writes all the time, or has put something else in the place of its segment.
pub fn read(segment: BorrowedFd<'_>) -> Option<StateLine> {
    let [magic] = words_at(segment, 0)?;
    if magic != MAGIC {
        return None;
    }
    (0..TRIES).find_map(|_| read_once(segment))
}

fn read_once(segment: BorrowedFd<'_>) -> Option<StateLine> {
    let [version] = words_at(segment, OFFSET)?;
    // Pair `line written`: the words are read after the version.
    fence(Ordering::Acquire);
    let all: [u64; BYTES / 8] = words_at(segment, OFFSET)?;
    // Pair `whole line`: the version is read again after the words.
    fence(Ordering::Acquire);
    let [after] = words_at(segment, OFFSET)?;
    let words: [u64; STATE_WORDS] = all[2..].try_into().ok()?;
    line(version, after, all[1], words)
}

/// Returns whether the owner has slept, and written nothing, since the line was read.
pub fn still_sleeps(segment: BorrowedFd<'_>, line: &StateLine) -> bool {
    // Pair `awake`: the caller has looked at the doorbell before.
    fence(Ordering::Acquire);
    line.is_asleep && words_at(segment, OFFSET) == Some([line.version, line.version])
}

/// Reads how much the owner of a segment has sent and received ([`crate::traffic`]): by direction and route, the messages and the
/// bytes. `None` if that is no segment of this layout.
pub fn traffic(segment: BorrowedFd<'_>) -> Option<[u64; TRAFFIC_WORDS]> {
    let [magic] = words_at(segment, 0)?;
    if magic != MAGIC {
        return None;
    }
    words_at(segment, offset_of!(Header, traffic) as u64)
}

/// Reads words. A file that is too short, or no file at all, has none.
fn words_at<const COUNT: usize>(segment: BorrowedFd<'_>, offset: u64) -> Option<[u64; COUNT]> {
    const {
        assert!(size_of::<StateWords>() == (2 + STATE_WORDS) * 8);
    }
    let mut bytes = [0; (2 + STATE_WORDS) * 8];
    let bytes = bytes.get_mut(..COUNT * 8)?;
    if pread(segment, &mut *bytes, offset) != Ok(bytes.len()) {
        return None;
    }
    let mut words = [0; COUNT];
    for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(8)) {
        *word = u64::from_ne_bytes(bytes.try_into().ok()?);
    }
    Some(words)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::segment::Segment;
    use std::os::fd::AsFd;

    #[test]
    fn a_line_is_read_as_it_was_written() {
        let segment = Segment::new().unwrap();
        let state = &segment.mapping.header().state.0;
        assert_eq!(read(segment.descriptor()), None);
        state.write(&[5, 6, 7], true);
        let line = read(segment.descriptor()).unwrap();
        assert_eq!((&line.words[..4], line.is_asleep), (&[5, 6, 7, 0][..], true));
        assert!(still_sleeps(segment.descriptor(), &line));
        assert_eq!(state.read(), Some(line));
        state.wake();
        assert!(!still_sleeps(segment.descriptor(), &line) && !read(segment.descriptor()).unwrap().is_asleep);
        state.write(&[8], true);
        assert!(!still_sleeps(segment.descriptor(), &line), "it sleeps again");
        assert_eq!(read(segment.descriptor()).unwrap().words[..3], [8, 6, 7]);
    }

    #[test]
    fn what_is_no_segment_has_no_line() {
        let (end, _other) = rustix::pipe::pipe().unwrap();
        assert_eq!(read(end.as_fd()), None);
        let short = crate::file::make("hpvm-test", 100).unwrap();
        assert_eq!(read(short.as_fd()), None);
        let blank = crate::file::make("hpvm-test", 1 << 16).unwrap();
        assert_eq!(read(blank.as_fd()), None);
    }

    #[test]
    fn a_line_that_is_written_all_the_time_is_never_torn() {
        let segment = Segment::new().unwrap();
        let state = &segment.mapping.header().state.0;
        let done = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for number in 1.. {
                    state.write(&[number; STATE_WORDS], number % 2 == 0);
                    if done.load(Ordering::Relaxed) {
                        break;
                    }
                }
            });
            for _ in 0..20_000 {
                for line in [read(segment.descriptor()), state.read()].into_iter().flatten() {
                    assert!(line.words.iter().all(|word| *word == line.words[0]), "{line:?}");
                    assert_eq!(line.is_asleep, line.words[0] % 2 == 0);
                }
            }
            done.store(true, Ordering::Relaxed);
        });
    }
}
