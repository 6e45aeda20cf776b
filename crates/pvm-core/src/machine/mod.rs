//! The rules of the virtual machine as the daemon of one host applies them.
//!
//! A pure state machine: the daemon hands in what happened (`handle_*`), takes out what is to be
//! done ([`Machine::poll_action`]), and wakes it when it wants ([`Machine::next_wakeup`]).
//!
//! It consists of sub-machines, each with a state of its own, over a core that all share. What happens in one and
//! concerns others is an event, which is delivered to all of them. From the ground up, nothing knows what stands
//! below it here:
//!
//! * `action`, `event`, `settings`, `limits`, `group_page`, `index`: types
//! * `host_table`, `task_table`, `roles`, `links`, `link_quality`, `pending_acks`, `open_requests`: tables
//! * `core`, `outbox`: the tables together, and what leaves the machine
//! * `tasks`: enrolment, introductions, death
//! * `traces`, `output`, `notify`, `mailbox`, `contexts`, `direct`, `groups`: as the functions of those names
//! * `membership`: hosts join and leave; their links
//! * `spawn`: placement, start of processes, results, siblings
//! * `remote`: requests that other hosts decide
//! * `servers`: hoster, tasker, resource manager, tracer
//! * `control`: signals, tickle, halt
//! * `parts`: the sub-machines together
//! * `requests`, `frames`: which of them decides or takes what
//! * this file: what the daemon hands in and takes out

mod action;
mod contexts;
mod control;
mod core;
mod direct;
mod event;
mod frames;
mod group_page;
mod groups;
mod host_table;
mod index;
pub mod limits;
mod link_quality;
mod links;
mod mailbox;
mod membership;
mod notify;
mod open_requests;
mod outbox;
mod output;
mod parts;
mod pending_acks;
mod remote;
mod requests;
mod roles;
mod servers;
mod settings;
mod spawn;
mod task_table;
mod tasks;
mod traces;

#[cfg(test)]
mod tests;

pub use action::{Action, Connection, DirectTicket, Found, HostStart, SpawnId, Start};
pub use group_page::{Barrier, GroupAction, Listing, Taken, Waiting};
pub use limits::Limits;
pub use membership::{KNOWN_AS, WELCOME_WAIT};
pub use settings::{BARRIER_PATIENCE, HALT_GRACE, HOST_TIMEOUT, HostSettings, Rank, Settings, Time};
pub use spawn::BESIDE_VARIABLE;
pub use task_table::TASKS_MAX;

use self::core::Core;
use self::output::CrossHost;
use self::parts::Parts;
use self::spawn::Observers;
use crate::codes::Code;
use crate::hostfile::HostLine;
use crate::proto::{ByteBuf, Hello, Host, Message, Reply, ToDaemon};
use crate::tid::Tid;
use crate::wire::{Checked, DataCall, DirectCall, Frame, StartFailure, StartNews, StartOrder, Started};
use std::collections::BTreeMap;

/// The state of the machine as one daemon knows it.
pub struct Machine {
    core: Core,
    parts: Parts,
}

impl Machine {
    /// A machine of one host without tasks, or a slave that waits for its master.
    pub fn new(settings: Settings) -> Machine {
        let core = Core::new(settings);
        let parts = Parts::new(&core);
        Machine { core, parts }
    }

    fn settle(&mut self) {
        self.parts.settle(&mut self.core);
    }

    /// Lets time pass. One that was asleep cannot blame others for their silence.
    fn pass(&mut self, now: Time) {
        if self.core.pass(now) {
            self.parts.membership.begin_again(self.core.now);
        }
    }

    // ----- what the daemon asks

    /// The next thing to do.
    pub fn poll_action(&mut self) -> Option<Action> {
        let action = self.core.actions.pop_front();
        if action.is_none() {
            // Begins again where memory is warm, instead of going round through all that it has.
            self.core.actions.clear();
        }
        action
    }

    /// When [`Machine::handle_time`] wants to be called, if ever.
    pub fn next_wakeup(&self) -> Option<Time> {
        let looks = self.parts.groups.next_look().map(|(when, _)| when);
        let wakeups = [self.parts.membership.next_wakeup(&self.core), self.parts.control.next_wakeup(), looks];
        wakeups.into_iter().flatten().min()
    }

    /// The tid of the own host.
    pub fn own_host(&self) -> Tid {
        self.core.own_host()
    }
    /// The tid of the master's daemon.
    pub fn master(&self) -> Tid {
        self.core.hosts.master()
    }
    /// The hosts of the machine, as `pvm_config` tells of them.
    pub fn host_list(&self) -> Vec<Host> {
        self.core.hosts.list()
    }
    /// Whether the host of that tid is in the table, perhaps as one that is just joining.
    pub fn has_host(&self, tid: Tid) -> bool {
        self.core.hosts.is_here(tid)
    }
    /// The process of a task that has enrolled.
    pub fn process_of(&self, task: Tid) -> Option<i32> {
        self.core.tasks.get(task).filter(|_| self.core.tasks.is_connected(task)).map(|task| task.process)
    }
    /// Whether messages reach the task, now or when it has come.
    pub fn takes_messages(&self, task: Tid) -> bool {
        self.core.tasks.takes_frames(task)
    }
    /// To whom the output of a task goes, if it does not go to the log.
    pub fn collector_of(&self, tid: Tid) -> Option<Tid> {
        output::collector_of(&self.core, tid)
    }
    /// Output on its way to a collector of another host that has not taken it, in bytes.
    pub fn output_under_way(&self, collector: Tid) -> u64 {
        self.parts.output.cross_host.under_way(collector)
    }
    /// How much that may be, in bytes, by the number of hosts.
    pub fn output_under_way_max(&self) -> u64 {
        CrossHost::under_way_max(&self.core)
    }
    /// Whether that task has been given output of other hosts and may not have taken it.
    pub fn is_given_output(&self, collector: Tid) -> bool {
        self.parts.output.cross_host.is_given(collector)
    }
    /// The debug mask, as set at the start or by `pvm_tickle`.
    pub fn debug_mask(&self) -> i32 {
        self.core.debug_mask
    }

    /// What is remembered of tasks, by its kind; not what they put into mailboxes to outlive them. When no task
    /// lives, that is nothing.
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

    // ----- what the daemon wants

    /// Sets the debug mask, as `pvmd -d` says.
    pub fn set_debug_mask(&mut self, mask: i32) {
        self.core.debug_mask = mask;
    }

    /// Adds the hosts of the hostfile that are to be started at once.
    pub fn add_hosts_at_start(&mut self, lines: Vec<HostLine>) {
        self.parts.membership.joining.add_hosts_at_start(&mut self.core, lines);
        self.settle();
    }

    /// Starts a helper of the daemon (`PVM_TASKER` and so on); its words.
    pub fn start_helper(&mut self, words: &[&str]) {
        self.parts.spawns.start_helper(&mut self.core, words);
        self.settle();
    }

    /// Makes the link to a host if there is none: something waits for it.
    pub fn want_link(&mut self, now: Time, host: Tid) {
        self.pass(now);
        self.core.want_link(host);
        self.settle();
    }

    /// Ends the machine, at the master, or this host; [`Action::Stop`] comes when it has ended.
    pub fn halt(&mut self, now: Time) {
        self.pass(now);
        self.parts.halt(&mut self.core, None);
        self.settle();
    }

    /// Has another host run a command that starts a daemon, or end it; at the master.
    pub fn order_start(&mut self, host: Tid, number: u64, order: StartOrder) {
        self.core.send_host(host, Frame::StartOrder { number, order });
    }

    /// Tells the master news of a command that it has ordered here.
    pub fn report_start(&mut self, number: u64, news: StartNews) {
        self.core.send_master(Frame::StartNews { number, news });
    }

    // ----- what has happened: time and tasks

    /// Time has passed.
    pub fn handle_time(&mut self, now: Time) {
        self.pass(now);
        self.parts.membership.on_time(&mut self.core);
        self.settle();
        self.parts.control.on_time(&mut self.core);
        self.parts.groups.on_time(&mut self.core);
        self.settle();
    }

    /// A process says hello.
    pub fn handle_hello(&mut self, connection: Connection, process: i32, hello: &Hello) {
        tasks::enroll(&mut self.core, connection, process, hello);
        self.settle();
    }

    /// A frame of a task.
    pub fn handle_frame(&mut self, now: Time, from: Tid, frame: ToDaemon) {
        self.pass(now);
        if !self.core.tasks.is_connected(from) {
            // It has said goodbye, or is gone.
            return;
        }
        match frame {
            // A second greeting means nothing; heirs are for the daemon.
            ToDaemon::Hello(_) | ToDaemon::Heir => {}
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
            ToDaemon::Bye => tasks::leave(&mut self.core, from),
        }
        self.settle();
    }

    /// Two of whom one wanted to be introduced could not be ([`Action::Introduce`]): it may be tried again.
    pub fn handle_not_introduced(&mut self, one: Tid, other: Tid) {
        tasks::not_introduced(&mut self.core, one, other);
    }

    /// The connection of a task has closed.
    pub fn handle_disconnect(&mut self, tid: Tid) {
        tasks::leave(&mut self.core, tid);
        self.settle();
    }

    /// The task is that process from now on; 0 for one that is not known.
    pub fn handle_process_changed(&mut self, tid: Tid, process: i32) {
        tasks::process_changed(&mut self.core, tid, process);
    }

    /// A process that this daemon started has ended, with that wait status. What it had sent and
    /// printed was handed in before.
    pub fn handle_process_end(&mut self, tid: Tid, status: i32) {
        self.parts.tasks.process_ended(&mut self.core, tid, status);
        self.settle();
    }

    /// The standard input of the task has taken all of [`Action::Input`], or takes no more.
    pub fn handle_input_taken(&mut self, tid: Tid, taken: bool) {
        tasks::input_taken(&mut self.core, tid, taken);
    }

    /// Output of a task.
    pub fn handle_output(&mut self, tid: Tid, data: &[u8]) {
        self.parts.output.printed_output(&mut self.core, tid, data);
    }

    /// What a task of `pvm run` has written to its standard error.
    pub fn handle_errors(&mut self, tid: Tid, data: &[u8]) {
        self.parts.output.printed_errors(&mut self.core, tid, data);
    }

    /// That task has taken all output that it was given so far, or nearly all.
    pub fn handle_output_taken(&mut self, collector: Tid) {
        self.parts.output.cross_host.taken(&mut self.core, collector);
    }

    /// Messages that the daemon has made for the machine of one action, like the records of
    /// [`Action::Trace`]. They go before all that was decided after that action: who collects traces
    /// and output hears of a task's end before its output ends.
    pub fn handle_messages_made(&mut self, messages: impl IntoIterator<Item = Message>) {
        let mut later = std::mem::take(&mut self.core.actions);
        messages.into_iter().for_each(|message| self.core.send_message(message));
        self.core.actions.append(&mut later);
    }

    /// The time of day, as [`Action::TellTime`] has asked.
    pub fn handle_time_told(&mut self, to: Tid, wait: u32, reply: Reply) {
        self.core.reply(to, wait, Ok(reply));
    }

    // ----- spawns

    /// Whether a program was found for a spawn.
    pub fn handle_found(&mut self, spawn: SpawnId, result: Result<Found, Code>) {
        let observers = &mut Observers { traces: &mut self.parts.traces, output: &mut self.parts.output };
        self.parts.spawns.found(&mut self.core, observers, spawn, result);
        self.settle();
    }

    /// Whether a process could be started; its process id.
    pub fn handle_started(&mut self, tid: Tid, result: Result<i32, Code>) {
        let observers = &mut Observers { traces: &mut self.parts.traces, output: &mut self.parts.output };
        self.parts.spawns.process_started(&mut self.core, observers, tid, result);
        self.settle();
    }

    // ----- groups

    /// A group has its page, or there was none to be had.
    pub fn handle_group_made(&mut self, group: u64, made: bool) {
        self.parts.groups.made(&mut self.core, group, made);
    }

    /// The barrier of a group as it was seen.
    pub fn handle_barrier(&mut self, now: Time, group: u64, barrier: Barrier) {
        self.parts.groups.looked(&mut self.core, now, group, barrier);
    }

    /// The barrier was made to fail.
    pub fn handle_barrier_failed(&mut self, group: u64) {
        self.parts.groups.failed(group);
    }

    /// The barrier was not made to fail, since somebody has arrived meanwhile. It is looked at again, but not at once:
    /// a member that breaks the rules could keep the daemon busy.
    pub fn handle_barrier_changed(&mut self, now: Time, group: u64) {
        self.parts.groups.changed(now, group);
    }

    /// What had arrived in the page of this host.
    pub fn handle_barrier_taken(&mut self, group: u64, taken: Taken) {
        self.parts.groups.taken(&mut self.core, group, taken);
    }

    /// Who waits in the barriers, by the groups' numbers.
    pub fn handle_barriers_listed(&mut self, listing: Listing, waiting: BTreeMap<u64, Waiting>) {
        self.parts.groups.listed_here(&mut self.core, listing, waiting);
    }

    // ----- hosts and links

    /// What became of the names that were to be checked, in their order.
    pub fn handle_hosts_checked(&mut self, request: u32, checked: Vec<Result<Checked, Code>>) {
        self.parts.membership.joining.hosts_checked(&mut self.core, request, checked);
        self.settle();
    }

    /// What became of the start of a host's daemon.
    pub fn handle_host_started(
        &mut self,
        now: Time,
        request: u32,
        index: usize,
        result: Result<Started, StartFailure>,
    ) {
        self.pass(now);
        self.parts.membership.joining.host_started(&mut self.core, request, index, result);
        self.settle();
    }

    /// By which commands the hoster is to start the daemons: the index of each host, the command.
    pub fn handle_start_commands(&mut self, request: u32, commands: Vec<(usize, ByteBuf)>) {
        self.parts.servers.start_commands(&mut self.core, &mut self.parts.membership, request, commands);
        self.settle();
    }

    /// Both links to the host stand.
    pub fn handle_link_up(&mut self, now: Time, host: Tid) {
        self.pass(now);
        self.parts.membership.link_up(&mut self.core, host);
        self.settle();
    }

    /// A link to the host could not be made, or is gone.
    pub fn handle_link_down(&mut self, now: Time, host: Tid) {
        self.pass(now);
        self.parts.membership.link_lost(&mut self.core, host, "the connection is lost");
        self.settle();
    }

    /// Bytes came on the control link, though perhaps no whole frame.
    pub fn handle_heard(&mut self, now: Time, host: Tid) {
        self.pass(now);
        if let Some(link) = self.core.links.get_mut(host) {
            link.heard = now;
        }
    }

    /// How often the system has sent something again on the control link since it stands, as
    /// [`Action::CountSentAgain`] has asked.
    pub fn handle_sent_again(&mut self, host: Tid, total: u32) {
        if let Some(link) = self.core.links.get_mut(host) {
            link.quality.sent_again(total);
        }
    }

    /// The data link to the host stands again.
    pub fn handle_data_up(&mut self, now: Time, host: Tid) {
        self.pass(now);
        self.parts.membership.data_links.up(&self.core, host);
    }

    /// The data link to the host has ended, or could not be made again; the control link stands.
    pub fn handle_data_down(&mut self, now: Time, host: Tid) {
        self.pass(now);
        self.parts.membership.data_links.down(&mut self.core, host);
    }

    /// How the other host can call, as [`Action::ExpectData`] has asked; `None` where nothing can be made up.
    pub fn handle_data_expected(&mut self, now: Time, host: Tid, call: Option<DataCall>) {
        self.pass(now);
        self.parts.membership.data_links.expected(&mut self.core, host, call);
    }

    /// How another host can call for that link, as [`Action::ExpectDirect`] has asked; `None` where
    /// there is no room for one more, or the two tasks have a link.
    pub fn handle_direct_expected(&mut self, ticket: DirectTicket, call: Option<DirectCall>) {
        self.parts.directs.expected(&mut self.core, ticket, call);
    }

    /// The task has its end of the link, or will not get it.
    pub fn handle_direct_ended(&mut self, ticket: DirectTicket, done: bool) {
        self.parts.directs.ended(&mut self.core, ticket, done);
    }

    /// A frame of another daemon, from its control link or out of a flow.
    pub fn handle_host_frame(&mut self, now: Time, from: Tid, frame: Frame) {
        self.handle_heard(now, from);
        // Frames from removed hosts are ignored.
        if self.core.hosts.is_known(from) {
            self.parts.dispatch_frame(&mut self.core, from, frame);
        }
        self.settle();
    }
}
