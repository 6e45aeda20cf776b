//! A virtual machine of its own for each test, and consoles on it.
#![allow(dead_code)] // each test program uses its part
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Debian's PVM, where `cargo xtask setup test` has unpacked it.
pub const DEBIAN_PVM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/debian-pvm/usr");
/// How long anything in these tests may take.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Time for a console to do what a line says.
const LINE_PAUSE: Duration = Duration::from_millis(20);

/// The console under test; its daemon is built beside it.
pub fn pvm() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let pvm = PathBuf::from(env!("CARGO_BIN_EXE_pvm"));
        let profile = pvm.parent().unwrap();
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "--quiet", "--package", "pvmd", "--target-dir"]).arg(profile.parent().unwrap());
        if profile.ends_with("release") {
            cargo.arg("--release");
        }
        assert!(cargo.status().unwrap().success(), "pvmd does not build");
        pvm
    })
}

/// An own temporary directory, home and daemon; all of it goes with the value.
pub struct Nest {
    program: PathBuf,
    pub directory: PathBuf,
}

impl Nest {
    /// For the console under test.
    pub fn new() -> Nest {
        Nest::of(pvm())
    }

    /// For that console.
    pub fn of(program: &Path) -> Nest {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("pvm-tools-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let directory = std::env::temp_dir().join(name);
        std::fs::create_dir_all(directory.join("home")).unwrap();
        Nest { program: program.into(), directory }
    }

    /// For Debian's console, if it is there. It starts `/usr/bin/pvmd` and no other, so that has to be installed.
    pub fn of_debian() -> Option<Nest> {
        let program = Path::new(DEBIAN_PVM).join("bin/pvm");
        let is_there = program.exists() && Path::new("/usr/bin/pvmd").exists();
        if !is_there {
            eprintln!("skipped: Debian's console is not installed");
        }
        is_there.then(|| Nest::of(&program))
    }

    /// A command that runs the console here.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(arguments).env("PVM_TMP", &self.directory).env("HOME", self.directory.join("home"));
        command.env("PVM_ALLOW_ROOT", "1").current_dir(&self.directory);
        for name in
            ["PVM_VMID", "PVM_ROOT", "PVMSOCK", "XDG_RUNTIME_DIR", "PVM_EXPORT", "PVMHOSTFILE", "SLURM_JOB_NODELIST"]
        {
            command.env_remove(name);
        }
        if self.program.starts_with(DEBIAN_PVM) {
            command.env("PVM_ROOT", Path::new(DEBIAN_PVM).join("lib/pvm3"));
            let folders = std::fs::read_dir(Path::new(DEBIAN_PVM).join("lib")).unwrap().flatten();
            let libraries = folders.map(|entry| entry.path()).find(|path| path.join("libpvm3.so.3").exists());
            command.env("LD_LIBRARY_PATH", libraries.unwrap());
        }
        // Nobody is to be called in earnest.
        let shell = self.directory.join("rsh");
        command.env("PVM_RSH", if shell.exists() { shell } else { "/bin/false".into() });
        command
    }

    /// Makes a program that stands for a remote shell: each host is a directory here, and its name a
    /// variable of what runs there. Gives its path.
    pub fn remote_shell(&self) -> String {
        let here = self.directory.display();
        self.program(
            "rsh",
            &format!(
                "host=$1; shift; [ \"$1\" = -l ] && shift 2; echo \"$host $*\" >>{here}/started\n\
                 mkdir -p {here}/$host; export PVM_TMP={here}/$host HOSTNAME=$host; unset SLURM_JOB_NODELIST\n\
                 exec sh -c \"$*\""
            ),
        )
    }

    /// The commands that the remote shell was given, a line each, the host first.
    pub fn started(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.directory.join("started")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// Whether a daemon has made itself known on a host that the remote shell has reached.
    pub fn has_daemon_on(&self, host: &str) -> bool {
        let names = std::fs::read_dir(self.directory.join(host)).into_iter().flatten();
        names.filter_map(Result::ok).any(|entry| entry.file_name().to_string_lossy().starts_with("pvmd."))
    }

    /// Runs a command to its end.
    pub fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).stdin(Stdio::null()).output().unwrap()
    }

    /// Starts a console whose input is written later.
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
        console.say(lines);
        console.end()
    }

    /// The same, line by line: after some errors Debian's console drops what it has read already.
    pub fn script_slowly(&self, lines: &str) -> Output {
        let mut console = self.console(&[]);
        for line in lines.lines() {
            console.say(&format!("{line}\n"));
            std::thread::sleep(LINE_PAUSE);
        }
        console.end()
    }

    /// Writes an executable shell script; its path.
    pub fn program(&self, name: &str, text: &str) -> String {
        use std::os::unix::fs::PermissionsExt;
        let path = self.directory.join(name);
        std::fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        path.to_str().unwrap().to_owned()
    }

    /// Whether a daemon has made itself known here.
    pub fn has_daemon(&self) -> bool {
        let names = std::fs::read_dir(&self.directory).unwrap();
        names.filter_map(Result::ok).any(|entry| entry.file_name().to_string_lossy().starts_with("pvmd."))
    }
}

impl Drop for Nest {
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
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// Waits until something is true; whether it came true in time.
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

/// Keeps what comes until the end.
fn keep(mut output: ChildStdout, printed: &Mutex<Vec<u8>>) {
    let mut bytes = [0; 4096];
    while let Ok(count @ 1..) = output.read(&mut bytes) {
        printed.lock().unwrap().extend_from_slice(&bytes[..count]);
    }
}

/// A console that runs.
pub struct Console {
    child: Child,
    printed: Arc<Mutex<Vec<u8>>>,
    reader: JoinHandle<()>,
}

impl Console {
    /// Writes into its input.
    pub fn say(&mut self, text: &str) {
        self.child.stdin.as_mut().unwrap().write_all(text.as_bytes()).unwrap();
    }

    /// Waits until it has printed a text.
    pub fn hear(&self, text: &str) {
        let printed = || String::from_utf8_lossy(&self.printed.lock().unwrap()).into_owned();
        assert!(wait_until(|| printed().contains(text)), "no {text:?} in {:?}", printed());
    }

    /// Closes its input and takes what it printed.
    pub fn end(mut self) -> Output {
        drop(self.child.stdin.take());
        let mut output = self.child.wait_with_output().unwrap();
        self.reader.join().unwrap();
        output.stdout = std::mem::take(&mut self.printed.lock().unwrap());
        output
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }
}

/// Standard output as text.
pub fn out(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// Standard error as text.
pub fn err(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}
