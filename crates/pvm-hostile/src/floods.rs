//! Too much of what a host may ask for.
use crate::lies;
use crate::life::Life;
use pvm_core::codes::{self, MBOX_MULTI_INSTANCE, MBOX_WAIT_FOR_INFO};
use pvm_core::proto::{ByteBuf, Request, Spawn, TraceSettings};
use pvm_core::tid::Tid;
use pvm_core::wire::Frame;
use pvm_net::Security;
use std::time::Duration;

/// Watches in one go.
const WATCHES: u64 = 30_000;
/// Bytes of the contents of mailboxes in one go.
const MAILBOX_BYTES: usize = 8 << 20;
/// Questions in one go.
const QUESTIONS: u64 = 3_000;
/// Calls in one go.
const CALLS: u64 = 40;

/// Any of them.
pub fn one(life: &mut Life) {
    match life.dice.u32(..9) {
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

/// Wants to hear of deaths: of one task in the name of each own one, and of everybody.
fn watches(life: &mut Life) {
    let count = life.dice.u64(..WATCHES);
    life.note("watches", count);
    let (tid, host) = (life.victim(), life.victim().host());
    for number in 0..count {
        let watcher = Tid(life.own.0 | (1 + number as u32 % 0x3_ffff));
        let tid = if number % 8 == 0 { life.victim() } else { tid };
        life.say(if number % 2 == 0 { tid.host() } else { host }, &Frame::Watch { tid, watcher });
        if number % 1024 == 0 {
            life.step(Duration::ZERO);
        }
    }
}

/// Has tasks started: some that end at once, some that stay a while, and more than there can be.
fn spawns(life: &mut Life) {
    let count = life.dice.u64(1..12);
    life.note("spawns", count);
    let host = life.some_peer();
    for wait in 0..count {
        let files: [&[u8]; 5] = [b"/bin/true", b"/bin/sleep", b"no such program", b"/", b"../../../bin/true"];
        let counts = [1, 3, 8, 0, -1, 1 << 18, i32::MAX, i32::MIN];
        let spawn = Spawn {
            file: ByteBuf::from(files[life.dice.usize(..files.len())].to_vec()),
            arguments: vec![ByteBuf::from(b"2".to_vec())],
            flags: life.dice.i32(..),
            place: ByteBuf::from(b"nowhere".to_vec()),
            count: counts[life.dice.usize(..counts.len())],
            environment: vec![ByteBuf::from(b"PATH".to_vec()); life.dice.usize(..20)],
            // Whose output goes to a task of another is a right of who spawns.
            children: TraceSettings { output_tid: life.own_task().0 as i32, ..TraceSettings::default() },
        };
        let first = [0, -1, i32::MAX][life.dice.usize(..3)];
        let total = [spawn.count, counts[life.dice.usize(..counts.len())]][life.dice.usize(..2)];
        let parent = life.any_tid().0 as i32;
        life.say(host, &Frame::Spawn { wait: wait as u32, parent, first, total, spawn });
    }
}

/// Asks in the name of an own task.
fn ask(life: &mut Life, host: Tid, request: Request) {
    let (wait, from) = (life.dice.u32(..), life.own_task());
    life.say(host, &Frame::Request { wait, from, request });
}

fn name(life: &mut Life) -> ByteBuf {
    ByteBuf::from(format!("hostile{}", life.dice.u32(..200_000)).into_bytes())
}

/// Fills mailboxes, and waits at others.
fn mailboxes(life: &mut Life) {
    let master = life.master;
    let mut left = life.dice.usize(..MAILBOX_BYTES);
    while left > 0 {
        life.note("mailbox requests", 2);
        let mut message = lies::message(life);
        message.body = ByteBuf::from(vec![7; life.dice.usize(..=left.min(1 << 20))]);
        left -= message.body.len().clamp(left.min(4096), left);
        let (put, wanted) = (name(life), name(life));
        ask(life, master, Request::PutInfo { name: put, flags: MBOX_MULTI_INSTANCE, message });
        ask(life, master, Request::RecvInfo { name: wanted, index: 0, flags: MBOX_WAIT_FOR_INFO });
        life.step(Duration::ZERO);
    }
}

/// Makes groups, and is difficult in them.
fn groups(life: &mut Life) {
    let (master, count) = (life.master, life.dice.u64(..400));
    life.note("group requests", count);
    for _ in 0..count {
        let name = match life.dice.bool() {
            true => name(life),
            false => ByteBuf::from(b"hostile".to_vec()),
        };
        let (group, count) = (life.dice.u64(..2000), life.dice.i32(-2..5));
        let request = match life.dice.u32(..8) {
            0..3 => Request::JoinGroup(name),
            3 => Request::LeaveGroup(name),
            4 => Request::Group(name),
            5 => Request::FreezeGroup { name, count },
            _ => Request::Barrier { group, count },
        };
        ask(life, master, request);
    }
}

/// Asks for much, time and again.
fn questions(life: &mut Life) {
    let (host, count) = (life.some_peer(), life.dice.u64(..QUESTIONS));
    life.note("questions", count);
    for number in 0..count {
        let tid = life.any_tid();
        let request = match life.dice.u32(..12) {
            0..4 => Request::Tasks(Tid::NONE),
            4 => Request::TaskStatus(tid),
            5 => Request::HostStatus(ByteBuf::from(b"alfa".to_vec())),
            6 => Request::HostSync(tid),
            7 => Request::ExitStatus(tid),
            8 => Request::MailboxInfo { pattern: ByteBuf::from(b"*".to_vec()) },
            9 => Request::Config,
            10 => Request::AwaitHosts,
            // What the host of a task decides, and no other.
            _ => [Request::Connect(tid), Request::Direct(tid), Request::NewContext, Request::Tickle(vec![1; 9])]
                [life.dice.usize(..4)]
            .clone(),
        };
        ask(life, host, request);
        if number % 256 == 0 {
            life.step(Duration::ZERO);
        }
    }
}

/// Calls hosts that are to call.
fn calls(life: &mut Life) {
    let count = life.dice.u64(..CALLS);
    life.note("calls", count);
    for _ in 0..count {
        let host = life.some_peer();
        let security = [Security::Encrypted, Security::Trusted][life.dice.usize(..2)];
        life.call(host, security);
    }
    life.step(Duration::from_millis(200));
}

/// Output of tasks that there are not, for the log.
fn output(life: &mut Life) {
    let count = life.dice.u64(..500);
    life.note("lines of output", count);
    for _ in 0..count {
        let (tid, line) = (life.own_task(), vec![life.dice.u8(..); life.dice.usize(..200)]);
        life.say(life.master, &Frame::Log { tid, line });
    }
}

/// Messages by way of the daemons, to one task.
fn messages(life: &mut Life) {
    let (dst, count) = (life.victim(), life.dice.u64(..500));
    life.note("messages", count);
    for _ in 0..count {
        let mut message = lies::message(life);
        (message.src, message.dst, message.format) = (life.own_task(), dst, codes::native_dsig());
        life.say(dst.host(), &Frame::Deliver(message));
    }
}
