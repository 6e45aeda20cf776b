//! The sender's copies of bodies that their receiver copies out of the heap meanwhile: through the caches or past them,
//! whichever was quicker before ([`crate::way_policy`]).
use crate::copy::CopyMode;
use crate::heap::Block;
use crate::way_policy::{BYTES_MIN, Way, WayPolicy};
use crate::ways;
use std::time::Instant;

/// What is known of the copies for one receiver, whose core may be near or distant.
#[derive(Default)]
pub struct CopiesIn {
    policy: Option<Box<WayPolicy>>,
    /// [`Block::committed_bytes`] at the last long body.
    committed_bytes: u64,
}

/// The shortest body, in bytes, that goes past the caches into new memory before a copy of its length was measured: a cached
/// copy would displace the data of both programs in the caches.
const NEW_PAST_BYTES_MIN: usize = 8 << 20;
/// A copy counts as one into new memory if one in this number of its bytes, or more, was committed since the last one.
const NEW_PARTS: u64 = 8;

impl CopiesIn {
    /// Returns how to copy a long body into a block, and whether to measure the copy.
    fn choose(&mut self, block: &Block, bytes: usize) -> (Way, bool) {
        let policy = self.policy.get_or_insert_with(|| Box::new(WayPolicy::of_copies_in()));
        let committed = block.committed_bytes();
        // The time of a copy to new memory would say nothing about the next one.
        if committed - std::mem::replace(&mut self.committed_bytes, committed) < bytes as u64 / NEW_PARTS {
            return policy.choose(bytes);
        }
        let copy_in = if bytes >= NEW_PAST_BYTES_MIN { CopyMode::Past } else { CopyMode::Cached };
        (policy.best(bytes).map_or(Way { copy_in, ..Way::default() }, |(way, _)| way), false)
    }

    /// Copies `body` to `offset` of a block in pieces, and calls `written` after each with the number of bytes written.
    pub fn write(
        &mut self,
        block: &Block,
        offset: usize,
        body: &[u8],
        piece_bytes: usize,
        mut written: impl FnMut(usize),
    ) {
        let choice = (body.len() >= BYTES_MIN).then(|| self.choose(block, body.len()));
        if let Some((way, _)) = choice {
            ways::note_way(way);
        }
        let start = choice.is_some_and(|(_, is_measured)| is_measured).then(Instant::now);
        let mut done = 0;
        for piece in body.chunks(piece_bytes) {
            match choice {
                Some((way, _)) => block.write_by(way.copy_in, offset + done, piece),
                None => block.write(offset + done, piece),
            }
            done += piece.len();
            written(done);
        }
        if let (Some(policy), Some((way, _)), Some(start)) = (&mut self.policy, choice, start) {
            policy.record(body.len(), way, start.elapsed().as_nanos() as u64);
        }
    }
}
