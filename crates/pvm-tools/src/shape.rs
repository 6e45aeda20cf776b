//! The layout of the console's tables. Scripts parse these columns.
use pvm_core::codes::{self, Code};
use pvm_core::hostfile;
use pvm_core::proto::{GroupPlace, Host, Mailbox, Office, TaskInfo};
use pvm_core::tid::Tid;
use std::fmt::Write;

/// The letters for the flags of a task, from the highest bit down.
const FLAG_LETTERS: [(u32, char); 7] = [
    (codes::TASK_TASKER, 'T'),
    (codes::TASK_HOSTER, 'H'),
    (codes::TASK_RM, 'R'),
    (codes::TASK_CLOSING, 'o'),
    (codes::TASK_AUTHORISING, 'a'),
    (codes::TASK_CONNECTED, 'c'),
    (codes::TASK_FORKED, 'f'),
];

/// Returns the ending of a noun after a count: `""` after 1, otherwise `"s"`.
fn plural(count: usize) -> &'static str {
    if count == 1 { "" } else { "s" }
}

/// Reads a tid with or without the `t`; anything else is tid 0.
pub fn parse_tid(text: &str) -> Tid {
    let digits = text.strip_prefix('t').unwrap_or(text);
    if digits.starts_with('+') {
        return Tid::NONE;
    }
    Tid(u32::from_str_radix(digits, 16).unwrap_or(0))
}

/// Returns the output of `conf`. `shows_offices`: what each host is for the machine, too (`-v`).
pub fn configuration(hosts: &[Host], formats: i32, shows_offices: bool) -> String {
    let formats = usize::try_from(formats).unwrap_or(0);
    let mut text = format!(
        "{} host{}, {} data format{}\n{:>24} {:>8} {:>8}{:>8} {:>10}\n",
        hosts.len(),
        plural(hosts.len()),
        formats,
        plural(formats),
        "HOST",
        "DTID",
        "ARCH",
        "SPEED",
        "DSIG"
    );
    for host in hosts {
        let _ = writeln!(
            text,
            "{:>24} {:>8x} {:>8}{:>8} 0x{:08x}{}{}{}",
            host.name,
            host.tid.0,
            host.arch,
            host.speed,
            host.dsig,
            if host.is_draining { " draining" } else { "" },
            if shows_offices && host.office != Office::None { " " } else { "" },
            if shows_offices { host.office.name() } else { "" }
        );
    }
    text
}

/// Returns the table of `conf -g`.
pub fn group_places(places: &[GroupPlace], hosts: &[Host]) -> String {
    let mut text = format!(
        "{} group{}\n{:>24} {:>8} {:>8} {:>24}\n",
        places.len(),
        plural(places.len()),
        "GROUP",
        "MEMBERS",
        "HOSTS",
        "BARRIERS AT"
    );
    for GroupPlace { name, members, hosts: on, at, .. } in places {
        let (name, members, at) = (String::from_utf8_lossy(name), members.len(), host_name(hosts, *at));
        let _ = writeln!(text, "{name:>24} {members:>8} {on:>8} {at:>24}");
    }
    text
}

/// Returns the flags of a task as text, such as `6/c,f`.
pub fn task_flags(flags: u32) -> String {
    let letters: Vec<String> =
        FLAG_LETTERS.iter().filter(|(bit, _)| flags & bit != 0).map(|(_, letter)| letter.to_string()).collect();
    format!("{flags:x}/{}", letters.join(","))
}

/// Returns the name of a host; its tid if the list no longer contains the host.
pub fn host_name(hosts: &[Host], tid: Tid) -> String {
    match hosts.iter().find(|host| host.tid == tid) {
        Some(host) => host.name.clone(),
        None => tid.to_string(),
    }
}

/// Returns the head of `ps`.
pub fn task_head(long: bool) -> String {
    match long {
        false => format!("{:>24} {:>8} {:>9} COMMAND\n", "HOST", "TID", "FLAG 0x"),
        true => format!("{:>24} {:>8} {:>8} {:>6} {:>9} COMMAND\n", "HOST", "TID", "PTID", "PID", "FLAG 0x"),
    }
}

/// Returns a row of `ps`. `own` is the tid of the console.
pub fn task_row(task: &TaskInfo, hosts: &[Host], own: Tid, long: bool) -> String {
    let mut text = format!("{:>24} ", host_name(hosts, task.host));
    let _ = match task.tid == own {
        true => write!(text, "{:>8} ", "(cons)"),
        false => write!(text, "{:>8x} ", task.tid.0),
    };
    if long {
        let _ = match task.parent {
            parent if parent > 0 => write!(text, "{parent:>8x} "),
            // There is no parent, or the parent has spawned the task with `PvmNoSpawnParent`.
            _ => write!(text, "{:>8} ", "-"),
        };
        let _ = write!(text, "{:>6} ", task.pid);
    }
    let name = match task.name.is_empty() {
        true => "-".into(),
        false => String::from_utf8_lossy(&task.name),
    };
    let _ = writeln!(text, "{:>9} {name:<12}", task_flags(task.flags));
    text
}

/// Returns the output of `spawn`: the count, then a tid or an error for each task.
pub fn spawned(tids: &[i32]) -> String {
    let mut text = format!("{} successful\n", tids.iter().filter(|tid| **tid > 0).count());
    for tid in tids {
        let _ = match *tid > 0 {
            true => writeln!(text, "t{tid:x}"),
            false => writeln!(text, "{}", codes::text(*tid)),
        };
    }
    text
}

/// Returns the advice to print after the error codes of `spawn`; empty if no code needs advice.
pub fn spawn_advice(tids: &[i32]) -> &'static str {
    let has = |code: Code| tids.contains(&code.number());
    match (has(Code::OutOfRes), has(Code::DSysErr)) {
        (true, _) => "the log of pvmd on that host (pvml.<uid> in PVM_TMP or /tmp) names the limit and its setting\n",
        (false, true) => "the log of pvmd on that host (pvml.<uid> in PVM_TMP or /tmp) says why\n",
        (false, false) => "",
    }
}

/// Returns the output of `add`.
pub fn added(names: &[String], count: i32, results: &[i32]) -> String {
    let mut text = format!("{count} successful\n{:>24} {:>8}\n", "HOST", "DTID");
    for (name, result) in names.iter().zip(results) {
        let _ = match *result > 0 {
            true => writeln!(text, "{name:>24} {result:>8x}"),
            false => writeln!(text, "{name:>24} {:>8}", codes::text(*result)),
        };
    }
    text
}

/// Returns the reasons why hosts could not be added: a paragraph for each host.
pub fn reasons(names: &[String], results: &[i32], reasons: &[String]) -> String {
    let failed = names.iter().zip(results).zip(reasons).filter(|((_, result), _)| **result <= 0);
    let mut text = String::new();
    for ((name, code), reason) in failed {
        let reason = match reason.as_str() {
            "" => cure(name, *code),
            reason => reason.to_owned(),
        };
        let _ = writeln!(text, "{name}: {}", reason.replace('\n', "\n    "));
    }
    text
}

/// Returns a line about each host that is added otherwise than its words say.
pub fn remarks(lines: &[String]) -> String {
    lines.iter().filter_map(|line| Some(format!("{line}: {}\n", hostfile::remark(line)?))).collect()
}

/// Returns the text of an error code, with advice if the code has only one cause.
fn cure(name: &str, code: i32) -> String {
    let text = codes::text(code);
    match Code::from_number(code) {
        Some(Code::BadParam) => match hostfile::parse_host(name) {
            Err(error) => error.to_string(),
            Ok(_) => text.into(),
        },
        Some(Code::NoHost) => {
            format!("{text}\ntry: correct the name, put it into /etc/hosts or DNS, or say where the host is by ip=")
        }
        Some(Code::DupHost) => {
            format!("{text}: it is in the machine already\ntry: $NAME for a second pvmd on the same host")
        }
        _ => text.into(),
    }
}

/// Returns the output of `delete`.
pub fn deleted(names: &[String], results: &[i32]) -> String {
    let count = results.iter().filter(|result| **result >= 0).count();
    let mut text = format!("{count} successful\n{:>24}  STATUS\n", "HOST");
    for (name, result) in names.iter().zip(results) {
        let _ = match *result >= 0 {
            true => writeln!(text, "{name:>24}  deleted"),
            false => writeln!(text, "{name:>24}  {:>8}", codes::text(*result)),
        };
    }
    text
}

/// Returns a line of `mstat`.
pub fn host_status(name: &str, code: i32) -> String {
    let status = if code == 0 { "ok" } else { codes::text(code) };
    format!("{name:>24}  {status}\n")
}

/// Returns a line of `pstat`.
pub fn task_status(tid: Tid, code: i32) -> String {
    let status = if code == 0 { "run" } else { codes::text(code) };
    format!("t{:>8x}  {status}\n", tid.0)
}

/// Returns the output of `names`: a paragraph for each class.
pub fn mailboxes(classes: &[Mailbox]) -> String {
    let mut text = String::new();
    for class in classes {
        let _ = writeln!(text, "<{}>:", String::from_utf8_lossy(&class.name));
        for (index, owner, flags) in &class.entries {
            let _ = writeln!(text, "\tindex={index} owner=0x{:x}/{} flags=0x{flags:x}", owner.0, owner.0);
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_bytes::ByteBuf;

    fn host(name: &str) -> Host {
        Host {
            tid: Tid(0x40000),
            name: name.into(),
            arch: "LINUX64".into(),
            speed: 1000,
            dsig: codes::DSIG_X86_64,
            is_draining: false,
            office: Office::None,
        }
    }

    fn task(tid: u32, parent: i32, flags: u32, name: &str) -> TaskInfo {
        TaskInfo {
            tid: Tid(tid),
            parent,
            host: Tid(0x40000),
            flags,
            name: ByteBuf::from(name.as_bytes()),
            pid: 7745,
            output: (0, 0, 0),
        }
    }

    #[test]
    fn conf_has_the_columns_of_pvm() {
        assert_eq!(
            configuration(&[host("vm")], 1, false),
            "1 host, 1 data format\n\
             \x20                   HOST     DTID     ARCH   SPEED       DSIG\n\
             \x20                     vm    40000  LINUX64    1000 0x00408c41\n"
        );
        assert!(configuration(&[host("a"), host("b")], 2, false).starts_with("2 hosts, 2 data formats\n"));
    }

    #[test]
    fn ps_has_the_columns_of_pvm() {
        let hosts = [host("vm")];
        assert_eq!(task_head(false), "                    HOST      TID   FLAG 0x COMMAND\n");
        assert_eq!(task_head(true), "                    HOST      TID     PTID    PID   FLAG 0x COMMAND\n");
        assert_eq!(
            task_row(&task(0x40001, 0, 4, ""), &hosts, Tid(0x40001), true),
            "                      vm   (cons)        -   7745       4/c -           \n"
        );
        assert_eq!(
            task_row(&task(0x40001, 0, 4, ""), &hosts, Tid(0x40001), false),
            "                      vm   (cons)       4/c -           \n"
        );
        assert_eq!(
            task_row(&task(0x4000a, -35, 2, "/tmp/sleeper"), &hosts, Tid(0x40001), true),
            "                      vm    4000a        -   7745       2/f /tmp/sleeper\n"
        );
        assert_eq!(
            task_row(&task(0x40003, 0x40002, 6, "m"), &hosts, Tid(0x40001), false),
            "                      vm    40003     6/c,f m           \n"
        );
    }

    #[test]
    fn flags_go_from_the_highest_bit_down() {
        assert_eq!(task_flags(0xe06), "e06/T,H,c,f");
        assert_eq!(task_flags(0), "0/");
    }

    #[test]
    fn tids_are_hexadecimal_with_or_without_their_letter() {
        assert_eq!(parse_tid("t40001"), Tid(0x40001));
        assert_eq!(parse_tid("40001"), Tid(0x40001));
        assert_eq!(parse_tid("ffffffff"), Tid(0xffff_ffff));
        for text in ["zz", "T40001", "0x40001", "g40001", "", "+40001"] {
            assert_eq!(parse_tid(text), Tid(0), "{text}");
        }
    }

    #[test]
    fn results_of_spawn_come_one_a_line() {
        assert_eq!(spawned(&[0x40002, -7]), "1 successful\nt40002\nNo such file\n");
        assert!(spawn_advice(&[0x40002, -7]).is_empty() && spawn_advice(&[0x40002, -27]).contains("log of pvmd"));
    }

    #[test]
    fn add_and_delete_have_the_columns_of_pvm() {
        let names = ["nosuch".to_owned(), "h1".to_owned()];
        assert_eq!(
            added(&names, 1, &[-6, 0x80000]),
            "1 successful\n                    HOST     DTID\n                  nosuch No such host\n\
             \x20                     h1    80000\n"
        );
        let why = ["not in DNS\nsay another".to_owned(), String::new()];
        assert_eq!(reasons(&names, &[-6, 0x80000], &why), "nosuch: not in DNS\n    say another\n");
        assert_eq!(
            deleted(&names, &[-6, 0]),
            "1 successful\n                    HOST  STATUS\n                  nosuch  No such host\n\
             \x20                     h1  deleted\n"
        );
    }

    #[test]
    fn a_speed_that_is_none_is_told() {
        let lines = ["h2 sp=0", "h3 sp=7"].map(String::from);
        assert_eq!(remarks(&lines), "h2 sp=0: 'sp=0' is not a speed from 1 to 1000000; 1000 is used\n");
    }

    #[test]
    fn states_have_the_columns_of_pvm() {
        assert_eq!(host_status("vm", 0), "                      vm  ok\n");
        assert_eq!(host_status("nosuch", -6), "                  nosuch  No such host\n");
        assert_eq!(task_status(Tid(0x40001), 0), "t   40001  run\n");
        assert_eq!(task_status(Tid(0), -2), "t       0  Bad parameter\n");
        assert_eq!(task_status(Tid(0x8000_0000), -2), "t80000000  Bad parameter\n");
    }

    #[test]
    fn names_lists_each_class_and_its_entries() {
        let class = Mailbox { name: ByteBuf::from(*b"p"), entries: vec![(0, Tid(0x40003), 1), (1, Tid(0), 0x270f)] };
        assert_eq!(
            mailboxes(&[class]),
            "<p>:\n\tindex=0 owner=0x40003/262147 flags=0x1\n\tindex=1 owner=0x0/0 flags=0x270f\n\n"
        );
        assert_eq!(mailboxes(&[]), "");
    }
}
