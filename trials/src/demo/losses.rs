//! The farm over hosts that are lost: every host but one is killed in turn, if possible while it is the master of the machine,
//! and added again. The picture must be the undisturbed one, byte for byte.

use super::farm::{self, Run};
use super::ground::{Ground, HOSTS, Hosts, name};
use crate::common::Progress;
use crate::hosts::sandbox;
use crate::machine::{LineProcess, wait_until};
use crate::processes::command_line;
use crate::scratch;
use anyhow::{Context, Result, bail, ensure};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The place of the host that is not lost. The farm's master is there.
const STAYS: usize = HOSTS - 1;
/// The tiles, in percent of all, at which a host is lost.
const LOST_AT_PERCENT: [u32; STAYS] = [10, 35, 60];
/// How long the farm shall paint, in seconds: so long that all losses fall into this time.
const PAINTING_SECONDS: f64 = 5.0;
/// How long nothing may happen.
const SILENCE_MAX: Duration = Duration::from_secs(30);
/// The last line of the story.
const END: &str = "  The machine has ended, and no process is left on any host.";

/// Paints the picture in peace, and then over hosts that are lost. Returns the path of the second picture.
pub fn show(painter: &Painter) -> Result<PathBuf> {
    let (first, second) = (painter.peace()?, picture()?);
    match sandbox::obstacle() {
        None => in_namespaces(painter)?,
        Some(_) => on_this_host(painter)?,
    }
    compare(&first, &second)?;
    // The two are the same.
    let _ = std::fs::remove_file(first);
    println!("  The picture is the same, byte for byte, as one that was painted in peace.");
    Ok(second)
}

/// The picture that is painted.
pub struct Painter {
    samples: String,
}

impl Painter {
    /// Returns a picture that takes long enough, by the time that one worker needs for a picture with this number of
    /// samples. Each pixel has the square of that number of points.
    pub fn after(seconds: f64, samples: u32) -> Result<Painter> {
        let at_once = std::thread::available_parallelism()?.get().min(HOSTS) as f64;
        let factor = (PAINTING_SECONDS * at_once / seconds.max(0.001)).sqrt();
        Ok(Painter { samples: ((f64::from(samples) * factor).round() as u32).max(1).to_string() })
    }

    /// Paints it on a machine of this host, and returns the path.
    pub fn peace(&self) -> Result<PathBuf> {
        let picture = farm::directory()?.join("peace.png");
        let workers = std::thread::available_parallelism()?.get().to_string();
        let progress = Progress::begin("painting a picture in peace");
        let painted = farm::alone(&["--workers", &workers, "--samples", &self.samples], &picture);
        progress.end();
        painted.map(|_| picture)
    }
}

/// Returns the path of the picture that is painted over hosts.
pub fn picture() -> Result<PathBuf> {
    Ok(farm::directory()?.join("hosts.png"))
}

/// Checks that two pictures are the same, byte for byte.
pub fn compare(first: &Path, second: &Path) -> Result<()> {
    let read = |path: &Path| std::fs::read(path).with_context(|| path.display().to_string());
    ensure!(read(first)? == read(second)?, "{} and {} differ", first.display(), second.display());
    Ok(())
}

/// Tells the story with network namespaces.
pub fn in_namespaces(painter: &Painter) -> Result<()> {
    let last = sandbox::run(&["demo", &painter.samples])?;
    ensure!(last == END, "the farm over hosts ended early: {last}");
    Ok(())
}

/// Does the same as [`in_namespaces`], in the sandbox.
pub fn inside(folder: &Path, arguments: &[String]) -> Result<()> {
    let [samples] = arguments else { bail!("one argument, not {}", arguments.len()) };
    let hosts = folder.join("demo");
    std::fs::create_dir_all(&hosts)?;
    tell(&Hosts::new(Ground::namespaces(folder)?, &hosts)?, &Painter { samples: samples.clone() })
}

/// Tells the story with daemons on this host.
pub fn on_this_host(painter: &Painter) -> Result<()> {
    let folder = scratch::directory("demo-hosts")?;
    tell(&Hosts::new(Ground::OneHost, folder.path())?, painter)
}

fn tell(hosts: &Hosts, painter: &Painter) -> Result<()> {
    println!("\nThe farm over {HOSTS} hosts, {}.", hosts.says());
    println!("One after the other is lost by `kill -9` of its daemon and its tasks, the first host first, and");
    println!("added again. Only {} stays; the farm's master is there.\n", name(STAYS));
    let picture = picture()?;
    // So that it is not one of an earlier run.
    let _ = std::fs::remove_file(&picture);
    hosts.start()?;
    let mut story = Story::begin(hosts, painter, &picture)?;
    let mut left: Vec<usize> = (0..STAYS).collect();
    while !left.is_empty() {
        story.lose(&mut left)?;
    }
    story.end()?;
    hosts.pvm(STAYS, &["down"])?;
    let are_gone = wait_until(SILENCE_MAX, || (0..HOSTS).all(|place| hosts.processes(place).is_empty()));
    ensure!(are_gone, "processes are left after the end of the machine");
    println!("{END}");
    Ok(())
}

/// The hosts of the machine.
#[derive(Default)]
struct Table {
    hosts: Vec<String>,
    master: String,
}

impl Table {
    /// Reads what `pvm conf -v` prints: two lines of heading, then a line for each host.
    fn parse(said: &str) -> Table {
        let name = |line: &str| line.split_whitespace().next().unwrap_or_default().to_owned();
        let master = said.lines().find(|line| line.ends_with(" master")).map(name).unwrap_or_default();
        Table { hosts: said.lines().skip(2).map(name).collect(), master }
    }
}

/// The farm, and how far it is.
struct Story<'a> {
    hosts: &'a Hosts,
    farm: LineProcess,
    began: Instant,
    done: u32,
    /// The tiles of the picture; none before the first is done.
    all: u32,
    /// The last line of the farm.
    last: String,
}

impl<'a> Story<'a> {
    fn begin(hosts: &'a Hosts, painter: &Painter, picture: &Path) -> Result<Story<'a>> {
        let mut command = hosts.command(STAYS, &farm::program()?);
        command.args(["--per-host", "1", "--report", "1", "--samples", &painter.samples]);
        let farm = LineProcess::start(command.arg("--output").arg(picture))?;
        let mut story = Story { hosts, farm, began: Instant::now(), done: 0, all: 0, last: String::new() };
        println!("  seconds   tiles");
        let others: Vec<String> = (1..HOSTS).map(name).collect();
        story.say(&format!("{} (the machine's master), {}", name(0), others.join(", ")));
        story.read_until(1)?;
        Ok(story)
    }

    /// Kills one of these hosts, which is no longer one of them then, waits until the machine goes on without it, and adds
    /// it again.
    fn lose(&mut self, left: &mut Vec<usize>) -> Result<()> {
        let is_next = LOST_AT_PERCENT[STAYS - left.len()];
        self.read_until(self.all * is_next / 100)?;
        let master = self.table()?.master;
        // After the first loss, the last host may be the master, too.
        let position = left.iter().position(|place| name(*place) == master).unwrap_or(0);
        let place = left.remove(position);
        let lost = name(place);
        let part = if lost == master { ", the machine's master," } else { "" };
        self.say(&format!("{lost}{part} is lost"));
        let began = Instant::now();
        let killed = self.hosts.kill(place)?;
        let mut now = Table::default();
        let goes_on = wait_until(SILENCE_MAX, || {
            now = self.table().unwrap_or_default();
            !now.master.is_empty() && !now.hosts.contains(&lost)
        });
        ensure!(goes_on, "the machine does not go on without {lost}: {}", self.hosts.log(STAYS));
        let seconds = began.elapsed().as_secs_f64();
        let part = if lost == master { "is" } else { "stays" };
        self.say(&format!("{} {part} the master, {seconds:.2} s after {killed} processes were killed", now.master));
        let began = Instant::now();
        self.hosts.add(STAYS, place)?;
        let seconds = began.elapsed().as_secs_f64();
        let paints = |pid: &u32| command_line(*pid).iter().any(|word| word == "--worker");
        let is_back = wait_until(SILENCE_MAX, || self.hosts.processes(place).iter().any(paints));
        ensure!(is_back, "no worker starts on {lost}: {}", self.hosts.log(place));
        self.say(&format!("{lost} is added again in {seconds:.2} s, and paints"));
        Ok(())
    }

    /// Waits for the end of the farm.
    fn end(&mut self) -> Result<()> {
        while self.read(SILENCE_MAX)? {}
        let is_well = self.farm.end(SILENCE_MAX)?;
        ensure!(is_well, "the farm failed: {}", self.farm.ending());
        let run = Run::parse(&self.last).with_context(|| format!("the farm said {}", self.last))?;
        ensure!(run.lost as usize == STAYS, "{} workers were lost, not {STAYS}", run.lost);
        ensure!(run.workers as usize == HOSTS, "{} workers at the end, not {HOSTS}", run.workers);
        self.say(&format!("the picture is finished; {} tiles were lost with their hosts, and done again", run.again));
        Ok(())
    }

    /// Returns the hosts of the machine, as the host says that stays.
    fn table(&self) -> Result<Table> {
        Ok(Table::parse(&self.hosts.pvm(STAYS, &["conf", "-v"])?))
    }

    /// Prints a line about what has just happened.
    fn say(&mut self, text: &str) {
        // What the farm has said meanwhile.
        while self.read(Duration::ZERO).is_ok_and(|more| more) {}
        println!("  {:7.1}   {:5}   {text}", self.began.elapsed().as_secs_f64(), self.done);
    }

    /// Waits until this number of tiles is done.
    fn read_until(&mut self, tiles: u32) -> Result<()> {
        while self.done < tiles {
            ensure!(self.read(SILENCE_MAX)?, "the farm ended early: {}", self.farm.ending());
        }
        ensure!(self.all == 0 || self.done < self.all, "the picture was finished before all hosts were lost");
        Ok(())
    }

    /// Reads a line of the farm, and returns whether there was one.
    fn read(&mut self, time: Duration) -> Result<bool> {
        let Some(line) = self.farm.next_line(time)? else { return Ok(false) };
        // `farm: 120 of 300 tiles are done`
        if let Some((done, all)) = line.strip_suffix(" tiles are done").and_then(|line| line.rsplit_once(" of ")) {
            self.done = done.rsplit(' ').next().unwrap_or_default().parse()?;
            self.all = all.parse()?;
        }
        self.last = line;
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hosts_and_the_master_are_read() {
        let said = "2 hosts, 1 data format\n                    HOST     DTID     ARCH   SPEED       DSIG\n                   \
                    bravo    80000  LINUX64    1000 0x00408c41 master\n                 charlie    c0000  LINUX64    1000 0x0\n";
        let table = Table::parse(said);
        assert_eq!((table.master.as_str(), table.hosts), ("bravo", vec!["bravo".to_owned(), "charlie".to_owned()]));
        assert!(Table::parse("").master.is_empty());
    }

    #[test]
    fn a_picture_that_is_painted_too_fast_gets_more_samples() {
        let samples = |seconds| Painter::after(seconds, 7).unwrap().samples.parse::<u32>().unwrap();
        assert!(samples(1.0) > samples(100.0) && samples(1e9) == 1);
    }
}
