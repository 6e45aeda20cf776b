//! The table of commands, and the text of `help`, which is made from the table.
use super::commands::{self as c};
use super::{Call, Flow, listing, spawn};
use std::fmt::Write;
use std::io;

/// A command.
pub struct Command {
    /// The name.
    pub name: &'static str,
    /// The smallest number of words, including the name.
    pub words_min: usize,
    /// The largest number of words, if there is a limit.
    pub words_max: Option<usize>,
    /// Whether the command accepts `--json`.
    pub json: bool,
    /// Whether `help` omits the command.
    pub hidden: bool,
    /// What the command does, in a few words.
    pub summary: &'static str,
    /// The syntax and further explanation.
    pub syntax: &'static str,
    /// Runs the command. The flag is set if `--json` was given.
    pub action: fn(&mut Call<'_, '_>, bool) -> io::Result<Flow>,
}

const fn command(
    name: &'static str,
    words: (usize, usize),
    action: fn(&mut Call<'_, '_>, bool) -> io::Result<Flow>,
    summary: &'static str,
    syntax: &'static str,
) -> Command {
    let words_max = if words.1 == 0 { None } else { Some(words.1) };
    Command { name, words_min: words.0, words_max, json: false, hidden: false, summary, syntax, action }
}

const fn with_json(command: Command) -> Command {
    Command { json: true, ..command }
}

const fn hidden(command: Command) -> Command {
    Command { hidden: true, ..command }
}

/// All commands, sorted by name.
pub static COMMANDS: [Command; 30] = [
    command(
        "add",
        (2, 0),
        c::add,
        "Let hosts join the machine",
        "add host ...\n\
        Quote a host with its options:  add \"host lo=user wd=/tmp\"",
    ),
    command("alias", (1, 0), c::alias, "List or define own names for commands", "alias [ name command [ arg ... ] ]"),
    with_json(command(
        "conf",
        (1, 2),
        listing::conf,
        "List the hosts of the machine",
        "conf [ -g | -v ] [ --json ]\n\
        -g      the groups, and the host at which barriers of each meet\n\
        -v      also which host is the master",
    )),
    command("delete", (2, 0), c::delete, "Let hosts leave the machine", "delete host ..."),
    command("echo", (1, 0), c::echo, "Print the arguments", "echo [ arg ... ]"),
    command(
        "export",
        (1, 0),
        c::export,
        "Pass variables on to spawned tasks",
        "export [ name ... ]\nWithout names, prints the list.",
    ),
    command("getopt", (1, 2), c::getopt, "Show options of the console's own task", "getopt [ option ]"),
    command("halt", (1, 1), c::halt, "End the machine, its tasks and this console", "halt"),
    command("help", (1, 2), help, "Describe a command, or list all", "help [ command ]"),
    command("id", (1, 1), c::id, "Print the tid of this console", "id"),
    hidden(command("idump", (1, 2), c::idump, "Do nothing, for old scripts", "idump [ how ]")),
    with_json(command(
        "jobs",
        (1, 2),
        listing::jobs,
        "List the jobs that run",
        "jobs [ -l ] [ --json ]\nOptions:  -l       with a line for each task",
    )),
    command(
        "kill",
        (2, 0),
        c::kill,
        "End tasks",
        "kill [ -c ] tid ...\nOptions:  -c       the children of each tid instead",
    ),
    command("mstat", (2, 0), c::mstat, "Show whether hosts are up", "mstat host ..."),
    command(
        "names",
        (1, 2),
        listing::names,
        "List the mailboxes",
        "names [ pattern ]\nIn a pattern * stands for any text.",
    ),
    with_json(command("ps", (1, 2), listing::ps, "List tasks", PS)),
    command("pstat", (2, 0), c::pstat, "Show whether tasks run", "pstat tid ..."),
    command(
        "put",
        (4, 4),
        c::put,
        "Put a text into a mailbox",
        "put name flags text\n\
        Flags, added up:  1 persistent  2 many instances  4 others may overwrite",
    ),
    command("quit", (1, 1), c::quit, "Leave the console; the machine goes on", "quit"),
    command(
        "reset",
        (1, 4),
        c::reset,
        "End all tasks and clear what they left",
        "reset\n  or     reset info [ class [ index ] ]\nWith info, only mailboxes without an owner are removed.",
    ),
    command("setenv", (1, 0), c::setenv, "Show or set variables of the console", "setenv [ name [ value ... ] ]"),
    command("setopt", (3, 3), c::setopt, "Change an option of the console's own task", "setopt option value"),
    command(
        "sig",
        (3, 0),
        c::sig,
        "Send a signal to tasks",
        "sig signal tid ...\nA signal is a number or a name such as TERM.",
    ),
    command("spawn", (2, 0), spawn::spawn, "Start tasks", SPAWN),
    command("tickle", (2, 11), c::tickle, "Ask the daemon for debugging information", TICKLE),
    command("trace", (1, 0), c::trace, "Show or choose the events to be traced", TRACE),
    command("unalias", (2, 2), c::unalias, "Forget an own name for a command", "unalias name"),
    command("unexport", (1, 0), c::unexport, "No longer pass variables on", "unexport [ name ... ]"),
    command("version", (1, 1), c::version, "Print the version of PVM that this is equal to", "version"),
    with_json(command(
        "why",
        (1, 2),
        listing::why,
        "Show which tasks wait, for what, and why nothing comes",
        "why [ tid | job ] [ --json ]\n\
        Also names the tasks that can never go on (deadlocks).",
    )),
];

const PS: &str = "ps [ -axl ] [ --json ]
Options, in one word:
  -a       on all hosts (else on this one)
  -htid    on the host with that tid
  -nname   on the host with that name (-h and -n end the word)
  -l       with parent and process id
  -x       with this console itself
Columns:
  HOST     where it runs
  TID      task id, (cons) for this console
  PTID     task id of the parent
  PID      process id
  FLAG     c connected, f started by pvmd, a coming, o leaving,
           H hoster, R resource manager, T tasker
  COMMAND  program";

const SPAWN: &str = "spawn [ options ] program [ arg ... ]
Options:  -3               that many tasks (else one)
          -name            on the host of that name; . is this one
          -ARCH            on hosts of that architecture
          --host=address   on the host with that address
          -:dir            in that directory; also -name:dir, -ARCH:dir
          -~               on all hosts but the chosen ones
          -?               under a debugger
          ->               show the output here, as a job
          ->file           write the job's output to a file
          ->>file          append it
          -@               show the trace of the job as text
          -@file           write the trace to a file";

const TICKLE: &str = "tickle how [ arg ... ]
How:      0 totals, 1 hosts, 2 tasks, 3 spawns, 4 mailboxes: written to the log
          5 shows, 6 (mask) sets the debug mask
          8 (tid) declares that a host has failed
          9 (1) multicasts by way, written to the log (and counted anew)
          7 has no effect";

const TRACE: &str = "trace
  or     trace [ + | - ] name ...     choose, or no longer; * is all
  or     trace xpvm                   the events that XPVM shows
  or     trace buf [ bytes ]
  or     trace opt [ full | time | count ]";

/// Returns the command with this name.
pub fn find(name: &str) -> Option<&'static Command> {
    COMMANDS.iter().find(|command| command.name == name)
}

fn describe(command: &Command) -> String {
    format!("{:<11} {}\nSyntax:  {}\n", command.name, command.summary, command.syntax)
}

fn help(call: &mut Call<'_, '_>, _json: bool) -> io::Result<Flow> {
    let text = text(call.arguments().first().map(String::as_str));
    call.print(&text)?;
    Ok(Flow::Continue)
}

/// Returns the help for a command, or the list of all commands.
pub fn text(name: Option<&str>) -> String {
    let mut text = String::new();
    match name {
        Some(name) => text.extend(find(name).map(describe)),
        None => {
            text.extend(find("help").map(describe));
            text.push_str("Commands are:\n");
            for command in COMMANDS.iter().filter(|command| !command.hidden) {
                let _ = writeln!(text, "  {:<11} {}", command.name, command.summary);
            }
        }
    }
    text
}
