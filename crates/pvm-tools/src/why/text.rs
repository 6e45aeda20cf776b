//! The report as text, at most 80 columns wide.
use super::place::Place;
use super::{Deadlock, Found};
use crate::shape;
use pvm_core::state_line::{Call, Label, Unread, Wait, Wanted};
use pvm_core::tid::Tid;
use pvm_core::waiting::{Doubt, Obstacle, Outlook, Peer, State, TaskReport};
use std::fmt::Write;

/// The width of a line, in columns.
const COLUMNS: usize = 80;
/// Where the text of a task begins.
const INDENT: usize = 18;
/// How many tasks are named in a list.
const NAMED_MAX: usize = 8;
/// How many kinds of messages are named.
const KINDS_MAX: usize = 3;

impl Found {
    /// Returns the report as text.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for task in self.tasks() {
            if let Some(wait) = task.state.wait() {
                let head = format!("{:<9} {:>7} ", task.info.tid.to_string(), age(task.waited_ns));
                text.push_str(&wrapped(&head, &sentence(task, wait, self.places.get(&task.info.tid))));
            }
        }
        for deadlock in self.deadlocks() {
            text.push_str(&wrapped("", &deadlock.text()));
        }
        text.push_str(&self.rest());
        for host in &self.report.silent {
            let _ =
                writeln!(text, "{} has not answered: its tasks are not shown.", shape::host_name(&self.hosts, *host));
        }
        if self.report.is_unsure {
            let text_of_doubt = "Some of these may be in a deadlock, but messages may still be under way. Ask again.";
            text.push_str(&wrapped("", text_of_doubt));
        }
        text
    }

    /// Says how many tasks do not wait.
    fn rest(&self) -> String {
        let count = |is: fn(&State) -> bool| self.tasks().filter(|task| is(&task.state)).count();
        let mut parts = Vec::new();
        for (number, one, many) in [
            (count(|state| matches!(state, State::Computes)), "computes", "compute"),
            (count(|state| matches!(state, State::Starts)), "starts", "start"),
            (count(|state| matches!(state, State::Stopped)), "is stopped", "are stopped"),
            (count(|state| matches!(state, State::HasLeft)), "has left the machine", "have left the machine"),
        ] {
            match number {
                0 => {}
                1 => parts.push(format!("1 task {one}")),
                number => parts.push(format!("{number} tasks {many}")),
            }
        }
        match parts.is_empty() {
            true if self.tasks().next().is_none() => "No tasks.\n".to_owned(),
            true => String::new(),
            false => wrapped("", &(parts.join(", ") + ".")),
        }
    }
}

impl Deadlock<'_> {
    /// Names the deadlock.
    pub fn text(&self) -> String {
        let mut text = match self.cause {
            [one] if self.waits_for_itself(*one) => format!("DEADLOCK: {one} waits for itself."),
            [one] => format!("DEADLOCK: {one} waits for what can never come."),
            [first, _, ..] if self.is_circle() => {
                let names: Vec<String> = self.cause.iter().chain([first]).map(Tid::to_string).collect();
                format!("DEADLOCK: a circle of waits: {}.", names.join(" -> "))
            }
            _ => format!("DEADLOCK: {} wait, and only they could free each other.", list(self.cause)),
        };
        match self.victims.as_slice() {
            [] => {}
            [one] => _ = write!(text, " {one} waits for that."),
            many => _ = write!(text, " {} wait for that.", list(many)),
        }
        text
    }

    fn waits_for_itself(&self, tid: Tid) -> bool {
        self.obstacles(tid).iter().any(|obstacle| matches!(obstacle, Obstacle::Peer(_, Peer::Itself)))
    }

    fn obstacles(&self, tid: Tid) -> &[Obstacle] {
        self.report.tasks.iter().find(|task| task.info.tid == tid).map_or(&[], |task| &task.obstacles)
    }

    /// Returns whether each of the tasks waits for the next one.
    fn is_circle(&self) -> bool {
        self.cause.iter().zip(self.cause.iter().cycle().skip(1)).all(|(tid, next)| {
            self.obstacles(*tid).iter().any(|obstacle| matches!(obstacle, Obstacle::Peer(peer, _) if peer == next))
        })
    }
}

/// Returns what is said of a task that waits.
pub(super) fn sentence(task: &TaskReport, wait: &Wait, place: Option<&Place>) -> String {
    let place = place.and_then(Place::text).map_or_else(String::new, |place| format!("{place}: "));
    let call = place + &call(&wait.call);
    let mut reasons: Vec<String> = task.obstacles.iter().flat_map(|obstacle| reasons(obstacle, &wait.call)).collect();
    reasons.extend(doubt(&task.state));
    if task.outlook == Outlook::Idle {
        reasons.push("only a new task could send something".to_owned());
    }
    match reasons.is_empty() {
        true => call,
        false => format!("{call}: {}", reasons.join("; ")),
    }
}

/// Names a call with what it waits for.
pub(super) fn call(call: &Call) -> String {
    match call {
        Call::Receive(wanted) => format!("pvm_recv({})", accepted(wanted)),
        Call::PostedReceive(wanted, bytes) => format!("pvm_precv({}, {bytes} bytes)", accepted(wanted)),
        Call::Matching => "a receive by the program's own pvm_recvf function".to_owned(),
        Call::Send => "a send that waits for room".to_owned(),
        Call::Barrier { group, count } => format!("pvm_barrier({}, {count})", name(group)),
        Call::Freeze { group, count } if *count < 1 => format!("pvm_freezegroup({}, all)", name(group)),
        Call::Freeze { group, count } => format!("pvm_freezegroup({}, {count})", name(group)),
        Call::Collective { group, .. } => format!("a collective operation of group {}", name(group)),
        Call::Mailbox(mailbox) => format!("pvm_recvinfo({})", name(mailbox)),
        Call::Spawn => "pvm_spawn".to_owned(),
        Call::Hosts => "a change of the hosts".to_owned(),
        Call::Output => "the end of the children whose output it collects".to_owned(),
        Call::Daemon => "an answer of the daemon".to_owned(),
        Call::Pause => "a pause".to_owned(),
    }
}

fn accepted(wanted: &Wanted) -> String {
    let from = wanted.from.map_or("any task".to_owned(), |tid| tid.to_string());
    let tag = wanted.tag.map_or("any tag".to_owned(), |tag| format!("tag {tag}"));
    match wanted.context {
        Some(0) => format!("{from}, {tag}"),
        Some(context) => format!("{from}, {tag}, context {context}"),
        None => format!("{from}, {tag}, any context"),
    }
}

/// Returns a name, without what a terminal would obey.
fn name(label: &Label) -> String {
    let name = String::from_utf8_lossy(label.name());
    name.chars().map(|letter| if letter.is_control() { '?' } else { letter }).collect()
}

fn reasons(obstacle: &Obstacle, call: &Call) -> Vec<String> {
    match obstacle {
        Obstacle::Peer(tid, doing) => vec![format!(
            "{} {}",
            if *doing == Peer::Itself { "that".to_owned() } else { tid.to_string() },
            peer(doing)
        )],
        Obstacle::OtherMessages(kinds) => others(kinds, call),
        Obstacle::Anybody { running: 0 } => vec!["no task runs that could send something".to_owned()],
        Obstacle::Anybody { running: 1 } => vec!["1 other task may send something".to_owned()],
        Obstacle::Anybody { running } => vec![format!("{running} other tasks may send something")],
        Obstacle::Members { count, size, is_frozen, missing, .. } => members(*count, *size, *is_frozen, missing),
        Obstacle::Group(_) => Vec::new(),
    }
}

fn peer(doing: &Peer) -> &'static str {
    match doing {
        Peer::Itself => "is the task itself",
        Peer::Gone => "is no task, or has ended",
        Peer::Hidden => "is on a host that does not answer",
        Peer::Is(State::Computes) => "computes",
        Peer::Is(State::Stopped) => "is stopped by a signal or a debugger",
        Peer::Is(State::Starts) => "has been started, and has not called the library",
        Peer::Is(State::HasLeft) => "has left the machine",
        Peer::Is(State::MayGoOn(..) | State::Waits(_)) => "waits itself",
    }
}

fn members(count: usize, size: usize, is_frozen: bool, missing: &[(Tid, Peer)]) -> Vec<String> {
    let mut reasons = Vec::new();
    let come = size - missing.len().min(size);
    reasons.push(format!("{come} of {count} have come"));
    let named = missing.iter().take(NAMED_MAX).map(|(tid, doing)| format!("{tid} {}", peer(doing)));
    let mut named: Vec<String> = named.collect();
    if missing.len() > NAMED_MAX {
        named.push(format!("{} more", missing.len() - NAMED_MAX));
    }
    if !named.is_empty() {
        reasons.push(format!("missing: {}", named.join(", ")));
    }
    if size < count {
        let frozen = if is_frozen { ", and is frozen: nobody can join it" } else { "" };
        reasons.push(format!("the group has only {size} members{frozen}"));
    }
    reasons
}

/// Says which messages have come that the call does not accept.
fn others(kinds: &[Unread], call: &Call) -> Vec<String> {
    let (Call::Receive(wanted) | Call::PostedReceive(wanted, _)) = call else { return Vec::new() };
    let one = |kind: &Unread| {
        let messages = if kind.count == 1 { "message" } else { "messages" };
        let context = match wanted.context {
            Some(context) if context != kind.context => format!(" in context {}", kind.context),
            _ => String::new(),
        };
        format!("{} unread {messages} from {}: tag {}{context}", kind.count, sender(kind.from), kind.tag)
    };
    let mut reasons: Vec<String> = kinds.iter().take(KINDS_MAX).map(one).collect();
    if kinds.len() > KINDS_MAX {
        reasons.push("others with more tags".to_owned());
    }
    reasons
}

fn sender(tid: Tid) -> String {
    if tid == Tid::DAEMON { "the daemon".to_owned() } else { tid.to_string() }
}

fn doubt(state: &State) -> Option<String> {
    match state {
        State::MayGoOn(_, Doubt::Timed) => Some("the call ends by itself".to_owned()),
        State::MayGoOn(_, Doubt::Threads(threads)) => Some(format!("it has {threads} threads, and another may act")),
        State::MayGoOn(_, Doubt::Signals) => Some("a signal of a timer may end it".to_owned()),
        State::MayGoOn(_, Doubt::UnderWay) => Some("a message may be under way".to_owned()),
        State::MayGoOn(_, Doubt::Hidden) => Some("its process cannot be seen".to_owned()),
        _ => None,
    }
}

/// Returns a list of tids, of which there may be many.
fn list(tids: &[Tid]) -> String {
    let mut names: Vec<String> = tids.iter().take(NAMED_MAX).map(Tid::to_string).collect();
    if tids.len() > NAMED_MAX {
        names.push(format!("{} more", tids.len() - NAMED_MAX));
    }
    match names.as_slice() {
        [] => String::new(),
        [one] => one.clone(),
        [most @ .., last] => format!("{} and {last}", most.join(", ")),
    }
}

/// Returns a time in few letters.
fn age(nanoseconds: u64) -> String {
    match nanoseconds / 1_000_000_000 {
        seconds @ 0..=9 => format!("{seconds}.{} s", nanoseconds % 1_000_000_000 / 100_000_000),
        seconds @ 10..=119 => format!("{seconds} s"),
        seconds @ 120..=7199 => format!("{} min", seconds / 60),
        seconds => format!("{} h", seconds / 3600),
    }
}

/// Returns the text behind the head, broken into lines.
fn wrapped(head: &str, text: &str) -> String {
    let indent = if head.is_empty() { 2 } else { INDENT };
    let mut lines = head.to_owned();
    let mut column = head.chars().count();
    let mut is_first = true;
    for word in text.split(' ') {
        let length = word.chars().count();
        if !is_first && column + 1 + length > COLUMNS {
            let _ = write!(lines, "\n{:indent$}{word}", "");
            column = indent + length;
        } else {
            let space = if is_first { "" } else { " " };
            let _ = write!(lines, "{space}{word}");
            column += space.len() + length;
        }
        is_first = false;
    }
    lines + "\n"
}
