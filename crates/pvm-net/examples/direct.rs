//! Measures the cost of a link between two tasks, compared with a bare TCP connection: the one-way time of short
//! messages, when the receiver spins and when it sleeps, and the bandwidth of long messages.
//!
//! Run `direct serve PORT` on one host, `direct call ADDRESS:PORT` on another (or on the same).
#![forbid(unsafe_code)]
use pvm_net::{ConnectEvent, Connector, Identity, KeyPair, Link, Token, Tokens, direct};
use std::error::Error;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

/// The number of rounds. Each round measures all kinds of connections, one after the other. The median of the rounds
/// counts.
const ROUNDS: usize = 5;
const ROUND_TRIPS: usize = 3000;
/// Bytes sent for one measurement of bandwidth.
const BULK_BYTES: usize = 256 << 20;
const SIZES: [usize; 2] = [1 << 20, 16 << 20];
const SMALL: usize = 8;
const FRAME_BYTES_MAX: usize = 64 << 20;
const PATIENCE: Duration = Duration::from_secs(60);

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// How messages travel.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Way {
    Bare,
    Clear,
    Encrypted,
}

const WAYS: [Way; 3] = [Way::Bare, Way::Clear, Way::Encrypted];

/// One end of a connection of either kind.
enum End {
    Bare(TcpStream),
    Link(Box<Link>),
}

impl End {
    fn send(&mut self, data: &[u8], spin: bool) -> Result<()> {
        match self {
            End::Bare(stream) => {
                let mut rest = data;
                while !rest.is_empty() {
                    match stream.write(rest) {
                        Ok(count) => rest = &rest[count..],
                        Err(error) if error.kind() == ErrorKind::WouldBlock => std::hint::spin_loop(),
                        Err(error) => return Err(error.into()),
                    }
                }
            }
            End::Link(link) if spin => {
                let mut sent = link.begin(1, &[0; 24], data.len(), data)?;
                while link.body_owed() > 0 || link.wants_write() {
                    sent += link.push(&data[sent..])?;
                }
            }
            End::Link(link) => {
                direct::send(link, 1, &[0; 24], data, PATIENCE)?;
            }
        }
        Ok(())
    }

    fn receive(&mut self, into: &mut [u8], spin: bool) -> Result<()> {
        match self {
            End::Bare(stream) => {
                let mut done = 0;
                while done < into.len() {
                    match stream.read(&mut into[done..]) {
                        Ok(0) => return Err("closed".into()),
                        Ok(count) => done += count,
                        Err(error) if error.kind() == ErrorKind::WouldBlock => std::hint::spin_loop(),
                        Err(error) => return Err(error.into()),
                    }
                }
            }
            End::Link(link) if spin => {
                while link.receive()?.is_none() {
                    std::hint::spin_loop();
                }
                let mut done = 0;
                while done < into.len() {
                    done += link.take(&mut into[done..])?;
                }
            }
            End::Link(link) => {
                direct::receive(link, PATIENCE)?.ok_or("no answer")?;
                direct::take(link, into, PATIENCE)?;
            }
        }
        Ok(())
    }

    fn set_spinning(&self, spin: bool) -> Result<()> {
        if let End::Bare(stream) = self {
            stream.set_nonblocking(spin)?;
        }
        Ok(())
    }
}

/// Both ends know these keys from the start, since the example measures only speed.
fn identity(server: bool) -> Identity {
    Identity::new(KeyPair::from_secret(&[u8::from(server) + 1; 32]))
}

fn tokens() -> Tokens {
    Tokens { shown: Token::from_bytes([3; 32]), back: Token::from_bytes([4; 32]) }
}

fn meet(address: Option<SocketAddr>, port: u16, way: Way) -> Result<End> {
    let server = address.is_none();
    let mut connector = Connector::new(identity(server), PATIENCE)?;
    let peer = (way == Way::Encrypted).then(|| identity(!server).public());
    match address {
        Some(address) => connector.connect_link(1, &[address], peer, tokens(), PATIENCE, Instant::now()),
        None => {
            connector.listen(port)?;
            connector.expect(1, peer, tokens(), PATIENCE, Instant::now());
        }
    }
    loop {
        connector.step(Instant::now());
        match connector.poll_event() {
            Some(ConnectEvent::LinkReady { mut link, .. }) => {
                link.set_frame_bytes_max(FRAME_BYTES_MAX);
                return Ok(End::Link(link));
            }
            Some(event) => return Err(format!("{event:?}").into()),
            None => std::thread::sleep(Duration::from_micros(100)),
        }
    }
}

fn serve(port: u16) -> Result<()> {
    let mut buffer = vec![0; SIZES[1]];
    for _ in 0..ROUNDS {
        for (index, way) in WAYS.into_iter().enumerate() {
            let port = port + index as u16;
            let mut end = match way {
                Way::Bare => {
                    let stream = TcpListener::bind(("::", port))?.accept()?.0;
                    stream.set_nodelay(true)?;
                    End::Bare(stream)
                }
                way => meet(None, port, way)?,
            };
            for spin in [true, false] {
                end.set_spinning(spin)?;
                for _ in 0..ROUND_TRIPS {
                    end.receive(&mut buffer[..SMALL], spin)?;
                    end.send(&buffer[..SMALL], spin)?;
                }
            }
            for size in SIZES {
                for _ in 0..BULK_BYTES / size {
                    end.receive(&mut buffer[..size], false)?;
                }
                end.send(&buffer[..SMALL], false)?;
            }
        }
    }
    Ok(())
}

/// Returns the one-way time in microseconds when the receiver spins and when it sleeps, and gigabytes per second for
/// each size.
fn measure(end: &mut End) -> Result<[f64; 4]> {
    let mut figures = [0.0; 4];
    let mut buffer = vec![7; SIZES[1]];
    for (index, spin) in [true, false].into_iter().enumerate() {
        end.set_spinning(spin)?;
        let start = Instant::now();
        for _ in 0..ROUND_TRIPS {
            end.send(&buffer[..SMALL], spin)?;
            end.receive(&mut buffer[..SMALL], spin)?;
        }
        figures[index] = start.elapsed().as_secs_f64() * 1e6 / (2 * ROUND_TRIPS) as f64;
    }
    for (index, size) in SIZES.into_iter().enumerate() {
        let start = Instant::now();
        for _ in 0..BULK_BYTES / size {
            end.send(&buffer[..size], false)?;
        }
        end.receive(&mut buffer[..SMALL], false)?;
        figures[2 + index] = BULK_BYTES as f64 / 1e9 / start.elapsed().as_secs_f64();
    }
    Ok(figures)
}

fn call(address: SocketAddr) -> Result<()> {
    let mut all = WAYS.map(|_| Vec::new());
    for _ in 0..ROUNDS {
        for (index, way) in WAYS.into_iter().enumerate() {
            let address = SocketAddr::new(address.ip(), address.port() + index as u16);
            let mut end = match way {
                Way::Bare => {
                    let start = Instant::now();
                    let stream = loop {
                        match TcpStream::connect(address) {
                            Ok(stream) => break stream,
                            Err(error) if start.elapsed() > PATIENCE => return Err(error.into()),
                            Err(_) => std::thread::sleep(Duration::from_millis(10)),
                        }
                    };
                    stream.set_nodelay(true)?;
                    End::Bare(stream)
                }
                way => meet(Some(address), 0, way)?,
            };
            all[index].push(measure(&mut end)?);
        }
    }
    println!("{:10} {:>10} {:>10} {:>12} {:>12}", "", "spin us", "sleep us", "1 MiB GB/s", "16 MiB GB/s");
    for (way, rounds) in WAYS.into_iter().zip(all) {
        let median = |column: usize| {
            let mut values: Vec<f64> = rounds.iter().map(|round| round[column]).collect();
            values.sort_by(f64::total_cmp);
            values[values.len() / 2]
        };
        let name = format!("{way:?}");
        println!("{name:10} {:>10.2} {:>10.2} {:>12.2} {:>12.2}", median(0), median(1), median(2), median(3));
    }
    Ok(())
}

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["serve", port] => serve(port.parse()?),
        ["call", address] => call(address.parse()?),
        _ => Err("direct serve PORT | direct call ADDRESS:PORT".into()),
    }
}
