//! A hostile host with a valid key. This program is only for tests and is never installed.
//!
//! The program is started like `pvmd -s` (the host file names it with `dx=`), goes through the start dialogue, accepts
//! calls, and behaves correctly until it is in the host table of every host. From then on it attacks, mostly with
//! well-formed frames that have wrong contents, chosen by a seed, until it is cut off or its time is over. One run of
//! the program is a *life* of the hostile host.
//!
//! It does not do the harmful things that every host is permitted to do: halt the machine, delete hosts, signal tasks,
//! become the hoster or the resource manager, and report that up to two hosts are unreachable (`docs/security.md`).
//!
//! * `start`: the start dialogue;
//! * `life`: the links, and the correct behaviour on which all attacks depend;
//! * `false_frames`: frames with false contents;
//! * `floods`: excessive numbers of valid requests;
//! * `data`: data links;
//! * `datagrams`: datagrams to all hosts, also by a stranger, who is no host (`hostile-host stranger`);
//! * `receiver`: false reports and false parts of multicasts to a task of this host. A life consists of these alone if
//!   `HOSTILE_RECEIVER` is set;
//! * `ends`: attacks for which a daemon must cut this host off at once, and other ways in which a life ends.
#![forbid(unsafe_code)]

mod data;
mod datagrams;
mod ends;
mod error;
mod false_frames;
mod floods;
mod life;
mod receiver;
mod start;

use datagrams::Group;
use error::Error;
use life::Life;
use std::io::Write;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// The environment variable with the name of a folder. Each life appends a line to the file `lives` in that folder; if
/// the variable is not set, no lines are written.
const FOLDER_VARIABLE: &str = "HOSTILE_FOLDER";
/// The environment variable with the seed. Each life combines this seed with the number of its host.
const SEED_VARIABLE: &str = "HOSTILE_SEED";
/// The environment variable that makes this host a receiver of multicasts.
const RECEIVER_VARIABLE: &str = "HOSTILE_RECEIVER";
/// The longest time that this program waits to become a host of the machine.
const JOIN_TIME_MAX: Duration = Duration::from_secs(90);
/// The length of a life if nobody cuts this host off, in milliseconds.
const LIFE_MS: std::ops::Range<u64> = 1_000..6_000;
/// The nice value of this process. It is high because the honest hosts need the processor.
const NICENESS: i32 = 10;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let result = match arguments.first() {
        Some(word) if word == "stranger" => datagrams::be_a_stranger(&arguments[1..]).map(|count| {
            println!("{count}");
            ExitCode::SUCCESS
        }),
        _ if arguments.iter().any(|word| word == "-f") => live(&arguments).map(|()| ExitCode::SUCCESS),
        _ => start::front(&arguments),
    };
    result.unwrap_or_else(|error| {
        eprintln!("hostile-host: {error}");
        ExitCode::FAILURE
    })
}

fn live(arguments: &[String]) -> Result<(), Error> {
    let seed = std::env::var(SEED_VARIABLE).ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    let (mut life, place) = start::join(arguments, seed)?;
    let _ = rustix::process::nice(NICENESS);
    life.has_tasks = std::env::var_os(RECEIVER_VARIABLE).is_some();
    let start = Instant::now();
    while !life.has_joined() && start.elapsed() < JOIN_TIME_MAX && !life.is_cut_off() {
        life.step(Duration::from_millis(20));
    }
    let kind = match life.group.filter(|_| life.has_tasks) {
        _ if life.is_cut_off() => "never joined".to_owned(),
        Some(group) => {
            let mut group = Group::join(group, life.address)?;
            receiver::receive(&mut life, &mut group)
        }
        None => misbehave(&mut life),
    };
    if let Some(folder) = std::env::var_os(FOLDER_VARIABLE) {
        let path = std::path::Path::new(&folder).join("lives");
        let mut file = std::fs::File::options().create(true).append(true).open(path)?;
        let line = format!("{place} {:.1} s: {}; {kind}\n", start.elapsed().as_secs_f32(), life.counts());
        file.write_all(line.as_bytes())?;
    }
    Ok(())
}

/// Sends attacks until this host is cut off or its time is over. Returns how the life ended.
fn misbehave(life: &mut Life) -> String {
    life.find_victims();
    let end = Instant::now() + Duration::from_millis(life.prng.u64(LIFE_MS));
    while Instant::now() < end && !life.is_cut_off() {
        match life.prng.u32(..10) {
            0..5 => false_frames::send_burst(life),
            5..8 => floods::flood(life),
            _ => data::send_valid(life),
        }
        let pause = Duration::from_millis(life.prng.u64(..15));
        life.step(pause);
    }
    if life.is_cut_off() {
        return format!("cut off after {}", life.last());
    }
    ends::end(life)
}
