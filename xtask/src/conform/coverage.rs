//! Which functions the cases call.

use super::case::{Case, Kind};
use super::compile;
use super::machine::Side;
use crate::contract::FORTRAN;
use anyhow::Result;
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

/// The functions of tiers A, B and D of the contract; Fortran's are in the contract.
const FUNCTIONS: &str = "\
pvm_mytid pvm_initsend pvm_send pvm_recv pvm_setopt pvm_tasks pvm_bufinfo pvm_exit pvm_mcast pvm_notify \
pvm_parent pvm_spawn pvm_kill pvm_config pvm_nrecv pvm_perror \
pvm_pkint pvm_upkint pvm_pkbyte pvm_upkbyte pvm_pkdouble pvm_upkdouble pvm_pkstr pvm_upkstr pvm_pkshort \
pvm_upkshort pvm_pklong pvm_upklong pvm_pkfloat pvm_upkfloat pvm_pkdcplx pvm_upkdcplx pvm_pkuint pvm_upkuint \
pvm_pkulong pvm_upkulong pvm_pkushort pvm_upkushort pvm_pkcplx pvm_upkcplx pvm_packf pvm_unpackf \
pvm_addhosts pvm_delhosts pvm_archcode pvm_addmhf pvm_delmhf pvm_putinfo pvm_recvinfo pvm_delinfo \
pvm_getmboxinfo pvm_getcontext pvm_setcontext pvm_newcontext pvm_freecontext pvm_export pvm_unexport pvm_halt \
pvm_mstat pvm_pstat pvm_sendsig pvm_probe pvm_getopt pvm_settmask pvm_gettmask pvm_freebuf pvm_getrbuf \
pvm_getsbuf pvm_mkbuf pvm_setrbuf pvm_setsbuf pvm_getminfo pvm_setminfo pvm_getfds pvm_hostsync pvm_psend \
pvm_precv pvm_siblings pvm_start_pvmd pvm_reg_rm pvm_tidtohost pvm_trecv pvm_reg_tracer pvm_version \
lpvmerr pvmgetclock pvmsleep pvmdisplaymhfinfo pvmnametag pvmgettmp pvmlogerror \
pvm_catchout pvm_recvf pvm_insert pvm_lookup pvm_delete pvm_getnoresets pvm_pkmesg pvm_pkmesgbody pvm_upkmesg \
pvm_reg_hoster pvm_reg_tasker pvm_strerror pvm_vpackf pvm_vunpackf pvmsettaskname pvmupkstralloc pvm_tickle \
pvm_joingroup pvm_lvgroup pvm_gsize pvm_gettid pvm_getinst pvm_barrier pvm_bcast pvm_freezegroup pvm_gather \
pvm_scatter pvm_reduce PvmMax PvmMin PvmSum PvmProduct gs_getgstid pvm_gsdump pvm_grphostinfo pvm_grpvhostinfo";

/// What a case uses of libraries; of a script it is not known.
pub fn uses(case: &Case) -> Result<BTreeSet<String>> {
    match case.kind {
        Kind::Program => undefined_names(&compile::program(case, Side::Theirs)),
        Kind::Fortran => Ok(fortran_names(&std::fs::read_to_string(&case.source)?)),
        Kind::Console | Kind::Script => Ok(BTreeSet::new()),
    }
}

fn undefined_names(program: &Path) -> Result<BTreeSet<String>> {
    let output = Command::new("nm").arg("-u").arg(program).output()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    Ok(text.lines().filter_map(|line| line.split_whitespace().last().map(str::to_string)).collect())
}

/// A Fortran program may have the wrappers within, so its source says what it calls.
fn fortran_names(source: &str) -> BTreeSet<String> {
    let statements = source.lines().filter(|line| !line.starts_with(['!', 'c', 'C', '*']));
    let words = statements.flat_map(|line| line.split(|letter: char| !letter.is_ascii_alphanumeric()));
    let names = words.flat_map(|word| [word.to_lowercase(), format!("{}_", word.to_lowercase())]);
    names.filter(|name| FORTRAN.contains(&&**name)).collect()
}

/// Says which functions no case calls; gives 1 if there are any.
pub fn report(cases: &[Case]) -> Result<usize> {
    let mut called = BTreeSet::new();
    for case in cases {
        called.extend(uses(case)?);
    }
    let missing: Vec<&str> =
        FUNCTIONS.split_whitespace().chain(FORTRAN.iter().copied()).filter(|name| !called.contains(*name)).collect();
    if missing.is_empty() {
        println!("ok       every function is called by some case");
        return Ok(0);
    }
    println!("MISSING  no case calls {}", missing.join(" "));
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
