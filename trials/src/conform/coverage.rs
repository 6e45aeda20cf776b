//! Finds the functions that no case calls.

use super::case::{Case, Kind};
use super::compile;
use super::machine::Side;
use crate::contract::{FORTRAN, FUNCTIONS};
use crate::elf;
use crate::failures;
use anyhow::Result;
use std::collections::BTreeSet;

/// The functions that PVM 3.4.6 lacks, so that no case can compare them. `crates/libpvm3/tests/programs/lanbarr.c` calls
/// them.
const NEW: &[&str] = &["pvm_lanbarr", "pvmflanbarr_"];

/// Returns the library symbols that a case uses; none for a script, whose symbols are not known.
pub fn uses(case: &Case) -> Result<BTreeSet<String>> {
    match case.kind {
        Kind::Program => Ok(elf::dynamic_symbols(&compile::program(case, Side::Theirs))?.into_keys().collect()),
        Kind::Fortran => Ok(fortran_names(&std::fs::read_to_string(&case.source)?)),
        Kind::Console | Kind::Script => Ok(BTreeSet::new()),
    }
}

/// Returns the PVM names that a Fortran source contains. The dynamic symbols of the compiled program do not include
/// these names if the program contains PVM's wrappers.
fn fortran_names(source: &str) -> BTreeSet<String> {
    let statements = source.lines().filter(|line| !line.starts_with(['!', 'c', 'C', '*']));
    let words = statements.flat_map(|line| line.split(|letter: char| !letter.is_ascii_alphanumeric()));
    let names = words.flat_map(|word| [word.to_lowercase(), format!("{}_", word.to_lowercase())]);
    names.filter(|name| FORTRAN.contains(&&**name)).collect()
}

/// Reports the functions that no case calls. Returns 1 if there are any.
pub fn report(cases: &[Case]) -> Result<usize> {
    let mut called = BTreeSet::new();
    for case in cases {
        called.extend(uses(case)?);
    }
    let promised = FUNCTIONS.iter().chain(FORTRAN).copied();
    let missing: Vec<&str> = promised.filter(|name| !called.contains(*name) && !NEW.contains(name)).collect();
    if missing.is_empty() {
        println!("ok       every function is called by some case");
        return Ok(0);
    }
    failures::report(format_args!("MISSING  no case calls {}", missing.join(" ")));
    Ok(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fortran_program_uses_what_its_statements_name() {
        let source = "! call pvmfsend\n      call PvmfMyTid(tid)\n     &  bind(C, name='ftocstr')\n";
        assert_eq!(fortran_names(source).into_iter().collect::<Vec<_>>(), ["ftocstr", "pvmfmytid_"]);
    }
}
