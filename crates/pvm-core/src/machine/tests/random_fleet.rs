//! Several hosts with random requests, deaths, suspensions and cut links; then all faults end, and the machine must
//! reach a stable state.
use super::fleet::{Fleet, MASTER, Received};
use super::world::{ints, spawn_of, text};
use super::*;
use crate::codes::{
    MBOX_FIRST_AVAIL, MBOX_MULTI_INSTANCE, MBOX_PERSISTENT, MBOX_READ_AND_DELETE, MBOX_WAIT_FOR_INFO, NOTIFY_HOST_ADD,
    NOTIFY_HOST_DELETE, NOTIFY_TASK_EXIT, TASK_HOST,
};
use crate::proto::{Role, Spawn, TraceSettings};
use proptest::prelude::*;
use std::collections::BTreeMap;

const STEPS: usize = 250;
/// The tag of the messages that carry output to collectors.
const OUTPUT_TAG: i32 = 1_000_000;

/// What a task watches.
struct Wish {
    task: Tid,
    what: i32,
    about: Tid,
    count: i32,
}

/// The state of the test: what tasks have done, and what they must receive.
struct Story {
    fleet: Fleet,
    /// The notifies that tasks have requested, by the tag of the notify message.
    wishes: BTreeMap<i32, Wish>,
    /// All tasks, living or ended.
    seen: Vec<Tid>,
    last_tag: i32,
    next_host: usize,
    /// Whether hosts may be lost, and whether one had a fault.
    rough: bool,
    had_fault: bool,
}

impl Story {
    fn new(seed: u64, hosts: usize, rough: bool) -> Story {
        let fleet = Fleet::new(hosts, seed);
        let (wishes, seen) = (BTreeMap::new(), Vec::new());
        Story { fleet, wishes, seen, last_tag: 0, next_host: hosts + 1, rough, had_fault: false }
    }
    fn below(&mut self, sides: usize) -> usize {
        self.fleet.prng.below(sides)
    }
    fn pick<T: Copy>(&mut self, list: &[T]) -> Option<T> {
        let at = self.below(list.len());
        list.get(at).copied()
    }
    /// Returns a running host.
    fn host(&mut self) -> Option<Tid> {
        let hosts: Vec<Tid> = self.fleet.nodes.iter().filter(|(_, node)| !node.frozen).map(|(tid, _)| *tid).collect();
        self.pick(&hosts)
    }
    /// Returns a connected task of a running host.
    fn task(&mut self) -> Option<Tid> {
        let host = self.host()?;
        let tasks = &self.fleet.nodes[&host].machine.core.tasks;
        let tasks: Vec<Tid> = tasks.iter().map(|(tid, _)| tid).filter(|tid| tasks.is_connected(*tid)).collect();
        self.pick(&tasks)
    }
    fn any_tid(&mut self) -> Tid {
        let seen = std::mem::take(&mut self.seen);
        let tid = self.pick(&seen).unwrap_or(MASTER);
        self.seen = seen;
        match self.below(12) {
            0 => tid.host(),
            1 => Tid(tid.0 + 0x1000),
            _ => tid,
        }
    }
    fn host_name(&mut self) -> ByteBuf {
        let number = 1 + self.below(self.next_host);
        text(&format!("h{number}"))
    }
    fn master_name(&mut self) -> ByteBuf {
        let hosts = &self.fleet.nodes.values().next().expect("a host").machine.core.hosts;
        text(&hosts.plain_name_of(hosts.master()))
    }
    fn name(&mut self) -> ByteBuf {
        text(["a", "b", "c"][self.below(3)])
    }

    fn request(&mut self, from: Tid) -> Request {
        match self.below(33) {
            0..=3 => {
                let to_one = self.below(3) == 0;
                let flags = if to_one { TASK_HOST } else { 0 };
                let collector = if self.below(2) == 0 { self.any_tid() } else { Tid::NONE };
                let children =
                    TraceSettings { output_tid: collector.0 as i32, output_tag: OUTPUT_TAG, ..Default::default() };
                let count = 1 + self.below(5) as i32;
                let file = ["prog", "prog", "missing"][self.below(3)];
                Request::Spawn(Spawn { flags, place: self.host_name(), count, children, ..spawn_of(file, 1) })
            }
            4..=7 => self.notify(from),
            8 => Request::Tasks([Tid::NONE, self.any_tid()][self.below(2)]),
            9 => Request::TaskStatus(self.any_tid()),
            10 => Request::HostStatus(self.host_name()),
            11 => Request::HostSync(self.any_tid()),
            12 => Request::ExitStatus(self.any_tid()),
            13 => Request::Signal { tid: self.any_tid(), signal: 0 },
            14 | 15 => {
                let flags = [0, MBOX_PERSISTENT, MBOX_MULTI_INSTANCE, MBOX_PERSISTENT | MBOX_MULTI_INSTANCE];
                let message = Message { enc: 0, ..Message::new(from, Tid::NONE, 0, 0, ByteBuf::new()) };
                Request::PutInfo { name: self.name(), flags: flags[self.below(4)], message }
            }
            16 => {
                let flags = [0, MBOX_WAIT_FOR_INFO, MBOX_FIRST_AVAIL, MBOX_READ_AND_DELETE][self.below(4)];
                Request::RecvInfo { name: self.name(), index: 0, flags }
            }
            17 => Request::DeleteInfo { name: self.name(), index: 0, flags: 0 },
            18 => Request::MailboxInfo { pattern: text("") },
            19 => Request::NewContext,
            20 => Request::Register { role: Role::Tasker, on: self.below(2) == 0 },
            21 if self.below(4) == 0 => {
                let name = if self.below(2) == 0 { self.master_name() } else { self.host_name() };
                match self.below(3) {
                    0 => Request::DrainHosts { names: vec![name], drain: self.below(3) > 0 },
                    _ => Request::DeleteHosts(vec![name]),
                }
            }
            22 if self.below(3) == 0 => {
                self.next_host += 1;
                Request::AddHosts(vec![text(&format!("h{}", self.next_host - 1)), text("broken")])
            }
            23 => Request::AwaitHosts,
            24 | 25 => Request::JoinGroup(self.name()),
            26 => Request::LeaveGroup(self.name()),
            27 => Request::Group(self.name()),
            28..=31 => self.barrier(from),
            32 if self.below(4) == 0 => Request::FreezeGroup { name: self.name(), count: 2 },
            _ => Request::Config,
        }
    }

    /// Returns an arrival at a barrier of a group of the task, unless it waits at one.
    fn barrier(&self, from: Tid) -> Request {
        let waits = self.fleet.open.iter().any(|((task, _), request)| *task == from && group_of(request).is_some());
        let group = self.fleet.received.get(&from).into_iter().flatten().rev().find_map(|received| match received {
            Received::Reply(_, Reply::Group { id, instance: 0.. }) => Some(*id),
            _ => None,
        });
        group.filter(|_| !waits).map_or(Request::Config, |group| Request::Barrier { group, count: -1 })
    }

    fn notify(&mut self, task: Tid) -> Request {
        let what = [NOTIFY_TASK_EXIT, NOTIFY_HOST_DELETE, NOTIFY_HOST_ADD][self.below(3)];
        let mut about = self.any_tid();
        if what == NOTIFY_TASK_EXIT && !about.is_task() {
            about = task;
        }
        let count = [-1, 1, 2][self.below(3)];
        self.last_tag += 1;
        // While a host is joining, not every other host knows it. For a task on a host that does not know it, the
        // joining host does not exist.
        if self.fleet.machine(task.host()).has_host(about) {
            self.wishes.insert(self.last_tag, Wish { task, what, about, count });
        }
        Request::Notify { what, ctx: 0, tag: self.last_tag, count, tids: vec![about] }
    }

    fn step(&mut self) {
        match self.below(40) {
            0..=2 => {
                if let Some(host) = self.host() {
                    let task = self.fleet.task(host);
                    self.seen.push(task);
                }
            }
            3 => self.claim(),
            4..=5 => {
                if let Some(task) = self.task() {
                    self.fleet.leave(task);
                }
            }
            6 => self.process_ends(),
            7..=15 => {
                if let Some(task) = self.task() {
                    let request = self.request(task);
                    self.fleet.send(task, request);
                }
            }
            16 if self.rough && self.below(6) == 0 => {
                if let (Some(host), Some(_)) = (self.host(), self.fleet.master()) {
                    self.had_fault = true;
                    self.fleet.kill(host);
                }
            }
            17 if self.rough && self.below(6) == 0 => self.freeze(),
            21 if self.rough && self.below(6) == 0 => {
                if let Some(master) = self.fleet.master() {
                    self.had_fault = true;
                    self.fleet.die(master);
                }
            }
            18 if self.rough && self.below(6) == 0 => {
                if let (Some(one), Some(other), Some(_)) = (self.host(), self.host(), self.fleet.master()) {
                    self.had_fault = true;
                    self.fleet.cut(one, other);
                }
            }
            19 if self.below(3) == 0 => {
                let seconds = [0, 1, 3][self.below(3)];
                self.fleet.pass(Duration::from_secs(seconds));
            }
            20 => {
                if let Some(task) = self.task() {
                    self.fleet.machine(task.host()).handle_output(task, b"some\noutput");
                    self.fleet.work(task.host());
                }
            }
            _ => drop(self.fleet.step()),
        }
    }

    /// Lets a spawned task enroll.
    fn claim(&mut self) {
        let Some(host) = self.host() else { return };
        let starts = std::mem::take(&mut self.fleet.nodes.get_mut(&host).expect("runs").starts);
        for start in starts {
            let tid = self.fleet.hello(host, Some(start.cookie));
            self.seen.push(tid);
        }
    }

    fn process_ends(&mut self) {
        let Some(host) = self.host() else { return };
        let tasks: Vec<Tid> = self.fleet.nodes[&host].machine.core.tasks.iter().map(|(tid, _)| tid).collect();
        if let Some(task) = self.pick(&tasks) {
            self.fleet.leave(task);
        }
    }

    /// Suspends a host for a while, short or long.
    fn freeze(&mut self) {
        let (Some(host), Some(_)) = (self.host(), self.fleet.master()) else { return };
        let seconds = [2, 30][self.below(2)];
        self.had_fault = true;
        self.fleet.freeze(host);
        self.fleet.pass(Duration::from_secs(seconds));
        if let Some(node) = self.fleet.nodes.get_mut(&host) {
            node.frozen = false;
        }
    }

    // ----- the end

    fn check(&mut self) {
        self.fleet.pass(Duration::from_secs(90));
        if self.had_fault && self.fleet.living().is_empty() {
            // Too many hosts were lost at once. Other tests say when a machine ends.
            return;
        }
        self.fleet.check_tables();
        for ((task, wait), request) in &self.fleet.open {
            let may_wait = match request {
                Request::RecvInfo { flags, .. } => flags & MBOX_WAIT_FOR_INFO != 0,
                Request::FreezeGroup { .. } => true,
                Request::ExitStatus(tid) => self.fleet.tasks().contains(tid),
                Request::Barrier { group, .. } => {
                    let waits = |member: &Tid| {
                        let of = |((task, _), request): (&(Tid, u32), &Request)| {
                            task == member && group_of(request) == Some(*group)
                        };
                        self.fleet.open.iter().any(of)
                    };
                    let master = self.fleet.master().expect("a master");
                    let groups = &self.fleet.nodes[&master].machine.parts.groups;
                    groups.members_of(*group).iter().any(|member| !waits(member))
                }
                _ => false,
            };
            assert!(may_wait, "{task} {wait}: {request:?} was not answered");
        }
        self.check_notifies();
        self.end_tasks();
        let alive = self.fleet.living();
        for (tid, node) in &mut self.fleet.nodes {
            node.machine.parts.mailboxes.reset(None, None);
            assert!(node.machine.leftovers().is_empty(), "{tid} remembers {:?}", node.machine.leftovers());
        }
        let master = self.fleet.master().expect("a master");
        assert!(alive.contains(&master));
        let now = self.fleet.now;
        self.fleet.machine(master).halt(now);
        self.fleet.work(master);
        self.fleet.pass(Duration::from_secs(1));
        assert_eq!(self.fleet.living(), []);
    }

    fn check_notifies(&self) {
        let tasks = self.fleet.tasks();
        let connected = |tid: &Tid| {
            self.fleet.nodes.get(&tid.host()).is_some_and(|node| node.machine.core.tasks.is_connected(*tid))
        };
        for (tag, wish) in self.wishes.iter().filter(|(_, wish)| connected(&wish.task)) {
            let messages = self.fleet.messages(wish.task, *tag);
            let over = match wish.what {
                NOTIFY_TASK_EXIT => !tasks.contains(&wish.about),
                NOTIFY_HOST_DELETE => !self.fleet.nodes.contains_key(&wish.about.host()),
                _ => {
                    let limit = if wish.count < 0 { usize::MAX } else { wish.count as usize };
                    assert!(messages.len() <= limit);
                    let mut hosts: Vec<i32> = messages.iter().flat_map(|one| ints(&one.body)[1..].to_vec()).collect();
                    let count = hosts.len();
                    hosts.sort_unstable();
                    hosts.dedup();
                    assert_eq!(hosts.len(), count, "told twice");
                    continue;
                }
            };
            assert_eq!(messages.len(), usize::from(over), "notify {} of {}", wish.what, wish.about);
        }
    }

    fn end_tasks(&mut self) {
        loop {
            let tasks = self.fleet.tasks();
            if tasks.is_empty() {
                return;
            }
            tasks.into_iter().for_each(|tid| self.fleet.leave(tid));
            self.fleet.settle();
        }
    }
}

/// Returns the group at whose barrier that request arrives.
fn group_of(request: &Request) -> Option<u64> {
    match request {
        Request::Barrier { group, .. } => Some(*group),
        _ => None,
    }
}

fn one_story(seed: u64, hosts: usize, rough: bool) {
    let mut story = Story::new(seed, hosts, rough);
    for _ in 0..STEPS {
        story.step();
        if story.fleet.nodes.is_empty() {
            // Other tests cover the loss of the master.
            return;
        }
    }
    story.check();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn while_no_host_is_lost_all_agree_and_forget_nothing_that_is_owed(seed in any::<u64>(), hosts in 1_usize..6) {
        one_story(seed, hosts, false);
    }

    #[test]
    fn after_losses_and_silences_the_rest_is_one_machine_again(seed in any::<u64>(), hosts in 2_usize..7) {
        one_story(seed, hosts, true);
    }
}
