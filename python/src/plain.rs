//! Pickles of plain values, made and read without Python's pickle: numbers, texts, bytes, `None`, and lists, tuples and
//! dicts of them. Most messages of programs are such values, and pickle takes longer for them than the message does.
//!
//! What is written is a pickle of protocol 5, which Python's pickle reads, too. Values of any other kind are left to
//! Python's pickle, in either direction.
use crate::raw;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple};

/// A pickle of protocol 5 begins so.
const HEAD: [u8; 2] = [0x80, 5];
/// The bytes of an int that is written with its length.
const BYTES_OF_ANY: u8 = size_of::<i64>() as u8;
/// Containers in containers that are followed.
const DEPTH_MAX: usize = 8;
/// The entries of a container for which there is room before it is read.
const ENTRIES_EXPECTED: usize = 128;

/// The operations of pickle that are used here; each is one byte.
mod op {
    pub const MARK: u8 = b'(';
    pub const STOP: u8 = b'.';
    pub const NONE: u8 = b'N';
    pub const TRUE: u8 = 0x88;
    pub const FALSE: u8 = 0x89;
    pub const INT_OF_1: u8 = b'K';
    pub const INT_OF_2: u8 = b'M';
    pub const INT_OF_4: u8 = b'J';
    pub const INT_OF_ANY: u8 = 0x8a;
    pub const FLOAT: u8 = b'G';
    pub const SHORT_TEXT: u8 = 0x8c;
    pub const TEXT: u8 = b'X';
    pub const SHORT_BYTES: u8 = b'C';
    pub const BYTES: u8 = b'B';
    pub const LIST: u8 = b']';
    pub const LIST_END: u8 = b'e';
    pub const DICT: u8 = b'}';
    pub const DICT_END: u8 = b'u';
    pub const TUPLE_END: u8 = b't';
}

/// Appends the pickle of a value to `out`, which then has at most `bytes_max` bytes. Returns whether it could be made;
/// if not, `out` has any contents.
pub fn pickle(value: &Bound<'_, PyAny>, bytes_max: usize, out: &mut Vec<u8>) -> bool {
    out.extend_from_slice(&HEAD);
    let mut writer = Writer { out, bytes_max: bytes_max.saturating_sub(1) };
    if writer.write(value, None, DEPTH_MAX).is_none() {
        return false;
    }
    out.push(op::STOP);
    true
}

struct Writer<'a> {
    out: &'a mut Vec<u8>,
    bytes_max: usize,
}

impl Writer<'_> {
    /// Returns `None` if the value is not plain, or too long. `references` are those to an entry of a container which
    /// nothing else holds.
    fn write(&mut self, value: &Bound<'_, PyAny>, references: Option<isize>, depth: usize) -> Option<()> {
        if let Ok(int) = value.downcast_exact::<PyInt>() {
            self.int(raw::int(int)?);
        } else if let Ok(text) = value.downcast_exact::<PyString>() {
            self.bytes(raw::utf8(text)?, [op::SHORT_TEXT, op::TEXT])?;
        } else if let Ok(float) = value.downcast_exact::<PyFloat>() {
            self.out.push(op::FLOAT);
            self.out.extend_from_slice(&float.value().to_be_bytes());
        } else if value.is_none() {
            self.out.push(op::NONE);
        } else if let Ok(truth) = value.downcast_exact::<PyBool>() {
            self.out.push(if truth.is_true() { op::TRUE } else { op::FALSE });
        } else if let Ok(bytes) = value.downcast_exact::<PyBytes>() {
            self.bytes(bytes.as_bytes(), [op::SHORT_BYTES, op::BYTES])?;
        } else {
            // An entry that is held twice may be in the value twice, and must be one object again.
            let is_held_once = references.is_none_or(|references| value.get_refcnt() == references);
            return if is_held_once { self.container(value, depth.checked_sub(1)?) } else { None };
        }
        (self.out.len() <= self.bytes_max).then_some(())
    }

    fn container(&mut self, value: &Bound<'_, PyAny>, depth: usize) -> Option<()> {
        if let Ok(list) = value.downcast_exact::<PyList>() {
            self.begin(&[op::LIST, op::MARK], list.len())?;
            // The entries belong to the list and to this tuple, which makes looking at them faster.
            let entries = list.to_tuple();
            entries.iter_borrowed().try_for_each(|one| self.write(&one, Some(2), depth))?;
            self.out.push(op::LIST_END);
        } else if let Ok(tuple) = value.downcast_exact::<PyTuple>() {
            self.begin(&[op::MARK], tuple.len())?;
            tuple.iter_borrowed().try_for_each(|one| self.write(&one, Some(1), depth))?;
            self.out.push(op::TUPLE_END);
        } else if let Ok(dict) = value.downcast_exact::<PyDict>() {
            self.begin(&[op::DICT, op::MARK], dict.len())?;
            // The entries belong to the dict and to this iterator.
            dict.iter().try_for_each(|(key, one)| {
                self.write(&key, Some(2), depth)?;
                self.write(&one, Some(2), depth)
            })?;
            self.out.push(op::DICT_END);
        } else {
            return None;
        }
        (self.out.len() <= self.bytes_max).then_some(())
    }

    /// Begins a container. Each entry takes at least one byte, so a container with too many entries is refused at once.
    fn begin(&mut self, begin: &[u8], entries: usize) -> Option<()> {
        self.out.extend_from_slice(begin);
        (self.out.len() + entries <= self.bytes_max).then_some(())
    }

    fn int(&mut self, int: i64) {
        if let Ok(byte) = u8::try_from(int) {
            self.out.extend_from_slice(&[op::INT_OF_1, byte]);
        } else if let Ok(short) = u16::try_from(int) {
            let [low, high] = short.to_le_bytes();
            self.out.extend_from_slice(&[op::INT_OF_2, low, high]);
        } else if let Ok(int) = i32::try_from(int) {
            self.out.push(op::INT_OF_4);
            self.out.extend_from_slice(&int.to_le_bytes());
        } else {
            self.out.extend_from_slice(&[op::INT_OF_ANY, BYTES_OF_ANY]);
            self.out.extend_from_slice(&int.to_le_bytes());
        }
    }

    fn bytes(&mut self, bytes: &[u8], [short, long]: [u8; 2]) -> Option<()> {
        if self.out.len() + bytes.len() > self.bytes_max {
            return None;
        }
        match u8::try_from(bytes.len()) {
            Ok(length) => self.out.extend_from_slice(&[short, length]),
            Err(_) => {
                self.out.push(long);
                self.out.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
            }
        }
        self.out.extend_from_slice(bytes);
        Some(())
    }
}

/// Returns the value of a pickle; `None` if it is of a kind that [`pickle`] does not write. Bytes behind the end are
/// ignored, as Python's pickle ignores them.
pub fn unpickle<'py>(py: Python<'py>, pickle: &[u8]) -> Option<Bound<'py, PyAny>> {
    let mut reader = Reader { py, rest: pickle.strip_prefix(&HEAD)?, values: Vec::new() };
    let operation = reader.byte()?;
    let value = reader.value(operation, DEPTH_MAX)?;
    (reader.byte()? == op::STOP).then_some(value)
}

struct Reader<'a, 'py> {
    py: Python<'py>,
    rest: &'a [u8],
    /// The entries of the containers that have begun.
    values: Vec<Bound<'py, PyAny>>,
}

impl<'a, 'py> Reader<'a, 'py> {
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(*first)
    }

    fn array<const BYTES: usize>(&mut self) -> Option<[u8; BYTES]> {
        let (first, rest) = self.rest.split_first_chunk()?;
        self.rest = rest;
        Some(*first)
    }

    fn slice(&mut self, bytes: usize) -> Option<&'a [u8]> {
        let (first, rest) = self.rest.split_at_checked(bytes)?;
        self.rest = rest;
        Some(first)
    }

    /// Reads the value that begins with an operation.
    fn value(&mut self, operation: u8, depth: usize) -> Option<Bound<'py, PyAny>> {
        let py = self.py;
        let int = |int: i64| int.into_pyobject(py).ok().map(Bound::into_any);
        match operation {
            op::INT_OF_1 => int(self.byte()?.into()),
            op::INT_OF_2 => int(u16::from_le_bytes(self.array()?).into()),
            op::INT_OF_4 => int(i32::from_le_bytes(self.array()?).into()),
            op::INT_OF_ANY if self.byte()? == BYTES_OF_ANY => int(i64::from_le_bytes(self.array()?)),
            op::FLOAT => Some(PyFloat::new(py, f64::from_be_bytes(self.array()?)).into_any()),
            op::SHORT_TEXT | op::TEXT => raw::new_text(py, self.counted(operation == op::SHORT_TEXT)?),
            op::SHORT_BYTES | op::BYTES => {
                Some(PyBytes::new(py, self.counted(operation == op::SHORT_BYTES)?).into_any())
            }
            op::NONE => Some(py.None().into_bound(py)),
            op::TRUE | op::FALSE => Some(PyBool::new(py, operation == op::TRUE).to_owned().into_any()),
            op::LIST | op::DICT | op::MARK => self.container(operation, depth.checked_sub(1)?),
            _ => None,
        }
    }

    fn counted(&mut self, is_short: bool) -> Option<&'a [u8]> {
        let bytes = if is_short { self.byte()?.into() } else { u32::from_le_bytes(self.array()?) as usize };
        self.slice(bytes)
    }

    /// Reads the entries of a container that begins with an operation, and its end.
    fn container(&mut self, begin: u8, depth: usize) -> Option<Bound<'py, PyAny>> {
        let end = match begin {
            op::LIST => op::LIST_END,
            op::DICT => op::DICT_END,
            _ => op::TUPLE_END,
        };
        if begin != op::MARK && self.byte()? != op::MARK {
            return None;
        }
        let first = self.values.len();
        self.values.reserve(ENTRIES_EXPECTED);
        loop {
            let operation = self.byte()?;
            if operation == end {
                break;
            }
            let value = self.value(operation, depth)?;
            self.values.push(value);
        }
        let mut entries = self.values.drain(first..);
        match begin {
            op::LIST => PyList::new(self.py, entries).ok().map(Bound::into_any),
            op::DICT => {
                let dict = PyDict::new(self.py);
                while let Some(key) = entries.next() {
                    dict.set_item(key, entries.next()?).ok()?;
                }
                Some(dict.into_any())
            }
            _ => PyTuple::new(self.py, entries).ok().map(Bound::into_any),
        }
    }
}
