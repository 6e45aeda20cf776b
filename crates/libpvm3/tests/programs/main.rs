//! Runs C programs that are linked to the library as users link their programs, each on a separate virtual machine.
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// The longest time that a program may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// Returns the build directory of this test, such as `target/debug` or `target/PLATFORM/release`.
fn profile() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    test.parent().and_then(Path::parent).unwrap().to_owned()
}

fn source() -> PathBuf {
    std::env::current_dir().unwrap()
}

fn run(command: &mut Command) {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Returns a directory with `bin/pvmd` and, in `lib`, the libraries of PVM and of FMP; the first call makes it.
fn tree() -> &'static Path {
    static TREE: OnceLock<PathBuf> = OnceLock::new();
    TREE.get_or_init(|| {
        let profile = profile();
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "--quiet", "--package", "pvmd", "--package", "libpvm3", "--package", "libfmp"]);
        if sanitizer().is_none() {
            // With a sanitizer, environment variables set the directory and the target platform.
            cargo.arg("--target-dir").arg(profile.parent().unwrap());
        }
        if !profile.ends_with("debug") {
            cargo.arg("--profile").arg(profile.file_name().unwrap());
        }
        run(&mut cargo);
        let tree = profile.join("libpvm3-tests");
        fs::create_dir_all(tree.join("bin")).unwrap();
        fs::create_dir_all(tree.join("lib")).unwrap();
        fs::copy(profile.join("pvmd"), tree.join("bin/pvmd")).unwrap();
        for archive in ["libpvm3.a", "libfmp.a"] {
            fs::copy(profile.join(archive), tree.join("lib").join(archive)).unwrap();
        }
        let (pvm, fmp) = (tree.join("lib/libpvm3.so.3"), tree.join("lib/libfmp.so.1"));
        shared_library(&profile.join("libpvm3.a"), &source().join("exports.map"), &pvm, &[]);
        let found = [pvm.as_os_str(), OsStr::new("-Wl,-rpath,$ORIGIN")];
        shared_library(&profile.join("libfmp.a"), &source().join("../libfmp/exports.map"), &fmp, &found);
        tree
    })
}

/// Links a shared library; `more` are further arguments of the linker.
fn shared_library(archive: &Path, map: &Path, to: &Path, more: &[&OsStr]) {
    let soname = to.file_name().unwrap().to_string_lossy();
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-Wl,-z,now", "-Wl,--gc-sections"]).arg(format!("-Wl,-soname,{soname}"));
    // With a sanitizer, the programs define its functions, so the library may leave them undefined.
    cc.arg(if sanitizer().is_some() { "-Wl,-z,undefs" } else { "-Wl,-z,defs" });
    cc.arg(format!("-Wl,--version-script={}", map.display())).arg("-Wl,--whole-archive");
    cc.arg(archive).arg("-Wl,--no-whole-archive").args(more).arg("-o").arg(to);
    run(&mut cc);
}

/// Returns the library of the sanitizer with which the Rust code was compiled, if any (`cargo xtask sanitize`).
fn sanitizer() -> Option<PathBuf> {
    std::env::var_os("HPVM_SANITIZER_RUNTIME").map(PathBuf::from)
}

/// How a program is linked.
#[derive(Clone, Copy, Debug)]
enum Linked {
    /// To the shared library, with copies of its data symbols.
    Shared,
    /// To the archive.
    Static,
}

fn compiled(name: &str, linked: Linked) -> PathBuf {
    let program = tree().join(format!("{name}-{linked:?}"));
    let mut cc = Command::new("cc");
    if let Some(library) = sanitizer() {
        // The sanitizer's library must be the first one of a program.
        cc.arg("-Wl,--no-as-needed").arg(&library);
        cc.arg(format!("-Wl,-rpath,{}", library.parent().unwrap().display()));
    }
    cc.args(["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-pthread", "-I"]).arg(source().join("../../include"));
    cc.arg(source().join("tests/programs").join(format!("{name}.c"))).arg("-o").arg(&program);
    let libraries: &[&str] = match (linked, name.starts_with("fmp")) {
        (Linked::Shared, false) => &["libpvm3.so.3"],
        (Linked::Shared, true) => &["libfmp.so.1", "libpvm3.so.3"],
        (Linked::Static, false) => &["libpvm3.a"],
        (Linked::Static, true) => &["libfmp.a", "libpvm3.a"],
    };
    cc.args(libraries.iter().map(|library| tree().join("lib").join(library)));
    match linked {
        Linked::Shared => cc.args(["-no-pie", "-Wl,-rpath,$ORIGIN/lib"]),
        Linked::Static => cc.args(["-lgcc_s", "-lm", "-ldl"]),
    };
    run(&mut cc);
    program
}

/// A temporary directory for `PVM_TMP`, and perhaps a daemon; dropping this value removes both.
struct Machine {
    directory: PathBuf,
    daemon: Option<Child>,
}

impl Machine {
    fn empty() -> Machine {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let directory = std::env::temp_dir().join(format!("libpvm3-test.{}.{number}", std::process::id()));
        fs::create_dir(&directory).unwrap();
        Machine { directory, daemon: None }
    }

    fn with_daemon() -> Machine {
        let mut machine = Machine::empty();
        let daemon = machine.command(&tree().join("bin/pvmd")).stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
        let mut daemon = daemon.unwrap();
        let mut line = String::new();
        let output = daemon.stdout.take().unwrap();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(output), &mut line).unwrap();
        assert!(line.starts_with('/'), "the daemon said {line:?}");
        machine.daemon = Some(daemon);
        machine
    }

    /// Returns a command that runs on this machine.
    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("PVM")) {
            command.env_remove(name);
        }
        command.env("PVM_TMP", &self.directory).env("HOME", &self.directory).env_remove("XDG_RUNTIME_DIR");
        if sanitizer().is_some() {
            // The search for leaks is off: a child of a fork abandons inherited memory without freeing it. Reports
            // about signal handlers are off too: handlers call the library on purpose.
            for (variable, off) in [("ASAN_OPTIONS", "detect_leaks=0"), ("TSAN_OPTIONS", "report_signal_unsafe=0")] {
                let options = std::env::var(variable).unwrap_or_default();
                command.env(variable, format!("{options} {off}"));
            }
        }
        command
    }

    /// Runs a program and waits for its end.
    fn run(&self, program: &Path) -> Output {
        let log = self.directory.join("output");
        let file = fs::File::create(&log).unwrap();
        let mut command = self.command(program);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(file).spawn().unwrap();
        let end = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = child.try_wait().unwrap() {
                return Output { status, stdout: Vec::new(), stderr: fs::read(&log).unwrap() };
            }
            if Instant::now() > end {
                child.kill().unwrap();
                child.wait().unwrap();
                panic!("{} takes too long; so far {:?}", program.display(), fs::read_to_string(&log));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        if let Some(mut daemon) = self.daemon.take() {
            // SAFETY: a child of ours that has not been waited for.
            unsafe { libc::kill(daemon.id() as i32, libc::SIGTERM) };
            daemon.wait().unwrap();
        }
        let _ = fs::remove_dir_all(&self.directory);
    }
}

fn succeeds(machine: &Machine, program: &Path) {
    let output = machine.run(program);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{}: {}: {said}", program.display(), output.status);
}

fn passes(name: &str, linked: Linked) {
    succeeds(&Machine::with_daemon(), &compiled(name, linked));
}

#[test]
fn a_forked_child_is_a_task_of_its_own() {
    passes("fork", Linked::Shared);
}

#[test]
fn a_task_in_another_pid_namespace_is_like_any_other() {
    let machine = Machine::with_daemon();
    let unshare = |options: &[&str], program: &Path| {
        let mut command = machine.command(Path::new("unshare"));
        command.args(options).args(["--pid", "--fork", "--kill-child"]).arg(program).output().unwrap()
    };
    let options: [&[&str]; 2] = [&[], &["--user", "--map-current-user"]];
    let Some(options) = options.iter().find(|options| unshare(options, Path::new("true")).status.success()) else {
        return println!("not checked: this system makes no PID namespaces");
    };
    for name in ["fork", "large", "descriptors"] {
        let output = unshare(options, &compiled(name, Linked::Shared));
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success() && said.is_empty(), "{name}: {}: {said}", output.status);
    }
}

#[test]
fn many_threads_call_and_wait_at_once() {
    passes("threads", Linked::Shared);
}

#[test]
fn select_wakes_for_all_that_comes() {
    passes("descriptors", Linked::Shared);
}

#[test]
fn standard_descriptors_that_are_closed_stay_closed() {
    passes("closed_standard", Linked::Shared);
}

#[test]
fn functions_of_the_user_may_call_the_library() {
    passes("callbacks", Linked::Shared);
}

#[test]
fn signal_handlers_do_no_harm() {
    passes("signals", Linked::Shared);
}

#[test]
fn a_handler_that_interrupts_a_call_can_end_tasks() {
    passes("postponed", Linked::Shared);
    passes("postponed", Linked::Static);
}

#[test]
fn a_signal_handler_may_jump_out_of_a_wait() {
    passes("jump", Linked::Shared);
}

#[test]
fn signals_while_the_lock_changes_hands_cause_no_deadlock() {
    passes("lock_signals", Linked::Shared);
}

#[test]
fn a_wait_in_which_handlers_may_call_does_not_allocate() {
    passes("allocations", Linked::Shared);
}

#[test]
fn long_messages_arrive_whole_or_cut_off() {
    passes("large", Linked::Shared);
}

#[test]
fn long_shares_are_combined_once_or_not_at_all() {
    passes("reduce", Linked::Shared);
    passes("reduce", Linked::Static);
}

#[test]
fn a_member_waits_its_number_of_times_before_it_sends() {
    passes("backoff", Linked::Shared);
}

#[test]
fn a_barrier_released_by_broadcast_is_a_barrier_inside_a_host() {
    passes("lanbarr", Linked::Shared);
}

#[test]
fn a_reduction_without_memory_fails_and_nothing_else() {
    passes("no_memory", Linked::Shared);
}

#[test]
fn a_message_without_address_space_fails_the_call_and_comes_when_there_is_space() {
    passes("starved", Linked::Shared);
}

#[test]
fn a_process_with_both_libraries_is_one_task_and_messages_of_fmp_do_not_mix_with_those_of_pvm() {
    passes("fmp", Linked::Shared);
    passes("fmp", Linked::Static);
}

#[test]
fn a_failure_that_nobody_reads_does_not_end_the_program() {
    passes("broken_pipe", Linked::Shared);
}

#[test]
fn programs_share_the_data_symbols() {
    passes("symbols", Linked::Shared);
}

#[test]
fn the_archive_does_what_the_shared_library_does() {
    passes("callbacks", Linked::Static);
    passes("symbols", Linked::Static);
}

#[test]
fn a_program_starts_and_ends_a_machine() {
    let machine = Machine::empty();
    succeeds(&machine, &compiled("start", Linked::Shared));
    let rendezvous: Vec<_> =
        fs::read_dir(&machine.directory).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(!rendezvous.iter().any(|name| name.to_string_lossy().starts_with("pvmd.")), "{rendezvous:?}");
}

#[test]
fn lines_of_a_watched_task_come_before_its_end() {
    let machine = Machine::empty();
    for linked in [Linked::Shared, Linked::Static] {
        let program = compiled("lines", linked);
        let printed = |command: &mut Command| command.stdin(Stdio::null()).output().unwrap().stdout;
        assert_eq!(printed(&mut machine.command(&program)), b"");
        assert_eq!(printed(machine.command(&program).env("PVMLINES", "1")), b"line\n");
    }
}
