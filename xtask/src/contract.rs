//! The names that the libraries export (the binary interface of PVM 3.4.6).

/// Functions that programs call: those in `pvm3.h`, and others that are often used.
#[rustfmt::skip]
pub const FUNCTIONS: &[&str] = &[
    // These are used by those programs of Debian that hpvm does not replace.
    "pvm_addhosts", "pvm_addmhf", "pvm_archcode", "pvm_bufinfo", "pvm_config", "pvm_delhosts", "pvm_delinfo",
    "pvm_delmhf", "pvm_exit", "pvm_export", "pvm_freebuf", "pvm_freecontext", "pvm_getcontext", "pvm_getfds",
    "pvm_getmboxinfo", "pvm_getminfo", "pvm_getopt", "pvm_getrbuf", "pvm_getsbuf", "pvm_halt", "pvm_hostsync",
    "pvm_initsend", "pvm_kill", "pvm_mcast", "pvm_mkbuf", "pvm_mstat", "pvm_mytid", "pvm_newcontext", "pvm_notify",
    "pvm_nrecv", "pvm_packf", "pvm_parent", "pvm_perror", "pvm_pkbyte", "pvm_pkcplx", "pvm_pkdcplx", "pvm_pkdouble",
    "pvm_pkfloat", "pvm_pkint", "pvm_pklong", "pvm_pkshort", "pvm_pkstr", "pvm_pkuint", "pvm_pkulong",
    "pvm_pkushort", "pvm_precv", "pvm_probe", "pvm_psend", "pvm_pstat", "pvm_putinfo", "pvm_recv", "pvm_recvinfo",
    "pvm_reg_rm", "pvm_reg_tracer", "pvm_send", "pvm_sendsig", "pvm_setcontext", "pvm_setminfo", "pvm_setopt",
    "pvm_setrbuf", "pvm_setsbuf", "pvm_settmask", "pvm_siblings", "pvm_spawn", "pvm_start_pvmd", "pvm_tasks",
    "pvm_tidtohost", "pvm_trecv", "pvm_unpackf", "pvm_upkbyte", "pvm_upkcplx", "pvm_upkdcplx", "pvm_upkdouble",
    "pvm_upkfloat", "pvm_upkint", "pvm_upklong", "pvm_upkshort", "pvm_upkstr", "pvm_upkuint", "pvm_upkulong",
    "pvm_upkushort", "pvm_version",
    // These have internal names, but programs use them.
    "lpvmerr", "pvmdisplaymhfinfo", "pvmgetclock", "pvmgettmp", "pvmlogerror", "pvmnametag", "pvmsleep",
    // PVM's own sources (tasker, hoster, xhoster, console, misc) and bindings to other languages use these.
    "pvmbailout", "pvmchkuid", "pvmendtask", "pvmlogperror", "pvmputenv", "pvmreset", "pvmstrtoi",
    // These are public, or often used in other sources.
    "pvm_catchout", "pvm_delete", "pvm_getnoresets", "pvm_gettmask", "pvm_insert", "pvm_lookup", "pvm_pkmesg",
    "pvm_pkmesgbody", "pvm_recvf", "pvm_reg_hoster", "pvm_reg_tasker", "pvm_strerror", "pvm_tickle", "pvm_unexport",
    "pvm_upkmesg", "pvm_vpackf", "pvm_vunpackf", "pvmgetrsh", "pvmsettaskname", "pvmtmpnam", "pvmupkstralloc",
    // Groups.
    "PvmMax", "PvmMin", "PvmProduct", "PvmSum", "pvm_barrier", "pvm_bcast", "pvm_freezegroup", "pvm_gather",
    "pvm_getinst", "pvm_gettid", "pvm_grphostinfo", "pvm_grpvhostinfo", "pvm_gsdump", "pvm_gsize", "pvm_joingroup",
    "pvm_lvgroup", "pvm_reduce", "pvm_scatter", "gs_getgstid",
    // This is new: the papers propose it (D1).
    "pvm_lanbarr",
];

/// Functions of `fmp.h`; `libfmp.so` exports these and no others.
#[rustfmt::skip]
pub const FMP: &[&str] = &[
    "fmp_parent", "fmp_probe_local", "fmp_probe_network", "fmp_receive", "fmp_self", "fmp_send", "fmp_siblings",
    "fmp_strerror",
];

/// Subroutines that Fortran programs call. No name contains an underscore except the one at its end: some compilers
/// append two underscores instead of one to a name that contains an underscore, and would not find such a subroutine.
#[rustfmt::skip]
pub const FORTRAN: &[&str] = &[
    // These are in Debian's libfpvm3.a.
    "ctofstr", "ftocstr", "pvmfaddhost_", "pvmfaddmhf_", "pvmfarchcode_", "pvmfbarrier_", "pvmfbcast_",
    "pvmfbufinfo_", "pvmfcatchout_", "pvmfconfig_", "pvmfdelhost_", "pvmfdelinfo_", "pvmfdelmhf_", "pvmfexit_",
    "pvmffreebuf_", "pvmffreecontext_", "pvmfgetcontext_", "pvmfgetinst_", "pvmfgetmboxinfo_", "pvmfgetopt_",
    "pvmfgetrbuf_", "pvmfgetsbuf_", "pvmfgettid_", "pvmfgsize_", "pvmfhalt_", "pvmfhostsync_", "pvmfinitsend_",
    "pvmfjoingroup_", "pvmfkill_", "pvmflvgroup_", "pvmfmcast_", "pvmfmkbuf_", "pvmfmstat_", "pvmfmytid_",
    "pvmfnewcontext_", "pvmfnotify_", "pvmfnrecv_", "pvmfpack_", "pvmfparent_", "pvmfperror_", "pvmfprecv_",
    "pvmfprobe_", "pvmfpsend_", "pvmfpstat_", "pvmfputinfo_", "pvmfrecv_", "pvmfrecvinfo_", "pvmfsend_",
    "pvmfsendsig_", "pvmfsetcontext_", "pvmfsetopt_", "pvmfsetrbuf_", "pvmfsetsbuf_", "pvmfsiblings_", "pvmfsleep_",
    "pvmfspawn_", "pvmfstartpvmd_", "pvmftasks_", "pvmftidtohost_", "pvmftrecv_", "pvmfunpack_",
    "pvmffreezegroup_", "pvmfgather_", "pvmfreduce_", "pvmfscatter_", "pvmmax_", "pvmmin_", "pvmproduct_", "pvmsum_",
    // These are only in the manual of PVM 3.4.
    "pvmffrzgrp_",
    "pvmfadvise_", "pvmfgetminfo_", "pvmfjoingrp_", "pvmflvgrp_", "pvmfpkmesg_", "pvmfpkmesgbody_", "pvmfserror_",
    "pvmfsetminfo_", "pvmftidtoh_", "pvmfupkmesg_",
    // This is new.
    "pvmflanbarr_",
];

/// Data, with their sizes in bytes on 64-bit machines. A program that is not position independent contains a copy of
/// the data, so a size can never change.
pub const DATA: &[(&str, u64)] = &[
    ("gstid", 4),
    ("pvm_errlist", 296),
    ("pvm_errno", 4),
    ("pvm_inprecv", 8),
    ("pvm_nerr", 4),
    ("pvm_useruid", 4),
    ("pvmautoerr", 4),
    ("pvmctrc", 68),
    ("pvmdebmask", 4),
    ("pvmfrgsiz", 4),
    ("pvmgs_tmout", 8),
    ("pvmmyctx", 4),
    ("pvmmydsig", 4),
    ("pvmmyptid", 4),
    ("pvmmytid", 4),
    ("pvmmyupid", 4),
    ("pvmnoreset", 4),
    ("pvmnoresetindex", 4),
    ("pvmnsibs", 4),
    ("pvmrbuf", 8),
    ("pvmrescode", 4),
    ("pvmrouteopt", 4),
    ("pvmrxlist", 8),
    ("pvmsbuf", 8),
    ("pvmschedtid", 4),
    ("pvmshowtaskid", 4),
    ("pvmsibtids", 8),
    ("pvmtevdidlist", 1968),
    ("pvmtevinfo", 6104),
    ("pvmtrc", 68),
    ("pvmudpmtu", 4),
];
