//! `pvm monitor`: a page that shows who waits for whom and what hosts and tasks do, live, or as it was in a run that was recorded.
//! The main thread looks at the machine and adds what it sees to a feed; each browser has a thread that sends it on.
mod access;
mod feed;
mod http;
mod metrics;
mod orders;
mod page;
mod server;

use crate::look::Recent;
use crate::signals::Signals;
use crate::timeline::looks::Looks;
use crate::timeline::start_event;
use crate::{cli, look, machine};
use access::Access;
use feed::Feed;
use metrics::Metrics;
use orders::{Counter, Desk};
use pvm_core::waiting::report;
use pvm_task::Session;
use server::{Listener, Server};
use signal_hook::consts::SIGTERM;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, BufWriter};
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// How long this stays after the end of the machine while no page is open.
const STAY: Duration = Duration::from_secs(10);
/// The shortest token of programs, in bytes.
const TOKEN_BYTES_MIN: usize = 16;
/// The bits of a file that others than its owner may have.
const OTHERS: u32 = 0o077;

/// Runs `pvm monitor`.
pub fn run(arguments: &cli::Monitor) -> ExitCode {
    let done = match (&arguments.file, &arguments.save) {
        (Some(file), Some(to)) => save(file, to),
        (Some(file), None) => recorded(file, arguments),
        (None, _) => live(arguments),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("pvm monitor: {why}");
            ExitCode::FAILURE
        }
    }
}

/// Reads the events of a recorded run.
fn read(file: &Path) -> Result<Feed, String> {
    let failed = |error: io::Error| format!("{}: {error}", file.display());
    let lines = BufReader::new(File::open(file).map_err(failed)?).lines();
    let mut feed: Option<Feed> = None;
    for line in lines {
        let line = line.map_err(failed)?;
        // The events stand in an array, each on its own line; what surrounds them is no object.
        let text = line.trim().trim_end_matches(',').trim_start_matches(',');
        let Ok(event @ serde_json::Value::Object(_)) = serde_json::from_str(text) else { continue };
        match &feed {
            None if event["name"] == "start" => feed = Some(Feed::unlimited(&event)),
            None => break,
            Some(feed) => feed.push_line(text.to_owned()),
        }
    }
    let feed = feed
        .ok_or_else(|| format!("{}: no run that pvm run --record FILE or --trace FILE has written", file.display()))?;
    feed.end("");
    Ok(feed)
}

/// Writes the page with a recorded run as one file.
fn save(file: &Path, to: &Path) -> Result<(), String> {
    let feed = read(file)?;
    let write = || page::save(&feed.lines(), &mut BufWriter::new(File::create(to)?));
    write().map_err(|error| format!("{}: {error}", to.display()))
}

/// Shows a recorded run until a signal comes.
fn recorded(file: &Path, arguments: &cli::Monitor) -> Result<(), String> {
    let mut signals = Signals::catch().map_err(|error| format!("signals: {error}"))?;
    let server = open(read(file)?, arguments, None)?;
    let _socket = arguments.socket.as_deref().map(SocketFile);
    server.print_link();
    while signals.take().is_empty() {
        let mut descriptors: Vec<_> = signals
            .descriptors()
            .map(|signal| rustix::event::PollFd::from_borrowed_fd(signal, rustix::event::PollFlags::IN))
            .collect();
        let _ = rustix::event::poll(&mut descriptors, None);
    }
    Ok(())
}

/// Shows the machine until a signal comes, or it has ended and nobody reads.
fn live(arguments: &cli::Monitor) -> Result<(), String> {
    let session = machine::join().map_err(|error| error.to_string())?;
    let start = pvm_task::trace::stamp().microseconds();
    let mut signals = Signals::catch().map_err(|error| format!("signals: {error}"))?;
    let (counter, mut desk) = orders::open().map_err(|error| error.to_string())?;
    let server = open(Feed::new(&start_event(start)), arguments, arguments.control.then_some(counter))?;
    let _socket = arguments.socket.as_deref().map(SocketFile);
    let Some(why) = watch(session, &server, (arguments.interval, start), (&mut signals, &mut desk)) else {
        return Ok(());
    };
    eprintln!("pvm monitor: {why}; what was seen stays while a page is open");
    server.feed.end(&why);
    let mut read_at = Instant::now();
    while read_at.elapsed() < STAY && signals.take().is_empty() {
        thread::sleep(Duration::from_millis(100));
        if server.feed.readers() > 0 {
            read_at = Instant::now();
        }
    }
    Ok(())
}

/// Looks at the machine again and again. Returns why it has ended; `None` if a signal has ended this.
fn watch(
    mut session: Session,
    server: &Server,
    (interval, start): (Duration, i64),
    (signals, desk): (&mut Signals, &mut Desk),
) -> Option<String> {
    let (mut recent, mut looks, mut metrics) = (Recent::default(), Looks::default(), Metrics::default());
    let mut next = Instant::now();
    let mut is_first = true;
    loop {
        if Instant::now() >= next {
            next = Instant::now() + interval;
            // If the daemon is gone, that is seen below.
            if let Ok((look, hosts)) = look::take(&mut session) {
                let at = pvm_task::trace::stamp().microseconds() - start;
                let recent = recent.add(look);
                if let Some(look) = recent.last() {
                    let seen = (look, &report(recent));
                    server.feed.set_metrics(metrics.take(seen, &hosts));
                    server.feed.push(&looks.event(seen, &hosts, at));
                }
            }
            if std::mem::take(&mut is_first) {
                server.print_link();
            }
        }
        let descriptors: Vec<_> = signals.descriptors().chain([desk.descriptor()]).collect();
        session.wait(&descriptors, Some(next.saturating_duration_since(Instant::now())));
        drop(descriptors);
        desk.serve(&mut session);
        let why = session.why_halting().map_or_else(String::new, |why| format!(": {why}"));
        let caught = signals.take();
        if !session.is_connected() {
            return Some(format!("the machine has ended{why}"));
        }
        if !caught.is_empty() {
            // It does not matter whether leaving succeeds.
            let _ = session.leave();
            // Daemons end tasks by SIGTERM when the machine halts, and this is one; nobody can join any more then.
            let has_ended = caught.contains(&SIGTERM) && machine::join().is_err();
            return has_ended.then(|| format!("the machine has ended{why}"));
        }
    }
}

/// Begins to serve.
fn open(feed: Feed, arguments: &cli::Monitor, counter: Option<Counter>) -> Result<Arc<Server>, String> {
    let bearer = arguments.token_file.as_deref().map(bearer).transpose()?;
    let access = Access::new(bearer).map_err(|error| format!("no random numbers: {error}"))?;
    let (listener, place) = match &arguments.socket {
        Some(path) => (Listener::Unix(listen(path)?), "localhost:PORT".to_owned()),
        None => {
            let failed = |error| format!("port {}: {error}", arguments.port);
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, arguments.port)).map_err(failed)?;
            let address = listener.local_addr().map_err(failed)?;
            (Listener::Tcp(listener), address.to_string())
        }
    };
    if let Some(path) = &arguments.socket {
        eprintln!("pvm monitor: from your computer: ssh -L PORT:{} HOST, then open this link there:", path.display());
    }
    let server = Arc::new(Server::new(feed, access, format!("http://{place}/open?token="), counter));
    let own = server.clone();
    thread::Builder::new()
        .name("listener".into())
        .spawn(move || own.serve(&listener))
        .map_err(|error| error.to_string())?;
    Ok(server)
}

/// Listens on a socket that only this user can reach. A socket that nobody listens to any more is replaced.
fn listen(path: &Path) -> Result<UnixListener, String> {
    let failed = |error: io::Error| format!("{}: {error}", path.display());
    if fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket())
        && std::os::unix::net::UnixStream::connect(path).is_err()
    {
        fs::remove_file(path).map_err(failed)?;
    }
    // Nobody connects before the mode is set: the umask covers the moment between.
    let mask = rustix::process::umask(rustix::fs::Mode::from_raw_mode(OTHERS));
    let listener = UnixListener::bind(path);
    rustix::process::umask(mask);
    let listener = listener.map_err(failed)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).map_err(failed)?;
    Ok(listener)
}

/// Removes the socket at the end.
struct SocketFile<'a>(&'a Path);

impl Drop for SocketFile<'_> {
    fn drop(&mut self) {
        // Somebody may have removed it.
        let _ = fs::remove_file(self.0);
    }
}

/// Reads the token of programs.
fn bearer(file: &Path) -> Result<String, String> {
    let name = file.display();
    let failed = |error: io::Error| format!("{name}: {error}");
    let found = fs::metadata(file).map_err(failed)?;
    if found.mode() & OTHERS != 0 || found.uid() != rustix::process::geteuid().as_raw() {
        return Err(format!("{name}: others can read or change it (chmod 600)"));
    }
    let token = fs::read_to_string(file).map_err(failed)?.trim().to_owned();
    match token.len() {
        TOKEN_BYTES_MIN.. => Ok(token),
        _ => Err(format!("{name}: a token has at least {TOKEN_BYTES_MIN} letters (openssl rand -hex 16)")),
    }
}
