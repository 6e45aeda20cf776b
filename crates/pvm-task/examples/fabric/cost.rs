//! How much processor time messages take in comparison with the bare provider. One thread drives both ends, so nobody
//! waits for anybody, and other work on the machine changes little.
use crate::process::processor_time;
use crate::{Options, Result, open};
use pvm_net::fabric::{Endpoint, Event, Memory, Peer, RegionId, Setting};
use pvm_task::fabric::{Body, FabricEvent, FabricLinks, LinkName, Secrets};

/// Each kind is measured this many times, in turn.
const ROUNDS: usize = 9;
const SHORT_BYTES: usize = 8;
const SHORT_MESSAGES: usize = 2000;
const LONG_BYTES: [usize; 3] = [64 << 10, 1 << 20, 16 << 20];
/// Bytes of long messages in one measurement.
const LONG_TOTAL: usize = 32 << 20;

/// Two ends of the same kind. What the first sends, the second receives.
trait Pair {
    /// Sends short messages to and fro.
    fn trips(&mut self) -> Result<()>;
    /// Registers memory, from which [`Pair::bodies`] takes bodies.
    fn register(&mut self, memory: Memory) -> Result<()>;
    /// Moves bodies of this length.
    fn bodies(&mut self, bytes: usize, count: usize) -> Result<()>;
}

struct Bare {
    ends: [Endpoint; 2],
    peers: [Peer; 2],
    region: Option<RegionId>,
}

impl Bare {
    fn new(options: &Options, setting: &Setting) -> Result<Bare> {
        let mut ends = [open(options, setting)?.endpoint, open(options, setting)?.endpoint];
        ends.iter_mut().try_for_each(|end| end.use_receives(usize::MAX))?;
        let addresses = ends.each_ref().map(|end| end.address().to_vec());
        let peers = [ends[0].insert(&addresses[1])?, ends[1].insert(&addresses[0])?];
        Ok(Bare { ends, peers, region: None })
    }

    fn send(&mut self, from: usize) -> Result<()> {
        while self.ends[from].send(self.peers[from], &[&[7; SHORT_BYTES]]).is_err() {
            // Both sides take part in making a connection.
            self.ends[from].poll()?;
            self.ends[1 - from].poll()?;
        }
        loop {
            self.ends[from].poll()?;
            if let Some(Event::Received(slot)) = self.ends[1 - from].poll()? {
                return Ok(self.ends[1 - from].post(slot)?);
            }
        }
    }
}

impl Pair for Bare {
    fn trips(&mut self) -> Result<()> {
        (0..SHORT_MESSAGES).try_for_each(|number| self.send(number % 2))
    }

    fn register(&mut self, memory: Memory) -> Result<()> {
        if let Some(region) = self.region.take() {
            self.ends[0].unregister(region);
        }
        self.region = Some(self.ends[0].register(memory)?);
        Ok(())
    }

    fn bodies(&mut self, bytes: usize, count: usize) -> Result<()> {
        let region = self.region.ok_or("no region")?;
        let remote = self.ends[0].remote(region, 0, bytes).ok_or("no such part")?;
        let (mut begun, mut done) = (0, 0);
        while done < count {
            while begun < count && self.ends[1].can_read() {
                self.ends[1].read(self.peers[1], remote, bytes, 0).map_err(|error| format!("{error:?}"))?;
                begun += 1;
            }
            self.ends[0].poll()?;
            if let Some(Event::Read { body, .. }) = self.ends[1].poll()? {
                self.ends[1].recycle(body);
                done += 1;
            }
        }
        Ok(())
    }
}

struct Linked {
    ends: [FabricLinks; 2],
    names: [LinkName; 2],
    region: Option<RegionId>,
}

impl Linked {
    fn new(options: &Options, setting: &Setting, is_sealed: bool) -> Result<Linked> {
        let mut ends = [FabricLinks::new(open(options, setting)?), FabricLinks::new(open(options, setting)?)];
        let [one, other] = ends.each_mut().map(|end| end.introduce());
        let (one, other) = (one.ok_or("no buffers")?, other.ok_or("no buffers")?);
        let secrets = |sending, receiving| Secrets { sending: [sending; 16], receiving: [receiving; 16] };
        let names = [
            ends[0].connect(&one, &other, is_sealed.then_some(&secrets(1, 2)))?,
            ends[1].connect(&other, &one, is_sealed.then_some(&secrets(2, 1)))?,
        ];
        Ok(Linked { ends, names, region: None })
    }

    /// Lets both ends proceed until a message has arrived at one.
    fn receive(&mut self, at: usize) -> Result<()> {
        loop {
            if let Some(FabricEvent::Broken(_, why, _)) = self.ends[1 - at].poll()? {
                return Err(why.to_string().into());
            }
            match self.ends[at].poll()? {
                Some(FabricEvent::Message { body, .. }) => {
                    body.into_iter().for_each(|body| self.ends[at].recycle(body));
                    return Ok(());
                }
                Some(FabricEvent::Broken(_, why, _)) => return Err(why.to_string().into()),
                Some(FabricEvent::InPlace { .. }) => return Err("no receive is posted".into()),
                Some(FabricEvent::Sent(..)) | None => {}
            }
        }
    }
}

impl Pair for Linked {
    fn trips(&mut self) -> Result<()> {
        (0..SHORT_MESSAGES).try_for_each(|number| {
            self.ends[number % 2].send_short(self.names[number % 2], vec![7; SHORT_BYTES]);
            self.receive(1 - number % 2)
        })
    }

    fn register(&mut self, memory: Memory) -> Result<()> {
        self.region = Some(self.ends[0].register(memory)?);
        Ok(())
    }

    fn bodies(&mut self, bytes: usize, count: usize) -> Result<()> {
        let region = self.region.ok_or("no region")?;
        for _ in 0..count {
            self.ends[0].send_long(self.names[0], vec![1], Body::InRegion(region, 0, bytes))?;
        }
        (0..count).try_for_each(|_| self.receive(1))
    }
}

/// Prints the processor time of messages of each length, in microseconds: of the bare provider, of a link in clear and of a
/// sealed one.
pub fn cost(options: &Options, setting: &Setting) -> Result<()> {
    let mut bare = Bare::new(options, setting)?;
    let mut links = [Linked::new(options, setting, false)?, Linked::new(options, setting, true)?];
    let [clear, sealed] = &mut links;
    let pairs: &mut [&mut dyn Pair] = &mut [&mut bare, clear, sealed];
    show(SHORT_BYTES, SHORT_MESSAGES, &measured(pairs, |pair| pair.trips())?);
    for bytes in LONG_BYTES {
        for pair in &mut *pairs {
            pair.register(Memory::of(&vec![7; bytes]).map_err(|error| format!("{error:?}"))?)?;
        }
        let count = LONG_TOTAL / bytes;
        show(bytes, count, &measured(pairs, |pair| pair.bodies(bytes, count))?);
    }
    Ok(())
}

/// Returns the median processor time of an action for each pair, in seconds.
fn measured(pairs: &mut [&mut dyn Pair], mut action: impl FnMut(&mut dyn Pair) -> Result<()>) -> Result<Vec<f64>> {
    let mut times = vec![Vec::new(); pairs.len()];
    for _ in 0..ROUNDS {
        for (pair, times) in pairs.iter_mut().zip(&mut times) {
            let start = processor_time();
            action(*pair)?;
            times.push((processor_time() - start).as_secs_f64());
        }
    }
    let median = |mut times: Vec<f64>| {
        times.sort_by(f64::total_cmp);
        times[times.len() / 2]
    };
    Ok(times.into_iter().map(median).collect())
}

fn show(bytes: usize, count: usize, seconds: &[f64]) {
    let each: Vec<f64> = seconds.iter().map(|seconds| seconds / count as f64 * 1e6).collect();
    let [bare, clear, sealed] = each[..] else { return };
    let size = if bytes < 1024 { format!("{bytes} bytes") } else { format!("{} KiB", bytes >> 10) };
    println!(
        "ok {size}: bare {bare:.1} us of processor time, clear {clear:.1} us ({:.2}), sealed {sealed:.1} us ({:.2})",
        clear / bare,
        sealed / bare
    );
}
