//! The memory of Python's objects.
use libc::{c_char, c_int, c_void};
use pyo3::prelude::*;
use pyo3::types::{PyInt, PyString};
use std::ffi::CStr;
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

/// `PyBUF_FORMAT` and `PyBUF_ND`: the items' format, and memory in C's order.
const WITH_FORMAT: c_int = 0x4;
const WITH_SHAPE: c_int = 0x8;

/// From this size on, numpy asks for large pages, too.
const LARGE_PAGES_BYTES_MIN: usize = 4 << 20;
const PAGE_BYTES: usize = 4096;

unsafe extern "C" {
    fn PyObject_GetBuffer(object: *mut pyo3::ffi::PyObject, view: *mut View, flags: c_int) -> c_int;
    fn PyBuffer_Release(view: *mut View);
    /// The limited interface has it from 3.10 on; it is the same in 3.9.
    fn PyUnicode_AsUTF8AndSize(text: *mut pyo3::ffi::PyObject, bytes: *mut isize) -> *const c_char;
}

/// Returns the UTF-8 of a text, which Python keeps with the text; `None` if the text has a lone surrogate.
pub fn utf8<'a>(text: &'a Bound<'_, PyString>) -> Option<&'a [u8]> {
    let mut bytes = 0;
    // SAFETY: a text, and a place for the length.
    let start = unsafe { PyUnicode_AsUTF8AndSize(text.as_ptr(), &mut bytes) };
    if start.is_null() {
        // The exception says what `None` says.
        drop(PyErr::take(text.py()));
        return None;
    }
    // SAFETY: that many bytes, which stay what they are as long as the text lives.
    Some(unsafe { std::slice::from_raw_parts(start.cast(), bytes as usize) })
}

/// Returns the text of UTF-8; `None` if the bytes are something else.
pub fn new_text<'py>(py: Python<'py>, utf8: &[u8]) -> Option<Bound<'py, PyAny>> {
    // SAFETY: the slice's memory; the result is a new object, or null with an exception.
    unsafe {
        let text = pyo3::ffi::PyUnicode_FromStringAndSize(utf8.as_ptr().cast(), utf8.len() as isize);
        Bound::from_owned_ptr_or_err(py, text).ok()
    }
}

/// Returns the value of an int; `None` if 64 bits do not hold it.
pub fn int(int: &Bound<'_, PyInt>) -> Option<i64> {
    let mut is_over = 0;
    // SAFETY: an int; the call reports an overflow in `is_over` and raises no exception.
    let value = unsafe { pyo3::ffi::PyLong_AsLongLongAndOverflow(int.as_ptr(), &mut is_over) };
    (is_over == 0).then_some(value)
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
        Buffer::with_flags(object, c_int::from(writable))
    }

    /// Does the same for memory whose items have a format.
    pub fn typed(object: &Bound<'_, PyAny>, writable: bool) -> PyResult<Buffer> {
        Buffer::with_flags(object, c_int::from(writable) | WITH_FORMAT | WITH_SHAPE)
    }

    fn with_flags(object: &Bound<'_, PyAny>, flags: c_int) -> PyResult<Buffer> {
        // SAFETY: all bytes zero are a valid view: null pointers and numbers.
        let mut view: Box<View> = Box::new(unsafe { std::mem::zeroed() });
        // SAFETY: the interpreter's lock is held (`Bound`), and the view is writable.
        if unsafe { PyObject_GetBuffer(object.as_ptr(), &mut *view, flags) } < 0 {
            return Err(PyErr::fetch(object.py()));
        }
        Ok(Buffer(view))
    }
    /// Returns the number of bytes.
    pub fn len(&self) -> usize {
        self.0.bytes as usize
    }
    /// Returns the size of an item in bytes, at least 1.
    pub fn item_bytes(&self) -> usize {
        self.0.item_bytes.max(1) as usize
    }

    /// Returns the format of the items; without one, they are bytes.
    pub fn format(&self) -> &str {
        if self.0.format.is_null() {
            return "B";
        }
        // SAFETY: the exporter's text ends with a zero and stays while the view lives.
        unsafe { CStr::from_ptr(self.0.format) }.to_str().unwrap_or_default()
    }

    /// Appends a copy of the bytes.
    pub fn append_to(&self, bytes: &mut Vec<u8>) {
        if self.len() == 0 {
            return;
        }
        // SAFETY: the memory stays in place while the view lives, and `bytes` grows into memory of its own.
        bytes.extend_from_slice(unsafe { std::slice::from_raw_parts(self.0.data.cast_const().cast(), self.len()) });
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
        let place = Place { data: data.cast(), bytes };
        place.prefer_large_pages();
        Ok((object, place))
    }
}

/// The memory of an object from [`unfilled`].
pub struct Place {
    pub(super) data: *mut c_void,
    pub(super) bytes: usize,
}

impl Place {
    /// Asks for large pages, as numpy does for its arrays: the first use of new memory costs less then.
    fn prefer_large_pages(&self) {
        if self.bytes < LARGE_PAGES_BYTES_MIN {
            return;
        }
        let start = self.data.addr().next_multiple_of(PAGE_BYTES);
        let end = (self.data.addr() + self.bytes) / PAGE_BYTES * PAGE_BYTES;
        let first = self.data.wrapping_byte_add(start - self.data.addr());
        // SAFETY: whole pages inside the memory of the object; the advice changes no contents.
        unsafe { libc::madvise(first, end - start, libc::MADV_HUGEPAGE) };
    }
}

// SAFETY: one thread at a time copies bytes there.
unsafe impl Send for Place {}
// SAFETY: as above.
unsafe impl Sync for Place {}
