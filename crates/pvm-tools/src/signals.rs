//! Turns signals into events that can be polled.
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

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
