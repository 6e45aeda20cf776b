//! The memory that a daemon keeps for tasks that take nothing.
#![forbid(unsafe_code)]
mod common;

use common::{Client, Daemon, Directory, PATIENCE, spawn_of, wait_for};
use pvm_core::codes::native_dsig;
use pvm_core::proto::{ByteBuf, Message, Reply, Request, Spawn, ToDaemon, TraceSettings};
use pvm_core::tid::Tid;
use pvm_link::ControlError;
use std::time::{Duration, Instant};

/// The tag of collected output.
const OUTPUT_TAG: i32 = 77;
/// Bytes that a task prints while nobody takes its output.
const PRINTED_BYTES: usize = 48 << 20;

fn resident_bytes(daemon: &Daemon) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{}/status", daemon.process.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() << 10
}

#[test]
fn a_task_that_takes_nothing_of_the_daemon_is_disconnected() {
    let directory = Directory::new();
    let daemon = Daemon::run(directory.command().env("HPVM_BACKLOG_MAX", "1"));
    let (mut victim, mut other) = (Client::enroll(&daemon.socket), Client::enroll(&daemon.socket));
    let (src, dst, body) = (other.tid(), victim.tid(), ByteBuf::from(vec![0; 100_000]));
    let message = Message { src, dst, ctx: 0, tag: 1, wid: 0, enc: 0, format: native_dsig(), body };
    for _ in 0..100 {
        other.link.send_to_daemon(&ToDaemon::Message(message.clone()), &[]).unwrap();
        assert_eq!(other.ask(Request::TaskStatus(src)), Reply::Code(0));
    }
    let taken = (0..100).find(|_| wait_for(&mut victim.link).is_err());
    // The frames that the socket held can still be read.
    assert!(taken.is_some_and(|taken| taken < 60), "{taken:?}");
    assert_eq!(wait_for(&mut victim.link).unwrap_err(), ControlError::Closed);
    directory.wait_for_log("does not read what it is sent, disconnected");
}

#[test]
fn a_task_that_reads_a_long_entry_is_not_disconnected_for_what_comes_behind_it() {
    let directory = Directory::new();
    let daemon = Daemon::run(directory.command().env("HPVM_BACKLOG_MAX", "1"));
    let (mut reader, mut other) = (Client::enroll(&daemon.socket), Client::enroll(&daemon.socket));
    let message = |dst, bytes: usize| Message::new(Tid::NONE, dst, 0, 1, vec![7; bytes]);
    let name = ByteBuf::from(b"box".to_vec());
    let long = message(Tid::NONE, 24 << 20);
    assert_eq!(other.ask(Request::PutInfo { name: name.clone(), flags: 0, message: long.clone() }), Reply::Int(0));
    let wait = reader.begin(Request::RecvInfo { name, index: 0, flags: 0 });
    for _ in 0..20 {
        other.link.send_to_daemon(&ToDaemon::Message(message(reader.tid(), 10_000)), &[]).unwrap();
        assert_eq!(other.ask(Request::TaskStatus(other.tid())), Reply::Code(0));
    }
    let Reply::Info(entry) = reader.finish(wait) else { panic!() };
    assert!(entry.body == long.body);
    for _ in 0..20 {
        assert_eq!(reader.message().0.body.len(), 10_000);
    }
}

#[test]
fn a_collector_that_takes_nothing_costs_the_daemon_little() {
    let directory = Directory::new();
    let daemon = Daemon::start(&directory);
    let mut collector = Client::enroll(&daemon.socket);
    let before = resident_bytes(&daemon);
    let children = TraceSettings { output_tid: collector.tid().0 as i32, output_tag: OUTPUT_TAG, ..Default::default() };
    let script = format!("yes | head -c {PRINTED_BYTES}");
    let tids = collector.spawn_with(Spawn { children, ..spawn_of("/bin/sh", &["-c", &script], 1) });
    assert!(tids[0] > 0, "{tids:?}");
    // Waits until the daemon reads no more of the output.
    let (mut last, end) = (0, Instant::now() + PATIENCE);
    while resident_bytes(&daemon) != last || last < before + (8 << 20) {
        assert!(Instant::now() < end);
        last = resident_bytes(&daemon);
        std::thread::sleep(Duration::from_millis(300));
    }
    assert!(last - before < 36 << 20, "{} bytes", last - before);
    // Nothing is lost.
    let mut printed = 0;
    loop {
        let (message, ints) = collector.message();
        assert_eq!((message.tag, ints[0]), (OUTPUT_TAG, tids[0]));
        match ints[1] {
            0 => break,
            length => printed += length.max(0) as usize,
        }
    }
    assert_eq!(printed, PRINTED_BYTES);
}
