//! Lists of host names as Slurm and MPI write them: `n[01-03,7],login`.

/// The most names that a list may have: as many as a machine can have hosts.
pub const NAMES_MAX: usize = 4095;
/// The longest name, in bytes, as in the domain name system.
pub const NAME_BYTES_MAX: usize = 255;
/// The most digits of a number in a bracket.
const DIGITS_MAX: usize = 20;

/// Why a list cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RangeError {
    /// A bracket is not closed, not opened, or empty.
    Bracket(String),
    /// The text in a bracket is neither a number nor a range of numbers.
    Number(String),
    /// A name is empty or longer than [`NAME_BYTES_MAX`].
    Name(String),
    /// The list has more than [`NAMES_MAX`] names.
    TooMany,
}

impl std::fmt::Display for RangeError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            RangeError::Bracket(word) => write!(f, "'{word}' has a bracket that is not closed, not opened or empty"),
            RangeError::Number(word) => write!(f, "'{word}' is neither a number nor a range of numbers"),
            RangeError::Name(word) => write!(f, "'{word}' is not a host name"),
            RangeError::TooMany => write!(f, "more than {NAMES_MAX} hosts"),
        }
    }
}
impl std::error::Error for RangeError {}

/// Returns the names of a list, in the order of the list. Brackets hold numbers and ranges; each number of a range is
/// padded to the width of the range's first number. A bracket with a colon is an IPv6 address and stays as it is.
pub fn expand(list: &str) -> Result<Vec<String>, RangeError> {
    let mut names = Vec::new();
    for word in split(list) {
        names.extend(expand_word(word)?);
        if names.len() > NAMES_MAX {
            return Err(RangeError::TooMany);
        }
    }
    Ok(names)
}

/// Splits a list at the commas that are outside of brackets.
fn split(list: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0_usize;
    list.split(move |character| {
        match character {
            '[' => depth += 1,
            ']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        character == ',' && depth == 0
    })
}

fn expand_word(word: &str) -> Result<Vec<String>, RangeError> {
    let mut names = vec![String::new()];
    let mut rest = word;
    while let Some(at) = rest.find(['[', ']']) {
        let broken = || RangeError::Bracket(word.to_owned());
        let (plain, bracket) = rest.split_at(at);
        let (inside, after) = bracket.strip_prefix('[').and_then(|text| text.split_once(']')).ok_or_else(broken)?;
        let choices = match inside {
            _ if inside.is_empty() || inside.contains('[') => return Err(broken()),
            // An address contains no comma, and code that removes the brackets would read this text as two hosts.
            _ if inside.contains(':') && inside.contains(',') => return Err(RangeError::Name(bracket.to_owned())),
            _ if inside.contains(':') => vec![format!("[{inside}]")],
            _ => numbers(inside)?,
        };
        if names.len() * choices.len() > NAMES_MAX {
            return Err(RangeError::TooMany);
        }
        let longer = |name: &String| choices.iter().map(|choice| format!("{name}{plain}{choice}")).collect::<Vec<_>>();
        names = names.iter().flat_map(longer).collect();
        check(&names, word)?;
        rest = after;
    }
    names.iter_mut().for_each(|name| name.push_str(rest));
    match names.iter().any(String::is_empty) {
        true => Err(RangeError::Name(word.to_owned())),
        false => check(&names, word).map(|()| names),
    }
}

/// Checks the lengths of names, so that the names of a word with many brackets cannot grow without limit.
fn check(names: &[String], word: &str) -> Result<(), RangeError> {
    match names.iter().any(|name| name.len() > NAME_BYTES_MAX) {
        true => Err(RangeError::Name(word.to_owned())),
        false => Ok(()),
    }
}

/// Expands the text in a bracket, such as `1,3,05-07`.
fn numbers(inside: &str) -> Result<Vec<String>, RangeError> {
    let mut result = Vec::new();
    for part in inside.split(',') {
        let wrong = || RangeError::Number(part.to_owned());
        let number = |text: &str| {
            let digits = (1..=DIGITS_MAX).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
            text.parse::<u32>().ok().filter(|_| digits).ok_or_else(wrong)
        };
        let (low, high) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (number(low)?, number(high)?);
        if first > last {
            return Err(wrong());
        }
        if (last - first) as usize >= NAMES_MAX - result.len().min(NAMES_MAX) {
            return Err(RangeError::TooMany);
        }
        let width = low.len();
        result.extend((first..=last).map(|number| format!("{number:0width$}")));
    }
    Ok(result)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ranges_and_lists_become_names() {
        for (list, names) in [
            ("a", "a"),
            ("a,b", "a b"),
            ("n[01-03]", "n01 n02 n03"),
            ("n[1,3,5-7]", "n1 n3 n5 n6 n7"),
            ("n[8-11],login", "n8 n9 n10 n11 login"),
            ("r[1-2]n[1-2]-ib", "r1n1-ib r1n2-ib r2n1-ib r2n2-ib"),
            ("n[098-101]", "n098 n099 n100 n101"),
            ("[::1],x", "[::1] x"),
            ("10.0.0.[1-2]", "10.0.0.1 10.0.0.2"),
        ] {
            assert_eq!(expand(list).unwrap().join(" "), names, "{list}");
        }
    }

    #[test]
    fn a_malformed_list_is_an_error() {
        for list in ["n[", "n]", "n[]", "n[1", "n1]", "n[[1]]", "n[1-2"] {
            assert!(matches!(expand(list), Err(RangeError::Bracket(_))), "{list}");
        }
        for list in
            ["n[a]", "n[1-]", "n[2-1]", "n[+1]", "n[1,,2]", "n[1-2-3]", "n[99999999999]", "n[000000000000000000001]"]
        {
            assert!(matches!(expand(list), Err(RangeError::Number(_))), "{list}");
        }
        for list in ["", ",", "a,", "a,,b", "[::1,2]", "n[1:2,3]"] {
            assert!(matches!(expand(list), Err(RangeError::Name(_))), "{list}");
        }
        assert!(matches!(expand(&"x".repeat(NAME_BYTES_MAX + 1)), Err(RangeError::Name(_))));
    }

    #[test]
    fn a_list_has_at_most_as_many_names_as_a_machine_has_hosts() {
        assert_eq!(expand("n[1-4095]").unwrap().len(), NAMES_MAX);
        for list in ["n[1-4096]", "n[1-4095],m", "n[1-100]m[1-100]", "n[0-4294967295]", "n[1-3000,1-3000]"] {
            assert_eq!(expand(list), Err(RangeError::TooMany), "{list}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_an_error_or_a_bounded_list(list in "[a-c0-9\\[\\],:-]{0,40}") {
            if let Ok(names) = expand(&list) {
                prop_assert!(names.len() <= NAMES_MAX);
                prop_assert!(names.iter().all(|name| !name.is_empty() && name.len() <= NAME_BYTES_MAX));
            }
        }

        #[test]
        fn a_range_is_its_numbers_in_order(low in 0_u32..2000, more in 0_u32..2000, width in 1_usize..6) {
            let names = expand(&format!("n[{low:0width$}-{}]", low + more)).unwrap();
            let expected: Vec<String> = (low..=low + more)
                .map(|number| format!("n{number:0width$}", width = width.max(low.to_string().len())))
                .collect();
            prop_assert_eq!(names, expected);
        }
    }
}
