//! The remote shell, which is the program that runs commands on other hosts, and the places where the daemon may be
//! installed on those hosts.
use pvm_core::dialogue::quoted;
use pvm_core::hostfile::HostLine;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Time that `ssh` may take to reach a host, in seconds.
const CONNECT_SECONDS: u32 = 20;
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
    pub fn find(variable: impl Fn(&str) -> Option<OsString>, terminal: bool) -> RemoteShell {
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
        let connect = format!("-oConnectTimeout={CONNECT_SECONDS}");
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

    /// Returns the words of the command line that runs `command` on the host that `line` of the hostfile names.
    pub fn words(&self, line: &HostLine, command: &str) -> Vec<OsString> {
        let mut words: Vec<OsString> = match self {
            RemoteShell::Program(program) => [program.as_slice(), &[line.address().into()]].concat(),
            RemoteShell::Srun => {
                let step = ["srun", "--nodes=1", "--ntasks=1", "-w", line.address(), "sh", "-c"];
                step.iter().map(OsString::from).collect()
            }
        };
        if let (RemoteShell::Program(_), Some(login)) = (self, line.login()) {
            words.extend(["-l".into(), login.into()]);
        }
        words.push(command.into());
        words
    }
}

/// Returns whether this process belongs to the foreground process group of its terminal. A process of any other group
/// is stopped when it reads a password from the terminal.
pub fn is_in_foreground() -> bool {
    let in_front = |terminal| rustix::termios::tcgetpgrp(terminal) == Ok(rustix::process::getpgrp());
    std::fs::File::open("/dev/tty").is_ok_and(in_front)
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
        let shell = RemoteShell::find(|name| (name == "PVM_RSH").then(|| " /x/rsh  -v ".into()), false);
        let line = parse_host("h2 lo=joe ip=10.0.0.2").unwrap();
        assert_eq!(text(&shell.words(&line, "pvmd -s -n h2")), "/x/rsh|-v|10.0.0.2|-l|joe|pvmd -s -n h2");
        assert_eq!(text(&shell.words(&parse_host("h3").unwrap(), "pvmd")), "/x/rsh|-v|h3|pvmd");
    }

    #[test]
    fn ssh_asks_no_questions_where_nobody_can_answer() {
        let line = parse_host("h2").unwrap();
        let words = |terminal| text(&RemoteShell::find(|_| None, terminal).words(&line, "pvmd"));
        if !Path::new(DEBIAN_SHELL).exists() {
            assert!(words(false).contains("BatchMode=yes") && !words(true).contains("BatchMode"));
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        std::fs::write(path.join("ssh"), "").unwrap();
        let with_ssh = |name: &str| (name == "PATH").then(|| path.into());
        let words = |terminal| text(&RemoteShell::find(with_ssh, terminal).words(&line, "pvmd"));
        assert_eq!(words(false), "ssh|-x|-a|-T|-oConnectTimeout=20|-oBatchMode=yes|h2|pvmd");
        assert_eq!(words(true), "ssh|-x|-a|-T|-oConnectTimeout=20|h2|pvmd");
        std::fs::write(path.join("srun"), "").unwrap();
        let in_job = |name: &str| if name == "SLURM_JOB_NODELIST" { Some("n[1-2]".into()) } else { with_ssh(name) };
        let shell = RemoteShell::find(in_job, false);
        assert_eq!(text(&shell.words(&line, "pvmd -s")), "srun|--nodes=1|--ntasks=1|-w|h2|sh|-c|pvmd -s");
        assert!(shell.needs_foreground());
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
