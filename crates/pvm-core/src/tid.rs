//! Task identifiers (contract 1.9).
use serde::{Deserialize, Serialize};

/// A task identifier: bits 18 to 29 are the host, bits 0 to 17 are the number of the task.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Default)]
#[repr(transparent)]
pub struct Tid(pub u32);

/// The bit that marks the address of a daemon.
pub const DAEMON_BIT: u32 = 0x8000_0000;
/// The bit that marks a multicast address.
pub const GROUP_BIT: u32 = 0x4000_0000;
/// The bits of the host.
pub const HOST_MASK: u32 = 0x3ffc_0000;
/// The bits of the local part: the number of the task on its host.
pub const LOCAL_MASK: u32 = 0x0003_ffff;
/// The position of the lowest bit of the host number.
pub const HOST_SHIFT: u32 = 18;
/// The number of bits for the task's slot in the port table. These are the low bits of the local part; its high bits
/// are the generation.
pub const SLOT_BITS: u32 = 16;
/// The bits of the slot.
pub const SLOT_MASK: u32 = (1 << SLOT_BITS) - 1;

impl Tid {
    /// No task.
    pub const NONE: Tid = Tid(0);
    /// The sender in all messages that a daemon makes for tasks of its host; to a task, it means "my daemon".
    pub const DAEMON: Tid = Tid(DAEMON_BIT);

    /// Returns the tid of host number `host` (1 to 4095).
    pub fn host_number(host: u32) -> Tid {
        Tid(host << HOST_SHIFT & HOST_MASK)
    }
    /// Returns the tid of the task's host.
    pub fn host(self) -> Tid {
        Tid(self.0 & HOST_MASK)
    }
    /// Returns the number of the task on its host.
    pub fn local(self) -> u32 {
        self.0 & LOCAL_MASK
    }
    /// Returns the task's slot in the port table of its host.
    pub fn slot(self) -> u32 {
        self.0 & SLOT_MASK
    }
    /// Returns whether the value can be the tid of a task: the local part is not 0, and neither the daemon bit nor the
    /// group bit is set.
    pub fn is_task(self) -> bool {
        self.0 & (DAEMON_BIT | GROUP_BIT) == 0 && self.local() != 0
    }
    /// Returns the tid under which the daemon of a host answers as the group server. Slot 0 has no task.
    pub fn group_server(host: Tid) -> Tid {
        Tid(host.host().0 | LOCAL_MASK & !SLOT_MASK)
    }
    /// Returns whether the value is the tid of a service of the daemon, although it looks like the tid of a task.
    pub fn is_service(self) -> bool {
        self.is_task() && self.slot() == 0
    }
    /// Returns whether the value is the tid of a host.
    pub fn is_host(self) -> bool {
        self.0 & !HOST_MASK == 0 && self.0 != 0
    }
}

impl std::fmt::Debug for Tid {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "t{:x}", self.0)
    }
}
impl std::fmt::Display for Tid {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "t{:x}", self.0)
    }
}
