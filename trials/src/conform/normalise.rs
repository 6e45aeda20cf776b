//! Removes or renames the parts of an output that may differ between two correct runs.

use super::machine::Machine;
use crate::common;
use regex::{Captures, Regex};
use std::collections::HashMap;
use std::sync::LazyLock;

/// A pattern, and its replacement.
type Rule = (LazyLock<Regex>, &'static str);

macro_rules! rule {
    ($pattern:literal, $text:literal) => {
        (LazyLock::new(|| Regex::new($pattern).expect("a pattern of this table")), $text)
    };
}

static RULES: [Rule; 4] = [
    rule!(r"\b\d\d/\d\d \d\d:\d\d:\d\d\b", "DATE"),
    rule!(r"\b[A-Z][a-z][a-z] [A-Z][a-z][a-z] +\d+ \d\d:\d\d:\d\d \d{4}\b", "DATE"),
    rule!(r"\[pid ?\d+\]", "[pid]"),
    rule!(r"\(\d+\.\d+\.\d+\.\d+:\d+\)", "(ADDRESS)"),
];

static TID: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"\bt([4-7][0-9a-f]{4})\b").expect("a right pattern"));

/// Numbers tids by their first appearance, and replaces times, process ids, addresses and folders by words.
pub fn text(raw: &str, machine: &Machine) -> String {
    let mut text = raw.replace(&machine.home().display().to_string(), "HOME");
    text = text.replace(&machine.folder().display().to_string(), "TMP");
    text = text.replace(&common::root().display().to_string(), "ROOT");
    text = dates(user(&text));
    let mut seen: HashMap<String, usize> = HashMap::new();
    TID.replace_all(&text, |found: &Captures| {
        let next = seen.len() + 1;
        format!("t#{}", seen.entry(found[1].to_string()).or_insert(next))
    })
    .into_owned()
}

/// Replaces the user's id in file names.
pub fn user(text: &str) -> String {
    let uid = rustix::process::geteuid().as_raw();
    text.replace(&format!("pvmd.{uid}"), "pvmd.UID").replace(&format!("pvml.{uid}"), "pvml.UID")
}

/// Replaces times, process ids, and addresses (each with its port) by words.
pub fn dates(mut text: String) -> String {
    for (pattern, word) in &RULES {
        text = pattern.replace_all(&text, *word).into_owned();
    }
    text
}

/// Sorts the lines.
pub fn sorted(text: &str) -> String {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines.iter().map(|line| format!("{line}\n")).collect()
}
