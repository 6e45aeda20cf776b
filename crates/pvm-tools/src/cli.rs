//! The command line of `pvm`.
use crate::console;
use crate::suggest;
use clap::{Args, CommandFactory, Parser, Subcommand};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// What `--version` says: the own version, and the one of PVM that programs see.
const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), " (PVM 3.4.6)");

/// The console of a parallel virtual machine
///
/// Without a command it is the classic console: it joins the machine of this user,
/// or starts one, and reads commands ("help" lists them) from the terminal or a
/// pipe. The commands of the console work as words of the command line, too, on the
/// machine that runs: pvm halt, pvm spawn -3 prog, pvm kill t40002 (pvm help kill).
/// A hostfile that has the name of a command is written ./name.
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
    /// What to do instead of reading commands.
    #[command(subcommand)]
    pub command: Option<Command>,
}

impl Cli {
    /// What the daemon is started with.
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

    /// The hosts of the machine that is started.
    pub fn hostfile(&self) -> Option<&Path> {
        self.hostfile.as_deref()
    }

    /// That there is the hostfile, for else its name is a mistyped command.
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

/// The words of a command line that are a command of the console, and no command of its own.
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

/// What can be the first word.
fn command_names() -> Vec<String> {
    let own = Cli::command();
    let own = own.get_subcommands().map(|command| command.get_name().to_owned());
    own.chain(console::commands().map(str::to_owned)).collect()
}

/// The commands.
#[derive(Subcommand, Debug)]
pub enum Command {
    Run(Run),
    Up(Up),
    Down(Down),
    Conf(Conf),
    Ps(Ps),
    Jobs(Jobs),
}

/// Run a program on the machine and wait for its end
///
/// Starts a machine if none runs, and ends it afterwards. The program is a path if
/// it has a slash, else it is looked for in the machine's search path (ep=, by
/// default ~/pvm3/bin/$PVM_ARCH), then in PATH. Its tasks have the caller's
/// environment and directory; their standard input is empty, their output comes
/// line by line. Ctrl-C interrupts them, a second one kills them. The command ends
/// when they, and all tasks that they spawned, have ended.
///
/// The exit status is that of the first task that failed (128 + n for signal n),
/// else 0; 127 says that the program was not found.
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub struct Run {
    /// How many tasks to start
    #[arg(short = 'n', default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(i32).range(1..))]
    pub count: i32,
    /// Begin each line with the name of its task, such as [prog.0]
    #[arg(long)]
    pub tag: bool,
    /// Write what the tasks do, as a timeline that Perfetto and Chrome show
    #[arg(long, value_name = "FILE.json")]
    pub trace: Option<PathBuf>,
    /// Run on these hosts only: a list with ranges (a,b,n[1-4]); a:4 takes four
    /// tasks before others take more. Those that are not in the machine are
    /// added, and taken out afterwards. It can stand there more than once
    #[arg(long, value_name = "LIST", verbatim_doc_comment)]
    pub hosts: Vec<String>,
    /// The same with the hosts of a file (name slots=4)
    #[arg(long, value_name = "FILE", conflicts_with = "hosts")]
    pub hostfile: Option<PathBuf>,
    /// The directory of the tasks (by default the current one)
    #[arg(long = "wd", value_name = "DIR")]
    pub directory: Option<PathBuf>,
    /// The program and its arguments
    #[arg(value_name = "PROGRAM [ARGS]", required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<String>,
}

impl Run {
    /// The program.
    pub fn program(&self) -> &str {
        self.command.first().map_or("", String::as_str)
    }

    /// Its arguments.
    pub fn arguments(&self) -> &[String] {
        self.command.get(1..).unwrap_or_default()
    }
}

/// Start the machine, or add hosts to it
///
/// A host is a name, a list (a,b), a range (n[01-16]), or a line of a hostfile in
/// quotes ("h2 lo=joe"). Inside of a Slurm job, without hosts: those of the job.
/// Hosts that are in the machine already stay. Prints the hosts of the machine,
/// and for each that could not be added the reason; then the exit status is 1.
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub struct Up {
    /// Hosts in a file, one a line
    #[arg(long, value_name = "FILE")]
    pub hostfile: Option<PathBuf>,
    /// Hosts to add
    #[arg(value_name = "HOST")]
    pub hosts: Vec<String>,
}

/// Halt the machine, or take hosts out of it
#[derive(Args, Debug)]
pub struct Down {
    /// Hosts to take out (else the whole machine ends)
    #[arg(value_name = "HOST")]
    pub hosts: Vec<String>,
}

/// List the hosts of the machine
#[derive(Args, Debug)]
pub struct Conf {
    /// For programs
    #[arg(long)]
    pub json: bool,
}

/// List the tasks of the machine
#[derive(Args, Debug)]
pub struct Ps {
    /// On all hosts (else on this one)
    #[arg(short = 'a')]
    pub all_hosts: bool,
    /// With parent and process id
    #[arg(short = 'l')]
    pub long: bool,
    /// With this command itself
    #[arg(short = 'x')]
    pub every_task: bool,
    /// For programs
    #[arg(long)]
    pub json: bool,
}

/// List the tasks that were started together, with all that they started
#[derive(Args, Debug)]
pub struct Jobs {
    /// With a line for each task
    #[arg(short = 'l')]
    pub long: bool,
    /// For programs
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
        let folder = std::env::temp_dir().join(format!("pvm-words-{}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        std::fs::write(folder.join("machines"), "").unwrap();
        let check = |word: &str| parse(&format!("pvm {word}")).check_hostfile().err();
        let path = |name: &str| folder.join(name).display().to_string();
        assert_eq!(check(&path("machines")), None);
        let text = check(&path("mahcines")).unwrap();
        assert!(text.ends_with(&format!("did you mean pvm {}?", path("machines"))), "{text}");
        std::fs::remove_dir_all(&folder).unwrap();
        assert!(check("hlat").unwrap().ends_with("did you mean pvm halt?"));
        assert!(check("top").unwrap().ends_with("did you mean pvm ps?"));
        assert!(check("/no/such/folder/it").unwrap().ends_with("pvm --help lists the commands"));
    }

    #[test]
    fn what_follows_the_program_is_the_programs() {
        let Some(Command::Run(run)) = parse("pvm run -n 4 --tag ./prog -n 3 --tag").command else { panic!() };
        assert_eq!((run.count, run.tag, run.program()), (4, true, "./prog"));
        assert_eq!(run.arguments(), ["-n", "3", "--tag"]);
        for line in [&["pvm", "run", "-n", "0", "prog"][..], &["pvm", "run"]] {
            assert!(Cli::try_parse_from(line).is_err());
        }
    }
}
