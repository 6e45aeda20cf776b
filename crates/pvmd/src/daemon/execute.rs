//! Executes the actions of the machine. One `match` has an arm for each action, so that a missing arm does not compile.
use super::Daemon;
use crate::{clock, looks, socket_directory};
use pvm_core::host_look::HostLook;
use pvm_core::machine::{Action, Connection};
use pvm_core::proto::Welcome;
use pvm_core::tid::Tid;
use pvm_fmp::state_line;

impl Daemon {
    /// Executes an action.
    pub(super) fn execute(&mut self, action: Action) {
        match action {
            // Tasks of this host.
            Action::Welcome { connection, tid, welcome } => self.welcome(connection, tid, welcome),
            Action::Refuse { connection, code } => self.refuse(connection, code),
            Action::Send { to, frame } => self.connections.send(to, frame),
            Action::Introduce { one, other } => self.introduce(one, other),
            Action::Ring { tid } => self.connections.ring(tid),
            Action::Born { tid } => self.connections.add_task(tid),
            Action::Company(company) => self.connections.tell_company(company),
            Action::Forget { tid } => self.forget_task(tid),
            // Their processes.
            Action::Find { spawn, file, directory, beside, debug } => {
                self.find(spawn, file, directory, beside, debug);
            }
            Action::Start(starts) => self.start(&starts),
            Action::Signal { tid, process, signal } => {
                self.processes.signal(tid, process, signal, self.connections.process_of(tid));
            }
            Action::SignalGroup { tid, process, signal } => {
                self.processes.signal_group(tid, process, signal, self.connections.process_of(tid));
            }
            Action::Input { tid, data } => self.write_input(tid, data),
            // Groups.
            Action::Group { group, action } => {
                self.groups.execute(group, action, &mut self.connections, &mut self.machine, self.started.elapsed());
            }
            Action::ListBarriers { listing } => self.machine.handle_barriers_listed(listing, self.groups.waiting()),
            Action::LogStatistics { reset } => {
                self.route.multicast_summary(reset).iter().for_each(|line| self.log.line(line));
            }
            // The clock and the log.
            Action::Trace { to, ctx, tag, record, describe, introduce } => {
                let messages = clock::trace((to, ctx, tag), record, describe, introduce);
                self.machine.handle_messages_made(messages);
            }
            Action::Look { to, wait, tasks } => self.look(to, wait, &tasks),
            Action::TellTime { to, wait } => self.machine.handle_time_of_day(to, wait, clock::time_of_day()),
            Action::Log { tid, line } => self.log_output(tid, &line),
            // Hosts that are to be added.
            Action::CheckHosts { request, names } => self.look_up_hosts(request, &names),
            Action::StartHosts { request, hosts, by_hoster: true } => self.tell_start_commands(request, &hosts),
            Action::StartHosts { request, hosts, by_hoster: false } => self.start_hosts(request, hosts),
            Action::ReadAnswer { request, index, line } => self.read_answer(request, index, &line),
            Action::OrderStart { number, order } => self.order_start(number, order),
            Action::StartNews { host, number, news } => self.on_start_news(host, number, news),
            Action::MasterChanged => self.on_master_changed(),
            Action::Joined { shared, options } => self.on_joined(&shared, &options),
            // Links to hosts.
            Action::KnowHost { host, key } => self.host_links.add_host(host, key),
            Action::OpenLink { host, addresses } => self.host_links.connect(host, &addresses),
            Action::ReopenLink { host, addresses } => self.host_links.reconnect(host, &addresses),
            Action::ForgetHost { host } => self.remove_host(host),
            Action::CountRetransmissions { host } => {
                self.machine.handle_retransmissions(host, self.host_links.retransmissions(host))
            }
            Action::OrderLost { host } => {
                self.log
                    .line(&format!("what {host} asks goes on, though messages that it has sent before have not come"));
            }
            Action::SendHost { host, frame } => self.send_host(host, &frame),
            Action::Broadcast { bytes } => self.broadcast_for_machine(&bytes),
            Action::HearBroadcasts { tasks } => self.open_release_sockets(&tasks),
            Action::SendAlong { to, frame } => self.send_along(to, &frame),
            Action::ExpectData { host } => self.expect_data(host),
            Action::CallData { host, addresses, call } => self.connect_data(host, &addresses, call),
            Action::DropData { host } => self.drop_data(host),
            // Direct links.
            Action::ExpectDirect { ticket, task, peer, cause } => self.expect_direct(ticket, [task, peer], cause),
            Action::CallDirect { ticket, task, peer, cause, addresses, call } => {
                self.call_direct(ticket, [task, peer], cause, &addresses, call);
            }
            Action::CancelDirect { ticket } => self.cancel_direct(ticket),
            Action::Withdraw => self.withdraw(),
            Action::Stop => self.stopped = true,
        }
    }

    /// Lets a task enroll.
    fn welcome(&mut self, connection: Connection, tid: Tid, welcome: Welcome) {
        // Watching the process needs a descriptor. It is opened before the welcome, so that the daemon needs none
        // afterwards.
        self.watch_peer_process(connection, tid);
        if !self.connections.welcome(connection, tid, welcome) {
            // The task has ended while its welcome waited for the deputy of the master. Nobody knew its tid then.
            return self.machine.handle_disconnect(tid);
        }
        self.log_task_event(tid, "has enrolled");
    }

    /// Introduces two tasks, or a task and this daemon, to each other.
    fn introduce(&mut self, one: Tid, other: Tid) {
        if other == self.machine.own_host() {
            return self.introduce_self(one);
        }
        if let Err(error) = self.connections.introduce(one, other) {
            self.log.line(&format!("cannot introduce {one} and {other}: {error}"));
            self.machine.handle_not_introduced(one, other);
        }
    }

    /// Looks at tasks, and at what is under way to others.
    fn look(&mut self, to: Tid, wait: u32, tasks: &[(Tid, i32)]) {
        let mut host = HostLook { now_ns: state_line::monotonic_ns(), load: looks::host_load(), ..HostLook::default() };
        // What has been received by now has rung those whom it concerns before they are looked at.
        self.route.show_received(&mut host);
        let sights = looks::look(tasks, &self.connections);
        // What those that sleep have sent before is in the queues to this daemon at the latest.
        self.take_from_all();
        self.route.show_sent(&mut host);
        self.machine.handle_seen(to, wait, host, &sights);
    }

    /// Forgets a task that is gone.
    fn forget_task(&mut self, tid: Tid) {
        self.processes.forget_task(tid);
        self.route.forget_task(tid);
        self.direct_links.end_links_of_task(tid);
        self.log_task_event(tid, "is gone");
        if let Some(connection) = self.connections.forget(tid) {
            self.connections.close(connection);
        }
    }

    /// Logs a line that a task has printed.
    fn log_output(&mut self, tid: Tid, line: &[u8]) {
        match tid {
            Tid::DAEMON => self.log.bytes_line(line),
            tid => {
                let is_first = self.log.printed_line(&[format!("[{tid}] ").as_bytes(), line].concat());
                if is_first && self.is_of_job() {
                    socket_directory::keep_log(self.socket_directory.files().0);
                }
            }
        }
    }
}
