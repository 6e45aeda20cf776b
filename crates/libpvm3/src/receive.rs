//! Receiving (contract 2.3).
use crate::errors::{Failure, Outcome, call, lpvm_error};
use crate::memory::{store, writable};
use crate::process::{Entry, Matcher};
use crate::send::bytes_of;
use crate::trace::{address, ints, message, nothing, traced, traced_inline};
use crate::wait::{wait, wait_on};
use pvm_core::codes::Code;
use pvm_core::events::Event;
use pvm_core::trace::Value;
use pvm_task::{Filter, Kind, Task};
use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::ptr::NonNull;
use std::time::Duration;

/// How long a call looks for its message; `None` for ever.
type Limit = Option<Duration>;

const AT_ONCE: Limit = Some(Duration::ZERO);

/// `pvm_recv`, `pvm_nrecv`, `pvm_trecv`.
#[inline(always)]
fn receive(entry: &mut Entry, tid: c_int, tag: c_int, limit: Limit) -> Outcome {
    entry.enrolled()?;
    if entry.task().in_handler() {
        return if limit == AT_ONCE { Ok(0) } else { Err(Code::NotImpl.into()) };
    }
    entry.task().drop_receive_buffer();
    if entry.state().matcher.is_some() {
        return receive_by_matcher(entry, tid, tag, limit);
    }
    let filter = entry.task().filter(tid, tag);
    if limit == AT_ONCE {
        return receive_at_once(entry, &filter);
    }
    let mut found = entry.task().try_receive(&filter);
    if found.is_none() && limit.is_none() && entry.task().watch_most_recent() {
        found = entry.task().try_receive(&filter);
    }
    entry.attend();
    match found {
        Some(mid) => Ok(mid),
        None => receive_slowly(entry, &filter, limit),
    }
}

/// Where a handler takes what has come, nothing is looked for behind it.
#[inline]
fn receive_at_once(entry: &mut Entry, filter: &Filter) -> Outcome {
    let found = entry.task().receive_at_once(filter);
    entry.attend();
    match found {
        Some(mid) => Ok(mid),
        None => daemon_gone(entry).unwrap_or(Ok(0)),
    }
}

#[inline(never)]
fn receive_slowly(entry: &mut Entry, filter: &Filter, limit: Limit) -> Outcome {
    if let Some(gone) = daemon_gone(entry) {
        return gone;
    }
    let found = wait_on(entry, limit, &mut |entry| {
        let found = entry.task().try_receive(filter);
        entry.attend();
        match found {
            Some(mid) => Some(Ok(mid)),
            None => daemon_gone(entry),
        }
    });
    found.unwrap_or_else(|| {
        // It has waited for all that came.
        entry.task().see_all();
        Ok(0)
    })
}

/// Without a daemon nothing can come any more; nor can what this process has no address space for.
#[inline(always)]
fn daemon_gone<T>(entry: &mut Entry) -> Option<Result<T, Failure>> {
    if entry.task().take_starved() {
        return Some(Err(Code::NoMem.into()));
    }
    if entry.task().is_connected() { None } else { Some(Err(Code::SysErr.into())) }
}

#[unsafe(no_mangle)]
pub extern "C" fn pvm_recv(tid: c_int, tag: c_int) -> c_int {
    match crate::quick::receive(tid, tag) {
        Some(mid) => mid,
        None => recv(tid, tag),
    }
}

#[inline(never)]
fn recv(tid: c_int, tag: c_int) -> c_int {
    traced_inline!(
        Event::Recv,
        move |task| ints(&[tid, tag, task.context()]),
        || call("pvm_recv", |entry| receive(entry, tid, tag, None)),
        move |task, code| message(task, code),
    )
}

#[unsafe(no_mangle)]
pub extern "C" fn pvm_nrecv(tid: c_int, tag: c_int) -> c_int {
    traced_inline!(
        Event::Nrecv,
        move |task| ints(&[tid, tag, task.context()]),
        || call("pvm_nrecv", |entry| receive(entry, tid, tag, AT_ONCE)),
        move |task, code| message(task, code),
    )
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvm_trecv(tid: c_int, tag: c_int, limit: *const libc::timeval) -> c_int {
    traced_inline!(
        Event::Trecv,
        move |task| {
            // SAFETY: null or a time that the caller gave.
            let limit = unsafe { limit.as_ref() };
            let (seconds, rest) = limit.map_or((-1, -1), |limit| (limit.tv_sec as c_int, limit.tv_usec as c_int));
            ints(&[tid, tag, task.context(), seconds, rest])
        },
        || {
            // SAFETY: null or a time that the caller gave.
            let limit = unsafe { limit.as_ref() }.map(duration);
            call("pvm_trecv", |entry| receive(entry, tid, tag, limit))
        },
        move |task, code| message(task, code),
    )
}

/// A time as C programs give it; negative ones are over at once, microseconds may be many.
fn duration(time: &libc::timeval) -> Duration {
    const MICROSECONDS: i128 = 1_000_000;
    let microseconds = i128::from(time.tv_sec) * MICROSECONDS + i128::from(time.tv_usec);
    Duration::from_micros(microseconds.clamp(0, i128::from(u64::MAX)) as u64)
}

#[unsafe(no_mangle)]
pub extern "C" fn pvm_probe(tid: c_int, tag: c_int) -> c_int {
    traced_inline!(Event::Probe, move |task| ints(&[tid, tag, task.context()]), || {
        call("pvm_probe", |entry| {
            entry.enrolled()?;
            if entry.task().in_handler() {
                return Ok(0);
            }
            if let Some(matcher) = entry.state().matcher {
                return Ok(match_at_once(entry, &mut Selection::new(matcher, tid, tag))?.unwrap_or(0));
            }
            let filter = entry.task().filter(tid, tag);
            let found = entry.task().probe_at_once(&filter);
            entry.attend();
            match found {
                Some(mid) => Ok(mid),
                None => daemon_gone(entry).unwrap_or(Ok(0)),
            }
        })
    },)
}

/// What a user's matching function said so far.
struct Selection {
    matcher: Matcher,
    tid: c_int,
    tag: c_int,
    /// Messages that it has seen and refused.
    refused: std::collections::HashSet<c_int>,
}

impl Selection {
    fn new(matcher: Matcher, tid: c_int, tag: c_int) -> Selection {
        Selection { matcher, tid, tag, refused: Default::default() }
    }
}

/// Shows the queued messages to the matching function: the first one that it takes at once, else
/// the first of those that it rates highest.
fn match_queued(entry: &mut Entry, selection: &mut Selection) -> Result<Option<c_int>, Failure> {
    const TAKE: c_int = 1;
    let queued: Vec<c_int> = entry.task().queued().map(|(mid, ..)| mid).collect();
    let (matcher, tid, tag) = (selection.matcher, selection.tid, selection.tag);
    let mut best = None;
    for mid in queued {
        if selection.refused.contains(&mid) {
            continue;
        }
        // SAFETY: the function that the user gave for that.
        match entry.user_code(|| unsafe { matcher(mid, tid, tag) }) {
            code @ ..0 => return Err(Failure(code)),
            0 => drop(selection.refused.insert(mid)),
            TAKE => return Ok(Some(mid)),
            rating if best.is_none_or(|(highest, _)| rating > highest) => best = Some((rating, mid)),
            _ => {}
        }
    }
    Ok(best.map(|(_, mid)| mid))
}

/// Looks at what has been seen, and then at one message more.
fn match_at_once(entry: &mut Entry, selection: &mut Selection) -> Result<Option<c_int>, Failure> {
    entry.task().catch_up();
    if let Some(mid) = match_queued(entry, selection)? {
        return Ok(Some(mid));
    }
    entry.task().see_one();
    entry.attend();
    match_queued(entry, selection)
}

#[inline(never)]
fn receive_by_matcher(entry: &mut Entry, tid: c_int, tag: c_int, limit: Limit) -> Outcome {
    let Some(matcher) = entry.state().matcher else { return Ok(0) };
    let mut selection = Selection::new(matcher, tid, tag);
    if limit == AT_ONCE {
        return match match_at_once(entry, &mut selection)? {
            Some(mid) if entry.task().take_queued(mid) => Ok(mid),
            _ => daemon_gone(entry).unwrap_or(Ok(0)),
        };
    }
    wait(entry, limit, |entry| match match_queued(entry, &mut selection) {
        Ok(Some(mid)) => entry.task().take_queued(mid).then_some(Ok(mid)),
        Ok(None) => daemon_gone(entry),
        Err(failure) => Some(Err(failure)),
    })
    .unwrap_or(Ok(0))
}

/// The matching function of programs that never set one: what the library itself does.
unsafe extern "C" fn default_matcher(mid: c_int, tid: c_int, tag: c_int) -> c_int {
    crate::errors::call_silent(|entry| {
        let info = entry.task().message_info(mid)?;
        let ctx = entry.task().context();
        let fits = |wanted: c_int, found: c_int| wanted == pvm_task::ANY || wanted == found;
        Ok(c_int::from(fits(tid, info.src) && fits(tag, info.tag) && fits(ctx, info.ctx)))
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn pvm_recvf(matcher: Option<Matcher>) -> Option<Matcher> {
    let previous = Cell::new(None);
    let body = || {
        previous.set(replace_matcher(matcher));
        0
    };
    traced(Event::Recvf, nothing, body, |_, _| Vec::new());
    previous.get()
}

fn replace_matcher(matcher: Option<Matcher>) -> Option<Matcher> {
    let Some(mut entry) = crate::process::enter() else { return Some(default_matcher) };
    // Whoever puts the default back gets the fast way back too.
    let matcher = matcher.filter(|&matcher| matcher as *const () != default_matcher as *const ());
    let previous = std::mem::replace(&mut entry.state().matcher, matcher);
    Some(previous.unwrap_or(default_matcher))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvm_precv(
    tid: c_int,
    tag: c_int,
    data: *mut c_void,
    count: c_int,
    data_type: c_int,
    source: *mut c_int,
    found_tag: *mut c_int,
    length: *mut c_int,
) -> c_int {
    // SAFETY: data as the caller promises.
    match unsafe { crate::quick::precv((tid, tag), data, count, data_type) } {
        Some(delivered) => {
            // SAFETY: places as the caller promises.
            unsafe { Places { source, tag: found_tag, length }.fill(&delivered) };
            0
        }
        // SAFETY: all as the caller promises.
        None => unsafe { precv_any(tid, tag, data, count, data_type, source, found_tag, length) },
    }
}

/// Where the user wants sender, tag and length; each may be null.
#[derive(Clone, Copy)]
struct Places {
    source: *mut c_int,
    tag: *mut c_int,
    length: *mut c_int,
}

impl Places {
    /// # Safety
    /// The places are null or valid for a write.
    #[inline(always)]
    unsafe fn fill(self, delivered: &pvm_task::Delivered) {
        // SAFETY: as promised by the caller.
        unsafe {
            store(self.source, delivered.src);
            store(self.tag, delivered.tag);
            store(self.length, delivered.len as c_int);
        }
    }
}

/// # Safety
/// As the caller of `pvm_precv` promises.
#[inline(never)]
unsafe extern "C" fn precv_any(
    tid: c_int,
    tag: c_int,
    data: *mut c_void,
    count: c_int,
    data_type: c_int,
    source: *mut c_int,
    found_tag: *mut c_int,
    length: *mut c_int,
) -> c_int {
    let places = Places { source, tag: found_tag, length };
    let before = move |task: &mut Task| {
        let mut values = ints(&[tid, tag, task.context()]);
        values.extend([address(data), Value::Int(count), Value::Int(data_type)]);
        values
    };
    let found = &Cell::new(None);
    let after = move |task: &mut Task, code| match found.get() {
        Some(pvm_task::Delivered { src, tag, len, .. }) => ints(&[code, len as c_int, tag, task.context(), src]),
        None => ints(&[code, -1, -1, 0, -1]),
    };
    traced_inline!(
        Event::Precv,
        before,
        || {
            let room = match bytes_of(count, data_type) {
                Ok(bytes) if bytes == 0 || !data.is_null() => bytes,
                Ok(_) => return lpvm_error(b"pvm_precv", Code::BadParam.number()),
                Err(code) => return lpvm_error(b"pvm_precv", code.number()),
            };
            let kind = Kind::from_number(data_type).unwrap_or(Kind::Byte);
            let start = if room == 0 { NonNull::dangling().as_ptr() } else { data.cast() };
            let code = call("pvm_precv", |entry| {
                let delivered = precv(entry, tid, tag, &Room { start, bytes: room, kind })?;
                found.set(Some(delivered));
                // SAFETY: as promised by the caller.
                unsafe { places.fill(&delivered) };
                delivered.failure.map_or(Ok(0), |code| Err(code.into()))
            });
            if count < 0 {
                lpvm_error(b"pvm_upkbyte", Code::BadParam.number()); // said, and then taken for none
            }
            code
        },
        after,
    )
}

/// Where the user wants the data.
struct Room {
    start: *mut u8,
    bytes: usize,
    kind: Kind,
}

impl Room {
    /// One try.
    #[inline(always)]
    fn fill(&self, entry: &mut Entry, filter: &Filter) -> Option<pvm_task::Delivered> {
        // SAFETY: the caller of `pvm_precv` promises that there is room and that nobody looks at
        // it before the call returns; each try is over before the thread sleeps.
        entry.task().try_precv(filter, self.kind, unsafe { writable(self.start, self.bytes) })
    }
}

fn precv(entry: &mut Entry, tid: c_int, tag: c_int, room: &Room) -> Result<pvm_task::Delivered, Failure> {
    entry.enrolled()?;
    if entry.task().in_handler() {
        return Err(Code::NotImpl.into());
    }
    let filter = entry.task().filter(tid, tag);
    match room.fill(entry, &filter) {
        Some(delivered) => {
            entry.attend();
            Ok(delivered)
        }
        None => precv_slowly(entry, &filter, room),
    }
}

#[inline(never)]
fn precv_slowly(entry: &mut Entry, filter: &Filter, room: &Room) -> Result<pvm_task::Delivered, Failure> {
    entry.task().begin_precv(filter, room.bytes);
    let delivered = wait_on(entry, None, &mut |entry| {
        let delivered = room.fill(entry, filter);
        entry.attend();
        match delivered {
            Some(delivered) => Some(Ok(delivered)),
            None => daemon_gone(entry),
        }
    });
    entry.task().end_precv();
    delivered.unwrap_or(Err(Code::SysErr.into()))
}
