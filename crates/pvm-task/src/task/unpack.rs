//! Unpacking from the active receive buffer.
use super::Task;
use super::pack::padding;
use crate::envelope::Envelope;
use crate::message::{GATHER_BYTES, Message, zeroes};
use crate::types::{Encoding, Kind};
use pvm_core::codes::Code;

/// The words before a message that is packed into another one: len ctx tag wid enc crc src dst. There are no checksums:
/// the sixth word, PVM's checksum, holds the format of the inner message if it differs from that of the outer one.
const HEADER_WORDS: usize = 8;

/// Unpacking from the active receive buffer.
impl Task {
    /// Unpacks contiguous items in native form. Fails with `NoData` if the message has too few items; then the items up
    /// to the end are stored, and the position is at the end. Other errors are `NoBuf` and `BadMsg` (raw data of
    /// another format).
    #[inline]
    pub fn unpack(&mut self, kind: Kind, items: &mut [u8]) -> Result<(), Code> {
        let message = self.state.store.receiving()?;
        if !message.is_native(kind) {
            return unpack_converted(message, kind, items).1;
        }
        match kind {
            Kind::Byte | Kind::Short | Kind::Ushort => unpack_narrow(message, kind, items).1,
            _ => take_up_to_end(message, kind.size(), items).1,
        }
    }

    /// As [`Task::unpack`], for strided items. Calls `store(first, items)` for consecutive parts of the items; `first`
    /// is the index of the part's first item.
    pub fn unpack_with(&mut self, kind: Kind, count: usize, store: &mut dyn FnMut(usize, &[u8])) -> Result<(), Code> {
        let message = self.state.store.receiving()?;
        let native = message.is_native(kind);
        let mut room = [0; GATHER_BYTES];
        let step = GATHER_BYTES / kind.size();
        let mut first = 0;
        while first < count {
            let items = &mut room[..(count - first).min(step) * kind.size()];
            let (stored, result) =
                if native { unpack_narrow(message, kind, items) } else { unpack_converted(message, kind, items) };
            store(first, &items[..stored / kind.size() * kind.size()]);
            result?;
            first += step;
        }
        Ok(())
    }

    /// Returns the length of the next string, with its closing zero. A negative length counts as 0, as on PVM. If the
    /// string is incomplete, moves the position to the end and fails with `NoData`; otherwise leaves the position
    /// unchanged.
    pub fn string_bytes(&mut self) -> Result<usize, Code> {
        let message = self.state.store.receiving()?;
        if !message.readable(Kind::Int) {
            return Err(Code::BadMsg);
        }
        let mut word = [0; 4];
        let remaining = message.remaining();
        if remaining >= word.len() {
            message.copy_out(message.position, &mut word);
            let length = message.ordered(i32::from_ne_bytes(word));
            let length = usize::try_from(length).unwrap_or(0);
            if length <= remaining - word.len() {
                return Ok(length);
            }
        }
        message.position = message.len();
        Err(Code::NoData)
    }

    /// Unpacks the next string with its closing zero into `text`, which must have the length that
    /// [`Task::string_bytes`] returns.
    pub fn unpack_string(&mut self, text: &mut [u8]) -> Result<(), Code> {
        let length = self.string_bytes()?;
        if length != text.len() {
            return Err(Code::BadParam);
        }
        let message = self.state.store.receiving()?;
        message.position += 4;
        unpack_narrow(message, Kind::Byte, text).1
    }

    /// `pvm_upkmesg`; returns a new inactive buffer.
    pub fn unpack_message(&mut self) -> Result<i32, Code> {
        let mut words = [0; HEADER_WORDS];
        for word in &mut words {
            *word = self.unpack_word()?;
        }
        let [length, ctx, tag, wid, enc, format, src, dst] = words;
        let outer = self.state.store.receiving()?.format;
        let length = usize::try_from(length).map_err(|_| Code::BadMsg)?;
        if length > self.state.store.receiving()?.remaining() {
            return Err(Code::NoData);
        }
        let mut body = zeroes(length)?;
        let mut have = 0;
        while have < length {
            let count = usize::try_from(self.unpack_word()?).map_err(|_| Code::BadMsg)?;
            if count == 0 || count > length - have {
                return Err(Code::BadMsg);
            }
            self.unpack(Kind::Byte, &mut body[have..have + count])?;
            have += count;
        }
        let store = &mut self.state.store;
        let format = if format == 0 { outer } else { format };
        let slot = store.new_message(&Envelope { src, dst, ctx, tag, wid, enc, format });
        store.table[slot as usize].set_body(body);
        Ok(slot as i32 + 1)
    }

    fn unpack_word(&mut self) -> Result<i32, Code> {
        let mut word = [0; 4];
        self.unpack(Kind::Int, &mut word)?;
        Ok(i32::from_ne_bytes(word))
    }
}

/// Unpacks `data.len()` bytes. If the message has fewer, unpacks all remaining bytes of raw data, but only whole items
/// of the default encoding. Returns how many bytes were stored.
#[inline]
fn take_up_to_end(message: &mut Message, item: usize, data: &mut [u8]) -> (usize, Result<(), Code>) {
    let remaining = message.remaining();
    if data.len() <= remaining {
        message.take(data);
        return (data.len(), Ok(()));
    }
    let stored = match message.encoding() {
        Encoding::Default | Encoding::Trace => remaining / item * item,
        _ => remaining,
    };
    message.take(&mut data[..stored]);
    message.position = message.len();
    (stored, Err(Code::NoData))
}

/// Unpacks items of a message of another format.
#[cold]
fn unpack_converted(message: &mut Message, kind: Kind, items: &mut [u8]) -> (usize, Result<(), Code>) {
    if kind == Kind::Byte {
        return unpack_narrow(message, kind, items);
    }
    if !message.readable(kind) {
        return (0, Err(Code::BadMsg));
    }
    message.take_converted(kind, items)
}

/// Unpacks native items of any kind, among them bytes and shorts, which the default encoding pads or widens.
fn unpack_narrow(message: &mut Message, kind: Kind, items: &mut [u8]) -> (usize, Result<(), Code>) {
    match (message.encoding(), kind) {
        (Encoding::Default | Encoding::Trace, Kind::Byte) => {
            let result = take_up_to_end(message, 1, items);
            message.position = (message.position + padding(items.len())).min(message.len());
            result
        }
        (Encoding::Default | Encoding::Trace, Kind::Short | Kind::Ushort) => {
            let mut wide = [0; GATHER_BYTES];
            let mut stored = 0;
            for part in items.chunks_mut(GATHER_BYTES / 2) {
                let (count, result) = take_up_to_end(message, 4, &mut wide[..2 * part.len()]);
                narrow(&wide[..count], part);
                stored += count / 2;
                if result.is_err() {
                    return (stored, result);
                }
            }
            (stored, Ok(()))
        }
        _ => take_up_to_end(message, kind.size(), items),
    }
}

/// Narrows words of four bytes to shorts.
fn narrow(wide: &[u8], shorts: &mut [u8]) {
    for (word, short) in wide.chunks_exact(4).zip(shorts.chunks_exact_mut(2)) {
        let value = i32::from_ne_bytes([word[0], word[1], word[2], word[3]]) as i16;
        short.copy_from_slice(&value.to_ne_bytes());
    }
}
