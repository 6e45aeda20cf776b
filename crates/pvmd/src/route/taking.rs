//! What tasks send to other hosts.
use super::Around;
use pvm_core::flows::{self, Flows};
use pvm_core::tid::Tid;
use pvm_fmp::{Arrival, FAR, Meta, Remote, Sink};
use std::collections::HashMap;

/// A list of those of other hosts who get a multicast, four bytes each.
///
/// * Filled by: each task
/// * Setting: none, no machine has a million tasks
/// * Reached: the message goes to nobody
/// * Test: `a_list_of_more_receivers_than_there_can_be_is_nobodys`
pub(super) const LIST_BYTES_MAX: usize = 4 << 20;

/// The body of a message of a local task.
pub(super) enum Body {
    /// It came in the queue.
    Bytes(Vec<u8>),
    /// It lies in the sender's heap.
    Remote(Remote),
}

impl Body {
    pub fn len(&self) -> usize {
        match self {
            Body::Bytes(bytes) => bytes.len(),
            Body::Remote(remote) => remote.len(),
        }
    }
}

/// What goes to other hosts.
pub(super) struct Departures {
    pub own: Tid,
    pub flows: Flows<Body>,
    /// For whom the next message of a task is.
    pub lists: HashMap<Tid, Vec<Tid>>,
}

/// Puts what tasks have queued into flows.
pub(super) struct Taking<'a> {
    pub departures: &'a mut Departures,
    pub around: &'a dyn Around,
}

impl Taking<'_> {
    /// Whether the tid can be a task of another host.
    fn is_far(&self, tid: Tid) -> bool {
        tid.is_task() && tid.host() != self.departures.own && self.around.knows(tid.host())
    }

    fn keep_list(&mut self, from: Tid, body: &Body) {
        if body.len() > LIST_BYTES_MAX {
            self.departures.lists.remove(&from);
            return;
        }
        let mut bytes = vec![0; body.len()];
        match body {
            Body::Bytes(list) => bytes.copy_from_slice(list),
            Body::Remote(remote) => remote.read(0, &mut bytes),
        }
        let words = bytes.chunks_exact(4).map(|word| Tid(u32::from_ne_bytes(word.try_into().expect("four"))));
        let mut list: Vec<Tid> = words.filter(|tid| self.is_far(*tid)).collect();
        list.sort_unstable();
        list.dedup();
        self.departures.lists.insert(from, list);
    }
}

impl Sink for Taking<'_> {
    fn arrived(&mut self, from: u32, meta: Meta, body: Arrival<'_>) {
        let (held, body) = match body {
            Arrival::Inline(inline) => {
                let mut bytes = vec![0; inline.len()];
                inline.copy_to(&mut bytes);
                (bytes.len(), Body::Bytes(bytes))
            }
            Arrival::Remote(remote) => (0, Body::Remote(remote)),
            // Tasks make no offers to a daemon.
            Arrival::InTransit(_) => return,
        };
        let (from, far, bytes) = (Tid(from), meta[FAR], body.len());
        let [ctx, tag, wid, enc, format, _] = meta;
        let meta = [ctx, tag, wid, enc, format];
        match far {
            flows::LIST => self.keep_list(from, &body),
            flows::LISTED => {
                let list = self.departures.lists.remove(&from).unwrap_or_default();
                self.departures.flows.multicast(from, &list, meta, bytes, held, body);
            }
            far if self.is_far(Tid(far)) => self.departures.flows.send(from, Tid(far), meta, bytes, held, body),
            // To nobody: dropped, as PVM does.
            _ => {}
        }
    }

    fn wants(&self, from: u32) -> bool {
        self.departures.flows.may_take(Tid(from))
    }
}
