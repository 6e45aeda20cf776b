//! The remote shell, which is the program that runs commands on other hosts, and the places where the daemon may be
//! installed on those hosts. The daemon and `pvm doctor` use the same.
use pvm_core::dialogue::quoted;
use pvm_core::hostfile::HostLine;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The words of a step of Slurm before the host: one process, which may use all processors of the job on its host, and
/// none of the job's interfaces for MPI.
const STEP: [&str; 7] =
    ["srun", "--nodes=1", "--ntasks=1", "--ntasks-per-node=1", "--cpu-bind=none", "--mpi=none", "-w"];
/// Variables that are set for `srun`. The step of a daemon shares the processors and the memory of the job with all
/// other steps: otherwise the daemon and the user's own steps would wait for each other. `srun` before Slurm 20.11 has
/// no such option, and ignores the variable.
const STEP_SETS: [(&str, &str); 1] = [("SLURM_OVERLAP", "1")];
/// Variables that are unset for `srun`. With them the step would get a part of the host, or none of the daemon's
/// environment, or the dialogue with the daemon would go to a file or have numbers before its lines.
const STEP_UNSETS: [&str; 17] = [
    "SLURM_CPU_BIND",
    "SLURM_DISTRIBUTION",
    "SLURM_EXACT",
    "SLURM_EXCLUSIVE",
    "SLURM_EXPORT_ENV",
    "SLURM_GPUS_PER_TASK",
    "SLURM_HINT",
    "SLURM_HOSTFILE",
    "SLURM_LABELIO",
    "SLURM_NTASKS_PER_GPU",
    "SLURM_NTASKS_PER_TRES",
    "SLURM_STDERRMODE",
    "SLURM_STDINMODE",
    "SLURM_STDOUTMODE",
    "SLURM_THREADS_PER_CORE",
    "SRUN_CPUS_PER_TASK",
    "SRUN_EXPORT_ENV",
];
/// Debian's name for the remote shell that the administrator has chosen.
const DEBIAN_SHELL: &str = "/etc/alternatives/pvm-rsh";
/// Where packages install the daemon. These places are tried after `PATH` and after the place of this daemon's own
/// program.
const USUAL_PLACES: [&str; 2] = ["/usr/lib/hpvm/bin/pvmd", "/usr/local/bin/pvmd"];

/// The program that runs commands on other hosts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RemoteShell {
    /// A program with the arguments of `rsh`: a host, optionally `-l` and a login, and a command.
    Program(Vec<OsString>),
    /// Slurm's `srun`, which needs no keys within an allocation.
    Srun,
}

impl RemoteShell {
    /// Chooses the remote shell: `$PVM_RSH` with its arguments; else `srun` inside a Slurm job; else `ssh`; without
    /// `ssh`, the `pvm-rsh` of Debian if it exists. `terminal`: whether a person can be asked for a password.
    /// `connect_seconds`: the time that `ssh` may take to reach a host.
    pub fn find(variable: impl Fn(&str) -> Option<OsString>, terminal: bool, connect_seconds: u32) -> RemoteShell {
        if let Some(words) = variable("PVM_RSH") {
            let words = words.to_string_lossy().split_ascii_whitespace().map(OsString::from).collect::<Vec<_>>();
            if !words.is_empty() {
                return RemoteShell::Program(words);
            }
        }
        let path = variable("PATH").unwrap_or_default();
        if variable("SLURM_JOB_NODELIST").is_some() && in_path(&path, "srun").is_some() {
            return RemoteShell::Srun;
        }
        if in_path(&path, "ssh").is_none() && Path::new(DEBIAN_SHELL).exists() {
            return RemoteShell::Program(vec![DEBIAN_SHELL.into()]);
        }
        let connect = format!("-oConnectTimeout={connect_seconds}");
        let words = ["ssh", "-x", "-a", "-T", connect.as_str(), "-oBatchMode=yes"];
        // With a terminal, `ssh` may ask for a password.
        let count = if terminal { words.len() - 1 } else { words.len() };
        RemoteShell::Program(words[..count].iter().map(OsString::from).collect())
    }

    /// Returns whether a daemon must stay in the foreground, because this shell ends all processes of a command when
    /// the command ends.
    pub fn needs_foreground(&self) -> bool {
        *self == RemoteShell::Srun
    }

    /// Returns the words of the command line that starts a daemon. Slurm ends a step when the first process of the step
    /// ends, so the daemon takes the place of that shell, unless the command begins with a variable, as `dx=` may.
    pub fn words_for_daemon(&self, line: &HostLine, command: &str) -> Vec<OsString> {
        let first = command.split(' ').next().unwrap_or_default();
        let begins_with_variable = first.contains('=') && !first.starts_with('\'');
        match self {
            RemoteShell::Srun if !begins_with_variable => self.words(line, &format!("exec {command}")),
            _ => self.words(line, command),
        }
    }

    /// Sets and unsets the variables that this shell needs.
    pub fn prepare(&self, command: &mut Command) {
        if *self == RemoteShell::Srun {
            command.envs(STEP_SETS);
            for name in STEP_UNSETS {
                command.env_remove(name);
            }
        }
    }

    /// Returns the words of the command line that runs `command` on the host that `line` of the hostfile names.
    pub fn words(&self, line: &HostLine, command: &str) -> Vec<OsString> {
        let mut words: Vec<OsString> = match self {
            RemoteShell::Program(program) => [program.as_slice(), &[line.address().into()]].concat(),
            RemoteShell::Srun => STEP.iter().chain(&[line.address(), "sh", "-c"]).map(OsString::from).collect(),
        };
        if let (RemoteShell::Program(_), Some(login)) = (self, line.login()) {
            words.extend(["-l".into(), login.into()]);
        }
        words.push(command.into());
        words
    }
}

/// Returns the daemons to try on a host, best first. If the user has named a daemon, this is the only one. Otherwise
/// they are `pvmd` in the host's `PATH`, `own` (the program of this daemon), and the usual places. `own` is tried
/// before `pvmd` if `pvmd` in this host's `PATH` is not `own`, since the same is probably true on the other host.
pub fn daemon_candidates(
    line: &HostLine,
    variable: impl Fn(&str) -> Option<OsString>,
    own: Option<&Path>,
) -> Vec<String> {
    let text = |text: OsString| text.to_string_lossy().into_owned();
    if let Some(daemon) = line.daemon().map(str::to_owned).or_else(|| variable("PVM_DPATH").map(text)) {
        return vec![daemon];
    }
    let named = in_path(&variable("PATH").unwrap_or_default(), "pvmd").and_then(|path| path.canonicalize().ok());
    let mut daemons = vec!["pvmd".to_owned()];
    if let Some(own) = own {
        let place = if named.as_deref() == Some(own) { 1 } else { 0 };
        daemons.insert(place, quoted(&own.to_string_lossy()));
    }
    daemons.extend(USUAL_PLACES.map(str::to_owned));
    daemons
}

/// Returns the first file called `name` in a list of directories.
fn in_path(path: &OsString, name: &str) -> Option<PathBuf> {
    std::env::split_paths(path).map(|place| place.join(name)).find(|file| file.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;
    use pvm_core::hostfile::parse_host;

    fn text(words: &[OsString]) -> String {
        words.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join("|")
    }

    #[test]
    fn the_users_program_gets_its_arguments_then_those_of_pvm() {
        let shell = RemoteShell::find(|name| (name == "PVM_RSH").then(|| " /x/rsh  -v ".into()), false, 20);
        let line = parse_host("h2 lo=joe ip=10.0.0.2").unwrap();
        assert_eq!(text(&shell.words(&line, "pvmd -s -n h2")), "/x/rsh|-v|10.0.0.2|-l|joe|pvmd -s -n h2");
        assert_eq!(text(&shell.words(&parse_host("h3").unwrap(), "pvmd")), "/x/rsh|-v|h3|pvmd");
    }

    #[test]
    fn ssh_asks_no_questions_where_nobody_can_answer() {
        let line = parse_host("h2").unwrap();
        let words = |terminal| text(&RemoteShell::find(|_| None, terminal, 20).words(&line, "pvmd"));
        if !Path::new(DEBIAN_SHELL).exists() {
            assert!(words(false).contains("BatchMode=yes") && !words(true).contains("BatchMode"));
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        std::fs::write(path.join("ssh"), "").unwrap();
        let with_ssh = |name: &str| (name == "PATH").then(|| path.into());
        let words = |terminal| text(&RemoteShell::find(with_ssh, terminal, 20).words(&line, "pvmd"));
        assert_eq!(words(false), "ssh|-x|-a|-T|-oConnectTimeout=20|-oBatchMode=yes|h2|pvmd");
        assert_eq!(words(true), "ssh|-x|-a|-T|-oConnectTimeout=20|h2|pvmd");
        std::fs::write(path.join("srun"), "").unwrap();
        let in_job = |name: &str| if name == "SLURM_JOB_NODELIST" { Some("n[1-2]".into()) } else { with_ssh(name) };
        let shell = RemoteShell::find(in_job, false, 20);
        let words = text(&shell.words(&line, "pvmd -s"));
        assert!(words.starts_with("srun|--nodes=1|--ntasks=1|") && words.ends_with("|-w|h2|sh|-c|pvmd -s"), "{words}");
        assert!(shell.needs_foreground());
        let last = |daemon: &str| shell.words_for_daemon(&line, daemon).pop().unwrap();
        let daemons = ["pvmd -s", "'/a=b/pvmd' -s", "A=1 pvmd -s"].map(last);
        assert_eq!(daemons, ["exec pvmd -s", "exec '/a=b/pvmd' -s", "A=1 pvmd -s"]);
    }

    #[test]
    fn a_step_of_slurm_shares_the_hosts_and_leaves_the_dialogue_alone() {
        let mut command = Command::new("srun");
        RemoteShell::Srun.prepare(&mut command);
        let variables: Vec<_> = command.get_envs().collect();
        assert!(variables.contains(&("SLURM_OVERLAP".as_ref(), Some("1".as_ref()))));
        assert!(variables.contains(&("SLURM_LABELIO".as_ref(), None)));
        let mut command = Command::new("ssh");
        RemoteShell::Program(vec!["ssh".into()]).prepare(&mut command);
        assert_eq!(command.get_envs().count(), 0);
    }

    #[test]
    fn the_own_program_is_tried_and_first_where_pvmd_is_another() {
        let none = |_: &str| None;
        let line = parse_host("h2").unwrap();
        let own = Path::new("/opt/hpvm/bin/pvmd");
        assert_eq!(daemon_candidates(&line, none, Some(own))[..2], ["/opt/hpvm/bin/pvmd", "pvmd"]);
        assert_eq!(daemon_candidates(&line, none, None)[0], "pvmd");
        assert_eq!(daemon_candidates(&parse_host("h2 dx=x/pvmd").unwrap(), none, Some(own)), ["x/pvmd"]);
        assert_eq!(daemon_candidates(&line, |name| (name == "PVM_DPATH").then(|| "y".into()), Some(own)), ["y"]);
    }
}
