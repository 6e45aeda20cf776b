//! `cargo xtask monitor`: opens the page of `pvm monitor` in a browser (`tests/monitor/browser.py`), while programs run on hosts that
//! are namespaces, and compares what it shows with what they did. With a folder, also writes pictures of all views.
use crate::build;
use crate::common::{Checks, in_path, root};
use crate::counts::Counts;
use crate::hosts::machine::Machine;
use crate::hosts::network::{Network, Wiring};
use crate::hosts::sandbox;
use crate::side::Side;
use crate::why::programs;
use anyhow::{Context, Result, bail, ensure};
use lexopt::prelude::*;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Debian's own Python, which has the library that drives the browser.
const PYTHON: &str = "/usr/bin/python3";
/// The programs that run while the page is open, and their sources.
const PROGRAMS: [(&str, &str); 3] = [
    ("known", "tests/monitor/known.c"),
    ("circle", "tests/why/cases/circle_of_three.c"),
    ("farm", "examples/farm/farm.c"),
];
/// The number of hosts. The test adds the last one.
const HOSTS: usize = 3;

/// Runs the command: `monitor [--screenshots FOLDER] [--as-it-is]`. Inside the namespaces this function runs a second time.
pub fn run(arguments: &[String]) -> Result<()> {
    match sandbox::folder() {
        Some(folder) => on_hosts(&folder, screenshots(arguments)?.as_deref()),
        None => counted(arguments)?.report(),
    }
}

/// Returns the folder for pictures.
fn screenshots(arguments: &[String]) -> Result<Option<PathBuf>> {
    let mut folder = None;
    let mut parser = lexopt::Parser::from_args(arguments);
    while let Some(argument) = parser.next()? {
        match argument {
            Long("screenshots") => folder = Some(PathBuf::from(parser.value()?)),
            Long("as-it-is") => {}
            other => bail!("{}\nmonitor [--screenshots FOLDER] [--as-it-is]", other.unexpected()),
        }
    }
    Ok(folder)
}

/// Runs the checks.
pub fn counted(arguments: &[String]) -> Result<Counts> {
    let folder = screenshots(arguments)?;
    if let Some(obstacle) = obstacle().or_else(sandbox::obstacle) {
        return Ok(Counts::skip(obstacle));
    }
    build::build_unless_told(arguments)?;
    let mut words = vec!["monitor".to_owned()];
    if let Some(folder) = folder {
        fs::create_dir_all(&folder)?;
        words.extend(["--screenshots".to_owned(), fs::canonicalize(folder)?.display().to_string()]);
    }
    Counts::parse(&sandbox::run(&words.iter().map(String::as_str).collect::<Vec<_>>())?)
}

/// Returns what is lacking here.
fn obstacle() -> Option<String> {
    let lacking = ["chromium", "chromedriver"].into_iter().find(|program| !in_path(program));
    let has_library = || {
        Command::new(PYTHON)
            .args(["-c", "import selenium"])
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|status| status.success())
    };
    match lacking {
        Some(program) => Some(format!("`{program}` is missing (see `cargo xtask setup test`)")),
        None => (!has_library()).then(|| "python3-selenium is missing (see `cargo xtask setup test`)".to_owned()),
    }
}

fn on_hosts(folder: &Path, screenshots: Option<&Path>) -> Result<()> {
    let built = root().join("target/monitor");
    fs::create_dir_all(&built)?;
    for (name, source) in PROGRAMS {
        programs::compile_c(&root().join(source), &built.join(name))?;
    }
    let network = Network::new(folder, HOSTS, Wiring::Bridge)?;
    let mut machine = Machine::new(Side::Ours, &network, &[])?;
    machine.start(HOSTS - 1, &[])?;
    let mut browser = machine.command(machine.first(), Path::new(PYTHON));
    browser.arg(root().join("tests/monitor/browser.py"));
    browser.env("PVM", Side::Ours.programs().join("pvm")).env("PROGRAMS", &built);
    browser.env("FURTHER_HOST", &network.hosts()[HOSTS - 1].name);
    if let Some(folder) = screenshots {
        browser.env("SCREENSHOTS", folder);
    }
    let mut browser = browser.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().context(PYTHON)?;
    let mut checks = Checks::default();
    let lines = BufReader::new(browser.stdout.take().context("no output")?).lines();
    for line in lines.map_while(Result::ok) {
        match line.split_once(' ') {
            Some(("ok", name)) => checks.check(name, Ok(())),
            Some(("FAILED", why)) => {
                let (name, why) = why.split_once(": ").unwrap_or((why, ""));
                checks.check(name, Err(anyhow::anyhow!("{why}")));
            }
            _ => println!("{line}"),
        }
    }
    browser.wait()?;
    ensure!(checks.counts() != Counts::default(), "the test of the page has not begun");
    println!("monitor: {}", checks.counts());
    Ok(())
}
