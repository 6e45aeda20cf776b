//! Files that a user names.
use std::fs::File;
use std::io::{Error, ErrorKind, Read, Result};
use std::path::Path;

/// Reads a file, which may be endless, such as `/dev/zero`. More than `bytes_max` bytes are an error.
pub fn read_bounded(path: &Path, bytes_max: usize) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(bytes_max as u64 + 1).read_to_end(&mut bytes)?;
    match bytes.len() > bytes_max {
        true => Err(Error::new(ErrorKind::FileTooLarge, format!("longer than {bytes_max} bytes"))),
        false => Ok(bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endless_file_is_an_error() {
        let error = read_bounded(Path::new("/dev/zero"), 1000).unwrap_err();
        assert_eq!(error.to_string(), "longer than 1000 bytes");
        assert_eq!(read_bounded(Path::new("/dev/null"), 0).unwrap(), []);
    }
}
