//! Explains why a daemon could not be started, and how to repair this.
use crate::children;
use pvm_core::codes::Code;
use pvm_core::dialogue::{self, Line, quoted};
use pvm_core::wire::{self, StartFailure, Started};
use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

/// Exit status of a shell that did not find a command.
const STATUS_NOT_FOUND: i32 = 127;
/// Exit status of a shell that could not execute a command.
const STATUS_NOT_EXECUTABLE: i32 = 126;

/// How a start has failed.
#[derive(Debug)]
pub enum Outcome {
    /// The command has ended, and no daemon has answered.
    Exited(ExitStatus),
    /// No answer arrived within this number of seconds.
    NoAnswer(u64),
    /// The remote shell could not be started.
    NoProgram(std::io::Error),
    /// A daemon of PVM 3.4.6 has answered.
    OtherProtocol,
    /// The daemon has answered, but speaks this other version of the protocol between daemons.
    OtherVersion(u32),
    /// The daemon has answered with an error.
    Refused(Code),
}

/// What is known about a failed start.
pub struct FailedStart<'a> {
    /// The host, as typed.
    pub host: &'a str,
    /// The command.
    pub words: &'a [OsString],
    /// The daemons that were tried on the host.
    pub tried: &'a [String],
    pub end: Outcome,
    /// The last line of the command's standard error.
    pub last_error: &'a str,
    /// Whether the host shows another ssh key than the known one.
    pub key_changed: bool,
    /// The daemon of PVM 3.4.6 that was found on the host.
    pub older: Option<&'a str>,
}

/// Returns whether `ssh` says that the host's key has changed, which means an attack or a new installation.
pub fn says_key_changed(line: &str) -> bool {
    let line = line.to_lowercase();
    line.contains("remote host identification has changed") || line.contains("host key") && line.contains("has changed")
}

/// Returns whether the daemon is not at the place that was tried. If so, another place should be tried. Some shells use
/// a general exit status in this case.
pub fn is_not_found(status: ExitStatus, last_error: &str) -> bool {
    match status.code() {
        Some(STATUS_NOT_FOUND | STATUS_NOT_EXECUTABLE) => true,
        Some(1) => last_error.to_lowercase().contains("command not found"),
        _ => false,
    }
}

/// Returns a text about a daemon that speaks another version of the protocol than this daemon.
pub fn other_version(who: &str, version: u32) -> String {
    format!("{who} speaks version {version} of what daemons say to each other, and this one version {}", wire::VERSION)
}

/// Reads the line of a daemon that a hoster has started.
pub fn read_answer(line: &[u8]) -> Result<Started, StartFailure> {
    let text = String::from_utf8_lossy(line);
    match dialogue::read(&text) {
        Line::Started(started) => Ok(started),
        Line::Failed(code) => Err(StartFailure { code, reason: format!("the hoster says: {code}") }),
        Line::OtherProtocol => {
            let reason = "the hoster started a pvmd of PVM 3.4.6 or of another version".into();
            Err(StartFailure { code: Code::BadVersion, reason })
        }
        Line::OtherVersion(version) => {
            let reason = other_version("the pvmd that the hoster started", version);
            Err(StartFailure { code: Code::BadVersion, reason: format!("{reason}; install the same hpvm there") })
        }
        Line::Noise => {
            let reason = format!("the hoster says: {}", dialogue::plain(text.trim()));
            Err(StartFailure { code: Code::CantStart, reason })
        }
    }
}

impl FailedStart<'_> {
    /// Returns a code for programs and a text for people.
    pub fn explain(&self) -> StartFailure {
        let words: Vec<String> = self.words.iter().map(|word| quoted(&word.to_string_lossy())).collect();
        let program = self.words.first().map(|word| word.to_string_lossy().into_owned()).unwrap_or_default();
        let (code, what, cure) = match &self.end {
            Outcome::Refused(code) => (*code, format!("pvmd there says: {code}"), self.cure_of_code(*code)),
            Outcome::OtherProtocol => self.other_protocol(self.tried.last().map_or("pvmd", String::as_str)),
            Outcome::Exited(status) if is_not_found(*status, self.last_error) && self.older.is_some() => {
                self.other_protocol(self.older.unwrap_or_default())
            }
            Outcome::OtherVersion(version) => {
                let cure = "install the same hpvm on both hosts, or say where there is one by dx= or PVM_DPATH; \
                            the pvmd that was started now ends by itself";
                (Code::BadVersion, other_version(&format!("the pvmd on {}", self.host), *version), cure.into())
            }
            Outcome::NoProgram(error) if children::code_of(error) == Code::OutOfRes => {
                let cure = "raise the limits of open files and processes (ulimit -Hn, ulimit -u) before pvmd is started, \
                            or lower HPVM_STARTS_MAX";
                (Code::OutOfRes, format!("{program}: {error}"), cure.into())
            }
            Outcome::NoProgram(error) => {
                let cure = "set PVM_RSH to a program that runs commands on other hosts, such as ssh";
                (Code::CantStart, format!("{program}: {error}"), cure.into())
            }
            Outcome::NoAnswer(seconds) => {
                let cure = "see whether the host is up, and whether the command ends by itself when typed by hand";
                (Code::CantStart, format!("no answer within {seconds} s"), cure.into())
            }
            Outcome::Exited(status) => (Code::CantStart, how(*status), self.cure_of_exit(*status)),
        };
        let said = match self.last_error {
            "" => String::new(),
            line => format!("; its last words: {line}"),
        };
        StartFailure { code, reason: format!("{what}{said}\ncommand: {}\ntry: {cure}", words.join(" ")) }
    }

    fn other_protocol(&self, daemon: &str) -> (Code, String, String) {
        let what = format!("{daemon} on {} is of PVM 3.4.6 or of another version", self.host);
        let cure = format!(
            "install hpvm there, or say where its pvmd is by dx= or PVM_DPATH (tried: {}); \
             the one that was started now ends by itself within 5 minutes",
            self.tried.join(", ")
        );
        (Code::BadVersion, what, cure)
    }

    fn cure_of_code(&self, code: Code) -> String {
        match code {
            Code::DupHost => "halt the machine that runs there already (pvm on that host, then halt), \
                              or give this one another name by id="
                .into(),
            _ => format!("see pvmd's log on {}", self.host),
        }
    }

    fn cure_of_exit(&self, status: ExitStatus) -> String {
        let said = self.last_error.to_lowercase();
        let has = |texts: &[&str]| texts.iter().any(|text| said.contains(text));
        let host = self.host;
        if self.key_changed {
            format!(
                "the host shows another key than before: find out why first, it may be another machine that listens; \
                 where the new key is right, remove the old one (ssh-keygen -R {host}) and log in once by hand (ssh {host})"
            )
        } else if has(&["pvm 3.4.6 runs here"]) {
            format!("halt the PVM 3.4.6 that runs on {host}, or give this one another name by id=")
        } else if has(&["could not resolve", "name or service not known", "unknown host"]) {
            "the host's name is not known there: correct it, or say where to reach the host by ip=".into()
        } else if has(&["host key verification", "host key"]) {
            format!("log in once by hand (ssh {host}) and accept the host's key")
        } else if has(&["permission denied", "authentication fail"]) {
            format!("make a login without a password work (ssh-copy-id {host}); another user is named by lo=")
        } else if is_not_found(status, self.last_error) || has(&["not found", "no such file"]) {
            let tried = self.tried.join(", ");
            format!("pvmd is not there (tried: {tried}); install it, or say where it is by dx= or PVM_DPATH")
        } else if has(&["connection refused", "no route to host", "timed out", "unreachable"]) {
            "see whether the host is up and runs the service that the command needs (sshd)".into()
        } else {
            "type the command by hand and see what it says; pvmd's log on the host may tell more".into()
        }
    }
}

fn how(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("the command ended with exit status {code} and no pvmd"),
        (None, signal) => format!("the command was killed by signal {}", signal.unwrap_or(0)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn explain(end: Outcome, last_error: &str) -> StartFailure {
        let words = ["ssh", "h2", "pvmd -s -nh2"].map(OsString::from);
        let tried = ["pvmd".into(), "/x/pvmd".into()];
        let key_changed = says_key_changed(last_error);
        FailedStart { host: "h2", words: &words, tried: &tried, end, last_error, key_changed, older: None }.explain()
    }

    fn exited(code: i32) -> Outcome {
        Outcome::Exited(ExitStatus::from_raw(code << 8))
    }

    #[test]
    fn each_failure_names_its_command_what_was_said_and_a_cure() {
        for (end, said, cure) in [
            (exited(255), "ssh: Could not resolve hostname h2: Name or service not known", "ip="),
            (exited(255), "joe@h2: Permission denied (publickey).", "ssh-copy-id h2"),
            (exited(255), "Host key verification failed.", "(ssh h2) and accept"),
            (exited(255), "@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @", "find out why first"),
            (exited(255), "Host key for h2 has changed and you have requested strict checking.", "ssh-keygen -R h2"),
            (exited(1), "pvmd: PVM 3.4.6 runs here (pid 7): halt it, or set PVM_VMID", "runs on h2"),
            (exited(127), "sh: 1: pvmd: not found", "(tried: pvmd, /x/pvmd)"),
            (exited(255), "ssh: connect to host h2 port 22: Connection refused", "sshd"),
            (exited(1), "odd", "by hand"),
            (Outcome::NoAnswer(60), "last", "is up"),
        ] {
            let StartFailure { code, reason } = explain(end, said);
            assert_eq!(code, Code::CantStart);
            assert!(reason.contains("command: ssh h2 'pvmd -s -nh2'\n") && reason.contains(said), "{reason}");
            let last = reason.lines().last().unwrap();
            assert!(last.starts_with("try: ") && last.contains(cure), "{reason}");
        }
    }

    #[test]
    fn the_code_tells_programs_what_happened() {
        assert_eq!(explain(Outcome::OtherProtocol, "").code, Code::BadVersion);
        let failure = explain(Outcome::OtherVersion(77), "");
        let what = format!(
            "the pvmd on h2 speaks version 77 of what daemons say to each other, and this one version {}",
            wire::VERSION
        );
        assert_eq!((failure.code, failure.reason.lines().next()), (Code::BadVersion, Some(what.as_str())));
        assert!(failure.reason.contains("\ntry: install the same hpvm on both hosts"), "{failure:?}");
        let failure = explain(Outcome::Refused(Code::DupHost), "");
        assert_eq!(failure.code, Code::DupHost);
        assert!(failure.reason.contains("id="), "{failure:?}");
        let error = std::io::Error::from(std::io::ErrorKind::NotFound);
        assert!(explain(Outcome::NoProgram(error), "").reason.contains("PVM_RSH"));
        let failure = explain(Outcome::NoProgram(rustix::io::Errno::MFILE.into()), "");
        assert_eq!(failure.code, Code::OutOfRes);
        assert!(failure.reason.contains("ulimit -Hn") && !failure.reason.contains("PVM_RSH"), "{failure:?}");
        assert!(explain(Outcome::Exited(ExitStatus::from_raw(9)), "").reason.contains("signal 9"));
    }
}
