//! Lists that a Fortran program reads entry by entry.
use std::ffi::c_int;

/// A list, and the index of the entry that the next call returns.
pub struct Cursor<T> {
    pub entries: Vec<T>,
    next: usize,
}

impl<T> Default for Cursor<T> {
    fn default() -> Cursor<T> {
        Cursor { entries: Vec::new(), next: 0 }
    }
}

impl<T: Clone> Cursor<T> {
    pub fn is_at_its_start(&self) -> bool {
        self.next == 0
    }
    pub fn begin(&mut self, entries: Vec<T>) {
        *self = Cursor { entries, next: 0 };
    }
    /// Returns the next entry; `None` once after the last entry, and then the first entry again.
    pub fn step(&mut self) -> Option<T> {
        let entry = self.entries.get(self.next).cloned();
        self.next = if entry.is_some() { self.next + 1 } else { 0 };
        entry
    }
    /// As [`Cursor::step`], but the first entry follows the last one directly, without a `None` between them.
    pub fn step_around(&mut self) -> Option<T> {
        let entry = self.step();
        if self.next == self.entries.len() {
            self.next = 0;
        }
        entry
    }
}

/// The lists of a process.
#[derive(Default)]
pub struct Cursors {
    pub hosts: Cursor<HostEntry>,
    pub formats: c_int,
    pub tasks: Cursor<TaskEntry>,
    pub mailboxes: Cursor<MailboxEntry>,
}

#[derive(Clone)]
pub struct HostEntry {
    pub tid: c_int,
    pub name: Vec<u8>,
    pub arch: Vec<u8>,
    pub speed: c_int,
}

#[derive(Clone)]
pub struct TaskEntry {
    pub tid: c_int,
    pub parent: c_int,
    pub host: c_int,
    pub flags: c_int,
    pub name: Vec<u8>,
}

#[derive(Clone)]
pub struct MailboxEntry {
    pub name: Vec<u8>,
    pub indices: Vec<c_int>,
    pub owners: Vec<c_int>,
    pub flags: Vec<c_int>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_and_tasks_begin_anew_after_the_last() {
        let mut cursor = Cursor::default();
        cursor.begin(vec![1, 2]);
        assert_eq!([cursor.step_around(), cursor.step_around()], [Some(1), Some(2)]);
        assert!(cursor.is_at_its_start());
    }

    #[test]
    fn mailboxes_have_an_end() {
        let mut cursor = Cursor::default();
        cursor.begin(vec![1]);
        assert_eq!([cursor.step(), cursor.step()], [Some(1), None]);
        assert!(cursor.is_at_its_start());
    }
}
