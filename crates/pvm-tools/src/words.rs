//! Splits a line of the console into words.

/// The error for a quote that is not closed, or for a backslash at the end of the line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unmatched(pub char);

impl std::fmt::Display for Unmatched {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "unmatched {}", self.0)
    }
}

/// Splits a line at blanks. Between single or double quotes every character stands for itself; outside quotes a
/// backslash quotes the next character. A word that begins with `#` begins a comment.
pub fn split(line: &str) -> Result<Vec<String>, Unmatched> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut characters = line.chars();
    while let Some(character) = characters.next() {
        match character {
            '#' if word.is_none() => break,
            '"' | '\'' => {
                let word = word.get_or_insert_default();
                loop {
                    match characters.next() {
                        Some(inner) if inner == character => break,
                        Some(inner) => word.push(inner),
                        None => return Err(Unmatched(character)),
                    }
                }
            }
            '\\' => match characters.next() {
                Some(next) => word.get_or_insert_default().push(next),
                None => return Err(Unmatched('\\')),
            },
            blank if blank.is_ascii_whitespace() => words.extend(word.take()),
            other => word.get_or_insert_default().push(other),
        }
    }
    words.extend(word);
    Ok(words)
}

/// Returns the value of a decimal number like C's `atoi`: leading blanks, a sign, digits. Anything after the digits is
/// ignored, and a text without digits is 0.
pub fn leading_number(text: &str) -> i32 {
    let text = text.trim_start();
    let (negative, digits) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
    let value: i64 = match digits[..end].parse() {
        Ok(value) => value,
        Err(_) if end > 0 => i64::MAX,
        Err(_) => 0,
    };
    let value = if negative { -value } else { value };
    value.clamp(i32::MIN.into(), i32::MAX.into()) as i32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        split(line).unwrap()
    }

    #[test]
    fn blanks_and_tabs_part_words() {
        assert_eq!(words("  echo\ta  b "), ["echo", "a", "b"]);
        assert!(words("").is_empty());
        assert!(words("   ").is_empty());
    }

    #[test]
    fn quotes_keep_blanks_and_each_other() {
        assert_eq!(words(r#"echo "a'b" 'a"b'"#), ["echo", "a'b", "a\"b"]);
        assert_eq!(words(r#"echo a"b c"d"#), ["echo", "ab cd"]);
        assert_eq!(words(r#"echo "" '' z"#), ["echo", "", "", "z"]);
    }

    #[test]
    fn a_backslash_quotes_outside_of_quotes_only() {
        assert_eq!(words(r"echo a\ b x\y"), ["echo", "a b", "xy"]);
        assert_eq!(words(r#"echo "a\nb" 'a\'"#), ["echo", r"a\nb", r"a\"]);
    }

    #[test]
    fn a_comment_begins_with_a_word() {
        assert_eq!(words("echo a #b c"), ["echo", "a"]);
        assert_eq!(words("echo a#b"), ["echo", "a#b"]);
        assert_eq!(words(r"echo \#b"), ["echo", "#b"]);
        assert!(words("# all").is_empty());
    }

    #[test]
    fn what_is_not_closed_is_named() {
        assert_eq!(split("echo \"a b").unwrap_err().to_string(), "unmatched \"");
        assert_eq!(split("echo 'a").unwrap_err().to_string(), "unmatched '");
        assert_eq!(split(r"echo a\").unwrap_err().to_string(), r"unmatched \");
        assert_eq!(split(r#"echo "a\"b""#).unwrap_err(), Unmatched('"'));
    }

    #[test]
    fn numbers_are_read_as_far_as_they_go() {
        assert_eq!(leading_number("12x"), 12);
        assert_eq!(leading_number("0x2"), 0);
        assert_eq!(leading_number("-9"), -9);
        assert_eq!(leading_number("foo"), 0);
        assert_eq!(leading_number("99999999999999999999"), i32::MAX);
    }
}
