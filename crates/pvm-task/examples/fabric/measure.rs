//! How fast messages are, in comparison with the bare provider in the same run; and what waiting costs.
use crate::control::Control;
use crate::process::processor_time;
use crate::traffic::{sleep, sleep_at_most};
use crate::{Options, Result, open};
use pvm_net::fabric::{Endpoint, Event, Memory, Peer, RegionId, Remote, Setting};
use pvm_task::fabric::{Body, FabricEvent, FabricLinks, LinkName, Wait};
use std::time::{Duration, Instant};

/// Each kind is measured this many times, in turn.
const ROUNDS: usize = 15;
/// Round trips of short messages in one measurement.
const TRIPS: usize = 300;
const SHORT_BYTES: usize = 8;
const LONG_BYTES: [usize; 3] = [64 << 10, 1 << 20, 16 << 20];
/// How long the process is idle, so that the polls before the first pause hardly count, and how often: other work on the
/// machine makes some waits more expensive.
const IDLE: Duration = Duration::from_millis(1000);
const WAITS: usize = 3;
/// The share of a processor that a waiting process may use, in percent.
const IDLE_PERCENT_MAX: f64 = 1.0;

/// An endpoint without links, and its peer.
struct Bare {
    endpoint: Endpoint,
    peer: Peer,
}

fn bare(options: &Options, setting: &Setting, control: &mut Control) -> Result<Bare> {
    let mut endpoint = open(options, setting)?.endpoint;
    endpoint.use_receives(usize::MAX)?;
    control.send(endpoint.address())?;
    let peer = endpoint.insert(&control.receive()?)?;
    Ok(Bare { endpoint, peer })
}

impl Bare {
    fn send(&mut self, bytes: &[u8]) -> Result<()> {
        while self.endpoint.send(self.peer, &[bytes]).is_err() {
            if self.endpoint.poll()?.is_some() {
                return Err("an event while sending".into());
            }
        }
        Ok(())
    }

    fn receive(&mut self) -> Result<Vec<u8>> {
        loop {
            match self.endpoint.poll()? {
                Some(Event::Received(slot)) => {
                    let bytes = self.endpoint.message(&slot).to_vec();
                    self.endpoint.post(slot)?;
                    return Ok(bytes);
                }
                None => std::thread::yield_now(),
                Some(other) => return Err(format!("{other:?}").into()),
            }
        }
    }

    /// Sends short messages to and fro.
    fn trips(&mut self, is_first: bool) -> Result<()> {
        for _ in 0..TRIPS {
            if is_first {
                self.send(&[7; SHORT_BYTES])?;
            }
            self.receive()?;
            if !is_first {
                self.send(&[7; SHORT_BYTES])?;
            }
        }
        Ok(())
    }

    /// Reads a region of the peer this often, with as many reads under way as the provider takes and
    /// into memory that is used again: the fastest way in which bytes can move.
    fn reads(&mut self, bytes: usize, count: usize) -> Result<()> {
        let named = self.receive()?;
        let word = |at: usize| u64::from_le_bytes(named[at..at + 8].try_into().expect("8 bytes"));
        let remote = Remote { address: word(0), key: word(8) };
        let (mut begun, mut done) = (0, 0);
        while done < count {
            while begun < count && self.endpoint.can_read() {
                self.endpoint.read(self.peer, remote, bytes, begun as u64).map_err(|error| format!("{error:?}"))?;
                begun += 1;
            }
            match self.endpoint.poll()? {
                Some(Event::Read { body, .. }) if body.len() == bytes => {
                    self.endpoint.recycle(body);
                    done += 1;
                }
                None => std::thread::yield_now(),
                Some(other) => return Err(format!("{other:?}").into()),
            }
        }
        self.send(&[1])
    }

    /// Lets the peer read a region as often as it likes.
    fn is_read(&mut self, region: RegionId, bytes: usize) -> Result<()> {
        let remote = self.endpoint.remote(region, 0, bytes).ok_or("no region")?;
        self.send(&[remote.address.to_le_bytes(), remote.key.to_le_bytes()].concat())?;
        self.receive().map(drop)
    }
}

/// Returns how many bodies of this length are sent in one measurement.
fn count_of(bytes: usize, options: &Options) -> usize {
    ((options.megabytes << 20) / bytes).max(1)
}

/// Memory with content.
fn memory(bytes: usize) -> Result<Memory> {
    Memory::of(&vec![7; bytes]).map_err(|error| format!("{error:?}").into())
}

fn next_message(links: &mut FabricLinks) -> Result<()> {
    loop {
        match links.poll()? {
            Some(FabricEvent::Message { body, .. }) => {
                body.into_iter().for_each(|body| links.recycle(body));
                return Ok(());
            }
            Some(FabricEvent::InPlace { .. }) => return Err("no receive is posted".into()),
            Some(FabricEvent::Sent(..)) => {}
            Some(FabricEvent::Broken(_, why, _)) => return Err(format!("the link is broken: {why}").into()),
            None => std::thread::yield_now(),
        }
    }
}

fn linked_trips(links: &mut FabricLinks, name: LinkName, is_first: bool) -> Result<()> {
    for _ in 0..TRIPS {
        if is_first {
            links.send_short(name, vec![7; SHORT_BYTES]);
        }
        next_message(links)?;
        if !is_first {
            links.send_short(name, vec![7; SHORT_BYTES]);
        }
    }
    Ok(())
}

/// Sends bodies from a registered heap, as packed messages would be, and waits for an answer.
fn linked_bodies(links: &mut FabricLinks, name: LinkName, region: RegionId, bytes: usize, count: usize) -> Result<()> {
    for _ in 0..count {
        links.send_long(name, vec![1], Body::InRegion(region, 0, bytes))?;
    }
    next_message(links)
}

fn receive_bodies(links: &mut FabricLinks, name: LinkName, count: usize) -> Result<()> {
    for _ in 0..count {
        next_message(links)?;
    }
    links.send_short(name, vec![2]);
    // Credits may come later.
    while !links.is_all_sent(name) {
        links.poll()?;
    }
    Ok(())
}

/// Times of one kind in seconds, sorted.
struct Times(Vec<f64>);

impl Times {
    fn new(times: Vec<Duration>) -> Times {
        let mut seconds: Vec<f64> = times.iter().map(Duration::as_secs_f64).collect();
        seconds.sort_by(f64::total_cmp);
        Times(seconds)
    }

    fn median(&self) -> f64 {
        self.0[self.0.len() / 2]
    }

    /// Returns the time that a quarter of the rounds did not exceed: what other work on the machine disturbs less.
    fn quartile(&self) -> f64 {
        self.0[self.0.len() / 4]
    }
}

fn timed(action: impl FnOnce() -> Result<()>) -> Result<Duration> {
    let start = Instant::now();
    action()?;
    Ok(start.elapsed())
}

/// Measures both kinds in turn, and prints medians and ratios.
pub fn speed(
    mut links: FabricLinks,
    name: LinkName,
    mut control: Control,
    options: &Options,
    setting: &Setting,
) -> Result<()> {
    let mut bare = bare(options, setting, &mut control)?;
    let [mut of_bare, mut of_links] = [Vec::new(), Vec::new()];
    for _ in 0..ROUNDS {
        of_bare.push(timed(|| bare.trips(true))?);
        control.send(b"done")?;
        of_links.push(timed(|| linked_trips(&mut links, name, true))?);
        control.send(b"done")?;
    }
    let [one, other] = [of_bare, of_links].map(Times::new);
    println!(
        "ok {SHORT_BYTES} bytes one way: bare {:.1} us, link {:.1} us, ratio {:.2}, of the fastest quarters {:.2}",
        one.median() / TRIPS as f64 / 2.0 * 1e6,
        other.median() / TRIPS as f64 / 2.0 * 1e6,
        other.median() / one.median(),
        other.quartile() / one.quartile()
    );
    for bytes in LONG_BYTES {
        let count = count_of(bytes, options);
        let [mut of_bare, mut of_links] = [Vec::new(), Vec::new()];
        let regions = (bare.endpoint.register(memory(bytes)?)?, links.register(memory(bytes)?)?);
        for _ in 0..ROUNDS {
            of_bare.push(timed(|| bare.is_read(regions.0, bytes))?);
            control.send(b"done")?;
            of_links.push(timed(|| linked_bodies(&mut links, name, regions.1, bytes, count))?);
            control.send(b"done")?;
        }
        bare.endpoint.unregister(regions.0);
        let [one, other] = [of_bare, of_links].map(Times::new);
        println!(
            "ok {} KiB: bare {:.0} MB/s, link {:.0} MB/s, ratio {:.2}, of the fastest quarters {:.2}",
            bytes >> 10,
            (bytes * count) as f64 / one.median() / 1e6,
            (bytes * count) as f64 / other.median() / 1e6,
            one.median() / other.median(),
            one.quartile() / other.quartile()
        );
    }
    Ok(())
}

/// Lets a side work until the other one has got everything: what was sent last may leave only then.
fn poll_until_done(control: &mut Control, mut poll: impl FnMut() -> Result<()>) -> Result<()> {
    while !control.has_word() {
        if control.has_ended() {
            return Err("the caller has ended".into());
        }
        poll()?;
    }
    control.receive().map(drop)
}

/// The other side of [`speed`].
pub fn serve_speed(
    mut links: FabricLinks,
    name: LinkName,
    mut control: Control,
    options: &Options,
    setting: &Setting,
) -> Result<()> {
    let mut bare = bare(options, setting, &mut control)?;
    for _ in 0..ROUNDS {
        bare.trips(false)?;
        poll_until_done(&mut control, || Ok(bare.endpoint.poll().map(drop)?))?;
        linked_trips(&mut links, name, false)?;
        poll_until_done(&mut control, || Ok(links.poll().map(drop)?))?;
    }
    for bytes in LONG_BYTES {
        let count = count_of(bytes, options);
        for _ in 0..ROUNDS {
            bare.reads(bytes, count)?;
            poll_until_done(&mut control, || Ok(bare.endpoint.poll().map(drop)?))?;
            receive_bodies(&mut links, name, count)?;
            poll_until_done(&mut control, || Ok(links.poll().map(drop)?))?;
        }
    }
    Ok(())
}

/// Waits for messages without any work. Fails if even the cheapest wait takes too large a share of a processor.
pub fn idle(mut links: FabricLinks, name: LinkName, mut control: Control) -> Result<()> {
    links.send_short(name, vec![1]);
    next_message(&mut links)?;
    let mut least = f64::INFINITY;
    let [mut polls, mut by_descriptor, mut by_time] = [0; 3];
    for _ in 0..WAITS {
        let (start, used) = (Instant::now(), processor_time());
        while !has_message(&mut links)? {
            if start.elapsed() > 25 * IDLE {
                return Err("the message that ends the wait does not arrive".into());
            }
            // As a task: that wakes by itself after 5 s, longer than this wait.
            match sleep_at_most(25 * IDLE, &mut links, &mut [])? {
                Wait::Not => polls += 1,
                Wait::Descriptor => by_descriptor += 1,
                Wait::For(_) => by_time += 1,
            }
        }
        let share = 100.0 * (processor_time() - used).as_secs_f64() / start.elapsed().as_secs_f64();
        least = least.min(share);
    }
    control.send(b"end")?;
    let ways = format!("{polls} polls, {by_descriptor} waits for the descriptor, {by_time} pauses");
    if least >= IDLE_PERCENT_MAX {
        return Err(format!("a wait takes {least:.2} % of a processor ({ways})").into());
    }
    println!(
        "ok waited {WAITS} times {:.1} s, the cheapest with {least:.2} % of a processor ({ways})",
        IDLE.as_secs_f64()
    );
    Ok(())
}

/// Returns whether a message has arrived.
fn has_message(links: &mut FabricLinks) -> Result<bool> {
    while let Some(event) = links.poll()? {
        if matches!(event, FabricEvent::Message { .. }) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The other side of [`idle`].
pub fn serve_idle(mut links: FabricLinks, name: LinkName, control: Control) -> Result<()> {
    next_message(&mut links)?;
    links.send_short(name, vec![2]);
    for _ in 0..WAITS {
        let start = Instant::now();
        while start.elapsed() < IDLE {
            links.poll()?;
            sleep(&mut links, &mut [])?;
        }
        links.send_short(name, vec![3]);
    }
    while !control.has_word() && !control.has_ended() {
        links.poll()?;
        sleep(&mut links, &mut [])?;
    }
    Ok(())
}
