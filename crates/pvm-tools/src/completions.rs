//! `pvm completions`: the completions of the command line, for shells.
use crate::cli::{self, Cli, CompletionShell};
use clap::CommandFactory;
use clap_complete::Shell;
use std::io::Write;
use std::process::ExitCode;

/// Prints the completions.
pub fn run(arguments: &cli::Completions) -> ExitCode {
    match std::io::stdout().write_all(&script(arguments.shell)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

fn script(shell: CompletionShell) -> Vec<u8> {
    let shell = match shell {
        CompletionShell::Bash => Shell::Bash,
        CompletionShell::Zsh => Shell::Zsh,
        CompletionShell::Fish => Shell::Fish,
    };
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "pvm", &mut text);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_shell_gets_the_commands_and_their_options() {
        for shell in [CompletionShell::Bash, CompletionShell::Zsh, CompletionShell::Fish] {
            let text = String::from_utf8(script(shell)).unwrap();
            for word in ["doctor", "output-dir", "dry-run", "jobs", "bind-to"] {
                assert!(text.contains(word), "{shell:?}: {word}");
            }
        }
    }
}
