//! Checks that the pages are complete and agree with the headers.
use crate::build::files_of;
use crate::common::{Checks, in_path, output, root};
use crate::contract::{DATA, FMP, FORTRAN, FUNCTIONS};
use crate::scratch;
use anyhow::{Context, Result, bail, ensure};
use regex::Regex;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;
use xtask::man::markup::{Block, blocks, references};
use xtask::man::page::{Page, fortran_name};
use xtask::man::{SECTION, render};

/// The longest line of an example, in columns: a terminal's 80 without the margins.
const COLUMNS_MAX: usize = 73;

/// The indent of tables, in columns.
const VERBATIM_INDENT: usize = 4;
/// Words in the names of our own pages; pages without these words belong to the system.
const OWN_WORDS: &[&str] = &["pvm", "fmp", "gs_", "gstid", "aimk"];

/// Checks all pages together.
pub fn all_pages(checks: &mut Checks, pages: &[Page]) -> Result<()> {
    checks.check("no name is on two pages", no_name_twice(pages));
    let names: BTreeSet<String> = pages.iter().flat_map(Page::names).collect();
    checks.check("every public name has a manual page", none_missing(public_names(), &names));
    for page in hand_written()? {
        checks.check(&format!("{page} names pages that exist"), names_exist(&page, pages));
        checks.check(&format!("{page} as groff reads it"), groff(&root().join("man").join(&page)));
    }
    Ok(())
}

/// Checks each page by itself.
pub fn each_page(checks: &mut Checks, pages: &[Page], chosen: &[&Page]) -> Result<()> {
    let scratch = scratch::directory("pages")?;
    let others = known(pages)?;
    for page in chosen {
        let name = &page.name;
        checks.check(&format!("page {name}: names in its synopsis"), synopsis_has_the_names(page));
        checks.check(&format!("page {name}: its arguments"), arguments_are_in_the_synopsis(page));
        checks.check(&format!("page {name}: its declarations compile"), declarations_compile(page, scratch.path()));
        checks.check(&format!("page {name}: pages that it names"), mentioned_exist(&texts(page), &others));
        checks.check(&format!("page {name}: no line is too long"), lines_fit(page));
        let file = scratch.path().join(format!("{name}.{SECTION}"));
        std::fs::write(&file, render::page(page))?;
        checks.check(&format!("page {name}: as groff reads it"), groff(&file));
    }
    Ok(())
}

fn no_name_twice(pages: &[Page]) -> Result<()> {
    let mut seen: BTreeMap<String, &str> = BTreeMap::new();
    for page in pages {
        for name in page.names() {
            if let Some(other) = seen.insert(name.clone(), &page.name) {
                bail!("{name} is on {other} and on {}", page.name);
            }
        }
    }
    Ok(())
}

fn none_missing<'a>(public: impl Iterator<Item = &'a str>, names: &BTreeSet<String>) -> Result<()> {
    let missing: Vec<&str> = public.filter(|name| !names.contains(*name)).collect();
    ensure!(missing.is_empty(), "none for {}", missing.join(" "));
    Ok(())
}

/// Returns the names that the libraries export; Fortran's names are as programs write them.
fn public_names() -> impl Iterator<Item = &'static str> {
    let data = DATA.iter().map(|(name, _)| name);
    FUNCTIONS.iter().chain(FMP).chain(data).chain(FORTRAN).map(|name| name.trim_end_matches('_'))
}

/// Returns the pages that are written as roff, such as `pvm.1`.
fn hand_written() -> Result<Vec<String>> {
    Ok(files_of(&root().join("man"))?.iter().map(|path| crate::machine::name_of(path)).collect())
}

/// Returns all pages, as `name(section)`. The list contains every public name; another check ensures that each of them
/// has a page.
fn known(pages: &[Page]) -> Result<BTreeSet<String>> {
    let calls = pages.iter().flat_map(Page::names).chain(public_names().map(str::to_owned));
    let calls = calls.map(|name| format!("{name}({SECTION})"));
    let others = hand_written()?.into_iter().filter_map(|file| {
        let (name, section) = file.rsplit_once('.')?;
        Some(format!("{name}({section})"))
    });
    Ok(calls.chain(others).collect())
}

fn names_exist(file: &str, pages: &[Page]) -> Result<()> {
    let text = std::fs::read_to_string(root().join("man").join(file))?;
    let known = known(pages)?;
    for line in text.lines().filter_map(|line| line.strip_prefix(".Xr ")) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [name, section, ..] = words[..] else { bail!("strange: .Xr {line}") };
        let page = format!("{name}({section})");
        ensure!(known.contains(&page) || !is_ours(name), "there is no {page}");
    }
    Ok(())
}

/// Returns whether a page with that name would be one of ours.
fn is_ours(name: &str) -> bool {
    OWN_WORDS.iter().any(|word| name.to_lowercase().contains(word))
}

fn mentioned_exist(texts: &[&str], known: &BTreeSet<String>) -> Result<()> {
    let mentioned = texts.iter().flat_map(|text| references(text)).filter(|(name, _)| is_ours(name));
    let mentioned = mentioned.map(|(name, section)| format!("{name}({section})"));
    let missing: BTreeSet<String> = mentioned.filter(|page| !known.contains(page)).collect();
    ensure!(missing.is_empty(), "there is no {}", missing.into_iter().collect::<Vec<_>>().join(", "));
    Ok(())
}

/// Returns all texts of a page.
fn texts(page: &Page) -> Vec<&str> {
    let mut texts = vec![&*page.description];
    texts.extend([&page.returns, &page.differences].into_iter().flatten().map(String::as_str));
    texts.extend(page.see_also.iter().map(String::as_str));
    texts.extend(page.argument.iter().map(|argument| &*argument.text));
    texts.extend(page.error.iter().filter_map(|failure| failure.when()));
    texts.extend(page.section.iter().map(|section| &*section.text));
    texts
}

/// Returns the name that a declaration declares.
fn declared_name(declaration: &str) -> Option<String> {
    let pattern = Regex::new(r"([A-Za-z_][A-Za-z0-9_]*)(?:\[\d*\])*(?:\(|$)").expect("a pattern");
    pattern.captures(declaration).map(|found| found[1].to_owned())
}

fn synopsis_has_the_names(page: &Page) -> Result<()> {
    if page.c.is_empty() {
        ensure!(page.also.is_empty(), "further names and no synopsis");
        return Ok(());
    }
    let declared: BTreeSet<String> = page.c.iter().filter_map(|declaration| declared_name(declaration)).collect();
    let named: BTreeSet<String> = std::iter::once(page.name.clone()).chain(page.also.iter().cloned()).collect();
    let missing: Vec<&String> =
        named.difference(&declared).filter(|name| public_names().any(|public| public == **name)).collect();
    ensure!(missing.is_empty(), "the synopsis lacks {missing:?}");
    let more: Vec<&String> = declared.difference(&named).collect();
    ensure!(more.is_empty(), "the page is not found by {more:?}");
    let is_call = |call: &&String| fortran_name(call).is_some_and(|name| public_names().any(|public| public == name));
    let strange: Vec<&String> = page.fortran.iter().filter(|call| !is_call(call)).collect();
    ensure!(strange.is_empty(), "the library has no {strange:?}");
    Ok(())
}

fn arguments_are_in_the_synopsis(page: &Page) -> Result<()> {
    let synopsis = format!("{}\n{}", page.c.join("\n"), page.fortran.join("\n"));
    let words: BTreeSet<&str> = synopsis.split(|letter: char| !letter.is_alphanumeric() && letter != '_').collect();
    let strange: Vec<&str> =
        page.argument.iter().map(|argument| &*argument.name).filter(|name| !words.contains(name)).collect();
    ensure!(strange.is_empty(), "not in the synopsis: {}", strange.join(" "));
    Ok(())
}

fn declarations_compile(page: &Page, scratch: &Path) -> Result<()> {
    let mut source = String::from("#include <stdarg.h>\n#include <stdio.h>\n#define NOTMPNAM\n");
    for header in &page.include {
        source.push_str(&format!("#include <{header}>\n"));
    }
    for declaration in &page.c {
        source.push_str(&format!("{declaration};\n"));
    }
    source.push_str("int something;\n");
    let (file, object) = (scratch.join("synopsis.c"), scratch.join("synopsis.o"));
    std::fs::write(&file, source)?;
    let mut cc = Command::new("cc");
    cc.args(["-std=c99", "-Wall", "-Wextra", "-Werror", "-c"]).arg(format!("-I{}", root().join("include").display()));
    output(cc.arg(&file).arg("-o").arg(&object)).map(drop)
}

fn lines_fit(page: &Page) -> Result<()> {
    let programs = [&page.example, &page.fortran_example].into_iter().flatten();
    let mut shown: Vec<(String, usize)> =
        programs.flat_map(|program| program.lines()).map(|line| (line.to_owned(), COLUMNS_MAX)).collect();
    for block in texts(page).into_iter().flat_map(blocks) {
        if let Block::Verbatim(lines) = block {
            shown.extend(lines.into_iter().map(|line| (line, COLUMNS_MAX - VERBATIM_INDENT)));
        }
    }
    let is_long = |(line, limit): &(String, usize)| line.chars().count() > *limit;
    let long: Vec<String> = shown.into_iter().filter(is_long).map(|(line, limit)| format!("{limit}: {line}")).collect();
    ensure!(long.is_empty(), "longer than the page is wide:\n{}", long.join("\n"));
    Ok(())
}

/// Checks that groff, and mandoc if it is installed, report no errors.
fn groff(page: &Path) -> Result<()> {
    ensure!(in_path("groff"), "groff is missing: cargo xtask setup test");
    let ended = Command::new("groff")
        .args(["-ww", "-mandoc", "-Tutf8", "-rLL=78n", "-z"])
        .arg(page)
        .output()
        .context("cannot start groff")?;
    let complaint = String::from_utf8_lossy(&ended.stderr);
    ensure!(ended.status.success() && complaint.is_empty(), "{}", complaint.trim_end());
    if in_path("mandoc") {
        output(Command::new("mandoc").args(["-Tlint", "-Werror"]).arg(page))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_declaration_is_found() {
        let names = ["int pvm_a(int x)", "extern int pvm_b", "extern char *pvm_c[37]", "char *pvm_d(void)"];
        let found: Vec<String> = names.iter().filter_map(|text| declared_name(text)).collect();
        assert_eq!(found, ["pvm_a", "pvm_b", "pvm_c", "pvm_d"]);
        assert_eq!(
            declared_name("int (*pvm_recvf(int (*match)(int, int, int)))(int, int, int)").as_deref(),
            Some("pvm_recvf")
        );
    }

    #[test]
    fn a_public_name_without_a_page_is_found_out() {
        let names = BTreeSet::from(["pvm_a".to_owned()]);
        assert!(none_missing(["pvm_a"].into_iter(), &names).is_ok());
        assert!(none_missing(["pvm_a", "pvm_b"].into_iter(), &names).is_err());
    }
}
