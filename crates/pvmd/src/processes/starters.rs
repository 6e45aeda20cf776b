//! Threads that start processes, so that the daemon's loop does not wait for a file system that does not answer.
//!
//! To start a process takes about as long as the system needs to execute its program, and the thread that starts it
//! waits for that: only so is it known whether the program can be executed. Each thread has a table of descriptors of its
//! own (decision 30): the system copies the table for each process and closes the copy, and that of the daemon has two
//! descriptors for each task. The threads live as long as the daemon, because the system sends a process its parent-death
//! signal when the thread ends that has started it.
use super::launch::Launch;
use crate::children::copy_of;
use crate::core_dumps::AsBefore;
use crate::terminal;
use pvm_descriptor::separate_thread;
use pvm_fmp::process_start::StartingThread;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{Mode, OFlags};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};
use rustix::process::Pid;
use std::collections::VecDeque;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, IntoRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

/// The threads that start processes.
///
/// * Filled by: all tasks and hosts of the machine
/// * Setting: none, since a start ends at once unless a file system does not answer
/// * Reached: further starts wait until one has ended, and their spawns fail if that takes too long
/// * Test: `more_starts_than_threads_wait_for_one_another`
pub(super) const STARTERS_MAX: usize = 64;
/// The threads that work for one batch at a time. The tasks that have been started need cores, too.
const STARTERS_PER_BATCH_MAX: usize = 4;
/// The jobs that a thread has at a time. It wakes the daemon when it has done them all, since each time takes the daemon
/// about as long as a quarter of a start.
const JOBS_PER_STARTER: usize = 8;
/// The stack of a thread, in bytes.
const STACK_BYTES: usize = 256 << 10;
/// The most descriptors of a job: standard output, errors and input.
const STREAMS_MAX: usize = 3;

/// A process that is ready to be started.
pub struct Job {
    /// The number with which the result is told.
    pub number: u64,
    pub launch: Launch,
    pub streams: Streams,
}

/// The task's ends of its streams.
pub struct Streams {
    /// The standard output.
    pub output: OwnedFd,
    /// The standard error, if it is not the standard output.
    pub errors: Option<OwnedFd>,
    /// The standard input, if it is not empty.
    pub input: Option<OwnedFd>,
}

/// A job without its streams, which travel through a socket.
struct Order {
    number: u64,
    launch: Launch,
    has_errors: bool,
    has_input: bool,
}

/// The result of a job: the thread, the number of the job, the process.
type Outcome = (usize, u64, io::Result<Pid>);

/// A process that was not started.
#[derive(Debug)]
pub struct Failure {
    pub error: io::Error,
    /// Whether it was tried. If not, the error is that of another process of its batch.
    pub was_tried: bool,
}

/// A thread that starts processes, as the daemon sees it.
struct Starter {
    orders: Sender<Order>,
    /// Carries the streams of each order.
    socket: OwnedFd,
    /// The thread's descriptors, open here until it has its own copies.
    theirs: Option<Arc<[OwnedFd; 2]>>,
    /// The batch for which it works, and the numbers of its jobs.
    batch: u64,
    jobs: VecDeque<u64>,
}

impl Starter {
    /// Starts the thread, which has the place `place` among the threads. `bell` becomes readable when it reports.
    fn new(place: usize, outcomes: Sender<Outcome>, bell: &OwnedFd) -> io::Result<Starter> {
        let (socket, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        let (orders, received) = channel();
        let theirs = Arc::new([theirs, bell.try_clone()?]);
        let kept = theirs.clone();
        std::thread::Builder::new().stack_size(STACK_BYTES).spawn(move || {
            let thread = StartingThread::new();
            let own = own_descriptors(&kept);
            if let Some(last) = Arc::into_inner(kept) {
                // The daemon has ended meanwhile. `own` closes these, too.
                let _ = last.map(IntoRawFd::into_raw_fd);
            }
            serve(place, thread, own, &received, &outcomes);
        })?;
        Ok(Starter { orders, socket, theirs: Some(theirs), batch: 0, jobs: VecDeque::new() })
    }

    /// Orders a job; the thread gets copies of its streams.
    fn order(&mut self, job: Job) -> io::Result<()> {
        let Job { number, launch, streams } = job;
        let mut descriptors: Vec<BorrowedFd<'_>> = vec![streams.output.as_fd()];
        descriptors.extend(streams.errors.as_ref().map(AsFd::as_fd));
        descriptors.extend(streams.input.as_ref().map(AsFd::as_fd));
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(STREAMS_MAX))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        control.push(SendAncillaryMessage::ScmRights(&descriptors));
        let data = [IoSlice::new(&[0])];
        rustix::io::retry_on_intr(|| sendmsg(&self.socket, &data, &mut control, SendFlags::NOSIGNAL))?;
        let (has_errors, has_input) = (streams.errors.is_some(), streams.input.is_some());
        let order = Order { number, launch, has_errors, has_input };
        self.orders.send(order).map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))?;
        self.jobs.push_back(number);
        Ok(())
    }
}

/// Separates the calling thread's table of descriptors from the daemon's. If the system cannot do that, the thread shares
/// the daemon's table, and each start takes a little longer.
fn own_descriptors(all: &Arc<[OwnedFd; 2]>) -> Own {
    let [one, other] = &**all;
    let Ok(own) = separate_thread([one.as_fd(), other.as_fd()]) else { return Own::Shared(all.clone()) };
    // The daemon may still have a terminal, which this thread must not hold.
    let _ = terminal::release();
    Own::Separate(own)
}

/// The descriptors of a thread: the socket with the streams, and the bell.
enum Own {
    Separate([OwnedFd; 2]),
    Shared(Arc<[OwnedFd; 2]>),
}

impl Own {
    fn get(&self) -> &[OwnedFd; 2] {
        match self {
            Own::Separate(own) => own,
            Own::Shared(own) => own,
        }
    }
}

/// Starts the processes that are ordered, until the daemon ends.
fn serve(
    place: usize,
    mut thread: io::Result<StartingThread>,
    own: Own,
    orders: &Receiver<Order>,
    outcomes: &Sender<Outcome>,
) {
    let [socket, bell] = own.get();
    let mut next = orders.recv();
    while let Ok(order) = next {
        let number = order.number;
        let streams = receive_streams(socket, order.has_errors, order.has_input);
        let program = streams.and_then(|streams| order.launch.program(streams));
        let result = program.and_then(|program| thread.as_mut().map_err(|error| copy_of(error))?.start(program));
        if outcomes.send((place, number, result)).is_err() {
            return;
        }
        next = orders.try_recv().or_else(|_| {
            ring(bell);
            orders.recv()
        });
    }
}

fn ring(bell: &OwnedFd) {
    // It can fail only when it rings already.
    let _ = rustix::io::write(bell, &1u64.to_ne_bytes());
}

/// Receives the streams of one order: standard input, output and errors.
fn receive_streams(socket: &OwnedFd, has_errors: bool, has_input: bool) -> io::Result<[OwnedFd; 3]> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(STREAMS_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let mut data = [IoSliceMut::new(&mut byte)];
    rustix::io::retry_on_intr(|| recvmsg(socket, &mut data, &mut control, RecvFlags::CMSG_CLOEXEC))?;
    let rights = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(rights) => Some(rights),
        _ => None,
    });
    let mut received = rights.flatten();
    // Too few arrive if the limit of descriptors is met.
    let mut next = || received.next().ok_or_else(|| io::Error::from(rustix::io::Errno::MFILE));
    let output = next()?;
    let errors = if has_errors { next()? } else { output.try_clone()? };
    let null = || Ok(rustix::fs::open("/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?);
    let input = if has_input { next() } else { null() }?;
    Ok([input, output, errors])
}

/// Processes that are to be started together. After a failure no further one is begun.
struct Batch {
    number: u64,
    jobs: VecDeque<Job>,
}

/// The threads that start processes, and what they have to do.
pub struct Starters {
    /// Readable when a job has ended.
    bell: OwnedFd,
    sender: Sender<Outcome>,
    outcomes: Receiver<Outcome>,
    threads: Vec<Starter>,
    per_batch_max: usize,
    /// Batches with jobs that no thread has.
    batches: Vec<Batch>,
    last_batch: u64,
    /// Jobs that failed before a thread had them.
    failed: Vec<(u64, Failure)>,
    /// While a process is started.
    core_dumps: Option<AsBefore>,
}

impl Starters {
    /// Begins without a thread.
    pub fn new() -> io::Result<Starters> {
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let (sender, outcomes) = channel();
        let processors = std::thread::available_parallelism().map_or(1, |count| count.get());
        Ok(Starters {
            bell,
            sender,
            outcomes,
            threads: Vec::new(),
            per_batch_max: processors.min(STARTERS_PER_BATCH_MAX),
            batches: Vec::new(),
            last_batch: 0,
            failed: Vec::new(),
            core_dumps: None,
        })
    }

    /// Returns what is readable when a job has ended.
    pub fn bell(&self) -> &OwnedFd {
        &self.bell
    }

    /// Begins to start processes; [`Starters::take_ended`] tells the results.
    pub fn begin(&mut self, jobs: Vec<Job>) {
        self.last_batch += 1;
        self.batches.push(Batch { number: self.last_batch, jobs: jobs.into() });
        self.core_dumps.get_or_insert_with(AsBefore::begin);
        self.order_next();
    }

    /// Forgets a job that no thread has. Returns whether it was one.
    pub fn cancel(&mut self, number: u64) -> bool {
        let mut found = false;
        for batch in &mut self.batches {
            let before = batch.jobs.len();
            batch.jobs.retain(|job| job.number != number);
            found |= batch.jobs.len() < before;
        }
        self.batches.retain(|batch| !batch.jobs.is_empty());
        found
    }

    /// Returns the results since the last call, with the numbers of the jobs.
    pub fn take_ended(&mut self) -> Vec<(u64, Result<Pid, Failure>)> {
        let _ = rustix::io::read(&self.bell, &mut [0; 8]);
        let mut ended = Vec::new();
        for (place, number, result) in self.outcomes.try_iter().collect::<Vec<_>>() {
            let thread = &mut self.threads[place];
            thread.theirs = None;
            thread.jobs.retain(|job| *job != number);
            let batch = thread.batch;
            if let Err(error) = &result {
                self.fail_rest(batch, error);
            }
            ended.push((number, result.map_err(|error| Failure { error, was_tried: true })));
        }
        self.order_next();
        ended.extend(self.failed.drain(..).map(|(number, failure)| (number, Err(failure))));
        if self.batches.is_empty() && self.threads.iter().all(|thread| thread.jobs.is_empty()) {
            self.core_dumps = None;
        }
        ended
    }

    /// Returns the number of threads, and of jobs that wait for one.
    #[cfg(test)]
    pub fn counts(&self) -> (usize, usize) {
        (self.threads.len(), self.batches.iter().map(|batch| batch.jobs.len()).sum())
    }

    /// Assigns the waiting jobs to threads that have room.
    fn order_next(&mut self) {
        for place in 0..self.batches.len() {
            let batch = self.batches[place].number;
            while !self.batches[place].jobs.is_empty() {
                let thread = match self.thread_for(batch) {
                    Ok(Some(thread)) => thread,
                    Ok(None) => break,
                    Err(error) => {
                        self.fail_first(place, error);
                        break;
                    }
                };
                let Some(job) = self.batches[place].jobs.pop_front() else { break };
                let number = job.number;
                self.threads[thread].batch = batch;
                if let Err(error) = self.threads[thread].order(job) {
                    self.fail_rest(batch, &error);
                    self.fail(number, error, true);
                }
            }
        }
        self.batches.retain(|batch| !batch.jobs.is_empty());
    }

    /// Returns a thread that can take a job of that batch, if there is one now. A thread works for one batch at a time: it
    /// may wait for the file system of that batch.
    fn thread_for(&mut self, batch: u64) -> io::Result<Option<usize>> {
        let works = |thread: &Starter| thread.batch == batch && !thread.jobs.is_empty();
        let count = self.threads.iter().filter(|thread| works(thread)).count();
        if count < self.per_batch_max {
            if let Some(place) = self.threads.iter().position(|thread| thread.jobs.is_empty()) {
                return Ok(Some(place));
            }
            if self.threads.len() < STARTERS_MAX {
                match Starter::new(self.threads.len(), self.sender.clone(), &self.bell) {
                    Ok(thread) => self.threads.push(thread),
                    // Those that there are go on.
                    Err(error) if count == 0 => return Err(error),
                    Err(_) => {}
                }
                return Ok(self.threads.iter().position(|thread| thread.jobs.is_empty()));
            }
        }
        let least = self.threads.iter().enumerate().filter(|(_, thread)| works(thread));
        let least = least.min_by_key(|(_, thread)| thread.jobs.len());
        Ok(least.filter(|(_, thread)| thread.jobs.len() < JOBS_PER_STARTER).map(|(place, _)| place))
    }

    /// Fails all jobs of a batch that no thread has: the first with its own error, the others alike.
    fn fail_first(&mut self, place: usize, error: io::Error) {
        let Some(job) = self.batches[place].jobs.pop_front() else { return };
        self.fail_rest(self.batches[place].number, &error);
        self.fail(job.number, error, true);
    }

    /// Fails the jobs of a batch that no thread has.
    fn fail_rest(&mut self, batch: u64, error: &io::Error) {
        let Some(place) = self.batches.iter().position(|one| one.number == batch) else { return };
        for job in std::mem::take(&mut self.batches[place].jobs) {
            self.fail(job.number, copy_of(error), false);
        }
    }

    fn fail(&mut self, number: u64, error: io::Error, was_tried: bool) {
        self.failed.push((number, Failure { error, was_tried }));
        ring(&self.bell);
    }
}
