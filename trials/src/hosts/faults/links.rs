//! The faults in which the kernel ends data links or control links.

use super::Run;
use crate::hosts::network::Host;
use crate::machine::wait_until;
use anyhow::{Context, Result, ensure};
use std::time::{Duration, Instant};

/// The most times that a run ends some of the data links, before it ends all of them once.
const KILLS_MAX: u64 = 6;
/// The time within which data links must be connected again.
const AGAIN_TIME: Duration = Duration::from_secs(20);
/// The longest segments of control links, in bytes. Those of data links are longer.
const CONTROL_SEGMENT_BYTES: u64 = 536;
/// How often the control links of a host are ended, and the pause before each time.
const CONTROL_KILLS: u32 = 8;
const CONTROL_PAUSE: Duration = Duration::from_secs(2);
/// How long the run may take to end connections while the host is cut off.
const CUT_MAX: Duration = Duration::from_secs(3);
/// The words in the daemon's log when a data link is connected again.
const AGAIN: &str = "stands again";

/// Ends data links of the host several times. Sometimes the host is cut off meanwhile, so that the other hosts do not
/// receive the resets of the connections.
pub fn kill(run: &mut Run) -> Result<()> {
    let data_links = |host: &Host| -> Result<Vec<Connection>> {
        Ok(connections(host)?.into_iter().filter(|one| !one.is_control).collect())
    };
    let victim = run.victim();
    let all = || data_links(victim).is_ok_and(|links| links.len() == super::HOSTS - 1);
    ensure!(wait_until(AGAIN_TIME, all), "the host has not all data links");
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
    let again = || run.machine.log(victim).lines().filter(|line| line.contains(AGAIN)).count();
    ensure!(wait_until(AGAIN_TIME, || again() > 0 && all()), "links are not made again; {killed} were ended");
    Ok(())
}

/// Ends all control links of the host, again and again.
pub fn kill_control(run: &Run) -> Result<()> {
    let mut killed = 0;
    for _ in 0..CONTROL_KILLS {
        std::thread::sleep(CONTROL_PAUSE);
        for link in connections(run.victim())?.iter().filter(|one| one.is_control) {
            killed += end(run.victim(), link)?;
        }
    }
    let least = CONTROL_KILLS as usize;
    ensure!(killed >= least, "only {killed} control links were there to be ended");
    Ok(())
}

/// A connection: the addresses of its near and its far end.
struct Connection {
    near: String,
    far: String,
    is_control: bool,
}

/// Returns all connections of a daemon.
fn connections(host: &Host) -> Result<Vec<Connection>> {
    let daemon = format!("pid={},", host.daemon().context("a daemon there")?);
    let said = host.sh("ss -tnpiHO state established")?;
    let lines = said.lines().filter(|line| line.contains(&daemon));
    let connection = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let segment: u64 = words.iter().find_map(|word| word.strip_prefix("mss:")?.parse().ok())?;
        let is_control = segment <= CONTROL_SEGMENT_BYTES;
        Some(Connection { near: words.get(2)?.to_string(), far: words.get(3)?.to_string(), is_control })
    };
    Ok(lines.filter_map(connection).collect())
}

/// Lets the kernel end a connection. Returns the number of connections that it has ended.
fn end(host: &Host, Connection { near, far, .. }: &Connection) -> Result<usize> {
    let said = host.sh(&format!("ss -tnHK src '{near}' dst '{far}'"))?;
    Ok(said.lines().count())
}
