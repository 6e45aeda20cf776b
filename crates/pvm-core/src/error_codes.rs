//! The error codes of PVM's interface (contract 1.8). `xtask` compiles this file too, for the manual, and nothing else of
//! this crate, which would take longer than all of `xtask`.
#![allow(missing_docs)] // the names are PVM's own; pvm3.h and the contract explain each

/// An error code of PVM: always negative.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
#[repr(i32)]
pub enum Code {
    BadParam = -2,
    Mismatch = -3,
    Overflow = -4,
    NoData = -5,
    NoHost = -6,
    NoFile = -7,
    Denied = -8,
    NoMem = -10,
    BadMsg = -12,
    SysErr = -14,
    NoBuf = -15,
    NoSuchBuf = -16,
    NullGroup = -17,
    DupGroup = -18,
    NoGroup = -19,
    NotInGroup = -20,
    NoInst = -21,
    HostFail = -22,
    NoParent = -23,
    NotImpl = -24,
    DSysErr = -25,
    BadVersion = -26,
    OutOfRes = -27,
    DupHost = -28,
    CantStart = -29,
    Already = -30,
    NoTask = -31,
    NotFound = -32,
    Exists = -33,
    HostrNMstr = -34,
    ParentNotSet = -35,
    IPLoopback = -36,
}

impl Code {
    /// Returns the code with the given number.
    pub fn from_number(number: i32) -> Option<Code> {
        ALL.into_iter().find(|code| code.number() == number)
    }
    /// Returns the number that C programs see.
    pub fn number(self) -> i32 {
        self as i32
    }
    /// Returns the text that `pvm_perror` prints for the code (contract 1.8).
    pub fn text(self) -> &'static str {
        text(self.number())
    }
}

/// Every code.
const ALL: [Code; 32] = [
    Code::BadParam,
    Code::Mismatch,
    Code::Overflow,
    Code::NoData,
    Code::NoHost,
    Code::NoFile,
    Code::Denied,
    Code::NoMem,
    Code::BadMsg,
    Code::SysErr,
    Code::NoBuf,
    Code::NoSuchBuf,
    Code::NullGroup,
    Code::DupGroup,
    Code::NoGroup,
    Code::NotInGroup,
    Code::NoInst,
    Code::HostFail,
    Code::NoParent,
    Code::NotImpl,
    Code::DSysErr,
    Code::BadVersion,
    Code::OutOfRes,
    Code::DupHost,
    Code::CantStart,
    Code::Already,
    Code::NoTask,
    Code::NotFound,
    Code::Exists,
    Code::HostrNMstr,
    Code::ParentNotSet,
    Code::IPLoopback,
];

impl std::fmt::Display for Code {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.text())
    }
}
impl std::error::Error for Code {}

/// `pvm_errlist`: the texts of the codes 0, -1, … -36.
pub const TEXTS: [&str; 37] = [
    "Error 0",
    "Error 1",
    "Bad parameter",
    "Parameter mismatch",
    "Value too large",
    "End of buffer",
    "No such host",
    "No such file",
    "Permission denied",
    "Error 9",
    "Malloc failed",
    "Error 11",
    "Can't decode message",
    "Error 13",
    "Can't contact local daemon",
    "No current buffer",
    "No such buffer",
    "Null group name",
    "Already in group",
    "No such group",
    "Not in group",
    "No such instance",
    "Host failed",
    "No parent task",
    "Not implemented",
    "Pvmd system error",
    "Version mismatch",
    "Out of resources",
    "Duplicate host",
    "Can't start pvmd",
    "Already in progress",
    "No such task",
    "Not Found",
    "Already Exists",
    "Hoster must run on master host",
    "Spawning parent set PvmNoParent",
    "Master Host IP Address is Loopback! (See pvm3/Readme)",
];

/// Returns the text for any number, even one that is not an error code.
pub fn text(number: i32) -> &'static str {
    usize::try_from(-i64::from(number)).ok().and_then(|index| TEXTS.get(index)).copied().unwrap_or("Unknown Error")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_is_found_by_its_number() {
        assert_eq!(Code::from_number(-36), Some(Code::IPLoopback));
        assert_eq!(Code::from_number(0), None);
        assert!(ALL.iter().all(|code| Code::from_number(code.number()) == Some(*code)));
    }
}
