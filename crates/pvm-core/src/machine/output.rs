//! What tasks print: to a collecting task, or to the log (contract 2.8).
use super::{Action, Machine};
use crate::codes::Code;
use crate::encoding::Writer;
use crate::proto::{Message, Reply, TraceSettings};
use crate::tid::{DAEMON_BIT, Tid};
use crate::wire::Frame;

/// The most bytes of output in one message to a collector.
pub const CHUNK_BYTES_MAX: usize = 3999;
/// A line of what a task prints where nobody but the log takes it.
///
/// * Filled by: each task that is spawned
/// * Setting: none, no line is lost, and who collects output gets it as it was printed
/// * Reached: the line is cut into several
/// * Test: `a_line_without_an_end_is_cut_for_the_log`
pub(super) const LINE_BYTES_MAX: usize = 4096;
/// Instead of a length: the task was created.
pub(super) const CREATED: i32 = -2;
/// Instead of a length: its spawner has announced it.
pub(super) const ANNOUNCED: i32 = -1;
/// Instead of a length: it prints no more.
pub(super) const AT_END: i32 = 0;

impl Machine {
    /// The collector of a task's output, if that is a task which can take it.
    fn collector(&self, settings: &TraceSettings) -> Option<Tid> {
        let tid = Tid(settings.output_tid as u32);
        (tid.is_task() && self.may_take(tid)).then_some(tid)
    }

    /// To whom the output of a task goes, if it does not go to the log.
    pub fn collector_of(&self, tid: Tid) -> Option<Tid> {
        self.collector(&self.tasks.get(tid)?.own)
    }

    fn tell_collector(&mut self, settings: &TraceSettings, body: Writer) {
        self.give_collector(settings, body.finish(), false);
    }

    /// Tells the collector of a task that came by itself, or that another host's daemon announces:
    /// so the announcement comes before all that the spawner does later.
    pub(super) fn announce_arrival(&mut self, tid: Tid) {
        let Some(task) = self.tasks.get(tid) else { return };
        let (settings, parent) = (task.own.clone(), task.parent);
        self.tell_collector(&settings, Writer::new().int(tid.0 as i32).int(CREATED).int(parent));
    }

    /// Tells the collector that the task is there.
    pub(super) fn announce_output(&mut self, tid: Tid) {
        let Some(task) = self.tasks.get(tid) else { return };
        let (settings, parent) = (task.own.clone(), task.parent);
        for kind in [CREATED, ANNOUNCED] {
            self.tell_collector(&settings, Writer::new().int(tid.0 as i32).int(kind).int(parent));
        }
    }

    /// A task of this host had another host start that one: tells the collector that it is there.
    pub(super) fn announce_far(&mut self, tid: Tid, settings: &TraceSettings, parent: i32) {
        let body = Writer::new().int(tid.0 as i32).int(ANNOUNCED).int(parent);
        match self.collector(settings) {
            Some(collector) if collector.host() == self.own_host() => {
                self.announcement_came(collector, tid, settings.output_ctx, settings.output_tag, body.finish());
            }
            _ => self.tell_collector(settings, body),
        }
    }

    /// Output of a task.
    pub fn handle_output(&mut self, tid: Tid, data: &[u8]) {
        let Some(task) = self.tasks.get(tid) else { return };
        self.printed(tid, task.own.clone(), data);
    }

    /// What a task of `pvm run` has written to its standard error.
    pub fn handle_errors(&mut self, tid: Tid, data: &[u8]) {
        let Some(task) = self.tasks.get(tid) else { return };
        let mut settings = task.own.clone();
        if settings.run.errors_tag != 0 {
            settings.output_tag = settings.run.errors_tag;
        }
        self.printed(tid, settings, data);
    }

    fn printed(&mut self, tid: Tid, settings: TraceSettings, data: &[u8]) {
        if self.collector(&settings).is_none() {
            return self.log_output(tid, data);
        }
        for chunk in data.chunks(CHUNK_BYTES_MAX) {
            let body = Writer::new().int(tid.0 as i32).int(chunk.len() as i32).bytes(chunk);
            self.give_collector(&settings, body.finish(), true);
        }
    }

    /// What there is to say of a task's output goes to its collector; the output itself counts on its way to another
    /// host.
    fn give_collector(&mut self, settings: &TraceSettings, body: Vec<u8>, counts: bool) {
        let Some(to) = self.collector(settings) else { return };
        let own = self.own_host();
        if to.host() == own {
            return self.tell(to, settings.output_ctx, settings.output_tag, 0, body);
        }
        if counts {
            self.output_sent(to, body.len());
        }
        let src = Tid(DAEMON_BIT | own.0);
        let message = Message { src, ..self.own_message(to, settings.output_ctx, settings.output_tag, 0, body) };
        self.actions.push_back(Action::SendAlong { to, frame: Frame::Output(message) });
    }

    fn log_output(&mut self, tid: Tid, data: &[u8]) {
        let Some(task) = self.tasks.get_mut(tid) else { return };
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
        lines.into_iter().for_each(|line| self.log_line(tid, line));
    }

    /// The log of the machine is the master's.
    fn log_line(&mut self, tid: Tid, line: Vec<u8>) {
        match self.hosts.is_master() {
            true => self.actions.push_back(Action::Log { tid, line }),
            false => self.send_host(self.hosts.master(), Frame::Log { tid, line }),
        }
    }

    /// The task will print no more.
    pub(super) fn end_output(&mut self, tid: Tid) {
        let Some(task) = self.tasks.get_mut(tid) else { return };
        let settings = task.own.clone();
        if !task.line.is_empty() {
            let line = std::mem::take(&mut task.line);
            self.log_line(tid, line);
        }
        self.tell_collector(&settings, Writer::new().int(tid.0 as i32).int(AT_END));
    }

    /// `pvm_setopt` of the own output: the old collector hears of an end, the new one of a start.
    pub(super) fn set_own(&mut self, tid: Tid, settings: TraceSettings) -> Result<Reply, Code> {
        let task = self.tasks.get(tid).ok_or(Code::SysErr)?;
        let place = |s: &TraceSettings| (s.output_tid, s.output_ctx, s.output_tag);
        let moved = place(&task.own) != place(&settings);
        let traced = |s: &TraceSettings| (s.trace_tid, s.trace_ctx, s.trace_tag);
        let traced_before = (traced(&task.own) != traced(&settings)).then(|| task.own.clone());
        if moved {
            self.end_output(tid);
        }
        self.tasks.get_mut(tid).ok_or(Code::SysErr)?.own = settings;
        if moved {
            self.announce_output(tid);
        }
        if let Some(before) = traced_before {
            self.trace_moved(tid, &before);
        }
        Ok(Reply::Done)
    }
}
