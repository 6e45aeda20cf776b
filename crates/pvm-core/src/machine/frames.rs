//! Dispatch of frames from other daemons; a frame is accepted only from a host that may send it.
use super::action::{Action, SpawnId};
use super::core::Core;
use super::direct::LinkQuestion;
use super::event::Event;
use super::group_page::Listing;
use super::groups::{End, Report};
use super::parts::Parts;
use super::spawn::Observers;
use super::{control, groups, membership, remote, servers};
use crate::proto::{Message, ToTask};
use crate::tid::{DAEMON_BIT, Tid};
use crate::wire::{Frame, VERSION};

impl Parts {
    /// Dispatches a frame of a host of the machine.
    pub fn dispatch_frame(&mut self, core: &mut Core, from: Tid, frame: Frame) {
        // This host has given up a master whose link has failed, even if that one still sends.
        let from_master = from == core.hosts.master() && !core.links.has_failed(from);
        match frame {
            // Fences were dealt with before.
            Frame::Beat | Frame::Fence => {}
            Frame::Request { wait, from: task, request, again } if task.host() == from => {
                if !again && !core.is_awaited(from) {
                    core.drop_answers(from);
                }
                match remote::admit(core, wait, task, request) {
                    Some(request) if again => self.decide_again(core, (from, wait), task, wait, request),
                    Some(request) => self.decide(core, task, wait, request),
                    None => {}
                }
            }
            Frame::Reply { wait, reply } => {
                if let Some((task, wait, reply)) = self.remote.answered(core, from, wait, reply) {
                    self.groups.answer_with_group(core, task, wait, Ok(reply));
                }
            }
            Frame::Suspect(host) => self.membership.suspected(core, from, host),
            Frame::PleaseConnect { to, from: asking_host } => {
                membership::connect_requested(core, from, to, asking_host)
            }
            Frame::TableAck { version } if core.is_master() => {
                self.membership.joining.table_acknowledged(core, from, version);
                self.membership.draining.answer(core);
            }
            Frame::GroupSeen { number } if core.is_master() => self.groups.change_acknowledged(core, from, number),
            Frame::GroupTaken { id, number, taken } if core.is_master() => {
                self.groups.with(id, |group, shared| group.page_arrivals_came(core, shared, from, (number, taken)));
            }
            Frame::Arrived { id, arrivals, chain } => {
                self.groups.with(id, |group, shared| group.arrived(core, shared, from, arrivals, chain));
            }
            // The group knows whether the sender may end its barriers.
            Frame::BarrierEnded { id, ended, failure, release, passed, late } => {
                let outcome = failure.map_or(Ok(()), Err);
                let end = End { outcome, release: release.as_ref(), passed, is_late: late };
                self.groups.with(id, |group, _| {
                    group.barrier_ended(core, from, &ended, end);
                });
            }
            Frame::ReleaseMissed => self.groups.release_missed(from),
            Frame::Recalled { id, number, passed, arrivals } if core.is_master() => {
                self.groups.recall_reported(core, from, id, number, Report { passed, arrivals });
            }
            Frame::HandBack { id } if core.is_master() => {
                self.groups.with(id, |group, shared| group.handed_back(core, shared, from));
            }
            Frame::BarriersListed { number, waiting } if core.is_master() => {
                self.groups.listed_there(core, from, number, waiting);
            }
            Frame::StartNews { number, news } if core.is_master() => {
                core.push(Action::StartNews { host: from, number, news });
            }
            Frame::Left { tid, ended } if tid.host() == from => remote::client_left(core, tid, ended),
            Frame::Serves { role, tid, on } if tid.host() == from => servers::role_changed(core, role, tid, on),
            Frame::Signal { tid, signal } => drop(control::signal(core, tid, signal)),
            Frame::SignalGroup { tid, signal } => drop(control::signal_group(core, tid, signal)),
            Frame::Spawn { wait, parent, first, total, spawn } => {
                let id = SpawnId { host: from, number: wait };
                self.spawns.share_ordered(core, id, parent, first, total, spawn);
            }
            Frame::Spawned { wait, results } => {
                let observers = &mut Observers { traces: &mut self.traces, output: &mut self.output };
                self.spawns.host_spawned(core, observers, from, wait, results);
            }
            Frame::Siblings { wait, tids } => self.spawns.siblings_known(core, from, wait, &tids),
            Frame::Direct { number, from: asker, to, call, cause } if asker.host() == from => {
                self.directs.link_requested(core, LinkQuestion { number, from: asker, to, cause }, call);
            }
            Frame::DirectCall { number, call } => self.directs.call_allowed(core, from, number, call),
            Frame::DirectRefused { number, why } => self.directs.refused(core, from, number, why),
            Frame::Fabric { number, from: asker, to, offer, cause } if asker.host() == from => {
                let refuses = self.directs.refuses(to);
                self.fabrics.link_requested(core, LinkQuestion { number, from: asker, to, cause }, offer, refuses);
            }
            Frame::FabricAnswer { number, answer } => {
                self.fabrics.answered(core, &mut self.notify, from, number, answer);
            }
            Frame::DataLost { number } => self.membership.data_links.reported_lost(core, from, number),
            Frame::DataCall { number, call } => self.membership.data_links.call_received(core, from, number, call),
            Frame::Watch { tid, watcher } if watcher.host() == from => {
                self.notify.remote_watch_added(core, tid, watcher)
            }
            Frame::Unwatch { tid, watcher } if watcher.host() == from => self.notify.remote_watch_removed(tid, watcher),
            Frame::Died { tid, watcher } if tid.host() == from => self.notify.remote_task_died(core, tid, watcher),
            Frame::Deliver(message) => self.delivered(core, from, message),
            Frame::Output(message) => self.output.remote_output.received(core, from, message),
            Frame::OutputTaken { collector, bytes } => self.output.remote_output.credited(from, collector, bytes),
            Frame::Log { tid, line } if tid.host() == from => core.push(Action::Log { tid, line }),
            Frame::Leave if core.is_master() => {
                core.deputy.take_if(|deputy| *deputy == from);
                self.membership.lose_host(core, from, "it has ended");
            }
            Frame::Leave if from_master => {
                core.log("the master has told this host to leave");
                self.halt(core, None);
            }
            Frame::Welcome { wire, .. } if from_master && wire != VERSION => {
                let own = format!("this host version {}; install the same hpvm on both", VERSION);
                let why = format!("it speaks version {wire} of what daemons say to each other, {own}");
                core.raise(Event::MasterLost(why));
            }
            Frame::Welcome { version, hosts, joining, shared, options, .. } if from_master => {
                self.membership.welcomed(core, version, hosts, &joining, &shared, options);
                self.servers.servers_received(core, shared.servers);
                core.send_master(Frame::TableAck { version });
            }
            Frame::Table { version, added, removed } if from_master => {
                self.membership.table_changed(core, version, added, removed);
                self.settle(core);
                core.send_master(Frame::TableAck { version });
            }
            Frame::GroupKnown(state) if from_master => self.groups.replace_replica(core, state),
            Frame::GroupChanged { id, number, change } if from_master => {
                self.groups.change_received(core, id, number, &change);
            }
            Frame::ListBarriers { number } if from_master => {
                core.push(Action::ListBarriers { listing: Listing::Master { number } });
            }
            Frame::Joined { hosts } if from_master => membership::hosts_joined(core, &hosts),
            Frame::Servers(servers) if from_master => self.servers.servers_received(core, servers),
            // A host that is about to end executes no orders.
            Frame::StartOrder { number, order } if from_master && !core.halting => {
                core.push(Action::OrderStart { number, order });
            }
            Frame::NewMaster { master } if from_master && !core.halting => self.master_moved(core, master),
            Frame::Following { clients, tasker, groups, table } if core.is_master() => {
                self.followed(core, from, clients, tasker, groups, table);
            }
            Frame::Backup(piece) if from_master => self.deputies.keep(core, piece),
            Frame::BackupKept { number } if core.is_master() => self.deputies.kept(core, from, number),
            Frame::Deputy { host } if from_master => core.deputy = Some(host),
            Frame::Depose { deputy, number } if from_master => self.deputies.depose_here(core, deputy, number),
            Frame::Deposed { number } if core.is_master() => self.deputies.deposed(core, from, number),
            Frame::WholeTable { version, hosts, joining } if from_master => {
                let joining = joining.into_iter().collect();
                self.membership.table_replaced(core, version, hosts, &joining);
                self.settle(core);
                core.send_master(Frame::TableAck { version });
            }
            // Frames that this sender may not send, or may not send to this host, are ignored. A new kind of frame
            // needs an arm above.
            Frame::Request { .. }
            | Frame::TableAck { .. }
            | Frame::GroupSeen { .. }
            | Frame::GroupTaken { .. }
            | Frame::Recalled { .. }
            | Frame::HandBack { .. }
            | Frame::BarriersListed { .. }
            | Frame::StartNews { .. }
            | Frame::Left { .. }
            | Frame::Serves { .. }
            | Frame::Direct { .. }
            | Frame::Fabric { .. }
            | Frame::Watch { .. }
            | Frame::Unwatch { .. }
            | Frame::Died { .. }
            | Frame::Log { .. }
            | Frame::Leave
            | Frame::Welcome { .. }
            | Frame::Table { .. }
            | Frame::GroupKnown(_)
            | Frame::GroupChanged { .. }
            | Frame::ListBarriers { .. }
            | Frame::Joined { .. }
            | Frame::Servers(_)
            | Frame::StartOrder { .. }
            | Frame::NewMaster { .. }
            | Frame::Following { .. }
            | Frame::Backup(_)
            | Frame::BackupKept { .. }
            | Frame::Deputy { .. }
            | Frame::Depose { .. }
            | Frame::Deposed { .. }
            | Frame::WholeTable { .. } => {}
        }
    }

    /// Handles a message from another host that travels by way of the daemons.
    fn delivered(&mut self, core: &mut Core, from: Tid, message: Message) {
        let (src, dst) = (message.src, message.dst);
        // The master sends the answers of the group server; their source is the group server's tid on the receiver's
        // host.
        if src.host() != from && !(src.is_service() && from == core.hosts.master()) {
            return;
        }
        if dst.is_service() {
            groups::ask_group_server(core, src, &message);
        } else if dst.0 & DAEMON_BIT != 0 {
            self.handle_daemon_message(core, src, &message);
        } else if !self.servers.answer_of_manager(core, src, &message) && dst.host() == core.own_host() {
            core.send(dst, ToTask::Message(message));
        }
    }
}
