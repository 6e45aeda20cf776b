//! `pvm_reduce`, `pvm_gather`, `pvm_scatter`.
use super::operators::{Combine, Combiner, combiner};
use super::{find, name_of, traced_name};
use crate::errors::{Failure, Outcome, call};
use crate::memory::writable;
use crate::process::Guard;
use crate::send::{back_off, submit};
use crate::trace::traced_code;
use crate::wait::wait_by;
use pvm_core::codes::Code;
use pvm_core::events::Event;
use pvm_core::trace::Value;
use pvm_task::{Collective, GroupMember, InPlace, Kind, Task, Waiter};
use std::ffi::{c_char, c_int, c_void};
use std::slice;
use std::time::Duration;

/// How long a member waits when the root has not yet read its shares of several earlier operations.
const AHEAD_WAIT_MAX: Duration = Duration::from_millis(5);
/// The smallest share, in bytes, that the root reads where the member has put it, without a copy. Copying a shorter
/// share costs little: its body is in the queue itself, or the copy stays in the caches.
const IN_PLACE_BYTES_MIN: usize = 1 << 10;
/// The most scratch memory that is kept for the next reduction, in bytes.
const SCRATCH_KEPT_BYTES: usize = 16 << 20;

/// The common arguments of the collective calls.
struct Call {
    count: c_int,
    data_type: c_int,
    tag: c_int,
    group: *const c_char,
    root: c_int,
}

/// Memory of the user. A slice of it must not be kept during a wait or a call of the user's function, since other
/// threads or code of the user may then run.
#[derive(Clone, Copy)]
struct Memory {
    start: *mut u8,
    bytes: usize,
}

impl Memory {
    fn new(start: *mut c_void, bytes: usize) -> Result<Memory, Code> {
        if start.is_null() { Err(Code::BadParam) } else { Ok(Memory { start: start.cast(), bytes }) }
    }
    /// Returns block number `index` of an array of blocks.
    fn block(self, index: u32) -> Memory {
        Memory { start: self.start.wrapping_add(index as usize * self.bytes), bytes: self.bytes }
    }
    fn read(&self) -> &[u8] {
        // SAFETY: the caller of the collective call promises that memory, unchanged by others during the call.
        unsafe { slice::from_raw_parts(self.start, self.bytes) }
    }
    fn write(&mut self) -> &mut [u8] {
        // SAFETY: as in `read`, and it is not read by others during the call.
        unsafe { writable(self.start, self.bytes) }
    }
    fn copy_to(&self, to: Memory) {
        // SAFETY: as in `read`; the two may overlap.
        unsafe { std::ptr::copy(self.start, to.start, self.bytes) }
    }
}

impl Call {
    /// Returns the size of one member's data in bytes.
    fn bytes(&self) -> Result<usize, Code> {
        let item = self.kind()?.size();
        if self.tag < 0 {
            return Err(Code::BadParam);
        }
        let count = usize::try_from(self.count).ok().filter(|count| *count > 0).ok_or(Code::BadParam)?;
        Ok(item * count)
    }

    /// Returns the kind of the items; a string counts as bytes.
    fn kind(&self) -> Result<Kind, Code> {
        const STRING: c_int = 0;
        match self.data_type {
            STRING => Ok(Kind::Byte),
            other => Kind::from_number(other).ok_or(Code::BadParam),
        }
    }

    /// Begins the operation.
    fn begin(&self, guard: &mut Guard) -> Result<Collective, Code> {
        guard.enrolled()?;
        // SAFETY: null or a C string, as the caller of the interface promises.
        let group = find(guard, unsafe { name_of(self.group) }?)?;
        guard.task().begin_collective(&group, self.root, self.tag, self.kind()?)
    }
}

fn send(guard: &mut Guard, operation: &Collective, to: GroupMember, share: Result<&[u8], c_int>) -> Outcome {
    submit(guard, |task| task.send_share(operation, to, share))
}

/// Sends this task's share to the root.
fn send_to_root(guard: &mut Guard, operation: &Collective, root: GroupMember, data: Memory) -> Outcome {
    if guard.task().backs_off() {
        back_off(guard, Some(operation.instance()));
    }
    send(guard, operation, root, Ok(data.read()))?;
    if guard.task().is_far_ahead(operation) {
        // The wait is limited, since the root may do other work for a long time before it receives.
        wait_by(guard, Waiter::for_members(operation.call(root), Some(AHEAD_WAIT_MAX)), &mut |guard| {
            guard.progress();
            (!guard.task().is_far_ahead(operation)).then_some(())
        });
    }
    Ok(0)
}

/// Receives a member's share into `data`.
#[inline(always)]
fn receive(guard: &mut Guard, operation: &Collective, from: GroupMember, mut data: Memory) -> Result<(), Failure> {
    if guard.task().share_at_once(operation, from, data.write()) {
        Ok(())
    } else {
        receive_any(guard, operation, from, data)
    }
}

#[inline(never)]
fn receive_any(guard: &mut Guard, operation: &Collective, from: GroupMember, mut data: Memory) -> Result<(), Failure> {
    match guard.task().try_share(operation, from, data.write()) {
        Some(result) => result.map_err(Failure),
        None => receive_slow(guard, operation, from, data),
    }
}

#[inline(never)]
fn receive_slow(guard: &mut Guard, operation: &Collective, from: GroupMember, mut data: Memory) -> Result<(), Failure> {
    let wait = guard.task().await_share(operation, from, data.bytes);
    let result = wait_by(guard, Waiter::for_members(operation.call(from), None), &mut |guard| {
        if guard.state().callbacks.is_some() {
            guard.progress();
        }
        guard.task().try_share(operation, from, data.write())
    });
    guard.task().end_share(wait);
    result.unwrap_or(Err(Code::SysErr.number())).map_err(Failure)
}

/// Receives a member's share and combines it with `data` without a copy: reads the share where the member has put it.
fn combine_in_place(
    guard: &mut Guard,
    operation: &Collective,
    from: GroupMember,
    data: Memory,
    item_bytes: usize,
    combine: Combiner,
) -> Result<(), Failure> {
    let mut each = |at: usize, piece: *const u8, bytes: usize| {
        // SAFETY: the piece can be read now. The data have as many bytes at that offset, and the caller of the
        // collective call promises that they are not used otherwise.
        unsafe { combine(data.start.add(at).cast(), piece.cast(), bytes / item_bytes) }
    };
    let mut share = InPlace::new(data.bytes, &mut each);
    if let Some(result) = guard.task().try_share_in_place(operation, from, &mut share) {
        return result.map_err(Failure);
    }
    let wait = guard.task().await_share_in_place(operation);
    let result = wait_by(guard, Waiter::for_members(operation.call(from), None), &mut |guard| {
        if guard.state().callbacks.is_some() {
            guard.progress();
        }
        guard.task().try_share_in_place(operation, from, &mut share)
    });
    guard.task().end_share(wait);
    result.unwrap_or(Err(Code::SysErr.number())).map_err(Failure)
}

/// The direction in which the shares of an operation travel.
#[derive(PartialEq, Eq)]
enum Direction {
    ToRoot,
    FromRoot,
}

/// Ends an operation for which the caller has passed no memory: sends the failure to the members that wait for a share
/// of this task, and drops the shares that arrive.
#[cold]
fn refuse(guard: &mut Guard, this: &Call, direction: Direction) -> Failure {
    let refusal = Code::BadParam;
    let Ok(operation) = this.begin(guard) else { return refusal.into() };
    let partners: Vec<GroupMember> = match operation.root() {
        Some(root) => vec![root],
        None => operation.others().collect(),
    };
    for partner in partners {
        match (operation.root().is_some()) == (direction == Direction::ToRoot) {
            // A partner that cannot be reached has ended and needs no share.
            true => drop(send(guard, &operation, partner, Err(refusal.number()))),
            false => guard.task().give_up_share(&operation, partner),
        }
    }
    refusal.into()
}

/// Returns the first of several failures.
fn first(so_far: Result<(), Failure>, next: Result<(), Failure>) -> Result<(), Failure> {
    so_far.and(next)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvm_reduce(
    combine: Option<Combine>,
    data: *mut c_void,
    count: c_int,
    data_type: c_int,
    tag: c_int,
    group: *const c_char,
    root: c_int,
) -> c_int {
    let this = Call { count, data_type, tag, group, root };
    // SAFETY: as promised by the caller.
    let before = |_: &mut Task| vec![unsafe { traced_name(group) }, Value::Int(tag)];
    traced_code(Event::Reduce, before, || {
        call("pvm_reduce", |guard| {
            let bytes = this.bytes()?;
            if matches!(Kind::from_number(data_type), Some(Kind::Uint | Kind::Ulong | Kind::Ushort)) {
                return Err(Code::BadParam.into());
            }
            let (Some(combine), Ok(data)) = (combine, Memory::new(data, bytes)) else {
                return Err(refuse(guard, &this, Direction::ToRoot));
            };
            let operation = this.begin(guard)?;
            match operation.root() {
                Some(root) => send_to_root(guard, &operation, root, data),
                None if bytes >= IN_PLACE_BYTES_MIN => reduce_long(guard, &operation, &this, combine, data),
                None => reduce_at_root(guard, &operation, &this, combine, data),
            }
        })
    })
}

/// Does what [`reduce_at_root`] does, for long shares. Only the library's own operators run here, since they do not
/// call the library again and can combine a share piece by piece.
#[inline(never)]
fn reduce_long(guard: &mut Guard, operation: &Collective, this: &Call, combine: Combine, data: Memory) -> Outcome {
    let Some(combine) = combiner(combine, this.data_type) else {
        return reduce_at_root(guard, operation, this, combine, data);
    };
    guard.task().expect_shares(operation)?;
    let item_bytes = data.bytes / this.count as usize;
    let mut result = Ok(());
    for member in operation.others() {
        // After a failure the remaining shares are received, but not combined.
        let received = match result {
            Ok(()) => combine_in_place(guard, operation, member, data, item_bytes, combine),
            Err(_) => receive(guard, operation, member, Memory { bytes: 0, ..data }),
        };
        result = first(result, received);
    }
    result.map(|()| 0)
}

/// Receives all shares, even after a failure: a share that stayed in the queue would be mistaken for a share of the
/// next operation.
fn reduce_at_root(guard: &mut Guard, operation: &Collective, this: &Call, combine: Combine, data: Memory) -> Outcome {
    guard.task().expect_shares(operation)?;
    // The scratch memory is moved out of the state, since the user's `combine` may call the library, even `pvm_reduce`.
    let mut scratch = std::mem::take(&mut guard.state().scratch);
    let words = data.bytes.div_ceil(size_of::<u128>()).max(scratch.len());
    if scratch.try_reserve_exact(words - scratch.len()).is_err() {
        guard.state().scratch = scratch;
        guard.task().give_up_shares(operation);
        return Err(Code::NoMem.into());
    }
    scratch.resize(words, 0);
    let share = Memory { start: scratch.as_mut_ptr().cast(), bytes: data.bytes };
    let ours = combiner(combine, this.data_type);
    let mut result = Ok(());
    for member in operation.others() {
        let received = receive(guard, operation, member, share);
        result = first(result, received);
        if let (Ok(()), Some(ours)) = (&result, ours) {
            // SAFETY: both arrays hold that number of items of that type.
            unsafe { ours(data.start.cast(), share.start.cast(), this.count as usize) };
        } else if result.is_ok() {
            let mut info = 0;
            guard.user_code(|| {
                // SAFETY: the user's function, with the arguments that it expects; both arrays hold that number of
                // items.
                unsafe {
                    combine(&this.data_type, data.start.cast(), share.start.cast(), &this.count, &mut info);
                }
            });
            result = if info < 0 { Err(Failure(info)) } else { Ok(()) };
        }
    }
    if scratch.len() * size_of::<u128>() <= SCRATCH_KEPT_BYTES {
        guard.state().scratch = scratch;
    }
    result.map(|()| 0)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvm_gather(
    result: *mut c_void,
    data: *mut c_void,
    count: c_int,
    data_type: c_int,
    tag: c_int,
    group: *const c_char,
    root: c_int,
) -> c_int {
    let this = Call { count, data_type, tag, group, root };
    // SAFETY: as promised by the caller.
    let before = |_: &mut Task| vec![unsafe { traced_name(group) }, Value::Int(tag)];
    traced_code(Event::Gather, before, || {
        call("pvm_gather", |guard| {
            let bytes = this.bytes()?;
            let Ok(data) = Memory::new(data, bytes) else { return Err(refuse(guard, &this, Direction::ToRoot)) };
            let operation = this.begin(guard)?;
            match (operation.root(), Memory::new(result, bytes)) {
                (Some(root), _) => send_to_root(guard, &operation, root, data),
                (None, Ok(result)) => gather_at_root(guard, &operation, result, data),
                (None, Err(_)) => Err(refuse(guard, &this, Direction::ToRoot)),
            }
        })
    })
}

fn gather_at_root(guard: &mut Guard, operation: &Collective, result: Memory, data: Memory) -> Outcome {
    if !operation.is_whole() {
        guard.task().give_up_shares(operation);
        return Err(Code::NoInst.into());
    }
    guard.task().expect_shares(operation)?;
    data.copy_to(result.block(operation.instance()));
    let mut outcome = Ok(());
    for member in operation.others() {
        let received = receive(guard, operation, member, result.block(member.instance));
        outcome = first(outcome, received);
    }
    outcome.map(|()| 0)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvm_scatter(
    result: *mut c_void,
    data: *mut c_void,
    count: c_int,
    data_type: c_int,
    tag: c_int,
    group: *const c_char,
    root: c_int,
) -> c_int {
    let this = Call { count, data_type, tag, group, root };
    // SAFETY: as promised by the caller.
    let before = |_: &mut Task| vec![unsafe { traced_name(group) }, Value::Int(tag)];
    traced_code(Event::Scatter, before, || {
        call("pvm_scatter", |guard| {
            let bytes = this.bytes()?;
            let Ok(result) = Memory::new(result, bytes) else { return Err(refuse(guard, &this, Direction::FromRoot)) };
            let operation = this.begin(guard)?;
            match (operation.root(), Memory::new(data, bytes)) {
                (Some(root), _) => receive(guard, &operation, root, result).map(|()| 0),
                (None, Ok(data)) => scatter_from_root(guard, &operation, result, data),
                (None, Err(_)) => Err(refuse(guard, &this, Direction::FromRoot)),
            }
        })
    })
}

fn scatter_from_root(guard: &mut Guard, operation: &Collective, result: Memory, data: Memory) -> Outcome {
    let whole = operation.is_whole();
    for member in operation.others() {
        let block = data.block(member.instance);
        // The other members wait for their blocks, so the root sends them the failure.
        send(guard, operation, member, if whole { Ok(block.read()) } else { Err(Code::NoInst.number()) })?;
    }
    if !whole {
        return Err(Code::NoInst.into());
    }
    data.block(operation.instance()).copy_to(result);
    Ok(0)
}
