//! The rules of the virtual machine as the daemon of one host applies them.
//!
//! A pure state machine: the daemon hands in what happened (`handle_*`), takes out what is to be
//! done ([`Machine::poll_action`]), and wakes it when it wants ([`Machine::next_wakeup`]). One
//! file a conversation:
//!
//! * `tasks`: who lives here, enrolment, introductions, death;
//! * `spawn`: placement, start of processes, results, siblings;
//! * `hosts`, `joining`, `table`: the host table, adding and deleting hosts, changes spread to all;
//! * `starts`: daemons that hosts start for the master;
//! * `links`: the links to other daemons, heartbeats, loss;
//! * `debts`: hosts that hold up others;
//! * `signs`, `suspicions`: what the master sees of its links, and who is to blame for one that cannot be had;
//! * `remote`: what other hosts are asked, and all frames between daemons;
//! * `direct`: links between two tasks of different hosts;
//! * `notify`, `output`, `mailbox`, `contexts`: as the functions of those names;
//! * `groups`, `groups_kept`: who is in which group, and what each host keeps of it;
//! * `groups_barrier`, `groups_far`: barriers from which members have gone, and over several hosts;
//! * `group_server`: what old programs ask the group server;
//! * `traces`: events that the daemon tells of, and where new tasks trace to;
//! * `servers`, `hoster`: hoster, tasker, resource manager, tracer;
//! * `control`: signals, tickle, reset, halt;
//! * `limits`: how much of all that there can be.

mod contexts;
mod control;
mod data_links;
#[cfg(test)]
mod data_links_tests;
mod debts;
mod direct;
#[cfg(test)]
mod direct_tests;
#[cfg(test)]
mod fleet_random_tests;
#[cfg(test)]
mod fleet_tests;
mod group_server;
mod groups;
mod groups_barrier;
mod groups_far;
#[cfg(test)]
mod groups_far_tests;
mod groups_kept;
#[cfg(test)]
mod groups_tests;
mod hoster;
#[cfg(test)]
mod hostile_tests;
mod hosts;
#[cfg(test)]
mod hosts_tests;
mod index;
mod inspect;
mod joining;
pub mod limits;
#[cfg(test)]
mod limits_tests;
mod links;
mod mailbox;
mod notify;
mod output;
mod output_far;
#[cfg(test)]
mod random_tests;
mod remote;
mod servers;
#[cfg(test)]
mod servers_tests;
mod signs;
mod spawn;
mod starts;
mod suspicions;
mod table;
mod tasks;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod trace_tests;
mod traces;

pub use direct::DirectTicket;
pub use group_server::{Listing, Waiting};
pub use groups::GroupAction;
pub use groups_barrier::Barrier;
pub use groups_far::Taken;
pub use hosts::HostSettings;
pub use joining::{KNOWN_AS, WELCOME_WAIT};
pub use limits::Limits;
pub use spawn::{BESIDE_VARIABLE, Found, SpawnId};
pub use tasks::TASKS_MAX;

use crate::codes::Code;
use crate::hostfile::{HostLine, Hostfile};
use crate::proto::{ByteBuf, Hello, Message, Reply, Request, RunSettings, ToDaemon, ToTask, Welcome};
use crate::tid::{DAEMON_BIT, Tid};
use crate::trace::Record;
use crate::wire::{DataCall, DirectCall, Frame, HostOptions, KEY_BYTES, Key, MachineSettings, StartNews, StartOrder};
use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// How long tasks may take to end at a halt before they are killed.
pub const HALT_GRACE: Duration = Duration::from_secs(2);
/// How long a barrier waits for others in the place of members that had gone before it began.
/// Programs that start a substitute may take long.
pub const BARRIER_PATIENCE: Duration = Duration::from_secs(30);
/// How long a host may be silent before it is taken for dead.
pub const HOST_TIMEOUT: Duration = Duration::from_secs(10);

/// A moment, counted from any fixed one.
pub type Time = Duration;

/// Names a connection before it is a task.
pub type Connection = u64;

/// What the daemon has to do. Actions are to be done in order.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs)] // each variant's sentence names its fields
pub enum Action {
    /// The connection is that task from now on; send it its welcome.
    Welcome { connection: Connection, tid: Tid, welcome: Welcome },
    /// Tell the connection why it may not come in, and close it.
    Refuse { connection: Connection, code: Code },
    /// Send a frame to a task, or keep it until the task has enrolled.
    Send { to: Tid, frame: ToTask },
    /// Give each of the two tasks the other's segment and doorbell, or say that it could not be done
    /// ([`Machine::handle_not_introduced`]). Both can be the same.
    Introduce { one: Tid, other: Tid },
    /// Ring a task's doorbell.
    Ring { tid: Tid },
    /// Look for a program; answer by [`Machine::handle_found`].
    /// `beside` are directories, with colons between them, in which to look after all others.
    Find { spawn: SpawnId, file: ByteBuf, directory: Option<ByteBuf>, beside: Option<ByteBuf>, debug: bool },
    /// Start a process; answer by [`Machine::handle_started`].
    Start(Start),
    /// Send a signal to a task's process.
    Signal { tid: Tid, process: i32, signal: i32 },
    /// Send a signal to the process group of a task, or what is left of it; that process is its own.
    SignalGroup { tid: Tid, process: i32, signal: i32 },
    /// Hand this to the standard input of the task, or close that if there is nothing; answer by
    /// [`Machine::handle_input_taken`].
    Input { tid: Tid, data: ByteBuf },
    /// The task's number is in use from now on.
    Born { tid: Tid },
    /// The task is gone: close what belongs to it.
    Forget { tid: Tid },
    /// Append output of a task to the log.
    Log { tid: Tid, line: Vec<u8> },
    /// Tell a collector of an event, stamped with the time of day, by
    /// [`Machine::handle_messages_made`]. `describe`: for the first time.
    /// `introduce`: tell it before what data there are.
    Trace { to: Tid, ctx: i32, tag: i32, record: Record, describe: bool, introduce: bool },
    /// Tell the time of day, by [`Machine::handle_time_told`].
    TellTime { to: Tid, wait: u32 },
    /// Something about the memory of a group.
    Group { group: u64, action: GroupAction },
    /// Tell who waits in the barriers of the groups; by [`Machine::handle_barriers_listed`].
    ListBarriers { listing: Listing },
    /// Find out whether these hosts can be reached; answer by [`Machine::handle_hosts_checked`].
    CheckHosts { request: u32, names: Vec<ByteBuf> },
    /// Have daemons started on these hosts, within the limit of each; answer each by
    /// [`Machine::handle_host_started`]. With `by_hoster` only say by which commands, by
    /// [`Machine::handle_start_commands`]; the hoster starts them.
    StartHosts { request: u32, hosts: Vec<HostStart>, by_hoster: bool },
    /// A hoster had that host started, and this is what its daemon printed; answer by
    /// [`Machine::handle_host_started`].
    ReadAnswer { request: u32, index: usize, line: Vec<u8> },
    /// The master orders something of a command that starts a daemon elsewhere; report by
    /// [`Machine::report_start`].
    OrderStart { number: u64, order: StartOrder },
    /// A host has news of a command that it was given by [`Machine::order_start`].
    StartNews { host: Tid, number: u64, news: StartNews },
    /// The daemon of that host may connect, if it has that key.
    KnowHost { host: Tid, key: Key },
    /// Connect to the daemon of a known host; answer by [`Machine::handle_link_up`] or
    /// [`Machine::handle_link_down`].
    OpenLink { host: Tid, addresses: Vec<SocketAddr> },
    /// The host does not belong to the machine any more: send what is queued on the control link,
    /// then close the links, drop its flows, do not know its key. No answer.
    ForgetHost { host: Tid },
    /// How often has the system sent something again on the control link, since that stands? Answer by
    /// [`Machine::handle_sent_again`].
    CountSentAgain { host: Tid },
    /// Send a frame on the control link.
    SendHost { host: Tid, frame: Frame },
    /// Send a frame along the flow to that task of another host, behind all that was sent to the
    /// task from here before. It comes out at [`Machine::handle_host_frame`] there.
    SendAlong { to: Tid, frame: Frame },
    /// Another host will call, for a link of that task to that peer: make up how, and await it;
    /// answer by [`Machine::handle_direct_expected`]. Once it has called hand the connection to the
    /// task, and tell by [`Machine::handle_direct_ended`] what came of it.
    ExpectDirect { ticket: DirectTicket, task: Tid, peer: Tid },
    /// Call another host, for a link of that task to that peer; hand the connection to the task, and
    /// tell by [`Machine::handle_direct_ended`] what came of it.
    CallDirect { ticket: DirectTicket, task: Tid, peer: Tid, addresses: Vec<SocketAddr>, call: DirectCall },
    /// Nobody wants that link any more.
    CancelDirect { ticket: DirectTicket },
    /// The data link to a host is to be made anew: make up how the host can call, and await it; answer by
    /// [`Machine::handle_data_expected`], and later by [`Machine::handle_data_up`] or
    /// [`Machine::handle_data_down`].
    ExpectData { host: Tid },
    /// Call a host for a new data link; answer by [`Machine::handle_data_up`] or [`Machine::handle_data_down`].
    CallData { host: Tid, addresses: Vec<SocketAddr>, call: DataCall },
    /// The data link to the host is of no use any more: close it, or let the attempt to make it be. What was on
    /// its way waits for the next one. No answer.
    DropData { host: Tid },
    /// This daemon has become a host of a machine.
    Joined { shared: MachineSettings, options: HostOptions },
    /// Everybody is gone: end.
    Stop,
}

/// A host to start a daemon on.
#[derive(Debug, Clone, PartialEq)]
pub struct HostStart {
    /// Which of the hosts of its request it is.
    pub index: usize,
    /// The host that it will be.
    pub tid: Tid,
    /// Its line, with the defaults of the hostfile.
    pub line: HostLine,
    /// What its name has led to.
    pub addresses: Vec<IpAddr>,
}

/// What a daemon is to its machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rank {
    /// The first one, which decides.
    Master,
    /// One that was started by the master.
    Slave {
        /// The own host.
        own: Tid,
        /// The master's.
        master: Tid,
    },
}

/// A process to start.
#[derive(Debug, Clone, PartialEq)]
pub struct Start {
    /// The task that it will be.
    pub tid: Tid,
    /// To pass on as `PVMEPID`.
    pub cookie: u32,
    /// The program, as found.
    pub path: ByteBuf,
    /// `argv[0]` and on.
    pub arguments: Vec<ByteBuf>,
    /// `NAME=value`, beside what the daemon itself sets.
    pub environment: Vec<ByteBuf>,
    /// Where it runs, if not in the daemon's own place for tasks.
    pub directory: Option<ByteBuf>,
    /// What `pvm run` wants of it.
    pub run: RunSettings,
    /// Its standard input is a pipe, for [`Action::Input`].
    pub input: bool,
}

/// What a daemon knows of its host and its limits.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The own host.
    pub host: HostSettings,
    /// How many tasks may live here.
    pub tasks_max: usize,
    /// What that comes from, and how to have more: told when it is reached.
    pub tasks_max_cause: String,
    /// How much else may be kept here.
    pub limits: Limits,
    /// How long a task may take to end at a halt before it is killed.
    pub halt_grace: Duration,
    /// How long a barrier waits for others in the place of members that had gone before it began.
    pub barrier_patience: Duration,
    /// Whether it is the master.
    pub rank: Rank,
    /// How long another host may be silent, as the master says (`HPVM_HOST_TIMEOUT`).
    pub host_timeout: Duration,
    /// Whether the network is trusted, as the master says (`PVM_TRUSTED_NET`).
    pub trusted: bool,
    /// Other names of the own host.
    pub aliases: Vec<String>,
    /// Where this daemon listens for others.
    pub addresses: Vec<SocketAddr>,
    /// Its key.
    pub key: Key,
    /// The master's hostfile.
    pub hostfile: Hostfile,
}

impl Settings {
    /// Those of the only host of a machine, with the usual limits.
    pub fn new(host: HostSettings) -> Settings {
        Settings {
            host,
            tasks_max: tasks::TASKS_MAX,
            tasks_max_cause: "to have more, set PVM_MAX_TASKS before pvmd is started".into(),
            limits: Limits::default(),
            halt_grace: HALT_GRACE,
            barrier_patience: BARRIER_PATIENCE,
            rank: Rank::Master,
            host_timeout: HOST_TIMEOUT,
            trusted: false,
            aliases: Vec::new(),
            addresses: Vec::new(),
            key: [0; KEY_BYTES],
            hostfile: Hostfile::default(),
        }
    }
}

/// The state of the machine as one daemon knows it.
pub struct Machine {
    settings: Settings,
    actions: VecDeque<Action>,
    /// The latest moment that was told.
    now: Time,
    hosts: hosts::Hosts,
    links: links::Links,
    joining: joining::Joining,
    remote: remote::Remote,
    debts: debts::Debts,
    tasks: tasks::Tasks,
    spawns: spawn::Spawns,
    directs: direct::Directs,
    notify: notify::Notify,
    mailboxes: mailbox::Mailboxes,
    contexts: contexts::Contexts,
    groups: groups::Groups,
    listings: group_server::Listings,
    servers: servers::Servers,
    traces: traces::Traces,
    far_output: output_far::FarOutput,
    /// Why the last hosts were lost, the last first; at the master.
    lost_hosts: VecDeque<String>,
    control: control::Control,
    waits: limits::Waits,
}

impl Machine {
    /// A machine of one host without tasks, or a slave that waits for its master.
    pub fn new(settings: Settings) -> Machine {
        let hosts = hosts::Hosts::new(&settings);
        let own = hosts.own();
        let mailbox_bytes = settings.limits.mailbox_bytes;
        Machine {
            tasks: tasks::Tasks::new(own),
            contexts: contexts::Contexts::new(own),
            spawns: spawn::Spawns::new(own),
            hosts,
            settings,
            actions: VecDeque::new(),
            now: Time::ZERO,
            links: links::Links::default(),
            joining: joining::Joining::default(),
            remote: remote::Remote::default(),
            debts: debts::Debts::default(),
            directs: direct::Directs::default(),
            notify: notify::Notify::default(),
            mailboxes: mailbox::Mailboxes::new(mailbox_bytes),
            groups: groups::Groups::default(),
            listings: group_server::Listings::default(),
            servers: servers::Servers::default(),
            traces: traces::Traces::default(),
            far_output: output_far::FarOutput::default(),
            lost_hosts: VecDeque::new(),
            control: control::Control::default(),
            waits: limits::Waits::default(),
        }
    }

    /// The next thing to do.
    pub fn poll_action(&mut self) -> Option<Action> {
        let action = self.actions.pop_front();
        if action.is_none() {
            // Begins again where memory is warm, instead of going round through all that it has.
            self.actions.clear();
        }
        action
    }

    /// When [`Machine::handle_time`] wants to be called, if ever.
    pub fn next_wakeup(&self) -> Option<Time> {
        let links = self.links.next_wakeup().into_iter().chain(self.waits_for_master());
        let looks = self.groups.next_look().map(|(when, _)| when);
        links.chain(self.control.next_wakeup()).chain(looks).chain(self.next_overdue()).chain(self.next_verdict()).min()
    }

    /// The tid of the own host.
    pub fn own_host(&self) -> Tid {
        self.hosts.own()
    }

    /// The tid of the master's daemon.
    pub fn master(&self) -> Tid {
        self.hosts.master()
    }

    /// A process says hello.
    pub fn handle_hello(&mut self, connection: Connection, process: i32, hello: &Hello) {
        self.enroll(connection, process, hello);
    }

    /// A frame of a task.
    pub fn handle_frame(&mut self, now: Time, from: Tid, frame: ToDaemon) {
        self.pass(now);
        if !self.tasks.is_connected(from) {
            // It has said goodbye, or is gone.
            return;
        }
        match frame {
            // A second greeting means nothing.
            // They are for the edge.
            ToDaemon::Hello(_) | ToDaemon::Heir => {}
            ToDaemon::Request { wait, request } => self.handle_request(now, from, wait, request),
            ToDaemon::Message(message) => self.handle_message(from, message),
            ToDaemon::Ring(tid) => self.actions.push_back(Action::Ring { tid }),
            ToDaemon::CheckBarrier { group, size } => self.check_barrier(from, group, size),
            ToDaemon::Bye => self.left(from),
        }
    }

    fn handle_request(&mut self, now: Time, from: Tid, wait: u32, request: Request) {
        if !self.may_wait(from, wait) {
            return;
        }
        let Some(request) = self.for_manager(from, wait, request) else { return };
        let Some(request) = self.for_other_host(from, wait, request) else { return };
        self.decide(now, from, wait, request);
    }

    /// A request that is decided here, of a task of this host or another.
    fn decide(&mut self, now: Time, from: Tid, wait: u32, request: Request) {
        let answer = match request {
            Request::Connect(tid) => self.connect(from, tid),
            Request::Direct(to) => return self.ask_direct(from, wait, to),
            Request::AllowDirect(allowed) => self.allow_direct(from, allowed),
            Request::Spawn(spawn) => return self.spawn(spawn::Asker::Task { tid: from, wait }, spawn),
            Request::Siblings => return self.siblings(from, wait),
            Request::Config => Ok(self.hosts.config()),
            Request::AddHosts(names) => return self.add_hosts(joining::Asker::Task { tid: from, wait }, names),
            Request::AwaitHosts => return self.await_hosts(from, wait),
            Request::DeleteHosts(names) => return self.delete_hosts(from, wait, &names),
            Request::HostStatus(name) => self.hosts.status(&name),
            Request::TaskStatus(tid) => self.task_status(tid),
            Request::Tasks(Tid::NONE) => return self.gather_tasks(from, wait),
            Request::Tasks(place) => self.list_tasks(place),
            Request::Signal { tid, signal } => self.signal(tid, signal),
            Request::SignalGroup { tid, signal } => self.signal_group(tid, signal),
            Request::Input { tid, data } => return self.input(from, wait, tid, data),
            Request::LostHosts => Ok(Reply::Failures(self.lost_hosts.iter().cloned().collect())),
            Request::Notify { what, ctx, tag, count, tids } => {
                self.ask_notify(notify::Target { task: from, ctx, tag }, what, count, &tids)
            }
            Request::NewContext => self.contexts.allocate(from),
            Request::FreeContext(ctx) => self.contexts.free(from, ctx),
            Request::PutInfo { name, flags, message } => self.put_info(from, name, flags, message),
            Request::RecvInfo { name, index, flags } => return self.receive_info(from, wait, name, index, flags),
            Request::DeleteInfo { name, index, flags } => self.mailboxes.delete(from, &name, index, flags),
            Request::MailboxInfo { pattern } => Ok(Reply::Mailboxes(self.mailboxes.list(&pattern))),
            Request::ResetInfo { name, index } => {
                self.mailboxes.reset(name.as_ref().map(|name| name.as_slice()), index);
                Ok(Reply::Done)
            }
            Request::Register { role, on } => self.register(from, role, on),
            Request::SetOwn(settings) => self.set_own(from, settings),
            Request::SetTracer(settings) => self.set_tracer(from, settings),
            Request::HostSync(tid) => return self.host_sync(from, wait, tid),
            Request::Tickle(arguments) => self.tickle(&arguments),
            Request::ExitStatus(tid) => return self.exit_status(from, wait, tid),
            Request::JoinGroup(name) => return self.join_group(from, wait, name),
            Request::LeaveGroup(name) => return self.leave_group(from, wait, &name),
            Request::Barrier { group, count } => return self.arrive(from, wait, group, count),
            Request::Group(name) => return self.look_up_group(from, wait, &name),
            Request::FreezeGroup { name, count } => return self.freeze_group(from, wait, &name, count),
            Request::Halt => {
                // A task of another host ends by the signal that comes there, not by an answer.
                let asker = (from.host() == self.own_host()).then_some((from, wait));
                return self.halt_for(now, asker);
            }
        };
        self.reply(from, wait, answer);
    }

    /// Time has passed.
    pub fn handle_time(&mut self, now: Time) {
        self.pass(now);
        self.look_for_master();
        self.look_at_links();
        self.collect_debts();
        self.settle_suspicions();
        self.check_halt(now);
        self.look_again(now);
    }

    /// Sends a frame to a task of this host.
    fn send(&mut self, to: Tid, frame: ToTask) {
        if self.tasks.takes_frames(to) {
            self.actions.push_back(Action::Send { to, frame });
        }
    }

    /// Sends a message to a task, wherever it is. Elsewhere "my daemon" would be another one.
    fn send_message(&mut self, mut message: Message) {
        let to = message.dst;
        if to.host() == self.own_host() {
            self.send(to, ToTask::Message(message));
        } else if to.is_task() && self.is_known(to.host()) {
            if message.src == Tid::DAEMON {
                message.src = Tid(DAEMON_BIT | self.own_host().0);
            }
            self.actions.push_back(Action::SendAlong { to, frame: Frame::Deliver(message) });
        }
    }

    /// Whether what is sent to the task may reach it: it is here, or its host belongs to the machine.
    fn may_take(&self, tid: Tid) -> bool {
        match tid.host() == self.own_host() {
            true => self.tasks.takes_frames(tid),
            false => tid.is_task() && self.is_known(tid.host()),
        }
    }

    /// Whether the task lives, as far as this host can know.
    fn may_live(&self, tid: Tid) -> bool {
        match tid.host() == self.own_host() {
            true => self.tasks.exists(tid),
            false => self.hosts.is_here(tid),
        }
    }

    /// Messages that the edge has made for the machine of one action, like the records of
    /// [`Action::Trace`]. They go before all that was decided after that action: who collects traces
    /// and output hears of a task's end before its output ends.
    pub fn handle_messages_made(&mut self, messages: impl IntoIterator<Item = Message>) {
        let mut later = std::mem::take(&mut self.actions);
        messages.into_iter().for_each(|message| self.send_message(message));
        self.actions.append(&mut later);
    }

    /// The time of day, as [`Action::TellTime`] has asked.
    pub fn handle_time_told(&mut self, to: Tid, wait: u32, reply: Reply) {
        self.reply(to, wait, Ok(reply));
    }

    /// Sends a message of the daemon's own.
    fn tell(&mut self, to: Tid, ctx: i32, tag: i32, wid: i32, body: Vec<u8>) {
        self.send_message(self.own_message(to, ctx, tag, wid, body));
    }

    fn own_message(&self, dst: Tid, ctx: i32, tag: i32, wid: i32, body: Vec<u8>) -> Message {
        Message { wid, ..Message::new(Tid::DAEMON, dst, ctx, tag, body) }
    }

    /// A message that a task sends by way of the daemon: to the daemon itself, or to a task. Who
    /// sent it, the socket says, not the message.
    fn handle_message(&mut self, from: Tid, mut message: Message) {
        message.src = from;
        if message.body.len() > limits::DAEMON_MESSAGE_BYTES_MAX {
            return self.log(format!(
                "{from}: a message of {} bytes to {} is too long",
                message.body.len(),
                message.dst
            ));
        }
        if message.dst.is_service() {
            self.ask_group_server(from, &message);
        } else if message.dst.0 & DAEMON_BIT != 0 {
            self.message_to_daemon(from, message);
        } else if self.answer_of_manager(from, &message) {
            // It has become a reply.
        } else {
            self.send_message(message);
        }
    }

    /// Without a host it is for this one's daemon.
    fn message_to_daemon(&mut self, from: Tid, message: Message) {
        let host = message.dst.host();
        match host == Tid::NONE || host == self.own_host() {
            true => self.handle_server_message(from, &message),
            false => self.send_host(host, Frame::Deliver(message)),
        }
    }
}
