//! House rule: sources and pages cite only what exists.
//!
//! A citation names a section of the contract ("contract 2.9"), a decision ("decision 26", "decisions/0026"),
//! mechanisms of the papers ("papers F2, H3"), a file (in a link or between backticks), or a test (in a command that
//! runs it).
use crate::common::{files_under, root};
use anyhow::{Context, Result, ensure};
use regex::Regex;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// The patterns of citations; the first group of each pattern matches what is cited.
struct Patterns {
    section: Regex,
    decision: Regex,
    page: Regex,
    tags: Regex,
    file: Regex,
    test: Regex,
    link: Regex,
}

impl Patterns {
    fn new() -> Result<Patterns> {
        Ok(Patterns {
            section: Regex::new(r"\b[Cc]ontract,? (\d+(?:\.\d+)?)")?,
            decision: Regex::new(r"\b[Dd]ecision (\d+)")?,
            page: Regex::new(r"\bdecisions/(\d{4}[a-z0-9-]*)")?,
            tags: Regex::new(r"\b[Pp]apers? ([A-Z]\d+(?:, [A-Z]\d+)*)")?,
            file: Regex::new(r"`((?:crates|xtask|trials|lab|docs|tests|bench|examples|dist|man)/[A-Za-z0-9_./-]+)`")?,
            test: Regex::new(r"cargo test (?:-\S+ (?:[a-z0-9-]+ )?)*(\w+_\w+)")?,
            link: Regex::new(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)")?,
        })
    }
}

/// Everything that can be cited.
struct Cited {
    /// The numbers of the contract's sections.
    sections: BTreeSet<String>,
    /// The names of the decisions' pages, without the extension.
    decisions: Vec<String>,
    /// The tags of the papers' mechanisms.
    tags: BTreeSet<String>,
    /// The names of all functions, tests among them.
    functions: Vec<String>,
}

impl Cited {
    fn read() -> Result<Cited> {
        let page = |name: &str| fs::read_to_string(root().join("docs").join(name)).context(name.to_owned());
        let all = |pattern: &str, text: &str| -> Result<BTreeSet<String>> {
            Ok(Regex::new(pattern)?.captures_iter(text).map(|found| found[1].to_owned()).collect())
        };
        let mut decisions = Vec::new();
        for entry in root().join("docs/decisions").read_dir()? {
            decisions.extend(entry?.path().file_stem().map(|name| name.to_string_lossy().into_owned()));
        }
        let function = Regex::new(r"\bfn (\w+)")?;
        let mut functions = Vec::new();
        for source in files_under(&["crates", "trials"], &["rs"])? {
            let text = fs::read_to_string(source)?;
            functions.extend(function.captures_iter(&text).map(|found| found[1].to_owned()));
        }
        Ok(Cited {
            functions,
            sections: all(r"(?m)^#+ (\d+(?:\.\d+)?)\b", &page("contract.md")?)?,
            decisions,
            tags: all(r"(?m)^- ([A-Z]\d+)\b", &page("papers.md")?)?,
        })
    }

    fn has_decision(&self, cited: &str) -> bool {
        let number: usize = cited.get(..4).unwrap_or(cited).trim_start_matches('0').parse().unwrap_or(0);
        let is_it = |name: &String| name.starts_with(&format!("{number:04}-"));
        // A decision is cited by its number alone, or by the whole name of its page.
        self.decisions.iter().any(|name| is_it(name) && (cited.len() <= 4 || name == cited))
    }
}

/// Checks the citations in these files.
pub fn are_there(files: &[impl AsRef<Path>]) -> Result<()> {
    let (cited, patterns) = (Cited::read()?, Patterns::new()?);
    let mut dead = Vec::new();
    for path in files.iter().map(AsRef::as_ref) {
        let name = path.strip_prefix(root()).unwrap_or(path);
        // Pictures and archives contain no citations, and the citations in `citations.rs` belong to its test.
        let Ok(text) = fs::read_to_string(path) else { continue };
        if name == Path::new(file!()) {
            continue;
        }
        for what in dead_in(&text, path, &cited, &patterns) {
            dead.push(format!("{}: {what}", name.display()));
        }
    }
    ensure!(dead.is_empty(), "cited and not there:\n{}", dead.join("\n"));
    Ok(())
}

fn dead_in(text: &str, path: &Path, cited: &Cited, patterns: &Patterns) -> Vec<String> {
    let mut dead = Vec::new();
    let mut check = |pattern: &Regex, is_there: &dyn Fn(&str) -> bool| {
        let missing = pattern.captures_iter(text).filter(|found| !is_there(&found[1]));
        dead.extend(missing.map(|found| found[0].to_owned()));
    };
    check(&patterns.section, &|section| cited.sections.contains(section));
    check(&patterns.decision, &|number| cited.has_decision(number));
    check(&patterns.page, &|name| cited.has_decision(name));
    check(&patterns.tags, &|tags| tags.split(", ").all(|tag| cited.tags.contains(tag)));
    // The files of decisions have been checked above, with the pattern for decision pages.
    check(&patterns.file, &|file| root().join(file).exists() || file.starts_with("docs/decisions/"));
    check(&patterns.test, &|part| cited.functions.iter().any(|name| name.contains(part)));
    if path.extension().is_some_and(|ending| ending == "md") {
        let folder = path.parent().unwrap_or(path);
        check(&patterns.link, &|link| folder.join(link).exists());
    }
    dead
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_cited_and_not_there_is_found() {
        let cited = Cited {
            sections: ["2".into(), "2.9".into()].into(),
            decisions: vec!["0007-streams".into()],
            tags: ["F2".into(), "H3".into()].into(),
            functions: vec!["a_rule_holds".into()],
        };
        let good = "contract 2.9, decision 7 (decisions/0007-streams), papers F2, H3, [x](Cargo.toml), `docs/limits.md` \
             cargo test -p pvm-core --lib a_rule # one test";
        let (path, patterns) = (root().join("a.md"), Patterns::new().unwrap());
        assert_eq!(dead_in(good, &path, &cited, &patterns), Vec::<String>::new());
        let bad = "contract 2.10, decision 8 (decisions/0007-stream), papers F2, H4, [x](Cargo.tom), `docs/limit.md` \
                   cargo test -p pvm-core --lib a_role # one test";
        assert_eq!(dead_in(bad, &path, &cited, &patterns).len(), 7);
    }
}
