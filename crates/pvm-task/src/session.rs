//! Blocking calls for single-threaded programs.
use crate::member::Member;
use crate::task::{Step, Waiter};
use crate::{EnrollError, Environment, Filter, OutputEvent, Submit, Task, Ticket};
use pvm_core::codes::Code;
use pvm_core::encoding::Reader;
use pvm_core::proto::{Reply, Request};
use pvm_core::state_line::Call;
use pvm_core::tid::Tid;
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// How often a session tries to reach a daemon that does not answer.
const ENROLL_TRIES: u32 = 5;
/// The pause between two of these tries.
const ENROLL_PAUSE: Duration = Duration::from_secs(1);

/// A received message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Received {
    /// The sender (`Tid::DAEMON` for the daemon).
    pub src: Tid,
    /// The context.
    pub ctx: i32,
    /// The tag.
    pub tag: i32,
    /// The wait id.
    pub wid: i32,
    /// `ENC_XDR` or a data signature.
    pub enc: i32,
    /// The data signature of the host that packed the body.
    pub format: i32,
    /// The body, as it was sent.
    pub body: Vec<u8>,
}

impl Received {
    /// Returns a reader of the body. The body must have been packed in the default encoding; the reader converts it
    /// from the sender's format.
    pub fn reader(&self) -> Reader<'_> {
        Reader::of(&self.body, self.format)
    }
}

/// A task with blocking calls.
pub struct Session {
    task: Task,
}

impl Session {
    /// Enrolls; tries again for a while if the daemon does not answer.
    pub fn enroll(environment: &Environment) -> Result<Session, EnrollError> {
        let mut task = Task::new(environment);
        let mut tries = 1;
        loop {
            match task.enroll(environment) {
                Err(error) if error.is_transient() && tries < ENROLL_TRIES => {
                    std::thread::sleep(ENROLL_PAUSE);
                    tries += 1;
                }
                result => return result.map(|_| Session { task }),
            }
        }
    }

    /// Does not count among the tasks that may outnumber the cores, whatever it does: for a tool, which mostly sleeps.
    pub fn never_compete(&mut self) {
        self.task.member.as_mut().map(Member::never_compete);
    }

    /// Returns the tid of this task.
    pub fn tid(&self) -> Tid {
        self.task.tid().unwrap_or(Tid::NONE)
    }

    /// Returns the task itself.
    pub fn task(&mut self) -> &mut Task {
        &mut self.task
    }

    /// Calls `attempt` until it returns a value or the time is over.
    fn wait_for<T>(&mut self, timeout: Option<Duration>, mut attempt: impl FnMut(&mut Task) -> Option<T>) -> Option<T> {
        // What a tool waits for concerns nobody.
        let mut waiter = Waiter::new(Call::Daemon, timeout);
        loop {
            self.task.progress();
            if let Some(result) = attempt(&mut self.task) {
                waiter.finish(&mut self.task);
                return Some(result);
            }
            match waiter.next(&mut self.task) {
                Step::Again | Step::Join(_) => {}
                Step::Sleep(sleep) => {
                    let by = sleep.sleep();
                    waiter.woke(&mut self.task, by);
                }
                Step::TimedOut => {
                    waiter.finish(&mut self.task);
                    return None;
                }
            }
        }
    }

    /// Sends a request to the daemon and waits for the reply. `Reply::Error` becomes `Err`.
    pub fn request(&mut self, request: Request) -> Result<Reply, Code> {
        let ticket = self.task.begin(request)?;
        self.wait_for(None, |task| task.poll_reply(&ticket)).unwrap_or(Err(Code::SysErr))
    }

    /// Sends requests at once, and waits until all are answered, or the time is over: `None` stands for no answer.
    pub fn request_all(&mut self, requests: Vec<Request>, limit: Duration) -> Vec<Option<Result<Reply, Code>>> {
        let mut requests = Requests::send(&mut self.task, requests);
        self.wait_for(Some(limit), |task| requests.poll(task).then_some(()));
        requests.finish(&mut self.task)
    }

    /// Sends a body that was written by `pvm_core::encoding::Writer` (`ENC_XDR`).
    pub fn send(&mut self, to: Tid, ctx: i32, tag: i32, body: &[u8]) -> Result<(), Code> {
        self.wait_for(None, |task| match task.send_body(to, ctx, tag, 0, body) {
            Ok(Submit::Again) => None,
            Ok(Submit::Done) => Some(Ok(())),
            Err(code) => Some(Err(code)),
        })
        .unwrap_or(Err(Code::SysErr))
    }

    /// Receives the oldest message that `filter` accepts; returns `None` if the time is over first. With a `timeout` of
    /// zero, polls once. Fails with `SysErr` if the daemon is gone and no such message has arrived.
    pub fn recv(&mut self, filter: Filter, timeout: Option<Duration>) -> Result<Option<Received>, Code> {
        let found = self.wait_for(timeout, |task| match task.probe(&filter) {
            Some(mid) => Some(take(task, mid)),
            None if task.is_connected() => None,
            None => Some(Err(Code::SysErr)),
        });
        found.transpose()
    }

    /// Returns the oldest event of the output of children. Does not wait.
    pub fn next_output(&mut self) -> Option<OutputEvent> {
        self.task.next_output()
    }

    /// Sleeps until a message or frame has arrived for the task, one of `others` is readable (or at its end), or the
    /// time is over. If anything has arrived since the last `wait`, does not sleep. Returns which of `others` are
    /// ready.
    pub fn wait(&mut self, others: &[BorrowedFd<'_>], timeout: Option<Duration>) -> Vec<bool> {
        let task = &mut self.task;
        task.prepare_park();
        task.progress();
        let timeout = if task.take_news() { Some(Duration::ZERO) } else { timeout };
        let (ready, by) = task.park(timeout).sleep_with(others);
        task.unpark_by(by);
        task.progress();
        task.take_news();
        ready
    }

    /// Returns whether the task is connected to its daemon.
    pub fn is_connected(&self) -> bool {
        self.task.is_connected()
    }

    /// Returns why the machine ends or has ended, if nobody has asked for it.
    pub fn why_halting(&self) -> Option<&str> {
        self.task.why_halting()
    }

    /// Leaves the machine.
    pub fn leave(mut self) -> Result<(), Code> {
        self.task.leave()
    }
}

/// Takes a queued message out of the task.
fn take(task: &mut Task, mid: i32) -> Result<Received, Code> {
    let message = task.export_message(mid)?;
    task.free_buffer(mid)?;
    Ok(Received {
        src: message.src,
        ctx: message.ctx,
        tag: message.tag,
        wid: message.wid,
        enc: message.enc,
        format: message.format,
        body: message.body.into_vec(),
    })
}

/// An answer, or why there will be none.
type Answer = Result<Reply, Code>;

/// Requests that were sent at once, and their answers.
pub struct Requests {
    all: Vec<State>,
}

enum State {
    Sent(Ticket),
    Answered(Answer),
}

impl Requests {
    /// Sends the requests.
    pub fn send(task: &mut Task, requests: Vec<Request>) -> Requests {
        let send = |request| match task.begin(request) {
            Ok(ticket) => State::Sent(ticket),
            Err(code) => State::Answered(Err(code)),
        };
        Requests { all: requests.into_iter().map(send).collect() }
    }

    /// Takes the answers that have come. Returns whether these are all.
    pub fn poll(&mut self, task: &mut Task) -> bool {
        for state in &mut self.all {
            if let State::Sent(ticket) = state {
                if let Some(answer) = task.poll_reply(ticket) {
                    *state = State::Answered(answer);
                }
            }
        }
        self.all.iter().all(|state| matches!(state, State::Answered(_)))
    }

    /// Returns the answers in the order of the requests, `None` for each that has not come: it will be dropped.
    pub fn finish(self, task: &mut Task) -> Vec<Option<Answer>> {
        let take = |state| match state {
            State::Answered(answer) => Some(answer),
            State::Sent(ticket) => {
                task.forget(ticket);
                None
            }
        };
        self.all.into_iter().map(take).collect()
    }
}
