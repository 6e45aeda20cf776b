//! The messages that the guide explains, and the sources that print them.
use super::pages::Page;
use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::Path;

/// Where messages come from.
const CRATES: &str = "crates";

/// At least one constant part of a message must have this number of letters; otherwise nearly any source has it.
const LETTERS_MIN: usize = 10;

/// The sources that print messages, as one text without line breaks inside strings, and without unit tests.
pub struct Sources(String);

impl Sources {
    /// Reads the sources below `root`.
    pub fn read(root: &Path) -> Result<Sources> {
        let mut text = String::new();
        let crates = root.join(CRATES);
        for entry in fs::read_dir(&crates).with_context(|| format!("cannot read {}", crates.display()))? {
            let source = entry?.path().join("src");
            if source.is_dir() {
                collect(&source, &mut text)?;
            }
        }
        Ok(Sources(text))
    }

    /// Checks that the sources contain each message of the page, apart from what `...` stands for.
    pub fn check(&self, page: &Page) -> Result<()> {
        for block in page.blocks.iter().filter(|block| block.kind == "message") {
            let parts: Vec<&str> = block.text.lines().flat_map(|line| line.split("...")).map(str::trim).collect();
            ensure!(
                parts.iter().any(|part| part.chars().count() >= LETTERS_MIN),
                "line {}: the message has no long constant part",
                block.line
            );
            for part in parts {
                ensure!(self.0.contains(part), "line {}: no source has {part:?}", block.line);
            }
        }
        Ok(())
    }
}

fn collect(directory: &Path, text: &mut String) -> Result<()> {
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if path.is_dir() && name != "tests" {
            collect(&path, text)?;
        } else if name.ends_with(".rs") && !name.ends_with("_tests.rs") && name != "tests.rs" {
            text.push_str(&plain(&fs::read_to_string(&path)?));
        }
    }
    Ok(())
}

/// Returns a source without its unit tests and comments, with the strings as they are printed.
fn plain(source: &str) -> String {
    let source = source.split("#[cfg(test)]\nmod tests {").next().unwrap_or(source);
    let lines = source.lines().filter(|line| !line.trim_start().starts_with("//"));
    let mut text = String::new();
    for line in lines {
        // A backslash at the end of a line joins it with the next.
        match line.strip_suffix('\\') {
            Some(part) => text.push_str(part.trim_start()),
            None => {
                text.push_str(line.trim_start());
                text.push('\n');
            }
        }
    }
    text.replace("\\\"", "\"").replace("\\n", "\n")
}

#[cfg(test)]
mod tests {
    use super::super::pages;
    use super::*;

    #[test]
    fn a_message_that_nothing_prints_is_found() {
        let sources = Sources("format!(\"host {name} does not answer: {reason}\")".into());
        let check = |message: &str| {
            let text = format!("```message\n{message}\n```\n");
            sources.check(&pages::parse("a".into(), "/".into(), &text).unwrap())
        };
        assert!(check("host ... does not answer: ...").is_ok());
        assert!(check("host ... does not listen: ...").is_err());
        assert!(check("host ...").is_err());
    }

    #[test]
    fn strings_are_read_as_they_are_printed() {
        let source = [
            "    // \"no message\"\n    f(\"say \\\"yes\\\" \\\n",
            "       at last\");\n#[cfg(test)]\nmod tests { \"test\" }\n",
        ]
        .concat();
        assert_eq!(plain(&source), "f(\"say \"yes\" at last\");\n");
    }
}
