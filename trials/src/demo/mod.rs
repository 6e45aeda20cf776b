//! `cargo xtask demo`: shows hpvm at work. Starts a virtual machine on this host, runs a real parallel program on it
//! (`examples/farm`) with more and more workers, kills one of the workers, then runs it over four hosts, all but one of
//! which are lost, records a run as a page, measures messages, and explains a program that hangs. Only the pictures remain.
mod deadlock;
mod farm;
mod ground;
mod losses;
mod recorded;
mod speed;

use crate::common::{Checks, root};
use crate::counts::Counts;
use crate::hosts::sandbox;
use crate::{build, measure};
use anyhow::{Result, anyhow, ensure};
use losses::Peace;
use std::path::Path;
use std::time::Instant;

/// The number of tiles after which a worker is killed: for the demo's picture, and for the small picture of tests.
const KILL_AT_TILES: [u32; 2] = [200, 40];
/// The samples of the demo's picture.
const SAMPLES: u32 = 6;
/// The samples of a picture that takes half a second.
const FEW_SAMPLES: &str = "2";

/// Runs the command. Inside the namespaces this function runs a second time.
pub fn run(arguments: &[String]) -> Result<()> {
    if let Some(folder) = sandbox::folder() {
        return losses::inside(&folder, arguments);
    }
    println!("hpvm: the release build (some minutes the first time)");
    build::build_core()?;
    farm::compile()?;
    measure::warn_when_busy();
    let began = Instant::now();
    let picture = farm::directory()?.join("farm.png");
    let cores = std::thread::available_parallelism()?.get() as u32;
    println!("\nA virtual machine on this host ({cores} cores), and on it a farm: a master hands tiles of a");
    println!("picture to workers that it started. Tiles differ much in cost; a worker that dies is replaced.\n");
    let seconds = farm::speed_up(&["--samples", &SAMPLES.to_string()], KILL_AT_TILES[0], cores, &picture)?;
    let over_hosts = losses::show(&Peace::paint(seconds, SAMPLES)?)?;
    println!("\nThe farm once more, recorded with all its calls and messages:");
    let page = recorded::farm(2 * cores, &["--samples", FEW_SAMPLES])?;
    println!("  {} opens in a browser", shown(&page));
    println!("\nHow fast messages are, beside the limit of the machine:");
    speed::show()?;
    println!("\nA program that hangs: two tasks, of which each waits for the other one.");
    deadlock::show()?;
    println!(
        "\nThe virtual machines are gone, nothing is left of them. {:.0} s since the build.",
        began.elapsed().as_secs_f64()
    );
    println!("The pictures: {} and {}", shown(&picture), shown(&over_hosts));
    println!("Who worked when, and on what: file://{}", page.display());
    Ok(())
}

/// Runs the command as a part of `cargo xtask test`. Returns an error only if the checks could not be run at all.
/// `target/dist` must have been built.
pub fn counted(_arguments: &[String]) -> Result<Counts> {
    farm::compile()?;
    let mut checks = Checks::default();
    let picture = farm::directory()?.join("farm-test.png");
    let small = ["--samples", "1", "--size", "800x600"];
    checks.check(
        "the farm paints the same picture with any workers, one killed",
        farm::speed_up(&small, KILL_AT_TILES[1], 2, &picture).map(drop),
    );
    let size = std::fs::metadata(&picture).map(|meta| meta.len()).unwrap_or_default();
    checks.check("the farm's picture is whole", whole(size));
    let few = farm::alone(&["--workers", "1", "--samples", FEW_SAMPLES], &picture)?;
    let peace = Peace::paint(few.seconds, FEW_SAMPLES.parse()?)?;
    let name = "the farm paints the same picture while all hosts but one are lost";
    match sandbox::obstacle() {
        Some(obstacle) => checks.skip(&format!("{name}, each a network namespace"), &obstacle),
        None => checks.check(&format!("{name}, each a network namespace"), losses::in_namespaces(&peace)),
    }
    checks.check(&format!("{name}, each a daemon on this host"), losses::on_this_host(&peace));
    let recorded = recorded::farm(4, &small);
    checks.check("the farm is recorded", recorded.as_ref().map(drop).map_err(|error| anyhow!("{error:#}")));
    checks.check("pvm why explains a program that hangs", deadlock::show());
    // Nobody needs the pictures of a test.
    [picture, losses::picture()?].into_iter().chain(recorded.ok()).for_each(|path| drop(std::fs::remove_file(path)));
    Ok(checks.counts())
}

/// Checks that the small picture has all its pixels, of three bytes each.
fn whole(size: u64) -> Result<()> {
    ensure!(size > 800 * 600 * 3, "it has {size} bytes");
    Ok(())
}

/// Returns a path as a reader would type it.
fn shown(path: &Path) -> String {
    path.strip_prefix(root()).unwrap_or(path).display().to_string()
}
