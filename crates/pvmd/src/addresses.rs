//! The addresses of this host.
use nix::ifaddrs::{InterfaceAddress, getifaddrs};
use nix::net::if_::{InterfaceFlags, if_nametoindex};
use nix::sys::socket::SockaddrStorage;
use pvm_core::dialogue::ADDRESSES_MAX;
use pvm_net::Network;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// Returns the addresses of this host's interfaces. Addresses that other hosts are likely to reach come first. The
/// loopback address comes last: daemons on the same host may use it.
pub fn own() -> Vec<IpAddr> {
    let mut addresses: Vec<IpAddr> = Vec::new();
    for network in networks() {
        if !addresses.contains(&network.own) {
            addresses.push(network.own);
        }
    }
    if !addresses.iter().any(IpAddr::is_loopback) {
        addresses.push(IpAddr::V4(Ipv4Addr::LOCALHOST));
    }
    addresses.sort_by_key(|address| (address.is_loopback(), address.is_ipv6()));
    addresses.truncate(ADDRESSES_MAX);
    addresses
}

/// Returns the networks of this host, with every address of its interfaces that other hosts can use.
pub fn networks() -> Vec<Network> {
    let is_up = |one: &InterfaceAddress| one.flags.contains(InterfaceFlags::IFF_UP);
    let network = |one: InterfaceAddress| {
        let own = one.address.as_ref().and_then(ip).filter(|address| is_useful(*address))?;
        Some(Network { own, interface: if_nametoindex(one.interface_name.as_str()).unwrap_or(0) })
    };
    getifaddrs().into_iter().flatten().filter(is_up).filter_map(network).collect()
}

/// Returns whether an address leads to this host. Every loopback address does, even if no interface has it.
pub fn is_own(address: IpAddr) -> bool {
    address.is_loopback() || own().contains(&address)
}

/// Adds a port to addresses.
pub fn with_port(addresses: &[IpAddr], port: u16) -> Vec<SocketAddr> {
    addresses.iter().map(|address| SocketAddr::new(*address, port)).collect()
}

fn ip(address: &SockaddrStorage) -> Option<IpAddr> {
    let v4 = address.as_sockaddr_in().map(|address| IpAddr::V4(address.ip()));
    v4.or_else(|| address.as_sockaddr_in6().map(|address| IpAddr::V6(address.ip())))
}

/// Returns whether other hosts can use an address. They cannot use link-local addresses, which need the name of an
/// interface.
fn is_useful(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => !address.is_link_local() && !address.is_unspecified(),
        IpAddr::V6(address) => !address.is_unicast_link_local() && !address.is_unspecified(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_comes_last_and_is_always_there() {
        let addresses = own();
        let first_loopback = addresses.iter().position(IpAddr::is_loopback).unwrap();
        assert!(addresses[first_loopback..].iter().all(IpAddr::is_loopback), "{addresses:?}");
        assert!(addresses.iter().all(|address| is_own(*address)));
        assert!(is_own("127.0.1.1".parse().unwrap()) && !is_own("192.0.2.1".parse().unwrap()));
    }
}
