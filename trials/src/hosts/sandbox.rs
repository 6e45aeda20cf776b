//! The sandbox: namespaces in which this program runs a second time. Everything that the inner program has started ends
//! with it, whatever happens to this process.
//!
//! The inner program is in a process namespace of its own. When the first process of the namespace ends, or when this
//! process ends, the kernel ends everything in it. Network devices and mounts disappear with the last process. So
//! nothing has to be cleaned up, not even after a SIGKILL.

use crate::common::{in_path, output};
use crate::scratch;
use anyhow::{Context, Result};
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// The word for the sandboxes ([`scratch`]) in the names of the folders where they mount their file systems.
const PLACE: &str = "hosts";
/// The environment variable that names the folder of the sandbox. If it is set, the command runs inside a sandbox.
const FOLDER_VARIABLE: &str = "HPVM_HOSTS_FOLDER";
/// The first process inside: waits for the command, and adopts orphans meanwhile.
const FIRST_PROCESS: &str =
    r#"mount -t tmpfs -o size=75% none "$HPVM_HOSTS_FOLDER" && ip link set lo up && "$@"; exit $?"#;

/// Returns the folder for all files of the sandbox, if this process runs inside one.
pub fn folder() -> Option<PathBuf> {
    std::env::var_os(FOLDER_VARIABLE).map(PathBuf::from)
}

/// Returns why no sandbox can be made here; `None` if one can.
pub fn obstacle() -> Option<String> {
    if let Some(lacking) = ["unshare", "nsenter", "setpriv", "ip"].iter().find(|program| !in_path(program)) {
        return Some(format!("`{lacking}` is missing (see `cargo xtask setup test`)"));
    }
    // Only root, or a process in a new user namespace, may make devices and mounts and set the host name.
    let probe = "mount -t tmpfs none /mnt && ip link add bridge0 type bridge && hostname probe";
    output(unshare().args(["sh", "-c", probe])).err().map(|error| {
        let text = format!("{error:#}");
        format!("no namespaces can be made: {}", text.lines().last().unwrap_or_default().trim())
    })
}

/// Returns the beginning of a command that runs in new namespaces and ends with this process.
fn unshare() -> Command {
    unshare_as(!rustix::process::geteuid().is_root())
}

fn unshare_as(user: bool) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--", "unshare"]);
    if user {
        command.args(["--user", "--map-root-user"]);
    }
    command.args(["--mount", "--net", "--uts", "--pid", "--fork", "--mount-proc", "--kill-child=KILL", "--"]);
    command
}

/// Removes the folders of commands that were killed; outside the sandbox, these folders are empty.
fn remove_leftovers() {
    scratch::abandoned(PLACE).iter().for_each(|folder| drop(fs::remove_dir(folder)));
}

/// A process that removes a folder at the end of this process, also when Ctrl-C ends it.
struct Remover(Child);

impl Remover {
    fn start(folder: &Path) -> Result<Remover> {
        let mut command = Command::new("sh");
        command.args(["-c", "cat; rmdir \"$0\" 2>/dev/null"]).arg(folder).process_group(0);
        command.stdin(Stdio::piped()).stdout(Stdio::null());
        Ok(Remover(command.spawn().context("cannot start sh")?))
    }
}

impl Drop for Remover {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

/// Runs this program again in a sandbox with these arguments, and shows its output. Returns the last line.
pub fn run(arguments: &[&str]) -> Result<String> {
    run_with(arguments, |line| println!("{line}"))
}

/// Does the same as [`run_with`] in a user namespace of its own, also for root. In this namespace, the program can
/// change what the kernel keeps for each user namespace, such as the list of interpreters for foreign programs.
pub fn run_as_user(arguments: &[&str], on_line: impl FnMut(&str)) -> Result<String> {
    run_by(unshare_as(true), arguments, on_line)
}

/// Does the same as [`run`], but passes each line of the output to `on_line`. Fails if the program fails and has
/// printed nothing.
pub fn run_with(arguments: &[&str], on_line: impl FnMut(&str)) -> Result<String> {
    run_by(unshare(), arguments, on_line)
}

fn run_by(mut unshare: Command, arguments: &[&str], mut on_line: impl FnMut(&str)) -> Result<String> {
    remove_leftovers();
    let place = scratch::directory(PLACE)?;
    let remover = Remover::start(place.path())?;
    let mut child = unshare
        .args(["sh", "-c", FIRST_PROCESS, "sh"])
        .arg(std::env::current_exe()?)
        .args(arguments)
        .env(FOLDER_VARIABLE, place.path())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot start unshare")?;
    let mut last = String::new();
    for line in BufReader::new(child.stdout.take().context("the output is read once")?).lines() {
        last = line?;
        on_line(&last);
    }
    let status = child.wait()?;
    drop((place, remover));
    anyhow::ensure!(status.success() || !last.is_empty(), "inside the namespaces: {status}");
    Ok(last)
}
