//! Bodies of multicasts in datagrams to all hosts.
use super::{Route, RouteContext};
use crate::broadcast::DatagramSent;
use pvm_core::datagram_error::DatagramError;
use pvm_core::flows::multicast::datagram::{DatagramHead, HEAD_BYTES, NAME_BYTES};
use pvm_core::flows::multicast::{BodyKey, Stored};
use pvm_net::{Seal, TAG_BYTES};
use std::collections::HashMap;

/// Datagrams that are sent in a row before other work is done.
const DATAGRAMS_IN_A_ROW_MAX: usize = 64;

/// Returns how many bytes of a body fit in a datagram of `datagram_bytes` bytes.
pub(super) fn part_bytes(datagram_bytes: usize) -> usize {
    // A multiple of eight, so that copies are aligned.
    datagram_bytes.saturating_sub(HEAD_BYTES + TAG_BYTES) & !7
}

/// The seals of the bodies that this host broadcasts or hears.
#[derive(Default)]
pub(super) struct Seals {
    /// The body that is being sent, and the serial number of its next datagram. A body that another one has replaced is
    /// never sent again (`flows/multicast/broadcast.rs`), so no serial number is used twice with one secret.
    sending: Option<(BodyKey, Seal, u64)>,
    /// The bodies that other hosts broadcast, by the public name of their secret.
    hearing: HashMap<[u8; NAME_BYTES], (BodyKey, Seal)>,
    /// A datagram for which there was no room.
    unsent: Option<Vec<u8>>,
}

impl Route {
    /// Prepares to hear the broadcast of a body.
    pub(super) fn listen(&mut self, key: BodyKey, context: &mut dyn RouteContext) {
        if !context.join_group() {
            return self.intake.fetches.unavailable(key.origin, key);
        }
        let fetches = &self.intake.fetches;
        self.seals.hearing.retain(|_, (key, _)| fetches.listens(*key));
        let seal = Seal::new(&key.secret, context.encrypts());
        self.seals.hearing.insert(seal.name(), (key, seal));
    }

    /// Handles a datagram with a part of a body. Anybody may have sent it.
    pub fn on_datagram(&mut self, datagram: &mut [u8], context: &mut dyn RouteContext) -> Result<(), DatagramError> {
        self.is_due = true;
        let head = DatagramHead::read(datagram).ok_or(DatagramError::Malformed)?;
        let (key, seal) = self.seals.hearing.get(&head.name).ok_or(DatagramError::Unexpected)?;
        let part = seal.open(head.serial, HEAD_BYTES, datagram).ok_or(DatagramError::Forged)?;
        let key = *key;
        let fetches = &mut self.intake.fetches;
        if let Some(place) = fetches.place_heard(key, head.part, part.len()) {
            if let Some(block) = place.block {
                block.write(place.at, part);
            }
            if let Stored::Complete(digest) = fetches.placed_heard(key, head.part) {
                self.seals.hearing.remove(&head.name);
                self.on_complete_body(key, digest, context);
            }
        }
        if head.round > 0 {
            self.intake.fetches.report(key, head.round, head.sent);
        }
        Ok(())
    }

    /// Broadcasts what is due. Returns whether more could be sent at once.
    pub(super) fn send_datagrams(&mut self, context: &mut dyn RouteContext) -> bool {
        for _ in 0..DATAGRAMS_IN_A_ROW_MAX {
            let Some(datagram) = self.seals.unsent.take().or_else(|| self.next_datagram(context)) else { return false };
            match context.send_datagram(&datagram) {
                DatagramSent::Done => {}
                DatagramSent::NoRoom => {
                    self.seals.unsent = Some(datagram);
                    return false;
                }
                DatagramSent::Never => {
                    self.egress_flows.flows.broadcasts_fail();
                    return true;
                }
            }
        }
        true
    }

    fn next_datagram(&mut self, context: &dyn RouteContext) -> Option<Vec<u8>> {
        let datagram = self.egress_flows.flows.next_datagram()?;
        let part = datagram.part;
        let sending = self.seals.sending.take().filter(|(key, ..)| *key == part.key);
        let (key, seal, serial) =
            sending.unwrap_or_else(|| (part.key, Seal::new(&part.key.secret, context.encrypts()), 0));
        let head = DatagramHead { name: seal.name(), serial, part: part.part, sent: part.sent, round: part.round };
        let mut bytes = Vec::with_capacity(HEAD_BYTES + part.range.len() + TAG_BYTES);
        head.write(&mut bytes);
        bytes.resize(HEAD_BYTES + part.range.len(), 0);
        datagram.body.read(part.range.start, &mut bytes[HEAD_BYTES..]);
        seal.seal(serial, HEAD_BYTES, &mut bytes);
        self.seals.sending = Some((key, seal, serial + 1));
        Some(bytes)
    }
}
