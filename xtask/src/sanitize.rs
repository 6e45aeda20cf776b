//! `cargo xtask sanitize address`: unit tests under AddressSanitizer, which looks for accesses outside of what
//! they are for. Whether it finds anything is tried with a planted error first.

use crate::build::target_directory;
use crate::common::{cargo, report};
use crate::debian_rust::{self, Part};
use crate::test::cargo_test;
use anyhow::{Context, Result, bail, ensure};
use std::path::PathBuf;

/// Where nearly all unsafe code is, and what uses it.
const PACKAGES: [&str; 2] = ["pvm-fmp", "pvm-task"];
/// The sanitizer's own library, and what names functions for it.
pub const LIBRARIES: Part = Part { name: "sanitize", packages: &["libclang-rt-19-dev:amd64", "llvm-19:amd64"] };
const RUNTIMES: &str = "usr/lib/llvm-19/lib/clang/19/lib/linux";
const RUNTIME: &str = "libclang_rt.asan-x86_64.so";
const SYMBOLIZER: &str = "usr/lib/llvm-19/bin/llvm-symbolizer";
const TARGET: &str = "x86_64-unknown-linux-gnu";
/// The package in `tests/sanitize`, and the error of it that has to be found.
const PLANTED: &str = "hpvm-planted-errors";
const PLANTED_ERROR: &str = "use-after-free";

/// Runs the command.
pub fn run(arguments: &[String]) -> Result<()> {
    if arguments != ["address"] {
        bail!("sanitize address");
    }
    if let Some(obstacle) = obstacle() {
        bail!("{obstacle}");
    }
    report(tests()?)
}

/// Runs the command as a part of `cargo xtask test`.
pub fn counted() -> Result<(usize, usize)> {
    if let Some(obstacle) = obstacle() {
        println!("skipped: {obstacle}");
        return Ok((0, 0));
    }
    tests()
}

/// Why there is no sanitizer here.
fn obstacle() -> Option<String> {
    if std::env::consts::ARCH != "x86_64" {
        return Some("the sanitizer is set up for x86-64".into());
    }
    (!LIBRARIES.is_there()).then(|| "the sanitizer is missing (see `cargo xtask setup sanitize`)".into())
}

fn tests() -> Result<(usize, usize)> {
    finds_planted_error()?;
    let mut arguments = vec!["--lib"];
    PACKAGES.iter().for_each(|package| arguments.extend(["--package", package]));
    let (passed, failed) = cargo_test(&arguments, &environment()?)?;
    // The planted error is one more.
    Ok((passed + 1, failed))
}

/// Whether a program without errors runs, and one with an error is told of it.
fn finds_planted_error() -> Result<()> {
    let run = |error: &str| {
        let mut command = cargo();
        command.args(["run", "--quiet", "--package", PLANTED, "--", error]);
        command.envs(environment()?).output().context("cannot start cargo")
    };
    let sound = run("none")?;
    ensure!(sound.status.success(), "without an error: {}", String::from_utf8_lossy(&sound.stderr));
    let planted = run(PLANTED_ERROR)?;
    let said = String::from_utf8_lossy(&planted.stderr).into_owned();
    let is_found = said.contains("AddressSanitizer: ") && said.contains("planted_");
    ensure!(!planted.status.success() && is_found, "{PLANTED_ERROR} is not found: {said}");
    Ok(())
}

/// For cargo. The compiled files lie apart: each run would throw away those of the others else.
fn environment() -> Result<Vec<(&'static str, PathBuf)>> {
    let runtimes = debian_rust::folder().join(RUNTIMES);
    let flags = format!(
        // It has to be the first library of a program.
        "-Zsanitizer=address -Zexternal-clangrt -Zpre-link-arg=-Wl,--no-as-needed -Zpre-link-arg={} \
         -Clink-arg=-Wl,-rpath,{}",
        runtimes.join(RUNTIME).display(),
        runtimes.display()
    );
    Ok(vec![
        ("RUSTC", debian_rust::rustc()),
        // Sanitizers are for unstable compilers; this one is told to be one.
        ("RUSTC_BOOTSTRAP", "1".into()),
        ("RUSTFLAGS", flags.into()),
        ("CARGO_BUILD_TARGET", TARGET.into()),
        ("CARGO_TARGET_DIR", target_directory()?.join("sanitize/address")),
        ("CARGO_PROFILE_DEV_OPT_LEVEL", "1".into()),
        ("CARGO_PROFILE_DEV_DEBUG", "line-tables-only".into()),
        ("ASAN_OPTIONS", format!("external_symbolizer_path={}", symbolizer()?.display()).into()),
    ])
}

/// What gives functions their names, as a command.
fn symbolizer() -> Result<PathBuf> {
    let command = debian_rust::folder().join("llvm-symbolizer");
    debian_rust::write_command(&command, &debian_rust::with_libraries(SYMBOLIZER))?;
    Ok(command)
}
