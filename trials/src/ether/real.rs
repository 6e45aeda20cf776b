//! Short runs over real devices: TCP between hosts on the emulated Ethernet.

use super::device::Emulation;
use super::model::{Config, Medium, PORT_BYTES_MAX};
use super::wire::{Counters, Rate};
use crate::common::Checks;
use crate::counts::Counts;
use crate::hosts::network::{Host, Network, Wiring};
use anyhow::{Context, Result, ensure};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::path::Path;
use std::time::{Duration, Instant};

/// The share of the wire that TCP must reach through a switch. It cannot reach more than 0.94, because of headers and
/// gaps.
const SHARE_MIN: f64 = 0.85;
/// The share that TCP must reach at a hub. There the acknowledgements collide with data. The sender of the data draws
/// its backoff from a small range after each frame and mostly wins, so acknowledgements wait until the sender's window
/// is closed, and the wire is idle: the capture effect (Ramakrishnan and Yang 1994).
const HUB_SHARE_MIN: f64 = 0.5;
/// The most attempts of a run: on a busy machine, the hosts may be too slow for the wire.
const ATTEMPTS: usize = 3;
/// The longest silence of a connection.
const SILENCE_MAX: Duration = Duration::from_secs(30);
/// The bytes of a write.
const CHUNK_BYTES: usize = 16 << 10;

/// A run: hosts that send to the first host at the same time.
struct Run {
    name: &'static str,
    megabits: u64,
    medium: Medium,
    senders: usize,
    /// The number of bytes that each sender sends.
    bytes: usize,
    /// What must be true of the share of the wire and the counters.
    check: fn(f64, &Counters) -> Result<()>,
    /// Whether short tests leave it out.
    is_long: bool,
}

const SWITCH: Medium = Medium::Switch { port_bytes_max: PORT_BYTES_MAX };

const RUNS: &[Run] = &[
    Run {
        name: "TCP through a switch at 10 Mbit/s",
        megabits: 10,
        medium: SWITCH,
        senders: 1,
        bytes: 1_500_000,
        check: fills_the_wire,
        is_long: false,
    },
    Run {
        name: "TCP through a switch at 100 Mbit/s",
        megabits: 100,
        medium: SWITCH,
        senders: 1,
        bytes: 8_000_000,
        check: fills_the_wire,
        is_long: false,
    },
    Run {
        name: "TCP at a hub at 10 Mbit/s",
        megabits: 10,
        medium: Medium::Hub,
        senders: 1,
        bytes: 1_500_000,
        check: fills_the_hub,
        is_long: true,
    },
    Run {
        name: "TCP at a hub at 100 Mbit/s",
        megabits: 100,
        medium: Medium::Hub,
        senders: 1,
        bytes: 8_000_000,
        check: fills_the_hub,
        is_long: true,
    },
    Run {
        name: "two senders at a hub at 10 Mbit/s",
        megabits: 10,
        medium: Medium::Hub,
        senders: 2,
        bytes: 600_000,
        check: |_, counters| {
            let collided = counters.ports.iter().filter(|port| port.collisions > 0).count();
            ensure!(collided >= 2, "no collisions");
            Ok(())
        },
        is_long: false,
    },
    Run {
        name: "incast of eight senders through a switch at 100 Mbit/s",
        megabits: 100,
        medium: SWITCH,
        senders: 8,
        bytes: 250_000,
        check: |_, counters| {
            let port = counters.ports[0];
            ensure!(port.port_dropped > 0, "the port has dropped nothing");
            ensure!(port.port_queue_bytes <= PORT_BYTES_MAX, "the port has buffered {} bytes", port.port_queue_bytes);
            Ok(())
        },
        is_long: false,
    },
    Run {
        name: "TCP through a switch at 1 Gbit/s",
        megabits: 1000,
        medium: SWITCH,
        senders: 1,
        bytes: 40_000_000,
        // How much of this wire can be filled depends on the machine's processors, so no share is required; the
        // counters show how late frames are.
        check: |_, _| Ok(()),
        is_long: true,
    },
];

fn fills_the_hub(share: f64, _counters: &Counters) -> Result<()> {
    ensure!(share >= HUB_SHARE_MIN, "{share:.3} of the wire, less than {HUB_SHARE_MIN}");
    Ok(())
}

fn fills_the_wire(share: f64, _counters: &Counters) -> Result<()> {
    ensure!(share >= SHARE_MIN, "{share:.3} of the wire, less than {SHARE_MIN}");
    Ok(())
}

/// Runs all runs, without the long ones if `is_short`. Each makes its own hosts in a folder.
pub fn counted(folder: &Path, is_short: bool, seed: u64) -> Counts {
    let mut checks = Checks::default();
    for run in RUNS.iter().filter(|run| !(is_short && run.is_long)) {
        let mut result = attempt(run, folder, seed);
        for _ in 1..ATTEMPTS {
            if let Err(error) = &result {
                println!("{}: {error:#}; another attempt", run.name);
                result = attempt(run, folder, seed);
            }
        }
        checks.check(run.name, result);
    }
    checks.counts()
}

fn attempt(run: &Run, folder: &Path, seed: u64) -> Result<()> {
    let rate = Rate::of_megabits(run.megabits)?;
    let config = Config { seed, ..Config::new(rate, run.medium) };
    let network = Network::new(folder, run.senders + 1, Wiring::Ether(config))?;
    let time = transfer(network.hosts(), run.bytes)?;
    let share = (8 * run.senders * run.bytes) as f64 / time.as_secs_f64() / (run.megabits * 1_000_000) as f64;
    let counters = network.ether().and_then(Emulation::counters)?;
    let (collisions, dropped) = (counters.collisions(), counters.dropped());
    println!("{}: {share:.3} of the wire, {collisions} collisions, {dropped} frames dropped\n{counters}", run.name);
    (run.check)(share, &counters)
}

/// Sends bytes from all other hosts to the first one. Returns the time until the first host has all of them.
fn transfer(hosts: &[Host], bytes: usize) -> Result<Duration> {
    let listener = on(&hosts[0], || Ok(TcpListener::bind((Ipv4Addr::new(10, 77, 0, 1), 0))?))?;
    let address = listener.local_addr()?;
    let mut pairs = Vec::new();
    for host in &hosts[1..] {
        let sender = on(host, || connect(&address))?;
        // The kernel has accepted the connection already, so this call does not wait.
        let (receiver, _) = listener.accept()?;
        receiver.set_read_timeout(Some(SILENCE_MAX))?;
        pairs.push((sender, receiver));
    }
    let start = Instant::now();
    std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for (sender, receiver) in &pairs {
            threads.push(scope.spawn(move || send(sender, bytes)));
            threads.push(scope.spawn(move || receive(receiver, bytes)));
        }
        threads.into_iter().try_for_each(|thread| thread.join().expect("no transfer panics"))
    })?;
    Ok(start.elapsed())
}

/// Executes a function in the network of a host. Sockets that it makes stay there.
fn on<T: Send>(host: &Host, act: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    let space = File::open(format!("/proc/{}/ns/net", host.holder()))?;
    let inside = || {
        move_into_link_name_space(space.as_fd(), Some(LinkNameSpaceType::Network))?;
        act()
    };
    // Only the new thread enters the host's network namespace, and this thread ends.
    std::thread::scope(|scope| scope.spawn(inside).join().expect("no socket call panics"))
        .with_context(|| host.name.clone())
}

fn connect(address: &SocketAddr) -> Result<TcpStream> {
    let stream = TcpStream::connect_timeout(address, SILENCE_MAX)?;
    stream.set_write_timeout(Some(SILENCE_MAX))?;
    Ok(stream)
}

fn send(mut stream: &TcpStream, bytes: usize) -> Result<()> {
    let chunk = [0; CHUNK_BYTES];
    let mut left = bytes;
    while left > 0 {
        let length = left.min(CHUNK_BYTES);
        stream.write_all(&chunk[..length]).context("a sender")?;
        left -= length;
    }
    Ok(stream.shutdown(Shutdown::Write)?)
}

fn receive(mut stream: &TcpStream, bytes: usize) -> Result<()> {
    let mut buffer = [0; CHUNK_BYTES];
    let mut received = 0;
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => break,
            Ok(length) => received += length,
            // A read with a time limit ends when the process is stopped and continued.
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error).context("the receiver"),
        }
    }
    ensure!(received == bytes, "{received} of {bytes} bytes have arrived");
    Ok(())
}
