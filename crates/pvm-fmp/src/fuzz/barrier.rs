//! Untrusted input: what a member of a group writes to the barrier page.
use super::VICTIM;
use crate::group::{Failed, GroupMemory, GroupView};
use pvm_fuzz::Unstructured;

/// Lets one member write anything to the barrier page, while another member and the daemon use the page correctly.
pub(super) fn group_barrier(bytes: &[u8]) {
    let _ = on_the_barrier_page(&mut Unstructured::new(bytes));
}

fn on_the_barrier_page(from: &mut Unstructured<'_>) -> pvm_fuzz::Result<()> {
    let memory = GroupMemory::new().expect("memory for a group");
    for instance in 0..4 {
        memory.set(instance, VICTIM + instance);
    }
    let clone = |descriptor: std::os::fd::BorrowedFd<'_>| descriptor.try_clone_to_owned().expect("a descriptor");
    let barrier_page = clone(memory.barrier_page());
    let view = GroupView::open(clone(memory.membership_page()), Some(clone(memory.barrier_page()))).expect("a group");
    let outside = GroupView::open(clone(memory.membership_page()), None).expect("a group");
    let mut arrived = 0;
    while !from.is_empty() {
        match from.arbitrary::<u8>()? % 14 {
            0..=3 => {
                let at = u64::from(from.arbitrary::<u16>()?) % 1024 * 8;
                let value: u64 = match from.arbitrary::<u8>()? % 4 {
                    0 => from.arbitrary()?,
                    1 => u64::from(from.arbitrary::<u8>()?) << 32 | u64::from(u16::MAX),
                    2 => u64::from(from.arbitrary::<u8>()?) << 32 | u64::from(u16::MAX - 1),
                    _ => from.arbitrary::<u8>()?.into(),
                };
                // The first word is left out: it is checked only when the barrier page is opened.
                let _ = rustix::io::pwrite(&barrier_page, &value.to_ne_bytes(), at.max(8));
            }
            4 => {
                arrived =
                    view.arrive(0, from.arbitrary::<u8>()?.max(1).into()).map_or(arrived, |arrival| arrival.generation)
            }
            5 => drop(view.passed(arrived)),
            6 => {
                view.prepare_park(0);
                view.sleepers(arrived);
                view.unpark(0);
            }
            7 => {
                let look = memory.look();
                drop(memory.waiting());
                assert!(format!("{look:?}").len() < 1 << 20 && memory.sleepers().len() <= crate::SLOTS);
            }
            8 => drop(memory.take()),
            9 => memory.release(from.arbitrary()?),
            10 => memory.reopen(),
            11 => drop(memory.fail(memory.look().pending)),
            12 => match from.arbitrary::<u8>()? % 8 {
                0 => memory.freeze(),
                1 => memory.break_up(),
                2 => memory.close(),
                // Instance 1 is assigned again, to the same task, which clears its slot on the barrier page.
                _ => memory.set(1, VICTIM + 1),
            },
            _ => {
                assert_eq!(view.members().len(), 4);
                assert_eq!((view.size(), view.places(), view.instance_of(VICTIM + 1)), (4, 4, Some(1)));
                let state = |view: &GroupView| (view.version(), view.is_frozen(), view.is_broken(), view.is_closed());
                assert_eq!(state(&view), state(&outside));
                without_a_barrier_page(&outside);
            }
        }
    }
    Ok(())
}

/// Checks that a task that is no member cannot use the barrier.
fn without_a_barrier_page(outside: &GroupView) {
    assert!(outside.arrive(0, 1).is_err() && !outside.has_barrier_page());
    outside.prepare_park(0);
    outside.unpark(0);
    assert_eq!((outside.passed(0), outside.sleepers(0)), (Some(Err(Failed)), Vec::new()));
}
