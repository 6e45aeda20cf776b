//! Turns signals into events that can be polled.
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

/// The signals that users send to tasks by name.
const SIGNALS: [(&str, i32); 9] = [
    ("HUP", 1),
    ("INT", 2),
    ("QUIT", 3),
    ("KILL", 9),
    ("USR1", 10),
    ("USR2", 12),
    ("TERM", 15),
    ("CONT", 18),
    ("STOP", 19),
];
/// The largest number of a signal.
const SIGNAL_MAX: i32 = 64;

/// Returns the number of a signal with this name, with or without `SIG`.
pub fn by_name(word: &str) -> Option<i32> {
    let bare = word.strip_prefix("SIG").unwrap_or(word);
    SIGNALS.iter().find(|(name, _)| *name == bare).map(|(_, number)| *number)
}

/// Returns the number of a signal that is given by its name, in letters of any size, or by its number.
pub fn number(word: &str) -> Option<i32> {
    let number = || word.parse().ok().filter(|number| (1..=SIGNAL_MAX).contains(number));
    by_name(&word.to_ascii_uppercase()).or_else(number)
}

/// The caught signals; by default they would end the program.
pub struct Signals(Vec<(i32, UnixStream)>);

impl Signals {
    /// Catches SIGINT, SIGTERM and SIGHUP from now on.
    pub fn catch() -> io::Result<Signals> {
        Signals::catch_all(&[SIGINT, SIGTERM, SIGHUP])
    }

    /// Catches these signals from now on.
    pub fn catch_all(signals: &[i32]) -> io::Result<Signals> {
        let mut streams = Vec::new();
        for &signal in signals {
            let (reader, writer) = UnixStream::pair()?;
            reader.set_nonblocking(true)?;
            signal_hook::low_level::pipe::register(signal, writer)?;
            streams.push((signal, reader));
        }
        Ok(Signals(streams))
    }

    /// Returns descriptors that are readable when a signal has arrived.
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.0.iter().map(|(_, stream)| stream.as_fd())
    }

    /// Returns the signals that have arrived since the last call; several signals of one kind may be returned as one.
    pub fn take(&mut self) -> Vec<i32> {
        let mut buffer = [0; 64];
        let came = |stream: &mut UnixStream| stream.read(&mut buffer).is_ok_and(|count| count > 0);
        let mut came = came;
        self.0.iter_mut().filter_map(|(signal, stream)| came(stream).then_some(*signal)).collect()
    }
}

/// Ends this process as the signal would have ended it.
pub fn end_by(signal: i32) {
    let _ = signal_hook::low_level::emulate_default_handler(signal);
}
