//! PVM's name for this kind of machine.

/// PVM's name for this kind of machine (contract 5.8).
pub const ARCHITECTURE: &str = if cfg!(target_arch = "s390x") {
    "LINUXS390X"
} else if cfg!(target_arch = "arm") {
    "LINUXARM"
} else if cfg!(target_pointer_width = "32") {
    "LINUX"
} else {
    "LINUX64"
};
