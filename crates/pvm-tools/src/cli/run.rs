//! The command line of `pvm run`.
use crate::variables::IDENTITY;
use clap::{Args, Parser, ValueEnum};
use pvm_core::machine::InputOf;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The options of `pvm run` that take the next word as their value.
const WITH_VALUE: [&str; 13] = [
    "-n",
    "-x",
    "--on-failure",
    "--deadlock",
    "--timeout",
    "--record",
    "--trace",
    "--hosts",
    "--hostfile",
    "--wd",
    "--output-dir",
    "--bind-to",
    "--map-by",
];
/// The word between two programs.
const SEPARATOR: &str = ":";
/// The longest timeout: 100 years. The clock's type cannot represent much longer times.
const TIMEOUT_MAX: Duration = Duration::from_secs(100 * 365 * 86400);

/// Run a program on the machine and wait for its end
///
/// Starts a machine if none runs, and halts it afterwards. The program is a path if it has a slash; otherwise it is
/// searched for in the machine's search path (ep=, by default ~/pvm3/bin/$PVM_ARCH), in PATH, beside pvm, and in the
/// current directory. Programs that its tasks spawn are searched for in the search path, and then beside the program.
///
/// Several programs are separated by a colon: pvm run -n 1 ./main : -n 4 ./worker. After a colon, -n, -x and --wd may
/// stand before the program; all other options are those of the whole run.
///
/// The tasks have the caller's environment and directory. HPVM_TASK_INDEX and HPVM_TASK_COUNT tell each its number in
/// the run, from 0 on, and how many there are; HPVM_LOCAL_INDEX and HPVM_LOCAL_COUNT tell the same for its host.
///
/// This command prints the standard output and standard error of the tasks to its own: lines stay whole, and no byte is
/// added. Ctrl-C interrupts the tasks; a second Ctrl-C kills them and all processes that they have started. The command
/// ends when the tasks, and all tasks that they spawned, have ended.
///
/// The command reports each task that fails: which one, where, how, and what it printed last. When a task that this
/// command started is ended by a signal or lost with its host, all others are ended too (--on-failure wait lets them
/// continue).
///
/// The exit status is that of the first task started by this command that failed (128 + n for signal n), or 0. A task
/// that its tasks spawned counts only if --on-failure abort ended the run because of it: such a task that a signal ended
/// is reported, and the program that spawned it decides what its loss means. The status is 124 if the run took longer
/// than --timeout, and 127 if the program was not found.
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub struct Run {
    /// How many tasks to start (also -np N); by default 1, or in a job of a batch system one for each slot of the job
    #[arg(short = 'n', value_name = "N", value_parser = clap::value_parser!(i32).range(1..))]
    count: Option<i32>,
    /// Begin each line with the name of its task, such as [prog.0]
    #[arg(long)]
    pub tag: bool,
    /// Pass the standard input to all tasks, to none (as without this option), or to the task with this number;
    /// --stdin alone: to the first task
    #[arg(
        long,
        value_name = "all|none|N",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "0",
        value_parser = stdin_to,
        verbatim_doc_comment
    )]
    stdin: Option<InputOf>,
    /// Set a variable for the tasks, and for tasks that they spawn; without =VALUE, to the value that it has here. May
    /// be repeated
    #[arg(short = 'x', value_name = "VAR[=VALUE]", value_parser = export, verbatim_doc_comment)]
    exports: Vec<Export>,
    /// Write the output of each task to files of its own in this directory: prog.0.out and prog.0.err
    #[arg(long, value_name = "DIR", conflicts_with_all = ["tag", "timestamp"])]
    pub output_dir: Option<PathBuf>,
    /// Begin each line with the time (UTC)
    #[arg(long)]
    pub timestamp: bool,
    /// Bind each task to a core (core), or to none (none, as without this option)
    #[arg(long, value_name = "WHAT", default_value = "none", hide_default_value = true, hide_possible_values = true)]
    pub bind_to: BindTo,
    /// Give each host a block of consecutive tasks, in proportion to its slots (slot, as without this option), or give
    /// one task to each host in turn (node)
    #[arg(
        long,
        value_name = "HOW",
        default_value = "slot",
        hide_default_value = true,
        hide_possible_values = true,
        verbatim_doc_comment
    )]
    pub map_by: MapBy,
    /// Also set the variables of Open MPI that tell a task its place, such as OMPI_COMM_WORLD_RANK
    #[arg(long)]
    pub mpi_names: bool,
    /// At the end, print what ran where, how long, and how it ended
    #[arg(long)]
    pub report: bool,
    /// Print this report as JSON, for programs; what the tasks print then goes to the standard error
    #[arg(long)]
    pub json: bool,
    /// Print what would be started where, and start nothing
    #[arg(long)]
    pub dry_run: bool,
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
    /// Look every few seconds whether tasks of the run can never go on, such as two that wait for each other, and say so
    /// (report), or also end all tasks (abort; the exit status is then 3). See pvm why
    #[arg(long, value_name = "WHAT", verbatim_doc_comment)]
    pub deadlock: Option<OnDeadlock>,
    /// End all tasks after this time: seconds, or a number with s, m, h or d
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub timeout: Option<Duration>,
    /// Write what hosts and tasks do each second to this file, for pvm monitor; costs the tasks nothing
    #[arg(long, value_name = "FILE.json", conflicts_with = "trace")]
    pub record: Option<PathBuf>,
    /// Write that and each call and message to this file, for pvm monitor, Perfetto or Chrome
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
    directory: Option<PathBuf>,
    /// The program and its arguments, and further programs after colons
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

/// What `pvm run` does when tasks of the run can never go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum OnDeadlock {
    /// All tasks are ended.
    Abort,
    /// It says so.
    Report,
}

/// Reads a duration such as `90`, `1.5` or `10m`.
pub fn time(text: &str) -> Result<Duration, String> {
    let units = [('s', 1.0), ('m', 60.0), ('h', 3600.0), ('d', 86400.0)];
    let unit = units.iter().find_map(|(letter, seconds)| Some((text.strip_suffix(*letter)?, *seconds)));
    let (number, unit) = unit.unwrap_or((text, 1.0));
    let seconds = number.parse::<f64>().ok().filter(|seconds| *seconds > 0.0).map(|seconds| seconds * unit);
    let time = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    time.filter(|time| *time <= TIMEOUT_MAX)
        .ok_or_else(|| "a time is a number above 0, with s, m, h or d behind it or nothing".into())
}

/// The cores to which tasks are bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum BindTo {
    /// Each task is bound to the core of its host to which the fewest tasks are bound.
    Core,
    /// No task is bound.
    None,
}

/// How tasks are dealt to hosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum MapBy {
    /// Each host gets a block.
    Slot,
    /// Hosts get one task each in turn.
    Node,
}

/// A variable for the tasks, and its value if one was given.
pub type Export = (String, Option<OsString>);

/// Reads who gets the standard input.
fn stdin_to(text: &str) -> Result<InputOf, String> {
    match text {
        "all" => Ok(InputOf::All),
        "none" => Ok(InputOf::None),
        number if is_number(number) => number.parse().map(InputOf::Task).map_err(|_| "the number is too large".into()),
        _ => Err("the standard input goes to all, to none, or to the task with a number".into()),
    }
}

/// Reads `VAR` or `VAR=VALUE`. Variables that the daemon sets for each task cannot be set.
fn export(text: &str) -> Result<Export, String> {
    let (name, value) = match text.split_once('=') {
        Some((name, value)) => (name, Some(value.into())),
        None => (text, None),
    };
    if name.is_empty() {
        return Err("a variable is NAME or NAME=VALUE".into());
    }
    if IDENTITY.contains(&name) {
        return Err(format!("each task has its own {name}"));
    }
    Ok((name.to_owned(), value))
}

/// One of the programs of a run.
#[derive(Debug, PartialEq, Eq)]
pub struct Program {
    /// The number of tasks.
    pub count: i32,
    /// Variables for these tasks.
    pub exports: Vec<Export>,
    /// The directory of these tasks; `None`: the current one.
    pub directory: Option<PathBuf>,
    /// The program and its arguments.
    command: Vec<OsString>,
}

/// The words between two colons.
#[derive(Parser, Debug)]
#[command(name = "pvm run", disable_help_flag = true)]
struct Part {
    #[arg(short = 'n', default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(i32).range(1..))]
    count: i32,
    #[arg(short = 'x', value_name = "VAR[=VALUE]", value_parser = export)]
    exports: Vec<Export>,
    #[arg(long = "wd", value_name = "DIR")]
    directory: Option<PathBuf>,
    #[arg(value_name = "PROGRAM [ARGS]", trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<OsString>,
}

impl Program {
    /// Returns the program.
    pub fn file(&self) -> &OsStr {
        self.command.first().map_or(OsStr::new(""), OsString::as_os_str)
    }

    /// Returns the name of the program, without directories.
    pub fn name(&self) -> String {
        Path::new(self.file()).file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// Returns the program's arguments.
    pub fn arguments(&self) -> &[OsString] {
        self.command.get(1..).unwrap_or_default()
    }
}

impl Run {
    /// Returns whether one program is to run, and the command line says neither how often nor where: in a job, it runs
    /// once on each slot.
    pub fn leaves_count_open(&self) -> bool {
        let is_one = !self.command.iter().any(|word| word == SEPARATOR);
        is_one && self.count.is_none() && self.hosts.is_empty() && self.hostfile.is_none()
    }

    /// Returns the programs, at least one. `count` is the number of tasks of the first one if the command line has none.
    pub fn programs(&self, count: i32) -> Result<Vec<Program>, String> {
        let mut parts = self.command.split(|word| word == SEPARATOR);
        let first = Program {
            count: self.count.unwrap_or(count),
            exports: self.exports.clone(),
            directory: self.directory.clone(),
            command: parts.next().unwrap_or_default().to_vec(),
        };
        let mut programs = vec![first];
        for part in parts {
            let start = ["pvm".into(), "run".into()].into_iter();
            let part = Part::try_parse_from(words(start.chain(part.iter().cloned())).drain(1..));
            let Part { count, exports, directory, command } = part.map_err(|error| {
                let text = error.to_string();
                let line = text.lines().next().unwrap_or_default().trim_start_matches("error: ");
                format!("after a colon: {line}")
            })?;
            programs.push(Program { count, exports, directory, command });
        }
        for program in &programs {
            let file = program.file().to_string_lossy();
            if file.is_empty() {
                return Err("a program is missing before or after a colon".into());
            }
            if file.starts_with('-') {
                return Err(format!("unknown option {file} (see pvm run --help)"));
            }
        }
        let total = programs.iter().try_fold(0_i32, |total, program| total.checked_add(program.count));
        match (total, self.stdin_to()) {
            (None, _) => Err("these are too many tasks".into()),
            (Some(total), InputOf::Task(number)) if number >= total => {
                Err(format!("--stdin {number}: the tasks are numbered from 0 to {}", total - 1))
            }
            _ => Ok(programs),
        }
    }

    /// Returns which tasks get the standard input.
    pub fn stdin_to(&self) -> InputOf {
        self.stdin.unwrap_or_default()
    }

    /// Returns `true` if an option requests a pseudo-terminal for the tasks, `false` if an option requests a pipe;
    /// `None` without such an option.
    pub fn wants_terminal(&self) -> Option<bool> {
        (self.pty || self.no_pty).then_some(self.pty)
    }
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Returns the words of the command line. For `pvm run`, rewrites `-n2` and `-np 2`, which similar programs accept, as
/// `-n 2`, and `--stdin all` as `--stdin=all`: the value may be missing, and then the next word is the program.
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
        let whose = words.get(place + 1).and_then(|next| next.to_str()).filter(|_| text == "--stdin");
        if let Some(whose) = whose.filter(|whose| matches!(*whose, "all" | "none") || is_number(whose)) {
            let word = format!("--stdin={whose}").into();
            words.splice(place..=place + 1, [word]);
            place += 1;
            continue;
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Command};

    fn run(line: &str) -> Run {
        match Cli::try_parse_from(words(line.split(' ').map(OsString::from))).unwrap().command {
            Some(Command::Run(run)) => *run,
            _ => panic!("{line}"),
        }
    }

    #[test]
    fn what_follows_the_program_is_the_programs() {
        let four = run("pvm run -n 4 --tag ./prog -n 3 --tag");
        let [program] = &four.programs(1).unwrap()[..] else { panic!() };
        assert_eq!((program.count, four.tag, program.file().to_str()), (4, true, Some("./prog")));
        assert_eq!(
            (program.name().as_str(), program.arguments()),
            ("prog", &["-n", "3", "--tag"].map(OsString::from)[..])
        );
        for line in [
            "pvm run -n2 prog -np 3",
            "pvm run --tag -np2 prog -np 3",
            "pvm run -np 2 prog -np 3",
            "pvm run --wd -np -np 2 prog -np 3",
        ] {
            let two = &run(line).programs(1).unwrap()[0];
            assert_eq!((two.count, two.arguments()), (2, &["-np".into(), "3".into()][..]), "{line}");
        }
        for (line, is_open) in
            [("run prog", true), ("run -n 1 prog", false), ("run a : b", false), ("run --hosts a b", false)]
        {
            assert_eq!(run(&format!("pvm {line}")).leaves_count_open(), is_open, "{line}");
        }
        assert_eq!(run("pvm run prog").programs(6).unwrap()[0].count, 6);
        assert_eq!(run("pvm run --pty --no-pty prog").wants_terminal(), Some(false));
        assert_eq!(run("pvm run prog").wants_terminal(), None);
        for line in [&["pvm", "run", "-n", "0", "prog"][..], &["pvm", "run"], &["pvm", "run", "--timeout", "0", "p"]] {
            assert!(Cli::try_parse_from(line).is_err());
        }
    }

    #[test]
    fn programs_are_separated_by_colons() {
        let line = "pvm run -n 2 -x A=1 --tag ./main x : -np 3 --wd /tmp -x A=2 -x HOME worker -n 4 : last";
        let programs = run(line).programs(1).unwrap();
        let counts: Vec<i32> = programs.iter().map(|program| program.count).collect();
        let names: Vec<String> = programs.iter().map(Program::name).collect();
        assert_eq!((&counts[..], &names[..]), (&[2, 3, 1][..], &["main", "worker", "last"].map(String::from)[..]));
        assert_eq!(programs[0].exports, [("A".into(), Some("1".into()))]);
        assert_eq!(programs[1].exports, [("A".into(), Some("2".into())), ("HOME".into(), None)]);
        assert_eq!(
            (programs[1].directory.as_deref(), programs[0].directory.as_deref()),
            (Some(Path::new("/tmp")), None)
        );
        assert_eq!(programs[1].arguments(), ["-n", "4"]);
        for (line, error) in [
            ("pvm run a :", "a program is missing"),
            ("pvm run : a", "missing"),
            ("pvm run a : --tag b", "--tag"),
            ("pvm run a : -n 0 b", "0"),
            ("pvm run --nosuch a", "unknown option --nosuch"),
            ("pvm run -n 2000000000 a : -n 2000000000 b", "too many"),
        ] {
            let text = run(line).programs(1).unwrap_err();
            assert!(text.contains(error), "{line}: {text}");
        }
    }

    #[test]
    fn the_input_goes_to_the_first_task_unless_another_word_follows() {
        for (line, to) in [
            ("pvm run prog", InputOf::None),
            ("pvm run --stdin prog", InputOf::Task(0)),
            ("pvm run --stdin --tag prog all", InputOf::Task(0)),
            ("pvm run --stdin all prog", InputOf::All),
            ("pvm run -n 4 --stdin 3 prog", InputOf::Task(3)),
            ("pvm run --stdin=none prog", InputOf::None),
        ] {
            let run = run(line);
            assert_eq!(run.stdin_to(), to, "{line}");
            assert_eq!(run.programs(1).unwrap()[0].name(), "prog", "{line}");
        }
        assert!(run("pvm run --stdin 2 prog").programs(3).is_ok());
        assert!(run("pvm run -n 2 --stdin 2 prog").programs(3).unwrap_err().contains("from 0 to 1"));
        assert!(Cli::try_parse_from(["pvm", "run", "--stdin=some", "prog"]).is_err());
    }

    #[test]
    fn a_variable_has_a_name_and_perhaps_a_value() {
        assert_eq!(export("A=b=c"), Ok(("A".into(), Some("b=c".into()))));
        assert_eq!(export("A"), Ok(("A".into(), None)));
        assert!(export("=x").is_err() && export("PVMEPID=1").is_err());
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
