//! Starts by hand (`so=ms`): a person types the command on the other host, and types the command's answer here.
//!
//! This runs in a separate process, since the daemon does not wait for people.
use rustix::fs::FlockOperation;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};

/// Asks the person at the terminal to run `command` on `host`, and prints the answer to standard output. Locks the
/// terminal, so that there is one dialogue at a time.
pub fn ask(host: &str, login: Option<&str>, command: &str) -> io::Result<()> {
    let terminal = File::options().read(true).write(true).open("/dev/tty").map_err(|error| {
        let text = "so=ms needs a terminal: start the first daemon in the foreground (pvmd HOSTFILE)";
        io::Error::new(error.kind(), text)
    })?;
    rustix::fs::flock(&terminal, FlockOperation::LockExclusive)?;
    let answer = dialogue(&mut BufReader::new(&terminal), &mut &terminal, host, login, command)?;
    println!("{answer}");
    Ok(())
}

fn dialogue(
    input: &mut impl BufRead,
    output: &mut impl Write,
    host: &str,
    login: Option<&str>,
    command: &str,
) -> io::Result<String> {
    let login = login.map_or_else(String::new, |login| format!(" as {login}"));
    write!(output, "*** Manual startup ***\nLogin to \"{host}\"{login} and type:\n{command}\n\nType response: ")?;
    output.flush()?;
    let mut answer = String::new();
    input.read_line(&mut answer)?;
    writeln!(output, "Thanks")?;
    Ok(answer.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_dialogue_is_that_of_pvm() {
        let mut said = Vec::new();
        let answer = dialogue(&mut " ddpro<2316> \n".as_bytes(), &mut said, "h2", None, "pvmd -S").unwrap();
        assert_eq!(answer, "ddpro<2316>");
        let said = String::from_utf8(said).unwrap();
        let text = "*** Manual startup ***\nLogin to \"h2\" and type:\npvmd -S\n\nType response: Thanks\n";
        assert_eq!(said, text);
    }
}
