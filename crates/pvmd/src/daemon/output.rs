//! The output of tasks, read as fast as its collector takes it.
use super::Daemon;
use crate::connections::Connections;
use crate::frame_budget::FrameBudget;
use crate::host_links::HostLinks;
use crate::log::{LOG_QUEUE_BYTES_MAX, Log};
use crate::source::Stream;
use pvm_core::machine::{Connection, Machine};
use pvm_core::tid::Tid;

/// Bytes of output read at a time.
const OUTPUT_BYTES: usize = 64 << 10;
/// Bytes read at a time if the output is written to the log. They are fewer, since each line takes time.
const LOGGED_BYTES: usize = 4 << 10;
/// Bytes of output read after the end of a task. No pipe holds more.
const LAST_OUTPUT_BYTES_MAX: usize = 16 * OUTPUT_BYTES;
/// Bytes of output that wait for their collector.
///
/// * Filled by: each task whose output is collected
/// * Setting: `HPVM_BACKLOG_MAX`; the limit of output is at most half of that setting
/// * Reached: output stays in the pipes of the tasks, and a task that prints more waits
/// * Test: `a_collector_that_takes_nothing_costs_the_daemon_little`
const COLLECTOR_BACKLOG_BYTES_MAX: usize = 16 << 20;
/// Bytes of output for the log that are on their way from another host to the master.
///
/// * Filled by: each task whose output nobody collects
/// * Setting: none, the limit is as much as a pipe can hold
/// * Reached: output stays in the pipes of the tasks, and a task that prints more waits
/// * Test: `output_for_the_log_waits_for_the_link_to_the_master`
const LOG_BACKLOG_BYTES_MAX: usize = 1 << 20;

/// The parts of the daemon that show whether the collectors keep up with the output of their tasks.
struct Collectors<'a> {
    machine: &'a Machine,
    connections: &'a Connections,
    host_links: &'a HostLinks,
    log: &'a Log,
    backlog_bytes_max: usize,
}

impl Collectors<'_> {
    /// Returns whether more than `1/part` of the limit waits for the collector of a task's output.
    fn is_behind(&self, tid: Tid, part: usize) -> bool {
        let Some(collector) = self.machine.collector_of(tid) else {
            // The output goes to the log of the machine, which the master writes.
            return self.host_links.kept_bytes(self.machine.master()) > LOG_BACKLOG_BYTES_MAX / part
                || self.log.queued_bytes() > LOG_QUEUE_BYTES_MAX / 2 / part;
        };
        if collector.host() != self.machine.own_host() {
            return self.machine.output_in_flight(collector) > self.machine.output_in_flight_max() / part as u64;
        }
        // The limit is below the backlog at which a task is disconnected: a collector must not be disconnected because
        // its tasks print much.
        let most = COLLECTOR_BACKLOG_BYTES_MAX.min(self.backlog_bytes_max / 2);
        self.connections.backlog_of(collector) > most / part
    }
}

/// Borrows only the parts that [`Collectors`] needs, so that the processes can be borrowed at the same time.
macro_rules! collectors {
    ($daemon:expr) => {
        Collectors {
            machine: &$daemon.machine,
            connections: &$daemon.connections,
            host_links: &$daemon.host_links,
            log: &$daemon.log,
            backlog_bytes_max: $daemon.settings.backlog_bytes_max,
        }
    };
}

impl Daemon {
    /// Resumes reading the paused outputs whose collector has caught up.
    pub(super) fn resume_outputs(&mut self) {
        let collectors = collectors!(self);
        self.processes.outputs.resume(|tid| collectors.is_behind(tid, 2));
    }

    /// Tells the machine when a collector has taken the output of tasks of other hosts. To be called when the
    /// collector's socket has taken bytes.
    pub(super) fn on_collector_progress(&mut self, connection: Connection) {
        let Some(client) = self.connections.get_mut(connection) else { return };
        let Some(tid) = client.tid else { return };
        if !self.machine.has_untaken_output(tid) {
            return;
        }
        // Output that was added while the backlog was being sent counts as taken, too. It is no more than the limit
        // of output in flight.
        if client.write_closed || client.has_sent_backlog() {
            self.machine.handle_output_taken(tid);
        }
    }

    /// Reads what a task has printed, as long as its collector keeps up.
    pub(super) fn read_output(&mut self, tid: Tid, stream: Stream) {
        let mut budget = FrameBudget::new();
        while budget.take() {
            if collectors!(self).is_behind(tid, 1) {
                return self.processes.outputs.pause(tid, stream);
            }
            if self.read_output_once(tid, stream) == 0 {
                return;
            }
            self.execute_actions();
        }
    }

    /// Ends the output of tasks that have closed it and go on, so that nobody waits for more of it.
    pub(super) fn end_closed_outputs(&mut self) {
        for tid in self.processes.outputs.take_closed() {
            self.machine.handle_output_closed(tid);
            self.execute_actions();
        }
    }

    /// Reads everything that a task has printed before its end.
    pub(super) fn read_all_outputs(&mut self, tid: Tid) {
        for stream in Stream::ALL {
            let mut left = LAST_OUTPUT_BYTES_MAX;
            while left > 0 {
                match self.read_output_once(tid, stream) {
                    0 => break,
                    count => left = left.saturating_sub(count),
                }
            }
        }
    }

    /// Reads once and passes the bytes to the machine. Returns the number of bytes; zero means that there are no more
    /// for now.
    fn read_output_once(&mut self, tid: Tid, stream: Stream) -> usize {
        if !self.processes.outputs.is_open(tid, stream) {
            return 0;
        }
        // Mostly nothing is there but the end, and to clear a long buffer would take longer than to read that.
        let (mut short, mut long) = ([0; LOGGED_BYTES], Vec::new());
        let data = match self.machine.collector_of(tid) {
            None => &mut short[..],
            Some(_) => {
                long.resize(OUTPUT_BYTES, 0);
                &mut long[..]
            }
        };
        let count = self.processes.outputs.read(tid, stream, data);
        if count == 0 {
            return 0;
        }
        // What tasks have sent before is not overtaken by what was printed then.
        self.take_from_all();
        match stream {
            Stream::Output => self.machine.handle_output(tid, &data[..count]),
            Stream::Errors => self.machine.handle_errors(tid, &data[..count]),
        }
        count
    }
}
