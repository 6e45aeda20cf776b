//! The command line of `pvm bench`.
use super::run::time;
use crate::measures::{self, Encoding, Measure, Route, Sizes};
use clap::Args;
use std::time::Duration;

/// The most tasks of `pvm bench`.
const TASKS_MAX: usize = 1024;

/// Measure how fast messages, collective calls and spawns are
///
/// Starts a machine if none runs, and halts it afterwards. Without a MEASURE, everything is measured briefly. Between
/// two tasks:
///
///   latency        half of the time of a message and an answer of the same size
///   bandwidth      a window of up to 64 messages, then a short answer
///   bidirectional  such windows in both directions at once
///   rate           short messages per second
///
/// In a group of tasks; times end when the first task has the data, or a short answer, of all others:
///
///   barrier, bcast, mcast, reduce, gather, scatter
///
/// And spawn: the time until all tasks that one call has started have reported.
///
/// The tables have the columns of the OSU micro-benchmarks: the median, then the smallest and the largest of at least
/// five values. Before each measure the data are checked once.
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub struct Bench {
    /// What to measure
    #[arg(value_name = "MEASURE", value_enum, hide_possible_values = true)]
    pub measures: Vec<Measure>,
    /// Sizes of messages in bytes: a list (8,1K,1M), or a range (1:64K) in which each is twice the one before
    #[arg(long, value_name = "SIZES", value_parser = measures::sizes)]
    pub sizes: Option<Sizes>,
    /// Measure on these hosts only: a list with ranges (a,b,n[1-4]). Two tasks exchange messages, on the first two
    /// hosts or both on the only host. Hosts that are not in the machine are added, and removed afterwards. By default,
    /// two tasks of this host are measured, then, if there is one, a task of another host and one of this host
    #[arg(long, value_name = "LIST", verbatim_doc_comment)]
    pub hosts: Vec<String>,
    /// How many tasks make collective calls (started on the hosts in turn), or how many are spawned (by default one for
    /// each core of this host, but at least one for each host, and two)
    #[arg(long, value_name = "N", value_parser = group_size, verbatim_doc_comment)]
    pub tasks: Option<usize>,
    /// The route of messages between hosts: through the daemons (default), or by a connection of the tasks (direct)
    #[arg(
        long,
        value_name = "ROUTE",
        default_value = "default",
        hide_default_value = true,
        hide_possible_values = true,
        verbatim_doc_comment
    )]
    pub route: Route,
    /// How messages are sent: raw (by default), default or inplace, as in pvm_initsend, or psend; or a list
    #[arg(
        long = "encoding",
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "raw",
        hide_default_value = true,
        hide_possible_values = true,
        verbatim_doc_comment
    )]
    pub encodings: Vec<Encoding>,
    /// How long everything together should take: seconds, or a number with s, m, h or d
    #[arg(long, value_name = "TIME", value_parser = time, default_value = "60")]
    pub time: Duration,
    /// Print one JSON document, for programs
    #[arg(long)]
    pub json: bool,
}

/// Reads the number of tasks of a group.
fn group_size(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(1) => Err("a collective call needs at least 2 tasks".into()),
        Ok(tasks @ 2..=TASKS_MAX) => Ok(tasks),
        _ => Err(format!("a number of tasks is one from 2 to {TASKS_MAX}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_has_two_tasks_at_least() {
        assert_eq!((group_size("2"), group_size("1024")), (Ok(2), Ok(TASKS_MAX)));
        assert!(group_size("1").unwrap_err().contains("at least 2"));
        for text in ["0", "1025", "-2", "many", ""] {
            assert!(group_size(text).is_err(), "{text}");
        }
    }
}
