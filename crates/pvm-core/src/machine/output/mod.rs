//! The output of tasks, which goes to a collector or to the log (contract 2.8).
//!
//! `remote_output` handles the output for collectors on other hosts.

mod remote_output;

pub(super) use self::remote_output::RemoteOutput;
use super::action::Action;
use super::core::{Core, SubMachine};
use super::event::Event;
use super::outbox::own_message;
use super::traces::Traces;
use crate::codes::Code;
use crate::encoding::Writer;
use crate::proto::{Message, Reply, TraceSettings};
use crate::tid::{DAEMON_BIT, Tid};
use crate::wire::Frame;

/// The maximum number of bytes of output in one message to a collector.
pub const CHUNK_BYTES_MAX: usize = 3999;
/// The largest length, in bytes, of a line in the log that a task without a collector has printed.
///
/// * Filled by: each task that is spawned
/// * Setting: none, no output is lost, and collectors get it as it was printed
/// * Reached: the line is cut into several
/// * Test: `a_line_without_an_end_is_cut_for_the_log`
pub(in crate::machine) const LINE_BYTES_MAX: usize = 4096;
/// In a message to a collector, in place of the length of the output: the task was created.
pub(super) const CREATED: i32 = -2;
/// In place of the length: the spawner has announced the task.
pub(super) const ANNOUNCED: i32 = -1;
/// In place of the length: the output of the task has ended.
pub(super) const AT_END: i32 = 0;

/// The output of tasks.
#[derive(Default)]
pub(super) struct Output {
    pub remote_output: RemoteOutput,
}

impl SubMachine for Output {
    fn name(&self) -> &'static str {
        "output for other hosts"
    }
    fn is_idle(&self) -> bool {
        self.remote_output.is_idle()
    }
    fn on_event(&mut self, core: &mut Core, event: &Event) {
        match event {
            Event::TaskEnrolled { tid, arrived: true } => self.announce_arrival(core, *tid),
            Event::TaskLeft { tid, .. } => self.remote_output.collector_left(core, *tid),
            Event::TaskGone { tid, task } if !task.output_ended => {
                self.end(core, *tid, &task.trace_settings, task.line.clone());
            }
            // The lost host will not announce the task any more.
            Event::SpawnerLost(tid) => self.announce_output(core, *tid),
            Event::HostGone(host) => self.remote_output.host_gone(core, *host),
            _ => {}
        }
    }
}

/// Returns the collector of a task's output, if the collector is a task that can receive messages.
fn collector(core: &Core, settings: &TraceSettings) -> Option<Tid> {
    let tid = Tid(settings.output_tid as u32);
    (tid.is_task() && core.can_receive(tid)).then_some(tid)
}

/// Returns the collector of a task's output, unless the output goes to the log.
pub(super) fn collector_of(core: &Core, tid: Tid) -> Option<Tid> {
    collector(core, &core.tasks.get(tid)?.trace_settings)
}

/// Adds a line of a task to the log of the machine, which the master writes.
fn log_line(core: &mut Core, tid: Tid, line: Vec<u8>) {
    match core.is_master() {
        true => core.push(Action::Log { tid, line }),
        false => core.send_master(Frame::Log { tid, line }),
    }
}

/// Logs output of a task, line by line.
fn log_output(core: &mut Core, tid: Tid, data: &[u8]) {
    let Some(task) = core.tasks.get_mut(tid) else { return };
    let line = &mut task.line;
    let mut lines = Vec::new();
    for &byte in data {
        if byte != b'\n' {
            line.push(byte);
        }
        if byte == b'\n' || line.len() >= LINE_BYTES_MAX {
            lines.push(std::mem::take(line));
        }
    }
    lines.into_iter().for_each(|line| log_line(core, tid, line));
}

impl Output {
    /// Sends an announcement to a collector.
    fn tell_collector(&mut self, core: &mut Core, settings: &TraceSettings, body: Writer) {
        self.send_to_collector(core, settings, body.finish(), false);
    }

    /// Reports to the collector that a task was created which was started by hand, or which another host has spawned
    /// here. A spawned task is announced by the spawner's host, so that the announcement arrives before anything that
    /// the spawner sends later.
    pub fn announce_arrival(&mut self, core: &mut Core, tid: Tid) {
        let Some(task) = core.tasks.get(tid) else { return };
        let (settings, parent) = (task.trace_settings.clone(), task.parent);
        self.tell_collector(core, &settings, Writer::new().int(tid.0 as i32).int(CREATED).int(parent));
    }

    /// Reports to the collector that a task of this host was created, and announces the task.
    pub fn announce_output(&mut self, core: &mut Core, tid: Tid) {
        let Some(task) = core.tasks.get(tid) else { return };
        let (settings, parent) = (task.trace_settings.clone(), task.parent);
        for kind in [CREATED, ANNOUNCED] {
            self.tell_collector(core, &settings, Writer::new().int(tid.0 as i32).int(kind).int(parent));
        }
    }

    /// Announces to the collector a task that another host has started for a task of this host.
    pub fn announce_remote(&mut self, core: &mut Core, tid: Tid, settings: &TraceSettings, parent: i32) {
        let body = Writer::new().int(tid.0 as i32).int(ANNOUNCED).int(parent);
        match collector(core, settings) {
            Some(collector) if collector.host() == core.own_host() => {
                self.remote_output.announce(
                    core,
                    collector,
                    tid,
                    settings.output_ctx,
                    settings.output_tag,
                    body.finish(),
                );
            }
            _ => self.tell_collector(core, settings, body),
        }
    }

    /// Handles bytes that a task wrote to its standard output.
    pub fn printed_output(&mut self, core: &mut Core, tid: Tid, data: &[u8]) {
        let Some(task) = core.tasks.get(tid) else { return };
        self.printed(core, tid, task.trace_settings.clone(), data);
    }

    /// Handles bytes that a task of `pvm run` wrote to its standard error.
    pub fn printed_errors(&mut self, core: &mut Core, tid: Tid, data: &[u8]) {
        let Some(task) = core.tasks.get(tid) else { return };
        let mut settings = task.trace_settings.clone();
        if settings.run.errors_tag != 0 {
            settings.output_tag = settings.run.errors_tag;
        }
        self.printed(core, tid, settings, data);
    }

    /// Sends output to the task's collector, or logs the output if there is none.
    fn printed(&mut self, core: &mut Core, tid: Tid, settings: TraceSettings, data: &[u8]) {
        if collector(core, &settings).is_none() {
            return log_output(core, tid, data);
        }
        for chunk in data.chunks(CHUNK_BYTES_MAX) {
            let body = Writer::new().int(tid.0 as i32).int(chunk.len() as i32).bytes(chunk);
            self.send_to_collector(core, &settings, body.finish(), true);
        }
    }

    /// Sends a message to a collector. If `counts` is true and the collector is on another host, the message counts as
    /// output in flight.
    fn send_to_collector(&mut self, core: &mut Core, settings: &TraceSettings, body: Vec<u8>, counts: bool) {
        let Some(to) = collector(core, settings) else { return };
        let own = core.own_host();
        if to.host() == own {
            return core.tell(to, settings.output_ctx, settings.output_tag, 0, body);
        }
        if counts {
            self.remote_output.sent(to, body.len());
        }
        let src = Tid(DAEMON_BIT | own.0);
        let message = Message { src, ..own_message(to, settings.output_ctx, settings.output_tag, 0, body) };
        core.push(Action::SendAlong { to, frame: Frame::Output(message) });
    }

    /// Handles the news that a task that goes on has closed its standard output and standard error.
    pub fn closed(&mut self, core: &mut Core, tid: Tid) {
        let Some(task) = core.tasks.get_mut(tid).filter(|task| !task.output_ended) else { return };
        task.output_ended = true;
        let (settings, line) = (task.trace_settings.clone(), std::mem::take(&mut task.line));
        self.end(core, tid, &settings, line);
    }

    /// Reports the end of the output of a task to the collector that `settings` names; logs `line`, an unfinished last
    /// line.
    fn end(&mut self, core: &mut Core, tid: Tid, settings: &TraceSettings, line: Vec<u8>) {
        if !line.is_empty() {
            log_line(core, tid, line);
        }
        self.tell_collector(core, settings, Writer::new().int(tid.0 as i32).int(AT_END));
    }

    /// Handles `pvm_setopt` for a task's own output and traces: reports the end of the output to the old collector, and
    /// its start to the new one.
    pub fn set_own(
        &mut self,
        core: &mut Core,
        traces: &mut Traces,
        tid: Tid,
        settings: TraceSettings,
    ) -> Result<Reply, Code> {
        let task = core.tasks.get_mut(tid).ok_or(Code::SysErr)?;
        let before = std::mem::replace(&mut task.trace_settings, settings.clone());
        let place = |s: &TraceSettings| (s.output_tid, s.output_ctx, s.output_tag);
        if place(&before) != place(&settings) {
            let line = std::mem::take(&mut task.line);
            // The new collector hears of the end when the task ends.
            if !std::mem::take(&mut task.output_ended) {
                self.end(core, tid, &before, line);
            }
            self.announce_output(core, tid);
        }
        let traced = |s: &TraceSettings| (s.trace_tid, s.trace_ctx, s.trace_tag);
        if traced(&before) != traced(&settings) {
            traces.collector_changed(core, tid, &before);
        }
        Ok(Reply::Done)
    }
}
