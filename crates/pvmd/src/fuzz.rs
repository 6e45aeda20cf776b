//! Untrusted input of the daemon other than frames (docs/testing.md).
use crate::arguments::{self, Command};
use crate::background_command::OutputPipe;
use crate::start::reason::read_answer;
use crate::start::reason::{FailedStart, Outcome, is_not_found};
use crate::start::remote_command::Lines;
use crate::{program_search, resolve, route, settings};
use pvm_core::dialogue::{self, DaemonCommand, LINE_BYTES_MAX};
use pvm_core::hostfile::parse_host;
use pvm_core::tid::Tid;
use pvm_fuzz::{Target, Unstructured, file, part};
use pvm_link::remote_shell;
use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::ExitStatus;
use std::time::Duration;

/// The inputs of the daemon.
pub const TARGETS: &[Target] = &[
    Target {
        name: "daemon-arguments",
        run: daemon_arguments,
        decoder: &[part("crates/pvmd/src/arguments.rs", &["parse", "host_numbers", "start_by_hand", "number"])],
    },
    Target {
        name: "daemon-variables",
        run: daemon_variables,
        decoder: &[
            part("crates/pvmd/src/settings.rs", &["tasks_max", "seconds", "log_bytes_max", "lossy"]),
            part("crates/pvmd/src/program_search.rs", &["expand"]),
            part("crates/pvm-link/src/remote_shell.rs", &["words", "daemon_candidates"]),
        ],
    },
    Target { name: "data-receive", run: route::fuzz::data_receive, decoder: route::fuzz::DECODER },
    Target {
        name: "name-answers",
        run: name_answers,
        decoder: &[part("crates/pvmd/src/resolve.rs", &["read_answers", "read_line", "names_of"])],
    },
    Target {
        name: "start-output",
        run: start_output,
        decoder: &[
            part("crates/pvmd/src/start/remote_command.rs", &["read", "take", "end", "split", "ended"]),
            file("crates/pvmd/src/start/reason.rs"),
        ],
    },
];

/// Reads a command line that has one word on each line. Checks that a command line that one daemon writes for another
/// is read back unchanged.
fn daemon_arguments(bytes: &[u8]) {
    let words: Vec<OsString> = bytes.split(|byte| *byte == b'\n').map(|word| OsStr::from_bytes(word).into()).collect();
    let Ok(Command::Join(options, slave)) = arguments::parse(words) else { return };
    let call = DaemonCommand {
        name: options.name.clone().filter(|name| !name.is_empty()).unwrap_or_else(|| "h2".into()),
        master: slave.master,
        address: "192.0.2.1:1".parse().expect("an address"),
        own: slave.own,
        debug_mask: options.debug_mask.unwrap_or(0),
        key: slave.key,
        by_hand: slave.by_hand,
        in_foreground: slave.in_foreground && !slave.by_hand,
    };
    // The split at blanks below cannot read a quoted name.
    if dialogue::quoted(&call.name) != call.name {
        return;
    }
    let command = call.command("pvmd");
    let again = arguments::parse(command.split(' ').skip(1).map(OsString::from));
    let Ok(Command::Join(read, twice)) = again else { panic!("{command}: {again:?}") };
    assert_eq!((read.name, read.debug_mask), (Some(call.name), Some(call.debug_mask)));
    assert_eq!((twice.master, twice.own, twice.key, twice.by_hand), (call.master, call.own, call.key, call.by_hand));
    assert!(twice.own.host() == twice.own && twice.own != Tid::NONE);
}

/// Reads variables, one on each line, and chooses the remote shells that these variables select.
fn daemon_variables(bytes: &[u8]) {
    let lines: Vec<OsString> = bytes.split(|byte| *byte == b'\n').map(|line| OsStr::from_bytes(line).into()).collect();
    let names = ["PVM_RSH", "PVM_DPATH", "PATH", "SLURM_JOB_NODELIST"];
    let set = |name: &str| lines.get(names.iter().position(|known| *known == name)?).cloned();
    let fifth = || lines.get(4).cloned();
    assert!(settings::tasks_max(fifth()) > 0);
    assert!(!settings::seconds(fifth(), Duration::from_secs(1)).is_zero());
    settings::log_bytes_max(fifth());
    let text = lines.last().map(|line| line.to_string_lossy()).unwrap_or_default();
    let value = |name: &str| (name.len() < 3).then(|| "value".to_owned());
    let expanded = program_search::expand(&text, &value);
    assert!(text.contains('$') || expanded == text);
    if let Ok(line) = parse_host(&text) {
        // Whether `srun` exists on this host does not depend on the bytes, so both shells are tested.
        for shell in [remote_shell::RemoteShell::find(set, false, 20), remote_shell::RemoteShell::Srun] {
            assert_eq!(shell.words(&line, "command").last(), Some(&"command".into()));
        }
        for own in [None, Some(Path::new("/opt/hpvm/bin/pvmd"))] {
            assert!(!remote_shell::daemon_candidates(&line, set, own).is_empty());
        }
    }
}

/// Reads the output of the process that looks names up, and a table of names.
fn name_answers(bytes: &[u8]) {
    const COUNT: usize = 3;
    assert_eq!(resolve::read_answers(bytes, COUNT).len(), COUNT);
    let text = String::from_utf8_lossy(bytes);
    let addresses = text.split_ascii_whitespace().filter_map(|word| word.parse().ok()).collect::<Vec<_>>();
    for name in resolve::names_of(&addresses, &text) {
        assert!(!name.contains([' ', '\n', ',']) && !name.is_empty());
    }
}

/// Reads, in pieces, the output of a host on which a daemon is being started. The last line is the reported reason.
fn start_output(bytes: &[u8]) {
    // An error means that no bytes are left.
    let _ = output(&mut Unstructured::new(bytes));
}

fn output(from: &mut Unstructured<'_>) -> pvm_fuzz::Result<()> {
    let (reader, writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).expect("a pipe");
    let mut writer = std::fs::File::from(writer);
    let (mut pipe, mut lines) = (OutputPipe::new(reader).expect("a pipe"), Lines::default());
    let mut all = Vec::new();
    while !from.is_empty() {
        let long = from.arbitrary::<u8>()? % 16 == 0;
        let piece = match long {
            true => vec![from.arbitrary()?; 30_000],
            false => from.bytes_of_some_length()?.to_vec(),
        };
        writer.write_all(&piece).expect("it is read in time");
        all.extend(lines.read(&mut pipe));
    }
    drop(writer);
    all.extend(lines.read(&mut pipe));
    assert!(lines.ended() && lines.read(&mut pipe).is_empty());
    // A byte that is not valid UTF-8 becomes three bytes when it is converted.
    assert!(all.iter().all(|line| line.len() <= 3 * (LINE_BYTES_MAX + 30_000) && !line.ends_with('\n')));
    for line in &all {
        let answer = read_answer(line.as_bytes());
        assert!(answer.is_ok() || answer.is_err_and(|failure| !failure.reason.is_empty()));
        dialogue::read(line);
    }
    let (last, first) = (all.last().map_or("", String::as_str), all.first().map_or(0, String::len));
    let status = ExitStatus::from_raw([0, 1 << 8, 127 << 8, 255 << 8, 9][first % 5]);
    let end = match first % 7 {
        0 => Outcome::NoAnswer(60),
        1 => Outcome::OtherProtocol,
        2 => Outcome::NoProgram(std::io::Error::from(std::io::ErrorKind::NotFound)),
        3 if first / 7 % 3 == 2 => Outcome::OtherVersion(77),
        3 => Outcome::Refused([pvm_core::codes::Code::DupHost, pvm_core::codes::Code::CantStart][first / 7 % 2]),
        _ => Outcome::Exited(status),
    };
    is_not_found(status, last);
    let words = ["ssh", "h2"].map(OsString::from);
    let failure =
        FailedStart { host: "h2", words: &words, tried: &[], end, last_error: last, key_changed: false, older: None }
            .explain();
    assert!(failure.reason.contains("\ntry: ") && failure.reason.contains("command: ssh h2"));
    Ok(())
}

#[cfg(test)]
mod tests {
    #[test]
    fn untrusted_input_that_was_found_does_no_harm() {
        pvm_fuzz::replay_all(super::TARGETS);
    }
}
