//! `pvm_spawn` (contract 2.5): placement, start, results, siblings.
use super::tasks::{Origin, Task};
use super::{Action, Machine, Start};
use crate::codes::{Code, HOST_COMPL, NO_SPAWN_PARENT, TASK_ARCH, TASK_DEBUG, TASK_HOST, TASK_INPUT};
use crate::proto::{ByteBuf, Reply, Spawn, TraceSettings};
use crate::tid::{LOCAL_MASK, Tid};
use crate::wire::Frame;
use std::collections::BTreeMap;

/// Of the environment of a task that `pvm run` has started, and of all that come of it: directories in which
/// programs are looked for that are in none of the host's own.
pub const BESIDE_VARIABLE: &[u8] = b"PVMSPAWNPATH=";

/// Which spawn: the host that deals it out, and its number there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs)]
pub struct SpawnId {
    pub host: Tid,
    pub number: u32,
}

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

/// A program that was found.
#[derive(Debug, Clone, PartialEq)]
pub struct Found {
    /// The full path.
    pub path: ByteBuf,
    /// The debugger that is to run it.
    pub debugger: Option<ByteBuf>,
}

/// A spawn that this host deals out.
struct Whole {
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
struct Part {
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
    wholes: BTreeMap<u32, Whole>,
    parts: BTreeMap<SpawnId, Part>,
    groups: BTreeMap<SpawnId, Group>,
    /// The next spawn begins with the first host that it may use from this one on.
    next: Tid,
}

impl Spawns {
    pub fn new(own: Tid) -> Spawns {
        Spawns {
            last: 0,
            wholes: BTreeMap::new(),
            parts: BTreeMap::new(),
            groups: BTreeMap::new(),
            next: Tid(own.0 + 1),
        }
    }
    pub fn pending(&self) -> usize {
        self.wholes.len() + self.parts.len()
    }
    pub fn is_idle(&self) -> bool {
        self.wholes.is_empty() && self.parts.is_empty() && self.groups.is_empty()
    }
    /// A task of that group has ended.
    pub fn forget(&mut self, group: Option<SpawnId>) {
        let Some(id) = group else { return };
        let Some(group) = self.groups.get_mut(&id) else { return };
        group.living -= 1;
        if group.living == 0 {
            self.groups.remove(&id);
        }
    }
}

/// How many of `count` tasks each of so many hosts gets: contiguous blocks, of which each ends where
/// its even share would, rounded up.
fn blocks(count: usize, hosts: usize) -> impl Iterator<Item = usize> {
    let end = move |hosts_done: usize| (count * hosts_done).div_ceil(hosts);
    (0..hosts).map(move |host| end(host + 1) - end(host))
}

/// What each of the hosts gets; one that stands there more than once gets as many shares.
fn shares(count: usize, hosts: &[Tid]) -> Vec<(Tid, usize)> {
    let (mut shares, mut places): (Vec<(Tid, usize)>, _) = (Vec::new(), BTreeMap::new());
    for (host, count) in hosts.iter().zip(blocks(count, hosts.len())).filter(|(_, count)| *count > 0) {
        let place = *places.entry(*host).or_insert(shares.len());
        match shares.get_mut(place) {
            Some((_, share)) => *share += count,
            None => shares.push((*host, count)),
        }
    }
    shares
}

/// The host or architecture, and the directory, of a spawn's `where`.
fn split_place(flags: i32, place: &[u8]) -> (&[u8], Option<&[u8]>) {
    if flags & (TASK_HOST | TASK_ARCH) == 0 && place.first() != Some(&b':') {
        return (b"", None);
    }
    match place.iter().position(|byte| *byte == b':') {
        Some(at) => (&place[..at], Some(&place[at + 1..]).filter(|directory| !directory.is_empty())),
        None => (place, None),
    }
}

impl Machine {
    /// Starts a helper of the daemon (`PVM_TASKER` and so on); its words.
    pub fn start_helper(&mut self, words: &[&str]) {
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
        self.spawn(Asker::Daemon, spawn);
    }

    pub(super) fn spawn(&mut self, asker: Asker, request: Spawn) {
        let total = request.count;
        self.deal(asker, request, 0, total);
    }

    /// Starts a part of what one call to `pvm_spawn` wants, on the hosts that it allows.
    pub(super) fn deal(&mut self, asker: Asker, request: Spawn, first: i32, total: i32) {
        let refusal = match request.count {
            _ if self.control.halting() => Some(Code::SysErr),
            count if count < 1 => Some(Code::BadParam),
            count if count as u32 > LOCAL_MASK => Some(Code::OutOfRes),
            _ => None,
        };
        if let Some(code) = refusal {
            return self.answer_spawn(asker, Err(code));
        }
        let hosts = self.hosts_for(asker, &request);
        if hosts.is_empty() {
            let codes = vec![Code::NoHost.number(); request.count as usize];
            return self.answer_spawn(asker, Ok(codes));
        }
        self.spawns.last = self.spawns.last.wrapping_add(1);
        let (number, own) = (self.spawns.last, self.own_host());
        let counts = shares(request.count as usize, &hosts);
        let blocks: Vec<Block> =
            counts.into_iter().map(|(host, count)| Block { host, count, results: Vec::new() }).collect();
        let shares: Vec<(Tid, usize)> = blocks.iter().map(|block| (block.host, block.count)).collect();
        let parent = parent_for(asker, request.flags);
        let (wanted, mut children) = (request.children.clone(), request.children.clone());
        self.traces.settle(&mut children);
        let open = blocks.iter().enumerate().map(|(place, block)| (block.host, place)).collect();
        self.spawns.wholes.insert(number, Whole { asker, parent, wanted, children, blocks, open });
        let mut first = first;
        for (host, count) in shares {
            let spawn = Spawn { count: count as i32, ..request.clone() };
            if host == own {
                self.begin_part(SpawnId { host: own, number }, parent, first, total, spawn);
            } else {
                self.send_host(host, Frame::Spawn { wait: number, parent, first, total, spawn });
            }
            first += count as i32;
        }
    }

    /// The hosts among which a spawn is dealt out, in the order of the tasks' numbers.
    fn hosts_for(&mut self, asker: Asker, request: &Spawn) -> Vec<Tid> {
        let own = self.own_host();
        let (place, directory) = split_place(request.flags, &request.place);
        let listed = request.flags & (TASK_HOST | TASK_ARCH | HOST_COMPL) == TASK_HOST && place.contains(&b',');
        if matches!(asker, Asker::Task { .. }) && listed {
            // A list says in which order, and a name that stands there twice counts twice.
            return place.split(|byte| *byte == b',').filter_map(|name| self.hosts.find(name)).collect();
        }
        let mut hosts = match asker {
            Asker::Task { .. } => self.candidates(request.count as usize, request.flags, place, directory.is_some()),
            // What the manager wants to have started by this daemon, and what the daemon needs.
            Asker::Manager { .. } | Asker::Daemon => vec![own],
        };
        if matches!(asker, Asker::Task { .. }) && !hosts.is_empty() {
            // Behind the last one that gets a task.
            let used = hosts.len().min(request.count as usize);
            self.spawns.next = hosts[used % hosts.len()];
            hosts.truncate(used);
        }
        hosts
    }

    /// Another host wants tasks started here.
    pub(super) fn spawn_for(&mut self, host: Tid, wait: u32, parent: i32, first: i32, total: i32, spawn: Spawn) {
        let id = SpawnId { host, number: wait };
        let code = match spawn.count {
            _ if self.control.halting() => Code::SysErr,
            count if count as u32 > LOCAL_MASK && count > 0 => Code::OutOfRes,
            count if count < 1 || self.spawns.groups.contains_key(&id) => Code::BadParam,
            // Each is told its number.
            count if first < 0 || first.checked_add(count).is_none() => Code::BadParam,
            _ => return self.begin_part(id, parent, first, total, spawn),
        };
        let results = vec![code.number(); usize::try_from(spawn.count).unwrap_or(0).min(LOCAL_MASK as usize)];
        self.send_host(host, Frame::Spawned { wait, results });
    }

    fn begin_part(&mut self, spawn: SpawnId, parent: i32, first: i32, total: i32, request: Spawn) {
        let (_, directory) = split_place(request.flags, &request.place);
        let directory = directory.map(|directory| ByteBuf::from(directory.to_vec()));
        let (file, debug) = (request.file.clone(), request.flags & TASK_DEBUG != 0);
        let beside = request.environment.iter().find_map(|variable| variable.strip_prefix(BESIDE_VARIABLE));
        let beside = beside.map(|places| ByteBuf::from(places.to_vec()));
        let part = Part {
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
        self.spawns.parts.insert(spawn, part);
        self.spawns.groups.insert(spawn, Group { living: 1, ..Group::default() });
        self.actions.push_back(Action::Find { spawn, file, directory, beside, debug });
    }

    /// The hosts on which so many tasks may be started, in turn: no more than can get one, and the next.
    fn candidates(&self, count: usize, flags: i32, place: &[u8], has_directory: bool) -> Vec<Tid> {
        let any = place.is_empty() && has_directory;
        let named = self.hosts.find(place);
        if flags & (TASK_HOST | TASK_ARCH | HOST_COMPL) == TASK_HOST && !any {
            return named.into_iter().collect();
        }
        let chosen = |tid: Tid| match flags & (TASK_HOST | TASK_ARCH) {
            0 => true,
            _ if any => true,
            TASK_ARCH => self.hosts.is_arch(tid, place),
            _ => named == Some(tid),
        };
        let complement = flags & HOST_COMPL != 0;
        let in_turn = self.hosts.tids_from(self.spawns.next);
        in_turn.filter(|tid| chosen(*tid) != complement).take(count + 1).collect()
    }

    /// Whether a program was found for a spawn.
    pub fn handle_found(&mut self, spawn: SpawnId, result: Result<Found, Code>) {
        let Some(pending) = self.spawns.parts.get_mut(&spawn) else { return };
        match result {
            Ok(found) => pending.found = Some(found),
            Err(code) => pending.fail_rest(code),
        }
        self.start_next(spawn);
    }

    /// Starts the next task of a spawn, or ends the spawn.
    fn start_next(&mut self, spawn: SpawnId) {
        loop {
            let Some(pending) = self.spawns.parts.get_mut(&spawn) else { return };
            if pending.tried == pending.wanted {
                return self.end_part(spawn);
            }
            if self.tasks.count() >= self.settings.tasks_max {
                let super::Settings { tasks_max, tasks_max_cause, .. } = &self.settings;
                let line = format!("no more than {tasks_max} tasks on this host: {tasks_max_cause}").into_bytes();
                self.actions.push_back(Action::Log { tid: Tid::DAEMON, line });
                pending.fail_rest(Code::OutOfRes);
                continue;
            }
            let instance = pending.first + pending.tried as i32;
            pending.tried += 1;
            let origin = self.servers.tasker.map_or(Origin::Spawned, Origin::Tasker);
            let Some((tid, start)) = self.prepare(spawn, origin) else {
                let pending = self.spawns.parts.get_mut(&spawn).expect("looked up above");
                pending.results.push(Code::OutOfRes.number());
                pending.fail_rest(Code::OutOfRes);
                continue;
            };
            match origin {
                Origin::Tasker(tasker) => {
                    let pending = &self.spawns.parts[&spawn];
                    let (flags, here, total) = (pending.request.flags, pending.wanted as i32, pending.total);
                    self.ask_tasker(tasker, &start, flags, instance, here, total);
                    self.started(spawn, tid, Ok(0));
                }
                Origin::Own | Origin::Spawned => return self.actions.push_back(Action::Start(start)),
            }
        }
    }

    /// Makes the place for a task and says how it is to be started.
    fn prepare(&mut self, spawn: SpawnId, origin: Origin) -> Option<(Tid, Start)> {
        let pending = self.spawns.parts.get(&spawn)?;
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
        self.traces.settle(&mut own);
        let mut task = Task::new(origin, pending.parent, request.file.to_vec(), own);
        task.group = Some(spawn);
        let run = task.own.run;
        (task.leads, task.has_input) = (run.group, run.group && input);
        let input = task.has_input;
        let (tid, cookie) = self.expect_task(task)?;
        self.spawns.groups.get_mut(&spawn)?.living += 1;
        Some((tid, Start { tid, cookie, path, arguments, environment, directory, run, input }))
    }

    /// Whether a process could be started; its process id.
    pub fn handle_started(&mut self, tid: Tid, result: Result<i32, Code>) {
        let Some(spawn) = self.tasks.get(tid).and_then(|task| task.group) else { return };
        self.started(spawn, tid, result);
        self.start_next(spawn);
    }

    fn started(&mut self, spawn: SpawnId, tid: Tid, result: Result<i32, Code>) {
        let (Some(pending), Some(task)) = (self.spawns.parts.get_mut(&spawn), self.tasks.get_mut(tid)) else {
            return;
        };
        match result {
            Ok(process) => {
                (task.process, task.started) = (process, process);
                pending.started.push(tid);
                let (flags, wanted, parent) = (pending.request.flags, pending.request.children.clone(), task.parent);
                self.trace_start(tid, flags);
                match spawn.host == self.own_host() {
                    true => {
                        self.trace_spawn(tid, parent, &wanted);
                        self.announce_output(tid);
                    }
                    false => self.announce_arrival(tid),
                }
            }
            Err(code) => {
                pending.results.push(code.number());
                pending.fail_rest(code);
                self.spawns.forget(Some(spawn));
                self.discard(tid);
            }
        }
    }

    /// All that this host had to start of a spawn has been tried.
    fn end_part(&mut self, spawn: SpawnId) {
        let Some(part) = self.spawns.parts.remove(&spawn) else { return };
        let mut results: Vec<i32> = part.started.iter().map(|tid| tid.0 as i32).collect();
        let tids = results.clone();
        results.extend(part.results);
        if spawn.host == self.own_host() {
            return self.block_done(spawn.number, spawn.host, results);
        }
        self.send_host(spawn.host, Frame::Spawned { wait: spawn.number, results });
        // Of what has come to nothing, and where nobody deals any more, nobody will hear.
        if tids.is_empty() || !self.hosts.is_here(spawn.host) {
            self.end_group(spawn, tids);
        }
    }

    /// Another host has started what it had to.
    pub(super) fn part_spawned(&mut self, host: Tid, number: u32, mut results: Vec<i32>) {
        results.retain(|result| *result < 0 || Tid(*result as u32).host() == host);
        if let Some(whole) = self.spawns.wholes.get(&number) {
            let (parent, children, wanted) = (whole.parent, whole.children.clone(), whole.wanted.clone());
            for tid in results.iter().filter(|result| **result > 0) {
                self.trace_spawn(Tid(*tid as u32), parent, &wanted);
                self.announce_far(Tid(*tid as u32), &children, parent);
            }
        }
        self.block_done(number, host, results);
    }

    fn block_done(&mut self, number: u32, host: Tid, mut results: Vec<i32>) {
        let Some(whole) = self.spawns.wholes.get_mut(&number) else { return };
        let Some(place) = whole.open.remove(&host) else { return };
        let block = &mut whole.blocks[place];
        results.resize(block.count, Code::DSysErr.number());
        block.results = results;
        if whole.open.is_empty() {
            self.end_spawn(number);
        }
    }

    fn end_spawn(&mut self, number: u32) {
        let Some(Whole { asker, blocks, .. }) = self.spawns.wholes.remove(&number) else { return };
        let is_tid = |result: &i32| Tid(*result as u32).is_task();
        let own = self.own_host();
        let all = || blocks.iter().flat_map(|block| block.results.iter().copied());
        // Good tids first, then codes.
        let (tids, codes): (Vec<i32>, Vec<i32>) = all().partition(is_tid);
        for block in blocks.iter().filter(|block| block.results.iter().any(is_tid) && block.host != own) {
            let tids = tids.iter().map(|tid| Tid(*tid as u32)).collect();
            self.send_host(block.host, Frame::Siblings { wait: number, tids });
        }
        self.end_group(SpawnId { host: own, number }, tids.clone());
        self.answer_spawn(asker, Ok([tids, codes].concat()));
    }

    /// The tasks that came of a spawn are known.
    fn end_group(&mut self, spawn: SpawnId, tids: Vec<i32>) {
        let Some(group) = self.spawns.groups.get_mut(&spawn).filter(|group| group.tids.is_none()) else { return };
        group.tids = Some(tids.clone());
        let waiting = std::mem::take(&mut group.waiting);
        for (asker, wait) in waiting {
            self.reply(asker, wait, Ok(Reply::Tids(tids.clone())));
        }
        self.spawns.forget(Some(spawn));
    }

    pub(super) fn siblings_known(&mut self, host: Tid, number: u32, tids: &[Tid]) {
        let tids = tids.iter().map(|tid| tid.0 as i32).collect();
        self.end_group(SpawnId { host, number }, tids);
    }

    /// A host is lost: what it was to start was not started, and of what it dealt out there are the
    /// tasks here.
    pub(super) fn spawns_without(&mut self, host: Tid) {
        let count = |whole: &Whole| whole.open.get(&host).map(|place| whole.blocks[*place].count);
        let open: Vec<(u32, usize)> =
            self.spawns.wholes.iter().filter_map(|(number, whole)| Some((*number, count(whole)?))).collect();
        for (number, count) in open {
            self.block_done(number, host, vec![Code::HostFail.number(); count]);
        }
        let number = |number| SpawnId { host, number };
        let dealt = self.spawns.groups.range(number(0)..=number(u32::MAX)).map(|(id, _)| *id);
        let groups: Vec<SpawnId> = dealt.filter(|id| !self.spawns.parts.contains_key(id)).collect();
        for spawn in groups {
            let ours = self.tasks.iter().filter(|(_, task)| task.group == Some(spawn));
            let tids: Vec<Tid> = ours.map(|(tid, _)| tid).collect();
            if self.spawns.groups.get(&spawn).is_some_and(|group| group.tids.is_none()) {
                // Nobody else will announce them.
                tids.iter().for_each(|tid| self.announce_output(*tid));
            }
            self.end_group(spawn, tids.iter().map(|tid| tid.0 as i32).collect());
        }
    }

    fn answer_spawn(&mut self, asker: Asker, result: Result<Vec<i32>, Code>) {
        match asker {
            Asker::Daemon => {
                let codes = result.unwrap_or_else(|code| vec![code.number()]);
                for code in codes.into_iter().filter(|code| *code < 0) {
                    let line = format!("cannot start a helper: {}", crate::codes::text(code)).into_bytes();
                    self.actions.push_back(Action::Log { tid: Tid::DAEMON, line });
                }
            }
            Asker::Task { tid, wait } => self.reply(tid, wait, result.map(Reply::Tids)),
            Asker::Manager { tid, wid, ctx, parent } => {
                let tids = result.unwrap_or_else(|code| vec![code.number()]);
                self.note_managed_spawn(tid, parent, &tids);
                self.answer_manager_spawn(tid, wid, ctx, tids);
            }
        }
    }

    /// The task does not wait for its siblings any more.
    pub(super) fn siblings_unwanted(&mut self, tid: Tid) {
        let group = self.tasks.get(tid).and_then(|task| task.group);
        if let Some(group) = group.and_then(|group| self.spawns.groups.get_mut(&group)) {
            group.waiting.retain(|(asker, _)| *asker != tid);
        }
    }

    pub(super) fn siblings(&mut self, from: Tid, wait: u32) {
        let group = self.tasks.get(from).and_then(|task| task.group);
        match group.and_then(|group| self.spawns.groups.get_mut(&group)) {
            Some(Group { tids: None, waiting, .. }) => waiting.push((from, wait)),
            Some(Group { tids: Some(tids), .. }) => {
                let tids = tids.clone();
                self.reply(from, wait, Ok(Reply::Tids(tids)));
            }
            None => self.reply(from, wait, Ok(Reply::Tids(vec![from.0 as i32]))),
        }
    }
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

impl Part {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_are_dealt_in_blocks() {
        let blocks = |count, hosts| blocks(count, hosts).collect::<Vec<_>>();
        assert_eq!(blocks(5, 2), [3, 2]);
        assert_eq!(blocks(6, 4), [2, 1, 2, 1]);
        assert_eq!(blocks(9, 4), [3, 2, 2, 2]);
        assert_eq!(blocks(7, 1), [7]);
    }

    #[test]
    fn a_host_that_is_listed_twice_gets_two_shares() {
        let [a, b] = [1, 2].map(Tid::host_number);
        assert_eq!(shares(6, &[a, b, a]), [(a, 4), (b, 2)]);
        assert_eq!(shares(1, &[b, a]), [(b, 1)]);
    }

    #[test]
    fn a_place_is_a_name_and_a_directory() {
        assert_eq!(split_place(TASK_HOST, b"alfa:/tmp"), (&b"alfa"[..], Some(&b"/tmp"[..])));
        assert_eq!(split_place(TASK_HOST, b"alfa"), (&b"alfa"[..], None));
        assert_eq!(split_place(TASK_ARCH, b"LINUX64:"), (&b"LINUX64"[..], None));
        assert_eq!(split_place(0, b":/tmp"), (&b""[..], Some(&b"/tmp"[..])));
        assert_eq!(split_place(0, b"any:thing"), (&b""[..], None));
        assert_eq!(split_place(0, b"*"), (&b""[..], None));
    }
}
