//! The hostfile (contract 5.3): one host a line, options, defaults.

/// Bytes of a line.
pub const LINE_BYTES_MAX: usize = 511;
/// Words of a line.
pub const WORDS_MAX: usize = 10;
/// `sp=` goes from 1 to this.
pub const SPEED_MAX: i32 = 1_000_000;

/// A line that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LineError {
    /// More than [`LINE_BYTES_MAX`].
    TooLong,
    /// More than [`WORDS_MAX`].
    TooManyWords,
    /// No host name where one is needed.
    NoName,
    /// Not an option, or not one with that value.
    BadOption(String),
}

impl std::fmt::Display for LineError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            LineError::TooLong => write!(f, "longer than {LINE_BYTES_MAX} bytes"),
            LineError::TooManyWords => write!(f, "more than {WORDS_MAX} words"),
            LineError::NoName => f.write_str("no host name"),
            LineError::BadOption(word) => write!(f, "unknown option '{word}'"),
        }
    }
}
impl std::error::Error for LineError {}

/// The options of a host.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Options {
    /// `lo=`
    pub login: Option<String>,
    /// `so=`: `pw` or `ms`.
    pub start: Option<String>,
    /// `dx=`
    pub daemon: Option<String>,
    /// `ep=`
    pub path: Option<String>,
    /// `wd=`
    pub directory: Option<String>,
    /// `bx=`
    pub debugger: Option<String>,
    /// `sp=`
    pub speed: Option<i32>,
    /// `ip=`
    pub address: Option<String>,
    /// `id=`
    pub machine: Option<String>,
}

impl Options {
    fn set(&mut self, word: &str) -> Result<(), LineError> {
        let wrong = || LineError::BadOption(word.to_owned());
        let (name, value) = word.split_once('=').ok_or_else(wrong)?;
        let text = Some(value.to_owned());
        match name {
            "lo" => self.login = text,
            "so" if matches!(value, "pw" | "ms") => self.start = text,
            "dx" => self.daemon = text,
            "ep" => self.path = text,
            "wd" => self.directory = text,
            "bx" => self.debugger = text,
            "ip" => self.address = text,
            "id" => self.machine = text,
            "sp" => {
                let speed = value.parse().ok().filter(|speed| (1..=SPEED_MAX).contains(speed));
                self.speed = Some(speed.ok_or_else(wrong)?);
            }
            _ => return Err(wrong()),
        }
        Ok(())
    }

    /// These options, and where they say nothing, the defaults.
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
            address: self.address.or(defaults.address),
            machine: self.machine.or(defaults.machine),
        }
    }
}

/// A host of a machine-to-be.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HostLine {
    name: String,
    /// `&`: known, but not to be started now.
    pub later: bool,
    /// `$`: may share its address with another daemon.
    pub overload: bool,
    /// What the line and the defaults say.
    pub options: Options,
}

impl HostLine {
    /// The name as written.
    pub fn name(&self) -> &str {
        &self.name
    }
    /// Where to reach it: `ip=` or the name.
    pub fn address(&self) -> &str {
        self.options.address.as_deref().unwrap_or(&self.name)
    }
    /// `lo=`
    pub fn login(&self) -> Option<&str> {
        self.options.login.as_deref()
    }
    /// `so=`
    pub fn start_option(&self) -> Option<&str> {
        self.options.start.as_deref()
    }
    /// `dx=`
    pub fn daemon(&self) -> Option<&str> {
        self.options.daemon.as_deref()
    }
    /// `id=`
    pub fn machine(&self) -> Option<&str> {
        self.options.machine.as_deref()
    }
}

/// What a hostfile says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Hostfile {
    /// Its hosts, in order.
    pub hosts: Vec<HostLine>,
    /// The last `*` line: also for hosts that are added later.
    pub defaults: Options,
    /// Lines that were skipped: number (from 1), why.
    pub errors: Vec<(usize, LineError)>,
}

impl Hostfile {
    /// Reads the text of a hostfile.
    pub fn parse(text: &str) -> Hostfile {
        let mut file = Hostfile::default();
        for (index, line) in text.lines().enumerate() {
            if let Err(error) = file.line(line) {
                file.errors.push((index + 1, error));
            }
        }
        file
    }

    fn line(&mut self, line: &str) -> Result<(), LineError> {
        let words = words(line)?;
        match words.split_first() {
            None => {}
            Some((&"*", options)) => self.defaults = read_options(options)?,
            Some(_) => {
                let mut host = read_host(&words)?;
                host.options = host.options.or(&self.defaults);
                self.hosts.push(host);
            }
        }
        Ok(())
    }

    /// The line of the host that goes by one of these names, else the defaults.
    pub fn options_of(&self, names: &[&str]) -> Options {
        let line = self.hosts.iter().find(|host| names.contains(&host.name()) || names.contains(&host.address()));
        line.map_or_else(|| self.defaults.clone(), |host| host.options.clone())
    }
}

/// Reads one line that must name a host, as `pvm_addhosts` gets it (D32: `$` counts here too).
pub fn parse_host(line: &str) -> Result<HostLine, LineError> {
    read_host(&words(line)?)
}

fn words(line: &str) -> Result<Vec<&str>, LineError> {
    if line.trim_start().starts_with('#') {
        return Ok(Vec::new());
    }
    if line.len() > LINE_BYTES_MAX {
        return Err(LineError::TooLong);
    }
    let words: Vec<&str> = line.split_ascii_whitespace().collect();
    if words.len() > WORDS_MAX {
        return Err(LineError::TooManyWords);
    }
    Ok(words)
}

fn read_options(words: &[&str]) -> Result<Options, LineError> {
    let mut options = Options::default();
    words.iter().try_for_each(|word| options.set(word))?;
    Ok(options)
}

fn read_host(words: &[&str]) -> Result<HostLine, LineError> {
    let mut host = HostLine::default();
    let mut rest = words.iter();
    let mut name = "";
    // The marks may stand apart from the name.
    while name.is_empty() {
        name = rest.next().ok_or(LineError::NoName)?;
        while let Some(mark @ ('&' | '$')) = name.chars().next() {
            host.later |= mark == '&';
            host.overload |= mark == '$';
            name = &name[1..];
        }
    }
    if name.contains('=') || name == "*" {
        return Err(LineError::NoName);
    }
    host.name = name.to_owned();
    host.options = read_options(rest.as_slice())?;
    Ok(host)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_hosts_with_options() {
        let file = Hostfile::parse("# comment\n\nalfa lo=joe sp=500\n  # another\n&beta ip=10.0.0.2\n& $gamma\n");
        assert_eq!(file.errors, []);
        let names: Vec<_> = file.hosts.iter().map(HostLine::name).collect();
        assert_eq!(names, ["alfa", "beta", "gamma"]);
        assert_eq!((file.hosts[0].login(), file.hosts[0].options.speed), (Some("joe"), Some(500)));
        assert!(!file.hosts[0].later && file.hosts[1].later && file.hosts[2].later && file.hosts[2].overload);
        assert_eq!(file.hosts[1].address(), "10.0.0.2");
    }

    #[test]
    fn a_star_sets_defaults_for_what_follows_and_for_hosts_unknown() {
        let file = Hostfile::parse("one\n* ep=/a wd=/b\ntwo ep=/c\n* bx=/d\n");
        assert_eq!(file.hosts[0].options, Options::default());
        assert_eq!(file.options_of(&["two"]).path.as_deref(), Some("/c"));
        assert_eq!(file.options_of(&["two"]).directory.as_deref(), Some("/b"));
        assert_eq!(file.options_of(&["other"]).debugger.as_deref(), Some("/d"));
        assert_eq!(file.options_of(&["other"]).path, None);
    }

    #[test]
    fn bad_lines_are_named_and_skipped() {
        let long = "x".repeat(LINE_BYTES_MAX + 1);
        let text = format!("good\nbad xx=1\nbad sp=0\nbad so=zz\nlo=joe\n{long}\na b c d e f g h i j k\n&\n");
        let file = Hostfile::parse(&text);
        assert_eq!(file.hosts.len(), 1);
        let lines: Vec<_> = file.errors.iter().map(|(line, _)| *line).collect();
        assert_eq!(lines, [2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(file.errors[4].1, LineError::TooLong);
        assert_eq!(file.errors[5].1, LineError::TooManyWords);
    }

    #[test]
    fn an_added_host_is_one_line() {
        assert_eq!(parse_host("$h2 id=x").map(|host| (host.overload, host.name().to_owned())), Ok((true, "h2".into())));
        assert_eq!(parse_host(""), Err(LineError::NoName));
        assert_eq!(parse_host("h2 what"), Err(LineError::BadOption("what".into())));
        assert_eq!(parse_host("h2 sp=1000001"), Err(LineError::BadOption("sp=1000001".into())));
    }
}
