//! What tasks and other hosts can have a daemon keep, at most.
//!
//! Each number is generous: a machine of 500 hosts with 5,000 tasks, each of which watches all others, stays
//! far below. Who reaches a limit is told by an error.
/// What all entries of all mailboxes hold together: names, bodies, and 256 bytes each.
///
/// * Filled by: all tasks of the machine
/// * Setting: `HPVM_MAILBOX_MAX`, of the first daemon
/// * Reached: `pvm_putinfo` says `PvmNoMem`
/// * Test: `mailboxes_hold_so_much_and_no_more`
pub const MAILBOX_BYTES_MAX: usize = 1 << 30;

/// Notifies that one task waits for.
///
/// * Filled by: each task
/// * Setting: `HPVM_TASK_WATCHES_MAX`
/// * Reached: `pvm_notify` says `PvmOutOfRes`
/// * Test: `a_task_watches_so_many_and_no_more`
pub const TASK_WATCHES_MAX: usize = 1 << 18;

/// Pairs of a watching task of one host and a watched task of another, for each two hosts.
///
/// * Filled by: each other host, and its tasks
/// * Setting: `HPVM_HOST_WATCHES_MAX`, of the first daemon for the whole machine
/// * Reached: `pvm_notify` says `PvmOutOfRes`; what a host asks beyond is not kept
/// * Test: `a_host_watches_so_many_and_no_more`
pub const HOST_WATCHES_MAX: usize = 1 << 20;

/// Groups at a time.
///
/// * Filled by: all tasks of the machine
/// * Setting: `HPVM_GROUPS_MAX`, of the first daemon
/// * Reached: `pvm_joingroup` says `PvmOutOfRes`
/// * Test: `there_are_so_many_groups_and_no_more`
pub const GROUPS_MAX: usize = 1 << 16;

/// Members of all groups together.
///
/// * Filled by: all tasks of the machine
/// * Setting: `HPVM_MEMBERS_MAX`, of the first daemon
/// * Reached: `pvm_joingroup` says `PvmOutOfRes`
/// * Test: `all_groups_together_have_so_many_members_and_no_more`
pub const MEMBERS_MAX: usize = 1 << 22;

/// The name of a group, or of a mailbox for whose entry a task waits.
///
/// * Filled by: all tasks of the machine
/// * Setting: none, no name is as long
/// * Reached: `pvm_joingroup` or `pvm_recvinfo` says `PvmOutOfRes`
/// * Test: `names_that_are_kept_have_an_end`
pub const NAME_BYTES_MAX: usize = 64 << 10;

/// Requests of one task that its daemon has not answered.
///
/// * Filled by: each task of the host, though the library waits for each answer
/// * Setting: `HPVM_TASK_REQUESTS_MAX`
/// * Reached: the request is answered with `PvmOutOfRes`
/// * Test: `a_task_waits_for_so_many_answers_and_no_more`
pub const TASK_REQUESTS_MAX: usize = 1 << 12;

/// Requests of one other host's tasks that a daemon has not answered.
///
/// * Filled by: each other host; the library waits for each answer, and no host has as many tasks
/// * Setting: `HPVM_HOST_REQUESTS_MAX`
/// * Reached: the request is answered with `PvmOutOfRes`
/// * Test: `a_host_waits_for_so_many_answers_and_no_more`
pub const HOST_REQUESTS_MAX: usize = 1 << 17;

/// A message that a task has its daemon carry: to a daemon, or as the answer of a server.
///
/// * Filled by: each task
/// * Setting: none, no server has as much to say
/// * Reached: the message is dropped, and the log tells of it
/// * Test: `a_message_by_way_of_the_daemon_has_an_end`
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
