//! `pvm_spawn` (contract 2.5): placement, start, results, siblings.
//!
//! The host of the spawner distributes the tasks over hosts and collects the results (`SpawnJob`). Each host that
//! gets tasks starts its share of them (`LocalShare`).

mod local_share;
mod placement;
mod run_plan;

use self::local_share::LocalShare;
use self::placement::{counts_by_host, hosts_for, split_place};
pub use self::run_plan::{BIND_VARIABLE, InputOf, RunPlan};
use super::action::{Action, Found, SpawnId, Start};
use super::core::{Core, SubMachine};
use super::event::Event;
use super::output::Output;
use super::settings::Settings;
use super::task_table::{Origin, Task};
use super::tasks;
use super::traces::Traces;
use crate::codes::{Code, NO_SPAWN_PARENT, SM_STTASK, TASK_DEBUG, TASK_INPUT};
use crate::encoding::Writer;
use crate::proto::{ByteBuf, Reply, Spawn, TraceSettings};
use crate::tid::{LOCAL_MASK, Tid};
use crate::time::Time;
use crate::wire::Frame;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// A variable in the environment of tasks of `pvm run` and of their descendants: directories that are searched for
/// programs after all directories of the host.
pub const BESIDE_VARIABLE: &[u8] = b"PVMSPAWNPATH=";

/// The most processes that are started by one action.
const STARTS_MAX: usize = 64;
/// How long the search for a program, and the processes of one action, may take. Then the share fails: the programs are
/// probably in a file system that does not answer.
const START_TIME_MAX: Duration = Duration::from_secs(30);

/// The origin of a spawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Asker {
    /// This daemon.
    Daemon,
    /// A task, which sent a request.
    Task { tid: Tid, wait: u32 },
    /// The resource manager, which sent a message on behalf of `parent`.
    Manager { tid: Tid, wid: i32, ctx: i32, parent: i32 },
}

/// The sub-machines that report new tasks to collectors.
pub(super) struct Observers<'a> {
    pub traces: &'a mut Traces,
    pub output: &'a mut Output,
}

/// A spawn that this host distributes over hosts.
struct SpawnJob {
    asker: Asker,
    /// The tid of the tasks' parent, or a code such as `PvmParentNotSet`.
    parent: i32,
    /// Where the spawner wants the output and the traces of the tasks to go, and where they really go. (Without a
    /// collector, they go to the tracer.)
    wanted: TraceSettings,
    children: TraceSettings,
    /// The hosts' shares, in the order of the tasks' instance numbers.
    host_shares: Vec<HostShare>,
    /// The hosts that have not reported yet, with the index of their share.
    unreported: BTreeMap<Tid, usize>,
}

/// The part of a spawn that one host starts.
struct HostShare {
    host: Tid,
    count: usize,
    /// The tids and codes of the tasks, once they are known.
    results: Vec<i32>,
}

/// The tasks of one spawn.
#[derive(Default)]
struct Siblings {
    /// The tids in the order of the spawn's result, once the spawn has ended.
    tids: Option<Vec<i32>>,
    /// The number of these tasks that live on this host, plus one until the spawn has ended.
    living: usize,
    /// Requests for the list of siblings that arrived before the end of the spawn: task and wait id.
    waiting: Vec<(Tid, u32)>,
}

/// Spawns in progress, and the siblings of living tasks.
pub(super) struct Spawns {
    /// The number assigned last to a spawn job.
    last: u32,
    jobs: BTreeMap<u32, SpawnJob>,
    shares: BTreeMap<SpawnId, LocalShare>,
    siblings_of: BTreeMap<SpawnId, Siblings>,
    /// The host that the next spawn tries first; if it is not usable, the next usable host comes first.
    next_host: Tid,
}

impl SubMachine for Spawns {
    fn name(&self) -> &'static str {
        "spawns"
    }
    fn is_idle(&self) -> bool {
        self.jobs.is_empty() && self.shares.is_empty() && self.siblings_of.is_empty()
    }
    fn on_event(&mut self, core: &mut Core, event: &Event) {
        match event {
            Event::TaskLeft { tid, spawn, .. } => self.stop_waiting(*tid, *spawn),
            Event::TaskGone { task, .. } => self.forget(task.spawn),
            Event::HostGone(host) => self.forget_host(core, *host),
            _ => {}
        }
    }
}

impl Spawns {
    pub fn new(own: Tid) -> Spawns {
        Spawns {
            last: 0,
            jobs: BTreeMap::new(),
            shares: BTreeMap::new(),
            siblings_of: BTreeMap::new(),
            next_host: Tid(own.0 + 1),
        }
    }
    /// Returns the number of jobs and shares in progress.
    pub fn pending(&self) -> usize {
        self.jobs.len() + self.shares.len()
    }
    /// Handles the end of a task of that spawn.
    fn forget(&mut self, spawn: Option<SpawnId>) {
        let Some(spawn) = spawn else { return };
        let Some(siblings) = self.siblings_of.get_mut(&spawn) else { return };
        siblings.living -= 1;
        if siblings.living == 0 {
            self.siblings_of.remove(&spawn);
        }
    }

    /// Starts a helper of the daemon (`PVM_TASKER` and so on), given as program and arguments.
    pub fn start_helper(&mut self, core: &mut Core, words: &[&str]) {
        let mut words = words.iter().map(|word| ByteBuf::from(word.as_bytes().to_vec()));
        let Some(file) = words.next() else { return };
        let spawn = Spawn {
            file,
            arguments: words.collect(),
            flags: 0,
            place: ByteBuf::new(),
            count: 1,
            environment: Vec::new(),
            children: TraceSettings::default(),
        };
        self.spawn(core, Asker::Daemon, spawn);
    }

    /// Handles `pvm_spawn`.
    pub fn spawn(&mut self, core: &mut Core, asker: Asker, request: Spawn) {
        let total = request.count;
        self.distribute(core, asker, request, 0, total);
    }

    /// Distributes all or some tasks of one call to `pvm_spawn` over the allowed hosts. `first` is the instance number
    /// of the first of these tasks, `total` the number of tasks of the call.
    pub fn distribute(&mut self, core: &mut Core, asker: Asker, request: Spawn, first: i32, total: i32) {
        let refusal = match request.count {
            _ if core.halting => Some(Code::SysErr),
            count if count < 1 => Some(Code::BadParam),
            count if count as u32 > LOCAL_MASK => Some(Code::OutOfRes),
            _ => None,
        };
        if let Some(code) = refusal {
            return answer_spawn(core, asker, Err(code));
        }
        let hosts = self.hosts_for(core, asker, &request);
        if hosts.is_empty() {
            let codes = vec![Code::NoHost.number(); request.count as usize];
            return answer_spawn(core, asker, Ok(codes));
        }
        self.last = self.last.wrapping_add(1);
        let (number, own) = (self.last, core.own_host());
        let counts = counts_by_host(request.count as usize, &hosts);
        let host_shares: Vec<HostShare> =
            counts.into_iter().map(|(host, count)| HostShare { host, count, results: Vec::new() }).collect();
        let shares: Vec<(Tid, usize)> =
            host_shares.iter().map(|host_share| (host_share.host, host_share.count)).collect();
        let parent = parent_for(asker, request.flags);
        let (wanted, mut children) = (request.children.clone(), request.children.clone());
        core.roles.settle(&mut children);
        let unreported = host_shares.iter().enumerate().map(|(place, host_share)| (host_share.host, place)).collect();
        self.jobs.insert(number, SpawnJob { asker, parent, wanted, children, host_shares, unreported });
        let mut first = first;
        for (host, count) in shares {
            let spawn = Spawn { count: count as i32, ..request.clone() };
            if host == own {
                self.begin_share(core, SpawnId { host: own, number }, parent, first, total, spawn);
            } else {
                core.send_host(host, Frame::Spawn { wait: number, parent, first, total, spawn });
            }
            first += count as i32;
        }
    }

    /// Returns the hosts over which a spawn is distributed, in the order of the instance numbers.
    fn hosts_for(&mut self, core: &Core, asker: Asker, request: &Spawn) -> Vec<Tid> {
        match asker {
            Asker::Task { .. } => {
                let (hosts, next) = hosts_for(&core.hosts, self.next_host, request);
                self.next_host = next;
                hosts
            }
            // The manager has chosen this host; a helper of this daemon runs here, too.
            Asker::Manager { .. } | Asker::Daemon => vec![core.own_host()],
        }
    }

    /// Starts a share that another host has ordered.
    pub fn share_ordered(&mut self, core: &mut Core, id: SpawnId, parent: i32, first: i32, total: i32, spawn: Spawn) {
        let code = match spawn.count {
            _ if core.halting => Code::SysErr,
            count if count as u32 > LOCAL_MASK && count > 0 => Code::OutOfRes,
            count if count < 1 || self.siblings_of.contains_key(&id) => Code::BadParam,
            // Each task receives its instance number, which must not overflow.
            count if first < 0 || first.checked_add(count).is_none() => Code::BadParam,
            _ => return self.begin_share(core, id, parent, first, total, spawn),
        };
        let results = vec![code.number(); usize::try_from(spawn.count).unwrap_or(0).min(LOCAL_MASK as usize)];
        core.send_host(id.host, Frame::Spawned { wait: id.number, results });
    }

    /// Begins a share with the search for its program.
    fn begin_share(&mut self, core: &mut Core, spawn: SpawnId, parent: i32, first: i32, total: i32, request: Spawn) {
        let (_, directory) = split_place(request.flags, &request.place);
        let directory = directory.map(|directory| ByteBuf::from(directory.to_vec()));
        let (file, debug) = (request.file.clone(), request.flags & TASK_DEBUG != 0);
        let beside = request.environment.iter().find_map(|variable| variable.strip_prefix(BESIDE_VARIABLE));
        let beside = beside.map(|places| ByteBuf::from(places.to_vec()));
        let share = LocalShare {
            parent,
            wanted: request.count as usize,
            request,
            directory: directory.clone(),
            found: None,
            first,
            total,
            tried: 0,
            open: 0,
            until: core.now + START_TIME_MAX,
            tids: Vec::new(),
            started: BTreeSet::new(),
            results: Vec::new(),
        };
        self.shares.insert(spawn, share);
        self.siblings_of.insert(spawn, Siblings { living: 1, ..Siblings::default() });
        core.push(Action::Find { spawn, file, directory, beside, debug });
    }

    /// Handles the result of the search for the program of a share.
    pub fn found(
        &mut self,
        core: &mut Core,
        observers: &mut Observers<'_>,
        spawn: SpawnId,
        result: Result<Found, Code>,
    ) {
        let Some(share) = self.shares.get_mut(&spawn) else { return };
        match result {
            Ok(found) => share.found = Some(found),
            Err(code) => share.fail_rest(code),
        }
        self.start_next(core, observers, spawn);
    }

    /// Starts the next tasks of a share, or finishes the share.
    fn start_next(&mut self, core: &mut Core, observers: &mut Observers<'_>, spawn: SpawnId) {
        let mut starts = Vec::new();
        let is_own = spawn.host == core.own_host();
        // The tasker may have come before the helpers behind it in the daemon's environment.
        let is_helper = is_own && self.jobs.get(&spawn.number).is_some_and(|job| matches!(job.asker, Asker::Daemon));
        while starts.len() < STARTS_MAX {
            let Some(share) = self.shares.get_mut(&spawn) else { return };
            if share.tried == share.wanted {
                break;
            }
            if core.halting {
                share.fail_rest(Code::SysErr);
                break;
            }
            let Settings { tasks_max, tasks_max_cause, .. } = &core.settings;
            if core.tasks.count() >= *tasks_max {
                core.log(format!("no more than {tasks_max} tasks on this host: {tasks_max_cause}"));
                share.fail_rest(Code::OutOfRes);
                break;
            }
            share.tried += 1;
            let origin = core.roles.tasker.filter(|_| !is_helper).map_or(Origin::Spawned, Origin::Tasker);
            let Some((tid, start)) = self.prepare(core, spawn, origin) else {
                let share = self.shares.get_mut(&spawn).expect("looked up above");
                share.results.push(Code::OutOfRes.number());
                share.fail_rest(Code::OutOfRes);
                break;
            };
            match origin {
                Origin::Tasker(tasker) => {
                    ask_tasker(core, tasker, &start, &self.shares[&spawn]);
                    self.started(core, observers, spawn, tid, Ok(0));
                }
                Origin::Arrived | Origin::Spawned => starts.push(start),
            }
        }
        if starts.is_empty() {
            return self.finish_share(core, spawn);
        }
        let share = self.shares.get_mut(&spawn).expect("looked up above");
        (share.open, share.until) = (starts.len(), core.now + START_TIME_MAX);
        core.push(Action::Start(starts));
    }

    /// Returns when [`Spawns::on_time`] must be called next.
    pub fn next_wakeup(&self) -> Option<Time> {
        self.shares.values().map(|share| share.until).min()
    }

    /// Fails the shares whose program, or whose processes, take too long.
    pub fn on_time(&mut self, core: &mut Core) {
        let over = self.shares.iter().filter(|(_, share)| share.until <= core.now).map(|(spawn, _)| *spawn);
        for spawn in over.collect::<Vec<_>>() {
            self.give_up(core, spawn);
        }
    }

    fn give_up(&mut self, core: &mut Core, spawn: SpawnId) {
        let Some(share) = self.shares.get_mut(&spawn) else { return };
        let is_open = |(tid, task): &(Tid, &Task)| task.spawn == Some(spawn) && !share.started.contains(tid);
        let open: Vec<Tid> = core.tasks.iter().filter(is_open).map(|(tid, _)| tid).collect();
        share.results.extend(open.iter().map(|_| Code::DSysErr.number()));
        share.fail_rest(Code::DSysErr);
        let what = if share.found.is_some() { "to start" } else { "to look for" };
        let (file, seconds) = (String::from_utf8_lossy(&share.request.file), START_TIME_MAX.as_secs());
        core.log(format!("{what} {file} takes longer than {seconds} s: a file system does not answer"));
        open.into_iter().for_each(|tid| tasks::discard(core, tid));
        self.finish_share(core, spawn);
    }

    /// Adds a task to the table and returns how to start it.
    fn prepare(&mut self, core: &mut Core, spawn: SpawnId, origin: Origin) -> Option<(Tid, Start)> {
        let share = self.shares.get(&spawn)?;
        let request = &share.request;
        let found = share.found.clone()?;
        let mut arguments: Vec<ByteBuf> = found.debugger.iter().cloned().collect();
        arguments.push(found.path.clone());
        arguments.extend(request.arguments.iter().cloned());
        let path = found.debugger.unwrap_or(found.path);
        // `tried` already counts the task that is being prepared.
        let local = share.tried as i32 - 1;
        let plan = RunPlan::find(&request.environment);
        let index = plan.unwrap_or_default().index(share.first + local, share.total);
        let input = plan.map_or(index == 0, |plan| plan.has_input(index)) && request.flags & TASK_INPUT != 0;
        let total = plan.and_then(|plan| plan.total).unwrap_or(share.total);
        let (mut environment, directory) = (share.environment(), share.directory.clone());
        run_plan::set_numbers(&mut environment, plan, [index, total, local, share.wanted as i32]);
        let mut settings = request.children.clone();
        core.roles.settle(&mut settings);
        let mut task = Task::new(origin, share.parent, request.file.to_vec(), settings);
        (task.spawn, task.is_starting) = (Some(spawn), true);
        let run = task.trace_settings.run;
        (task.leads, task.has_input) = (run.group, run.group && input);
        let input = task.has_input;
        let (tid, cookie) = tasks::expect(core, task)?;
        self.siblings_of.get_mut(&spawn)?.living += 1;
        self.shares.get_mut(&spawn)?.tids.push(tid);
        Some((tid, Start { tid, cookie, path, arguments, environment, directory, run, input }))
    }

    /// Handles the result of starting a process: its process id or the failure.
    pub fn process_started(
        &mut self,
        core: &mut Core,
        observers: &mut Observers<'_>,
        tid: Tid,
        result: Result<i32, Code>,
    ) {
        let Some(spawn) = core.tasks.get(tid).and_then(|task| task.spawn) else { return };
        self.started(core, observers, spawn, tid, result);
        let Some(share) = self.shares.get_mut(&spawn) else { return };
        share.open = share.open.saturating_sub(1);
        if share.open == 0 {
            self.start_next(core, observers, spawn);
        }
    }

    /// Records the result of starting a task.
    fn started(
        &mut self,
        core: &mut Core,
        observers: &mut Observers<'_>,
        spawn: SpawnId,
        tid: Tid,
        result: Result<i32, Code>,
    ) {
        let (Some(share), Some(task)) = (self.shares.get_mut(&spawn), core.tasks.get_mut(tid)) else {
            return;
        };
        task.is_starting = false;
        match result {
            Ok(process) => {
                (task.process, task.started) = (process, process);
                let signals: Vec<i32> = task.take_signals().collect();
                share.started.insert(tid);
                let (flags, wanted, parent) = (share.request.flags, share.request.children.clone(), task.parent);
                observers.traces.started(core, tid, flags);
                match spawn.host == core.own_host() {
                    true => {
                        observers.traces.spawned(core, tid, parent, &wanted);
                        observers.output.announce_output(core, tid);
                    }
                    false => observers.output.announce_arrival(core, tid),
                }
                signals.into_iter().for_each(|signal| core.push(Action::Signal { tid, process, signal }));
            }
            Err(code) => {
                share.results.push(code.number());
                share.fail_rest(code);
                tasks::discard(core, tid);
            }
        }
    }

    /// Reports a share after the start of each of its tasks was tried.
    fn finish_share(&mut self, core: &mut Core, spawn: SpawnId) {
        let Some(share) = self.shares.remove(&spawn) else { return };
        let started = share.tids.iter().filter(|tid| share.started.contains(tid));
        let mut results: Vec<i32> = started.map(|tid| tid.0 as i32).collect();
        let tids = results.clone();
        results.extend(share.results);
        if spawn.host == core.own_host() {
            return self.host_share_done(core, spawn.number, spawn.host, results);
        }
        core.send_host(spawn.host, Frame::Spawned { wait: spawn.number, results });
        // No list of siblings will arrive: no task was started, or the distributing host is lost.
        if tids.is_empty() || !core.hosts.is_here(spawn.host) {
            self.siblings_complete(core, spawn, tids);
        }
    }

    /// Handles the report of another host on its share.
    pub fn host_spawned(
        &mut self,
        core: &mut Core,
        observers: &mut Observers<'_>,
        host: Tid,
        number: u32,
        mut results: Vec<i32>,
    ) {
        results.retain(|result| *result < 0 || Tid(*result as u32).host() == host);
        if let Some(job) = self.jobs.get(&number) {
            let (parent, children, wanted) = (job.parent, job.children.clone(), job.wanted.clone());
            for tid in results.iter().filter(|result| **result > 0) {
                observers.traces.spawned(core, Tid(*tid as u32), parent, &wanted);
                observers.output.announce_remote(core, Tid(*tid as u32), &children, parent);
            }
        }
        self.host_share_done(core, number, host, results);
    }

    /// Records the results of one host's share.
    fn host_share_done(&mut self, core: &mut Core, number: u32, host: Tid, mut results: Vec<i32>) {
        let Some(job) = self.jobs.get_mut(&number) else { return };
        let Some(place) = job.unreported.remove(&host) else { return };
        let host_share = &mut job.host_shares[place];
        results.resize(host_share.count, Code::DSysErr.number());
        host_share.results = results;
        if job.unreported.is_empty() {
            self.finish_job(core, number);
        }
    }

    /// Answers a spawn when all hosts have reported.
    fn finish_job(&mut self, core: &mut Core, number: u32) {
        let Some(SpawnJob { asker, host_shares, .. }) = self.jobs.remove(&number) else { return };
        let is_tid = |result: &i32| Tid(*result as u32).is_task();
        let own = core.own_host();
        let all = || host_shares.iter().flat_map(|host_share| host_share.results.iter().copied());
        // Tids first, then codes.
        let (tids, codes): (Vec<i32>, Vec<i32>) = all().partition(is_tid);
        for host_share in
            host_shares.iter().filter(|host_share| host_share.results.iter().any(is_tid) && host_share.host != own)
        {
            let tids = tids.iter().map(|tid| Tid(*tid as u32)).collect();
            core.send_host(host_share.host, Frame::Siblings { wait: number, tids });
        }
        self.siblings_complete(core, SpawnId { host: own, number }, tids.clone());
        answer_spawn(core, asker, Ok([tids, codes].concat()));
    }

    /// Records the tasks of a spawn that has ended, and answers the tasks that asked for the list.
    fn siblings_complete(&mut self, core: &mut Core, spawn: SpawnId, tids: Vec<i32>) {
        let incomplete = self.siblings_of.get_mut(&spawn).filter(|siblings| siblings.tids.is_none());
        let Some(siblings) = incomplete else { return };
        siblings.tids = Some(tids.clone());
        let waiting = std::mem::take(&mut siblings.waiting);
        for (asker, wait) in waiting {
            core.reply(asker, wait, Ok(Reply::Tids(tids.clone())));
        }
        self.forget(Some(spawn));
    }

    /// Handles the list of siblings from the host that distributed the spawn.
    pub fn siblings_known(&mut self, core: &mut Core, host: Tid, number: u32, tids: &[Tid]) {
        let tids = tids.iter().map(|tid| tid.0 as i32).collect();
        self.siblings_complete(core, SpawnId { host, number }, tids);
    }

    /// Handles the loss of a host: its open shares fail. If the lost host distributed a spawn, only the spawn's tasks
    /// on this host count as siblings.
    fn forget_host(&mut self, core: &mut Core, host: Tid) {
        let count = |job: &SpawnJob| job.unreported.get(&host).map(|place| job.host_shares[*place].count);
        let lost: Vec<(u32, usize)> =
            self.jobs.iter().filter_map(|(number, job)| Some((*number, count(job)?))).collect();
        for (number, count) in lost {
            self.host_share_done(core, number, host, vec![Code::HostFail.number(); count]);
        }
        let number = |number| SpawnId { host, number };
        let dealt = self.siblings_of.range(number(0)..=number(u32::MAX)).map(|(id, _)| *id);
        let orphaned: Vec<SpawnId> = dealt.filter(|id| !self.shares.contains_key(id)).collect();
        for spawn in orphaned {
            let ours = core.tasks.iter().filter(|(_, task)| task.spawn == Some(spawn));
            let tids: Vec<Tid> = ours.map(|(tid, _)| tid).collect();
            if self.siblings_of.get(&spawn).is_some_and(|siblings| siblings.tids.is_none()) {
                // The lost host can no longer announce these tasks to their collector, so this host announces them.
                tids.iter().for_each(|tid| core.raise(Event::SpawnerLost(*tid)));
            }
            self.siblings_complete(core, spawn, tids.iter().map(|tid| tid.0 as i32).collect());
        }
    }

    /// Drops a task's requests for the list of its siblings.
    fn stop_waiting(&mut self, tid: Tid, spawn: Option<SpawnId>) {
        if let Some(siblings) = spawn.and_then(|spawn| self.siblings_of.get_mut(&spawn)) {
            siblings.waiting.retain(|(asker, _)| *asker != tid);
        }
    }

    /// Answers `pvm_siblings`.
    pub fn siblings(&mut self, core: &mut Core, from: Tid, wait: u32) {
        let spawn = core.tasks.get(from).and_then(|task| task.spawn);
        match spawn.and_then(|spawn| self.siblings_of.get_mut(&spawn)) {
            Some(Siblings { tids: None, waiting, .. }) => waiting.push((from, wait)),
            Some(Siblings { tids: Some(tids), .. }) => {
                let tids = tids.clone();
                core.reply(from, wait, Ok(Reply::Tids(tids)));
            }
            None => core.reply(from, wait, Ok(Reply::Tids(vec![from.0 as i32]))),
        }
    }
}

/// Asks the tasker to start a process.
fn ask_tasker(core: &mut Core, tasker: Tid, start: &Start, share: &LocalShare) {
    let body = Writer::new().int(start.tid.0 as i32).int(share.request.flags).string(&start.path);
    let body = start.arguments.iter().fold(body.int(start.arguments.len() as i32), |body, one| body.string(one));
    let cookie = format!("PVMEPID={}", start.cookie);
    let body = body.int(start.environment.len() as i32 + 1).string(cookie.as_bytes());
    let body = start.environment.iter().fold(body, |body, one| body.string(one));
    // `tried` already counts this task.
    let body = body.int(share.first + share.tried as i32 - 1).int(share.wanted as i32).int(share.total);
    core.tell(tasker, 0, SM_STTASK, 0, body.finish());
}

/// Returns the parent that `pvm_parent` reports to the tasks of a spawn.
fn parent_for(asker: Asker, flags: i32) -> i32 {
    match asker {
        _ if flags & NO_SPAWN_PARENT != 0 => Code::ParentNotSet.number(),
        Asker::Task { tid, .. } => tid.0 as i32,
        Asker::Manager { parent, .. } => parent,
        Asker::Daemon => Code::ParentNotSet.number(),
    }
}

/// Answers the task or manager that asked for a spawn. If a helper of the daemon could not be started, logs this.
fn answer_spawn(core: &mut Core, asker: Asker, result: Result<Vec<i32>, Code>) {
    match asker {
        Asker::Daemon => {
            let codes = result.unwrap_or_else(|code| vec![code.number()]);
            for code in codes.into_iter().filter(|code| *code < 0) {
                core.log(format!("cannot start a helper: {}", crate::codes::text(code)));
            }
        }
        Asker::Task { tid, wait } => core.reply(tid, wait, result.map(Reply::Tids)),
        Asker::Manager { tid, wid, ctx, parent } => {
            let results = result.unwrap_or_else(|code| vec![code.number()]);
            core.raise(Event::ManagerSpawned { manager: tid, wid, ctx, parent, results });
        }
    }
}
