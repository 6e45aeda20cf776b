//! Serves the page: accepts connections, lets in who may come, and answers.
use super::access::{Access, Verdict};
use super::feed::{Feed, News};
use super::http::{Answer, Error, Request, write_stream_head};
use super::orders::Counter;
use super::page;
use crate::{shape, signals};
use pvm_core::codes::Code;
use pvm_core::tid::Tid;
use std::collections::VecDeque;
use std::io::{self, BufWriter, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// How many connections may be open that have not shown who they are.
///
/// * Filled by: whoever can connect
/// * Setting: none, browsers show it at once
/// * Reached: the oldest is closed for each new one
/// * Test: `silent_connections_keep_nobody_out`
const STRANGERS_MAX: usize = 64;
/// How many pages may read the events at the same time.
///
/// * Filled by: browsers of the user
/// * Setting: none, each takes a thread
/// * Reached: a further page is told so, and tries again
/// * Test: `one_page_too_many_is_told_so`
const READERS_MAX: usize = 32;
/// How long a request may take to come, and an answer to be taken.
const REQUEST_WAIT: Duration = Duration::from_secs(5);
const ANSWER_WAIT: Duration = Duration::from_secs(30);
/// The longest pause between two lines of a stream of events: so the end of a browser is noticed.
const STREAM_PAUSE: Duration = Duration::from_secs(10);
/// The pause after an accept that failed, for want of descriptors for example.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Where the page listens.
pub enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

/// A connection.
enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Listener {
    fn accept(&self) -> io::Result<Stream> {
        match self {
            Listener::Tcp(listener) => listener.accept().map(|(stream, _)| Stream::Tcp(stream)),
            Listener::Unix(listener) => listener.accept().map(|(stream, _)| Stream::Unix(stream)),
        }
    }
}

impl Stream {
    fn set_timeouts(&self) -> io::Result<()> {
        let (read, write) = (Some(REQUEST_WAIT), Some(ANSWER_WAIT));
        match self {
            Stream::Tcp(stream) => stream.set_read_timeout(read).and_then(|()| stream.set_write_timeout(write)),
            Stream::Unix(stream) => stream.set_read_timeout(read).and_then(|()| stream.set_write_timeout(write)),
        }
    }

    fn try_clone(&self) -> io::Result<Stream> {
        Ok(match self {
            Stream::Tcp(stream) => Stream::Tcp(stream.try_clone()?),
            Stream::Unix(stream) => Stream::Unix(stream.try_clone()?),
        })
    }

    fn shut_down(&self) {
        // The other side may have closed it already.
        let _ = match self {
            Stream::Tcp(stream) => stream.shutdown(Shutdown::Both),
            Stream::Unix(stream) => stream.shutdown(Shutdown::Both),
        };
    }
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.read(buffer),
            Stream::Unix(stream) => stream.read(buffer),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.write(bytes),
            Stream::Unix(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What all connections share.
pub struct Server {
    pub feed: Feed,
    access: Access,
    /// Connections that have not shown who they are, with their numbers, the oldest first.
    strangers: Mutex<VecDeque<(u64, Stream)>>,
    /// Where the page is: all of the link that stands before the token.
    address: String,
    /// Takes what the page asks for, if it may.
    counter: Option<Counter>,
}

impl Server {
    pub fn new(feed: Feed, access: Access, address: String, counter: Option<Counter>) -> Server {
        Server { feed, access, strangers: Mutex::new(VecDeque::new()), address, counter }
    }

    /// Prints the link that opens the page once.
    pub fn print_link(&self) {
        let mut stdout = io::stdout();
        // Whoever started this may not read it.
        let _ = writeln!(stdout, "{}{}", self.address, self.access.link()).and_then(|()| stdout.flush());
    }

    /// Accepts connections for ever.
    pub fn serve(self: &Arc<Server>, listener: &Listener) {
        for number in 0.. {
            let Ok(stream) = listener.accept() else {
                thread::sleep(ACCEPT_PAUSE);
                continue;
            };
            let (Ok(()), Ok(own)) = (stream.set_timeouts(), stream.try_clone()) else { continue };
            self.add_stranger(number, own);
            let server = self.clone();
            // Without a thread, the connection is closed.
            let thread = thread::Builder::new().name("page".into());
            if thread.spawn(move || server.handle(number, stream)).is_err() {
                self.remove_stranger(number);
            }
        }
    }

    fn strangers(&self) -> MutexGuard<'_, VecDeque<(u64, Stream)>> {
        self.strangers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add_stranger(&self, number: u64, stream: Stream) {
        let mut strangers = self.strangers();
        strangers.push_back((number, stream));
        if strangers.len() > STRANGERS_MAX {
            if let Some((_, oldest)) = strangers.pop_front() {
                oldest.shut_down();
            }
        }
    }

    fn remove_stranger(&self, number: u64) {
        self.strangers().retain(|(other, _)| *other != number);
    }

    /// Answers the request of a connection.
    fn handle(&self, number: u64, mut stream: Stream) {
        let request = Request::read(&mut stream, Instant::now() + REQUEST_WAIT);
        // If the other side has gone, or takes too long, the connection ends.
        let _ = match &request {
            Ok(request) => self.answer(number, request, &mut stream),
            Err(Error::Bad) => {
                Answer::text("400 Bad Request", "no request that this page knows\n").write(&mut stream, true)
            }
            Err(Error::Lost) => Ok(()),
        };
        self.remove_stranger(number);
        stream.shut_down();
    }

    fn answer(&self, number: u64, request: &Request, stream: &mut Stream) -> io::Result<()> {
        let has_body = request.method == "GET";
        let orders = match (request.method.as_str(), &self.counter) {
            ("GET" | "HEAD", _) => None,
            ("POST", Some(counter)) => Some(counter),
            _ => return Answer::text("405 Method Not Allowed", "this page can only be read\n").write(stream, true),
        };
        match self.access.judge(request)? {
            Verdict::Welcome => self.remove_stranger(number),
            Verdict::Opens => {
                self.print_link();
                return self.open().write(stream, has_body);
            }
            Verdict::Unknown => {
                let why = "This page opens by the link that pvm monitor has printed last; a link is good once.\n";
                return Answer::text("403 Forbidden", why).write(stream, has_body);
            }
            Verdict::OtherSite => {
                let why = "This page is not for other sites. Its name is 127.0.0.1 or localhost.\n";
                return Answer::text("403 Forbidden", why).write(stream, has_body);
            }
        }
        if let Some(counter) = orders {
            return order(counter, request).write(stream, true);
        }
        match request.path() {
            "/control" => {
                Answer::text("200 OK", if self.counter.is_some() { "yes" } else { "no" }).write(stream, has_body)
            }
            "/events" => self.stream_events(request, stream),
            "/record" => {
                write_stream_head(stream, "application/x-ndjson", "")?;
                self.write_lines(&mut BufWriter::new(stream))
            }
            "/save" => {
                let name = "Content-Disposition: attachment; filename=\"hpvm.html\"\r\n";
                write_stream_head(stream, page::HTML, name)?;
                page::save(&self.feed.lines(), &mut BufWriter::new(stream))
            }
            "/metrics" => {
                let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
                Answer::new(kind, self.feed.metrics().as_bytes()).write(stream, has_body)
            }
            path => match page::part(path) {
                Some((kind, body)) => Answer::new(kind, body.as_bytes()).write(stream, has_body),
                None => Answer::text("404 Not Found", "no such page\n").write(stream, has_body),
            },
        }
    }

    /// Gives a browser its cookie, and lets it ask for the page: a redirect would count as a request from the site that had the link.
    fn open(&self) -> Answer<'static> {
        let headers = format!(
            "Set-Cookie: {}={}; Path=/; HttpOnly; SameSite=Strict\r\n",
            self.access.cookie_name(),
            self.access.cookie()
        );
        let body: &[u8] =
            b"<!doctype html><title>hpvm</title><link rel=icon href=data:,><meta http-equiv=refresh content=\"0;url=/\"><a href=\"/\">hpvm</a>\n";
        Answer { status: "200 OK", kind: page::HTML, headers, body }
    }

    fn write_lines(&self, out: &mut impl Write) -> io::Result<()> {
        for line in self.feed.lines() {
            writeln!(out, "{line}")?;
        }
        out.flush()
    }

    /// Sends the events to a page, until one side ends.
    fn stream_events(&self, request: &Request, stream: &mut Stream) -> io::Result<()> {
        if self.feed.readers() >= READERS_MAX {
            return Answer::text("503 Service Unavailable", "too many pages are open\n").write(stream, true);
        }
        let reader = self.feed.reader();
        write_stream_head(stream, "text/event-stream", "")?;
        let mut out = BufWriter::new(stream);
        let mut next: Option<u64> = request.header("last-event-id").and_then(|id| id.parse().ok());
        loop {
            match reader.news(next, STREAM_PAUSE) {
                News::Anew(lines, number) => {
                    // The page forgets what it knows, and has the number only when it has all.
                    write!(out, "event: anew\ndata: anew\n\n")?;
                    lines.iter().try_for_each(|line| write!(out, "data: {line}\n\n"))?;
                    write!(out, "event: live\nid: {number}\ndata: {number}\n\n")?;
                    next = Some(number);
                }
                News::Lines(lines, number) => {
                    for (line, number) in lines.iter().zip(number + 1 - lines.len() as u64..) {
                        write!(out, "id: {number}\ndata: {line}\n\n")?;
                    }
                    next = Some(number);
                }
                News::Nothing => write!(out, ": still here\n\n")?,
                News::End(why) => {
                    write!(out, "event: end\ndata: {why}\n\n")?;
                    return out.flush();
                }
            }
            out.flush()?;
        }
    }
}

/// Does what a page asks for. A browser says from which page a request comes that is to change something.
fn order(counter: &Counter, request: &Request) -> Answer<'static> {
    if request.header("origin").is_none() {
        return Answer::text("403 Forbidden", "only the page itself may ask for that\n");
    }
    let tid = request.query("tid").map_or(Tid::NONE, shape::parse_tid);
    let signal = request.query("signal").and_then(signals::number);
    let (true, "/signal", Some(signal)) = (tid.is_task(), request.path(), signal) else {
        return Answer::text("400 Bad Request", "no such order\n");
    };
    match counter.signal(tid, signal) {
        Some(Ok(())) => Answer::text("200 OK", "sent\n"),
        Some(Err(Code::NoTask)) => Answer::text("404 Not Found", "the task has ended\n"),
        Some(Err(_)) | None => Answer::text("502 Bad Gateway", "the daemon does not do that\n"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::net::SocketAddr;

    /// Serves for as long as the test program runs. Returns the address and the cookie of a page that has been opened.
    fn serve() -> (SocketAddr, String) {
        serve_with(None)
    }

    fn serve_with(counter: Option<Counter>) -> (SocketAddr, String) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let access = Access::new(None).unwrap();
        let cookie = format!("Cookie: {}={}\r\n", access.cookie_name(), access.cookie());
        let server = Arc::new(Server::new(Feed::new(&json!({ "name": "start" })), access, String::new(), counter));
        thread::spawn(move || server.serve(&Listener::Tcp(listener)));
        (address, cookie)
    }

    fn ask(address: SocketAddr, path: &str, headers: &str) -> TcpStream {
        let mut stream = TcpStream::connect(address).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n").unwrap();
        stream
    }

    fn status(mut stream: &TcpStream) -> String {
        let mut head = [0; 12];
        stream.read_exact(&mut head).unwrap();
        String::from_utf8_lossy(&head[9..]).into_owned()
    }

    #[test]
    fn silent_connections_keep_nobody_out() {
        let (address, cookie) = serve();
        let silent = |_| {
            let mut stream = TcpStream::connect(address).unwrap();
            // One that was closed for a newer one takes no more.
            let _ = write!(stream, "GET / HTTP/1.1\r\n");
            stream
        };
        let silent: Vec<TcpStream> = (0..5 * STRANGERS_MAX).map(silent).collect();
        assert_eq!(status(&ask(address, "/metrics", &cookie)), "200");
        assert_eq!(status(&ask(address, "/metrics", "")), "403");
        drop(silent);
    }

    #[test]
    fn one_page_too_many_is_told_so() {
        let (address, cookie) = serve();
        let open = |_| {
            let page = ask(address, "/events", &cookie);
            (status(&page), page)
        };
        let pages: Vec<(String, TcpStream)> = (0..=READERS_MAX).map(open).collect();
        let answers: Vec<&str> = pages.iter().map(|(status, _)| status.as_str()).collect();
        assert_eq!(answers[..READERS_MAX], ["200"; READERS_MAX]);
        assert_eq!(answers[READERS_MAX], "503");
    }

    #[test]
    fn who_shows_nothing_gets_nothing() {
        let (address, cookie) = serve();
        for path in ["/", "/events", "/record", "/save", "/metrics", "/monitor.js", "/open?token=0", "/../etc/passwd"] {
            assert_eq!(status(&ask(address, path, "")), "403", "{path}");
        }
        for (path, expected) in [("/", "200"), ("/monitor.css", "200"), ("/none", "404"), ("/../etc/passwd", "404")] {
            assert_eq!(status(&ask(address, path, &cookie)), expected, "{path}");
        }
        assert_eq!(post(address, "/signal?tid=t40001&signal=TERM", &cookie), "405");
    }

    fn post(address: SocketAddr, path: &str, headers: &str) -> String {
        let mut stream = TcpStream::connect(address).unwrap();
        write!(stream, "POST {path} HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n").unwrap();
        status(&stream)
    }

    #[test]
    fn only_the_page_itself_may_end_tasks() {
        let (counter, desk) = crate::monitor::orders::open().unwrap();
        let (address, cookie) = serve_with(Some(counter));
        let own = format!("{cookie}Origin: http://localhost\r\n");
        let order = "/signal?tid=t40001&signal=TERM";
        for (headers, expected) in [
            ("Origin: http://localhost\r\n".to_owned(), "403"),
            (cookie.clone(), "403"),
            (format!("{cookie}Origin: http://evil.example\r\n"), "403"),
            (format!("{own}Sec-Fetch-Site: cross-site\r\n"), "403"),
        ] {
            assert_eq!(post(address, order, &headers), expected, "{headers}");
        }
        for wrong in
            ["/signal", "/signal?tid=t40001", "/signal?tid=x&signal=9", "/signal?tid=t40001&signal=0", "/other"]
        {
            assert_eq!(post(address, wrong, &own), "400", "{wrong}");
        }
        // Nobody is there who would do it.
        drop(desk);
        assert_eq!(post(address, order, &own), "502");
    }
}
