//! The start dialogue of `pvmd -s`.
use crate::Error;
use crate::life::Life;
use pvm_core::codes;
use pvm_core::dialogue::Greeting;
use pvm_core::tid::Tid;
use pvm_core::wire::Started;
use pvm_net::{Connector, Identity, KeyPair};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

/// The number of arguments that do not begin with `-`: the master's number, the master's address, a size, this host's
/// number, an address.
const WORDS: usize = 5;
/// The architecture that every host of these tests reports.
const ARCHITECTURE: &str = "LINUX64";
/// If the other side of a link is silent for this time, the link is given up.
const LINK_TIMEOUT: Duration = Duration::from_secs(10);

/// Starts another process that becomes the host, and prints that process's answer. Then this process ends, so that the
/// remote shell can end.
pub fn front(arguments: &[String]) -> Result<ExitCode, Error> {
    let mut child = Command::new("/proc/self/exe");
    let mut child = child.arg("-f").args(arguments).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
    let mut line = String::new();
    BufReader::new(child.stdout.take().ok_or("no output")?).read_line(&mut line)?;
    print!("{line}");
    std::io::stdout().flush()?;
    Ok(if line.is_empty() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Becomes a host through the start dialogue. Returns the state of the host, and a text with its name and tid.
pub fn join(arguments: &[String], seed: u64) -> Result<(Life, String), Error> {
    let words: Vec<&String> = arguments.iter().filter(|word| !word.starts_with('-')).collect();
    let name = arguments.iter().find_map(|word| word.strip_prefix("-n")).ok_or("no name")?;
    if words.len() != WORDS {
        return Err("this is started as `pvmd -s` is".into());
    }
    let (master, number) = (Tid::host_number(words[0].parse()?), words[3].parse::<u32>()?);
    let own = Tid::host_number(number);
    let master_key = greeting()?.key.ok_or("the master shows no key")?;
    let keys = KeyPair::generate().map_err(|error| error.to_string())?;
    let key = keys.public().0;
    let mut connector = Connector::new(Identity::new(keys), LINK_TIMEOUT)?;
    connector.listen(0)?;
    let addresses: Vec<SocketAddr> = (name, connector.port()).to_socket_addrs()?.collect();
    let v4 = |address: &SocketAddr| if let IpAddr::V4(address) = address.ip() { Some(address) } else { None };
    let address = addresses.iter().find_map(v4).ok_or("no IPv4 address")?;
    let started =
        Started { arch: ARCHITECTURE.into(), dsig: codes::native_dsig(), addresses, key, names: vec![name.to_owned()] };
    println!("{}", started.line());
    std::io::stdout().flush()?;
    // The master closes the input when it has read the answer.
    std::io::stdin().read_to_end(&mut Vec::new())?;
    let _ = rustix::process::setsid();
    let place = format!("{name} {own}");
    Ok((Life::new(connector, own, address, master, master_key, seed ^ u64::from(number) << 32), place))
}

fn greeting() -> Result<Greeting, Error> {
    let mut greeting = Greeting::default();
    let mut input = std::io::stdin().lock();
    loop {
        let mut line = String::new();
        if input.read_line(&mut line)? == 0 {
            return Err("the master says nothing".into());
        }
        if greeting.take(&line) {
            return Ok(greeting);
        }
    }
}
