//! Ping-pong of messages of given lengths, with a fixed number of round trips, as the programs in `bench` do it.
use crate::control::Control;
use crate::{Options, Result, open_with_queues};
use pvm_net::fabric::{Endpoint, Event, Memory, Peer, Queues, RegionId, Remote, Setting};
use pvm_task::fabric::{Body, FabricEvent, FabricLinks, LinkName};
use std::time::Instant;

/// Round trips and lengths: enough to be measured, and not too long. `lab/src/fabric/speed.rs` has the same ones.
const EXCHANGES: [(usize, usize); 4] = [(300, 8), (100, 64 << 10), (20, 1 << 20), (4, 16 << 20)];
/// How often each is measured.
const REPETITIONS: usize = 3;
/// Buffers of the bare endpoint.
const QUEUES: Queues =
    Queues { receives: 4, sends: 2, reads: 1, buffer_bytes: 16 << 20, registered_bytes_max: usize::MAX };

/// One end of the ping-pong.
trait End {
    fn send(&mut self, bytes: usize) -> Result<()>;
    fn receive(&mut self, bytes: usize) -> Result<()>;
}

/// Prints the time one way of each length, in microseconds, if this is the first side.
fn ping(end: &mut impl End, is_first: bool) -> Result<()> {
    for (exchanges, bytes) in EXCHANGES {
        // The first one makes everything ready.
        for repetition in 0..=REPETITIONS {
            let start = Instant::now();
            for _ in 0..exchanges {
                if is_first {
                    end.send(bytes)?;
                }
                end.receive(bytes)?;
                if !is_first {
                    end.send(bytes)?;
                }
            }
            if is_first && repetition > 0 {
                println!("native {bytes} {} us", start.elapsed().as_secs_f64() * 1e6 / exchanges as f64 / 2.0);
            }
        }
    }
    Ok(())
}

/// The shortest message that a bare endpoint reads from its peer's memory: nobody copies it then, as in the provider's own
/// ping-pong. A shorter one is copied to a buffer from which it is sent.
const READ_BYTES_MIN: usize = 256 << 10;

/// An endpoint without links.
struct Bare {
    endpoint: Endpoint,
    peer: Peer,
    content: Vec<u8>,
    region: RegionId,
}

/// Sends a message from a buffer of the endpoint.
fn send_short(endpoint: &mut Endpoint, peer: Peer, bytes: &[u8]) -> Result<()> {
    while endpoint.send(peer, &[bytes]).is_err() {
        if endpoint.poll()?.is_some() {
            return Err("an event while sending".into());
        }
    }
    Ok(())
}

impl Bare {
    fn event(&mut self) -> Result<Event> {
        loop {
            match self.endpoint.poll()? {
                Some(event) => return Ok(event),
                None => std::thread::yield_now(),
            }
        }
    }
}

impl End for Bare {
    fn send(&mut self, bytes: usize) -> Result<()> {
        if bytes < READ_BYTES_MIN {
            return send_short(&mut self.endpoint, self.peer, &self.content[..bytes]);
        }
        let remote = self.endpoint.remote(self.region, 0, bytes).ok_or("no region")?;
        send_short(&mut self.endpoint, self.peer, &[remote.address.to_le_bytes(), remote.key.to_le_bytes()].concat())
    }

    fn receive(&mut self, bytes: usize) -> Result<()> {
        let Event::Received(slot) = self.event()? else { return Err("something else than a message".into()) };
        let message = self.endpoint.message(&slot);
        let is_whole = message.len() == bytes;
        let words = message.first_chunk::<8>().copied().zip(message.last_chunk::<8>().copied());
        self.endpoint.post(slot)?;
        if is_whole {
            return Ok(());
        }
        let [address, key] = words.map(|(address, key)| [address, key].map(u64::from_le_bytes)).ok_or("no place")?;
        self.endpoint.read(self.peer, Remote { address, key }, bytes, 0).map_err(|error| format!("{error:?}"))?;
        match self.event()? {
            Event::Read { body, .. } if body.len() == bytes => {
                self.endpoint.recycle(body);
                Ok(())
            }
            other => Err(format!("{other:?}").into()),
        }
    }
}

struct Linked {
    links: FabricLinks,
    name: LinkName,
    region: RegionId,
}

impl End for Linked {
    fn send(&mut self, bytes: usize) -> Result<()> {
        if bytes <= self.links.short_bytes_max(self.name) {
            self.links.send_short(self.name, vec![7; bytes]);
        } else {
            self.links.send_long(self.name, vec![], Body::InRegion(self.region, 0, bytes))?;
        }
        Ok(())
    }

    fn receive(&mut self, bytes: usize) -> Result<()> {
        loop {
            match self.links.poll()? {
                Some(FabricEvent::Message { content, body, .. }) => {
                    let arrived = body.as_ref().map_or(content.len(), Vec::len);
                    body.into_iter().for_each(|body| self.links.recycle(body));
                    return if arrived == bytes { Ok(()) } else { Err("a wrong length".into()) };
                }
                Some(FabricEvent::Broken(_, why, _)) => return Err(why.to_string().into()),
                Some(FabricEvent::InPlace { .. }) => return Err("no receive is posted".into()),
                Some(FabricEvent::Sent(..)) => {}
                None => std::thread::yield_now(),
            }
        }
    }
}

/// Ping-pong on a link.
pub fn linked(mut links: FabricLinks, name: LinkName, mut control: Control, is_first: bool) -> Result<()> {
    let memory = Memory::of(&vec![7; QUEUES.buffer_bytes]).map_err(|error| format!("{error:?}"))?;
    let region = links.register(memory)?;
    let mut end = Linked { links, name, region };
    ping(&mut end, is_first)?;
    while !is_first && !control.has_word() && !control.has_ended() {
        end.links.poll()?;
    }
    control.send(b"end")
}

/// Ping-pong of the bare provider.
pub fn bare(mut control: Control, options: &Options, setting: &Setting, is_first: bool) -> Result<()> {
    let mut endpoint = open_with_queues(options, setting, QUEUES)?.endpoint;
    endpoint.use_receives(QUEUES.receives)?;
    control.send(endpoint.address())?;
    let peer = endpoint.insert(&control.receive()?)?;
    let content = vec![7; QUEUES.buffer_bytes];
    let region = endpoint.register(Memory::of(&content).map_err(|error| format!("{error:?}"))?)?;
    let mut end = Bare { endpoint, peer, content, region };
    ping(&mut end, is_first)?;
    // What was sent last arrives only while this side works.
    while !is_first && !control.has_word() && !control.has_ended() {
        end.endpoint.poll()?;
    }
    control.send(b"end")
}
