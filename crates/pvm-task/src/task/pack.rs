//! Packing into the active send buffer.
use super::Task;
use crate::message::{GATHER_BYTES, Large, Message, OWN_DSIG};
use crate::trace::{frame_items, kind_number};
use crate::types::{Encoding, Kind, Source};
use pvm_core::codes::{Code, ENC_IN_PLACE, ENC_TRACE};
use pvm_core::format::swap;
use pvm_fmp::Endpoint;

/// Strings up to this length, in bytes, are assembled before they are appended to the message.
const SHORT_TEXT_BYTES_MAX: usize = 56;
/// The padding of the default encoding.
const ZEROES: [u8; 4] = [0; 4];

/// Returns how many bytes are missing from `count` to the next multiple of four.
pub(crate) fn padding(count: usize) -> usize {
    count.wrapping_neg() & 3
}

/// Packing into the active send buffer.
impl Task {
    /// Returns the active send buffer and the heap in which it grows.
    #[inline]
    fn packing(&mut self) -> Result<(&mut Message, Option<&mut Endpoint>), Code> {
        let heap = self.member.as_mut().map(|member| &mut member.endpoint);
        Ok((self.state.store.sending()?, heap))
    }

    /// Packs contiguous items in native form; `items.len()` is a multiple of the kind's size. Copies the items only
    /// once if the encoding allows it. Fails with `NoBuf`, `NoMem`, or, for an in-place buffer, `NotImpl` (see
    /// [`Task::pack_in_place`]).
    #[inline]
    pub fn pack(&mut self, kind: Kind, items: &[u8]) -> Result<(), Code> {
        let (message, heap) = self.packing()?;
        match message.enc {
            ENC_TRACE => self.pack_framed(kind, items),
            _ if !message.is_native(kind) => pack_converted(message, heap, kind, items),
            _ => pack_items(message, heap, kind, items),
        }
    }

    /// Does what [`Task::pack`] does, but packs into a trace event that the program makes.
    #[cold]
    fn pack_framed(&mut self, kind: Kind, items: &[u8]) -> Result<(), Code> {
        if items.is_empty() {
            return Ok(());
        }
        self.append_frame(kind, items.len() / kind.size())?;
        let (message, heap) = self.packing()?;
        pack_any(message, heap, kind, items)
    }

    /// Packs strided items: `fill(first, room)` writes the items from `first` on, in native form, into `room`, as many
    /// as fit.
    pub fn pack_with(&mut self, kind: Kind, count: usize, fill: &mut dyn FnMut(usize, &mut [u8])) -> Result<(), Code> {
        let (message, _) = self.packing()?;
        if message.enc == ENC_IN_PLACE {
            return Err(Code::NotImpl);
        }
        if message.enc == ENC_TRACE && count > 0 {
            self.append_frame(kind, count)?;
        }
        let mut room = [0; GATHER_BYTES];
        let step = GATHER_BYTES / kind.size();
        let mut first = 0;
        while first < count {
            let items = &mut room[..(count - first).min(step) * kind.size()];
            fill(first, items);
            let (message, heap) = self.packing()?;
            pack_any(message, heap, kind, items)?;
            first += step;
        }
        Ok(())
    }

    /// Packs the type and the count that precede items in a trace event of the program.
    fn append_frame(&mut self, kind: Kind, count: usize) -> Result<(), Code> {
        let (message, heap) = self.packing()?;
        let mut frame = frame_items(kind_number(kind), count);
        if message.ordered(1) != 1 {
            swap(&mut frame, 4);
        }
        message.append(heap, &frame)
    }

    /// Packs a piece into an in-place buffer. The piece is read at each send. Fails with `BadParam` for other buffers.
    pub fn pack_in_place(&mut self, source: Box<dyn Source>) -> Result<(), Code> {
        match &mut self.state.store.sending()?.large {
            Large::Pieces(pieces) => pieces.push(source),
            _ => return Err(Code::BadParam),
        }
        Ok(())
    }

    /// Packs a string that is passed without its closing zero. Fails with `NotImpl` for an in-place buffer.
    pub fn pack_string(&mut self, text: &[u8]) -> Result<(), Code> {
        let (message, mut heap) = self.packing()?;
        let padded = match message.encoding() {
            Encoding::InPlace => return Err(Code::NotImpl),
            Encoding::Trace => return self.pack(Kind::Byte, text),
            Encoding::Default => padding(text.len() + 1),
            Encoding::Raw | Encoding::Foreign => 0,
        };
        let length = i32::try_from(text.len() + 1).map_err(|_| Code::NoMem)?;
        let length = if message.format == OWN_DSIG { length } else { message.ordered(length) }.to_ne_bytes();
        if text.len() <= SHORT_TEXT_BYTES_MAX {
            // Length, text and zeroes are appended at once.
            let mut piece = [0; 4 + SHORT_TEXT_BYTES_MAX + ZEROES.len()];
            piece[..4].copy_from_slice(&length);
            piece[4..4 + text.len()].copy_from_slice(text);
            return message.append(heap, &piece[..4 + text.len() + 1 + padded]);
        }
        message.append(heap.as_deref_mut(), &length)?;
        message.append(heap.as_deref_mut(), text)?;
        message.append(heap, &ZEROES[..1 + padded])
    }

    /// `pvm_pkmesg`: eight words, then length and bytes of each fragment.
    pub fn pack_message(&mut self, mid: i32) -> Result<(), Code> {
        self.check_embedded(mid)?;
        let message = self.export_message(mid)?;
        let length = message.body.len() as i32;
        let (src, dst) = (message.src.0 as i32, message.dst.0 as i32);
        let format = if message.format == self.state.store.sending()?.format { 0 } else { message.format };
        for word in [length, message.ctx, message.tag, message.wid, message.enc, format, src, dst] {
            self.pack(Kind::Int, &word.to_ne_bytes())?;
        }
        if length > 0 {
            self.pack(Kind::Int, &length.to_ne_bytes())?;
            self.pack(Kind::Byte, &message.body)?;
        }
        Ok(())
    }

    /// `pvm_pkmesgbody`.
    pub fn pack_message_body(&mut self, mid: i32) -> Result<(), Code> {
        self.check_embedded(mid)?;
        let source = self.state.store.get(mid)?;
        let (enc, format, body) = (source.enc, source.format, source.body()?);
        let (message, heap) = self.packing()?;
        if message.enc != enc || message.len() > 0 && message.format != format {
            return Err(Code::Mismatch);
        }
        // Items that are packed after this body are converted to its format.
        message.format = format;
        match &mut message.large {
            Large::Pieces(pieces) => pieces.push(Box::new(Copied(body))),
            _ => message.append(heap, &body)?,
        }
        Ok(())
    }

    /// Checks that a message can be packed into the active send buffer.
    fn check_embedded(&mut self, mid: i32) -> Result<(), Code> {
        if mid <= 0 {
            return Err(Code::BadParam);
        }
        self.state.store.get(mid)?;
        self.state.store.sending()?;
        if mid == self.state.store.send {
            return Err(Code::BadParam);
        }
        Ok(())
    }
}

/// The body of an in-place message, as it was when it was packed into another message.
struct Copied(Vec<u8>);

impl Source for Copied {
    fn bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Packs items in the format of the message, native or not.
fn pack_any(message: &mut Message, heap: Option<&mut Endpoint>, kind: Kind, items: &[u8]) -> Result<(), Code> {
    if message.is_native(kind) {
        pack_items(message, heap, kind, items)
    } else {
        pack_converted(message, heap, kind, items)
    }
}

/// Packs items into a message of another format, which was received and keeps its format. If the value of an item is
/// too large for that format, only the items before it are packed.
#[cold]
fn pack_converted(message: &mut Message, heap: Option<&mut Endpoint>, kind: Kind, items: &[u8]) -> Result<(), Code> {
    if kind == Kind::Byte {
        return pack_items(message, heap, kind, items);
    }
    let (items, all) = message.converted_to(kind, items)?;
    message.append(heap, &items)?;
    if all { Ok(()) } else { Err(Code::Overflow) }
}

/// Packs items in the encoding of a native message.
#[inline]
fn pack_items(message: &mut Message, heap: Option<&mut Endpoint>, kind: Kind, items: &[u8]) -> Result<(), Code> {
    match kind {
        Kind::Byte | Kind::Short | Kind::Ushort => pack_narrow(message, heap, kind, items),
        _ => message.append(heap, items),
    }
}

/// Packs bytes and shorts, which the default encoding pads or widens.
fn pack_narrow(message: &mut Message, heap: Option<&mut Endpoint>, kind: Kind, items: &[u8]) -> Result<(), Code> {
    let mut heap = heap;
    match (message.encoding(), kind) {
        (Encoding::Default | Encoding::Trace, Kind::Byte) => {
            message.append(heap.as_deref_mut(), items)?;
            message.append(heap, &ZEROES[..padding(items.len())])
        }
        (Encoding::Default | Encoding::Trace, _) => {
            let mut wide = [0; GATHER_BYTES];
            for part in items.chunks(GATHER_BYTES / 2) {
                widen(part, kind == Kind::Short, &mut wide);
                message.append(heap.as_deref_mut(), &wide[..2 * part.len()])?;
            }
            Ok(())
        }
        _ => message.append(heap, items),
    }
}

/// Widens shorts to four bytes each.
fn widen(shorts: &[u8], signed: bool, wide: &mut [u8]) {
    for (short, word) in shorts.chunks_exact(2).zip(wide.chunks_exact_mut(4)) {
        let value = i16::from_ne_bytes([short[0], short[1]]);
        let value = if signed { i32::from(value) } else { i32::from(value as u16) };
        word.copy_from_slice(&value.to_ne_bytes());
    }
}

#[cfg(test)]
#[path = "pack_tests.rs"]
mod tests;
