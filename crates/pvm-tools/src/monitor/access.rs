//! Who may see the page. The first request needs the token of a link, which is good for one request; it gets a cookie for the
//! later ones. A program shows a token that it has from a file.
use super::http::Request;
use rustix::rand::{GetRandomFlags, getrandom};
use std::io;
use std::sync::{Mutex, PoisonError};
use subtle::ConstantTimeEq;

/// The bytes of a token; it is written in hexadecimal digits.
const TOKEN_BYTES: usize = 16;
/// What the name of the cookie begins with.
const COOKIE: &str = "hpvm_monitor_";
/// The `Host` names that are accepted. Any other name may be DNS rebinding: a name of another site that resolves to this computer.
const NAMES: [&str; 3] = ["127.0.0.1", "localhost", "[::1]"];

/// A request that is let in, or why not.
#[derive(Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The browser has the cookie, or the program the token.
    Welcome,
    /// The browser has come by a link: it gets the cookie.
    Opens,
    /// It has neither.
    Unknown,
    /// It comes from a page of another site.
    OtherSite,
}

/// The secrets.
pub struct Access {
    /// Another name for each page: a browser knows cookies by computer, whatever the port.
    cookie_name: String,
    cookie: String,
    /// The token of programs, if they may come.
    bearer: Option<String>,
    /// The token of the link that has not been used.
    link: Mutex<String>,
}

impl Access {
    /// Makes new secrets. `bearer`: the token of programs.
    pub fn new(bearer: Option<String>) -> io::Result<Access> {
        Ok(Access {
            cookie_name: format!("{COOKIE}{}", &token()?[..8]),
            cookie: token()?,
            bearer,
            link: Mutex::new(token()?),
        })
    }

    /// Returns the token of the link that has not been used.
    pub fn link(&self) -> String {
        self.link.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the name of the cookie.
    pub fn cookie_name(&self) -> &str {
        &self.cookie_name
    }

    /// Returns the value of the cookie.
    pub fn cookie(&self) -> &str {
        &self.cookie
    }

    /// Judges a request. A link that it has come by is used up.
    pub fn judge(&self, request: &Request) -> io::Result<Verdict> {
        if !has_own_names(request) {
            return Ok(Verdict::OtherSite);
        }
        if let Some(shown) = request.query("token").filter(|_| request.path() == "/open") {
            let mut link = self.link.lock().unwrap_or_else(PoisonError::into_inner);
            if is_same(shown, &link) {
                *link = token()?;
                return Ok(Verdict::Opens);
            }
        }
        let bearer = request.header("authorization").and_then(|value| value.strip_prefix("Bearer "));
        let is_program = bearer.zip(self.bearer.as_deref()).is_some_and(|(shown, known)| is_same(shown, known));
        let is_browser = request.cookie(&self.cookie_name).is_some_and(|shown| is_same(shown, &self.cookie));
        Ok(if is_program || is_browser { Verdict::Welcome } else { Verdict::Unknown })
    }
}

/// Returns whether a request was meant for this page, and does not come from another one.
fn has_own_names(request: &Request) -> bool {
    let is_own = |authority: &str| {
        let name = authority.rsplit_once(':').filter(|(_, port)| port.bytes().all(|digit| digit.is_ascii_digit()));
        NAMES.contains(&name.map_or(authority, |(name, _)| name))
    };
    let host = request.header("host").unwrap_or_default();
    let from_own = |origin: &str| origin.strip_prefix("http://").is_some_and(|origin| origin == host);
    // A link that a person follows comes from nowhere, or from another page that gets nothing of it.
    let is_followed = request.path() == "/open";
    is_own(host)
        && request.header("origin").is_none_or(from_own)
        && request.header("sec-fetch-site").is_none_or(|site| is_followed || ["same-origin", "none"].contains(&site))
}

fn is_same(shown: &str, known: &str) -> bool {
    shown.as_bytes().ct_eq(known.as_bytes()).into()
}

/// Makes a token that nobody can guess.
fn token() -> io::Result<String> {
    let mut bytes = [0; TOKEN_BYTES];
    let mut done = 0;
    while done < bytes.len() {
        done += getrandom(&mut bytes[done..], GetRandomFlags::empty())?;
    }
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    fn request(target: &str, headers: &[&str]) -> Request {
        let headers = headers.iter().map(|line| format!("{line}\r\n")).collect::<String>();
        let head = format!("GET {target} HTTP/1.1\r\n{headers}\r\n");
        Request::read(&mut head.as_bytes(), Instant::now() + Duration::from_secs(600)).unwrap()
    }

    #[test]
    fn a_link_is_good_once_and_a_cookie_stays_good() {
        let access = Access::new(None).unwrap();
        let open = format!("/open?token={}", access.link());
        let judge = |target: &str, more: &str| access.judge(&request(target, &["Host: localhost:4000", more])).unwrap();
        assert_eq!(judge(&open, "A: b"), Verdict::Opens);
        assert_eq!(judge(&open, "A: b"), Verdict::Unknown);
        assert_eq!(judge(&format!("/open?token={}", access.link()), "Sec-Fetch-Site: cross-site"), Verdict::Opens);
        let cookie = format!("Cookie: {}={}", access.cookie_name(), access.cookie());
        assert_eq!(judge("/", &cookie), Verdict::Welcome);
        for wrong in ["A: b", "Cookie: hpvm_monitor=", "Cookie: hpvm_monitor=0123", "Authorization: Bearer x"] {
            assert_eq!(judge("/", wrong), Verdict::Unknown, "{wrong}");
        }
        assert_eq!(judge("/open?token=", "A: b"), Verdict::Unknown);
    }

    #[test]
    fn a_program_shows_its_token() {
        let access = Access::new(Some("0123456789abcdef".into())).unwrap();
        let judge = |line: &str| access.judge(&request("/metrics", &["Host: 127.0.0.1:1", line])).unwrap();
        assert_eq!(judge("Authorization: Bearer 0123456789abcdef"), Verdict::Welcome);
        assert_eq!(judge("Authorization: Bearer 0123456789abcdeg"), Verdict::Unknown);
    }

    #[test]
    fn other_sites_get_nothing() {
        let access = Access::new(None).unwrap();
        let cookie = format!("Cookie: {}={}", access.cookie_name(), access.cookie());
        let judge = |lines: &[&str]| access.judge(&request("/events", &[lines, &[&cookie]].concat())).unwrap();
        for lines in [
            &["Host: evil.example:4000"][..],
            &["Host: localhost.evil.example"],
            &["Host: localhost:4000", "Host: evil.example"],
            &[],
            &["Host: localhost:4000", "Origin: http://evil.example"],
            &["Host: localhost:4000", "Origin: null"],
            &["Host: localhost:4000", "Origin: http://localhost:5000"],
            &["Host: localhost:4000", "Sec-Fetch-Site: cross-site"],
            &["Host: localhost:4000", "Sec-Fetch-Site: same-site"],
        ] {
            assert_eq!(judge(lines), Verdict::OtherSite, "{lines:?}");
        }
        for lines in [
            &["Host: localhost:4000"][..],
            &["Host: [::1]:4000", "Sec-Fetch-Site: same-origin"],
            &["Host: localhost", "Origin: http://localhost"],
        ] {
            assert_eq!(judge(lines), Verdict::Welcome, "{lines:?}");
        }
    }
}
