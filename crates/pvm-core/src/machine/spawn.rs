//! `pvm_spawn` (contract 2.5): placement, start, results, siblings.
use super::tasks::{Origin, Task};
use super::{Action, Machine, Start};
use crate::codes::{Code, HOST_COMPL, NO_SPAWN_PARENT, TASK_ARCH, TASK_DEBUG, TASK_HOST};
use crate::proto::{ByteBuf, Reply, Spawn, TraceSettings};
use crate::tid::{LOCAL_MASK, Tid};
use std::collections::BTreeMap;

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

/// A spawn under way.
struct Pending {
    asker: Asker,
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
    /// In the order of the result; empty until the spawn has ended.
    tids: Vec<i32>,
    living: usize,
    /// Who asked before that.
    waiting: Vec<(Tid, u32)>,
}

/// Spawns under way, and what is remembered of those that have ended.
#[derive(Default)]
pub(super) struct Spawns {
    last: u32,
    pending: BTreeMap<u32, Pending>,
    groups: BTreeMap<u32, Group>,
    /// Which host gets the first task of the next spawn.
    rotation: usize,
}

impl Spawns {
    pub fn pending(&self) -> usize {
        self.pending.len()
    }
    #[cfg(test)]
    pub fn is_idle(&self) -> bool {
        self.pending.is_empty() && self.groups.is_empty()
    }
    /// A task of that group has ended.
    pub fn forget(&mut self, group: Option<u32>) {
        let Some(id) = group else { return };
        let Some(group) = self.groups.get_mut(&id) else { return };
        group.living -= 1;
        if group.living == 0 {
            self.groups.remove(&id);
        }
    }
    /// The task does not wait any more.
    pub fn withdraw(&mut self, tid: Tid) {
        self.groups.values_mut().for_each(|group| group.waiting.retain(|(asker, _)| *asker != tid));
    }
}

/// How many of `count` tasks each of `hosts` hosts gets, beginning with host `start`: contiguous
/// blocks, the first ones larger.
fn blocks(count: usize, hosts: usize, start: usize) -> Vec<usize> {
    let mut blocks = vec![0; hosts];
    for step in 0..hosts {
        blocks[(start + step) % hosts] = count / hosts + usize::from(step < count % hosts);
    }
    blocks
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
        let (first, total) = (0, request.count);
        self.spawn_part(asker, request, first, total);
    }

    /// Starts a part of what one call to `pvm_spawn` wants.
    pub(super) fn spawn_part(&mut self, asker: Asker, request: Spawn, first: i32, total: i32) {
        let refusal = match request.count {
            _ if self.control.halting() => Some(Code::SysErr),
            count if count < 1 => Some(Code::BadParam),
            count if count as u32 > LOCAL_MASK => Some(Code::OutOfRes),
            _ => None,
        };
        if let Some(code) = refusal {
            return self.answer_spawn(asker, Err(code));
        }
        let (place, directory) = split_place(request.flags, &request.place);
        let directory = directory.map(|directory| ByteBuf::from(directory.to_vec()));
        let hosts = self.candidates(request.flags, place, directory.is_some());
        if hosts.is_empty() {
            let codes = vec![Code::NoHost.number(); request.count as usize];
            return self.answer_spawn(asker, Ok(codes));
        }
        self.spawns.rotation += 1;
        let blocks = blocks(request.count as usize, hosts.len(), self.spawns.rotation % hosts.len());
        // The own host is the only one.
        let (wanted, debug) = (blocks[0], request.flags & TASK_DEBUG != 0);
        self.spawns.last = self.spawns.last.wrapping_add(1);
        let (spawn, file) = (self.spawns.last, request.file.clone());
        let pending = Pending {
            asker,
            request,
            directory: directory.clone(),
            found: None,
            first,
            total,
            wanted,
            tried: 0,
            started: Vec::new(),
            results: Vec::new(),
        };
        self.spawns.pending.insert(spawn, pending);
        self.spawns.groups.insert(spawn, Group { living: 1, ..Group::default() });
        self.actions.push_back(Action::Find { spawn, file, directory, debug });
    }

    /// The hosts on which a task may be started.
    fn candidates(&self, flags: i32, place: &[u8], has_directory: bool) -> Vec<Tid> {
        let any = place.is_empty() && has_directory;
        let chosen = |tid: Tid| match flags & (TASK_HOST | TASK_ARCH) {
            0 => true,
            _ if any => true,
            TASK_ARCH => self.hosts.is_arch(tid, place),
            _ => self.hosts.is_named(tid, place),
        };
        let complement = flags & HOST_COMPL != 0;
        self.hosts.tids().filter(|tid| chosen(*tid) != complement).collect()
    }

    /// Whether a program was found for a spawn.
    pub fn handle_found(&mut self, spawn: u32, result: Result<Found, Code>) {
        let Some(pending) = self.spawns.pending.get_mut(&spawn) else { return };
        match result {
            Ok(found) => pending.found = Some(found),
            Err(code) => pending.fail_rest(code),
        }
        self.start_next(spawn);
    }

    /// Starts the next task of a spawn, or ends the spawn.
    fn start_next(&mut self, spawn: u32) {
        loop {
            let Some(pending) = self.spawns.pending.get_mut(&spawn) else { return };
            if pending.tried == pending.wanted {
                return self.end_spawn(spawn);
            }
            if self.tasks.count() >= self.settings.tasks_max {
                pending.fail_rest(Code::OutOfRes);
                continue;
            }
            let instance = pending.first + pending.tried as i32;
            pending.tried += 1;
            let origin = self.servers.tasker.map_or(Origin::Spawned, Origin::Tasker);
            let Some((tid, start)) = self.prepare(spawn, origin) else {
                let pending = self.spawns.pending.get_mut(&spawn).expect("looked up above");
                pending.results.push(Code::OutOfRes.number());
                pending.fail_rest(Code::OutOfRes);
                continue;
            };
            match origin {
                Origin::Tasker(tasker) => {
                    let pending = &self.spawns.pending[&spawn];
                    let (flags, here, total) = (pending.request.flags, pending.wanted as i32, pending.total);
                    self.ask_tasker(tasker, &start, flags, instance, here, total);
                    self.started(spawn, tid, Ok(0));
                }
                Origin::Own | Origin::Spawned => return self.actions.push_back(Action::Start(start)),
            }
        }
    }

    /// Makes the place for a task and says how it is to be started.
    fn prepare(&mut self, spawn: u32, origin: Origin) -> Option<(Tid, Start)> {
        let pending = self.spawns.pending.get(&spawn)?;
        let request = &pending.request;
        let parent = match pending.asker {
            _ if request.flags & NO_SPAWN_PARENT != 0 => Code::ParentNotSet.number(),
            Asker::Task { tid, .. } => tid.0 as i32,
            Asker::Manager { parent, .. } => parent,
            Asker::Daemon => Code::ParentNotSet.number(),
        };
        let found = pending.found.clone()?;
        let mut arguments: Vec<ByteBuf> = found.debugger.iter().cloned().collect();
        arguments.push(found.path.clone());
        arguments.extend(request.arguments.iter().cloned());
        let path = found.debugger.unwrap_or(found.path);
        let (environment, directory) = (pending.environment(), pending.directory.clone());
        let mut own = request.children.clone();
        self.traces.settle(&mut own);
        let mut task = Task::new(origin, parent, request.file.to_vec(), own);
        task.group = Some(spawn);
        let (tid, cookie) = self.expect_task(task)?;
        self.spawns.groups.get_mut(&spawn)?.living += 1;
        Some((tid, Start { tid, cookie, path, arguments, environment, directory }))
    }

    /// Whether a process could be started; its process id.
    pub fn handle_started(&mut self, tid: Tid, result: Result<i32, Code>) {
        let Some(spawn) = self.tasks.get(tid).and_then(|task| task.group) else { return };
        self.started(spawn, tid, result);
        self.start_next(spawn);
    }

    fn started(&mut self, spawn: u32, tid: Tid, result: Result<i32, Code>) {
        let (Some(pending), Some(task)) = (self.spawns.pending.get_mut(&spawn), self.tasks.get_mut(tid)) else {
            return;
        };
        match result {
            Ok(process) => {
                (task.process, task.started) = (process, process);
                pending.started.push(tid);
                let (flags, wanted) = (pending.request.flags, pending.request.children.clone());
                self.trace_start(tid, flags, &wanted);
                self.announce_output(tid);
            }
            Err(code) => {
                pending.results.push(code.number());
                pending.fail_rest(code);
                self.spawns.forget(Some(spawn));
                self.discard(tid);
            }
        }
    }

    fn end_spawn(&mut self, spawn: u32) {
        let Some(pending) = self.spawns.pending.remove(&spawn) else { return };
        // Good tids first, then codes.
        let mut results: Vec<i32> = pending.started.iter().map(|tid| tid.0 as i32).collect();
        let tids = results.clone();
        results.extend(pending.results);
        if let Some(group) = self.spawns.groups.get_mut(&spawn) {
            group.tids = tids.clone();
            let waiting = std::mem::take(&mut group.waiting);
            for (asker, wait) in waiting {
                self.reply(asker, wait, Ok(Reply::Tids(tids.clone())));
            }
        }
        self.spawns.forget(Some(spawn));
        self.answer_spawn(pending.asker, Ok(results));
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

    pub(super) fn siblings(&mut self, from: Tid, wait: u32) {
        let group = self.tasks.get(from).and_then(|task| task.group);
        match group.and_then(|group| self.spawns.groups.get_mut(&group)) {
            Some(group) if group.tids.is_empty() => group.waiting.push((from, wait)),
            Some(group) => {
                let tids = group.tids.clone();
                self.reply(from, wait, Ok(Reply::Tids(tids)));
            }
            None => self.reply(from, wait, Ok(Reply::Tids(vec![from.0 as i32]))),
        }
    }
}

impl Pending {
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
    fn tasks_are_dealt_in_blocks_from_a_rotating_start() {
        assert_eq!(blocks(5, 2, 0), [3, 2]);
        assert_eq!(blocks(5, 2, 1), [2, 3]);
        assert_eq!(blocks(2, 3, 2), [1, 0, 1]);
        assert_eq!(blocks(7, 1, 0), [7]);
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
