//! Who adds hostile hosts again and again, and looks whether the machine goes on meanwhile.
use super::{CONSOLE_TIME, HONEST};
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

/// Pause between two looks at the hosts.
const PAUSE: Duration = Duration::from_millis(100);
/// How often the consoles of the honest hosts are asked.
const ASK_INTERVAL: Duration = Duration::from_secs(4);
/// Among so many lives at least one must end because the others want no more of it.
const LIVES_FOR_A_CUT: usize = 8;
/// The most that an honest daemon may hold at any time, in bytes.
const PEAK_BYTES_MAX: u64 = 1 << 30;

/// What has been seen.
#[derive(Default)]
struct Seen {
    added: usize,
    refused: usize,
    asked: usize,
    /// What a console waited for longest.
    longest: Duration,
    peak_bytes: u64,
    peak_descriptors: usize,
    trouble: Vec<String>,
}

/// Keeps hostile hosts in the machine.
pub struct Keeper<'a> {
    machine: &'a Machine<'a>,
    hostile: &'a [Host],
    daemons: &'a [u32],
    lives: PathBuf,
    /// They are to be there.
    wanted: AtomicBool,
    /// The traffic is over.
    over: AtomicBool,
    /// Consoles that are adding some.
    adding: AtomicUsize,
    seen: Mutex<Seen>,
}

impl<'a> Keeper<'a> {
    /// One that waits to be told to begin.
    pub fn new(machine: &'a Machine<'a>, hostile: &'a [Host], daemons: &'a [u32], folder: &Path) -> Keeper<'a> {
        let (wanted, over, adding) = (AtomicBool::new(false), AtomicBool::new(false), AtomicUsize::new(0));
        let (lives, seen) = (folder.join("lives"), Mutex::default());
        Keeper { machine, hostile, daemons, lives, wanted, over, adding, seen }
    }

    /// Hostile hosts may come.
    pub fn go(&self) {
        self.wanted.store(true, Ordering::Relaxed);
    }

    /// They come no more, and those that are there end.
    pub fn calm(&self) {
        self.wanted.store(false, Ordering::SeqCst);
        let there = || self.hostile.iter().flat_map(Host::processes);
        there().for_each(|process| signal(process, Signal::KILL));
        wait_until(CONSOLE_TIME, || self.adding.load(Ordering::SeqCst) == 0 && there().next().is_none());
        // One that was on its way.
        there().for_each(|process| signal(process, Signal::KILL));
    }

    /// The traffic is over.
    pub fn stop(&self) {
        self.calm();
        self.over.store(true, Ordering::Relaxed);
    }

    /// Does it all until it is over.
    pub fn keep(&self) {
        std::thread::scope(|scope| {
            scope.spawn(|| self.until_over(|| self.add_those_that_lack()));
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

    fn add_those_that_lack(&self) {
        // Counted before it looks whether they are wanted: who sees none of them being added, after
        // they are wanted no more, sees none come.
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
        // What it says is of no interest: it may be gone again before the answer comes.
        match self.ask(self.machine.first(), &format!("add {}\n", lacking.join(" "))) {
            Ok(text) if text.contains(" successful") && !text.contains("\n0 successful") => {
                self.seen(|seen| seen.added += 1)
            }
            Ok(_) => self.seen(|seen| seen.refused += 1),
            Err(error) => self.seen(|seen| seen.trouble.push(format!("adding: {error:#}"))),
        }
    }

    /// Every honest host knows the honest hosts, and the tasks of all hosts can be listed.
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
                // At the end of the traffic there may be none.
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

    /// How many lives there have been.
    pub fn lives(&self) -> usize {
        self.tales().len()
    }

    fn tales(&self) -> Vec<String> {
        fs::read_to_string(&self.lives).unwrap_or_default().lines().map(str::to_owned).collect()
    }

    /// What the hostile hosts did, what became of them, and whether the machine went on.
    pub fn report(&self, checks: &mut Checks) {
        let seen = std::mem::take(&mut *self.seen.lock().expect("nobody panics with it"));
        let tales = self.tales();
        let mut ends: BTreeMap<String, usize> = BTreeMap::new();
        let mut deeds: BTreeMap<String, u64> = BTreeMap::new();
        for tale in &tales {
            let (rest, end) = tale.rsplit_once("; ").unwrap_or((tale, "?"));
            *ends.entry(end.to_owned()).or_default() += 1;
            let done = rest.split_once(": ").map_or("", |(_, done)| done).split(", ");
            for (times, what) in done.filter_map(|deed| deed.split_once(' ')) {
                *deeds.entry(what.to_owned()).or_default() += times.parse::<u64>().unwrap_or_default();
            }
        }
        let cut_off = tales.iter().filter(|tale| tale.contains("; cut off")).count();
        println!(
            "  hostile    {} lives, {cut_off} cut off; {} adds, {} refused",
            tales.len(),
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
        checks.check("hostile hosts: there were some, and some were cut off", enough(tales.len(), cut_off));
        let spared: Vec<&String> = tales.iter().filter(|tale| tale.contains("NOT CUT OFF")).collect();
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
                ensure!(seen.asked > 0, "nobody was asked");
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
        bail!("{lives} lives, of which {cut_off} were cut off");
    }
    Ok(())
}

fn list<'a>(all: impl Iterator<Item = (&'a String, u64)>) -> String {
    all.map(|(what, times)| format!("{times} {what}")).collect::<Vec<_>>().join(", ")
}
