//! The part of a spawn that one host starts.
use crate::codes::Code;
use crate::machine::action::Found;
use crate::proto::{ByteBuf, Spawn};
use crate::tid::Tid;
use crate::time::Time;
use std::collections::BTreeSet;

/// The part of a spawn that this host starts.
pub(super) struct LocalShare {
    /// The tid of the tasks' parent, or a code such as `PvmParentNotSet`.
    pub parent: i32,
    pub request: Spawn,
    pub directory: Option<ByteBuf>,
    /// The program, once it is found.
    pub found: Option<Found>,
    /// The instance number of the first task here, and the number of tasks on all hosts.
    pub first: i32,
    pub total: i32,
    /// How many tasks to start here, and for how many of these the start was ordered.
    pub wanted: usize,
    pub tried: usize,
    /// The starts that were ordered and have no result yet.
    pub open: usize,
    /// When the search or these starts must have ended.
    pub until: Time,
    /// The tasks that have tids, in the order of their instance numbers.
    pub tids: Vec<Tid>,
    /// Those of them that were started.
    pub started: BTreeSet<Tid>,
    /// The codes of the tasks that could not be started.
    pub results: Vec<i32>,
}

impl LocalShare {
    /// Records `code` as the result of all tasks whose start has not been ordered.
    pub fn fail_rest(&mut self, code: Code) {
        self.results.resize(self.results.len() + self.wanted - self.tried, code.number());
        self.tried = self.wanted;
    }

    /// Returns the variables that the task gets in addition to those of its daemon.
    pub fn environment(&self) -> Vec<ByteBuf> {
        let (given, traces) = (&self.request.environment, &self.request.children);
        let mut environment = given.clone();
        let mut add = |name: &str, value: Vec<u8>| {
            let start = [name.as_bytes(), b"="].concat();
            if !given.iter().any(|variable| variable.starts_with(&start)) {
                environment.push(ByteBuf::from([start, value].concat()));
            }
        };
        let mask = if traces.mask.is_empty() { vec![b'@'; 35] } else { traces.mask.to_vec() };
        add("PVMTMASK", mask);
        add("PVMTRCBUF", traces.trace_buffer.to_string().into_bytes());
        add("PVMTRCOPT", traces.trace_options.to_string().into_bytes());
        if let Some(directory) = &self.directory {
            add("PVMSPAWNWD", directory.to_vec());
        }
        environment
    }
}
