//! A machine of two hosts that are two daemons on this host: for measurements on the loopback interface, where the other
//! systems are measured too.
use crate::common::{dist, output};
use crate::scratch;
use anyhow::{Context, Result, ensure};
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

/// No command to the machine takes longer, in seconds.
const SECONDS_MAX: &str = "20";
/// The name of the second host. With the sign in front, the console lets the address of another host be used again.
const SECOND: &str = "second";

/// The machine. Dropping it ends it.
pub struct TwoDaemons {
    folder: TempDir,
    first: Child,
    environment: Vec<(&'static str, String)>,
}

impl TwoDaemons {
    /// Starts the daemons. `fabric`: the value of `PVM_FABRIC` for all tasks.
    pub fn start(fabric: &str, is_trusted: bool) -> Result<TwoDaemons> {
        let folder = scratch::directory("fabric")?;
        let path = |name: &str| folder.path().join(name).display().to_string();
        ["first", SECOND].iter().try_for_each(|host| fs::create_dir(path(host)))?;
        // It is called as `rsh HOST [-l USER] COMMAND`.
        let shell = "#!/bin/sh\nshift\nif [ \"$1\" = -l ]; then shift 2; fi\n";
        fs::write(path("rsh"), format!("{shell}exec env PVM_TMP={} sh -c \"$*\"\n", path(SECOND)))?;
        fs::set_permissions(path("rsh"), fs::Permissions::from_mode(0o755))?;
        let bin = dist().join("bin").display().to_string();
        let mut environment = vec![
            ("PATH", format!("{bin}:{}", std::env::var("PATH").unwrap_or_default())),
            ("LD_LIBRARY_PATH", dist().join("lib").display().to_string()),
            ("PVM_TMP", path("first")),
            ("PVM_RSH", path("rsh")),
            ("PVM_ALLOW_ROOT", "1".into()),
            ("PVM_FABRIC", fabric.into()),
        ];
        if is_trusted {
            environment.push(("PVM_TRUSTED_NET", "1".into()));
        }
        let mut daemon = command(Path::new("setpriv"), &environment);
        daemon.args(["--pdeathsig", "TERM", "--"]).arg(dist().join("bin/pvmd")).arg("-n127.0.0.1");
        let errors = File::create(path("errors"))?;
        let first = daemon.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(errors).spawn();
        let mut daemons = TwoDaemons { folder, first: first.context("cannot start the daemon")?, environment };
        daemons.add_second()?;
        Ok(daemons)
    }

    fn add_second(&mut self) -> Result<()> {
        let socket = self.first.stdout.take().map(BufReader::new).and_then(|output| output.lines().next());
        let errors = || fs::read_to_string(self.folder.path().join("errors")).unwrap_or_default();
        ensure!(socket.is_some_and(|line| line.is_ok()), "the daemon does not start: {}", errors());
        let said = self.console(&format!("add \"${SECOND} ip=127.0.0.1\"\n"))?;
        ensure!(said.contains("\n1 successful\n"), "the second daemon does not start: {said}");
        Ok(())
    }

    /// Returns a command on the first host.
    pub fn command(&self, program: &Path) -> Command {
        command(program, &self.environment)
    }

    fn console(&self, lines: &str) -> Result<String> {
        let input = self.folder.path().join("input");
        fs::write(&input, lines)?;
        output(self.command(Path::new("timeout")).arg(SECONDS_MAX).arg("pvm").stdin(File::open(input)?))
    }
}

/// Returns a command that has no variables of the user's own machine.
fn command(program: &Path, environment: &[(&'static str, String)]) -> Command {
    let mut command = Command::new(program);
    let own = std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("PVM"));
    for (name, _) in own {
        command.env_remove(name);
    }
    command.envs(environment.iter().map(|(name, value)| (*name, value)));
    command
}

impl Drop for TwoDaemons {
    fn drop(&mut self) {
        if self.console("halt\n").is_err() {
            let _ = self.first.kill();
        }
        let _ = self.first.wait();
    }
}
