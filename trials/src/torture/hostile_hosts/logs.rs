//! Checks that an honest daemon's log does not become long, however much the hostile hosts send.
use anyhow::{Result, ensure};
use std::collections::BTreeMap;

/// The most lines that one life of a hostile host may cause: for example about its joining, a rejection, and why it
/// left.
const LINES_A_LIFE_MAX: usize = 24;
/// The most lines that are not caused by hostile hosts.
const LINES_MAX: usize = 60;
/// The number of kinds of lines that are shown.
const KINDS_SHOWN: usize = 12;

/// Checks a log. Returns how many lines of each kind there are.
pub fn look(host: &str, log: &str, lives: usize) -> Result<String> {
    let own: Vec<&str> = log.lines().filter_map(own_line).collect();
    let mut kinds: BTreeMap<String, usize> = BTreeMap::new();
    own.iter().for_each(|line| *kinds.entry(without_numbers(line)).or_default() += 1);
    let mut kinds: Vec<(String, usize)> = kinds.into_iter().collect();
    kinds.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let shown: Vec<String> = kinds.iter().take(KINDS_SHOWN).map(|(kind, count)| format!("{count} {kind}")).collect();
    let text =
        format!("log        {} lines of {host}'s own for {lives} lives:\n    {}", own.len(), shown.join("\n    "));
    ensure!(own.len() <= LINES_MAX + LINES_A_LIFE_MAX * lives, "{text}");
    Ok(text)
}

/// Returns the text of a line of the daemon itself: `[t80040000] MM/DD hh:mm:ss TEXT`. In a line of a task's output,
/// the text begins with a tid.
fn own_line(line: &str) -> Option<&str> {
    let text = line.splitn(4, ' ').nth(3)?;
    (!text.starts_with("[t")).then_some(text)
}

/// Replaces numbers, tids and addresses, since they do not distinguish causes.
fn without_numbers(line: &str) -> String {
    let plain =
        |word: &str| if word.bytes().any(|byte| byte.is_ascii_digit()) { "#".to_owned() } else { word.to_owned() };
    line.split(' ').map(plain).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_lines_is_noticed() {
        let line = "[t80040000] 11/21 10:00:00 link to t80000: malformed frame\n";
        assert!(look("alfa", &line.repeat(LINES_MAX), 0).is_ok());
        assert!(look("alfa", &line.repeat(LINES_MAX + LINES_A_LIFE_MAX + 1), 1).is_err());
        let output = "[t80040000] 11/21 10:00:00 [t80001] said by a task\n";
        assert!(look("alfa", &output.repeat(10_000), 0).is_ok());
    }
}
