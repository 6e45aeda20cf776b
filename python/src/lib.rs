//! `hpvm._hpvm`: PVM's calls for Python, on the process's own `libpvm3.so.3`. The package `hpvm` is what users see.
#![deny(unsafe_code)]

mod message;
mod objects;
mod plain;
mod raw;
mod state;

use message::{Message, Packet};
use pyo3::prelude::*;
use pyo3::types::PyModule;
use raw::{Buffer, Calls};
use state::{begin_anew, state};
use std::ffi::{CStr, CString, OsString};
use std::ops::Deref;
use std::os::unix::ffi::OsStringExt;

/// A Python text, or a path's bytes that are no text, as C sees it.
struct Text(CString);

impl<'py> FromPyObject<'py> for Text {
    fn extract_bound(object: &Bound<'py, PyAny>) -> PyResult<Text> {
        let text: OsString = object.extract()?;
        Ok(Text(CString::new(text.into_vec())?))
    }
}

impl Deref for Text {
    type Target = CStr;
    fn deref(&self) -> &CStr {
        &self.0
    }
}

fn owned(texts: Vec<Text>) -> Vec<CString> {
    texts.into_iter().map(|text| text.0).collect()
}

/// Makes the exception for an error code of a call.
fn fail(py: Python<'_>, call: &str, code: i32) -> PyErr {
    let made = py.import("hpvm.errors").and_then(|module| module.getattr("error")?.call1((call, code)));
    made.map_or_else(|error| error, PyErr::from_value)
}

/// Returns a result that is not an error code.
fn check(py: Python<'_>, call: &str, code: i32) -> PyResult<i32> {
    if code < 0 { Err(fail(py, call, code)) } else { Ok(code) }
}

/// Calls the library without the interpreter's lock.
fn called<T: Send>(py: Python<'_>, call: &str, work: impl FnOnce(&mut Calls) -> T + Send) -> PyResult<T> {
    let state = state(py);
    py.detach(|| state.run(None, work)).map_err(|code| fail(py, call, code))
}

/// Python functions that call the library with ints and texts and return its result, negative codes too.
macro_rules! plain {
    ($($name:ident($($argument:ident: $type:ty),*) $text:ident;)*) => {
        $(#[pyfunction]
        fn $name(py: Python<'_> $(, $argument: $type)*) -> PyResult<i32> {
            called(py, stringify!($name), move |calls| plain!(@ $text $name calls $($argument),*))
        })*
        fn add_plain(module: &Bound<'_, PyModule>) -> PyResult<()> {
            $(module.add_function(wrap_pyfunction!($name, module)?)?;)*
            Ok(())
        }
    };
    (@ ints $name:ident $calls:ident $($argument:ident),*) => { raw::$name($calls $(, $argument)*) };
    (@ text $name:ident $calls:ident $first:ident $(, $argument:ident)*) => {
        raw::$name($calls, &$first $(, $argument)*)
    };
}

plain! {
    mytid() ints;
    parent() ints;
    exit() ints;
    halt() ints;
    kill(tid: i32) ints;
    sendsig(tid: i32, signal: i32) ints;
    pstat(tid: i32) ints;
    tidtohost(tid: i32) ints;
    setopt(what: i32, value: i32) ints;
    getopt(what: i32) ints;
    probe(tid: i32, tag: i32) ints;
    newcontext() ints;
    freecontext(context: i32) ints;
    mstat(name: Text) text;
    delinfo(name: Text, index: i32, flags: i32) text;
    joingroup(name: Text) text;
    lvgroup(name: Text) text;
    gsize(name: Text) text;
    gettid(name: Text, instance: i32) text;
    getinst(name: Text, tid: i32) text;
}

/// Starts a daemon with these arguments. Returns the library's result.
#[pyfunction]
fn start_pvmd(py: Python<'_>, arguments: Vec<Text>) -> PyResult<i32> {
    called(py, "pvm_start_pvmd", |calls| raw::start_pvmd(calls, owned(arguments)))
}

/// Starts tasks. Returns the library's result and the tids.
#[pyfunction]
fn spawn(
    py: Python<'_>,
    file: Text,
    argv: Vec<Text>,
    flags: i32,
    place: Text,
    count: i32,
) -> PyResult<(i32, Vec<i32>)> {
    called(py, "pvm_spawn", |calls| raw::spawn(calls, &file, owned(argv), flags, &place, count))
}

/// Asks for messages about events, in a context.
#[pyfunction]
#[pyo3(signature = (what, tag, tids, count=-1, context=None))]
fn notify(py: Python<'_>, what: i32, tag: i32, tids: Vec<i32>, count: i32, context: Option<i32>) -> PyResult<()> {
    let state = state(py);
    let code = py.detach(|| state.run(context, |calls| raw::notify(calls, what, tag, &tids, count)));
    check(py, "pvm_notify", code.unwrap_or_else(|code| code)).map(drop)
}

/// Adds or deletes hosts. Returns the library's result and a code for each host.
#[pyfunction]
fn change_hosts(py: Python<'_>, names: Vec<Text>, add: bool) -> PyResult<(i32, Vec<i32>)> {
    called(py, "pvm_addhosts", |calls| raw::change_hosts(calls, owned(names), add))
}

/// Returns the hosts: tid, name, architecture, speed, data signature.
#[pyfunction]
fn config(py: Python<'_>) -> PyResult<Vec<raw::Host>> {
    called(py, "pvm_config", raw::config)?.map_err(|code| fail(py, "pvm_config", code))
}

/// Returns the tasks: tid, parent, host, flags, program, process id.
#[pyfunction]
fn tasks(py: Python<'_>, place: i32) -> PyResult<Vec<raw::Task>> {
    called(py, "pvm_tasks", |calls| raw::tasks(calls, place))?.map_err(|code| fail(py, "pvm_tasks", code))
}

/// Returns the classes of mailbox entries and their entries.
#[pyfunction]
fn mailboxes(py: Python<'_>, pattern: Text) -> PyResult<Vec<raw::Mailbox>> {
    let found = called(py, "pvm_getmboxinfo", |calls| raw::mailboxes(calls, &pattern))?;
    found.map_err(|code| fail(py, "pvm_getmboxinfo", code))
}

/// Returns the version of PVM's interface.
#[pyfunction]
fn version() -> String {
    raw::version()
}

/// Waits for a message; `None` when the time (in seconds) is over. Signal handlers of Python run meanwhile.
#[pyfunction]
#[pyo3(signature = (tid=-1, tag=-1, timeout=None, context=None))]
fn recv_message(
    py: Python<'_>,
    tid: i32,
    tag: i32,
    timeout: Option<f64>,
    context: Option<i32>,
) -> PyResult<Option<Message>> {
    let state = state(py);
    let found = objects::receive(py, &state, timeout, context, |calls, limit| raw::take(calls, tid, tag, limit))?;
    Ok(found.map(|envelope| Message::new(state, envelope)))
}

/// Returns a message that is there, without ringing the event `own`.
#[pyfunction]
fn look(py: Python<'_>, own: i32, tid: i32, tag: i32, context: Option<i32>) -> PyResult<Option<Message>> {
    let state = state(py);
    let found = py.detach(|| state.look(own, context, &|calls, limit| raw::take(calls, tid, tag, limit)));
    let found = found.map_err(|code| fail(py, "pvm_nrecv", code))?;
    Ok(found.map(|envelope| Message::new(state, envelope)))
}

/// Takes an entry of a mailbox; `None` if there is none.
#[pyfunction]
fn recvinfo(py: Python<'_>, name: Text, index: i32, flags: i32) -> PyResult<Option<Message>> {
    let state = state(py);
    let found = called(py, "pvm_recvinfo", |calls| raw::take_from_mailbox(calls, &name, index, flags))?;
    let found = found.map_err(|code| fail(py, "pvm_recvinfo", code))?;
    Ok(found.map(|envelope| Message::new(state, envelope)))
}

/// Waits until `count` members have called.
#[pyfunction]
fn barrier(py: Python<'_>, group: Text, count: i32) -> PyResult<()> {
    let code = py.detach(|| raw::barrier(&group, count));
    check(py, "pvm_barrier", code).map(drop)
}

/// Gathers or scatters `count` items of `size` bytes of PVM's type `code`, among `members` members.
#[pyfunction]
#[pyo3(signature = (scatter, result, data, count, size, code, tag, group, root, members))]
#[allow(clippy::too_many_arguments)]
fn collect(
    py: Python<'_>,
    scatter: bool,
    result: Option<&Bound<'_, PyAny>>,
    data: Option<&Bound<'_, PyAny>>,
    count: usize,
    size: usize,
    code: i32,
    tag: i32,
    group: Text,
    root: i32,
    members: usize,
) -> PyResult<()> {
    let result = result.map(|object| Buffer::of(object, true)).transpose()?;
    let data = data.map(|object| Buffer::of(object, false)).transpose()?;
    let (of_result, of_data) = if scatter { (1, members) } else { (members, 1) };
    let fits = |buffer: &Option<Buffer>, times: usize| {
        buffer.as_ref().is_none_or(|buffer| buffer.len() >= count.saturating_mul(size).saturating_mul(times))
    };
    if !fits(&result, of_result) || !fits(&data, of_data) || count > i32::MAX as usize {
        return Err(fail(py, "pvm_gather", -2));
    }
    let items = count as i32;
    let done = py.detach(|| raw::collect(scatter, result.as_ref(), data.as_ref(), items, code, tag, &group, root));
    check(py, if scatter { "pvm_scatter" } else { "pvm_gather" }, done).map(drop)
}

/// Reduces items by a built-in operation: 0 maximum, 1 minimum, 2 sum, 3 product.
#[pyfunction]
#[allow(clippy::too_many_arguments)]
fn reduce(
    py: Python<'_>,
    operation: usize,
    data: &Bound<'_, PyAny>,
    size: usize,
    code: i32,
    tag: i32,
    group: Text,
    root: i32,
) -> PyResult<()> {
    let data = Buffer::of(data, true)?;
    let count = i32::try_from(data.len() / size.max(1)).map_err(|_| fail(py, "pvm_reduce", -2))?;
    let done = py.detach(|| raw::reduce(operation, &data, count, code, tag, &group, root));
    check(py, "pvm_reduce", done).map(drop)
}

/// Returns the descriptor of `pvm_getfds`.
#[pyfunction]
fn descriptor(py: Python<'_>) -> PyResult<i32> {
    called(py, "pvm_getfds", raw::descriptor)?.map_err(|code| fail(py, "pvm_getfds", code))
}

/// Makes an event of a loop: a descriptor that is readable after other threads' calls.
#[pyfunction]
fn add_event(py: Python<'_>) -> PyResult<i32> {
    let event = raw::event()?;
    state(py).add(event);
    Ok(event)
}

/// Makes an event unreadable until the next call of another thread.
#[pyfunction]
fn silence(event: i32) {
    raw::silence(event);
}

/// Closes the event of a loop.
#[pyfunction]
fn remove_event(py: Python<'_>, event: i32) {
    state(py).remove(event);
    raw::close(event);
}

/// From now on, waiting threads leave the library to others.
#[pyfunction]
fn share(py: Python<'_>) {
    state(py).share();
}

/// Begins anew in a child of `fork`.
#[pyfunction]
fn after_fork(py: Python<'_>) {
    begin_anew(py);
}

#[pymodule]
fn _hpvm(module: &Bound<'_, PyModule>) -> PyResult<()> {
    add_plain(module)?;
    objects::add(module)?;
    module.add_class::<Message>()?;
    module.add_class::<Packet>()?;
    module.add_function(wrap_pyfunction!(message::send_object, module)?)?;
    module.add_function(wrap_pyfunction!(message::bcast_object, module)?)?;
    module.add_function(wrap_pyfunction!(message::put_object, module)?)?;
    macro_rules! add {
        ($($name:ident),*) => { $(module.add_function(wrap_pyfunction!($name, module)?)?;)* };
    }
    add!(start_pvmd, spawn, notify, change_hosts, config, tasks, mailboxes, version, recv_message, look, recvinfo);
    add!(barrier, collect, reduce, descriptor, add_event, silence, remove_event, share, after_fork);
    Ok(())
}
