//! The command line (contract 5.1).
use lexopt::prelude::*;
use std::ffi::OsString;
use std::path::PathBuf;

/// Printed with every complaint about the command line.
pub const USAGE: &str = "usage: pvmd [-dMASK] [-nNAME] [HOSTFILE]";

/// Printed by `--help`.
pub const HELP: &str = "\
usage: pvmd [-dMASK] [-nNAME] [HOSTFILE]

The daemon of a host. Prints the path of its socket when it is ready, then serves until the
machine is halted or SIGTERM comes. Normally started by `pvm`.

  -dMASK      what to log beside errors: 4 for tasks (decimal, 0x hexadecimal, 0 octal)
  -nNAME      the name of this host
  -t          print versions and arguments, then end
  --help      print this
  --version   print the version
  HOSTFILE    hosts and their options; default: $PVMHOSTFILE
";

/// What the command line asks for.
#[derive(Debug, PartialEq)]
pub enum Command {
    /// Be the daemon.
    Serve(Options),
    /// `-t`
    Test,
    /// `--help`
    Help,
    /// `--version`
    Version,
    /// Look host names up for a daemon that must not wait.
    Resolve(Vec<String>),
}

/// How to be the daemon.
#[derive(Debug, Default, PartialEq)]
pub struct Options {
    /// `-d`
    pub debug_mask: Option<i32>,
    /// `-n`
    pub name: Option<String>,
    /// The hostfile.
    pub hostfile: Option<PathBuf>,
}

/// Reads the command line.
pub fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Command, lexopt::Error> {
    let mut parser = lexopt::Parser::from_args(arguments);
    let mut options = Options::default();
    while let Some(argument) = parser.next()? {
        match argument {
            Short('h') | Long("help") => return Ok(Command::Help),
            Short('V') | Long("version") => return Ok(Command::Version),
            Short('t') => return Ok(Command::Test),
            Long("resolve") => {
                let names = parser.raw_args()?.map(|name| name.to_string_lossy().into_owned()).collect();
                return Ok(Command::Resolve(names));
            }
            Short('d') => {
                let text = parser.value()?.string()?;
                let mask = number(&text).ok_or_else(|| format!("bad mask '{text}'"))?;
                options.debug_mask = Some(mask);
            }
            Short('n') => options.name = Some(parser.value()?.string()?),
            Value(path) if options.hostfile.is_none() => options.hostfile = Some(path.into()),
            other => return Err(other.unexpected()),
        }
    }
    Ok(Command::Serve(options))
}

/// A number as C reads it: decimal, `0x` hexadecimal, `0` octal.
pub fn number(text: &str) -> Option<i32> {
    let (digits, radix) = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => (digits, 16),
        None if text.len() > 1 && text.starts_with('0') => (&text[1..], 8),
        None => (text, 10),
    };
    i64::from_str_radix(digits, radix).ok().map(|number| number as i32)
}

/// The text of `--version`.
pub fn version() -> String {
    format!("pvmd {} (hpvm, interface of PVM {})\n", env!("CARGO_PKG_VERSION"), pvm_core::codes::PVM_VERSION)
}

/// The text of `-t`.
pub fn test(arguments: impl Iterator<Item = String>) -> String {
    let mut text = format!("{}control protocol {}\n", version(), pvm_core::proto::VERSION);
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
        for words in [&["-x"][..], &["a", "b"], &["-d", "what"], &["--nonsense"], &["-s"]] {
            assert!(parse(words).is_err(), "{words:?}");
        }
    }
}
