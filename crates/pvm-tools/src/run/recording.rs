//! `pvm run --record` and `--trace`: write what the tasks do as a timeline.
use super::RunError;
use super::printer::Stream;
use crate::cli;
use crate::control;
use crate::look::Looker;
use crate::timeline::{self, Timeline};
use pvm_core::tid::Tid;
use pvm_core::trace::parts;
use pvm_task::{ANY, Filter, OptionNumber, Session};
use std::fs::File;
use std::io::{self, BufWriter};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// The tag of trace messages, in the same context as the output.
const TRACE_TAG: i32 = 2;
/// `PvmTraceFull`.
const TRACE_FULL: i32 = 1;
/// The time between two looks at the machine.
const PAUSE: Duration = Duration::from_secs(1);

/// The timeline that is being written from looks at the machine, and from traces of the tasks if they make some.
pub struct Recording {
    /// The file.
    pub path: PathBuf,
    /// The context of the traces.
    context: i32,
    timeline: Timeline<BufWriter<File>>,
    looker: Looker,
}

impl Recording {
    /// Begins a timeline, if one is asked for. With `--trace`, tasks that are spawned later send their traces to this task.
    pub fn start(session: &mut Session, arguments: &cli::Run, context: i32) -> Result<Option<Recording>, RunError> {
        let Some(path) = arguments.trace.as_ref().or(arguments.record.as_ref()) else { return Ok(None) };
        let failed = |error| RunError::System(path.display().to_string(), error);
        let file = File::create(path).map_err(failed)?;
        let mut timeline = Timeline::new(BufWriter::new(file), pvm_task::trace::stamp()).map_err(failed)?;
        for host in control::hosts(session)?.0 {
            timeline.host(host.tid, &host.name).map_err(failed)?;
        }
        if arguments.trace.is_some() {
            trace(session, context)?;
        }
        let looker = Looker::Rests(Instant::now());
        Ok(Some(Recording { path: path.clone(), context, timeline, looker }))
    }

    /// Returns when [`Recording::take`] has something to do, even if no message comes.
    pub fn deadline(&self) -> Option<Instant> {
        self.looker.deadline()
    }

    /// Writes the looks and the trace messages that have arrived.
    pub fn take(&mut self, session: &mut Session) -> io::Result<()> {
        if let Some((look, hosts)) = self.looker.proceed(session, Instant::now(), PAUSE) {
            self.timeline.look(look, &hosts, pvm_task::trace::stamp())?;
        }
        let filter = Filter { src: ANY, tag: TRACE_TAG, ctx: self.context };
        // Without a daemon no messages arrive; the main loop of the run notices that the daemon has ended.
        while let Ok(Some(message)) = session.recv(filter, Some(Duration::ZERO)) {
            for part in parts(message.reader()) {
                self.timeline.take(message.src, part)?;
            }
        }
        Ok(())
    }

    /// Writes what a task has printed.
    pub fn output(&mut self, task: Tid, stream: Stream, bytes: &[u8]) -> io::Result<()> {
        let name = match stream {
            Stream::Out => "stdout",
            Stream::Err => "stderr",
        };
        self.timeline.output(task, name, bytes, pvm_task::trace::stamp())
    }

    /// Writes the end of the file.
    pub fn finish(self) -> io::Result<()> {
        self.timeline.finish()
    }
}

/// Lets tasks that are spawned later send their traces to this task.
fn trace(session: &mut Session, context: i32) -> Result<(), RunError> {
    let own = session.tid().0 as i32;
    let task = session.task();
    task.set_trace_mask(true, &timeline::mask())?;
    for (option, value) in [
        (OptionNumber::TraceContext, context),
        (OptionNumber::TraceTid, own),
        (OptionNumber::TraceCode, TRACE_TAG),
        (OptionNumber::TraceOptions, TRACE_FULL),
    ] {
        task.set_option(option as i32, value)?;
    }
    Ok(())
}
