//! The fault in which the kernel ends data links.

use super::Run;
use crate::hosts::network::Host;
use crate::machine::wait_until;
use anyhow::{Context, Result, ensure};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// The most times that a run ends some of the data links, before it ends all of them once.
const KILLS_MAX: u64 = 6;
/// The time within which data links must be connected again.
const AGAIN_TIME: Duration = Duration::from_secs(20);
/// A link counts as a data link if it has carried more bytes than this, and more than four times as many as the control
/// link.
const DATA_BYTES_MIN: u64 = 64 << 10;
/// How long the run may take to end connections while the host is cut off.
const CUT_MAX: Duration = Duration::from_secs(3);
/// The words in the daemon's log when a data link is connected again.
const AGAIN: &str = "stands again";

/// Ends data links of the host several times. Sometimes the host is cut off meanwhile, so that the other hosts do not
/// receive the resets of the connections.
pub fn kill(run: &mut Run) -> Result<()> {
    let mut control = None;
    wait_until(AGAIN_TIME, || {
        control = control_links(run.victim()).ok().flatten();
        control.is_some()
    });
    let control = control.context("no data link stands out by what has gone over it")?;
    let data_links = |host: &Host| -> Result<Vec<Connection>> {
        Ok(connections(host)?.into_iter().filter(|one| !control.contains(&one.name())).collect())
    };
    let mut killed = 0;
    for _ in 0..run.random.u64(1..KILLS_MAX + 1) {
        let unheard = run.random.bool();
        if unheard {
            run.network.tell_switch(&format!("cut {}", run.victim))?;
        }
        let began = Instant::now();
        for link in data_links(run.victim())? {
            // On a busy machine, ending the links takes seconds, and a host that is cut off for too long is lost.
            if unheard && began.elapsed() > CUT_MAX {
                break;
            }
            // Some links are spared, so that the daemon can still reach some hosts.
            if run.random.u64(0..3) > 0 {
                killed += end(run.victim(), &link)?;
            }
        }
        if unheard {
            std::thread::sleep(Duration::from_millis(run.random.u64(100..1000)));
            run.network.tell_switch("heal")?;
        }
        std::thread::sleep(Duration::from_millis(run.random.u64(100..2500)));
    }
    for link in data_links(run.victim())? {
        killed += end(run.victim(), &link)?;
    }
    ensure!(killed > 0, "the kernel has ended no link");
    let victim = run.victim();
    let again = || run.machine.log(victim).lines().filter(|line| line.contains(AGAIN)).count();
    let last = || data_links(victim).is_ok_and(|links| links.len() == super::HOSTS - 1);
    ensure!(wait_until(AGAIN_TIME, || again() > 0 && last()), "links are not made again; {killed} were ended");
    Ok(())
}

/// A connection: the addresses of its near and its far end, and the bytes that it has carried.
struct Connection {
    near: String,
    far: String,
    bytes: u64,
}

impl Connection {
    fn name(&self) -> String {
        format!("{} {}", self.near, self.far)
    }
}

/// Returns all connections of a daemon.
fn connections(host: &Host) -> Result<Vec<Connection>> {
    let daemon = format!("pid={},", host.daemon().context("a daemon there")?);
    let said = host.sh("ss -tnpiHO state established")?;
    let lines = said.lines().filter(|line| line.contains(&daemon));
    let connection = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let count = |name: &str| words.iter().find_map(|word| word.strip_prefix(name)?.parse::<u64>().ok());
        let bytes = count("bytes_sent:").unwrap_or(0) + count("bytes_received:").unwrap_or(0);
        Some(Connection { near: words.get(2)?.to_string(), far: words.get(3)?.to_string(), bytes })
    };
    Ok(lines.filter_map(connection).collect())
}

/// Returns the control links of a daemon, each as the addresses of its two ends. A daemon has two connections to each
/// other host; the control link is the one that has carried few bytes. Returns `None` while it is not clear which of
/// the two is the control link.
fn control_links(host: &Host) -> Result<Option<Vec<String>>> {
    let mut peers: BTreeMap<String, Vec<Connection>> = BTreeMap::new();
    for one in connections(host)? {
        let peer = one.far.rsplit_once(':').context("an address and a port")?.0;
        peers.entry(peer.to_owned()).or_default().push(one);
    }
    let least = |mut both: Vec<Connection>| {
        both.sort_by_key(|one| one.bytes);
        let [control, data] = &both[..] else { return None };
        (data.bytes > DATA_BYTES_MIN && data.bytes > 4 * control.bytes).then(|| control.name())
    };
    let control: Option<Vec<String>> = peers.into_values().map(least).collect();
    Ok(control.filter(|links| links.len() == super::HOSTS - 1))
}

/// Lets the kernel end a connection. Returns the number of connections that it has ended.
fn end(host: &Host, Connection { near, far, .. }: &Connection) -> Result<usize> {
    let said = host.sh(&format!("ss -tnHK src '{near}' dst '{far}'"))?;
    Ok(said.lines().count())
}
