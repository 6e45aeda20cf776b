use super::*;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};

fn member(memory: &GroupMemory) -> GroupView {
    let copy = |descriptor: std::os::fd::BorrowedFd<'_>| descriptor.try_clone_to_owned().unwrap();
    GroupView::open(copy(memory.membership_page()), Some(copy(memory.barrier_page()))).unwrap()
}

fn stranger(memory: &GroupMemory) -> GroupView {
    GroupView::open(memory.membership_page().try_clone_to_owned().unwrap(), None).unwrap()
}

/// Returns a group of that many members, whose tids begin at 100.
fn group(members: u32) -> (GroupMemory, Vec<GroupView>) {
    let memory = GroupMemory::new().unwrap();
    (0..members).for_each(|instance| memory.set(instance, 100 + instance));
    let views = (0..members).map(|_| member(&memory)).collect();
    (memory, views)
}

#[test]
fn everybody_sees_who_the_members_are() {
    let memory = GroupMemory::new().unwrap();
    let view = stranger(&memory);
    assert!(!view.has_barrier_page() && member(&memory).has_barrier_page());
    assert_eq!((view.size(), view.places(), view.tid_of(0), view.instance_of(100)), (0, 0, None, None));
    (0..3).for_each(|instance| memory.set(instance, 100 + instance));
    let before = view.version();
    memory.clear(1);
    assert_ne!(view.version(), before);
    assert_eq!((view.size(), view.places()), (2, 3));
    assert_eq!(view.members(), [(0, 100), (2, 102)]);
    assert_eq!((view.tid_of(1), view.instance_of(102), view.instance_of(0)), (None, Some(2), None));
    memory.clear(2);
    assert_eq!((view.size(), view.places()), (1, 1));
    memory.set(MEMBERS_MAX as u32 - 1, 7);
    assert_eq!(view.instance_of(7), Some(MEMBERS_MAX as u32 - 1));
    assert_eq!(view.tid_of(MEMBERS_MAX as u32), None);
    assert!(!view.is_frozen() && !view.is_closed());
    memory.freeze();
    memory.close();
    assert!(view.is_frozen() && view.is_closed());
}

#[test]
fn a_frozen_group_remembers_who_has_gone() {
    let memory = GroupMemory::new().unwrap();
    let view = stranger(&memory);
    (0..4).for_each(|instance| memory.set(instance, 100 + instance));
    memory.clear(2);
    memory.freeze();
    memory.clear(3);
    memory.clear(0);
    memory.break_up();
    assert_eq!((view.size(), view.members()), (1, vec![(1, 101)]));
    assert_eq!((view.tid_of(0), view.tid_of(1), view.instance_of(103)), (None, Some(101), None));
    assert_eq!(view.frozen_members(), [(0, 100), (1, 101), (3, 103)]);
    assert!(memory.sleepers().is_empty());
    assert_eq!(memory.look().absent, 1);
    memory.clear(0);
    assert_eq!(view.size(), 1);
}

#[test]
fn a_task_cannot_write_the_list_nor_take_another_file_for_one() {
    let memory = GroupMemory::new().unwrap();
    let membership = memory.membership_page().try_clone_to_owned().unwrap();
    let both = rustix::mm::ProtFlags::READ | rustix::mm::ProtFlags::WRITE;
    assert!(layout::Mapped::<layout::MembershipPage>::open(&membership, both).is_err());
    assert!(GroupView::open(memory.barrier_page().try_clone_to_owned().unwrap(), None).is_err());
    let other = rustix::fs::memfd_create("x", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    assert!(GroupView::open(membership, Some(other)).is_err());
}

#[test]
fn a_barrier_opens_with_the_last_arrival() {
    let (_memory, views) = group(3);
    for generation in 0..200 {
        for (instance, view) in (0..).zip(&views) {
            let arrival = view.arrive(instance, 3).unwrap();
            assert_eq!(arrival, Arrival { generation, last: instance == 2, short: false });
            let open = views[0].passed(generation).is_some();
            assert_eq!(open, arrival.last);
        }
        assert!(views.iter().all(|view| view.passed(generation) == Some(Ok(()))));
    }
    assert!(views[1].arrive(1, 1).unwrap().last, "one alone is enough for one");
}

#[test]
fn another_count_is_refused_and_harms_nobody() {
    let (memory, views) = group(3);
    views[0].arrive(0, 2).unwrap();
    assert_eq!(views[1].arrive(1, 3), Err(Refused::Mismatch));
    assert_eq!(memory.look().absent, 2);
    assert!(views[2].arrive(2, 2).unwrap().last);
    assert_eq!(views[0].passed(0), Some(Ok(())));
    // The refused member now arrives at generation 1, although it still guesses generation 0.
    assert_eq!(views[1].arrive(1, 3).unwrap().generation, 1);
}

#[test]
fn a_failure_is_told_to_the_waiters_of_that_barrier_alone() {
    let (memory, views) = group(3);
    for (generation, fails) in [(0, false), (1, true), (2, false), (3, true)] {
        views[0].arrive(0, 3).unwrap();
        let stale = memory.look().pending;
        views[1].arrive(1, 3).unwrap();
        assert!(!memory.fail(stale), "somebody has arrived meanwhile");
        match fails {
            true => assert!(memory.fail(memory.look().pending)),
            false => assert!(views[2].arrive(2, 3).unwrap().last),
        }
        assert_eq!(views[0].passed(generation), Some(if fails { Err(Failed) } else { Ok(()) }));
    }
    assert_eq!(views[1].passed(1), Some(Err(Failed)), "also much later");
    assert_eq!(views[1].passed(2), Some(Ok(())));
}

#[test]
fn the_daemon_sees_who_is_missing() {
    let (memory, views) = group(4);
    assert_eq!(memory.look(), Look { pending: memory.look().pending, absent: 4, arriving: 0 });
    views[3].arrive(3, 4).unwrap();
    views[1].arrive(1, 4).unwrap();
    assert_eq!(memory.waiting(), (4, vec![101, 103]));
    let look = memory.look();
    assert_eq!((look.pending.need, look.pending.arrived, look.absent), (4, 2, 2));
    // If a member that has arrived leaves, the number of missing members stays the same. If a member that has not
    // arrived leaves, that number falls by one.
    memory.clear(3);
    assert_eq!(memory.look().absent, 2);
    memory.clear(0);
    assert_eq!(memory.look().absent, 1);
    // A new member in the place of an old one has not arrived.
    memory.set(3, 200);
    assert_eq!(memory.look().absent, 2);
}

#[test]
fn an_arrival_learns_that_the_group_is_too_small_or_gone() {
    let (memory, views) = group(2);
    assert!(views[0].arrive(0, 3).unwrap().short);
    memory.break_up();
    assert!(views[1].is_broken() && !views[1].is_closed());
    assert_eq!(views[1].arrive(1, 3), Err(Refused::Closed));
    assert_eq!(stranger(&memory).arrive(0, 1), Err(Refused::NotMember));
    assert_eq!(stranger(&memory).passed(0), Some(Err(Failed)));
}

#[test]
fn no_group_is_as_large_as_the_largest_need() {
    let (_memory, views) = group(2);
    assert!(!views[0].arrive(0, 70_000).unwrap().last);
    assert_eq!(views[1].arrive(1, 70_001).map(|arrival| arrival.last), Ok(false));
}

#[test]
fn those_asleep_are_known_to_releaser_and_daemon() {
    let (memory, views) = group(4);
    let arrive = |member: usize| views[member].arrive(member as u32, 4).unwrap();
    (0..3).for_each(|member| assert!(!arrive(member).last));
    views[1].prepare_park(1);
    views[2].prepare_park(2);
    views[2].unpark(2);
    let last = arrive(3);
    assert_eq!(views[3].sleepers(last.generation), [101]);
    assert_eq!(memory.sleepers(), [101]);
    views[1].unpark(1);
    // A member that slept at an old barrier is no sleeper of the next one.
    (0..4).for_each(|member| assert_eq!(arrive(member).generation, 1));
    assert_eq!(views[3].sleepers(1), [0; 0]);
}

#[test]
fn a_barrier_page_full_of_nonsense_breaks_no_memory_and_hangs_nobody() {
    use crate::sync::AtomicU64;
    let (memory, views) = group(2);
    let barrier_page = memory.barrier_page().try_clone_to_owned().unwrap();
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    let hits = AtomicU64::new(0);
    for round in 0..20_000 {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        // The words of the barrier lie in the first cache lines, the slots behind them.
        let word = if round % 3 == 0 { seed & 0xffff_ffff_0003_0003 } else { seed };
        rustix::io::pwrite(&barrier_page, &word.to_ne_bytes(), 64 + seed % 100 * 8).unwrap();
        let look = memory.look();
        assert!(look.absent <= 2);
        if let Ok(arrival) = views[0].arrive(0, 1 + seed as u32 % 3) {
            hits.fetch_add(1, Ordering::Relaxed);
            let _ = views[0].passed(arrival.generation);
            let _ = views[0].sleepers(arrival.generation);
        }
        views[1].prepare_park(1);
        assert!(memory.sleepers().iter().all(|tid| [100, 101].contains(tid)));
        memory.fail(memory.look().pending);
    }
    assert!(hits.into_inner() > 1000);
}

/// Threads stand for tasks; some barriers are made to fail at random moments. All waiters of a
/// barrier must agree on its fate, and none may pass before all have arrived.
#[test]
fn under_load_all_waiters_agree() {
    const MEMBERS: u32 = 4;
    const GENERATIONS: u32 = if cfg!(one_mapping) { 4_000 } else { 20_000 };
    let (memory, views) = group(MEMBERS);
    let arrived: Vec<AtomicUsize> = (0..GENERATIONS).map(|_| AtomicUsize::new(0)).collect();
    let arrived = &arrived;
    let live = |instance: u32, view: GroupView| {
        let mut fates = Vec::new();
        loop {
            let generation = view.arrive(instance, MEMBERS).unwrap().generation;
            let Some(count) = arrived.get(generation as usize) else { return fates };
            count.fetch_add(1, Ordering::SeqCst);
            let fate = loop {
                match view.passed(generation) {
                    Some(fate) => break fate.is_ok(),
                    None => std::thread::yield_now(),
                }
            };
            fates.push((generation, fate));
        }
    };
    let (fates, failures) = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..).zip(views).map(|(i, view)| scope.spawn(move || live(i, view))).collect();
        let mut failures = BTreeSet::new();
        loop {
            let look = memory.look();
            if look.pending.generation >= GENERATIONS {
                break;
            }
            // Only every fifth barrier may fail. All others open only when all four members have arrived, so no member
            // falls so far behind that it misses more failures than the barrier remembers.
            if look.pending.generation % 5 == 0 && look.pending.need > 0 && memory.fail(look.pending) {
                failures.insert(look.pending.generation);
            }
            std::thread::yield_now();
        }
        (threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect::<Vec<_>>(), failures)
    });
    assert!(!failures.is_empty() && failures.len() < GENERATIONS as usize);
    for (generation, passed) in fates {
        assert_eq!(passed, !failures.contains(&generation));
        assert_eq!(passed, arrived[generation as usize].load(Ordering::SeqCst) == MEMBERS as usize);
    }
}

#[test]
fn a_list_is_read_as_it_was_at_one_moment() {
    let memory = GroupMemory::new().unwrap();
    let view = stranger(&memory);
    let stop = &AtomicUsize::new(0);
    memory.set(0, 1);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            // One member at a time, each time under another instance number.
            for round in 1..20_000_u32 {
                memory.set(round % 50, round + 1);
                memory.clear((round - 1) % 50);
            }
            stop.store(1, Ordering::Relaxed);
        });
        while stop.load(Ordering::Relaxed) == 0 {
            let members = view.members();
            assert!((1..=2).contains(&members.len()), "{members:?}");
        }
    });
}

#[test]
fn arrivals_that_are_taken_wait_until_they_are_released() {
    for opened in [true, false] {
        let (memory, views) = group(3);
        let waiting = views[0].arrive(0, 3).unwrap();
        let taken = memory.take();
        assert_eq!((taken.pending.need, taken.pending.arrived), (3, 1));
        assert_eq!((taken.arrived_members.as_slice(), taken.maybe_arrived.len()), (&[100][..], 0));
        assert_eq!(views[1].arrive(1, 3), Err(Refused::Elsewhere));
        assert_eq!(memory.take().pending.need, 0, "they are taken once");
        assert_eq!(views[0].passed(waiting.generation), None);
        assert_eq!(memory.look().pending.need, 0);
        memory.release(opened);
        assert_eq!(views[0].passed(waiting.generation), Some(if opened { Ok(()) } else { Err(Failed) }));
        assert_eq!(views[0].arrive(0, 3), Err(Refused::Elsewhere));
        memory.reopen();
        (0..3).for_each(|member| assert!(views[member as usize].arrive(member, 3).is_ok()));
        assert_eq!(memory.look().pending.arrived, 0);
    }
}
