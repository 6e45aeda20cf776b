//! Processes of tasks, from their start to their end.
use super::Daemon;
use crate::frame_budget::FrameBudget;
use crate::processes::Started;
use crate::processes::spawner::SpawnError;
use pvm_core::machine::{SpawnId, Start};
use pvm_core::proto::ByteBuf;
use pvm_core::tid::Tid;

impl Daemon {
    /// Begins to look for a program.
    pub(super) fn find(
        &mut self,
        spawn: SpawnId,
        file: ByteBuf,
        directory: Option<ByteBuf>,
        beside: Option<ByteBuf>,
        debug: bool,
    ) {
        let places = self.settings.program_search.clone();
        let search = move || places.find(&file, directory.as_ref(), beside.as_ref(), debug);
        self.program_searches.begin(spawn, Box::new(search));
    }

    /// Tells the machine which searches for programs have ended.
    pub(super) fn on_searches_ended(&mut self) {
        for (spawn, result) in self.program_searches.take_ended() {
            let found = result.unwrap_or_else(|error| {
                let SpawnError { code, why } = self.processes.explain(error);
                self.log.line(&format!("cannot look for a program: {why}"));
                Err(code)
            });
            self.machine.handle_found(self.started.elapsed(), spawn, found);
        }
    }

    /// Begins to start the processes of tasks.
    pub(super) fn start(&mut self, starts: &[Start]) {
        let failed = self.processes.start(&self.settings, starts);
        self.tell_started(failed);
    }

    /// Tells the machine which processes were started.
    pub(super) fn on_started(&mut self) {
        let started = self.processes.take_started();
        self.tell_started(started);
    }

    fn tell_started(&mut self, started: Vec<Started>) {
        for Started { tid, path, result, is_news } in started {
            if let (Err(error), true) = (&result, is_news) {
                self.log.line(&format!("cannot start {}: {}", String::from_utf8_lossy(&path), error.why));
            }
            self.machine.handle_started(self.started.elapsed(), tid, result.map_err(|error| error.code));
        }
    }

    /// Returns whether a process with this cookie is being started. Asks for the results before.
    pub(super) fn has_no_result_yet(&mut self, cookie: u32) -> bool {
        if self.processes.is_starting(cookie) {
            self.on_started();
            self.execute_actions();
        }
        self.processes.is_starting(cookie)
    }

    /// Handles the end of a process, after all frames, messages and output of the process have been handled.
    pub(super) fn on_process_ended(&mut self, tid: Tid) {
        self.processes.kill_group_after_signal(tid, self.machine.process_of(tid));
        let Some(end) = self.processes.end(tid) else { return };
        if let Some(connection) = self.connections.of_task(tid) {
            self.receive(connection, FrameBudget::unlimited());
        }
        self.drain(tid);
        self.execute_actions();
        self.read_all_outputs(tid);
        self.processes.remove(tid);
        self.machine.handle_process_end(tid, end);
    }

    /// Writes to the standard input of a task; empty data closes it.
    pub(super) fn write_input(&mut self, tid: Tid, data: ByteBuf) {
        if let Some(taken) = self.processes.inputs.write(tid, data) {
            self.machine.handle_input_taken(tid, taken);
        }
    }

    /// Continues to write to the standard input of a task when its pipe has room.
    pub(super) fn continue_input(&mut self, tid: Tid) {
        if let Some(taken) = self.processes.inputs.continue_write(tid) {
            self.machine.handle_input_taken(tid, taken);
        }
    }
}
