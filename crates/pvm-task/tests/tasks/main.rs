//! Tasks that exchange messages: real sockets, real shared memory, a small daemon.
#![forbid(unsafe_code)]

mod daemon;
mod ends;
mod fmp;
mod handlers;
mod messages;
mod queues;
mod waits;

use daemon::Running;
use pvm_core::state_line::Call;
use pvm_task::{Delivered, Kind, Source, Step, Submit, Task, Waiter};
use std::sync::mpsc;
use std::time::Duration;

const LONG: Duration = Duration::from_secs(120);

/// Calls `attempt` until it returns a value.
fn wait<T>(task: &mut Task, attempt: impl FnMut(&mut Task) -> Option<T>) -> T {
    wait_for(task, LONG, attempt).expect("in time")
}

fn wait_for<T>(task: &mut Task, timeout: Duration, mut attempt: impl FnMut(&mut Task) -> Option<T>) -> Option<T> {
    let mut waiter = Waiter::new(Call::Pause, Some(timeout));
    loop {
        task.progress();
        if let Some(result) = attempt(task) {
            waiter.finish(task);
            return Some(result);
        }
        match waiter.next(task) {
            Step::Again => {}
            Step::Sleep(sleep) => {
                let by = sleep.sleep();
                waiter.woke(task, by);
            }
            Step::Join(_) => panic!("one thread only"),
            Step::TimedOut => {
                waiter.finish(task);
                return None;
            }
        }
    }
}

fn receive(task: &mut Task, src: i32, tag: i32) -> i32 {
    let filter = task.filter(src, tag);
    wait(task, |task| task.receive(&filter))
}

fn send(task: &mut Task, to: i32, tag: i32) {
    wait(task, |task| (task.send(to, tag).unwrap() == Submit::Done).then_some(()));
}

fn psend(task: &mut Task, to: i32, tag: i32, body: &[u8]) {
    wait(task, |task| (task.psend(to, tag, body).unwrap() == Submit::Done).then_some(()));
}

fn precv(task: &mut Task, src: i32, tag: i32, data: &mut [u8]) -> Delivered {
    let filter = task.filter(src, tag);
    task.begin_precv(&filter, data.len());
    let delivered = wait(task, |task| task.try_precv(&filter, Kind::Byte, data));
    task.end_precv();
    delivered
}

fn int(task: &mut Task) -> i32 {
    let mut word = [0; 4];
    task.unpack(Kind::Int, &mut word).unwrap();
    i32::from_ne_bytes(word)
}

fn enroll(daemon: &Running) -> Task {
    let environment = daemon.environment();
    let mut task = Task::new(&environment);
    task.enroll(&environment).unwrap();
    task
}

/// Runs `other` as a second task in a thread of its own, and `one` in this thread; each gets the tid of the other.
fn two(daemon: &Running, one: impl FnOnce(&mut Task, i32), other: impl FnOnce(&mut Task, i32) + Send) {
    let mut task = enroll(daemon);
    let own = task.tid().unwrap().0 as i32;
    let (sender, receiver) = mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut task = enroll(daemon);
            sender.send(task.tid().unwrap().0 as i32).unwrap();
            other(&mut task, own);
        });
        one(&mut task, receiver.recv().unwrap());
    });
}

fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at * 7 + at / 251) as u8).collect()
}

struct Piece(Vec<u8>);

impl Source for Piece {
    fn bytes(&self) -> &[u8] {
        &self.0
    }
}
