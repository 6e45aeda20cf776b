//! The calls that programs make most often, one Python call each: objects (`send`, `recv`) and memory (`psend`,
//! `precv`).
//!
//! An object of one part whose pickle is short travels as [`SIGN_OF_ONE`] and the pickle, by `pvm_psend`, which needs no
//! buffer. Other objects travel as [`crate::message`] describes.
use crate::message::{self, BAD_MESSAGE, Message, SHORT_BYTES_MAX, SIGN_OF_ONE, Target};
use crate::raw::{self, Buffer, Calls, Envelope};
use crate::state::{State, slice, state};
use crate::{check, fail, plain};
use pyo3::exceptions::{PyTimeoutError, PyTypeError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyByteArray, PyBytes, PyDict, PyList, PyMemoryView};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Buffers of fewer bytes travel inside the pickle.
const OUT_OF_BAND_BYTES_MIN: usize = 1024;
const PICKLE_PROTOCOL: i32 = 5;
/// The length of the messages that take the shortest path of the library.
const IMMEDIATE_BYTES: usize = 16;
/// Room for the message of a small object.
const SMALL_BYTES: usize = 256;

/// The functions of Python's pickle.
struct Pickle {
    dumps: Py<PyAny>,
    loads: Py<PyAny>,
    wrap: Py<PyAny>,
}

fn pickle(py: Python<'_>) -> PyResult<&'static Pickle> {
    static PICKLE: PyOnceLock<Pickle> = PyOnceLock::new();
    PICKLE.get_or_try_init(py, || {
        let module = py.import("pickle")?;
        let get = |name| module.getattr(name).map(Bound::unbind);
        Ok(Pickle { dumps: get("dumps")?, loads: get("loads")?, wrap: get("PickleBuffer")? })
    })
}

/// What pickle calls for each buffer: keeps the long ones for the message, and leaves the short ones to the pickle.
#[pyclass(frozen)]
struct Keeper(Mutex<Vec<Py<PyAny>>>);

#[pymethods]
impl Keeper {
    fn __call__(&self, buffer: &Bound<'_, PyAny>) -> PyResult<bool> {
        let memory = buffer.call_method0("raw")?;
        if memory.len()? < OUT_OF_BAND_BYTES_MIN {
            return Ok(true);
        }
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(memory.unbind());
        Ok(false)
    }
}

/// A keeper and the named arguments that name it, which the next pickle uses again.
static IDLE: Mutex<Option<(Py<Keeper>, Py<PyDict>)>> = Mutex::new(None);

/// Returns the pickle of an object, and the buffers that are not copied into it.
fn dump<'py>(py: Python<'py>, value: &Bound<'py, PyAny>) -> PyResult<(Bound<'py, PyAny>, Vec<Py<PyAny>>)> {
    let pickle = pickle(py)?;
    // Pickling may run code that pickles something else: that finds no idle keeper.
    let idle = IDLE.lock().unwrap_or_else(PoisonError::into_inner).take();
    let (keeper, named) = match idle {
        Some(idle) => idle,
        None => {
            let keeper = Py::new(py, Keeper(Mutex::new(Vec::new())))?;
            let named = PyDict::new(py);
            named.set_item("buffer_callback", &keeper)?;
            (keeper, named.unbind())
        }
    };
    let is_memory = value.is_instance_of::<PyBytes>()
        || value.is_instance_of::<PyByteArray>()
        || value.is_instance_of::<PyMemoryView>();
    let wrapped = if is_memory && value.len()? >= OUT_OF_BAND_BYTES_MIN {
        Some(pickle.wrap.bind(py).call1((value,))?)
    } else {
        None
    };
    let value = wrapped.as_ref().unwrap_or(value);
    let made = pickle.dumps.bind(py).call((value, PICKLE_PROTOCOL), Some(named.bind(py)));
    let kept = std::mem::take(&mut *keeper.get().0.lock().unwrap_or_else(PoisonError::into_inner));
    *IDLE.lock().unwrap_or_else(PoisonError::into_inner) = Some((keeper, named));
    Ok((made?, kept))
}

/// Returns the parts of an object: its pickle, and the buffers that are not copied into it.
#[pyfunction]
pub fn dumps<'py>(py: Python<'py>, value: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyList>> {
    let (pickle, kept) = dump(py, value)?;
    let parts = PyList::new(py, [pickle])?;
    kept.into_iter().try_for_each(|buffer| parts.append(buffer))?;
    Ok(parts)
}

/// Returns the object of its parts.
#[pyfunction]
pub fn loads<'py>(py: Python<'py>, parts: &Bound<'py, PyList>) -> PyResult<Bound<'py, PyAny>> {
    let loads = pickle(py)?.loads.bind(py);
    let first = parts.get_item(0)?;
    if parts.len() == 1 {
        return loads.call1((first,));
    }
    let named = PyDict::new(py);
    named.set_item("buffers", parts.get_slice(1, parts.len()))?;
    loads.call((first,), Some(&named))
}

/// Returns the tasks of an argument that is a tid, or several.
fn target(to: &Bound<'_, PyAny>) -> PyResult<Target> {
    if let Ok(tid) = to.extract::<i32>() {
        return Ok(Target::Task(tid));
    }
    Ok(message::to(to.try_iter()?.map(|tid| tid?.extract()).collect::<PyResult<Vec<i32>>>()?))
}

/// Sends an object to a task, or to several.
///
/// numpy arrays and other objects with the buffer protocol are not copied into a pickle. The receiver gets an object
/// of its own; memory that was read-only stays read-only. Receive only from tasks that you trust: a pickle can run
/// code. A machine has one user, so its tasks are that user's.
#[pyfunction]
#[pyo3(signature = (to, value, tag=0))]
pub fn send(py: Python<'_>, to: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>, tag: i32) -> PyResult<()> {
    let target = target(to)?;
    let mut body = Vec::with_capacity(SMALL_BYTES);
    body.extend_from_slice(SIGN_OF_ONE);
    if let Target::Task(tid) = target {
        if plain::pickle(value, SIGN_OF_ONE.len() + SHORT_BYTES_MAX, &mut body) {
            return send_short(py, tid, tag, body);
        }
    }
    let (pickle, kept) = dump(py, value)?;
    if let (Target::Task(tid), true, Ok(bytes)) = (&target, kept.is_empty(), pickle.downcast::<PyBytes>()) {
        if bytes.as_bytes().len() <= SHORT_BYTES_MAX {
            body.truncate(SIGN_OF_ONE.len());
            body.extend_from_slice(bytes.as_bytes());
            return send_short(py, *tid, tag, body);
        }
    }
    let mut parts = Vec::with_capacity(kept.len() + 1);
    parts.push(Buffer::of(&pickle, false)?);
    for buffer in &kept {
        parts.push(Buffer::of(buffer.bind(py), false)?);
    }
    message::send_buffers(py, "pvm_send", parts, (target, tag, None)).map(drop)
}

/// Sends the message of an object of one part.
fn send_short(py: Python<'_>, tid: i32, tag: i32, mut body: Vec<u8>) -> PyResult<()> {
    // Messages of this length take the shortest path of the library, and pickle reads nothing behind its end.
    if body.len() < IMMEDIATE_BYTES {
        body.resize(IMMEDIATE_BYTES, 0);
    }
    let state = state(py);
    let code = py.detach(|| state.run(None, |calls| raw::psend_bytes(calls, tid, tag, &mut body)));
    check(py, "pvm_send", code.unwrap_or_else(|code| code)).map(drop)
}

/// Receives by `take` until it has found something or the time (in seconds) is over. Signal handlers of Python run
/// meanwhile.
pub fn receive<T: Send>(
    py: Python<'_>,
    state: &State,
    timeout: Option<f64>,
    context: Option<i32>,
    take: impl Fn(&mut Calls, Option<Duration>) -> Result<Option<T>, i32> + Send + Sync,
) -> PyResult<Option<T>> {
    let slice = slice();
    let end = timeout.map(|seconds| Instant::now() + Duration::from_secs_f64(seconds.clamp(0.0, 1e9)));
    loop {
        let left = end.map(|end| end.saturating_duration_since(Instant::now()));
        let found = py.detach(|| match left {
            Some(Duration::ZERO) => state.look(-1, context, &take),
            _ => state.wait(left.map_or(slice, |left| left.min(slice)), context, &take),
        });
        if let Some(found) = found.map_err(|code| fail(py, "pvm_recv", code))? {
            return Ok(Some(found));
        }
        py.check_signals()?;
        if left == Some(Duration::ZERO) {
            return Ok(None);
        }
    }
}

fn late(timeout: Option<f64>) -> PyErr {
    PyTimeoutError::new_err(format!("no message within {} s", timeout.unwrap_or_default()))
}

/// A received object: the whole message if it is short, or a message whose sign has been read.
enum Found {
    Short(Vec<u8>),
    Long(Envelope, [u8; 8]),
}

/// Takes a message, and its bytes if it is short.
fn take_object(calls: &mut Calls, tid: i32, tag: i32, limit: Option<Duration>) -> Result<Option<Found>, i32> {
    let Some((envelope, bytes)) = raw::take_and_read(calls, tid, tag, limit)? else { return Ok(None) };
    if envelope.0 == 0 {
        return Ok(Some(Found::Short(bytes.to_vec())));
    }
    let sign = bytes.first_chunk().ok_or(BAD_MESSAGE)?;
    Ok(Some(Found::Long(envelope, *sign)))
}

/// Returns the object of a short message.
fn object_of<'py>(py: Python<'py>, bytes: &[u8]) -> PyResult<Bound<'py, PyAny>> {
    if let Some(one) = bytes.strip_prefix(SIGN_OF_ONE) {
        return match plain::unpickle(py, one) {
            Some(object) => Ok(object),
            None => pickle(py)?.loads.bind(py).call1((PyBytes::new(py, one),)),
        };
    }
    let parts = message::parts_of(py, bytes)?.ok_or_else(|| fail(py, "pvm_recv", BAD_MESSAGE))?;
    loads(py, &parts)
}

/// Waits for an object; -1 matches every sender or tag. Raises `TimeoutError` after `timeout` seconds.
#[pyfunction]
#[pyo3(signature = (source=-1, tag=-1, timeout=None))]
pub fn recv(py: Python<'_>, source: i32, tag: i32, timeout: Option<f64>) -> PyResult<Bound<'_, PyAny>> {
    let state = state(py);
    let found = receive(py, &state, timeout, None, |calls, limit| take_object(calls, source, tag, limit))?;
    match found {
        None => Err(late(timeout)),
        Some(Found::Short(bytes)) => object_of(py, &bytes),
        Some(Found::Long(envelope, sign)) => loads(py, &Message::new(state, envelope).parts_after(py, sign)?),
    }
}

/// PVM's number of the type of items, by the format of the buffer protocol, and the size of an item in bytes.
fn kind(data: &Buffer) -> PyResult<(i32, usize)> {
    let (format, size) = (data.format(), data.item_bytes());
    let name = match size {
        1 => format.trim_start_matches(['@', '=', '<']),
        _ => format.trim_start_matches(['@', '=']),
    };
    let code = match (name, size) {
        ("b" | "B" | "c" | "?", 1) => 1,
        ("h", 2) => 2,
        ("i", 4) => 3,
        ("f", 4) => 4,
        ("Zf" | "F", 8) => 5,
        ("d", 8) => 6,
        ("Zd" | "D", 16) => 7,
        ("l" | "q", 8) => 8,
        ("H", 2) => 9,
        ("I", 4) => 10,
        ("L" | "Q", 8) => 11,
        _ => return Err(PyTypeError::new_err(format!("PVM has no type for items of the format {format:?}"))),
    };
    Ok((code, size))
}

/// Sends the items of an array (numpy, array.array, bytes ...) to a task in one message of one type (`pvm_psend`).
///
/// A task in C or Fortran receives them by `pvm_precv`, or unpacks them. This is the fastest way to send an array.
#[pyfunction]
#[pyo3(signature = (to, data, tag=0))]
pub fn psend(py: Python<'_>, to: i32, data: &Bound<'_, PyAny>, tag: i32) -> PyResult<()> {
    let data = Buffer::typed(data, false)?;
    let (code, size) = kind(&data)?;
    let state = state(py);
    let done = py.detach(|| state.run(None, |calls| raw::psend(calls, to, tag, code, size, &data)));
    check(py, "pvm_psend", done.unwrap_or_else(|code| code)).map(drop)
}

/// Waits for a message of items of one type and stores them in writable memory, such as a numpy array (`pvm_precv`).
///
/// Returns the sender, the tag, and how many items were stored: all of the message, or as many as fit. -1 matches every
/// sender or tag. Raises `TimeoutError` after `timeout` seconds.
#[pyfunction]
#[pyo3(signature = (into, source=-1, tag=-1, timeout=None))]
pub fn precv(
    py: Python<'_>,
    into: &Bound<'_, PyAny>,
    source: i32,
    tag: i32,
    timeout: Option<f64>,
) -> PyResult<(i32, i32, usize)> {
    let data = Buffer::typed(into, true)?;
    let (code, size) = kind(&data)?;
    let state = state(py);
    let found =
        receive(py, &state, timeout, None, |calls, limit| raw::precv(calls, source, tag, limit, (code, size), &data))?;
    let found = found.map(|(tid, tag, bytes)| (tid, tag, bytes.min(data.len()) / size));
    found.ok_or_else(|| late(timeout))
}

/// Adds the functions to the module.
pub fn add(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(dumps, module)?)?;
    module.add_function(wrap_pyfunction!(loads, module)?)?;
    module.add_function(wrap_pyfunction!(send, module)?)?;
    module.add_function(wrap_pyfunction!(recv, module)?)?;
    module.add_function(wrap_pyfunction!(psend, module)?)?;
    module.add_function(wrap_pyfunction!(precv, module)?)
}
