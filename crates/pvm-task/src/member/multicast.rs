//! Multicasts: the ways to the receivers, and which of them get the message on links.
use super::{Member, Route};
use crate::direct::Body;
use crate::types::Submit;
use pvm_core::channel::LaneKind;
use pvm_core::codes::Code;
use pvm_core::flows::LIST;
use pvm_core::flows::multicast::Advice;
use pvm_core::tid::Tid;
use pvm_fmp::{Meta, traffic};

/// Multicasts of fewer bytes, over all receivers, go on the links that there are, whatever the daemon has measured.
const LONG_BYTES: usize = 64 << 10;

/// The receivers of a multicast, by the way to them.
#[derive(Default)]
pub(crate) struct Receivers {
    /// Tasks of this host.
    pub local: Vec<Tid>,
    /// Tasks of other hosts, to which the daemons bring the message.
    pub far: Vec<Tid>,
    /// Tasks with a direct link.
    pub linked: Vec<Tid>,
}

impl Member {
    /// Returns the ways to the receivers of a multicast, `None` while the daemon introduces one of them, and the result for those
    /// that cannot be reached.
    pub fn ways_to(&mut self, tids: &[Tid]) -> (Option<Receivers>, Result<Submit, Code>) {
        let (mut to, mut is_complete, mut result) = (Receivers::default(), true, Ok(Submit::Done));
        // A task of another host must not get it by the daemons while one beside it gets it on a link.
        tids.iter().for_each(|tid| self.leave_links_for(*tid));
        for tid in tids {
            match self.route(*tid) {
                Ok(Route::Shared) => to.local.push(*tid),
                Ok(Route::Default) => to.far.push(*tid),
                Ok(Route::Direct) => to.linked.push(*tid),
                Ok(Route::Introducing) => is_complete = false,
                // The caller itself is skipped, as in PVM 3.4, and so are tasks that do not exist.
                Ok(Route::Loopback | Route::Daemon | Route::Gone) => {}
                Err(code) => result = Err(code),
            }
        }
        (is_complete.then_some(to), result)
    }

    /// Tells the daemon to which tasks of other hosts the next message goes.
    pub fn list_receivers(&mut self, far: &[Tid], meta: &Meta, mcast_route: i32) -> Result<(), Code> {
        let list: Vec<u8> = far.iter().flat_map(|tid| tid.0.to_ne_bytes()).collect();
        let [ctx, _, wid, enc, format, _] = *meta;
        let daemon = self.tid.host();
        let sent = self.endpoint.send_bytes(daemon.0, [ctx, mcast_route as u32, wid, enc, format, LIST], &list);
        self.finish_send(daemon, sent)
    }

    /// Returns whether a multicast of `bytes` bytes goes on the links that there are. `linked`: its receivers on links;
    /// `far`: those on other hosts without one. If it returns `false`, the daemons may know a better way than one link after
    /// the other, or send a body once to several tasks of a host.
    pub fn multicasts_on_links(&mut self, linked: &[Tid], far: &[Tid], bytes: usize) -> bool {
        let count = linked.len() + far.len();
        if count.saturating_mul(bytes) < LONG_BYTES {
            return true;
        }
        let mut hosts: Vec<Tid> = linked.iter().chain(far).map(|tid| tid.host()).collect();
        hosts.sort_unstable();
        hosts.dedup();
        let Some(place) = Advice::place(count).filter(|_| hosts.len() == count) else { return false };
        let word = self.endpoint.ports().map_or(0, |ports| ports.advice(place));
        Advice::prefers_links(word, bytes, count)
            && !(Advice::is_measured(bytes, count)
                && self.direct.is_daemons_turn(self.tid, linked, (bytes.ilog2(), place as u32)))
    }

    /// Sends a multicast on the links to these tasks, and passes the results to `note`. Returns the tasks to which there
    /// are no links any more.
    pub fn multicast_on_links(
        &mut self,
        linked: &[Tid],
        meta: Meta,
        body: Body<'_>,
        mut note: impl FnMut(Result<(), Code>),
    ) -> Vec<Tid> {
        let (mut direct, mut unlinked) = (Vec::with_capacity(linked.len()), Vec::new());
        for tid in linked {
            if self.fabric.carries(*tid) {
                note(self.send_direct(*tid, meta, body));
            } else if self.direct.carries(*tid) {
                direct.push(*tid);
            } else {
                unlinked.push(*tid);
            }
        }
        match direct[..] {
            [] => {}
            [only] => note(self.send_direct(only, meta, body)),
            _ => {
                let mut count = direct.len();
                self.direct.multicast(&direct, meta, body, |failure| {
                    count -= 1;
                    note(failure);
                });
                (0..count).for_each(|_| self.endpoint.traffic().sent(traffic::Route::Direct, body.len()));
                self.fall_back(LaneKind::Direct);
            }
        }
        unlinked
    }
}
