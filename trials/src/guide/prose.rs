//! Spelling and style of the guide's text, without its programs: by aspell, and by proselint, which finds repeated words
//! and a few hundred mistakes of grammar and usage.
use super::pages::Page;
use crate::common::{in_path, output, root};
use crate::{build, python, scratch};
use anyhow::{Context, Result, ensure};
use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Words that are no English and right.
const WORDS: &str = "docs/guide/words.txt";
/// The package of proselint, and what it does not check.
const REQUIREMENTS: &str = "docs/guide/requirements.txt";
const SETTINGS: &str = "docs/guide/proselint.json";

/// Returns what is missing for [`check_spelling`].
pub fn missing_for_spelling() -> Option<&'static str> {
    (!in_path("aspell")).then_some("aspell is missing: cargo xtask setup test")
}

/// Returns aspell, which prints the words that it does not know.
fn aspell() -> Command {
    let mut aspell = Command::new("aspell");
    aspell.args(["list", "--lang=en_GB", "--mode=none", "--ignore=2", "--encoding=utf-8"]);
    aspell
}

/// Checks that aspell, or the list of words, knows each word.
pub fn check_spelling(page: &Page) -> Result<()> {
    let text = fs::read_to_string(root().join(WORDS)).with_context(|| WORDS.to_owned())?;
    let known: BTreeSet<&str> = text.lines().collect();
    let mut aspell = aspell().stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().context("cannot start aspell")?;
    aspell.stdin.take().context("aspell has an input")?.write_all(without_targets(&page.prose).as_bytes())?;
    let done = aspell.wait_with_output()?;
    ensure!(done.status.success(), "aspell: {}", done.status);
    let found = String::from_utf8_lossy(&done.stdout);
    let unknown: BTreeSet<&str> = found.lines().filter(|word| !known.contains(word)).collect();
    ensure!(unknown.is_empty(), "wrong, or missing in {WORDS}: {unknown:?}");
    Ok(())
}

/// Returns prose without the targets of its links.
fn without_targets(prose: &str) -> String {
    let mut parts = prose.split("](");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| text + "] " + part.split_once(')').map_or("", |(_, after)| after))
}

/// Makes the environment with proselint, and returns the program.
pub fn proselint() -> Result<PathBuf> {
    let environment = build::target_directory()?.join("guide-tools");
    python::environment(&environment, &root().join(REQUIREMENTS))?;
    Ok(environment.join("bin/proselint"))
}

/// Checks the style of a page.
pub fn check_style(page: &Page, proselint: &Path) -> Result<()> {
    let place = scratch::directory("prose")?;
    let file = format!("{}.md", page.name);
    fs::write(place.path().join(&file), without_targets(&page.prose))?;
    let mut command = Command::new(proselint);
    command.arg("check").arg("--config").arg(root().join(SETTINGS)).arg(&file).current_dir(place.path());
    let done = command.output().context("cannot start proselint")?;
    ensure!(done.status.success(), "{}", String::from_utf8_lossy(&done.stdout).trim());
    Ok(())
}

/// Checks that the list of words is sorted, and that each of them is needed.
pub fn check_words() -> Result<()> {
    let text = fs::read_to_string(root().join(WORDS)).with_context(|| WORDS.to_owned())?;
    let words: Vec<&str> = text.lines().collect();
    ensure!(words.is_sorted(), "{WORDS} is not sorted");
    let place = scratch::directory("words")?;
    let list = place.path().join("words");
    fs::write(&list, &text)?;
    let unknown = output(aspell().stdin(fs::File::open(&list)?))?;
    let needless: Vec<&str> = words.into_iter().filter(|word| !unknown.lines().any(|one| one == *word)).collect();
    ensure!(needless.is_empty(), "aspell knows {needless:?} of {WORDS}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guide::pages;

    #[test]
    fn the_targets_of_links_are_no_words() {
        assert_eq!(without_targets("[one](a.md#b) and [two](c.md).\n"), "[one]  and [two] .\n");
        assert_eq!(without_targets("none\n"), "none\n");
    }

    #[test]
    fn a_wrong_word_is_found_and_code_is_not_read() {
        if let Some(missing) = missing_for_spelling() {
            println!("skipped: {missing}");
            return;
        }
        let page = |text| pages::parse("a".into(), "/nowhere".into(), text).unwrap();
        let found = check_spelling(&page("A tsak of hpvm.\n")).unwrap_err().to_string();
        assert!(found.ends_with("[\"tsak\"]") || found.ends_with("{\"tsak\"}"), "{found}");
        check_spelling(&page("A `tsak` of hpvm.\n```c\ntsak\n```\n[task](tsak.md)\n")).unwrap();
    }
}
