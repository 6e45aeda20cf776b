//! `pvm_setopt`, `pvm_getopt` and the trace masks (contract 2.9).
use crate::Environment;
use pvm_core::codes::Code;
use pvm_core::events::{MASK_CHARACTERS, MASK_EMPTY};
use pvm_core::flows::multicast::McastRoute;
use pvm_core::proto::TraceSettings;
use pvm_core::tid::Tid;
use serde_bytes::ByteBuf;

/// The fragment sizes that are accepted, in bytes. They have no effect (D39).
const FRAGMENT_BYTES: std::ops::RangeInclusive<i32> = 52..=1_048_576;
const FRAGMENT_BYTES_DEFAULT: i32 = 4080;

/// An option of `pvm_setopt`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
#[allow(missing_docs)]
pub enum OptionNumber {
    Route = 1,
    DebugMask = 2,
    AutoErr = 3,
    OutputTid = 4,
    OutputCode = 5,
    TraceTid = 6,
    TraceCode = 7,
    TraceBuffer = 8,
    TraceOptions = 9,
    FragSize = 10,
    ResvTids = 11,
    SelfOutputTid = 12,
    SelfOutputCode = 13,
    SelfTraceTid = 14,
    SelfTraceCode = 15,
    SelfTraceBuffer = 16,
    SelfTraceOptions = 17,
    ShowTids = 18,
    PollType = 19,
    PollTime = 20,
    OutputContext = 21,
    TraceContext = 22,
    SelfOutputContext = 23,
    SelfTraceContext = 24,
    NoReset = 25,
    /// Not in PVM 3.4. The numbers of such options begin where programs for PVM 3.4 have none.
    Backoff = 1003,
    /// How multicasts reach other hosts ([`McastRoute`]). PVM 3.4 does not have this option.
    McastRoute = 1004,
    /// The host at which barriers of this task's groups meet. PVM 3.4 does not have this option.
    GroupHost = 1005,
}

impl OptionNumber {
    /// Returns the option with this number.
    pub fn from_number(number: i32) -> Option<OptionNumber> {
        use OptionNumber::*;
        const ALL: [OptionNumber; 28] = [
            Route,
            DebugMask,
            AutoErr,
            OutputTid,
            OutputCode,
            TraceTid,
            TraceCode,
            TraceBuffer,
            TraceOptions,
            FragSize,
            ResvTids,
            SelfOutputTid,
            SelfOutputCode,
            SelfTraceTid,
            SelfTraceCode,
            SelfTraceBuffer,
            SelfTraceOptions,
            ShowTids,
            PollType,
            PollTime,
            OutputContext,
            TraceContext,
            SelfOutputContext,
            SelfTraceContext,
            NoReset,
            Backoff,
            OptionNumber::McastRoute,
            GroupHost,
        ];
        ALL.into_iter().find(|option| *option as i32 == number)
    }
}

/// The settings of `pvm_setopt`.
pub(crate) struct Settings {
    pub route: i32,
    debug_mask: i32,
    auto_error: i32,
    fragment_bytes: i32,
    pub reserved: i32,
    show_tids: i32,
    pub backoff_us: i32,
    pub mcast_route: i32,
    group_host: i32,
    pub own: TraceSettings,
    pub children: TraceSettings,
    /// Further directories in which spawns search for programs (`PVMSPAWNPATH`). They are passed on to all children.
    pub spawn_directories: Option<Vec<u8>>,
    pub no_reset: Option<i32>,
    /// Whether `own` has changed and the daemon has not been notified.
    pub own_changed: bool,
}

impl Settings {
    pub fn new(debug_mask: i32) -> Settings {
        Settings {
            route: 2,
            debug_mask,
            auto_error: 1,
            fragment_bytes: FRAGMENT_BYTES_DEFAULT,
            reserved: 0,
            show_tids: 1,
            backoff_us: 0,
            mcast_route: 0,
            group_host: 0,
            own: nowhere(),
            children: nowhere(),
            spawn_directories: None,
            no_reset: None,
            own_changed: false,
        }
    }

    /// Sets the settings of this task's output and traces, as the daemon has sent them. Children inherit them.
    pub fn inherit(&mut self, own: TraceSettings) {
        self.own = own;
        if self.own.mask.is_empty() {
            self.own.mask = empty_mask();
        }
        self.children = self.own.clone();
        self.own_changed = false;
    }

    /// Sets the values that the spawner has passed on in environment variables.
    pub fn inherit_environment(&mut self, environment: &Environment) {
        self.spawn_directories = environment.spawn_directories.clone();
        for settings in [&mut self.own, &mut self.children] {
            if let Some(mask) = &environment.trace_mask {
                settings.mask = ByteBuf::from(mask.clone());
            }
            settings.trace_buffer = environment.trace_buffer.unwrap_or(settings.trace_buffer);
            settings.trace_options = environment.trace_options.unwrap_or(settings.trace_options);
        }
    }

    /// Changes `own`, and notes that the daemon has to be notified.
    pub fn change_own(&mut self, own: TraceSettings) {
        self.own_changed |= own != self.own;
        self.own = own;
    }

    pub fn get(&self, option: OptionNumber) -> Option<i32> {
        let (own, children) = (&self.own, &self.children);
        Some(match option {
            OptionNumber::Route => self.route,
            OptionNumber::DebugMask => self.debug_mask,
            OptionNumber::AutoErr => self.auto_error,
            OptionNumber::OutputTid => children.output_tid,
            OptionNumber::OutputCode => children.output_tag,
            OptionNumber::OutputContext => children.output_ctx,
            OptionNumber::TraceTid => children.trace_tid,
            OptionNumber::TraceCode => children.trace_tag,
            OptionNumber::TraceContext => children.trace_ctx,
            OptionNumber::TraceBuffer => children.trace_buffer,
            OptionNumber::TraceOptions => children.trace_options,
            OptionNumber::FragSize => self.fragment_bytes,
            OptionNumber::ResvTids => self.reserved,
            OptionNumber::SelfOutputTid => own.output_tid,
            OptionNumber::SelfOutputCode => own.output_tag,
            OptionNumber::SelfOutputContext => own.output_ctx,
            OptionNumber::SelfTraceTid => own.trace_tid,
            OptionNumber::SelfTraceCode => own.trace_tag,
            OptionNumber::SelfTraceContext => own.trace_ctx,
            OptionNumber::SelfTraceBuffer => own.trace_buffer,
            OptionNumber::SelfTraceOptions => own.trace_options,
            OptionNumber::ShowTids => self.show_tids,
            OptionNumber::NoReset => i32::from(self.no_reset.is_some()),
            OptionNumber::Backoff => self.backoff_us,
            OptionNumber::McastRoute => self.mcast_route,
            OptionNumber::GroupHost => self.group_host,
            OptionNumber::PollType | OptionNumber::PollTime => return None,
        })
    }

    /// Checks a value and sets it. Children may send output and traces to this task, or to where this task sends its own;
    /// there they use this task's tag and context, since the collector would not know others.
    pub fn set(&mut self, option: OptionNumber, value: i32, own_tid: i32) -> Result<(), Code> {
        let (own, children) = (&self.own, &self.children);
        let is_free = |collector| collector == 0 || collector == own_tid;
        let allowed = match option {
            OptionNumber::Route => (1..=3).contains(&value),
            OptionNumber::TraceOptions | OptionNumber::SelfTraceOptions => (1..=3).contains(&value),
            OptionNumber::FragSize => FRAGMENT_BYTES.contains(&value),
            OptionNumber::OutputTid => {
                is_free(value) || value == own.output_tid && children.output_tag == own.output_tag
            }
            OptionNumber::OutputCode => is_free(children.output_tid) || value == own.output_tag,
            OptionNumber::OutputContext => is_free(children.output_tid) || value == own.output_ctx,
            OptionNumber::TraceTid => is_free(value) || value == own.trace_tid && children.trace_tag == own.trace_tag,
            OptionNumber::TraceCode => is_free(children.trace_tid) || value == own.trace_tag,
            OptionNumber::TraceContext => is_free(children.trace_tid) || value == own.trace_ctx,
            OptionNumber::NoReset => false,
            OptionNumber::Backoff => value >= 0,
            OptionNumber::McastRoute => u32::try_from(value).ok().and_then(McastRoute::from_word).is_some(),
            OptionNumber::GroupHost => value == 0 || Tid(value as u32).is_host(),
            OptionNumber::PollType | OptionNumber::PollTime => return Err(Code::NotImpl),
            OptionNumber::SelfOutputContext | OptionNumber::SelfTraceContext => return Err(Code::NotImpl),
            _ => true,
        };
        if !allowed {
            return Err(Code::BadParam);
        }
        self.put(option, value);
        Ok(())
    }

    fn put(&mut self, option: OptionNumber, value: i32) {
        let mut own = self.own.clone();
        match option {
            OptionNumber::Route => self.route = value,
            OptionNumber::DebugMask => self.debug_mask = value,
            OptionNumber::AutoErr => self.auto_error = value,
            OptionNumber::FragSize => self.fragment_bytes = value,
            OptionNumber::ResvTids => self.reserved = value,
            OptionNumber::ShowTids => self.show_tids = value,
            OptionNumber::Backoff => self.backoff_us = value,
            OptionNumber::McastRoute => self.mcast_route = value,
            OptionNumber::GroupHost => self.group_host = value,
            OptionNumber::OutputTid => self.children.output_tid = value,
            OptionNumber::OutputCode => self.children.output_tag = value,
            OptionNumber::OutputContext => self.children.output_ctx = value,
            OptionNumber::TraceTid => self.children.trace_tid = value,
            OptionNumber::TraceCode => self.children.trace_tag = value,
            OptionNumber::TraceContext => self.children.trace_ctx = value,
            OptionNumber::TraceBuffer => self.children.trace_buffer = value,
            OptionNumber::TraceOptions => self.children.trace_options = value,
            OptionNumber::SelfOutputTid => own.output_tid = value,
            // A tag has a meaning only if there is a collector.
            OptionNumber::SelfOutputCode if own.output_tid > 0 => own.output_tag = value,
            OptionNumber::SelfTraceTid => own.trace_tid = value,
            OptionNumber::SelfTraceCode if own.trace_tid > 0 => own.trace_tag = value,
            OptionNumber::SelfTraceBuffer => own.trace_buffer = value,
            OptionNumber::SelfTraceOptions => own.trace_options = value,
            _ => {}
        }
        // Children that are spawned later inherit new destinations of this task.
        let children = &mut self.children;
        match option {
            OptionNumber::OutputTid | OptionNumber::OutputCode | OptionNumber::OutputContext => {
                children.run = children.run.for_others();
            }
            OptionNumber::SelfOutputTid | OptionNumber::SelfOutputCode => {
                own.run = own.run.for_others();
                (children.output_tid, children.output_ctx, children.output_tag, children.run) =
                    (own.output_tid, own.output_ctx, own.output_tag, own.run);
            }
            OptionNumber::SelfTraceTid | OptionNumber::SelfTraceCode => {
                (children.trace_tid, children.trace_ctx, children.trace_tag) =
                    (own.trace_tid, own.trace_ctx, own.trace_tag);
            }
            _ => {}
        }
        self.change_own(own);
    }
}

fn empty_mask() -> ByteBuf {
    ByteBuf::from(vec![MASK_EMPTY; MASK_CHARACTERS])
}

fn nowhere() -> TraceSettings {
    TraceSettings { mask: empty_mask(), ..TraceSettings::default() }
}

#[cfg(test)]
#[path = "options_tests.rs"]
mod tests;
