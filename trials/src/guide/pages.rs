//! The pages of the guide: their headings, links and blocks.
use crate::common::root;
use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::{Path, PathBuf};

/// How names of files of the sources begin.
const SOURCES: [&str; 4] = ["docs/", "man/", "examples/", "crates/"];

/// What stands in the prose in place of code: no word, so that the words around it are no neighbours.
const CODE: &str = "*";

/// A page.
pub struct Page {
    /// The name of the file, without `.md`.
    pub name: String,
    /// The directory of the file.
    pub directory: PathBuf,
    /// The anchors of the headings.
    anchors: Vec<String>,
    /// The text outside of blocks, line by line, with [`CODE`] in place of code in a line.
    pub prose: String,
    /// The code in lines of text.
    code: Vec<String>,
    /// The blocks between lines of three backticks, in their order.
    pub blocks: Vec<Block>,
}

/// A block.
pub struct Block {
    /// The word after the backticks: `console`, `message`, `c`, ...
    pub kind: String,
    /// The number of the line after the backticks, from 1.
    pub line: usize,
    pub text: String,
}

/// Reads all pages of the book in `directory`.
pub fn read(directory: &Path) -> Result<Vec<Page>> {
    let source = directory.join("src");
    let mut pages = Vec::new();
    for entry in fs::read_dir(&source).with_context(|| format!("cannot read {}", source.display()))? {
        let path = entry?.path();
        let name = path.file_stem().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
        if path.extension().is_some_and(|extension| extension == "md") && name != "SUMMARY" {
            let text = fs::read_to_string(&path)?;
            pages.push(parse(name, source.clone(), &text)?);
        }
    }
    pages.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(pages)
}

/// Returns the page with this name, directory and text.
pub fn parse(name: String, directory: PathBuf, text: &str) -> Result<Page> {
    let (mut anchors, mut prose, mut code, mut blocks) = (Vec::new(), String::new(), Vec::new(), Vec::new());
    let mut open: Option<Block> = None;
    for (index, line) in text.lines().enumerate() {
        if open.is_some() || line.starts_with("```") {
            prose.push('\n');
        }
        match (line.strip_prefix("```"), &mut open) {
            (Some(_), Some(_)) => blocks.extend(open.take()),
            (Some(kind), None) => {
                open = Some(Block { kind: kind.to_owned(), line: index + 2, text: String::new() });
            }
            (None, Some(block)) => {
                block.text.push_str(line);
                block.text.push('\n');
            }
            (None, None) => {
                if let Some(title) = line.strip_prefix('#') {
                    anchors.push(anchor(title.trim_start_matches('#')));
                }
                ensure!(line.split('`').count() % 2 == 1, "{name}.md, line {}: code without an end", index + 1);
                // The parts at odd places are between backticks.
                let words: Vec<&str> = line.split('`').step_by(2).collect();
                prose.push_str(&words.join(CODE));
                prose.push('\n');
                code.extend(line.split('`').skip(1).step_by(2).map(str::to_owned));
            }
        }
    }
    ensure!(open.is_none(), "{name}.md: a block has no end");
    Ok(Page { name, directory, anchors, prose, code, blocks })
}

/// Returns the anchor that mdBook makes of a heading.
fn anchor(title: &str) -> String {
    let kept = title.trim().chars().filter_map(|letter| match letter {
        ' ' => Some('-'),
        _ if letter.is_alphanumeric() || letter == '-' || letter == '_' => Some(letter.to_ascii_lowercase()),
        _ => None,
    });
    kept.collect()
}

/// Checks that each link leads to a page or a file of the book, and to a heading there, and that files of the sources
/// that the text names exist. The book can be read without the sources, so links must not leave it. Addresses in the
/// network are not looked up.
pub fn check_links(page: &Page, pages: &[Page]) -> Result<()> {
    for target in links(&page.prose) {
        if target.contains("://") {
            continue;
        }
        let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
        let led_to = match file.strip_suffix(".md").filter(|name| !name.contains('/')) {
            None if file.is_empty() => Some(page),
            name => pages.iter().find(|other| Some(&*other.name) == name),
        };
        match led_to {
            Some(other) => {
                ensure!(
                    anchor.is_empty() || other.anchors.iter().any(|known| known == anchor),
                    "{target}: the headings there are {}",
                    other.anchors.join(", ")
                );
            }
            None => {
                ensure!(!file.contains(".."), "{target}: the link leaves the book");
                ensure!(page.directory.join(file).exists(), "{target}: no such file");
            }
        }
    }
    let named = page.code.iter().filter(|code| SOURCES.iter().any(|start| code.starts_with(start)));
    for file in named {
        ensure!(root().join(file).exists(), "{file}: no such file");
    }
    Ok(())
}

/// Returns the targets of `[text](target)`.
fn links(prose: &str) -> Vec<&str> {
    prose.split("](").skip(1).filter_map(|rest| rest.split(')').next()).collect()
}

/// Checks that each included file exists, and that each program is included and not copied.
pub fn check_includes(page: &Page) -> Result<()> {
    for block in &page.blocks {
        let included = block.text.trim().strip_prefix("{{#include ").and_then(|rest| rest.strip_suffix("}}"));
        if let Some(file) = included {
            let file = file.split(':').next().unwrap_or(file);
            ensure!(page.directory.join(file).is_file(), "line {}: {file}: no such file", block.line);
        } else {
            let is_program = ["c", "fortran", "python"].contains(&&*block.kind);
            ensure!(!is_program, "line {}: a program is a file that the page includes", block.line);
        }
    }
    Ok(())
}

/// Checks that some page includes each program of the guide.
pub fn check_programs(directory: &Path, pages: &[Page]) -> Result<()> {
    for entry in fs::read_dir(directory.join("programs"))? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        let inclusion = format!("{{{{#include ../programs/{name}}}}}");
        let is_shown = pages.iter().flat_map(|page| &page.blocks).any(|block| block.text.contains(&inclusion));
        ensure!(is_shown, "{name}: no page includes it");
    }
    Ok(())
}

/// Checks that the summary links to each page once.
pub fn check_summary(directory: &Path, pages: &[Page]) -> Result<()> {
    let text = fs::read_to_string(directory.join("src/SUMMARY.md"))?;
    let mut listed: Vec<&str> = links(&text);
    listed.sort_unstable();
    let files: Vec<String> = pages.iter().map(|page| format!("{}.md", page.name)).collect();
    let mut files: Vec<&str> = files.iter().map(String::as_str).collect();
    files.sort_unstable();
    ensure!(listed == files, "it lists {listed:?}, and the files are {files:?}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(name: &str, text: &str) -> Page {
        parse(name.into(), "/nowhere".into(), text).unwrap()
    }

    #[test]
    fn headings_links_and_blocks_are_found() {
        let text = "# What `pvm` is, now\n[a](b.md#it) `[no](link)`\n```console\n$ ls\n```\nend\n";
        let found = page("a", text);
        assert_eq!(found.anchors, ["what-pvm-is-now"]);
        assert_eq!(links(&found.prose), ["b.md#it"]);
        assert_eq!(found.prose, "# What * is, now\n[a](b.md#it) *\n\n\n\nend\n");
        assert_eq!((&*found.blocks[0].kind, &*found.blocks[0].text, found.blocks[0].line), ("console", "$ ls\n", 4));
        assert!(parse("a".into(), "/".into(), "```c\nint x;\n").is_err());
    }

    #[test]
    fn a_link_to_nowhere_is_found() {
        let pages = [page("a", "[x](b.md#it) [y](#no)\n"), page("b", "# It\n"), page("c", "[z](b.md#that)\n")];
        assert!(check_links(&pages[0], &pages).unwrap_err().to_string().starts_with("#no"));
        assert!(check_links(&pages[2], &pages).unwrap_err().to_string().starts_with("b.md#that"));
        assert!(check_links(&page("d", "[x](b.md#it) [w](https://example.org)"), &pages).is_ok());
        assert!(check_links(&page("d", "[x](../../security.md) [y](none.png)"), &pages).is_err());
        assert!(check_links(&page("d", &format!("`docs/{}`", "none.md")), &pages).is_err());
        assert!(check_links(&page("d", "`docs/README.md` `cc none.c`"), &pages).is_ok());
    }

    #[test]
    fn a_program_in_the_text_of_a_page_is_refused() {
        assert!(check_includes(&page("a", "```c\nint main(void);\n```\n")).is_err());
        assert!(check_includes(&page("a", "```c\n{{#include none.c}}\n```\n")).is_err());
    }
}
