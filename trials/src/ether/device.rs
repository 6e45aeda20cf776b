//! Runs the model with real hosts: reads frames from TAP devices, and writes each frame when the model delivers it.
//!
//! A frame enters the model when this thread reads it. It is written when this thread next runs after the delivery time
//! that the model has computed. If the thread gets a processor late, the frames that already wait are written late, but
//! later frames are not delayed, since the model continues from its own times; only answers to late frames are late.
//!
//! Accuracy: on a machine with 2 cores, both busy with other work of normal priority, frames between a few hosts were
//! 0.02 to 0.07 ms late on average and 5 ms at most. (0.05 ms is a 24th of a long frame at 10 Mbit/s, and four long
//! frames at 1 Gbit/s.) With 33 hosts, which all receive each broadcast, the average was 0.9 ms at a hub. A frame also
//! waits about as long before this thread reads it; these figures do not include that wait. [`Counters`] contain the
//! average and the maximum of a run. The figures hold if this thread may raise its priority, which root may do;
//! otherwise, other threads can delay it by some milliseconds at any time.
//!
//! At 1 Gbit/s the thread pauses between batches of frames. The same 2 cores, which ran sender and receiver too, filled
//! 0.86 to 0.93 of this wire with TCP, and 0.94 is possible. A measurement on a machine that does not keep up slows the
//! wire down ([`Config::slowdown`]): one second of the model then takes several seconds, and the hosts seem to be
//! faster by this factor. Their time limits are not slowed down.

use super::model::{Config, Ether};
use super::wire::{Counters, Frame, HEADER_BYTES, Rate, Time};
use crate::hosts::network::Host;
use crate::hosts::tap;
use anyhow::{Context, Result, bail, ensure};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use std::collections::HashMap;
use std::io::{IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::num::NonZeroU64;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The name of the program that opens devices.
const PROGRAM: &str = "ports";
/// The most bytes of a frame.
const FRAME_BYTES_MAX: usize = 2048;
/// The most frames that are read from one device before others are read.
const BURST: usize = 64;
/// At 1 Gbit/s, the pause between two batches of frames while there are events: about four long frames.
const BATCH_PAUSE: Duration = Duration::from_micros(50);
/// The nice value of the thread, if the system permits this value.
const NICE: i32 = -20;

/// Compiles the program that opens devices.
pub fn compile() -> Result<()> {
    tap::compile("ether", PROGRAM)
}

/// A running Ethernet between hosts. Dropping it ends the Ethernet.
pub struct Emulation {
    requests: Sender<Sender<Counters>>,
    /// A byte written to this socket wakes the thread. The thread ends when the socket is closed.
    wake: UnixStream,
    thread: Option<JoinHandle<Result<()>>>,
}

impl Emulation {
    /// Connects the hosts.
    pub fn start(hosts: &[Host], config: Config) -> Result<Emulation> {
        let ports = open_ports(hosts)?;
        let (wake, woken) = UnixStream::pair()?;
        woken.set_nonblocking(true)?;
        let (requests, requested) = channel();
        let run = move || Wire::new(&config, &ports, woken, requested).run();
        let thread = std::thread::Builder::new().name("ether".into()).spawn(run)?;
        Ok(Emulation { requests, wake, thread: Some(thread) })
    }

    /// Returns what has happened since the start.
    pub fn counters(&self) -> Result<Counters> {
        let (answer, answers) = channel();
        let asked = self.requests.send(answer).is_ok() && (&self.wake).write_all(&[0]).is_ok();
        ensure!(asked, "the emulated Ethernet has ended");
        answers.recv().context("the emulated Ethernet has ended")
    }
}

impl Drop for Emulation {
    fn drop(&mut self) {
        let _ = self.wake.shutdown(std::net::Shutdown::Both);
        if let Some(Ok(Err(error))) = self.thread.take().map(JoinHandle::join) {
            eprintln!("the emulated Ethernet: {error:#}");
        }
    }
}

/// Opens a TAP device in each host.
fn open_ports(hosts: &[Host]) -> Result<Vec<OwnedFd>> {
    let (ours, theirs) = UnixStream::pair()?;
    let program = tap::program(PROGRAM);
    let child = Command::new(&program)
        .args(hosts.iter().map(|host| host.holder().to_string()))
        .stdin(OwnedFd::from(theirs))
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start {}", program.display()))?;
    let mut ports = Vec::new();
    while let Some(port) = receive_port(&ours)? {
        ports.push(port);
    }
    let said = child.wait_with_output()?;
    if ports.len() < hosts.len() {
        bail!("{}: {}", program.display(), String::from_utf8_lossy(&said.stdout).trim());
    }
    Ok(ports)
}

/// Receives a descriptor; `None` if there are no more.
fn receive_port(socket: &UnixStream) -> Result<Option<OwnedFd>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let mut data = [IoSliceMut::new(&mut byte)];
    recvmsg(socket, &mut data, &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let rights = control.drain().find_map(|part| match part {
        RecvAncillaryMessage::ScmRights(mut list) => list.next(),
        _ => None,
    });
    Ok(rights)
}

/// The thread's state.
struct Wire<'a> {
    ether: Ether,
    ports: &'a [OwnedFd],
    /// The ports that still have a device. A device ends with its host.
    live: Vec<usize>,
    /// The port at which each address was last seen.
    addresses: HashMap<[u8; 6], usize>,
    woken: UnixStream,
    requests: Receiver<Sender<Counters>>,
    start: Instant,
    slowdown: u32,
    pause: Option<Duration>,
    latest: Time,
    late: Time,
    refused: u64,
}

impl<'a> Wire<'a> {
    fn new(config: &Config, ports: &'a [OwnedFd], woken: UnixStream, requests: Receiver<Sender<Counters>>) -> Wire<'a> {
        Wire {
            ether: Ether::new(config, ports.len()),
            ports,
            live: (0..ports.len()).collect(),
            addresses: HashMap::new(),
            woken,
            requests,
            start: Instant::now(),
            slowdown: config.slowdown,
            pause: (config.rate == Rate::Gigabit).then_some(BATCH_PAUSE),
            latest: 0,
            late: 0,
            refused: 0,
        }
    }

    /// Forwards frames until the other end of `woken` is closed.
    fn run(mut self) -> Result<()> {
        // Both calls concern this thread only. Without the second call, timers are up to 0.05 ms late. If the first
        // call is not permitted, other threads may delay this thread.
        let _ = rustix::process::nice(NICE);
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
        while self.wait()? {
            self.advance();
        }
        Ok(())
    }

    /// Returns the model's present.
    fn now(&self) -> Time {
        let elapsed = self.start.elapsed().as_nanos() / u128::from(self.slowdown);
        Time::try_from(elapsed).expect("the time since the start is less than 500 years")
    }

    /// Waits for the model's next event or for frames, and takes in the frames. Returns whether to continue.
    fn wait(&mut self) -> Result<bool> {
        if let Some(pause) = self.pause.filter(|_| self.ether.next_event().is_some()) {
            std::thread::sleep(pause);
        }
        let now = self.now();
        let left = self.ether.next_event().map(|at| at.saturating_sub(now) * u64::from(self.slowdown));
        let timeout =
            left.map(|left| Timespec { tv_sec: (left / 1_000_000_000) as i64, tv_nsec: (left % 1_000_000_000) as i64 });
        let live = self.live.clone();
        let mut polled: Vec<PollFd> = live.iter().map(|port| PollFd::new(&self.ports[*port], PollFlags::IN)).collect();
        polled.push(PollFd::from_borrowed_fd(std::os::fd::AsFd::as_fd(&self.woken), PollFlags::IN));
        rustix::io::retry_on_intr(|| poll(&mut polled, timeout.as_ref())).context("poll")?;
        let ready: Vec<bool> = polled.iter().map(|polled| !polled.revents().is_empty()).collect();
        drop(polled);
        for (port, _) in live.iter().zip(&ready).filter(|(_, ready)| **ready) {
            self.take(*port);
        }
        if ready[live.len()] { self.obey() } else { Ok(true) }
    }

    /// Reads frames from a device.
    fn take(&mut self, from: usize) {
        let mut bytes = [0; FRAME_BYTES_MAX];
        for _ in 0..BURST {
            match rustix::io::read(&self.ports[from], &mut bytes) {
                Ok(length) if length >= HEADER_BYTES => {
                    // The model first executes all that has happened before this frame.
                    self.advance();
                    let frame = self.frame(from, &bytes[..length]);
                    self.ether.send(self.now(), from, frame);
                }
                Ok(_) => {}
                Err(Errno::AGAIN | Errno::INTR) => return,
                Err(_) => {
                    self.live.retain(|port| *port != from);
                    return;
                }
            }
        }
    }

    /// Makes a frame of the model. The destination is everyone if the address belongs to several hosts or is unknown.
    fn frame(&mut self, from: usize, bytes: &[u8]) -> Frame {
        let address = |start: usize| <[u8; 6]>::try_from(&bytes[start..start + 6]).expect("six bytes");
        self.addresses.insert(address(6), from);
        let is_group = bytes[0] & 1 == 1;
        let to = if is_group { None } else { self.addresses.get(&address(0)).copied() };
        Frame { to, bytes: bytes.into() }
    }

    /// Brings the model up to the present, and delivers what has arrived.
    fn advance(&mut self) {
        let now = self.now();
        self.ether.advance(now);
        while let Some(delivery) = self.ether.poll_delivery() {
            self.latest = self.latest.max(now - delivery.at);
            self.late += now - delivery.at;
            match rustix::io::write(&self.ports[delivery.to], &delivery.frame.bytes) {
                // The interface of the host is down.
                Ok(_) | Err(Errno::IO) => {}
                Err(_) => self.refused += 1,
            }
        }
    }

    /// Answers requests for the counters. Returns whether to continue.
    fn obey(&mut self) -> Result<bool> {
        let mut bytes = [0; 64];
        match (&self.woken).read(&mut bytes) {
            Ok(0) => return Ok(false),
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error.into()),
        }
        while let Ok(answer) = self.requests.try_recv() {
            let counters =
                Counters { latest: self.latest, late: self.late, refused: self.refused, ..self.ether.counters() };
            // A caller that no longer waits needs no answer.
            let _ = answer.send(counters);
        }
        Ok(true)
    }
}
