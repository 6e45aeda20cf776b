//! The barrier under loom.
use super::barrier::{ArrivalState, Barrier, Failed, MemberSlot, fence_after_exchange};
use crate::sync::{AtomicU32, Ordering, fence};
use loom::sync::Arc;
use loom::thread;

struct Shared {
    barrier: Barrier,
    slots: [MemberSlot; 3],
    /// What members write before they arrive.
    data: [AtomicU32; 3],
    rung: AtomicU32,
}

fn shared() -> Arc<Shared> {
    Arc::new(Shared {
        barrier: Barrier::new(),
        slots: std::array::from_fn(|_| MemberSlot::new()),
        data: std::array::from_fn(|_| AtomicU32::new(0)),
        rung: AtomicU32::new(0),
    })
}

#[test]
fn who_passes_sees_what_all_did_before() {
    loom::model(|| {
        let shared = shared();
        let member = |shared: &Shared, me: usize| {
            shared.data[me].store(1, Ordering::Relaxed);
            let arrival = shared.barrier.arrive(&shared.slots[me], 2, 0).unwrap();
            if shared.barrier.passed(arrival.generation) == Some(Ok(())) {
                assert_eq!(shared.data[1 - me].load(Ordering::Relaxed), 1);
            }
            arrival.last
        };
        let there = shared.clone();
        let other = thread::spawn(move || member(&there, 1));
        let last = member(&shared, 0);
        assert!(last != other.join().unwrap(), "one of the two is the last");
        assert_eq!(shared.barrier.passed(0), Some(Ok(())));
    });
}

#[test]
fn a_barrier_either_opens_or_fails_for_all() {
    loom::model(|| {
        let shared = shared();
        let first = shared.barrier.arrive(&shared.slots[0], 2, 0).unwrap();
        let there = shared.clone();
        let daemon = thread::spawn(move || {
            let seen = there.barrier.pending();
            seen.need != 0 && there.barrier.fail(seen)
        });
        let second = shared.barrier.arrive(&shared.slots[1], 2, 0).unwrap();
        let early = shared.barrier.passed(0);
        let failed = daemon.join().unwrap();
        let fate = if failed && second.generation == 1 { Err(Failed) } else { Ok(()) };
        assert_eq!(shared.barrier.passed(first.generation), Some(fate));
        assert!(early.is_none() || early == Some(fate), "a waiter saw another fate");
        assert_eq!(second.last, second.generation == 0);
    });
}

#[test]
fn no_waiter_sleeps_for_ever() {
    loom::model(|| {
        let shared = shared();
        let there = shared.clone();
        let releaser = thread::spawn(move || {
            let arrival = there.barrier.arrive(&there.slots[1], 2, 0).unwrap();
            if arrival.last && there.barrier.has_sleepers(arrival.generation) && there.slots[0].is_asleep() {
                there.rung.store(1, Ordering::Relaxed);
            }
            arrival.last
        });
        let arrival = shared.barrier.arrive(&shared.slots[0], 2, 0).unwrap();
        let sleeps = !arrival.last && {
            shared.barrier.prepare_park(&shared.slots[0]);
            shared.barrier.passed(arrival.generation).is_none()
        };
        let released = releaser.join().unwrap();
        assert!(!sleeps || !released || shared.rung.load(Ordering::Relaxed) == 1);
    });
}

/// A late sleeper of an old generation must not hide a sleeper of the new generation.
#[test]
fn a_late_sleeper_hides_nobody() {
    loom::model(|| {
        let shared = shared();
        let there = shared.clone();
        let late = thread::spawn(move || there.barrier.prepare_park(&there.slots[2]));
        // Generation 0 opens, member 0 sleeps in generation 1, which then opens.
        shared.barrier.arrive(&shared.slots[0], 1, 0).unwrap();
        shared.barrier.arrive(&shared.slots[0], 2, 1).unwrap();
        shared.barrier.prepare_park(&shared.slots[0]);
        let last = shared.barrier.arrive(&shared.slots[1], 2, 1).unwrap();
        assert!(last.last && shared.barrier.has_sleepers(last.generation));
        late.join().unwrap();
        assert!(shared.barrier.has_sleepers(last.generation));
    });
}

/// A member leaves while another one arrives: either the one that arrives sees the smaller group and notifies the
/// daemon, or the daemon, which checks the barrier after the change, sees the arrival.
#[test]
fn no_arrival_is_hidden_from_a_change_of_members() {
    loom::model(|| {
        let shared = shared();
        let there = shared.clone();
        let daemon = thread::spawn(move || {
            there.data[0].store(1, Ordering::Relaxed);
            fence(Ordering::SeqCst);
            there.barrier.pending().need != 0
        });
        shared.barrier.arrive(&shared.slots[0], 2, 0).unwrap();
        fence_after_exchange();
        let changed = shared.data[0].load(Ordering::Relaxed) == 1;
        assert!(daemon.join().unwrap() || changed);
    });
}

/// The daemon counts the missing members: a member whose arrival it sees is not among them.
#[test]
fn whose_arrival_counts_is_not_missing() {
    loom::model(|| {
        let shared = shared();
        let there = shared.clone();
        let member = thread::spawn(move || there.barrier.arrive(&there.slots[0], 2, 0).unwrap());
        let pending = shared.barrier.pending();
        if pending.arrived == 1 {
            assert_ne!(shared.slots[0].arrival_state(pending.generation), ArrivalState::Away);
        }
        member.join().unwrap();
        assert_eq!(shared.slots[0].arrival_state(0), ArrivalState::Arrived);
    });
}

#[test]
fn what_is_taken_and_what_has_opened_are_all_that_arrived() {
    loom::model(|| {
        let shared = shared();
        let members: Vec<_> = (0..2)
            .map(|me| {
                let there = shared.clone();
                thread::spawn(move || there.barrier.arrive(&there.slots[me], 2, 0))
            })
            .collect();
        let taken = shared.barrier.take();
        let arrivals: Vec<_> = members.into_iter().map(|member| member.join().unwrap()).collect();
        let arrived = arrivals.iter().filter(|arrival| arrival.is_ok()).count();
        match taken.generation {
            0 => assert_eq!(usize::from(taken.arrived), arrived),
            _ => assert_eq!((taken.need, arrived), (0, 2)),
        }
        for arrival in arrivals.iter().flatten() {
            assert_eq!(shared.barrier.passed(arrival.generation).is_none(), taken.generation == 0);
        }
        shared.barrier.release(true);
        for arrival in arrivals.iter().flatten() {
            assert_eq!(shared.barrier.passed(arrival.generation), Some(Ok(())));
        }
        shared.barrier.reopen();
        assert!(shared.barrier.arrive(&shared.slots[2], 2, 0).is_ok());
    });
}
