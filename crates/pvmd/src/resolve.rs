//! Looks host names up. That can take long, so the daemon has a process of its own do it.
use pvm_core::codes::Code;
use std::net::{IpAddr, ToSocketAddrs, UdpSocket};

/// What `pvmd --resolve NAME…` prints: a code for each name, a line each; 0 for another host.
pub fn answers(names: &[String]) -> String {
    names.iter().map(|name| format!("{}\n", check(name).map_or(0, Code::number))).collect()
}

/// Reads what [`answers`] wrote.
pub fn read_answers(text: &[u8]) -> Vec<Option<Code>> {
    let numbers =
        String::from_utf8_lossy(text).lines().map(|line| line.trim().parse().unwrap_or(0)).collect::<Vec<_>>();
    numbers.into_iter().map(Code::from_number).collect()
}

fn check(name: &str) -> Option<Code> {
    let Ok(addresses) = (name, 0).to_socket_addrs() else { return Some(Code::NoHost) };
    let addresses: Vec<_> = addresses.collect();
    match addresses.iter().any(|address| is_own(address.ip())) {
        _ if addresses.is_empty() => Some(Code::NoHost),
        true => Some(Code::DupHost),
        false => None,
    }
}

/// An address is this host's if something can be bound to it.
fn is_own(address: IpAddr) -> bool {
    UdpSocket::bind((address, 0)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_own_host_is_a_duplicate_and_nonsense_is_no_host() {
        let names = ["127.0.0.1", "192.0.2.1", "no such name.invalid"].map(String::from);
        let expected = [Some(Code::DupHost), None, Some(Code::NoHost)];
        assert_eq!(read_answers(answers(&names).as_bytes()), expected);
    }
}
