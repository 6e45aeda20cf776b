//! `cargo xtask sanitize address|thread`: runs tests with a sanitizer.
//!
//! AddressSanitizer finds accesses outside allocated memory, ThreadSanitizer finds data races. ThreadSanitizer must see
//! the synchronization inside Rust's standard library, which is therefore compiled too. Before the tests, planted
//! errors show that each sanitizer works.

use crate::build::target_directory;
use crate::common::{cargo, output};
use crate::counts::Counts;
use crate::debian_rust;
use crate::failures;
use crate::test::{cargo_test, cargo_test_command};
use anyhow::{Context, Result, bail, ensure};
use std::fs;
use std::path::PathBuf;
use std::process::Command;

/// The packages with unsafe code (the first and the last), and the package that connects them.
const PACKAGES: [&str; 3] = ["pvm-fmp", "pvm-task", "libpvm3"];
const RUNTIMES: &str = "usr/lib/llvm-19/lib/clang/19/lib/linux";
const SYMBOLIZER: &str = "usr/lib/llvm-19/bin/llvm-symbolizer";
const TARGET: &str = "x86_64-unknown-linux-gnu";
const PROFILE: &str = "sanitize";
/// The most lines of a report that are shown.
const REPORT_LINES_MAX: usize = 80;

/// A test, and the reason why no sanitizer can run the test.
const OWN_ALLOCATOR: (&str, &str) =
    ("a_wait_in_which_handlers_may_call_does_not_allocate", "it has an allocator of its own, as the sanitizer has");
/// See [`OWN_ALLOCATOR`].
const LITTLE_SPACE: (&str, &str) =
    ("a_limit_of_address_space_is_an_error", "the sanitizer takes more address space than the limit of the test");
/// See [`OWN_ALLOCATOR`].
const NO_SPACE: (&str, &str) = (
    "a_message_without_address_space_fails_the_call_and_comes_when_there_is_space",
    "the sanitizer's own allocator finds no address space at times",
);
/// See [`OWN_ALLOCATOR`].
const NO_MEMORY: (&str, &str) =
    ("a_reduction_without_memory_fails_and_nothing_else", "the sanitizer ends a program that finds no memory");

/// See [`OWN_ALLOCATOR`].
const STARTED_PROCESS: (&str, &str) =
    ("process_start", "the sanitizers know no process that shares the memory of another one, on a stack of its own");

/// The package whose unit tests the short form runs: it has nearly all unsafe code.
const SHORT: [&str; 1] = ["pvm-fmp"];

const SANITIZERS: [Sanitizer; 2] = [
    Sanitizer {
        name: "address",
        library: "asan",
        flags: "",
        builds_std: false,
        variables: &[],
        left_out: &[OWN_ALLOCATOR, LITTLE_SPACE, NO_SPACE, NO_MEMORY, STARTED_PROCESS],
        planted: &[Planted::Program("use-after-free")],
    },
    Sanitizer {
        name: "thread",
        library: "tsan",
        // With the first flag, the generic functions of the optimized standard library are compiled with the code that
        // uses them. For the second flag see `pvm-fmp/src/mapping.rs`.
        flags: "-Zshare-generics=no --cfg one_mapping",
        builds_std: true,
        // With the default (32 MiB), the bodies of rendezvous tests would be so long that the tests take too long.
        variables: &[("HPVM_OFFER_MIN", "1000000")],
        left_out: &[
            OWN_ALLOCATOR,
            LITTLE_SPACE,
            NO_SPACE,
            NO_MEMORY,
            STARTED_PROCESS,
            ("a_rendezvous_over_memory_that_is_not_there_is_tried_once", "it has one thread, and takes 8 GiB here"),
            ("signal_handlers_do_no_harm", "signals are held back here until the next call that the sanitizer knows"),
        ],
        planted: &[Planted::Program("race"), Planted::Test("pvm-fmp", "tests::a_planted_race_in_shared_memory")],
    },
];

struct Sanitizer {
    name: &'static str,
    /// The sanitizer's name in the file name of its runtime library.
    library: &'static str,
    /// Further flags of the compiler.
    flags: &'static str,
    /// Whether Rust's standard library must be compiled with the sanitizer.
    builds_std: bool,
    /// Environment variables of the tests.
    variables: &'static [(&'static str, &'static str)],
    /// Tests that are left out, and why.
    left_out: &'static [(&'static str, &'static str)],
    /// Planted errors that the sanitizer must find.
    planted: &'static [Planted],
}

/// A planted error.
enum Planted {
    /// An error of the program in `tests/sanitize`.
    Program(&'static str),
    /// An ignored test of a package.
    Test(&'static str, &'static str),
}

/// Runs the command.
pub fn run(arguments: &[String]) -> Result<()> {
    let sanitizer = SANITIZERS.iter().find(|known| arguments.first().is_some_and(|name| name == known.name));
    let (Some(sanitizer), [_] | [_, _]) = (sanitizer, arguments) else { bail!("sanitize address|thread [--short]") };
    let is_short = match arguments.get(1).map(String::as_str) {
        None => false,
        Some("--short") => true,
        Some(other) => bail!("sanitize knows --short, not {other}"),
    };
    if let Some(obstacle) = obstacle() {
        bail!("{obstacle}");
    }
    sanitizer.counted(is_short)?.report()
}

/// Runs the short form of both sanitizers, as a part of `cargo xtask test`.
pub fn counted_short() -> Result<Counts> {
    if let Some(obstacle) = obstacle() {
        return Ok(Counts::skip(obstacle));
    }
    SANITIZERS.iter().map(|sanitizer| sanitizer.counted(true)).sum()
}

/// Compiles what [`counted_short`] runs.
pub fn compile_short() -> Result<()> {
    if obstacle().is_some() { Ok(()) } else { SANITIZERS.iter().try_for_each(Sanitizer::compile_short) }
}

/// Returns the words for `cargo test` that say what to compile.
fn what_to_compile(is_short: bool) -> Vec<&'static str> {
    let (packages, targets): (&[&str], &[&str]) =
        if is_short { (&SHORT, &["--lib"]) } else { (&PACKAGES, &["--lib", "--tests"]) };
    let mut words = vec!["--profile", PROFILE];
    words.extend(targets);
    packages.iter().for_each(|package| words.extend(["--package", package]));
    words
}

/// Returns why the sanitizers cannot run here.
fn obstacle() -> Option<String> {
    if std::env::consts::ARCH != "x86_64" {
        return Some("the sanitizers are set up for x86-64".into());
    }
    (!debian_rust::SANITIZERS.is_there())
        .then(|| "the sanitizers are missing (see `cargo xtask setup sanitize`)".into())
}

impl Sanitizer {
    fn counted(&self, is_short: bool) -> Result<Counts> {
        let planted = self.find_planted_errors()?;
        let mut arguments = what_to_compile(is_short);
        arguments.push("--");
        for (test, reason) in self.left_out {
            arguments.extend(["--skip", test]);
            if !is_short {
                println!("left out: {test}: {reason}");
            }
        }
        let reports = self.folder()?.join("reports");
        let _ = fs::remove_dir_all(&reports);
        fs::create_dir_all(&reports)?;
        // The reports go to files, since tests start many processes, and do not see the output of all of them.
        let tests = cargo_test(&arguments, &self.environment(&format!("log_path={}/of", reports.display()))?)?;
        let told = show(&reports)?;
        Ok(Counts { passed: tests.passed + planted, failed: tests.failed.max(told), ..tests })
    }

    /// Compiles what the short form runs.
    fn compile_short(&self) -> Result<()> {
        output(self.cargo()?.args(["build", "--quiet", "--profile", PROFILE, "--package", "hpvm-planted-errors"]))?;
        let environment = self.environment("")?;
        output(cargo_test_command(&what_to_compile(true), &environment).arg("--no-run")).map(drop)
    }

    /// Returns a separate target directory, since builds with different flags would remove each other's files.
    fn folder(&self) -> Result<PathBuf> {
        Ok(target_directory()?.join("sanitize").join(self.name))
    }

    /// Checks that a program without errors runs, and that all planted errors are reported. Returns the number of
    /// planted errors.
    fn find_planted_errors(&self) -> Result<usize> {
        let sound = self.planted_program("none")?.output()?;
        ensure!(sound.status.success(), "without an error: {}", String::from_utf8_lossy(&sound.stderr));
        for planted in self.planted {
            let (name, mut command) = match planted {
                Planted::Program(error) => (error, self.planted_program(error)?),
                Planted::Test(package, test) => {
                    let mut command = self.cargo()?;
                    command.args(["test", "--quiet", "--profile", PROFILE, "--lib", "--package", package]);
                    command.args(["--", "--ignored", "--nocapture", "--exact", test]);
                    (test, command)
                }
            };
            let output = command.output().context("cannot start cargo")?;
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            let is_found = said.contains("Sanitizer: ") && said.contains("planted_");
            ensure!(!output.status.success() && is_found, "{name} is not found: {said}");
        }
        Ok(self.planted.len())
    }

    fn planted_program(&self, error: &str) -> Result<Command> {
        let mut command = self.cargo()?;
        command.args(["run", "--quiet", "--profile", PROFILE, "--package", "hpvm-planted-errors", "--", error]);
        Ok(command)
    }

    fn cargo(&self) -> Result<Command> {
        let mut command = cargo();
        command.envs(self.environment("")?);
        Ok(command)
    }

    /// Returns the environment of cargo and the tests; `options` are further options of the sanitizer.
    fn environment(&self, options: &str) -> Result<Vec<(&'static str, PathBuf)>> {
        let runtimes = debian_rust::folder().join(RUNTIMES);
        let runtime = runtimes.join(format!("libclang_rt.{}-x86_64.so", self.library));
        let flags = format!(
            // The runtime library must be the first library that a program loads.
            "-Zsanitizer={} {} -Zexternal-clangrt -Zpre-link-arg=-Wl,--no-as-needed -Zpre-link-arg={} \
             -Clink-arg=-Wl,-rpath,{}",
            self.name,
            self.flags,
            runtime.display(),
            runtimes.display()
        );
        let options = format!("external_symbolizer_path={} {options}", symbolizer()?.display());
        let mut environment: Vec<(&str, PathBuf)> = vec![
            ("RUSTC", debian_rust::rustc()),
            // Sanitizers need an unstable compiler; this variable makes a stable compiler accept them.
            ("RUSTC_BOOTSTRAP", "1".into()),
            ("RUSTFLAGS", flags.into()),
            ("CARGO_BUILD_TARGET", TARGET.into()),
            ("CARGO_TARGET_DIR", self.folder()?),
            // The tests of libpvm3 link C programs with this library.
            ("HPVM_SANITIZER_RUNTIME", runtime),
            ("ASAN_OPTIONS", options.clone().into()),
            // By default, ThreadSanitizer ends a child of `fork()` when the child starts a thread; programs of the
            // tests fork.
            ("TSAN_OPTIONS", format!("{options} die_after_fork=0").into()),
        ];
        if self.builds_std {
            // All versions of cargo read a list with spaces, but not all read one with commas.
            environment.push(("CARGO_UNSTABLE_BUILD_STD", "std panic_unwind test".into()));
            environment.push(("CARGO_UNSTABLE_BUILD_STD_FEATURES", "panic-unwind".into()));
        }
        environment.extend(self.variables.iter().map(|(name, value)| (*name, value.into())));
        Ok(environment)
    }
}

/// Shows the reports in a folder, and returns their number.
fn show(reports: &PathBuf) -> Result<usize> {
    let mut count = 0;
    for entry in fs::read_dir(reports)? {
        let path = entry?.path();
        let text = fs::read(&path)?;
        let text = String::from_utf8_lossy(&text);
        let beginning: Vec<&str> = text.lines().take(REPORT_LINES_MAX).collect();
        failures::report(format_args!("{}:\n{}", path.display(), beginning.join("\n")));
        count += 1;
    }
    Ok(count)
}

/// Returns the path of a script that runs the symbolizer.
fn symbolizer() -> Result<PathBuf> {
    let command = debian_rust::folder().join("llvm-symbolizer");
    debian_rust::write_command(&command, &debian_rust::with_libraries(SYMBOLIZER))?;
    Ok(command)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::common::files_under;

    #[test]
    fn what_is_left_out_is_there() {
        let sources = files_under(&["crates"], &["rs"]).unwrap();
        let sources: String = sources.iter().map(|path| fs::read_to_string(path).unwrap()).collect();
        for (test, _) in SANITIZERS.iter().flat_map(|sanitizer| sanitizer.left_out) {
            assert!(sources.contains(&format!("fn {test}")), "no test is called {test}");
        }
        for planted in SANITIZERS.iter().flat_map(|sanitizer| sanitizer.planted) {
            if let Planted::Test(_, test) = planted {
                let name = test.rsplit("::").next().unwrap();
                assert!(sources.contains(&format!("fn {name}")), "no test is called {test}");
            }
        }
    }
}
