//! `cargo xtask setup`: installs what a Debian machine lacks. If nothing is missing, the command is fast, and does not
//! call the package manager.
use crate::common::{in_path, output, sh};
use crate::debian_pvm;
use crate::debian_rust::{self, CLIPPY, OTHER_MACHINES, Part, SANITIZERS};
use crate::{build, debian_kernel, debian_slurm, mpi_wheels, python};
use anyhow::{Result, bail, ensure};
use std::collections::HashSet;
use std::path::Path;
use std::process::{Command, Stdio};

/// The packages for building and for the demo. (`dist/bootstrap.sh` installs cargo itself.)
const BUILD: &[&str] = &["gcc", "libc6-dev", "binutils", "make"];

/// Makes a PNG of figures, and the font for it.
const PNG: [&str; 2] = ["librsvg2-bin", "fonts-dejavu-core"];

/// The packages for tests.
const TEST: &[&str] = &[
    // The spelling of the guide.
    "aspell",
    "aspell-en",
    // `cargo xtask monitor`
    "chromium",
    "chromium-driver",
    "python3-selenium",
    "cmake",
    PNG[0],
    PNG[1],
    "g++",
    "gfortran",
    "groff-base",
    "iproute2",
    // For `cargo xtask fabric`, and to compare our declarations with libfabric's.
    "libfabric-dev",
    // Debian's pvmd looks services up.
    "netbase",
    "pkg-config",
    "procps",
    "python3-venv",
    "slsh",
    "strace",
    "tmux",
    // `cargo xtask instructions`
    "valgrind",
    "x11-apps",
    "xvfb",
];

/// The packages for comparisons. Debian's two MPIs coexist; each has commands of its own (`mpicc.openmpi`, ...). Newer
/// MPIs come as Python wheels ([`mpi_wheels`]).
const BENCH: &[&str] = &[PNG[0], PNG[1], "openmpi-bin", "libopenmpi-dev", "mpich", "libmpich-dev", "python3-venv"];

/// The packages for `cargo xtask unlike`: the cross compilers, and the emulators of other machines.
const UNLIKE: &[&str] = &[
    "gcc-aarch64-linux-gnu",
    "gcc-i686-linux-gnu",
    "gcc-s390x-linux-gnu",
    "iproute2",
    "libc6-dev-arm64-cross",
    "libc6-dev-i386-cross",
    "libc6-dev-s390x-cross",
    "qemu-user-static",
];

/// The packages for `cargo xtask wheel`.
const WHEEL: &[&str] = &["python3-venv"];

/// The packages for `cargo xtask packages`.
const PACKAGES: &[&str] = &["debootstrap", "iproute2"];

/// The message before anything is installed.
const TEST_NOTICE: &str = "hpvm: the tests take about 20 minutes on two cores, every test (test-all) 32 minutes, \
3 GB of memory, and 8 or 9.2 GB of disk below target (`make clean` gives it back).\nWhat is missing of Debian's packages is installed now: compilers, also for other \
processors, and small tools.\nDebian's own PVM, with which hpvm is compared, is unpacked below target and not installed.";

/// The words that are used if the command line has none. `fuzz` is not among them: Debian may lack the compiler's LLVM.
const ALL: [&str; 2] = ["test", "bench"];
/// Further words that `setup test` also handles: their packages are installed if they are available.
const TAKEN_IF_THERE: [&str; 4] = ["clippy", "sanitize", "slurm", "unlike"];

/// Packages to install, and packages that are only unpacked.
#[derive(Default)]
struct Wanted {
    packages: Vec<String>,
    parts: Vec<&'static Part>,
    with_pvm: bool,
    with_slurm: bool,
    with_rdma: bool,
}

/// Runs the command: `setup [build|test|clippy|unlike|sanitize|slurm|rdma|bench|packages|wheel|fuzz]...`; without a word, the
/// words are those of [`ALL`].
pub fn run(arguments: &[String]) -> Result<()> {
    let mut words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    if words.is_empty() {
        words.extend(ALL);
    }
    if words.contains(&"test") {
        println!("{TEST_NOTICE}");
    }
    wanted(&words)?.get()?;
    if words.contains(&"bench") {
        if let Err(error) = python::set_up_benchmark() {
            println!("NOT AVAILABLE here: mpi4py and dask; Python will not be measured: {error:#}");
        }
    }
    if words.contains(&"test") {
        take_what_can_be_had();
    }
    if words.contains(&"bench") {
        mpi_wheels::fetch();
    }
    Ok(())
}

/// Installs the packages of all words in [`TAKEN_IF_THERE`] at once, which is fastest. If that fails, installs those of
/// each word by themselves, and prints which are not available.
fn take_what_can_be_had() {
    if wanted(&TAKEN_IF_THERE).and_then(Wanted::get).is_ok() {
        return;
    }
    for word in TAKEN_IF_THERE {
        if let Err(error) = wanted(&[word]).and_then(Wanted::get) {
            println!("NOT AVAILABLE here: `setup {word}`; those tests will be skipped: {error:#}");
        }
    }
}

fn wanted(words: &[&str]) -> Result<Wanted> {
    let mut wanted = Wanted::default();
    wanted.add(BUILD);
    for word in words {
        match *word {
            "build" => {}
            "test" => wanted.add_with_pvm(TEST),
            "bench" => wanted.add_with_pvm(BENCH),
            "packages" => wanted.add_with_pvm(PACKAGES),
            "wheel" => wanted.add(WHEEL),
            "unlike" => {
                wanted.add(UNLIKE);
                wanted.parts.push(&OTHER_MACHINES);
            }
            "slurm" => {
                wanted.add(&["iproute2"]);
                wanted.with_slurm = true;
            }
            "rdma" => {
                wanted.add(debian_kernel::NEEDED);
                wanted.add(&["libfabric-dev"]);
                wanted.with_rdma = true;
            }
            "clippy" => wanted.parts.push(&CLIPPY),
            "sanitize" => wanted.parts.push(&SANITIZERS),
            "fuzz" => {
                wanted.add(&["g++"]);
                wanted.packages.extend(llvm_packages()?);
            }
            other => {
                bail!(
                    "setup knows build, test, clippy, unlike, sanitize, slurm, rdma, bench, packages and fuzz, not {other}"
                )
            }
        }
    }
    Ok(wanted)
}

impl Wanted {
    fn add(&mut self, packages: &[&str]) {
        self.packages.extend(packages.iter().map(|name| name.to_string()));
    }

    /// Adds packages, and Debian's PVM for comparisons.
    fn add_with_pvm(&mut self, packages: &[&str]) {
        self.add(packages);
        self.add(debian_pvm::NEEDED);
        self.with_pvm = true;
    }

    fn get(self) -> Result<()> {
        let mut wanted: Vec<&str> = self.packages.iter().map(String::as_str).collect();
        if !self.parts.is_empty() {
            ensure!(std::env::consts::ARCH == "x86_64", "only for x86-64");
            wanted.extend(debian_rust::PACKAGES);
        }
        wanted.sort_unstable();
        wanted.dedup();
        if !in_path("dpkg-query") || !in_path("apt-get") {
            println!("not a Debian system; needed, by Debian's names: {}", wanted.join(" "));
            return self.unpack();
        }
        let installed = installed()?;
        // If cargo is Debian's, rustfmt must be Debian's, too.
        if installed.contains("cargo-web") && self.with_pvm {
            wanted.push("rustfmt-web");
        }
        let lacking: Vec<&str> = wanted.into_iter().filter(|package| !installed.contains(*package)).collect();
        if !lacking.is_empty() {
            install(&lacking)?;
        }
        self.unpack()
    }

    /// Unpacks the packages that are not installed. If Debian's PVM is not available, the tests that need it will be
    /// skipped.
    fn unpack(&self) -> Result<()> {
        if let Some(error) = self.with_pvm.then(debian_pvm::fetch).and_then(Result::err) {
            println!("NOT AVAILABLE here: Debian's PVM; what is compared with it will be skipped: {error:#}");
        }
        if self.with_slurm {
            debian_slurm::fetch()?;
        }
        if self.with_rdma {
            debian_kernel::fetch()?;
        }
        debian_rust::fetch(&self.parts)
    }
}

/// Returns two packages of Debian: one with the tools that read the compiler's line counts, and one with a C compiler
/// whose line counts have the same format.
fn llvm_packages() -> Result<[String; 2]> {
    let version = build::llvm_version()?;
    Ok([format!("llvm-{version}"), format!("clang-{version}")])
}

/// Returns the names of the installed packages, and the names that they provide: pkgconf provides pkg-config, for
/// example.
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
    let may_become_root = || output(Command::new("sudo").arg("true").stdin(Stdio::inherit())).is_ok();
    if !(root || in_path("sudo") && may_become_root()) {
        bail!("these packages are missing; ask your administrator for: apt-get install {}", packages.join(" "));
    }
    println!("installing {}", packages.join(" "));
    let apt = || {
        let mut command = if root { Command::new("env") } else { Command::new("sudo") };
        if !root {
            command.arg("env");
        }
        command.args(["DEBIAN_FRONTEND=noninteractive", "apt-get", "-qq"]);
        command
    };
    let try_install = || sh(apt().args(["install", "-y", "--no-install-recommends"]).args(packages));
    // A new machine has no list of packages, and an older machine may have an old list.
    let listed = Path::new("/var/lib/apt/lists").read_dir().is_ok_and(|files| files.count() > 3);
    if listed && try_install().is_ok() {
        return Ok(());
    }
    sh(apt().arg("update"))?;
    try_install()
}
