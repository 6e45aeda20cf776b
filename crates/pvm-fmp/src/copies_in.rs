//! The sender's copies of bodies that their receiver copies out of the heap meanwhile: through the caches or past them,
//! whichever was quicker before ([`crate::way_policy`]).
use crate::heap::Block;
use crate::way_policy::{BYTES_MIN, Way, WayPolicy};
use crate::ways;
use std::time::Instant;

/// What is known of the copies for one receiver, whose core may be near or distant.
#[derive(Default)]
pub struct CopiesIn {
    policy: Option<Box<WayPolicy>>,
    /// [`Block::commits`] at the last body.
    commits: u64,
}

impl CopiesIn {
    /// Copies `body` to `offset` of a block in pieces, and calls `written` after each with the number of bytes written.
    pub fn write(
        &mut self,
        block: &Block,
        offset: usize,
        body: &[u8],
        piece_bytes: usize,
        mut written: impl FnMut(usize),
    ) {
        // The time of a copy to new memory would say nothing about the next one.
        let is_new = block.commits() != std::mem::replace(&mut self.commits, block.commits());
        let choice = (body.len() >= BYTES_MIN).then(|| {
            let policy = self.policy.get_or_insert_with(|| Box::new(WayPolicy::of_copies_in()));
            match is_new {
                true => (policy.best(body.len()).map_or_else(Way::default, |(way, _)| way), false),
                false => policy.choose(body.len()),
            }
        });
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
