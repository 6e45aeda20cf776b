//! The trace events (contract 1.6, 2.12): their numbers, names and data. Everything else about events is generated from
//! this list or checked against it: the tables `pvmtevinfo` and `pvmtevdidlist`, the numbers in `pvmtev.h`, and the
//! writers and readers of trace records.
#![allow(missing_docs)] // the names are those of the header
use std::ffi::CStr;

/// Bit in the number of an event: the function begins.
pub const ENTRY: i32 = 0x4000;
/// Bit in the number of an event: the function has ended.
pub const EXIT: i32 = 0x8000;
/// The number of characters of a mask.
pub const MASK_CHARACTERS: usize = 35;
/// The number of events that one character of a mask stands for: one event for each of the character's lowest bits.
pub const EVENTS_PER_CHARACTER: usize = 4;
/// The character that stands in a mask where none of its events is chosen.
pub const MASK_EMPTY: u8 = b'@';

/// The marks between the parts of a trace message.
pub mod mark {
    pub const BUFFER: i32 = -1;
    pub const BUFFER_END: i32 = -2;
    pub const DATA: i32 = -3;
    pub const DATA_END: i32 = -4;
    pub const DESCRIPTION: i32 = -5;
    pub const DESCRIPTION_END: i32 = -6;
    pub const RECORD: i32 = -7;
    pub const RECORD_END: i32 = -8;
    pub const USER: i32 = -9;
    pub const USER_END: i32 = -10;
}

/// The types of data in records (`TEV_DATA_*`).
pub mod data_type {
    pub const BYTE: i32 = 1;
    pub const CPLX: i32 = 2;
    pub const DCPLX: i32 = 3;
    pub const DOUBLE: i32 = 4;
    pub const FLOAT: i32 = 5;
    pub const INT: i32 = 6;
    pub const UINT: i32 = 7;
    pub const LONG: i32 = 8;
    pub const ULONG: i32 = 9;
    pub const SHORT: i32 = 10;
    pub const USHORT: i32 = 11;
    pub const STRING: i32 = 12;
    /// Bit in the number of a type: the datum is an array, which begins with the number of its elements.
    pub const ARRAY: i32 = 0x80;
}

/// The form of a datum of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    Int,
    Long,
    Text,
    Ints,
    Texts,
}

impl Form {
    /// Returns the number that records use for the form (`TEV_DATA_*`).
    pub const fn type_number(self) -> i32 {
        match self {
            Form::Int => data_type::INT,
            Form::Long => data_type::LONG,
            Form::Text => data_type::STRING,
            Form::Ints => data_type::INT | data_type::ARRAY,
            Form::Texts => data_type::STRING | data_type::ARRAY,
        }
    }
}

/// A kind of datum.
#[derive(Debug, Clone, Copy)]
pub struct DatumInfo {
    pub name: &'static CStr,
    pub description: &'static CStr,
    pub form: Form,
}

/// A kind of event.
#[derive(Debug, Clone, Copy)]
pub struct EventInfo {
    pub name: &'static CStr,
    /// The data that follow time and task in the record of a function's start, or of an instantaneous event.
    pub entry: &'static [Datum],
    /// The data that follow time and task in the record of a function's end.
    pub exit: &'static [Datum],
}

macro_rules! c_string {
    ($text:expr) => {
        match CStr::from_bytes_with_nul(concat!($text, "\0").as_bytes()) {
            Ok(text) => text,
            Err(_) => panic!("a zero in a name"),
        }
    };
}

macro_rules! data {
    ($($name:ident $form:ident $description:literal;)*) => {
        /// The meaning of a datum (`TEV_DID_*`).
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[allow(clippy::upper_case_acronyms)]
        #[repr(i32)]
        pub enum Datum { $($name),* }

        /// All data, by number.
        pub const DATA: [DatumInfo; 123] = [$(DatumInfo {
            name: c_string!(stringify!($name)),
            description: c_string!($description),
            form: Form::$form,
        }),*];

        const DATUM_LIST: [Datum; DATA.len()] = [$(Datum::$name),*];
    };
}

macro_rules! events {
    ($($event:ident $name:literal [$($entry:ident)*] [$($exit:ident)*];)*) => {
        /// An event (`TEV_*`).
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(i32)]
        pub enum Event { $($event),* }

        /// All events, by number.
        pub const EVENTS: [EventInfo; 109] = [$(EventInfo {
            name: c_string!($name),
            entry: &[$(Datum::$entry),*],
            exit: &[$(Datum::$exit),*],
        }),*];

        const EVENT_LIST: [Event; EVENTS.len()] = [$(Event::$event),*];
    };
}

data! {
    AN Text "PVM Architecture Name";
    AC Int "PVM Architecture Code";
    AS Texts "Argument Strings (Argc/Argv)";
    BF Int "Block Flag";
    CC Int "Condition Code";
    CN Text "Class Name";
    CI Int "Class Index";
    CF Int "Class Flags";
    CD Int "Class Data";
    CR Int "Returned Class Data";
    CL Texts "Returned Class Names";
    CDA Long "Collective Data Address";
    CDT Int "Collective Data Type";
    CDX Int "Collective Data";
    CDC Int "Collective Count";
    CGI Int "Collective Group Result Instance";
    CRF Int "Collective Reduce Function";
    CXC Int "Current Message Context";
    CXF Int "Freed Message Context";
    CXN Int "New Message Context";
    CXS Int "Set Message Context";
    ERI Int "PVM Error Identifier";
    ERR Text "PVM Error String";
    FDS Ints "File Descriptors";
    FP Int "File Pointer";
    GN Text "Group Name";
    GI Int "Group Instance Number";
    GT Int "Group Task ID";
    GS Int "Group Size";
    GBC Int "Group Barrier Count";
    HN Text "Host Name";
    HNL Texts "Host Name List";
    HNA Text "Host Name Alias";
    HPT Int "Host PVMD Task ID";
    HA Text "Host Architecture";
    HSP Int "Host Speed";
    HIS Int "Host Information Structures";
    HCS Int "Host Clock Seconds";
    HCU Int "Host Clock Microseconds";
    HDS Int "Host Delta Seconds";
    HDU Int "Host Delta Microseconds";
    HS Int "Host Status";
    INB Int "Info Number of Message Bytes";
    IMC Int "Info Message Code";
    IST Int "Info Message Source Task";
    MC Int "Message Code";
    MCX Int "Message Context";
    MB Int "Message Buffer";
    MNB Int "Message Number of Bytes";
    SRC Int "Message Source Task ID";
    DST Int "Message Destination Task ID";
    MDL Ints "Message Destination Task ID List";
    MTS Int "Message Timeout Seconds";
    MTU Int "Message Timeout Microseconds";
    MRF Int "Message Receive Function";
    MRB Int "Message Receive Buffer";
    MSB Int "Message Send Buffer";
    ME Int "Message Encoding";
    MHI Int "Message Handler Index";
    AST Int "Actual Message Sender Task ID";
    AMC Int "Actual Message Code";
    AML Int "Actual Message Length";
    NE Int "Notify Event ID";
    NMC Int "Notify Message Code";
    NCT Int "Notify Count";
    NTL Ints "Notify Task ID List";
    NH Int "Number of Hosts";
    NA Int "Number of Architectures";
    OPT Int "PVM Option ID";
    OPV Int "PVM Option Value";
    OS Text "Output String";
    PDA Long "Pack Data Address";
    PDT Int "Pack Data Type";
    PC Int "Pack Count";
    PSD Int "Pack Stride";
    PSG Text "Pack String";
    PF Text "Pack Format";
    PRF Ints "Profiling Count";
    RST Int "Receive Msg Source Task / Wildcard";
    RMC Int "Receive Msg Code / Wildcard";
    RCX Int "Receive Msg Context";
    SN Int "Signal Number";
    SE Text "Spawn Executable File";
    SF Int "Spawn Flags";
    SW Text "Spawn Where";
    SC Int "Spawn Count";
    STL Ints "Spawned Task ID List";
    SIB Ints "Sibling Task ID List";
    TID Int "Task ID";
    PT Int "Parent Task ID";
    MT Int "My Task ID";
    TF Int "Task Flags";
    TN Text "Task Name";
    PID Int "Task Process ID";
    TT Int "Target Task ID";
    TW Int "Tasks Where";
    TIS Int "Task Information Structures";
    TNT Int "Task Info - Number of Tasks";
    TST Int "Task Status";
    TUS Int "Task User Usage Seconds";
    TUU Int "Task User Usage Microseconds";
    TSS Int "Task System Usage Seconds";
    TSU Int "Task System Usage Microseconds";
    TES Int "Task Exit Status";
    TA Ints "Tickle Arguments";
    TR Ints "Tickle Responses";
    TS Int "Time Seconds";
    TU Int "Time Microseconds";
    TGS Ints "Timing Seconds";
    TGU Ints "Timing Microseconds";
    TMW Int "Trace Mask Who";
    TM Text "Trace Mask";
    TRC Int "Tracer Message Trace Context";
    TRT Int "Tracer Message Trace Tag";
    TRX Int "Tracer Message Output Context";
    TRO Int "Tracer Message Output Tag";
    TRM Text "Tracer Trace Mask";
    TRB Int "Tracer Trace Buffering";
    TRL Int "Tracer Trace Options";
    VER Text "PVM Version";
    VCT Int "Trace Event Count";
    VID Texts "Trace Event ID";
    WID Int "Wait Identifier Number";
}

// PVM 3.4.6 defines events that it never records; those have no data.
events! {
    Addhosts "addhosts" [HNL] [CC];
    Barrier "barrier" [GN GBC] [CC];
    Bcast "bcast" [GN MC] [CC MDL];
    Bufinfo "bufinfo" [MB] [CC INB IMC IST];
    Config "config" [] [NH NA CC];
    Delete "delete" [CN CI] [CC];
    Delhosts "delhosts" [HNL] [CC];
    Exit "exit" [] [];
    Freebuf "freebuf" [MB] [CC];
    Getfds "getfds" [] [CC FDS];
    Getinst "getinst" [GN GT] [GI];
    Getopt "getopt" [OPT] [OPV];
    Getrbuf "getrbuf" [] [MRB];
    Getsbuf "getsbuf" [] [MSB];
    Gettid "gettid" [GN GI] [GT];
    Gsize "gsize" [GN] [GS];
    Halt "halt" [] [CC];
    Initsend "initsend" [ME] [MSB];
    Insert "insert" [CN CI CD] [CC];
    Joingroup "joingroup" [GN] [CC];
    Kill "kill" [TT] [CC];
    Lookup "lookup" [CN CI] [CC];
    Lvgroup "lvgroup" [GN] [CC];
    Mcast "mcast" [MNB MC MCX MDL] [CC];
    Mkbuf "mkbuf" [ME] [MB];
    Mstat "mstat" [HN] [HS];
    Mytid "mytid" [] [MT];
    Notify "notify" [NE NMC NTL] [CC];
    Nrecv "nrecv" [RST RMC RCX] [MB MNB MC MCX SRC];
    Parent "parent" [] [PT];
    Perror "perror" [] [];
    Pkbyte "pkbyte" [PDA PC PSD] [CC];
    Pkcplx "pkcplx" [PDA PC PSD] [CC];
    Pkdcplx "pkdcplx" [PDA PC PSD] [CC];
    Pkdouble "pkdouble" [PDA PC PSD] [CC];
    Pkfloat "pkfloat" [PDA PC PSD] [CC];
    Pkint "pkint" [PDA PC PSD] [CC];
    Pkuint "pkuint" [PDA PC PSD] [CC];
    Pklong "pklong" [PDA PC PSD] [CC];
    Pkulong "pkulong" [PDA PC PSD] [CC];
    Pkshort "pkshort" [PDA PC PSD] [CC];
    Pkushort "pkushort" [PDA PC PSD] [CC];
    Pkstr "pkstr" [PDA] [CC];
    Probe "probe" [RST RMC RCX] [CC];
    Pstat "pstat" [TT] [TST];
    Recv "recv" [RST RMC RCX] [MB MNB MC MCX SRC];
    Recvf "recvf" [] [];
    Send "send" [MNB DST MC MCX] [CC];
    Sendsig "sendsig" [TT SN] [CC];
    Setopt "setopt" [OPT OPV] [OPV];
    Setrbuf "setrbuf" [MB] [MRB];
    Setsbuf "setsbuf" [MB] [MSB];
    Spawn "spawn" [SE SW SF SC] [CC STL];
    StartPvmd "start_pvmd" [BF AS] [CC];
    Tasks "tasks" [TW] [CC TNT];
    Tickle "tickle" [TA] [CC TR];
    Tidtohost "tidtohost" [] [];
    Trecv "trecv" [RST RMC RCX MTS MTU] [MB MNB MC MCX SRC];
    Upkbyte "upkbyte" [PDA PC PSD] [CC];
    Upkcplx "upkcplx" [PDA PC PSD] [CC];
    Upkdcplx "upkdcplx" [PDA PC PSD] [CC];
    Upkdouble "upkdouble" [PDA PC PSD] [CC];
    Upkfloat "upkfloat" [PDA PC PSD] [CC];
    Upkint "upkint" [PDA PC PSD] [CC];
    Upkuint "upkuint" [PDA PC PSD] [CC];
    Upklong "upklong" [PDA PC PSD] [CC];
    Upkulong "upkulong" [PDA PC PSD] [CC];
    Upkshort "upkshort" [PDA PC PSD] [CC];
    Upkushort "upkushort" [PDA PC PSD] [CC];
    Upkstr "upkstr" [PDA] [CC];
    Version "version" [] [];
    RegHoster "reg_hoster" [] [CC];
    RegRm "reg_rm" [] [CC];
    RegTasker "reg_tasker" [] [CC];
    RegTracer "reg_tracer" [TRC TRT TRX TRO TRM TRB TRL] [CC];
    Newtask "newtask" [PT TF TN] [];
    Endtask "endtask" [TST TUS TUU TSS TSU] [];
    Spntask "spntask" [PT] [];
    Archcode "archcode" [AN] [AC];
    Catchout "catchout" [] [];
    Getmwid "getmwid" [] [];
    Gettmask "gettmask" [] [];
    Hostsync "hostsync" [] [];
    Packf "packf" [PF] [CC];
    Precv "precv" [RST RMC RCX PDA PC PDT] [CC MNB MC MCX SRC];
    Psend "psend" [DST MC MCX PDA PC PDT] [CC];
    Reduce "reduce" [GN MC] [CC];
    Setmwid "setmwid" [] [];
    Settmask "settmask" [] [];
    Unpackf "unpackf" [PF] [CC];
    Gather "gather" [GN MC] [CC];
    Scatter "scatter" [GN MC] [CC];
    Putinfo "putinfo" [CN CI CF CD] [CC];
    Getinfo "getinfo" [CN CI CF] [CC CR];
    Delinfo "delinfo" [CN CI CF] [CC];
    Getmboxinfo "getmboxinfo" [CN] [CC];
    Newcontext "newcontext" [] [CXN];
    Freecontext "freecontext" [CXF] [CC];
    Setcontext "setcontext" [CXS] [CC];
    Getcontext "getcontext" [] [CXC];
    Siblings "siblings" [] [SIB];
    Getminfo "getminfo" [MB] [CC];
    Setminfo "setminfo" [MB] [CC];
    Addmhf "addmhf" [RST RMC RCX] [MHI];
    Delmhf "delmhf" [MHI] [CC];
    MhfInvoke "mhf_invoke" [RST RMC RCX MB MNB MC MCX SRC] [];
    Timing "timing" [VCT VID TGS TGU PRF] [];
    Profiling "profiling" [VCT VID PRF] [];
    UserDefined "user_defined" [] [];
}

/// The data with which every record begins.
pub const HEAD: [Datum; 3] = [Datum::TS, Datum::TU, Datum::TID];

impl Datum {
    pub fn from_number(number: i32) -> Option<Datum> {
        DATUM_LIST.get(usize::try_from(number).ok()?).copied()
    }
    pub const fn info(self) -> &'static DatumInfo {
        &DATA[self as usize]
    }
    pub fn name(self) -> &'static str {
        self.info().name.to_str().unwrap_or_default()
    }
}

impl Event {
    pub fn from_number(number: i32) -> Option<Event> {
        EVENT_LIST.get(usize::try_from(number).ok()?).copied()
    }
    pub const fn info(self) -> &'static EventInfo {
        &EVENTS[self as usize]
    }
    pub fn name(self) -> &'static str {
        self.info().name.to_str().unwrap_or_default()
    }
    /// Returns whether a mask chooses the event. Missing characters choose nothing.
    pub fn chosen_by(self, mask: &[u8]) -> bool {
        let number = self as usize;
        let bit = 1 << (number % EVENTS_PER_CHARACTER);
        mask.get(number / EVENTS_PER_CHARACTER).is_some_and(|character| character & bit != 0)
    }
}

/// Returns the mask that chooses these events.
pub fn mask(events: impl IntoIterator<Item = Event>) -> [u8; MASK_CHARACTERS] {
    let mut mask = [MASK_EMPTY; MASK_CHARACTERS];
    for event in events {
        let number = event as usize;
        mask[number / EVENTS_PER_CHARACTER] |= 1 << (number % EVENTS_PER_CHARACTER);
    }
    mask
}

/// Returns all events in the order of their numbers.
pub fn all() -> impl Iterator<Item = Event> {
    EVENT_LIST.into_iter()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// Returns the header's constants with the given prefix: each name without the prefix, and its number.
    fn defined(prefix: &str) -> BTreeMap<String, i32> {
        let header = include_str!("../../../include/pvmtev.h");
        let number = |text: &str| match text.strip_prefix("0x") {
            Some(digits) => i32::from_str_radix(digits, 16).ok(),
            None => text.trim_matches(['(', ')']).parse().ok(),
        };
        let lines = header.lines().filter_map(|line| line.strip_prefix("#define ")?.split_once(' '));
        lines.filter_map(|(name, value)| Some((name.strip_prefix(prefix)?.to_owned(), number(value.trim())?))).collect()
    }

    #[test]
    fn the_header_has_the_numbers_of_this_list() {
        let events = defined("TEV_");
        for event in all() {
            assert_eq!(events.get(&event.name().to_uppercase()), Some(&(event as i32)), "{event:?}");
        }
        assert_eq!(events["MAX"], EVENTS.len() as i32 - 1);
        assert_eq!((events["EVENT_ENTRY"], events["EVENT_EXIT"]), (ENTRY, EXIT));
        let data = defined("TEV_DID_");
        for datum in DATUM_LIST {
            assert_eq!(data.get(datum.name()), Some(&(datum as i32)), "{datum:?}");
        }
        assert_eq!(data["MAX"], DATA.len() as i32 - 1);
        assert_eq!(data.len(), DATA.len() + 2); // the first and the last have two names
    }

    #[test]
    fn the_header_has_the_marks_and_types_of_this_list() {
        let marks = defined("TEV_MARK_");
        for (name, number) in [
            ("EVENT_BUFFER", mark::BUFFER),
            ("EVENT_BUFFER_END", mark::BUFFER_END),
            ("DATA_ID", mark::DATA),
            ("DATA_ID_END", mark::DATA_END),
            ("EVENT_DESC", mark::DESCRIPTION),
            ("EVENT_DESC_END", mark::DESCRIPTION_END),
            ("EVENT_RECORD", mark::RECORD),
            ("EVENT_RECORD_END", mark::RECORD_END),
            ("USER_EVENT_RECORD", mark::USER),
            ("USER_EVENT_RECORD_END", mark::USER_END),
        ] {
            assert_eq!(marks.get(name), Some(&number), "{name}");
        }
        let types = defined("TEV_DATA_");
        for (name, form) in [("INT", Form::Int), ("LONG", Form::Long), ("STRING", Form::Text)] {
            assert_eq!(types.get(name), Some(&form.type_number()), "{name}");
        }
        assert_eq!(types["ARRAY"], Form::Ints.type_number() - Form::Int.type_number());
        assert_eq!(types["USHORT"], data_type::USHORT);
    }

    #[test]
    fn numbers_are_converted_back() {
        assert!(all().all(|event| Event::from_number(event as i32) == Some(event)));
        assert!(DATUM_LIST.iter().all(|datum| Datum::from_number(*datum as i32) == Some(*datum)));
        assert_eq!((Event::from_number(109), Datum::from_number(-1)), (None, None));
    }

    #[test]
    fn a_mask_chooses_its_events_and_no_other() {
        let mask = mask([Event::Send, Event::UserDefined]);
        let chosen: Vec<Event> = all().filter(|event| event.chosen_by(&mask)).collect();
        assert_eq!(chosen, [Event::Send, Event::UserDefined]);
        assert!(!Event::UserDefined.chosen_by(&mask[..5]));
    }
}
