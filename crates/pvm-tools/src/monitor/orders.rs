//! What the page asks for with `--control`: the threads of browsers hand it to the main thread, which is a task.
use pvm_core::codes::Code;
use pvm_core::proto::Request;
use pvm_core::tid::Tid;
use pvm_task::Session;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// How long an answer may take.
const ANSWER_WAIT: Duration = Duration::from_secs(5);

/// A signal for a task.
struct Order {
    tid: Tid,
    signal: i32,
    answer: Sender<Result<(), Code>>,
}

/// Where the threads hand orders in.
pub struct Counter(Mutex<(Sender<Order>, UnixStream)>);

/// Where the main thread takes them.
pub struct Desk(Receiver<Order>, UnixStream);

/// Makes both sides.
pub fn open() -> io::Result<(Counter, Desk)> {
    let (sender, receiver) = channel();
    let (bell, heard) = UnixStream::pair()?;
    bell.set_nonblocking(true)?;
    heard.set_nonblocking(true)?;
    Ok((Counter(Mutex::new((sender, bell))), Desk(receiver, heard)))
}

impl Counter {
    /// Lets the main thread send a signal. Returns what has come of it; `None` if nobody has answered.
    pub fn signal(&self, tid: Tid, signal: i32) -> Option<Result<(), Code>> {
        let (answer, answered) = channel();
        {
            let mut inside = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            inside.0.send(Order { tid, signal, answer }).ok()?;
            // If the bell is full, it rings already.
            let _ = inside.1.write(&[1]);
        }
        answered.recv_timeout(ANSWER_WAIT).ok()
    }
}

impl Desk {
    /// Returns what is readable when an order has come.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.1.as_fd()
    }

    /// Does what was asked for.
    pub fn serve(&mut self, session: &mut Session) {
        let mut rings = [0; 64];
        while self.1.read(&mut rings).is_ok_and(|count| count > 0) {}
        while let Ok(Order { tid, signal, answer }) = self.0.try_recv() {
            // Whoever asked may have gone.
            let _ = answer.send(session.request(Request::Signal { tid, signal }).map(drop));
        }
    }
}
