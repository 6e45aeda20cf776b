//! The daemon of a host: starts tasks, introduces them to one another, notices their deaths.
//!
//! One thread does everything, with one loop around `epoll`. `pvm_core::machine` decides what is to be done; this program
//! passes events to it and executes its actions. What may wait for a file system is done by other threads, which look for
//! programs, start processes, and write the log.
#![forbid(unsafe_code)]

mod addresses;
mod architecture;
mod arguments;
mod background_command;
mod broadcast;
mod children;
mod clock;
mod connections;
mod core_dumps;
mod daemon;
mod direct_links;
mod fabric_complaints;
mod frame_budget;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod groups;
mod host_links;
mod log;
mod looks;
mod name_lookups;
mod processes;
mod program_search;
mod program_searches;
mod refused_datagrams;
mod resolve;
mod result;
mod route;
mod settings;
mod slave;
mod socket_directory;
mod source;
mod start;
mod terminal;
mod watchdog;

use arguments::{Command, Options};
use processes::spawner::{DESCRIPTORS_PER_TASK, OWN_DESCRIPTORS};
use result::Result;
use settings::Settings;
use std::io::Write;
use std::process::ExitCode;

/// Runs the program `pvmd`.
pub fn main() -> ExitCode {
    let command = match arguments::parse(std::env::args_os().skip(1)) {
        Ok(command) => command,
        Err(error) => {
            eprintln!("pvmd: {error}\n{}", arguments::USAGE);
            return ExitCode::from(2);
        }
    };
    pvm_descriptor::trust_process();
    // `pgrep` and `top` would otherwise call a daemon "exe" that has started itself again as /proc/self/exe.
    let _ = rustix::thread::set_name(c"pvmd");
    let result = match command {
        Command::Join(_, slave) if !slave.in_foreground => {
            return slave::front(std::env::args_os().skip(1)).unwrap_or_else(|error| {
                eprintln!("pvmd: {error}");
                ExitCode::FAILURE
            });
        }
        Command::Join(options, slave) => slave::join(&options, slave),
        Command::StartByHand(host, login, command) => {
            start::manual::ask(&host, login.as_deref(), &command).map_err(Into::into)
        }
        Command::Help => say(arguments::HELP),
        Command::Version => say(&arguments::version()),
        Command::Test => say(&arguments::test(std::env::args().skip(1))),
        Command::Resolve(names) => {
            resolve::answer(&names, &std::sync::Mutex::new(std::io::stdout())).map_err(Into::into)
        }
        Command::Keep(kept) => kept.keep().map_err(Into::into),
        Command::Serve(options) => serve(&options),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("pvmd: {error}{}", remedy(&*error));
            ExitCode::FAILURE
        }
    }
}

/// Returns advice on a failed start, if the error itself contains none.
fn remedy(error: &dyn std::error::Error) -> String {
    let full = std::io::Error::from(rustix::io::Errno::MFILE).to_string();
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).maximum;
    match limit.filter(|_| error.to_string().contains(&full)) {
        Some(limit) => format!(
            "\nThe limit of open files is {limit} (ulimit -n): the daemon needs {OWN_DESCRIPTORS} for itself, and \
             {DESCRIPTORS_PER_TASK} for each task. Raise it."
        ),
        None => String::new(),
    }
}

fn say(text: &str) -> Result<()> {
    std::io::stdout().write_all(text.as_bytes())?;
    Ok(())
}

/// Becomes the daemon. The function ends when the machine has halted.
fn serve(options: &Options) -> Result<()> {
    core_dumps::leave_memory_out();
    // Tasks must not inherit descriptors that the program that started this daemon left open.
    close_fds::set_fds_cloexec(3, &[]);
    let mut settings = Settings::of_master(options)?;
    let socket_directory = socket_directory::SocketDirectory::create(&settings.places)?;
    settings.use_hostfile();
    let log = log::Log::open(&settings.places.files, &settings.temporary, settings.log_bytes_max);
    if !settings.needs_terminal() {
        // This fails for the leader of a process group: a daemon that a shell has started in the foreground stays
        // there.
        let _ = rustix::process::setsid();
    }
    let _ = std::env::set_current_dir(&settings.program_search.directory);
    let connector = settings.listen()?;
    let mut daemon = daemon::Daemon::new(settings, socket_directory, log, connector, daemon::catch_signals()?)?;
    daemon.announce()?;
    daemon.run()
}
