//! Valid requests in excessive numbers.
use crate::datagrams::Group;
use crate::false_frames;
use crate::life::Life;
use pvm_core::codes::{self, MBOX_MULTI_INSTANCE, MBOX_WAIT_FOR_INFO};
use pvm_core::proto::{ByteBuf, LinkCause, Request, Spawn, TraceSettings};
use pvm_core::tid::Tid;
use pvm_core::wire::Frame;
use pvm_net::Security;
use std::time::Duration;

/// The most watches (requests for a notify at the end of a task) in one flood.
const WATCHES: u64 = 30_000;
/// The most bytes that one flood stores in mailboxes.
const MAILBOX_BYTES: usize = 8 << 20;
/// The most queries in one flood.
const QUESTIONS: u64 = 3_000;
/// The most calls (attempts to connect to a host) in one flood.
const CALLS: u64 = 40;
/// The most datagrams in one flood, and how many are sent in a row.
const DATAGRAMS: usize = 5_000;
const DATAGRAMS_IN_A_ROW: usize = 100;

/// Sends one of the floods.
pub fn flood(life: &mut Life) {
    match life.prng.u32(..10) {
        8 => datagrams(life),
        0 => watches(life),
        1 => spawns(life),
        2 => mailboxes(life),
        3..5 => groups(life),
        5 => questions(life),
        6 => calls(life),
        7 => output(life),
        _ => messages(life),
    }
}

/// On behalf of many tasks of this host, requests a notify for the end of a task: mostly of the same task, sometimes of
/// any task.
fn watches(life: &mut Life) {
    let count = life.prng.u64(..WATCHES);
    life.note("watches", count);
    let (tid, host) = (life.victim(), life.victim().host());
    for number in 0..count {
        let watcher = Tid(life.own.0 | (1 + number as u32 % 0x3_ffff));
        let tid = if number % 8 == 0 { life.victim() } else { tid };
        life.send(if number % 2 == 0 { tid.host() } else { host }, &Frame::Watch { tid, watcher });
        if number % 1024 == 0 {
            life.step(Duration::ZERO);
        }
    }
}

/// Spawns tasks. Some tasks end at once, some run for a while, and some spawns have an impossible count.
fn spawns(life: &mut Life) {
    let count = life.prng.u64(1..12);
    life.note("spawns", count);
    let host = life.some_peer();
    for wait in 0..count {
        let files: [&[u8]; 5] = [b"/bin/true", b"/bin/sleep", b"no such program", b"/", b"../../../bin/true"];
        let counts = [1, 3, 8, 0, -1, 1 << 18, i32::MAX, i32::MIN];
        let spawn = Spawn {
            file: ByteBuf::from(files[life.prng.usize(..files.len())].to_vec()),
            arguments: vec![ByteBuf::from(b"2".to_vec())],
            flags: life.prng.i32(..),
            place: ByteBuf::from(b"nowhere".to_vec()),
            count: counts[life.prng.usize(..counts.len())],
            environment: vec![ByteBuf::from(b"PATH".to_vec()); life.prng.usize(..20)],
            // A task may choose any task as the destination of its children's output: here a task of this host.
            children: TraceSettings { output_tid: life.own_task().0 as i32, ..TraceSettings::default() },
        };
        let first = [0, -1, i32::MAX][life.prng.usize(..3)];
        let total = [spawn.count, counts[life.prng.usize(..counts.len())]][life.prng.usize(..2)];
        let parent = life.any_tid().0 as i32;
        life.send(host, &Frame::Spawn { wait: wait as u32, parent, first, total, spawn });
    }
}

/// Sends a request on behalf of a task of this host.
fn ask(life: &mut Life, host: Tid, request: Request) {
    let (wait, from) = (life.prng.u32(..), life.own_task());
    life.send(host, &Frame::Request { wait, from, request, again: false });
}

fn name(life: &mut Life) -> ByteBuf {
    ByteBuf::from(format!("hostile{}", life.prng.u32(..200_000)).into_bytes())
}

/// Stores messages in mailboxes, and waits for messages in other mailboxes.
fn mailboxes(life: &mut Life) {
    let master = life.master;
    let mut left = life.prng.usize(..MAILBOX_BYTES);
    while left > 0 {
        life.note("mailbox requests", 2);
        let mut message = false_frames::message(life);
        message.body = ByteBuf::from(vec![7; life.prng.usize(..=left.min(1 << 20))]);
        left -= message.body.len().clamp(left.min(4096), left);
        let (put, wanted) = (name(life), name(life));
        ask(life, master, Request::PutInfo { name: put, flags: MBOX_MULTI_INSTANCE, message });
        ask(life, master, Request::RecvInfo { name: wanted, index: 0, flags: MBOX_WAIT_FOR_INFO });
        life.step(Duration::ZERO);
    }
}

/// Makes groups, and sends random requests about groups.
fn groups(life: &mut Life) {
    let (master, count) = (life.master, life.prng.u64(..400));
    life.note("group requests", count);
    for _ in 0..count {
        let name = match life.prng.bool() {
            true => name(life),
            false => ByteBuf::from(b"hostile".to_vec()),
        };
        let (group, count) = (life.prng.u64(..2000), life.prng.i32(-2..5));
        let request = match life.prng.u32(..8) {
            0..3 => Request::JoinGroup(name),
            3 => Request::LeaveGroup(name),
            4 => Request::Group(name),
            5 => Request::FreezeGroup { name, count },
            6 => Request::LanBarrier { group, count },
            _ => Request::Barrier { group, count },
        };
        ask(life, master, request);
    }
}

/// Sends many queries.
fn questions(life: &mut Life) {
    let (host, count) = (life.some_peer(), life.prng.u64(..QUESTIONS));
    life.note("questions", count);
    for number in 0..count {
        let tid = life.any_tid();
        let request = match life.prng.u32(..12) {
            0..4 => Request::Tasks(Tid::NONE),
            4 => Request::TaskStatus(tid),
            5 => Request::HostStatus(ByteBuf::from(b"alfa".to_vec())),
            6 => Request::HostSync(tid),
            7 => Request::ExitStatus(tid),
            8 => Request::MailboxInfo { pattern: ByteBuf::from(b"*".to_vec()) },
            9 => Request::Config,
            10 => Request::AwaitHosts,
            // These requests may be answered only by the daemon of the task's own host.
            _ => [
                Request::Connect(tid),
                Request::Direct { to: tid, cause: LinkCause::Program },
                Request::NewContext,
                Request::Tickle(vec![1; 9]),
            ][life.prng.usize(..4)]
            .clone(),
        };
        ask(life, host, request);
        if number % 256 == 0 {
            life.step(Duration::ZERO);
        }
    }
}

/// Calls other hosts, although none of them has asked for a connection.
fn calls(life: &mut Life) {
    let count = life.prng.u64(..CALLS);
    life.note("calls", count);
    for _ in 0..count {
        let host = life.some_peer();
        let security = [Security::Encrypted, Security::Trusted][life.prng.usize(..2)];
        life.call(host, security);
    }
    life.step(Duration::from_millis(200));
}

/// Sends output of tasks that do not exist, for the log.
fn output(life: &mut Life) {
    let count = life.prng.u64(..500);
    life.note("lines of output", count);
    for _ in 0..count {
        let (tid, line) = (life.own_task(), vec![life.prng.u8(..); life.prng.usize(..200)]);
        life.send(life.master, &Frame::Log { tid, line });
    }
}

/// Sends datagrams to the machine's multicast group.
fn datagrams(life: &mut Life) {
    let Some(Ok(mut group)) = life.group.map(|group| Group::join(group, life.address)) else { return };
    let count = life.prng.usize(..DATAGRAMS);
    life.note("datagrams", count as u64);
    for sent in (0..count).step_by(DATAGRAMS_IN_A_ROW) {
        group.listen();
        group.send_without_secret(&mut life.prng, DATAGRAMS_IN_A_ROW.min(count - sent));
        life.step(Duration::from_millis(1));
    }
}

/// Sends messages to one task along the default route.
fn messages(life: &mut Life) {
    let (dst, count) = (life.victim(), life.prng.u64(..500));
    life.note("messages", count);
    for _ in 0..count {
        let mut message = false_frames::message(life);
        (message.src, message.dst, message.format) = (life.own_task(), dst, codes::native_dsig());
        life.send(dst.host(), &Frame::Deliver(message));
    }
}
