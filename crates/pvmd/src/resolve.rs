//! Looks host names up. A look-up can take long, so the daemon starts a process for it.
//!
//! The process prints a line for each name as soon as the answer is known: the number of the name, a code (0, or an
//! error code of PVM), the host's addresses, and its other names. Lists are separated by commas.
use crate::addresses;
use pvm_core::codes::Code;
use pvm_core::wire::ResolvedHost;
use pvm_net::polling::poll_one;
use rustix::event::PollFlags;
use rustix::io::Errno;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, ToSocketAddrs};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The table of host names that every system has.
pub const HOSTS_FILE: &str = "/etc/hosts";
/// The maximum number of names that are looked up at the same time.
const LOOKUPS_MAX: usize = 32;
/// Time that a starting daemon spends to find which names in its hostfile mean this host.
const OWN_NAMES_WAIT: Duration = Duration::from_secs(2);

/// Looks names up for `pvmd --resolve NAME…`. Several threads do this, so that a name whose server does not answer does
/// not delay the other names.
pub fn answer(names: &[String], output: &Mutex<impl Write + Send>) -> io::Result<()> {
    let table = std::fs::read_to_string(HOSTS_FILE).unwrap_or_default();
    let next = AtomicUsize::new(0);
    let work = || -> io::Result<()> {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(name) = names.get(number) else { return Ok(()) };
            let line = line(number, look_up(name), &table);
            let mut output = output.lock().unwrap_or_else(PoisonError::into_inner);
            output.write_all(line.as_bytes())?;
            output.flush()?;
        }
    };
    std::thread::scope(|scope| {
        let others: Vec<_> = (1..names.len().min(LOOKUPS_MAX)).map(|_| scope.spawn(work)).collect();
        others.into_iter().map(|other| other.join().unwrap_or(Ok(()))).fold(work(), io::Result::and)
    })
}

/// Reads the output of [`answer`] for `count` names. A name without a line is unknown.
pub fn read_answers(text: &[u8], count: usize) -> Vec<Result<ResolvedHost, Code>> {
    let mut answers = vec![Err(Code::NoHost); count];
    for line in String::from_utf8_lossy(text).lines() {
        let (number, rest) = line.split_once('\t').unwrap_or_default();
        if let Some(answer) = number.parse().ok().and_then(|number: usize| answers.get_mut(number)) {
            *answer = read_line(rest);
        }
    }
    answers
}

fn line(number: usize, (code, addresses): (Option<Code>, Vec<IpAddr>), table: &str) -> String {
    let names = names_of(&addresses, table);
    let addresses: Vec<String> = addresses.iter().map(IpAddr::to_string).collect();
    format!("{number}\t{}\t{}\t{}\n", code.map_or(0, Code::number), addresses.join(","), names.join(","))
}

fn read_line(line: &str) -> Result<ResolvedHost, Code> {
    let mut fields = line.split('\t');
    let number = fields.next().and_then(|number| number.trim().parse().ok());
    if let Some(code) = number.map_or(Some(Code::NoHost), Code::from_number) {
        return Err(code);
    }
    let mut list = || fields.next().unwrap_or("").split(',').filter(|word| !word.is_empty());
    let addresses = list().filter_map(|address| address.parse().ok()).collect();
    Ok(ResolvedHost { addresses, aliases: list().map(str::to_owned).collect() })
}

/// Returns the addresses of a host, and an error code if the host cannot be added: it has no address, or it is this
/// host.
fn look_up(name: &str) -> (Option<Code>, Vec<IpAddr>) {
    let mut found: Vec<IpAddr> = Vec::new();
    for address in (name, 0).to_socket_addrs().into_iter().flatten().map(|address| address.ip()) {
        if !found.contains(&address) {
            found.push(address);
        }
    }
    if found.is_empty() && is_loopback_name(name) {
        found.push(Ipv4Addr::LOCALHOST.into());
    }
    let code = match found.iter().any(|address| addresses::is_own(*address)) {
        _ if found.is_empty() => Some(Code::NoHost),
        true => Some(Code::DupHost),
        false => None,
    };
    (code, found)
}

/// Returns whether the name means the loopback on every system (RFC 6761), even without a table of host names, as in
/// some containers.
fn is_loopback_name(name: &str) -> bool {
    let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
    name == "localhost" || name.ends_with(".localhost")
}

/// Returns those of the names that mean this host, as far as they can be found within [`OWN_NAMES_WAIT`].
pub fn own_among(names: Vec<String>) -> Vec<String> {
    if names.is_empty() {
        return names;
    }
    let mut command = command(&names);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let Ok(mut child) = command.spawn() else { return Vec::new() };
    let mut text = Vec::new();
    let end = Instant::now() + OWN_NAMES_WAIT;
    while let Some(output) = child.stdout.as_mut() {
        let left = end.saturating_duration_since(Instant::now());
        let mut bytes = [0; 4096];
        let ready = poll_one(&*output, PollFlags::IN, left);
        match ready.and_then(|ready| if ready { output.read(&mut bytes).map_err(|_| Errno::IO) } else { Ok(0) }) {
            Ok(count) if count > 0 => text.extend_from_slice(&bytes[..count]),
            Err(Errno::INTR) => {}
            _ => break,
        }
    }
    // The process may wait for a name server that does not answer.
    let _ = child.kill().and_then(|()| child.wait());
    let own = |answer: &Result<ResolvedHost, Code>| *answer == Err(Code::DupHost);
    let answers = read_answers(&text, names.len());
    names.into_iter().zip(answers).filter(|(_, answer)| own(answer)).map(|(name, _)| name).collect()
}

/// Returns the command that looks names up.
pub fn command(names: &[String]) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.arg("--resolve").args(names);
    command
}

/// Returns the names that a table like `/etc/hosts` has for these addresses. Names of the loopback do not count, since
/// every host has them.
pub fn names_of(addresses: &[IpAddr], table: &str) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for line in table.lines() {
        let line = line.split('#').next().unwrap_or("");
        let mut words = line.split_ascii_whitespace();
        let address: Option<IpAddr> = words.next().and_then(|word| word.parse().ok());
        if address.is_some_and(|address| !address.is_loopback() && addresses.contains(&address)) {
            names.extend(words.filter(|name| !name.contains(',')).map(str::to_owned));
        }
    }
    names.dedup();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_own_host_is_a_duplicate_and_nonsense_is_no_host() {
        let names = ["127.0.0.1", "192.0.2.1", "no such name.invalid", "::1"].map(String::from);
        let checked = ResolvedHost { addresses: vec!["192.0.2.1".parse().unwrap()], aliases: Vec::new() };
        let output = Mutex::new(Vec::new());
        answer(&names, &output).unwrap();
        let answers = read_answers(&output.into_inner().unwrap(), names.len());
        assert_eq!(answers, [Err(Code::DupHost), Ok(checked), Err(Code::NoHost), Err(Code::DupHost)]);
    }

    #[test]
    fn localhost_needs_no_table() {
        for name in ["localhost", "LocalHost.", "a.localhost"] {
            assert!(is_loopback_name(name), "{name}");
        }
        for name in ["", ".", "localhost.example.org", "mylocalhost", "127.0.0.1"] {
            assert!(!is_loopback_name(name), "{name}");
        }
        assert_eq!(look_up("localhost").0, Some(Code::DupHost));
    }

    #[test]
    fn a_host_is_known_by_all_names_of_its_addresses() {
        let table = "127.0.0.1 localhost h2\n192.0.2.7 h2.example.org h2 # new\n2001:db8::7 h2v6\n192.0.2.8 h3\n";
        let addresses = ["192.0.2.7".parse().unwrap(), "2001:db8::7".parse().unwrap(), "127.0.0.1".parse().unwrap()];
        let text = line(0, (None, addresses.to_vec()), table);
        let aliases = ["h2.example.org", "h2", "h2v6"].map(str::to_owned).to_vec();
        let host = Ok(ResolvedHost { aliases, addresses: addresses.to_vec() });
        assert_eq!(read_answers(text.as_bytes(), 2), [host, Err(Code::NoHost)]);
        assert_eq!(read_answers(b"rubbish\n0\trubbish\n7\t0\n", 1), [Err(Code::NoHost)]);
    }
}
