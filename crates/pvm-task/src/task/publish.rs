//! The state line: what this task tells about its waits, for `pvm why`.
//!
//! It is written when a wait is about to sleep, and when such a wait ends. So a call that finds what it wants writes nothing.
use super::Task;
use crate::types::PRIVATE_CONTEXTS;
use pvm_core::state_line::{Call, StateLine, UNREAD_WALK_MAX, WORDS, Wait};
use pvm_core::tid::Tid;
use pvm_fmp::state_line::{self, STATE_WORDS};
use std::time::Instant;

const _: () = assert!(WORDS == STATE_WORDS);

/// The wait of a call, for its line.
#[derive(Clone, Copy)]
pub(crate) struct Waiting {
    pub call: Call,
    pub is_timed: bool,
    /// When it slept first.
    pub since: Instant,
    /// Whether it has told its line before.
    pub is_told: bool,
}

impl Task {
    /// Tells that the task sleeps next. The wait has looked for what it wants after [`Task::prepare_park`], and has found
    /// nothing.
    pub(crate) fn publish_wait(&mut self, waiting: &Waiting) {
        let Some(member) = &mut self.member else { return };
        let told = &mut self.state.told;
        told.waits = told.waits.wrapping_add(u32::from(!waiting.is_told));
        told.is_waiting = true;
        let call = waiting.call;
        let wait = Wait { call, is_timed: waiting.is_timed, since_ns: nanoseconds_at(waiting.since) };
        let (queue, table) = (&self.state.store.queue, &self.state.store.table);
        let mut line = StateLine {
            wait: Some(wait),
            epoch: (told.waits, queue.pushed() as u32),
            waited_ns: told.waited_ns,
            unread: queue.len() as u32,
            sends: member.fabric.holds_messages() || self.state.backlog.is_open(),
            frames: member.frames_seen(),
            ..StateLine::default()
        };
        if member.direct.is_active() {
            line.set_links(member.direct.own_links(), member.holds_messages());
        }
        if !queue.is_empty() {
            for slot in queue.walk(table).take(UNREAD_WALK_MAX) {
                let message = &table[slot as usize];
                match PRIVATE_CONTEXTS.contains(&message.ctx) {
                    true => line.unread -= 1,
                    false => line.add_unread(Tid(message.src as u32), message.tag, message.ctx),
                }
            }
        }
        let mut words = [0; WORDS];
        let count = line.encode(&mut words);
        member.endpoint.publish_state(&words[..count], true);
    }

    /// Tells that the task sleeps no more, before what has woken it is taken away.
    pub(crate) fn publish_awake(&self) {
        if let Some(member) = &self.member {
            member.endpoint.publish_awake();
        }
    }

    /// Tells that the wait has ended.
    #[cold]
    pub(crate) fn publish_end(&mut self, since: Instant) {
        let told = &mut self.state.told;
        told.waited_ns = told.waited_ns.saturating_add(since.elapsed().as_nanos() as u64);
        self.publish_running();
    }

    /// Tells that no call waits, if the line says otherwise: the program may have left a wait by a jump.
    #[cold]
    pub(crate) fn publish_running(&mut self) {
        let told = &mut self.state.told;
        let Some(member) = self.member.as_mut().filter(|_| std::mem::take(&mut told.is_waiting)) else { return };
        let queue = &self.state.store.queue;
        let line = StateLine {
            epoch: (told.waits, queue.pushed() as u32),
            waited_ns: told.waited_ns,
            unread: queue.len() as u32,
            frames: member.frames_seen(),
            ..StateLine::default()
        };
        let mut words = [0; WORDS];
        let count = line.encode(&mut words);
        member.endpoint.publish_state(&words[..count], false);
    }
}

/// Returns that time on the clock that the daemon of the host reads, too.
fn nanoseconds_at(time: Instant) -> u64 {
    state_line::monotonic_ns().saturating_sub(time.elapsed().as_nanos() as u64)
}
