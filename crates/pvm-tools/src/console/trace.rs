//! `trace`: chooses which events of spawned tasks are recorded.
use pvm_core::events::{EVENTS_PER_CHARACTER, MASK_CHARACTERS};
use std::fmt::Write;

/// The events that can be chosen, in the order of the table, with their numbers (`TEV_*`).
#[rustfmt::skip]
const EVENTS: [(&str, usize); 104] = [
    ("addhosts", 0), ("addmhf", 103), ("archcode", 78), ("barrier", 1), ("bcast", 2), ("bufinfo", 3),
    ("catchout", 79), ("config", 4), ("delete", 5), ("delhosts", 6), ("delinfo", 94), ("delmhf", 104),
    ("exit", 7), ("freebuf", 8), ("freecontext", 97), ("gather", 90), ("getcontext", 99), ("getfds", 9),
    ("getinfo", 93), ("getinst", 10), ("getmboxinfo", 95), ("getminfo", 101), ("getmwid", 80), ("getopt", 11),
    ("getrbuf", 12), ("getsbuf", 13), ("gettid", 14), ("gettmask", 81), ("gsize", 15), ("halt", 16),
    ("hostsync", 82), ("initsend", 17), ("insert", 18), ("joingroup", 19), ("kill", 20), ("lookup", 21),
    ("lvgroup", 22), ("mcast", 23), ("mhf_invoke", 105), ("mkbuf", 24), ("mstat", 25), ("mytid", 26),
    ("newcontext", 96), ("notify", 27), ("nrecv", 28), ("packf", 83), ("parent", 29), ("perror", 30),
    ("pkbyte", 31), ("pkcplx", 32), ("pkdcplx", 33), ("pkdouble", 34), ("pkfloat", 35), ("pkint", 36),
    ("pklong", 38), ("pkshort", 40), ("pkstr", 42), ("pkuint", 37), ("pkulong", 39), ("pkushort", 41),
    ("precv", 84), ("probe", 43), ("psend", 85), ("pstat", 44), ("putinfo", 92), ("recv", 45), ("recvf", 46),
    ("reduce", 86), ("reg_hoster", 71), ("reg_rm", 72), ("reg_tasker", 73), ("reg_tracer", 74), ("scatter", 91),
    ("send", 47), ("sendsig", 48), ("setcontext", 98), ("setminfo", 102), ("setmwid", 87), ("setopt", 49),
    ("setrbuf", 50), ("setsbuf", 51), ("settmask", 88), ("siblings", 100), ("spawn", 52), ("start_pvmd", 53),
    ("tasks", 54), ("tickle", 55), ("tidtohost", 56), ("trecv", 57), ("unpackf", 89), ("upkbyte", 58),
    ("upkcplx", 59), ("upkdcplx", 60), ("upkdouble", 61), ("upkfloat", 62), ("upkint", 63), ("upklong", 65),
    ("upkshort", 67), ("upkstr", 69), ("upkuint", 64), ("upkulong", 66), ("upkushort", 68),
    ("user_defined", 108), ("version", 70),
];
/// The set of events that the monitor XPVM shows.
const XPVM: &[u8; MASK_CHARACTERS] = b"FH@@HMDC@@HNAAB@@@@@@C@@@ICA@@@@@@@";
/// The number of columns of the table.
const COLUMNS: usize = 4;

/// The chosen events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mask([u8; MASK_CHARACTERS]);

impl Mask {
    /// Returns the events that XPVM shows, which are chosen when the console starts.
    pub fn xpvm() -> Mask {
        Mask(*XPVM)
    }

    /// Returns the mask in the form in which spawned tasks receive it (`PVMTMASK`).
    pub fn characters(&self) -> &[u8] {
        &self.0
    }

    fn has(&self, event: usize) -> bool {
        self.0[event / EVENTS_PER_CHARACTER] & (1 << (event % EVENTS_PER_CHARACTER)) != 0
    }

    fn set(&mut self, event: usize, on: bool) {
        let bit = 1 << (event % EVENTS_PER_CHARACTER);
        let character = &mut self.0[event / EVENTS_PER_CHARACTER];
        match on {
            true => *character |= bit,
            false => *character &= !bit,
        }
    }

    /// Returns the table of all events, with the chosen ones marked; it is filled column by column.
    pub fn table(&self) -> String {
        let rows = EVENTS.len().div_ceil(COLUMNS);
        let mut text = String::new();
        for row in 0..rows {
            let cells = EVENTS.iter().skip(row).step_by(rows);
            for (column, (name, event)) in cells.enumerate() {
                let space = if column == 0 { "" } else { " " };
                let mark = if self.has(*event) { '*' } else { ' ' };
                let _ = write!(text, "{space} {mark} {name:<15}");
            }
            text.push('\n');
        }
        text
    }

    /// Executes the words that follow `trace`. Returns the text to print.
    pub fn change(&mut self, words: &[String]) -> String {
        let mut text = String::new();
        let mut on = true;
        for (place, word) in words.iter().enumerate() {
            match word.as_str() {
                "+" if place == 0 => on = true,
                "-" if place == 0 => on = false,
                "*" => {
                    for (_, event) in EVENTS {
                        self.set(event, on);
                    }
                }
                "xpvm" if place == 0 => *self = Mask::xpvm(),
                name => match EVENTS.iter().find(|(known, _)| *known == name) {
                    Some((_, event)) => self.set(*event, on),
                    None => {
                        let _ = writeln!(text, "no such event \"{name}\"");
                    }
                },
            }
        }
        text
    }
}

/// Returns the name of a value of the option `PvmTraceOptions`.
pub fn option_name(value: i32) -> &'static str {
    match value {
        2 => "time",
        3 => "count",
        _ => "full",
    }
}

/// Returns the value of `PvmTraceOptions` with this name.
pub fn option_value(name: &str) -> Option<i32> {
    ["full", "time", "count"].iter().position(|known| *known == name).map(|index| index as i32 + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(mask: &mut Mask, line: &str) -> String {
        mask.change(&crate::words::split(line).unwrap())
    }

    #[test]
    fn the_table_is_the_one_of_pvm() {
        let table = Mask::xpvm().table();
        let mut lines = table.lines();
        assert_eq!(lines.next(), Some("   addhosts           gettid             pkfloat            setopt         "));
        assert_eq!(lines.next(), Some(" * addmhf             gettmask           pkint              setrbuf        "));
        assert_eq!(
            lines.next_back(),
            Some("   getsbuf            pkdouble           setmwid            version        ")
        );
        assert_eq!(table.lines().count(), 26);
    }

    #[test]
    fn events_are_chosen_and_dropped_by_name() {
        let mut mask = Mask::xpvm();
        assert_eq!(change(&mut mask, "- *"), "");
        assert_eq!(mask.characters(), "@".repeat(MASK_CHARACTERS).as_bytes());
        assert_eq!(change(&mut mask, "+ addhosts"), "");
        assert_eq!(mask.characters()[0], b'A');
        assert_eq!(change(&mut mask, "version"), "");
        assert!(mask.has(70));
        assert_eq!(change(&mut mask, "foo"), "no such event \"foo\"\n");
        assert_eq!(change(&mut mask, "xpvm a"), "no such event \"a\"\n");
        assert_eq!(mask, Mask::xpvm());
    }

    #[test]
    fn options_have_names() {
        for name in ["full", "time", "count"] {
            assert_eq!(option_name(option_value(name).unwrap()), name);
        }
        assert_eq!(option_value("foo"), None);
    }
}
