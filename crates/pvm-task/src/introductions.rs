//! Peers that the daemon introduces: their memory has to be mapped before messages can be exchanged.
use pvm_core::codes::Code;
use pvm_core::tid::Tid;
use pvm_descriptor::OwnDescriptor;
use std::os::fd::OwnedFd;

/// Introductions that have failed, or have not led to a connection yet.
#[derive(Default)]
pub(crate) struct Introductions {
    /// Introduced peers whose memory is not mapped, with segment and doorbell.
    unmapped: Vec<(Tid, [OwnDescriptor; 2])>,
    /// Peers whose introduction has failed: dead ones (`NoTask`), and those whose descriptors or memory did not fit
    /// into this process (`OutOfRes`).
    refused: Vec<(Tid, Code)>,
}

impl Introductions {
    /// Keeps an introduced peer until its memory can be mapped.
    pub fn add(&mut self, peer: Tid, descriptors: [OwnedFd; 2]) {
        self.forget(peer);
        self.unmapped.push((peer, descriptors.map(OwnDescriptor::from)));
    }

    /// Removes all peers that are not mapped, and returns those whose descriptors the program has not closed.
    pub fn take(&mut self) -> Vec<(Tid, [OwnedFd; 2])> {
        let both = |[segment, bell]: [OwnDescriptor; 2]| Some([segment.into_owned()?, bell.into_owned()?]);
        let unmapped = std::mem::take(&mut self.unmapped).into_iter();
        unmapped.filter_map(|(peer, descriptors)| Some((peer, both(descriptors)?))).collect()
    }

    /// Forgets a peer that is not mapped.
    pub fn forget(&mut self, peer: Tid) {
        self.unmapped.retain(|(other, _)| *other != peer);
    }

    /// Returns whether there are peers that are not mapped.
    pub fn has_unmapped(&self) -> bool {
        !self.unmapped.is_empty()
    }

    /// Notes why a peer cannot be connected.
    pub fn refuse(&mut self, peer: Tid, code: Code) {
        self.refused.push((peer, code));
    }

    /// Returns whether that peer could not be connected.
    pub fn is_refused(&self, peer: Tid) -> bool {
        self.refused.iter().any(|(refused, _)| *refused == peer)
    }

    /// Returns and forgets why a peer could not be connected.
    pub fn take_refusal(&mut self, peer: Tid) -> Option<Code> {
        let at = self.refused.iter().position(|(refused, _)| *refused == peer)?;
        Some(self.refused.swap_remove(at).1)
    }
}
