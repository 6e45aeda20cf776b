//! The part of `pvm doctor` that runs on the other host: checks that host, and tries connections back.
use super::local;
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::ExitCode;
use std::sync::mpsc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How long one connection may take.
pub const CONNECT_WAIT: Duration = Duration::from_secs(3);
/// The most addresses that are tried.
pub const ADDRESSES_MAX: usize = 4;
/// How many ports after that of `PVMNETSOCKPORT` are tried.
const PORTS_TRIED: u16 = 100;

/// Answers the doctor on another host, whose addresses are `callers`; then waits until its input ends.
pub fn serve(callers: &str, patience: Duration) -> ExitCode {
    let callers: Vec<SocketAddr> = callers.split(',').filter_map(|one| one.parse().ok()).take(ADDRESSES_MAX).collect();
    let listener = match listen() {
        Ok(listener) => listener,
        Err(error) => {
            eprintln!("pvm doctor: no port can be opened: {error}");
            return ExitCode::FAILURE;
        }
    };
    let answer = json!({
        "port": listener.local_addr().map_or(0, |address| address.port()),
        "addresses": callers.iter().filter_map(own_address).map(|one| one.to_string()).collect::<Vec<_>>(),
        "back": callers.iter().map(try_connection).collect::<Vec<Value>>(),
        "findings": local::checks().iter().map(super::Finding::json).collect::<Vec<Value>>(),
        "time": SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64(),
    });
    let mut out = std::io::stdout().lock();
    if writeln!(out, "{answer}").and_then(|()| out.flush()).is_err() {
        return ExitCode::FAILURE;
    }
    // The kernel accepts the caller's connection. The caller closes this input when it has tried.
    let (done, ends) = mpsc::channel();
    std::thread::spawn(move || done.send(std::io::stdin().lock().read_to_end(&mut Vec::new()).is_ok()));
    let _ = ends.recv_timeout(patience);
    drop(listener);
    ExitCode::SUCCESS
}

/// Opens a port as a daemon does.
fn listen() -> std::io::Result<TcpListener> {
    let first = std::env::var("PVMNETSOCKPORT").ok().and_then(|text| text.trim().parse::<u16>().ok()).unwrap_or(0);
    let last = if first == 0 { 0 } else { first.saturating_add(PORTS_TRIED) };
    let mut result = TcpListener::bind((Ipv4Addr::UNSPECIFIED, first));
    for port in first..=last {
        if result.is_ok() {
            break;
        }
        result = TcpListener::bind((Ipv4Addr::UNSPECIFIED, port));
    }
    result
}

/// Returns the address of this host for packets to another one. Sends nothing.
pub fn own_address(to: &SocketAddr) -> Option<IpAddr> {
    let any: IpAddr = if to.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { std::net::Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0)).ok()?;
    socket.connect(to).ok()?;
    Some(socket.local_addr().ok()?.ip())
}

fn try_connection(to: &SocketAddr) -> Value {
    let error = TcpStream::connect_timeout(to, CONNECT_WAIT).err().map(|error| error.to_string());
    json!({ "address": to.to_string(), "error": error })
}
