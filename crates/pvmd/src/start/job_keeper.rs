//! A step of Slurm beside the first daemon of a job's machine, which removes the daemon's files if the daemon is killed.
//!
//! Slurm kills what a batch script has left behind as soon as the script ends, without a warning. The first daemon is
//! part of the batch script's step, so it cannot clean up. The other daemons have steps of their own, which Slurm asks
//! to end.
use pvm_core::hostfile::parse_host;
use pvm_link::remote_shell::RemoteShell;
use pvm_net::polling::poll_one;
use rustix::event::PollFlags;
use std::ffi::OsString;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// How long the daemon waits for its keeper. A step begins within 0.2 s, unless the controller is very busy.
const READY_WAIT: Duration = Duration::from_secs(3);
/// The name of the node in the processes of a step.
const NODE: &str = "SLURMD_NODENAME";
/// What the keeper runs. When its input ends, the daemon has ended or is busy with its own end. When Slurm asks the
/// keeper to end, all of the job ends, and little time is left.
///
/// The arguments: the daemon's process, its directory, its rendezvous file, its log.
const SCRIPT: &str = r#"keep=
sweep() {
    case $(cat "$2" 2>/dev/null) in "$1"/*) rm -f "$2";; esac
    rm -rf "$1"
    [ -n "$keep" ] || rm -f "$3" "$3.old"
    exit 0
}
process=$1
shift
trap 'sweep "$@"' TERM INT HUP
echo ready
while read -r word; do
    case $word in done) exit 0;; log) keep=1;; esac
done
n=0
while kill -0 "$process" 2>/dev/null; do
    n=$((n + 1)); [ $n -le 100 ] || exit 0; sleep 0.05
done
sweep "$@""#;

/// The files of a daemon.
pub struct Files<'a> {
    pub directory: &'a Path,
    pub rendezvous: &'a Path,
    pub log: &'a Path,
}

/// The keeper; without one, if the daemon does not run in a step of Slurm.
#[derive(Default)]
pub struct JobKeeper(Option<Child>);

impl JobKeeper {
    /// Starts a keeper, if this process runs in a step of Slurm and daemons are started by `srun`. Waits until the keeper
    /// runs: a batch script may end as soon as this daemon is ready.
    pub fn start(variable: impl Fn(&str) -> Option<OsString>, files: &Files<'_>) -> JobKeeper {
        let shell = RemoteShell::find(&variable, false, super::CONNECT_SECONDS);
        let node = variable(NODE).and_then(|node| parse_host(&node.to_string_lossy()).ok());
        let Some(node) = node.filter(|_| shell == RemoteShell::Srun) else { return JobKeeper(None) };
        let words = shell.words(&node, SCRIPT);
        let mut command = Command::new(&words[0]);
        shell.prepare(&mut command);
        command.args(&words[1..]).args(["keeper", &std::process::id().to_string()]);
        command.args([files.directory, files.rendezvous, files.log]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).process_group(0);
        // Without a keeper, the files of a daemon that is killed stay until the next daemon of this name.
        let mut keeper = crate::core_dumps::as_before(|| command.spawn()).ok();
        if let Some(output) = keeper.as_mut().and_then(|child| child.stdout.take()) {
            // Without an answer, or after a failure, the daemon goes on without a keeper.
            let _ = poll_one(&output, PollFlags::IN, READY_WAIT);
        }
        JobKeeper(keeper)
    }

    /// Lets the keeper leave the log in its place.
    pub fn keep_log(&mut self) {
        self.say("log\n");
    }

    /// Ends the keeper: the daemon has removed its files.
    pub fn done(&mut self) {
        self.say("done\n");
        self.0 = None;
    }

    fn say(&mut self, word: &str) {
        // A keeper that has ended cannot be told.
        let _ = self.0.as_mut().and_then(|child| child.stdin.as_mut()).map(|input| input.write_all(word.as_bytes()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::BufRead;

    /// Runs the script for a process that has ended, or runs on, and returns what is left of its files. The input ends,
    /// or, without one, the script is asked to end.
    fn left_after(input: Option<&str>) -> Vec<String> {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        std::fs::create_dir(path("directory")).unwrap();
        std::fs::write(path("rendezvous"), path("directory/s").as_os_str().as_encoded_bytes()).unwrap();
        std::fs::write(path("log"), "ready").unwrap();
        let mut process = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let mut keeper = Command::new("sh")
            .args(["-c", SCRIPT, "keeper", &process.id().to_string()])
            .args(["directory", "rendezvous", "log"].map(path))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        // Before this line, a signal ends the shell.
        let mut line = String::new();
        std::io::BufReader::new(keeper.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        let mut stdin = keeper.stdin.take().unwrap();
        match input {
            Some(input) => {
                stdin.write_all(input.as_bytes()).unwrap();
                process.kill().and_then(|()| process.wait()).unwrap();
                drop(stdin);
                assert!(keeper.wait().unwrap().success());
            }
            None => {
                let keeper_process = rustix::process::Pid::from_child(&keeper);
                rustix::process::kill_process(keeper_process, rustix::process::Signal::TERM).unwrap();
                assert!(keeper.wait().unwrap().success());
                process.kill().and_then(|()| process.wait()).unwrap();
            }
        }
        let entries = std::fs::read_dir(folder.path()).unwrap();
        let mut left: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        left.sort();
        left
    }

    #[test]
    fn the_files_of_a_killed_daemon_are_removed_and_a_log_that_somebody_may_read_stays() {
        assert!(left_after(Some("")).is_empty() && left_after(None).is_empty());
        assert_eq!(left_after(Some("log\n")), ["log"]);
        assert_eq!(left_after(Some("log\ndone\n")), ["directory", "log", "rendezvous"]);
    }

    #[test]
    fn only_a_daemon_in_a_step_has_a_keeper() {
        let path = Path::new("/nowhere");
        let files = Files { directory: path, rendezvous: path, log: path };
        assert!(JobKeeper::start(|_| None, &files).0.is_none());
        let outside = |name: &str| (name == "SLURM_JOB_NODELIST").then(|| OsString::from("n1"));
        assert!(JobKeeper::start(outside, &files).0.is_none());
    }
}
