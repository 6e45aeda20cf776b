//! Hosts by name: lists, ranges and hostfiles.
use crate::shape;
use pvm_core::hostfile::{self, HostLine, Hostfile};
use std::path::Path;

/// A host that is to be in the machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// The line for `pvm_addhosts`.
    pub line: String,
    /// The host's name.
    pub name: String,
    /// How many tasks the host gets in each round over the hosts, if the user gave a number.
    pub slots: Option<u32>,
}

impl Wanted {
    fn of(host: &HostLine) -> Wanted {
        Wanted { line: host.to_string(), name: host.name().to_owned(), slots: host.options.slots }
    }
}

/// Reads the hosts of words such as `a`, `b,c`, `n[1-4]`, `"d lo=joe"`.
pub fn of_words(words: &[String]) -> Result<Vec<Wanted>, String> {
    let mut wanted = Vec::new();
    for word in words {
        let explain = |error: hostfile::LineError| format!("{word}: {error}");
        for line in hostfile::lines(word).map_err(explain)? {
            eprint!("{}", shape::remarks(std::slice::from_ref(&line)));
            wanted.push(Wanted::of(&hostfile::parse_host(&line).map_err(explain)?));
        }
    }
    Ok(wanted)
}

/// Returns the hosts of a hostfile that are started at once, without those that are only described for later.
pub fn of_file(path: &Path) -> Result<Vec<Wanted>, String> {
    let name = path.display().to_string();
    let text = pvm_link::read_bounded(path, hostfile::FILE_BYTES_MAX).map_err(|error| format!("{name}: {error}"))?;
    let file = Hostfile::parse(&String::from_utf8_lossy(&text));
    let costs_a_host = |error: &hostfile::LineError| !matches!(error, hostfile::LineError::BadSpeed(_));
    let complaints = file.complaints(&name);
    if file.errors.iter().any(|(_, error)| costs_a_host(error)) {
        return Err(complaints.join("\n"));
    }
    complaints.iter().for_each(|complaint| eprintln!("{complaint}"));
    Ok(file.hosts.iter().filter(|host| !host.later).map(Wanted::of).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    #[test]
    fn words_are_hosts_lists_and_lines() {
        let wanted = of_words(&words(&["a", "b,n[1-2]:2", "$d lo=joe ip=10.0.0.1"])).unwrap();
        let lines: Vec<&str> = wanted.iter().map(|host| host.line.as_str()).collect();
        assert_eq!(lines, ["a", "b", "n1 slots=2", "n2 slots=2", "$d lo=joe ip=10.0.0.1"]);
        assert_eq!(wanted[3].slots, Some(2));
        assert!(of_words(&words(&["a b"])).is_err_and(|text| text.contains("'b'")));
    }
}
