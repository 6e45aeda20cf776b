//! `pvm_spawn` (contract 2.5): placement, start, results, siblings.
//!
//! The host of the spawner deals a spawn out (`Job`); each host that gets tasks of it starts its share (`Share`).

mod placement;

use self::placement::{hosts_for, shares, split_place};
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
use crate::wire::Frame;
use std::collections::BTreeMap;

/// Of the environment of a task that `pvm run` has started, and of all that come of it: directories in which
/// programs are looked for that are in none of the host's own.
pub const BESIDE_VARIABLE: &[u8] = b"PVMSPAWNPATH=";

/// Who asked for a spawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Asker {
    /// The daemon itself.
    Daemon,
    /// A task, by a request.
    Task { tid: Tid, wait: u32 },
    /// The resource manager, by a message, for a parent.
    Manager { tid: Tid, wid: i32, ctx: i32, parent: i32 },
}

/// Those who tell collectors of the tasks that are started.
pub(super) struct Observers<'a> {
    pub traces: &'a mut Traces,
    pub output: &'a mut Output,
}

/// A spawn that this host deals out.
struct Job {
    asker: Asker,
    /// The parent of the tasks, or a code.
    parent: i32,
    /// Where the spawner wants output and traces of the tasks, and where they go, since a tracer takes
    /// what nobody wants.
    wanted: TraceSettings,
    children: TraceSettings,
    /// In the order in which the tasks are numbered, and where each host's stands that is open.
    blocks: Vec<Block>,
    open: BTreeMap<Tid, usize>,
}

/// What one host has to start of a spawn.
struct Block {
    host: Tid,
    count: usize,
    /// Tids and codes, as soon as they are known.
    results: Vec<i32>,
}

/// What this host has to start of a spawn.
struct Share {
    /// The parent of the tasks, or a code.
    parent: i32,
    request: Spawn,
    directory: Option<ByteBuf>,
    found: Option<Found>,
    /// The number of the first task, and of all, over all hosts.
    first: i32,
    total: i32,
    /// How many are wanted here, how many were tried.
    wanted: usize,
    tried: usize,
    started: Vec<Tid>,
    results: Vec<i32>,
}

/// The tasks that came from one spawn.
#[derive(Default)]
struct Group {
    /// In the order of the result, once the spawn has ended.
    tids: Option<Vec<i32>>,
    /// How many of them live here; one more until the spawn has ended.
    living: usize,
    /// Who asked before that.
    waiting: Vec<(Tid, u32)>,
}

/// Spawns under way, and what is remembered of those that have ended.
pub(super) struct Spawns {
    last: u32,
    jobs: BTreeMap<u32, Job>,
    shares: BTreeMap<SpawnId, Share>,
    groups: BTreeMap<SpawnId, Group>,
    /// The next spawn begins with the first host that it may use from this one on.
    next: Tid,
}

impl SubMachine for Spawns {
    fn name(&self) -> &'static str {
        "spawns"
    }
    fn is_idle(&self) -> bool {
        self.jobs.is_empty() && self.shares.is_empty() && self.groups.is_empty()
    }
    fn on_event(&mut self, core: &mut Core, event: &Event) {
        match event {
            Event::TaskLeft { tid, spawn, .. } => self.siblings_unwanted(*tid, *spawn),
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
            groups: BTreeMap::new(),
            next: Tid(own.0 + 1),
        }
    }
    pub fn pending(&self) -> usize {
        self.jobs.len() + self.shares.len()
    }
    /// A task of that group has ended.
    fn forget(&mut self, group: Option<SpawnId>) {
        let Some(id) = group else { return };
        let Some(group) = self.groups.get_mut(&id) else { return };
        group.living -= 1;
        if group.living == 0 {
            self.groups.remove(&id);
        }
    }

    /// Starts a helper of the daemon (`PVM_TASKER` and so on); its words.
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

    pub fn spawn(&mut self, core: &mut Core, asker: Asker, request: Spawn) {
        let total = request.count;
        self.deal(core, asker, request, 0, total);
    }

    /// Starts a part of what one call to `pvm_spawn` wants, on the hosts that it allows.
    pub fn deal(&mut self, core: &mut Core, asker: Asker, request: Spawn, first: i32, total: i32) {
        let refusal = match request.count {
            _ if core.halting => Some(Code::SysErr),
            count if count < 1 => Some(Code::BadParam),
            count if count as u32 > LOCAL_MASK => Some(Code::OutOfRes),
            _ => None,
        };
        if let Some(code) = refusal {
            return self.answer_spawn(core, asker, Err(code));
        }
        let hosts = self.hosts_for(core, asker, &request);
        if hosts.is_empty() {
            let codes = vec![Code::NoHost.number(); request.count as usize];
            return self.answer_spawn(core, asker, Ok(codes));
        }
        self.last = self.last.wrapping_add(1);
        let (number, own) = (self.last, core.own_host());
        let counts = shares(request.count as usize, &hosts);
        let blocks: Vec<Block> =
            counts.into_iter().map(|(host, count)| Block { host, count, results: Vec::new() }).collect();
        let shares: Vec<(Tid, usize)> = blocks.iter().map(|block| (block.host, block.count)).collect();
        let parent = parent_for(asker, request.flags);
        let (wanted, mut children) = (request.children.clone(), request.children.clone());
        core.roles.settle(&mut children);
        let open = blocks.iter().enumerate().map(|(place, block)| (block.host, place)).collect();
        self.jobs.insert(number, Job { asker, parent, wanted, children, blocks, open });
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

    /// The hosts among which a spawn is dealt out, in the order of the tasks' numbers.
    fn hosts_for(&mut self, core: &Core, asker: Asker, request: &Spawn) -> Vec<Tid> {
        match asker {
            Asker::Task { .. } => {
                let (hosts, next) = hosts_for(&core.hosts, self.next, request);
                self.next = next;
                hosts
            }
            // What the manager wants to have started by this daemon, and what the daemon needs.
            Asker::Manager { .. } | Asker::Daemon => vec![core.own_host()],
        }
    }

    /// Another host wants tasks started here, as its part of that spawn.
    pub fn ordered(&mut self, core: &mut Core, id: SpawnId, parent: i32, first: i32, total: i32, spawn: Spawn) {
        let code = match spawn.count {
            _ if core.halting => Code::SysErr,
            count if count as u32 > LOCAL_MASK && count > 0 => Code::OutOfRes,
            count if count < 1 || self.groups.contains_key(&id) => Code::BadParam,
            // Each is told its number.
            count if first < 0 || first.checked_add(count).is_none() => Code::BadParam,
            _ => return self.begin_share(core, id, parent, first, total, spawn),
        };
        let results = vec![code.number(); usize::try_from(spawn.count).unwrap_or(0).min(LOCAL_MASK as usize)];
        core.send_host(id.host, Frame::Spawned { wait: id.number, results });
    }

    fn begin_share(&mut self, core: &mut Core, spawn: SpawnId, parent: i32, first: i32, total: i32, request: Spawn) {
        let (_, directory) = split_place(request.flags, &request.place);
        let directory = directory.map(|directory| ByteBuf::from(directory.to_vec()));
        let (file, debug) = (request.file.clone(), request.flags & TASK_DEBUG != 0);
        let beside = request.environment.iter().find_map(|variable| variable.strip_prefix(BESIDE_VARIABLE));
        let beside = beside.map(|places| ByteBuf::from(places.to_vec()));
        let share = Share {
            parent,
            wanted: request.count as usize,
            request,
            directory: directory.clone(),
            found: None,
            first,
            total,
            tried: 0,
            started: Vec::new(),
            results: Vec::new(),
        };
        self.shares.insert(spawn, share);
        self.groups.insert(spawn, Group { living: 1, ..Group::default() });
        core.push(Action::Find { spawn, file, directory, beside, debug });
    }

    /// Whether a program was found for a spawn.
    pub fn found(
        &mut self,
        core: &mut Core,
        observers: &mut Observers<'_>,
        spawn: SpawnId,
        result: Result<Found, Code>,
    ) {
        let Some(pending) = self.shares.get_mut(&spawn) else { return };
        match result {
            Ok(found) => pending.found = Some(found),
            Err(code) => pending.fail_rest(code),
        }
        self.start_next(core, observers, spawn);
    }

    /// Starts the next task of a spawn, or ends the spawn.
    fn start_next(&mut self, core: &mut Core, observers: &mut Observers<'_>, spawn: SpawnId) {
        loop {
            let Some(pending) = self.shares.get_mut(&spawn) else { return };
            if pending.tried == pending.wanted {
                return self.end_share(core, spawn);
            }
            if core.tasks.count() >= core.settings.tasks_max {
                let Settings { tasks_max, tasks_max_cause, .. } = &core.settings;
                let line = format!("no more than {tasks_max} tasks on this host: {tasks_max_cause}").into_bytes();
                core.push(Action::Log { tid: Tid::DAEMON, line });
                pending.fail_rest(Code::OutOfRes);
                continue;
            }
            let instance = pending.first + pending.tried as i32;
            pending.tried += 1;
            let origin = core.roles.tasker.map_or(Origin::Spawned, Origin::Tasker);
            let Some((tid, start)) = self.prepare(core, spawn, origin) else {
                let pending = self.shares.get_mut(&spawn).expect("looked up above");
                pending.results.push(Code::OutOfRes.number());
                pending.fail_rest(Code::OutOfRes);
                continue;
            };
            match origin {
                Origin::Tasker(tasker) => {
                    let pending = &self.shares[&spawn];
                    let (flags, here, total) = (pending.request.flags, pending.wanted as i32, pending.total);
                    ask_tasker(core, tasker, &start, flags, instance, here, total);
                    self.started(core, observers, spawn, tid, Ok(0));
                }
                Origin::Own | Origin::Spawned => return core.push(Action::Start(start)),
            }
        }
    }

    /// Makes the place for a task and says how it is to be started.
    fn prepare(&mut self, core: &mut Core, spawn: SpawnId, origin: Origin) -> Option<(Tid, Start)> {
        let pending = self.shares.get(&spawn)?;
        let request = &pending.request;
        let found = pending.found.clone()?;
        let mut arguments: Vec<ByteBuf> = found.debugger.iter().cloned().collect();
        arguments.push(found.path.clone());
        arguments.extend(request.arguments.iter().cloned());
        let path = found.debugger.unwrap_or(found.path);
        let (environment, directory) = (pending.environment(), pending.directory.clone());
        // The first of all tasks has been counted as tried.
        let input = request.flags & TASK_INPUT != 0 && pending.first == 0 && pending.tried == 1;
        let mut own = request.children.clone();
        core.roles.settle(&mut own);
        let mut task = Task::new(origin, pending.parent, request.file.to_vec(), own);
        task.spawn = Some(spawn);
        let run = task.own.run;
        (task.leads, task.has_input) = (run.group, run.group && input);
        let input = task.has_input;
        let (tid, cookie) = tasks::expect(core, task)?;
        self.groups.get_mut(&spawn)?.living += 1;
        Some((tid, Start { tid, cookie, path, arguments, environment, directory, run, input }))
    }

    /// Whether a process could be started; its process id.
    pub fn process_started(
        &mut self,
        core: &mut Core,
        observers: &mut Observers<'_>,
        tid: Tid,
        result: Result<i32, Code>,
    ) {
        let Some(spawn) = core.tasks.get(tid).and_then(|task| task.spawn) else { return };
        self.started(core, observers, spawn, tid, result);
        self.start_next(core, observers, spawn);
    }

    fn started(
        &mut self,
        core: &mut Core,
        observers: &mut Observers<'_>,
        spawn: SpawnId,
        tid: Tid,
        result: Result<i32, Code>,
    ) {
        let (Some(pending), Some(task)) = (self.shares.get_mut(&spawn), core.tasks.get_mut(tid)) else {
            return;
        };
        match result {
            Ok(process) => {
                (task.process, task.started) = (process, process);
                pending.started.push(tid);
                let (flags, wanted, parent) = (pending.request.flags, pending.request.children.clone(), task.parent);
                observers.traces.started(core, tid, flags);
                match spawn.host == core.own_host() {
                    true => {
                        observers.traces.spawned(core, tid, parent, &wanted);
                        observers.output.announce_output(core, tid);
                    }
                    false => observers.output.announce_arrival(core, tid),
                }
            }
            Err(code) => {
                pending.results.push(code.number());
                pending.fail_rest(code);
                self.forget(Some(spawn));
                tasks::discard(core, tid);
            }
        }
    }

    /// All that this host had to start of a spawn has been tried.
    fn end_share(&mut self, core: &mut Core, spawn: SpawnId) {
        let Some(share) = self.shares.remove(&spawn) else { return };
        let mut results: Vec<i32> = share.started.iter().map(|tid| tid.0 as i32).collect();
        let tids = results.clone();
        results.extend(share.results);
        if spawn.host == core.own_host() {
            return self.host_done(core, spawn.number, spawn.host, results);
        }
        core.send_host(spawn.host, Frame::Spawned { wait: spawn.number, results });
        // Of what has come to nothing, and where nobody deals any more, nobody will hear.
        if tids.is_empty() || !core.hosts.is_here(spawn.host) {
            self.end_group(core, spawn, tids);
        }
    }

    /// Another host has started what it had to.
    pub fn share_done(
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
                observers.output.announce_far(core, Tid(*tid as u32), &children, parent);
            }
        }
        self.host_done(core, number, host, results);
    }

    fn host_done(&mut self, core: &mut Core, number: u32, host: Tid, mut results: Vec<i32>) {
        let Some(job) = self.jobs.get_mut(&number) else { return };
        let Some(place) = job.open.remove(&host) else { return };
        let block = &mut job.blocks[place];
        results.resize(block.count, Code::DSysErr.number());
        block.results = results;
        if job.open.is_empty() {
            self.end_job(core, number);
        }
    }

    fn end_job(&mut self, core: &mut Core, number: u32) {
        let Some(Job { asker, blocks, .. }) = self.jobs.remove(&number) else { return };
        let is_tid = |result: &i32| Tid(*result as u32).is_task();
        let own = core.own_host();
        let all = || blocks.iter().flat_map(|block| block.results.iter().copied());
        // Good tids first, then codes.
        let (tids, codes): (Vec<i32>, Vec<i32>) = all().partition(is_tid);
        for block in blocks.iter().filter(|block| block.results.iter().any(is_tid) && block.host != own) {
            let tids = tids.iter().map(|tid| Tid(*tid as u32)).collect();
            core.send_host(block.host, Frame::Siblings { wait: number, tids });
        }
        self.end_group(core, SpawnId { host: own, number }, tids.clone());
        self.answer_spawn(core, asker, Ok([tids, codes].concat()));
    }

    /// The tasks that came of a spawn are known.
    fn end_group(&mut self, core: &mut Core, spawn: SpawnId, tids: Vec<i32>) {
        let Some(group) = self.groups.get_mut(&spawn).filter(|group| group.tids.is_none()) else { return };
        group.tids = Some(tids.clone());
        let waiting = std::mem::take(&mut group.waiting);
        for (asker, wait) in waiting {
            core.reply(asker, wait, Ok(Reply::Tids(tids.clone())));
        }
        self.forget(Some(spawn));
    }

    pub fn siblings_known(&mut self, core: &mut Core, host: Tid, number: u32, tids: &[Tid]) {
        let tids = tids.iter().map(|tid| tid.0 as i32).collect();
        self.end_group(core, SpawnId { host, number }, tids);
    }

    /// A host is lost: what it was to start was not started, and of what it dealt out there are the
    /// tasks here.
    fn forget_host(&mut self, core: &mut Core, host: Tid) {
        let count = |job: &Job| job.open.get(&host).map(|place| job.blocks[*place].count);
        let open: Vec<(u32, usize)> =
            self.jobs.iter().filter_map(|(number, job)| Some((*number, count(job)?))).collect();
        for (number, count) in open {
            self.host_done(core, number, host, vec![Code::HostFail.number(); count]);
        }
        let number = |number| SpawnId { host, number };
        let dealt = self.groups.range(number(0)..=number(u32::MAX)).map(|(id, _)| *id);
        let groups: Vec<SpawnId> = dealt.filter(|id| !self.shares.contains_key(id)).collect();
        for spawn in groups {
            let ours = core.tasks.iter().filter(|(_, task)| task.spawn == Some(spawn));
            let tids: Vec<Tid> = ours.map(|(tid, _)| tid).collect();
            if self.groups.get(&spawn).is_some_and(|group| group.tids.is_none()) {
                // Nobody else will announce them.
                tids.iter().for_each(|tid| core.raise(Event::SpawnerLost(*tid)));
            }
            self.end_group(core, spawn, tids.iter().map(|tid| tid.0 as i32).collect());
        }
    }

    fn answer_spawn(&mut self, core: &mut Core, asker: Asker, result: Result<Vec<i32>, Code>) {
        match asker {
            Asker::Daemon => {
                let codes = result.unwrap_or_else(|code| vec![code.number()]);
                for code in codes.into_iter().filter(|code| *code < 0) {
                    let line = format!("cannot start a helper: {}", crate::codes::text(code)).into_bytes();
                    core.push(Action::Log { tid: Tid::DAEMON, line });
                }
            }
            Asker::Task { tid, wait } => core.reply(tid, wait, result.map(Reply::Tids)),
            Asker::Manager { tid, wid, ctx, parent } => {
                let results = result.unwrap_or_else(|code| vec![code.number()]);
                core.raise(Event::ManagerSpawned { manager: tid, wid, ctx, parent, results });
            }
        }
    }

    /// The task does not wait for its siblings any more.
    fn siblings_unwanted(&mut self, tid: Tid, group: Option<SpawnId>) {
        if let Some(group) = group.and_then(|group| self.groups.get_mut(&group)) {
            group.waiting.retain(|(asker, _)| *asker != tid);
        }
    }

    pub fn siblings(&mut self, core: &mut Core, from: Tid, wait: u32) {
        let group = core.tasks.get(from).and_then(|task| task.spawn);
        match group.and_then(|group| self.groups.get_mut(&group)) {
            Some(Group { tids: None, waiting, .. }) => waiting.push((from, wait)),
            Some(Group { tids: Some(tids), .. }) => {
                let tids = tids.clone();
                core.reply(from, wait, Ok(Reply::Tids(tids)));
            }
            None => core.reply(from, wait, Ok(Reply::Tids(vec![from.0 as i32]))),
        }
    }
}

/// Asks the tasker to start a process.
fn ask_tasker(core: &mut Core, tasker: Tid, start: &Start, flags: i32, instance: i32, here: i32, total: i32) {
    let body = Writer::new().int(start.tid.0 as i32).int(flags).string(&start.path);
    let body = start.arguments.iter().fold(body.int(start.arguments.len() as i32), |body, one| body.string(one));
    let cookie = format!("PVMEPID={}", start.cookie);
    let body = body.int(start.environment.len() as i32 + 1).string(cookie.as_bytes());
    let body = start.environment.iter().fold(body, |body, one| body.string(one));
    let body = body.int(instance).int(here).int(total);
    core.tell(tasker, 0, SM_STTASK, 0, body.finish());
}

/// What the tasks of a spawn see as their parent.
fn parent_for(asker: Asker, flags: i32) -> i32 {
    match asker {
        _ if flags & NO_SPAWN_PARENT != 0 => Code::ParentNotSet.number(),
        Asker::Task { tid, .. } => tid.0 as i32,
        Asker::Manager { parent, .. } => parent,
        Asker::Daemon => Code::ParentNotSet.number(),
    }
}

impl Share {
    /// What has not been tried yet fails in the same way.
    fn fail_rest(&mut self, code: Code) {
        self.results.resize(self.results.len() + self.wanted - self.tried, code.number());
        self.tried = self.wanted;
    }

    /// The variables that the child gets beside those of its daemon.
    fn environment(&self) -> Vec<ByteBuf> {
        let (given, traces) = (&self.request.environment, &self.request.children);
        let mut environment = given.clone();
        let mut add = |name: &str, value: Vec<u8>| {
            let start = [name.as_bytes(), b"="].concat();
            if !given.iter().any(|variable| variable.starts_with(&start)) {
                environment.push(ByteBuf::from([start, value].concat()));
            }
        };
        let mask = if traces.mask.is_empty() { vec![b'@'; 35] } else { traces.mask.to_vec() };
        add("PVMTMASK", mask);
        add("PVMTRCBUF", traces.trace_buffer.to_string().into_bytes());
        add("PVMTRCOPT", traces.trace_options.to_string().into_bytes());
        if let Some(directory) = &self.directory {
            add("PVMSPAWNWD", directory.to_vec());
        }
        environment
    }
}
