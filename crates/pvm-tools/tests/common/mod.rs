//! Makes a separate virtual machine for each test, and runs consoles on it.
#![allow(dead_code)] // each test program uses some of it
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The longest time that one step of these tests may take.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// The pause after each line of a script, in which the console executes the line.
const LINE_PAUSE: Duration = Duration::from_millis(20);

/// Returns the directory where `cargo xtask setup test` has unpacked Debian's PVM.
pub fn debian_pvm() -> PathBuf {
    std::env::current_dir().unwrap().join("../../target/debian-pvm/usr")
}

/// Returns the directory of the programs that are built for this test.
fn profile() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    test.parent().and_then(Path::parent).unwrap().to_owned()
}

/// Copies a program by another process. A process that this one starts meanwhile would keep a descriptor for writing, and
/// a program that is open for writing cannot be started.
pub fn copy_program(from: &Path, to: &Path) {
    assert!(Command::new("cp").args([from, to]).status().unwrap().success());
}

/// Returns the path of the console under test; builds its daemon into the same directory.
pub fn pvm() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        build("pvmd");
        profile().join("pvm")
    })
}

/// Builds a package of this workspace into the directory of the console under test. Returns the directory.
pub fn build(package: &str) -> PathBuf {
    let profile = profile();
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--quiet", "--package", package, "--target-dir"]).arg(profile.parent().unwrap());
    if profile.ends_with("release") {
        cargo.arg("--release");
    }
    // With these variables of the running test, cargo would compile some dependencies anew.
    let of_test = |name: &str| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_");
    std::env::vars().filter(|(name, _)| of_test(name)).for_each(|(name, _)| {
        cargo.env_remove(name);
    });
    assert!(cargo.status().unwrap().success(), "{package} does not build");
    profile
}

/// A temporary directory for a machine, with a home directory; dropping the value halts the machine and removes the
/// directory.
pub struct Sandbox {
    program: PathBuf,
    directory: TempDir,
}

impl Sandbox {
    /// Makes a sandbox for the console under test.
    pub fn new() -> Sandbox {
        Sandbox::of(pvm())
    }

    /// Makes a sandbox for this console.
    pub fn of(program: &Path) -> Sandbox {
        let directory = tempfile::Builder::new().prefix("pvm-tools-").tempdir().unwrap();
        std::fs::create_dir(directory.path().join("home")).unwrap();
        Sandbox { program: program.into(), directory }
    }

    /// Makes a sandbox for Debian's console, if that is installed. That console always starts `/usr/bin/pvmd`, which
    /// must be installed.
    pub fn of_debian() -> Option<Sandbox> {
        let program = debian_pvm().join("bin/pvm");
        let is_there = program.exists() && Path::new("/usr/bin/pvmd").exists();
        if !is_there {
            eprintln!("skipped: Debian's console is not installed");
        }
        is_there.then(|| Sandbox::of(&program))
    }

    /// Returns the directory.
    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Returns a command that runs the console in this sandbox.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(arguments).env("PVM_TMP", self.path()).env("HOME", self.path().join("home"));
        command.env("PVM_ALLOW_ROOT", "1").current_dir(self.path());
        for name in
            ["PVM_VMID", "PVM_ROOT", "PVMSOCK", "XDG_RUNTIME_DIR", "PVM_EXPORT", "PVMHOSTFILE", "SLURM_JOB_NODELIST"]
        {
            command.env_remove(name);
        }
        if self.program.starts_with(debian_pvm()) {
            command.env("PVM_ROOT", debian_pvm().join("lib/pvm3"));
            let folders = std::fs::read_dir(debian_pvm().join("lib")).unwrap().flatten();
            let libraries = folders.map(|entry| entry.path()).find(|path| path.join("libpvm3.so.3").exists());
            command.env("LD_LIBRARY_PATH", libraries.unwrap());
        }
        // No test may contact another host.
        let shell = self.path().join("rsh");
        command.env("PVM_RSH", if shell.exists() { shell } else { "/bin/false".into() });
        command
    }

    /// Writes a program that replaces the remote shell, and returns its path. Each host is a directory in this sandbox;
    /// the programs of the host receive its name in `HOSTNAME`.
    pub fn remote_shell(&self) -> String {
        let here = self.path().display();
        self.program(
            "rsh",
            &format!(
                "host=$1; shift; [ \"$1\" = -l ] && shift 2; echo \"$host $*\" >>{here}/started\n\
                 mkdir -p {here}/$host; export PVM_TMP={here}/$host HOSTNAME=$host\n\
                 unset SLURM_JOB_NODELIST HPVM_HALT_GRACE\n\
                 exec sh -c \"$*\""
            ),
        )
    }

    /// Returns the calls of the remote shell, one per line: the host, then the command.
    pub fn started(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.path().join("started")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// Returns whether a daemon runs on this host, one of those that the remote shell simulates.
    pub fn has_daemon_on(&self, host: &str) -> bool {
        let names = std::fs::read_dir(self.path().join(host)).into_iter().flatten();
        names.filter_map(Result::ok).any(|entry| entry.file_name().to_string_lossy().starts_with("pvmd."))
    }

    /// Runs a command to its end.
    pub fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).stdin(Stdio::null()).output().unwrap()
    }

    /// Starts a console with a pipe for its input.
    pub fn console(&self, arguments: &[&str]) -> Console {
        let mut command = self.command(arguments);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let (output, printed) = (child.stdout.take().unwrap(), Arc::<Mutex<Vec<u8>>>::default());
        let reader = std::thread::spawn({
            let printed = printed.clone();
            move || keep(output, &printed)
        });
        Console { child, printed, reader }
    }

    /// Runs a script through the console.
    pub fn script(&self, lines: &str) -> Output {
        let mut console = self.console(&[]);
        console.write(lines);
        console.end()
    }

    /// Runs a script line by line: after some errors Debian's console drops the lines that it has already read.
    pub fn script_slowly(&self, lines: &str) -> Output {
        let mut console = self.console(&[]);
        for line in lines.lines() {
            console.write(&format!("{line}\n"));
            std::thread::sleep(LINE_PAUSE);
        }
        console.end()
    }

    /// Writes an executable shell script. Returns its path.
    pub fn program(&self, name: &str, text: &str) -> String {
        use std::os::unix::fs::PermissionsExt;
        let (draft, path) = (self.path().join(format!("{name}.draft")), self.path().join(name));
        std::fs::write(&draft, format!("#!/bin/sh\n{text}\n")).unwrap();
        std::fs::set_permissions(&draft, std::fs::Permissions::from_mode(0o755)).unwrap();
        copy_program(&draft, &path);
        std::fs::remove_file(draft).unwrap();
        path.to_str().unwrap().to_owned()
    }

    /// Returns whether a daemon runs in this sandbox.
    pub fn has_daemon(&self) -> bool {
        let names = std::fs::read_dir(self.path()).unwrap();
        names.filter_map(Result::ok).any(|entry| entry.file_name().to_string_lossy().starts_with("pvmd."))
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        if self.has_daemon() {
            let mut halt = self.command(&[]);
            let halt = halt.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
            if let Ok(mut halt) = halt {
                let _ = halt.stdin.take().unwrap().write_all(b"halt\n");
                let _ = halt.wait();
            }
            wait_until(|| !self.has_daemon());
        }
    }
}

/// Waits until the condition is true. Returns whether it became true in time.
pub fn wait_until(mut condition: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + PATIENCE;
    while Instant::now() < end {
        if condition() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    false
}

/// Collects the output of a console until its end.
fn keep(mut output: ChildStdout, printed: &Mutex<Vec<u8>>) {
    let mut bytes = [0; 4096];
    while let Ok(count @ 1..) = output.read(&mut bytes) {
        printed.lock().unwrap().extend_from_slice(&bytes[..count]);
    }
}

/// A running console.
pub struct Console {
    child: Child,
    printed: Arc<Mutex<Vec<u8>>>,
    reader: JoinHandle<()>,
}

impl Console {
    /// Writes to the console's input.
    pub fn write(&mut self, text: &str) {
        self.child.stdin.as_mut().unwrap().write_all(text.as_bytes()).unwrap();
    }

    /// Waits until the console has printed a text.
    pub fn expect(&self, text: &str) {
        let printed = || String::from_utf8_lossy(&self.printed.lock().unwrap()).into_owned();
        assert!(wait_until(|| printed().contains(text)), "no {text:?} in {:?}", printed());
    }

    /// Closes the console's input and returns its output.
    pub fn end(mut self) -> Output {
        drop(self.child.stdin.take());
        let mut output = self.child.wait_with_output().unwrap();
        self.reader.join().unwrap();
        output.stdout = std::mem::take(&mut self.printed.lock().unwrap());
        output
    }

    /// Returns the console's process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }
}

/// Returns standard output as text.
pub fn out(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// Returns standard error as text.
pub fn err(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}
