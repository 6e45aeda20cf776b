//! Measures round trips through the shared-memory layer alone, between two threads that are pinned to two cores.
//! `cargo run --release -p pvm-fmp --example pingpong`
use pvm_fmp::ports::{PortTable, PortView};
use pvm_fmp::{Arrival, Endpoint, Meta, NotTaken, Posted, Sink};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Instant;

struct Last {
    count: usize,
    room: Vec<u8>,
}

impl Sink for Last {
    fn arrived(&mut self, _from: u32, _meta: Meta, body: Arrival<'_>) {
        match body {
            Arrival::Inline(inline) => drop(inline.copy_to(&mut self.room)),
            Arrival::Remote(remote) => remote.read(0, &mut self.room[..remote.len()]),
            Arrival::InTransit(body) => {
                let bytes = body.len();
                match body.take(&mut self.room[..bytes]) {
                    Ok(()) => {}
                    Err(NotTaken::Eager(remote)) => remote.read(0, &mut self.room[..bytes]),
                    Err(NotTaken::Later | NotTaken::Lost) => return,
                }
            }
        }
        self.count += 1;
    }
}

fn receive(endpoint: &mut Endpoint, last: &mut Last, post: bool) {
    if post {
        endpoint.post(Some(Posted { from: 0, mask: [0; 6], value: [0; 6] }));
    }
    let before = last.count;
    while last.count == before {
        endpoint.poll(last);
    }
    if post {
        endpoint.post(None);
    }
}

/// Pins the calling thread to one core.
fn pin(core: usize) {
    let mut set = rustix::thread::CpuSet::new();
    set.set(core);
    let _ = rustix::thread::sched_setaffinity(None, &set);
}

/// Measures the lower limit of the one-way time, in seconds: two threads spin on two cache lines, one for each
/// direction.
fn limit() -> f64 {
    #[repr(align(128))]
    struct Lines(AtomicU64);
    let lines: Arc<[Lines; 2]> = Arc::new([Lines(AtomicU64::new(0)), Lines(AtomicU64::new(0))]);
    let there = lines.clone();
    const ROUNDS: u64 = 300_000;
    let thread = std::thread::spawn(move || {
        pin(1);
        for round in 1..=ROUNDS {
            while there[0].0.load(Ordering::Acquire) != round {
                std::hint::spin_loop();
            }
            there[1].0.store(round, Ordering::Release);
        }
    });
    pin(0);
    let start = Instant::now();
    for round in 1..=ROUNDS {
        lines[0].0.store(round, Ordering::Release);
        while lines[1].0.load(Ordering::Acquire) != round {
            std::hint::spin_loop();
        }
    }
    let time = start.elapsed().as_secs_f64() / ROUNDS as f64 / 2.0;
    thread.join().unwrap();
    time
}

fn rounds(bytes: usize) -> usize {
    (200_000_000 / (bytes + 2000)).clamp(20, 100_000)
}

const SIZES: [usize; 10] = [8, 64, 500, 4096, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20];

fn main() {
    println!("limit {:.3} us one way", limit() * 1e6);
    let table = PortTable::new(2).unwrap();
    table.set(1);
    table.set(2);
    let view = || PortView::new(table.descriptor().try_clone_to_owned().unwrap()).unwrap();
    let (to_main, from_thread) = mpsc::channel();
    let mut a = Endpoint::new().unwrap();
    a.enrolled(1, view());
    let ours = a.descriptors().unwrap();
    let views = table.descriptor().try_clone_to_owned().unwrap();
    let thread = std::thread::spawn(move || {
        pin(1);
        let mut b = Endpoint::new().unwrap();
        b.enrolled(2, PortView::new(views).unwrap());
        let [segment, bell] = ours;
        b.connect(1, segment, bell).unwrap();
        to_main.send(b.descriptors().unwrap()).unwrap();
        let mut last = Last { count: 0, room: vec![1; 16 << 20] };
        let data = vec![2u8; 16 << 20];
        for bytes in SIZES {
            for post in [false, true] {
                for _ in 0..rounds(bytes) {
                    receive(&mut b, &mut last, post);
                    let _ = b.send_bytes(1, [0; 6], &data[..bytes]).unwrap();
                }
            }
        }
    });
    let [segment, bell] = from_thread.recv().unwrap();
    a.connect(2, segment, bell).unwrap();
    let mut last = Last { count: 0, room: vec![1; 16 << 20] };
    let data = vec![2u8; 16 << 20];
    for bytes in SIZES {
        for post in [false, true] {
            let (start, mut least) = (Instant::now(), f64::MAX);
            for _ in 0..rounds(bytes) {
                let began = Instant::now();
                let _ = a.send_bytes(2, [0; 6], &data[..bytes]).unwrap();
                receive(&mut a, &mut last, post);
                least = least.min(began.elapsed().as_secs_f64() / 2.0);
            }
            let one_way = start.elapsed().as_secs_f64() / rounds(bytes) as f64 / 2.0;
            println!(
                "{bytes:9} bytes post={post:5} {:10.3} us one way, least {:10.3} us {:8.3} GB/s",
                one_way * 1e6,
                least * 1e6,
                bytes as f64 / least / 1e9
            );
        }
        if let Some(way) = a.way_to(2, bytes) {
            println!("{bytes:9} bytes are copied {way}");
        }
    }
    thread.join().unwrap();
}
