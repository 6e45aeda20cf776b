//! Builds the engine twice: once with libFuzzer and AddressSanitizer, once to count lines.
use super::coverage::{Coverage, Source};
use super::{Target, in_engine};
use crate::build::{compiler, llvm_version, target_directory};
use crate::common::{cargo, in_path, output, sh};
use anyhow::{Context, Result, ensure};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The compiler's flags to record coverage and comparisons; the engine uses these records to choose inputs.
const TRACED: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares -Cllvm-args=-sanitizer-coverage-stack-depth";
/// The corresponding flags for C code, and AddressSanitizer.
const TRACED_C: &str = "-fsanitize=address -fsanitize-coverage=inline-8bit-counters,pc-table,trace-cmp";
/// The C compiler's flags to count lines.
const COUNTED_C: &str = "-fprofile-instr-generate -fcoverage-mapping";
/// The flag for both builds.
const FUZZING: &str = "--cfg fuzzing";

/// The built programs.
pub struct Engine {
    folder: PathBuf,
    fuzzer: PathBuf,
    /// The program that passes files to targets and counts lines.
    pub replayer: PathBuf,
}

impl Engine {
    /// Builds both programs. The sanitizers are an unstable feature of the compiler, so an environment variable must
    /// allow them.
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

    /// Returns a command that runs the engine on one target.
    pub fn fuzzer(&self, target: &str) -> Command {
        let mut command = Command::new(&self.fuzzer);
        command.env("HPVM_FUZZ_TARGET", target).current_dir(&self.folder);
        command
    }

    /// Returns the folder of inputs that the engine has found on this machine.
    pub fn corpus(&self, target: &str) -> PathBuf {
        self.folder.join("corpus").join(target)
    }

    /// Returns the folder of inputs that made a target fail.
    pub fn finds(&self, target: &str) -> PathBuf {
        self.folder.join("finds").join(target)
    }

    /// Returns a folder for temporary files.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns all targets.
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

/// Returns the target triple of this machine. If this triple is passed to cargo as the target, cargo does not
/// instrument code that runs during the build.
fn host() -> Result<String> {
    let version = compiler()?;
    let line = version.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(line.context("rustc names no host")?.to_owned())
}

/// Returns the program name of an LLVM tool, with the version of the compiler's LLVM: the format of line counts depends
/// on the version.
pub fn tool(name: &str) -> Result<String> {
    let major = llvm_version()?;
    let versioned = format!("{name}-{major}");
    ensure!(
        in_path(&versioned),
        "{versioned} is needed: cargo xtask setup fuzz, or the packages llvm-{major} and clang-{major} of apt.llvm.org"
    );
    Ok(versioned)
}
