//! The life of the tasks of this host: enrolment, introductions, goodbye, death, and who waits for it.
use super::action::{Action, Connection};
use super::core::{Core, SubMachine};
use super::event::Event;
use super::index::Index;
use super::task_table::{Origin, State, Task};
use crate::codes::{Code, SM_TASKX, TASK_CONNECTED, TASK_FORKED};
use crate::encoding::Writer;
use crate::proto::{self, ByteBuf, Hello, Reply, TaskInfo, ToTask, TraceSettings, Welcome};
use crate::tid::Tid;
use crate::wire::Frame;
use std::collections::BTreeMap;

/// Who waits for the ends of tasks of this host.
#[derive(Default)]
pub(super) struct Tasks {
    /// By the task that is to end: task and number of the request.
    waiting: BTreeMap<Tid, Vec<(Tid, u32)>>,
    /// The tasks for whose end each one waits.
    waiters: Index<Tid, Tid>,
}

impl SubMachine for Tasks {
    fn name(&self) -> &'static str {
        "exit statuses"
    }
    fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.waiters.is_empty()
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
                for (asker, of) in self.waiters.take_host(*host) {
                    self.waits_not_for(asker, of);
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

/// Makes a place for a task that is about to be started. It claims the place by the cookie, which is returned.
pub(super) fn expect(core: &mut Core, task: Task) -> Option<(Tid, u32)> {
    let (tid, cookie) = core.tasks.add_expected(task)?;
    core.push(Action::Born { tid });
    Some((tid, cookie))
}

/// Takes a task in, or refuses it.
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
    // A number that the task says itself may be another process's here.
    task.process = process.max(0);
    task.manager = manager;
    let welcome = Welcome {
        tid,
        parent: task.parent,
        dsig: core.settings.host.dsig,
        own: task.own.clone(),
        resource_manager: manager,
    };
    core.push(Action::Welcome { connection, tid, welcome });
    core.raise(Event::TaskEnrolled { tid, arrived: claimed.is_none() });
}

fn add_own_task(core: &mut Core, hello: &Hello) -> Option<Tid> {
    let mut own = TraceSettings::default();
    core.roles.settle(&mut own);
    let tid = core.tasks.add(Task::new(Origin::Own, 0, hello.name.to_vec(), own))?;
    core.push(Action::Born { tid });
    Some(tid)
}

/// Introduces a task to a peer, once.
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

/// Two tasks could not be introduced: it may be tried again.
pub(super) fn not_introduced(core: &mut Core, one: Tid, other: Tid) {
    for (tid, peer) in [(one, other), (other, one)] {
        if let Some(task) = core.tasks.get_mut(tid) {
            task.peers.remove(&peer);
        }
    }
}

/// The task has no connection any more, or says that it is about to have none.
pub(super) fn leave(core: &mut Core, tid: Tid) {
    let tasker = core.roles.tasker;
    let Some(task) = core.tasks.get_mut(tid).filter(|task| task.state == State::Connected) else { return };
    let stays = match task.origin {
        Origin::Own => false,
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

/// Drops what only a connected task has.
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
    core.raise(Event::TaskLeft { tid, spawn, peers });
}

/// The task is no more.
fn end(core: &mut Core, tid: Tid) {
    detach(core, tid);
    let Some(task) = core.tasks.remove(tid) else { return };
    tell_master_left(core, tid, task.known_to_master, true);
    core.raise(Event::TaskGone { tid, task: Box::new(task) });
}

/// Tells the master that a task for which it keeps something has left, or ended.
fn tell_master_left(core: &mut Core, tid: Tid, known_to_master: bool, ended: bool) {
    if known_to_master && !core.is_master() {
        core.send_master(Frame::Left { tid, ended });
    }
}

/// Takes the place of a task away that never came to be: no notify, no output.
pub(super) fn discard(core: &mut Core, tid: Tid) {
    detach(core, tid);
    if core.tasks.remove(tid).is_some() {
        core.push(Action::Forget { tid });
    }
}

pub(super) fn status(core: &Core, tid: Tid) -> Result<Reply, Code> {
    match (tid.is_task(), core.tasks.exists(tid)) {
        (false, _) => Err(Code::BadParam),
        (true, true) => Ok(Reply::Code(0)),
        (true, false) => Ok(Reply::Code(Code::NoTask.number())),
    }
}

/// Lists the tasks of this host, or that one of it.
pub(super) fn list(core: &Core, place: Tid) -> Result<Reply, Code> {
    match place.host() == core.own_host() {
        true => Ok(Reply::Tasks(infos(core, place))),
        false => Err(Code::NoHost),
    }
}

/// What `pvm_tasks` says of the tasks of this host, or of that one of it.
pub(super) fn infos(core: &Core, place: Tid) -> Vec<TaskInfo> {
    let list = core.tasks.iter().filter(|(tid, _)| place.is_host() || place == *tid);
    list.map(|(tid, task)| info(core, tid, task)).collect()
}

fn info(core: &Core, tid: Tid, task: &Task) -> TaskInfo {
    let forked = if task.origin == Origin::Own { 0 } else { TASK_FORKED };
    let connected = if task.state == State::Connected { TASK_CONNECTED } else { 0 };
    TaskInfo {
        tid,
        parent: task.parent,
        host: tid.host(),
        flags: forked | connected | core.roles.flags(tid),
        name: ByteBuf::from(task.name.clone()),
        pid: task.process,
        output: (task.own.output_tid, task.own.output_ctx, task.own.output_tag),
    }
}

/// Something for the standard input of a task.
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

/// The standard input of the task has taken all of [`Action::Input`], or takes no more.
pub(super) fn input_taken(core: &mut Core, tid: Tid, taken: bool) {
    let Some(task) = core.tasks.get_mut(tid) else { return };
    task.has_input &= taken;
    if let Some((asker, wait)) = task.input_of.take() {
        core.reply(asker, wait, if taken { Ok(Reply::Done) } else { Err(Code::NoTask) });
    }
}

/// The task is that process from now on; 0 for one that is not known.
pub(super) fn process_changed(core: &mut Core, tid: Tid, process: i32) {
    if let Some(task) = core.tasks.get_mut(tid).filter(|task| task.state == State::Connected) {
        task.process = process;
    }
}

impl Tasks {
    /// A process that this daemon or a tasker started has ended, with that wait status.
    pub fn process_ended(&mut self, core: &mut Core, tid: Tid, status: i32) {
        let Some(task) = core.tasks.get_mut(tid) else { return };
        let another = task.state == State::Connected && task.process != task.started;
        task.started = 0;
        if another {
            // Whoever started it has said what there is to say of it: the rest is seen here.
            task.origin = Origin::Spawned;
        }
        core.tasks.remember(tid, status);
        if let Some(manager) = core.roles.manager {
            let body = Writer::new().int(tid.0 as i32).int(status).int(0).int(0).int(0).int(0);
            core.tell(manager, 0, SM_TASKX, 0, body.finish());
        }
        // A script whose program is the task may end before it.
        match another {
            true => self.answer_exit_status(core, tid),
            false => end(core, tid),
        }
    }

    /// Answers how a task has ended, as soon as it has.
    pub fn exit_status(&mut self, core: &mut Core, from: Tid, wait: u32, tid: Tid) {
        if let Some(status) = core.tasks.ended_with(tid) {
            return core.reply(from, wait, Ok(Reply::Int(status)));
        }
        match core.tasks.get(tid) {
            _ if tid.host() != core.own_host() => core.reply(from, wait, Err(Code::HostFail)),
            Some(task) if task.origin != Origin::Own => {
                self.waiters.insert(from, tid);
                self.waiting.entry(tid).or_default().push((from, wait));
            }
            _ => core.reply(from, wait, Err(Code::NoTask)),
        }
    }

    fn answer_exit_status(&mut self, core: &mut Core, tid: Tid) {
        for (asker, wait) in self.take_waiting(tid) {
            self.exit_status(core, asker, wait, tid);
        }
    }

    /// The task waits no more.
    fn stop_waiting(&mut self, asker: Tid) {
        for of in self.waiters.take(asker) {
            self.waits_not_for(asker, of);
        }
    }
    fn waits_not_for(&mut self, asker: Tid, of: Tid) {
        let Some(waiting) = self.waiting.get_mut(&of) else { return };
        waiting.retain(|(other, _)| *other != asker);
        if waiting.is_empty() {
            self.waiting.remove(&of);
        }
    }
    /// Returns who waits for how that task ends; they do not any more.
    fn take_waiting(&mut self, of: Tid) -> Vec<(Tid, u32)> {
        let waiting = self.waiting.remove(&of).unwrap_or_default();
        waiting.iter().for_each(|(asker, _)| _ = self.waiters.remove(*asker, of));
        waiting
    }
}
