//! What a task learns from its environment, and enrolment failures.
use pvm_core::codes::Code;
use std::path::PathBuf;

/// The environment variables that concern a task (contract 5.4).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Environment {
    /// `PVMSOCK`: the daemon's socket; has priority while it answers (D35).
    pub socket: Option<PathBuf>,
    /// `PVM_TMP`, default `/tmp`.
    pub tmp: PathBuf,
    /// `PVM_VMID`.
    pub vmid: Option<String>,
    /// `PVMEPID`: claims the place that a spawn made; used once.
    pub cookie: Option<u32>,
    /// `PVMCTX`: the initial context.
    pub context: Option<i32>,
    /// `PVMTMASK`: the inherited trace mask.
    pub trace_mask: Option<Vec<u8>>,
    /// `PVMTRCBUF`.
    pub trace_buffer: Option<i32>,
    /// `PVMTRCOPT`.
    pub trace_options: Option<i32>,
    /// `PVMTASKDEBUG`: the initial debug mask.
    pub debug_mask: Option<i32>,
}

impl Environment {
    /// Reads the process's environment.
    pub fn from_process() -> Environment {
        Environment::from_lookup(|name| std::env::var_os(name))
    }
    /// Reads variables through `lookup`. Numbers may be decimal, `0x` and `0` forms.
    pub fn from_lookup(_lookup: impl Fn(&str) -> Option<std::ffi::OsString>) -> Environment {
        todo!()
    }
}

/// Why a task could not enrol.
#[derive(Debug)]
pub enum EnrollError {
    /// There is no rendezvous file: no daemon runs; another try brings nothing.
    NoDaemon,
    /// Somebody should be there but does not answer; try again (5 times, 1 s apart).
    Unreachable(std::io::Error),
    /// The daemon said no.
    Refused(Code),
    /// The own segment or doorbell could not be made.
    System(std::io::Error),
}

impl EnrollError {
    /// The number for C programs.
    pub fn code(&self) -> Code {
        match self {
            EnrollError::Refused(code) => *code,
            EnrollError::NoDaemon | EnrollError::Unreachable(_) | EnrollError::System(_) => Code::SysErr,
        }
    }
    /// Whether it is worth trying again.
    pub fn is_transient(&self) -> bool {
        matches!(self, EnrollError::Unreachable(_))
    }
}
