//! The corpus of a target: one tar archive, `fuzz/corpus/TARGET.tar`.
//!
//! An archive depends only on its inputs: they are sorted by name, and their owners and times are zero. Therefore the
//! same inputs make the same archive on every machine.
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// One input of a corpus.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Input {
    /// The name: `find-...` for an input that once made a decoder fail, `seed-...` for one that was written by hand,
    /// and the first digits of a hash for one that the fuzzer made.
    pub name: String,
    /// The bytes.
    pub bytes: Vec<u8>,
}

/// Returns the path of a target's corpus.
pub fn path(target: &str) -> PathBuf {
    crate::root().join("fuzz/corpus").join(target).with_extension("tar")
}

/// Returns the inputs of a target's corpus, sorted by name; none if the target has no corpus.
pub fn read(target: &str) -> io::Result<Vec<Input>> {
    read_archive(&path(target))
}

/// Replaces the corpus of a target.
pub fn write(target: &str, inputs: Vec<Input>) -> io::Result<()> {
    write_archive(&path(target), inputs)
}

fn read_archive(path: &Path) -> io::Result<Vec<Input>> {
    let file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        opened => opened?,
    };
    let mut inputs = Vec::new();
    for entry in tar::Archive::new(io::BufReader::new(file)).entries()? {
        let mut entry = entry?;
        let name = entry.path()?.display().to_string();
        let mut bytes = Vec::new();
        entry.read_to_end(&mut bytes)?;
        inputs.push(Input { name, bytes });
    }
    inputs.sort();
    Ok(inputs)
}

fn write_archive(path: &Path, mut inputs: Vec<Input>) -> io::Result<()> {
    inputs.sort();
    let mut archive = tar::Builder::new(Vec::new());
    for input in &inputs {
        let mut header = tar::Header::new_ustar();
        header.set_size(input.bytes.len() as u64);
        header.set_mode(0o644);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(0);
        archive.append_data(&mut header, &input.name, &input.bytes[..])?;
    }
    fs::write(path, archive.into_inner()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn input(name: &str, bytes: &[u8]) -> Input {
        Input { name: name.into(), bytes: bytes.into() }
    }

    #[test]
    fn an_archive_returns_its_inputs_in_order() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.tar");
        assert_eq!(read_archive(&path).unwrap(), []);
        write_archive(&path, vec![input("b", &[]), input("a", &[0, 255])]).unwrap();
        assert_eq!(read_archive(&path).unwrap(), [input("a", &[0, 255]), input("b", &[])]);
    }

    #[test]
    fn equal_inputs_make_equal_archives() {
        let folder = tempfile::tempdir().unwrap();
        let (one, other) = (folder.path().join("one.tar"), folder.path().join("other.tar"));
        write_archive(&one, vec![input("b", b"x"), input("a", b"y")]).unwrap();
        write_archive(&other, vec![input("a", b"y"), input("b", b"x")]).unwrap();
        assert_eq!(fs::read(one).unwrap(), fs::read(other).unwrap());
    }
}
