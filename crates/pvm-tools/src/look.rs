//! Looks at all hosts of the machine, for the commands that show what its tasks do.
use crate::control::{self, Control};
use pvm_core::codes::Code;
use pvm_core::proto::{Host, Reply, Request};
use pvm_core::waiting::{Look, State};
use pvm_task::{Requests, Session, Ticket};
use std::time::{Duration, Instant};

/// The ticks of the processor time that the system shows, in a second. Programs see 100 on every Linux.
pub const TICKS_PER_SECOND: f64 = 100.0;
/// How long a host may take to answer.
const ANSWER_WAIT: Duration = Duration::from_secs(2);

/// Looks at all hosts.
pub fn take(control: &mut dyn Control) -> Result<(Look, Vec<Host>), Code> {
    let (hosts, _) = control::hosts(control)?;
    let answers = control.ask_all(questions(&hosts), ANSWER_WAIT);
    Ok((look_of(&hosts, answers), hosts))
}

/// Returns the requests for a look at these hosts.
fn questions(hosts: &[Host]) -> Vec<Request> {
    hosts.iter().map(|host| Request::Look(host.tid)).chain([Request::GroupPlaces]).collect()
}

/// Returns the look that the answers give.
fn look_of(hosts: &[Host], mut answers: Vec<Option<Result<Reply, Code>>>) -> Look {
    let mut look = Look::default();
    match answers.pop() {
        Some(Some(Ok(Reply::GroupPlaces(groups)))) => look.groups = groups,
        // Without the groups, nobody who waits for members is said to be stuck.
        _ => look.groups = Vec::new(),
    }
    for (host, answer) in hosts.iter().zip(answers) {
        match answer {
            Some(Ok(Reply::Look(seen))) => drop(look.hosts.insert(host.tid, seen)),
            _ => drop(look.silent.insert(host.tid)),
        }
    }
    look
}

/// A look that is taken while its command does other things.
pub enum Pending {
    /// The daemon is asked for the hosts.
    Hosts(Ticket),
    /// The hosts are asked; those that have not answered at this time are silent.
    Looks(Vec<Host>, Requests, Instant),
}

impl Pending {
    /// Begins a look. Returns `None` if the daemon is gone.
    pub fn begin(session: &mut Session) -> Option<Pending> {
        session.task().begin(Request::Config).ok().map(Pending::Hosts)
    }

    /// Returns when this look ends in any case.
    pub fn deadline(&self) -> Option<Instant> {
        match self {
            Pending::Hosts(_) => None,
            Pending::Looks(.., until) => Some(*until),
        }
    }

    /// Takes the answers that have come. Returns the look and the hosts, or what is still awaited; `None` if the daemon does not know
    /// the hosts.
    pub fn proceed(self, session: &mut Session, now: Instant) -> Option<Result<(Look, Vec<Host>), Pending>> {
        match self {
            Pending::Hosts(ticket) => match session.task().poll_reply(&ticket) {
                None => Some(Err(Pending::Hosts(ticket))),
                Some(Ok(Reply::Hosts { hosts, .. })) => {
                    let requests = Requests::send(session.task(), questions(&hosts));
                    Some(Err(Pending::Looks(hosts, requests, now + ANSWER_WAIT)))
                }
                Some(_) => None,
            },
            Pending::Looks(hosts, mut requests, until) => {
                if !requests.poll(session.task()) && now < until {
                    return Some(Err(Pending::Looks(hosts, requests, until)));
                }
                let look = look_of(&hosts, requests.finish(session.task()));
                Some(Ok((look, hosts)))
            }
        }
    }
}

/// Looks again and again while its command does other things.
pub enum Looker {
    /// The next look is taken then.
    Rests(Instant),
    /// A look is being taken; the next one is taken then.
    Looks(Pending, Instant),
}

impl Looker {
    /// Returns when [`Looker::proceed`] has something to do, even if no answer comes.
    pub fn deadline(&self) -> Option<Instant> {
        match self {
            Looker::Rests(until) => Some(*until),
            Looker::Looks(pending, _) => pending.deadline(),
        }
    }

    /// Proceeds. A look that begins now is followed by the next one after `rest`. Returns a look that has been taken.
    pub fn proceed(&mut self, session: &mut Session, now: Instant, rest: Duration) -> Option<(Look, Vec<Host>)> {
        match std::mem::replace(self, Looker::Rests(now + rest)) {
            Looker::Rests(until) if now < until => *self = Looker::Rests(until),
            Looker::Rests(_) => {
                if let Some(pending) = Pending::begin(session) {
                    *self = Looker::Looks(pending, now + rest);
                }
            }
            Looker::Looks(pending, next) => match pending.proceed(session, now)? {
                Err(pending) => *self = Looker::Looks(pending, next),
                Ok(look) => {
                    *self = Looker::Rests(next);
                    return Some(look);
                }
            },
        }
        None
    }
}

/// The last two looks: what a task does is known from both.
#[derive(Default)]
pub struct Recent(Vec<Look>);

impl Recent {
    /// Takes a look. Returns those that there are now, the older one first.
    pub fn add(&mut self, look: Look) -> &[Look] {
        self.0.push(look);
        if self.0.len() > 2 {
            self.0.remove(0);
        }
        &self.0
    }
}

/// Returns the word for a state.
pub fn state_name(state: &State) -> &'static str {
    match state {
        State::Computes => "computes",
        State::Stopped => "stopped",
        State::Starts => "starts",
        State::HasLeft => "left",
        State::MayGoOn(..) | State::Waits(_) => "waits",
    }
}

/// Hosts and tasks for tests of what is made of looks.
#[cfg(test)]
pub mod samples {
    use pvm_core::host_look::{Activity, Presence, ProcessLook, TaskLook, Traffic};
    use pvm_core::proto::{Host, Office, TaskInfo, TaskKind};
    use pvm_core::state_line::{Call, StateLine, Wait};
    use pvm_core::tid::Tid;
    use serde_bytes::ByteBuf;

    /// The first host.
    pub const HOST: Tid = Tid(0x40000);

    pub fn host(number: u32, name: &str) -> Host {
        Host {
            tid: Tid::host_number(number),
            name: name.into(),
            arch: "LINUX64".into(),
            speed: 1000,
            dsig: 0,
            is_draining: false,
            office: if number == 1 { Office::Master } else { Office::None },
        }
    }

    /// Returns a task of the first host; one with a call has slept in it since second 1.
    pub fn task(local: u32, call: Option<Call>) -> TaskLook {
        let wait = call.map(|call| Wait { call, is_timed: false, since_ns: 1_000_000_000 });
        let tid = Tid(HOST.0 | local);
        let (name, output) = (ByteBuf::from(b"p".to_vec()), (0x40009, 1, 1));
        TaskLook {
            info: TaskInfo { tid, parent: 0, host: HOST, flags: 6, name, pid: 1, output },
            kind: TaskKind::Program,
            presence: Presence::Enrolled,
            line: Some(StateLine { wait, ..StateLine::default() }),
            is_asleep: wait.is_some(),
            traffic: Traffic::default(),
            process: Some(ProcessLook {
                activity: Activity::Sleeps,
                threads: 1,
                ticks: 1,
                memory_bytes: 5_000_000,
                catches_timers: false,
            }),
        }
    }
}
