//! Messages of all lengths in both directions, whose content the receiver knows beforehand.
use crate::Result;
use crate::control::Control;
use pvm_net::fabric::{Endpoint, Memory, Peer, RegionId};
use pvm_task::fabric::{Body, FabricEvent, FabricLinks, LinkName, Wait};
use rustix::event::{PollFd, PollFlags, Timespec};
use std::collections::BTreeMap;
use std::fmt;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// The length of the heap from which half of the long bodies are taken.
pub const HEAP_BYTES: usize = 4 << 20;
/// How many messages a side sends before it waits for the peer.
const UNTAKEN_MAX: u64 = 100;
/// How many frames a stranger sends.
const STRANGE_FRAMES: u64 = 100;
/// No exchange takes longer. A provider that stands still would otherwise never end.
const TIME_MAX: Duration = Duration::from_secs(60);
/// The longest sleep. Some providers repeat lost packets only when they are polled.
const SLEEP_MAX: Duration = Duration::from_millis(10);

/// Pseudo-random numbers (splitmix).
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

pub fn bytes_of(seed: u64, count: usize) -> Vec<u8> {
    let mut random = Random(seed);
    let mut bytes = Vec::with_capacity(count + 8);
    while bytes.len() < count {
        bytes.extend_from_slice(&random.next().to_le_bytes());
    }
    bytes.truncate(count);
    bytes
}

/// A message as both sides know it: its length, and for one from the heap, the position there.
struct Planned {
    bytes: usize,
    from_heap: Option<usize>,
    seed: u64,
}

fn planned(seed: u64, is_from_caller: bool, number: u64) -> Planned {
    let mut random = Random(seed << 32 ^ number << 1 ^ u64::from(is_from_caller));
    let pick = random.next();
    let limit = match pick % 20 {
        0..12 => 300,
        12..16 => 20_000,
        16..19 => 300_000,
        _ => 3_000_000,
    };
    let bytes = (random.next() % limit) as usize;
    let from_heap = (random.next() % 2 == 0).then(|| random.next() as usize % (HEAP_BYTES - bytes));
    Planned { bytes, from_heap, seed: random.next() }
}

fn expected_body(heap: &[u8], plan: &Planned) -> Vec<u8> {
    match plan.from_heap {
        Some(at) => heap[at..at + plan.bytes].to_vec(),
        None => bytes_of(plan.seed, plan.bytes),
    }
}

/// What an exchange has shown.
#[derive(Default)]
pub struct Done {
    read_bytes: u64,
    injected: u64,
    pub ended: usize,
    /// Why links have ended by themselves.
    pub reasons: Vec<String>,
    untaken: usize,
    dropped: u64,
}

impl fmt::Display for Done {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let megabytes = self.read_bytes >> 20;
        write!(f, "{megabytes} MiB read from the peers' memory, {} messages injected", self.injected)?;
        if self.ended > 0 {
            write!(f, ", of {} messages it is known that the dead peer may not have them", self.untaken)?;
        }
        if self.dropped > 0 {
            write!(f, ", {} frames of a stranger were dropped", self.dropped)?;
        }
        Ok(())
    }
}

/// The progress of one link.
struct Progress {
    seed: u64,
    is_caller: bool,
    sent: u64,
    taken: u64,
    arrived: u64,
    has_ended: bool,
}

struct Exchange<'a> {
    links: &'a mut FabricLinks,
    progress: BTreeMap<LinkName, Progress>,
    messages: u64,
    heap: Vec<u8>,
    region: RegionId,
    dies: bool,
    done: Done,
}

/// Sends and receives this number of messages on each link (its name, seed, and whether this process has called).
/// A connection that ends means that its peer was killed. A stranger disturbs meanwhile. If the process `dies`, it kills
/// itself when half of the messages have arrived.
pub fn exchange(
    links: &mut FabricLinks,
    names: &[(LinkName, u64, bool)],
    messages: u64,
    controls: &mut [&mut Control],
    mut stranger: Option<Stranger>,
    dies: bool,
) -> Result<Done> {
    let heap = bytes_of(4711, HEAP_BYTES);
    let region = links.register(heap_memory(&heap)?)?;
    let start = |&(name, seed, is_caller): &(LinkName, u64, bool)| {
        (name, Progress { seed, is_caller, sent: 0, taken: 0, arrived: 0, has_ended: false })
    };
    let progress = names.iter().map(start).collect();
    let mut exchange = Exchange { links, progress, messages, heap, region, dies, done: Done::default() };
    let end = Instant::now() + TIME_MAX;
    while !exchange.is_complete() {
        if let Some(stranger) = &mut stranger {
            stranger.disturb()?;
        }
        if Instant::now() > end {
            return Err(format!("no end after {} s: {}", TIME_MAX.as_secs(), exchange.state()).into());
        }
        exchange.send_some()?;
        if !exchange.take_event()? {
            sleep(exchange.links, controls)?;
            exchange.notice_deaths(names, controls);
        }
    }
    let counters = exchange.links.endpoint().counters();
    let mut done = exchange.done;
    (done.read_bytes, done.injected) = (counters.read_bytes, counters.injected);
    let dropped = finish(links, names, controls)?;
    if let Some(stranger) = stranger {
        done.dropped = dropped;
        if stranger.sent == 0 || dropped == 0 || dropped > stranger.sent {
            return Err(format!("{dropped} frames of {} of a stranger were dropped", stranger.sent).into());
        }
    }
    Ok(done)
}

/// Waits until the other sides have finished too, since they may still need what this side acknowledges. Returns how
/// many frames they have dropped.
fn finish(links: &mut FabricLinks, names: &[(LinkName, u64, bool)], controls: &mut [&mut Control]) -> Result<u64> {
    for control in controls.iter_mut() {
        // The peer may be dead.
        let _ = control.send(&links.dropped.to_le_bytes());
    }
    let end = Instant::now() + TIME_MAX;
    let mut dropped = 0;
    for (control, (name, ..)) in controls.iter_mut().zip(names) {
        while !control.has_word() && !control.has_ended() && Instant::now() < end {
            while links.poll()?.is_some() {}
            sleep(links, &mut [])?;
        }
        if control.has_word() {
            dropped += u64::from_le_bytes(control.receive()?.try_into().map_err(|_| "no number")?);
        }
        links.disconnect(*name);
    }
    Ok(dropped)
}

/// Somebody on the network who knows a link's address and name, since he reads the traffic, but not its secrets.
pub struct Stranger {
    pub endpoint: Endpoint,
    pub peer: Peer,
    pub link: LinkName,
    pub sent: u64,
}

impl Stranger {
    /// Sends a frame that looks right, and one that does not.
    fn disturb(&mut self) -> Result<()> {
        while self.endpoint.poll()?.is_some() {}
        if self.sent >= STRANGE_FRAMES {
            return Ok(());
        }
        let mut random = Random(self.sent);
        let kind = 1 + random.next() % 4;
        let word = kind << 56 | random.next() % 20;
        let forged = [self.link.to_le_bytes(), word.to_le_bytes(), random.next().to_le_bytes()].concat();
        for frame in [forged, bytes_of(self.sent, (random.next() % 200) as usize)] {
            // A full queue is tried again with the next frame.
            self.sent += u64::from(self.endpoint.send(self.peer, &[&frame]).is_ok());
        }
        Ok(())
    }
}

fn heap_memory(content: &[u8]) -> Result<Memory> {
    use rustix::fs::{MemfdFlags, SealFlags};
    let file = rustix::fs::memfd_create("heap", MemfdFlags::ALLOW_SEALING | MemfdFlags::CLOEXEC)?;
    rustix::fs::ftruncate(&file, content.len() as u64)?;
    rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK)?;
    rustix::io::pwrite(&file, content, 0)?;
    Memory::shared(file.as_fd(), content.len()).map_err(|error| format!("{error:?}").into())
}

/// Sleeps until something happens, as the provider allows, but on a descriptor at most `SLEEP_MAX`. Returns how.
pub fn sleep(links: &mut FabricLinks, controls: &mut [&mut Control]) -> Result<Wait> {
    sleep_at_most(SLEEP_MAX, links, controls)
}

/// Sleeps until something happens, as the provider allows, but on a descriptor at most this long. Returns how.
pub fn sleep_at_most(longest: Duration, links: &mut FabricLinks, controls: &mut [&mut Control]) -> Result<Wait> {
    let wait = links.how_to_wait(Instant::now());
    match wait {
        Wait::Not => std::thread::yield_now(),
        Wait::For(time) => std::thread::sleep(time),
        Wait::Descriptor => {
            let descriptor = links.endpoint().descriptor().ok_or("no descriptor")?;
            let mut all = vec![PollFd::from_borrowed_fd(descriptor, PollFlags::IN)];
            all.extend(controls.iter().map(|of| PollFd::from_borrowed_fd(of.descriptor(), PollFlags::IN)));
            let timeout = Timespec::try_from(longest)?;
            match rustix::event::poll(&mut all, Some(&timeout)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
    Ok(wait)
}

impl Exchange<'_> {
    fn is_complete(&self) -> bool {
        let is_done = |(name, of): (&LinkName, &Progress)| {
            of.has_ended || of.sent == self.messages && of.arrived == self.messages && self.links.is_all_taken(*name)
        };
        self.progress.iter().all(is_done)
    }

    fn state(&self) -> String {
        let one = |of: &Progress| format!("sent {}, taken {}, arrived {}", of.sent, of.taken, of.arrived);
        self.progress.values().map(one).collect::<Vec<_>>().join("; ")
    }

    /// Sends the next message on each link.
    fn send_some(&mut self) -> Result<()> {
        for (name, of) in &mut self.progress {
            if of.has_ended || of.sent == self.messages || of.sent - of.taken >= UNTAKEN_MAX {
                continue;
            }
            let plan = planned(of.seed, of.is_caller, of.sent);
            let content = of.sent.to_le_bytes();
            match plan.from_heap {
                _ if plan.bytes + content.len() <= self.links.short_bytes_max(*name) => {
                    let body = expected_body(&self.heap, &plan);
                    self.links.send_short(*name, [&content[..], &body].concat());
                }
                Some(at) => {
                    let body = Body::InRegion(self.region, at, plan.bytes);
                    self.links.send_long(*name, content.to_vec(), body)?;
                }
                None => {
                    let body = Body::Bytes(bytes_of(plan.seed, plan.bytes).into());
                    self.links.send_long(*name, content.to_vec(), body)?;
                }
            }
            of.sent += 1;
        }
        Ok(())
    }

    /// Takes an event, if there is one.
    fn take_event(&mut self) -> Result<bool> {
        match self.links.poll()? {
            None => return Ok(false),
            Some(FabricEvent::Message { link, content, body }) => self.check(link, &content, body)?,
            Some(FabricEvent::InPlace { .. }) => return Err("no receive is posted".into()),
            Some(FabricEvent::Sent(link, up_to)) => {
                if let Some(of) = self.progress.get_mut(&link) {
                    of.taken = up_to;
                }
            }
            Some(FabricEvent::Broken(link, why, untaken)) => {
                println!("note broken {why}");
                self.done.reasons.push(why.to_string());
                self.end(link, untaken.messages.len());
            }
        }
        Ok(true)
    }

    fn check(&mut self, link: LinkName, content: &[u8], body: Option<Vec<u8>>) -> Result<()> {
        let of = self.progress.get_mut(&link).ok_or("a message of an unknown link")?;
        let number = of.arrived;
        of.arrived += 1;
        if self.dies && of.arrived > self.messages / 2 {
            rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL)?;
        }
        let plan = planned(of.seed, !of.is_caller, number);
        let (head, rest) = content.split_first_chunk().ok_or("a message without a number")?;
        if u64::from_le_bytes(*head) != number {
            return Err(format!("message {} came instead of {number}", u64::from_le_bytes(*head)).into());
        }
        if body.as_deref().unwrap_or(rest) != expected_body(&self.heap, &plan) {
            return Err(format!("message {number} of {} bytes has a wrong content", plan.bytes).into());
        }
        Ok(())
    }

    fn end(&mut self, link: LinkName, untaken: usize) {
        if let Some(of) = self.progress.get_mut(&link).filter(|of| !of.has_ended) {
            of.has_ended = true;
            self.done.ended += 1;
            self.done.untaken += untaken;
        }
    }

    /// Ends the links of peers that were killed, once what had arrived from them has been taken.
    fn notice_deaths(&mut self, names: &[(LinkName, u64, bool)], controls: &[&mut Control]) {
        for ((name, ..), control) in names.iter().zip(controls) {
            if control.has_ended() && self.progress.get(name).is_some_and(|of| !of.has_ended) {
                let untaken = self.links.disconnect(*name).map_or(0, |untaken| untaken.messages.len());
                self.end(*name, untaken);
            }
        }
    }
}
