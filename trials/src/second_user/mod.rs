//! `cargo xtask second-user`: checks that another user of the machine can neither connect, nor read or write a segment,
//! nor prevent the start of the daemon with files made in advance.
//!
//! The command needs root, since it runs programs as two other users. Each check runs with an ordinary user's daemon
//! and with root's daemon, since root's daemon might permit too much.
mod scene;

use crate::build::{AS_IT_IS, build_unless_told};
use crate::common::{Checks, dist, in_path, output};
use crate::counts::Counts;
use crate::failures;
use anyhow::{Context, Result, ensure};
use scene::{Scene, Who};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

type Check = (&'static str, fn(&Scene) -> Result<()>);

const CHECKS: &[Check] = &[
    ("a file at the daemon's place does not block it", |scene| planted(scene, "echo junk > {} && chmod 666 {}")),
    ("a link at the daemon's place is not followed", |scene| planted(scene, "ln -s {victim} {}")),
    ("a link to nowhere does not block the daemon", |scene| planted(scene, "ln -s {}.nowhere {}")),
    ("a directory at the daemon's place does not block it", |scene| planted(scene, "mkdir -m 777 {}")),
    ("a pipe at the daemon's place does not block it", |scene| planted(scene, "mkfifo -m 666 {}")),
    ("a link at the log's place is not followed", |scene| planted_log(scene, "ln -s {victim} {}")),
    ("a pipe at the log's place does not block the daemon", |scene| planted_log(scene, "mkfifo -m 666 {}")),
    ("a stranger's daemon is not found", strangers_daemon_is_not_found),
    ("a stranger's daemon is not talked to, even when told to", strangers_daemon_is_not_talked_to),
    ("the daemon's files are closed to strangers", files_are_closed),
    ("a stranger cannot connect", stranger_cannot_connect),
    ("a stranger who passes the directory is turned away", stranger_is_turned_away),
    ("a stranger's task does not enroll", strangers_task_does_not_enroll),
    ("two users have machines side by side", machines_side_by_side),
    ("segments and descriptors are closed to strangers", segments_are_closed),
    ("the page of pvm monitor is closed to strangers", page_is_closed),
];

/// Runs the command.
pub fn run(arguments: &[String]) -> Result<()> {
    build_unless_told(arguments)?;
    counted(arguments)?.report()
}

/// Runs the command as a part of `cargo xtask test`.
pub fn counted(_arguments: &[String]) -> Result<Counts> {
    if output(Command::new("id").arg("-u"))?.trim() != "0" {
        return counted_as_root();
    }
    let mut checks = Checks::default();
    let programs = scene::programs()?;
    for (who, user) in [("an ordinary user", scene::ORDINARY_USER), ("root", 0)] {
        for (name, check) in CHECKS {
            let result = Scene::new(user, &programs).and_then(|scene| check(&scene));
            checks.check(&format!("{name} (daemon of {who})"), result);
        }
    }
    Ok(checks.counts())
}

/// Runs the checks with sudo, if sudo asks for no password.
fn counted_as_root() -> Result<Counts> {
    if !in_path("sudo") || output(Command::new("sudo").args(["-n", "true"])).is_err() {
        return Ok(Counts::skip("a second user needs root, or sudo without a password"));
    }
    let ended = Command::new("sudo")
        .args(["-n", "env"])
        .arg(format!("HPVM_DIST={}", dist().display()))
        .arg(std::env::current_exe()?)
        .args(["second-user", AS_IT_IS])
        .output()?;
    let said = String::from_utf8_lossy(&ended.stdout).into_owned();
    let counts = Counts::parse(said.lines().last().unwrap_or_default())
        .with_context(|| format!("as root: {}{said}", String::from_utf8_lossy(&ended.stderr)))?;
    said.lines().filter(|line| line.starts_with("FAILED")).for_each(failures::report);
    Ok(counts)
}

/// Lets the stranger run the shell command `attack` before the daemon starts, and checks that one of our files is
/// unchanged and that our tasks enroll. In `attack`, `{}` is the path to attack, and `{victim}` is our file.
fn plant(scene: &Scene, name: &str, attack: &str) -> Result<()> {
    let victim = scene.home().join("precious");
    scene.output(Who::Us, "sh", &["-c", &format!("echo precious > {}", victim.display())])?;
    let place = scene.temporary().join(name).display().to_string();
    let attack = attack.replace("{victim}", &victim.display().to_string()).replace("{}", &place);
    scene.output(Who::Stranger, "sh", &["-c", &attack])?;
    {
        let _daemon = scene.daemon(Who::Us)?;
        let tid: i32 = scene.output(Who::Us, "task", &[])?.trim().parse()?;
        ensure!(tid > 0, "our task has tid {tid}");
    }
    let left = fs::read_to_string(&victim)?;
    ensure!(left == "precious\n", "our file has been changed: {left:?}");
    Ok(())
}

fn planted(scene: &Scene, attack: &str) -> Result<()> {
    plant(scene, &format!("pvmd.{}", scene.user()), attack)
}

fn planted_log(scene: &Scene, attack: &str) -> Result<()> {
    plant(scene, &format!("pvml.{}", scene.user()), attack)
}

fn strangers_daemon_is_not_found(scene: &Scene) -> Result<()> {
    let socket = scene.temporary().join("trap");
    let trap = scene.listen(&socket)?;
    let place = scene.temporary().join(format!("pvmd.{}", scene.user()));
    let attack = format!("printf %s {} > {place}; chmod 666 {place}", socket.display(), place = place.display());
    scene.output(Who::Stranger, "sh", &["-c", &attack])?;
    ensure!(scene.output(Who::Us, "task", &[]).is_err(), "our task has enrolled somewhere");
    let connections = trap.stop()?;
    ensure!(connections.is_empty(), "the stranger's daemon saw {connections:?}");
    Ok(())
}

fn strangers_daemon_is_not_talked_to(scene: &Scene) -> Result<()> {
    let socket = scene.temporary().join("trap");
    let trap = scene.listen(&socket)?;
    let task = scene.command(Who::Us, "task").env("PVMSOCK", &socket).output()?;
    ensure!(!task.status.success(), "our task has enrolled with the stranger");
    let connections = trap.stop()?;
    ensure!(connections.iter().all(|line| line == "connection 0"), "the stranger's daemon was told: {connections:?}");
    Ok(())
}

fn files_are_closed(scene: &Scene) -> Result<()> {
    let daemon = scene.daemon(Who::Us)?;
    let place = scene.temporary().join(format!("pvmd.{}", scene.user()));
    ensure!(place.is_file(), "{} is not there", place.display());
    let directory = daemon.socket().parent().context("the socket lies in a directory")?;
    ensure!(directory != scene.temporary(), "the socket has no directory of its own");
    for path in [place.as_path(), directory] {
        let mode = fs::symlink_metadata(path)?.permissions().mode() & 0o777;
        ensure!(mode & 0o077 == 0, "{} has mode {mode:o}", path.display());
        let path = path.display().to_string();
        for (tool, arguments) in [("cat", vec![&*path]), ("ls", vec![&*path, "-l"]), ("rm", vec!["-rf", &*path])] {
            let succeeded = scene.output(Who::Stranger, tool, &arguments).is_ok();
            ensure!(!succeeded || (tool == "ls" && place.to_str() == Some(&*path)), "the stranger can {tool} {path}");
        }
    }
    Ok(())
}

fn stranger_cannot_connect(scene: &Scene) -> Result<()> {
    let daemon = scene.daemon(Who::Us)?;
    let socket = daemon.socket().display().to_string();
    let said = scene.output(Who::Stranger, "stranger", &["connect", &socket])?;
    ensure!(said.trim() == "denied", "the stranger's connection: {said}");
    Ok(())
}

fn stranger_is_turned_away(scene: &Scene) -> Result<()> {
    let daemon = scene.daemon(Who::Us)?;
    // This stranger has capabilities that override file permissions; only the check of the user id can stop the
    // stranger.
    let stranger = scene.program("stranger").display().to_string();
    let socket = daemon.socket().display().to_string();
    let user = scene::STRANGER.to_string();
    let power = "+dac_override,+dac_read_search";
    let said = output(
        Command::new("setpriv")
            .args(["--reuid", &user, "--regid", &user, "--clear-groups", "--inh-caps", power, "--ambient-caps", power])
            .args([&*stranger, "connect", &*socket]),
    )?;
    ensure!(said.trim() == "closed", "the stranger's connection: {said}");
    let tid: i32 = scene.output(Who::Us, "task", &[])?.trim().parse()?;
    ensure!(tid > 0, "and then our task has tid {tid}");
    Ok(())
}

fn strangers_task_does_not_enroll(scene: &Scene) -> Result<()> {
    let daemon = scene.daemon(Who::Us)?;
    let task = scene.command(Who::Stranger, "task").env("PVMSOCK", daemon.socket()).output()?;
    ensure!(!task.status.success(), "it has tid {}", String::from_utf8_lossy(&task.stdout));
    Ok(())
}

fn machines_side_by_side(scene: &Scene) -> Result<()> {
    let _ours = scene.daemon(Who::Us)?;
    let _theirs = scene.daemon(Who::Stranger)?;
    for who in [Who::Us, Who::Stranger] {
        let tid: i32 = scene.output(who, "task", &[])?.trim().parse()?;
        ensure!(tid == 0x40001, "the first task of {who:?} has tid {tid:x}");
    }
    Ok(())
}

fn segments_are_closed(scene: &Scene) -> Result<()> {
    let daemon = scene.daemon(Who::Us)?;
    let task = scene.waiting_task()?;
    for process in [daemon.process(), task.process()] {
        // Tries each way to another process's memory or descriptors, and prints those that succeed.
        let attempts = format!(
            "for file in /proc/{process}/fd/* /proc/{process}/map_files/* /proc/{process}/mem; do \
               (exec 3<$file) 2>/dev/null && echo reads $file; (exec 3>>$file) 2>/dev/null && echo writes $file; \
             done; true"
        );
        let succeeded = scene.output(Who::Stranger, "sh", &["-c", &attempts])?;
        ensure!(succeeded.is_empty(), "the stranger {succeeded}");
    }
    let shared =
        scene.output(Who::Us, "find", &["/dev/shm", "-user", &scene.user().to_string(), "-newer", scene.made()])?;
    ensure!(shared.is_empty(), "named shared memory: {shared}");
    Ok(())
}

fn page_is_closed(scene: &Scene) -> Result<()> {
    let _daemon = scene.daemon(Who::Us)?;
    let socket = scene.temporary().join("page");
    let (mut on_port, mut on_socket) = (scene.monitor(&[])?, scene.monitor(&["--socket", &socket.to_string_lossy()])?);
    let (link, _) = (on_port.line()?, on_socket.line()?);
    let port = link.split([':', '/']).nth(4).with_context(|| format!("no port in {link}"))?.to_owned();
    let ask = format!(
        "exec 3<>/dev/tcp/127.0.0.1/{port}; printf 'GET /events HTTP/1.1\\r\\nHost: localhost\\r\\n\\r\\n' >&3; cat <&3"
    );
    let answer = scene.output(Who::Stranger, "bash", &["-c", &ask])?;
    ensure!(answer.starts_with("HTTP/1.1 403 "), "the stranger gets {answer}");
    let token = link.rsplit('=').next().unwrap_or_default();
    let seen = scene.output(
        Who::Stranger,
        "sh",
        &["-c", "cat /proc/[0-9]*/cmdline /proc/[0-9]*/environ 2>/dev/null; true"],
    )?;
    ensure!(!seen.contains(token), "the stranger sees the link");
    let mode = fs::metadata(&socket)?.permissions().mode() & 0o777;
    ensure!(mode == 0o600, "the socket has the mode {mode:o}");
    Ok(())
}
