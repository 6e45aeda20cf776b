//! The daemon's settings, from its environment, its host and the hostfile (contract 5.3, 5.4).
use crate::architecture::ARCHITECTURE;
use crate::arguments::{self, Options, Slave};
use crate::program_search::ProgramSearch;
use crate::resolve::HOSTS_FILE;
use crate::start::starts_max;
use crate::{addresses, resolve};
use pvm_core::fabric::Wish;
use pvm_core::flows::multicast::McastRoute;
use pvm_core::flows::pacing::Pacing;
use pvm_core::hostfile::{self, HostLine, Hostfile};
use pvm_core::machine::limits::{
    GROUPS_MAX, HOST_REQUESTS_MAX, HOST_WATCHES_MAX, Limits, MAILBOX_BYTES_MAX, MEMBERS_MAX, TASK_REQUESTS_MAX,
    TASK_WATCHES_MAX,
};
use pvm_core::machine::{HostSettings, OneWay, Rank};
use pvm_core::proto::Order;
use pvm_core::release::CHAIN_VALUE_BYTES;
use pvm_core::wire::{HostOptions, Key};
use pvm_core::{codes, machine};
use pvm_link::rendezvous::{self, Places};
use pvm_net::{Connector, Identity, KeyPair};
use std::ffi::OsString;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::time::Duration;

/// The first of the ports that nobody registers (RFC 6335).
const FIRST_DYNAMIC_PORT: u16 = 0xc000;
/// The maximum length of a log, in bytes. There can be two logs: the current one and the previous one.
///
/// * Filled by: everybody who causes log lines: tasks that print, strangers that connect
/// * Setting: `PVMDLOGMAX`
/// * Reached: the log is kept as the previous one, and a new one is begun
/// * Test: `the_log_begins_afresh_and_is_turned_over_when_full`
const LOG_BYTES_MAX: u64 = 1_000_000;
/// Bytes that may wait for a task on its socket when another frame is added; a waiting frame that alone is longer than
/// the limit does not count. Also the number of bytes that may wait for a task that has not enrolled.
///
/// * Filled by: tasks and hosts that send through the daemon to a task that takes nothing
/// * Setting: `HPVM_BACKLOG_MAX`, 4 MiB at least
/// * Reached: the task is disconnected, as if its daemon had ended; a task that has not enrolled gets no more messages
///   through the daemon
/// * Test: `a_task_that_takes_nothing_of_the_daemon_is_disconnected`,
///   `what_waits_for_a_task_that_has_not_come_is_bounded`
pub const BACKLOG_BYTES_MAX: usize = 64 << 20;
/// The lowest backlog limit that can be set. With a lower one, a single read of output could exceed the limit of its
/// collector.
const BACKLOG_BYTES_MIN: usize = 4 << 20;
/// An upper bound for the times that variables set. A point in time that lies so far ahead can still be represented.
const PATIENCE_MAX: Duration = Duration::from_secs(366 * 24 * 3600);
/// Bytes of standard input that are searched for `PVM_VMID`.
const LINE_BYTES_MAX: usize = 1024;

/// Settings that stay the same while the daemon runs.
pub struct Settings {
    /// Where daemons publish their sockets.
    pub places: Places,
    /// The directory for sockets and logs.
    pub temporary: PathBuf,
    /// `PVM_VMID`, also for tasks.
    pub machine_id: Option<OsString>,
    /// The settings of the machine.
    pub machine: machine::Settings,
    /// `-d`, `PVMDDEBUG`.
    pub debug_mask: i32,
    /// Where tasks find their programs and where they run.
    pub program_search: ProgramSearch,
    /// `mcast=`: the route of multicasts of tasks that choose none.
    pub mcast_route: McastRoute,
    /// The key of this daemon.
    pub keys: KeyPair,
    /// Hosts of the hostfile that are to be started now.
    pub hosts: Vec<HostLine>,
    /// The master's key, for a daemon that joins.
    pub master_key: Option<Key>,
    /// `PVMDLOGMAX`.
    pub log_bytes_max: u64,
    /// `HPVM_BACKLOG_MAX`.
    pub backlog_bytes_max: usize,
    /// `HPVM_STARTS_MAX`.
    pub starts_max: usize,
    /// Command lines of helpers, such as `PVM_TASKER`.
    pub helpers: Vec<String>,
    /// Lines for the log about wrong settings.
    pub complaints: Vec<String>,
}

impl Settings {
    /// Collects the settings of a first daemon. An unreadable hostfile is an error (D31).
    pub fn of_master(options: &Options) -> crate::Result<Settings> {
        let file = read_hostfile(options)?;
        let machine_id = machine_id_on_input().or_else(|| rendezvous::machine_id(variable));
        let mut settings = Settings::find(options, machine_id, Rank::Master)?;
        settings.complaints.extend(file.complaints("hostfile"));
        settings.helpers = helpers();
        settings.machine.hostfile = file;
        settings.machine.trusted = variable("PVM_TRUSTED_NET").is_some_and(|value| value != "0");
        settings.machine.pacing = pacing(variable("PVM_PACING"));
        let complaints = &mut settings.complaints;
        settings.machine.order = order(variable("HPVM_ORDER")).unwrap_or_else(|text| {
            complaints.push(format!("HPVM_ORDER is `{text}`, which is neither `hosts` nor `pairs`; `hosts` is used"));
            Order::Hosts
        });
        settings.machine.broadcast = broadcast_group(variable("PVM_BROADCAST")).unwrap_or_else(|complaint| {
            complaints.push(complaint);
            None
        });
        let default = machine::BARRIER_BROADCAST_HOSTS;
        settings.machine.barrier_broadcast_hosts = hosts_from(variable("HPVM_BARRIER_BROADCAST"), default)
            .unwrap_or_else(|text| {
                let expected = "neither `off` nor a number of hosts";
                complaints.push(format!("HPVM_BARRIER_BROADCAST is `{text}`, which is {expected}; {default} is used"));
                default
            });
        settings.machine.halt_grace = seconds(variable("HPVM_HALT_GRACE"), machine::HALT_GRACE);
        settings.machine.host_timeout = seconds(variable("HPVM_HOST_TIMEOUT"), machine::HOST_TIMEOUT);
        Ok(settings)
    }

    /// Applies the hostfile's options for this host, and finds out which hosts in the hostfile are other hosts. This
    /// looks names up, which can take long, so it is done after the daemon's socket has been published.
    pub fn use_hostfile(&mut self) {
        let file = &self.machine.hostfile;
        let own_names = own_names(&self.machine.host.name, file);
        let is_own = |line: &HostLine| !line.overload && own_names.iter().any(|own| own == line.address());
        let own = file.options_of(&own_names.iter().map(String::as_str).collect::<Vec<_>>());
        self.hosts = file.hosts.iter().filter(|line| !line.later && !is_own(line)).cloned().collect();
        self.machine.host.speed = own.speed.unwrap_or(codes::SPEED_DEFAULT);
        self.machine.host.node = own.node;
        self.machine.host.groups = own.groups;
        let mcast = own.mcast.unwrap_or_default();
        let of_hostfile = Wish { setting: own.fabric, never_clear: false };
        self.machine.fabric = self.machine.fabric.or(&of_hostfile);
        self.apply_host_options(&HostOptions {
            path: own.path,
            directory: own.directory,
            debugger: own.debugger,
            mcast,
            fabric: None,
        });
    }

    /// Returns whether a person must start hosts of the hostfile (so=ms). The daemon needs its terminal for this.
    pub fn needs_terminal(&self) -> bool {
        self.hosts.iter().any(|line| line.start_option() == Some("ms"))
    }

    /// Collects the settings of a daemon that joins. The other settings arrive with the master's welcome.
    pub fn of_slave(options: &Options, slave: Slave, machine_id: Option<String>) -> crate::Result<Settings> {
        let machine_id = machine_id.map(OsString::from).or_else(|| rendezvous::machine_id(variable));
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
        let own = HostSettings {
            name,
            arch: ARCHITECTURE.into(),
            speed,
            node: None,
            groups: None,
            dsig: codes::native_dsig(),
        };
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
                one_way: one_way(),
                fabric: Wish::of_variables(|name| Some(lossy(variable(name)?))),
                key: keys.public().0,
                aliases,
                ..machine::Settings::new(own)
            },
            debug_mask: debug_mask.unwrap_or(0),
            program_search,
            mcast_route: McastRoute::default(),
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

    /// Opens the port at which other daemons connect, and notes its addresses. The first daemon of a machine opens it when it
    /// adds hosts.
    pub fn listen(&mut self) -> crate::Result<Connector> {
        let identity = Identity::new(KeyPair::from_secret(self.keys.secret()));
        let mut connector = Connector::new(identity, self.machine.host_timeout)?;
        if self.machine.rank != Rank::Master {
            connector.listen(wanted_port()).map_err(|error| format!("cannot listen for other hosts: {error}"))?;
        }
        self.machine.addresses = addresses::with_port(&addresses::own(), connector.port());
        Ok(connector)
    }

    /// Lowers the limit of tasks. `cause` is reported when the limit is reached.
    pub fn limit_tasks(&mut self, tasks_max: usize, cause: String) {
        if tasks_max < self.machine.tasks_max {
            (self.machine.tasks_max, self.machine.tasks_max_cause) = (tasks_max, cause);
        }
    }

    /// Applies the hostfile's options for this host.
    pub fn apply_host_options(&mut self, options: &HostOptions) {
        let mut complaints = Vec::new();
        self.program_search = ProgramSearch::new(options, &mut complaints);
        self.mcast_route = options.mcast;
        complaints.retain(|complaint| !self.complaints.contains(complaint));
        self.complaints.extend(complaints);
    }
}

/// Returns the port at which other daemons connect, or zero for any (`PVMNETSOCKPORT`).
pub fn wanted_port() -> u16 {
    variable("PVMNETSOCKPORT").and_then(|text| lossy(text).trim().parse().ok()).unwrap_or(0)
}

fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

fn lossy(text: OsString) -> String {
    text.to_string_lossy().into_owned()
}

/// Reads `PVM_MAX_TASKS`.
pub(crate) fn tasks_max(text: Option<OsString>) -> usize {
    let limit = text.and_then(|text| lossy(text).trim().parse::<usize>().ok());
    limit.filter(|limit| *limit > 0).unwrap_or(machine::TASKS_MAX)
}

/// Reads the variables that limit how much data this daemon keeps.
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

/// Reads a variable that holds a number greater than zero.
fn count(text: Option<OsString>, default: usize) -> usize {
    let count = text.and_then(|text| lossy(text).trim().parse::<usize>().ok());
    count.filter(|count| *count > 0).unwrap_or(default)
}

/// Reads a variable that holds a number of seconds.
pub(crate) fn seconds(text: Option<OsString>, default: Duration) -> Duration {
    let value = text.and_then(|text| lossy(text).trim().parse::<f64>().ok());
    let value = value.and_then(|value| Duration::try_from_secs_f64(value).ok()).filter(|value| !value.is_zero());
    value.map_or(default, |value| value.min(PATIENCE_MAX))
}

/// Reads `PVM_BROADCAST`: `off`, or a multicast group and its port. Without a text the group is chosen at random from
/// those that stay within a site (RFC 2365).
fn broadcast_group(text: Option<OsString>) -> Result<Option<SocketAddrV4>, String> {
    let text = text.map(|text| text.to_string_lossy().trim().to_owned()).filter(|text| !text.is_empty());
    let Some(text) = text else {
        let mut random = [0; 4];
        // Without random bytes, the machine may share the group with another one, which costs time only.
        let _ = pvm_fmp::random_bytes(&mut random);
        let port = FIRST_DYNAMIC_PORT | u16::from_le_bytes([random[2], random[3]]);
        return Ok(Some(SocketAddrV4::new(Ipv4Addr::new(239, 255, random[0], random[1]), port)));
    };
    if text == "off" {
        return Ok(None);
    }
    let group: Option<SocketAddrV4> = text.parse().ok().filter(|group: &SocketAddrV4| group.ip().is_multicast());
    let group = group.filter(|group| group.port() != 0);
    group.map(Some).ok_or(format!(
        "PVM_BROADCAST is `{text}`, which is neither `off` nor a multicast group and port such as 239.255.1.2:50000; \
         nothing is broadcast"
    ))
}

/// Returns what proves that releases of barriers are this host's. Without random bytes there is none, and each host gets
/// each release on its control link.
fn one_way() -> Option<OneWay> {
    let mut secret = [0; CHAIN_VALUE_BYTES];
    pvm_fmp::random_bytes(&mut secret).ok()?;
    Some(OneWay { secret, function: pvm_net::one_way })
}

/// Reads the number of hosts from which on something is done: a number, or `off`. Returns any other text as an error.
fn hosts_from(text: Option<OsString>, default: usize) -> Result<usize, String> {
    let text = text.map(|text| lossy(text).trim().to_owned()).filter(|text| !text.is_empty());
    match text.as_deref() {
        None => Ok(default),
        Some("off") => Ok(usize::MAX),
        Some(text) => text.parse().map_err(|_| text.to_owned()),
    }
}

/// Reads `PVM_PACING`. Any other text leaves the default.
fn pacing(text: Option<OsString>) -> Pacing {
    match text.map(|text| lossy(text).trim().to_owned()).as_deref() {
        Some("off") => Pacing::Off,
        Some("always") => Pacing::Always,
        _ => Pacing::OnLoss,
    }
}

/// Reads `HPVM_ORDER`. Returns any other text as an error.
fn order(text: Option<OsString>) -> Result<Order, String> {
    match text.map(|text| lossy(text).trim().to_owned()).as_deref() {
        None | Some("" | "hosts") => Ok(Order::Hosts),
        Some("pairs") => Ok(Order::Pairs),
        Some(other) => Err(other.to_owned()),
    }
}

/// Reads `PVMDLOGMAX`.
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
    let text = pvm_link::read_bounded(&path, hostfile::FILE_BYTES_MAX)
        .map_err(|error| format!("hostfile {}: {error}", path.display()))?;
    Ok(Hostfile::parse(&String::from_utf8_lossy(&text)))
}

/// Returns the names that mean this host: its own names, and the names in the hostfile that resolve to it.
fn own_names(name: &str, file: &Hostfile) -> Vec<String> {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let short = |name: &str| name.split('.').next().unwrap_or_default().to_owned();
    let mut names = vec![name.to_owned(), host.clone(), short(name), short(&host), "localhost".into()];
    let others = file.hosts.iter().map(HostLine::address).filter(|address| !names.iter().any(|own| own == address));
    let here = resolve::own_among(others.map(str::to_owned).collect());
    names.extend(here);
    names
}

/// Reads `PVM_VMID=x` from standard input, if the program that starts the daemon writes this line there. Reads only
/// from a pipe or a socket and without waiting, so that no other input is consumed.
pub fn machine_id_on_input() -> Option<OsString> {
    use rustix::event::PollFlags;
    use rustix::fs::FileType;
    let input = std::io::stdin();
    let kind = FileType::from_raw_mode(rustix::fs::fstat(&input).ok()?.st_mode);
    if !matches!(kind, FileType::Fifo | FileType::Socket) {
        return None;
    }
    let mut line = Vec::new();
    while line.len() < LINE_BYTES_MAX {
        if !pvm_net::polling::poll_one(&input, PollFlags::IN, Duration::ZERO).ok()? {
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

/// Settings for tests.
#[cfg(test)]
pub mod tests_support {
    use super::*;

    /// Returns the settings of a daemon of the given rank, with its files in `directory`.
    pub fn settings_in(directory: &std::path::Path, rank: Rank) -> Settings {
        let mut settings = Settings::find(&Options::default(), None, rank).unwrap();
        settings.places =
            Places { files: vec![directory.join("pvmd.test")], temporary: directory.to_owned(), socket: None };
        settings.temporary = directory.to_owned();
        settings
    }

    /// Returns settings for tests that make no files.
    pub fn settings(name: &str) -> Settings {
        settings_in(&std::env::temp_dir().join(name), Rank::Master)
    }
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
    fn a_machine_has_a_group_of_its_own_unless_the_variable_says_otherwise() {
        let of = |text: &str| broadcast_group(Some(text.into()));
        let random = [broadcast_group(None), of(" ")].map(|group| group.unwrap().unwrap());
        assert!(random.iter().all(|group| group.ip().is_multicast() && group.port() >= FIRST_DYNAMIC_PORT));
        assert_ne!(random[0], random[1]);
        assert_eq!(of("off"), Ok(None));
        assert_eq!(of("239.1.2.3:4567"), Ok(Some(SocketAddrV4::new(Ipv4Addr::new(239, 1, 2, 3), 4567))));
        for text in ["on", "239.1.2.3", "239.1.2.3:0", "192.0.2.1:4567"] {
            assert!(of(text).is_err_and(|complaint| complaint.contains(text)));
        }
    }

    #[test]
    fn from_how_many_hosts_on_barriers_take_other_ways_can_be_set() {
        let of = |text: &str| hosts_from(Some(text.into()), 7);
        let known = [of("3"), of(" 12 "), of("off"), of(" "), hosts_from(None, 7)];
        assert_eq!(known, [3, 12, usize::MAX, 7, 7].map(Ok));
        assert_eq!(of("many "), Err("many".to_owned()));
        let one_way = one_way().expect("random bytes");
        assert_ne!((one_way.function)(&one_way.secret), one_way.secret);
    }

    #[test]
    fn pacing_begins_with_a_loss_unless_the_variable_says_otherwise() {
        let of = |text: &str| pacing(Some(text.into()));
        assert_eq!([of("off"), of(" always "), of("")], [Pacing::Off, Pacing::Always, Pacing::OnLoss]);
        assert_eq!([pacing(None), of("nonsense")], [Pacing::OnLoss; 2]);
    }

    #[test]
    fn messages_between_hosts_keep_their_order_unless_the_variable_says_otherwise() {
        let of = |text: &str| order(Some(text.into()));
        assert_eq!([order(None), of(""), of(" hosts "), of("pairs")].map(Result::unwrap)[..3], [Order::Hosts; 3]);
        assert_eq!((of("pairs"), of("none ")), (Ok(Order::Pairs), Err("none".to_owned())));
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
