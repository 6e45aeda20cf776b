//! `pvm run --trace`: writes a timeline of the tasks.
use super::RunError;
use crate::control;
use crate::timeline::{self, Timeline};
use pvm_core::trace::parts;
use pvm_task::{ANY, Filter, OptionNumber, Session};
use std::fs::File;
use std::io::{self, BufWriter};
use std::path::PathBuf;
use std::time::Duration;

/// The tag of trace messages, in the same context as the output.
const TRACE_TAG: i32 = 2;
/// `PvmTraceFull`.
const TRACE_FULL: i32 = 1;

/// The timeline that is being written from the traces of the tasks.
pub struct Tracing {
    /// The file.
    pub path: PathBuf,
    context: i32,
    timeline: Timeline<BufWriter<File>>,
}

impl Tracing {
    /// Begins a timeline, if a path is given. Tasks that are spawned later send their traces to this task.
    pub fn start(session: &mut Session, path: Option<&PathBuf>, context: i32) -> Result<Option<Tracing>, RunError> {
        let Some(path) = path else { return Ok(None) };
        let failed = |error| RunError::System(path.display().to_string(), error);
        let file = File::create(path).map_err(failed)?;
        let mut timeline = Timeline::new(BufWriter::new(file), pvm_task::trace::stamp()).map_err(failed)?;
        for host in control::hosts(session)?.0 {
            timeline.host(host.tid, &host.name).map_err(failed)?;
        }
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
        Ok(Some(Tracing { path: path.clone(), context, timeline }))
    }

    /// Handles the trace messages that have arrived.
    pub fn take(&mut self, session: &mut Session) -> io::Result<()> {
        let filter = Filter { src: ANY, tag: TRACE_TAG, ctx: self.context };
        // Without a daemon no messages arrive; the main loop of the run notices that the daemon has ended.
        while let Ok(Some(message)) = session.recv(filter, Some(Duration::ZERO)) {
            for part in parts(message.reader()) {
                self.timeline.take(message.src, part)?;
            }
        }
        Ok(())
    }

    /// Writes the end of the file.
    pub fn finish(self) -> io::Result<()> {
        self.timeline.finish()
    }
}
