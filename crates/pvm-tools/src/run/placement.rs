//! The hosts of a run, and which of them gets which task.

/// The hosts on which tasks are started.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Hosts {
    /// The place argument of `pvm_spawn`; empty: all hosts of the machine.
    place: String,
    /// The names of the hosts, if they get tasks in turn; otherwise empty.
    turn: Vec<String>,
}

impl Hosts {
    /// Each host gets a block of tasks; `place` is the place argument of `pvm_spawn`.
    pub fn in_blocks(place: String) -> Hosts {
        Hosts { place, turn: Vec::new() }
    }

    /// Each of these hosts gets one task in turn. A host that is named several times counts once.
    pub fn in_turns(names: impl IntoIterator<Item = String>) -> Hosts {
        let mut turn: Vec<String> = Vec::new();
        for name in names {
            if !turn.contains(&name) {
                turn.push(name);
            }
        }
        Hosts { place: String::new(), turn }
    }

    /// Returns the number of hosts that get tasks in turn.
    pub fn in_turn(&self) -> Option<i32> {
        (!self.turn.is_empty()).then_some(self.turn.len() as i32)
    }

    /// Returns the place argument for `count` tasks, if `first` tasks of the run were placed before. For hosts in turn,
    /// the list has one entry for each task, so that each entry gets one.
    pub fn place(&self, first: i32, count: i32) -> String {
        if self.turn.is_empty() {
            return self.place.clone();
        }
        let names = self.turn.iter().cycle().skip(first as usize % self.turn.len()).take(count as usize);
        // Even a single name gets a comma, so that it is a list: the tasks may run only on listed hosts.
        names.map(|name| format!("{name},")).collect()
    }

    /// Returns the name of the host of each of `count` tasks, as far as it is known before they are started. `all` are
    /// the hosts of the machine.
    pub fn names(&self, first: i32, count: i32, all: &[String]) -> Vec<String> {
        if !self.turn.is_empty() {
            return self.place(first, count).split_terminator(',').map(str::to_owned).collect();
        }
        let listed: Vec<String> = match self.place.is_empty() {
            true => all.iter().take(count as usize).cloned().collect(),
            false => self.place.split_terminator(',').map(str::to_owned).collect(),
        };
        let (count, entries) = (count as usize, listed.len().max(1));
        let end = |entry: usize| (count * entry).div_ceil(entries);
        let mut blocks: Vec<(String, usize)> = Vec::new();
        for (entry, name) in listed.into_iter().enumerate() {
            let size = end(entry + 1) - end(entry);
            match blocks.iter_mut().find(|(known, _)| *known == name) {
                Some((_, known)) => *known += size,
                None => blocks.push((name, size)),
            }
        }
        blocks.into_iter().flat_map(|(name, size)| std::iter::repeat_n(name, size)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn hosts_get_blocks_or_turns() {
        let blocks = Hosts::in_blocks("a,b,b,".into());
        assert_eq!(blocks.names(0, 6, &[]), words("a a b b b b"));
        assert_eq!((blocks.place(3, 6).as_str(), blocks.in_turn()), ("a,b,b,", None));
        let turns = Hosts::in_turns(words("a b b c"));
        assert_eq!((turns.place(0, 4).as_str(), turns.in_turn()), ("a,b,c,a,", Some(3)));
        assert_eq!(turns.names(4, 4, &[]), words("b c a b"));
        assert_eq!(Hosts::default().names(0, 5, &words("x y")), words("x x x y y"));
        assert_eq!(Hosts::default().names(0, 1, &words("x y z")), words("x"));
    }
}
