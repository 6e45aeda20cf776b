//! One-call receives that wait: senders learn of them.
use super::Task;
use crate::types::{ANY, Filter};
use pvm_fmp::Posted;

impl Task {
    /// Posts a one-call receive of `room` bytes, so that senders can deliver long data directly. [`Task::end_precv`]
    /// ends the receive.
    #[inline]
    pub fn begin_precv(&mut self, filter: &Filter, room: usize) {
        if self.member.as_ref().is_some_and(|member| room >= member.endpoint.rendezvous_bytes_min()) {
            self.post(filter);
        }
    }

    /// Notes that the posted receive waits until its message comes, so that a sender on a fabric may wait for it.
    #[inline]
    pub fn stay_posted(&mut self) {
        if let Some(member) = &mut self.member {
            member.fabric.is_awaited = true;
        }
    }

    fn post(&mut self, filter: &Filter) {
        let Some(member) = &mut self.member else { return };
        let counts = |value: i32| if value == ANY { 0 } else { u32::MAX };
        member.posted = true;
        member.endpoint.post(Some(Posted {
            from: if filter.src == ANY { 0 } else { filter.src as u32 },
            mask: [counts(filter.ctx), counts(filter.tag), 0, 0, 0, 0],
            value: [filter.ctx as u32, filter.tag as u32, 0, 0, 0, 0],
        }));
    }

    /// Ends the receive that [`Task::begin_precv`] has posted.
    #[inline]
    pub fn end_precv(&mut self) {
        let Some(member) = &mut self.member else { return };
        member.fabric.is_awaited = false;
        if std::mem::take(&mut member.posted) {
            member.endpoint.post(None);
        }
    }
}
