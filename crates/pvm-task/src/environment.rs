//! What a task learns from its environment, and the failures of enrollment.
use pvm_core::codes::Code;
use pvm_core::fabric::Wish;
use pvm_core::proto::TaskKind;
use pvm_link::rendezvous::{FindError, Places};
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// The environment variables that concern a task (contract 5.4).
#[derive(Debug, Clone)]
pub struct Environment {
    /// `PVMSOCK`, `PVM_TMP`, `PVM_VMID`: where to search for the daemon.
    pub places: Places,
    /// `PVMEPID`: claims the tid that a spawn has reserved. It can be used once.
    pub cookie: Option<u32>,
    /// `PVMCTX`: the initial context.
    pub context: Option<i32>,
    /// `PVMTMASK`: the inherited trace mask.
    pub trace_mask: Option<Vec<u8>>,
    /// `PVMTRCBUF`.
    pub trace_buffer: Option<i32>,
    /// `PVMTRCOPT`.
    pub trace_options: Option<i32>,
    /// `PVMSPAWNPATH`: further directories in which spawns search for programs, after those of the host. `pvm run`
    /// passes the directory of its first program.
    pub spawn_directories: Option<Vec<u8>>,
    /// `PVM_FABRIC` and `PVM_FABRIC_CLEAR`: the fabric for messages to other hosts.
    pub fabric: Wish,
    /// `PVMTASKDEBUG`: the initial debug mask.
    pub debug_mask: Option<i32>,
    /// The name under which the task is listed; empty except for special tasks.
    pub name: Vec<u8>,
    /// What the task does.
    pub kind: TaskKind,
}

impl Environment {
    /// Reads the environment of the process.
    pub fn from_process() -> Environment {
        Environment::from_lookup(|name| std::env::var_os(name))
    }

    /// Reads variables through `lookup`. Numbers may be decimal, hexadecimal (`0x`) or octal (`0`).
    pub fn from_lookup(lookup: impl Fn(&str) -> Option<OsString>) -> Environment {
        let set = |name: &str| lookup(name).filter(|value| !value.is_empty());
        let number = |name: &str| number(set(name)?.as_bytes());
        let host = rustix::system::uname().nodename().to_bytes().to_vec();
        let user = rustix::process::geteuid().as_raw();
        Environment {
            places: Places::new(user, &OsString::from_vec(host), set),
            cookie: number("PVMEPID").map(|cookie| cookie as u32),
            context: number("PVMCTX"),
            trace_mask: set("PVMTMASK").map(OsString::into_vec),
            trace_buffer: number("PVMTRCBUF"),
            trace_options: number("PVMTRCOPT"),
            spawn_directories: set("PVMSPAWNPATH").map(OsString::into_vec),
            fabric: Wish::of_variables(|name| Some(set(name)?.to_string_lossy().into_owned())),
            debug_mask: number("PVMTASKDEBUG"),
            name: Vec::new(),
            kind: TaskKind::Program,
        }
    }
}

/// Reads a number as C's `strtol` with base 0 does, ignoring any text after it. Returns its low 32 bits.
fn number(text: &[u8]) -> Option<i32> {
    let text = std::str::from_utf8(text).ok()?.trim_start();
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => (-1, digits),
        None => (1, text),
    };
    let (base, digits) = match (digits.strip_prefix("0x").or(digits.strip_prefix("0X")), digits.strip_prefix('0')) {
        (Some(digits), _) => (16, digits),
        (None, Some(rest)) if !rest.is_empty() => (8, rest),
        _ => (10, digits),
    };
    let end = digits.find(|c: char| !c.is_digit(base)).unwrap_or(digits.len());
    let value = i64::from_str_radix(&digits[..end], base).ok()?;
    Some((sign * value) as i32)
}

/// Why a task could not enroll.
#[derive(Debug)]
pub enum EnrollError {
    /// No daemon runs: there is no file that names a daemon's socket. Another try does not help.
    NoDaemon,
    /// A daemon should run but cannot be reached. Another try may help.
    Unreachable(FindError),
    /// The daemon has refused the task.
    Refused(Code),
    /// Before the daemon's welcome, the connection broke, or the daemon did not answer in time or violated the
    /// protocol.
    Broken,
    /// The segment or doorbell of this task could not be made.
    System(std::io::Error),
}

impl EnrollError {
    /// Returns the code for C programs.
    pub fn code(&self) -> Code {
        match self {
            EnrollError::Refused(code) => *code,
            _ => Code::SysErr,
        }
    }
    /// Returns whether no daemon runs: there was none, or it is dead. If so, a daemon can be started.
    pub fn means_no_daemon(&self) -> bool {
        matches!(self, EnrollError::NoDaemon | EnrollError::Unreachable(FindError::Dead))
    }
    /// Returns whether another try may help. Callers try up to 5 times, 1 s apart.
    pub fn is_transient(&self) -> bool {
        matches!(self, EnrollError::Unreachable(FindError::Socket(_)) | EnrollError::Broken)
    }
}

impl std::fmt::Display for EnrollError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            EnrollError::NoDaemon => f.write_str("no pvmd is running"),
            EnrollError::Unreachable(error) => write!(f, "{error}"),
            EnrollError::Refused(Code::OutOfRes) => {
                write!(f, "pvmd refuses: {} (its log names the limit and its setting)", Code::OutOfRes)
            }
            EnrollError::Refused(code) => write!(f, "pvmd refuses: {code}"),
            EnrollError::Broken => {
                f.write_str("pvmd closed the connection, did not answer in time or violated the protocol")
            }
            EnrollError::System(error) => write!(f, "{error}"),
        }
    }
}
impl std::error::Error for EnrollError {}

#[cfg(test)]
mod tests {
    use super::number;

    #[test]
    fn numbers_are_read_as_c_does() {
        assert_eq!(number(b"12"), Some(12));
        assert_eq!(number(b"0x7ffff"), Some(0x7ffff));
        assert_eq!(number(b"0"), Some(0));
        assert_eq!(number(b"017"), Some(15));
        assert_eq!(number(b"-3 "), Some(-3));
        assert_eq!(number(b"0x80000000"), Some(i32::MIN));
        assert_eq!(number(b"x"), None);
    }
}
