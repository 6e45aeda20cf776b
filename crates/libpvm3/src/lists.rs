//! The arrays that functions such as `pvm_config` return to programs (contract 1.4). The library owns them; each is
//! valid until the next call of the function that returned it.
use crate::cursors::Cursors;
use pvm_core::proto::{Host, Mailbox, TaskInfo};
use std::ffi::{CString, c_char, c_int};
use std::ptr::null_mut;

/// `struct pvmhostinfo` (contract 1.6).
#[repr(C)]
pub struct CHostInfo {
    pub tid: c_int,
    pub name: *mut c_char,
    pub arch: *mut c_char,
    pub speed: c_int,
    pub dsig: c_int,
}
/// `struct pvmtaskinfo` (contract 1.6).
#[repr(C)]
pub struct CTaskInfo {
    pub tid: c_int,
    pub parent: c_int,
    pub host: c_int,
    pub flags: c_int,
    pub name: *mut c_char,
    pub pid: c_int,
}
/// `struct pvmmboxinfo` (contract 1.6).
#[repr(C)]
pub struct CMailboxInfo {
    pub name: *mut c_char,
    pub count: c_int,
    pub indices: *mut c_int,
    pub owners: *mut c_int,
    pub flags: *mut c_int,
}
#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<CHostInfo>() == 32 && size_of::<CTaskInfo>() == 32 && size_of::<CMailboxInfo>() == 40);

/// An array, and the texts and numbers to which its entries point.
pub struct List<T> {
    entries: Vec<T>,
    texts: Vec<CString>,
    numbers: Vec<Vec<c_int>>,
}

/// The result of `pvm_config`.
pub type HostList = List<CHostInfo>;
/// The result of `pvm_tasks`.
pub type TaskList = List<CTaskInfo>;
/// The result of `pvm_getmboxinfo`.
pub type MailboxList = List<CMailboxInfo>;

impl<T> Default for List<T> {
    fn default() -> List<T> {
        List { entries: Vec::new(), texts: Vec::new(), numbers: Vec::new() }
    }
}

impl<T> List<T> {
    /// Returns the number of entries.
    pub fn len(&self) -> c_int {
        self.entries.len() as c_int
    }
    /// Returns the address of the array for the program; null if it is empty.
    pub fn as_mut_ptr(&mut self) -> *mut T {
        if self.entries.is_empty() { null_mut() } else { self.entries.as_mut_ptr() }
    }
    /// Stores a text as a C string, up to its first zero, and returns its address.
    fn keep(&mut self, text: &[u8]) -> *mut c_char {
        let end = text.iter().position(|&byte| byte == 0).unwrap_or(text.len());
        let text = CString::new(&text[..end]).unwrap_or_default();
        let place = text.as_ptr().cast_mut();
        self.texts.push(text);
        place
    }
    /// Stores numbers and returns their address.
    fn keep_numbers(&mut self, mut numbers: Vec<c_int>) -> *mut c_int {
        let place = numbers.as_mut_ptr();
        self.numbers.push(numbers);
        place
    }
}

impl HostList {
    /// Converts the hosts to the array for C programs.
    pub fn new(hosts: Vec<Host>) -> HostList {
        let mut list = List::default();
        for host in hosts {
            let (name, arch) = (list.keep(host.name.as_bytes()), list.keep(host.arch.as_bytes()));
            list.entries.push(CHostInfo { tid: host.tid.0 as c_int, name, arch, speed: host.speed, dsig: host.dsig });
        }
        list
    }
}

impl TaskList {
    /// Converts the tasks to the array for C programs.
    pub fn new(tasks: Vec<TaskInfo>) -> TaskList {
        let mut list = List::default();
        for task in tasks {
            let name = list.keep(&task.name);
            list.entries.push(CTaskInfo {
                tid: task.tid.0 as c_int,
                parent: task.parent,
                host: task.host.0 as c_int,
                flags: task.flags as c_int,
                name,
                pid: task.pid,
            });
        }
        list
    }
}

impl MailboxList {
    /// Converts the mailboxes to the array for C programs.
    pub fn new(mailboxes: Vec<Mailbox>) -> MailboxList {
        let mut list = List::default();
        for mailbox in mailboxes {
            let name = list.keep(&mailbox.name);
            let entries = &mailbox.entries;
            let indices = list.keep_numbers(entries.iter().map(|entry| entry.0).collect());
            let owners = list.keep_numbers(entries.iter().map(|entry| entry.1.0 as c_int).collect());
            let flags = list.keep_numbers(entries.iter().map(|entry| entry.2).collect());
            list.entries.push(CMailboxInfo { name, count: entries.len() as c_int, indices, owners, flags });
        }
        list
    }
}

/// One array for each function that returns one.
#[derive(Default)]
pub struct Lists {
    /// `pvm_config`.
    pub hosts: HostList,
    /// `pvm_reg_rm`.
    pub manager_hosts: HostList,
    /// `pvm_tasks`.
    pub tasks: TaskList,
    /// `pvm_getmboxinfo`.
    pub mailboxes: MailboxList,
    /// `pvm_siblings`.
    pub siblings: Vec<c_int>,
    /// `pvm_getfds`.
    pub descriptors: Vec<c_int>,
    /// `pvm_getnoresets`.
    pub no_resets: Vec<c_int>,
    /// The lists that a Fortran program reads, one entry per call.
    pub cursors: Cursors,
}
