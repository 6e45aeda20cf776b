//! `pvm_notify` (contract 2.6), and the notifies that this process sends to itself: about its own exit and about
//! routes.
use super::State;
use crate::envelope::Envelope;
use crate::message::OWN_DSIG;
use pvm_core::codes::{
    Code, ENC_XDR, NOTIFY_CANCEL, NOTIFY_HOST_ADD, NOTIFY_HOST_DELETE, NOTIFY_ROUTE_ADD, NOTIFY_ROUTE_DELETE,
    NOTIFY_TASK_EXIT,
};
use pvm_core::encoding::Writer;
use pvm_core::proto::Request;
use pvm_core::tid::Tid;

/// The context and tag of a notify.
type Address = (i32, i32);

/// The receiver in notifies of the process to itself. PVM shows such a message with the length 0 and without a receiver.
pub(crate) const OWN_NOTIFY: i32 = i32::MIN;

/// The notifies that the process sends to itself.
#[derive(Default)]
pub(crate) struct LocalNotifies {
    own_exit: Vec<Address>,
    /// Addresses to notify of new routes, each with the number of further routes to report to it; a negative number
    /// means all.
    route_add: Vec<(Address, i32)>,
    route_delete: Vec<(Address, Tid)>,
}

impl LocalNotifies {
    pub fn take_own_exit(&mut self) -> Vec<Address> {
        std::mem::take(&mut self.own_exit)
    }
}

impl State {
    /// Queues a notify of this process to itself.
    pub fn notify_locally(&mut self, ctx: i32, tag: i32, body: &[i32]) {
        self.queue_notify(self.own, OWN_NOTIFY, (ctx, tag), body);
    }

    fn queue_notify(&mut self, src: i32, dst: i32, (ctx, tag): Address, body: &[i32]) {
        let body = body.iter().fold(Writer::new(), |writer, word| writer.int(*word)).finish();
        self.on_message_bytes(Envelope { src, dst, ctx, tag, wid: 0, enc: ENC_XDR, format: OWN_DSIG }, body);
    }

    /// Sends the notifies about a route. `descriptor`: the route's descriptor if the route can be used now, `None` if
    /// it has ended.
    pub fn route_changed(&mut self, peer: Tid, descriptor: Option<i32>) {
        let peer_word = peer.0 as i32;
        let Some(descriptor) = descriptor else {
            let (gone, rest) = self.notifies.route_delete.drain(..).partition(|(_, tid)| *tid == peer);
            self.notifies.route_delete = rest;
            let gone: Vec<(Address, Tid)> = gone;
            for ((ctx, tag), _) in gone {
                self.notify_locally(ctx, tag, &[peer_word, -1]);
            }
            return;
        };
        for at in 0..self.notifies.route_add.len() {
            let ((ctx, tag), left) = &mut self.notifies.route_add[at];
            let (ctx, tag) = (*ctx, *tag);
            *left -= i32::from(*left > 0);
            self.notify_locally(ctx, tag, &[peer_word, descriptor]);
        }
        self.notifies.route_add.retain(|(_, left)| *left != 0);
    }

    /// Checks the arguments of `pvm_notify`, and registers the notifies that are local to the process
    /// (own exit, routes). Returns the request to the daemon for all other notifies, if there are any. `has_route`: whether
    /// the program can know of a route to a task.
    pub fn notify(
        &mut self,
        (what, tag, count): (i32, i32, i32),
        tids: &[i32],
        has_route: impl Fn(Tid) -> bool,
    ) -> Result<Option<Request>, Code> {
        let ctx = self.context;
        let cancel = what & NOTIFY_CANCEL != 0;
        if tag < 0 {
            return Err(Code::BadParam);
        }
        let listed = || match count {
            1.. => tids.get(..count as usize).ok_or(Code::BadParam),
            _ => Err(Code::BadParam),
        };
        let tasks = || match listed()? {
            tids if tids.iter().all(|tid| Tid(*tid as u32).is_task()) => Ok(tids),
            _ => Err(Code::BadParam),
        };
        let rest: Vec<Tid> = match what & !NOTIFY_CANCEL {
            NOTIFY_TASK_EXIT => self.watch_own_exit((ctx, tag), cancel, tasks()?),
            NOTIFY_HOST_DELETE => listed()?.iter().map(|tid| Tid(*tid as u32)).collect(),
            NOTIFY_HOST_ADD => Vec::new(),
            NOTIFY_ROUTE_ADD => {
                self.watch_new_routes((ctx, tag), cancel, count);
                return Ok(None);
            }
            NOTIFY_ROUTE_DELETE => {
                self.watch_routes((ctx, tag), cancel, tasks()?, has_route);
                return Ok(None);
            }
            _ => return Err(Code::BadParam),
        };
        if rest.is_empty() && what & !NOTIFY_CANCEL != NOTIFY_HOST_ADD {
            return Ok(None);
        }
        let count = if what & !NOTIFY_CANCEL == NOTIFY_HOST_ADD { count } else { rest.len() as i32 };
        Ok(Some(Request::Notify { what, ctx, tag, count, tids: rest }))
    }

    /// Registers or cancels notifies of the task's own exit. Returns the other tasks in `tids`.
    fn watch_own_exit(&mut self, address: Address, cancel: bool, tids: &[i32]) -> Vec<Tid> {
        let own = self.own;
        let mut rest = Vec::new();
        for tid in tids {
            if *tid != own {
                rest.push(Tid(*tid as u32));
                continue;
            }
            let watched = &mut self.notifies.own_exit;
            match (cancel, watched.iter().position(|other| *other == address)) {
                (false, _) => watched.push(address),
                (true, Some(at)) => {
                    watched.remove(at);
                    // The answer of PVM's daemon.
                    self.queue_notify(Tid::DAEMON.0 as i32, own, address, &[own]);
                }
                (true, None) => {}
            }
        }
        rest
    }

    fn watch_new_routes(&mut self, address: Address, cancel: bool, count: i32) {
        self.notifies.route_add.retain(|(other, _)| *other != address);
        if !cancel && count != 0 {
            self.notifies.route_add.push((address, count));
        }
    }

    fn watch_routes(&mut self, address: Address, cancel: bool, tids: &[i32], has_route: impl Fn(Tid) -> bool) {
        for tid in tids {
            let peer = Tid(*tid as u32);
            let watched = &mut self.notifies.route_delete;
            if cancel {
                watched.retain(|other| *other != (address, peer));
            } else if has_route(peer) {
                watched.push((address, peer));
            } else {
                self.notify_locally(address.0, address.1, &[*tid, -1]);
            }
        }
    }
}
