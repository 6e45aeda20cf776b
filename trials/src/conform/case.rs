//! Conformance cases and their directives.
//!
//! ```text
//! @ fresh                      the case gets new daemons, which no other case uses
//! @ nodaemon                   no daemon is started; the script starts its own
//! @ timeout 5                  the time limit, in seconds
//! @ env NAME=VALUE             a variable of the program; {root} stands for the source tree
//! @ daemon-env NAME=VALUE      a variable of the daemons (implies fresh)
//! @ hostfile LINE              a line of the daemons' hostfile (implies fresh)
//! @ log                        the daemon's log is added to the output (implies fresh)
//! @ unordered                  lines are sorted before the comparison
//! @ hosts 2                    the number of hosts at the start of a run on several hosts
//! @ one-host REASON            the case does not run on machines of several hosts
//! @ no-fabric REASON           the case does not run where messages between hosts take a fabric
//! @ no-space REASON            the case is skipped if the path of the source tree has a space
//! @ needs PATH                 the case is skipped if that file is missing; $DEBIAN_PVM stands for the /usr of
//!                              Debian's PVM
//! @ runs NAME ...              Debian's programs that the case runs, although no script names them
//! @ differs D1: A => B         where Debian's PVM prints A, hpvm prints B; `\n` is a new line,
//!                              `(nothing)` stands for no line
//! @ may-differ D1: A => B      as `differs`, but Debian's PVM prints A only on some machines
//! @ own-differs D13: A => B    as `differs`, but only where the Fortran case is compiled with our header
//!                              and library: that program has none of the errors of PVM's libfpvm3.a
//! @ ours-only D2: crashes      NAME.expected contains what hpvm prints; Debian's PVM `crashes`,
//!                              `hangs`, or is not run at all (`skip`)
//! ```

use crate::debian_pvm;
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The time limit of a case without the directive `timeout`.
const TIMEOUT_DEFAULT: Duration = Duration::from_secs(20);

/// The kind of a case.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A C program, linked to libpvm3.
    Program,
    /// A Fortran program, linked to Debian's libfpvm3.a and libpvm3. A second case ([`Case::own`]) has the same source;
    /// there, the program that runs on hpvm is compiled with our header and libraries.
    Fortran,
    /// Lines for the console's standard input.
    Console,
    /// A shell script.
    Script,
}

/// What Debian's PVM does with a case that only hpvm passes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Theirs {
    Crashes,
    Hangs,
    Skip,
}

/// A difference that the contract requires.
#[derive(Debug, PartialEq, Eq)]
pub struct Difference {
    /// What explains the difference: the defect, such as `D1`, the section of the contract, such as `2.12`, or the
    /// mechanism of the papers, such as `F6`.
    pub defect: String,
    pub theirs: String,
    pub ours: String,
    /// Whether the case fails if Debian's PVM does not print `theirs`.
    pub always: bool,
}

/// A case.
#[derive(Debug)]
pub struct Case {
    pub name: String,
    pub kind: Kind,
    pub source: PathBuf,
    /// Whether the program for hpvm is compiled separately, with our header and libraries.
    pub own: bool,
    pub fresh: bool,
    pub daemon: bool,
    pub timeout: Duration,
    pub env: Vec<(String, String)>,
    pub daemon_env: Vec<(String, String)>,
    pub hostfile: Vec<String>,
    pub log: bool,
    pub unordered: bool,
    pub hosts: Option<usize>,
    /// Why the case runs on one host only.
    pub one_host: Option<String>,
    /// Why the case does not run where messages between hosts take a fabric.
    pub no_fabric: Option<String>,
    /// Why the case cannot run if the path of the source tree has a space.
    pub no_space: Option<String>,
    pub needs: Vec<PathBuf>,
    pub runs: Vec<String>,
    pub differences: Vec<Difference>,
    pub ours_only: Option<(String, Theirs)>,
}

/// Returns all cases below `folder`, sorted by name.
pub fn find(folder: &Path) -> Result<Vec<Case>> {
    let mut cases = Vec::new();
    for (subfolder, extension, kind) in [
        ("cases", "c", Kind::Program),
        ("cases", "f", Kind::Fortran),
        ("console", "script", Kind::Console),
        ("programs", "sh", Kind::Script),
    ] {
        let path = folder.join(subfolder);
        let mut sources: Vec<PathBuf> = std::fs::read_dir(&path)
            .with_context(|| format!("{}", path.display()))?
            .filter_map(|entry| entry.ok().map(|entry| entry.path()))
            .filter(|path| path.extension().is_some_and(|found| found == extension))
            .collect();
        sources.sort();
        for source in sources {
            let found = of_source(&source, kind, subfolder).with_context(|| format!("{}", source.display()))?;
            cases.extend(found);
        }
    }
    Ok(cases)
}

/// Returns the case of a shell script at any path.
pub fn script(source: &Path) -> Result<Vec<Case>> {
    of_source(&source.canonicalize()?, Kind::Script, "script")
}

/// Returns the case of a file, or two if a Fortran program is compiled twice.
fn of_source(source: &Path, kind: Kind, subfolder: &str) -> Result<Vec<Case>> {
    let text = std::fs::read_to_string(source)?;
    let stem = source.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let read = |name: String, own| parse(name, kind, source.to_path_buf(), &text, own);
    let with_theirs = match kind {
        Kind::Program => read(stem, false)?,
        Kind::Console | Kind::Script => read(format!("{subfolder}/{stem}"), false)?,
        Kind::Fortran => {
            let with_ours = read(format!("{stem}.f own"), true)?;
            // The case may use names that Debian's library lacks, so it cannot be linked to that library.
            if matches!(with_ours.ours_only, Some((_, Theirs::Skip))) {
                return Ok(vec![with_ours]);
            }
            return Ok(vec![read(format!("{stem}.f"), false)?, with_ours]);
        }
    };
    Ok(vec![with_theirs])
}

fn parse(name: String, kind: Kind, source: PathBuf, text: &str, own: bool) -> Result<Case> {
    let mut case = Case {
        name,
        kind,
        source,
        own,
        fresh: false,
        daemon: true,
        timeout: TIMEOUT_DEFAULT,
        env: Vec::new(),
        daemon_env: Vec::new(),
        hostfile: Vec::new(),
        log: false,
        unordered: false,
        hosts: None,
        one_host: None,
        no_fabric: None,
        no_space: None,
        needs: Vec::new(),
        runs: Vec::new(),
        differences: Vec::new(),
        ours_only: None,
    };
    let marks = ["//@ ", "#@ ", "!@ "];
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
        "hostfile" => case.hostfile.push(debian_pvm::expanded(rest)),
        "log" => case.log = true,
        "unordered" => case.unordered = true,
        "hosts" => case.hosts = Some(rest.parse()?),
        "one-host" | "no-fabric" | "no-space" if rest.is_empty() => bail!("needs a reason"),
        "one-host" => case.one_host = Some(rest.to_string()),
        "no-fabric" => case.no_fabric = Some(rest.to_string()),
        "no-space" => case.no_space = Some(rest.to_string()),
        "needs" => case.needs.push(debian_pvm::expanded(rest).into()),
        "runs" => case.runs.extend(rest.split(' ').map(str::to_string)),
        "differs" => case.differences.push(difference(rest, true)?),
        "own-differs" if case.kind != Kind::Fortran => bail!("only a Fortran case has a program of its own"),
        "own-differs" if case.own => case.differences.push(difference(rest, true)?),
        "own-differs" => {}
        "may-differ" => case.differences.push(difference(rest, false)?),
        "ours-only" => {
            let (defect, theirs) = rest.split_once(": ").context("needs `Dn: crashes|hangs|skip`")?;
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
    let (name, value) = text.split_once('=').context("needs NAME=VALUE")?;
    let root = crate::common::root().display().to_string();
    Ok((name.to_string(), value.replace("{root}", &root)))
}

fn difference(text: &str, always: bool) -> Result<Difference> {
    let (defect, lines) = text.split_once(": ").context("needs `Dn: A => B`")?;
    let (theirs, ours) = lines.split_once(" => ").context("needs `Dn: A => B`")?;
    let unescape = |text: &str| text.replace("\\n", "\n");
    Ok(Difference { defect: defect.to_string(), theirs: unescape(theirs), ours: unescape(ours), always })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directives_are_read_from_the_lines_that_carry_them() {
        let text = "//@ fresh\n//@ timeout 3\n//@ differs D1: x: 1 => x: 2\nint main(void) {}\n";
        let case = parse("a".into(), Kind::Program, "a.c".into(), text, false).unwrap();
        assert!(case.fresh && case.daemon);
        assert_eq!(case.timeout, Duration::from_secs(3));
        assert_eq!(case.differences[0].ours, "x: 2");
        assert!(parse("a".into(), Kind::Program, "a.c".into(), "//@ quick\n", false).is_err());
    }
    #[test]
    fn differences_of_our_fortran_library_are_for_the_program_that_has_it() {
        let text = "!@ differs D1: a => b\n!@ own-differs D13: c => d\n      end\n";
        let count = |own| parse("a".into(), Kind::Fortran, "a.f".into(), text, own).unwrap().differences.len();
        assert_eq!((count(false), count(true)), (1, 2));
        assert!(parse("a".into(), Kind::Program, "a.c".into(), text, false).is_err());
    }
}
