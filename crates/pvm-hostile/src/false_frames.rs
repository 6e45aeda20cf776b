//! Frames with false contents, or with contents that this host may not send.
use crate::life::Life;
use pvm_core::codes;
use pvm_core::flows::pacing::Pacing;
use pvm_core::proto::SECRET_BYTES;
use pvm_core::proto::{ByteBuf, LinkCause, Message, Order, Reply, Request, Role, TraceSettings};
use pvm_core::release::{CHAIN_VALUE_BYTES, Passed, Release};
use pvm_core::tid::Tid;
use pvm_core::wire::{
    Arrival, DirectCall, Frame, GroupChange, GroupState, HostEntry, HostOptions, KEY_BYTES, MachineSettings, Refusal,
    Servers, StartNews, StartOrder,
};
use pvm_core::wire::{Taken, Waiting};
use std::collections::BTreeMap;

/// The number of frames in a burst.
const BURST: std::ops::Range<u64> = 1..40;
/// The longest body of a message, in bytes.
const BODY_BYTES_MAX: usize = 20_000;
/// The context of all messages that this host sends. All tasks share this context.
const BASE_CONTEXT: i32 = 0;

/// Sends some false frames to a host.
pub fn send_burst(life: &mut Life) {
    let count = life.prng.u64(BURST);
    let host = life.some_peer();
    life.note("false frames", count);
    for _ in 0..count {
        let frame = false_frame(life);
        life.send(host, &frame);
    }
}

/// Returns a false frame of any kind.
pub fn false_frame(life: &mut Life) -> Frame {
    match life.prng.u32(..10) {
        0..2 => of_the_master(life),
        2 => of_groups(life),
        3..5 => of_tasks(life),
        5 => answer(life),
        6 => direct(life),
        7 => start(life),
        _ => Frame::Deliver(message(life)),
    }
}

fn entry(life: &mut Life) -> HostEntry {
    let tid = match life.prng.u32(..3) {
        0 => life.some_peer(),
        1 => Tid::host_number(life.prng.u32(..)),
        _ => life.any_tid(),
    };
    let name = ["alfa", "localhost", "", "nowhere", "a b\nc"][life.prng.usize(..5)].to_owned();
    let addresses = vec!["10.77.0.1:1".parse().expect("an address"), "255.255.255.255:9".parse().expect("one")];
    let (speed, dsig) = (life.prng.i32(..), life.prng.i32(..));
    let node = life.prng.bool().then(|| life.prng.u32(..8));
    HostEntry {
        tid,
        name,
        aliases: vec!["bravo".into()],
        arch: "LINUX64".into(),
        speed,
        node,
        groups: life.prng.bool().then(|| life.prng.bool()),
        is_draining: life.prng.bool(),
        dsig,
        addresses,
        key: [6; KEY_BYTES],
    }
}

/// Returns a random number for a version, a change or a group; it is mostly very small or very large.
fn any_number(life: &mut Life) -> u64 {
    let low = life.prng.u64(..64);
    [0, low, u64::MAX, u64::MAX - low, life.prng.u64(..)][life.prng.usize(..5)]
}

fn of_the_master(life: &mut Life) -> Frame {
    let (tid, watcher, version) = (life.any_tid(), life.any_tid(), any_number(life));
    let hosts = vec![life.some_peer(), tid.host()];
    match life.prng.u32(..9) {
        0 => {
            let servers = Servers { manager: Some(tid), tracer: Some(watcher), tracer_settings: None };
            let shared = MachineSettings {
                host_timeout_ms: 1,
                halt_grace_ms: u64::MAX,
                trusted: true,
                servers,
                debug_mask: -1,
                host_watches: u64::MAX,
                pacing: Pacing::Off,
                order: Order::Hosts,
                barrier_broadcast_hosts: 1,
                fabric: Default::default(),
                broadcast: None,
            };
            let (hosts, joining) = (vec![entry(life)], vec![tid]);
            Frame::Welcome {
                wire: life.prng.u32(..3),
                version,
                hosts,
                joining,
                shared,
                options: HostOptions::default(),
            }
        }
        1 => Frame::Table { version, added: vec![entry(life), entry(life)], removed: hosts },
        2 => Frame::Table { version, added: Vec::new(), removed: hosts },
        3 => Frame::TableAck { version },
        4 => Frame::Joined { hosts },
        5 => Frame::Servers(Servers {
            manager: Some(tid),
            tracer: Some(watcher),
            tracer_settings: Some(TraceSettings::default()),
        }),
        6 => Frame::PleaseConnect { to: tid, from: watcher },
        7 => Frame::ListBarriers { number: life.prng.u32(..) },
        // A host is permitted to report that it cannot reach an existing host, so the frame names a host that does not
        // exist.
        _ => Frame::Suspect(Tid::host_number(life.prng.u32(2000..4096))),
    }
}

fn any_passed(life: &mut Life) -> Passed {
    Passed { version: any_number(life), number: life.prng.u32(..) }
}

fn of_groups(life: &mut Life) -> Frame {
    let (tid, number, id) = (life.any_tid(), any_number(life), any_number(life));
    let instance = life.prng.u32(..);
    let changes = [
        GroupChange::Joined { instance, tid },
        GroupChange::Gone { instance },
        GroupChange::Freeze,
        GroupChange::Break,
        GroupChange::Close,
        GroupChange::Take,
        GroupChange::Give,
        GroupChange::Release { opened: true },
        GroupChange::Chain(release(life)),
        GroupChange::Prepare { by: tid.host() },
        GroupChange::Coordinate { by: tid.host(), anchor: release(life), start: None, passed: any_passed(life) },
        GroupChange::Recall { number },
    ];
    let (waiting, turn) = (Waiting::default(), life.prng.u64(..));
    match life.prng.u32(..13) {
        0 => Frame::GroupChanged { id, number, change: changes[life.prng.usize(..changes.len())].clone() },
        1 => {
            let name = ByteBuf::from(b"hostile".to_vec());
            let members = vec![(instance, tid), (0, tid)];
            let chain = Some(release(life));
            let (frozen, broken, meets_here) = (true, true, true);
            Frame::GroupKnown(GroupState { id, name, members, frozen, broken, meets_here, version: turn, chain })
        }
        2 => Frame::GroupSeen { number },
        3 => Frame::GroupTaken { id, number: instance, taken: Taken::default() },
        4 => Frame::BarriersListed { number: instance, waiting: BTreeMap::from([(id, waiting)]) },
        5 => {
            let arrival = Arrival { tid, turn, version: turn, count: life.prng.i32(-2..5), lan: life.prng.bool() };
            Frame::Arrived {
                id,
                arrivals: vec![arrival; life.prng.usize(..50)],
                chain: [None, Some(life.prng.u32(..4))][life.prng.usize(..2)],
            }
        }
        6 | 7 => {
            let (release, late) = (Some(release(life)), life.prng.bool());
            Frame::BarrierEnded {
                id,
                ended: vec![(tid, turn); 3],
                failure: None,
                release,
                passed: Some(any_passed(life)),
                late,
            }
        }
        8 => Frame::ReleaseMissed,
        9 => Frame::HandBack { id },
        10 => {
            let arrival = Arrival { tid, turn, version: turn, count: -1, lan: false };
            Frame::Recalled { id, number, passed: instance, arrivals: vec![arrival; life.prng.usize(..50)] }
        }
        _ => Frame::Request {
            wait: instance,
            from: tid,
            request: Request::LeaveGroup(ByteBuf::from(b"hostile".to_vec())),
            again: life.prng.bool(),
        },
    }
}

fn release(life: &mut Life) -> Release {
    let value = [life.prng.u8(..); CHAIN_VALUE_BYTES];
    Release { chain: life.prng.u32(..4), index: life.prng.u32(..1025), value }
}

fn of_tasks(life: &mut Life) -> Frame {
    let (tid, watcher) = (life.any_tid(), life.any_tid());
    let (line, role) = (b"not said".to_vec(), [Role::Tasker, Role::Hoster, Role::ResourceManager, Role::Tracer]);
    match life.prng.u32(..9) {
        0 => Frame::Left { tid, ended: life.prng.bool() },
        1 => Frame::Died { tid, watcher },
        2 => Frame::Watch { tid, watcher },
        3 => Frame::Unwatch { tid, watcher },
        4 => Frame::Log { tid, line },
        // A host is permitted to report its own tasks as servers, so the frame names a task of another host.
        5 => Frame::Serves { role: role[life.prng.usize(..4)], tid: life.victim(), on: life.prng.bool() },
        6 => Frame::Signal { tid: Tid(life.some_peer().0 | 0x3_fff0 | life.prng.u32(..16)), signal: life.prng.i32(..) },
        8 => Frame::SignalGroup {
            tid: Tid(life.some_peer().0 | 0x3_fff0 | life.prng.u32(..16)),
            signal: life.prng.i32(..),
        },
        7 => Frame::Siblings { wait: life.prng.u32(..64), tids: vec![tid; life.prng.usize(..50)] },
        _ => Frame::Request {
            wait: life.prng.u32(..),
            from: life.victim(),
            request: Request::Halt,
            again: life.prng.bool(),
        },
    }
}

fn answer(life: &mut Life) -> Frame {
    let (tid, wait) = (life.any_tid(), life.prng.u32(..200));
    let codes = vec![tid.0 as i32; life.prng.usize(..100)];
    let replies = [
        Reply::Done,
        Reply::Int(life.prng.i32(..)),
        Reply::Tids(codes.clone()),
        Reply::Tasks(Vec::new()),
        Reply::Group { id: any_number(life), instance: life.prng.i32(..) },
        Reply::Manager { previous: tid, hosts: Vec::new() },
    ];
    match life.prng.u32(..3) {
        0 => Frame::Spawned { wait, results: codes },
        _ => Frame::Reply { wait, reply: replies[life.prng.usize(..replies.len())].clone() },
    }
}

fn direct(life: &mut Life) -> Frame {
    let secret = [life.prng.u8(..); SECRET_BYTES];
    let call = DirectCall { shown: secret, back: secret, secret };
    let (number, from, to) = (life.prng.u32(..64), life.any_tid(), life.any_tid());
    match life.prng.u32(..4) {
        0 => Frame::Direct { number, from, to, call: None, cause: LinkCause::Traffic },
        // Both tasks may exist, but nobody expects a connection with the secrets of this call.
        1 => Frame::Direct {
            number,
            from: life.own_task(),
            to: life.victim(),
            call: Some(call),
            cause: LinkCause::Program,
        },
        2 => Frame::DirectCall { number, call },
        _ => Frame::DirectRefused { number, why: Refusal::Company },
    }
}

/// Returns an order that only the master may give, or a report for which nobody has asked.
fn start(life: &mut Life) -> Frame {
    let number = life.prng.u64(..64);
    let text = |text: &str| ByteBuf::from(text.as_bytes().to_vec());
    match life.prng.u32(..4) {
        // A daemon that obeys this order kills itself.
        0 => {
            let words = ["sh", "-c", "kill -9 $PPID"].map(text).to_vec();
            Frame::StartOrder { number, order: StartOrder::Run { words, input: text("hello") } }
        }
        1 => Frame::StartOrder { number, order: StartOrder::Kill },
        2 => Frame::StartNews { number, news: StartNews::Ended(life.prng.i32(..)) },
        _ => Frame::StartNews { number, news: StartNews::Output(text("PvmDupHost\n")) },
    }
}

/// Returns a message for the default route, from any tid to any tid.
pub fn message(life: &mut Life) -> Message {
    let (src, dst) = (life.any_tid(), life.any_tid());
    let body = vec![life.prng.u8(..); life.prng.usize(..BODY_BYTES_MAX) >> life.prng.u32(..14)];
    Message {
        src,
        dst,
        ctx: BASE_CONTEXT,
        tag: life.prng.i32(1..1 << 30),
        wid: 0,
        enc: life.prng.i32(..),
        format: codes::native_dsig(),
        body: ByteBuf::from(body),
    }
}
