//! How a life ends: by what must be cut off, or by going away in a bad way.
use crate::data;
use crate::lies;
use crate::life::{CONTROL_FRAME, Life};
use pvm_core::proto::{FRAME_BYTES_MAX, Request};
use pvm_core::tid::Tid;
use pvm_core::wire::{self, DataCall, Frame, SECRET_BYTES};
use std::time::{Duration, Instant};

/// How long it waits to be cut off: what it has asked before is answered first, in turns with what others ask.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long it asks without reading.
const DEAF_TIME: Duration = Duration::from_secs(14);
/// How long it is silent, or holds up others, before it goes away by itself.
const SULK_MS: std::ops::Range<u64> = 500..14_000;
/// How often it has a data link made.
const DATA_LINKS: u64 = 300;
/// Bytes of a long frame of which only a part comes.
const LONG_BYTES_MAX: usize = 16 << 20;

/// Ends the life; says how.
pub fn one(life: &mut Life) -> String {
    let master = life.master;
    let what = match life.dice.u32(..13) {
        0..4 => return nonsense(life),
        4 => return deaf(life),
        5 => {
            life.sullen = true;
            life.note("silence about what it knows", 1);
            return sulk(life, "never said what it knows");
        }
        6 => {
            half_control(life);
            return sulk(life, "half a control frame");
        }
        7 => {
            let host = life.some_peer();
            data::half(life, host);
            life.note("half a message", 1);
            return sulk(life, "half a message");
        }
        8 => {
            life.say(master, &Frame::Leave);
            return expect_end(life, "leave");
        }
        9 => {
            data_links(life);
            return sulk(life, "data links over and over");
        }
        10 => {
            // Frames that are still on their way when it ends.
            lies::some(life);
            "left amid its lies"
        }
        _ => "left without a word",
    };
    what.to_owned()
}

/// Has data links made again and again, and makes up some that nobody awaits.
fn data_links(life: &mut Life) {
    let host = life.some_peer();
    life.note("data links", DATA_LINKS);
    for number in 0..DATA_LINKS as u32 {
        let secret = [life.dice.u8(..); SECRET_BYTES];
        let call = DataCall { shown: secret, back: secret };
        life.say(host, &Frame::DataCall { number: number + 1, call });
        (0..8).for_each(|number| life.say(host, &Frame::DataLost { number }));
        data::some(life);
        let pause = Duration::from_millis(life.dice.u64(..20));
        life.step(pause);
    }
}

/// What no daemon may put up with.
fn nonsense(life: &mut Life) -> String {
    let master = life.master;
    let heard_out = life.say_all();
    let what = match life.dice.u32(..7) {
        0 => {
            life.say_bytes(master, CONTROL_FRAME, &[], &[0xff; 30]);
            "no frame at all"
        }
        1 => {
            let kind = life.dice.u8(2..);
            life.say_bytes(master, kind, &[1, 2, 3], &[]);
            "an unknown kind of frame"
        }
        2 => {
            let mut bytes = wire::encode(&lies::one(life));
            bytes.pop();
            life.say_bytes(master, CONTROL_FRAME, &[], &bytes);
            "a frame cut short"
        }
        3 => {
            if let Some(peer) = life.peer(master) {
                peer.control.set_frame_bytes_max(usize::MAX);
                let _ = peer.control.begin(CONTROL_FRAME, &[], FRAME_BYTES_MAX + 1, &[]);
                peer.stuffed = true;
            }
            "a frame that is too long"
        }
        _ => data::nonsense(life, master),
    };
    life.note(what, 1);
    let end = expect_end(life, what);
    match heard_out || life.is_cut_off() {
        true => end,
        false => format!("{end}, nor answered before"),
    }
}

fn expect_end(life: &mut Life, what: &str) -> String {
    // What it has said before may keep the master busy for a while.
    let mut end = Instant::now() + PATIENCE;
    while !life.is_cut_off() && Instant::now() < end {
        life.step(Duration::from_millis(20));
        if life.has_unsent() {
            end = Instant::now() + PATIENCE;
        }
    }
    if life.is_cut_off() {
        return format!("cut off after {what}");
    }
    // Whether the master has not read it, or has put up with it.
    let since = if life.say_all() { "answers since" } else { "does not answer" };
    format!("NOT CUT OFF after {what}: the master {since}")
}

fn sulk(life: &mut Life, what: &str) -> String {
    let end = Instant::now() + Duration::from_millis(life.dice.u64(SULK_MS));
    while !life.is_cut_off() && Instant::now() < end {
        life.step(Duration::from_millis(50));
    }
    if life.is_cut_off() { format!("cut off after {what}") } else { format!("left after {what}") }
}

/// Asks for much and reads nothing.
fn deaf(life: &mut Life) -> String {
    life.deaf = true;
    life.note("questions of a deaf one", 1);
    let (master, end) = (life.master, Instant::now() + DEAF_TIME);
    while !life.is_cut_off() && Instant::now() < end {
        for wait in 0..500 {
            let from = Tid(life.own.0 | 1);
            life.say(master, &Frame::Request { wait, from, request: Request::Tasks(Tid::NONE) });
        }
        life.step(Duration::from_millis(1));
    }
    if life.is_cut_off() { "cut off as a deaf one".into() } else { "left as a deaf one".into() }
}

/// A frame of which the rest never comes.
fn half_control(life: &mut Life) {
    let (host, bytes) = (life.some_peer(), life.dice.usize(100..LONG_BYTES_MAX));
    let there = vec![1; life.dice.usize(..bytes)];
    life.note("half a control frame", 1);
    if let Some(peer) = life.peer(host) {
        let taken = peer.control.begin(CONTROL_FRAME, &[], bytes, &there);
        // What the socket does not take at once is not said.
        peer.stuffed = taken.is_ok();
    }
}
