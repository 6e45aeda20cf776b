//! The tables that readers of trace files use (contract 1.2, tier B): the names of events and of
//! the data in them, in the order of the `TEV_*` and `TEV_DID_*` numbers of `pvmtev.h`.
#![allow(non_upper_case_globals)] // the names are PVM's
use crate::data::Text;
use std::cell::UnsafeCell;
use std::ffi::c_int;

/// `struct Pvmtevinfo` (contract 1.6): a kind of event, and room for what its reader counts.
#[repr(C)]
pub struct EventKind {
    name: Text,
    described: c_int,
    mark: libc::timeval,
    total: libc::timeval,
    count: c_int,
}
#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<EventKind>() == 56);

/// The table of events. Programs write to it (marks and counts), the library never does.
#[repr(transparent)]
pub struct EventTable(UnsafeCell<[EventKind; EVENTS.len()]>);
// SAFETY: the library neither reads nor writes it.
unsafe impl Sync for EventTable {}

/// `struct Pvmtevdid` (contract 1.6): a kind of datum in an event.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct DatumKind {
    name: Text,
    description: Text,
}
#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<DatumKind>() == 16);

macro_rules! names {
    ($($name:literal)*) => { [$(Text(concat!($name, "\0").as_ptr().cast())),*] };
}
macro_rules! data {
    ($($name:literal $description:literal;)*) => {
        [$(DatumKind {
            name: Text(concat!($name, "\0").as_ptr().cast()),
            description: Text(concat!($description, "\0").as_ptr().cast()),
        }),*]
    };
}

const ZERO_TIME: libc::timeval = libc::timeval { tv_sec: 0, tv_usec: 0 };

const fn events() -> [EventKind; EVENTS.len()] {
    let mut table = [const {
        EventKind { name: Text(std::ptr::null()), described: 0, mark: ZERO_TIME, total: ZERO_TIME, count: 0 }
    }; EVENTS.len()];
    let mut index = 0;
    while index < EVENTS.len() {
        table[index].name = EVENTS[index];
        index += 1;
    }
    table
}

/// The events.
#[unsafe(no_mangle)]
pub static pvmtevinfo: EventTable = EventTable(UnsafeCell::new(events()));

const EVENTS: [Text; 109] = names! {
    "addhosts" "barrier" "bcast" "bufinfo" "config" "delete" "delhosts" "exit" "freebuf"
    "getfds" "getinst" "getopt" "getrbuf" "getsbuf" "gettid" "gsize" "halt" "initsend" "insert"
    "joingroup" "kill" "lookup" "lvgroup" "mcast" "mkbuf" "mstat" "mytid" "notify" "nrecv"
    "parent" "perror" "pkbyte" "pkcplx" "pkdcplx" "pkdouble" "pkfloat" "pkint" "pkuint"
    "pklong" "pkulong" "pkshort" "pkushort" "pkstr" "probe" "pstat" "recv" "recvf" "send"
    "sendsig" "setopt" "setrbuf" "setsbuf" "spawn" "start_pvmd" "tasks" "tickle" "tidtohost"
    "trecv" "upkbyte" "upkcplx" "upkdcplx" "upkdouble" "upkfloat" "upkint" "upkuint" "upklong"
    "upkulong" "upkshort" "upkushort" "upkstr" "version" "reg_hoster" "reg_rm" "reg_tasker"
    "reg_tracer" "newtask" "endtask" "spntask" "archcode" "catchout" "getmwid" "gettmask"
    "hostsync" "packf" "precv" "psend" "reduce" "setmwid" "settmask" "unpackf" "gather"
    "scatter" "putinfo" "getinfo" "delinfo" "getmboxinfo" "newcontext" "freecontext"
    "setcontext" "getcontext" "siblings" "getminfo" "setminfo" "addmhf" "delmhf" "mhf_invoke"
    "timing" "profiling" "user_defined"
};

/// The data of events.
#[unsafe(no_mangle)]
pub static pvmtevdidlist: [DatumKind; 123] = data! {
    "AN" "architecture name"; "AC" "architecture code"; "AS" "arguments of a program";
    "BF" "whether to wait"; "CC" "result code"; "CN" "mailbox class"; "CI" "mailbox index";
    "CF" "mailbox flags"; "CD" "mailbox data"; "CR" "mailbox data found";
    "CL" "mailbox classes found"; "CDA" "address of collective data";
    "CDT" "type of collective data"; "CDX" "collective data"; "CDC" "count of collective data";
    "CGI" "instance that gets the result"; "CRF" "reduction function"; "CXC" "context in use";
    "CXF" "context given back"; "CXN" "context made"; "CXS" "context chosen";
    "ERI" "error code"; "ERR" "error text"; "FDS" "descriptors"; "FP" "file"; "GN" "group";
    "GI" "instance in the group"; "GT" "tid of the group member"; "GS" "members of the group";
    "GBC" "members at the barrier"; "HN" "host"; "HNL" "hosts"; "HNA" "other name of the host";
    "HPT" "tid of the host"; "HA" "architecture of the host"; "HSP" "speed of the host";
    "HIS" "host entries"; "HCS" "seconds of the host clock";
    "HCU" "microseconds of the host clock"; "HDS" "seconds of clock difference";
    "HDU" "microseconds of clock difference"; "HS" "state of the host";
    "INB" "bytes as told by bufinfo"; "IMC" "tag as told by bufinfo";
    "IST" "source as told by bufinfo"; "MC" "tag"; "MCX" "context of the message";
    "MB" "buffer"; "MNB" "bytes of the message"; "SRC" "source"; "DST" "destination";
    "MDL" "destinations"; "MTS" "seconds of the time limit";
    "MTU" "microseconds of the time limit"; "MRF" "matching function"; "MRB" "receive buffer";
    "MSB" "send buffer"; "ME" "encoding"; "MHI" "message handler"; "AST" "source found";
    "AMC" "tag found"; "AML" "length found"; "NE" "kind of notify"; "NMC" "tag of the notify";
    "NCT" "count of the notify"; "NTL" "tids of the notify"; "NH" "number of hosts";
    "NA" "number of architectures"; "OPT" "option"; "OPV" "value of the option";
    "OS" "line of output"; "PDA" "address of packed data"; "PDT" "type of packed data";
    "PC" "count of packed data"; "PSD" "stride of packed data"; "PSG" "packed string";
    "PF" "format"; "PRF" "calls counted"; "RST" "source wanted"; "RMC" "tag wanted";
    "RCX" "context wanted"; "SN" "signal"; "SE" "program"; "SF" "spawn flags";
    "SW" "place of the spawn"; "SC" "copies wanted"; "STL" "tids spawned";
    "SIB" "tids of siblings"; "TID" "tid"; "PT" "tid of the parent"; "MT" "own tid";
    "TF" "flags of the task"; "TN" "name of the task"; "PID" "process id"; "TT" "tid aimed at";
    "TW" "where to look for tasks"; "TIS" "task entries"; "TNT" "number of task entries";
    "TST" "state of the task"; "TUS" "seconds in user mode"; "TUU" "microseconds in user mode";
    "TSS" "seconds in system mode"; "TSU" "microseconds in system mode"; "TES" "exit status";
    "TA" "arguments of tickle"; "TR" "answers of tickle"; "TS" "seconds"; "TU" "microseconds";
    "TGS" "seconds measured"; "TGU" "microseconds measured"; "TMW" "whose trace mask";
    "TM" "trace mask"; "TRC" "context of traces"; "TRT" "tag of traces";
    "TRX" "context of output"; "TRO" "tag of output"; "TRM" "mask set by the tracer";
    "TRB" "buffer set by the tracer"; "TRL" "options set by the tracer"; "VER" "version";
    "VCT" "events counted"; "VID" "event"; "WID" "wait id";
};
