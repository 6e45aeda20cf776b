//! A host of the machine that holds a valid key and means harm: a program of the tests, never installed.
//!
//! It is started as `pvmd -s` is (`dx=` names it), goes through the start dialogue, lets itself be
//! called, and behaves well until it is in everybody's table. From then on it sends what is well-formed
//! and wrong, by the numbers of a seed, until it is cut off or its time is over.
//!
//! What it leaves out is what every host may do: halt the machine, delete hosts, signal tasks, become
//! the hoster or the resource manager, say of up to two hosts that it cannot reach them
//! (`docs/security.md`).
//!
//! * `start`: the start dialogue;
//! * `life`: its links, and the good behaviour that everything else stands upon;
//! * `lies`: frames that say what is not so;
//! * `floods`: too much of what may be said;
//! * `data`: the data link;
//! * `ends`: what a daemon must cut off at once, and how a life ends that was not cut off.
#![forbid(unsafe_code)]

mod data;
mod ends;
mod floods;
mod lies;
mod life;
mod start;

use life::Life;
use std::io::Write;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Names the folder to which a line is written of each life. Without it there is none.
const FOLDER_VARIABLE: &str = "HOSTILE_FOLDER";
/// The seed of the first life; each later one of a host has another, by its number.
const SEED_VARIABLE: &str = "HOSTILE_SEED";
/// How long it waits to become a host of the machine.
const JOIN_TIME_MAX: Duration = Duration::from_secs(90);
/// The longest life that nobody cuts off, in milliseconds, and the shortest.
const LIFE_MS: std::ops::Range<u64> = 1_000..6_000;
/// The others are honest and need the processor.
const NICENESS: i32 = 10;

type Error = Box<dyn std::error::Error>;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let result = match arguments.iter().any(|word| word == "-f") {
        true => live(&arguments).map(|()| ExitCode::SUCCESS),
        false => start::front(&arguments),
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
    let start = Instant::now();
    while !life.has_joined() && start.elapsed() < JOIN_TIME_MAX && !life.is_cut_off() {
        life.step(Duration::from_millis(20));
    }
    let kind = if life.is_cut_off() { "never joined".to_owned() } else { misbehave(&mut life) };
    if let Some(folder) = std::env::var_os(FOLDER_VARIABLE) {
        let path = std::path::Path::new(&folder).join("lives");
        let mut file = std::fs::File::options().create(true).append(true).open(path)?;
        let line = format!("{place} {:.1} s: {}; {kind}\n", start.elapsed().as_secs_f32(), life.counts());
        file.write_all(line.as_bytes())?;
    }
    Ok(())
}

/// Does harm until it is cut off or its time is over; says how that came.
fn misbehave(life: &mut Life) -> String {
    life.find_victims();
    let end = Instant::now() + Duration::from_millis(life.dice.u64(LIFE_MS));
    while Instant::now() < end && !life.is_cut_off() {
        match life.dice.u32(..10) {
            0..5 => lies::some(life),
            5..8 => floods::one(life),
            _ => data::some(life),
        }
        let pause = Duration::from_millis(life.dice.u64(..15));
        life.step(pause);
    }
    if life.is_cut_off() {
        return format!("cut off after {}", life.last());
    }
    ends::one(life)
}
