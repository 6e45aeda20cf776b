//! The numbers of `pvm_setopt`, `pvm_getopt` (contract 1.7, 2.9).

/// An option of `pvm_setopt`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
#[allow(missing_docs)]
pub enum OptionNumber {
    Route = 1,
    DebugMask = 2,
    AutoErr = 3,
    OutputTid = 4,
    OutputCode = 5,
    TraceTid = 6,
    TraceCode = 7,
    TraceBuffer = 8,
    TraceOptions = 9,
    FragSize = 10,
    ResvTids = 11,
    SelfOutputTid = 12,
    SelfOutputCode = 13,
    SelfTraceTid = 14,
    SelfTraceCode = 15,
    SelfTraceBuffer = 16,
    SelfTraceOptions = 17,
    ShowTids = 18,
    PollType = 19,
    PollTime = 20,
    OutputContext = 21,
    TraceContext = 22,
    SelfOutputContext = 23,
    SelfTraceContext = 24,
    NoReset = 25,
}
