//! The command line of `pvm`.
mod bench;
mod machine;
mod run;

use crate::console;
use crate::suggest;
pub use bench::Bench;
use clap::{CommandFactory, Parser, Subcommand};
pub use machine::{
    CompletionShell, Completions, Conf, Doctor, Down, Drain, Info, Jobs, Monitor, Ps, Sort, Stat, Top, Up, Why,
};
pub use run::{BindTo, Guard, MapBy, OnDeadlock, OnFailure, Program, Run, words};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The text of `--version`: hpvm's version, and the PVM version that programs see.
const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), " (PVM 3.4.6)");

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
    Run(Box<Run>),
    Bench(Bench),
    Up(Up),
    Down(Down),
    Drain(Drain),
    Conf(Conf),
    Ps(Ps),
    Jobs(Jobs),
    Why(Why),
    Stat(Stat),
    Top(Top),
    Monitor(Monitor),
    Info(Info),
    Doctor(Doctor),
    Completions(Completions),
    #[command(hide = true)]
    Guard(Guard),
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
        assert!(check("tpo").unwrap().ends_with("did you mean pvm top?"));
        assert!(check("/no/such/folder/it").unwrap().ends_with("pvm --help lists the commands"));
    }
}
