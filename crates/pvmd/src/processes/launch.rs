//! What a process of a task is given: program, arguments, environment (contract 2.5).
use crate::architecture::ARCHITECTURE;
use crate::settings::Settings;
use pvm_core::machine::Start;
use pvm_core::proto::ByteBuf;
use pvm_fmp::process_start::Program;
use rustix::process::Rlimit;
use rustix::thread::CpuSet;
use std::collections::BTreeMap;
use std::ffi::{CString, OsString};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

/// Variables that a daemon inherits if a task has started it, and must not pass on.
const NOT_INHERITED: [&str; 6] = ["PVMCTX", "PVMLINES", "PVMSPAWNPATH", "PVMSPAWNWD", "HPVM_RUN", "HPVM_BIND"];

/// A program, and all that a task gets but its streams.
pub struct Launch {
    path: ByteBuf,
    arguments: Vec<ByteBuf>,
    /// Variables in addition to those of the daemon. The last of several with one name counts.
    variables: Vec<(Vec<u8>, Vec<u8>)>,
    directory: OsString,
    leads_group: bool,
    descriptors: Rlimit,
    processors: Option<CpuSet>,
}

impl Launch {
    /// Takes what the start says, and what holds for all tasks of this host.
    pub fn new(settings: &Settings, start: &Start, socket: &Path, descriptors: Rlimit) -> Launch {
        let mut variables: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
        let mut add = |name: &[u8], value: &[u8]| variables.push((name.to_vec(), value.to_vec()));
        add(b"PVM_ARCH", ARCHITECTURE.as_bytes());
        add(b"PVM_ROOT", settings.program_search.root.as_os_str().as_bytes());
        add(b"PVMSOCK", socket.as_os_str().as_bytes());
        add(b"PVMEPID", start.cookie.to_string().as_bytes());
        if start.run.errors_tag != 0 && !start.run.terminal {
            // With this variable, hpvm's library makes the C library flush each line.
            add(b"PVMLINES", b"1");
        }
        if let Some(id) = &settings.machine_id {
            add(b"PVM_VMID", id.as_bytes());
        }
        for variable in &start.environment {
            let at = variable.iter().position(|byte| *byte == b'=').unwrap_or(variable.len());
            if at > 0 && !variable.contains(&0) {
                add(&variable[..at], variable.get(at + 1..).unwrap_or_default());
            }
        }
        Launch {
            path: start.path.clone(),
            arguments: start.arguments.clone(),
            variables,
            directory: settings.program_search.task_directory(start.directory.as_ref()).into(),
            leads_group: start.run.group,
            descriptors,
            processors: None,
        }
    }

    /// Binds the process to these processors.
    pub fn bind(&mut self, processors: CpuSet) {
        self.processors = Some(processors);
    }

    /// Returns the program with its streams: standard input, output and errors.
    pub fn program(self, streams: [OwnedFd; 3]) -> io::Result<Program> {
        let mut environment: BTreeMap<Vec<u8>, Vec<u8>> =
            std::env::vars_os().map(|(name, value)| (name.into_vec(), value.into_vec())).collect();
        NOT_INHERITED.iter().for_each(|name| drop(environment.remove(name.as_bytes())));
        environment.extend(self.variables);
        let environment = environment.into_iter().map(|(name, value)| text([name, value].join(&b'=')));
        Ok(Program {
            path: text(self.path.to_vec())?,
            arguments: self
                .arguments
                .into_iter()
                .map(|argument| text(argument.into_vec()))
                .collect::<Result<_, _>>()?,
            environment: environment.collect::<Result<_, _>>()?,
            directory: text(self.directory.into_vec())?,
            streams,
            leads_group: self.leads_group,
            descriptors: self.descriptors,
            processors: self.processors,
        })
    }
}

fn text(bytes: Vec<u8>) -> io::Result<CString> {
    Ok(CString::new(bytes)?)
}
