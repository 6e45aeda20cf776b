//! Looks with `pvm why` again and again while the tasks are well: it must accuse nobody.
use crate::machine::Machine;
use crate::side::Side;
use crate::why::DEADLOCK;
use anyhow::{Context, Result, ensure};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The pause between two looks.
const PAUSE: Duration = Duration::from_millis(300);

/// Looks until it is told to end.
#[derive(Default)]
pub struct Lookout {
    /// Held while somebody looks.
    gate: Mutex<()>,
    is_over: AtomicBool,
}

impl Lookout {
    /// Returns after the present look. No further one begins before the result is dropped.
    pub fn pause(&self) -> MutexGuard<'_, ()> {
        self.gate.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn end(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }

    /// Looks until the end. Returns how often, or an accusation.
    pub fn look(&self, machine: &Machine) -> Result<usize> {
        let mut looks = 0;
        while !self.is_over.load(Ordering::Relaxed) {
            let gate = self.pause();
            let mut why = machine.command(&Side::Ours.programs().join("pvm"));
            let answer = why.arg("why").output().context("pvm why")?;
            drop(gate);
            let said =
                || format!("{}{}", String::from_utf8_lossy(&answer.stdout), String::from_utf8_lossy(&answer.stderr));
            ensure!(answer.status.code() != Some(DEADLOCK), "pvm why accuses tasks that are well: {}", said());
            ensure!(answer.status.success(), "pvm why: {}", said());
            looks += 1;
            std::thread::sleep(PAUSE);
        }
        Ok(looks)
    }
}
