//! Runs a case, and looks at it until `pvm why` says what is expected.
use super::case::{Case, Expected};
use super::programs;
use crate::conform::machine::POLL_INTERVAL;
use anyhow::{Context, Result, bail, ensure};
use std::collections::BTreeSet;
use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long a fault may need until it shows, on a machine that does much else.
const STATE_TIME_MAX: Duration = Duration::from_secs(90);
/// How long a program that is well may run.
const RUN_TIME_MAX: Duration = Duration::from_secs(240);
/// How much is shown of what a failed program has said, in bytes.
const SAID_BYTES_MAX: u64 = 4096;

/// A machine on which a case runs.
pub trait Stage {
    /// Returns a command that runs `pvm` there.
    fn pvm(&self) -> Command;
}

/// What `pvm why` has said.
struct Answer {
    status: Option<i32>,
    /// All in one line.
    text: String,
    /// The tasks, and those that can never go on, by number.
    tids: Vec<String>,
    stuck: Vec<usize>,
}

/// Starts the tasks of the case, and looks at them.
pub fn judge(case: &Case, stage: &dyn Stage) -> Result<()> {
    let mut run = stage.pvm();
    run.args(["run", "-n", &case.tasks.to_string()]).arg(programs::program(case));
    run.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut run = run.spawn().context("cannot start pvm run")?;
    let result = match &case.expected {
        Expected::Health => stays_well(stage, &mut run),
        Expected::Deadlock(expected) => shows(case, expected, stage, &mut run),
    };
    let _ = run.kill();
    let _ = run.wait();
    let mut said = Vec::new();
    // Tasks that have inherited the other end of the pipe may still live.
    if let Some(errors) = run.stderr.take().filter(|_| result.is_err()) {
        let _ = rustix::io::ioctl_fionbio(&errors, true);
        let _ = errors.take(SAID_BYTES_MAX).read_to_end(&mut said);
    }
    result.with_context(|| format!("pvm run: {}", String::from_utf8_lossy(&said)))
}

fn ask(stage: &dyn Stage) -> Result<Answer> {
    let text = stage.pvm().arg("why").output().context("cannot start pvm why")?;
    let value = stage.pvm().args(["why", "--json"]).output().context("cannot start pvm why")?;
    let (status, json) = (text.status.code(), String::from_utf8_lossy(&value.stdout).into_owned());
    ensure!(status != Some(1) && value.status.code() != Some(1), "{}", String::from_utf8_lossy(&text.stderr));
    let text = String::from_utf8_lossy(&text.stdout).into_owned();
    let wide: Vec<&str> = text.lines().filter(|line| line.chars().count() > 80).collect();
    ensure!(wide.is_empty(), "wider than a terminal: {wide:?}");
    let value: serde_json::Value = serde_json::from_str(&json).with_context(|| json.clone())?;
    let tasks = value["tasks"].as_array().context("tasks")?;
    let tids = tasks.iter().map(|task| task["tid"].as_str().unwrap_or_default().to_owned()).collect();
    let is_stuck = |(_, task): &(usize, &serde_json::Value)| task["deadlock"] == true;
    let stuck = tasks.iter().enumerate().filter(is_stuck).map(|(number, _)| number).collect();
    Ok(Answer { status, text: text.split_ascii_whitespace().collect::<Vec<_>>().join(" "), tids, stuck })
}

/// Looks until the report says what is expected. Fails at once if it accuses others.
fn shows(case: &Case, expected: &[usize], stage: &dyn Stage, run: &mut Child) -> Result<()> {
    let (end, wanted) = (Instant::now() + STATE_TIME_MAX, BTreeSet::from_iter(expected.iter().copied()));
    loop {
        let answer = ask(stage)?;
        let stuck = BTreeSet::from_iter(answer.stuck.iter().copied());
        ensure!(
            stuck.is_subset(&wanted),
            "{stuck:?} are accused, of which nobody should be but {wanted:?}: {}",
            answer.text
        );
        let missing: Vec<String> = case
            .says
            .iter()
            .map(|words| with_tids(words, &answer.tids))
            .filter(|words| !answer.text.contains(words.as_str()))
            .collect();
        let status = if wanted.is_empty() { 0 } else { 3 };
        if missing.is_empty() && stuck == wanted && answer.status == Some(status) {
            return Ok(());
        }
        let has_ended = run.try_wait()?.is_some();
        if has_ended || Instant::now() > end {
            let ended = if has_ended { ", and the program has ended" } else { "" };
            bail!("{stuck:?} are accused instead of {wanted:?}; not said: {missing:?}{ended}; said: {}", answer.text);
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}

/// Puts the tids of the tasks in the places of their numbers.
fn with_tids(words: &str, tids: &[String]) -> String {
    tids.iter().enumerate().fold(words.to_owned(), |words, (number, tid)| words.replace(&format!("{{{number}}}"), tid))
}

/// Looks all the time, and accepts no accusation, until the program has ended well.
fn stays_well(stage: &dyn Stage, run: &mut Child) -> Result<()> {
    let end = Instant::now() + RUN_TIME_MAX;
    let mut looks = 0;
    loop {
        if let Some(status) = run.try_wait()? {
            ensure!(status.success(), "the program: {status}");
            ensure!(looks > 0, "the program has ended before anybody could look at it");
            return Ok(());
        }
        ensure!(Instant::now() < end, "the program does not end");
        let answer = ask(stage)?;
        ensure!(answer.status == Some(0) && answer.stuck.is_empty(), "accused: {}", answer.text);
        looks += usize::from(!answer.tids.is_empty());
    }
}
