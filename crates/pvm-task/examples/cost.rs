//! Measures what a task adds to the bare shared-memory queue: one-way times of short messages between two threads
//! on two cores, for the queue alone, for psend and precv, and for initsend, pack, send, recv and unpack.
//!
//! `cargo run --release -p pvm-task --example cost [ROUNDS]`
#![forbid(unsafe_code)]

#[path = "../tests/tasks/daemon/mod.rs"]
mod daemon;

use daemon::Running;
use pvm_core::state_line::Call;
use pvm_fmp::ports::{PortTable, PortView};
use pvm_fmp::{Arrival, Endpoint, Meta, Sink};
use pvm_task::{Environment, Kind, Submit, Task, Waiter};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Instant;

const PAYLOAD_BYTES: usize = 8;

fn main() {
    let rounds = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(200_000);
    for _ in 0..3 {
        report("queue alone", rounds, bare(rounds));
        report("psend, precv", rounds, with_tasks(rounds, one_call));
        report("pack, send, recv, unpack, default", rounds, with_tasks(rounds, |t, p, s| packed(t, p, s, 0)));
        report("pack, send, recv, unpack, raw", rounds, with_tasks(rounds, |t, p, s| packed(t, p, s, 1)));
    }
    on_one_core();
}

fn report(what: &str, rounds: u32, seconds: f64) {
    println!("{what:36} {:8.1} ns one way", seconds * 1e9 / f64::from(rounds) / 2.0);
}

fn pin(core: usize) {
    let mut set = rustix::thread::CpuSet::new();
    set.set(core);
    // If the thread cannot be pinned, the scheduler chooses the core.
    let _ = rustix::thread::sched_setaffinity(None, &set);
}

struct Count(usize);

impl Sink for Count {
    fn arrived(&mut self, _from: u32, _meta: Meta, body: Arrival<'_>) {
        let mut data = [0; PAYLOAD_BYTES];
        if let Arrival::Inline(inline) = body {
            self.0 += inline.copy_to(&mut data);
        }
    }
}

type Descriptors = [OwnedFd; 2];

/// Measures the bare queue: two endpoints without tasks.
fn bare(rounds: u32) -> f64 {
    let table = PortTable::new(2).unwrap();
    table.set(1);
    table.set(2);
    let ports = || table.descriptor().try_clone_to_owned().unwrap();
    let ((tell_first, hear_first), (tell_second, hear_second)) = (channel(), channel());
    let (first_ports, second_ports) = (ports(), ports());
    std::thread::scope(|scope| {
        scope.spawn(move || bare_side(2, 1, 1, second_ports, tell_second, hear_first, rounds));
        scope.spawn(move || bare_side(1, 2, 0, first_ports, tell_first, hear_second, rounds)).join().unwrap()
    })
}

fn bare_side(
    own: u32,
    peer: u32,
    core: usize,
    ports: OwnedFd,
    tell: Sender<Descriptors>,
    hear: Receiver<Descriptors>,
    rounds: u32,
) -> f64 {
    pin(core);
    let mut endpoint = Endpoint::new().unwrap();
    tell.send(endpoint.descriptors().unwrap()).unwrap();
    endpoint.enrolled(own, PortView::new(ports.as_fd().try_clone_to_owned().unwrap()).unwrap());
    let [segment, bell] = hear.recv().unwrap();
    endpoint.connect(peer, segment, bell).unwrap();
    let mut count = Count(0);
    let start = Instant::now();
    for round in 1..=rounds as usize {
        if own == 1 {
            let _ = endpoint.send_bytes(peer, [0; 6], &[7; PAYLOAD_BYTES]).unwrap();
        }
        while count.0 < round * PAYLOAD_BYTES {
            endpoint.poll(&mut count);
        }
        if own == 2 {
            let _ = endpoint.send_bytes(peer, [0; 6], &[7; PAYLOAD_BYTES]).unwrap();
        }
    }
    start.elapsed().as_secs_f64()
}

/// One side of a ping-pong: sends or receives once.
type Side = fn(&mut Task, i32, bool);

fn with_tasks(rounds: u32, side: Side) -> f64 {
    let daemon = Running::start();
    let environment = daemon.environment();
    let ((tell_first, hear_first), (tell_second, hear_second)) = (channel(), channel());
    std::thread::scope(|scope| {
        let other = environment.clone();
        scope.spawn(move || task_side(&other, 1, tell_second, hear_first, rounds, side));
        scope.spawn(move || task_side(&environment, 0, tell_first, hear_second, rounds, side)).join().unwrap()
    })
}

fn task_side(
    environment: &Environment,
    core: usize,
    tell: Sender<i32>,
    hear: Receiver<i32>,
    rounds: u32,
    side: Side,
) -> f64 {
    pin(core);
    let mut task = Task::new(environment);
    let own = task.enroll(environment).unwrap();
    tell.send(own.0 as i32).unwrap();
    let peer = hear.recv().unwrap();
    let mut start = Instant::now();
    for round in 0..rounds + 100 {
        if round == 100 {
            start = Instant::now();
        }
        side(&mut task, peer, core == 0);
        side(&mut task, peer, core == 1);
    }
    start.elapsed().as_secs_f64()
}

fn one_call(task: &mut Task, peer: i32, sends: bool) {
    if sends {
        while task.psend(peer, 1, &[7; PAYLOAD_BYTES]).unwrap() == Submit::Again {
            task.progress();
        }
        return;
    }
    let mut data = [0; PAYLOAD_BYTES];
    let filter = task.filter(peer, 1);
    task.begin_precv(&filter, data.len());
    let mut waiter = Waiter::new(Call::Pause, None);
    while task.try_precv(&filter, Kind::Byte, &mut data).is_none() {
        // `Step::Sleep` is ignored: each side has a core of its own and polls.
        let _ = waiter.next(task);
    }
    waiter.finish(task);
    task.end_precv();
}

fn packed(task: &mut Task, peer: i32, sends: bool, encoding: i32) {
    if sends {
        task.init_send(encoding).unwrap();
        task.pack(Kind::Double, &[7; PAYLOAD_BYTES]).unwrap();
        while task.send(peer, 1).unwrap() == Submit::Again {
            task.progress();
        }
        return;
    }
    task.drop_receive_buffer();
    let filter = task.filter(peer, 1);
    let mut waiter = Waiter::new(Call::Pause, None);
    loop {
        task.progress();
        if task.receive(&filter).is_some() {
            break;
        }
        let _ = waiter.next(task);
    }
    waiter.finish(task);
    let mut data = [0; PAYLOAD_BYTES];
    task.unpack(Kind::Double, &mut data).unwrap();
}

/// The number of messages in a batch. The result is the time of the fastest batch, because other programs on the
/// machine disturb it least.
const BATCH_MESSAGES: u32 = 1000;
const BATCHES: u32 = 300;

fn best(what: &str, mut message: impl FnMut()) {
    let mut best = f64::MAX;
    for _ in 0..BATCHES {
        let start = Instant::now();
        for _ in 0..BATCH_MESSAGES {
            message();
        }
        best = best.min(start.elapsed().as_secs_f64());
    }
    println!("{what:36} {:8.1} ns both sides", best * 1e9 / f64::from(BATCH_MESSAGES));
}

/// Measures both sides in one thread. The result is the time of the instructions alone, since no cache line moves from
/// core to core.
fn on_one_core() {
    let table = PortTable::new(2).unwrap();
    let mut sides: Vec<Endpoint> = [1, 2]
        .map(|tid| {
            table.set(tid);
            let mut endpoint = Endpoint::new().unwrap();
            endpoint.enrolled(tid, PortView::new(table.descriptor().try_clone_to_owned().unwrap()).unwrap());
            endpoint
        })
        .into();
    for (at, peer) in [(0, 1), (1, 0)] {
        let [segment, bell] = sides[peer].descriptors().unwrap();
        sides[at].connect(peer as u32 + 1, segment, bell).unwrap();
    }
    let mut count = Count(0);
    best("queue alone", || {
        let _ = sides[0].send_bytes(2, [0; 6], &[7; PAYLOAD_BYTES]).unwrap();
        sides[1].poll(&mut count);
    });

    let daemon = Running::start();
    let environment = daemon.environment();
    let [mut one, mut other] = [(); 2].map(|()| {
        let mut task = Task::new(&environment);
        task.enroll(&environment).unwrap();
        task
    });
    let [first, second] = [&one, &other].map(|task| task.tid().unwrap().0 as i32);
    one_call(&mut one, second, true);
    one_call(&mut other, first, false);
    best("psend, precv", || {
        one_call(&mut one, second, true);
        one_call(&mut other, first, false);
    });
    for (what, encoding) in [("default", 0), ("raw", 1)] {
        best(&format!("pack, send, recv, unpack, {what}"), || {
            packed(&mut one, second, true, encoding);
            packed(&mut other, first, false, encoding);
        });
    }
    best("initsend and pack", || {
        one.init_send(0).unwrap();
        one.pack(Kind::Double, &[7; PAYLOAD_BYTES]).unwrap();
    });
}
