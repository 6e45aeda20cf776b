//! The Python package: `cargo xtask wheel` builds it, and the part "python" of `cargo xtask test` tries it.
use crate::build::{self, build_unless_told, is_newer, place};
use crate::common::{Checks, cargo, dist, in_path, output, root, sh};
use crate::counts::Counts;
use crate::failures;
use crate::{install, packages, portable, scratch};
use anyhow::{Context, Result, bail, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The manifest of the extension, which is a workspace of its own.
pub const MANIFEST: &str = "python/Cargo.toml";
/// The oldest glibc of any wheel of today, 2.17; the wheel needs it at least.
const GLIBC_MIN: u32 = 17;
/// What the package carries of the distribution tree.
const CARRIED: [&str; 4] = ["bin/pvm", "bin/pvmd", "bin/pvmbench", "lib/libpvm3.so.3"];

/// For which systems a wheel is made.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum For {
    /// For systems with this system's glibc or a newer one: made from `target/dist`.
    ThisSystem,
    /// For systems with the glibc of [`portable::GLIBC`], too.
    OlderSystems,
}

const USAGE: &str = "usage: cargo xtask wheel [--portable] [--test [--interpreter PYTHON]] [--as-it-is]";

/// Runs the command.
pub fn run(arguments: &[String]) -> Result<()> {
    let (mut systems, mut is_test, mut interpreter) = (For::ThisSystem, false, None);
    let mut words = arguments.iter().map(String::as_str);
    while let Some(word) = words.next() {
        match word {
            "--portable" => systems = For::OlderSystems,
            "--test" => is_test = true,
            "--interpreter" => interpreter = Some(words.next().context(USAGE)?),
            build::AS_IT_IS => {}
            _ => bail!(USAGE),
        }
    }
    build_unless_told(arguments)?;
    match interpreter {
        _ if !is_test => println!("{}", wheel(systems)?.display()),
        None => tested(systems)?.report()?,
        Some(interpreter) => tested_with(interpreter, &wheel(systems)?)?.report()?,
    }
    Ok(())
}

/// Runs the tests with another Python.
fn tested_with(interpreter: &str, wheel: &Path) -> Result<Counts> {
    let version = output(Command::new(interpreter).args(["-c", "import sys; print(*sys.version_info[:3], sep='.')"]))?;
    let at = folder()?.join(format!("python-{}", version.trim()));
    environment_of(interpreter, &at, &root().join("python/requirements-tests.txt"))?;
    pytest(&at, wheel)
}

/// Runs the tests of the package. `target/dist` must have been built.
pub fn counted(_arguments: &[String]) -> Result<Counts> {
    if !in_path("python3") {
        return Ok(Counts::skip("the Python package: there is no python3"));
    }
    if let Err(error) = tools() {
        return Ok(Counts::skip(format_args!("the Python package: its tools cannot be had: {error:#}")));
    }
    tested(For::ThisSystem)
}

fn tested(systems: For) -> Result<Counts> {
    let wheel = wheel(systems)?;
    let mut checks = Checks::default();
    checks.check("mypy finds nothing in the package", types_are_sound());
    checks.check("the wheel runs on every system of its tag", audit(&wheel));
    checks.check("the wheel alone, in a fresh environment, runs its demo", demo(&wheel));
    let mut counts = checks.counts();
    if systems == For::OlderSystems {
        counts += packages::counted_wheel(&wheel)?;
    }
    Ok(counts + pytest(&tools()?, &wheel)?)
}

const USAGE_INSTALL: &str =
    "usage: cargo xtask install-python DIRECTORY [--rpath DIRECTORY] [--as-it-is | --build-only]";

/// Runs the command: `install-python DIRECTORY [--rpath DIRECTORY]`. With `--build-only` it only builds, and with
/// `--as-it-is` it installs what was built so, without cargo.
pub fn run_install(arguments: &[String]) -> Result<()> {
    let (mut directory, mut rpath, mut builds, mut installs) = (None, "", true, true);
    let mut words = arguments.iter().map(String::as_str);
    while let Some(word) = words.next() {
        match word {
            "--rpath" => rpath = words.next().context(USAGE_INSTALL)?,
            "--build-only" => installs = false,
            build::AS_IT_IS => builds = false,
            word if directory.is_none() => directory = Some(word),
            _ => bail!(USAGE_INSTALL),
        }
    }
    let to = install::allowed_destination(&install::absolute(directory.context(USAGE_INSTALL)?)?)?;
    let extension = if builds { extension(rpath)? } else { built_extension(rpath)? };
    if installs {
        place_sources(&to)?;
        copy(&extension, &to.join("hpvm/_hpvm.abi3.so"), 0o644)?;
        println!("installed to {}", to.display());
    }
    Ok(())
}

/// Installs all of the package but the extension: the Python files, and what names the version to pip.
pub fn place_sources(to: &Path) -> Result<()> {
    for file in build::files_of(&root().join("python/hpvm"))? {
        copy(&file, &to.join("hpvm").join(file.file_name().context("a file")?), 0o644)?;
    }
    let project: toml::Table = toml::from_str(&fs::read_to_string(root().join("python/pyproject.toml"))?)?;
    let text = |key: &str| project["project"][key].as_str().with_context(|| format!("pyproject.toml has no {key}"));
    let (name, version, summary) = (text("name")?, text("version")?, text("description")?);
    let about = to.join(format!("{name}-{version}.dist-info"));
    fs::create_dir_all(&about)?;
    let metadata = format!("Metadata-Version: 2.1\nName: {name}\nVersion: {version}\nSummary: {summary}\n");
    fs::write(about.join("METADATA"), metadata).context("cannot write METADATA")
}

/// Builds the extension with `target/dist`, by cargo alone. It looks for `libpvm3.so.3` in `rpath`, too.
fn extension(rpath: &str) -> Result<PathBuf> {
    let target = folder()?.join("module");
    let mut cargo = cargo();
    cargo.args(["build", "--release", "--locked", "--quiet", "--manifest-path", MANIFEST, "--target-dir"]).arg(&target);
    // An extension is not linked to an interpreter, and the limited interface needs none to be built.
    cargo.env("PYO3_NO_PYTHON", "1").env("PYO3_BUILD_EXTENSION_MODULE", "1");
    sh(cargo.env("HPVM_LIB", dist().join("lib")).env("HPVM_RPATH", rpath))?;
    let extension = target.join("release/lib_hpvm.so");
    fs::create_dir_all(root().join("target"))?;
    fs::write(note(), format!("{rpath}\n{}", extension.display()))?;
    Ok(extension)
}

/// Returns the file that says for which libraries the extension was built last, and where it is.
fn note() -> PathBuf {
    root().join("target/built-python")
}

/// Returns the extension that [`extension`] has built for these libraries from the sources of now.
fn built_extension(rpath: &str) -> Result<PathBuf> {
    let built = fs::read_to_string(note()).unwrap_or_default();
    let extension = built.split_once('\n').filter(|(built_for, _)| *built_for == rpath).map(|(_, path)| path.into());
    let sources = [build::files_of(&root().join("python/src"))?, build::files_of(&root().join("python/src/raw"))?];
    let is_old = sources.iter().flatten().any(|source| is_newer(source, &note()));
    extension.filter(|path: &PathBuf| path.exists() && !is_old).context(
        "the Python package is not built for this PREFIX yet: run make python with the same PREFIX, without sudo, and then \
         this command again",
    )
}

fn folder() -> Result<PathBuf> {
    Ok(build::target_directory()?.join("python"))
}

/// Returns the environment with the tools.
fn tools() -> Result<PathBuf> {
    let tools = folder()?.join("tools");
    environment(&tools, &root().join("python/requirements.txt"))?;
    Ok(tools)
}

/// Makes an environment with the packages of a list, which pip installs when the list has changed. Its programs name its
/// path, so it is made again after the source tree was copied or moved.
pub fn environment(at: &Path, list: &Path) -> Result<()> {
    environment_of("python3", at, list)
}

/// Does the same with that interpreter.
fn environment_of(interpreter: &str, at: &Path, list: &Path) -> Result<()> {
    let done = at.join("installed");
    let is_moved = fs::read_to_string(&done).is_ok_and(|made_at| Path::new(&made_at) != at);
    if is_newer(list, &done) || is_moved {
        output(Command::new(interpreter).args(["-m", "venv", "--clear"]).arg(at))?;
        pip(at).map(|mut pip| output(pip.args(["install", "--requirement"]).arg(list)))??;
        fs::write(&done, at.as_os_str().as_encoded_bytes())?;
    }
    Ok(())
}

/// The environments in which `cargo xtask bench` measures Python, one for each MPI.
const BENCHMARK_ENVIRONMENTS: [&str; 2] = ["openmpi", "mpich"];

/// Returns one of the environments for the benchmark.
pub fn benchmark_environment(name: &str) -> PathBuf {
    root().join("target/bench/python").join(name)
}

/// Makes the environments for the benchmark.
pub fn set_up_benchmark() -> Result<()> {
    BENCHMARK_ENVIRONMENTS.iter().try_for_each(|name| {
        environment(&benchmark_environment(name), &root().join("bench/python").join(format!("{name}.txt")))
    })
}

/// Installs the wheel, in place of an earlier one.
pub fn install(environment: &Path, wheel: &Path) -> Result<()> {
    sh(pip(environment)?.args(["install", "--no-index", "--no-deps", "--force-reinstall"]).arg(wheel))
}

fn pip(environment: &Path) -> Result<Command> {
    let mut pip = python(environment);
    pip.args(["-m", "pip", "--quiet", "--disable-pip-version-check"]);
    Ok(pip)
}

/// Returns the environment's Python, without what the caller's environment says about Python and PVM.
fn python(environment: &Path) -> Command {
    let mut command = Command::new(environment.join("bin/python"));
    for name in ["PYTHONPATH", "PYTHONHOME", "LD_LIBRARY_PATH", "PVMSOCK", "PVM_ROOT", "PVM_VMID", "PVMEPID"] {
        command.env_remove(name);
    }
    command
}

/// Checks the annotations. Type checkers use them for programs of users.
fn types_are_sound() -> Result<()> {
    let mypy = tools()?.join("bin/mypy");
    if !mypy.exists() {
        println!("mypy needs Python 3.10: not run");
        return Ok(());
    }
    let mut mypy = Command::new(mypy);
    mypy.arg("--cache-dir").arg(folder()?.join("mypy")).arg("hpvm").current_dir(root().join("python"));
    let done = mypy.output().context("cannot start mypy")?;
    ensure!(done.status.success(), "{}", String::from_utf8_lossy(&done.stdout));
    Ok(())
}

/// Builds the wheel from `python` and the programs for these systems. Returns its path.
pub fn wheel(systems: For) -> Result<PathBuf> {
    let (tools, folder) = (tools()?, folder()?);
    let carried = match systems {
        For::ThisSystem => dist(),
        For::OlderSystems => portable::tree(&dist())?,
    };
    let (stage, wheels) = (folder.join("stage"), folder.join("wheels"));
    // Files that are no longer in the source must not be in the wheel.
    for old in [stage.join("hpvm"), wheels.clone()] {
        if old.exists() {
            fs::remove_dir_all(&old)?;
        }
    }
    for name in ["Cargo.toml", "Cargo.lock", "build.rs", "pyproject.toml", "README.md"] {
        copy(&root().join("python").join(name), &stage.join(name), 0o644)?;
    }
    for directory in ["src", "src/raw", "hpvm"] {
        for file in build::files_of(&root().join("python").join(directory))? {
            copy(&file, &stage.join(directory).join(file.file_name().context("a file")?), 0o644)?;
        }
    }
    for name in CARRIED {
        copy(&carried.join(name), &stage.join("hpvm").join(name), 0o755)?;
    }
    for header in build::files_of(&dist().join("include"))? {
        copy(&header, &stage.join("hpvm/include").join(header.file_name().context("a file")?), 0o644)?;
    }
    packages::notices::write(&stage.join("hpvm/THIRD-PARTY-LICENSES.txt"))?;
    let mut maturin = Command::new(tools.join("bin/maturin"));
    maturin.args(["build", "--release", "--locked", "--quiet", "--auditwheel", "skip"]);
    let platform = match systems {
        For::ThisSystem => platform(&carried)?,
        For::OlderSystems => {
            maturin.args(["--zig", "--target", portable::TARGET]).env("PATH", portable::path()?);
            format!("manylinux_{}", portable::GLIBC.replace('.', "_"))
        }
    };
    maturin.args(["--compatibility", &platform, "--manifest-path"]).arg(stage.join("Cargo.toml"));
    maturin.arg("--target-dir").arg(folder.join("build")).arg("--out").arg(&wheels);
    maturin.arg("--interpreter").arg(tools.join("bin/python"));
    output(maturin.env("HPVM_LIB", stage.join("hpvm/lib")))?;
    build::files_of(&wheels)?.into_iter().next().context("maturin has made no wheel")
}

/// Returns the platform tag of the wheel: the newest version of glibc whose symbols the programs use.
fn platform(tree: &Path) -> Result<String> {
    let mut newest = GLIBC_MIN;
    for name in CARRIED {
        let symbols = output(Command::new("objdump").arg("-T").arg(tree.join(name)))?;
        newest = glibc_minors(&symbols).fold(newest, u32::max);
    }
    Ok(format!("manylinux_2_{newest}"))
}

/// Returns the second numbers of all versions `GLIBC_2.N` in a text.
fn glibc_minors(text: &str) -> impl Iterator<Item = u32> {
    let digits = |rest: &str| rest.chars().take_while(char::is_ascii_digit).collect::<String>().parse().ok();
    text.split("GLIBC_2.").skip(1).filter_map(digits)
}

/// Copies a file if it has changed, so that cargo compiles only what is new.
fn copy(from: &Path, to: &Path, mode: u32) -> Result<()> {
    if fs::read(to).is_ok_and(|there| fs::read(from).is_ok_and(|new| new == there)) {
        return Ok(());
    }
    fs::create_dir_all(to.parent().context("a file lies in a directory")?)?;
    place(from, to, mode)
}

/// Checks by the versions of the symbols that the wheel's tag is true.
fn audit(wheel: &Path) -> Result<()> {
    let said = output(python(&tools()?).args(["-m", "auditwheel", "show"]).arg(wheel))?;
    let words = said.split_whitespace().collect::<Vec<_>>().join(" ");
    // The name ends in the tag, such as manylinux_2_28_x86_64.
    let name = wheel.file_stem().unwrap_or_default().to_string_lossy();
    let tag = name.rsplit('-').next().context("a wheel has a tag")?;
    let glibc = |tag: &str| tag.split('_').nth(2).and_then(|minor| minor.parse::<u32>().ok());
    let found = words.split("platform tag: \"").nth(1).and_then(glibc);
    ensure!(found.is_some() && found <= glibc(tag), "{tag}: {said}");
    Ok(())
}

/// Installs the wheel, and nothing else, in a new environment and runs the demo there.
fn demo(wheel: &Path) -> Result<()> {
    let directory = scratch::directory("wheel")?;
    let environment = directory.path().join("environment");
    output(Command::new("python3").args(["-m", "venv"]).arg(&environment))?;
    output(pip(&environment)?.args(["install", "--no-index"]).arg(wheel))?;
    runs_demo(python(&environment).args(["-m", "hpvm.demo"]), directory.path())
}

/// Runs the demo by a command, with a machine in the directory `home`, and checks what it says.
pub fn runs_demo(demo: &mut Command, home: &Path) -> Result<()> {
    let said = output(demo.current_dir(home).env("PVM_TMP", home).env("PVM_ALLOW_ROOT", "1"))?;
    ensure!(said.contains("400 results, workers lost: 1") && said.contains("pi = 3.141593"), "{said}");
    Ok(())
}

/// Runs pytest with the installed wheel, and counts its tests.
fn pytest(environment: &Path, wheel: &Path) -> Result<Counts> {
    install(environment, wheel)?;
    let mut command = python(environment);
    // Neither pytest (as a module) nor a task may find the source of the package in its directory: that has no extension.
    command.arg(environment.join("bin/pytest")).args(["-q", "--tb=short", "-p", "no:cacheprovider", "."]);
    let done = command.current_dir(root().join("python/tests")).output()?;
    let said = String::from_utf8_lossy(&done.stdout);
    let last = said.lines().rev().find(|line| line.contains(" in ")).unwrap_or_default();
    let counts = summary(last);
    if !done.status.success() || counts.passed == 0 {
        failures::report(format_args!("{said}{}", String::from_utf8_lossy(&done.stderr)));
        if counts.failed == 0 {
            bail!("pytest ended with {}", done.status);
        }
    }
    Ok(counts)
}

/// Returns the counts of pytest's last line, `2 failed, 44 passed, 1 skipped in 21.87s`. An error counts as a failure.
fn summary(line: &str) -> Counts {
    let words: Vec<&str> = line.split([' ', ',']).collect();
    let number = |word: &str| {
        let at = words.iter().position(|one| *one == word).filter(|at| *at > 0);
        at.and_then(|at| words[at - 1].parse().ok()).unwrap_or(0)
    };
    let failed = number("failed") + number("error") + number("errors");
    Counts { passed: number("passed"), failed, skipped: number("skipped") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_environment_that_was_moved_is_made_again() {
        if output(Command::new("python3").args(["-c", "import ensurepip"])).is_err() {
            println!("skipped: python3-venv is not installed");
            return;
        }
        let place = scratch::directory("environment").unwrap();
        let (list, first, second) =
            (place.path().join("list"), place.path().join("first"), place.path().join("second"));
        fs::write(&list, "").unwrap();
        environment(&first, &list).unwrap();
        fs::rename(&first, &second).unwrap();
        environment(&second, &list).unwrap();
        let pip = fs::read_to_string(second.join("bin/pip")).unwrap();
        assert!(pip.lines().next().unwrap().contains("second"), "{pip}");
    }

    #[test]
    fn the_last_line_of_pytest_is_understood() {
        assert_eq!(summary("2 failed, 44 passed in 21.87s"), Counts { passed: 44, failed: 2, skipped: 0 });
        assert_eq!(summary("3 passed, 1 skipped, 1 error in 1s"), Counts { passed: 3, failed: 1, skipped: 1 });
        assert_eq!(summary(""), Counts::default());
    }
}
