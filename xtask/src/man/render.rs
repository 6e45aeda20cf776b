//! Renders a page as roff, for `man`.
use super::SECTION;
use super::markup::{Block, Span, blocks, spans};
use super::page::{Failure, Page, codes, error_codes, fortran_name};
use roff::{Inline, Roff, bold, italic, roman};

/// The head and the foot of each page.
const DATE: &str = "November 21, 2026";
const SOURCE: &str = concat!("hpvm ", env!("CARGO_PKG_VERSION"));
const MANUAL: &str = "Parallel Virtual Machine";
/// The width of a synopsis, in columns: a terminal's 80 without the margins.
const SYNOPSIS_COLUMNS: usize = 72;
/// The indent of the further lines of a prototype, in columns.
const SYNOPSIS_INDENT: usize = 8;
/// The placeholder, in the text of a section, for the table of all errors.
const ERROR_TABLE: &str = "{errors}";
/// A page to which every page refers.
const INTRODUCTION: &str = "pvm_intro(3)";

/// Returns the page in the format of `man`.
pub fn page(page: &Page) -> String {
    let mut roff = Roff::new();
    roff.control("TH", [&*page.name.to_uppercase(), SECTION, DATE, SOURCE, MANUAL]);
    // Names are not hyphenated, blanks are not stretched, and tilde and circumflex appear as they are typed.
    roff.control("nh", []).control("nr", ["HY", "0"]).control("ad", ["l"]).control("tr", [r"~\(ti^\(ha"]);
    roff.control("SH", ["NAME"]).text([roman(format!("{} - {}", page.names().join(", "), page.summary))]);
    synopsis(&mut roff, page);
    section(&mut roff, "DESCRIPTION", &page.description);
    arguments(&mut roff, page);
    for own in &page.section {
        section(&mut roff, &own.title, &own.text);
    }
    if let Some(text) = &page.returns {
        section(&mut roff, "RETURN VALUE", text);
    }
    errors(&mut roff, page);
    if let Some(text) = &page.differences {
        section(&mut roff, "DIFFERENCES FROM PVM 3.4.6", text);
    }
    examples(&mut roff, page);
    see_also(&mut roff, page);
    roff.render()
}

fn synopsis(roff: &mut Roff, page: &Page) {
    if page.c.is_empty() && page.fortran.is_empty() {
        return;
    }
    roff.control("SH", ["SYNOPSIS"]).control("nf", []);
    for header in &page.include {
        roff.text([bold(format!("#include <{header}>"))]);
    }
    if !page.include.is_empty() && !page.c.is_empty() {
        roff.text([]);
    }
    let is_argument = |word: &str| page.argument.iter().any(|argument| argument.name == word);
    for declaration in &page.c {
        prototype(roff, &format!("{declaration};"), is_argument);
    }
    if !page.fortran.is_empty() {
        roff.text([]).text([bold("include 'fpvm3.h'")]).text([]);
    }
    for call in &page.fortran {
        let name = fortran_name(call).unwrap_or_default();
        prototype(roff, call, |word| word != "call" && word != name);
    }
    roff.control("fi", []);
}

/// Writes a declaration or a call, wrapped if necessary; arguments are italic, everything else is bold.
fn prototype(roff: &mut Roff, text: &str, is_argument: impl Fn(&str) -> bool) {
    for line in wrapped(text) {
        let mut inlines = Vec::new();
        let mut plain = String::new();
        for part in words_and_others(&line) {
            if part.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') && is_argument(part) {
                inlines.extend((!plain.is_empty()).then(|| bold(std::mem::take(&mut plain))));
                inlines.push(italic(part));
            } else {
                plain.push_str(part);
            }
        }
        inlines.extend((!plain.is_empty()).then(|| bold(plain)));
        roff.text(inlines);
    }
}

/// Splits a declaration into its words and what is between them.
fn words_and_others(line: &str) -> impl Iterator<Item = &str> {
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    line.as_bytes().chunk_by(move |one, next| is_word(*one) == is_word(*next)).scan(0, |at, part| {
        let from = *at;
        *at += part.len();
        Some(&line[from..*at])
    })
}

/// Breaks a declaration after commas.
fn wrapped(text: &str) -> Vec<String> {
    let mut lines = Vec::new();
    let mut line = String::new();
    for part in text.split_inclusive(", ") {
        if !line.is_empty() && line.len() + part.trim_end().len() > SYNOPSIS_COLUMNS {
            lines.push(line.trim_end().to_owned());
            line = " ".repeat(SYNOPSIS_INDENT);
        }
        line.push_str(part);
    }
    lines.push(line);
    lines
}

fn arguments(roff: &mut Roff, page: &Page) {
    if page.argument.is_empty() {
        return;
    }
    roff.control("SH", ["ARGUMENTS"]);
    for argument in &page.argument {
        roff.control("TP", []).text([italic(&*argument.name)]).text(inlines(spans(&argument.text)));
    }
}

fn errors(roff: &mut Roff, page: &Page) {
    if page.error.is_empty() {
        return;
    }
    roff.control("SH", ["ERRORS"]);
    let all_silent = page.error.iter().all(|failure| failure.silent);
    if all_silent {
        roff.text([roman("None of these is printed, whatever "), bold("PvmAutoErr"), roman(" says.")]);
    }
    for failure in &page.error {
        let code = failure.number().expect("checked when the page was read");
        let about = format!(" ({}, {})", code.number(), code.text());
        let silent = if failure.silent && !all_silent { " Nothing is printed." } else { "" };
        roff.control("TP", []).text([bold(&*failure.code), roman(about)]);
        roff.text(inlines(spans(&format!("{}{silent}", sentence(failure)))));
    }
}

/// Returns when an error happens, as a sentence.
fn sentence(failure: &Failure) -> String {
    let when = failure.when().unwrap_or_default();
    let mut letters = when.chars();
    letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect())
}

fn examples(roff: &mut Roff, page: &Page) {
    let programs = [&page.example, &page.fortran_example];
    if programs.iter().all(|program| program.is_none()) {
        return;
    }
    roff.control("SH", ["EXAMPLE"]);
    if let Some(program) = &page.example {
        verbatim(roff, program.trim_end().lines());
    }
    if let Some(output) = &page.example_output {
        roff.control("PP", []).text([roman("prints")]).control("PP", []);
        roff.control("RS", ["4"]);
        verbatim(roff, output.trim_end().lines());
        roff.control("RE", []);
    }
    if let Some(program) = &page.fortran_example {
        roff.control("PP", []).text([roman("In Fortran:")]).control("PP", []);
        verbatim(roff, program.trim_end().lines());
    }
}

fn see_also(roff: &mut Roff, page: &Page) {
    let mut pages = page.see_also.clone();
    if !pages.iter().any(|other| other == INTRODUCTION) && page.name != "pvm_intro" {
        pages.push(INTRODUCTION.to_owned());
    }
    roff.control("SH", ["SEE ALSO"]).text(inlines(spans(&pages.join(", "))));
}

/// Writes a section with a title, in the markup of pages.
fn section(roff: &mut Roff, title: &str, text: &str) {
    roff.control("SH", [&*title.to_uppercase()]);
    for (number, block) in blocks(text).into_iter().enumerate() {
        match block {
            Block::Paragraph(spans) if spans == [Span::Roman(ERROR_TABLE.to_owned())] => error_table(roff),
            Block::Paragraph(spans) => {
                if number > 0 {
                    roff.control("PP", []);
                }
                roff.text(inlines(spans));
            }
            Block::Item(spans) => {
                roff.control("IP", [r"\(bu", "2"]).text(inlines(spans));
            }
            Block::Term(term, meaning) => {
                roff.control("TP", []).text(inlines(term)).text(inlines(meaning));
            }
            Block::Verbatim(lines) => {
                roff.control("PP", []).control("RS", ["4"]);
                verbatim(roff, lines.iter().map(String::as_str));
                roff.control("RE", []);
            }
        }
    }
}

/// Writes the table of all codes with their numbers and texts.
fn error_table(roff: &mut Roff) {
    let line = |number: String, name: String, text: &str| format!("{number:>4}  {name:<17}{text}");
    let lines: Vec<String> = std::iter::once(line("0".into(), "PvmOk".into(), error_codes::text(0)))
        .chain(codes().map(|code| line(code.number().to_string(), format!("Pvm{code:?}"), code.text())))
        .collect();
    roff.control("PP", []);
    verbatim(roff, lines.iter().map(String::as_str));
}

fn verbatim<'a>(roff: &mut Roff, lines: impl Iterator<Item = &'a str>) {
    roff.control("EX", []);
    for line in lines {
        roff.text([roman(line)]);
    }
    roff.control("EE", []);
}

fn inlines(spans: Vec<Span>) -> Vec<Inline> {
    spans
        .into_iter()
        .map(|span| match span {
            Span::Roman(text) => roman(text),
            Span::Bold(text) => bold(text),
            Span::Italic(text) => italic(text),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_declaration_is_broken_behind_a_comma() {
        let text = "int pvm_gather(void *result, void *data, int count, int type, int tag, char *group, int root);";
        let lines = wrapped(text);
        assert_eq!(lines.len(), 2);
        assert!(lines.iter().all(|line| line.len() <= SYNOPSIS_COLUMNS), "{lines:?}");
        assert_eq!(lines[1], "        char *group, int root);");
    }

    #[test]
    fn an_error_begins_with_a_capital_unless_an_argument_comes_first() {
        let failure = |when: &str| Failure { code: "PvmBadParam".into(), when: Some(when.into()), silent: false };
        assert_eq!(sentence(&failure("no such task.")), "No such task.");
        assert_eq!(sentence(&failure("*tid* is no task.")), "*tid* is no task.");
    }
}
