use super::*;
use crate::ANY;
use crate::test_daemon::{TestDaemon, enrolled};
use pvm_core::proto::{Reply, ToTask};
use pvm_fmp::GroupMemory;

/// The group's number at the daemon.
const ID: u64 = 9;

/// A task that knows the group, and its daemon.
struct Side {
    task: Task,
    daemon: TestDaemon,
    group: Group,
}

impl Side {
    /// Returns a task that knows the group: the member with the given instance; without an instance, a task that is no
    /// member and has only asked for the group.
    fn new(memory: &GroupMemory, tid: Tid, instance: Option<u32>) -> Side {
        let (mut task, mut daemon) = enrolled(tid);
        if let Some(instance) = instance {
            memory.set(instance, tid.0);
        }
        let all = [memory.membership_page(), memory.barrier_page()];
        let shown = if instance.is_some() { &all[..] } else { &all[..1] };
        daemon.send(&mut task, &ToTask::Group { id: ID }, shown);
        let reply = Reply::Group { id: ID, instance: instance.map_or(-1, |instance| instance as i32) };
        let group = task.enter_group(b"group", reply).unwrap();
        Side { task, daemon, group }
    }

    fn arrive(&mut self, count: i32) -> Result<BarrierArrival, Code> {
        self.task.begin_barrier(&self.group, count)
    }

    fn waits(&self) -> usize {
        self.task.member.as_ref().unwrap().groups.waiters.len()
    }
}

/// Returns a group whose members are all on one host.
fn group(members: u32) -> (GroupMemory, Vec<Side>) {
    let memory = GroupMemory::new().unwrap();
    let side = |instance| Side::new(&memory, Tid(0x40001 + instance), Some(instance));
    let sides = (0..members).map(side).collect();
    (memory, sides)
}

fn rings(daemon: &mut TestDaemon) -> Vec<Tid> {
    let ring = |frame: ToDaemon| if let ToDaemon::Ring(tid) = frame { Some(tid) } else { None };
    daemon.frames().into_iter().filter_map(ring).collect()
}

#[test]
fn a_barrier_opens_with_its_last_arrival_and_again() {
    let (_memory, mut sides) = group(3);
    for count in [ALL, 3, ALL] {
        let first: Vec<BarrierArrival> = sides[1..].iter_mut().map(|side| side.arrive(count).unwrap()).collect();
        for (side, arrival) in sides[1..].iter_mut().zip(&first) {
            assert_eq!(side.task.poll_barrier(arrival), None);
            assert_eq!(side.waits(), 1);
        }
        let last = sides[0].arrive(count).unwrap();
        assert_eq!(sides[0].task.poll_barrier(&last), Some(Ok(())));
        assert_eq!(sides[0].waits(), 0, "the last arrival does not wait");
        for (side, arrival) in sides[1..].iter_mut().zip(first) {
            assert_eq!(side.task.poll_barrier(&arrival), Some(Ok(())));
            side.task.end_barrier(arrival);
            assert_eq!(side.waits(), 0);
        }
        sides[0].task.end_barrier(last);
    }
}

#[test]
fn a_barrier_may_need_fewer_than_all_members() {
    let (_memory, mut sides) = group(3);
    let one = sides[2].arrive(2).unwrap();
    assert_eq!(sides[0].arrive(3).err(), Some(Code::Mismatch));
    assert_eq!(sides[0].arrive(ALL).err(), Some(Code::Mismatch));
    let two = sides[0].arrive(2).unwrap();
    assert_eq!(sides[2].task.poll_barrier(&one), Some(Ok(())));
    assert_eq!(sides[0].task.poll_barrier(&two), Some(Ok(())));
}

#[test]
fn who_may_not_arrive_is_refused() {
    let (memory, mut sides) = group(2);
    for count in [0, -2, i32::MIN] {
        assert_eq!(sides[0].arrive(count).err(), Some(Code::BadParam));
    }
    let mut outsider = Side::new(&memory, Tid(0x40009), None);
    assert_eq!(outsider.arrive(ALL).err(), Some(Code::NotInGroup));
    let side = &mut sides[0];
    side.task.add_handler(ANY, 5, ANY, 1).unwrap();
    assert!(side.task.psend(0x40001, 5, b"").is_ok());
    assert!(side.task.next_handler_call().is_some());
    assert_eq!(side.arrive(ALL).err(), Some(Code::NotImpl));
    side.task.handler_done();
    assert!(side.arrive(ALL).is_ok());
    memory.close();
    assert_eq!(sides[1].arrive(ALL).err(), Some(Code::NoGroup));
    let side = &mut sides[1];
    side.daemon.die(&mut side.task);
    assert_eq!(side.arrive(ALL).err(), Some(Code::SysErr));
}

#[test]
fn the_last_to_arrive_rings_the_members_that_sleep() {
    let (_memory, mut sides) = group(3);
    let _awake = sides[0].arrive(ALL).unwrap();
    let _asleep = sides[1].arrive(ALL).unwrap();
    sides[1].task.prepare_park();
    assert_eq!(rings(&mut sides[1].daemon), []);
    let _last = sides[2].arrive(ALL).unwrap();
    assert_eq!(rings(&mut sides[2].daemon), [Tid(0x40002)]);
    sides[1].task.unpark();
    let _again = sides[1].arrive(2).unwrap();
    let _last = sides[2].arrive(2).unwrap();
    assert_eq!(rings(&mut sides[2].daemon), [], "nobody sleeps any more");
}

#[test]
fn a_wait_that_begins_while_another_thread_sleeps_is_rung_too() {
    let (_memory, mut sides) = group(2);
    sides[0].task.prepare_park();
    let _sleep = sides[0].task.park(None);
    sides[0].task.take_sleeper_for_another();
    let _arrival = sides[0].arrive(ALL).unwrap();
    let _last = sides[1].arrive(ALL).unwrap();
    assert_eq!(rings(&mut sides[1].daemon), [Tid(0x40001)]);
}

#[test]
fn the_daemon_is_told_when_a_barrier_needs_more_than_there_are() {
    let (_memory, mut sides) = group(2);
    let arrival = sides[0].arrive(3).unwrap();
    assert_eq!(sides[0].daemon.frames(), [ToDaemon::CheckBarrier { group: ID, size: 2 }]);
    assert_eq!(sides[0].task.poll_barrier(&arrival), None);
    let _second = sides[1].arrive(3).unwrap();
    assert_eq!(sides[1].daemon.frames().len(), 1);
}

#[test]
fn members_of_several_hosts_arrive_through_their_daemons() {
    let (memory, mut sides) = group(2);
    memory.take();
    let side = &mut sides[0];
    let arrivals = [3, ALL, 2].map(|count| side.arrive(count).unwrap());
    assert_eq!(side.waits(), 0, "the daemon replies");
    let requests = side.daemon.requests();
    let counts = [3, ALL, 2].map(|count| Request::Barrier { group: ID, count });
    assert_eq!(requests.iter().map(|(_, request)| request.clone()).collect::<Vec<_>>(), counts);
    let [one, two, three] = arrivals;
    assert_eq!(side.task.poll_barrier(&one), None);
    side.daemon.reply(&mut side.task, requests[0].0, Reply::Done);
    side.daemon.reply(&mut side.task, requests[1].0, Reply::Error(Code::NoTask));
    assert_eq!(side.task.poll_barrier(&one), Some(Ok(())));
    assert_eq!(side.task.poll_barrier(&two), Some(Err(Code::NoTask)));
    [one, two, three].into_iter().for_each(|arrival| side.task.end_barrier(arrival));
    side.daemon.reply(&mut side.task, requests[2].0, Reply::Done);
    assert_eq!(side.task.member.as_ref().unwrap().requests.len(), 0, "the wait was given up");
}

#[test]
fn a_barrier_that_a_dead_member_keeps_shut_fails() {
    for (frozen, code) in [(false, Code::NoTask), (true, Code::NoGroup)] {
        let (memory, mut sides) = group(2);
        if frozen {
            memory.freeze();
        }
        let arrival = sides[0].arrive(2).unwrap();
        memory.clear(1);
        assert!(memory.fail(memory.look().pending));
        assert_eq!(sides[0].task.poll_barrier(&arrival), Some(Err(code)));
        sides[0].task.end_barrier(arrival);
        assert_eq!(sides[0].waits(), 0);
    }
}

#[test]
fn a_wait_does_not_outlive_the_daemon() {
    let (_memory, mut sides) = group(2);
    let side = &mut sides[0];
    let arrival = side.arrive(ALL).unwrap();
    side.daemon.die(&mut side.task);
    assert_eq!(side.task.poll_barrier(&arrival), Some(Err(Code::SysErr)), "nobody would notice a death");
    let opened = side.group.0.view.passed(0).is_some();
    assert!(!opened);
}

#[test]
fn only_tasks_of_this_host_are_rung() {
    let (_memory, mut sides) = group(1);
    let side = &mut sides[0];
    for tid in [0x40001, 0x80001] {
        side.task.wake(tid);
    }
    assert_eq!(rings(&mut side.daemon), []);
    side.task.wake(0x40005);
    assert_eq!(rings(&mut side.daemon), [Tid(0x40005)]);
}
