//! Fuzz targets for the input of the console (docs/testing.md).
use crate::console::{Console, Flow, Screen, spawn_options};
use crate::control::{Control, SpawnCall};
use crate::timeline::Timeline;
use crate::trace_text::TraceText;
use crate::variables::Variables;
use crate::{shape, words};
use pvm_core::codes::Code;
use pvm_core::proto::{self, ByteBuf, Host, Office, Reply, Request, Spawn, TraceSettings};
use pvm_core::tid::Tid;
use pvm_core::trace::{self, Part, Stamp};
use pvm_fuzz::{Target, file, part};
use pvm_task::{OutputEvent, OutputKind};
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

/// The targets of this crate.
pub const TARGETS: &[Target] = &[
    Target {
        name: "console-lines",
        run: console_lines,
        decoder: &[
            file("crates/pvm-tools/src/words.rs"),
            file("crates/pvm-tools/src/console/aliases.rs"),
            file("crates/pvm-tools/src/console/spawn_options.rs"),
            file("crates/pvm-tools/src/console/mod.rs"),
            file("crates/pvm-tools/src/console/commands.rs"),
            part("crates/pvm-tools/src/console/options.rs", &["find", "describe", "change"]),
            part("crates/pvm-tools/src/console/spawn.rs", &["spawn", "split_place", "name_of_address"]),
            part("crates/pvm-tools/src/console/trace.rs", &["set", "change", "option_name", "option_value"]),
            part("crates/pvm-tools/src/shape.rs", &["parse_tid"]),
            part("crates/pvm-tools/src/variables.rs", &["get", "set", "export", "unexport", "exported_names", "list"]),
        ],
    },
    Target {
        name: "trace-files",
        run: trace_files,
        decoder: &[
            file("crates/pvm-tools/src/trace_text.rs"),
            file("crates/pvm-tools/src/timeline/mod.rs"),
            file("crates/pvm-tools/src/timeline/arguments.rs"),
            file("crates/pvm-tools/src/timeline/flows.rs"),
        ],
    },
];

/// The most bytes of input that the simulated machine uses for answers. The limit keeps `reset` short: it waits as long
/// as the answers list tasks.
const ANSWERS_BYTES_MAX: usize = 1024;

/// A simulated machine that takes its answers from the bytes of the fuzz input.
struct Anything<'a>(&'a [u8]);

impl Control for Anything<'_> {
    fn tid(&self) -> Tid {
        Tid(0x40001)
    }
    fn ask(&mut self, _request: Request) -> Result<Reply, Code> {
        let (first, rest) = self.0.split_at(self.0.len().min(16));
        self.0 = rest;
        let answers = (0..=first.len()).find_map(|end| proto::decode::<Reply>(&first[..end]));
        let mut answer = answers.ok_or(Code::SysErr)?;
        if let Reply::Hosts { hosts, .. } = &mut answer {
            // Any other name would cause a DNS query.
            let is_name = |host: &&mut Host| host.name.parse::<IpAddr>().is_err();
            hosts.iter_mut().filter(is_name).for_each(|host| host.name = Ipv4Addr::LOCALHOST.to_string());
        }
        Ok(answer)
    }
    fn pause(&mut self, _time: Duration) {}
    fn option(&mut self, _what: i32) -> Result<i32, Code> {
        Ok(self.0.len() as i32 % 3)
    }
    fn set_option(&mut self, what: i32, value: i32) -> Result<i32, Code> {
        if value < 0 { Err(Code::BadParam) } else { Ok(what) }
    }
    fn set_child_trace_mask(&mut self, _mask: &[u8]) -> Result<(), Code> {
        Ok(())
    }
    fn collect_output(&mut self, _context: i32, _tag: i32) {}
    fn spawn_request(&mut self, call: &SpawnCall<'_>) -> Result<Request, Code> {
        Ok(Request::Spawn(Spawn {
            file: ByteBuf::from(call.file),
            arguments: Vec::new(),
            flags: call.flags,
            place: ByteBuf::from(call.place),
            count: call.count,
            environment: Vec::new(),
            children: TraceSettings::default(),
        }))
    }
}

/// Passes lines to the console, as if they were typed or read from `.pvmrc`. The bytes after a zero byte are the
/// machine's answers.
fn console_lines(bytes: &[u8]) {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    let (text, answers) = (String::from_utf8_lossy(&bytes[..end]), &bytes[end..]);
    let mut console = Console::new(Variables::default(), 1, 2);
    let answers = answers.get(1..).unwrap_or_default();
    let mut machine = Anything(&answers[..answers.len().min(ANSWERS_BYTES_MAX)]);
    console.prepare(&mut machine).expect("the machine takes all of it");
    for line in text.split_terminator('\n') {
        let split = words::split(line).unwrap_or_default();
        match spawn_options::parse(&split) {
            Ok((_, rest)) => assert!(!rest.is_empty()),
            Err(error) => assert!(!error.to_string().is_empty()),
        }
        for word in &split {
            words::leading_number(word);
            shape::parse_tid(word);
        }
        // These lines would write to files.
        if line.contains(['>', '@']) {
            continue;
        }
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let mut screen = Screen { out: &mut out, err: &mut err };
        let flow = console.execute(line, &mut machine, &mut screen).expect("memory can be written to");
        assert!(console.command_names().len() > 20);
        if flow != Flow::Continue {
            return;
        }
    }
}

/// Decodes trace messages, and writes them in both formats: as text and as a timeline.
fn trace_files(bytes: &[u8]) {
    let (mut text, start) = (TraceText::default(), Stamp::default());
    let mut out = Vec::new();
    let mut timeline = Timeline::new(&mut out, start).expect("memory can be written to");
    timeline.host(Tid(0x40000), &String::from_utf8_lossy(bytes)).expect("memory can be written to");
    let parts = trace::parts(pvm_core::encoding::Reader::new(bytes));
    let stamps = parts.iter().map(|part| match part {
        Part::Record(record) => record.stamp,
        Part::User(stamp, _) => *stamp,
    });
    stamps.for_each(|stamp| assert!(TraceText::head(stamp).ends_with(";;\n\n")));
    // The text format also has records of hosts and of output.
    let name = String::from_utf8_lossy(bytes).into_owned();
    let host = Host {
        tid: Tid(0x40000),
        name: name.clone(),
        arch: name,
        speed: 1,
        dsig: 0,
        is_draining: false,
        office: Office::None,
    };
    assert!(text.host(&host, start).contains("host_add"));
    for kind in [OutputKind::Begin, OutputKind::Line(bytes.to_vec()), OutputKind::End] {
        assert!(text.output(&OutputEvent { task: Tid(0x40001), ctx: 0, tag: 0, kind }).ends_with(";;\n"));
    }
    for part in parts {
        assert!(!text.part(Tid(0x40001), &part).is_empty());
        timeline.take(Tid(0x40001), part).expect("memory can be written to");
    }
    timeline.finish().expect("memory can be written to");
    serde_json::from_slice::<serde_json::Value>(&out).expect("a timeline is JSON");
}

#[cfg(test)]
mod tests {
    #[test]
    fn what_was_found_in_bytes_from_nowhere_does_no_harm() {
        pvm_fuzz::replay_all(super::TARGETS);
    }
}
