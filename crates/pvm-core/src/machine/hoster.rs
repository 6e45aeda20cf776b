//! The hoster: a task that starts the daemons of new hosts (contract 2.12).
use super::{Action, Machine};
use crate::codes::{Code, SM_STHOST};
use crate::encoding::{Reader, Writer};
use crate::proto::ByteBuf;
use crate::tid::Tid;

/// What a hoster has been asked.
pub(super) struct Hosting {
    wid: i32,
    request: u32,
    /// The hosts, and which of the request they are.
    hosts: Vec<(Tid, usize)>,
}

/// A daemon's greeting begins so.
const GREETING: &[u8] = b"ddpro<";

impl Machine {
    /// By which commands the hoster is to start the daemons: the index of each host, the command.
    pub fn handle_start_commands(&mut self, request: u32, commands: Vec<(usize, ByteBuf)>) {
        let Some(hoster) = self.servers.hoster else { return self.fail_starts(request, Code::CantStart) };
        let (mut hosts, mut entries) = (Vec::new(), Writer::new());
        for (index, command) in commands {
            let Some((tid, line)) = self.host_to_start(request, index) else { continue };
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
        self.servers.last_wid += 1;
        let wid = self.servers.last_wid;
        let body = [Writer::new().int(hosts.len() as i32).finish(), entries.finish()].concat();
        self.servers.hosting = Some(Hosting { wid, request, hosts });
        self.tell(hoster, 0, SM_STHOST, wid, body);
    }

    /// What the hoster says.
    pub(super) fn hosts_started(&mut self, from: Tid, wid: i32, body: &mut Reader<'_>) {
        if self.servers.hoster != Some(from) || self.servers.hosting.as_ref().is_none_or(|asked| asked.wid != wid) {
            return;
        }
        let Some(Hosting { request, mut hosts, .. }) = self.servers.hosting.take() else { return };
        for _ in 0..body.int().unwrap_or(0) {
            let (Some(tid), Some(result)) = (body.int(), body.string()) else { return self.fail_add(Code::DSysErr) };
            let place = hosts.iter().position(|(host, _)| *host == Tid(tid as u32));
            let Some(place) = place else { return self.fail_add(Code::DSysErr) };
            let (_, index) = hosts.remove(place);
            let code = match result {
                greeting if greeting.starts_with(GREETING) => {
                    self.actions.push_back(Action::ReadAnswer { request, index, line: greeting.to_vec() });
                    continue;
                }
                b"PvmDupHost" => Code::DupHost,
                b"PvmBadVersion" => Code::BadVersion,
                b"PvmNoHost" => Code::NoHost,
                _ => Code::CantStart,
            };
            self.handle_host_started(self.now, request, index, Err(code.into()));
        }
        for (_, index) in hosts {
            self.handle_host_started(self.now, request, index, Err(Code::CantStart.into()));
        }
    }
}
