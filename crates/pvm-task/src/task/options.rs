//! `pvm_setopt`, `pvm_getopt` and the trace masks (contract 2.9).
use super::Task;
use crate::message::items_converted;
use crate::options::OptionNumber;
use pvm_core::codes::Code;
use pvm_core::events::MASK_CHARACTERS;
use pvm_core::proto::{Request, TraceSettings};
use pvm_core::tid::Tid;
use serde_bytes::ByteBuf;
use std::time::Duration;

/// A number that `pvm_getopt` accepts in addition to the options of PVM 3.4. For this number, `pvm_getopt` returns how
/// many items this process has converted.
const ITEMS_CONVERTED: i32 = 1001;
/// The same for the KiB of long messages that this process has copied.
const KIB_COPIED: i32 = 1002;
/// The same for the number of tasks to which messages of this process take a fabric.
const FABRIC_TASKS: i32 = 1006;
/// The same for how the last long body inside the host was copied ([`pvm_fmp::last_way`]).
const COPY_WAY: i32 = 1007;

impl Task {
    /// `pvm_setopt`; returns the previous value. `NoReset` needs mailboxes, see [`Task::set_no_reset`]. The daemon is
    /// notified of the destinations of this task's output and traces.
    pub fn set_option(&mut self, what: i32, value: i32) -> Result<i32, Code> {
        let option = OptionNumber::from_number(what).ok_or(Code::BadParam)?;
        let own_tid = self.own_tid();
        let previous = self.state.settings.get(option);
        self.state.settings.set(option, value, own_tid)?;
        self.tell_own_settings();
        if option == OptionNumber::Route {
            self.tell_route();
        }
        previous.ok_or(Code::BadParam)
    }

    /// Notifies the daemon of the destinations of this task's output and traces, if they have changed.
    pub(crate) fn tell_own_settings(&mut self) {
        if self.state.settings.own_changed && self.is_connected() {
            self.state.settings.own_changed = false;
            let own = self.state.settings.own.clone();
            // A daemon that is gone needs no settings.
            let _ = self.send_request(Request::SetOwn(own));
        }
    }

    /// Reports the value of `PvmRoute` to the daemon, after the program has set it or the task has enrolled.
    pub(crate) fn tell_route(&mut self) {
        let route = self.state.settings.route;
        let request = self.member.as_mut().and_then(|member| member.direct.set_route(route));
        if let Some(request) = request {
            let _ = self.send_request(request);
        }
    }

    /// `pvm_getopt`.
    pub fn option(&self, what: i32) -> Result<i32, Code> {
        if what == ITEMS_CONVERTED {
            return Ok(i32::try_from(items_converted()).unwrap_or(i32::MAX));
        }
        if what == KIB_COPIED {
            return Ok(i32::try_from(pvm_fmp::copied_bytes() / 1024).unwrap_or(i32::MAX));
        }
        if what == COPY_WAY {
            return Ok(pvm_fmp::last_way().into());
        }
        if what == FABRIC_TASKS {
            return Ok(self.member.as_ref().map_or(0, |member| member.fabric.peers() as i32));
        }
        let option = OptionNumber::from_number(what).ok_or(Code::BadParam)?;
        self.state.settings.get(option).ok_or(Code::BadParam)
    }

    /// Returns whether the program has set `PvmBackoff`.
    #[inline(always)]
    pub fn backs_off(&self) -> bool {
        self.state.settings.backoff_us != 0
    }

    /// Returns how long the instance of a group waits before it sends to a receiver to which other members send too.
    pub fn backoff(&self, instance: u32) -> Duration {
        Duration::from_micros(self.state.settings.backoff_us.unsigned_abs().into()).saturating_mul(instance)
    }

    /// Returns the index of this task's entry in the mailbox that lists the tasks to be spared by a reset.
    pub fn no_reset(&self) -> Option<i32> {
        self.state.settings.no_reset
    }

    /// Sets the index that [`Task::no_reset`] returns.
    pub fn set_no_reset(&mut self, index: Option<i32>) {
        self.state.settings.no_reset = index;
    }

    /// Returns where output and traces of this task go (`pvmtrc`).
    pub fn own_settings(&self) -> &TraceSettings {
        &self.state.settings.own
    }

    /// Returns where output and traces of children go (`pvmctrc`).
    pub fn child_settings(&self) -> &TraceSettings {
        &self.state.settings.children
    }

    /// `pvm_settmask` for this task (`false`) or children (`true`).
    pub fn set_trace_mask(&mut self, children: bool, mask: &[u8]) -> Result<(), Code> {
        let mask = ByteBuf::from(&mask[..mask.len().min(MASK_CHARACTERS)]);
        match children {
            true => self.state.settings.children.mask = mask,
            false => self.state.settings.own.mask = mask,
        }
        Ok(())
    }

    /// Returns the resource manager's tid, or `Tid::NONE`.
    pub fn resource_manager(&self) -> Tid {
        self.member.as_ref().map_or(Tid::NONE, |member| member.resource_manager)
    }
}
