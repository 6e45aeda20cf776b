//! The sandbox: namespaces in which a command of ours runs again, and with which all that it started
//! ends, whatever becomes of us.
//!
//! The command's second life is in a process namespace of its own: when its first process ends, or
//! when we do, the kernel ends everything in it, and with the last process go the network devices and
//! the mounts. So there is nothing to clean up, not even after a SIGKILL.

use crate::common::{in_path, output};
use crate::scratch;
use anyhow::{Context, Result};
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// What the folders are called on which the sandboxes' file systems are mounted.
const PLACE: &str = "hosts";
/// Names the folder of the sandbox to the command inside, and says that it is inside.
const FOLDER_VARIABLE: &str = "HPVM_HOSTS_FOLDER";
/// The first process inside: waits for the command, and takes in orphans meanwhile.
const FIRST_PROCESS: &str =
    r#"mount -t tmpfs -o size=75% none "$HPVM_HOSTS_FOLDER" && ip link set lo up && "$@"; exit $?"#;

/// The folder for everything, when we are inside.
pub fn folder() -> Option<PathBuf> {
    std::env::var_os(FOLDER_VARIABLE).map(PathBuf::from)
}

/// Why there can be no sandbox here; `None` where there can.
pub fn obstacle() -> Option<String> {
    if let Some(lacking) = ["unshare", "nsenter", "setpriv", "ip"].iter().find(|program| !in_path(program)) {
        return Some(format!("`{lacking}` is missing (see `cargo xtask setup test`)"));
    }
    // Devices, mounts and names need the rights of a new user namespace, or root's.
    let probe = "mount -t tmpfs none /mnt && ip link add bridge0 type bridge && hostname probe";
    output(unshare().args(["sh", "-c", probe])).err().map(|error| {
        let text = format!("{error:#}");
        format!("no namespaces can be made: {}", text.lines().last().unwrap_or_default().trim())
    })
}

/// The start of a command that runs in new namespaces and ends with us.
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

/// Removes the folders of commands that were killed; they are empty outside of the sandbox.
fn remove_leftovers() {
    scratch::abandoned(PLACE).iter().for_each(|folder| drop(fs::remove_dir(folder)));
}

/// Runs this program again, inside, with these arguments; shows what it prints, and gives its last
/// line.
pub fn run(arguments: &[&str]) -> Result<String> {
    run_with(arguments, |line| println!("{line}"))
}

/// [`run_with`] in a user namespace of its own, also for root: what the kernel keeps for each of those, such as
/// the list of programs for programs of other machines, can be changed there.
pub fn run_as_user(arguments: &[&str], hear: impl FnMut(&str)) -> Result<String> {
    run_by(unshare_as(true), arguments, hear)
}

/// The same; each line that it prints is passed on. Fails when it fails without having said a line.
pub fn run_with(arguments: &[&str], hear: impl FnMut(&str)) -> Result<String> {
    run_by(unshare(), arguments, hear)
}

fn run_by(mut unshare: Command, arguments: &[&str], mut hear: impl FnMut(&str)) -> Result<String> {
    remove_leftovers();
    let place = scratch::directory(PLACE)?;
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
        hear(&last);
    }
    let status = child.wait()?;
    anyhow::ensure!(status.success() || !last.is_empty(), "inside the namespaces: {status}");
    Ok(last)
}
