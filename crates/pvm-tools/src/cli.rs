//! The command line of `pvm`.
use crate::bench::plan::{self, Encoding, Measure, Route, Sizes};
use crate::console;
use crate::suggest;
use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The text of `--version`: hpvm's version, and the PVM version that programs see.
const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), " (PVM 3.4.6)");

/// The options of `pvm run` that take the next word as their value.
const WITH_VALUE: [&str; 7] = ["-n", "--on-failure", "--timeout", "--trace", "--hosts", "--hostfile", "--wd"];
/// The longest timeout: 100 years. The clock's type cannot represent much longer times.
const TIMEOUT_MAX: Duration = Duration::from_secs(100 * 365 * 86400);
/// The most tasks of `pvm bench`.
const TASKS_MAX: usize = 1024;

/// The console of a parallel virtual machine
///
/// Without a command, pvm is the classic console: it joins the machine of this
/// user, or starts one, and reads commands ("help" lists them) from the terminal or
/// a pipe. The console's commands also work on the command line, if a machine runs:
/// pvm halt, pvm spawn -3 prog, pvm kill t40002 (pvm help kill). If a hostfile has
/// the name of a command, write ./name.
#[derive(Parser, Debug)]
#[command(name = "pvm", version = VERSION, args_conflicts_with_subcommands = true, verbatim_doc_comment)]
pub struct Cli {
    /// Debug mask of the daemon that is started
    #[arg(short = 'd', value_name = "MASK")]
    debug_mask: Option<OsString>,
    /// Name or address of this host in the machine that is started
    #[arg(short = 'n', value_name = "HOST")]
    host: Option<OsString>,
    /// Hosts of the machine that is started
    hostfile: Option<PathBuf>,
    /// The command; without one the console reads commands.
    #[command(subcommand)]
    pub command: Option<Command>,
}

impl Cli {
    /// Returns the arguments for the daemon that the console starts.
    pub fn daemon_arguments(&self) -> Vec<OsString> {
        let joined = |flag: &str, value: &OsString| {
            let mut word = OsString::from(flag);
            word.push(value);
            word
        };
        let mask = self.debug_mask.as_ref().map(|mask| joined("-d", mask));
        let host = self.host.as_ref().map(|host| joined("-n", host));
        let file = self.hostfile.as_ref().map(|file| file.clone().into_os_string());
        mask.into_iter().chain(host).chain(file).collect()
    }

    /// Returns the hostfile for the machine that the console starts.
    pub fn hostfile(&self) -> Option<&Path> {
        self.hostfile.as_deref()
    }

    /// Returns an error if the hostfile does not exist: the argument is then probably a mistyped command.
    pub fn check_hostfile(&self) -> Result<(), String> {
        let Some(file) = self.hostfile().filter(|file| !file.exists()) else { return Ok(()) };
        let word = file.to_string_lossy();
        let files = file.parent().filter(|folder| *folder != Path::new("")).unwrap_or(Path::new("."));
        let files = std::fs::read_dir(files).into_iter().flatten().filter_map(Result::ok);
        let names = files.map(|entry| file.with_file_name(entry.file_name()).to_string_lossy().into_owned());
        let like = suggest::nearest(&word, &command_names()).map(|name| format!("pvm {name}"));
        let like =
            like.or_else(|| suggest::nearest(&word, &names.collect::<Vec<_>>()).map(|name| format!("pvm {name}")));
        let advice =
            like.map_or_else(|| "pvm --help lists the commands".into(), |like| format!("did you mean {like}?"));
        Err(format!("{word}: no such command and no such hostfile; {advice}"))
    }
}

/// Returns the words of the command line if they are a console command that is not also a subcommand of `pvm`.
pub fn console_words(words: &[OsString]) -> Option<Vec<String>> {
    let own = Cli::command();
    let is_own = |name: &str| own.find_subcommand(name).is_some();
    let is_console = |word: &OsString| word.to_str().is_some_and(|name| console::is_command(name) && !is_own(name));
    let is_meant = match words {
        [help, name] if help == "help" => is_console(name),
        [name, ..] => is_console(name) && name != "help",
        [] => false,
    };
    is_meant.then(|| words.iter().map(|word| word.to_string_lossy().into_owned()).collect())
}

/// Returns the words that may come first on the command line: subcommands and console commands.
fn command_names() -> Vec<String> {
    let own = Cli::command();
    let own = own.get_subcommands().map(|command| command.get_name().to_owned());
    own.chain(console::commands().map(str::to_owned)).collect()
}

/// The subcommands.
#[derive(Subcommand, Debug)]
pub enum Command {
    Run(Run),
    Bench(Bench),
    Up(Up),
    Down(Down),
    Conf(Conf),
    Ps(Ps),
    Jobs(Jobs),
    #[command(hide = true)]
    Guard(Guard),
}

/// Run a program on the machine and wait for its end
///
/// Starts a machine if none runs, and halts it afterwards. The program is a path if it has a slash; otherwise it is
/// searched for in the machine's search path (ep=, by default ~/pvm3/bin/$PVM_ARCH), in PATH, beside pvm, and in the
/// current directory. Programs that its tasks spawn are searched for in the search path, and then beside the program.
///
/// The tasks have the caller's environment and directory. This command prints their standard output and standard error
/// to its own: lines stay whole, and no byte is added. Ctrl-C interrupts the tasks; a second Ctrl-C kills them and all
/// processes that they have started. The command ends when the tasks, and all tasks that they spawned, have ended.
///
/// The command reports each task that fails: which one, where, how, and what it printed last. When a task that this
/// command started is ended by a signal or lost with its host, all others are ended too (--on-failure wait lets them
/// continue).
///
/// The exit status is that of the first task that failed (128 + n for signal n), or 0. It is 124 if the run took longer
/// than --timeout, and 127 if the program was not found.
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub struct Run {
    /// How many tasks to start (also -np N)
    #[arg(short = 'n', default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(i32).range(1..))]
    pub count: i32,
    /// Begin each line with the name of its task, such as [prog.0]
    #[arg(long)]
    pub tag: bool,
    /// Pass the standard input to the first task (otherwise all tasks get empty input)
    #[arg(long)]
    pub stdin: bool,
    /// Let tasks print to a pseudo-terminal, so that lines appear as they are printed (the default if this command
    /// prints to a terminal)
    #[arg(long, overrides_with = "no_pty", verbatim_doc_comment)]
    pty: bool,
    /// Let tasks print to a pipe; most programs then buffer their output, except those that use libpvm3
    #[arg(long, overrides_with = "pty", verbatim_doc_comment)]
    no_pty: bool,
    /// If a task fails (by an exit code, by a signal or because its host is lost): end all other tasks (abort), or let
    /// them continue (wait). Without this option, an exit code does not end the other tasks
    #[arg(long, value_name = "WHAT", verbatim_doc_comment)]
    pub on_failure: Option<OnFailure>,
    /// End all tasks after this time: seconds, or a number with s, m, h or d
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub timeout: Option<Duration>,
    /// Write a timeline of the tasks to this file, for Perfetto or Chrome
    #[arg(long, value_name = "FILE.json")]
    pub trace: Option<PathBuf>,
    /// Run on these hosts only: a list with ranges (a,b,n[1-4]); a:4 gets four tasks in each round over the hosts.
    /// Hosts that are not in the machine are added, and removed afterwards. May be repeated
    #[arg(long, value_name = "LIST", verbatim_doc_comment)]
    pub hosts: Vec<String>,
    /// Run on the hosts of this file only (lines such as: name slots=4)
    #[arg(long, value_name = "FILE", conflicts_with = "hosts")]
    pub hostfile: Option<PathBuf>,
    /// The directory of the tasks (by default the current one)
    #[arg(long = "wd", value_name = "DIR")]
    pub directory: Option<PathBuf>,
    /// The program and its arguments
    #[arg(value_name = "PROGRAM [ARGS]", required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<OsString>,
}

/// What `pvm run` does after one of its tasks has failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum OnFailure {
    /// All other tasks are ended.
    Abort,
    /// All other tasks continue.
    Wait,
}

/// Reads a duration such as `90`, `1.5` or `10m`.
fn time(text: &str) -> Result<Duration, String> {
    let units = [('s', 1.0), ('m', 60.0), ('h', 3600.0), ('d', 86400.0)];
    let unit = units.iter().find_map(|(letter, seconds)| Some((text.strip_suffix(*letter)?, *seconds)));
    let (number, unit) = unit.unwrap_or((text, 1.0));
    let seconds = number.parse::<f64>().ok().filter(|seconds| *seconds > 0.0).map(|seconds| seconds * unit);
    let time = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    time.filter(|time| *time <= TIMEOUT_MAX)
        .ok_or_else(|| "a time is a number above 0, with s, m, h or d behind it or nothing".into())
}

impl Run {
    /// Returns the program.
    pub fn program(&self) -> &OsStr {
        self.command.first().map_or(OsStr::new(""), OsString::as_os_str)
    }

    /// Returns the program's arguments.
    pub fn arguments(&self) -> &[OsString] {
        self.command.get(1..).unwrap_or_default()
    }

    /// Returns `true` if an option requests a pseudo-terminal for the tasks, `false` if an option requests a pipe;
    /// `None` without such an option.
    pub fn wants_terminal(&self) -> Option<bool> {
        (self.pty || self.no_pty).then_some(self.pty)
    }
}

/// Returns the words of the command line. For `pvm run`, rewrites `-n2` and `-np 2`, which similar programs accept, as
/// `-n 2`.
pub fn words(words: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut words: Vec<OsString> = words.collect();
    if words.get(1).is_none_or(|word| word != "run") {
        return words;
    }
    let mut place = 2;
    while let Some(word) = words.get(place).filter(|word| word.as_encoded_bytes().starts_with(b"-")) {
        let text = word.to_str().unwrap_or_default();
        let count = text.strip_prefix("-n").map(|rest| rest.strip_prefix('p').unwrap_or(rest).to_owned());
        let count = count.filter(|count| count.bytes().all(|byte| byte.is_ascii_digit()));
        let has_value = WITH_VALUE.contains(&text);
        place += match count {
            Some(count) => {
                let option = ["-n".into(), count.into()];
                words.splice(place..=place, option.into_iter().filter(|word: &OsString| !word.is_empty()));
                2
            }
            None if has_value => 2,
            None => 1,
        };
    }
    words
}

/// Ends the tasks that a killed `pvm run` has left behind; only `pvm run` starts this process
#[derive(Args, Debug)]
pub struct Guard {
    /// The tid of the run
    pub runner: u32,
}

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
    #[arg(long, value_name = "SIZES", value_parser = plan::sizes)]
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

/// Start the machine, or add hosts to it
///
/// A host is a name, a list (a,b), a range (n[01-16]), or a line of a hostfile in quotes ("h2 lo=joe"). Inside a Slurm
/// job, if no hosts are named, the hosts of the job are added. Hosts that are already in the machine stay in it. Prints
/// the hosts of the machine. For each host that could not be added, prints the reason, and the exit status is 1.
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub struct Up {
    /// A file with hosts, one on each line
    #[arg(long, value_name = "FILE")]
    pub hostfile: Option<PathBuf>,
    /// Hosts to add
    #[arg(value_name = "HOST")]
    pub hosts: Vec<String>,
}

/// Halt the machine, or remove hosts from it
#[derive(Args, Debug)]
pub struct Down {
    /// Hosts to remove (if none is named, the whole machine ends)
    #[arg(value_name = "HOST")]
    pub hosts: Vec<String>,
}

/// List the hosts of the machine
#[derive(Args, Debug)]
pub struct Conf {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Cli {
        Cli::try_parse_from(line.split(' ')).unwrap()
    }

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn the_classic_arguments_go_to_the_daemon() {
        assert_eq!(parse("pvm -d0x1 -nfoo hosts").daemon_arguments(), ["-d0x1", "-nfoo", "hosts"]);
        assert!(parse("pvm").daemon_arguments().is_empty());
        assert!(Cli::try_parse_from(["pvm", "hosts", "more"]).is_err());
    }

    #[test]
    fn commands_of_the_console_are_known_where_a_hostfile_could_stand() {
        let words = |line: &str| console_words(&line.split(' ').map(OsString::from).collect::<Vec<_>>());
        assert_eq!(words("spawn -3 prog").unwrap(), ["spawn", "-3", "prog"]);
        for line in ["halt", "version", "kill -c t40002", "help spawn"] {
            assert!(words(line).is_some(), "{line}");
        }
        for line in ["ps -a", "run -n 2 halt", "./halt", "hosts", "-nhalt", "help", "help run", "help ps"] {
            assert!(words(line).is_none(), "{line}");
        }
    }

    #[test]
    fn a_hostfile_that_is_not_there_may_be_a_mistyped_command_or_another_file() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("machines"), "").unwrap();
        let check = |word: &str| parse(&format!("pvm {word}")).check_hostfile().err();
        let path = |name: &str| folder.path().join(name).display().to_string();
        assert_eq!(check(&path("machines")), None);
        let text = check(&path("mahcines")).unwrap();
        assert!(text.ends_with(&format!("did you mean pvm {}?", path("machines"))), "{text}");
        assert!(check("hlat").unwrap().ends_with("did you mean pvm halt?"));
        assert!(check("top").unwrap().ends_with("did you mean pvm ps?"));
        assert!(check("/no/such/folder/it").unwrap().ends_with("pvm --help lists the commands"));
    }

    #[test]
    fn what_follows_the_program_is_the_programs() {
        let run = |line: &str| match Cli::try_parse_from(words(line.split(' ').map(OsString::from))).unwrap().command {
            Some(Command::Run(run)) => run,
            _ => panic!("{line}"),
        };
        let four = run("pvm run -n 4 --tag ./prog -n 3 --tag");
        assert_eq!((four.count, four.tag, four.program().to_str()), (4, true, Some("./prog")));
        assert_eq!(four.arguments(), ["-n", "3", "--tag"]);
        for line in [
            "pvm run -n2 prog -np 3",
            "pvm run --tag -np2 prog -np 3",
            "pvm run -np 2 prog -np 3",
            "pvm run --wd -np -np 2 prog -np 3",
        ] {
            let two = run(line);
            assert_eq!((two.count, two.arguments()), (2, &["-np".into(), "3".into()][..]), "{line}");
        }
        assert_eq!(run("pvm run --pty --no-pty prog").wants_terminal(), Some(false));
        assert_eq!(run("pvm run prog").wants_terminal(), None);
        for line in [&["pvm", "run", "-n", "0", "prog"][..], &["pvm", "run"], &["pvm", "run", "--timeout", "0", "p"]] {
            assert!(Cli::try_parse_from(line).is_err());
        }
    }

    #[test]
    fn a_group_has_two_tasks_at_least() {
        assert_eq!((group_size("2"), group_size("1024")), (Ok(2), Ok(TASKS_MAX)));
        assert!(group_size("1").unwrap_err().contains("at least 2"));
        for text in ["0", "1025", "-2", "many", ""] {
            assert!(group_size(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_time_may_have_a_unit() {
        for (text, seconds) in [("90", 90.0), ("1.5", 1.5), ("10m", 600.0), ("2h", 7200.0), ("0.1s", 0.1)] {
            assert_eq!(time(text), Ok(Duration::from_secs_f64(seconds)));
        }
        for text in ["", "s", "-1", "nan", "inf", "5x", "1e300d"] {
            assert!(time(text).is_err(), "{text}");
        }
    }
}
