//! The text of docs/compatibility.md.
use super::evidence::{Evidence, listed};
use super::facts::{Defect, Facts, Item, State, Status};
use crate::contract::{DATA, FORTRAN, FUNCTIONS};
use regex::Regex;
use std::fmt::Write;
use std::sync::LazyLock;
use xtask::man::page::Page;

/// Matches the numbers of defects in a text.
static DEFECT: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"\(D\d+(?:, D\d+)*\)").expect("a pattern"));

const HEAD: &str = "\
# Compatibility with PVM 3.4.6

Made by `cargo xtask compatibility` from the list of names that the libraries export, the manual
pages (`man/calls`), the conformance cases (`tests/conform`) and `docs/compatibility.toml`.

The tables show what PVM 3.4.6 has, whether it works in hpvm, where hpvm differs on purpose, and
which conformance cases show this. Each case runs on Debian's PVM 3.4.6-5 and on hpvm, and both must
print the same, except for the differences that are listed below. D1 to D62 are the numbers of the
original's defects, see [Defects](#defects). If many cases use a function, the tables name those
that use the fewest other functions.

| status | |
| --- | --- |
| works | as in the original, except for the remarks and differences that the tables name |
| accepted, no effect | can be used, but changes nothing |
| no | does not exist in hpvm; the remark says why |
";

/// Returns the whole document.
pub fn document(facts: &Facts, pages: &[Page], evidence: &Evidence) -> String {
    let mut text = HEAD.to_owned();
    functions(&mut text, facts, pages, evidence);
    fortran(&mut text, pages, evidence);
    data(&mut text, evidence);
    let words: Finder = |item, evidence| evidence.with_words(&words_of(item));
    items(&mut text, "Options of pvm_setopt", &facts.option, evidence, words);
    items(&mut text, "Commands of the console", &facts.command, evidence, |item, evidence| {
        evidence.with_command(&item.name)
    });
    let given: Finder = |_, _| Vec::new();
    items(&mut text, "Options of the console's spawn", &facts.spawn_option, evidence, given);
    items(&mut text, "The console", &facts.console, evidence, given);
    items(&mut text, "The daemon", &facts.switch, evidence, given);
    items(&mut text, "The hostfile", &facts.hostfile, evidence, given);
    items(&mut text, "Environment variables", &facts.variable, evidence, words);
    items(&mut text, "Files and programs", &facts.file, evidence, given);
    programs(&mut text, evidence);
    defects(&mut text, facts, evidence);
    differences(&mut text, evidence);
    remarks(&mut text, pages);
    text
}

/// A function that returns the cases of an item.
type Finder = for<'a> fn(&Item, &'a Evidence) -> Vec<&'a str>;

fn words_of(item: &Item) -> Vec<&str> {
    match &item.search_words {
        Some(words) => words.iter().map(String::as_str).collect(),
        None => vec![&*item.name],
    }
}

/// Returns text for a cell of a table.
fn cell(text: &str) -> String {
    text.trim_end().replace('|', "\\|").replace('\n', "<br>")
}

fn code(text: &str) -> String {
    format!("`{text}`")
}

fn table(text: &mut String, title: &str, columns: &[&str], rows: impl IntoIterator<Item = Vec<String>>) {
    let _ = writeln!(text, "\n## {title}\n\n| {} |\n|{}", columns.join(" | "), " --- |".repeat(columns.len()));
    for row in rows {
        let cells: Vec<String> = row.iter().map(|entry| cell(entry)).collect();
        let _ = writeln!(text, "| {} |", cells.join(" | "));
    }
}

fn page_of<'a>(pages: &'a [Page], name: &str) -> Option<&'a Page> {
    pages.iter().find(|page| page.names().iter().any(|known| known == name))
}

/// Returns the defects that a text names.
fn defects_in(text: &str) -> String {
    let mut found: Vec<&str> = Vec::new();
    for group in DEFECT.find_iter(text) {
        for defect in group.as_str().trim_matches(['(', ')']).split(", ") {
            if !found.contains(&defect) {
                found.push(defect);
            }
        }
    }
    found.join(", ")
}

fn functions(text: &mut String, facts: &Facts, pages: &[Page], evidence: &Evidence) {
    let mut names: Vec<&str> = FUNCTIONS.to_vec();
    names.sort_unstable();
    let rows = names.into_iter().map(|name| {
        let page = page_of(pages, name);
        let manual = page.map(|page| format!("{}(3)", page.name)).unwrap_or_default();
        let differs = page.and_then(|page| page.differences.as_deref()).unwrap_or_default();
        let differs = match defects_in(differs) {
            none if none.is_empty() && !differs.is_empty() => "see the page".into(),
            some => some,
        };
        vec![code(name), Status::Works.text().into(), manual, differs, listed(&evidence.using(name))]
    });
    table(text, "Functions", &["function", "status", "manual", "differs", "cases"], rows);
    text.push_str("\nNames of the original's libraries that hpvm does not have:\n\n");
    for absent in &facts.absent {
        let names: Vec<String> = absent.names.iter().map(|name| code(name)).collect();
        let _ = writeln!(text, "* {}: {}", names.join(", "), absent.note);
    }
}

fn fortran(text: &mut String, pages: &[Page], evidence: &Evidence) {
    let mut names: Vec<&str> = FORTRAN.to_vec();
    names.sort_unstable();
    let rows = names.into_iter().map(|symbol| {
        let name = symbol.trim_end_matches('_');
        let calls = pages.iter().flat_map(|page| page.fortran.iter().map(move |call| (&**call, page)));
        let called = |call: &str| call.strip_prefix("call ")?.strip_prefix(name)?.starts_with('(').then_some(());
        let found = calls.into_iter().find(|(call, _)| called(call).is_some());
        let call = found.and_then(|(call, _)| call.strip_prefix("call ")).unwrap_or(name);
        let manual = found.map(|(_, page)| format!("{}(3)", page.name)).unwrap_or_default();
        vec![code(call), Status::Works.text().into(), manual, listed(&evidence.using(symbol))]
    });
    table(text, "Fortran", &["call", "status", "manual", "cases"], rows);
}

fn data(text: &mut String, evidence: &Evidence) {
    let rows = DATA.iter().map(|(name, bytes)| {
        let cases = [evidence.with_words(&[name]), evidence.using(name)].concat();
        vec![code(name), bytes.to_string(), listed(&cases)]
    });
    table(text, "Data", &["name", "bytes", "cases"], rows);
    text.push_str("\nThe sizes are those of 64-bit hosts; `cargo xtask abi` checks them.\n");
}

fn items(text: &mut String, title: &str, items: &[Item], evidence: &Evidence, find: Finder) {
    let rows = items.iter().map(|item| {
        let mut cases: Vec<&str> = item.cases.iter().map(String::as_str).collect();
        cases.extend(find(item, evidence));
        vec![code(&item.name), item.status.text().into(), item.note.clone(), listed(&cases)]
    });
    table(text, title, &["name", "status", "remarks", "cases"], rows);
}

fn programs(text: &mut String, evidence: &Evidence) {
    let rows = evidence.programs.iter().map(|name| vec![code(name), listed(&evidence.running(name))]);
    table(text, "Programs of Debian that run unmodified", &["program", "cases"], rows);
}

fn defects(text: &mut String, facts: &Facts, evidence: &Evidence) {
    let rows = facts.defect.iter().map(|defect| {
        let mut proof: Vec<&str> = evidence.of_defect(&defect.id);
        proof.extend(defect.cases.iter().chain(&defect.tests).map(String::as_str));
        vec![defect.id.clone(), defect.what.clone(), outcome(defect), listed(&proof)]
    });
    table(text, "Defects", &["", "in PVM 3.4.6", "in hpvm", "shown by"], rows);
}

fn outcome(defect: &Defect) -> String {
    let state = match defect.state {
        State::Done => return defect.how.clone(),
        State::Kept => "kept on purpose",
    };
    match defect.how.as_str() {
        "" => state.into(),
        how => format!("{state}: {how}"),
    }
}

fn differences(text: &mut String, evidence: &Evidence) {
    let mut cases: Vec<_> = evidence.cases.iter().collect();
    cases.sort_unstable_by_key(|case| &case.name);
    let defect = |name: &str| if name.starts_with('D') { name.to_owned() } else { String::new() };
    let mut rows = Vec::new();
    for case in &cases {
        for (name, theirs, ours) in &case.differences {
            rows.push(vec![case.name.clone(), defect(name), theirs.clone(), ours.clone()]);
        }
        if let Some((name, fate)) = &case.ours_only {
            rows.push(vec![case.name.clone(), defect(name), fate.to_string(), format!("{}.expected", case.name)]);
        }
    }
    table(text, "Differences that the cases expect", &["case", "defect", "PVM 3.4.6", "hpvm"], rows);
    text.push_str(
        "\nOther differences, and behaviour of the original that no manual describes, are in \
         [undocumented-behaviour.md](undocumented-behaviour.md).\n",
    );
}

fn remarks(text: &mut String, pages: &[Page]) {
    text.push_str("\n## Differences by manual page\n");
    for page in pages {
        if let Some(differences) = &page.differences {
            let _ = writeln!(text, "\n### {}(3)\n\n{}", page.name, differences.trim());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defects_are_found_in_texts_once() {
        assert_eq!(defects_in("a (D1) b (D2, D12), c (D1), D3"), "D1, D2, D12");
        assert_eq!(defects_in("none"), "");
    }

    #[test]
    fn a_cell_holds_one_line() {
        assert_eq!(cell("a|b\nc\n"), "a\\|b<br>c");
    }
}
