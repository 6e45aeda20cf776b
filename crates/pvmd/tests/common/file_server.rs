//! A file system (FUSE) whose server is the test: it holds one executable file, and answers only what it is told to.
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::fs::File;
use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::JoinHandle;

// Operations of the protocol (linux/fuse.h).
const LOOKUP: u32 = 1;
const FORGET: u32 = 2;
const GETATTR: u32 = 3;
pub const OPEN: u32 = 14;
pub const INIT: u32 = 26;
const INTERRUPT: u32 = 36;

/// The protocol version of the answer to `INIT`, and its flags and sizes.
const INIT_ANSWER: [u32; 16] = [7, 31, 0, 0, 0, 4096, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0];
/// The bytes before the contents of a request and of an answer.
const REQUEST_HEAD: usize = 40;
const ANSWER_HEAD: usize = 16;
const REQUEST_BYTES_MAX: usize = 256 << 10;
const ROOT: u64 = 1;
const PAUSE: Timespec = Timespec { tv_sec: 0, tv_nsec: 5_000_000 };

/// The file system before it is served.
pub struct FileSystem(File);

impl FileSystem {
    pub fn new() -> Option<FileSystem> {
        File::options().read(true).write(true).open("/dev/fuse").ok().map(FileSystem)
    }

    /// Returns the descriptor with which it is mounted.
    pub fn descriptor(&self) -> File {
        self.0.try_clone().unwrap()
    }

    /// Answers the operations that `is_answered` names, until the server is dropped.
    pub fn serve(self, is_answered: fn(u32) -> bool) -> FileServer {
        let (stop, held) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU32::new(0)));
        let (stopped, holds) = (stop.clone(), held.clone());
        let thread = std::thread::spawn(move || {
            let mut request = vec![0; REQUEST_BYTES_MAX];
            while !stopped.load(Ordering::Relaxed) {
                if !poll(&mut [PollFd::new(&self.0, PollFlags::IN)], Some(&PAUSE)).is_ok_and(|ready| ready > 0) {
                    continue;
                }
                let Ok(count) = (&self.0).read(&mut request) else { continue };
                let operation = u32::from_ne_bytes(request[4..8].try_into().unwrap());
                if !is_answered(operation) {
                    holds.store(operation, Ordering::Relaxed);
                } else if let Some(answer) = answer(operation, &request[..count]) {
                    // The asker may have been killed.
                    let _ = (&self.0).write(&answer);
                }
            }
        });
        FileServer { stop, held, thread: Some(thread) }
    }
}

/// The server of a file system. When it is dropped, all that is not answered fails.
pub struct FileServer {
    stop: Arc<AtomicBool>,
    held: Arc<AtomicU32>,
    thread: Option<JoinHandle<()>>,
}

impl FileServer {
    /// Returns whether an operation waits for its answer: the one that was asked last.
    pub fn has_held(&self, operation: u32) -> bool {
        self.held.load(Ordering::Relaxed) == operation
    }
}

impl Drop for FileServer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap();
    }
}

fn answer(operation: u32, request: &[u8]) -> Option<Vec<u8>> {
    let node = u64::from_ne_bytes(request[16..24].try_into().unwrap());
    let contents = match operation {
        FORGET | INTERRUPT => return None,
        INIT => Ok(INIT_ANSWER.into_iter().flat_map(u32::to_ne_bytes).collect()),
        // Node, generation, four times of validity, attributes.
        LOOKUP if request[REQUEST_HEAD..].starts_with(b"program\0") => {
            Ok([&2u64.to_ne_bytes()[..], &[0; 32], &attributes(2)].concat())
        }
        LOOKUP => Err(rustix::io::Errno::NOENT),
        GETATTR => Ok([&[0; 16][..], &attributes(node)].concat()),
        _ => Err(rustix::io::Errno::NOSYS),
    };
    let (errno, contents) = contents.map_or_else(|errno| (-errno.raw_os_error(), Vec::new()), |bytes| (0, bytes));
    let length = (ANSWER_HEAD + contents.len()) as u32;
    Some([&length.to_ne_bytes()[..], &errno.to_ne_bytes(), &request[8..16], &contents].concat())
}

/// Node, size, blocks, three times; then their nanoseconds, mode, links, user, group, device, block size, flags.
fn attributes(node: u64) -> Vec<u8> {
    let mode = if node == ROOT { 0o40_755 } else { 0o100_755 };
    let long = [node, 4096, 8, 0, 0, 0].into_iter().flat_map(u64::to_ne_bytes);
    let short = [0, 0, 0, mode, 1, 0, 0, 0, 4096, 0].into_iter().flat_map(u32::to_ne_bytes);
    long.chain(short).collect()
}
