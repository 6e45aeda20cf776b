//! Tables for readers of trace files (contract 1.2, tier B): the names of events and of their data, in the order of the
//! `TEV_*` and `TEV_DID_*` numbers of `pvmtev.h`. They are made from the list of events in the core.
#![allow(non_upper_case_globals)] // the names are PVM's
use crate::data::Text;
use pvm_core::events::{DATA, DatumInfo, EVENTS};
use std::cell::UnsafeCell;
use std::ffi::c_int;

/// `struct Pvmtevinfo` (contract 1.6): a kind of event, with fields in which the reader of a trace keeps counts.
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

/// The table of events. Programs write marks and counts to it; the library does not.
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

const ZERO_TIME: libc::timeval = libc::timeval { tv_sec: 0, tv_usec: 0 };

const fn events() -> [EventKind; EVENTS.len()] {
    let mut table = [const {
        EventKind { name: Text(std::ptr::null()), described: 0, mark: ZERO_TIME, total: ZERO_TIME, count: 0 }
    }; EVENTS.len()];
    let mut index = 0;
    while index < EVENTS.len() {
        table[index].name = Text(EVENTS[index].name.as_ptr());
        index += 1;
    }
    table
}

const fn data() -> [DatumKind; DATA.len()] {
    let nothing = Text(std::ptr::null());
    let mut table = [DatumKind { name: nothing, description: nothing }; DATA.len()];
    let mut index = 0;
    while index < DATA.len() {
        let DatumInfo { name, description, .. } = DATA[index];
        table[index] = DatumKind { name: Text(name.as_ptr()), description: Text(description.as_ptr()) };
        index += 1;
    }
    table
}

/// The events.
#[unsafe(no_mangle)]
pub static pvmtevinfo: EventTable = EventTable(UnsafeCell::new(events()));

/// The data of events.
#[unsafe(no_mangle)]
pub static pvmtevdidlist: [DatumKind; DATA.len()] = data();
