//! The numbers that PVM's interface defines (contract 1.7 and 1.8), in one place.
#![allow(missing_docs)] // the names are PVM's own; pvm3.h and the contract explain each
pub use crate::error_codes::{Code, TEXTS, text};
use crate::format::Format;

pub const DATA_DEFAULT: i32 = 0;
pub const DATA_RAW: i32 = 1;
pub const DATA_IN_PLACE: i32 = 2;
pub const DATA_TRACE: i32 = 4;

/// `pvmminfo.enc` of a message in the default encoding.
pub const ENC_XDR: i32 = 0x1000_0000;
/// `pvmminfo.enc` of an in-place message at the sender.
pub const ENC_IN_PLACE: i32 = 0x2000_0000;
/// `pvmminfo.enc` of a trace message.
pub const ENC_TRACE: i32 = 0x4000_0000;

pub const TASK_DEFAULT: i32 = 0;
pub const TASK_HOST: i32 = 1;
pub const TASK_ARCH: i32 = 2;
pub const TASK_DEBUG: i32 = 4;
pub const TASK_TRACE: i32 = 8;
pub const MPP_FRONT: i32 = 16;
pub const HOST_COMPL: i32 = 32;
pub const NO_SPAWN_PARENT: i32 = 64;
/// A flag of hpvm, not of PVM, for `pvm run`: the first task gets its standard input through
/// [`crate::proto::Request::Input`].
pub const TASK_INPUT: i32 = 1 << 28;

pub const NOTIFY_TASK_EXIT: i32 = 1;
pub const NOTIFY_HOST_DELETE: i32 = 2;
pub const NOTIFY_HOST_ADD: i32 = 3;
pub const NOTIFY_ROUTE_ADD: i32 = 4;
pub const NOTIFY_ROUTE_DELETE: i32 = 5;
pub const NOTIFY_CANCEL: i32 = 256;

pub const MBOX_PERSISTENT: i32 = 1;
pub const MBOX_MULTI_INSTANCE: i32 = 2;
pub const MBOX_OVER_WRITABLE: i32 = 4;
pub const MBOX_FIRST_AVAIL: i32 = 8;
pub const MBOX_READ_AND_DELETE: i32 = 16;
pub const MBOX_WAIT_FOR_INFO: i32 = 32;
pub const MBOX_DIRECT_INDEX_SHIFT: u32 = 10;

/// Context of system messages to tasks (output, siblings, trace settings).
pub const SYSCTX_TC: i32 = 0x7ffff;
/// Context of requests to the daemon from tasks of PVM 3.4.6.
pub const SYSCTX_TM: i32 = 0x7fffe;
/// Context in which PVM 3.4.6 forms static groups.
pub const SYSCTX_SG: i32 = 0x7fffd;
/// Context of dynamic groups in PVM 3.4.6.
pub const SYSCTX_DG: i32 = 0x7fffc;

/// First tag of the range for messages between tasks and daemons.
pub const TM_FIRST: i32 = 0x80010001_u32 as i32;
/// First tag of the range for messages between daemons.
pub const DM_FIRST: i32 = 0x80020001_u32 as i32;
/// First tag of the range for messages between tasks.
pub const TC_FIRST: i32 = 0x80030001_u32 as i32;
/// First tag of the range for messages of registered servers (hoster, tasker, resource manager).
pub const SM_FIRST: i32 = 0x80040001_u32 as i32;

/// Task to resource manager, and back: a call of `pvm_spawn`, and the results of that call.
pub const SM_SPAWN: i32 = SM_FIRST;
/// Resource manager to daemon: start tasks here.
pub const SM_EXEC: i32 = SM_FIRST + 1;
/// Daemon to resource manager: the tasks that were started, or a task that enrolled by itself.
pub const SM_EXECACK: i32 = SM_FIRST + 2;
pub const SM_TASK: i32 = SM_FIRST + 3;
pub const SM_CONFIG: i32 = SM_FIRST + 4;
pub const SM_ADDHOST: i32 = SM_FIRST + 5;
pub const SM_DELHOST: i32 = SM_FIRST + 6;
/// Resource manager to daemon: add hosts.
pub const SM_ADD: i32 = SM_FIRST + 7;
/// Daemon to resource manager: the hosts that were added.
pub const SM_ADDACK: i32 = SM_FIRST + 8;
pub const SM_NOTIFY: i32 = SM_FIRST + 9;
/// Daemon to resource manager, tasker to daemon: a task has ended.
pub const SM_TASKX: i32 = SM_FIRST + 10;
/// Daemon to resource manager: a host is gone.
pub const SM_HOSTX: i32 = SM_FIRST + 11;
/// Resource manager to daemon: another task is the resource manager from now on.
pub const SM_HANDOFF: i32 = SM_FIRST + 12;
pub const SM_SCHED: i32 = SM_FIRST + 13;
/// Daemon to hoster: start daemons.
pub const SM_STHOST: i32 = SM_FIRST + 14;
/// Hoster to daemon: the results.
pub const SM_STHOSTACK: i32 = SM_FIRST + 15;
/// Daemon to tasker: start a task.
pub const SM_STTASK: i32 = SM_FIRST + 16;

/// Mailbox classes that announce the registered servers (contract 1.7).
pub const CLASS_HOSTER: &str = "###_PVM_HOSTER_###";
pub const CLASS_TASKER: &str = "###_PVM_TASKER_###";
pub const CLASS_TRACER: &str = "###_PVM_TRACER_###";
pub const CLASS_MANAGER: &str = "###_PVM_RM_###";
/// Mailbox class that lists the tasks exempt from a reset.
pub const CLASS_NO_RESET: &str = "###_PVM_NO_RESET_###";

/// Flags of `pvmtaskinfo.ti_flag`.
pub const TASK_FORKED: u32 = 0x2;
pub const TASK_CONNECTED: u32 = 0x4;
pub const TASK_AUTHORISING: u32 = 0x8;
pub const TASK_CLOSING: u32 = 0x10;
pub const TASK_RM: u32 = 0x100;
pub const TASK_HOSTER: u32 = 0x200;
pub const TASK_TASKER: u32 = 0x400;
pub const TASK_TRACER: u32 = 0x800;

/// The data signature of x86-64 (contract 5.8).
pub const DSIG_X86_64: i32 = 0x0040_8c41;
/// Returns the data signature of the host that this program runs on (contract 5.8).
pub const fn native_dsig() -> i32 {
    Format::NATIVE.signature()
}

/// The context of messages to and from the group server.
pub const GROUP_SERVER_CONTEXT: i32 = 0x7fffc;
/// Tag of the request to write the groups to the log.
pub const GROUP_SERVER_DUMP: i32 = 9;
/// Tag of the request to list the groups, and of its answer.
pub const GROUP_SERVER_LIST: i32 = 10;

/// The default of `hi_speed` (contract 5.3, `sp=`).
pub const SPEED_DEFAULT: i32 = 1000;
/// The version of PVM whose interface hpvm implements.
pub const PVM_VERSION: &str = "3.4.6";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn the_signature_of_this_machine_is_the_one_of_the_contract() {
        assert_eq!(native_dsig(), DSIG_X86_64);
    }
}
