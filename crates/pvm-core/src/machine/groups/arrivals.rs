//! Barriers of a group whose members live on more than one host: they arrive by their daemons at the
//! master's.
//!
//! While all members live on one host they meet in its memory, without the daemon. When one of
//! another host joins, the arrivals are taken out of that memory, and those who have arrived there
//! stay and are released by an order. Whoever comes meanwhile waits at the master until it has them.
//! When the rest lives on one host again and nobody waits, that host's memory serves again. An
//! arrival that comes by the daemon although the memory serves has it taken once more.
use super::barrier::Verdict;
use super::group::Group;
use super::{ALL_MEMBERS, Groups};
use crate::codes::Code;
use crate::machine::core::Core;
use crate::machine::group_page::{Barrier, Taken, Waiting};
use crate::machine::settings::Time;
use crate::proto::Reply;
use crate::tid::Tid;
use crate::wire::{Frame, GroupChange};
use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

/// After this time members whose arrival could not be told from one that was about to be have
/// arrived, or they would have come by the daemon.
const DOUBT: Duration = Duration::from_secs(1);

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
pub(super) struct Arrivals {
    place: Place,
    generation: u32,
    pending: Option<Pending>,
    queue: VecDeque<Arrival>,
}

impl Arrivals {
    pub fn is_at(&self, host: Tid) -> bool {
        self.place == Place::At(host)
    }
    fn is_quiet(&self) -> bool {
        self.pending.is_none() && self.queue.is_empty()
    }
    /// How many must arrive here, and who has, for the group server.
    pub fn waiting(&self) -> Option<Waiting> {
        let pending = self.pending.as_ref()?;
        let need = u16::try_from(pending.need).unwrap_or(u16::MAX);
        Some(Waiting { need, tids: pending.here.iter().copied().collect() })
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
        if self.arrivals.place != Place::Here {
            return None;
        }
        let generation = self.arrivals.generation;
        let Some(pending) = &self.arrivals.pending else {
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

impl Groups {
    /// Where members meet after the membership has changed, or when nobody waits any more.
    pub fn choose_place(&mut self, core: &mut Core, id: u64) {
        let own = core.own_host();
        let Some(group) = self.by_id(id).filter(|group| group.size() > 0) else { return };
        let only = group.only_host();
        let arrivals = &mut group.arrivals;
        match (arrivals.place, only) {
            (Place::Nowhere, Some(host)) => {
                group.arrivals.place = Place::At(host);
                group.replica.meets_here = host == own;
            }
            (Place::At(host), only) if only != Some(host) => self.move_here(core, id, host),
            (Place::Here, Some(host)) if arrivals.is_quiet() => {
                arrivals.place = Place::At(host);
                self.order_group(core, host, id, GroupChange::Give);
            }
            _ => {}
        }
    }

    fn move_here(&mut self, core: &mut Core, id: u64, from: Tid) {
        if let Some(group) = self.by_id(id) {
            group.arrivals.place = Place::Moving(from);
            group.shortage.place_changes();
            self.order_group(core, from, id, GroupChange::Take);
        }
    }

    /// What had arrived in the memory of this host.
    pub fn taken(&mut self, core: &mut Core, group: u64, taken: Taken) {
        let own = core.own_host();
        let Some(found) = self.by_id(group) else { return };
        // Fresh memory that is not to be used tells, too.
        if !std::mem::take(&mut found.replica.is_awaited) {
            return;
        }
        match core.is_master() {
            true => self.moved(core, own, group, taken),
            false => core.send_master(Frame::GroupTaken { id: group, taken }),
        }
    }

    /// A host has told who had arrived in its memory: now members meet here.
    pub fn moved(&mut self, core: &mut Core, from: Tid, id: u64, taken: Taken) {
        let doubt_ends = core.now + DOUBT;
        let Some(group) = self.by_id(id) else { return };
        let arrivals = &mut group.arrivals;
        if arrivals.place != Place::Moving(from) {
            return;
        }
        arrivals.place = Place::Here;
        if taken.need > 0 {
            let Taken { need, arrived, here, doubtful } = taken;
            arrivals.pending = Some(Pending {
                need: need.into(),
                arrived: arrived.into(),
                here: here.into_iter().collect(),
                doubtful: doubtful.into_iter().collect(),
                doubt_ends,
                waiting: Vec::new(),
                carried: Some(from),
            });
        }
        for arrival in std::mem::take(&mut arrivals.queue) {
            self.arrive_here(core, id, arrival);
        }
        self.look_at_barrier(core, id);
        self.choose_place(core, id);
    }

    /// A member arrives by its daemon.
    pub fn arrive(&mut self, core: &mut Core, from: Tid, wait: u32, id: u64, count: i32) {
        let Some(group) = self.by_id(id).filter(|group| group.size() > 0) else {
            return core.reply(from, wait, Err(Code::NoGroup));
        };
        match group.arrivals.place {
            Place::At(host) => {
                group.arrivals.queue.push_back((from, wait, count));
                self.move_here(core, id, host);
            }
            Place::Moving(_) => group.arrivals.queue.push_back((from, wait, count)),
            Place::Here | Place::Nowhere => {
                self.arrive_here(core, id, (from, wait, count));
                self.choose_place(core, id);
            }
        }
    }

    fn arrive_here(&mut self, core: &mut Core, id: u64, (from, wait, count): Arrival) {
        let Some(group) = self.by_id(id) else { return };
        let size = group.size();
        let need = match count {
            ALL_MEMBERS => size as u32,
            count => u32::try_from(count).unwrap_or(0),
        };
        let refusal = match &group.arrivals.pending {
            _ if group.broken => Some(Code::NoGroup),
            _ if group.instance_of(from).is_none() => Some(Code::NotInGroup),
            _ if need == 0 => Some(Code::BadParam),
            Some(pending) if pending.need != need => Some(Code::Mismatch),
            _ => None,
        };
        if let Some(code) = refusal {
            return core.reply(from, wait, Err(code));
        }
        let pending = group.arrivals.pending.get_or_insert_with(|| Pending::new(need));
        pending.doubtful.remove(&from);
        pending.here.insert(from);
        pending.waiting.push((from, wait));
        pending.arrived += 1;
        if pending.arrived >= pending.need {
            self.end_barrier(core, id, Ok(Reply::Done));
        } else if size < need as usize {
            group.shortage.group_had(size);
            self.look_at_barrier(core, id);
        }
    }

    /// Looks whether the barrier here can still be reached.
    pub fn judge_here(&mut self, core: &mut Core, id: u64) {
        let (now, patience) = (core.now, core.settings.barrier_patience);
        let Some(group) = self.by_id(id) else { return };
        let Some(barrier) = group.barrier_here(now) else { return };
        let size = group.size();
        let fails = group.broken || group.shortage.judge(now, patience, size, &barrier) == Verdict::Fail;
        let fails = fails && barrier.need != 0;
        let code = if group.frozen { Code::NoGroup } else { Code::NoTask };
        if fails {
            group.shortage.barrier_failed();
        }
        self.note_look(id);
        if fails {
            self.end_barrier(core, id, Err(code));
        }
    }

    fn end_barrier(&mut self, core: &mut Core, id: u64, answer: Result<Reply, Code>) {
        let Some(group) = self.by_id(id) else { return };
        let Some(pending) = group.arrivals.pending.take() else { return };
        group.arrivals.generation = group.arrivals.generation.wrapping_add(1);
        for (tid, wait) in pending.waiting {
            core.reply(tid, wait, answer.clone());
        }
        if let Some(host) = pending.carried {
            self.order_group(core, host, id, GroupChange::Release { opened: answer.is_ok() });
        }
    }

    /// A host is lost.
    pub fn arrivals_without(&mut self, core: &mut Core, id: u64, host: Tid) {
        let Some(group) = self.by_id(id) else { return };
        if let Some(pending) = group.arrivals.pending.as_mut().filter(|pending| pending.carried == Some(host)) {
            pending.carried = None;
        }
        if group.arrivals.place == Place::Moving(host) {
            self.moved(core, host, id, Taken::default());
        }
    }

    /// The group is no more, and whoever still waits is no member.
    pub(super) fn end_arrivals(&mut self, core: &mut Core, arrivals: Arrivals) {
        let waiting = arrivals.pending.into_iter().flat_map(|pending| pending.waiting);
        let queued = arrivals.queue.into_iter().map(|(tid, wait, _)| (tid, wait));
        let left: Vec<(Tid, u32)> = waiting.chain(queued).collect();
        for (tid, wait) in left {
            core.reply(tid, wait, Err(Code::NoGroup));
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
