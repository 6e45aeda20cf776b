//! The command lines of the commands that start, end and show a machine.
use clap::{Args, ValueEnum};
use std::path::PathBuf;
use std::time::Duration;

/// Start the machine, or add hosts to it
///
/// A host is a name, a list (a,b), a range (n[01-16]), or a line of a hostfile in quotes ("h2 lo=joe"). Inside a job of
/// Slurm, PBS, LSF, Grid Engine or Flux, if no hosts are named, the hosts of the job are added. Hosts that are already in the machine stay in it. Prints
/// the hosts of the machine. For each host that could not be added, prints the reason, and the exit status is 1.
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub struct Up {
    /// A file with hosts, one on each line
    #[arg(long, value_name = "FILE")]
    pub hostfile: Option<PathBuf>,
    /// Print JSON, for programs
    #[arg(long)]
    pub json: bool,
    /// Hosts to add
    #[arg(value_name = "HOST")]
    pub hosts: Vec<String>,
}

/// Halt the machine, or remove hosts from it
#[derive(Args, Debug)]
pub struct Down {
    /// Print JSON, for programs
    #[arg(long)]
    pub json: bool,
    /// Hosts to remove (if none is named, the whole machine ends)
    #[arg(value_name = "HOST")]
    pub hosts: Vec<String>,
}

/// Let hosts leave the machine when their tasks have ended
///
/// The hosts take no new tasks. Each leaves the machine when it has none. The command prints the tasks that it waits for. After
/// an interrupt the hosts stay, and still take no new tasks.
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub struct Drain {
    /// End the tasks that are left after this time: seconds, or a number with s, m, h or d
    #[arg(long, value_name = "TIME", value_parser = super::run::time)]
    pub timeout: Option<Duration>,
    /// Let tasks start on the hosts again
    #[arg(long, conflicts_with = "timeout")]
    pub undo: bool,
    /// Print JSON, for programs
    #[arg(long)]
    pub json: bool,
    /// Hosts: names, lists or ranges
    #[arg(value_name = "HOST", required = true)]
    pub hosts: Vec<String>,
}

/// List the hosts of the machine
#[derive(Args, Debug)]
pub struct Conf {
    /// Show which host is the master, too
    #[arg(short, long)]
    pub verbose: bool,
    /// Print JSON, for programs
    #[arg(long)]
    pub json: bool,
}

/// List the tasks of the machine
#[derive(Args, Debug)]
pub struct Ps {
    /// List the tasks of all hosts (otherwise those of this host)
    #[arg(short = 'a')]
    pub all_hosts: bool,
    /// Show parent and process id too
    #[arg(short = 'l')]
    pub long: bool,
    /// Include this command itself
    #[arg(short = 'x')]
    pub every_task: bool,
    /// Print JSON, for programs
    #[arg(long)]
    pub json: bool,
}

/// List the jobs: tasks that were started together, with all tasks that they spawned
#[derive(Args, Debug)]
pub struct Jobs {
    /// Print a line for each task
    #[arg(short = 'l')]
    pub long: bool,
    /// Print JSON, for programs
    #[arg(long)]
    pub json: bool,
}

/// Show which tasks wait, for what, and why nothing comes
///
/// Looks at all tasks of all hosts at least twice, without a signal and without their help. Prints a line for each task that waits:
/// for how long, in which call, and what the task does for which it waits. Names the tasks that can never go on: those that
/// wait for each other in a circle, and those that wait for a task that has ended. A task is never said to be one of them if it may
/// still get something. The exit status is 0 if there is no deadlock, 3 if there is one, and 1 if the machine cannot be asked.
/// With --json and --watch, a line each time.
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub struct Why {
    /// Print JSON, for programs
    #[arg(long)]
    pub json: bool,
    /// Repeat every SECONDS, until an interrupt
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "1", value_parser = interval)]
    pub watch: Option<Duration>,
    /// Only this task and those for which it waits, or the tasks of this job (a number that pvm jobs shows)
    #[arg(value_name = "TASK|JOB")]
    pub of: Option<String>,
}

/// Show how busy the hosts and the tasks are, and what they send
///
/// Prints a line for each host, and one for each task: what it does, the processor time and the memory that it has used, and
/// how much it has sent and received since it began, by which routes; with --json also the messages that it has not received.
/// The tasks are not disturbed. With --watch, the numbers are those of the last interval, for each second.
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub struct Stat {
    /// Print JSON, for programs; with --watch a line each time
    #[arg(long)]
    pub json: bool,
    /// Repeat every SECONDS, until an interrupt
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "1", value_parser = interval)]
    pub watch: Option<Duration>,
}

/// Show hosts and tasks live, in the terminal
///
/// Sorts the tasks by a column, or shows them below their parents; tasks that can never go on are STUCK. Keys choose a task, say why
/// it waits (w), and send it signals; h lists the keys. Needs neither colours nor more than ASCII.
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub struct Top {
    /// Print the numbers of one interval, and end
    #[arg(long)]
    pub once: bool,
    /// With --once: print JSON, for programs
    #[arg(long, requires = "once")]
    pub json: bool,
    /// Look again after SECONDS
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = interval)]
    pub interval: Duration,
    /// Sort the tasks by this; < and > change it
    #[arg(long, value_name = "COLUMN", default_value = "task")]
    pub sort: Sort,
    /// Show each task below its parent; t changes it
    #[arg(long)]
    pub tree: bool,
}

/// Show hosts and tasks in a browser, live or as they were in a recorded run
///
/// Prints a link; it opens the page once, and then the next one is printed. The page shows who waits for whom, what tasks did when,
/// hosts, messages and groups. With FILE, it shows a run of pvm run --record or --trace. Only this computer can reach the page, and
/// only with the link. From another one: ssh -L 8000:127.0.0.1:PORT HOST, and the link with port 8000.
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub struct Monitor {
    /// Port on this computer; 0 takes a free one
    #[arg(long, value_name = "PORT", default_value = "0")]
    pub port: u16,
    /// Listen on this Unix socket instead (for ssh -L)
    #[arg(long, value_name = "PATH", conflicts_with = "port")]
    pub socket: Option<PathBuf>,
    /// Let programs read /metrics (OpenMetrics) and /record with the token in this file: "Authorization: Bearer TOKEN"
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// Look again after SECONDS
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = interval)]
    pub interval: Duration,
    /// Let the page end tasks
    #[arg(long, conflicts_with = "file")]
    pub control: bool,
    /// Write the page with the recorded run to this file, for any browser, and end
    #[arg(long, value_name = "FILE.html", requires = "file")]
    pub save: Option<PathBuf>,
    /// A recorded run
    #[arg(value_name = "FILE")]
    pub file: Option<PathBuf>,
}

/// By what tasks are sorted: the largest number first, tids upwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Sort {
    /// The tid.
    Task,
    /// Processor time in a second.
    Cpu,
    /// The time that it sleeps in calls.
    Wait,
    /// Memory of the process.
    Memory,
    /// Unread messages.
    Unread,
    /// Messages sent in a second.
    Sent,
    /// Messages received in a second.
    Received,
}

/// The shortest interval between two looks.
const INTERVAL_MIN: Duration = Duration::from_millis(100);

fn interval(text: &str) -> Result<Duration, String> {
    let seconds = text.parse::<f64>().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    seconds.filter(|time| *time >= INTERVAL_MIN).ok_or_else(|| "not a number of seconds of at least 0.1".to_owned())
}

/// Print versions, places, features, limits, and the settings in force
///
/// Each setting is printed with its source: the environment, or the default. Needs no machine.
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub struct Info {
    /// Print JSON, for programs
    #[arg(long)]
    pub json: bool,
}

/// Check this host, and other hosts, for what a machine needs
///
/// Each fault is printed with its cause and a cure. For other hosts, logs in as the machine would do, looks for pvmd
/// there, compares versions and clocks, and tries connections in both directions. The exit status is 1 if there is a
/// fault.
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub struct Doctor {
    /// Print JSON, for programs
    #[arg(long)]
    pub json: bool,
    /// Print also what is in order
    #[arg(short = 'v', long)]
    pub verbose: bool,
    /// How long one host may take to answer: seconds, or a number with s, m, h or d
    #[arg(long, value_name = "TIME", value_parser = super::run::time, default_value = "20")]
    pub timeout: Duration,
    /// The addresses of the caller, for a doctor that another one has started
    #[arg(long, hide = true, value_name = "ADDRESSES")]
    pub peer: Option<String>,
    /// Other hosts: names, lists, ranges, or lines of a hostfile
    #[arg(value_name = "HOST")]
    pub hosts: Vec<String>,
}

/// Print the completions for a shell
#[derive(Args, Debug)]
pub struct Completions {
    /// The shell: bash, zsh or fish
    #[arg(value_name = "SHELL")]
    pub shell: CompletionShell,
}

/// The shells that complete the words of `pvm`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[allow(missing_docs)]
pub enum CompletionShell {
    Bash,
    Zsh,
    Fish,
}
