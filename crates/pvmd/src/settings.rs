//! What the daemon takes from its environment, its host and the hostfile (contract 5.3, 5.4).
use crate::arguments::{self, Options};
use pvm_core::hostfile::Hostfile;
use pvm_core::machine::HostSettings;
use pvm_core::{codes, machine};
use pvm_link::rendezvous::Places;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The log is cut at this many bytes unless `PVMDLOGMAX` says otherwise.
const LOG_BYTES_MAX: u64 = 1_000_000;
/// The most bytes of a line on standard input that is looked at for `PVM_VMID`.
const LINE_BYTES_MAX: usize = 1024;

/// PVM's name for this kind of machine (contract 5.8).
pub const ARCHITECTURE: &str = if cfg!(target_arch = "s390x") {
    "LINUXS390X"
} else if cfg!(target_arch = "arm") {
    "LINUXARM"
} else if cfg!(target_pointer_width = "32") {
    "LINUX"
} else {
    "LINUX64"
};

/// Everything that stays the same while the daemon lives.
pub struct Settings {
    /// Where daemons make themselves known.
    pub places: Places,
    /// For sockets and logs.
    pub temporary: PathBuf,
    /// `PVM_VMID`, also for tasks.
    pub machine_id: Option<OsString>,
    /// What the machine needs to know.
    pub machine: machine::Settings,
    /// `-d`, `PVMDDEBUG`.
    pub debug_mask: i32,
    /// `PVM_ROOT`.
    pub root: PathBuf,
    /// `ep=`: where programs are looked for.
    pub search: Vec<PathBuf>,
    /// `wd=`: where tasks run.
    pub directory: PathBuf,
    /// `bx=`.
    pub debugger: PathBuf,
    /// `PVMDLOGMAX`.
    pub log_bytes_max: u64,
    /// Command lines of helpers: `PVM_TASKER` and so on.
    pub helpers: Vec<String>,
    /// What to complain about in the log.
    pub complaints: Vec<String>,
}

impl Settings {
    /// Collects everything; an unreadable hostfile is an error (D31).
    pub fn find(options: &Options) -> crate::Result<Settings> {
        let machine_id = machine_id_on_input().or_else(|| variable("PVM_VMID"));
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let user = rustix::process::geteuid().as_raw();
        let places = Places::new(user, host.as_ref(), |name| match name {
            "PVM_VMID" => machine_id.clone(),
            _ => variable(name),
        });
        let mut complaints = Vec::new();
        let file = read_hostfile(options)?;
        complaints.extend(file.errors.iter().map(|(line, error)| format!("hostfile line {line}: {error}")));
        let name = options.name.clone().unwrap_or_else(|| host.clone());
        let own_names = own_names(&name, &host);
        let own = file.options_of(&own_names.iter().map(String::as_str).collect::<Vec<_>>());
        let others = file.hosts.iter().filter(|line| !line.later && !own_names.iter().any(|own| own == line.name()));
        complaints.extend(others.map(|line| format!("host {}: {}", line.name(), codes::Code::CantStart)));

        let root = variable("PVM_ROOT").map_or_else(default_root, PathBuf::from);
        let home = variable("HOME").unwrap_or_else(|| {
            complaints.push("HOME is not set, / is used".into());
            "/".into()
        });
        let expand = |text: &str| expand(text, &|name| lookup(name, &root, &home));
        let either = |line: Option<&str>, name: &str, default: &str| {
            let text = line.map(str::to_owned).or_else(|| variable(name).map(lossy));
            expand(text.as_deref().unwrap_or(default))
        };
        let default_search = "$HOME/pvm3/bin/$PVM_ARCH:$PVM_ROOT/bin/$PVM_ARCH";
        let search = either(own.path.as_deref(), "PVM_PATH", default_search);
        let mut directory = PathBuf::from(either(own.directory.as_deref(), "PVM_WD", "$HOME"));
        if !directory.is_dir() {
            complaints.push(format!("{} is no directory, / is used", directory.display()));
            directory = "/".into();
        }
        let debugger = either(own.debugger.as_deref(), "PVM_DEBUGGER", "$PVM_ROOT/lib/debugger");
        let host = HostSettings {
            name,
            arch: ARCHITECTURE.into(),
            speed: own.speed.unwrap_or(codes::SPEED_DEFAULT),
            dsig: codes::native_dsig(),
        };
        let debug_mask = options.debug_mask.or_else(|| arguments::number(&lossy(variable("PVMDDEBUG")?)));
        Ok(Settings {
            temporary: std::path::absolute(&places.temporary)?,
            machine_id,
            machine: machine::Settings {
                tasks_max: tasks_max(),
                barrier_patience: barrier_patience(),
                hostfile: file,
                ..machine::Settings::new(host)
            },
            debug_mask: debug_mask.unwrap_or(0),
            search: std::env::split_paths(&search).filter(|path| !path.as_os_str().is_empty()).collect(),
            directory,
            debugger: PathBuf::from(debugger),
            root,
            log_bytes_max: log_bytes_max(),
            helpers: helpers(),
            complaints,
            places,
        })
    }
}

fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

fn lossy(text: OsString) -> String {
    text.to_string_lossy().into_owned()
}

fn tasks_max() -> usize {
    let limit = variable("PVM_MAX_TASKS").and_then(|text| lossy(text).trim().parse::<usize>().ok());
    limit.filter(|limit| *limit > 0).unwrap_or(usize::MAX)
}

/// `HPVM_BARRIER_PATIENCE`, in seconds.
fn barrier_patience() -> Duration {
    let seconds = variable("HPVM_BARRIER_PATIENCE").and_then(|text| lossy(text).trim().parse().ok());
    seconds.map_or(machine::BARRIER_PATIENCE, Duration::from_secs)
}

fn log_bytes_max() -> u64 {
    variable("PVMDLOGMAX").and_then(|text| lossy(text).trim().parse().ok()).unwrap_or(LOG_BYTES_MAX)
}

fn helpers() -> Vec<String> {
    ["PVM_RM", "PVM_TASKER", "PVM_HOSTER", "PVM_TRACER"].iter().filter_map(|name| variable(name).map(lossy)).collect()
}

/// `PVM_ROOT` where it is not set: what belongs to the installation in which this program lies.
fn default_root() -> PathBuf {
    let program = std::env::current_exe().unwrap_or_default();
    let prefix = program.parent().and_then(Path::parent).unwrap_or(Path::new("/"));
    let root = prefix.join("lib/pvm3");
    if root.is_dir() { root } else { prefix.to_owned() }
}

fn read_hostfile(options: &Options) -> crate::Result<Hostfile> {
    let Some(path) = options.hostfile.clone().or_else(|| variable("PVMHOSTFILE").map(PathBuf::from)) else {
        return Ok(Hostfile::default());
    };
    let text = std::fs::read(&path).map_err(|error| format!("hostfile {}: {error}", path.display()))?;
    Ok(Hostfile::parse(&String::from_utf8_lossy(&text)))
}

/// The names under which a hostfile can mean this host.
fn own_names(name: &str, host: &str) -> Vec<String> {
    let short = |name: &str| name.split('.').next().unwrap_or_default().to_owned();
    vec![name.to_owned(), host.to_owned(), short(name), short(host), "localhost".into(), "127.0.0.1".into()]
}

fn lookup(name: &str, root: &Path, home: &std::ffi::OsStr) -> Option<String> {
    match name {
        "PVM_ARCH" => Some(ARCHITECTURE.into()),
        "PVM_ROOT" => Some(root.to_string_lossy().into_owned()),
        "HOME" => Some(home.to_string_lossy().into_owned()),
        _ => std::env::var(name).ok(),
    }
}

/// Replaces `$NAME` and `${NAME}`; unknown ones stay as they are.
fn expand(text: &str, lookup: &dyn Fn(&str) -> Option<String>) -> String {
    let mut result = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        result.push_str(&rest[..at]);
        let after = &rest[at + 1..];
        let braced = after.strip_prefix('{').and_then(|inner| inner.split_once('}')).map(|(name, _)| name);
        let plain_end = after.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(after.len());
        let (name, length) = match braced {
            Some(name) => (name, name.len() + 2),
            None => (&after[..plain_end], plain_end),
        };
        match lookup(name) {
            Some(value) => result.push_str(&value),
            None => result.push_str(&rest[at..at + 1 + length]),
        }
        rest = &after[length..];
    }
    result + rest
}

/// A starter over the network sends `PVM_VMID=x` on standard input. Only a pipe or socket is
/// looked at, without waiting, so that nobody's typing or list of hosts is eaten.
fn machine_id_on_input() -> Option<OsString> {
    use rustix::event::{PollFd, PollFlags, poll};
    use rustix::fs::FileType;
    let input = std::io::stdin();
    let kind = FileType::from_raw_mode(rustix::fs::fstat(&input).ok()?.st_mode);
    if !matches!(kind, FileType::Fifo | FileType::Socket) {
        return None;
    }
    let mut line = Vec::new();
    let now = rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 };
    while line.len() < LINE_BYTES_MAX {
        let mut ready = [PollFd::new(&input, PollFlags::IN)];
        if poll(&mut ready, Some(&now)).ok()? == 0 {
            break;
        }
        let mut byte = [0];
        if rustix::io::read(&input, &mut byte).ok()? == 0 || byte == *b"\n" {
            break;
        }
        line.push(byte[0]);
    }
    let id = line.split(u8::is_ascii_whitespace).find_map(|word| word.strip_prefix(b"PVM_VMID="))?;
    Some(OsString::from_vec(id.to_vec())).filter(|id| !id.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_expanded_and_unknown_ones_stay() {
        let lookup = |name: &str| (name == "A_1").then(|| "x/y".to_owned());
        assert_eq!(expand("$A_1/b:${A_1}z:$B:${C}:$", &lookup), "x/y/b:x/yz:$B:${C}:$");
        assert_eq!(expand("plain", &lookup), "plain");
    }
}
