//! The congestion control of TCP in the networks of tests and measurements.
//!
//! It is cubic, as on Debian, whatever the default of the machine's kernel is: with BBR, a single connection over a
//! loopback interface or a bridge has half the bandwidth, for each of the measured systems.
use crate::common::output;
use anyhow::Result;
use nix::sched::{CloneFlags, unshare};
use std::fs;
use std::io::Write;
use std::process::Command;

const USUAL: &str = "cubic";
/// The address in a network of its own.
const OWN_ADDRESS: &str = "10.78.0.1";
const AVAILABLE: &str = "/proc/sys/net/ipv4/tcp_available_congestion_control";
const DEFAULT: &str = "/proc/sys/net/ipv4/tcp_congestion_control";

/// Returns the congestion control of these networks. A kernel without cubic takes its default.
pub fn usual() -> String {
    let is_there = read(AVAILABLE).split_whitespace().any(|name| name == USUAL);
    if is_there { USUAL.into() } else { of_kernel() }
}

/// Returns the default of the kernel.
fn of_kernel() -> String {
    read(DEFAULT).trim().into()
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// Moves the calling thread, and the programs that it starts, to a new network: a loopback interface with this congestion
/// control, and an address that is not a loopback one, which some programs need. Returns the congestion control there; if
/// the process may not make a network, that of the old one.
pub fn enter_own_loopback() -> Result<String> {
    if unshare(CloneFlags::CLONE_NEWNET).is_err() {
        return Ok(of_kernel());
    }
    let name = usual();
    let mut lines = format!(
        "link set lo up\nlink add own0 type veth peer name own1\nlink set own1 up\nlink set own0 up\n\
         addr add {OWN_ADDRESS}/32 dev own0\n"
    );
    for (to, device, source) in
        [("127.0.0.0/8", "lo", "127.0.0.1"), ("127.0.0.1", "lo", "127.0.0.1"), (OWN_ADDRESS, "own0", OWN_ADDRESS)]
    {
        let route = format!("local {to} dev {device} table local proto kernel scope host src {source}");
        lines += &format!("route change {route} congctl {name}\n");
    }
    let mut batch = tempfile::NamedTempFile::new()?;
    batch.write_all(lines.as_bytes())?;
    output(Command::new("ip").arg("-batch").arg(batch.path()))?;
    Ok(name)
}
