//! Multicasts: one body for tasks of this host, for the daemon, which brings it to other hosts, and for links.
use super::{Outgoing, send_in_cell};
use crate::member::{Member, Receivers};
use crate::task::Task;
use crate::types::Submit;
use pvm_core::codes::Code;
use pvm_core::flows::LISTED;
use pvm_core::tid::Tid;
use pvm_fmp::{FAR, Meta};

impl Task {
    /// `pvm_mcast` of the active send buffer.
    pub fn multicast(&mut self, to: &[i32], tag: i32) -> Result<Submit, Code> {
        let mut receivers: Vec<Tid> = to.iter().map(|tid| Tid(*tid as u32)).collect();
        let reserved = self.state.settings.reserved != 0;
        if (tag < 0 && !reserved) || !receivers.iter().all(|tid| tid.is_task()) {
            return Err(Code::BadParam);
        }
        let (context, mcast_route) = (self.state.context, self.state.settings.mcast_route);
        let message = self.state.store.sending()?;
        message.check_length()?;
        let member = self.member.as_mut().ok_or(Code::SysErr)?;
        receivers.sort_unstable();
        receivers.dedup();
        // If the send to one receiver fails, the other receivers still get the message, but the result is the failure.
        let (to, mut result) = member.ways_to(&receivers);
        let Some(Receivers { local, mut far, mut linked }) = to else { return Ok(Submit::Again) };
        (message.ctx, message.tag) = (context, tag);
        let meta = message.meta();
        let copies = local.len() + linked.len() + usize::from(!far.is_empty());
        if let ([only], 1) = (&local[..], copies) {
            if let Some(sent) = send_in_cell(message, member, *only, &meta) {
                self.collect_returned_blocks();
                return sent.and(result);
            }
        }
        let body = Outgoing::of(message, &mut member.endpoint, copies)?;
        // A program may have named a way of the daemons.
        if mcast_route == 0 && member.multicasts_on_links(&linked, &far, body.as_body().len()) {
            far.iter().for_each(|tid| _ = member.direct.count_by_default_route(*tid));
        } else if linked.len() > 1 {
            let left;
            (left, linked) = linked.into_iter().partition(|tid| member.direct.leave(*tid));
            far.extend::<Vec<Tid>>(left);
            far.sort_unstable();
        }
        let mut note = |sent: Result<(), Code>| {
            if let Err(code) = sent {
                result = Err(code);
            }
        };
        note(body.send_to_all(member, (&local, &far), meta, mcast_route));
        for tid in member.multicast_on_links(&linked, meta, body.as_body(), &mut note) {
            note(body.send_to_all(member, (&[], &[tid]), meta, mcast_route));
        }
        self.collect_returned_blocks();
        result
    }
}

impl Outgoing<'_> {
    /// Puts the body into the queues to tasks of this host and, for tasks of other hosts, to the daemon: all of these see it at
    /// the same instant. So nobody can answer before all others have it, in the order of the hosts. If several are `far`, a
    /// message to the daemon precedes the body, with their tids and, in place of a tag, how the body reaches their hosts.
    fn send_to_all(
        &self,
        member: &mut Member,
        (local, far): (&[Tid], &[Tid]),
        meta: Meta,
        mcast_route: i32,
    ) -> Result<(), Code> {
        let mut to: Vec<(u32, Meta)> = local.iter().map(|tid| (tid.0, meta)).collect();
        let mut result = Ok(());
        if let [first, others @ ..] = far {
            let (daemon, mut meta, mut listed) = (member.tid.host(), meta, Ok(()));
            meta[FAR] = first.0;
            if !others.is_empty() {
                meta[FAR] = LISTED;
                listed = member.list_receivers(far, &meta, mcast_route);
            }
            match listed {
                Ok(()) => to.push((daemon.0, meta)),
                Err(code) => result = Err(code),
            }
            member.note_relayed(self.as_body().len());
        }
        match (&to[..], self.as_shared()) {
            ([_, _, ..], Some(shared)) => {
                let sent = member.endpoint.send_to_all(&to, shared);
                for ((tid, _), sent) in to.iter().zip(sent) {
                    result = member.finish_send(Tid(*tid), sent).and(result);
                }
            }
            _ => {
                for (tid, meta) in to {
                    result = self.send(member, Tid(tid), meta).and(result);
                }
            }
        }
        result
    }
}
