//! The engine, built twice: with what libFuzzer and AddressSanitizer need, and to count lines.
use super::coverage::{Coverage, Source};
use super::{Target, in_engine};
use crate::build::target_directory;
use crate::common::{cargo, in_path, output, sh};
use anyhow::{Context, Result, ensure};
use std::path::{Path, PathBuf};
use std::process::Command;

/// What makes the compiler tell the engine which way a program goes, and what it compares.
const TRACED: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares -Cllvm-args=-sanitizer-coverage-stack-depth";
/// The same for what is written in C.
const TRACED_C: &str = "-fsanitize=address -fsanitize-coverage=inline-8bit-counters,pc-table,trace-cmp";
/// What makes a compiler of C count lines.
const COUNTED_C: &str = "-fprofile-instr-generate -fcoverage-mapping";
/// For both.
const FUZZING: &str = "--cfg fuzzing";

/// What was built.
pub struct Engine {
    folder: PathBuf,
    fuzzer: PathBuf,
    /// Feeds targets with files, and counts lines.
    pub replayer: PathBuf,
}

impl Engine {
    /// Builds both programs. Of the sanitizers the compiler says that they are unfinished, so that it
    /// has to be told that we know.
    pub fn build() -> Result<Engine> {
        let folder = target_directory()?.join("fuzz");
        let triple = host()?;
        let flags = format!("{FUZZING} -Zsanitizer=address {TRACED}");
        let clang = tool("clang")?;
        let traced = build(&folder.join("traced"), &triple, &flags)
            .env("HPVM_FUZZ_CC", format!("{clang} {TRACED_C}"))
            .args(["--release", "--features", "libfuzzer", "--bin", "fuzz"])
            .env("RUSTC_BOOTSTRAP", "1")
            .status();
        ensure!(traced.context("cannot start cargo")?.success(), "the fuzzer does not compile");
        let flags = format!("{FUZZING} -Cinstrument-coverage");
        let mut counting = build(&folder.join("counting"), &triple, &flags);
        sh(counting.env("HPVM_FUZZ_CC", format!("{clang} {COUNTED_C}")).args(["--bin", "replay"]))?;
        let fuzzer = folder.join("traced").join(&triple).join("release/fuzz");
        let replayer = folder.join("counting").join(&triple).join("debug/replay");
        Ok(Engine { folder, fuzzer, replayer })
    }

    /// The engine around one target.
    pub fn fuzzer(&self, target: &str) -> Command {
        let mut command = Command::new(&self.fuzzer);
        command.env("HPVM_FUZZ_TARGET", target).current_dir(&self.folder);
        command
    }

    /// What has been found to reach more, on this machine.
    pub fn corpus(&self, target: &str) -> PathBuf {
        self.folder.join("corpus").join(target)
    }

    /// Where inputs are kept that did harm.
    pub fn finds(&self, target: &str) -> PathBuf {
        self.folder.join("finds").join(target)
    }

    /// For files that nobody needs afterwards.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// All targets.
    pub fn targets(&self) -> Result<Vec<Target>> {
        let list = output(Command::new(&self.replayer).env("LLVM_PROFILE_FILE", self.folder.join("list.profraw")))?;
        let target = |line: &str| {
            let mut fields = line.split('\t');
            let name = fields.next().unwrap_or_default().to_owned();
            let decoder = fields.filter_map(Source::parse).collect();
            Target { name, decoder, executions: 0, finds: Vec::new(), coverage: Coverage::default() }
        };
        Ok(list.lines().map(target).collect())
    }
}

fn build(folder: &Path, triple: &str, flags: &str) -> Command {
    let mut command = in_engine(cargo());
    command.args(["build", "--quiet", "--target", triple]);
    command.env("CARGO_TARGET_DIR", folder).env("RUSTFLAGS", flags);
    command
}

/// The compiler's name for this kind of machine. With it, what runs while compiling is not traced.
fn host() -> Result<String> {
    let version = compiler()?;
    let line = version.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(line.context("rustc names no host")?.to_owned())
}

/// The version of the compiler's LLVM, without what follows the first point.
pub fn llvm_version() -> Result<String> {
    let version = compiler()?;
    let llvm = version.lines().find_map(|line| line.strip_prefix("LLVM version: "));
    Ok(llvm.and_then(|llvm| llvm.split('.').next()).context("rustc names no LLVM")?.to_owned())
}

/// A program of the LLVM of the compiler's version: what counts runs changes its form with it.
pub fn tool(name: &str) -> Result<String> {
    let major = llvm_version()?;
    let versioned = format!("{name}-{major}");
    ensure!(
        in_path(&versioned),
        "{versioned} is needed: cargo xtask setup fuzz, or the packages llvm-{major} and clang-{major} of apt.llvm.org"
    );
    Ok(versioned)
}

/// What `rustc -vV` says.
fn compiler() -> Result<String> {
    output(Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into())).arg("-vV"))
}
