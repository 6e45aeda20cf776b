//! The hostfile (contract 5.3): one host per line, options, defaults. The forms that MPI uses are accepted
//! too: `node slots=4`, `node:4`, `n[01-16]`.
use crate::codes::SPEED_DEFAULT;
use crate::flows::multicast::McastRoute;
use crate::ranges::{self, RangeError};
use serde::{Deserialize, Serialize};

/// The longest file, in bytes: some 250 for each of the most hosts that a machine can have.
pub const FILE_BYTES_MAX: usize = 1 << 20;
/// How many bad lines are named, and with how many characters each. The text fits into a pipe that nobody reads.
const COMPLAINTS_MAX: usize = 20;
const COMPLAINT_CHARS_MAX: usize = 300;
/// The longest line, in bytes.
pub const LINE_BYTES_MAX: usize = 64 << 10;
/// The greatest value of `sp=`; the least is 1.
pub const SPEED_MAX: i32 = 1_000_000;
/// The greatest value of `node=`.
pub const NODE_MAX: u32 = 1_000_000;
/// The greatest value of `slots=`; the least is 1.
pub const SLOTS_MAX: u32 = 65_535;

/// Characters with which no name begins. The program that starts daemons would read a name that begins with `-` as an
/// option; the other characters begin marks, defaults and comments.
const NOT_FIRST: [char; 5] = ['-', '&', '$', '*', '#'];

/// Why a line cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LineError {
    /// The line has more than [`LINE_BYTES_MAX`] bytes.
    TooLong,
    /// The line has no host name.
    NoName,
    /// The text at the place of the host name is not a valid name.
    BadName(String),
    /// The line names several hosts where only one is allowed.
    Several(String),
    /// The list of hosts is malformed.
    Range(RangeError),
    /// The option is unknown, or its value is not allowed.
    BadOption(String),
    /// The value of `sp=` is not a speed. The line is used, with the default speed.
    BadSpeed(String),
}

impl std::fmt::Display for LineError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            LineError::TooLong => write!(f, "longer than {LINE_BYTES_MAX} bytes"),
            LineError::NoName => f.write_str("no host name"),
            LineError::BadName(word) => write!(f, "'{word}' is not a host name"),
            LineError::Several(word) => write!(f, "'{word}' is more than one host"),
            LineError::Range(error) => write!(f, "{error}"),
            LineError::BadOption(word) => write!(f, "unknown option '{word}', or not with that value"),
            LineError::BadSpeed(word) => {
                write!(f, "'{word}' is not a speed from 1 to {SPEED_MAX}; {SPEED_DEFAULT} is used")
            }
        }
    }
}
impl std::error::Error for LineError {}

impl From<RangeError> for LineError {
    fn from(error: RangeError) -> LineError {
        LineError::Range(error)
    }
}

/// The options of a host.
#[derive(Serialize, Deserialize, Debug, Clone, Default, PartialEq, Eq)]
pub struct Options {
    /// `lo=`: the login name.
    pub login: Option<String>,
    /// `so=`: `pw` or `ms`.
    pub start: Option<String>,
    /// `dx=`: the path of the daemon.
    pub daemon: Option<String>,
    /// `ep=`: the search path for programs.
    pub path: Option<String>,
    /// `wd=`: the working directory of tasks.
    pub directory: Option<String>,
    /// `bx=`: the debugger script.
    pub debugger: Option<String>,
    /// `sp=`: the relative speed.
    pub speed: Option<i32>,
    /// `node=`: the host's number in the physical network, for multicasts along a hypercube.
    pub node: Option<u32>,
    /// `groups=`: whether barriers of groups shall meet on this host (`yes`), or shall not (`no`).
    pub groups: Option<bool>,
    /// `tasks=`: whether the host takes new tasks when it joins.
    pub tasks: Option<bool>,
    /// `mcast=`: the route of multicasts of tasks on this host that choose none.
    pub mcast: Option<McastRoute>,
    /// `fabric=`: the fabric of tasks on this host, as in `PVM_FABRIC`.
    pub fabric: Option<String>,
    /// `ip=`: the name or address to connect to.
    pub address: Option<String>,
    /// `id=`: the identifier of the virtual machine.
    pub machine: Option<String>,
    /// `slots=`, `node:4`: the number of tasks that `pvm run` places here before it overcommits any host.
    pub slots: Option<u32>,
}

impl Options {
    fn set(&mut self, word: &str) -> Result<(), LineError> {
        let wrong = || LineError::BadOption(word.to_owned());
        let (name, value) = word.split_once('=').ok_or_else(wrong)?;
        let text = Some(value.to_owned());
        match name {
            // The program that starts daemons would read a value with a leading dash as an option.
            "lo" | "ip" if value.starts_with('-') || value.is_empty() => return Err(wrong()),
            "lo" => self.login = text,
            "so" if matches!(value, "pw" | "ms") => self.start = text,
            "dx" => self.daemon = text,
            "ep" => self.path = text,
            "wd" => self.directory = text,
            "bx" => self.debugger = text,
            "ip" => self.address = text,
            "id" => self.machine = text,
            "slots" | "cpu" => self.slots = Some(slots(value).ok_or_else(wrong)?),
            // MPI's limit of overcommitment. The value is checked, and otherwise ignored.
            "max_slots" | "max-slots" => drop(slots(value).ok_or_else(wrong)?),
            "sp" => self.speed = Some(speed(value).unwrap_or(SPEED_DEFAULT)),
            "node" => {
                let node = value.parse().ok().filter(|node| *node <= NODE_MAX);
                self.node = Some(node.ok_or_else(wrong)?);
            }
            "groups" => self.groups = Some(yes_or_no(value).ok_or_else(wrong)?),
            "tasks" => self.tasks = Some(yes_or_no(value).ok_or_else(wrong)?),
            "fabric" if !value.is_empty() => self.fabric = text,
            "mcast" => self.mcast = Some(McastRoute::from_name(value).ok_or_else(wrong)?),
            _ => return Err(wrong()),
        }
        Ok(())
    }

    /// Returns these options; options that are missing are taken from `defaults`.
    fn or(self, defaults: &Options) -> Options {
        let defaults = defaults.clone();
        Options {
            login: self.login.or(defaults.login),
            start: self.start.or(defaults.start),
            daemon: self.daemon.or(defaults.daemon),
            path: self.path.or(defaults.path),
            directory: self.directory.or(defaults.directory),
            debugger: self.debugger.or(defaults.debugger),
            speed: self.speed.or(defaults.speed),
            node: self.node.or(defaults.node),
            groups: self.groups.or(defaults.groups),
            tasks: self.tasks.or(defaults.tasks),
            mcast: self.mcast.or(defaults.mcast),
            fabric: self.fabric.or(defaults.fabric),
            address: self.address.or(defaults.address),
            machine: self.machine.or(defaults.machine),
            slots: self.slots.or(defaults.slots),
        }
    }
}

/// A host as a line describes it.
#[derive(Serialize, Deserialize, Debug, Clone, Default, PartialEq, Eq)]
pub struct HostLine {
    name: String,
    /// `&`: the host is known, but is not started now.
    pub later: bool,
    /// `$`: the host may share its address with another daemon.
    pub overload: bool,
    /// The options of the line. In a hostfile, options that the line lacks are taken from the last `*` line before it.
    pub options: Options,
}

impl HostLine {
    /// Returns the name as it was written.
    pub fn name(&self) -> &str {
        &self.name
    }
    /// Returns the address to connect to: `ip=`, or else the name.
    pub fn address(&self) -> &str {
        self.options.address.as_deref().unwrap_or(&self.name)
    }
    /// Returns `lo=`, the login name.
    pub fn login(&self) -> Option<&str> {
        self.options.login.as_deref()
    }
    /// Returns `so=`, the start option.
    pub fn start_option(&self) -> Option<&str> {
        self.options.start.as_deref()
    }
    /// Returns `dx=`, the path of the daemon.
    pub fn daemon(&self) -> Option<&str> {
        self.options.daemon.as_deref()
    }
    /// Returns `id=`, the identifier of the virtual machine.
    pub fn machine(&self) -> Option<&str> {
        self.options.machine.as_deref()
    }
}

/// Writes a line that describes the same host.
impl std::fmt::Display for HostLine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (later, overload) = (if self.later { "&" } else { "" }, if self.overload { "$" } else { "" });
        // Without brackets, the part after the colon would be read as the number of slots.
        let (open, close) = if self.name.matches(':').count() == 1 { ("[", "]") } else { ("", "") };
        write!(f, "{later}{overload}{open}{}{close}", self.name)?;
        let options = &self.options;
        let (speed, slots) = (options.speed.map(|it| it.to_string()), options.slots.map(|it| it.to_string()));
        let node = options.node.map(|it| it.to_string());
        let word = |it| if it { "yes" } else { "no" }.to_owned();
        let (groups, tasks) = (options.groups.map(word), options.tasks.map(word));
        let mcast = options.mcast.map(|it| it.name().to_owned());
        for (name, value) in [
            ("lo", &options.login),
            ("so", &options.start),
            ("dx", &options.daemon),
            ("ep", &options.path),
            ("wd", &options.directory),
            ("bx", &options.debugger),
            ("ip", &options.address),
            ("id", &options.machine),
            ("sp", &speed),
            ("node", &node),
            ("groups", &groups),
            ("tasks", &tasks),
            ("mcast", &mcast),
            ("fabric", &options.fabric),
            ("slots", &slots),
        ] {
            if let Some(value) = value {
                write!(f, " {name}={value}")?;
            }
        }
        Ok(())
    }
}

/// The contents of a hostfile.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Hostfile {
    /// The hosts, in the order of the file.
    pub hosts: Vec<HostLine>,
    /// The options of the last `*` line. They also apply to hosts that are added later.
    pub defaults: Options,
    /// The lines that were skipped, or whose speed was replaced: the line number (from 1) and the reason.
    pub errors: Vec<(usize, LineError)>,
}

impl Hostfile {
    /// Parses the text of a hostfile.
    pub fn parse(text: &str) -> Hostfile {
        let mut file = Hostfile::default();
        for (index, line) in text.lines().enumerate() {
            if let Err(error) = file.line(line) {
                file.errors.push((index + 1, error));
            }
        }
        file
    }

    /// Names the lines with errors, for people. `name`: the file. There are a few dozen lines at most.
    pub fn complaints(&self, name: &str) -> Vec<String> {
        let text = |(line, error): &(usize, LineError)| format!("{name} line {line}: {error}");
        let short = |text: String| text.chars().take(COMPLAINT_CHARS_MAX).collect();
        let mut complaints: Vec<String> = self.errors.iter().take(COMPLAINTS_MAX).map(text).map(short).collect();
        let more = self.errors.len() - complaints.len();
        complaints.extend((more > 0).then(|| format!("{name} has {more} more such lines")));
        complaints
    }

    fn line(&mut self, line: &str) -> Result<(), LineError> {
        let words = words(line)?;
        match words.split_first() {
            None => {}
            Some((&"*", options)) => self.defaults = read_options(options)?,
            Some(_) => {
                let mut hosts = read_hosts(&words)?;
                // The number of hosts is bounded because each look-up of a host searches all hosts.
                if self.hosts.len() + hosts.len() > ranges::NAMES_MAX {
                    return Err(RangeError::TooMany.into());
                }
                for host in &mut hosts {
                    host.options = std::mem::take(&mut host.options).or(&self.defaults);
                }
                self.hosts.append(&mut hosts);
            }
        }
        bad_speed(&words).map_or(Ok(()), Err)
    }

    /// Completes the description of a host that is being added: missing options are taken from the file.
    pub fn complete(&self, host: HostLine) -> HostLine {
        let known = self.hosts.iter().find(|line| line.name == host.name);
        let overload = host.overload || known.is_some_and(|line| line.overload);
        let options = host.options.or(known.map_or(&self.defaults, |line| &line.options));
        HostLine { name: host.name, later: host.later, overload, options }
    }

    /// Returns the options of the host with one of these names, or else the defaults.
    pub fn options_of(&self, names: &[&str]) -> Options {
        let line = self.hosts.iter().find(|host| names.contains(&host.name()) || names.contains(&host.address()));
        line.map_or_else(|| self.defaults.clone(), |host| host.options.clone())
    }
}

/// Parses a line that must name one host, as an argument of `pvm_addhosts` does (D32: `$` is accepted here, too).
pub fn parse_host(line: &str) -> Result<HostLine, LineError> {
    let hosts = read_hosts(&words(line)?)?;
    match <[HostLine; 1]>::try_from(hosts) {
        Ok([host]) => Ok(host),
        Err(_) => Err(LineError::Several(line.trim().to_owned())),
    }
}

/// Returns what is wrong with a line that is used all the same.
pub fn remark(line: &str) -> Option<LineError> {
    bad_speed(&words(line).ok()?)
}

fn bad_speed(words: &[&str]) -> Option<LineError> {
    let is_wrong = |word: &&&str| word.strip_prefix("sp=").is_some_and(|value| speed(value).is_none());
    words.iter().find(is_wrong).map(|word| LineError::BadSpeed(word.to_string()))
}

/// Expands a line with several hosts, such as `n[1-3] lo=joe`, into one line per host for `pvm_addhosts`.
pub fn lines(line: &str) -> Result<Vec<String>, LineError> {
    let words = words(line)?;
    let (marks, name, options) = split_name(&words)?;
    let rest: String = options.iter().map(|word| format!(" {word}")).collect();
    Ok(ranges::expand(name)?.iter().map(|name| format!("{marks}{name}{rest}")).collect())
}

fn words(line: &str) -> Result<Vec<&str>, LineError> {
    if line.trim_start().starts_with('#') {
        return Ok(Vec::new());
    }
    match line.len() > LINE_BYTES_MAX {
        true => Err(LineError::TooLong),
        false => Ok(line.split_ascii_whitespace().collect()),
    }
}

fn read_options(words: &[&str]) -> Result<Options, LineError> {
    let mut options = Options::default();
    words.iter().try_for_each(|word| options.set(word))?;
    Ok(options)
}

/// Splits a line into marks, name and options. Blanks may separate the marks from the name.
fn split_name<'a, 'b>(words: &'b [&'a str]) -> Result<(String, &'a str, &'b [&'a str]), LineError> {
    let mut marks = String::new();
    for (index, word) in words.iter().enumerate() {
        let name = word.trim_start_matches(['&', '$']);
        marks.push_str(&word[..word.len() - name.len()]);
        match name {
            "" => {}
            "*" => return Err(LineError::NoName),
            _ if name.contains('=') => return Err(LineError::NoName),
            _ => return Ok((marks, name, &words[index + 1..])),
        }
    }
    Err(LineError::NoName)
}

fn read_hosts(words: &[&str]) -> Result<Vec<HostLine>, LineError> {
    let (marks, names, options) = split_name(words)?;
    let options = read_options(options)?;
    let (later, overload) = (marks.contains('&'), marks.contains('$'));
    let host = |word: String| {
        let unprintable = |letter: char| letter.is_whitespace() || letter.is_control();
        let split = split_slots(&word).filter(|(name, _)| !name.starts_with(NOT_FIRST) && !name.contains(unprintable));
        let (name, slots) = split.ok_or_else(|| LineError::BadName(word.clone()))?;
        let options = Options { slots: options.slots.or(slots), ..options.clone() };
        Ok(HostLine { name: name.to_owned(), later, overload, options })
    };
    ranges::expand(names)?.into_iter().map(host).collect()
}

fn yes_or_no(value: &str) -> Option<bool> {
    match value {
        "yes" => Some(true),
        "no" => Some(false),
        _ => None,
    }
}

/// Splits `node:4` into name and slots. An IPv6 address has more than one colon, or brackets around it.
fn split_slots(word: &str) -> Option<(&str, Option<u32>)> {
    let (name, rest) = match word.strip_prefix('[').and_then(|text| text.split_once(']')) {
        Some((address, rest)) => (address, rest),
        None if word.matches(':').count() == 1 => word.split_at(word.find(':')?),
        None => (word, ""),
    };
    match rest.strip_prefix(':') {
        _ if name.is_empty() => None,
        Some(number) => Some((name, Some(slots(number)?))),
        None => rest.is_empty().then_some((name, None)),
    }
}

/// Returns the speed that a value of `sp=` means. Speeds have no effect but to be reported, so a value that means none
/// does not cost the host.
fn speed(value: &str) -> Option<i32> {
    value.parse().ok().filter(|speed| (1..=SPEED_MAX).contains(speed))
}

fn slots(number: &str) -> Option<u32> {
    number.parse().ok().filter(|slots| (1..=SLOTS_MAX).contains(slots))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn lines_are_hosts_with_options() {
        let file = Hostfile::parse(
            "# comment\n\nalfa lo=joe sp=500 node=7 mcast=hypercube groups=no fabric=tcp;eth0 tasks=no\n&beta ip=10.0.0.2 groups=yes\n& $gamma\n",
        );
        assert_eq!(file.errors, []);
        let names: Vec<_> = file.hosts.iter().map(HostLine::name).collect();
        assert_eq!(names, ["alfa", "beta", "gamma"]);
        assert_eq!((file.hosts[0].login(), file.hosts[0].options.speed), (Some("joe"), Some(500)));
        assert_eq!((file.hosts[0].options.node, file.hosts[1].options.node), (Some(7), None));
        let fabrics = (file.hosts[0].options.fabric.as_deref(), file.hosts[1].options.fabric.as_deref());
        assert_eq!(fabrics, (Some("tcp;eth0"), None));
        let routes = (file.hosts[0].options.mcast, file.hosts[1].options.mcast);
        assert_eq!(routes, (Some(McastRoute::Hypercube), None));
        let groups = [0, 1, 2].map(|host| file.hosts[host].options.groups);
        assert_eq!(groups, [Some(false), Some(true), None]);
        assert_eq!((file.hosts[0].options.tasks, file.hosts[1].options.tasks), (Some(false), None));
        assert!(!file.hosts[0].later && file.hosts[1].later && file.hosts[2].later && file.hosts[2].overload);
        assert_eq!(file.hosts[1].address(), "10.0.0.2");
    }

    #[test]
    fn a_star_sets_defaults_for_later_lines_and_unknown_hosts() {
        let file = Hostfile::parse("one\n* ep=/a wd=/b\ntwo ep=/c\n* bx=/d\n");
        assert_eq!(file.hosts[0].options, Options::default());
        assert_eq!(file.options_of(&["two"]).path.as_deref(), Some("/c"));
        assert_eq!(file.options_of(&["two"]).directory.as_deref(), Some("/b"));
        assert_eq!(file.options_of(&["other"]).debugger.as_deref(), Some("/d"));
        assert_eq!(file.options_of(&["other"]).path, None);
    }

    #[test]
    fn malformed_lines_are_reported_and_skipped() {
        let long = "x".repeat(LINE_BYTES_MAX + 1);
        let text = format!("good\nbad xx=1\nbad node=x\nbad so=zz\nlo=joe\n{long}\n&\n-oX\nn[1\nn:x\na lo=-x\n");
        let file = Hostfile::parse(&text);
        assert_eq!(file.hosts.len(), 1);
        let lines: Vec<_> = file.errors.iter().map(|(line, _)| *line).collect();
        assert_eq!(lines, [2, 3, 4, 5, 6, 7, 8, 9, 10, 11]);
        assert_eq!(file.errors[4].1, LineError::TooLong);
        assert_eq!(file.errors[6].1, LineError::BadName("-oX".into()));
    }

    #[test]
    fn complaints_about_a_file_are_few_and_short() {
        let lines = |count: usize| format!("a {}\n", "y".repeat(9_000)).repeat(count);
        let complaints = |count| Hostfile::parse(&lines(count)).complaints("f");
        assert!(complaints(0).is_empty());
        assert_eq!(complaints(COMPLAINTS_MAX).len(), COMPLAINTS_MAX);
        let many = complaints(900);
        assert!(many[0].starts_with("f line 1: unknown option 'yyy") && many[0].len() == COMPLAINT_CHARS_MAX);
        assert_eq!(many.last().unwrap(), "f has 880 more such lines");
    }

    #[test]
    fn a_wrong_speed_does_not_cost_the_host() {
        let file = Hostfile::parse("one sp=0 wd=/a\n* sp=-5\ntwo\nthree sp=x\nfour sp=1000001\nfive sp=7\n");
        let speeds: Vec<_> = file.hosts.iter().map(|host| host.options.speed).collect();
        assert_eq!(speeds, [1000, 1000, 1000, 1000, 7].map(Some));
        assert_eq!(file.hosts[0].options.directory.as_deref(), Some("/a"));
        let wrong = [(1, "sp=0"), (2, "sp=-5"), (4, "sp=x"), (5, "sp=1000001")];
        assert_eq!(file.errors, wrong.map(|(line, word)| (line, LineError::BadSpeed(word.into()))));
        assert_eq!(file.errors[0].1.to_string(), "'sp=0' is not a speed from 1 to 1000000; 1000 is used");
        assert_eq!(parse_host("h2 sp=abc").map(|host| host.options.speed), Ok(Some(1000)));
        assert_eq!(remark("h2 sp=0"), Some(LineError::BadSpeed("sp=0".into())));
        assert_eq!(remark("h2 sp=5 lo=joe"), None);
    }

    #[test]
    fn a_file_has_at_most_as_many_hosts_as_a_machine() {
        let file = Hostfile::parse("n[1-4000]\nm[1-96]\nm[1-95]\nlast\n");
        assert_eq!(file.hosts.len(), ranges::NAMES_MAX);
        assert_eq!(file.errors, [2, 4].map(|line| (line, LineError::Range(RangeError::TooMany))));
    }

    #[test]
    fn a_mark_inside_of_a_list_is_not_a_name() {
        for (line, name) in [("n,$", "$"), ("n,&m", "&m"), ("n,*", "*"), ("n,#m", "#m"), ("n,\u{b}#", "\u{b}#")] {
            assert_eq!(Hostfile::parse(line).errors, [(1, LineError::BadName(name.into()))]);
        }
    }

    #[test]
    fn an_added_host_is_one_line() {
        assert_eq!(parse_host("$h2 id=x").map(|host| (host.overload, host.name().to_owned())), Ok((true, "h2".into())));
        assert_eq!(parse_host(""), Err(LineError::NoName));
        assert_eq!(parse_host("h2 what"), Err(LineError::BadOption("what".into())));
        assert_eq!(parse_host("h2 node=1000001"), Err(LineError::BadOption("node=1000001".into())));
    }

    #[test]
    fn the_forms_of_mpi_are_accepted() {
        let file = Hostfile::parse("node slots=4 max_slots=8\nother:2\nn[01-03]:3 sp=5\n[::1]:2\nfe80::1\n");
        assert_eq!(file.errors, []);
        let hosts: Vec<_> = file.hosts.iter().map(|host| (host.name(), host.options.slots)).collect();
        let names = ["node", "other", "n01", "n02", "n03", "::1", "fe80::1"];
        let slots = [Some(4), Some(2), Some(3), Some(3), Some(3), Some(2), None];
        assert_eq!(hosts, names.into_iter().zip(slots).collect::<Vec<_>>());
        assert!(file.hosts[2..5].iter().all(|host| host.options.speed == Some(5)));
        assert_eq!(parse_host("n[1-2]"), Err(LineError::Several("n[1-2]".into())));
        assert_eq!(parse_host("n[7]").map(|host| host.name().to_owned()), Ok("n7".into()));
        assert_eq!(lines("& $n[1-2] lo=joe").unwrap(), ["&$n1 lo=joe", "&$n2 lo=joe"]);
    }

    #[test]
    fn an_added_host_takes_missing_options_from_the_file() {
        let file = Hostfile::parse("& $two lo=ann wd=/a\n* lo=bob\n");
        let complete = |line| file.complete(parse_host(line).unwrap());
        let two = complete("two wd=/b");
        assert!(two.overload && !two.later);
        assert_eq!((two.login(), two.options.directory.as_deref()), (Some("ann"), Some("/b")));
        assert_eq!(complete("three").login(), Some("bob"));
    }

    proptest! {
        #[test]
        fn any_text_is_read_without_harm(text in "[&$*# a-c=\\[\\]:0-9,-]{0,60}") {
            let file = Hostfile::parse(&text);
            prop_assert!(file.hosts.iter().all(|host| !host.name().is_empty() && !host.name().starts_with('-')));
        }

        #[test]
        fn what_is_written_is_read_again(
            name in "[a-z][a-z0-9.]{0,20}",
            options in proptest::collection::vec(
                ("lo|dx|ep|wd|bx|ip|id", "[a-zA-Z/$][!-<>-~]{0,20}").prop_map(|(name, value)| format!("{name}={value}")),
                0..7
            ),
            overload: bool,
        ) {
            let line = format!("{}{name} {}", if overload { "$" } else { "" }, options.join("  "));
            let host = parse_host(&line).unwrap();
            prop_assert_eq!((host.name(), host.overload), (name.as_str(), overload));
            prop_assert_eq!(parse_host(&host.to_string()), Ok(host.clone()));
            // If an option occurs several times, the last one is used.
            for word in &options {
                let (key, _) = word.split_once('=').unwrap();
                let last = options.iter().rev().find_map(|word| word.strip_prefix(key)?.strip_prefix('=')).unwrap();
                let read = match key {
                    "lo" => &host.options.login,
                    "dx" => &host.options.daemon,
                    "ep" => &host.options.path,
                    "wd" => &host.options.directory,
                    "bx" => &host.options.debugger,
                    "ip" => &host.options.address,
                    _ => &host.options.machine,
                };
                prop_assert_eq!(read.as_deref(), Some(last));
            }
        }
    }
}
