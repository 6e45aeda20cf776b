//! The command line (contract 5.1).
use crate::start::job_keeper::{self, Kept};
use lexopt::prelude::*;
use pvm_core::dialogue::unhex;
use pvm_core::tid::Tid;
use pvm_core::wire::Key;
use std::ffi::OsString;
use std::path::PathBuf;

/// The usage line, which is printed with every error in the command line.
pub const USAGE: &str = "usage: pvmd [-dMASK] [-nNAME] [HOSTFILE]";

/// The number of words that a master passes to a daemon in addition to switches: the master's host number and address,
/// the number of the new host, and two further words that PVM 3.4.6 also passes.
const SLAVE_WORDS: usize = 5;
/// The highest host number.
const HOST_NUMBER_MAX: u32 = 4095;

/// Printed by `--help`.
pub const HELP: &str = "\
usage: pvmd [-dMASK] [-nNAME] [HOSTFILE]

The daemon of a host. Prints the path of its socket when it is ready, then serves until the
machine is halted or SIGTERM comes. Normally started by `pvm`.

  -dMASK      what to log beside errors: 4 for tasks (decimal, 0x hexadecimal, 0 octal)
  -nNAME      the name of this host
  -s, -S      join a machine: started by its master, by a person (so=ms); five words follow
  -f          with -s: stay the process that was started
  -t          print versions and arguments, then end
  --help      print this
  --version   print the version
  HOSTFILE    hosts and their options; default: $PVMHOSTFILE
";

/// What the command line asks this program to do.
#[derive(Debug, PartialEq)]
pub enum Command {
    /// Serve as the daemon.
    Serve(Options),
    /// Serve as the daemon of a host that joins a machine (`-s`).
    Join(Options, Slave),
    /// Ask a person to start a daemon. The fields are the host, the login and the command.
    StartByHand(String, Option<String>, String),
    /// `-t`
    Test,
    /// `--help`
    Help,
    /// `--version`
    Version,
    /// Look host names up for a daemon that must not wait.
    Resolve(Vec<String>),
    /// Remove the files of a daemon that is killed.
    Keep(Kept),
}

/// Options of a daemon.
#[derive(Debug, Default, PartialEq)]
pub struct Options {
    /// `-d`
    pub debug_mask: Option<i32>,
    /// `-n`
    pub name: Option<String>,
    /// The hostfile.
    pub hostfile: Option<PathBuf>,
}

/// The arguments of a joining daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slave {
    /// The master's host.
    pub master: Tid,
    /// The host of this daemon.
    pub own: Tid,
    /// `-S`: a person reads this daemon's answer, and nobody closes the standard input.
    pub by_hand: bool,
    /// `-f`
    pub in_foreground: bool,
    /// `-k`: the key of the master, if the standard input does not carry it.
    pub key: Option<Key>,
}

/// Reads the command line.
pub fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Command, lexopt::Error> {
    let mut parser = lexopt::Parser::from_args(arguments);
    let mut options = Options::default();
    let mut words: Vec<OsString> = Vec::new();
    let (mut slave, mut by_hand, mut in_foreground, mut key) = (false, false, false, None);
    while let Some(argument) = parser.next()? {
        match argument {
            Short('h') | Long("help") => return Ok(Command::Help),
            Short('V') | Long("version") => return Ok(Command::Version),
            Short('t') => return Ok(Command::Test),
            Long("resolve") => {
                let names = parser.raw_args()?.map(|name| name.to_string_lossy().into_owned()).collect();
                return Ok(Command::Resolve(names));
            }
            Long(job_keeper::SWITCH) => {
                let kept = Kept::parse(parser.raw_args()?);
                return kept.map(Command::Keep).ok_or_else(|| "it takes a process and three paths".into());
            }
            Short('d') => {
                let text = parser.value()?.string()?;
                let mask = number(&text).ok_or_else(|| format!("bad mask '{text}'"))?;
                options.debug_mask = Some(mask);
            }
            Long("start-by-hand") => return start_by_hand(&mut parser),
            Short('s') => slave = true,
            Short('S') => (slave, by_hand) = (true, true),
            Short('f') => in_foreground = true,
            Short('k') => {
                let text = parser.value()?.string()?;
                key = Some(unhex(&text).ok_or_else(|| format!("'{text}' is no key"))?);
            }
            Short('n') => options.name = Some(parser.value()?.string()?),
            Value(word) => words.push(word),
            other => return Err(other.unexpected()),
        }
    }
    if slave {
        let (master, own) = host_numbers(&words)?;
        return Ok(Command::Join(options, Slave { master, own, by_hand, in_foreground, key }));
    }
    match <[OsString; 1]>::try_from(words) {
        Ok([hostfile]) => options.hostfile = Some(hostfile.into()),
        Err(words) => words.into_iter().next().map_or(Ok(()), |word| Err(Value(word).unexpected()))?,
    }
    Ok(Command::Serve(options))
}

/// Reads the host numbers of the master and of this host from the words after `-s`.
fn host_numbers(words: &[OsString]) -> Result<(Tid, Tid), lexopt::Error> {
    let number = |place: usize| {
        let number = words.get(place)?.to_str()?.parse().ok()?;
        (1..=HOST_NUMBER_MAX).contains(&number).then(|| Tid::host_number(number))
    };
    match (number(0), number(3)) {
        (Some(master), Some(own)) if words.len() == SLAVE_WORDS && master != own => Ok((master, own)),
        _ => Err("-s is for masters; pvm and pvmd without it start a machine".into()),
    }
}

fn start_by_hand(parser: &mut lexopt::Parser) -> Result<Command, lexopt::Error> {
    let words = parser.raw_args()?.map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>();
    match words.as_slice() {
        [host, command] => Ok(Command::StartByHand(host.clone(), None, command.clone())),
        [host, switch, login, command] if switch == "-l" => {
            Ok(Command::StartByHand(host.clone(), Some(login.clone()), command.clone()))
        }
        _ => Err("--start-by-hand takes a host and a command".into()),
    }
}

/// Reads a number as C does: decimal, `0x` hexadecimal, `0` octal.
pub fn number(text: &str) -> Option<i32> {
    let (digits, radix) = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => (digits, 16),
        None if text.len() > 1 && text.starts_with('0') => (&text[1..], 8),
        None => (text, 10),
    };
    i64::from_str_radix(digits, radix).ok().map(|number| number as i32)
}

/// Returns the text of `--version`.
pub fn version() -> String {
    format!("pvmd {} (hpvm, interface of PVM {})\n", env!("CARGO_PKG_VERSION"), pvm_core::codes::PVM_VERSION)
}

/// Returns the text of `-t`.
pub fn test(arguments: impl Iterator<Item = String>) -> String {
    let (tasks, hosts) = (pvm_core::proto::VERSION, pvm_core::wire::VERSION);
    let mut text = format!("{}control protocol {tasks}\nhost protocol {hosts}\n", version());
    for (index, argument) in arguments.enumerate() {
        text.push_str(&format!("argv[{}]=\"{argument}\"\n", index + 1));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &[&str]) -> Result<Command, lexopt::Error> {
        super::parse(words.iter().map(OsString::from))
    }

    #[test]
    fn switches_carry_their_values_with_or_without_a_blank() {
        let options = Options { debug_mask: Some(0x1f), name: Some("alfa".into()), hostfile: Some("hosts".into()) };
        assert_eq!(parse(&["-d0x1f", "-nalfa", "hosts"]).unwrap(), Command::Serve(options));
        assert!(matches!(parse(&["-d", "017"]).unwrap(), Command::Serve(Options { debug_mask: Some(15), .. })));
        assert_eq!(parse(&["--resolve", "a", "-b"]).unwrap(), Command::Resolve(vec!["a".into(), "-b".into()]));
        assert_eq!(parse(&["--help"]).unwrap(), Command::Help);
    }

    #[test]
    fn unknown_switches_and_second_files_are_errors() {
        for words in [&["-x"][..], &["a", "b"], &["-d", "what"], &["--nonsense"], &["-s"], &["-s", "hosts"]] {
            assert!(parse(words).is_err(), "{words:?}");
        }
    }

    #[test]
    fn a_daemon_that_joins_learns_who_it_is() {
        let words = ["-s", "-d0x0", "-nh3", "1", "c0000202:d79d", "4080", "2", "c0000202:0000"];
        let options = Options { debug_mask: Some(0), name: Some("h3".into()), hostfile: None };
        let (master, own) = (Tid::host_number(1), Tid::host_number(2));
        let slave = Slave { master, own, by_hand: false, in_foreground: false, key: None };
        assert_eq!(parse(&words).unwrap(), Command::Join(options, slave));
        let key = format!("-k{}", "01".repeat(32));
        let by_hand = parse(&["-S", &key, "-nx", "1", "a:b", "4080", "7", "a:0"]).unwrap();
        let expected = Slave { own: Tid::host_number(7), by_hand: true, key: Some([1; 32]), ..slave };
        assert!(matches!(by_hand, Command::Join(_, slave) if slave == expected));
        for words in [["1", "a", "4080", "1", "b"], ["0", "a", "4080", "1", "b"], ["1", "a", "4080", "4096", "b"]] {
            assert!(parse(&[&["-s"][..], &words].concat()).is_err(), "{words:?}");
        }
        let text = |text: &str| text.to_owned();
        let by_hand = Command::StartByHand(text("h2"), Some(text("joe")), text("pvmd -S"));
        assert_eq!(parse(&["--start-by-hand", "h2", "-l", "joe", "pvmd -S"]).unwrap(), by_hand);
    }
}
