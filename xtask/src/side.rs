//! The two systems that are compared, and where each is.
use crate::{common, debian_pvm};
use std::fmt;
use std::path::PathBuf;

/// The environment variable that names a tree to use instead of `target/dist`.
pub const OURS_VARIABLE: &str = "CONFORM_OURS";

/// The system under test.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// Debian's PVM 3.4.6.
    Theirs,
    /// hpvm, from the distribution tree.
    Ours,
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Side::Theirs => "Debian's PVM",
            Side::Ours => "hpvm",
        })
    }
}

impl Side {
    /// Returns the folder of `pvm3.h` and the other headers.
    pub fn headers(self) -> PathBuf {
        match self {
            Side::Theirs => debian_pvm::headers(),
            Side::Ours => ours().join("include"),
        }
    }

    /// Returns the variables with which programs find the libraries of this side.
    pub fn environment(self) -> Vec<(String, String)> {
        match self {
            Side::Theirs => debian_pvm::environment().into(),
            Side::Ours => vec![("LD_LIBRARY_PATH".into(), ours().join("lib").display().to_string())],
        }
    }

    /// Returns the folder of `pvm` and `pvmd`.
    pub fn programs(self) -> PathBuf {
        match self {
            Side::Theirs => debian_pvm::programs(),
            Side::Ours => ours().join("bin"),
        }
    }
}

/// Returns `PATH` on a side: its own programs first, then those that use PVM, then the system's.
pub fn path(side: Side) -> String {
    format!("{}:{}:/usr/bin:/bin:/usr/sbin:/sbin", side.programs().display(), debian_pvm::programs().display())
}

/// Returns hpvm's tree: `target/dist`, or the one that `CONFORM_OURS` names (an installed prefix, a debug build).
pub fn ours() -> PathBuf {
    std::env::var_os(OURS_VARIABLE).map_or_else(common::dist, PathBuf::from)
}
