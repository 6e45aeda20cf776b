//! Why a child process could not be started.
use pvm_core::codes::Code;
use rustix::io::Errno;
use std::io;

/// One more than the highest error number of any system.
const ERRNO_END: i32 = 4096;

/// Returns the error number if it is valid. The number may come from another host.
pub fn errno_of(error: &io::Error) -> Option<Errno> {
    let number = error.raw_os_error().filter(|number| (1..ERRNO_END).contains(number));
    number.map(Errno::from_raw_os_error)
}

/// Returns the code for a program that could not be started: either it is not an executable program, or the system
/// lacks a resource.
pub fn code_of(error: &io::Error) -> Code {
    match errno_of(error) {
        Some(
            Errno::NOENT
            | Errno::NOTDIR
            | Errno::ISDIR
            | Errno::ACCESS
            | Errno::PERM
            | Errno::NOEXEC
            | Errno::LOOP
            | Errno::NAMETOOLONG
            | Errno::TXTBSY
            | Errno::LIBBAD
            | Errno::INVAL,
        ) => Code::NoFile,
        // Errors of the Rust library have no number.
        None if matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::NotFound) => Code::NoFile,
        _ => Code::OutOfRes,
    }
}

/// Returns an error with the number or the kind of another one.
pub fn copy_of(error: &io::Error) -> io::Error {
    error.raw_os_error().map_or_else(|| error.kind().into(), io::Error::from_raw_os_error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_system_has_not_enough_of_is_no_missing_file() {
        let code = |errno: Errno| code_of(&errno.into());
        for errno in [Errno::NOENT, Errno::ACCESS, Errno::NOEXEC, Errno::NOTDIR, Errno::LOOP, Errno::LIBBAD] {
            assert_eq!(code(errno), Code::NoFile, "{errno}");
        }
        for errno in [Errno::MFILE, Errno::NFILE, Errno::AGAIN, Errno::NOMEM, Errno::BADF, Errno::TOOBIG, Errno::IO] {
            assert_eq!(code(errno), Code::OutOfRes, "{errno}");
        }
    }
}
