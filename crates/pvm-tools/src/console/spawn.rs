//! `spawn`.
use super::spawn_options::{Output, SpawnOptions, Trace, parse};
use super::{Call, Flow};
use crate::control::{self, Control, SpawnCall};
use crate::jobs::{Sink, TraceSink};
use crate::shape;
use pvm_core::codes::{self, Code};
use pvm_core::proto::{Reply, Request};
use pvm_core::tid::Tid;
use std::io;
use std::net::ToSocketAddrs;
use std::path::Path;

/// `PvmTraceFull`.
const TRACE_FULL: i32 = 1;

pub fn spawn(call: &mut Call<'_, '_>, _json: bool) -> io::Result<Flow> {
    let words = call.words;
    let (mut options, rest) = match parse(&words[1..]) {
        Ok(parsed) => parsed,
        Err(error) => {
            call.note(&[Code::BadParam.number()]);
            call.print(&format!("{error}\n"))?;
            return Ok(Flow::Continue);
        }
    };
    if options.by_address {
        if let Ok((hosts, _)) = control::hosts(call.control) {
            let (address, directory) = split_place(&options.place);
            let names = hosts.iter().map(|host| host.name.as_str());
            let name = name_of_address(address, names).unwrap_or(address);
            options.place = format!("{name}{directory}");
        }
    }
    let Some(job) = begin_job(call, &options)? else {
        call.note(&[Code::BadParam.number()]);
        return Ok(Flow::Continue);
    };
    match start(call, &options, rest, job) {
        Ok(tids) => {
            call.note(&tids);
            call.print(&shape::spawned(&tids))?;
            call.screen.err.write_all(shape::spawn_advice(&tids).as_bytes())?;
            let good = tids.iter().filter(|tid| **tid > 0).map(|tid| Tid(*tid as u32));
            call.console.jobs.started(job.unwrap_or(0), good);
        }
        Err(code) => {
            call.console.jobs.started(job.unwrap_or(0), std::iter::empty());
            call.report("pvm_spawn", code)?;
        }
    }
    Ok(Flow::Continue)
}

/// Makes a job if the output or the traces of the tasks are collected. Returns its number, `Some(None)` without a job,
/// and `None` after an error, which it has reported.
fn begin_job(call: &mut Call<'_, '_>, options: &SpawnOptions) -> io::Result<Option<Option<i32>>> {
    if options.output == Output::Log && options.trace.is_none() {
        return Ok(Some(None));
    }
    let number = call.console.jobs.next_number();
    call.print(&format!("[{number}]\n"))?;
    let (sink, path) = match &options.output {
        Output::Replace(path) => (Sink::replace(path), path.display().to_string()),
        Output::Append(path) => (Sink::append(path), path.display().to_string()),
        Output::Console => (Ok(Sink::Console), String::new()),
        Output::Log => (Ok(Sink::Nowhere), String::new()),
    };
    let sink = match sink {
        Ok(sink) => sink,
        Err(error) => {
            writeln!(call.screen.err, "{path}: {error}")?;
            return Ok(None);
        }
    };
    call.control.collect_output(call.console.output_context, number);
    call.console.jobs.begin(number, sink);
    begin_trace(call, options, number)
}

/// Begins the trace of a job, if the options request a trace. Returns the job's number, or `None` after an error, which
/// it has reported.
fn begin_trace(call: &mut Call<'_, '_>, options: &SpawnOptions, number: i32) -> io::Result<Option<Option<i32>>> {
    let Some(trace) = &options.trace else { return Ok(Some(Some(number))) };
    let path = match trace {
        Trace::Console => None,
        Trace::File(path) => Some(path.as_path()),
    };
    match TraceSink::new(path) {
        Ok(sink) => {
            let hosts = control::hosts(call.control).unwrap_or_default().0;
            let shown = call.console.jobs.begin_trace(number, sink, call.control.tid(), &hosts);
            call.screen.out.write_all(&shown)?;
            Ok(Some(Some(number)))
        }
        Err(error) => {
            let path = path.unwrap_or(Path::new("")).display();
            writeln!(call.screen.err, "{path}: {error}")?;
            call.console.jobs.started(number, std::iter::empty());
            Ok(None)
        }
    }
}

/// Starts the tasks. Returns tids and error codes.
fn start(call: &mut Call<'_, '_>, options: &SpawnOptions, rest: &[String], job: Option<i32>) -> Result<Vec<i32>, Code> {
    if options.count < 1 {
        return Err(Code::BadParam);
    }
    let environment = call.console.variables.exported();
    let arguments: Vec<&[u8]> = rest[1..].iter().map(String::as_bytes).collect();
    let mut request = call.control.spawn_request(&SpawnCall {
        file: rest[0].as_bytes(),
        arguments: &arguments,
        flags: options.flags | codes::NO_SPAWN_PARENT,
        place: options.place.as_bytes(),
        count: options.count,
        environment: &environment,
    })?;
    if let (Request::Spawn(spawn), Some(job), Some(_)) = (&mut request, job, &options.trace) {
        spawn.children.trace_tid = call.control.tid().0 as i32;
        spawn.children.trace_ctx = call.console.trace_context;
        spawn.children.trace_tag = job;
        spawn.children.trace_options = spawn.children.trace_options.max(TRACE_FULL);
    }
    send(call.control, request, job.map(|job| (call.console.output_context, job)))
}

/// Sends a spawn request. If `output` is given, it is the context and tag with which this task receives the output of
/// the tasks.
pub fn send(control: &mut dyn Control, mut request: Request, output: Option<(i32, i32)>) -> Result<Vec<i32>, Code> {
    if let (Request::Spawn(spawn), Some((context, tag))) = (&mut request, output) {
        spawn.children.output_tid = control.tid().0 as i32;
        spawn.children.output_ctx = context;
        spawn.children.output_tag = tag;
    }
    match control.ask(request)? {
        Reply::Tids(tids) => Ok(tids),
        _ => Err(Code::BadMsg),
    }
}

/// Splits a place into its host or architecture, and the `:directory`, which may be missing.
fn split_place(place: &str) -> (&str, &str) {
    place.split_at(place.find(':').unwrap_or(place.len()))
}

/// Returns the first of the host names that has the address.
fn name_of_address<'a>(address: &str, mut names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let address: std::net::IpAddr = address.parse().ok()?;
    names.find(|name| (*name, 0).to_socket_addrs().is_ok_and(|mut found| found.any(|found| found.ip() == address)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_may_end_in_a_directory() {
        assert_eq!(split_place("10.0.0.1:/tmp"), ("10.0.0.1", ":/tmp"));
        assert_eq!(split_place("vm"), ("vm", ""));
    }

    #[test]
    fn an_address_leads_to_a_name() {
        let names = ["no such host", "127.0.0.1"];
        assert_eq!(name_of_address("127.0.0.1", names.into_iter()), Some("127.0.0.1"));
        assert_eq!(name_of_address("127.0.0.2", names.into_iter()), None);
        assert_eq!(name_of_address("vm", names.into_iter()), None);
    }
}
