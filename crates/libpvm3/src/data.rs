//! The data symbols of the library (contract 1.5), with the sizes that linked programs expect: a program that is not
//! position independent holds copies of them.
//!
//! Programs read them all and write some (`pvmautoerr`, `pvm_errno`). So the error policy and the display of tids are
//! stored only here; the other symbols are copies of values that the library stores elsewhere.
#![allow(non_upper_case_globals)] // the names are PVM's
use pvm_core::codes::TEXTS;
use pvm_core::events::{MASK_CHARACTERS, MASK_EMPTY};
use pvm_core::proto::TraceSettings;
use std::cell::UnsafeCell;
use std::ffi::{c_char, c_int, c_void};
use std::ptr::null_mut;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicI32, AtomicPtr};

macro_rules! integers {
    ($($(#[$doc:meta])* $name:ident = $value:expr;)*) => {
        $($(#[$doc])* #[unsafe(no_mangle)] pub static $name: AtomicI32 = AtomicI32::new($value);)*
    };
}

integers! {
    /// The code of the last call that failed.
    pvm_errno = 0;
    /// The number of entries of `pvm_errlist`.
    pvm_nerr = TEXTS.len() as c_int;
    /// The effective user id of the process; -1 before enrollment.
    pvm_useruid = -1;
    /// `PvmAutoErr`.
    pvmautoerr = 1;
    /// The tid of this task, -1 before enrollment.
    pvmmytid = -1;
    /// The parent's tid, 0 for none, -1 before enrollment.
    pvmmyptid = -1;
    /// The process id under which the task enrolled.
    pvmmyupid = -1;
    /// The current context.
    pvmmyctx = 0;
    /// The data signature of this host.
    pvmmydsig = 0;
    /// `PvmRoute`.
    pvmrouteopt = ROUTE_DEFAULT;
    /// `PvmFragSize`.
    pvmfrgsiz = FRAGMENT_BYTES_DEFAULT;
    /// In 3.4.6 the size of packets between daemons, in bytes.
    pvmudpmtu = FRAGMENT_BYTES_DEFAULT;
    /// `PvmResvTids`.
    pvmrescode = 0;
    /// `PvmShowTids`.
    pvmshowtaskid = 1;
    /// `PvmDebugMask`.
    pvmdebmask = 0;
    /// `PvmNoReset`.
    pvmnoreset = 0;
    /// The index of this task's entry in the mailbox of the tasks that a reset does not end, or -1.
    pvmnoresetindex = -1;
    /// The length of `pvmsibtids`; -1 before `pvm_siblings` was called.
    pvmnsibs = -1;
    /// The resource manager.
    pvmschedtid = 0;
}

/// The value of `PvmRoute` until it is set: `PvmAllowDirect`.
const ROUTE_DEFAULT: c_int = 2;
/// The value of `PvmFragSize` until it is set.
const FRAGMENT_BYTES_DEFAULT: c_int = 4080;

/// The tasks that were spawned together with this one.
#[unsafe(no_mangle)]
pub static pvmsibtids: AtomicPtr<c_int> = AtomicPtr::new(null_mut());
/// In 3.4.6 the internals of the active receive buffer; here always null.
#[unsafe(no_mangle)]
pub static pvmrbuf: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
/// In 3.4.6 the internals of the active send buffer; here always null.
#[unsafe(no_mangle)]
pub static pvmsbuf: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
/// In 3.4.6 the message queue; here always null.
#[unsafe(no_mangle)]
pub static pvmrxlist: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
/// In 3.4.6 the `pvm_precv` in progress, on shared-memory multiprocessors; here always null.
#[unsafe(no_mangle)]
pub static pvm_inprecv: AtomicPtr<c_void> = AtomicPtr::new(null_mut());

/// A C string constant that can be stored in a static.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct Text(pub *const c_char);
// SAFETY: it points to constant bytes with a zero at their end.
unsafe impl Sync for Text {}

macro_rules! text_table {
    ($($text:literal)*) => { [$(Text(concat!($text, "\0").as_ptr().cast())),*] };
}

/// The texts of the codes 0, -1, and so on.
#[unsafe(no_mangle)]
pub static pvm_errlist: [Text; TEXTS.len()] = text_table! {
    "Error 0" "Error 1" "Bad parameter" "Parameter mismatch" "Value too large" "End of buffer"
    "No such host" "No such file" "Permission denied" "Error 9" "Malloc failed" "Error 11"
    "Can't decode message" "Error 13" "Can't contact local daemon" "No current buffer"
    "No such buffer" "Null group name" "Already in group" "No such group" "Not in group"
    "No such instance" "Host failed" "No parent task" "Not implemented" "Pvmd system error"
    "Version mismatch" "Out of resources" "Duplicate host" "Can't start pvmd"
    "Already in progress" "No such task" "Not Found" "Already Exists"
    "Hoster must run on master host" "Spawning parent set PvmNoParent"
    "Master Host IP Address is Loopback! (See pvm3/Readme)"
};

/// The text of unknown codes.
pub const UNKNOWN_ERROR: Text = Text(c"Unknown Error".as_ptr());

/// Returns the text of a code as a C string.
pub fn error_text(code: c_int) -> Text {
    let index = usize::try_from(-i64::from(code)).unwrap_or(usize::MAX);
    pvm_errlist.get(index).copied().unwrap_or(UNKNOWN_ERROR)
}

/// The length of a trace mask with its closing zero, in bytes.
pub const MASK_BYTES: usize = 36;

/// `struct Pvmtracer` (contract 1.6): the receivers of output and traces, and the trace settings.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Tracer {
    trctid: c_int,
    trcctx: c_int,
    trctag: c_int,
    outtid: c_int,
    outctx: c_int,
    outtag: c_int,
    trcbuf: c_int,
    trcopt: c_int,
    tmask: [u8; MASK_BYTES],
}
const _: () = assert!(size_of::<Tracer>() == 68);

/// A `struct Pvmtracer` that programs read.
#[repr(transparent)]
pub struct TracerSymbol(UnsafeCell<Tracer>);
// SAFETY: it is written only under the process lock (`publish`). A program that reads it while other threads call the
// library has the same race with 3.4.6.
unsafe impl Sync for TracerSymbol {}

const TRACER_EMPTY: Tracer = Tracer {
    trctid: 0,
    trcctx: 0,
    trctag: 0,
    outtid: 0,
    outctx: 0,
    outtag: 0,
    trcbuf: 0,
    trcopt: 0,
    tmask: [0; MASK_BYTES],
};

/// The settings of children.
#[unsafe(no_mangle)]
pub static pvmctrc: TracerSymbol = TracerSymbol(UnsafeCell::new(TRACER_EMPTY));
/// The settings of this task.
#[unsafe(no_mangle)]
pub static pvmtrc: TracerSymbol = TracerSymbol(UnsafeCell::new(TRACER_EMPTY));

impl TracerSymbol {
    /// Copies `settings` to the symbol. The caller holds the process lock.
    pub fn publish(&self, settings: &TraceSettings) {
        let tracer = Tracer {
            trctid: settings.trace_tid,
            trcctx: settings.trace_ctx,
            trctag: settings.trace_tag,
            outtid: settings.output_tid,
            outctx: settings.output_ctx,
            outtag: settings.output_tag,
            trcbuf: settings.trace_buffer,
            trcopt: settings.trace_options,
            tmask: mask(&settings.mask),
        };
        // SAFETY: see `Sync`; a plain write through a pointer that is always valid.
        unsafe { self.0.get().write(tracer) }
    }
}

/// Returns the characters of a trace mask that stand for events, without padding.
pub fn mask_characters(text: &[u8]) -> &[u8] {
    &text[..text.len().min(MASK_CHARACTERS)]
}

/// Returns a trace mask padded to its full length. A mask that has not been set contains no event.
pub fn mask(text: &[u8]) -> [u8; MASK_BYTES] {
    let mut mask = [0; MASK_BYTES];
    if text.is_empty() {
        mask[..MASK_CHARACTERS].fill(MASK_EMPTY);
    }
    let text = mask_characters(text);
    mask[..text.len()].copy_from_slice(text);
    mask
}

/// Resets the symbols that identify the task to the values that they have in a process that is not enrolled.
pub fn forget_identity() {
    pvmmytid.store(-1, Relaxed);
    pvmmyptid.store(-1, Relaxed);
    pvmmyupid.store(-1, Relaxed);
    pvmnsibs.store(-1, Relaxed);
    pvmsibtids.store(null_mut(), Relaxed);
}

/// Resets the symbols to the values that they have in a new process. Symbols that a program may write, such as the
/// error policy, keep their values.
pub fn begin_anew() {
    forget_identity();
    pvmmyctx.store(0, Relaxed);
    pvmrouteopt.store(ROUTE_DEFAULT, Relaxed);
    pvmfrgsiz.store(FRAGMENT_BYTES_DEFAULT, Relaxed);
    pvmrescode.store(0, Relaxed);
    pvmnoreset.store(0, Relaxed);
    pvmnoresetindex.store(-1, Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CStr;

    #[test]
    fn the_exported_texts_are_the_texts_of_the_codes() {
        for (text, expected) in pvm_errlist.iter().zip(TEXTS) {
            // SAFETY: every entry is a constant C string.
            assert_eq!(unsafe { CStr::from_ptr(text.0) }.to_str(), Ok(expected));
        }
        for number in [-37, 3, c_int::MIN] {
            // SAFETY: every text is a constant C string.
            assert_eq!(unsafe { CStr::from_ptr(error_text(number).0) }, c"Unknown Error");
        }
    }

    #[test]
    fn masks_are_as_they_were_set_and_long_ones_cut() {
        assert_eq!(&mask(b"AB")[..4], b"AB\0\0");
        assert_eq!(&mask(b"")[33..], b"@@\0");
        assert_eq!(mask(&[b'A'; 60])[MASK_BYTES - 1], 0);
    }
}
