//! Checks the binary interface for Fortran: `fpvm3.h`, and each way to link a program.
use super::output;
use crate::common::{Checks, in_path, root};
use crate::contract::FORTRAN;
use crate::debian_pvm;
use crate::elf;
use crate::scratch;
use anyhow::{Context, Result, ensure};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The source forms and standards in which the header must compile.
const LANGUAGES: &[(&str, &str)] = &[
    ("f", "legacy"),
    ("f", "gnu"),
    ("f", "f95"),
    ("f", "f2018"),
    ("f90", "legacy"),
    ("f90", "gnu"),
    ("f90", "f95"),
    ("f90", "f2018"),
];

/// Returns whether a file is a header for Fortran.
pub fn is_header(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("fpvm3"))
}

/// Runs the checks; `lib` is the folder of our libraries.
pub fn check(checks: &mut Checks, lib: &Path) -> Result<()> {
    if !in_path("gfortran") {
        checks.check("Fortran", Err(anyhow::anyhow!("gfortran is missing: cargo xtask setup test")));
        return Ok(());
    }
    let scratch = scratch::directory("fortran")?;
    checks.check("the names of Debian's libfpvm3.a", names_are_known());
    for language in LANGUAGES {
        checks.check(&format!("fpvm3.h in .{} files, {}", language.0, language.1), header(*language, scratch.path()));
    }
    checks.check("fpvm3.h has the names and values of Debian's", same_constants(scratch.path()));
    for (number, (name, options)) in ways(lib)?.iter().enumerate() {
        checks.check(&format!("Fortran, {name}"), links_and_runs(options, lib, number, scratch.path()));
    }
    Ok(())
}

fn archive_of_debian() -> Result<PathBuf> {
    let files = debian_pvm::files("pvm-dev").context("pvm-dev is missing: cargo xtask setup test")?;
    files.into_iter().find(|file| file.ends_with("libfpvm3.a")).context("pvm-dev has no libfpvm3.a")
}

/// Checks that `FORTRAN` lists every name that Debian's archive defines. Another check ensures that our libraries
/// define the names in `FORTRAN`.
fn names_are_known() -> Result<()> {
    let names = elf::defined_in_archive(&archive_of_debian()?)?;
    let unknown: Vec<&str> = names.iter().map(String::as_str).filter(|name| !FORTRAN.contains(name)).collect();
    ensure!(unknown.is_empty(), "not in the contract: {}", unknown.join(" "));
    Ok(())
}

fn header((ending, standard): (&str, &str), scratch: &Path) -> Result<()> {
    let source = scratch.join(format!("header.{ending}"));
    let text =
        "      program header\n      implicit none\n      include 'fpvm3.h'\n      print *, PVMDEFAULT\n      end\n";
    fs::write(&source, text)?;
    let mut gfortran = Command::new("gfortran");
    gfortran.args(["-Wall", "-Wno-unused-parameter", "-Werror", "-c"]).arg(format!("-std={standard}"));
    gfortran.arg("-I").arg(root().join("include")).arg(&source).arg("-o").arg(scratch.join("header.o"));
    output(&mut gfortran).map(drop)
}

/// Returns the constants of a header: the names in its `parameter` lines.
fn constants(text: &str) -> BTreeSet<String> {
    let names = text.lines().filter_map(|line| line.trim().strip_prefix("parameter")?.split_once('='));
    names.map(|(name, _)| name.trim_matches([' ', '(']).to_uppercase()).collect()
}

/// Returns the values of the constants `names`: compiles a program that prints them, with the headers in `include`, and
/// runs it.
fn values(names: &BTreeSet<String>, include: &Path, program: &Path) -> Result<BTreeMap<String, String>> {
    let prints: String = names.iter().map(|name| format!("      print *, '{name}=', {name}\n")).collect();
    let source = program.with_extension("f");
    fs::write(&source, format!("      program values\n      include 'fpvm3.h'\n{prints}      end\n"))?;
    output(Command::new("gfortran").arg("-I").arg(include).arg(&source).arg("-o").arg(program))?;
    let lines = output(&mut Command::new(program))?;
    let pairs = lines.lines().filter_map(|line| line.split_once('='));
    Ok(pairs.map(|(name, value)| (name.trim().to_owned(), value.trim().to_owned())).collect())
}

/// The names in hpvm's header that Debian's does not have.
const MORE_CONSTANTS: &[&str] = &[
    "PVMBACKOFF",
    "PVMCOPYWAY",
    "PVMMCASTAUTOMATIC",
    "PVMMCASTBINOMIAL",
    "PVMMCASTBROADCAST",
    "PVMMCASTHYPERCUBE",
    "PVMMCASTITERATIVE",
    "PVMMCASTROUTE",
    "PVMGROUPHOST",
];

fn same_constants(scratch: &Path) -> Result<()> {
    let include = root().join("include");
    let names = |folder: &Path| -> Result<BTreeSet<String>> {
        let path = folder.join("fpvm3.h");
        Ok(constants(&fs::read_to_string(&path).with_context(|| format!("{}", path.display()))?))
    };
    let (mut ours, theirs) = (names(&include)?, names(&debian_pvm::headers())?);
    for name in MORE_CONSTANTS {
        ensure!(ours.remove(*name), "hpvm's header lacks {name}");
    }
    ensure!(theirs.len() > 50, "only {} names found in Debian's header", theirs.len());
    super::differences(&ours, &theirs)?;
    let ours = values(&ours, &include, &scratch.join("ours"))?;
    let theirs = values(&theirs, &debian_pvm::headers(), &scratch.join("theirs"))?;
    for (name, value) in &theirs {
        ensure!(ours.get(name) == Some(value), "{name} is {:?} and not {value}", ours.get(name));
    }
    Ok(())
}

/// Returns the ways to link a program.
fn ways(lib: &Path) -> Result<Vec<(&'static str, Vec<String>)>> {
    let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
    let archive = lib.join("libpvm3.a").display().to_string();
    let fortran = lib.join("libfpvm3.a").display().to_string();
    let debian = archive_of_debian()?.display().to_string();
    Ok(vec![
        ("-lfpvm3 -lpvm3", words("-lfpvm3 -lpvm3")),
        ("-lfpvm3 -lgpvm3 -lpvm3", words("-lfpvm3 -lgpvm3 -lpvm3")),
        ("-lpvm3 alone", words("-lpvm3")),
        ("two underscores behind names", words("-fsecond-underscore -lfpvm3 -lpvm3")),
        ("archives by their paths", vec![fortran, archive.clone()]),
        ("without shared libraries", words("-static -lfpvm3 -lgpvm3 -lpvm3")),
        ("Debian's libfpvm3.a before our libpvm3.so", [words(&debian), words("-lpvm3")].concat()),
        ("Debian's libfpvm3.a before our libpvm3.a", vec![debian, archive]),
    ])
}

/// Links and runs a program. One of its subroutines refers to every name; the main program calls a few functions that
/// need no daemon.
fn links_and_runs(options: &[String], lib: &Path, number: usize, scratch: &Path) -> Result<()> {
    let subroutines: Vec<&str> = FORTRAN.iter().filter_map(|name| name.strip_suffix('_')).collect();
    let externals: String = subroutines.iter().map(|name| format!("      external {name}\n")).collect();
    let uses: String = subroutines.iter().map(|name| format!("      call keep({name})\n")).collect();
    let every = scratch.join("every.f");
    fs::write(
        &every,
        format!(
            "      subroutine every\n{externals}{uses}      end\n      subroutine keep(any)\n      external any\n      end\n"
        ),
    )?;
    let program = scratch.join(format!("linked{number}"));
    output(
        Command::new("gfortran")
            .args(["-fallow-argument-mismatch", "-I"])
            .arg(root().join("include"))
            .arg(root().join("tests/abi/values.f"))
            .arg(&every)
            .arg("-o")
            .arg(&program)
            .arg(format!("-L{}", lib.display()))
            .args(options),
    )?;
    let ended =
        Command::new(&program).env("LD_LIBRARY_PATH", lib).env("PVM_TMP", scratch).env_remove("PVMSOCK").output()?;
    let said = String::from_utf8_lossy(&ended.stdout).into_owned() + &String::from_utf8_lossy(&ended.stderr);
    ensure!(ended.status.success() && said.trim() == "right", "{}: {}", ended.status, said.trim_end());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constants_are_found_in_either_style() {
        let text = "      integer A\n      parameter( A =  0)\n      parameter (Bc = -2)\nc     parameter of no one\n";
        assert_eq!(constants(text).into_iter().collect::<Vec<_>>(), ["A", "BC"]);
    }
}
