//! Runs a case, and looks at it until `pvm why` says what is expected.
use super::case::{Case, Expected};
use super::programs;
use crate::conform::machine::POLL_INTERVAL;
use anyhow::{Context, Result, bail, ensure};
use std::collections::BTreeSet;
use std::io::Read;
use std::process::{Child, Command, ExitStatus, Stdio};
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
    // Who looks by the way accuses nobody who is well either.
    let on_deadlock = if case.expected == Expected::Abort { "abort" } else { "report" };
    run.args(["run", "-n", &case.tasks.to_string(), "--deadlock", on_deadlock]).arg(programs::program(case));
    run.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut run = run.spawn().context("cannot start pvm run")?;
    let result = match &case.expected {
        Expected::Health => stays_well(stage, &mut run),
        Expected::Abort => has_ended(&mut run, STATE_TIME_MAX),
        Expected::Deadlock(expected) => shows(case, expected, stage, &mut run).map(|()| None),
    };
    let _ = run.kill();
    let _ = run.wait();
    let mut said = Vec::new();
    if let Some(errors) = run.stderr.take() {
        // Tasks that have inherited the other end of the pipe may still live.
        let _ = rustix::io::ioctl_fionbio(&errors, true);
        let _ = errors.take(SAID_BYTES_MAX).read_to_end(&mut said);
    }
    let said = in_one_line(&String::from_utf8_lossy(&said));
    result.and_then(|status| judge_run(case, status, &said)).with_context(|| format!("pvm run: {said}"))
}

/// Judges the exit status of a run that has ended, and what it has said.
fn judge_run(case: &Case, status: Option<ExitStatus>, said: &str) -> Result<()> {
    let code = status.map(|status| status.code());
    match case.expected {
        Expected::Deadlock(_) => {}
        Expected::Health => {
            ensure!(code == Some(Some(0)), "the program: {status:?}");
            ensure!(!said.contains("never go on"), "accused by the run");
        }
        Expected::Abort => {
            ensure!(code == Some(Some(super::DEADLOCK)), "the run: {status:?}");
            let missing: Vec<&String> = case.says.iter().filter(|words| !said.contains(words.as_str())).collect();
            ensure!(missing.is_empty(), "not said: {missing:?}");
        }
    }
    Ok(())
}

/// Waits for the end of the run.
fn has_ended(run: &mut Child, limit: Duration) -> Result<Option<ExitStatus>> {
    let end = Instant::now() + limit;
    loop {
        let status = run.try_wait()?;
        if status.is_some() {
            return Ok(status);
        }
        ensure!(Instant::now() < end, "the program does not end");
        std::thread::sleep(POLL_INTERVAL);
    }
}

fn in_one_line(text: &str) -> String {
    text.split_ascii_whitespace().collect::<Vec<_>>().join(" ")
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
    Ok(Answer { status, text: in_one_line(&text), tids, stuck })
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
        let status = if wanted.is_empty() { 0 } else { super::DEADLOCK };
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

/// Looks all the time, and accepts no accusation, until the program has ended.
fn stays_well(stage: &dyn Stage, run: &mut Child) -> Result<Option<ExitStatus>> {
    let end = Instant::now() + RUN_TIME_MAX;
    let mut looks = 0;
    loop {
        let status = run.try_wait()?;
        if status.is_some() {
            ensure!(looks > 0, "the program has ended before anybody could look at it");
            return Ok(status);
        }
        ensure!(Instant::now() < end, "the program does not end");
        let answer = ask(stage)?;
        ensure!(answer.status == Some(0) && answer.stuck.is_empty(), "accused: {}", answer.text);
        looks += usize::from(!answer.tids.is_empty());
    }
}
