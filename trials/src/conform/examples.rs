//! Finds Debian's PVM programs that no case runs: each of them must be run by at least one case.

use super::case::{Case, Kind};
use crate::debian_pvm;
use crate::failures;
use anyhow::Result;

/// The package of examples. Each of its programs must be run by at least one case.
const PACKAGE: &str = "pvm-examples";
/// Programs from other packages that use PVM. Each of them must be run by at least one case, too.
const OTHERS: &[&str] = &["NPpvm", "pvm_gstat", "pvmgroups", "slsh", "tablix2", "tracer", "trcsort"];

/// Returns the names of the programs that must be run, each by at least one case.
pub fn programs() -> Result<Vec<String>> {
    let (files, folder) = (debian_pvm::files(PACKAGE)?, debian_pvm::programs());
    let package = files.iter().filter_map(|file| file.strip_prefix(&folder).ok()?.to_str());
    Ok(package.chain(OTHERS.iter().copied()).map(str::to_string).collect())
}

/// Returns the words of a case's script, which include the programs that it runs.
pub fn script_words(case: &Case) -> Result<Vec<String>> {
    let mut run = case.runs.clone();
    if case.kind == Kind::Script {
        run.extend(words(&std::fs::read_to_string(&case.source)?));
    }
    Ok(run)
}

/// Reports the programs that no case runs. Returns 1 if there are any.
pub fn report(cases: &[Case]) -> Result<usize> {
    let mut run = Vec::new();
    for case in cases {
        run.extend(script_words(case)?);
    }
    let missing: Vec<String> = programs()?.into_iter().filter(|name| !run.contains(name)).collect();
    if missing.is_empty() {
        println!("ok       every program of {PACKAGE} and its like is run by some case");
        return Ok(0);
    }
    failures::report(format_args!("MISSING  no case runs {}", missing.join(" ")));
    Ok(1)
}

/// Returns the words of a script's commands; the parts of a path are words, too.
fn words(script: &str) -> Vec<String> {
    let commands = script.lines().filter(|line| !line.trim_start().starts_with('#'));
    let apart = |letter: char| !(letter.is_alphanumeric() || "._-".contains(letter));
    commands.flat_map(|line| line.split(apart)).filter(|word| !word.is_empty()).map(str::to_string).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_is_only_spoken_of_is_not_run() {
        let script =
            "# tnb is quick\n#@ needs $DEBIAN_PVM/bin/tst\n($DEBIAN_PVM/bin/rme box 0 | sort)\necho \"$(gs.pvm)\"\n";
        let words = words(script);
        assert!(["rme", "sort", "gs.pvm"].iter().all(|name| words.iter().any(|word| word == name)));
        assert!(["tnb", "tst"].iter().all(|name| words.iter().all(|word| word != name)));
    }
}
