//! `cargo xtask setup`: installs what a Debian machine lacks. Quick, and without the package
//! manager, when nothing is lacking.
use crate::common::{in_path, output, sh};
use crate::unlike;
use anyhow::{Result, bail};
use std::collections::HashSet;
use std::path::Path;
use std::process::Command;

/// To build and to run the demo. (Cargo itself comes from `dist/bootstrap.sh`.)
const BUILD: &[&str] = &["gcc", "libc6-dev", "binutils", "make"];

/// To test: Debian's PVM and programs that use it are what hpvm is compared with.
const TEST: &[&str] = &[
    "cmake",
    "g++",
    "gfortran",
    "groff-base",
    "iproute2",
    "libpvm3",
    "netpipe-pvm",
    "pkg-config",
    "procps",
    "pvm",
    "pvm-dev",
    "pvm-examples",
    "slang-pvm",
    "slsh",
    "strace",
    "tablix2",
    "tmux",
    "x11-apps",
    "xvfb",
];

/// To compare speeds. The two MPIs coexist; each has commands of its own (`mpicc.openmpi`, ...).
const BENCH: &[&str] = &["netpipe-pvm", "pvm", "pvm-dev", "openmpi-bin", "libopenmpi-dev", "mpich", "libmpich-dev"];

/// Runs the command: `setup [build|test|unlike|bench|fuzz]...`; without a word, all but what fuzzing needs.
pub fn run(arguments: &[String]) -> Result<()> {
    let mut wanted: Vec<&str> = BUILD.to_vec();
    let fuzzes = arguments.iter().any(|argument| argument == "fuzz");
    let llvm = if fuzzes { crate::fuzz::llvm_packages()? } else { Default::default() };
    if arguments.is_empty() {
        wanted.extend(TEST.iter().chain(unlike::tools::PACKAGES).chain(BENCH));
    }
    for argument in arguments {
        match argument.as_str() {
            "build" => {}
            "test" => wanted.extend(TEST),
            "bench" => wanted.extend(BENCH),
            "unlike" => wanted.extend(unlike::tools::PACKAGES),
            "fuzz" => wanted.extend(["g++"].into_iter().chain(llvm.iter().map(String::as_str))),
            other => bail!("setup knows build, test, unlike, bench and fuzz, not {other}"),
        }
    }
    let wants_unlike = unlike::tools::PACKAGES.iter().all(|package| wanted.contains(package));
    wanted.sort_unstable();
    wanted.dedup();
    if !in_path("dpkg-query") || !in_path("apt-get") {
        println!("not a Debian system; needed, by Debian's names: {}", wanted.join(" "));
        return Ok(());
    }
    let installed = installed()?;
    // Where cargo is Debian's, its companions are Debian's too.
    if installed.contains("cargo-web") && wanted.contains(&"pvm-examples") {
        wanted.extend(["rust-web-clippy", "rustfmt-web"]);
    }
    let lacking: Vec<&str> = wanted.into_iter().filter(|package| !installed.contains(*package)).collect();
    if !lacking.is_empty() {
        println!("installing {}", lacking.join(" "));
        install(&lacking)?;
    }
    if wants_unlike { unlike::tools::fetch() } else { Ok(()) }
}

/// The packages that are installed, and what they stand in for (pkgconf for pkg-config).
fn installed() -> Result<HashSet<String>> {
    let list = output(
        Command::new("dpkg-query").args(["--show", "--showformat=${Package} ${db:Status-Status} ${Provides}\n"]),
    )?;
    let mut names = HashSet::new();
    for line in list.lines() {
        let mut words = line.split([' ', ',']).filter(|word| !word.is_empty());
        if let (Some(package), Some("installed")) = (words.next(), words.next()) {
            names.insert(package.to_owned());
            names.extend(words.map(str::to_owned));
        }
    }
    Ok(names)
}

fn install(packages: &[&str]) -> Result<()> {
    let root = output(Command::new("id").arg("-u"))?.trim() == "0";
    if !root && !in_path("sudo") {
        bail!("as root, please run: apt-get install {}", packages.join(" "));
    }
    let apt = || {
        let mut command = if root { Command::new("env") } else { Command::new("sudo") };
        if !root {
            command.arg("env");
        }
        command.args(["DEBIAN_FRONTEND=noninteractive", "apt-get", "-qq"]);
        command
    };
    let try_install = || sh(apt().args(["install", "-y", "--no-install-recommends"]).args(packages));
    // A fresh machine has no list of packages, another one may have an old list.
    let listed = Path::new("/var/lib/apt/lists").read_dir().is_ok_and(|files| files.count() > 3);
    if listed && try_install().is_ok() {
        return Ok(());
    }
    sh(apt().arg("update"))?;
    try_install()
}
