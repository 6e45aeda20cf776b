//! How a task ended, in words and as an exit status.
use std::time::Duration;

/// Shells add this to the number of the signal that ended a process.
const EXIT_SIGNAL_BASE: i32 = 128;
/// The bits of a wait status for the signal, and the bit for a core file.
const SIGNAL_MASK: i32 = 0x7f;
const CORE_BIT: i32 = 0x80;

/// What ended a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// The task exited with this code.
    Code(i32),
    /// A signal ended the task.
    Signal {
        /// The number of the signal.
        number: i32,
        /// Whether the system has written a core file.
        core: bool,
    },
    /// The task's host was lost.
    Host,
    /// The cause is not known.
    Unknown,
}

impl End {
    /// Reads a wait status.
    pub fn of(wait_status: i32) -> End {
        match wait_status & SIGNAL_MASK {
            0 => End::Code(wait_status >> 8 & 0xff),
            number => End::Signal { number, core: wait_status & CORE_BIT != 0 },
        }
    }

    /// Returns the exit status that a shell would return.
    pub fn exit_status(&self) -> u8 {
        match self {
            End::Code(code) => *code as u8,
            End::Signal { number, .. } => (EXIT_SIGNAL_BASE + number) as u8,
            End::Host | End::Unknown => 1,
        }
    }

    /// Returns whether the task did not end normally.
    pub fn is_failure(&self) -> bool {
        *self != End::Code(0)
    }

    /// Returns whether the task ended without warning, so that other tasks may wait for it in vain.
    pub fn is_sudden(&self) -> bool {
        matches!(self, End::Signal { .. } | End::Host)
    }

    /// Returns whether the task ended by a signal that asks a process to end, such as that of `pvm_kill`.
    pub fn is_by_request(&self) -> bool {
        matches!(self, End::Signal { number: 1 | 2 | 15, .. })
    }

    /// Returns a description.
    pub fn text(&self) -> String {
        match self {
            End::Code(code) => format!("has ended with exit code {code}"),
            End::Signal { number, core } => {
                let name = signal_name(*number).into_iter().chain(core.then_some("core dumped"));
                match name.collect::<Vec<_>>() {
                    words if words.is_empty() => format!("was ended by signal {number}"),
                    words => format!("was ended by signal {number} ({})", words.join(", ")),
                }
            }
            End::Host => "is lost with its host".into(),
            End::Unknown => "has ended, and its daemon does not know how".into(),
        }
    }
}

/// Returns the meaning of a signal.
fn signal_name(number: i32) -> Option<&'static str> {
    Some(match number {
        1 => "hangup",
        2 => "interrupt",
        3 => "quit",
        4 => "illegal instruction",
        5 => "trace trap",
        6 => "abort",
        7 => "bus error",
        8 => "arithmetic exception",
        9 => "kill",
        11 => "segmentation fault",
        13 => "broken pipe",
        14 => "alarm",
        15 => "termination",
        24 => "CPU time limit",
        25 => "file size limit",
        31 => "bad system call",
        _ => return None,
    })
}

/// Returns a duration as text.
pub fn seconds(time: Duration) -> String {
    match time.as_secs() {
        seconds @ 0..60 => format!("{seconds}.{} s", time.subsec_millis() / 100),
        seconds @ 60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        seconds => format!("{} h {} min", seconds / 3600, seconds / 60 % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_is_what_a_shell_would_say() {
        for (wait_status, status) in [(0, 0), (3 << 8, 3), (9, 137), (0x80 | 11, 139)] {
            assert_eq!(End::of(wait_status).exit_status(), status);
            assert_eq!(End::of(wait_status).is_failure(), status != 0);
        }
    }

    #[test]
    fn an_end_is_told_in_words() {
        assert_eq!(End::of(3 << 8).text(), "has ended with exit code 3");
        assert_eq!(End::of(0x80 | 11).text(), "was ended by signal 11 (segmentation fault, core dumped)");
        assert_eq!(End::of(40).text(), "was ended by signal 40");
        assert!(End::of(15).is_by_request() && End::of(11).is_sudden() && !End::of(1 << 8).is_sudden());
    }

    #[test]
    fn times_are_as_long_as_people_need_them() {
        assert_eq!(seconds(Duration::from_millis(1290)), "1.2 s");
        assert_eq!(seconds(Duration::from_secs(125)), "2 min 5 s");
        assert_eq!(seconds(Duration::from_secs(7380)), "2 h 3 min");
    }
}
