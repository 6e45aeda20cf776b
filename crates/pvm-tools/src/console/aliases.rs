//! The aliases that the user has defined for commands.
use std::collections::{BTreeMap, BTreeSet};

/// The error for aliases that refer to one another in a circle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Loop;

/// The aliases by name.
#[derive(Debug, Default)]
pub struct Aliases(BTreeMap<String, Vec<String>>);

impl Aliases {
    /// Defines or replaces an alias.
    pub fn define(&mut self, name: &str, words: &[String]) {
        self.0.insert(name.to_owned(), words.to_vec());
    }

    /// Removes an alias.
    pub fn forget(&mut self, name: &str) {
        self.0.remove(name);
    }

    /// Returns the list of aliases, one on each line.
    pub fn list(&self) -> String {
        self.0.iter().map(|(name, words)| format!("{name}\t{}\n", words.join(" "))).collect()
    }

    /// Returns the names of the aliases.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// Replaces the first word by its meaning, and repeats this until the first word is no alias. If the meaning of an
    /// alias begins with the alias's own name, that name means the command and is not replaced again.
    pub fn resolve(&self, mut words: Vec<String>) -> Result<Vec<String>, Loop> {
        let mut seen = BTreeSet::new();
        while let Some((name, meaning)) = words.first().and_then(|word| self.0.get_key_value(word)) {
            if !seen.insert(name) {
                return Err(Loop);
            }
            words.splice(..1, meaning.iter().cloned());
            if meaning.first() == Some(name) {
                break;
            }
        }
        Ok(words)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::words::split;

    fn aliases(lines: &[&str]) -> Aliases {
        let mut aliases = Aliases::default();
        for line in lines {
            let words = split(line).unwrap();
            aliases.define(&words[0], &words[1..]);
        }
        aliases
    }

    #[test]
    fn aliases_are_replaced_until_a_command_stands_there() {
        let aliases = aliases(&["c conf", "e echo hi", "f e you", "echo echo pre"]);
        assert_eq!(aliases.resolve(split("c").unwrap()).unwrap(), ["conf"]);
        assert_eq!(aliases.resolve(split("f there").unwrap()).unwrap(), ["echo", "pre", "hi", "you", "there"]);
        assert_eq!(aliases.resolve(split("ps c").unwrap()).unwrap(), ["ps", "c"]);
        assert_eq!(aliases.list(), "c\tconf\ne\techo hi\necho\techo pre\nf\te you\n");
    }

    #[test]
    fn a_loop_is_found() {
        let mut aliases = aliases(&["a b", "b a"]);
        assert_eq!(aliases.resolve(split("a").unwrap()), Err(Loop));
        aliases.forget("a");
        assert_eq!(aliases.resolve(split("b").unwrap()).unwrap(), ["a"]);
    }
}
