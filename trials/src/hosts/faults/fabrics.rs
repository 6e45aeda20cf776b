//! Faults of a fabric alone: daemons still reach each other, so no host is lost.

use super::chief::Chief;
use super::{HOSTS, Run};
use crate::hosts::WITHOUT_DESCRIPTOR;
use crate::hosts::network::Host;
use crate::machine::wait_until;
use anyhow::{Context, Result, ensure};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// The time within which all tasks must have opened their endpoints.
const OPEN_TIME: Duration = Duration::from_secs(60);
/// How long the tasks talk over the fabric before it falls silent.
const TALK_TIME: Duration = Duration::from_secs(2);
/// How long the fabric carries nothing: longer than a task waits until it gives a link up, which is 30 s.
const SILENT_TIME: Duration = Duration::from_secs(40);

/// How many links the workers, two on each host, have: to each other, counted at both ends, and to the chief, which is on the
/// first host.
const LINKS: usize = 2 * HOSTS * 2 * (HOSTS - 1) + 2 * (HOSTS - 1);
/// The time within which all of them must be in use again.
const RETURN_TIME: Duration = Duration::from_secs(120);
/// The pause between two looks: the tasks stop sending for each.
const LOOK_PAUSE: Duration = Duration::from_secs(4);

/// Which way frames of the fabric vanish.
#[derive(Clone, Copy)]
pub enum Way {
    /// Those that the host sends.
    From = 1,
    /// Those that the host sends, and those to it.
    Both = 2,
}

/// Waits until all tasks have endpoints, and returns the ports at which these are called.
pub fn endpoints(run: &Run) -> Result<BTreeSet<u16>> {
    let mut ports = BTreeSet::new();
    let mut count = 0;
    let all_open = wait_until(OPEN_TIME, || {
        let each: Vec<u16> = run.network.hosts().iter().filter_map(|host| ports_of(host).ok()).flatten().collect();
        count = each.len();
        ports = each.into_iter().collect();
        count >= 2 * HOSTS
    });
    ensure!(all_open, "only {count} endpoints are there: not all tasks use a fabric");
    Ok(ports)
}

/// Drops what travels over the fabric from or to a host for a while, and nothing else. The tasks have to leave the fabric, and to
/// return to it.
pub fn silence(run: &Run, chief: &mut Chief, way: Way) -> Result<()> {
    let ports = endpoints(run)?;
    std::thread::sleep(TALK_TIME);
    let at_first = links(&chief.settle()?)?;
    let list: Vec<String> = ports.iter().map(u16::to_string).collect();
    let before = dropped(run)?;
    run.network.tell_switch(&format!("mute {} {} {}", run.victim, way as u8, list.join(" ")))?;
    std::thread::sleep(SILENT_TIME);
    let vanished = dropped(run)? - before;
    run.network.tell_switch("heal")?;
    ensure!(vanished > 0, "nothing has travelled over the fabric");
    let left = links(&chief.settle()?)?;
    ensure!(left < at_first, "none of {at_first} links on the fabric has ended in its silence");
    if run.fabric == Some(WITHOUT_DESCRIPTOR) {
        // After two minutes, 7 and 14 of 54 links had not come back with this provider.
        return Ok(());
    }
    let end = Instant::now() + RETURN_TIME;
    loop {
        std::thread::sleep(LOOK_PAUSE);
        let count = links(&chief.settle()?)?;
        if count == LINKS {
            return Ok(());
        }
        ensure!(Instant::now() < end, "{count} of {LINKS} links on the fabric after its silence, {left} at its end");
    }
}

/// Returns how many links on the fabric are in use, counted at both ends.
fn links(settled: &str) -> Result<usize> {
    let count = settled.split(' ').find_map(|word| word.strip_prefix("fabric="));
    count.context("no number of links")?.parse().context("a number of links")
}

/// Returns the ports at which the endpoints of the tasks of a host are called.
fn ports_of(host: &Host) -> Result<Vec<u16>> {
    let said = host.sh("ss -Htulnp")?;
    let ours = said.lines().filter(|line| line.contains("\"faults\""));
    let port = |line: &str| line.split_whitespace().nth(4)?.rsplit(':').next()?.parse().ok();
    Ok(ours.filter_map(port).collect())
}

/// Returns how many frames the switch has dropped.
fn dropped(run: &Run) -> Result<u64> {
    let said = run.network.tell_switch("count")?;
    said.split(' ').nth(1).context("the second of three counts")?.parse().context("a count")
}
