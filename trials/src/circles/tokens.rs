//! Reads a source file of Rust as words and signs, without comments, strings, and what is compiled for tests only.

/// A part of a source file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Token {
    /// A name or a keyword.
    Word(String),
    /// The sign `::`.
    Path,
    /// Another sign.
    Sign(char),
}

impl Token {
    /// Returns whether the token is this name or keyword.
    pub fn is_word(&self, text: &str) -> bool {
        matches!(self, Token::Word(word) if word == text)
    }

    /// Returns the name or keyword.
    pub fn word(&self) -> Option<&str> {
        match self {
            Token::Word(word) => Some(word),
            _ => None,
        }
    }
}

/// Returns the tokens of a file.
pub fn of(text: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let bytes = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            comment(rest)
        } else if let Some(bytes) = string(rest) {
            bytes
        } else if first == '\'' {
            character(rest)
        } else if rest.starts_with("::") {
            tokens.push(Token::Path);
            2
        } else if is_part(first) {
            let bytes = rest.find(|other| !is_part(other)).unwrap_or(rest.len());
            tokens.push(Token::Word(rest[..bytes].to_owned()));
            bytes
        } else {
            if !first.is_whitespace() {
                tokens.push(Token::Sign(first));
            }
            first.len_utf8()
        };
        rest = &rest[bytes..];
    }
    tokens
}

fn is_part(one: char) -> bool {
    one.is_alphanumeric() || one == '_'
}

/// Returns the length of the comment at the start of the text. Comments nest.
fn comment(text: &str) -> usize {
    let mut depth = 0;
    for (place, _) in text.match_indices(['/', '*']) {
        if text[place..].starts_with("/*") {
            depth += 1;
        } else if text[place..].starts_with("*/") {
            depth -= 1;
            if depth == 0 {
                return place + 2;
            }
        }
    }
    text.len()
}

/// Returns the length of the string at the start of the text, if a string is there.
fn string(text: &str) -> Option<usize> {
    let prefix = text.find(|one: char| !matches!(one, 'b' | 'c' | 'r'))?;
    let after = &text[prefix..];
    if text[..prefix].ends_with('r') {
        let fences = after.find(|one| one != '#')?;
        let body = after[fences..].strip_prefix('"')?;
        let end = format!("\"{}", &after[..fences]);
        return Some(body.find(&end).map_or(text.len(), |place| prefix + fences + 1 + place + end.len()));
    }
    let body = after.strip_prefix('"')?;
    let mut escaped = false;
    let end = body.find(|one| {
        let ends = one == '"' && !escaped;
        escaped = one == '\\' && !escaped;
        ends
    });
    Some(end.map_or(text.len(), |place| prefix + 1 + place + 1))
}

/// Returns the length of the character at the start of the text, or 1 if a lifetime is there.
fn character(text: &str) -> usize {
    let mut parts = text[1..].char_indices();
    match parts.next() {
        Some((_, '\\')) => text[3..].find('\'').map_or(text.len(), |place| 3 + place + 1),
        Some(_) => parts.next().filter(|&(_, second)| second == '\'').map_or(1, |(place, _)| 1 + place + 1),
        None => 1,
    }
}

/// Removes the items, fields and arms that are compiled only for tests and for fuzzing.
pub fn without_tests(tokens: &[Token]) -> Vec<Token> {
    let mut kept = Vec::new();
    let mut place = 0;
    while place < tokens.len() {
        match condition(&tokens[place..]) {
            Some(false) => place = after_item(tokens, after_bracket(tokens, place + 1)),
            _ => {
                kept.push(tokens[place].clone());
                place += 1;
            }
        }
    }
    kept
}

/// Returns whether the condition at the start of these tokens can hold in a build without tests, if an attribute with
/// a condition is there.
fn condition(tokens: &[Token]) -> Option<bool> {
    let [Token::Sign('#'), Token::Sign('['), word, Token::Sign('('), inside @ ..] = tokens else { return None };
    word.is_word("cfg").then(|| holds(inside).0)
}

/// Returns whether a condition can hold in a build without tests, and its number of tokens.
fn holds(tokens: &[Token]) -> (bool, usize) {
    let name = tokens.first().and_then(Token::word).unwrap_or_default();
    if tokens.get(1) != Some(&Token::Sign('(')) {
        let end = tokens.iter().position(|token| matches!(token, Token::Sign(',' | ')'))).unwrap_or(tokens.len());
        return (!matches!(name, "test" | "fuzzing"), end);
    }
    let (mut any, mut all, mut place) = (false, true, 2);
    while place < tokens.len() && tokens[place] != Token::Sign(')') {
        let (one, length) = holds(&tokens[place..]);
        (any, all) = (any || one, all && one);
        place += length;
        place += usize::from(tokens.get(place) == Some(&Token::Sign(',')));
    }
    // Of other conditions than tests it is unknown whether they hold, so their opposite can hold too.
    let can_hold = match name {
        "any" => any,
        "all" => all,
        _ => true,
    };
    (can_hold, place + 1)
}

/// Returns the place after the closing bracket that belongs to the opening bracket at this place.
pub fn after_bracket(tokens: &[Token], start: usize) -> usize {
    let mut depth = 0;
    for (place, token) in tokens.iter().enumerate().skip(start) {
        match token {
            Token::Sign('(' | '[' | '{') => depth += 1,
            Token::Sign(')' | ']' | '}') => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return place + 1;
        }
    }
    tokens.len()
}

/// Returns the place after the item, field or arm that begins at this place, with its attributes.
fn after_item(tokens: &[Token], start: usize) -> usize {
    let mut place = start;
    let mut angles = 0;
    while place < tokens.len() {
        match tokens[place] {
            Token::Sign('{') => return after_bracket(tokens, place),
            Token::Sign('(' | '[') => {
                place = after_bracket(tokens, place);
                continue;
            }
            Token::Sign(')' | ']' | '}') => return place,
            Token::Sign('<') => angles += 1,
            Token::Sign('>') if !matches!(tokens[place - 1], Token::Sign('-' | '=')) => angles -= 1,
            Token::Sign(';') => return place + 1,
            Token::Sign(',') if angles == 0 => return place + 1,
            _ => {}
        }
        place += 1;
    }
    place
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        without_tests(&of(text)).iter().filter_map(Token::word).map(str::to_owned).collect()
    }

    #[test]
    fn comments_strings_and_characters_are_left_out() {
        let text = "a // b\n/* c /* d */ e */ f \"g\\\" h\" i r#\"j \" k\"# l 'm' n '\\'' o &'p b\"q\" b'r' s";
        assert_eq!(words(text), ["a", "f", "i", "l", "n", "o", "p", "b", "s"]);
    }

    #[test]
    fn what_is_for_tests_only_is_left_out() {
        assert_eq!(words("#[cfg(test)]\n#[path = \"x\"]\nmod a;\nmod b;"), ["mod", "b"]);
        assert_eq!(words("#[cfg(any(test, fuzzing))] pub fn a<B, C>() -> D { e } f"), ["f"]);
        assert_eq!(words("#[cfg(all(test, not(loom)))] mod a { b } c"), ["c"]);
        assert_eq!(words("struct A { #[cfg(test)] b: C<D, E>, f: G }"), ["struct", "A", "f", "G"]);
        for kept in ["not(test)", "any(test, loom)", "not(loom)", "target_os = \"x\""] {
            assert!(words(&format!("#[cfg({kept})] mod last;")).contains(&"last".to_owned()), "{kept}");
        }
    }
}
