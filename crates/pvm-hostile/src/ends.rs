//! The ways in which a life ends: an attack for which this host must be cut off, or an irregular departure.
use crate::data;
use crate::false_frames;
use crate::life::{ACKNOWLEDGEMENT, CONTROL_FRAME, Life};
use pvm_core::proto::SECRET_BYTES;
use pvm_core::proto::{FRAME_BYTES_MAX, Request};
use pvm_core::tid::Tid;
use pvm_core::wire::{self, DataCall, Frame};
use std::time::{Duration, Instant};

/// How long this host waits to be cut off. The master first answers this host's earlier requests, alternating with
/// those of other hosts.
const CUT_OFF_TIME_MAX: Duration = Duration::from_secs(60);
/// How long this host sends requests without reading.
const NO_READ_TIME: Duration = Duration::from_secs(14);
/// How long, in milliseconds, this host is silent or delays other hosts before it leaves by itself.
const IDLE_MS: std::ops::Range<u64> = 500..14_000;
/// The number of data links that this host requests.
const DATA_LINKS: u64 = 300;
/// The number of connections of control links that this host makes.
const CONNECTIONS: u64 = 100;
/// The longest frame that is sent in part, in bytes.
const LONG_BYTES_MAX: usize = 16 << 20;

/// Ends the life. Returns how.
pub fn end(life: &mut Life) -> String {
    let master = life.master;
    let what = match life.prng.u32(..14) {
        0..4 => return send_invalid(life),
        4 => return read_nothing(life),
        5 => {
            life.withholds_acks = true;
            life.note("withheld acknowledgements", 1);
            return idle_then_leave(life, "withholding acknowledgements");
        }
        6 => {
            send_partial_control_frame(life);
            return idle_then_leave(life, "half a control frame");
        }
        7 => {
            let host = life.some_peer();
            data::send_partial_frame(life, host);
            life.note("half a message", 1);
            return idle_then_leave(life, "half a message");
        }
        8 => {
            life.send(master, &Frame::Leave);
            return expect_end(life, "leave");
        }
        9 => {
            reopen_data_links(life);
            return idle_then_leave(life, "data links over and over");
        }
        10 => {
            // These frames are still on their way when the life ends.
            false_frames::send_burst(life);
            "left while false frames were on their way"
        }
        11 => {
            reopen_control_links(life);
            return idle_then_leave(life, "control links over and over");
        }
        _ => "left without a word",
    };
    what.to_owned()
}

/// Repeatedly reports data links as lost, so that they are remade, and requests data links that nobody expects.
fn reopen_data_links(life: &mut Life) {
    let host = life.some_peer();
    life.note("data links", DATA_LINKS);
    for number in 0..DATA_LINKS as u32 {
        let secret = [life.prng.u8(..); SECRET_BYTES];
        let call = DataCall { shown: secret, back: secret };
        life.send(host, &Frame::DataCall { number: number + 1, call });
        (0..8).for_each(|number| life.send(host, &Frame::DataLost { number }));
        data::send_valid(life);
        let pause = Duration::from_millis(life.prng.u64(..20));
        life.step(pause);
    }
}

/// Repeatedly makes new connections of control links, which nobody needs, and asks the other host for more.
fn reopen_control_links(life: &mut Life) {
    life.note("control links", CONNECTIONS);
    for _ in 0..CONNECTIONS {
        let host = life.some_peer();
        life.call_again(host);
        false_frames::send_burst(life);
        let pause = Duration::from_millis(life.prng.u64(..20));
        life.step(pause);
    }
}

/// Sends a frame, or other bytes, that every daemon must refuse.
fn send_invalid(life: &mut Life) -> String {
    let master = life.master;
    let master_has_answered = life.flush();
    let what = match life.prng.u32(..8) {
        0 => {
            life.send_bytes(master, CONTROL_FRAME, &[], &[0xff; 30]);
            "no frame at all"
        }
        1 => {
            let kind = life.prng.u8(ACKNOWLEDGEMENT..);
            life.send_bytes(master, kind, &[1, 2, 3], &[]);
            "an unknown kind of frame"
        }
        2 => {
            let mut bytes = wire::encode(&false_frames::false_frame(life));
            bytes.pop();
            life.send_bytes(master, CONTROL_FRAME, &[], &bytes);
            "a frame cut short"
        }
        3 => {
            if let Some(peer) = life.peer(master) {
                peer.control.set_frame_bytes_max(usize::MAX);
                let _ = peer.control.begin(CONTROL_FRAME, &[], FRAME_BYTES_MAX + 1, &[]);
                peer.has_partial_frame = true;
            }
            "a frame that is too long"
        }
        4 => {
            let position = u64::MAX - life.prng.u64(..1 << 40);
            life.acknowledge(master, position);
            "an acknowledgement of what was not sent"
        }
        _ => data::send_invalid_frame(life, master),
    };
    life.note(what, 1);
    let end = expect_end(life, what);
    match master_has_answered || life.is_cut_off() {
        true => end,
        false => format!("{end}, nor answered before"),
    }
}

fn expect_end(life: &mut Life, what: &str) -> String {
    // Earlier requests may keep the master busy for a while.
    let mut end = Instant::now() + CUT_OFF_TIME_MAX;
    while !life.is_cut_off() && Instant::now() < end {
        life.step(Duration::from_millis(20));
        if life.has_unsent() {
            end = Instant::now() + CUT_OFF_TIME_MAX;
        }
    }
    if life.is_cut_off() {
        return format!("cut off after {what}");
    }
    // Either the master has not read the invalid bytes, or it has accepted them.
    let since = if life.flush() { "answers since" } else { "does not answer" };
    format!("NOT CUT OFF after {what}: the master {since}")
}

fn idle_then_leave(life: &mut Life, what: &str) -> String {
    let end = Instant::now() + Duration::from_millis(life.prng.u64(IDLE_MS));
    while !life.is_cut_off() && Instant::now() < end {
        life.step(Duration::from_millis(50));
    }
    if life.is_cut_off() { format!("cut off after {what}") } else { format!("left after {what}") }
}

/// Sends many requests and reads nothing.
fn read_nothing(life: &mut Life) -> String {
    life.reads_nothing = true;
    life.note("requests while reading nothing", 1);
    let (master, end) = (life.master, Instant::now() + NO_READ_TIME);
    while !life.is_cut_off() && Instant::now() < end {
        for wait in 0..500 {
            let from = Tid(life.own.0 | 1);
            life.send(master, &Frame::Request { wait, from, request: Request::Tasks(Tid::NONE), again: false });
        }
        life.step(Duration::from_millis(1));
    }
    if life.is_cut_off() { "cut off while it read nothing".into() } else { "left while it read nothing".into() }
}

/// Sends only a part of a frame.
fn send_partial_control_frame(life: &mut Life) {
    let (host, bytes) = (life.some_peer(), life.prng.usize(100..LONG_BYTES_MAX));
    let there = vec![1; life.prng.usize(..bytes)];
    life.note("half a control frame", 1);
    if let Some(peer) = life.peer(host) {
        let taken = peer.control.begin(CONTROL_FRAME, &[], bytes, &there);
        // Bytes that the socket does not accept at once are not sent.
        peer.has_partial_frame = taken.is_ok();
    }
}
