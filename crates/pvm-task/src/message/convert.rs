//! Items of hosts with another data format: the receiver converts them (`docs/decisions/0003`, `docs/decisions/0018`).
//!
//! Between hosts with the same format nothing is converted, except `long`s of 32 bits: in the default encoding they
//! take eight bytes.
use super::{GATHER_BYTES, Large, Message, OWN_DSIG, zeroes};
use crate::types::{Encoding, Kind};
use pvm_core::codes::Code;
use pvm_core::format::{Format, swap};
use pvm_fmp::count_copy;
use std::sync::atomic::{AtomicU64, Ordering};

/// How many items this process has converted, for users who want to check that nothing is converted.
static CONVERTED: AtomicU64 = AtomicU64::new(0);

/// How the items of a message are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Form {
    swapped: bool,
    short_bytes: usize,
    long_bytes: usize,
}

/// The form of one kind of number.
#[derive(Clone, Copy)]
struct Numbers {
    bytes: usize,
    signed: bool,
    swapped: bool,
}

impl Numbers {
    fn read(self, number: &[u8]) -> i128 {
        let mut wide = [0; 8];
        let at_end = self.swapped != cfg!(target_endian = "big");
        let place = if at_end { 8 - self.bytes..8 } else { 0..self.bytes };
        wide[place].copy_from_slice(number);
        let wide = if at_end { u64::from_be_bytes(wide) } else { u64::from_le_bytes(wide) };
        let unused = 64 - 8 * self.bytes as u32;
        if self.signed { i128::from((wide << unused) as i64 >> unused) } else { i128::from(wide) }
    }

    /// Returns whether the value fits.
    fn holds(self, value: i128) -> bool {
        let bits = 8 * self.bytes as u32;
        let (least, most) =
            if self.signed { (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) } else { (0, (1 << bits) - 1) };
        (least..=most).contains(&value)
    }

    fn write(self, value: i128, number: &mut [u8]) {
        match self.swapped != cfg!(target_endian = "big") {
            true => number.copy_from_slice(&value.to_be_bytes()[16 - self.bytes..]),
            false => number.copy_from_slice(&value.to_le_bytes()[..self.bytes]),
        }
    }
}

impl Form {
    /// Returns the form of the numbers in items of this kind.
    fn numbers(self, kind: Kind) -> Numbers {
        let bytes = match kind {
            Kind::Byte => 1,
            Kind::Short | Kind::Ushort => self.short_bytes,
            Kind::Int | Kind::Uint | Kind::Float | Kind::Cplx => 4,
            Kind::Long | Kind::Ulong => self.long_bytes,
            Kind::Double | Kind::Dcplx => 8,
        };
        Numbers { bytes, signed: matches!(kind, Kind::Short | Kind::Int | Kind::Long), swapped: self.swapped }
    }
}

/// The form of items in the memory of this host.
const NATIVE: Form = Form { swapped: false, short_bytes: 2, long_bytes: size_of::<usize>() };

/// Returns how many numbers an item consists of.
const fn numbers_of(kind: Kind) -> usize {
    match kind {
        Kind::Cplx | Kind::Dcplx => 2,
        _ => 1,
    }
}

/// Converts items from one form to another, as many as `to` has room for, and returns how many. Stops before an item
/// whose value the other form cannot hold. An exception: such shorts are truncated, as always in the default encoding.
fn convert(kind: Kind, from: (Form, &[u8]), to: (Form, &mut [u8])) -> usize {
    let ((source, from), (target, to)) = (from, to);
    let (source, target) = (source.numbers(kind), target.numbers(kind));
    if source.bytes == target.bytes {
        let bytes = from.len().min(to.len());
        count_copy(bytes);
        to[..bytes].copy_from_slice(&from[..bytes]);
        if source.swapped != target.swapped {
            swap(&mut to[..bytes], source.bytes);
        }
        return bytes / source.bytes / numbers_of(kind);
    }
    let cut = matches!(kind, Kind::Short | Kind::Ushort);
    let pairs = from.chunks_exact(source.bytes).zip(to.chunks_exact_mut(target.bytes));
    let mut items = 0;
    for (from, to) in pairs {
        let value = source.read(from);
        if !cut && !target.holds(value) {
            break;
        }
        target.write(value, to);
        items += 1;
    }
    items
}

impl Message {
    /// Returns whether items of this kind need no conversion: they have the form of this host's memory, or the form
    /// that `pack_narrow` writes and `unpack_narrow` reads.
    #[inline(always)]
    pub fn is_native(&self, kind: Kind) -> bool {
        match self.encoding() {
            Encoding::Default | Encoding::Trace => {
                self.format == OWN_DSIG && (NATIVE.long_bytes == 8 || !matches!(kind, Kind::Long | Kind::Ulong))
            }
            Encoding::Raw | Encoding::InPlace => true,
            Encoding::Foreign => false,
        }
    }

    /// Returns how items are written; `None` if the format is unknown.
    fn form(&self) -> Option<Form> {
        let format = Format::of_signature(self.format)?;
        let swapped = format.is_swapped();
        Some(match self.encoding() {
            Encoding::Default | Encoding::Trace => Form { swapped, short_bytes: 4, long_bytes: 8 },
            _ => Form { swapped, short_bytes: 2, long_bytes: format.long_bytes },
        })
    }

    /// Returns a word in the byte order of the message.
    pub fn ordered(&self, word: i32) -> i32 {
        if self.form().is_some_and(|form| form.swapped) { word.swap_bytes() } else { word }
    }

    /// Unpacks and converts the next items. Returns how many bytes of `items` were stored. Stops before the first item
    /// that does not fit.
    #[cold]
    pub fn take_converted(&mut self, kind: Kind, items: &mut [u8]) -> (usize, Result<(), Code>) {
        let Some(form) = self.form() else { return (0, Err(Code::BadMsg)) };
        let there = form.numbers(kind).bytes * numbers_of(kind);
        let mut piece = [0; GATHER_BYTES];
        let mut stored = 0;
        for part in items.chunks_mut(GATHER_BYTES / there.max(kind.size()) * kind.size()) {
            let wanted = part.len() / kind.size();
            let count = wanted.min(self.remaining() / there);
            let piece = &mut piece[..count * there];
            self.copy_out(self.position, piece);
            let converted = convert(kind, (form, piece), (NATIVE, &mut part[..count * kind.size()]));
            self.position += converted * there;
            self.count_converted(converted);
            stored += converted * kind.size();
            if converted < count {
                return (stored, Err(Code::Overflow));
            }
            if count < wanted {
                self.position = self.len();
                return (stored, Err(Code::NoData));
            }
        }
        (stored, Ok(()))
    }

    /// Converts items to the form of the message. Returns the items before the first one that does not fit, and whether
    /// all of them fit.
    #[cold]
    pub fn converted_to(&self, kind: Kind, items: &[u8]) -> Result<(Vec<u8>, bool), Code> {
        let form = self.form().ok_or(Code::BadMsg)?;
        let there = form.numbers(kind).bytes * numbers_of(kind);
        let count = items.len() / kind.size();
        let mut bytes = zeroes(count * there)?;
        let converted = convert(kind, (NATIVE, items), (form, &mut bytes));
        self.count_converted(converted);
        bytes.truncate(converted * there);
        Ok((bytes, converted == count))
    }

    /// Converts a raw message of another format to the format of this host. All its items must be of the given kind.
    /// Fails with `Overflow` if an item does not fit; then this item and all items after it are missing.
    #[cold]
    pub fn make_native(&mut self, kind: Kind) -> Result<(), Code> {
        let form = self.form().ok_or(Code::BadMsg)?;
        let there = form.numbers(kind).bytes * numbers_of(kind);
        let body = self.body()?;
        let count = body.len() / there;
        let mut items = zeroes(count * kind.size())?;
        let converted = convert(kind, (form, &body), (NATIVE, &mut items));
        items.truncate(converted * kind.size());
        self.count_converted(converted);
        (self.enc, self.format) = (OWN_DSIG, OWN_DSIG);
        self.small.clear();
        self.large = Large::Bytes(items);
        if converted < count { Err(Code::Overflow) } else { Ok(()) }
    }

    /// Counts items that were converted from or to another format. In a message of this host's format, `long`s that
    /// were widened or narrowed do not count.
    fn count_converted(&self, items: usize) {
        if self.format != OWN_DSIG {
            CONVERTED.fetch_add(items as u64, Ordering::Relaxed);
        }
    }
}

/// Returns how many items this process has converted from or to the format of another host.
pub(crate) fn items_converted() -> u64 {
    CONVERTED.load(Ordering::Relaxed)
}

#[cfg(test)]
#[path = "convert_tests.rs"]
mod tests;
