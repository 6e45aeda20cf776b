//! The life of the tasks of this host: enrollment, introductions, goodbye, end, and the requests that wait for the end
//! of a task.
use super::action::{Action, Connection};
use super::core::{Core, SubMachine};
use super::event::Event;
use super::index::PairIndex;
use super::task_table::{Origin, State, Task};
use crate::codes::{Code, SM_TASKX, TASK_CONNECTED, TASK_FORKED};
use crate::encoding::Writer;
use crate::proto::{self, ByteBuf, Hello, Reply, TaskEnd, TaskInfo, ToTask, TraceSettings, Welcome};
use crate::tid::Tid;
use crate::wire::Frame;
use std::collections::BTreeMap;

/// Requests that wait for the end of a task of this host.
#[derive(Default)]
pub(super) struct Tasks {
    /// By the task whose end is awaited: each task that asked, and the wait id of its request.
    exit_waiters: BTreeMap<Tid, Vec<(Tid, u32)>>,
    /// By the task that asked: the tasks whose end it awaits.
    awaited: PairIndex<Tid, Tid>,
}

impl SubMachine for Tasks {
    fn name(&self) -> &'static str {
        "exit statuses"
    }
    fn is_idle(&self) -> bool {
        self.exit_waiters.is_empty() && self.awaited.is_empty()
    }
    fn on_event(&mut self, core: &mut Core, event: &Event) {
        match event {
            Event::TaskLeft { tid, peers, .. } => {
                self.stop_waiting(*tid);
                peers.iter().for_each(|peer| core.send(*peer, ToTask::PeerGone(*tid)));
            }
            Event::TaskGone { tid, task } => {
                if let Some((asker, wait)) = task.input_of {
                    core.reply(asker, wait, Err(Code::NoTask));
                }
                self.answer_exit_status(core, *tid);
                core.push(Action::Forget { tid: *tid });
            }
            Event::HostGone(host) => {
                for (asker, of) in self.awaited.take_host(*host) {
                    self.remove_waiter(asker, of);
                }
            }
            Event::TaskerGone(tasker) => {
                let lost = |task: &Task| task.origin == Origin::Tasker(*tasker) && task.state != State::Connected;
                let lost: Vec<Tid> = core.tasks.iter().filter(|(_, task)| lost(task)).map(|(tid, _)| tid).collect();
                lost.into_iter().for_each(|tid| end(core, tid));
            }
            _ => {}
        }
    }
}

/// Adds a task that is about to be started. The task claims its entry by the returned cookie.
pub(super) fn expect(core: &mut Core, task: Task) -> Option<(Tid, u32)> {
    let (tid, cookie) = core.tasks.add_expected(task)?;
    core.tell_company();
    core.push(Action::Born { tid });
    Some((tid, cookie))
}

/// Enrolls a task, or refuses it.
pub(super) fn enroll(core: &mut Core, connection: Connection, process: i32, hello: &Hello) {
    let refusal = match hello.version {
        proto::VERSION if core.halting => Some(Code::SysErr),
        proto::VERSION => None,
        _ => Some(Code::BadVersion),
    };
    if let Some(code) = refusal {
        return core.push(Action::Refuse { connection, code });
    }
    let claimed = hello.cookie.and_then(|cookie| core.tasks.claim(cookie));
    let Some(tid) = claimed.or_else(|| add_own_task(core, hello)) else {
        return core.push(Action::Refuse { connection, code: Code::OutOfRes });
    };
    let manager = core.roles.manager.unwrap_or(Tid::NONE);
    let task = core.tasks.get_mut(tid).expect("found or made just now");
    task.state = State::Connected;
    // The process id comes from the socket: an id stated by the task could be that of another process.
    task.process = process.max(0);
    task.manager = manager;
    task.kind = hello.kind;
    let welcome = Welcome {
        tid,
        parent: task.parent,
        dsig: core.settings.host.dsig,
        own: task.trace_settings.clone(),
        resource_manager: manager,
        fabric: core.settings.fabric.clone(),
        order: core.settings.order,
    };
    // Before the task can act, the others know that they are not alone any more.
    core.tell_company();
    core.push(Action::Welcome { connection, tid, welcome });
    core.raise(Event::TaskEnrolled { tid, arrived: claimed.is_none() });
}

/// Adds a task that no daemon has started.
fn add_own_task(core: &mut Core, hello: &Hello) -> Option<Tid> {
    let mut settings = TraceSettings::default();
    core.roles.settle(&mut settings);
    let tid = core.tasks.add(Task::new(Origin::Arrived, 0, hello.name.to_vec(), settings))?;
    core.push(Action::Born { tid });
    Some(tid)
}

/// Introduces a task to a peer, unless this has been done.
pub(super) fn connect(core: &mut Core, from: Tid, to: Tid) -> Result<Reply, Code> {
    let daemon = to == core.own_host();
    if !daemon && !core.tasks.takes_frames(to) {
        return Err(Code::NoTask);
    }
    let task = core.tasks.get_mut(from).ok_or(Code::SysErr)?;
    if task.peers.insert(to) {
        if !daemon {
            core.tasks.get_mut(to).expect("takes frames").peers.insert(from);
        }
        core.push(Action::Introduce { one: from, other: to });
    }
    Ok(Reply::Done)
}

/// Forgets a failed introduction, so that it may be tried again.
pub(super) fn not_introduced(core: &mut Core, one: Tid, other: Tid) {
    for (tid, peer) in [(one, other), (other, one)] {
        if let Some(task) = core.tasks.get_mut(tid) {
            task.peers.remove(&peer);
        }
    }
}

/// Handles a task that has lost its connection, or announces its end.
pub(super) fn leave(core: &mut Core, tid: Tid) {
    let tasker = core.roles.tasker;
    let Some(task) = core.tasks.get_mut(tid).filter(|task| task.state == State::Connected) else { return };
    let stays = match task.origin {
        Origin::Arrived => false,
        Origin::Spawned => task.started != 0,
        Origin::Tasker(of) => tasker == Some(of),
    };
    let known_to_master = task.known_to_master;
    tell_master_left(core, tid, known_to_master, false);
    detach(core, tid);
    if !stays {
        end(core, tid);
    }
}

/// Drops the state that only a connected task has.
fn detach(core: &mut Core, tid: Tid) {
    let Some(task) = core.tasks.get_mut(tid).filter(|task| task.state != State::Left) else { return };
    task.state = State::Left;
    let (spawn, peers) = (task.spawn, std::mem::take(&mut task.peers));
    let peers: Vec<Tid> = peers.into_iter().filter(|peer| *peer != tid).collect();
    for peer in &peers {
        if let Some(other) = core.tasks.get_mut(*peer) {
            other.peers.remove(&tid);
        }
    }
    core.requests.forget(tid);
    core.tell_company();
    core.raise(Event::TaskLeft { tid, spawn, peers });
}

/// Removes a task that has ended.
fn end(core: &mut Core, tid: Tid) {
    detach(core, tid);
    let Some(task) = core.tasks.remove(tid) else { return };
    tell_master_left(core, tid, task.known_to_master, true);
    core.raise(Event::TaskGone { tid, task: Box::new(task) });
}

/// Informs the master that a task has left PVM or has ended, if the master keeps state for this task.
fn tell_master_left(core: &mut Core, tid: Tid, known_to_master: bool, ended: bool) {
    if known_to_master && !core.is_master() {
        core.send_master(Frame::Left { tid, ended });
    }
}

/// Removes a task that could not be started. No collector has heard of it; but tasks may have seen it in a list of tasks,
/// and wait for its end.
pub(super) fn discard(core: &mut Core, tid: Tid) {
    if let Some(task) = core.tasks.get_mut(tid) {
        (task.output_ended, task.trace_settings) = (true, TraceSettings::default());
        end(core, tid);
    }
}

/// Answers `pvm_pstat`.
pub(super) fn status(core: &Core, tid: Tid) -> Result<Reply, Code> {
    match (tid.is_task(), core.tasks.exists(tid)) {
        (false, _) => Err(Code::BadParam),
        (true, true) => Ok(Reply::Code(0)),
        (true, false) => Ok(Reply::Code(Code::NoTask.number())),
    }
}

/// Answers a request to list the tasks of this host, or one of them.
pub(super) fn list(core: &Core, place: Tid) -> Result<Reply, Code> {
    match place.host() == core.own_host() {
        true => Ok(Reply::Tasks(infos(core, place))),
        false => Err(Code::NoHost),
    }
}

/// Returns what `pvm_tasks` reports of the tasks of this host, or of one of them.
pub(super) fn infos(core: &Core, place: Tid) -> Vec<TaskInfo> {
    let list = core.tasks.iter().filter(|(tid, _)| place.is_host() || place == *tid);
    list.map(|(tid, task)| info(core, tid, task)).collect()
}

/// Returns what `pvm_tasks` reports of a task.
pub(super) fn info(core: &Core, tid: Tid, task: &Task) -> TaskInfo {
    let forked = if task.origin == Origin::Arrived { 0 } else { TASK_FORKED };
    let connected = if task.state == State::Connected { TASK_CONNECTED } else { 0 };
    TaskInfo {
        tid,
        parent: task.parent,
        host: tid.host(),
        flags: forked | connected | core.roles.flags(tid),
        name: ByteBuf::from(task.name.clone()),
        pid: task.process,
        output: (task.trace_settings.output_tid, task.trace_settings.output_ctx, task.trace_settings.output_tag),
    }
}

/// Writes data to the standard input of a task.
pub(super) fn input(core: &mut Core, from: Tid, wait: u32, tid: Tid, data: ByteBuf) {
    let lost = tid.host() != core.own_host();
    let Some(task) = core.tasks.get_mut(tid).filter(|task| task.has_input) else {
        return core.reply(from, wait, Err(if lost { Code::HostFail } else { Code::NoTask }));
    };
    if data.len() > proto::INPUT_BYTES_MAX {
        return core.reply(from, wait, Err(Code::BadParam));
    }
    if task.input_of.is_some() {
        return core.reply(from, wait, Err(Code::Already));
    }
    task.has_input = !data.is_empty();
    task.input_of = Some((from, wait));
    core.push(Action::Input { tid, data });
}

/// Answers a request to write to the standard input of a task: the data are written, or the input is closed.
pub(super) fn input_taken(core: &mut Core, tid: Tid, taken: bool) {
    let Some(task) = core.tasks.get_mut(tid) else { return };
    task.has_input &= taken;
    if let Some((asker, wait)) = task.input_of.take() {
        core.reply(asker, wait, if taken { Ok(Reply::Done) } else { Err(Code::NoTask) });
    }
}

/// Records the process id of a task; 0 if it is unknown.
pub(super) fn process_changed(core: &mut Core, tid: Tid, process: i32) {
    if let Some(task) = core.tasks.get_mut(tid).filter(|task| task.state == State::Connected) {
        task.process = process;
    }
}

impl Tasks {
    /// Handles the end of a process that this daemon or a tasker started.
    pub fn process_ended(&mut self, core: &mut Core, tid: Tid, end_of_process: TaskEnd) {
        let Some(task) = core.tasks.get_mut(tid) else { return };
        let another = task.state == State::Connected && task.process != task.started;
        task.started = 0;
        if another {
            // The started process has ended, but another process is the task now. No tasker will report the end of this
            // other process, so this daemon must notice it.
            task.origin = Origin::Spawned;
        }
        core.tasks.remember(tid, end_of_process);
        if let Some(manager) = core.roles.manager {
            let TaskEnd { status, usage } = end_of_process;
            let body = Writer::new().int(tid.0 as i32).int(status);
            // Seconds and microseconds of the program, then of the system.
            let parts = [usage.user_us, usage.system_us].map(|time| [time / 1_000_000, time % 1_000_000]);
            let body = parts.into_iter().flatten().fold(body, |body, part| body.int(part as i32));
            core.tell(manager, 0, SM_TASKX, 0, body.finish());
        }
        // A script that started the task may end before the task.
        match another {
            true => self.answer_exit_status(core, tid),
            false => end(core, tid),
        }
    }

    /// Answers how a task has ended, as soon as the task has ended.
    pub fn exit_status(&mut self, core: &mut Core, from: Tid, wait: u32, tid: Tid) {
        if let Some(end) = core.tasks.end_of(tid) {
            return core.reply(from, wait, Ok(Reply::Ended(end)));
        }
        match core.tasks.get(tid) {
            _ if tid.host() != core.own_host() => core.reply(from, wait, Err(Code::HostFail)),
            Some(task) if task.origin != Origin::Arrived => {
                self.awaited.insert(from, tid);
                self.exit_waiters.entry(tid).or_default().push((from, wait));
            }
            _ => core.reply(from, wait, Err(Code::NoTask)),
        }
    }

    /// Answers all requests that wait for the end of a task.
    fn answer_exit_status(&mut self, core: &mut Core, tid: Tid) {
        for (asker, wait) in self.take_waiting(tid) {
            self.exit_status(core, asker, wait, tid);
        }
    }

    /// Drops all requests of a task to be told when other tasks end.
    fn stop_waiting(&mut self, asker: Tid) {
        for of in self.awaited.take(asker) {
            self.remove_waiter(asker, of);
        }
    }
    /// Drops the requests of one task (`asker`) to be told when another (`of`) ends.
    fn remove_waiter(&mut self, asker: Tid, of: Tid) {
        let Some(waiting) = self.exit_waiters.get_mut(&of) else { return };
        waiting.retain(|(other, _)| *other != asker);
        if waiting.is_empty() {
            self.exit_waiters.remove(&of);
        }
    }
    /// Removes the requests that wait for the end of a task, and returns them.
    fn take_waiting(&mut self, of: Tid) -> Vec<(Tid, u32)> {
        let waiting = self.exit_waiters.remove(&of).unwrap_or_default();
        waiting.iter().for_each(|(asker, _)| _ = self.awaited.remove(*asker, of));
        waiting
    }
}
