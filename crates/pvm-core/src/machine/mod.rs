//! The rules of the virtual machine, as the daemon of one host applies them.
//!
//! A pure state machine: the daemon reports what happened (`handle_*`), takes the resulting actions
//! ([`Machine::poll_action`]), and calls [`Machine::handle_time`] at [`Machine::next_wakeup`].
//!
//! The machine consists of sub-machines over a shared core; each sub-machine has private state. If something concerns
//! several sub-machines, it is an event, and is delivered to all of them. The modules, lowest first; each imports only
//! from modules that are listed before it (`cargo xtask lint` reads this list):
//!
//! * `request_kinds`, `group_page`, `action`, `limits`, `index`, `attempts`, `council`: types
//! * `fences`: the order of frames on control links
//! * `task_table`, `settings`, `host_table`, `roles`, `link_quality`, `links`, `pending_acks`, `open_requests`: tables
//! * `event`, `core`, `outbox`: events, all tables together, and the functions that send
//! * `tasks`, `looks`: enrollment, introductions, death, exit statuses; what tasks do
//! * `traces`, `output`, `notify`, `mailbox`, `contexts`, `direct`, `groups`: PVM's functions of these names
//! * `fabrics`: introductions of tasks on a fabric
//! * `membership`: hosts join and leave; links between hosts
//! * `spawn`: placement, start of processes, results, siblings
//! * `control`: signals, `pvm_tickle`, halt
//! * `remote`: requests that another host decides
//! * `servers`: hoster, tasker, resource manager, tracer
//! * `deputy`: the host that keeps what only the master knows
//! * `parts`: the sub-machines together
//! * `succession`, `handover`: another host becomes the master, because the master is lost, or wants it
//! * `requests`, `frames`: dispatch of requests and of frames from other daemons
//! * this file: the interface to the daemon

mod action;
mod attempts;
mod contexts;
mod control;
mod core;
mod council;
mod deputy;
mod direct;
mod event;
mod fabrics;
mod fences;
mod frames;
mod group_page;
mod groups;
mod handover;
mod host_table;
mod index;
pub mod limits;
mod link_quality;
mod links;
mod looks;
mod mailbox;
mod membership;
mod notify;
mod open_requests;
mod outbox;
mod output;
mod parts;
mod pending_acks;
mod remote;
mod request_kinds;
mod requests;
mod roles;
mod servers;
mod settings;
mod spawn;
mod succession;
mod task_table;
mod tasks;
mod traces;

#[cfg(test)]
mod tests;

pub use action::{Action, Company, Connection, DirectTicket, Found, HostStart, Sight, SpawnId, Start};
pub use group_page::{Barrier, GroupAction, Listing};
pub use limits::Limits;
pub use links::{CallFailure, LinkBreak};
pub use membership::{KNOWN_AS, WELCOME_WAIT};
pub use settings::{
    BARRIER_BROADCAST_HOSTS, BARRIER_PATIENCE, HALT_GRACE, HOST_TIMEOUT, HostSettings, OneWay, Rank, Settings,
};
pub use spawn::{BESIDE_VARIABLE, BIND_VARIABLE, InputOf, RunPlan};
pub use task_table::TASKS_MAX;

use self::core::Core;
use self::output::RemoteOutput;
use self::parts::Parts;
use self::spawn::Observers;
use crate::codes::Code;
use crate::datagram_error::DatagramError;
use crate::host_look::HostLook;
use crate::hostfile::HostLine;
use crate::master_state::MasterState;
use crate::proto::{ByteBuf, Hello, Host, Message, Reply, TaskEnd, ToDaemon};
use crate::tid::Tid;
use crate::time::Time;
use crate::wire::{
    DataCall, DirectCall, Frame, ResolvedHost, StartFailure, StartNews, StartOrder, Started, Taken, Waiting,
};
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// The state of the virtual machine as one daemon knows it.
pub struct Machine {
    core: Core,
    parts: Parts,
}

impl Machine {
    /// Returns the machine of a master without other hosts and tasks, or of a slave that waits for its master.
    pub fn new(settings: Settings) -> Machine {
        let core = Core::new(settings);
        let parts = Parts::new(&core);
        Machine { core, parts }
    }

    /// Delivers all pending events.
    fn settle(&mut self) {
        self.parts.settle(&mut self.core);
        self.parts.succeed_if_elected(&mut self.core);
        if self.core.is_master() {
            for (host, frame) in self.core.links.take_early() {
                self.dispatch(host, frame);
                self.parts.settle(&mut self.core);
            }
        }
        self.parts.prepare_hand_over(&mut self.core);
        self.parts.back_up(&mut self.core);
        self.parts.hand_over_if_ready(&mut self.core);
    }

    /// Advances the clock. If this daemon was suspended, restarts the timers that limit how long other hosts may be silent.
    fn advance_time(&mut self, now: Time) {
        if self.core.advance_time(now) {
            self.parts.membership.restart_timers(self.core.now);
        }
    }

    /// Lets something happen at that time.
    fn step(&mut self, now: Time, happens: impl FnOnce(&mut Parts, &mut Core)) {
        self.advance_time(now);
        happens(&mut self.parts, &mut self.core);
        self.settle();
    }

    // ----- queries of the daemon

    /// Takes the next action.
    pub fn poll_action(&mut self) -> Option<Action> {
        self.core.take_action()
    }

    /// Returns when [`Machine::handle_time`] must be called next, if at all.
    pub fn next_wakeup(&self) -> Option<Time> {
        let barriers = self.parts.groups.next_deadline().map(|(when, _)| when);
        let (membership, control) = (self.parts.membership.next_wakeup(&self.core), self.parts.control.next_wakeup());
        let (directs, spawns) = (self.parts.directs.next_wakeup(), self.parts.spawns.next_wakeup());
        let wakeups = [membership, control, barriers, directs, spawns, self.parts.deputies.next_wakeup()];
        wakeups.into_iter().flatten().min()
    }

    /// Returns the tid of this host.
    pub fn own_host(&self) -> Tid {
        self.core.own_host()
    }
    /// Returns the tid of the master's daemon.
    pub fn master(&self) -> Tid {
        self.core.hosts.master()
    }
    /// Returns whether this host is the master.
    pub fn is_master(&self) -> bool {
        self.core.is_master()
    }
    /// At the master: returns the host to which it is to move.
    pub fn next_master(&self) -> Option<Tid> {
        self.parts.membership.moving.next_master(&self.core)
    }
    /// At the master: returns what the next master has to know.
    pub fn master_state(&self) -> Vec<MasterState> {
        self.parts.master_state(&self.core)
    }
    /// Returns the hosts of the machine, as `pvm_config` reports them.
    pub fn host_list(&self) -> Vec<Host> {
        self.core.hosts.list(self.core.deputy)
    }
    /// Returns whether that host is in the table, possibly still joining.
    pub fn has_host(&self, tid: Tid) -> bool {
        self.core.hosts.is_here(tid)
    }
    /// Returns whether the network is trusted.
    pub fn trusts_network(&self) -> bool {
        self.core.settings.trusted
    }
    /// Returns the number of a host in the physical network, if the hostfile tells it (`node=`).
    pub fn node_number(&self, host: Tid) -> Option<u32> {
        self.core.hosts.record(host)?.entry.node
    }
    /// Returns the process id of a connected task.
    pub fn process_of(&self, task: Tid) -> Option<i32> {
        self.core.tasks.get(task).filter(|_| self.core.tasks.is_connected(task)).map(|task| task.process)
    }
    /// Returns whether messages reach the task, now or once it has enrolled.
    pub fn takes_messages(&self, task: Tid) -> bool {
        self.core.tasks.takes_frames(task)
    }
    /// Returns the collector of a task's output, unless the output goes to the log.
    pub fn collector_of(&self, tid: Tid) -> Option<Tid> {
        output::collector_of(&self.core, tid)
    }
    /// Returns how many bytes of output are in flight to a collector on another host.
    pub fn output_in_flight(&self, collector: Tid) -> u64 {
        self.parts.output.remote_output.in_flight(collector)
    }
    /// Returns how many bytes of output may be in flight to one collector. This limit depends on the number of hosts.
    pub fn output_in_flight_max(&self) -> u64 {
        RemoteOutput::in_flight_max(&self.core)
    }
    /// Returns whether output from other hosts waits here for that collector.
    pub fn has_untaken_output(&self, collector: Tid) -> bool {
        self.parts.output.remote_output.has_untaken(collector)
    }
    /// Returns the debug mask, as set at the start or by `pvm_tickle`.
    pub fn debug_mask(&self) -> i32 {
        self.core.debug_mask
    }

    /// Returns the names of the tables that still hold state of tasks, besides persistent mailbox entries; none if no task lives.
    pub fn leftovers(&self) -> Vec<&'static str> {
        let core = &self.core;
        let tables = [
            ("tasks", core.tasks.is_idle()),
            ("roles", core.roles.is_idle()),
            ("clients", core.clients.is_empty()),
            ("answers", core.requests.is_idle()),
        ];
        let tables = tables.into_iter().filter(|(_, idle)| !idle).map(|(name, _)| name);
        tables.chain(self.parts.busy()).collect()
    }

    // ----- commands of the daemon

    /// Sets the addresses at which other daemons can call this one. Hosts that are in the machine do not learn of it.
    pub fn set_addresses(&mut self, addresses: Vec<SocketAddr>) {
        self.core.hosts.set_own_addresses(addresses);
    }

    /// Sets the debug mask (`pvmd -d`).
    pub fn set_debug_mask(&mut self, mask: i32) {
        self.core.debug_mask = mask;
    }

    /// Adds the hosts of the hostfile that are to be started together with the master.
    pub fn add_hosts_at_start(&mut self, lines: Vec<HostLine>) {
        self.parts.membership.joining.add_hosts_at_start(&mut self.core, lines);
        self.settle();
    }

    /// Starts a helper of the daemon (`PVM_TASKER` and so on), given as program and arguments.
    pub fn start_helper(&mut self, words: &[&str]) {
        self.parts.spawns.start_helper(&mut self.core, words);
        self.settle();
    }

    /// Opens the link to a host if there is none, because messages are queued for that host.
    pub fn want_link(&mut self, now: Time, host: Tid) {
        self.step(now, |_, core| core.want_link(host));
    }

    /// At the master, halts the machine; on another host, halts that host. [`Action::Stop`] follows at the end.
    pub fn halt(&mut self, now: Time) {
        self.step(now, |parts, core| parts.halt(core, None));
    }

    /// Lets this host leave the machine; a master hands over first. The only host halts. [`Action::Stop`] follows at the end.
    pub fn leave(&mut self, now: Time) {
        self.step(now, |parts, core| parts.leave_machine(core));
    }

    /// At the master: orders another host to run or end a command that starts a daemon.
    pub fn order_start(&mut self, host: Tid, number: u64, order: StartOrder) {
        self.core.send_host(host, Frame::StartOrder { number, order });
    }

    /// Reports to the master the output or the end of a command that the master ordered here.
    pub fn report_start(&mut self, number: u64, news: StartNews) {
        self.core.send_master(Frame::StartNews { number, news });
    }

    // ----- inputs: time and tasks

    /// Handles the timers that have expired by `now`.
    pub fn handle_time(&mut self, now: Time) {
        self.advance_time(now);
        self.parts.membership.on_time(&mut self.core);
        self.parts.deputies.on_time(&mut self.core);
        self.settle();
        self.parts.control.on_time(&mut self.core);
        self.parts.groups.on_time(&mut self.core);
        self.parts.directs.on_time(&mut self.core);
        self.parts.spawns.on_time(&mut self.core);
        self.settle();
    }

    /// Handles the first frame of a process: enrolls it.
    pub fn handle_hello(&mut self, connection: Connection, process: i32, hello: &Hello) {
        tasks::enroll(&mut self.core, connection, process, hello);
        self.settle();
    }

    /// Handles a frame of a task.
    pub fn handle_frame(&mut self, now: Time, from: Tid, frame: ToDaemon) {
        self.advance_time(now);
        if !self.core.tasks.is_connected(from) {
            // The task has said goodbye or is gone.
            return;
        }
        match frame {
            // A second hello is ignored. `pvmd` handles the others, and does not pass them to these rules.
            ToDaemon::Hello(_)
            | ToDaemon::TakeOver
            | ToDaemon::Overflow
            | ToDaemon::NoFabric(_)
            | ToDaemon::Idle(_) => {}
            ToDaemon::Request { wait, request } => {
                if self.core.admit(from, wait) {
                    self.parts.handle_request(&mut self.core, from, wait, request);
                }
            }
            ToDaemon::Message(message) => self.parts.handle_message(&mut self.core, from, message),
            ToDaemon::Ring(tid) => self.core.push(Action::Ring { tid }),
            ToDaemon::CheckBarrier { group, size } => {
                self.parts.groups.check_barrier(&mut self.core, from, group, size)
            }
            ToDaemon::Bye => self.parts.leave(&mut self.core, from),
        }
        self.settle();
    }

    /// Handles a failed [`Action::Introduce`]: the introduction may be tried again.
    pub fn handle_not_introduced(&mut self, one: Tid, other: Tid) {
        tasks::not_introduced(&mut self.core, one, other);
    }

    /// Handles the end of a task's connection.
    pub fn handle_disconnect(&mut self, tid: Tid) {
        self.parts.leave(&mut self.core, tid);
        self.settle();
    }

    /// Records the process id of a task; 0 if it is unknown.
    pub fn handle_process_changed(&mut self, tid: Tid, process: i32) {
        tasks::process_changed(&mut self.core, tid, process);
    }

    /// Handles the end of a process that this daemon started. The daemon has already handed in
    /// all that the process had sent and printed.
    pub fn handle_process_end(&mut self, tid: Tid, end: TaskEnd) {
        self.parts.tasks.process_ended(&mut self.core, tid, end);
        self.settle();
    }

    /// Handles the result of [`Action::Input`]: all data are written, or, if not `taken`, the standard input is closed.
    pub fn handle_input_taken(&mut self, tid: Tid, taken: bool) {
        tasks::input_taken(&mut self.core, tid, taken);
    }

    /// Handles bytes that a task wrote to its standard output.
    pub fn handle_output(&mut self, tid: Tid, data: &[u8]) {
        self.parts.output.printed_output(&mut self.core, tid, data);
    }

    /// Handles bytes that a task of `pvm run` wrote to its standard error.
    pub fn handle_errors(&mut self, tid: Tid, data: &[u8]) {
        self.parts.output.printed_errors(&mut self.core, tid, data);
    }

    /// Handles the news that a task has closed its standard output and standard error, and goes on.
    pub fn handle_output_closed(&mut self, tid: Tid) {
        self.parts.output.closed(&mut self.core, tid);
    }

    /// Handles the report that a collector has read all, or nearly all, output that was sent to it.
    pub fn handle_output_taken(&mut self, collector: Tid) {
        self.parts.output.remote_output.taken(&mut self.core, collector);
    }

    /// Sends messages that the daemon made for one action, like the records of [`Action::Trace`], before all later actions: a
    /// collector receives the news of a task's end before the end of its output.
    pub fn handle_messages_made(&mut self, messages: impl IntoIterator<Item = Message>) {
        let later = std::mem::take(&mut self.core.actions);
        messages.into_iter().for_each(|message| self.core.send_message(message));
        let made = std::mem::replace(&mut self.core.actions, later);
        self.core.do_next(made);
    }

    /// Answers [`Action::TellTime`] with the time of day.
    pub fn handle_time_of_day(&mut self, to: Tid, wait: u32, reply: Reply) {
        self.core.reply(to, wait, Ok(reply));
    }

    /// Answers [`Action::Look`] with what the daemon has seen of its host, without the tasks, and of each task.
    pub fn handle_seen(&mut self, to: Tid, wait: u32, host: HostLook, sights: &BTreeMap<Tid, Sight>) {
        looks::seen(&mut self.core, to, wait, host, sights);
    }

    /// Handles the result of [`Action::Find`].
    pub fn handle_found(&mut self, now: Time, spawn: SpawnId, result: Result<Found, Code>) {
        self.advance_time(now);
        let observers = &mut Observers { traces: &mut self.parts.traces, output: &mut self.parts.output };
        self.parts.spawns.found(&mut self.core, observers, spawn, result);
        self.settle();
    }

    /// Handles the result for one process of [`Action::Start`]: its process id or the failure.
    pub fn handle_started(&mut self, now: Time, tid: Tid, result: Result<i32, Code>) {
        self.advance_time(now);
        let observers = &mut Observers { traces: &mut self.parts.traces, output: &mut self.parts.output };
        self.parts.spawns.process_started(&mut self.core, observers, tid, result);
        self.settle();
    }

    /// Handles the result of [`GroupAction::Make`].
    pub fn handle_group_made(&mut self, group: u64, made: bool) {
        self.parts.groups.page_made(&mut self.core, group, made);
        self.settle();
    }

    /// Handles the state of a barrier that the daemon has read ([`GroupAction::Look`]).
    pub fn handle_barrier(&mut self, now: Time, group: u64, barrier: Barrier) {
        self.parts.groups.barrier_seen(&mut self.core, now, group, barrier);
    }

    /// Handles the success of [`GroupAction::Fail`].
    pub fn handle_barrier_failed(&mut self, group: u64) {
        self.parts.groups.barrier_failed(group);
    }

    /// Handles the refusal of [`GroupAction::Fail`]: a member has arrived since the barrier was read. The barrier is
    /// examined again after a pause; otherwise a misbehaving member could keep the daemon busy.
    pub fn handle_barrier_changed(&mut self, now: Time, group: u64) {
        self.parts.groups.barrier_changed(now, group);
    }

    /// Handles the arrivals that were taken out of this host's barrier page ([`GroupAction::Take`]).
    pub fn handle_barrier_taken(&mut self, group: u64, taken: Taken) {
        let core = &mut self.core;
        self.parts.groups.with(group, |group, shared| group.page_taken(core, shared, taken));
        self.settle();
    }

    /// Handles the bytes of [`Action::Broadcast`]. Anybody on the network may have sent it, at any time and any number of times.
    pub fn handle_broadcast(&mut self, now: Time, bytes: &[u8]) -> Result<(), DatagramError> {
        self.advance_time(now);
        let result = self.parts.groups.datagram_received(&mut self.core, bytes);
        self.settle();
        result
    }

    /// Handles the result of [`Action::ListBarriers`], by group number.
    pub fn handle_barriers_listed(&mut self, listing: Listing, waiting: BTreeMap<u64, Waiting>) {
        self.parts.groups.listed_here(&mut self.core, listing, waiting);
        self.settle();
    }

    /// Handles the results of [`Action::CheckHosts`], in the order of the names.
    pub fn handle_hosts_checked(&mut self, request: u32, checked: Vec<Result<ResolvedHost, Code>>) {
        self.parts.membership.joining.hosts_checked(&mut self.core, request, checked);
        self.settle();
    }

    /// Handles the result of starting the daemon of one host.
    pub fn handle_host_started(
        &mut self,
        now: Time,
        request: u32,
        index: usize,
        result: Result<Started, StartFailure>,
    ) {
        self.step(now, |parts, core| parts.membership.joining.host_started(core, request, index, result));
    }

    /// Handles the commands with which the hoster is to start daemons: for each host, its index and the command.
    pub fn handle_start_commands(&mut self, request: u32, commands: Vec<(usize, ByteBuf)>) {
        self.parts.servers.start_commands(&mut self.core, &mut self.parts.membership, request, commands);
        self.settle();
    }

    /// Handles the news that both links to the host (control and data) are up.
    pub fn handle_link_up(&mut self, now: Time, host: Tid) {
        self.step(now, |parts, core| parts.membership.link_up(core, host));
    }

    /// Handles the news that the connection of the control link has broken. Its session goes on.
    pub fn handle_link_broken(&mut self, now: Time, host: Tid, how: LinkBreak) {
        self.step(now, |parts, core| parts.membership.link_broken(core, host, how));
    }

    /// Handles the news that the control link has a new connection, whichever host has called.
    pub fn handle_link_resumed(&mut self, now: Time, host: Tid) {
        self.step(now, |parts, core| parts.membership.link_resumed(core, host));
    }

    /// Handles the news that a call for a new connection has failed ([`Action::ReopenLink`]).
    pub fn handle_call_failed(&mut self, now: Time, host: Tid, why: CallFailure) {
        self.step(now, |parts, core| parts.membership.call_failed(core, host, why));
    }

    /// Handles the news that a link to the host could not be opened, or that its session has ended.
    pub fn handle_link_down(&mut self, now: Time, host: Tid) {
        self.advance_time(now);
        self.core.links.set_down(host, self.core.now);
        while self.handle_unfenced() {}
        self.parts.membership.link_lost(&mut self.core, host, "the link is lost");
        self.settle();
    }

    /// Records that bytes arrived on the control link, even if they are not a whole frame.
    pub fn handle_heard(&mut self, now: Time, host: Tid) {
        self.advance_time(now);
        self.core.links.heard(host, now);
    }

    /// Handles the result of [`Action::CountRetransmissions`]: their number since the connection began.
    pub fn handle_retransmissions(&mut self, host: Tid, total: u32) {
        if let Some(link) = self.core.links.get_mut(host) {
            link.quality.retransmissions(total);
        }
    }

    /// Handles the news that the data link to the host is up again.
    pub fn handle_data_up(&mut self, now: Time, host: Tid) {
        self.advance_time(now);
        self.parts.membership.data_links.up(&self.core, host);
    }

    /// Handles the news that the data link to the host has ended or could not be reopened; the control link is up.
    pub fn handle_data_down(&mut self, now: Time, host: Tid) {
        self.advance_time(now);
        self.parts.membership.data_links.down(&mut self.core, host);
    }

    /// Handles the result of [`Action::ExpectData`]: the tokens with which the other host connects, or `None` if this
    /// daemon could not prepare for that.
    pub fn handle_data_expected(&mut self, now: Time, host: Tid, call: Option<DataCall>) {
        self.advance_time(now);
        self.parts.membership.data_links.expected(&mut self.core, host, call);
    }

    /// Handles the result of [`Action::ExpectDirect`]: the secrets with which the other host connects, or `None` if
    /// this daemon cannot hold more links or the two tasks have a link already.
    pub fn handle_direct_expected(&mut self, ticket: DirectTicket, call: Option<DirectCall>) {
        self.parts.directs.expected(&mut self.core, ticket, call);
    }

    /// Handles the result of setting up a direct link: the task has the link (`done`), or will not get it.
    pub fn handle_direct_ended(&mut self, ticket: DirectTicket, done: bool) {
        self.parts.directs.link_ended(&mut self.core, ticket, done);
    }

    /// Handles a frame of another daemon, received on its control link. It may wait for what that host has sent in flows
    /// ([`Machine::handle_unfenced`]).
    pub fn handle_host_frame(&mut self, now: Time, from: Tid, frame: Frame) {
        self.handle_heard(now, from);
        match self.core.links.take_frame(from, now, frame) {
            Some(frame) => self.dispatch_in_turn(from, frame),
            None => self.core.expire_fences(from),
        }
        self.settle();
    }

    /// Handles a frame of another daemon, received in a flow. It does not show that the control link still carries anything.
    pub fn handle_frame_in_flow(&mut self, now: Time, from: Tid, frame: Frame) {
        self.advance_time(now);
        match frame {
            Frame::Fence => self.core.links.pass_fence(from),
            frame => self.dispatch(from, frame),
        }
        self.settle();
    }

    /// Handles one frame that does not wait for messages any more. Returns `false` if there is none. To be called when all
    /// actions were executed.
    pub fn handle_unfenced(&mut self) -> bool {
        let Some((from, frame)) = self.core.links.next_unfenced(self.core.now) else { return false };
        self.dispatch_in_turn(from, frame);
        self.settle();
        true
    }

    /// Dispatches a frame of a control link, unless it is for the master that this host is to be.
    fn dispatch_in_turn(&mut self, from: Tid, frame: Frame) {
        let frame = if self.core.is_master() { Some(frame) } else { self.core.links.keep_early(from, frame) };
        frame.into_iter().for_each(|frame| self.dispatch(from, frame));
    }

    fn dispatch(&mut self, from: Tid, frame: Frame) {
        // Frames from removed hosts are ignored.
        if self.core.hosts.is_known(from) {
            self.parts.dispatch_frame(&mut self.core, from, frame);
        }
    }
}
