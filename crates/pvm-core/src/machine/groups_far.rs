//! Barriers of a group whose members live on more than one host: they arrive by their daemons at the
//! master's.
//!
//! While all members live on one host they meet in its memory, without the daemon. When one of
//! another host joins, the arrivals are taken out of that memory, and those who have arrived there
//! stay and are released by an order. Whoever comes meanwhile waits at the master until it has them.
//! When the rest lives on one host again and nobody waits, that host's memory serves again. An
//! arrival that comes by the daemon although the memory serves has it taken once more.
use super::groups::{ALL_MEMBERS, Group};
use super::groups_barrier::{Barrier, Verdict};
use super::{Machine, Time};
use crate::codes::Code;
use crate::proto::Reply;
use crate::tid::Tid;
use crate::wire::{Frame, GroupChange};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

/// After this time members whose arrival could not be told from one that was about to be have
/// arrived, or they would have come by the daemon.
const DOUBT: Duration = Duration::from_secs(1);

/// What was taken out of the memory of a group.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Taken {
    /// How many must arrive; 0 if nobody had.
    pub need: u16,
    /// How many had.
    pub arrived: u16,
    /// Members that had.
    pub here: Vec<Tid>,
    /// Members that had, or will find that they cannot.
    pub doubtful: Vec<Tid>,
}

/// Where members meet.
#[derive(Default, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// There are none.
    #[default]
    Nowhere,
    /// In the memory of that host.
    At(Tid),
    /// Here, as soon as that host has told who had arrived there.
    Moving(Tid),
    Here,
}

/// One who arrives: task, request, count.
type Arrival = (Tid, u32, i32);

struct Pending {
    need: u32,
    arrived: u32,
    here: BTreeSet<Tid>,
    doubtful: BTreeSet<Tid>,
    doubt_ends: Time,
    /// Whom to answer.
    waiting: Vec<(Tid, u32)>,
    /// In whose memory others wait.
    carried: Option<Tid>,
}

/// Where the members of a group meet, and who has arrived here.
#[derive(Default)]
pub(super) struct Meeting {
    place: Place,
    generation: u32,
    pending: Option<Pending>,
    queue: VecDeque<Arrival>,
}

impl Meeting {
    pub fn is_at(&self, host: Tid) -> bool {
        self.place == Place::At(host)
    }
    fn is_quiet(&self) -> bool {
        self.pending.is_none() && self.queue.is_empty()
    }
    /// How many must arrive here, and who has, for the group server.
    pub fn waiting(&self) -> Option<super::Waiting> {
        let pending = self.pending.as_ref()?;
        let need = u16::try_from(pending.need).unwrap_or(u16::MAX);
        Some(super::Waiting { need, tids: pending.here.iter().copied().collect() })
    }
    /// The other host in whose memory members meet.
    pub fn elsewhere(&self, own: Tid) -> Option<Tid> {
        match self.place {
            Place::At(host) | Place::Moving(host) if host != own => Some(host),
            _ => None,
        }
    }
}

impl Group {
    /// Nothing where members do not meet here: it is for another to judge.
    fn barrier_here(&self, now: Time) -> Option<Barrier> {
        if self.meeting.place != Place::Here {
            return None;
        }
        let generation = self.meeting.generation;
        let Some(pending) = &self.meeting.pending else {
            let absent = self.size() as u32;
            return Some(Barrier { generation, need: 0, arrived: 0, absent, arriving: 0 });
        };
        let in_doubt = |tid: &Tid| now < pending.doubt_ends && pending.doubtful.contains(tid);
        let (mut absent, mut arriving) = (0, 0);
        for (_, tid) in self.members().filter(|(_, tid)| !pending.here.contains(tid)) {
            match pending.doubtful.contains(&tid) {
                true if in_doubt(&tid) => arriving += 1,
                true => {}
                false => absent += 1,
            }
        }
        let clamp = |number: u32| u16::try_from(number).unwrap_or(u16::MAX);
        let (need, arrived) = (clamp(pending.need), clamp(pending.arrived));
        Some(Barrier { generation, need, arrived, absent, arriving })
    }
}

impl Machine {
    /// Where members meet after the membership has changed, or when nobody waits any more.
    pub(super) fn choose_meeting(&mut self, id: u64) {
        let own = self.own_host();
        let Some(group) = self.groups.by_id(id).filter(|group| group.size() > 0) else { return };
        let only = group.only_host();
        let meeting = &mut group.meeting;
        match (meeting.place, only) {
            (Place::Nowhere, Some(host)) => {
                group.meeting.place = Place::At(host);
                group.kept.meets_here = host == own;
            }
            (Place::At(host), only) if only != Some(host) => self.move_here(id, host),
            (Place::Here, Some(host)) if meeting.is_quiet() => {
                meeting.place = Place::At(host);
                self.order_group(host, id, GroupChange::Give);
            }
            _ => {}
        }
    }

    fn move_here(&mut self, id: u64, from: Tid) {
        if let Some(group) = self.groups.by_id(id) {
            group.meeting.place = Place::Moving(from);
            group.shortage.place_changes();
            self.order_group(from, id, GroupChange::Take);
        }
    }

    /// What had arrived in the memory of this host.
    pub fn handle_barrier_taken(&mut self, group: u64, taken: Taken) {
        let own = self.own_host();
        let Some(found) = self.groups.by_id(group) else { return };
        // Fresh memory that is not to be used tells, too.
        if !std::mem::take(&mut found.kept.is_awaited) {
            return;
        }
        match self.hosts.is_master() {
            true => self.barrier_moved(own, group, taken),
            false => self.send_host(self.hosts.master(), Frame::GroupTaken { id: group, taken }),
        }
    }

    /// A host has told who had arrived in its memory: now members meet here.
    pub(super) fn barrier_moved(&mut self, from: Tid, id: u64, taken: Taken) {
        let doubt_ends = self.now + DOUBT;
        let Some(group) = self.groups.by_id(id) else { return };
        let meeting = &mut group.meeting;
        if meeting.place != Place::Moving(from) {
            return;
        }
        meeting.place = Place::Here;
        if taken.need > 0 {
            let Taken { need, arrived, here, doubtful } = taken;
            meeting.pending = Some(Pending {
                need: need.into(),
                arrived: arrived.into(),
                here: here.into_iter().collect(),
                doubtful: doubtful.into_iter().collect(),
                doubt_ends,
                waiting: Vec::new(),
                carried: Some(from),
            });
        }
        for arrival in std::mem::take(&mut meeting.queue) {
            self.arrive_here(id, arrival);
        }
        self.look_at_barrier(id);
        self.choose_meeting(id);
    }

    /// A member arrives by its daemon.
    pub(super) fn arrive(&mut self, from: Tid, wait: u32, id: u64, count: i32) {
        let Some(group) = self.groups.by_id(id).filter(|group| group.size() > 0) else {
            return self.reply(from, wait, Err(Code::NoGroup));
        };
        match group.meeting.place {
            Place::At(host) => {
                group.meeting.queue.push_back((from, wait, count));
                self.move_here(id, host);
            }
            Place::Moving(_) => group.meeting.queue.push_back((from, wait, count)),
            Place::Here | Place::Nowhere => {
                self.arrive_here(id, (from, wait, count));
                self.choose_meeting(id);
            }
        }
    }

    fn arrive_here(&mut self, id: u64, (from, wait, count): Arrival) {
        let Some(group) = self.groups.by_id(id) else { return };
        let size = group.size();
        let need = match count {
            ALL_MEMBERS => size as u32,
            count => u32::try_from(count).unwrap_or(0),
        };
        let refusal = match &group.meeting.pending {
            _ if group.broken => Some(Code::NoGroup),
            _ if group.instance_of(from).is_none() => Some(Code::NotInGroup),
            _ if need == 0 => Some(Code::BadParam),
            Some(pending) if pending.need != need => Some(Code::Mismatch),
            _ => None,
        };
        if let Some(code) = refusal {
            return self.reply(from, wait, Err(code));
        }
        let pending = group.meeting.pending.get_or_insert_with(|| Pending::new(need));
        pending.doubtful.remove(&from);
        pending.here.insert(from);
        pending.waiting.push((from, wait));
        pending.arrived += 1;
        if pending.arrived >= pending.need {
            self.end_barrier(id, Ok(Reply::Done));
        } else if size < need as usize {
            group.shortage.group_had(size);
            self.look_at_barrier(id);
        }
    }

    /// Looks whether the barrier here can still be reached.
    pub(super) fn judge_here(&mut self, id: u64) {
        let (now, patience) = (self.now, self.settings.barrier_patience);
        let Some(group) = self.groups.by_id(id) else { return };
        let Some(barrier) = group.barrier_here(now) else { return };
        let size = group.size();
        let fails = group.broken || group.shortage.judge(now, patience, size, &barrier) == Verdict::Fail;
        let fails = fails && barrier.need != 0;
        let code = if group.frozen { Code::NoGroup } else { Code::NoTask };
        if fails {
            group.shortage.barrier_failed();
        }
        self.groups.note_look(id);
        if fails {
            self.end_barrier(id, Err(code));
        }
    }

    fn end_barrier(&mut self, id: u64, answer: Result<Reply, Code>) {
        let Some(group) = self.groups.by_id(id) else { return };
        let Some(pending) = group.meeting.pending.take() else { return };
        group.meeting.generation = group.meeting.generation.wrapping_add(1);
        for (tid, wait) in pending.waiting {
            self.reply(tid, wait, answer.clone());
        }
        if let Some(host) = pending.carried {
            self.order_group(host, id, GroupChange::Release { opened: answer.is_ok() });
        }
    }

    /// A host is lost.
    pub(super) fn meeting_without(&mut self, id: u64, host: Tid) {
        let Some(group) = self.groups.by_id(id) else { return };
        if let Some(pending) = group.meeting.pending.as_mut().filter(|pending| pending.carried == Some(host)) {
            pending.carried = None;
        }
        if group.meeting.place == Place::Moving(host) {
            self.barrier_moved(host, id, Taken::default());
        }
    }

    /// The group is no more, and whoever still waits is no member.
    pub(super) fn end_meeting(&mut self, meeting: Meeting) {
        let waiting = meeting.pending.into_iter().flat_map(|pending| pending.waiting);
        let queued = meeting.queue.into_iter().map(|(tid, wait, _)| (tid, wait));
        let left: Vec<(Tid, u32)> = waiting.chain(queued).collect();
        for (tid, wait) in left {
            self.reply(tid, wait, Err(Code::NoGroup));
        }
    }
}

impl Pending {
    fn new(need: u32) -> Pending {
        Pending {
            need,
            arrived: 0,
            here: BTreeSet::new(),
            doubtful: BTreeSet::new(),
            doubt_ends: Time::ZERO,
            waiting: Vec::new(),
            carried: None,
        }
    }
}
