//! Adds hostile hosts again and again, and checks that the machine keeps working. Each time that a hostile host joins,
//! a new life of the host begins.
use super::super::ring::CONSOLE_TIME;
use super::HONEST;
use crate::common::Checks;
use crate::hosts::machine::Machine;
use crate::hosts::network::Host;
use crate::machine::wait_until;
use crate::processes::{self, signal};
use anyhow::{Result, bail, ensure};
use rustix::process::Signal;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// The interval of the checks.
const PAUSE: Duration = Duration::from_millis(100);
/// The interval between two uses of each honest host's console.
const ASK_INTERVAL: Duration = Duration::from_secs(4);
/// If hostile hosts had at least this many lives, the honest hosts must have cut off at least one hostile host.
const LIVES_FOR_A_CUT: usize = 8;
/// The most memory that an honest daemon may have at any time, in bytes.
const PEAK_BYTES_MAX: u64 = 1 << 30;

/// The observations so far.
#[derive(Default)]
struct Seen {
    added: usize,
    refused: usize,
    asked: usize,
    /// The longest time that a console took.
    longest: Duration,
    peak_bytes: u64,
    peak_descriptors: usize,
    trouble: Vec<String>,
}

/// Adds a hostile host to the machine whenever the host is not in it.
pub struct Keeper<'a> {
    machine: &'a Machine<'a>,
    hostile: &'a [Host],
    daemons: &'a [u32],
    lives: PathBuf,
    /// Whether hostile hosts are added now.
    wanted: AtomicBool,
    /// Whether the traffic is over.
    over: AtomicBool,
    /// The number of consoles that are adding hosts.
    adding: AtomicUsize,
    seen: Mutex<Seen>,
}

impl<'a> Keeper<'a> {
    /// Makes a keeper that waits for [`Keeper::admit`].
    pub fn new(machine: &'a Machine<'a>, hostile: &'a [Host], daemons: &'a [u32], folder: &Path) -> Keeper<'a> {
        let (wanted, over, adding) = (AtomicBool::new(false), AtomicBool::new(false), AtomicUsize::new(0));
        let (lives, seen) = (folder.join("lives"), Mutex::default());
        Keeper { machine, hostile, daemons, lives, wanted, over, adding, seen }
    }

    /// Lets hostile hosts join.
    pub fn admit(&self) {
        self.wanted.store(true, Ordering::Relaxed);
    }

    /// Ends the hostile hosts, and lets no more join.
    pub fn pause(&self) {
        self.wanted.store(false, Ordering::SeqCst);
        let there = || self.hostile.iter().flat_map(Host::processes);
        there().for_each(|process| signal(process, Signal::KILL));
        wait_until(CONSOLE_TIME, || self.adding.load(Ordering::SeqCst) == 0 && there().next().is_none());
        // Kills a host that was just starting.
        there().for_each(|process| signal(process, Signal::KILL));
    }

    /// Ends everything after the traffic.
    pub fn stop(&self) {
        self.pause();
        self.over.store(true, Ordering::Relaxed);
    }

    /// Adds hosts, uses consoles and measures daemons until the traffic is over.
    pub fn keep(&self) {
        std::thread::scope(|scope| {
            scope.spawn(|| self.until_over(|| self.add_missing_hosts()));
            scope.spawn(|| self.until_over(|| self.measure()));
            let mut next = Instant::now() + ASK_INTERVAL;
            self.until_over(|| {
                if Instant::now() >= next {
                    next = Instant::now() + ASK_INTERVAL;
                    self.ask_around();
                }
            });
        });
    }

    fn until_over(&self, mut act: impl FnMut()) {
        while !self.over.load(Ordering::Relaxed) {
            act();
            std::thread::sleep(PAUSE);
        }
    }

    fn seen(&self, note: impl FnOnce(&mut Seen)) {
        note(&mut self.seen.lock().expect("nobody panics with it"));
    }

    fn add_missing_hosts(&self) {
        // The count grows before `wanted` is read: so once `wanted` is false and the count is 0, no host can start any
        // more.
        self.adding.fetch_add(1, Ordering::SeqCst);
        if self.wanted.load(Ordering::SeqCst) {
            self.add();
        }
        self.adding.fetch_sub(1, Ordering::SeqCst);
    }

    fn add(&self) {
        let lacking: Vec<&str> =
            self.hostile.iter().filter(|host| host.processes().is_empty()).map(|host| host.name.as_str()).collect();
        if lacking.is_empty() {
            return;
        }
        // A refusal is no error: the host may have left again before the answer arrives.
        match self.ask(self.machine.first(), &format!("add {}\n", lacking.join(" "))) {
            Ok(text) if text.contains(" successful") && !text.contains("\n0 successful") => {
                self.seen(|seen| seen.added += 1)
            }
            Ok(_) => self.seen(|seen| seen.refused += 1),
            Err(error) => self.seen(|seen| seen.trouble.push(format!("adding: {error:#}"))),
        }
    }

    /// Checks that every honest host knows the honest hosts, and can list the tasks of all hosts.
    fn ask_around(&self) {
        let honest = &self.machine.network.hosts()[..HONEST];
        for host in honest {
            let busy = self.wanted.load(Ordering::Relaxed);
            let said = self.ask(host, "conf\nps -a\n");
            let answer = said.and_then(|text| {
                let lists = |one: &Host| text.lines().any(|line| line.split_whitespace().next() == Some(&*one.name));
                ensure!(
                    honest.iter().all(lists),
                    "the console of {} does not list all honest hosts: {text}",
                    host.name
                );
                // At the end of the traffic there may be no tasks.
                let tasks = text.matches("torture").count();
                let over = !busy || !self.wanted.load(Ordering::Relaxed);
                ensure!(tasks > 1 || over, "the console of {} lists no tasks: {text}", host.name);
                Ok(())
            });
            self.seen(|seen| {
                seen.asked += 1;
                seen.trouble.extend(answer.err().map(|error| format!("{error:#}")));
            });
        }
    }

    fn ask(&self, host: &Host, lines: &str) -> Result<String> {
        let began = Instant::now();
        let said = self.machine.console(host, lines, CONSOLE_TIME);
        self.seen(|seen| seen.longest = seen.longest.max(began.elapsed()));
        said
    }

    fn measure(&self) {
        for daemon in self.daemons {
            let process = processes::find(*daemon);
            let status = process.as_ref().and_then(|process| process.status().ok());
            let kibibytes = status.and_then(|status| status.rssanon);
            let descriptors = process.and_then(|process| process.fd_count().ok()).unwrap_or_default();
            self.seen(|seen| {
                seen.peak_bytes = seen.peak_bytes.max(kibibytes.unwrap_or_default() << 10);
                seen.peak_descriptors = seen.peak_descriptors.max(descriptors);
            });
        }
    }

    /// Returns the number of lives of hostile hosts so far.
    pub fn lives(&self) -> usize {
        self.reports_of_lives().len()
    }

    fn reports_of_lives(&self) -> Vec<String> {
        fs::read_to_string(&self.lives).unwrap_or_default().lines().map(str::to_owned).collect()
    }

    /// Reports what the hostile hosts did, how they ended, and whether the machine kept working.
    pub fn report(&self, checks: &mut Checks) {
        let seen = std::mem::take(&mut *self.seen.lock().expect("nobody panics with it"));
        let reports = self.reports_of_lives();
        let mut ends: BTreeMap<String, usize> = BTreeMap::new();
        let mut deeds: BTreeMap<String, u64> = BTreeMap::new();
        for report in &reports {
            let (rest, end) = report.rsplit_once("; ").unwrap_or((report, "?"));
            *ends.entry(end.to_owned()).or_default() += 1;
            let done = rest.split_once(": ").map_or("", |(_, done)| done).split(", ");
            for (times, what) in done.filter_map(|deed| deed.split_once(' ')) {
                *deeds.entry(what.to_owned()).or_default() += times.parse::<u64>().unwrap_or_default();
            }
        }
        let cut_off = reports.iter().filter(|report| report.contains("; cut off")).count();
        println!(
            "  hostile    {} lives, {cut_off} cut off; {} adds, {} refused",
            reports.len(),
            seen.added,
            seen.refused
        );
        println!("  they sent  {}", list(deeds.iter().map(|(what, times)| (what, *times))));
        println!("  they were  {}", list(ends.iter().map(|(end, times)| (end, *times as u64))));
        println!(
            "  daemons    at most {} MiB and {} descriptors; {} questions at consoles, the longest wait {:.1} s",
            seen.peak_bytes >> 20,
            seen.peak_descriptors,
            seen.asked,
            seen.longest.as_secs_f32()
        );
        checks.check("hostile hosts: there were some, and some were cut off", enough(reports.len(), cut_off));
        let spared: Vec<&String> = reports.iter().filter(|report| report.contains("NOT CUT OFF")).collect();
        checks.check(
            "hostile hosts: what is nonsense is cut off",
            (|| {
                ensure!(spared.is_empty(), "{spared:?}");
                Ok(())
            })(),
        );
        checks.check(
            "hostile hosts: the machine goes on",
            (|| {
                ensure!(seen.trouble.is_empty(), "{} times; first: {}", seen.trouble.len(), seen.trouble[0]);
                ensure!(seen.asked > 0, "no console was used");
                Ok(())
            })(),
        );
        checks.check(
            "hostile hosts: daemons keep a bounded amount for them",
            (|| {
                ensure!(seen.peak_bytes <= PEAK_BYTES_MAX, "{} MiB", seen.peak_bytes >> 20);
                Ok(())
            })(),
        );
    }
}

fn enough(lives: usize, cut_off: usize) -> Result<()> {
    if lives == 0 || cut_off == 0 && lives >= LIVES_FOR_A_CUT {
        bail!("{lives} lives, {cut_off} of them cut off");
    }
    Ok(())
}

fn list<'a>(all: impl Iterator<Item = (&'a String, u64)>) -> String {
    all.map(|(what, times)| format!("{times} {what}")).collect::<Vec<_>>().join(", ")
}
