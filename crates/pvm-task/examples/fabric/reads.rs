//! Remote reads of the bare provider, whose content is known: what goes wrong here is the provider's fault.
use crate::control::Control;
use crate::traffic::{HEAP_BYTES, Random, bytes_of};
use crate::{Options, Result, open};
use pvm_net::fabric::{Endpoint, Event, Memory, Peer, Remote, Setting};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// The longest part that is read, in bytes.
const PART_BYTES_MAX: u64 = 3_000_000;
/// A side that gets nothing for this long gives up.
const PATIENCE: Duration = Duration::from_secs(60);

/// What is read from one peer.
struct From {
    peer: Peer,
    remote: Remote,
    control: Control,
    /// The address of the peer's memory is known, and it lives.
    is_alive: bool,
}

/// Reads this many parts of each peer's memory, and lets each read this one's. Fails if a part has a wrong content.
pub fn reads(controls: Vec<Control>, options: &Options, setting: &Setting) -> Result<()> {
    let mut endpoint = open(options, setting)?.endpoint;
    let heap = bytes_of(4711, HEAP_BYTES);
    let region = endpoint.register(Memory::from_vec(heap.clone().into()))?;
    let own = endpoint.remote(region, 0, HEAP_BYTES).ok_or("no region")?;
    let mut peers = Vec::new();
    for mut control in controls {
        control.send(endpoint.address())?;
        control.send(&[own.address.to_le_bytes(), own.key.to_le_bytes()].concat())?;
        let peer = endpoint.insert(&control.receive()?)?;
        let named = control.receive()?;
        let word = |at: usize| u64::from_le_bytes(named[at..at + 8].try_into().expect("8 bytes"));
        peers.push(From { peer, remote: Remote { address: word(0), key: word(8) }, control, is_alive: true });
    }
    let done = read_all(&mut endpoint, &mut peers, &heap, options)?;
    for from in &mut peers {
        // The peer may be dead.
        let _ = from.control.send(b"end");
    }
    let end = Instant::now() + PATIENCE;
    for from in &peers {
        while !from.control.has_word() && !from.control.has_ended() && Instant::now() < end {
            endpoint.poll()?;
        }
    }
    println!("ok {done} parts of the peers' memory were read and are right");
    Ok(())
}

fn read_all(endpoint: &mut Endpoint, peers: &mut [From], heap: &[u8], options: &Options) -> Result<u64> {
    let mut random = Random(options.seed);
    let mut under_way = BTreeMap::new();
    let (mut begun, mut done, mut last) = (0, 0, Instant::now());
    while begun < options.messages || !under_way.is_empty() {
        let from = &peers[begun as usize % peers.len()];
        if begun < options.messages && !from.is_alive {
            begun += 1;
        } else if begun < options.messages && endpoint.can_read() {
            let bytes = 1 + random.next() % PART_BYTES_MAX;
            let at = random.next() % (HEAP_BYTES as u64 - bytes);
            let remote = Remote { address: from.remote.address + at, key: from.remote.key };
            endpoint.read(from.peer, remote, bytes as usize, begun).map_err(|error| format!("{error:?}"))?;
            under_way.insert(begun, (from.peer, at as usize, bytes as usize));
            begun += 1;
        }
        match endpoint.poll()? {
            Some(Event::Read { ticket, body }) => {
                if let Some((_, at, bytes)) = under_way.remove(&ticket) {
                    check(&body, &heap[at..at + bytes], done)?;
                }
                (done, last) = (done + 1, Instant::now());
                if options.dies && done > options.messages / 2 {
                    rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL)?;
                }
            }
            Some(Event::ReadFailed { ticket, failure }) => {
                println!("note a read has failed: {failure}");
                under_way.remove(&ticket);
            }
            Some(_) => {}
            None => std::thread::yield_now(),
        }
        for from in peers.iter_mut().filter(|from| from.is_alive && from.control.has_ended()) {
            from.is_alive = false;
            endpoint.remove(from.peer);
            under_way.retain(|_, (peer, ..)| *peer != from.peer);
        }
        if last.elapsed() > PATIENCE {
            return Err(format!("nothing for {} s, after {done} parts", PATIENCE.as_secs()).into());
        }
    }
    Ok(done)
}

/// Compares a part with what it should be, and says in which way it is wrong.
fn check(body: &[u8], expected: &[u8], number: u64) -> Result<()> {
    if body == expected {
        return Ok(());
    }
    let wrong: Vec<usize> = (0..expected.len()).filter(|index| body.get(*index) != expected.get(*index)).collect();
    let (first, last) = (wrong.first().copied().unwrap_or(0), wrong.last().copied().unwrap_or(0));
    let bytes = expected.len();
    Err(format!("part {number} of {bytes} bytes: {} are wrong, from {first} to {last}", wrong.len()).into())
}
