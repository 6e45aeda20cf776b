//! How many marks there may be: messages whose place in the order of a host the receiving daemon knows before they begin.

/// The marks of a flow whose messages have not begun yet.
///
/// * Filled by: tasks that send to a task that does not read, and to others of its host
/// * Setting: none, both daemons use the same limit
/// * Reached: until the task reads, what was sent to it may be received later than what is sent to other tasks afterwards; a
///   host that marks more is cut off
/// * Test: `a_flow_has_a_limited_number_of_marks`
pub const MARKS_MAX: usize = 1024;

/// The same for all flows from one host to another.
///
/// * Filled by: each other host
/// * Setting: none, both daemons use the same limit
/// * Reached: as with the marks of a flow
/// * Test: `a_host_has_a_limited_number_of_marks`
pub const MARKS_OF_HOST_MAX: usize = 65_536;
