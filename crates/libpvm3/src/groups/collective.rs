//! `pvm_reduce`, `pvm_gather`, `pvm_scatter`.
use super::operators::{Combiner, combiner};
use super::{find, name_of, told};
use crate::errors::{Failure, Outcome, call};
use crate::memory::writable;
use crate::process::Entry;
use crate::send::submit;
use crate::trace::traced_code;
use crate::wait::wait_by;
use pvm_core::codes::Code;
use pvm_core::events::Event;
use pvm_core::trace::Value;
use pvm_task::{Collective, InPlace, Kind, Share, Task, Waiter};
use std::ffi::{c_char, c_int, c_void};
use std::slice;
use std::time::Duration;

/// How long a task that is ahead of the root waits for it at most.
const AHEAD_PATIENCE: Duration = Duration::from_millis(5);
/// Shares from this size on are combined where they lie, in bytes. Shorter ones come in the queue, or
/// stay in the caches while they are copied.
const IN_PLACE_BYTES_MIN: usize = 1 << 10;
/// Scratch memory that stays for the next reduction, in bytes.
const SCRATCH_KEPT_BYTES: usize = 16 << 20;

/// A function that combines two arrays.
pub type Combine = unsafe extern "C" fn(*const c_int, *mut c_void, *mut c_void, *const c_int, *mut c_int);

/// What the collective calls have in common.
struct Call {
    count: c_int,
    data_type: c_int,
    tag: c_int,
    group: *const c_char,
    root: c_int,
}

/// Memory of the user. Each slice of it is short-lived: between two of them code of the user, or
/// other threads, may run.
#[derive(Clone, Copy)]
struct Memory {
    start: *mut u8,
    bytes: usize,
}

impl Memory {
    fn new(start: *mut c_void, bytes: usize) -> Result<Memory, Code> {
        if start.is_null() { Err(Code::BadParam) } else { Ok(Memory { start: start.cast(), bytes }) }
    }
    /// Block number `index` of memory that holds so many.
    fn block(self, index: u32) -> Memory {
        Memory { start: self.start.wrapping_add(index as usize * self.bytes), bytes: self.bytes }
    }
    fn read(&self) -> &[u8] {
        // SAFETY: the caller of the collective call promises so much memory, unchanged by others
        // during the call.
        unsafe { slice::from_raw_parts(self.start, self.bytes) }
    }
    fn write(&mut self) -> &mut [u8] {
        // SAFETY: as in `read`, and nobody looks at it during the call.
        unsafe { writable(self.start, self.bytes) }
    }
    fn copy_to(&self, to: Memory) {
        // SAFETY: as in `read`; the two may overlap.
        unsafe { std::ptr::copy(self.start, to.start, self.bytes) }
    }
}

impl Call {
    /// Bytes of one member's data.
    fn bytes(&self) -> Result<usize, Code> {
        let item = self.kind()?.size();
        if self.tag < 0 {
            return Err(Code::BadParam);
        }
        let count = usize::try_from(self.count).ok().filter(|count| *count > 0).ok_or(Code::BadParam)?;
        Ok(item * count)
    }

    /// Of the items; a string is bytes.
    fn kind(&self) -> Result<Kind, Code> {
        const STRING: c_int = 0;
        match self.data_type {
            STRING => Ok(Kind::Byte),
            other => Kind::from_number(other).ok_or(Code::BadParam),
        }
    }

    fn begin(&self, entry: &mut Entry) -> Result<Collective, Code> {
        entry.enrolled()?;
        // SAFETY: null or a C string, as the caller of the interface promises.
        let group = find(entry, unsafe { name_of(self.group) }?)?;
        entry.task().begin_collective(&group, self.root, self.tag, self.kind()?)
    }
}

fn send(entry: &mut Entry, operation: &Collective, to: Share, share: Result<&[u8], c_int>) -> Outcome {
    submit(entry, |task| task.send_share(operation, to, share))
}

/// Sends the own share to the root.
fn send_to_root(entry: &mut Entry, operation: &Collective, root: Share, data: Memory) -> Outcome {
    send(entry, operation, root, Ok(data.read()))?;
    if entry.task().is_far_ahead(operation) {
        // In vain after a while: the root may have other things to do for a long time.
        wait_by(entry, Waiter::for_members(Some(AHEAD_PATIENCE)), &mut |entry| {
            entry.progress();
            (!entry.task().is_far_ahead(operation)).then_some(())
        });
    }
    Ok(0)
}

/// Receives a member's share into `data`.
#[inline]
fn receive(entry: &mut Entry, operation: &Collective, from: Share, mut data: Memory) -> Result<(), Failure> {
    match entry.task().try_share(operation, from, data.write()) {
        Some(result) => result.map_err(Failure),
        None => receive_slowly(entry, operation, from, data),
    }
}

#[inline(never)]
fn receive_slowly(entry: &mut Entry, operation: &Collective, from: Share, mut data: Memory) -> Result<(), Failure> {
    let wait = entry.task().await_share(operation, from, data.bytes);
    let result = wait_by(entry, Waiter::for_members(None), &mut |entry| {
        if entry.state().attentive {
            entry.progress();
        }
        entry.task().try_share(operation, from, data.write())
    });
    entry.task().end_share(wait);
    result.unwrap_or(Err(Code::SysErr.number())).map_err(Failure)
}

/// Receives a member's share and combines it with `data` while it lies where the member put it.
fn combine_in_place(
    entry: &mut Entry,
    operation: &Collective,
    from: Share,
    data: Memory,
    item_bytes: usize,
    combine: Combiner,
) -> Result<(), Failure> {
    let mut each = |at: usize, piece: *const u8, bytes: usize| {
        // SAFETY: the piece can be read now, and stands for as many bytes of the data, of which the
        // caller of the collective call promises that nobody else touches them.
        unsafe { combine(data.start.add(at).cast(), piece.cast(), bytes / item_bytes) }
    };
    let mut share = InPlace::new(data.bytes, &mut each);
    if let Some(result) = entry.task().try_share_in_place(operation, from, &mut share) {
        return result.map_err(Failure);
    }
    let wait = entry.task().await_share_in_place(operation);
    let result = wait_by(entry, Waiter::for_members(None), &mut |entry| {
        if entry.state().attentive {
            entry.progress();
        }
        entry.task().try_share_in_place(operation, from, &mut share)
    });
    entry.task().end_share(wait);
    result.unwrap_or(Err(Code::SysErr.number())).map_err(Failure)
}

/// Where the shares of an operation go.
#[derive(PartialEq, Eq)]
enum Way {
    ToRoot,
    FromRoot,
}

/// A member has come without memory: who waits for its share is told, and the shares that come are not left to the
/// next operation.
#[cold]
fn refuse(entry: &mut Entry, this: &Call, way: Way) -> Failure {
    let refusal = Code::BadParam;
    let Ok(operation) = this.begin(entry) else { return refusal.into() };
    let partners: Vec<Share> = match operation.root() {
        Some(root) => vec![root],
        None => operation.others().collect(),
    };
    for partner in partners {
        match (operation.root().is_some()) == (way == Way::ToRoot) {
            // Who cannot be told has gone.
            true => drop(send(entry, &operation, partner, Err(refusal.number()))),
            false => entry.task().give_up_share(&operation, partner),
        }
    }
    refusal.into()
}

/// Of several failures the first.
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
    let before = |_: &mut Task| vec![unsafe { told(group) }, Value::Int(tag)];
    traced_code(Event::Reduce, before, || {
        call("pvm_reduce", |entry| {
            let bytes = this.bytes()?;
            if matches!(Kind::from_number(data_type), Some(Kind::Uint | Kind::Ulong | Kind::Ushort)) {
                return Err(Code::BadParam.into());
            }
            let (Some(combine), Ok(data)) = (combine, Memory::new(data, bytes)) else {
                return Err(refuse(entry, &this, Way::ToRoot));
            };
            let operation = this.begin(entry)?;
            match operation.root() {
                Some(root) => send_to_root(entry, &operation, root, data),
                None if bytes >= IN_PLACE_BYTES_MIN => reduce_long(entry, &operation, &this, combine, data),
                None => reduce_at_root(entry, &operation, &this, combine, data),
            }
        })
    })
}

/// [`reduce_at_root`] of long shares. A function of the library neither calls back nor wants all of a
/// share at once.
#[inline(never)]
fn reduce_long(entry: &mut Entry, operation: &Collective, this: &Call, combine: Combine, data: Memory) -> Outcome {
    let Some(combine) = combiner(combine, this.data_type) else {
        return reduce_at_root(entry, operation, this, combine, data);
    };
    entry.task().expect_shares(operation)?;
    let item_bytes = data.bytes / this.count as usize;
    let mut result = Ok(());
    for member in operation.others() {
        // What came to nothing is not combined any further.
        let received = match result {
            Ok(()) => combine_in_place(entry, operation, member, data, item_bytes, combine),
            Err(_) => receive(entry, operation, member, Memory { bytes: 0, ..data }),
        };
        result = first(result, received);
    }
    result.map(|()| 0)
}

/// Takes all shares, also after a failure: what is left behind would meet the next operation.
fn reduce_at_root(entry: &mut Entry, operation: &Collective, this: &Call, combine: Combine, data: Memory) -> Outcome {
    entry.task().expect_shares(operation)?;
    // Taken, since `combine` may call the library and reduce something itself.
    let mut scratch = std::mem::take(&mut entry.state().scratch);
    let words = data.bytes.div_ceil(size_of::<u128>()).max(scratch.len());
    if scratch.try_reserve_exact(words - scratch.len()).is_err() {
        entry.state().scratch = scratch;
        entry.task().give_up_shares(operation);
        return Err(Code::NoMem.into());
    }
    scratch.resize(words, 0);
    let share = Memory { start: scratch.as_mut_ptr().cast(), bytes: data.bytes };
    let ours = combiner(combine, this.data_type);
    let mut result = Ok(());
    for member in operation.others() {
        let received = receive(entry, operation, member, share);
        result = first(result, received);
        if let (Ok(()), Some(ours)) = (&result, ours) {
            // SAFETY: both places hold so many items of that type.
            unsafe { ours(data.start.cast(), share.start.cast(), this.count as usize) };
        } else if result.is_ok() {
            let mut info = 0;
            entry.user_code(|| {
                // SAFETY: a function of the caller, called as it must be; both places hold so many
                // items.
                unsafe {
                    combine(&this.data_type, data.start.cast(), share.start.cast(), &this.count, &mut info);
                }
            });
            result = if info < 0 { Err(Failure(info)) } else { Ok(()) };
        }
    }
    if scratch.len() * size_of::<u128>() <= SCRATCH_KEPT_BYTES {
        entry.state().scratch = scratch;
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
    let before = |_: &mut Task| vec![unsafe { told(group) }, Value::Int(tag)];
    traced_code(Event::Gather, before, || {
        call("pvm_gather", |entry| {
            let bytes = this.bytes()?;
            let Ok(data) = Memory::new(data, bytes) else { return Err(refuse(entry, &this, Way::ToRoot)) };
            let operation = this.begin(entry)?;
            match (operation.root(), Memory::new(result, bytes)) {
                (Some(root), _) => send_to_root(entry, &operation, root, data),
                (None, Ok(result)) => gather_at_root(entry, &operation, result, data),
                (None, Err(_)) => Err(refuse(entry, &this, Way::ToRoot)),
            }
        })
    })
}

fn gather_at_root(entry: &mut Entry, operation: &Collective, result: Memory, data: Memory) -> Outcome {
    if !operation.is_whole() {
        entry.task().give_up_shares(operation);
        return Err(Code::NoInst.into());
    }
    entry.task().expect_shares(operation)?;
    data.copy_to(result.block(operation.instance()));
    let mut outcome = Ok(());
    for member in operation.others() {
        let received = receive(entry, operation, member, result.block(member.instance));
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
    let before = |_: &mut Task| vec![unsafe { told(group) }, Value::Int(tag)];
    traced_code(Event::Scatter, before, || {
        call("pvm_scatter", |entry| {
            let bytes = this.bytes()?;
            let Ok(result) = Memory::new(result, bytes) else { return Err(refuse(entry, &this, Way::FromRoot)) };
            let operation = this.begin(entry)?;
            match (operation.root(), Memory::new(data, bytes)) {
                (Some(root), _) => receive(entry, &operation, root, result).map(|()| 0),
                (None, Ok(data)) => scatter_from_root(entry, &operation, result, data),
                (None, Err(_)) => Err(refuse(entry, &this, Way::FromRoot)),
            }
        })
    })
}

fn scatter_from_root(entry: &mut Entry, operation: &Collective, result: Memory, data: Memory) -> Outcome {
    let whole = operation.is_whole();
    for member in operation.others() {
        let block = data.block(member.instance);
        // The others wait for something, so a failure is sent to them too.
        send(entry, operation, member, if whole { Ok(block.read()) } else { Err(Code::NoInst.number()) })?;
    }
    if !whole {
        return Err(Code::NoInst.into());
    }
    data.block(operation.instance()).copy_to(result);
    Ok(0)
}
