//! Reads a source file of Rust as words, signs and groups, without comments, literals, and what is compiled for tests only.
use anyhow::{Result, anyhow};
use proc_macro2::{Delimiter, Spacing, TokenStream, TokenTree};

/// A part of a source file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Token {
    /// A name or a keyword.
    Word(String),
    /// The sign `::`.
    Path,
    /// Another sign.
    Sign(char),
    /// What is between two brackets, with the opening bracket.
    Group(char, Vec<Token>),
}

impl Token {
    /// Returns the name or keyword.
    pub fn word(&self) -> Option<&str> {
        match self {
            Token::Word(word) => Some(word),
            _ => None,
        }
    }
}

/// Returns the tokens of a file.
pub fn of(text: &str) -> Result<Vec<Token>> {
    Ok(tokens(text.parse().map_err(|error| anyhow!("no Rust: {error}"))?))
}

fn tokens(stream: TokenStream) -> Vec<Token> {
    let (mut tokens, mut trees) = (Vec::new(), stream.into_iter().peekable());
    while let Some(tree) = trees.next() {
        match tree {
            TokenTree::Ident(word) => tokens.push(Token::Word(word.to_string())),
            TokenTree::Literal(_) => {}
            TokenTree::Punct(sign) => {
                let is_colon = |tree: &TokenTree| matches!(tree, TokenTree::Punct(other) if other.as_char() == ':');
                let is_path = sign.as_char() == ':' && sign.spacing() == Spacing::Joint;
                let is_path = is_path && trees.next_if(is_colon).is_some();
                tokens.push(if is_path { Token::Path } else { Token::Sign(sign.as_char()) });
            }
            TokenTree::Group(group) => {
                let bracket = match group.delimiter() {
                    Delimiter::Parenthesis => '(',
                    Delimiter::Bracket => '[',
                    Delimiter::Brace | Delimiter::None => '{',
                };
                tokens.push(Token::Group(bracket, self::tokens(group.stream())));
            }
        }
    }
    without_tests(&tokens)
}

/// Removes the items, fields and arms that are compiled only for tests and for fuzzing.
fn without_tests(tokens: &[Token]) -> Vec<Token> {
    let (mut kept, mut rest) = (Vec::new(), tokens);
    while let Some(first) = rest.first() {
        if is_never_there(rest) {
            rest = &rest[2 + item(&rest[2..])..];
        } else {
            kept.push(first.clone());
            rest = &rest[1..];
        }
    }
    kept
}

/// Returns whether an attribute is here whose condition holds in no build without tests.
fn is_never_there(tokens: &[Token]) -> bool {
    let [Token::Sign('#'), Token::Group('[', attribute), ..] = tokens else { return false };
    match &attribute[..] {
        [Token::Word(name), Token::Group('(', condition)] if name == "cfg" => !can_hold(condition),
        _ => false,
    }
}

/// Returns whether a condition can hold in a build without tests.
fn can_hold(condition: &[Token]) -> bool {
    match condition {
        [Token::Word(name), Token::Group('(', inside)] => match &**name {
            "any" => parts(inside).any(can_hold),
            "all" => parts(inside).all(can_hold),
            // Of other conditions than tests it is unknown whether they hold, so their opposite can hold too.
            _ => true,
        },
        _ => !matches!(condition.first().and_then(Token::word), Some("test" | "fuzzing")),
    }
}

/// Returns the parts of a list between its commas.
pub fn parts(tokens: &[Token]) -> impl Iterator<Item = &[Token]> {
    tokens.split(|token| *token == Token::Sign(',')).filter(|part| !part.is_empty())
}

/// Returns the length of the item, field or arm that begins here, with its attributes.
fn item(tokens: &[Token]) -> usize {
    let mut angles = 0;
    for (place, token) in tokens.iter().enumerate() {
        match token {
            Token::Sign('<') => angles += 1,
            Token::Sign('>') if !matches!(tokens[place - 1], Token::Sign('-' | '=')) => angles -= 1,
            Token::Group('{', _) | Token::Sign(';') => return place + 1,
            Token::Sign(',') if angles == 0 => return place + 1,
            _ => {}
        }
    }
    tokens.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        fn add(words: &mut Vec<String>, tokens: &[Token]) {
            for token in tokens {
                match token {
                    Token::Word(word) => words.push(word.clone()),
                    Token::Group(_, inside) => add(words, inside),
                    _ => {}
                }
            }
        }
        let mut words = Vec::new();
        add(&mut words, &of(text).unwrap());
        words
    }

    #[test]
    fn comments_strings_and_characters_are_left_out() {
        let text = "a // b\n/* c /* d */ e */ f \"g\\\" h\" i r#\"j \" k\"# l 'm' n '\\'' o &'p b\"q\" b'r' 1 s";
        assert_eq!(words(text), ["a", "f", "i", "l", "n", "o", "p", "s"]);
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
