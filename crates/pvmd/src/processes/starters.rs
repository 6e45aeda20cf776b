//! Threads that start processes at the same time.
//!
//! To start a process takes about as long as the system needs to execute its program, and the thread that starts it
//! waits for that: only so is it known whether the program can be executed. So several threads share the work. Each has
//! a table of descriptors of its own (decision 30): the system copies the table for each process and closes the copy,
//! and that of the daemon has two descriptors for each task. The threads live as long as the daemon, because the system
//! sends a process its parent-death signal when the thread ends that has started it.
use super::spawner::start_with_processors;
use pvm_fmp::descriptor::{SeparateThread, separate_thread};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};
use rustix::thread::CpuSet;
use std::collections::VecDeque;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

/// The jobs that a thread has at a time: the next one is there when the thread has started a process.
const JOBS_PER_STARTER: usize = 2;
/// The most descriptors of a job: standard output, errors and input.
const STREAMS_MAX: usize = 3;

/// A process that is ready to be started.
pub struct Job {
    /// The program, with its arguments, environment and directory.
    pub command: Command,
    /// The processors to which the process is bound.
    pub processors: Option<CpuSet>,
    /// The task's ends of its streams.
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
    number: usize,
    command: Command,
    processors: Option<CpuSet>,
    has_errors: bool,
    has_input: bool,
}

/// The result of a job: the thread, the number of the job, the process.
type Outcome = (usize, usize, io::Result<Child>);

/// Starts a process. It gets copies of the streams with the lowest free descriptors (decision 30).
fn start(mut command: Command, processors: Option<CpuSet>, streams: &Streams) -> io::Result<Child> {
    if let Some(input) = &streams.input {
        command.stdin(input.try_clone()?);
    }
    command.stdout(streams.output.try_clone()?);
    command.stderr(streams.errors.as_ref().unwrap_or(&streams.output).try_clone()?);
    start_with_processors(processors, || command.spawn())
}

/// A thread that starts processes, as the daemon sees it.
struct Starter {
    orders: Sender<Order>,
    /// Carries the streams of each order.
    socket: OwnedFd,
}

impl Starter {
    /// Starts the thread. Fails if it cannot have descriptors of its own.
    fn new(number: usize, outcomes: Sender<Outcome>) -> io::Result<Starter> {
        let (socket, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        let (orders, received) = channel();
        let (begun, has_begun) = channel();
        // Closed here only when the thread has its own copy.
        let theirs = Arc::new(theirs);
        let kept = theirs.clone();
        std::thread::Builder::new().spawn(move || {
            let own = separate_thread(kept.as_fd());
            drop(kept);
            match own {
                Ok(own) => {
                    let _ = begun.send(Ok(()));
                    serve(number, &own, &received, &outcomes);
                }
                Err(error) => drop(begun.send(Err(error))),
            }
        })?;
        has_begun.recv().unwrap_or_else(|_| Err(io::ErrorKind::Other.into()))?;
        drop(theirs);
        Ok(Starter { orders, socket })
    }

    /// Orders a job; the thread gets copies of its streams.
    fn order(&self, number: usize, job: Job) -> io::Result<()> {
        let Job { command, processors, streams } = job;
        let mut descriptors: Vec<BorrowedFd<'_>> = vec![streams.output.as_fd()];
        descriptors.extend(streams.errors.as_ref().map(AsFd::as_fd));
        descriptors.extend(streams.input.as_ref().map(AsFd::as_fd));
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(STREAMS_MAX))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        control.push(SendAncillaryMessage::ScmRights(&descriptors));
        let data = [IoSlice::new(&[0])];
        rustix::io::retry_on_intr(|| sendmsg(&self.socket, &data, &mut control, SendFlags::NOSIGNAL))?;
        let (has_errors, has_input) = (streams.errors.is_some(), streams.input.is_some());
        let order = Order { number, command, processors, has_errors, has_input };
        self.orders.send(order).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }
}

/// Starts the processes that are ordered, until the daemon ends.
fn serve(thread: usize, own: &SeparateThread, orders: &Receiver<Order>, outcomes: &Sender<Outcome>) {
    for order in orders {
        let Order { number, command, processors, .. } = order;
        let streams = receive_streams(&own.keep, order.has_errors, order.has_input);
        let result = streams.and_then(|streams| own.with_signals(|| start(command, processors, &streams)));
        if outcomes.send((thread, number, result)).is_err() {
            return;
        }
    }
}

/// Receives the streams of one order.
fn receive_streams(socket: &OwnedFd, has_errors: bool, has_input: bool) -> io::Result<Streams> {
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
    let errors = has_errors.then(&mut next).transpose()?;
    let input = has_input.then(&mut next).transpose()?;
    Ok(Streams { output, errors, input })
}

/// The threads that start processes.
pub struct Starters {
    /// How many threads there may be.
    count_max: usize,
    /// The threads, once they were needed. There are none if there is no gain or if they cannot be had.
    threads: Option<(Vec<Starter>, Receiver<Outcome>)>,
}

impl Starters {
    /// Starts without a thread.
    pub fn new(count_max: usize) -> Starters {
        Starters { count_max, threads: None }
    }

    /// Starts processes. Returns their results in the same order. After a failure no further one is begun; the results
    /// of those are `None`.
    pub fn start_all(&mut self, jobs: Vec<Job>) -> Vec<Option<io::Result<Child>>> {
        // To start the threads would cost more than they save for a single process.
        if jobs.len() == 1 {
            return start_in_turn(jobs);
        }
        let (threads, outcomes) = self.threads.get_or_insert_with(|| start_threads(self.count_max));
        if threads.is_empty() { start_in_turn(jobs) } else { start_by(threads, outcomes, jobs) }
    }
}

/// Starts the threads, as many as can be had.
fn start_threads(count: usize) -> (Vec<Starter>, Receiver<Outcome>) {
    let (sender, outcomes) = channel();
    let threads = (0..count).map_while(|number| Starter::new(number, sender.clone()).ok()).collect();
    (threads, outcomes)
}

/// Starts processes one after the other.
fn start_in_turn(jobs: Vec<Job>) -> Vec<Option<io::Result<Child>>> {
    let mut has_failed = false;
    let run = |job: Job| {
        let result = (!has_failed).then(|| start(job.command, job.processors, &job.streams));
        has_failed |= matches!(result, Some(Err(_)));
        result
    };
    jobs.into_iter().map(run).collect()
}

/// Starts processes by the threads. Each gets the next job as soon as it has ended one.
fn start_by(threads: &[Starter], outcomes: &Receiver<Outcome>, jobs: Vec<Job>) -> Vec<Option<io::Result<Child>>> {
    let mut results: Vec<_> = jobs.iter().map(|_| None).collect();
    let mut jobs: VecDeque<_> = jobs.into_iter().enumerate().collect();
    let (mut open, mut has_failed) = (0, false);
    let mut idle: Vec<usize> = (0..threads.len() * JOBS_PER_STARTER).map(|place| place % threads.len()).rev().collect();
    loop {
        while let Some(thread) = idle.pop() {
            let next = if has_failed { None } else { jobs.pop_front() };
            let Some((number, job)) = next else { break };
            match threads[thread].order(number, job) {
                Ok(()) => open += 1,
                Err(error) => (results[number], has_failed) = (Some(Err(error)), true),
            }
        }
        if open == 0 {
            return results;
        }
        let (thread, number, result) = outcomes.recv().expect("the threads live as long as the daemon");
        open -= 1;
        has_failed |= result.is_err();
        results[number] = Some(result);
        idle.push(thread);
    }
}
