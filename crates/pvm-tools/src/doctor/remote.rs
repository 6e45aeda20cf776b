//! Checks of other hosts: login, version, clock, connections in both directions, and the checks that run there.
use super::causes::Failure;
use super::peer::{self, ADDRESSES_MAX, CONNECT_WAIT};
use super::{Checked, Finding, local};
use pvm_core::dialogue::{plain, quoted};
use pvm_core::hostfile::HostLine;
use pvm_link::remote_shell::{RemoteShell, daemon_candidates};
use serde_json::Value;
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The most hosts that are checked at the same time.
const HOSTS_AT_ONCE: usize = 32;
/// The line that shows that the script runs on the other host, and the one after the output of `pvmd -t`.
const BEGIN: &str = "hpvm-doctor begins";
const END: &str = "hpvm-doctor: end of pvmd -t";
/// The beginning of the line with the daemon that was found; without a path: none was found.
const DAEMON: &str = "hpvm-doctor: pvmd ";
/// The longest output of the command that is read, in bytes.
///
/// * Filled by: the command on the other host
/// * Setting: none, an answer has some KiB
/// * Reached: the rest is not read, so a host that has not answered by then counts as one that does not
/// * Test: `a_host_that_prints_without_end_is_not_heard_to_the_end`
const OUTPUT_BYTES_MAX: u64 = 1 << 20;
/// How far apart two clocks may be, beyond the time of an answer.
const CLOCK_SECONDS_MAX: f64 = 5.0;
/// How long a command may take to end after its input or output, and the pause between two checks.
const END_WAIT: Duration = Duration::from_secs(1);
const END_PAUSE: Duration = Duration::from_millis(10);
/// Time that `ssh` may take to reach a host, in seconds.
const SSH_CONNECT_SECONDS: u32 = 10;

/// Checks the hosts, many at the same time.
pub fn check_all(lines: &[HostLine], patience: Duration) -> Vec<Checked> {
    let mut checked = Vec::new();
    for lines in lines.chunks(HOSTS_AT_ONCE) {
        let hosts = std::thread::scope(|scope| {
            let threads: Vec<_> = lines.iter().map(|line| scope.spawn(|| check(line, patience))).collect();
            let join =
                |thread: std::thread::ScopedJoinHandle<'_, Vec<Finding>>| thread.join().expect("no check panics");
            threads.into_iter().map(join).collect::<Vec<_>>()
        });
        let host = |(line, findings): (&HostLine, _)| Checked { host: line.name().to_owned(), findings };
        checked.extend(lines.iter().zip(hosts).map(host));
    }
    checked
}

fn check(line: &HostLine, patience: Duration) -> Vec<Finding> {
    let addresses = match addresses(line.address()) {
        Ok(addresses) => addresses,
        Err(finding) => return vec![finding],
    };
    let mut findings = Vec::new();
    // The kernel accepts connections to this port, so nobody has to wait for them.
    let listener = TcpListener::bind((std::net::Ipv4Addr::UNSPECIFIED, 0));
    let port = listener.as_ref().ok().and_then(|listener| Some(listener.local_addr().ok()?.port()));
    let callers = callers(&addresses, port.unwrap_or(0));
    match converse(line, &callers, patience) {
        Err(finding) => findings.push(finding),
        Ok(mut talk) => {
            findings.push(Finding::fine("login", "commands can be run"));
            talk.hear(line, &mut findings);
        }
    }
    findings
}

/// Returns the addresses of a host.
fn addresses(name: &str) -> Result<Vec<IpAddr>, Finding> {
    let found = (name, 0).to_socket_addrs().map(|all| all.map(|one| one.ip()).collect::<Vec<_>>());
    let found = found.unwrap_or_default();
    if found.is_empty() {
        let cure = "correct the name, put it into /etc/hosts or DNS, or say where the host is by ip=";
        return Err(Finding::fault("name", format!("the name {name} has no address here"), cure));
    }
    if found.iter().all(IpAddr::is_loopback) && name.parse::<IpAddr>().is_err() {
        let what = format!("the name {name} leads to {} here, which is this host", found[0]);
        let cure = "in /etc/hosts, give the name the address of a network, or say where the host is by ip=";
        return Err(Finding::fault("name", what, cure));
    }
    Ok(found)
}

/// Returns the addresses at which the other host can reach the port of this one, as words for its doctor.
fn callers(addresses: &[IpAddr], port: u16) -> String {
    let own = addresses.iter().filter_map(|to| peer::own_address(&SocketAddr::new(*to, 9)));
    let mut words: Vec<String> = own.map(|own| SocketAddr::new(own, port).to_string()).collect();
    words.dedup();
    words.truncate(ADDRESSES_MAX);
    words.join(",")
}

/// Returns the remote shell that a daemon of this host would use, and the command line that runs the script with it.
fn remote_shell(line: &HostLine, script: &str) -> (RemoteShell, Vec<OsString>) {
    let shell = RemoteShell::find(variable, false, SSH_CONNECT_SECONDS);
    let words = match &shell {
        RemoteShell::Srun => shell.words(line, script),
        // The shell of a login may be one that does not understand the script.
        RemoteShell::Program(_) => shell.words(line, &format!("sh -c {}", quoted(script))),
    };
    (shell, words)
}

fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

/// Returns the script for the other host.
fn script(line: &HostLine, callers: &str, patience: Duration) -> String {
    let own = crate::machine::daemon_program().and_then(|file| file.canonicalize().ok());
    let daemons = daemon_candidates(line, variable, own.as_deref());
    let machine = crate::machine::name()
        .map_or_else(String::new, |name| format!("PVM_VMID={}; export PVM_VMID; ", quoted(&name)));
    format!(
        "{machine}echo {begin}; p=; for d in {daemons}; do p=$(command -v \"$d\") && break; done; \
         echo {daemon}\"$p\"; [ -n \"$p\" ] || exit 0; \"$p\" -t </dev/null; echo {end}; \
         t=$(dirname \"$p\")/pvm; [ -x \"$t\" ] || t=pvm; \
         exec \"$t\" doctor --timeout {seconds} --peer {callers}",
        begin = quoted(BEGIN),
        daemons = daemons.join(" "),
        daemon = quoted(DAEMON),
        end = quoted(END),
        seconds = patience.as_secs_f64(),
        callers = quoted(callers),
    )
}

/// A conversation with the script on the other host. Dropping it ends the command.
struct Talk {
    child: Child,
    lines: Receiver<String>,
    deadline: Instant,
}

impl Drop for Talk {
    fn drop(&mut self) {
        // Without an input, the script ends by itself; it may also hang.
        drop(self.child.stdin.take());
        let _ = self.ends_before(Instant::now() + END_WAIT);
        let _ = self.child.kill().and_then(|()| self.child.wait());
    }
}

/// Starts the script, and waits until it runs on the other host.
fn converse(line: &HostLine, callers: &str, patience: Duration) -> Result<Talk, Finding> {
    let (remote_shell, words) = remote_shell(line, &script(line, callers, patience));
    let shell = words[0].to_string_lossy().into_owned();
    let mut command = Command::new(&words[0]);
    remote_shell.prepare(&mut command);
    command.args(&words[1..]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| {
        let cure = "install ssh, or set PVM_RSH to a program that runs commands on other hosts";
        Finding::fault("rsh", format!("{shell} cannot be started: {error}"), cure)
    })?;
    let errors = child.stderr.take().map(lines_of);
    let lines = lines_of(child.stdout.take().expect("the output is a pipe"));
    let mut talk = Talk { child, lines, deadline: Instant::now() + patience };
    while let Some(text) = talk.next() {
        if text == BEGIN {
            return Ok(talk);
        }
    }
    // If the output has ended, the command ends soon.
    let end = Instant::now() + END_WAIT;
    let status = talk.ends_before(end).map(|status| status.code().unwrap_or(-1));
    let pause = Duration::from_millis(200);
    let errors: Vec<String> =
        errors.map(|errors| std::iter::from_fn(|| errors.recv_timeout(pause).ok()).collect()).unwrap_or_default();
    let last_error = errors.iter().rev().find(|line| !line.trim().is_empty()).cloned().unwrap_or_default();
    Err(Failure { host: line.name(), shell: &shell, status, errors: &errors.join("\n"), last_error: &last_error }
        .explain())
}

/// Reads lines in a thread, which ends with the pipe. Control characters are replaced.
fn lines_of(pipe: impl Read + Send + 'static) -> Receiver<String> {
    let (send, lines) = mpsc::channel();
    std::thread::spawn(move || {
        let mut reader = BufReader::new(pipe.take(OUTPUT_BYTES_MAX));
        let mut line = Vec::new();
        while matches!(reader.read_until(b'\n', &mut line), Ok(1..)) {
            if send.send(plain(String::from_utf8_lossy(&line).trim_end())).is_err() {
                return;
            }
            line.clear();
        }
    });
    lines
}

impl Talk {
    /// Waits until the command has ended, and returns its status; `None` if it has not ended at this time.
    fn ends_before(&mut self, time: Instant) -> Option<ExitStatus> {
        loop {
            match self.child.try_wait() {
                Ok(Some(status)) => return Some(status),
                Ok(None) if Instant::now() < time => std::thread::sleep(END_PAUSE),
                _ => return None,
            }
        }
    }

    /// Returns the next line; `None` at the end of the output, or when the time is over.
    fn next(&mut self) -> Option<String> {
        self.lines.recv_timeout(self.deadline.saturating_duration_since(Instant::now())).ok()
    }

    /// Hears what the script finds.
    fn hear(&mut self, line: &HostLine, findings: &mut Vec<Finding>) {
        let daemon =
            std::iter::from_fn(|| self.next()).find_map(|line| line.strip_prefix(DAEMON.trim_end()).map(str::to_owned));
        let Some(daemon) = daemon else {
            findings.push(no_answer());
            return;
        };
        let daemon = daemon.trim();
        if daemon.is_empty() {
            let what = format!("pvmd was not found on {}", line.name());
            let cure = "install hpvm there, or say where pvmd is by dx= or PVM_DPATH; \
                        PATH may be shorter in commands than in a login (~/.bashrc)";
            return findings.push(Finding::fault("pvmd", what, cure));
        }
        let mut text = String::new();
        while let Some(line) = self.next().filter(|line| line != END) {
            text.push_str(&line);
            text.push('\n');
        }
        let version = local::version(daemon, &text);
        let is_fine = version.state == super::State::Fine;
        findings.push(version);
        if !is_fine {
            return;
        }
        let answer = std::iter::from_fn(|| self.next()).find_map(|line| serde_json::from_str::<Value>(&line).ok());
        match answer {
            Some(answer) => judge(line, &answer, findings),
            None => findings.push(no_answer()),
        }
    }
}

fn no_answer() -> Finding {
    let cure = "run pvm doctor on that host and see what it says; --timeout gives it more time";
    Finding::fault("answer", "the doctor on the other host has not answered", cure)
}

/// Judges the answer of the other host's doctor.
fn judge(line: &HostLine, answer: &Value, findings: &mut Vec<Finding>) {
    let host = line.name();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
    let apart = answer["time"].as_f64().unwrap_or(0.0) - now;
    findings.push(match apart.abs() > CLOCK_SECONDS_MAX {
        true => Finding::warning(
            "clock",
            format!("the clock of {host} is {:.0} s {}", apart.abs(), if apart > 0.0 { "ahead" } else { "behind" }),
            "keep the clocks together (chrony, systemd-timesyncd), so that logs and traces can be compared",
        ),
        false => Finding::fine("clock", "the clocks agree"),
    });
    findings.extend(answer["findings"].as_array().into_iter().flatten().take(100).map(Finding::of_json));
    findings.push(port_there(host, answer));
    findings.push(port_here(host, answer));
}

/// Tries a connection to the port of the other host.
fn port_there(host: &str, answer: &Value) -> Finding {
    let port = answer["port"].as_u64().and_then(|port| u16::try_from(port).ok()).unwrap_or(0);
    let addresses = answer["addresses"].as_array().into_iter().flatten().take(ADDRESSES_MAX);
    let addresses = addresses.filter_map(|text| text.as_str()?.parse::<IpAddr>().ok());
    let mut last = "it has named no address".to_owned();
    for address in addresses {
        let to = SocketAddr::new(address, port);
        match TcpStream::connect_timeout(&to, CONNECT_WAIT) {
            Ok(_) => return Finding::fine("port", format!("{to} can be reached")),
            Err(error) => last = format!("{to}: {error}"),
        }
    }
    Finding::fault(
        "port",
        format!("no connection from this host to a port of {host} is possible ({last})"),
        format!(
            "let TCP connections from this host through the firewalls, in {host} and between; PVMNETSOCKPORT names the first port that pvmd tries"
        ),
    )
}

/// Reads what the other host says about connections to this one.
fn port_here(host: &str, answer: &Value) -> Finding {
    let tries = answer["back"].as_array().map(Vec::as_slice).unwrap_or_default();
    if let Some(good) = tries.iter().find(|one| one["error"].is_null() && one["address"].is_string()) {
        return Finding::fine(
            "port-back",
            format!("{} can be reached from there", plain(good["address"].as_str().unwrap_or_default())),
        );
    }
    let text = |one: &Value, name: &str| plain(one[name].as_str().unwrap_or("?"));
    let tries: Vec<String> =
        tries.iter().map(|one| format!("{}: {}", text(one, "address"), text(one, "error"))).collect();
    Finding::warning(
        "port-back",
        format!(
            "no connection from {host} to a port of this host is possible ({}); such connections are made if {host} \
             has joined before this host, and by direct links of tasks",
            tries.join("; ")
        ),
        format!("let TCP connections from {host} through the firewalls, in this host and between"),
    )
}

#[cfg(test)]
mod tests {
    use super::super::State;
    use super::*;
    use serde_json::json;

    #[test]
    fn a_name_without_an_address_or_with_that_of_this_host_is_a_fault() {
        assert!(addresses("nosuch.invalid").unwrap_err().what.contains("no address"));
        assert!(addresses("localhost").unwrap_err().what.contains("which is this host"));
        assert_eq!(addresses("127.0.0.2"), Ok(vec!["127.0.0.2".parse().unwrap()]));
    }

    #[test]
    fn a_host_that_prints_without_end_is_not_heard_to_the_end() {
        let lines: Vec<String> = lines_of(std::io::repeat(b'\n')).iter().collect();
        assert_eq!(lines.len() as u64, OUTPUT_BYTES_MAX);
        let lines: Vec<String> = lines_of(std::io::repeat(b'x')).iter().collect();
        assert_eq!(lines.iter().map(|line| line.len() as u64).collect::<Vec<_>>(), [OUTPUT_BYTES_MAX]);
    }

    #[test]
    fn an_answer_is_judged() {
        let line = pvm_core::hostfile::parse_host("h").unwrap();
        let judged = |answer: Value| {
            let mut findings = Vec::new();
            judge(&line, &answer, &mut findings);
            let bad = findings.into_iter().filter(|finding| finding.state != State::Fine);
            bad.map(|finding| finding.check).collect::<Vec<_>>()
        };
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64();
        let back = |error: Option<&str>| json!([{ "address": "127.0.0.1:9", "error": error }]);
        let good = json!({ "time": now, "port": port, "addresses": ["127.0.0.1"], "back": back(None), "findings": [] });
        assert!(judged(good.clone()).is_empty());
        let mut late = good.clone();
        late["time"] = (now - 60.0).into();
        assert_eq!(judged(late), ["clock"]);
        let mut closed = good.clone();
        closed["back"] = back(Some("timed out"));
        closed["port"] = 1.into();
        assert_eq!(judged(closed), ["port", "port-back"]);
        assert_eq!(judged(json!({})), ["clock", "port", "port-back"]);
    }
}
