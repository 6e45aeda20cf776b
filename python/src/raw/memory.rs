//! The memory of Python's objects.
use libc::{c_char, c_int, c_void};
use pyo3::prelude::*;
use std::ptr::null;

/// Python's `Py_buffer`. The limited interface has it from 3.11 on; its layout is the same in 3.9 and 3.10.
#[repr(C)]
pub(super) struct View {
    pub(super) data: *mut c_void,
    owner: *mut pyo3::ffi::PyObject,
    bytes: isize,
    item_bytes: isize,
    is_readonly: c_int,
    dimensions: c_int,
    format: *mut c_char,
    shape: *mut isize,
    strides: *mut isize,
    suboffsets: *mut isize,
    internal: *mut c_void,
}

unsafe extern "C" {
    fn PyObject_GetBuffer(object: *mut pyo3::ffi::PyObject, view: *mut View, flags: c_int) -> c_int;
    fn PyBuffer_Release(view: *mut View);
}

/// The contiguous memory of a Python object, which stays in place until the value is dropped. (The view is boxed, since
/// exporters may keep its address.)
pub struct Buffer(pub(super) Box<View>);

// SAFETY: the memory is read and written by copying bytes only, and `drop` takes the interpreter's lock.
unsafe impl Send for Buffer {}
// SAFETY: as above; nothing of the value itself changes.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// Returns the memory of an object, or the exception of an object without contiguous (writable) memory.
    pub fn of(object: &Bound<'_, PyAny>, writable: bool) -> PyResult<Buffer> {
        // SAFETY: all bytes zero are a valid view: null pointers and numbers.
        let mut view: Box<View> = Box::new(unsafe { std::mem::zeroed() });
        // SAFETY: the interpreter's lock is held (`Bound`), and the view is writable.
        if unsafe { PyObject_GetBuffer(object.as_ptr(), &mut *view, c_int::from(writable)) } < 0 {
            return Err(PyErr::fetch(object.py()));
        }
        Ok(Buffer(view))
    }
    /// Returns the number of bytes.
    pub fn len(&self) -> usize {
        self.0.bytes as usize
    }
    /// Returns whether the memory must not be changed.
    pub fn is_readonly(&self) -> bool {
        self.0.is_readonly != 0
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: the view was filled by PyObject_GetBuffer and is released once, with the interpreter's lock.
        Python::attach(|_| unsafe { PyBuffer_Release(&mut *self.0) });
    }
}

/// Returns a bytes or bytearray object of that length whose memory was not cleared; the caller fills it.
pub fn unfilled(py: Python<'_>, bytes: usize, is_readonly: bool) -> PyResult<(Bound<'_, PyAny>, Place)> {
    let size = bytes as isize;
    // SAFETY: the interpreter's lock is held; a null pointer asks for memory that is not filled. The pointer to the
    // data is used by `unpack_parts` only, before anybody else sees the object.
    unsafe {
        let object = match is_readonly {
            true => pyo3::ffi::PyBytes_FromStringAndSize(null(), size),
            false => pyo3::ffi::PyByteArray_FromStringAndSize(null(), size),
        };
        let object = Bound::from_owned_ptr_or_err(py, object)?;
        let data = match is_readonly {
            true => pyo3::ffi::PyBytes_AsString(object.as_ptr()),
            false => pyo3::ffi::PyByteArray_AsString(object.as_ptr()),
        };
        Ok((object, Place { data: data.cast(), bytes }))
    }
}

/// The memory of an object from [`unfilled`].
pub struct Place {
    pub(super) data: *mut c_void,
    pub(super) bytes: usize,
}

// SAFETY: one thread at a time copies bytes there.
unsafe impl Send for Place {}
// SAFETY: as above.
unsafe impl Sync for Place {}
