//! Dispatch of requests of tasks, and of messages that tasks send by way of the daemon.
use super::action::Action;
use super::core::Core;
use super::fabrics::Wanted;
use super::parts::Parts;
use super::servers::MessageTargets;
use super::{control, groups, limits, looks, membership, notify, spawn, tasks};
use crate::codes::Code;
use crate::proto::{Message, Reply, Request};
use crate::tid::{DAEMON_BIT, Tid};
use crate::wire::Frame;

impl Parts {
    /// Handles a request of a task of this host, which the manager, another host, or this daemon decides.
    pub fn handle_request(&mut self, core: &mut Core, from: Tid, wait: u32, request: Request) {
        let request = match request {
            Request::NextBarrier { group, count, lan, heard } => {
                self.groups.with(group, |group, _| group.heard(core, from, &heard));
                if lan { Request::LanBarrier { group, count } } else { Request::Barrier { group, count } }
            }
            request => request,
        };
        let Some(request) = self.servers.for_manager(core, &mut self.notify, from, wait, request) else { return };
        if let Request::Barrier { group, count } | Request::LanBarrier { group, count } = request {
            let lan = matches!(request, Request::LanBarrier { .. });
            return self.groups.arrive(core, (from, wait), group, count, lan);
        }
        let Some(request) = self.remote.for_other_host(core, from, wait, request) else { return };
        self.decide(core, from, wait, request);
    }

    /// Decides a request of a task of this host or another.
    pub fn decide(&mut self, core: &mut Core, from: Tid, wait: u32, request: Request) {
        let Some(request) = self.membership.hold(core, from, wait, request) else { return };
        let answer = match request {
            Request::Connect(tid) => tasks::connect(core, from, tid),
            Request::Direct { to, cause } => return self.directs.ask(core, from, wait, to, cause),
            Request::AllowDirect(allowed) => self.directs.allow(from, allowed),
            Request::Fabric { to, offer, always_sealed, cause } => {
                return self.fabrics.ask(core, from, wait, Wanted { to, cause }, offer, always_sealed);
            }
            Request::FabricAnswer { number, peer, introduction } => {
                self.fabrics.answer(core, &mut self.notify, from, number, peer, introduction)
            }
            Request::Spawn(spawn) => return self.spawns.spawn(core, spawn::Asker::Task { tid: from, wait }, spawn),
            Request::Siblings => return self.spawns.siblings(core, from, wait),
            Request::Config => Ok(core.hosts.config(core.deputy)),
            // Only a host that is told to end asks itself for that. No other host can be the master.
            Request::DeleteHosts(_) if from == core.own_host() => return self.halt(core, None),
            Request::AddHosts(names) => {
                let asker = membership::Asker::Task { tid: from, wait };
                return self.membership.joining.add_hosts(core, asker, names);
            }
            Request::AwaitHosts => return self.membership.joining.await_hosts(core, from, wait),
            Request::DeleteHosts(names) => return self.membership.delete_hosts(core, from, wait, &names),
            Request::DrainHosts { names, drain } => {
                return self.membership.draining.drain(core, (from, wait), &names, drain);
            }
            Request::HostStatus(name) => core.hosts.status(&name),
            Request::TaskStatus(tid) => tasks::status(core, tid),
            Request::Tasks(Tid::NONE) => return self.remote.gather_tasks(core, from, wait),
            Request::Tasks(place) => tasks::list(core, place),
            Request::Look(place) => return looks::begin(core, from, wait, place),
            Request::Signal { tid, signal } => control::signal(core, tid, signal),
            Request::SignalGroup { tid, signal } => control::signal_group(core, tid, signal),
            Request::Input { tid, data } => return tasks::input(core, from, wait, tid, data),
            Request::LostHosts => Ok(self.membership.lost_hosts()),
            Request::Notify { what, ctx, tag, count, tids } => {
                self.notify.request(core, notify::Target { task: from, ctx, tag }, what, count, &tids)
            }
            Request::NewContext => self.contexts.allocate(from),
            Request::FreeContext(ctx) => self.contexts.free(from, ctx),
            Request::PutInfo { name, flags, message } => self.mailboxes.put_info(core, from, &name, flags, message),
            Request::RecvInfo { name, index, flags } => {
                return self.mailboxes.receive_info(core, from, wait, name, index, flags);
            }
            Request::DeleteInfo { name, index, flags } => self.mailboxes.delete(from, &name, index, flags),
            Request::MailboxInfo { pattern } => Ok(Reply::Mailboxes(self.mailboxes.list(&pattern))),
            Request::ResetInfo { name, index } => {
                self.mailboxes.reset(name.as_ref().map(|name| name.as_slice()), index);
                Ok(Reply::Done)
            }
            Request::Register { role, on } => self.servers.register(core, from, role, on),
            Request::SetOwn(settings) => self.output.set_own(core, &mut self.traces, from, settings),
            Request::SetTracer(settings) => self.servers.set_tracer(core, from, settings),
            Request::HostSync(tid) if tid != Tid::NONE && tid.host() == core.own_host() => {
                return core.push(Action::TellTime { to: from, wait });
            }
            Request::HostSync(_) => Err(Code::NoHost),
            Request::Tickle(arguments) => {
                let (membership, spawns, mailboxes) = (&mut self.membership, &self.spawns, &self.mailboxes);
                control::tickle(core, &mut control::TickleTargets { membership, spawns, mailboxes }, &arguments)
            }
            Request::ExitStatus(tid) => return self.tasks.exit_status(core, from, wait, tid),
            Request::JoinGroup(name) => return self.groups.join(core, from, wait, name),
            Request::LeaveGroup(name) => return self.groups.leave(core, from, wait, &name),
            // `handle_request` has dealt with them; no host sends them.
            Request::Barrier { .. } | Request::LanBarrier { .. } | Request::NextBarrier { .. } => Err(Code::BadParam),
            Request::SetGroupHost(host) => self.groups.name_host(core, from, host),
            Request::GroupPlaces => Ok(self.groups.places(core)),
            Request::Group(name) => return self.groups.look_up(core, from, wait, &name),
            Request::FreezeGroup { name, count } => return self.groups.freeze(core, from, wait, &name, count),
            Request::Halt => {
                // A task of another host needs no answer, because its own host ends it by a signal.
                let asker = (from.host() == core.own_host()).then_some((from, wait));
                return self.halt(core, asker);
            }
        };
        // Delivers the events of this request, so that notifies and other news are sent before the answer.
        self.settle(core);
        core.reply(from, wait, answer);
    }

    /// Handles a message that a task sends by way of the daemon: to the daemon itself, or to a task. The sender is the
    /// task at the other end of the socket, whatever the message says.
    pub fn handle_message(&mut self, core: &mut Core, from: Tid, mut message: Message) {
        message.src = from;
        let (length, to) = (message.body.len(), message.dst);
        if length > limits::DAEMON_MESSAGE_BYTES_MAX {
            return core.log(format!("{from}: a message of {length} bytes to {to} is too long"));
        }
        if to.is_service() {
            groups::ask_group_server(core, from, &message);
        } else if to.0 & DAEMON_BIT == 0 {
            if !self.servers.answer_of_manager(core, from, &message) {
                core.send_message(message);
            }
        } else if to.host() == Tid::NONE || to.host() == core.own_host() {
            self.handle_daemon_message(core, from, &message);
        } else {
            core.send_host(to.host(), Frame::Deliver(message));
        }
    }

    /// Handles a message to this daemon.
    pub fn handle_daemon_message(&mut self, core: &mut Core, from: Tid, message: &Message) {
        let (membership, tasks, spawns) = (&mut self.membership, &mut self.tasks, &mut self.spawns);
        self.servers.handle_message(core, &mut MessageTargets { membership, tasks, spawns }, from, message);
    }
}
