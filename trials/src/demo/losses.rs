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
const LOST_AT_PERCENT: [u32; STAYS] = [10, 30, 50];
/// How long the farm shall paint, in seconds: so long that all losses fall into this time.
const PAINTING_SECONDS: f64 = 6.0;
/// The least share of that time, and how many pictures are painted until one takes so long.
const LEAST_SHARE: f64 = 0.7;
const PICTURES_MAX: usize = 3;
/// How long nothing may happen.
const SILENCE_MAX: Duration = Duration::from_secs(30);
/// The last line of the story.
const END: &str = "  The machine has ended, and no process is left on any host.";

/// Paints the picture of [`Peace`] over hosts that are lost. Returns the path.
pub fn show(peace: &Peace) -> Result<PathBuf> {
    match sandbox::obstacle() {
        None => in_namespaces(peace)?,
        Some(obstacle) => {
            println!("\nNext come hosts that would be network namespaces, but {obstacle}.");
            on_this_host(peace)?;
        }
    }
    println!("  The picture is the same, byte for byte, as one that was painted in peace.");
    picture()
}

/// A picture that was painted in peace, and takes so long that all losses fall into the time of a second one. Dropping it
/// removes the file.
pub struct Peace {
    samples: String,
    picture: PathBuf,
}

impl Peace {
    /// Paints it, with as many workers as there can be at once over the hosts. One worker has needed that many seconds for a
    /// picture with this number of samples; each pixel has the square of that number of points.
    pub fn paint(seconds: f64, samples: u32) -> Result<Peace> {
        let workers = std::thread::available_parallelism()?.get().min(HOSTS);
        let (mut seconds, mut samples) = (seconds / workers as f64, samples);
        let mut peace = Peace { samples: String::new(), picture: farm::directory()?.join("peace.png") };
        for _ in 0..PICTURES_MAX {
            samples = enough(seconds, samples);
            peace.samples = samples.to_string();
            let progress = Progress::begin("painting a picture in peace");
            let options = ["--workers", &workers.to_string(), "--samples", &peace.samples];
            let painted = farm::alone(&options, &peace.picture);
            progress.end();
            seconds = painted?.seconds;
            // Otherwise other work had disturbed the measurement before.
            if seconds > PAINTING_SECONDS * LEAST_SHARE {
                break;
            }
        }
        Ok(peace)
    }

    /// Checks that the picture that was painted over hosts is the same, byte for byte.
    fn compare(&self) -> Result<()> {
        let read = |path: &Path| std::fs::read(path).with_context(|| path.display().to_string());
        ensure!(read(&self.picture)? == read(&picture()?)?, "the picture differs from {}", self.picture.display());
        Ok(())
    }
}

impl Drop for Peace {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.picture);
    }
}

/// Returns the number of samples for a picture that takes long enough, if one with these samples takes that many seconds.
fn enough(seconds: f64, samples: u32) -> u32 {
    let factor = (PAINTING_SECONDS / seconds.max(0.001)).sqrt();
    ((f64::from(samples) * factor).round() as u32).max(1)
}

/// Returns the path of the picture that is painted over hosts.
pub fn picture() -> Result<PathBuf> {
    Ok(farm::directory()?.join("hosts.png"))
}

/// Tells the story with network namespaces.
pub fn in_namespaces(peace: &Peace) -> Result<()> {
    let last = sandbox::run(&["demo", &peace.samples])?;
    ensure!(last == END, "the farm over hosts ended early: {last}");
    peace.compare()
}

/// Does the same as [`in_namespaces`], in the sandbox.
pub fn inside(folder: &Path, arguments: &[String]) -> Result<()> {
    let [samples] = arguments else { bail!("one argument, not {}", arguments.len()) };
    let hosts = folder.join("demo");
    std::fs::create_dir_all(&hosts)?;
    tell(&Hosts::new(Ground::namespaces(folder)?, &hosts)?, samples)
}

/// Tells the story with daemons on this host.
pub fn on_this_host(peace: &Peace) -> Result<()> {
    let folder = scratch::directory("demo-hosts")?;
    tell(&Hosts::new(Ground::OneHost, folder.path())?, &peace.samples)?;
    peace.compare()
}

fn tell(hosts: &Hosts, samples: &str) -> Result<()> {
    println!("\nThe farm over {HOSTS} hosts, {}.", hosts.says());
    println!("One after the other is lost by `kill -9` of its daemon and its tasks, the first host first, and");
    println!("added again. Only {} stays; the farm's master is there.\n", name(STAYS));
    let picture = picture()?;
    // So that it is not one of an earlier run.
    let _ = std::fs::remove_file(&picture);
    hosts.start()?;
    let mut story = Story::begin(hosts, samples, &picture)?;
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
    fn begin(hosts: &'a Hosts, samples: &str, picture: &Path) -> Result<Story<'a>> {
        let mut command = hosts.command(STAYS, &farm::program()?);
        command.args(["--per-host", "1", "--report", "1", "--samples", samples]);
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
        assert_eq!((enough(PAINTING_SECONDS, 7), enough(PAINTING_SECONDS / 4.0, 7)), (7, 14));
        assert_eq!(enough(1e9, 7), 1);
    }
}
