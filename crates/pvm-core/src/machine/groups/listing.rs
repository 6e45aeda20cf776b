//! The group server's messages.
//!
//! PVM 3.4 kept groups in a server task; its programs `pvm_gstat` and `pvmgroups` send requests to that task. Here the
//! daemons take the place of that task, under a tid that no task ever gets ([`Tid::group_server`]): they pass messages
//! on to the master, which answers. Before it answers, the master collects the lists of waiting members from the hosts
//! in whose pages members synchronize.
use super::Groups;
use crate::codes::{GROUP_SERVER_DUMP, GROUP_SERVER_LIST};
use crate::encoding::Writer;
use crate::machine::action::Action;
use crate::machine::core::Core;
use crate::machine::group_page::Listing;
use crate::machine::pending_acks::Ack;
use crate::proto::Message;
use crate::tid::Tid;
use crate::wire::Frame;
use crate::wire::Waiting;
use std::collections::{BTreeMap, BTreeSet};

/// The number of entries in the list of a group's instances is rounded up to a multiple of this, as in PVM 3.4.
const INSTANCES_STEP: u32 = 10;
/// The value that stands in the list for a free instance number, and for the count of a barrier without arrivals.
const NONE_IN_LIST: i32 = -1;

/// A list that waits for answers of other hosts.
struct PendingListing {
    listing: Listing,
    /// The hosts that have not answered.
    hosts: BTreeSet<Tid>,
    /// The members at barriers, by group.
    waiting: BTreeMap<u64, Waiting>,
}

/// Lists in progress, at the master.
#[derive(Default)]
pub(super) struct Listings {
    /// The number assigned last.
    last: u32,
    pending: BTreeMap<u32, PendingListing>,
}

impl Listings {
    pub fn is_idle(&self) -> bool {
        self.pending.is_empty()
    }
}

impl Groups {
    /// Handles the list of members that wait in the barriers of this host's pages, by group.
    pub fn listed_here(&mut self, core: &mut Core, listing: Listing, mut waiting: BTreeMap<u64, Waiting>) {
        waiting.extend(self.groups.values().filter_map(|group| Some((group.id, group.barrier.waiting()?))));
        if let Listing::Master { number } = listing {
            return core.send_master(Frame::BarriersListed { number, waiting });
        }
        let own = core.own_host();
        let known_to = self.groups.values().filter_map(|group| group.barrier.known_to());
        let hosts: BTreeSet<Tid> = known_to.filter(|host| *host != own).collect();
        self.listings.last = self.listings.last.wrapping_add(1);
        let number = self.listings.last;
        for host in &hosts {
            core.acks.expect(*host, Ack::Barriers(number), core.now);
            core.send_host(*host, Frame::ListBarriers { number });
        }
        self.listings.pending.insert(number, PendingListing { listing, hosts, waiting });
        self.finish_listing(core, number);
    }

    /// Handles the list of members that wait in the barriers of another host's pages.
    pub fn listed_there(&mut self, core: &mut Core, host: Tid, number: u32, waiting: BTreeMap<u64, Waiting>) {
        core.acks.received(host, Ack::Barriers(number));
        let Some(pending) = self.listings.pending.get_mut(&number) else { return };
        for (group, there) in waiting.into_iter().filter(|(_, there)| there.need > 0) {
            pending.waiting.entry(group).or_insert(there);
        }
        pending.hosts.remove(&host);
        self.finish_listing(core, number);
    }

    /// Handles the loss of a host: the lists no longer wait for its answer.
    pub(super) fn listing_host_gone(&mut self, core: &mut Core, host: Tid) {
        let numbers: Vec<u32> = self.listings.pending.keys().copied().collect();
        numbers.into_iter().for_each(|number| self.listed_there(core, host, number, BTreeMap::new()));
    }

    /// Sends a list when all hosts have answered.
    fn finish_listing(&mut self, core: &mut Core, number: u32) {
        if self.listings.pending.get(&number).is_none_or(|pending| !pending.hosts.is_empty()) {
            return;
        }
        let Some(PendingListing { listing, waiting, .. }) = self.listings.pending.remove(&number) else { return };
        match listing {
            Listing::Task { to, ctx } => self.send_groups(core, to, ctx, &waiting),
            Listing::Log { from } => self.log_groups(core, from, &waiting),
            Listing::Master { .. } => {}
        }
    }

    /// Sends the list to a task, in the format of PVM 3.4.
    fn send_groups(&mut self, core: &mut Core, to: Tid, ctx: i32, waiting: &BTreeMap<u64, Waiting>) {
        let mut body = Writer::new().int(self.iter().count() as i32);
        for (name, group) in self.iter() {
            let barrier = waiting.get(&group.id).cloned().unwrap_or_default();
            let count = if barrier.need == 0 { NONE_IN_LIST } else { i32::from(barrier.need) };
            let instances = group.places().next_multiple_of(INSTANCES_STEP);
            body = body.int(name.len() as i32).string(name).int(group.size() as i32).int(instances as i32);
            body = body.int(count).int(barrier.tids.len() as i32);
            for instance in 0..instances {
                body = body.int(group.tid_of(instance).map_or(NONE_IN_LIST, |tid| tid.0 as i32));
            }
            body = barrier.tids.iter().fold(body, |body, tid| body.int(tid.0 as i32));
        }
        let body = body.finish();
        let src = Tid::group_server(to);
        core.send_message(Message::new(src, to, ctx, GROUP_SERVER_LIST, body));
    }

    /// Writes the list to the log.
    fn log_groups(&mut self, core: &mut Core, from: Tid, waiting: &BTreeMap<u64, Waiting>) {
        let mut lines = vec![format!("groups, asked for by {from}: {}", self.iter().count())];
        for (name, group) in self.iter() {
            let name = String::from_utf8_lossy(name);
            let frozen = if group.frozen { ", frozen" } else { "" };
            lines.push(format!("group {name}: {} members{frozen}", group.size()));
            lines.extend(group.members().map(|(instance, tid)| format!("  {instance}: {tid}")));
            if let Some(barrier) = waiting.get(&group.id).filter(|barrier| barrier.need > 0) {
                let tids: Vec<String> = barrier.tids.iter().map(Tid::to_string).collect();
                lines.push(format!("  barrier of {}, at which wait {}", barrier.need, tids.join(" ")));
            }
        }
        let tid = Tid::group_server(core.own_host());
        lines.into_iter().for_each(|line| core.push(Action::Log { tid, line: line.into_bytes() }));
    }
}

/// Handles a message to the group server.
pub(in crate::machine) fn ask_group_server(core: &mut Core, from: Tid, message: &Message) {
    let listing = match message.tag {
        GROUP_SERVER_LIST => Listing::Task { to: from, ctx: message.ctx },
        GROUP_SERVER_DUMP => Listing::Log { from },
        _ => return,
    };
    if !core.is_master() {
        let message = Message { src: from, ..message.clone() };
        return core.send_master(Frame::Deliver(message));
    }
    core.push(Action::ListBarriers { listing });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::encoding::Reader;
    use crate::machine::tests::world::{World, text};
    use crate::proto::{Request, ToDaemon};
    use std::time::Duration;

    const ONE: Tid = Tid(0x40001);
    const TWO: Tid = Tid(0x40002);
    const SERVER: Tid = Tid(0x70000);

    fn ask(world: &mut World, tag: i32) -> Vec<Message> {
        let message = Message::new(ONE, SERVER, 9, tag, Vec::new());
        world.forget_seen();
        world.machine.handle_frame(Duration::ZERO, TWO, ToDaemon::Message(message));
        world.run();
        world.messages(TWO)
    }

    #[test]
    fn the_server_lists_groups_in_the_old_form() {
        let mut world = World::new();
        world.tasks(12);
        for task in 1..=12 {
            world.ask(Tid(0x40000 + task), Request::JoinGroup(text("large")));
        }
        world.ask(ONE, Request::LeaveGroup(text("large")));
        world.ask(TWO, Request::JoinGroup(text("g")));
        world.boards.boards.get_mut(&1).unwrap().arrive(11, 3).unwrap();
        let messages = ask(&mut world, GROUP_SERVER_LIST);
        let [message] = messages.as_slice() else { panic!("{messages:?}") };
        assert_eq!((message.src, message.ctx, message.tag), (SERVER, 9, GROUP_SERVER_LIST));
        let mut body = Reader::new(&message.body);
        assert_eq!((body.int(), body.int(), body.string()), (Some(2), Some(1), Some(&b"g"[..])));
        let ints: Vec<i32> = (0..14).map_while(|_| body.int()).collect();
        assert_eq!(ints, [vec![1, 10, -1, 0, 0x40002], vec![-1; 9]].concat());
        assert_eq!((body.int(), body.string()), (Some(5), Some(&b"large"[..])));
        let ints: Vec<i32> = std::iter::from_fn(|| body.int()).collect();
        let tids = (0x40002..=0x4000c).collect();
        assert_eq!(ints, [vec![11, 20, 3, 1, -1], tids, vec![-1; 8], vec![0x4000c]].concat());
    }

    #[test]
    fn the_server_writes_groups_to_the_log() {
        let mut world = World::new();
        world.tasks(2);
        world.ask(ONE, Request::JoinGroup(text("g")));
        world.boards.boards.get_mut(&1).unwrap().arrive(0, 2).unwrap();
        assert_eq!(ask(&mut world, GROUP_SERVER_DUMP), []);
        let lines = world.logged(SERVER);
        let expected = [
            "groups, asked for by t40002: 1",
            "group g: 1 members",
            "  0: t40001",
            "  barrier of 2, at which wait t40001",
        ];
        assert_eq!(lines, expected);
    }

    #[test]
    fn the_server_does_not_answer_what_it_does_not_know() {
        let mut world = World::new();
        world.tasks(2);
        assert_eq!(ask(&mut world, 3), []);
    }
}
