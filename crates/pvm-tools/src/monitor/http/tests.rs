use super::*;
use std::time::Duration;

fn read(text: &str) -> Result<Request, Error> {
    Request::read(&mut text.as_bytes(), Instant::now() + Duration::from_secs(600))
}

#[test]
fn a_request_has_a_path_a_query_and_headers() {
    let request = read("GET /open?token=abc&x=1 HTTP/1.1\r\nHost: localhost:1\r\nCookie: a=b; hpvm=c\r\n\r\n").unwrap();
    assert_eq!((request.method.as_str(), request.path()), ("GET", "/open"));
    assert_eq!((request.query("token"), request.query("none")), (Some("abc"), None));
    assert_eq!((request.header("host"), request.cookie("hpvm")), (Some("localhost:1"), Some("c")));
    let twice = read("GET / HTTP/1.1\r\nHost: localhost\r\nHost: evil\r\n\r\n").unwrap();
    assert_eq!(twice.header("host"), Some(""));
}

#[test]
fn requests_that_make_no_sense_are_refused() {
    let many = (0..=HEADERS_MAX).map(|number| format!("A{number}: b\r\n")).collect::<String>();
    let long = format!("GET / HTTP/1.1\r\nA: {}", "x".repeat(HEAD_BYTES_MAX));
    for text in [
        "\0\x01\x02\r\n\r\n",
        "GET\r\n\r\n",
        "GET / HTTP/9\r\n\r\n",
        "GET / HTTP/1.1\r\nA\x7f\r\n\r\n",
        &format!("GET / HTTP/1.1\r\n{many}\r\n"),
        &long,
    ] {
        assert!(matches!(read(text), Err(Error::Bad)), "{text:?}");
    }
    assert!(matches!(
        Request::read(&mut &b"GET / HTTP/1.1\r\nA: \xff\r\n\r\n"[..], Instant::now() + Duration::from_secs(600)),
        Err(Error::Bad)
    ));
    // The connection ended in the middle.
    assert!(matches!(read("GET / HTTP/1.1\r\nHost: a"), Err(Error::Lost)));
    let past = Instant::now() - Duration::from_secs(1);
    assert!(matches!(Request::read(&mut &b"GET / HTTP/1.1\r\n\r\n"[..], past), Err(Error::Lost)));
}

#[test]
fn an_answer_says_what_browsers_must_not_do() {
    let mut out = Vec::new();
    Answer::text("404 Not Found", "no such page\n").write(&mut out, true).unwrap();
    let text = String::from_utf8(out).unwrap();
    assert!(text.starts_with("HTTP/1.1 404 Not Found\r\n") && text.ends_with("\r\n\r\nno such page\n"), "{text}");
    for line in ["Content-Length: 13", "frame-ancestors 'none'", "nosniff", "default-src 'none'", "no-store"] {
        assert!(text.contains(line), "{line} in {text}");
    }
}
