//! `cargo xtask guide`: checks the guide (`docs/guide`). The commands that its pages show are run in the order of each
//! page, and print what the page shows; every link leads somewhere; each message that a page explains is in the
//! sources; its text has no wrong spelling. If `mdbook` is installed, the command also builds the book.
mod messages;
mod pages;
mod prose;
mod transcript;

use crate::build;
use crate::common::{Checks, dist, in_path, output, root};
use crate::counts::Counts;
use crate::install::{self, Layout};
use crate::scratch;
use anyhow::{Context, Result, bail};
use pages::Page;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;

/// The programs of the Python environment that has the package hpvm, if it was made.
const PYTHON: &str = "target/python/tools/bin";

/// Runs the command: `guide [--as-it-is] [--only PAGE]`.
pub fn run(arguments: &[String]) -> Result<()> {
    let only = match arguments.iter().position(|word| word == "--only") {
        Some(at) => Some(arguments.get(at + 1).context("--only needs the name of a page")?.as_str()),
        None => None,
    };
    build::build_unless_told(arguments)?;
    check(only)?.report()?;
    if in_path("mdbook") {
        let book = root().join("target/guide");
        output(Command::new("mdbook").arg("build").arg(directory()).arg("--dest-dir").arg(&book))?;
        println!("The book: {}", book.join("index.html").display());
    } else {
        println!("The book was not built: mdbook is not installed (cargo install mdbook)");
    }
    Ok(())
}

/// Runs the command as a part of `cargo xtask test`, on a built `target/dist`.
pub fn counted(_arguments: &[String]) -> Result<Counts> {
    check(None)
}

fn check(only: Option<&str>) -> Result<Counts> {
    let pages = pages::read(&directory())?;
    let chosen: Vec<&Page> = pages.iter().filter(|page| only.is_none_or(|only| page.name == only)).collect();
    if chosen.is_empty() {
        bail!("the pages are: {}", pages.iter().map(|page| &*page.name).collect::<Vec<_>>().join(", "));
    }
    let mut checks = Checks::default();
    check_prose(&chosen, &mut checks);
    let sources = messages::Sources::read(&root())?;
    for page in chosen {
        let about = |what: &str| format!("{what} of docs/guide/src/{}.md", page.name);
        checks.check(&about("the links"), pages::check_links(page, &pages));
        checks.check(&about("the included files"), pages::check_includes(page));
        if page.blocks.iter().any(|block| block.kind == "message") {
            checks.check(&about("the messages"), sources.check(page));
        }
        if page.blocks.iter().any(|block| block.kind == "console") {
            match missing_tool(page) {
                Some(tool) => checks.skip(&about("the commands"), &format!("{tool} is missing")),
                None => checks.check(&about("the commands"), try_out(page)),
            }
        }
    }
    checks.check("the programs of the guide are in its pages", pages::check_programs(&directory(), &pages));
    checks.check("the summary of the guide has every page", pages::check_summary(&directory(), &pages));
    Ok(checks.counts())
}

/// Checks the text of pages.
fn check_prose(pages: &[&Page], checks: &mut Checks) {
    match prose::missing_for_spelling() {
        Some(missing) => checks.skip("the spelling of the guide", missing),
        None => {
            for page in pages {
                checks.check(&format!("the spelling of docs/guide/src/{}.md", page.name), prose::check_spelling(page));
            }
            checks.check("the list of words has what it needs", prose::check_words());
        }
    }
    match prose::proselint() {
        Err(error) => checks.skip("the style of the guide", &format!("proselint cannot be had: {error:#}")),
        Ok(program) => {
            for page in pages {
                let name = format!("the style of docs/guide/src/{}.md", page.name);
                checks.check(&name, prose::check_style(page, &program));
            }
        }
    }
}

/// Returns what the page's commands need and this machine lacks.
fn missing_tool(page: &Page) -> Option<&'static str> {
    let needs = |tool: &str| page.blocks.iter().any(|block| block.kind == "console" && block.text.contains(tool));
    let tool = ["gfortran", "pkg-config"].into_iter().find(|tool| needs(tool) && !in_path(tool));
    tool.or_else(|| (needs("python3") && !has_python_package()).then_some("the Python package hpvm"))
}

/// Returns whether `python3` of the commands' [`path`] finds the package hpvm.
fn has_python_package() -> bool {
    path().and_then(|path| output(Command::new("env").arg(path).args(["python3", "-c", "import hpvm"]))).is_ok()
}

/// Returns the setting of `PATH` for the commands of pages: the Python environment of `target`, and then the caller's
/// directories.
fn path() -> Result<OsString> {
    let caller = std::env::var_os("PATH").unwrap_or_default();
    let directories = std::iter::once(root().join(PYTHON)).chain(std::env::split_paths(&caller));
    let mut setting = OsString::from("PATH=");
    setting.push(std::env::join_paths(directories)?);
    Ok(setting)
}

/// Runs the page's commands as a user would who has installed hpvm in `~/.local` and has the guide's programs.
fn try_out(page: &Page) -> Result<()> {
    let place = scratch::directory("guide")?;
    let home = place.path();
    let prefix = home.join(".local");
    install::install(&dist(), &prefix, &Layout::new(&prefix, "lib")?)?;
    std::os::unix::fs::symlink(root(), home.join("source"))?;
    std::fs::create_dir(home.join("work"))?;
    transcript::check(page, home, &path()?)
}

fn directory() -> PathBuf {
    root().join("docs/guide")
}
