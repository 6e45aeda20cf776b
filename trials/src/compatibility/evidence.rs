//! Finds the cases that show the behaviour of a function, a command or an option.
use crate::conform::shown::{self, Shown};
use anyhow::Result;
use regex::Regex;

/// The most cases that an entry names. The document does not contain the number of further cases; otherwise every new
/// case would change the document.
const NAMED_MAX: usize = 4;

/// All cases. The cases that use few functions come first, since they show the most about each function.
pub struct Evidence {
    pub cases: Vec<Shown>,
    /// The names of Debian's programs that use PVM. Each of them must be run by at least one case.
    pub programs: Vec<String>,
}

impl Evidence {
    /// Reads and compiles the cases.
    pub fn gather() -> Result<Evidence> {
        let mut cases = shown::all()?;
        cases.sort_by_key(|case| (case.uses.iter().filter(|name| name.contains("pvm")).count(), case.name.clone()));
        let mut programs = shown::programs()?;
        programs.sort_unstable();
        Ok(Evidence { cases, programs })
    }

    /// Returns whether there is a case with that name.
    pub fn has(&self, name: &str) -> bool {
        self.cases.iter().any(|case| case.name == name)
    }

    /// Returns the cases whose program uses a function; Fortran's names end in an underscore.
    pub fn using(&self, function: &str) -> Vec<&str> {
        self.names(|case| case.uses.contains(function))
    }

    /// Returns the scripts that run a program.
    pub fn running(&self, program: &str) -> Vec<&str> {
        self.names(|case| case.runs.iter().any(|name| name == program))
    }

    /// Returns the cases whose text contains one of these words.
    pub fn with_words(&self, words: &[&str]) -> Vec<&str> {
        match pattern(words) {
            Some(pattern) => self.names(|case| pattern.is_match(&case.text)),
            None => Vec::new(),
        }
    }

    /// Returns the console scripts in which a line begins with that command.
    pub fn with_command(&self, command: &str) -> Vec<&str> {
        let begins = |line: &str| line.split_whitespace().next() == Some(command);
        self.names(|case| case.name.starts_with("console/") && case.text.lines().any(begins))
    }

    /// Returns the cases that name a defect in their directives.
    pub fn of_defect(&self, defect: &str) -> Vec<&str> {
        self.names(|case| {
            case.differences.iter().any(|one| one.0 == defect)
                || case.ours_only.as_ref().is_some_and(|one| one.0 == defect)
        })
    }

    fn names(&self, wanted: impl Fn(&Shown) -> bool) -> Vec<&str> {
        self.cases.iter().filter(|case| wanted(case)).map(|case| &*case.name).collect()
    }
}

/// Returns a pattern that finds one of these words, but not as a part of a longer word.
fn pattern(words: &[&str]) -> Option<Regex> {
    let words: Vec<String> = words.iter().map(|word| regex::escape(word)).collect();
    let pattern = format!("(?:^|[^A-Za-z0-9_])(?:{})(?:$|[^A-Za-z0-9_])", words.join("|"));
    (!words.is_empty()).then(|| Regex::new(&pattern).expect("words and what stands around them"))
}

/// Returns a list of cases as a table shows it.
pub fn listed(cases: &[&str]) -> String {
    let mut seen: Vec<&str> = Vec::new();
    for case in cases {
        // A Fortran case is compiled twice, and appears as two cases.
        let case = case.strip_suffix(" own").unwrap_or(case);
        if !seen.contains(&case) {
            seen.push(case);
        }
    }
    let mut text: Vec<&str> = seen.iter().take(NAMED_MAX).copied().collect();
    if seen.len() > NAMED_MAX {
        text.push("...");
    }
    text.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn case(name: &str, text: &str, defect: &str) -> Shown {
        let differences = vec![(defect.to_owned(), "a".to_owned(), "b".to_owned())];
        let uses = BTreeSet::from(["pvm_send".to_owned()]);
        Shown {
            name: name.into(),
            text: text.into(),
            uses,
            runs: vec!["hello.pvm".into()],
            differences,
            ours_only: None,
        }
    }

    #[test]
    fn cases_are_found_by_whole_words_commands_and_defects() {
        let cases = vec![case("a", "PvmRoute, PVMTASK=1", "D1"), case("console/b", "ps -a\necho conf", "D12")];
        let evidence = Evidence { cases, programs: Vec::new() };
        assert_eq!(evidence.with_words(&["PvmRoute"]), ["a"]);
        assert!(evidence.with_words(&["pvmtask"]).is_empty());
        assert!(evidence.with_words(&["PvmRout"]).is_empty());
        assert!(evidence.with_words(&[]).is_empty());
        assert_eq!(evidence.with_command("ps"), ["console/b"]);
        assert!(evidence.with_command("conf").is_empty());
        assert_eq!(evidence.of_defect("D1"), ["a"]);
        assert_eq!(evidence.using("pvm_send"), ["a", "console/b"]);
        assert_eq!(evidence.running("hello.pvm"), ["a", "console/b"]);
        assert!(evidence.running("hello").is_empty());
    }

    #[test]
    fn long_lists_are_cut_and_nothing_is_named_twice() {
        assert_eq!(listed(&["a", "b", "a", "b own"]), "a, b");
        assert_eq!(listed(&["a", "b", "c", "d", "e", "f"]), "a, b, c, d, ...");
    }
}
