//! Limits on what tasks and other hosts can make a daemon store.
//!
//! The limits are generous. A machine of 500 hosts with 5,000 tasks stays far below them, even if each task watches all
//! others. A task that reaches a limit gets an error; a task that reaches a limit because it does not read its messages
//! is disconnected.

/// Size of all entries of all mailboxes: names, bodies, and 256 bytes for each entry.
///
/// * Filled by: all tasks of the machine
/// * Setting: `HPVM_MAILBOX_MAX`, of the master's daemon
/// * Reached: `pvm_putinfo` says `PvmNoMem`
/// * Test: `the_size_of_all_mailboxes_is_limited`
pub const MAILBOX_BYTES_MAX: usize = 1 << 30;

/// Open notifies of one task.
///
/// * Filled by: each task
/// * Setting: `HPVM_TASK_WATCHES_MAX`
/// * Reached: `pvm_notify` says `PvmOutOfRes`
/// * Test: `the_watches_of_a_task_are_limited`
pub const TASK_WATCHES_MAX: usize = 1 << 18;

/// Pairs of a watching task on one host and a watched task on another; the limit applies to each pair of hosts
/// separately.
///
/// * Filled by: each other host, and its tasks
/// * Setting: `HPVM_HOST_WATCHES_MAX`, of the first daemon for the whole machine
/// * Reached: `pvm_notify` says `PvmOutOfRes`; if another host exceeds the limit, its further watches are ignored
/// * Test: `the_watches_of_a_host_are_limited`
pub const HOST_WATCHES_MAX: usize = 1 << 20;

/// Groups at a time.
///
/// * Filled by: all tasks of the machine
/// * Setting: `HPVM_GROUPS_MAX`, of the master's daemon
/// * Reached: `pvm_joingroup` says `PvmOutOfRes`
/// * Test: `the_number_of_groups_is_limited`
pub const GROUPS_MAX: usize = 1 << 16;

/// Members of all groups together.
///
/// * Filled by: all tasks of the machine
/// * Setting: `HPVM_MEMBERS_MAX`, of the master's daemon
/// * Reached: `pvm_joingroup` says `PvmOutOfRes`
/// * Test: `the_members_of_all_groups_together_are_limited`
pub const MEMBERS_MAX: usize = 1 << 22;

/// Length in bytes of the name of a group, or of the name of a mailbox while a task waits there for an entry.
///
/// * Filled by: all tasks of the machine
/// * Setting: none, no real name is that long
/// * Reached: `pvm_joingroup` or `pvm_recvinfo` says `PvmOutOfRes`
/// * Test: `the_length_of_stored_names_is_limited`
pub const NAME_BYTES_MAX: usize = 64 << 10;

/// Requests from one task, not yet answered by its daemon.
///
/// * Filled by: each task of the host, though the library waits for each answer
/// * Setting: `HPVM_TASK_REQUESTS_MAX`
/// * Reached: the request is answered with `PvmOutOfRes`
/// * Test: `the_open_requests_of_a_task_are_limited`
pub const TASK_REQUESTS_MAX: usize = 1 << 12;

/// Requests from the tasks of one other host, not yet answered by this daemon.
///
/// * Filled by: each other host; the library waits for each answer, and no host has that many tasks
/// * Setting: `HPVM_HOST_REQUESTS_MAX`
/// * Reached: the request is answered with `PvmOutOfRes`
/// * Test: `the_open_requests_of_a_host_are_limited`
pub const HOST_REQUESTS_MAX: usize = 1 << 17;

/// Length in bytes of a message that a task sends by way of its daemon: to a daemon, or as the answer of a server.
///
/// * Filled by: each task
/// * Setting: none, no server sends that much
/// * Reached: the message is dropped, and the log reports it
/// * Test: `the_length_of_a_message_by_way_of_the_daemon_is_limited`
pub const DAEMON_MESSAGE_BYTES_MAX: usize = 32 << 20;

/// The limits that can be set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// [`MAILBOX_BYTES_MAX`].
    pub mailbox_bytes: usize,
    /// [`TASK_WATCHES_MAX`].
    pub task_watches: usize,
    /// [`HOST_WATCHES_MAX`].
    pub host_watches: usize,
    /// [`GROUPS_MAX`].
    pub groups: usize,
    /// [`MEMBERS_MAX`].
    pub members: usize,
    /// [`TASK_REQUESTS_MAX`].
    pub task_requests: usize,
    /// [`HOST_REQUESTS_MAX`].
    pub host_requests: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            mailbox_bytes: MAILBOX_BYTES_MAX,
            task_watches: TASK_WATCHES_MAX,
            host_watches: HOST_WATCHES_MAX,
            groups: GROUPS_MAX,
            members: MEMBERS_MAX,
            task_requests: TASK_REQUESTS_MAX,
            host_requests: HOST_REQUESTS_MAX,
        }
    }
}
