//! Suggests commands for mistyped words.

/// The maximum number of wrong letters in a word.
const MISTAKES_MAX: usize = 2;
/// The number of letters that a word must have for each wrong letter.
const LETTERS_PER_MISTAKE: usize = 2;
/// Words that other systems, or the command line of `pvm`, use, each with the console command of the same meaning.
const MEANINGS: [(&str, &str); 13] = [
    ("run", "spawn"),
    ("up", "add"),
    ("down", "delete"),
    ("top", "ps"),
    ("list", "ps"),
    ("tasks", "ps"),
    ("status", "conf"),
    ("hosts", "conf"),
    ("config", "conf"),
    ("stop", "halt"),
    ("shutdown", "halt"),
    ("exit", "quit"),
    ("remove", "delete"),
];

/// Returns the command for a name that other systems use, or else the most similar name, if one is similar enough.
pub fn nearest(word: &str, names: &[String]) -> Option<String> {
    let meaning = MEANINGS.iter().find(|(other, _)| *other == word).map(|(_, name)| (*name).to_owned());
    if let Some(name) = meaning.filter(|name| names.contains(name)) {
        return Some(name);
    }
    let mistakes_max = MISTAKES_MAX.min(word.chars().count() / LETTERS_PER_MISTAKE);
    let like = names.iter().map(|name| (distance(word, name), name));
    // The word itself is never suggested. It can be among the names: as an alias whose command does not exist.
    like.filter(|(distance, _)| (1..=mistakes_max).contains(distance)).min().map(|(_, name)| name.clone())
}

/// Returns how many letters must be inserted, removed, changed, or swapped with a neighbour to turn one word into the
/// other.
fn distance(one: &str, other: &str) -> usize {
    let (one, other): (Vec<char>, Vec<char>) = (one.chars().collect(), other.chars().collect());
    let mut rows = vec![(0..=other.len()).collect::<Vec<_>>()];
    for (i, letter) in one.iter().enumerate() {
        let (above, mut row) = (&rows[i], vec![i + 1]);
        for (j, wanted) in other.iter().enumerate() {
            let changed = above[j] + usize::from(letter != wanted);
            let mut least = changed.min(above[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && *letter == other[j - 1] && one[i - 1] == *wanted {
                least = least.min(rows[i - 1][j - 1] + 1);
            }
            row.push(least);
        }
        rows.push(row);
    }
    rows[one.len()][other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mistyped_word_is_known_again_and_another_is_not() {
        let names = ["halt", "spawn", "ps", "conf", "version", "quit"].map(str::to_owned);
        for (word, name) in [
            ("hlat", "halt"),
            ("spwan", "spawn"),
            ("pss", "ps"),
            ("verison", "version"),
            ("qiut", "quit"),
            ("top", "ps"),
            ("shutdown", "halt"),
            ("config", "conf"),
        ] {
            assert_eq!(nearest(word, &names).as_deref(), Some(name), "{word}");
        }
        for word in ["", "x", "hosts.txt", "prog", "remove", "ünd", "halt"] {
            assert_eq!(nearest(word, &names), None, "{word}");
        }
    }

    #[test]
    fn swapped_letters_are_one_mistake() {
        assert_eq!(distance("hlat", "halt"), 1);
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!(distance("same", "same"), 0);
    }
}
