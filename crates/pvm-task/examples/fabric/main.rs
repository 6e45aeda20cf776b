//! Tries and measures links on a fabric between processes, for `cargo xtask fabric`.
//!
//! * `fabric offers`: what libfabric offers here;
//! * `fabric cost SETTING`: how much processor time messages take;
//! * `fabric serve ADDRESS:PORT SETTING`: waits for a caller at that address, then takes part in what it wants;
//! * `fabric call ADDRESS:PORT[,ADDRESS:PORT]... SETTING PART`: runs a part of the trial:
//!   * `check`: messages of all lengths, whose content is known; `death`: the same with several peers; the first
//!     was started with `--dies` and kills itself in the middle;
//!   * `reads`: remote reads of the bare provider, whose content is known;
//!   * `idle`: what waiting costs; `speed`: in comparison with the bare provider; `pair`, `pair-bare`: ping-pong.
//!
//! Options: `--library PATH`, `--sealed`, `--dies`, `--messages N`, `--megabytes N` (of each measurement), `--seed N`. Each
//! line of the output begins with `ok`, `note`, `native` (a measured time) or `FAILED`. The processes tell each other their
//! introductions on a TCP connection, as daemons would.
#![forbid(unsafe_code)]

mod control;
mod cost;
mod measure;
mod pair;
mod process;
mod reads;
mod traffic;

use control::Control;
use pvm_core::fabric::Introduction;
use pvm_net::fabric::{Fabric, LIBRARY, Library, Queues, Setting};
use pvm_task::fabric::{FabricLinks, LinkName, Secrets};
use std::error::Error;
use std::ffi::OsString;
use std::process::ExitCode;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// What the command line says.
#[derive(Clone)]
struct Options {
    words: Vec<String>,
    library: OsString,
    is_sealed: bool,
    dies: bool,
    messages: u64,
    megabytes: usize,
    seed: u64,
}

fn options() -> Result<Options> {
    let mut options = Options {
        words: Vec::new(),
        library: LIBRARY.into(),
        is_sealed: false,
        dies: false,
        messages: 400,
        megabytes: 32,
        seed: 1,
    };
    let mut arguments = std::env::args().skip(1);
    while let Some(word) = arguments.next() {
        let mut value = || arguments.next().ok_or(format!("{word} needs a value"));
        match word.as_str() {
            "--library" => options.library = value()?.into(),
            "--dies" => options.dies = true,
            "--sealed" => options.is_sealed = true,
            "--messages" => options.messages = value()?.parse()?,
            "--megabytes" => options.megabytes = value()?.parse()?,
            "--seed" => options.seed = value()?.parse()?,
            _ => options.words.push(word),
        }
    }
    Ok(options)
}

fn main() -> ExitCode {
    match options().and_then(|options| run(&options)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("FAILED {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Result<()> {
    let words: Vec<&str> = options.words.iter().map(String::as_str).collect();
    match words[..] {
        ["offers"] => offers(options),
        ["cost", setting] => cost::cost(options, &setting.parse()?),
        ["serve", address, setting] => serve(options, address, &setting.parse()?),
        ["call", addresses, setting, part] => call(options, addresses, &setting.parse()?, part),
        _ => Err("usage: fabric offers | cost SETTING | serve ADDRESS SETTING | call ADDRESSES SETTING PART".into()),
    }
}

/// Prints each provider and domain once.
fn offers(options: &Options) -> Result<()> {
    let library = Library::load(&options.library).map_err(pvm_net::fabric::OpenError::Library)?;
    let (major, minor) = library.version();
    println!("note libfabric {major}.{minor}");
    let mut lines: Vec<String> = library
        .candidates(None)?
        .iter()
        .map(|offer| {
            format!(
                "{};{} inject {} registration {:#x}{}",
                offer.provider,
                offer.domain,
                offer.inject_bytes,
                offer.registration,
                if offer.progresses_alone { " progresses alone" } else { "" }
            )
        })
        .collect();
    lines.sort();
    lines.dedup();
    lines.iter().for_each(|line| println!("note {line}"));
    Ok(())
}

/// Opens the fabric, and prints what that has changed in the process.
fn open(options: &Options, setting: &Setting) -> Result<Fabric> {
    open_with_queues(options, setting, Queues::USUAL)
}

fn open_with_queues(options: &Options, setting: &Setting, queues: Queues) -> Result<Fabric> {
    let before = process::State::now()?;
    let library = Library::load(&options.library).map_err(pvm_net::fabric::OpenError::Library)?;
    let fabric = Fabric::open_with(&library, setting, queues)?.ok_or("the setting wants no fabric")?;
    let after = process::State::now()?;
    if after.signals != before.signals {
        return Err(format!("signal handlers have changed: {:#x} to {:#x}", before.signals, after.signals).into());
    }
    println!(
        "note {};{} of libfabric {}.{}, {:?}, {} more threads, {} KiB more memory, address of {} bytes",
        fabric.provider,
        fabric.domain,
        fabric.version.0,
        fabric.version.1,
        fabric.endpoint.waits(),
        after.threads - before.threads,
        after.kilobytes.saturating_sub(before.kilobytes),
        fabric.endpoint.address().len(),
    );
    Ok(fabric)
}

/// Makes a link by the connection. The caller makes the secrets.
fn link(links: &mut FabricLinks, control: &mut Control, is_caller: bool) -> Result<(LinkName, Introduction)> {
    let ours = links.introduce().ok_or("no receive buffers are left")?;
    control.send(&ours.encode())?;
    let theirs = Introduction::decode(&control.receive()?).ok_or("no introduction")?;
    let mut random = [0; 32];
    if is_caller && control.is_sealed {
        pvm_net::fabric::fill_random(&mut random).ok_or("no random numbers")?;
    }
    let random = if is_caller {
        control.send(&random)?;
        random
    } else {
        <[u8; 32]>::try_from(control.receive()?).map_err(|_| "no secrets")?
    };
    let [one, other] = [&random[..16], &random[16..]].map(|half| <[u8; 16]>::try_from(half).expect("16 bytes"));
    let secrets = match is_caller {
        true => Secrets { sending: one, receiving: other },
        false => Secrets { sending: other, receiving: one },
    };
    Ok((links.connect(&ours, &theirs, control.is_sealed.then_some(&secrets))?, theirs))
}

/// Opens another endpoint, from which a stranger sends to a link.
fn stranger(options: &Options, setting: &Setting, to: &Introduction) -> Result<traffic::Stranger> {
    let mut endpoint = open(options, setting)?.endpoint;
    let peer = endpoint.insert(&to.address)?;
    Ok(traffic::Stranger { endpoint, peer, link: to.link, sent: 0 })
}

fn serve(options: &Options, address: &str, setting: &Setting) -> Result<()> {
    let mut control = Control::accept(address)?;
    let part = String::from_utf8(control.receive()?)?;
    control.is_sealed = control.receive()? == [1];
    let seed = u64::from_le_bytes(control.receive()?.try_into().map_err(|_| "no seed")?);
    let messages = u64::from_le_bytes(control.receive()?.try_into().map_err(|_| "no number")?);
    let megabytes = usize::from_le_bytes(control.receive()?.try_into().map_err(|_| "no number")?);
    let mut links = FabricLinks::new(open(options, setting)?);
    let (name, _) = link(&mut links, &mut control, false)?;
    match part.as_str() {
        "check" | "death" => {
            traffic::exchange(&mut links, &[(name, seed, false)], messages, &mut [&mut control], None, options.dies)?;
        }
        "speed" => measure::serve_speed(links, name, control, &Options { megabytes, ..options.clone() }, setting)?,
        "pair" => pair::linked(links, name, control, false)?,
        "pair-bare" => pair::bare(control, options, setting, false)?,
        "reads" => {
            drop(links);
            reads::reads(vec![control], &Options { messages, seed: seed + 1000, ..options.clone() }, setting)?;
        }
        "idle" => measure::serve_idle(links, name, control)?,
        _ => return Err("an unknown part".into()),
    }
    Ok(())
}

fn call(options: &Options, addresses: &str, setting: &Setting, part: &str) -> Result<()> {
    let mut links = FabricLinks::new(open(options, setting)?);
    let mut controls = Vec::new();
    let mut names = Vec::new();
    let mut introductions = Vec::new();
    for (number, address) in addresses.split(',').enumerate() {
        let mut control = Control::connect(address)?;
        control.is_sealed = options.is_sealed;
        control.send(part.as_bytes())?;
        control.send(&[u8::from(options.is_sealed)])?;
        let seed = options.seed + number as u64;
        control.send(&seed.to_le_bytes())?;
        control.send(&options.messages.to_le_bytes())?;
        control.send(&options.megabytes.to_le_bytes())?;
        let (name, theirs) = link(&mut links, &mut control, true)?;
        names.push((name, seed, true));
        introductions.push(theirs);
        controls.push(control);
    }
    let mut all: Vec<&mut Control> = controls.iter_mut().collect();
    match part {
        "check" => {
            let stranger = if options.is_sealed { Some(stranger(options, setting, &introductions[0])?) } else { None };
            let done = traffic::exchange(&mut links, &names, options.messages, &mut all, stranger, false)?;
            println!("ok {} messages both ways in order, {}", options.messages, done);
        }
        "death" => {
            let done = traffic::exchange(&mut links, &names, options.messages, &mut all, None, false)?;
            if done.ended != 1 {
                return Err(format!("{} links have ended, not 1: {}", done.ended, done.reasons.join("; ")).into());
            }
            println!("ok one peer was killed, the other got everything, {done}");
        }
        "speed" => measure::speed(links, names[0].0, controls.swap_remove(0), options, setting)?,
        "pair" => pair::linked(links, names[0].0, controls.swap_remove(0), true)?,
        "reads" => {
            drop(links);
            reads::reads(controls, options, setting)?;
        }
        "pair-bare" => pair::bare(controls.swap_remove(0), options, setting, true)?,
        "idle" => measure::idle(links, names[0].0, controls.swap_remove(0))?,
        _ => return Err("the parts are check, speed, idle, pair, pair-bare, reads and death".into()),
    }
    Ok(())
}
