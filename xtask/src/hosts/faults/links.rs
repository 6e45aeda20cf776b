//! Data links that the kernel ends.

use super::Run;
use crate::hosts::network::Host;
use crate::machine::wait_until;
use anyhow::{Context, Result, ensure};
use std::collections::BTreeMap;
use std::time::Duration;

/// How often, at most.
const KILLS_MAX: u64 = 6;
/// By when those links must stand again.
const AGAIN_TIME: Duration = Duration::from_secs(20);
/// What a daemon's log says then.
const AGAIN: &str = "stands again";

/// Data links of the host are ended several times. Sometimes the other side hears nothing of it.
pub fn kill(run: &mut Run) -> Result<()> {
    let mut killed = 0;
    for _ in 0..run.numbers.between(1, KILLS_MAX + 1) {
        let unheard = run.numbers.between(0, 2) == 1;
        if unheard {
            run.network.tell_switch(&format!("cut {}", run.victim))?;
        }
        for link in data_links(run.victim())? {
            // There is somebody to talk to still when only some of them end.
            if run.numbers.between(0, 3) > 0 {
                killed += end(run.victim(), &link)?;
            }
        }
        if unheard {
            std::thread::sleep(run.numbers.pause(100, 1000));
            run.network.tell_switch("heal")?;
        }
        std::thread::sleep(run.numbers.pause(100, 2500));
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

/// A connection: its end here, its end there.
struct Connection {
    near: String,
    far: String,
}

/// The data links of a daemon. Two hosts have two connections, of which that for control is the older one.
fn data_links(host: &Host) -> Result<Vec<Connection>> {
    let daemon = format!("pid={},", host.daemon().context("a daemon there")?);
    let mut peers: BTreeMap<String, BTreeMap<u64, Connection>> = BTreeMap::new();
    for line in host.sh("ss -tnpeH state established")?.lines().filter(|line| line.contains(&daemon)) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let number = words.iter().find_map(|word| word.strip_prefix("ino:")?.parse().ok());
        let (Some(number), [_, _, near, far, ..]) = (number, words.as_slice()) else { continue };
        let peer = far.rsplit_once(':').context("an address and a port")?.0;
        let connection = Connection { near: near.to_string(), far: far.to_string() };
        peers.entry(peer.to_owned()).or_default().insert(number, connection);
    }
    Ok(peers.into_values().filter_map(|both| both.into_values().nth(1)).collect())
}

/// Has the kernel end a connection; how many that were.
fn end(host: &Host, Connection { near, far }: &Connection) -> Result<usize> {
    let said = host.sh(&format!("ss -tnHK src '{near}' dst '{far}'"))?;
    Ok(said.lines().count())
}
