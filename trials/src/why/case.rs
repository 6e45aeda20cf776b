//! The cases, and what is expected of each.
use anyhow::{Context, Result, bail, ensure};
use std::path::{Path, PathBuf};

/// What `pvm why` must find.
#[derive(Debug, PartialEq, Eq)]
pub enum Expected {
    /// The program is well: it ends, and nobody is accused before.
    Health,
    /// `pvm run --deadlock abort` ends the program.
    Abort,
    /// Exactly these tasks, by number, are in or before a deadlock.
    Deadlock(Vec<usize>),
}

/// A program with what is expected of it.
#[derive(Debug)]
pub struct Case {
    pub name: String,
    pub source: PathBuf,
    /// How many tasks are started, on how many hosts.
    pub tasks: usize,
    pub hosts: usize,
    pub expected: Expected,
    /// What the report says, among other things; `{0}` stands for the tid of the first task.
    pub says: Vec<String>,
    /// Whether the report names lines of the program, for which it reads the stacks of the tasks.
    pub needs_stacks: bool,
}

/// Finds all cases.
pub fn find(folder: &Path) -> Result<Vec<Case>> {
    let mut cases = Vec::new();
    for part in ["cases", "aborted", "healthy"] {
        for entry in std::fs::read_dir(folder.join(part)).with_context(|| format!("tests/why/{part}"))? {
            let source = entry?.path();
            let text = std::fs::read_to_string(&source)?;
            cases.push(parse(&source, &text, part).with_context(|| source.display().to_string())?);
        }
    }
    cases.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(cases)
}

fn parse(source: &Path, text: &str, part: &str) -> Result<Case> {
    let (mut tasks, mut hosts, mut deadlock, mut says, mut needs_stacks) = (None, 1, None, Vec::new(), false);
    for line in text.lines() {
        let directive = ["//@ ", "C@ ", "#@ "].iter().find_map(|start| line.strip_prefix(start));
        match directive.and_then(|line| line.split_once(": ")) {
            Some(("tasks", count)) => tasks = Some(count.parse()?),
            Some(("hosts", count)) => hosts = count.parse()?,
            Some(("deadlock", "none")) => deadlock = Some(Vec::new()),
            Some(("deadlock", numbers)) => {
                let numbers = numbers.split(' ').map(str::parse).collect::<Result<Vec<usize>, _>>()?;
                deadlock = Some(numbers);
            }
            Some(("needs", "stacks")) => needs_stacks = true,
            Some(("says", words)) => says.push(words.to_owned()),
            Some((other, _)) => bail!("{other}: no such directive"),
            None => {}
        }
    }
    let expected = match (part, deadlock) {
        ("cases", Some(deadlock)) => Expected::Deadlock(deadlock),
        ("cases", None) => bail!("a fault needs the directive `deadlock`"),
        (_, Some(_)) => bail!("this program has no directive `deadlock`"),
        ("aborted", None) => Expected::Abort,
        _ => Expected::Health,
    };
    ensure!(expected == Expected::Health || !says.is_empty(), "a fault needs a directive `says`");
    let name = source.file_stem().context("a name")?.to_string_lossy().into_owned();
    let tasks = tasks.context("the directive `tasks`")?;
    Ok(Case { name, source: source.to_owned(), tasks, hosts, expected, says, needs_stacks })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_directives_of_all_cases_are_right() {
        assert!(find(&crate::common::root().join("tests/why")).unwrap().len() > 20);
        let path = Path::new("a/b.c");
        let case = parse(path, "//@ tasks: 2\n//@ deadlock: 0 1\n//@ says: {0}: x\nint main", "cases").unwrap();
        assert_eq!((case.name.as_str(), case.tasks, case.expected), ("b", 2, Expected::Deadlock(vec![0, 1])));
        assert_eq!(case.says, ["{0}: x"]);
        for wrong in ["", "//@ tasks: 2", "//@ tasks: 2\n//@ deadlock: 0", "//@ tasks: 2\n//@ other: 0"] {
            assert!(parse(path, wrong, "cases").is_err(), "{wrong}");
        }
        assert!(parse(path, "//@ tasks: 1\n//@ deadlock: none", "healthy").is_err());
    }
}
