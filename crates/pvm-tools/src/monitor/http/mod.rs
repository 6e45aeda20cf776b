//! As much of HTTP/1.1 as the page needs: a request without a body on each connection, and its answer.
use std::io::{self, Read, Write};
use std::time::Instant;

/// The longest head of a request, in bytes.
///
/// * Filled by: whoever can connect
/// * Setting: none, browsers send less
/// * Reached: the request is refused
/// * Test: `requests_that_make_no_sense_are_refused`
pub const HEAD_BYTES_MAX: usize = 16 << 10;
/// The most header lines of a request.
///
/// * Filled by: whoever can connect
/// * Setting: none, browsers send less
/// * Reached: the request is refused
/// * Test: `requests_that_make_no_sense_are_refused`
pub const HEADERS_MAX: usize = 64;

/// What every answer says: nothing is kept, nothing of another site is loaded or shows the page, and nothing tells where it is.
const SECURITY: &str = "Cache-Control: no-store\r\n\
    Content-Security-Policy: default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
    img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'\r\n\
    Cross-Origin-Opener-Policy: same-origin\r\n\
    Cross-Origin-Resource-Policy: same-origin\r\n\
    Referrer-Policy: no-referrer\r\n\
    X-Content-Type-Options: nosniff\r\n\
    X-Frame-Options: DENY\r\n\
    Connection: close\r\n";

/// The head of a request.
#[derive(Debug, PartialEq, Eq)]
pub struct Request {
    pub method: String,
    /// Path and query.
    pub target: String,
    headers: Vec<(String, String)>,
}

/// What is wrong with a request.
#[derive(Debug)]
pub enum Error {
    /// The connection failed, or nothing came in time.
    Lost,
    /// It makes no sense, or is too long.
    Bad,
}

impl From<io::Error> for Error {
    fn from(_: io::Error) -> Error {
        Error::Lost
    }
}

impl Request {
    /// Reads the head of a request until `deadline`. The stream must have a read timeout.
    pub fn read(stream: &mut impl Read, deadline: Instant) -> Result<Request, Error> {
        let mut head = Vec::new();
        let mut buffer = [0; 2048];
        loop {
            if Instant::now() > deadline {
                return Err(Error::Lost);
            }
            let count = stream.read(&mut buffer)?;
            if count == 0 {
                return Err(Error::Lost);
            }
            head.extend_from_slice(&buffer[..count]);
            if let Some(request) = Request::parse(&head)? {
                return Ok(request);
            }
            if head.len() > HEAD_BYTES_MAX {
                return Err(Error::Bad);
            }
        }
    }

    /// Returns the request, if its head is complete.
    fn parse(head: &[u8]) -> Result<Option<Request>, Error> {
        let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
        let mut parsed = httparse::Request::new(&mut headers);
        match parsed.parse(head) {
            Ok(httparse::Status::Complete(_)) => {}
            Ok(httparse::Status::Partial) => return Ok(None),
            Err(_) => return Err(Error::Bad),
        }
        let (Some(method), Some(target)) = (parsed.method, parsed.path) else { return Err(Error::Bad) };
        let text = |bytes: &[u8]| std::str::from_utf8(bytes).map(str::to_owned).map_err(|_| Error::Bad);
        let headers = parsed.headers.iter().map(|header| Ok((header.name.to_ascii_lowercase(), text(header.value)?)));
        let headers = headers.collect::<Result<Vec<_>, Error>>()?;
        Ok(Some(Request { method: method.to_owned(), target: target.to_owned(), headers }))
    }

    /// Returns the path, without the query.
    pub fn path(&self) -> &str {
        self.target.split_once('?').map_or(&self.target, |(path, _)| path)
    }

    /// Returns the value of a word of the query.
    pub fn query(&self, name: &str) -> Option<&str> {
        let (_, query) = self.target.split_once('?')?;
        query.split('&').find_map(|pair| pair.split_once('=').filter(|(key, _)| *key == name).map(|(_, value)| value))
    }

    /// Returns the value of a header; `None` if it is not there. One that is there twice has no value.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut values = self.headers.iter().filter(|(key, _)| key == name).map(|(_, value)| value.as_str());
        let first = values.next();
        if values.next().is_some() { Some("") } else { first }
    }

    /// Returns the value of a cookie.
    pub fn cookie(&self, name: &str) -> Option<&str> {
        let cookies = self.header("cookie")?.split(';');
        cookies.filter_map(|pair| pair.trim().split_once('=')).find(|(key, _)| *key == name).map(|(_, value)| value)
    }
}

/// An answer.
pub struct Answer<'a> {
    pub status: &'static str,
    pub kind: &'static str,
    /// More header lines, each with its end.
    pub headers: String,
    pub body: &'a [u8],
}

impl<'a> Answer<'a> {
    /// Returns an answer that succeeds.
    pub fn new(kind: &'static str, body: &'a [u8]) -> Answer<'a> {
        Answer { status: "200 OK", kind, headers: String::new(), body }
    }

    /// Returns an answer that is one line of text.
    pub fn text(status: &'static str, body: &'a str) -> Answer<'a> {
        Answer { status, kind: "text/plain; charset=utf-8", headers: String::new(), body: body.as_bytes() }
    }

    /// Writes the answer. `has_body`: the request asked for more than the head.
    pub fn write(&self, out: &mut impl Write, has_body: bool) -> io::Result<()> {
        let Answer { status, kind, headers, body } = self;
        let length = body.len();
        write!(
            out,
            "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n{SECURITY}{headers}\r\n"
        )?;
        if has_body {
            out.write_all(body)?;
        }
        out.flush()
    }
}

/// Writes the head of an answer that goes on until the connection ends.
pub fn write_stream_head(out: &mut impl Write, kind: &str, headers: &str) -> io::Result<()> {
    write!(out, "HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\n{SECURITY}{headers}\r\n")?;
    out.flush()
}

#[cfg(test)]
mod tests;
