//! House rule: each ordered access to an atomic has a partner.
//!
//! An ordered access has an effect only together with a second one. A comment above each of the two accesses names the
//! pair, in the same words: ``// Pair `ring made`: who sees the ring sees it cleared.``
use crate::common::root;
use anyhow::{Result, ensure};
use regex::Regex;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// The longest distance between a comment and its access, in lines: one comment may serve several accesses.
const DISTANCE_MAX: usize = 10;

/// How many accesses, in all files, name the same pair.
#[derive(Default)]
struct Sides {
    accesses: usize,
    releases: usize,
    acquires: usize,
}

impl Sides {
    /// Returns whether these accesses form a pair. One access alone does not, even if it both releases and acquires.
    fn is_pair(&self) -> bool {
        self.accesses > 1 && self.releases > 0 && self.acquires > 0
    }
}

/// Checks that each ordered access in these sources belongs to a pair. The caller passes the sources of the crates that
/// access shared memory.
pub fn have_partners(sources: &[impl AsRef<Path>]) -> Result<()> {
    let (mut wrong, mut pairs) = (Vec::new(), BTreeMap::<String, Sides>::new());
    for path in sources.iter().map(AsRef::as_ref) {
        let name = path.strip_prefix(root()).unwrap_or(path).display().to_string();
        let text = fs::read_to_string(path)?;
        for line in note_accesses(&text, &mut pairs)? {
            wrong.push(format!("{name}:{line}: no pair is named above"));
        }
    }
    let alone = pairs.iter().filter(|(_, sides)| !sides.is_pair());
    wrong.extend(alone.map(|(pair, _)| format!("pair `{pair}` has one side only")));
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

/// Adds the accesses of a source to their pairs. Returns the line numbers of accesses that name no pair.
fn note_accesses(text: &str, pairs: &mut BTreeMap<String, Sides>) -> Result<Vec<usize>> {
    let ordered =
        Regex::new(r"\b(?:Acquire|Release|AcqRel|SeqCst)\b|\b(?:full_fence|fence_after_exchange|load_acquire)\(\)")?;
    let (named_above, named) = (Regex::new(r"// (?:.* )?[Pp]airs? `")?, Regex::new(r"`([^`]+)`")?);
    // Excludes lines that match but access no atomic: imports, declarations of functions and enumerations, and compiler
    // fences.
    let other = Regex::new(r"^\s*use |compiler_fence|Kind::|fn |^\s*Release = ")?;
    let lines: Vec<&str> = text.lines().take_while(|line| !line.starts_with("#[cfg(test)]")).collect();
    let mut missing = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let code = line.split("//").next().unwrap_or("");
        if !ordered.is_match(code) || other.is_match(code) {
            continue;
        }
        // Only a comment in the same function counts, so the search ends where the function begins.
        let above = lines[at.saturating_sub(DISTANCE_MAX)..at].iter().rev().take_while(|line| !line.contains("fn "));
        let Some(comment) = above.copied().find(|line| named_above.is_match(line)) else {
            missing.push(at + 1);
            continue;
        };
        let words = &comment[comment.find("Pair").unwrap_or(0)..];
        for pair in named.captures_iter(words.split(':').next().unwrap_or("")) {
            let sides = pairs.entry(pair[1].to_owned()).or_default();
            let has = |ordering: &str| usize::from(code.contains(ordering));
            let both = has("AcqRel").max(has("SeqCst")).max(has("full_fence")).max(has("fence_after_exchange"));
            sides.accesses += 1;
            sides.releases += has("Release").max(both);
            sides.acquires += has("Acquire").max(has("load_acquire")).max(both);
        }
    }
    Ok(missing)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accesses_without_a_partner_are_found() {
        let mut pairs = BTreeMap::new();
        let one = "fn a() {\n    // Pair `made`: all is there.\n    word.store(1, Ordering::Release);\n}\n";
        assert_eq!(note_accesses(one, &mut pairs).unwrap(), Vec::<usize>::new());
        assert!(!pairs["made"].is_pair());
        let other = "use Ordering::Acquire;\n// Pair `made`.\nlet is = word.load(Acquire);\n";
        note_accesses(other, &mut pairs).unwrap();
        assert!(pairs["made"].is_pair());
        let nameless = "// Pair `made`.\nfn b() {\n    word.swap(1, AcqRel); // Pair `made`.\n";
        assert_eq!(note_accesses(nameless, &mut pairs).unwrap(), [3]);
        let mut pairs = BTreeMap::new();
        let read_only = "// Pair `made`.\nword.store(1, Release);\nlet is = word.load_acquire();\n";
        assert_eq!(note_accesses(read_only, &mut pairs).unwrap(), Vec::<usize>::new());
        assert!(pairs["made"].is_pair());
        for alone in ["word.swap(1, AcqRel);", "fence(Ordering::Release);", "fence(Ordering::SeqCst);", "full_fence();"]
        {
            let mut pairs = BTreeMap::new();
            note_accesses(&format!("// Pair `alone`.\n{alone}\n"), &mut pairs).unwrap();
            assert!(!pairs["alone"].is_pair(), "{alone}");
        }
    }
}
