//! A receiver of multicasts that lies about them. It knows the secrets of the bodies that are announced to it, so it can
//! seal datagrams that the other receivers believe at first.
use crate::datagrams::{Group, forged_part};
use crate::life::Life;
use pvm_core::flows::frames::{FrameHeader, write_header};
use pvm_core::flows::multicast::datagram::DatagramHead;
use pvm_core::flows::multicast::{Announcement, BodyKey, BodyRequest, REPORT_RANGES_MAX};
use pvm_core::flows::{DataFrame, MessageHeader};
use pvm_core::tid::Tid;
use pvm_net::Seal;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// The length of a life, in milliseconds.
const LIFE_MS: std::ops::Range<u64> = 2_000..8_000;
/// How long this host lies about a body before it reports that it has received it. Until then the sender's daemon keeps
/// the body.
const LIES_MS: std::ops::Range<u64> = 1..1_500;
/// How long this host uses its secrets after it has left the machine.
const AFTERLIFE: Duration = Duration::from_secs(1);
/// The most reports, and the most forged datagrams, in a row.
const REPORTS: u64 = 100;
/// How late a late report is, in milliseconds. The patience of the sender's daemon ends before that, or later.
const LATE_MS: std::ops::Range<u64> = 5..500;
const FORGED: u64 = 20;
/// Of how many reports two are violations of the protocol.
const REPORTS_PER_VIOLATIONS: u32 = 2_000;
/// The number of bodies whose secrets this host remembers.
const BODIES_MAX: usize = 64;

/// What this host does about a body.
#[derive(Clone, Copy, PartialEq)]
enum Conduct {
    /// It asks for all parts, again and again.
    ReportsAll,
    /// It sends false parts to the other receivers.
    Forges,
    /// It announces that it will receive, and reports nothing.
    Silent,
    /// It reports that it lacks nothing, but late.
    Late,
}

struct Body {
    key: BodyKey,
    seal: Seal,
    part_bytes: usize,
    parts: u32,
    conduct: Conduct,
    /// When this host reports that it has the body; `None` if it has reported so.
    until: Option<Instant>,
    /// The last round about which this host was asked, and when it reports about it, if it is late.
    late: Option<(Instant, u32)>,
}

/// Lies about the multicasts that arrive until this host is cut off or its time is over, and goes on when it has left.
/// Returns how the life ended.
pub fn receive(life: &mut Life, group: &mut Group) -> String {
    let mut bodies = VecDeque::new();
    let end = Instant::now() + Duration::from_millis(life.prng.u64(LIFE_MS));
    while Instant::now() < end && !life.is_cut_off() {
        life.step(Duration::from_millis(1));
        while let Some((from, header)) = life.arrived.pop_front() {
            on_header(life, &mut bodies, from, header);
        }
        for head in group.listen() {
            on_datagram(life, &mut bodies, &head);
        }
        act(life, group, &mut bodies);
    }
    let how = if life.is_cut_off() { "cut off after lies about multicasts" } else { "left with the secrets of bodies" };
    life.leave();
    let end = Instant::now() + AFTERLIFE;
    while Instant::now() < end {
        group.listen();
        bodies.iter().for_each(|body| forge(life, group, body));
        let count = life.prng.usize(..30);
        group.send_without_secret(&mut life.prng, count);
        life.note("datagrams after its end", count as u64);
        std::thread::sleep(Duration::from_millis(5));
    }
    how.to_owned()
}

fn on_header(life: &mut Life, bodies: &mut VecDeque<Body>, from: Tid, header: FrameHeader) {
    match header {
        FrameHeader::Announce { header, announcement } => on_announcement(life, bodies, &header, &announcement),
        // The sender does not serve this host by datagrams any more.
        FrameHeader::Request { key, request: BodyRequest::Unavailable } => {
            let known = bodies.iter_mut().find(|body| body.key == key);
            if known.is_none_or(|body| body.until.take().is_some()) {
                send(life, from, key, BodyRequest::Received);
            }
        }
        FrameHeader::Request { key, request: BodyRequest::Fetch { .. } } => {
            send(life, from, key, BodyRequest::Unavailable);
        }
        _ => {}
    }
}

fn on_announcement(life: &mut Life, bodies: &mut VecDeque<Body>, header: &MessageHeader, announcement: &Announcement) {
    let Announcement { key, part_bytes: Some(part_bytes), .. } = *announcement else {
        life.note("bodies along a tree", 1);
        return send(life, announcement.key.origin, announcement.key, BodyRequest::Received);
    };
    life.note("broadcast bodies", 1);
    let until = Instant::now() + Duration::from_millis(life.prng.u64(LIES_MS));
    bodies.push_back(Body {
        key,
        seal: Seal::new(&key.secret, life.encrypts),
        part_bytes: part_bytes as usize,
        parts: header.bytes.div_ceil(part_bytes as usize) as u32,
        conduct: [Conduct::ReportsAll, Conduct::Forges, Conduct::Silent, Conduct::Late][life.prng.usize(..4)],
        until: Some(until),
        late: None,
    });
    if bodies.len() > BODIES_MAX {
        if let Some(body) = bodies.pop_front().filter(|body| body.until.is_some()) {
            send(life, body.key.origin, body.key, BodyRequest::Received);
        }
    }
    // Each further one is a repetition.
    for _ in 0..life.prng.usize(1..3) {
        send(life, key.origin, key, BodyRequest::Ready);
    }
}

/// Answers the request for reports that a datagram contains.
fn on_datagram(life: &mut Life, bodies: &mut VecDeque<Body>, head: &DatagramHead) {
    let is_asked = |body: &&mut Body| body.seal.name() == head.name;
    let Some(body) = bodies.iter_mut().find(is_asked).filter(|_| head.round > 0) else { return };
    match body.conduct {
        Conduct::Late if body.late.is_none_or(|(_, round)| round < head.round) => {
            body.late = Some((Instant::now() + Duration::from_millis(life.prng.u64(LATE_MS)), head.round));
        }
        Conduct::ReportsAll => report_all(life, body, head),
        _ => {}
    }
}

/// Reports many times that this host lacks parts.
fn report_all(life: &mut Life, body: &Body, head: &DatagramHead) {
    let count = life.prng.u64(1..REPORTS);
    life.note("reports", count);
    for number in 0..count as u32 {
        // The receiver of a violation ends the link, so there are few.
        let missing = match life.prng.u32(..REPORTS_PER_VIOLATIONS) {
            0 => vec![0..u32::MAX; REPORT_RANGES_MAX],
            1 => vec![u32::MAX - 1..u32::MAX, 0..0],
            even if even % 2 == 0 => vec![0..1, 1..u32::MAX],
            _ => vec![0..1, 1..body.parts.max(2)],
        };
        let round = [head.round, head.round + number, u32::MAX][life.prng.usize(..3)];
        send(life, body.key.origin, body.key, BodyRequest::Report { round, missing });
    }
}

/// Forges parts of the bodies that are being broadcast, sends late reports, and ends the lies whose time is over.
fn act(life: &mut Life, group: &Group, bodies: &mut VecDeque<Body>) {
    for body in bodies.iter_mut().filter(|body| body.until.is_some()) {
        if body.conduct == Conduct::Forges {
            forge(life, group, body);
        }
        if let Some((_, round)) = body.late.filter(|(at, _)| Instant::now() >= *at) {
            body.late = None;
            life.note("late reports", 1);
            send(life, body.key.origin, body.key, BodyRequest::Report { round, missing: Vec::new() });
        }
        if body.until.is_some_and(|until| Instant::now() >= until) {
            body.until = None;
            send(life, body.key.origin, body.key, BodyRequest::Received);
        }
    }
}

fn forge(life: &mut Life, group: &Group, body: &Body) {
    let count = life.prng.u64(1..FORGED);
    life.note("forged parts", count);
    for _ in 0..count {
        group.send(&forged_part(&mut life.prng, &body.seal, body.part_bytes, body.parts));
    }
}

fn send(life: &mut Life, host: Tid, key: BodyKey, request: BodyRequest) {
    let mut bytes = Vec::new();
    write_header(&DataFrame::<()>::Request { key, request }, &mut bytes);
    life.stream(host, &bytes);
}
