//! The commands that a page shows with their output.
//!
//! The blocks of the kind `console` of a page are one session of a shell. A line that begins with `$ ` is a command;
//! `> ` continues it. The lines after it are its output, standard error included. `...` in a line stands for any text,
//! and a line that is only `...` for any lines.
use super::pages::Page;
use crate::machine::{END_TIME_MAX, wait_until};
use crate::processes;
use anyhow::{Context, Result, bail, ensure};
use rustix::process::Signal;
use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

/// How long the commands of one page may take, in seconds.
const PAGE_SECONDS_MAX: &str = "60";

/// What the shell prints after the output of each command.
const MARK: &str = "@@ end of command @@";

/// A command and the output that the page shows.
struct Step {
    line: usize,
    command: String,
    shown: Vec<String>,
}

/// Runs the page's commands in `home/work` with this setting of `PATH`. Ends every process that they have left.
pub fn check(page: &Page, home: &Path, path: &OsStr) -> Result<()> {
    let steps = steps(page)?;
    let said = run(&steps, home, path);
    let running = || processes::with_variable("HOME", home.as_os_str());
    // A daemon that was halted takes a moment to end.
    let is_quiet = said.is_ok() && wait_until(END_TIME_MAX, || running().is_empty());
    let left = if is_quiet { Vec::new() } else { running() };
    left.iter().for_each(|pid| processes::signal(*pid, Signal::KILL));
    let said = said?;
    let mark = format!("{MARK}\n");
    let mut outputs = said.split(&mark);
    for Step { line, command, shown } in &steps {
        let output: Vec<&str> = outputs.next().unwrap_or_default().lines().map(str::trim_end).collect();
        let shown: Vec<&str> = shown.iter().map(String::as_str).collect();
        ensure!(
            lines_match(&shown, &output),
            "line {line}: {command}: it prints\n{}\nand the page shows\n{}",
            output.join("\n"),
            shown.join("\n")
        );
    }
    ensure!(left.is_empty(), "the commands of the page leave {} processes running", left.len());
    Ok(())
}

fn steps(page: &Page) -> Result<Vec<Step>> {
    let mut steps: Vec<Step> = Vec::new();
    for block in page.blocks.iter().filter(|block| block.kind == "console") {
        let first = steps.len();
        for (index, line) in block.text.lines().enumerate() {
            let number = block.line + index;
            if let Some(command) = line.strip_prefix("$ ") {
                steps.push(Step { line: number, command: command.to_owned(), shown: Vec::new() });
                continue;
            }
            let Some(step) = steps[first..].last_mut() else { bail!("line {number}: output without a command") };
            match line.strip_prefix("> ").filter(|_| step.shown.is_empty()) {
                Some(more) => step.command = format!("{}\n{more}", step.command),
                None => step.shown.push(line.trim_end().to_owned()),
            }
        }
    }
    Ok(steps)
}

/// Returns what the commands print, with a mark after each.
fn run(steps: &[Step], home: &Path, path: &OsStr) -> Result<String> {
    let mut script = String::from("exec 2>&1\n");
    for step in steps {
        script += &format!("{}\necho '{MARK}'\n", step.command);
    }
    let file = home.join("script.sh");
    fs::write(&file, script)?;
    let printed = home.join("printed");
    // A daemon that a command leaves running keeps its output open: so the output is a file, not a pipe.
    let status = Command::new("env")
        .arg(path)
        .args(["timeout", PAGE_SECONDS_MAX, "bash"])
        .arg(&file)
        .env_clear()
        .env("HOME", home)
        .env("PVM_TMP", home)
        .env("LANG", "C.UTF-8")
        .current_dir(home.join("work"))
        .stdin(Stdio::null())
        .stdout(fs::File::create(&printed)?)
        .status()
        .context("cannot start bash")?;
    let said = String::from_utf8_lossy(&fs::read(&printed)?).into_owned();
    ensure!(status.code() != Some(124), "the commands take longer than {PAGE_SECONDS_MAX} s; they printed\n{said}");
    Ok(said)
}

/// Returns whether output is what the page shows.
fn lines_match(shown: &[&str], output: &[&str]) -> bool {
    match shown.split_first() {
        None => output.is_empty(),
        Some((&"...", rest)) => (0..=output.len()).any(|skipped| lines_match(rest, &output[skipped..])),
        Some((first, rest)) => {
            output.split_first().is_some_and(|(line, others)| line_matches(first, line) && lines_match(rest, others))
        }
    }
}

/// Returns whether a line is what the page shows, where `...` stands for any text.
fn line_matches(shown: &str, line: &str) -> bool {
    match shown.split_once("...") {
        None => shown == line,
        Some((before, after)) => line.strip_prefix(before).is_some_and(|rest| {
            rest.char_indices().any(|(at, _)| line_matches(after, &rest[at..])) || after.is_empty()
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dots_stand_for_text_and_for_lines() {
        assert!(line_matches("task ... on ...", "task t40002 on vm"));
        assert!(!line_matches("task ... off", "task t40002 on vm"));
        assert!(lines_match(&["a", "...", "d"], &["a", "b", "c", "d"]));
        assert!(lines_match(&["a", "..."], &["a"]));
        assert!(!lines_match(&["a"], &["a", "b"]) && !lines_match(&["a", "...", "d"], &["a", "b"]));
    }
}
