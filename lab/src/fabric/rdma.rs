//! `cargo xtask fabric --rdma`: links on soft-RoCE (`verbs;ofi_rxm`), which needs a kernel with the module `rdma_rxe`: that of
//! Debian, in an emulated computer that has this one's files. Everything is slow there, so that only correctness is tried.
use super::{Options, program, result_of};
use crate::common::{Checks, in_path, output};
use crate::counts::Counts;
use crate::debian_kernel::{busybox, folder, release};
use anyhow::{Context, Result};
use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

const EMULATOR: &str = "qemu-system-x86_64";
/// The modules with which this computer's files are reached.
const MODULES_OF_FILES: [&str; 3] = ["virtio_pci", "9pnet_virtio", "9p"];
/// The modules of soft-RoCE. The checksum is loaded by the kernel itself only from the usual folder.
const MODULES_OF_RDMA: [&str; 5] = ["crc32_generic", "dummy", "rdma_rxe", "ib_uverbs", "rdma_ucm"];
/// The emulated computer is switched off after this time in seconds.
const SECONDS_MAX: &str = "900";
/// How long a part of the trial may take in the emulated computer, in seconds.
const PART_SECONDS_MAX: u32 = 200;
const SETTING: &str = "verbs;ofi_rxm;rxe0";
const ADDRESS: &str = "10.77.0.1";
/// In front of what the programs say, on the emulated computer's console.
const BEGIN: &str = "trial-begin ";
const END: &str = "trial-end ";

/// Returns why soft-RoCE cannot be tried here; `None` if it can.
pub fn obstacle() -> Option<String> {
    let is_there = in_path(EMULATOR) && in_path("modprobe") && busybox().exists() && release().is_some();
    (!is_there).then(|| "an emulator or Debian's kernel is missing (see `cargo xtask setup rdma`)".to_owned())
}

/// Runs the command.
pub(super) fn counted(options: &Options) -> Result<Counts> {
    if let Some(obstacle) = obstacle() {
        return Ok(Counts::skip(obstacle));
    }
    let release = release().context("no kernel")?;
    let parts = parts(options);
    write_first_files(&release)?;
    let script = folder().join("guest.sh");
    fs::write(&script, guest_script(&program(options.is_short)?, &parts)?)?;
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755))?;
    let mut checks = Checks::default();
    let mut said = Said::default();
    run_guest(&release, |line| {
        if let Some((name, result)) = said.take(line) {
            checks.check(&name, result);
        }
    })?;
    for part in &parts[said.ended.min(parts.len())..] {
        let name = format!("verbs;ofi_rxm: {}", part.name);
        checks.check(&name, Err(anyhow::anyhow!("the emulated computer has ended before: {}", said.last_lines())));
    }
    Ok(checks.counts())
}

/// A part of the trial: the words of the caller, and those of each server.
struct Part {
    name: String,
    caller: String,
    servers: Vec<&'static str>,
}

fn parts(options: &Options) -> Vec<Part> {
    let messages = if options.is_short { 20 } else { 60 };
    let mut parts = Vec::new();
    for seed in 1..=options.seeds {
        for (kind, sealed) in [("clear", ""), ("sealed", " --sealed")] {
            let caller = format!("check --seed {seed} --messages {messages}{sealed}");
            parts.push(Part { name: format!("{kind} messages, seed {seed}"), caller, servers: vec![""] });
        }
        let caller = format!("death --seed {seed} --messages {messages}");
        let name = format!("a peer that is killed, seed {seed}");
        parts.push(Part { name, caller, servers: vec!["--dies", ""] });
    }
    if !options.is_short {
        parts.push(Part { name: "waiting".into(), caller: "idle".into(), servers: vec![""] });
        parts.push(Part { name: "measured".into(), caller: "speed --megabytes 2".into(), servers: vec![""] });
    }
    parts
}

/// Writes the first files of the emulated computer: a shell, and the modules with which it reaches the others.
fn write_first_files(release: &str) -> Result<()> {
    let first = folder().join("first");
    let _ = fs::remove_dir_all(&first);
    for name in ["bin", "dev", "proc", "host", "sys", "modules"] {
        fs::create_dir_all(first.join(name))?;
    }
    fs::copy(busybox(), first.join("bin/busybox"))?;
    let mut modprobe = Command::new("modprobe");
    modprobe.arg("-d").arg(folder()).args(["-S", release, "--show-depends", "-a"]).args(MODULES_OF_FILES);
    let mut insmods = String::new();
    for path in output(&mut modprobe)?.lines().filter_map(|line| line.strip_prefix("insmod ")) {
        let path = Path::new(path.trim());
        let name = path.file_name().context("a module without a name")?.to_string_lossy();
        fs::copy(path, first.join("modules").join(&*name))?;
        // A module on which several depend is named several times; the first time counts.
        writeln!(insmods, "[ -e /loaded-{name} ] || /bin/busybox insmod /modules/{name}; >/loaded-{name}")?;
    }
    let script = folder().join("guest.sh");
    let init = format!(
        "#!/bin/busybox sh
/bin/busybox mount -t proc none /proc
/bin/busybox mount -t sysfs none /sys
/bin/busybox mount -t devtmpfs none /dev
{insmods}
/bin/busybox mount -t 9p -o trans=virtio,version=9p2000.L,cache=loose,msize=262144,ro host /host
for folder in dev proc sys; do /bin/busybox mount --move /$folder /host/$folder; done
exec /bin/busybox switch_root /host {}
",
        script.display()
    );
    fs::write(first.join("init"), init)?;
    fs::set_permissions(first.join("init"), fs::Permissions::from_mode(0o755))?;
    let pack = format!("find . | {} cpio -o -H newc | gzip -1 > ../first.gz", busybox().display());
    output(Command::new("sh").args(["-c", &pack]).current_dir(&first)).map(drop)
}

/// Returns the script that the emulated computer runs: it makes a device and runs the parts.
fn guest_script(program: &Path, parts: &[Part]) -> Result<String> {
    let (folder, program) = (folder().display().to_string(), program.display().to_string());
    let mut script = format!(
        "#!/bin/sh
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
mount -t tmpfs none /run
ulimit -l unlimited
modprobe -d {folder} -a {}
ip link set lo up
ip link add rdma0 type dummy
ip address add {ADDRESS}/24 dev rdma0
ip link set rdma0 up
rdma link add rxe0 type rxe netdev rdma0
# The queues of one peer take much memory, and there are few peers.
export FI_UNIVERSE_SIZE=16
",
        MODULES_OF_RDMA.join(" ")
    );
    for part in parts {
        let addresses: Vec<String> =
            (0..part.servers.len()).map(|number| format!("{ADDRESS}:{}", 7070 + number)).collect();
        writeln!(script, "echo '{BEGIN}{}'", part.name)?;
        writeln!(script, "servers=")?;
        for (address, words) in addresses.iter().zip(&part.servers) {
            writeln!(
                script,
                "{program} serve {address} '{SETTING}' {words} >/run/served 2>&1 & servers=\"$servers $!\""
            )?;
        }
        let (addresses, caller) = (addresses.join(","), &part.caller);
        writeln!(script, "timeout {PART_SECONDS_MAX} {program} call {addresses} '{SETTING}' {caller}")?;
        writeln!(script, "echo \"{END}$?\"")?;
        writeln!(script, "kill $servers 2>/run/null")?;
        writeln!(script, "wait")?;
    }
    writeln!(script, "cp {} /run/busybox\nexec /run/busybox poweroff -f", busybox().display())?;
    Ok(script)
}

/// Runs the emulated computer until it switches itself off.
fn run_guest(release: &str, mut on_line: impl FnMut(&str)) -> Result<()> {
    let mut emulator = Command::new("timeout");
    emulator.args([SECONDS_MAX, EMULATOR, "-machine", "q35,accel=tcg", "-cpu", "max", "-smp", "2", "-m", "2048"]);
    emulator.args(["-nographic", "-no-reboot", "-nodefaults", "-serial", "stdio"]);
    emulator.arg("-kernel").arg(folder().join(format!("boot/vmlinuz-{release}")));
    emulator.arg("-initrd").arg(folder().join("first.gz"));
    emulator.args(["-append", "console=ttyS0 quiet panic=-1 mitigations=off"]);
    emulator.args(["-virtfs", "local,path=/,mount_tag=host,security_model=none,readonly=on,multidevs=remap"]);
    let mut running = emulator.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().context(EMULATOR)?;
    let console = BufReader::new(running.stdout.take().context("no console")?);
    for line in console.split(b'\n') {
        on_line(String::from_utf8_lossy(&line?).trim_end());
    }
    running.wait()?;
    Ok(())
}

/// What the emulated computer has said of the part that runs.
#[derive(Default)]
struct Said {
    name: String,
    lines: String,
    ended: usize,
}

impl Said {
    /// Takes a line. Returns the name and the result of a part that has ended.
    fn take(&mut self, line: &str) -> Option<(String, Result<()>)> {
        if let Some(name) = line.strip_prefix(BEGIN) {
            *self = Said { name: format!("verbs;ofi_rxm: {name}"), lines: String::new(), ended: self.ended };
        } else if let Some(status) = line.strip_prefix(END) {
            self.ended += 1;
            return Some((
                self.name.clone(),
                result_of("verbs;ofi_rxm", &self.lines, &format!("exit status {status}")),
            ));
        } else {
            self.lines.push_str(line);
            self.lines.push('\n');
        }
        None
    }

    fn last_lines(&self) -> String {
        let lines: Vec<&str> = self.lines.lines().rev().take(3).collect();
        lines.into_iter().rev().collect::<Vec<_>>().join(" / ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_has_failed_if_the_program_says_so_or_says_nothing() {
        let mut said = Said::default();
        let lines = ["boot", "trial-begin one", "note x", "ok all", "trial-end 0", "trial-begin two", "trial-end 124"];
        let results: Vec<_> = lines.iter().filter_map(|line| said.take(line)).collect();
        assert_eq!(
            results.iter().map(|(name, result)| (name.as_str(), result.is_ok())).collect::<Vec<_>>(),
            [("verbs;ofi_rxm: one", true), ("verbs;ofi_rxm: two", false)]
        );
        assert_eq!(said.ended, 2);
        assert!(said.take("trial-begin three").is_none() && said.take("FAILED no").is_none());
        assert!(said.take("trial-end 1").is_some_and(|(_, result)| result.is_err()));
    }

    #[test]
    fn the_script_of_the_emulated_computer_has_every_part() {
        let options = Options { seeds: 2, ..Options::default() };
        let parts = parts(&options);
        let script = guest_script(Path::new("/x/fabric"), &parts).unwrap();
        assert_eq!(script.matches(BEGIN).count(), parts.len());
        assert_eq!(script.matches(" serve ").count(), parts.len() + 2, "two servers for each seed of the killed peer");
    }
}
