//! What a case is, and how its directives read.
//!
//! ```text
//! @ fresh                      daemons of its own
//! @ nodaemon                   no daemon is started; the script does it
//! @ timeout 5                  seconds
//! @ env NAME=VALUE             for the program; {root} is the source tree
//! @ daemon-env NAME=VALUE      for the daemons (then fresh)
//! @ hostfile LINE              a line of the daemons' hostfile (then fresh)
//! @ log                        the daemon's log belongs to the output (then fresh)
//! @ unordered                  lines are sorted before the comparison
//! @ needs PATH                 skipped where that file is missing
//! @ differs D1: A => B         where Debian's PVM prints A, hpvm prints B; `\n` is a new line,
//!                              `(nothing)` stands for no line
//! @ may-differ D1: A => B      the same where Debian's PVM prints A only on some machines
//! @ ours-only D2: crashes      NAME.expected says what hpvm prints; Debian's PVM `crashes`,
//!                              `hangs`, or is not run at all (`skip`)
//! ```

use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long a case may take where it does not say so.
const TIMEOUT_DEFAULT: Duration = Duration::from_secs(20);

/// What runs a case.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A C program, linked to libpvm3.
    Program,
    /// Lines for the console's standard input.
    Console,
    /// A shell script.
    Script,
}

/// What Debian's PVM does with a case that only hpvm does right.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Theirs {
    Crashes,
    Hangs,
    Skip,
}

/// A difference that the contract wants.
#[derive(Debug, PartialEq, Eq)]
pub struct Difference {
    /// The defect of the contract, as in `D1`.
    pub defect: String,
    pub theirs: String,
    pub ours: String,
    /// Whether Debian's PVM must print it for the case to pass.
    pub always: bool,
}

/// One case.
#[derive(Debug)]
pub struct Case {
    pub name: String,
    pub kind: Kind,
    pub source: PathBuf,
    pub fresh: bool,
    pub daemon: bool,
    pub timeout: Duration,
    pub env: Vec<(String, String)>,
    pub daemon_env: Vec<(String, String)>,
    pub hostfile: Vec<String>,
    pub log: bool,
    pub unordered: bool,
    pub needs: Vec<PathBuf>,
    pub differences: Vec<Difference>,
    pub ours_only: Option<(String, Theirs)>,
}

/// All cases below `folder`, by name.
pub fn find(folder: &Path) -> Result<Vec<Case>> {
    let mut cases = Vec::new();
    for (subfolder, extension, kind) in
        [("cases", "c", Kind::Program), ("console", "script", Kind::Console), ("programs", "sh", Kind::Script)]
    {
        let path = folder.join(subfolder);
        let mut sources: Vec<PathBuf> = std::fs::read_dir(&path)
            .with_context(|| format!("{}", path.display()))?
            .filter_map(|entry| entry.ok().map(|entry| entry.path()))
            .filter(|path| path.extension().is_some_and(|found| found == extension))
            .collect();
        sources.sort();
        for source in sources {
            let text = std::fs::read_to_string(&source)?;
            let stem = source.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            let name = if kind == Kind::Program { stem } else { format!("{subfolder}/{stem}") };
            cases.push(parse(name, kind, source.clone(), &text).with_context(|| format!("{}", source.display()))?);
        }
    }
    Ok(cases)
}

fn parse(name: String, kind: Kind, source: PathBuf, text: &str) -> Result<Case> {
    let mut case = Case {
        name,
        kind,
        source,
        fresh: false,
        daemon: true,
        timeout: TIMEOUT_DEFAULT,
        env: Vec::new(),
        daemon_env: Vec::new(),
        hostfile: Vec::new(),
        log: false,
        unordered: false,
        needs: Vec::new(),
        differences: Vec::new(),
        ours_only: None,
    };
    let marks = ["//@ ", "#@ "];
    for line in text.lines() {
        if let Some(directive) = marks.iter().find_map(|mark| line.strip_prefix(mark)) {
            apply(&mut case, directive.trim()).with_context(|| format!("line `{line}`"))?;
        }
    }
    case.fresh |= case.log || !case.daemon || !case.hostfile.is_empty() || !case.daemon_env.is_empty();
    Ok(case)
}

fn apply(case: &mut Case, directive: &str) -> Result<()> {
    let (word, rest) = directive.split_once(' ').unwrap_or((directive, ""));
    match word {
        "fresh" => case.fresh = true,
        "nodaemon" => case.daemon = false,
        "timeout" => case.timeout = Duration::from_secs(rest.parse()?),
        "env" => case.env.push(pair(rest)?),
        "daemon-env" => case.daemon_env.push(pair(rest)?),
        "hostfile" => case.hostfile.push(rest.to_string()),
        "log" => case.log = true,
        "unordered" => case.unordered = true,
        "needs" => case.needs.push(rest.into()),
        "differs" => case.differences.push(difference(rest, true)?),
        "may-differ" => case.differences.push(difference(rest, false)?),
        "ours-only" => {
            let (defect, theirs) = rest.split_once(": ").context("wants `Dn: crashes|hangs|skip`")?;
            let theirs = match theirs {
                "crashes" => Theirs::Crashes,
                "hangs" => Theirs::Hangs,
                "skip" => Theirs::Skip,
                other => bail!("`{other}` is none of crashes, hangs, skip"),
            };
            case.ours_only = Some((defect.to_string(), theirs));
        }
        other => bail!("no directive `{other}`"),
    }
    Ok(())
}

fn pair(text: &str) -> Result<(String, String)> {
    let (name, value) = text.split_once('=').context("wants NAME=VALUE")?;
    let root = crate::common::root().display().to_string();
    Ok((name.to_string(), value.replace("{root}", &root)))
}

fn difference(text: &str, always: bool) -> Result<Difference> {
    let (defect, lines) = text.split_once(": ").context("wants `Dn: A => B`")?;
    let (theirs, ours) = lines.split_once(" => ").context("wants `Dn: A => B`")?;
    let unescape = |text: &str| text.replace("\\n", "\n");
    Ok(Difference { defect: defect.to_string(), theirs: unescape(theirs), ours: unescape(ours), always })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directives_are_read_from_the_lines_that_carry_them() {
        let text = "//@ fresh\n//@ timeout 3\n//@ differs D1: x: 1 => x: 2\nint main(void) {}\n";
        let case = parse("a".into(), Kind::Program, "a.c".into(), text).unwrap();
        assert!(case.fresh && case.daemon);
        assert_eq!(case.timeout, Duration::from_secs(3));
        assert_eq!(case.differences[0].ours, "x: 2");
        assert!(parse("a".into(), Kind::Program, "a.c".into(), "//@ quick\n").is_err());
    }
}
