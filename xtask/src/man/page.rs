//! The source of a page: one file of `man/calls`.
use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use std::fs;
use std::path::Path;

// To compile all of pvm-core would take longer than all of this crate.
#[path = "../../../crates/pvm-core/src/error_codes.rs"]
pub mod error_codes;

use error_codes::Code;

/// A manual page of section 3.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Page {
    /// The name of the page, and of its first call.
    pub name: String,
    /// Further C names that the page describes.
    #[serde(default)]
    pub also: Vec<String>,
    /// The text after the name in the first line.
    pub summary: String,
    /// The headers that declare the names.
    #[serde(default = "usual_headers")]
    pub include: Vec<String>,
    /// Declarations in C, without the semicolon.
    #[serde(default)]
    pub c: Vec<String>,
    /// Calls in Fortran.
    #[serde(default)]
    pub fortran: Vec<String>,
    /// The description.
    pub description: String,
    /// The return values.
    pub returns: Option<String>,
    /// Intended differences from PVM 3.4.6.
    pub differences: Option<String>,
    /// A complete program.
    pub example: Option<String>,
    /// The output of the program.
    pub example_output: Option<String>,
    /// A complete program in Fortran.
    pub fortran_example: Option<String>,
    /// Other pages, with their sections.
    #[serde(default)]
    pub see_also: Vec<String>,
    /// The arguments of all calls of the page.
    #[serde(default)]
    pub argument: Vec<Argument>,
    /// The errors.
    #[serde(default)]
    pub error: Vec<Failure>,
    /// Sections with titles of their own.
    #[serde(default)]
    pub section: Vec<Section>,
}

/// An argument of a call.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Argument {
    /// Its name in the synopsis.
    pub name: String,
    /// The description, with the unit.
    pub text: String,
}

/// An error of a call.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Failure {
    /// The name of the code in `pvm3.h`.
    pub code: String,
    /// When the error happens.
    pub when: Option<String>,
    /// Whether the library prints no message for the error, whatever the value of `PvmAutoErr`.
    #[serde(default)]
    pub silent: bool,
}

/// A section with a title of its own.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Section {
    /// The title.
    pub title: String,
    /// The text.
    pub text: String,
}

/// When `PvmSysErr` happens, unless the page says otherwise.
const NO_DAEMON: &str = "no daemon can be reached, or it has ended.";

fn usual_headers() -> Vec<String> {
    vec!["pvm3.h".to_owned()]
}

impl Failure {
    /// Returns the code.
    pub fn number(&self) -> Result<Code> {
        codes()
            .find(|code| format!("Pvm{code:?}") == self.code)
            .with_context(|| format!("{} is no error code", self.code))
    }
    /// Returns when the error happens.
    pub fn when(&self) -> Option<&str> {
        self.when.as_deref().or_else(|| (self.code == "PvmSysErr").then_some(NO_DAEMON))
    }
}

impl Page {
    /// Returns all names in C and Fortran that the page describes, except the name of the page.
    pub fn further_names(&self) -> Vec<String> {
        let fortran = self.fortran.iter().filter_map(|call| fortran_name(call)).map(str::to_owned);
        let mut names = self.also.clone();
        for name in fortran {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        names
    }
    /// Returns all names.
    pub fn names(&self) -> Vec<String> {
        [vec![self.name.clone()], self.further_names()].concat()
    }
}

/// Returns every error code.
pub fn codes() -> impl Iterator<Item = Code> {
    (1..error_codes::TEXTS.len() as i32).filter_map(|number| Code::from_number(-number))
}

/// Returns the name in `call pvmfsend(tid, tag, info)`.
pub fn fortran_name(call: &str) -> Option<&str> {
    call.strip_prefix("call ").and_then(|rest| rest.split('(').next())
}

/// Reads all pages, sorted by their names.
pub fn read_all(directory: &Path) -> Result<Vec<Page>> {
    let mut pages = Vec::new();
    for path in crate::build::files_of(directory)? {
        let text = fs::read_to_string(&path)?;
        let page: Page = toml::from_str(&text).with_context(|| format!("cannot understand {}", path.display()))?;
        let file = path.file_name().unwrap_or_default().to_string_lossy();
        ensure!(file == format!("{}.toml", page.name), "{file} is the page {}", page.name);
        for failure in &page.error {
            failure.number().with_context(|| format!("in {file}"))?;
            ensure!(failure.when().is_some(), "{file} does not say when {} comes", failure.code);
        }
        pages.push(page);
    }
    Ok(pages)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_further_names_of_a_page_are_those_of_c_and_of_fortran() {
        let text = r#"
            name = "pvm_a"
            also = ["pvm_b"]
            summary = "do"
            fortran = ["call pvmfa(x, info)", "call pvmfb(info)"]
            description = "It does."
        "#;
        let page: Page = toml::from_str(text).expect("a page");
        assert_eq!(page.further_names(), ["pvm_b", "pvmfa", "pvmfb"]);
    }

    #[test]
    fn a_code_that_does_not_exist_is_found_out() {
        let failure = |code: &str| Failure { code: code.into(), when: None, silent: false };
        assert_eq!(failure("PvmNoTask").number().expect("a code").number(), -31);
        assert!(failure("PvmNoSuchThing").number().is_err());
    }
}
