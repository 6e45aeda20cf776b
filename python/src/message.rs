//! Messages: received ones, ones that are being packed, and the form in which objects travel.
//!
//! An object is a head of [`HEAD_BYTES`] (the sign, then the number of parts), the length of each part (the highest bit
//! says that the receiver may not change it), and the parts: first the pickle, then its out-of-band buffers. All
//! numbers are 64 bits, little-endian, and everything is packed as bytes: hosts of all kinds read the same. An object of
//! one short part may also travel as [`SIGN_OF_ONE`] and that part.
pub use crate::raw::Target;
use crate::raw::{self, Buffer};
use crate::state::{State, state};
use crate::{Text, check, fail};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyList};
use std::sync::Arc;

/// Begins an object of several parts.
pub const SIGN: &[u8; 8] = b"hpvmobj1";
/// Begins an object of one part, which follows.
pub const SIGN_OF_ONE: &[u8; 8] = b"hpvmone1";
const READONLY: u64 = 1 << 63;
/// The most parts of an object that is believed.
const PARTS_MAX: u64 = 1 << 24;
/// From this size on, parts are not copied into a buffer but read when the message is sent.
const IN_PLACE_BYTES_MIN: usize = 32 << 10;
/// The longest message that is copied once more, so that one call of the library sends it, or reads it.
pub const SHORT_BYTES_MAX: usize = raw::SHORT_MESSAGE_BYTES_MAX / 2;
const DATA_DEFAULT: i32 = 0;
const DATA_IN_PLACE: i32 = 2;
/// PvmBadMsg
pub const BAD_MESSAGE: i32 = -12;

/// A received message.
#[pyclass(frozen)]
pub struct Message {
    state: Arc<State>,
    mid: i32,
    /// The sender's tid.
    #[pyo3(get)]
    tid: i32,
    /// The tag.
    #[pyo3(get)]
    tag: i32,
    /// The length of the body in bytes.
    #[pyo3(get)]
    bytes: usize,
}

impl Message {
    /// Wraps a received buffer.
    pub fn new(state: Arc<State>, (mid, tid, tag, bytes): raw::Envelope) -> Message {
        Message { state, mid, tid, tag, bytes }
    }

    fn use_here<T: Send>(&self, py: Python<'_>, work: impl FnOnce(&mut raw::Calls, i32) -> T + Send) -> PyResult<T> {
        same_process(py, &self.state)?;
        py.detach(|| self.state.run(None, |calls| work(calls, self.mid))).map_err(|code| fail(py, "pvm_setrbuf", code))
    }
}

fn same_process(py: Python<'_>, state_then: &Arc<State>) -> PyResult<()> {
    match Arc::ptr_eq(state_then, &state(py)) {
        true => Ok(()),
        false => Err(PyValueError::new_err("this message belongs to the parent process; only the parent can use it")),
    }
}

#[pymethods]
impl Message {
    /// Unpacks items of PVM's type `code`, of `size` bytes each, into writable memory.
    fn unpack_into(&self, py: Python<'_>, code: i32, size: usize, data: &Bound<'_, PyAny>) -> PyResult<()> {
        let data = Buffer::of(data, true)?;
        let result = self.use_here(py, |calls, mid| raw::unpack(calls, mid, code, size, &data))?;
        check(py, "pvm_unpack", result).map(drop)
    }

    /// Unpacks a text.
    fn unpack_text(&self, py: Python<'_>) -> PyResult<Vec<u8>> {
        let bytes = self.bytes;
        let result = self.use_here(py, |calls, mid| raw::unpack_text(calls, mid, bytes))?;
        result.map_err(|code| fail(py, "pvm_upkstr", code))
    }

    /// Returns the parts of an object; an error if the message is not one.
    fn parts<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        if self.bytes <= SHORT_BYTES_MAX {
            let mut body = vec![0; self.bytes];
            let code = self.use_here(py, |calls, mid| raw::unpack_bytes(calls, mid, &mut body))?;
            let parts = if code < 0 { None } else { parts_of(py, &body)? };
            return parts.ok_or_else(|| fail(py, "unpack an object", BAD_MESSAGE));
        }
        let sign = self.use_here(py, |calls, mid| {
            let mut sign = [0u8; 8];
            let code = raw::unpack_bytes(calls, mid, &mut sign);
            if code < 0 { Err(BAD_MESSAGE) } else { Ok(sign) }
        })?;
        self.parts_after(py, sign.map_err(|code| fail(py, "unpack an object", code))?)
    }
}

impl Message {
    /// Returns the parts of an object whose sign has been read.
    pub fn parts_after<'py>(&self, py: Python<'py>, sign: [u8; 8]) -> PyResult<Bound<'py, PyList>> {
        let lengths = match &sign {
            SIGN => self.use_here(py, |calls, mid| lengths(calls, mid, self.bytes))?,
            SIGN_OF_ONE => Ok(vec![self.bytes.saturating_sub(sign.len()) as u64 | READONLY]),
            _ => Err(BAD_MESSAGE),
        };
        let lengths = lengths.map_err(|code| fail(py, "unpack an object", code))?;
        let list = PyList::empty(py);
        let mut places = Vec::with_capacity(lengths.len());
        for length in lengths {
            let (object, place) = raw::unfilled(py, (length & !READONLY) as usize, length & READONLY != 0)?;
            list.append(object)?;
            places.push(place);
        }
        let code = self.use_here(py, |calls, mid| raw::unpack_parts(calls, mid, &places))?;
        check(py, "unpack an object", code)?;
        Ok(list)
    }
}

/// Reads the lengths of the parts, which follow the sign. A message of others may hold anything, so each number is checked against the size of
/// the message before memory is taken.
fn lengths(calls: &mut raw::Calls, mid: i32, bytes: usize) -> Result<Vec<u64>, i32> {
    let mut head = [0u8; 8];
    let code = raw::unpack_bytes(calls, mid, &mut head);
    let number = |at: &[u8]| at.iter().rev().fold(0u64, |sum, byte| (sum << 8) | u64::from(*byte));
    let count = number(&head);
    if code < 0 || count == 0 || count > PARTS_MAX || count * 8 > bytes as u64 {
        return Err(BAD_MESSAGE);
    }
    let mut table = vec![0u8; count as usize * 8];
    let code = raw::unpack_bytes(calls, mid, &mut table);
    let lengths: Vec<u64> = table.chunks_exact(8).map(number).collect();
    let sum = lengths.iter().try_fold(0u64, |sum, length| sum.checked_add(length & !READONLY));
    if code < 0 || sum.is_none_or(|sum| sum > bytes as u64) { Err(BAD_MESSAGE) } else { Ok(lengths) }
}

/// Returns the parts of an object after its sign, each with whether it is read-only; `None` if it is none.
fn split(mut bytes: &[u8]) -> Option<Vec<(&[u8], bool)>> {
    let mut number = || {
        let (first, rest) = bytes.split_first_chunk()?;
        bytes = rest;
        Some(u64::from_le_bytes(*first))
    };
    let count = number()?;
    if count == 0 || count > PARTS_MAX {
        return None;
    }
    let lengths = (0..count).map(|_| number()).collect::<Option<Vec<u64>>>()?;
    let mut part = |length: u64| {
        let (part, rest) = bytes.split_at_checked(usize::try_from(length & !READONLY).ok()?)?;
        bytes = rest;
        Some((part, length & READONLY != 0))
    };
    lengths.into_iter().map(&mut part).collect()
}

/// Returns the parts of an object whose whole message was read; `None` if it is none.
pub fn parts_of<'py>(py: Python<'py>, bytes: &[u8]) -> PyResult<Option<Bound<'py, PyList>>> {
    if let Some(one) = bytes.strip_prefix(SIGN_OF_ONE) {
        return PyList::new(py, [PyBytes::new(py, one)]).map(Some);
    }
    let Some(parts) = bytes.strip_prefix(SIGN).and_then(split) else { return Ok(None) };
    let list = PyList::empty(py);
    for (part, is_readonly) in parts {
        match is_readonly {
            true => list.append(PyBytes::new(py, part))?,
            false => list.append(PyByteArray::new(py, part))?,
        }
    }
    Ok(Some(list))
}

impl Drop for Message {
    fn drop(&mut self) {
        self.state.discard(self.mid);
    }
}

/// A message that is being packed.
#[pyclass(frozen)]
pub struct Packet {
    state: Arc<State>,
    mid: i32,
}

#[pymethods]
impl Packet {
    /// Makes an empty message.
    #[new]
    fn new(py: Python<'_>, encoding: i32) -> PyResult<Packet> {
        let state = state(py);
        let mid = py.detach(|| state.run(None, |calls| raw::mkbuf(calls, encoding)));
        let mid = check(py, "pvm_mkbuf", mid.unwrap_or_else(|code| code))?;
        Ok(Packet { state, mid })
    }

    /// Packs items of PVM's type `code`, of `size` bytes each.
    fn pack(&self, py: Python<'_>, code: i32, size: usize, data: &Bound<'_, PyAny>) -> PyResult<()> {
        let data = Buffer::of(data, false)?;
        self.use_here(py, "pvm_pack", None, |calls, mid| raw::pack(calls, mid, code, size, &data))
    }

    /// Packs a text.
    fn pack_text(&self, py: Python<'_>, text: Text) -> PyResult<()> {
        self.use_here(py, "pvm_pkstr", None, |calls, mid| raw::pack_text(calls, mid, &text))
    }

    /// Sends the message to tasks; it can be sent again.
    #[pyo3(signature = (tids, tag, context=None))]
    fn send(&self, py: Python<'_>, tids: Vec<i32>, tag: i32, context: Option<i32>) -> PyResult<()> {
        let target = to(tids);
        self.use_here(py, "pvm_send", context, |calls, mid| raw::send(calls, mid, &target, tag))
    }

    /// Sends the message to the other members of a group.
    fn bcast(&self, py: Python<'_>, group: Text, tag: i32) -> PyResult<()> {
        let target = Target::Group(group.0);
        self.use_here(py, "pvm_bcast", None, |calls, mid| raw::send(calls, mid, &target, tag))
    }
}

impl Packet {
    fn use_here(
        &self,
        py: Python<'_>,
        call: &str,
        context: Option<i32>,
        work: impl FnOnce(&mut raw::Calls, i32) -> i32 + Send,
    ) -> PyResult<()> {
        same_process(py, &self.state)?;
        let code = py.detach(|| self.state.run(context, |calls| work(calls, self.mid)));
        check(py, call, code.unwrap_or_else(|code| code)).map(drop)
    }
}

impl Drop for Packet {
    fn drop(&mut self) {
        self.state.discard(self.mid);
    }
}

/// Returns the tasks as a target.
pub fn to(tids: Vec<i32>) -> Target {
    match tids[..] {
        [tid] => Target::Task(tid),
        _ => Target::Tasks(tids),
    }
}

/// Sends the parts of an object in one message.
fn send_parts(py: Python<'_>, call: &str, parts: &Bound<'_, PyAny>, to: (Target, i32, Option<i32>)) -> PyResult<i32> {
    let parts = parts.try_iter()?.map(|part| Buffer::of(&part?, false)).collect::<PyResult<Vec<Buffer>>>()?;
    send_buffers(py, call, parts, to)
}

/// Sends the parts of an object in one message.
pub fn send_buffers(py: Python<'_>, call: &str, parts: Vec<Buffer>, to: (Target, i32, Option<i32>)) -> PyResult<i32> {
    let state = state(py);
    let mut head = [SIGN.as_slice(), &(parts.len() as u64).to_le_bytes()].concat();
    for part in &parts {
        let readonly = if part.is_readonly() { READONLY } else { 0 };
        head.extend((part.len() as u64 | readonly).to_le_bytes());
    }
    let (target, tag, context) = to;
    let total = parts.iter().map(Buffer::len).sum::<usize>();
    // The receiver takes a short message as a whole: nothing must be added between its parts, as the default encoding does.
    let is_short = head.len() + total <= SHORT_BYTES_MAX;
    let mut parts = parts;
    if is_short {
        parts.drain(..).for_each(|part| part.append_to(&mut head));
    }
    if let (Target::Task(tid), true) = (&target, is_short) {
        let code = py.detach(|| state.run(context, |calls| raw::psend_bytes(calls, *tid, tag, &mut head)));
        return check(py, call, code.unwrap_or_else(|code| code));
    }
    // Mailboxes keep the message, so its parts must be in the buffer.
    let keeps = matches!(target, Target::Mailbox(..));
    let in_place = !keeps && total >= IN_PLACE_BYTES_MIN;
    let encoding = if in_place { DATA_IN_PLACE } else { DATA_DEFAULT };
    let code = py.detach(|| {
        state.run(context, |calls| {
            let mid = raw::mkbuf(calls, encoding);
            if mid < 0 {
                return mid;
            }
            let mut code = raw::pack_bytes(calls, mid, &mut head);
            for part in &parts {
                code = if code < 0 { code } else { raw::pack(calls, mid, 1, 1, part) };
            }
            code = if code < 0 { code } else { raw::send(calls, mid, &target, tag) };
            raw::freebuf(calls, mid);
            code
        })
    });
    check(py, call, code.unwrap_or_else(|code| code))
}

/// Sends an object to tasks.
#[pyfunction]
#[pyo3(signature = (tids, tag, parts, context=None))]
pub fn send_object(
    py: Python<'_>,
    tids: Vec<i32>,
    tag: i32,
    parts: &Bound<'_, PyAny>,
    context: Option<i32>,
) -> PyResult<()> {
    send_parts(py, "pvm_send", parts, (to(tids), tag, context)).map(drop)
}

/// Sends an object to the other members of a group.
#[pyfunction]
pub fn bcast_object(py: Python<'_>, group: Text, tag: i32, parts: &Bound<'_, PyAny>) -> PyResult<()> {
    send_parts(py, "pvm_bcast", parts, (Target::Group(group.0), tag, None)).map(drop)
}

/// Puts an object into a mailbox. Returns the index of the entry.
#[pyfunction]
pub fn put_object(py: Python<'_>, name: Text, flags: i32, parts: &Bound<'_, PyAny>) -> PyResult<i32> {
    send_parts(py, "pvm_putinfo", parts, (Target::Mailbox(name.0, flags), 0, None))
}
