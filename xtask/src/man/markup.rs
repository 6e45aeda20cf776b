//! The markup of the texts of pages.
/// A part of a text.
#[derive(Debug, PartialEq, Eq)]
pub enum Block {
    /// Running text.
    Paragraph(Vec<Span>),
    /// An item of a list.
    Item(Vec<Span>),
    /// A term and what it means.
    Term(Vec<Span>, Vec<Span>),
    /// Lines that are shown as they are.
    Verbatim(Vec<String>),
}

/// A piece of a line.
#[derive(Debug, PartialEq, Eq)]
pub enum Span {
    /// Plain text.
    Roman(String),
    /// A name, or text that is typed.
    Bold(String),
    /// A placeholder.
    Italic(String),
}

/// The text between a term and its description.
const TERM_END: &str = " :: ";
/// The indent of verbatim lines.
const VERBATIM_INDENT: &str = "    ";
/// The indent of the further lines of an item.
const ITEM_INDENT: &str = "  ";

/// Returns the pages that a text names, with their sections.
pub fn references(text: &str) -> Vec<(String, String)> {
    named(text).map(|(at, name)| (name.to_owned(), text[at + name.len() + 1..][..1].to_owned())).collect()
}

/// Returns the names of pages in front of their sections, as in `pvm_send(3)`, each with its place in the text.
fn named(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let is_section = |rest: &str| matches!(rest.as_bytes(), [b'(', b'1'..=b'8', b')', ..]);
    let ends = text.match_indices('(').filter(move |(at, _)| is_section(&text[*at..]));
    ends.filter_map(|(end, _)| {
        let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '.';
        let before = text[..end].trim_end_matches(is_part);
        let name = text[before.len()..end].trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
        (!name.is_empty()).then_some((end - name.len(), name))
    })
}

/// Reads a text.
pub fn blocks(text: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut open: Vec<&str> = Vec::new();
    for line in text.lines() {
        let in_item = open.first().is_some_and(|first| first.starts_with("- "));
        let is_verbatim = |line: &str| line.starts_with(VERBATIM_INDENT) && !in_item;
        let goes_on = match open.first() {
            _ if line.trim().is_empty() => open.first().is_some_and(|first| is_verbatim(first)),
            Some(first) if is_verbatim(first) => is_verbatim(line),
            Some(_) if in_item => line.starts_with(ITEM_INDENT),
            Some(_) => !line.starts_with("- ") && !is_verbatim(line),
            None => true,
        };
        if !goes_on {
            blocks.extend(block(&std::mem::take(&mut open)));
        }
        if !(line.trim().is_empty() && open.is_empty()) {
            open.push(line);
        }
    }
    blocks.extend(block(&open));
    blocks
}

fn block(lines: &[&str]) -> Option<Block> {
    let first = lines.first()?;
    if first.starts_with(VERBATIM_INDENT) {
        let mut lines: Vec<String> =
            lines.iter().map(|line| line.get(VERBATIM_INDENT.len()..).unwrap_or("").to_owned()).collect();
        while lines.last().is_some_and(String::is_empty) {
            lines.pop();
        }
        return Some(Block::Verbatim(lines));
    }
    let text = lines.iter().map(|line| line.trim()).collect::<Vec<_>>().join(" ");
    Some(match text.strip_prefix("- ") {
        Some(item) => match item.split_once(TERM_END) {
            Some((term, meaning)) => Block::Term(spans(term), spans(meaning)),
            None => Block::Item(spans(item)),
        },
        None => Block::Paragraph(spans(&text)),
    })
}

/// Reads a line.
pub fn spans(text: &str) -> Vec<Span> {
    let mut spans = Vec::new();
    let mut plain = String::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let after = &rest[first.len_utf8()..];
        let closed = match first {
            '`' => after.split_once('`'),
            '*' if !after.starts_with(' ') => after.split_once('*'),
            _ => None,
        };
        match closed {
            Some((marked, behind)) => {
                plain_spans(&std::mem::take(&mut plain), &mut spans);
                spans.push(if first == '`' { Span::Bold(marked.to_owned()) } else { Span::Italic(marked.to_owned()) });
                rest = behind;
            }
            None => {
                plain.push(first);
                rest = after;
            }
        }
    }
    plain_spans(&plain, &mut spans);
    spans
}

/// Adds unmarked text, with names of pages in bold.
fn plain_spans(text: &str, spans: &mut Vec<Span>) {
    let mut end = 0;
    for (at, name) in named(text) {
        spans.extend((at > end).then(|| Span::Roman(text[end..at].to_owned())));
        spans.push(Span::Bold(name.to_owned()));
        end = at + name.len();
    }
    spans.extend((end < text.len()).then(|| Span::Roman(text[end..].to_owned())));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn roman(text: &str) -> Span {
        Span::Roman(text.into())
    }

    #[test]
    fn names_arguments_and_pages_are_marked() {
        let bold = |text: &str| Span::Bold(text.into());
        assert_eq!(
            spans("`PvmOk` for *tid*, see pvm_send(3)."),
            [
                bold("PvmOk"),
                roman(" for "),
                Span::Italic("tid".into()),
                roman(", see "),
                bold("pvm_send"),
                roman("(3).")
            ]
        );
        assert_eq!(spans("i * n * m"), [roman("i * n * m")]);
    }

    #[test]
    fn references_are_names_with_sections() {
        let found = references("pvm_send(3), not f(x) or (2) or 7(3); see hpvm(7), aimk.x(1)");
        let pairs = [("pvm_send", "3"), ("hpvm", "7"), ("aimk.x", "1")];
        assert_eq!(found, pairs.map(|(name, section)| (name.to_owned(), section.to_owned())));
    }

    #[test]
    fn a_text_has_paragraphs_lists_terms_and_lines_as_they_are() {
        let text = "One\ntwo.\n\n- first\n  more\n- `x` :: means x\n\n    code {\n\n    }\n\nEnd.\n";
        assert_eq!(
            blocks(text),
            [
                Block::Paragraph(vec![roman("One two.")]),
                Block::Item(vec![roman("first more")]),
                Block::Term(vec![Span::Bold("x".into())], vec![roman("means x")]),
                Block::Verbatim(vec!["code {".into(), "".into(), "}".into()]),
                Block::Paragraph(vec![roman("End.")]),
            ]
        );
    }
}
