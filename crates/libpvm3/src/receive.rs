//! Receiving (contract 2.3).
use crate::errors::{Failure, Outcome, call, lpvm_error};
use crate::memory::{store, writable};
use crate::process::{Guard, Matcher};
use crate::send::bytes_of;
use crate::trace::{address, ints, message, nothing, traced, traced_inline};
use crate::wait::{wait, wait_on};
use pvm_core::codes::Code;
use pvm_core::events::Event;
use pvm_core::state_line::Call;
use pvm_core::trace::Value;
use pvm_task::{Filter, Kind, Task};
use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::ptr::NonNull;
use std::time::Duration;

/// How long a call waits for its message; `None` means without limit.
type Limit = Option<Duration>;

const AT_ONCE: Limit = Some(Duration::ZERO);

/// `pvm_recv`, `pvm_nrecv`, `pvm_trecv`.
#[inline(always)]
pub fn receive(guard: &mut Guard, tid: c_int, tag: c_int, limit: Limit) -> Outcome {
    guard.enrolled()?;
    if guard.task().in_handler() {
        return if limit == AT_ONCE { Ok(0) } else { Err(Code::NotImpl.into()) };
    }
    guard.task().drop_receive_buffer();
    if guard.state().matcher.is_some() {
        return receive_by_matcher(guard, tid, tag, limit);
    }
    let filter = guard.task().filter(tid, tag);
    if limit == AT_ONCE {
        return receive_at_once(guard, &filter);
    }
    let mut found = guard.task().try_receive(&filter);
    if found.is_none() && limit.is_none() && guard.task().watch_most_recent() {
        found = guard.task().try_receive(&filter);
    }
    guard.run_callbacks();
    match found {
        Some(mid) => Ok(mid),
        None => receive_slow(guard, &filter, limit),
    }
}

/// Receives without waiting. Makes at most one more message visible; if a handler takes that message, the search ends.
#[inline]
fn receive_at_once(guard: &mut Guard, filter: &Filter) -> Outcome {
    let found = guard.task().receive_at_once(filter);
    guard.run_callbacks();
    match found {
        Some(mid) => Ok(mid),
        None => cannot_receive(guard, filter.src).unwrap_or(Ok(0)),
    }
}

#[inline(never)]
fn receive_slow(guard: &mut Guard, filter: &Filter, limit: Limit) -> Outcome {
    if let Some(gone) = cannot_receive(guard, filter.src) {
        return gone;
    }
    let found = wait_on(guard, Call::Receive(filter.wanted()), limit, &mut |guard| {
        let found = guard.task().try_receive(filter);
        guard.run_callbacks();
        match found {
            Some(mid) => Some(Ok(mid)),
            None => cannot_receive(guard, filter.src),
        }
    });
    found.unwrap_or_else(|| {
        // The call has waited, so all messages that have arrived become visible.
        guard.task().reveal_all();
        Ok(0)
    })
}

/// Returns the reason why no message of the task `source` (`ANY`: of any) can arrive, if there is one: the daemon has
/// ended, or this process lacks the address space for a message.
#[inline(always)]
pub fn cannot_receive<T>(guard: &mut Guard, source: c_int) -> Option<Result<T, Failure>> {
    if guard.task().is_starved(source) {
        return Some(Err(Code::NoMem.into()));
    }
    if guard.task().is_connected() { None } else { Some(Err(Code::SysErr.into())) }
}

#[unsafe(no_mangle)]
pub extern "C" fn pvm_recv(tid: c_int, tag: c_int) -> c_int {
    match crate::fast_path::receive(tid, tag) {
        Some(mid) => mid,
        None => recv(tid, tag),
    }
}

#[inline(never)]
fn recv(tid: c_int, tag: c_int) -> c_int {
    traced_inline!(
        Event::Recv,
        move |task| ints(&[tid, tag, task.context()]),
        || call("pvm_recv", |guard| receive(guard, tid, tag, None)),
        move |task, code| message(task, code),
    )
}

#[unsafe(no_mangle)]
pub extern "C" fn pvm_nrecv(tid: c_int, tag: c_int) -> c_int {
    traced_inline!(
        Event::Nrecv,
        move |task| ints(&[tid, tag, task.context()]),
        || call("pvm_nrecv", |guard| receive(guard, tid, tag, AT_ONCE)),
        move |task, code| message(task, code),
    )
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvm_trecv(tid: c_int, tag: c_int, limit: *const libc::timeval) -> c_int {
    traced_inline!(
        Event::Trecv,
        move |task| {
            // SAFETY: a time or null, as the caller promises.
            let limit = unsafe { limit.as_ref() };
            let (seconds, rest) = limit.map_or((-1, -1), |limit| (limit.tv_sec as c_int, limit.tv_usec as c_int));
            ints(&[tid, tag, task.context(), seconds, rest])
        },
        || {
            // SAFETY: a time or null, as the caller promises.
            let limit = unsafe { limit.as_ref() }.map(duration);
            call("pvm_trecv", |guard| receive(guard, tid, tag, limit))
        },
        move |task, code| message(task, code),
    )
}

/// Converts a C time. A time with negative seconds counts as zero; negative microseconds count as none, and they may
/// exceed a million.
fn duration(time: &libc::timeval) -> Duration {
    if time.tv_sec < 0 {
        return Duration::ZERO;
    }
    const MICROSECONDS: i128 = 1_000_000;
    let microseconds = i128::from(time.tv_sec) * MICROSECONDS + i128::from(time.tv_usec.max(0));
    Duration::from_micros(microseconds.clamp(0, i128::from(u64::MAX)) as u64)
}

#[unsafe(no_mangle)]
pub extern "C" fn pvm_probe(tid: c_int, tag: c_int) -> c_int {
    traced_inline!(Event::Probe, move |task| ints(&[tid, tag, task.context()]), || {
        call("pvm_probe", |guard| {
            guard.enrolled()?;
            if guard.task().in_handler() {
                return Ok(0);
            }
            if let Some(matcher) = guard.state().matcher {
                return Ok(match_at_once(guard, &mut Selection::new(matcher, tid, tag))?.unwrap_or(0));
            }
            let filter = guard.task().filter(tid, tag);
            let found = guard.task().probe_at_once(&filter);
            guard.run_callbacks();
            match found {
                Some(mid) => Ok(mid),
                None => cannot_receive(guard, filter.src).unwrap_or(Ok(0)),
            }
        })
    },)
}

/// The state of a receive with a user's matching function.
struct Selection {
    matcher: Matcher,
    tid: c_int,
    tag: c_int,
    /// The messages that the function has refused.
    refused: std::collections::HashSet<c_int>,
}

impl Selection {
    fn new(matcher: Matcher, tid: c_int, tag: c_int) -> Selection {
        Selection { matcher, tid, tag, refused: Default::default() }
    }
}

/// Calls the matching function for each queued message. Returns the first message for which the function returns 1,
/// or else the first of the messages with the highest rating.
fn match_queued(guard: &mut Guard, selection: &mut Selection) -> Result<Option<c_int>, Failure> {
    const TAKE: c_int = 1;
    let queued: Vec<c_int> = guard.task().queued().map(|(mid, ..)| mid).collect();
    let (matcher, tid, tag) = (selection.matcher, selection.tid, selection.tag);
    let mut best = None;
    for mid in queued {
        if selection.refused.contains(&mid) {
            continue;
        }
        // SAFETY: the user's function, with the arguments that it expects.
        match guard.user_code(|| unsafe { matcher(mid, tid, tag) }) {
            code @ ..0 => return Err(Failure(code)),
            0 => drop(selection.refused.insert(mid)),
            TAKE => return Ok(Some(mid)),
            rating if best.is_none_or(|(highest, _)| rating > highest) => best = Some((rating, mid)),
            _ => {}
        }
    }
    Ok(best.map(|(_, mid)| mid))
}

/// Searches the visible messages, then makes one more message visible and searches again.
fn match_at_once(guard: &mut Guard, selection: &mut Selection) -> Result<Option<c_int>, Failure> {
    guard.task().catch_up();
    if let Some(mid) = match_queued(guard, selection)? {
        return Ok(Some(mid));
    }
    guard.task().reveal_one();
    guard.run_callbacks();
    match_queued(guard, selection)
}

#[inline(never)]
fn receive_by_matcher(guard: &mut Guard, tid: c_int, tag: c_int, limit: Limit) -> Outcome {
    let Some(matcher) = guard.state().matcher else { return Ok(0) };
    let mut selection = Selection::new(matcher, tid, tag);
    if limit == AT_ONCE {
        return match match_at_once(guard, &mut selection)? {
            Some(mid) if guard.task().take_queued(mid) => Ok(mid),
            _ => cannot_receive(guard, pvm_task::ANY).unwrap_or(Ok(0)),
        };
    }
    wait(guard, Call::Matching, limit, |guard| match match_queued(guard, &mut selection) {
        Ok(Some(mid)) => guard.task().take_queued(mid).then_some(Ok(mid)),
        Ok(None) => cannot_receive(guard, pvm_task::ANY),
        Err(failure) => Some(Err(failure)),
    })
    .unwrap_or(Ok(0))
}

/// The matching function of programs that have not set one: it applies the library's own rules.
unsafe extern "C" fn default_matcher(mid: c_int, tid: c_int, tag: c_int) -> c_int {
    crate::errors::call_silent(|guard| {
        let info = guard.task().message_info(mid)?;
        let ctx = guard.task().context();
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
    let Some(mut guard) = crate::process::enter() else { return Some(default_matcher) };
    // If a program sets the default function, the library uses the fast path again.
    let matcher = matcher.filter(|&matcher| matcher as *const () != default_matcher as *const ());
    let previous = std::mem::replace(&mut guard.state().matcher, matcher);
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
    match unsafe { crate::fast_path::precv((tid, tag), data, count, data_type) } {
        Some(delivered) => {
            // SAFETY: places as the caller promises.
            unsafe { Places { source, tag: found_tag, length }.fill(&delivered) };
            0
        }
        // SAFETY: all as the caller promises.
        None => unsafe { precv_longer(tid, tag, data, count, data_type, source, found_tag, length) },
    }
}

/// # Safety
/// As the caller of `pvm_precv` promises.
#[inline(never)]
unsafe extern "C" fn precv_longer(
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
    if let Some(delivered) = unsafe { crate::fast_path::precv_at_once((tid, tag), data, count, data_type) } {
        // SAFETY: places as the caller promises.
        unsafe { Places { source, tag: found_tag, length }.fill(&delivered) };
        return 0;
    }
    // SAFETY: all as the caller promises.
    unsafe { precv_any(tid, tag, data, count, data_type, source, found_tag, length) }
}

/// The addresses for sender, tag and length of a received message; each may be null.
#[derive(Clone, Copy)]
pub struct Places {
    pub source: *mut c_int,
    pub tag: *mut c_int,
    pub length: *mut c_int,
}

impl Places {
    /// # Safety
    /// The places are null or valid for a write.
    #[inline(always)]
    pub unsafe fn fill(self, delivered: &pvm_task::Delivered) {
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
            let code = call("pvm_precv", |guard| {
                let room = Room { start, bytes: room, kind };
                let delivered = precv(guard, tid, tag, &room, None)?.ok_or(Code::SysErr)?;
                found.set(Some(delivered));
                // SAFETY: as promised by the caller.
                unsafe { places.fill(&delivered) };
                delivered.failure.map_or(Ok(0), |code| Err(code.into()))
            });
            if count < 0 {
                lpvm_error(b"pvm_upkbyte", Code::BadParam.number()); // printed, and then treated as none
            }
            code
        },
        after,
    )
}

/// The user's memory for the data of a message.
pub struct Room {
    pub start: *mut u8,
    pub bytes: usize,
    pub kind: Kind,
}

impl Room {
    /// Tries once to receive.
    #[inline(always)]
    fn fill(&self, guard: &mut Guard, filter: &Filter) -> Option<pvm_task::Delivered> {
        guard.task().try_precv(filter, self.kind, self.data())
    }

    /// Tries once to receive, for a caller whose short path has just found nothing.
    #[inline(always)]
    fn fill_by_poll(&self, guard: &mut Guard, filter: &Filter) -> Option<pvm_task::Delivered> {
        guard.task().try_precv_by_poll(filter, self.kind, self.data())
    }

    #[inline(always)]
    #[allow(clippy::mut_from_ref)] // the memory is the user's
    fn data(&self) -> &mut [u8] {
        // SAFETY: the caller of `pvm_precv` promises that there is room, and that nothing else uses it before the call
        // returns. Each try ends before the thread sleeps.
        unsafe { writable(self.start, self.bytes) }
    }
}

/// Receives into the user's memory. `None` after the time `limit`, if there is one.
pub fn precv(
    guard: &mut Guard,
    tid: c_int,
    tag: c_int,
    room: &Room,
    limit: Option<Duration>,
) -> Result<Option<pvm_task::Delivered>, Failure> {
    guard.enrolled()?;
    if guard.task().in_handler() {
        return Err(Code::NotImpl.into());
    }
    let filter = guard.task().filter(tid, tag);
    match room.fill_by_poll(guard, &filter) {
        Some(delivered) => {
            guard.run_callbacks();
            Ok(Some(delivered))
        }
        None => precv_slow(guard, &filter, room, limit),
    }
}

#[inline(never)]
fn precv_slow(
    guard: &mut Guard,
    filter: &Filter,
    room: &Room,
    limit: Option<Duration>,
) -> Result<Option<pvm_task::Delivered>, Failure> {
    guard.task().begin_precv(filter, room.bytes);
    if limit.is_none() {
        guard.task().stay_posted();
    }
    let call = Call::PostedReceive(filter.wanted(), room.bytes as u64);
    let delivered = wait_on(guard, call, limit, &mut |guard| {
        let delivered = room.fill(guard, filter);
        guard.run_callbacks();
        match delivered {
            Some(delivered) => Some(Ok(delivered)),
            None => cannot_receive(guard, filter.src),
        }
    });
    guard.task().end_precv();
    delivered.transpose()
}
