//! The end of the job of Slurm in which a machine was started.
//!
//! Slurm ends the steps of a job, and everything that they have started. But `salloc` runs its command, and so the
//! master, on the host where the user has typed it, which need not belong to the job. So the master asks Slurm whether
//! the job is over: when a daemon or its step ends, and from time to time. So does every daemon whose master has changed.
use crate::background_command::{BackgroundCommand, OutputPipe};
use pvm_link::rendezvous;
use std::ffi::OsString;
use std::process::Command;
use std::time::{Duration, Instant};

/// The pause between the end of a daemon and the question, so that many daemons that end together cause one question.
const AFTER_END: Duration = Duration::from_millis(500);
/// The time between two questions while no daemon ends. A question costs Slurm's controller little.
const PERIOD: Duration = Duration::from_secs(300);
/// The pause between two looks at the command that asks, and the time that the command may take.
const LOOK_PAUSE: Duration = Duration::from_millis(20);
const ANSWER_WAIT: Duration = Duration::from_secs(30);
/// The states of a job that has hosts.
const STATES_WITH_HOSTS: [&str; 6] = ["CONFIGURING", "RESIZING", "RUNNING", "SIGNALING", "STOPPED", "SUSPENDED"];
/// What Slurm says of a job that it has forgotten.
const UNKNOWN_JOB: &str = "Invalid job id";

/// Watches the job.
pub struct JobWatch {
    /// The number of the job; `None` if the machine does not belong to a job of Slurm.
    job: Option<String>,
    /// When the next question is due, or the next look at the command that asks.
    next: Instant,
    /// The command that asks, and the time until which it may run.
    question: Option<(BackgroundCommand, Instant)>,
    /// Whether a daemon has ended while the command ran.
    asks_again: bool,
}

impl JobWatch {
    /// Begins to watch the job to which the machine of this name belongs. `machine_id`: the name of the machine.
    pub fn new(variable: impl Fn(&str) -> Option<OsString>, machine_id: Option<&OsString>) -> JobWatch {
        // A machine that has got a name of its own may outlive the job.
        let of_job = rendezvous::machine_id(|name| if name == "PVM_VMID" { None } else { variable(name) });
        let job = variable("SLURM_JOB_ID").filter(|_| machine_id.is_some() && of_job.as_ref() == machine_id);
        let job = job.map(|job| job.to_string_lossy().into_owned());
        JobWatch { job, next: Instant::now() + PERIOD, question: None, asks_again: false }
    }

    /// Begins to watch the job of this daemon, if it is to be watched (`is_watched`).
    pub fn of_daemon(is_watched: bool, machine_id: Option<&OsString>) -> JobWatch {
        JobWatch::new(|name| std::env::var_os(name).filter(|_| is_watched), machine_id)
    }

    /// Notes that a daemon or its step has ended, perhaps because the job is over.
    pub fn daemon_ended(&mut self) {
        match self.question {
            None => self.next = self.next.min(Instant::now() + AFTER_END),
            Some(_) => self.asks_again = true,
        }
    }

    /// Returns when [`JobWatch::step`] is to be called.
    pub fn next_wakeup(&self) -> Option<Instant> {
        self.job.as_ref().map(|_| self.next)
    }

    /// Asks whether the job is over if that is due. Returns the number of the job if it is.
    pub fn step(&mut self) -> Option<&str> {
        let job = self.job.as_deref()?;
        let now = Instant::now();
        if now < self.next {
            return None;
        }
        let Some((command, until)) = &mut self.question else {
            // Without `squeue` the machine stays until somebody halts it.
            self.question = ask(job).ok().map(|command| (command, now + ANSWER_WAIT));
            self.next = now + if self.question.is_some() { LOOK_PAUSE } else { PERIOD };
            return None;
        };
        let is_over = match command.status() {
            Ok(None) if now < *until => {
                self.next = now + LOOK_PAUSE;
                return None;
            }
            Ok(Some(status)) => {
                let [said, complaint] = [&mut command.output, &mut command.errors].map(OutputPipe::read);
                is_over(status.success(), &String::from_utf8_lossy(&said), &String::from_utf8_lossy(&complaint))
            }
            _ => {
                command.kill();
                false
            }
        };
        self.question = None;
        self.next = now + if std::mem::take(&mut self.asks_again) { AFTER_END } else { PERIOD };
        is_over.then_some(job)
    }
}

fn ask(job: &str) -> std::io::Result<BackgroundCommand> {
    let mut command = Command::new("squeue");
    command.args(["--noheader", "--format=%T", "--jobs", job]);
    BackgroundCommand::start(command, true, b"")
}

/// Returns whether an answer of `squeue` says that the job has no hosts any more.
fn is_over(succeeded: bool, said: &str, complaint: &str) -> bool {
    match succeeded {
        true => !said.split_whitespace().any(|state| STATES_WITH_HOSTS.contains(&state)),
        // Other errors come from a controller that does not answer, not from the job.
        false => complaint.contains(UNKNOWN_JOB),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_is_over_when_slurm_says_so() {
        for state in ["", "COMPLETING\n", "PENDING\n"] {
            assert!(is_over(true, state, ""), "{state}");
        }
        for state in ["RUNNING\n", "SUSPENDED\n", "COMPLETING\nRUNNING\n"] {
            assert!(!is_over(true, state, ""), "{state}");
        }
        assert!(is_over(false, "", "slurm_load_jobs error: Invalid job id specified\n"));
        assert!(!is_over(false, "", "slurm_load_jobs error: Unable to contact slurm controller (connect failure)\n"));
    }

    #[test]
    fn only_a_machine_that_is_named_after_its_job_is_watched() {
        let in_job = |name: &str| (name == "SLURM_JOB_ID").then(|| OsString::from("7"));
        let watched = |name: &str| JobWatch::new(in_job, Some(&OsString::from(name))).next_wakeup().is_some();
        assert!(watched("slurm-7") && !watched("mine"));
        assert!(JobWatch::new(in_job, None).next_wakeup().is_none());
        assert!(JobWatch::new(|_| None, None).next_wakeup().is_none());
    }

    #[test]
    fn many_daemons_that_end_together_cause_one_question() {
        let in_job = |name: &str| (name == "SLURM_JOB_ID").then(|| OsString::from("7"));
        let mut watch = JobWatch::new(in_job, Some(&OsString::from("slurm-7")));
        let after = |watch: &JobWatch| watch.next_wakeup().unwrap().saturating_duration_since(Instant::now());
        assert!(after(&watch) > AFTER_END);
        watch.daemon_ended();
        let first = watch.next;
        watch.daemon_ended();
        assert!(after(&watch) <= AFTER_END && watch.next == first && watch.step().is_none());
    }
}
