//! The hoster: a task that starts the daemons of new hosts (contract 2.12).
use super::Servers;
use crate::codes::{Code, SM_STHOST};
use crate::encoding::{Reader, Writer};
use crate::machine::action::Action;
use crate::machine::core::Core;
use crate::machine::membership::Membership;
use crate::proto::ByteBuf;
use crate::tid::Tid;

/// A request that is pending at the hoster.
pub(super) struct HosterRequest {
    /// The wait id of the message to the hoster.
    wid: i32,
    /// The number of the request to add hosts.
    request: u32,
    /// The hosts to start, each with its index in that request.
    hosts: Vec<(Tid, usize)>,
}

/// The beginning of the line that a started daemon prints.
const GREETING: &[u8] = b"ddpro<";

impl Servers {
    /// Asks the hoster to start daemons. `commands`: for each host, its index in the request to add hosts (`request`),
    /// and the command that starts its daemon.
    pub fn start_commands(
        &mut self,
        core: &mut Core,
        membership: &mut Membership,
        request: u32,
        commands: Vec<(usize, ByteBuf)>,
    ) {
        let Some(hoster) = core.roles.hoster else {
            return membership.joining.fail_starts(core, request, Code::CantStart);
        };
        let (mut hosts, mut entries) = (Vec::new(), Writer::new());
        for (index, command) in commands {
            let Some((tid, line)) = membership.joining.host_to_start(request, index) else { continue };
            let address = match line.login() {
                Some(login) => format!("{login}@{}", line.address()),
                None => line.address().to_owned(),
            };
            entries = entries.int(tid.0 as i32).string(line.start_option().unwrap_or("").as_bytes());
            entries = entries.string(address.as_bytes()).string(&command).string(b"");
            entries = entries.string(line.machine().unwrap_or("").as_bytes());
            hosts.push((tid, index));
        }
        if hosts.is_empty() {
            return;
        }
        self.last_wid += 1;
        let wid = self.last_wid;
        let body = [Writer::new().int(hosts.len() as i32).finish(), entries.finish()].concat();
        self.hoster_request = Some(HosterRequest { wid, request, hosts });
        core.tell(hoster, 0, SM_STHOST, wid, body);
    }

    /// Handles the answer of the hoster.
    pub(super) fn hosts_started(
        &mut self,
        core: &mut Core,
        membership: &mut Membership,
        from: Tid,
        wid: i32,
        body: &mut Reader<'_>,
    ) {
        if core.roles.hoster != Some(from) || self.hoster_request.as_ref().is_none_or(|asked| asked.wid != wid) {
            return;
        }
        let Some(HosterRequest { request, mut hosts, .. }) = self.hoster_request.take() else { return };
        for _ in 0..body.int().unwrap_or(0) {
            let (Some(tid), Some(result)) = (body.int(), body.string()) else {
                return membership.fail_add(core, Code::DSysErr);
            };
            let place = hosts.iter().position(|(host, _)| *host == Tid(tid as u32));
            let Some(place) = place else { return membership.fail_add(core, Code::DSysErr) };
            let (_, index) = hosts.remove(place);
            let code = match result {
                greeting if greeting.starts_with(GREETING) => {
                    core.push(Action::ReadAnswer { request, index, line: greeting.to_vec() });
                    continue;
                }
                b"PvmDupHost" => Code::DupHost,
                b"PvmBadVersion" => Code::BadVersion,
                b"PvmNoHost" => Code::NoHost,
                _ => Code::CantStart,
            };
            membership.joining.host_started(core, request, index, Err(code.into()));
        }
        for (_, index) in hosts {
            membership.joining.host_started(core, request, index, Err(Code::CantStart.into()));
        }
    }
}
