//! The edge of a daemon: executes the actions that the daemon's rules request, and holds the daemon's tasks and their
//! processes.
use crate::event::Event;
use crate::ids::NodeId;
use crate::ids::TaskId;
use crate::network::Link;
use crate::node::NodeState;
use crate::program::{ProgramRole, Stage, Task};
use crate::queue::{MILLISECOND, Nanos, SECOND};
use crate::world::{Phase, World};
use pvm_core::codes::Code;
use pvm_core::host_look::HostLook;
use pvm_core::machine::{Action, Found, Start};
use pvm_core::proto::{ByteBuf, Hello, Reply, Request, TaskEnd, TaskKind, ToDaemon, ToTask, VERSION};
use pvm_core::tid::Tid;
use pvm_core::wire::{self, Frame};

impl World {
    /// Executes the actions that a daemon's rules request, until there are no more.
    pub fn run_node(&mut self, node: NodeId) {
        while self.nodes[node].state == NodeState::Running {
            match self.nodes[node].machine.poll_action() {
                Some(action) => self.act(node, action),
                None if self.nodes[node].machine.handle_unfenced() => {}
                None => break,
            }
        }
        if self.nodes[node].state == NodeState::Running {
            self.return_credit(node);
            self.send_grants(node);
            self.send_datagrams(node);
            self.plan_wake(node);
            self.master_may_move(node);
        }
    }

    fn act(&mut self, node: NodeId, action: Action) {
        match action {
            Action::Welcome { connection, tid, welcome } => {
                self.enrolled(node, connection as TaskId, tid, ToTask::Welcome(welcome));
            }
            Action::Refuse { connection, code } => {
                self.send_to_task(connection as TaskId, ToTask::Refused(code));
            }
            Action::Send { to, frame } => {
                self.send(node, to, frame);
                self.nodes[node].machine.handle_output_taken(to);
            }
            Action::Introduce { one, other } => {
                self.send(node, one, ToTask::Peer(other));
                if one != other && other.is_task() {
                    self.send(node, other, ToTask::Peer(one));
                }
            }
            Action::Ring { .. } | Action::Log { .. } => {}
            Action::Trace { to, ctx, tag, record, describe, .. } => {
                self.make_trace(node, (to, ctx, tag), &record, describe);
            }
            Action::Find { spawn, file, .. } => {
                let found = match file.as_slice() {
                    b"missing" => Err(Code::NoFile),
                    _ => Ok(Found { path: file, debugger: None }),
                };
                let late = self.short_time() + self.file_system_hangs();
                self.queue.push(self.now + late, Event::ProgramFound { node, spawn, found: Box::new(found) });
            }
            Action::Start(starts) => {
                starts.into_iter().for_each(|start| self.begin_process(node, start));
            }
            Action::Signal { tid, signal, .. } | Action::SignalGroup { tid, signal, .. } => {
                if let Some(task) = self.nodes[node].tasks.get(&tid).copied() {
                    let late = self.short_time();
                    self.queue.push(self.now + late, Event::Signal(task, signal));
                }
            }
            Action::Input { tid, .. } => self.nodes[node].machine.handle_input_taken(tid, true),
            Action::Born { .. } | Action::Company(_) => {}
            Action::Forget { tid } => {
                let task = self.nodes[node].tasks.remove(&tid);
                // The daemon ends a process that is being started.
                if let Some(task) = task.filter(|task| self.tasks[*task].stage == Stage::Starting) {
                    self.task_is_dead(task);
                }
                self.nodes[node].kept.remove(&tid);
                self.forget_held(node, tid);
                self.checks.order_forgets_task(tid);
                self.nodes[node].inbound.task_gone(tid);
            }
            Action::TellTime { to, wait } => {
                let (seconds, microseconds) = ((self.now / SECOND) as i64, (self.now % SECOND / 1000) as i32);
                let reply = Reply::Clock { seconds, microseconds };
                self.nodes[node].machine.handle_time_of_day(to, wait, reply);
            }
            Action::Look { to, wait, .. } => {
                self.nodes[node].machine.handle_seen(to, wait, HostLook::default(), &Default::default());
            }
            Action::Group { group, action } => self.act_on_group(node, group, &action),
            Action::ListBarriers { listing } => self.list_barriers(node, listing),
            other => self.act_between_hosts(node, other),
        }
    }

    fn act_between_hosts(&mut self, node: NodeId, action: Action) {
        match action {
            Action::CheckHosts { request, names } => {
                let late = self.prng.span(MILLISECOND, 30 * MILLISECOND);
                self.queue.push(self.now + late, Event::HostsChecked { node, request, names: names.into() });
            }
            Action::StartHosts { request, hosts, .. } => {
                hosts.into_iter().for_each(|host| self.start_host(node, request, host));
            }
            Action::KnowHost { host, key } => drop(self.nodes[node].known.insert(host, key)),
            Action::OpenLink { host, addresses } => self.open_link(node, host, &addresses),
            Action::ReopenLink { host, addresses } => self.reopen_link(node, host, &addresses),
            Action::ForgetHost { host } => self.forget_host(node, host),
            Action::CountRetransmissions { host } => {
                let link = self.nodes[node].links.get(&host).map(|link| &self.links[*link]);
                let since = |end: usize, link: &Link| {
                    link.retransmissions[end].until(self.now) - link.control.ends[end].sent_again_before
                };
                let count = link.map_or(0, |link| since(link.end_of(node), link));
                self.nodes[node].machine.handle_retransmissions(host, count);
            }
            Action::ExpectData { host } => self.expect_data(node, host),
            Action::CallData { host, call, .. } => self.call_data(node, host, &call),
            Action::DropData { host } => self.drop_data(node, host),
            Action::OrderLost { host } => {
                self.tried.fences_given_up += 1;
                self.checks.order_forgets(self.nodes[node].tid, host);
            }
            Action::SendHost { host, frame } => self.send_host(node, host, &frame),
            Action::Broadcast { bytes } => self.broadcast(node, &bytes),
            Action::HearBroadcasts { .. } | Action::Withdraw => {}
            Action::SendAlong { to, frame } => self.send_along(node, to, &frame),
            Action::Joined { .. } => {
                let (tid, now) = (self.nodes[node].tid, self.now);
                self.trace.line(now, tid, || "is welcome".into());
            }
            Action::MasterChanged => self.master_changed(node),
            Action::Stop => self.end_daemon(node, "stops", true),
            other => {
                let text = format!("an action that nobody asked for: {other:?}");
                self.checks.fail("requests", &text, &[self.nodes[node].tid]);
            }
        }
    }

    fn send_host(&mut self, node: NodeId, host: Tid, frame: &Frame) {
        let tid = self.nodes[node].tid;
        if *frame != Frame::Beat {
            self.trace.line(self.now, tid, || format!("-> {host} {frame:?}"));
        }
        if node == self.office.master {
            self.master_sends(node, frame);
        }
        let fence = || wire::encode(&Frame::Fence);
        if frame.is_ordered() && self.nodes[node].flows.fence(host, fence) {
            self.tried.fences += 1;
            self.send_control(node, host, fence());
            self.carry(node, host);
        }
        let bytes = wire::encode(frame);
        self.trace.bytes(&bytes);
        self.send_control(node, host, bytes);
    }

    fn send_along(&mut self, node: NodeId, to: Tid, frame: &Frame) {
        let tid = self.nodes[node].tid;
        self.trace.line(self.now, tid, || format!("~> {to} {frame:?}"));
        let bytes = wire::encode(frame);
        self.trace.bytes(&bytes);
        self.nodes[node].flows.send_in_band(to, bytes);
        self.carry(node, to.host());
    }

    // ----- Tasks

    /// Returns for how long a file system does not answer just now, mostly 0.
    fn file_system_hangs(&mut self) -> Nanos {
        let hangs = self.phase == Phase::Faults && self.file_systems.chance(5);
        let time = if hangs { self.file_systems.span(SECOND, 60 * SECOND) } else { 0 };
        self.file_systems_answer_at = self.file_systems_answer_at.max(self.now + time);
        time
    }

    /// Starts a process on a daemon's host.
    pub fn start_process(&mut self, node: NodeId, cookie: Option<u32>, role: ProgramRole) -> TaskId {
        self.nodes[node].last_process += 1;
        let process = self.nodes[node].last_process;
        let number = self.tasks.len();
        let prng = crate::prng::Prng::new(self.seed, 1000 + number as u64);
        let mut task = Task::new(node, process, cookie, role, prng);
        task.ignores_sigterm = role == ProgramRole::Worker && task.prng.chance(50);
        task.steps_left = self.steps;
        self.tasks.push(task);
        self.population += usize::from(role == ProgramRole::Worker);
        number
    }

    /// Begins to start the process of a task, to which messages may be sent already.
    fn begin_process(&mut self, node: NodeId, start: Start) {
        let (late, fails) = (self.short_time(), self.phase == Phase::Faults && self.prng.chance(10));
        let late = late + self.file_system_hangs();
        let task = self.start_process(node, Some(start.cookie), ProgramRole::Worker);
        self.tasks[task].tid = start.tid;
        self.nodes[node].tasks.insert(start.tid, task);
        self.by_tid.insert(start.tid, task);
        self.queue.push(self.now + late, Event::ProcessStarted { node, task, start: Box::new(start), fails });
    }

    /// Reports that a process was started for a spawn, or that the start failed.
    pub fn process_started(&mut self, node: NodeId, task: TaskId, start: &Start, fails: bool) {
        let now = self.time(node);
        if self.tasks[task].stage == Stage::Dead {
            return;
        }
        if fails || start.path.as_slice() == b"broken" {
            self.task_is_dead(task);
            return self.nodes[node].machine.handle_started(now, start.tid, Err(Code::OutOfRes));
        }
        let process = self.tasks[task].process;
        self.nodes[node].machine.handle_started(now, start.tid, Ok(process));
        match self.prng.below(100) {
            // The process ends before it sends anything.
            0 => self.end_process(task, 1),
            1 => self.queue.push(self.now + SECOND, Event::Hello(task)),
            _ => {
                let late = self.prng.span(200_000, 5 * MILLISECOND);
                self.queue.push(self.now + late, Event::Hello(task));
            }
        }
    }

    /// Lets a process send its `Hello`.
    pub fn hello(&mut self, node: NodeId, task: TaskId) {
        let one = &self.tasks[task];
        if one.stage != Stage::Starting {
            return;
        }
        let hello = Hello {
            version: VERSION,
            pid: one.process as u32,
            cookie: one.cookie,
            name: ByteBuf::new(),
            kind: TaskKind::Program,
        };
        let process = one.process;
        self.nodes[node].machine.handle_hello(task as u64, process, &hello);
    }

    fn enrolled(&mut self, node: NodeId, task: TaskId, tid: Tid, welcome: ToTask) {
        self.tasks[task].tid = tid;
        self.nodes[node].tasks.insert(tid, task);
        self.by_tid.insert(tid, task);
        if self.tasks[task].stage == Stage::Dead {
            // Its socket may have been closed before the daemon knew whose it was.
            self.queue.push(self.now, Event::SocketClosed(task));
        }
        self.send_to_task(task, welcome);
        for frame in self.nodes[node].kept.remove(&tid).unwrap_or_default() {
            self.send_to_task(task, frame);
        }
    }

    /// Sends a frame to a task of the daemon's host, or keeps the frame for a task that has not enrolled yet.
    fn send(&mut self, node: NodeId, to: Tid, frame: ToTask) {
        match self.nodes[node].tasks.get(&to).copied() {
            Some(task) if self.tasks[task].stage != Stage::Starting || self.is_welcomed(task) => {
                self.send_to_task(task, frame);
            }
            _ => self.nodes[node].kept.entry(to).or_default().push(frame),
        }
    }

    /// Returns whether the `Welcome` for a task is on its way.
    fn is_welcomed(&self, task: TaskId) -> bool {
        self.tasks[task].from_daemon.iter().any(|frame| matches!(frame, ToTask::Welcome(_)))
    }

    fn send_to_task(&mut self, task: TaskId, frame: ToTask) {
        let late = self.short_time();
        let one = &mut self.tasks[task];
        one.from_daemon.push_back(frame);
        one.last[1] = one.last[1].max(self.now + late);
        self.queue.push(one.last[1], Event::ToTask(task));
    }

    /// Writes a frame of a task to its socket.
    pub fn send_to_daemon(&mut self, task: TaskId, frame: ToDaemon) {
        let late = self.short_time();
        let one = &mut self.tasks[task];
        one.to_daemon.push_back(frame);
        one.last[0] = one.last[0].max(self.now + late);
        self.queue.push(one.last[0], Event::FromTask(task));
    }

    /// Lets the daemon read a frame of a task.
    pub fn read_from_task(&mut self, node: NodeId, task: TaskId) {
        let Some(frame) = self.tasks[task].to_daemon.pop_front() else { return };
        // The task may know of what others have sent.
        self.poll_queues(node, Some(task).filter(|_| frame == ToDaemon::Bye));
        let (tid, now) = (self.tasks[task].tid, self.time(node));
        let host = self.nodes[node].tid;
        self.trace.number(u64::from(tid.0));
        self.trace.line(self.now, host, || format!("{tid} asks {frame:?}"));
        if let ToDaemon::Request { request: Request::Notify { tag, tids, .. }, .. } = &frame {
            let known = |tid: &Tid| self.nodes[node].machine.has_host(*tid);
            self.checks.unknown_to_daemon(tid, *tag, tids.iter().copied().filter(|tid| !known(tid)));
        }
        self.nodes[node].machine.handle_frame(now, tid, frame);
    }

    /// Ends a process in whatever state it is.
    pub fn end_process(&mut self, task: TaskId, status: i32) {
        if self.tasks[task].stage == Stage::Dead {
            return;
        }
        let (tid, host) = (self.tasks[task].tid, self.nodes[self.tasks[task].node].tid);
        self.trace.line(self.now, host, || format!("{tid} ends with {status:#x}"));
        self.task_is_dead(task);
        let (one, other) = (self.short_time(), self.prng.span(0, 2 * MILLISECOND));
        let read: Nanos = self.tasks[task].last[0].max(self.now);
        self.queue.push(read + one, Event::SocketClosed(task));
        if self.tasks[task].cookie.is_some() {
            self.queue.push(read + other, Event::ProcessEnd(task, status));
        }
    }

    /// Notes that a process has ended.
    pub fn task_is_dead(&mut self, task: TaskId) {
        let one = &mut self.tasks[task];
        if std::mem::replace(&mut one.stage, Stage::Dead) != Stage::Dead {
            self.population -= usize::from(one.role == ProgramRole::Worker);
            self.checks.task_ended(one.tid);
        }
    }

    /// Lets the daemon notice that a task's socket has closed.
    pub fn socket_closed(&mut self, node: NodeId, task: TaskId) {
        self.poll_queues(node, Some(task));
        let tid = self.tasks[task].tid;
        if tid != Tid::NONE {
            self.nodes[node].machine.handle_disconnect(tid);
        }
    }

    /// Lets the daemon read what a process has sent, and then notice that the process has ended.
    pub fn process_ended(&mut self, node: NodeId, task: TaskId, status: i32) {
        self.poll_queues(node, Some(task));
        self.read_output(node, task);
        let tid = self.tasks[task].tid;
        self.nodes[node].machine.handle_process_end(tid, TaskEnd { status, ..TaskEnd::default() });
    }

    /// Sends a signal to a process. Signal 0 means that the process itself decides to end.
    pub fn signalled(&mut self, task: TaskId, signal: i32) {
        let one = &self.tasks[task];
        let spared = match one.role {
            ProgramRole::Operator => signal != 0,
            ProgramRole::Worker => signal == 15 && one.ignores_sigterm,
        };
        if one.stage == Stage::Dead || spared {
            return;
        }
        if signal == 0 && self.tasks[task].is_enrolled() {
            self.send_to_daemon(task, ToDaemon::Bye);
            self.tasks[task].stage = Stage::Left;
        }
        self.end_process(task, signal);
    }
}
