//! Buffers (contract 2.1). None of these calls needs a daemon.
use super::Task;
use crate::envelope::Envelope;
use crate::message::{Large, OWN_DSIG, SlotState};
use crate::state::OWN_NOTIFY;
use crate::trace::begin_user_event;
use crate::types::{Encoding, MessageInfo};
use pvm_core::codes::{Code, DATA_DEFAULT, DATA_IN_PLACE, DATA_RAW, DATA_TRACE, ENC_IN_PLACE, ENC_TRACE, ENC_XDR};

fn encoding_word(encoding: i32) -> Result<i32, Code> {
    match encoding {
        DATA_DEFAULT => Ok(ENC_XDR),
        DATA_RAW => Ok(OWN_DSIG),
        DATA_IN_PLACE => Ok(ENC_IN_PLACE),
        DATA_TRACE => Ok(ENC_TRACE),
        _ => Err(Code::BadParam),
    }
}

impl Task {
    /// `pvm_initsend`.
    pub fn init_send(&mut self, encoding: i32) -> Result<i32, Code> {
        encoding_word(encoding)?;
        if self.state.store.send != 0 {
            self.state.store.free(self.state.store.send);
        }
        self.state.store.send = self.make_buffer(encoding)?;
        Ok(self.state.store.send)
    }

    /// `pvm_mkbuf`.
    pub fn make_buffer(&mut self, encoding: i32) -> Result<i32, Code> {
        let enc = encoding_word(encoding)?;
        let src = self.own_tid();
        let store = &mut self.state.store;
        let slot = store.new_message(&Envelope { src, dst: 0, ctx: 0, tag: 0, wid: 0, enc, format: OWN_DSIG });
        let message = &mut store.table[slot as usize];
        match enc {
            ENC_IN_PLACE => message.large = Large::Pieces(Vec::new()),
            ENC_TRACE => message.small = begin_user_event(),
            _ => {}
        }
        Ok(slot as i32 + 1)
    }

    /// `pvm_freebuf`.
    pub fn free_buffer(&mut self, mid: i32) -> Result<(), Code> {
        if mid == 0 {
            return Ok(());
        }
        self.state.store.get(mid)?;
        self.state.store.free(mid);
        Ok(())
    }

    /// `pvm_getsbuf`: 0 for none.
    pub fn send_buffer(&self) -> i32 {
        self.state.store.send
    }

    /// `pvm_getrbuf`: 0 for none.
    pub fn receive_buffer(&self) -> i32 {
        self.state.store.receive
    }

    /// `pvm_setsbuf`; returns the previous buffer.
    pub fn set_send_buffer(&mut self, mid: i32) -> Result<i32, Code> {
        self.claim(mid)?;
        let store = &mut self.state.store;
        if store.receive == mid {
            store.receive = 0;
        }
        Ok(std::mem::replace(&mut store.send, mid))
    }

    /// `pvm_setrbuf`; returns the previous buffer.
    pub fn set_receive_buffer(&mut self, mid: i32) -> Result<i32, Code> {
        self.claim(mid)?;
        let store = &mut self.state.store;
        if store.send == mid {
            store.send = 0;
        }
        Ok(std::mem::replace(&mut store.receive, mid))
    }

    /// Checks the mid of a buffer that is to become active. If the buffer is a queued message, removes it from the
    /// queue.
    fn claim(&mut self, mid: i32) -> Result<(), Code> {
        if mid != 0 && self.state.store.get(mid)?.state == SlotState::Queued {
            let store = &mut self.state.store;
            store.queue.remove(&mut store.table, mid as u32 - 1);
            store.get_mut(mid)?.state = SlotState::Buffer;
        }
        Ok(())
    }

    /// `pvm_getminfo`. `pvm_bufinfo` reports `len`, `tag` and `src` of the result.
    pub fn message_info(&self, mid: i32) -> Result<MessageInfo, Code> {
        let message = self.state.store.get(mid)?;
        // A buffer that was made before enrollment also reports the task's present tid.
        let src = if message.src == 0 { self.own_tid() } else { message.src };
        let (len, dst) = match message.dst {
            OWN_NOTIFY => (0, 0),
            dst => (message.len() as i32, dst),
        };
        Ok(MessageInfo {
            len,
            ctx: message.ctx,
            tag: message.tag,
            wid: message.wid,
            enc: message.enc,
            crc: 0,
            src,
            dst,
        })
    }

    /// `pvm_setminfo`: sets ctx, tag, wid, src, dst.
    pub fn set_message_info(&mut self, mid: i32, info: &MessageInfo) -> Result<(), Code> {
        let store = &mut self.state.store;
        if store.get(mid)?.state == SlotState::Queued {
            store.queue.forget_index();
        }
        let message = store.get_mut(mid)?;
        (message.ctx, message.tag, message.wid) = (info.ctx, info.tag, info.wid);
        (message.src, message.dst) = (info.src, info.dst);
        Ok(())
    }

    /// Returns the encoding of the active send buffer. Fails with `NoBuf` if there is none.
    pub fn send_encoding(&self) -> Result<Encoding, Code> {
        Ok(self.state.store.get(self.state.store.send).map_err(|_| Code::NoBuf)?.encoding())
    }
}
