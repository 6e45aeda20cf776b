//! `cargo xtask old-makefiles`: checks that makefiles for PVM 3.4 work with an installed tree. `aimk` builds a small
//! project, and builds Debian's pvm-examples with their own makefiles. The programs and the Fortran example of hpvm are
//! run, too.
use crate::build::{CLASSIC_ROOT, build_unless_told};
use crate::common::{Checks, dist, in_path, output, root};
use crate::counts::Counts;
use crate::debian_pvm;
use crate::elf;
use crate::install::copy_tree;
use crate::machine::Machine;
use crate::scratch;
use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// How long a program may run, in seconds.
const RUN_SECONDS_MAX: &str = "30";

/// An example: its input, a text in its output, and how often that text must occur.
struct Example {
    name: &'static str,
    input: &'static str,
    says: &'static str,
    times: usize,
}

/// The Fortran examples that end by themselves.
const FORTRAN_EXAMPLES: &[Example] = &[
    Example { name: "fmaster1", input: "", says: "I got", times: 3 },
    Example { name: "fspmd", input: "", says: "token ring done", times: 1 },
    Example { name: "fgexample", input: "", says: "1-Norm is         5050", times: 1 },
    // Its other test adds to a variable that it never sets.
    Example { name: "frsg", input: "4\n5\n", says: "Test Ok", times: 1 },
    Example { name: "hitc", input: "", says: "Program Finished", times: 1 },
];

/// Runs the command.
pub fn run(arguments: &[String]) -> Result<()> {
    build_unless_told(arguments)?;
    counted(arguments)?.report()
}

/// Runs the command as a part of `cargo xtask test`.
pub fn counted(_arguments: &[String]) -> Result<Counts> {
    let mut checks = Checks::default();
    if !in_path("gfortran") {
        checks.check("old makefiles", Err(anyhow::anyhow!("gfortran is missing: cargo xtask setup test")));
        return Ok(checks.counts());
    }
    let place = scratch::directory("installed")?;
    let prefix = place.path().join("prefix");
    copy_tree(&dist(), &prefix)?;
    let machine = Machine::start_installed(&prefix, "old-makefiles")?;
    let architecture = output(&mut Command::new(prefix.join("bin/pvmgetarch")))?.trim().to_owned();
    let installed = Installed { root: prefix.join(CLASSIC_ROOT), architecture, machine };
    checks.check("a project with a Makefile.aimk", project(&installed));
    let examples = ["examples", "gexamples"].map(|name| (name, unpack(&installed, name)));
    for (name, unpacked) in examples {
        let built = unpacked.and_then(|directory| {
            // The Fortran compiler may not have the name that make assumes, and newer compilers accept such old C only
            // with these options.
            installed.aimk(&directory, &["FC=gfortran", "CFLOPTS=-g -w -std=gnu89", "all"])
        });
        checks.check(&format!("{name} of pvm-examples, by their makefile"), built);
    }
    for example in FORTRAN_EXAMPLES {
        checks.check(&format!("{} of pvm-examples, from its source", example.name), runs(&installed, example));
    }
    checks.check("the example in Fortran", example_in_fortran(&installed, &prefix));
    Ok(checks.counts())
}

/// An installed tree and its machine.
struct Installed {
    root: PathBuf,
    architecture: String,
    machine: Machine,
}

impl Installed {
    /// Returns a command without a library path in its environment: programs built by old makefiles need none.
    fn command(&self, program: &Path) -> Command {
        let mut command = self.machine.command(Path::new("timeout"));
        command.arg(RUN_SECONDS_MAX).arg(program).env_remove("LD_LIBRARY_PATH").stdin(Stdio::null());
        command
    }

    /// Runs `aimk` in a directory, as a user who has set nothing but the path.
    fn aimk(&self, directory: &Path, arguments: &[&str]) -> Result<()> {
        let mut aimk = self.command(&self.root.join("lib/aimk"));
        let variables = ["PVM_ARCH", "MAKEFLAGS", "MFLAGS", "FC", "F77", "CC", "CFLAGS"];
        variables.iter().for_each(|name| {
            aimk.env_remove(name);
        });
        output(aimk.current_dir(directory).args(arguments)).map(drop)
    }

    /// Returns the output of a program.
    fn output(&self, program: &Path, input: &str) -> Result<String> {
        let typed = self.machine.directory().join("input");
        fs::write(&typed, input)?;
        output(self.command(program).stdin(fs::File::open(&typed)?))
    }
}

/// Checks a project that installs its programs in the user's directory and in the directory of the installation.
fn project(installed: &Installed) -> Result<()> {
    let directory = installed.machine.directory().join("project");
    copy_tree(&root().join("tests/old-makefile"), &directory)?;
    installed.aimk(&directory, &[])?;
    let program = directory.join(&installed.architecture).join("old_parent");
    let needed = elf::needed(&program)?;
    ensure!(
        !needed.iter().any(|name| name.starts_with("libpvm3")),
        "the program needs a shared library that it would not find"
    );
    let said = installed.output(&program, "")?;
    ensure!(said == "C doubles 21: 42\nFortran triples 14: 42\n", "it says {said:?}");
    Ok(())
}

/// Unpacks sources below the root of the installation, where their makefiles expect to be.
fn unpack(installed: &Installed, name: &str) -> Result<PathBuf> {
    let archive = debian_pvm::usr().join(format!("share/doc/pvm-examples/{name}.tar.gz"));
    ensure!(archive.is_file(), "{} is missing: cargo xtask setup test", archive.display());
    output(Command::new("tar").arg("-xzf").arg(&archive).arg("-C").arg(&installed.root))?;
    let directory = installed.root.join(name);
    // The archives contain programs that were compiled on another machine. They are removed, so that the makefiles
    // compile the programs here.
    let stale = directory.join(&installed.architecture);
    if stale.is_dir() {
        fs::remove_dir_all(&stale).with_context(|| format!("cannot remove {}", stale.display()))?;
    }
    Ok(directory)
}

/// Checks that the example computes the same with one task and with several.
fn example_in_fortran(installed: &Installed, prefix: &Path) -> Result<()> {
    let directory = installed.machine.directory().join("own-examples");
    copy_tree(&root().join("examples"), &directory)?;
    let found = format!("PKG_CONFIG_PATH={}", prefix.join("lib/pkgconfig").display());
    output(installed.command(Path::new("make")).current_dir(&directory).arg(found).args(["--always-make", "fortran"]))?;
    let mut heard = Vec::new();
    for tasks in ["1", "2", "5"] {
        let said = output(installed.command(&directory.join("fortran/heat")).args([tasks, "60"]))?;
        let start = format!("heat: {tasks} tasks, ");
        heard.push(said.strip_prefix(&start).with_context(|| format!("it says {said:?}"))?.to_owned());
    }
    ensure!(heard.windows(2).all(|pair| pair[0] == pair[1]), "the numbers differ: {heard:?}");
    Ok(())
}

fn runs(installed: &Installed, example: &Example) -> Result<()> {
    let program = installed.root.join("bin").join(&installed.architecture).join(example.name);
    let said = installed.output(&program, example.input)?;
    let times = said.matches(example.says).count();
    ensure!(times == example.times, "says {:?} {times} times and not {}:\n{said}", example.says, example.times);
    Ok(())
}
