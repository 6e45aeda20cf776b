//! Random bytes.

/// Fills `bytes` with random bytes from the system.
pub fn random_bytes(bytes: &mut [u8]) -> std::io::Result<()> {
    use std::io::Read;
    match rustix::rand::getrandom(&mut bytes[..], rustix::rand::GetRandomFlags::empty()) {
        Ok(count) if count == bytes.len() => Ok(()),
        // A sandbox forbids the call, or an old system lacks it.
        _ => std::fs::File::open("/dev/urandom")?.read_exact(bytes),
    }
}
