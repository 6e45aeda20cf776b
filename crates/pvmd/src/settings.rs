//! What the daemon takes from its environment, its host and the hostfile (contract 5.3, 5.4).
use crate::arguments::{self, Options, Slave};
use crate::program_search::ProgramSearch;
use crate::resolve::HOSTS_FILE;
use crate::start::starts_max;
use crate::{addresses, resolve};
use pvm_core::hostfile::{HostLine, Hostfile};
use pvm_core::machine::limits::{
    GROUPS_MAX, HOST_REQUESTS_MAX, HOST_WATCHES_MAX, Limits, MAILBOX_BYTES_MAX, MEMBERS_MAX, TASK_REQUESTS_MAX,
    TASK_WATCHES_MAX,
};
use pvm_core::machine::{HostSettings, Rank};
use pvm_core::wire::{HostOptions, Key};
use pvm_core::{codes, machine};
use pvm_link::rendezvous::Places;
use pvm_net::{Connector, Identity, KeyPair};
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::time::Duration;

/// The log, twice: the current one and the one before.
///
/// * Filled by: all who have something logged: tasks by what they print, strangers by calling
/// * Setting: `PVMDLOGMAX`
/// * Reached: the log is kept as the one before, and a new one begun
/// * Test: `the_log_begins_afresh_and_is_turned_over_when_full`
const LOG_BYTES_MAX: u64 = 1_000_000;
/// What waits for a task on its socket, beside the frame that exceeds it and one that is longer by itself, or for one
/// that has not come yet.
///
/// * Filled by: tasks and hosts that send by way of the daemon to a task that takes nothing
/// * Setting: `HPVM_BACKLOG_MAX`, 4 MiB at least
/// * Reached: the task is disconnected, as if its daemon had gone; to one that has not come yet nothing more is
///   sent by way of the daemon
/// * Test: `a_task_that_takes_nothing_of_the_daemon_is_disconnected`,
///   `what_waits_for_a_task_that_has_not_come_is_bounded`
pub const BACKLOG_BYTES_MAX: usize = 64 << 20;
/// With less, output that is read in one go could be too much for who collects it.
const BACKLOG_BYTES_MIN: usize = 4 << 20;
/// Nobody waits for longer, whatever a variable says: a moment that far ahead can still be named.
const PATIENCE_MAX: Duration = Duration::from_secs(366 * 24 * 3600);
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
    /// Where programs are looked for, where tasks run.
    pub program_search: ProgramSearch,
    /// The key of this daemon.
    pub keys: KeyPair,
    /// Hosts of the hostfile that are to be started now.
    pub hosts: Vec<HostLine>,
    /// Of a daemon that joins: the master's key.
    pub master_key: Option<Key>,
    /// `PVMDLOGMAX`.
    pub log_bytes_max: u64,
    /// `HPVM_BACKLOG_MAX`.
    pub backlog_bytes_max: usize,
    /// `HPVM_STARTS_MAX`.
    pub starts_max: usize,
    /// Command lines of helpers: `PVM_TASKER` and so on.
    pub helpers: Vec<String>,
    /// What the log has to tell of the settings.
    pub complaints: Vec<String>,
}

impl Settings {
    /// Collects everything; an unreadable hostfile is an error (D31).
    pub fn of_master(options: &Options) -> crate::Result<Settings> {
        let file = read_hostfile(options)?;
        let machine_id = machine_id_on_input().or_else(|| variable("PVM_VMID"));
        let mut settings = Settings::find(options, machine_id, Rank::Master)?;
        let bad_lines = file.errors.iter().map(|(line, error)| format!("hostfile line {line}: {error}"));
        settings.complaints.extend(bad_lines);
        settings.helpers = helpers();
        settings.machine.hostfile = file;
        settings.machine.trusted = variable("PVM_TRUSTED_NET").is_some_and(|value| value != "0");
        settings.machine.host_timeout = seconds(variable("HPVM_HOST_TIMEOUT"), machine::HOST_TIMEOUT);
        Ok(settings)
    }

    /// Finds out what the hostfile says of this host, and which hosts are others. Names are looked
    /// up, which can take long: others know by now that there is a daemon.
    pub fn use_hostfile(&mut self) {
        let file = &self.machine.hostfile;
        let own_names = own_names(&self.machine.host.name, file);
        let is_own = |line: &HostLine| !line.overload && own_names.iter().any(|own| own == line.address());
        let own = file.options_of(&own_names.iter().map(String::as_str).collect::<Vec<_>>());
        self.hosts = file.hosts.iter().filter(|line| !line.later && !is_own(line)).cloned().collect();
        self.machine.host.speed = own.speed.unwrap_or(codes::SPEED_DEFAULT);
        self.work_at(&HostOptions { path: own.path, directory: own.directory, debugger: own.debugger });
    }

    /// Whether a person is to start hosts of the hostfile (so=ms), who needs the starter's terminal.
    pub fn needs_terminal(&self) -> bool {
        self.hosts.iter().any(|line| line.start_option() == Some("ms"))
    }

    /// Collects everything for a daemon that joins; the rest comes with the master's welcome.
    pub fn of_slave(options: &Options, slave: Slave, machine_id: Option<String>) -> crate::Result<Settings> {
        let machine_id = machine_id.map(OsString::from).or_else(|| variable("PVM_VMID"));
        let rank = Rank::Slave { own: slave.own, master: slave.master };
        Settings::find(options, machine_id, rank)
    }

    fn find(options: &Options, machine_id: Option<OsString>, rank: Rank) -> crate::Result<Settings> {
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let user = rustix::process::geteuid().as_raw();
        let places = Places::new(user, host.as_ref(), |name| match name {
            "PVM_VMID" => machine_id.clone(),
            _ => variable(name),
        });
        let mut complaints = Vec::new();
        let program_search = ProgramSearch::new(&HostOptions::default(), &mut complaints);
        let name = options.name.clone().unwrap_or_else(|| host.clone());
        let speed = codes::SPEED_DEFAULT;
        let own = HostSettings { name, arch: ARCHITECTURE.into(), speed, dsig: codes::native_dsig() };
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let debug_mask = options.debug_mask.or_else(|| arguments::number(&lossy(variable("PVMDDEBUG")?)));
        let keys = KeyPair::generate().map_err(|_| "the system gives no random numbers")?;
        let mut aliases = vec![host];
        aliases.extend(resolve::names_of(&addresses::own(), &std::fs::read_to_string(HOSTS_FILE).unwrap_or_default()));
        Ok(Settings {
            temporary: std::path::absolute(&places.temporary)?,
            machine_id,
            machine: machine::Settings {
                tasks_max: tasks_max(variable("PVM_MAX_TASKS")),
                limits: limits(variable),
                barrier_patience: seconds(variable("HPVM_BARRIER_PATIENCE"), machine::BARRIER_PATIENCE),
                rank,
                key: keys.public().0,
                aliases,
                ..machine::Settings::new(own)
            },
            debug_mask: debug_mask.unwrap_or(0),
            program_search,
            keys,
            hosts: Vec::new(),
            master_key: None,
            log_bytes_max: log_bytes_max(variable("PVMDLOGMAX")),
            backlog_bytes_max: count(variable("HPVM_BACKLOG_MAX"), BACKLOG_BYTES_MAX).max(BACKLOG_BYTES_MIN),
            starts_max: count(variable("HPVM_STARTS_MAX"), starts_max(processors)),
            helpers: Vec::new(),
            complaints,
            places,
        })
    }

    /// Opens the port at which other daemons call, and notes where that is. The master calls everybody
    /// and has no need to be called.
    pub fn listen(&mut self) -> crate::Result<Connector> {
        let wanted = variable("PVMNETSOCKPORT").and_then(|text| lossy(text).trim().parse().ok()).unwrap_or(0);
        let identity = Identity::new(KeyPair::from_secret(self.keys.secret()));
        let mut connector = Connector::new(identity, self.machine.host_timeout)?;
        if self.machine.rank != Rank::Master {
            connector.listen(wanted).map_err(|error| format!("cannot listen for other hosts: {error}"))?;
        }
        self.machine.addresses = addresses::with_port(&addresses::own(), connector.port());
        Ok(connector)
    }

    /// No more tasks than fit, for the reason that is named.
    pub fn limit_tasks(&mut self, tasks_max: usize, cause: String) {
        if tasks_max < self.machine.tasks_max {
            (self.machine.tasks_max, self.machine.tasks_max_cause) = (tasks_max, cause);
        }
    }

    /// Takes over what the hostfile says of this host.
    pub fn work_at(&mut self, options: &HostOptions) {
        let mut complaints = Vec::new();
        self.program_search = ProgramSearch::new(options, &mut complaints);
        complaints.retain(|complaint| !self.complaints.contains(complaint));
        self.complaints.extend(complaints);
    }
}

fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

fn lossy(text: OsString) -> String {
    text.to_string_lossy().into_owned()
}

/// What `PVM_MAX_TASKS` says.
pub(crate) fn tasks_max(text: Option<OsString>) -> usize {
    let limit = text.and_then(|text| lossy(text).trim().parse::<usize>().ok());
    limit.filter(|limit| *limit > 0).unwrap_or(machine::TASKS_MAX)
}

/// What the variables say that bound what this daemon keeps.
pub(crate) fn limits(variable: impl Fn(&str) -> Option<OsString>) -> Limits {
    Limits {
        mailbox_bytes: count(variable("HPVM_MAILBOX_MAX"), MAILBOX_BYTES_MAX),
        task_watches: count(variable("HPVM_TASK_WATCHES_MAX"), TASK_WATCHES_MAX),
        host_watches: count(variable("HPVM_HOST_WATCHES_MAX"), HOST_WATCHES_MAX),
        groups: count(variable("HPVM_GROUPS_MAX"), GROUPS_MAX),
        members: count(variable("HPVM_MEMBERS_MAX"), MEMBERS_MAX),
        task_requests: count(variable("HPVM_TASK_REQUESTS_MAX"), TASK_REQUESTS_MAX),
        host_requests: count(variable("HPVM_HOST_REQUESTS_MAX"), HOST_REQUESTS_MAX),
    }
}

/// What a variable says that holds a number of things, at least one.
fn count(text: Option<OsString>, default: usize) -> usize {
    let count = text.and_then(|text| lossy(text).trim().parse::<usize>().ok());
    count.filter(|count| *count > 0).unwrap_or(default)
}

/// What a variable says that holds a number of seconds.
pub(crate) fn seconds(text: Option<OsString>, default: Duration) -> Duration {
    let value = text.and_then(|text| lossy(text).trim().parse::<f64>().ok());
    let value = value.and_then(|value| Duration::try_from_secs_f64(value).ok()).filter(|value| !value.is_zero());
    value.map_or(default, |value| value.min(PATIENCE_MAX))
}

/// What `PVMDLOGMAX` says.
pub(crate) fn log_bytes_max(text: Option<OsString>) -> u64 {
    text.and_then(|text| lossy(text).trim().parse().ok()).unwrap_or(LOG_BYTES_MAX)
}

fn helpers() -> Vec<String> {
    ["PVM_RM", "PVM_TASKER", "PVM_HOSTER", "PVM_TRACER"].iter().filter_map(|name| variable(name).map(lossy)).collect()
}

fn read_hostfile(options: &Options) -> crate::Result<Hostfile> {
    let Some(path) = options.hostfile.clone().or_else(|| variable("PVMHOSTFILE").map(PathBuf::from)) else {
        return Ok(Hostfile::default());
    };
    let text = std::fs::read(&path).map_err(|error| format!("hostfile {}: {error}", path.display()))?;
    Ok(Hostfile::parse(&String::from_utf8_lossy(&text)))
}

/// The names under which a hostfile can mean this host, those of the file among them that lead here.
fn own_names(name: &str, file: &Hostfile) -> Vec<String> {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let short = |name: &str| name.split('.').next().unwrap_or_default().to_owned();
    let mut names = vec![name.to_owned(), host.clone(), short(name), short(&host), "localhost".into()];
    let others = file.hosts.iter().map(HostLine::address).filter(|address| !names.iter().any(|own| own == address));
    let here = resolve::own_among(others.map(str::to_owned).collect());
    names.extend(here);
    names
}

/// A starter over the network sends `PVM_VMID=x` on standard input. Only a pipe or socket is
/// looked at, without waiting, so that nobody's typing or list of hosts is eaten.
pub fn machine_id_on_input() -> Option<OsString> {
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
    fn limits_are_set_by_variables_that_hold_numbers() {
        let of = |name: &'static str, text: &'static str| limits(move |it| (it == name).then(|| text.into()));
        let usual = Limits::default();
        assert_eq!(of("HPVM_MAILBOX_MAX", " 5 "), Limits { mailbox_bytes: 5, ..usual.clone() });
        assert_eq!(of("HPVM_TASK_WATCHES_MAX", "6"), Limits { task_watches: 6, ..usual.clone() });
        assert_eq!(of("HPVM_HOST_WATCHES_MAX", "7"), Limits { host_watches: 7, ..usual.clone() });
        assert_eq!(of("HPVM_GROUPS_MAX", "8"), Limits { groups: 8, ..usual.clone() });
        assert_eq!(of("HPVM_MEMBERS_MAX", "9"), Limits { members: 9, ..usual.clone() });
        assert_eq!(of("HPVM_TASK_REQUESTS_MAX", "10"), Limits { task_requests: 10, ..usual.clone() });
        assert_eq!(of("HPVM_HOST_REQUESTS_MAX", "11"), Limits { host_requests: 11, ..usual.clone() });
        for nonsense in ["", "0", "-1", "many", "1e9", "99999999999999999999999"] {
            assert_eq!(of("HPVM_GROUPS_MAX", nonsense), usual, "{nonsense}");
        }
    }

    #[test]
    fn times_beyond_all_clocks_are_cut_and_nonsense_leaves_the_default() {
        let default = Duration::from_secs(10);
        for (text, value) in
            [("2.5", Duration::from_millis(2500)), ("1e18", PATIENCE_MAX), ("0", default), ("x", default)]
        {
            assert_eq!(seconds(Some(text.into()), default), value, "{text}");
        }
        assert!(std::time::Instant::now().checked_add(PATIENCE_MAX).is_some());
    }
}
