//! Tests of groups. A [`Board`] stands in for the page of each group.
use super::world::{PATIENCE, World, text};
use super::*;
use std::collections::{BTreeMap, BTreeSet};

const ONE: Tid = Tid(0x40001);
const TWO: Tid = Tid(0x40002);
const THREE: Tid = Tid(0x40003);
const FOUR: Tid = Tid(0x40004);

/// The page of a group as the daemon keeps it.
#[derive(Default, Debug)]
pub(in crate::machine) struct Board {
    pub members: BTreeMap<u32, Tid>,
    pub generation: u32,
    need: u16,
    arrived: u16,
    /// The instance numbers of members that have arrived.
    here: BTreeSet<u32>,
    /// Whether the daemon cannot be certain yet that these members have arrived.
    pub in_doubt: bool,
    /// Whether a member arrives whenever the barrier is about to fail.
    restless: bool,
    pub failed: Vec<u32>,
    pub state: Vec<GroupAction>,
    shown: Vec<(Tid, bool)>,
    /// Whether the page is out of use.
    pub taken: bool,
    /// The barriers whose members were released by an order: the generation, and whether the barrier opened.
    pub released: Vec<(u32, bool)>,
}

impl Board {
    fn seen(&self) -> Barrier {
        let here = self.here.len() as u32;
        Barrier {
            generation: self.generation,
            need: self.need,
            arrived: self.arrived,
            absent: self.members.len() as u32 - here,
            arriving: if self.in_doubt { here } else { 0 },
        }
    }
    fn next(&mut self) {
        (self.generation, self.need, self.arrived) = (self.generation + 1, 0, 0);
        self.here.clear();
    }
    /// Counts the arrival of a member. Returns the generation, or `None` if the pending barrier needs another number of
    /// members.
    pub fn arrive(&mut self, instance: u32, need: u16) -> Option<u32> {
        if self.need != 0 && self.need != need {
            return None;
        }
        assert!(!self.taken);
        let generation = self.generation;
        (self.need, self.arrived) = (need, self.arrived + 1);
        assert!(self.members.contains_key(&instance) && self.here.insert(instance));
        if self.arrived == need {
            self.next();
        }
        Some(generation)
    }
    pub fn waits(&self, instance: u32) -> bool {
        self.here.contains(&instance)
    }
    /// Returns whether members wait in vain: the barrier still needs more arrivals than there are members that have not
    /// arrived.
    pub fn is_stuck(&self) -> bool {
        let missing = u32::from(self.need.saturating_sub(self.arrived));
        self.need != 0 && missing > self.seen().absent
    }
}

/// The pages of all groups.
#[derive(Default)]
pub(in crate::machine) struct Boards {
    pub boards: BTreeMap<u64, Board>,
    /// Whether making a page fails.
    pub exhausted: bool,
}

impl Boards {
    pub fn waiting(&self) -> BTreeMap<u64, Waiting> {
        let waiting = |board: &Board| Waiting {
            need: board.need,
            tids: board.here.iter().map(|instance| board.members[instance]).collect(),
        };
        self.boards.iter().map(|(group, board)| (*group, waiting(board))).collect()
    }

    pub fn act(&mut self, now: Time, group: u64, action: &GroupAction, machine: &mut Machine) {
        if *action == GroupAction::Make {
            if !self.exhausted {
                assert!(self.boards.insert(group, Board::default()).is_none());
            }
            return machine.handle_group_made(group, !self.exhausted);
        }
        let Some(board) = self.boards.get_mut(&group) else {
            return assert_eq!(*action, GroupAction::Close, "of a group without memory");
        };
        match action {
            GroupAction::Make => {}
            GroupAction::Joined { instance, tid } => assert_eq!(board.members.insert(*instance, *tid), None),
            GroupAction::Gone { instance } => {
                assert!(board.members.remove(instance).is_some());
                board.here.remove(instance);
            }
            GroupAction::Freeze | GroupAction::Break => board.state.push(action.clone()),
            GroupAction::Close => drop(self.boards.remove(&group)),
            GroupAction::Show { to, member } => board.shown.push((*to, *member)),
            GroupAction::Look => machine.handle_barrier(now, group, board.seen()),
            GroupAction::Take => {
                board.taken = true;
                let (mut arrived_members, mut maybe_arrived): (Vec<Tid>, Vec<Tid>) = (Vec::new(), Vec::new());
                let tids = board.here.iter().filter_map(|instance| board.members.get(instance));
                let list = if board.in_doubt { &mut maybe_arrived } else { &mut arrived_members };
                list.extend(tids);
                let taken = Taken { need: board.need, arrived: board.arrived, arrived_members, maybe_arrived };
                (board.need, board.arrived) = (0, 0);
                machine.handle_barrier_taken(group, taken);
            }
            GroupAction::Release { opened } => {
                board.released.push((board.generation, *opened));
                board.next();
            }
            GroupAction::Give => {
                assert!(board.here.is_empty());
                board.taken = false;
            }
            GroupAction::Fail(barrier) if *barrier == board.seen() && !board.restless => {
                board.failed.push(board.generation);
                board.next();
                machine.handle_barrier_failed(group);
            }
            GroupAction::Fail(_) => machine.handle_barrier_changed(now, group),
        }
    }
}

impl World {
    fn join(&mut self, tid: Tid, name: &str) -> Result<i32, Code> {
        match self.ask(tid, Request::JoinGroup(text(name))) {
            Some(Reply::Group { id, instance }) => {
                assert_eq!(self.boards.boards[&id].shown.last(), Some(&(tid, true)));
                assert_eq!(self.boards.boards[&id].members[&(instance as u32)], tid);
                Ok(instance)
            }
            Some(Reply::Error(code)) => Err(code),
            other => panic!("{other:?}"),
        }
    }
    fn leave(&mut self, tid: Tid, name: &str) -> Option<Reply> {
        self.ask(tid, Request::LeaveGroup(text(name)))
    }
    fn freeze(&mut self, tid: Tid, name: &str, count: i32) -> Option<Reply> {
        self.ask(tid, Request::FreezeGroup { name: text(name), count })
    }
    /// Returns the board of the only group.
    fn board(&mut self) -> &mut Board {
        self.boards.boards.values_mut().next().expect("a group")
    }
    /// Lets a member arrive. If the group has fewer members than the barrier needs, the member reports this.
    fn arrive(&mut self, instance: u32, need: u16, size: u32) -> u32 {
        let group = *self.boards.boards.keys().next().expect("a group");
        let tid = self.board().members[&instance];
        let generation = self.board().arrive(instance, need).expect("the same need");
        if self.board().members.len() < usize::from(need) {
            self.machine.handle_frame(NOW, tid, ToDaemon::CheckBarrier { group, size });
            self.run();
        }
        generation
    }
    fn time(&mut self, now: Time) {
        self.machine.handle_time(now);
        while let Some(action) = self.machine.poll_action() {
            if let Action::Group { group, action } = action {
                self.boards.act(now, group, &action, &mut self.machine);
            }
        }
    }
}

const NOW: Time = Duration::from_secs(100);

/// Returns a world with a group "g" of that many tasks, from ONE on.
fn group_of(count: u32) -> World {
    let mut world = World::new();
    world.tasks(count as usize + 1);
    (0..count).for_each(|member| assert_eq!(world.join(Tid(ONE.0 + member), "g"), Ok(member as i32)));
    world
}

#[test]
fn a_member_gets_the_lowest_free_number() {
    let mut world = group_of(4);
    assert_eq!(world.leave(TWO, "g"), Some(Reply::Done));
    assert_eq!(world.leave(ONE, "g"), Some(Reply::Done));
    assert_eq!(world.join(TWO, "g"), Ok(0));
    assert_eq!(world.join(Tid(0x40005), "g"), Ok(1));
    assert_eq!(world.join(ONE, "g"), Ok(4));
    // The members with the highest instance numbers leave, so no holes remain.
    for tid in [ONE, FOUR, THREE] {
        assert_eq!(world.leave(tid, "g"), Some(Reply::Done));
    }
    assert_eq!(world.join(FOUR, "g"), Ok(2));
}

#[test]
fn what_cannot_be_is_refused_by_its_code() {
    let mut world = group_of(1);
    let error = |code| Some(Reply::Error(code));
    assert_eq!(world.join(ONE, "g"), Err(Code::DupGroup));
    assert_eq!(world.join(ONE, ""), Err(Code::NullGroup));
    assert_eq!(world.leave(TWO, "g"), error(Code::NotInGroup));
    assert_eq!(world.leave(ONE, "h"), error(Code::NoGroup));
    assert_eq!(world.leave(ONE, ""), error(Code::NullGroup));
    assert_eq!(world.ask(ONE, Request::Group(text("h"))), error(Code::NoGroup));
    assert_eq!(world.ask(ONE, Request::Group(text(""))), error(Code::NullGroup));
    assert_eq!(world.freeze(ONE, "h", 1), error(Code::NoGroup));
    assert_eq!(world.freeze(TWO, "g", 1), error(Code::NotInGroup));
    assert_eq!(world.freeze(ONE, "g", 0), error(Code::BadParam));
    assert_eq!(world.freeze(ONE, "g", -2), error(Code::BadParam));
}

#[test]
fn anybody_may_look_but_only_members_get_the_board() {
    let mut world = group_of(2);
    let Some(Reply::Group { instance: -1, .. }) = world.ask(THREE, Request::Group(text("g"))) else { panic!() };
    let Some(Reply::Group { instance: 1, .. }) = world.ask(TWO, Request::Group(text("g"))) else { panic!() };
    assert_eq!(world.board().shown[2..], [(THREE, false), (TWO, true)]);
}

#[test]
fn a_group_ends_with_its_last_member_and_begins_anew() {
    let mut world = group_of(2);
    world.disconnects(ONE);
    world.leave(TWO, "g");
    assert!(world.boards.boards.is_empty());
    assert_eq!(world.ask(TWO, Request::Group(text("g"))), Some(Reply::Error(Code::NoGroup)));
    assert_eq!(world.join(THREE, "g"), Ok(0));
}

#[test]
fn without_memory_nobody_joins() {
    let mut world = World::new();
    world.tasks(1);
    world.boards.exhausted = true;
    assert_eq!(world.join(ONE, "g"), Err(Code::OutOfRes));
    assert_eq!(world.leave(ONE, "g"), Some(Reply::Error(Code::NoGroup)));
    world.boards.exhausted = false;
    assert_eq!(world.join(ONE, "g"), Ok(0));
}

#[test]
fn those_who_ask_before_the_memory_is_there_get_their_answers() {
    let mut world = World::new();
    world.tasks(3);
    for tid in [ONE, TWO, ONE, THREE] {
        let request = Request::JoinGroup(text("g"));
        world.machine.handle_frame(NOW, tid, ToDaemon::Request { wait: 42, request });
    }
    let leave = Request::LeaveGroup(text("g"));
    world.machine.handle_frame(NOW, TWO, ToDaemon::Request { wait: 42, request: leave });
    world.machine.handle_disconnect(THREE);
    world.run();
    let group = |instance| Reply::Group { id: 1, instance };
    assert_eq!(world.replies(ONE), [group(0), Reply::Error(Code::DupGroup)]);
    assert_eq!(world.replies(TWO), [Reply::Error(Code::NoGroup), group(1)]);
    assert_eq!(world.board().members.len(), 2);
}

#[test]
fn a_task_that_ends_leaves_all_its_groups() {
    let mut world = group_of(3);
    world.join(TWO, "h").unwrap();
    world.machine.handle_frame(NOW, TWO, ToDaemon::Bye);
    world.run();
    assert_eq!(world.boards.boards.len(), 1);
    assert_eq!(world.board().members, BTreeMap::from([(0, ONE), (2, THREE)]));
}

#[test]
fn members_freeze_a_group_together() {
    let mut world = group_of(3);
    assert_eq!(world.freeze(ONE, "g", 3), None);
    assert_eq!(world.freeze(TWO, "g", 2), Some(Reply::Error(Code::Mismatch)));
    assert_eq!(world.freeze(TWO, "g", -1), None);
    assert_eq!(world.freeze(THREE, "g", 3), Some(Reply::Int(3)));
    assert_eq!([world.replies(ONE), world.replies(TWO)], [[Reply::Int(3)], [Reply::Int(3)]]);
    assert_eq!(world.board().state, [GroupAction::Freeze]);
    assert_eq!(world.freeze(ONE, "g", 3), Some(Reply::Error(Code::DupGroup)));
    assert_eq!(world.freeze(FOUR, "g", 3), Some(Reply::Error(Code::DupGroup)));
    assert_eq!(world.join(FOUR, "g"), Err(Code::NotInGroup));
}

#[test]
fn a_frozen_group_breaks_when_a_member_goes() {
    let mut world = group_of(3);
    [ONE, TWO, THREE].into_iter().for_each(|tid| drop(world.freeze(tid, "g", 3)));
    world.arrive(0, 2, 3);
    world.disconnects(TWO);
    assert_eq!(world.board().state, [GroupAction::Freeze, GroupAction::Break]);
    assert_eq!(world.board().failed, [0], "though two members are enough");
    assert_eq!(world.join(FOUR, "g"), Err(Code::NotInGroup));
    assert_eq!(world.leave(ONE, "g"), Some(Reply::Done));
    assert_eq!(world.leave(THREE, "g"), Some(Reply::Done));
    assert_eq!(world.join(FOUR, "g"), Ok(0), "a new group of the name");
}

#[test]
fn a_freeze_waits_for_joiners_but_not_for_the_dead() {
    let mut world = group_of(2);
    assert_eq!(world.freeze(ONE, "g", 3), None);
    assert_eq!(world.freeze(TWO, "g", 3), None);
    assert_eq!(world.join(THREE, "g"), Ok(2));
    world.disconnects(THREE);
    assert_eq!(world.replies(ONE), [Reply::Error(Code::NoTask)]);
    assert_eq!(world.replies(TWO), [Reply::Error(Code::NoTask)]);
    // A new freeze fails, too: it still lacks one member.
    assert_eq!(world.freeze(ONE, "g", 3), Some(Reply::Error(Code::NoTask)));
    let four = world.task();
    assert_eq!(world.join(four, "g"), Ok(2));
    assert_eq!(world.freeze(ONE, "g", 3), None);
    world.disconnects(ONE);
    assert_eq!(world.freeze(TWO, "g", 2), None, "the dead one's count is forgotten");
    assert_eq!(world.freeze(four, "g", 2), Some(Reply::Int(2)));
}

#[test]
fn a_barrier_fails_when_one_who_has_not_arrived_goes() {
    for dies in [true, false] {
        let mut world = group_of(3);
        world.arrive(0, 3, 3);
        match dies {
            true => world.disconnects(THREE),
            false => drop(world.leave(THREE, "g")),
        }
        assert_eq!(world.board().failed, [0]);
        // Members that arrive later at the same barrier do not hang either.
        world.arrive(1, 3, 2);
        assert_eq!(world.board().failed, [0, 1]);
        // The group remains usable: with a smaller count, and again with a third member.
        world.arrive(0, 2, 2);
        world.arrive(1, 2, 2);
        assert_eq!(world.join(FOUR, "g"), Ok(2));
        (0..3).for_each(|member| assert_eq!(world.arrive(member, 3, 3), 3));
        assert_eq!(world.board().failed, [0, 1]);
    }
}

#[test]
fn one_who_has_arrived_may_die() {
    let mut world = group_of(3);
    world.arrive(0, 3, 3);
    world.disconnects(ONE);
    assert_eq!(world.arrive(1, 3, 3), 0);
    world.arrive(2, 3, 3);
    assert_eq!((world.board().failed.len(), world.board().generation), (0, 1));
}

#[test]
fn a_barrier_for_more_than_the_group_waits_for_joiners() {
    let mut world = group_of(2);
    world.arrive(0, 4, 2);
    world.arrive(1, 4, 2);
    assert_eq!(world.join(THREE, "g"), Ok(2));
    world.leave(THREE, "g");
    assert_eq!(world.machine.next_wakeup(), None);
    assert_eq!(world.join(THREE, "g"), Ok(2));
    let four = world.task();
    assert_eq!(world.join(four, "g"), Ok(3));
    world.arrive(2, 4, 4);
    world.arrive(3, 4, 4);
    assert_eq!((world.board().failed.len(), world.board().generation), (0, 1));
}

#[test]
fn a_barrier_that_began_short_of_the_dead_waits_for_others_for_a_while() {
    let mut world = group_of(3);
    world.disconnects(THREE);
    world.arrive(0, 3, 2);
    world.arrive(1, 3, 2);
    assert_eq!(world.machine.next_wakeup(), Some(NOW + PATIENCE));
    world.time(NOW + PATIENCE / 2);
    assert_eq!(world.board().failed, []);
    assert_eq!(world.join(FOUR, "g"), Ok(2));
    world.arrive(2, 3, 3);
    assert_eq!(world.board().generation, 1);
    // No substitute joins.
    world.disconnects(FOUR);
    world.arrive(0, 3, 2);
    world.time(NOW + PATIENCE);
    assert_eq!(world.board().failed, [1]);
    world.arrive(1, 3, 2);
    assert_eq!(world.board().failed, [1, 2], "at once");
    assert_eq!(world.machine.next_wakeup(), None);
}

#[test]
fn one_that_goes_just_before_an_arrival_is_noticed_by_the_arrival() {
    let mut world = group_of(3);
    world.leave(THREE, "g");
    // The group had three members when this member decided to wait for all.
    world.arrive(0, 3, 3);
    assert_eq!(world.board().failed, [0]);
}

#[test]
fn while_somebody_is_arriving_the_daemon_looks_again() {
    let mut world = group_of(3);
    world.board().in_doubt = true;
    world.arrive(0, 3, 3);
    world.disconnects(THREE);
    assert_eq!(world.board().failed, []);
    let when = world.machine.next_wakeup().expect("looks again");
    assert!(when > NOW && when < NOW + Duration::from_millis(100));
    world.board().in_doubt = false;
    world.time(when);
    assert_eq!(world.board().failed, [0]);
    assert_eq!(world.machine.next_wakeup(), None);
}

#[test]
fn a_barrier_that_changes_while_it_is_made_to_fail_is_looked_at_again() {
    for frozen in [false, true] {
        let mut world = group_of(3);
        if frozen {
            [ONE, TWO, THREE].into_iter().for_each(|tid| drop(world.freeze(tid, "g", 3)));
        }
        world.arrive(0, 3, 3);
        world.board().restless = true;
        world.disconnects(THREE);
        let when = world.machine.next_wakeup().expect("looks again");
        assert!(when > NOW);
        world.time(when);
        assert!(world.machine.next_wakeup() > Some(when));
        world.board().restless = false;
        world.time(when + when);
        assert_eq!(world.board().failed, [0]);
        assert_eq!(world.machine.next_wakeup(), None);
    }
}

#[test]
fn strangers_cannot_have_a_barrier_looked_at() {
    let mut world = group_of(2);
    world.board().arrive(0, 5).unwrap();
    for (tid, group) in [(THREE, 1), (ONE, 2)] {
        world.machine.handle_frame(NOW, tid, ToDaemon::CheckBarrier { group, size: 5 });
        world.run();
    }
    assert_eq!(world.board().failed, []);
    world.machine.handle_frame(NOW, ONE, ToDaemon::CheckBarrier { group: 1, size: 5 });
    world.run();
    assert_eq!(world.board().failed, [0]);
}
