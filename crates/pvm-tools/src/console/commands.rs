//! The short commands.
use super::{Call, Flow, options, trace};
use crate::control::{self, own_message};
use crate::words::leading_number;
use crate::{shape, signals};
use pvm_core::codes::{self, Code};
use pvm_core::encoding;
use pvm_core::hostfile;
use pvm_core::proto::{Reply, Request, TaskInfo};
use pvm_core::tid::Tid;
use pvm_task::OptionNumber;
use serde_bytes::ByteBuf;
use std::io;
use std::time::{Duration, Instant};

/// How long `reset` waits for tasks to end before it clears their mailboxes.
const RESET_WAIT: Duration = Duration::from_secs(2);
/// The pause between two checks whether the tasks have ended.
const RESET_PAUSE: Duration = Duration::from_millis(10);
/// The signal that `kill` sends.
const TERMINATE: i32 = 15;

type Outcome = io::Result<Flow>;

fn go(result: io::Result<()>) -> Outcome {
    result.map(|()| Flow::Continue)
}

fn byte_names(names: &[String]) -> Vec<ByteBuf> {
    names.iter().map(|name| ByteBuf::from(name.as_bytes())).collect()
}

/// Returns the names of the hosts in the words; `n[1-3]` stands for three hosts.
fn expanded(words: &[String]) -> Vec<String> {
    // A word with a syntax error stays unchanged; the console later prints the word with an error code.
    words.iter().flat_map(|word| hostfile::lines(word).unwrap_or_else(|_| vec![word.clone()])).collect()
}

pub fn add(call: &mut Call<'_, '_>, _json: bool) -> Outcome {
    let names = expanded(call.arguments());
    go(match call.control.ask(Request::AddHosts(byte_names(&names))) {
        Ok(Reply::AddedHosts { count, hosts, reasons }) => {
            call.note(&hosts);
            let text = shape::added(&names, count, &hosts) + &shape::reasons(&names, &hosts, &reasons);
            call.print(&(text + &shape::remarks(&names)))
        }
        Ok(_) => call.report("pvm_addhosts", Code::BadMsg),
        Err(code) => call.report("pvm_addhosts", code),
    })
}

pub fn delete(call: &mut Call<'_, '_>, _json: bool) -> Outcome {
    let names = expanded(call.arguments());
    go(match call.control.ask(Request::DeleteHosts(byte_names(&names))) {
        Ok(Reply::Codes(results)) => {
            call.note(&results);
            call.print(&shape::deleted(&names, &results))
        }
        Ok(_) => call.report("pvm_delhosts", Code::BadMsg),
        Err(code) => call.report("pvm_delhosts", code),
    })
}

pub fn alias(call: &mut Call<'_, '_>, _json: bool) -> Outcome {
    let aliases = &mut call.console.aliases;
    match &call.words[1..] {
        [name, words @ ..] if !words.is_empty() => {
            aliases.define(name, words);
            Ok(Flow::Continue)
        }
        _ => {
            let list = aliases.list();
            go(call.print(&list))
        }
    }
}

pub fn unalias(call: &mut Call<'_, '_>, _json: bool) -> Outcome {
    call.console.aliases.forget(&call.words[1]);
    Ok(Flow::Continue)
}

pub fn echo(call: &mut Call<'_, '_>, _json: bool) -> Outcome {
    let line = call.arguments().join(" ") + "\n";
    go(call.print(&line))
}

pub fn export(call: &mut Call<'_, '_>, _json: bool) -> Outcome {
    for name in &call.words[1..] {
        call.console.variables.export(name);
    }
    if call.words.len() > 1 {
        return Ok(Flow::Continue);
    }
    let list = format!("PVM_EXPORT={}\n", call.console.variables.export_list());
    go(call.print(&list))
}

pub fn unexport(call: &mut Call<'_, '_>, _json: bool) -> Outcome {
    for name in &call.words[1..] {
        call.console.variables.unexport(name);
    }
    Ok(Flow::Continue)
}

pub fn setenv(call: &mut Call<'_, '_>, _json: bool) -> Outcome {
    let variables = &mut call.console.variables;
    let text = match &call.words[1..] {
        [] => variables.list(),
        [name] => variables.get(name).map(|value| value + "\n").unwrap_or_default(),
        [name, values @ ..] => {
            variables.set(name, values.join(" "));
            String::new()
        }
    };
    go(call.print(&text))
}

pub fn getopt(call: &mut Call<'_, '_>, _json: bool) -> Outcome {
    let wanted = match call.words.get(1) {
        None => None,
        Some(name) => match options::find(name) {
            Some(option) => Some(option),
            None => return unknown_option(call),
        },
    };
    go(match options::describe(call.control, wanted) {
        Ok(text) => call.print(&text),
        Err(code) => call.report("pvm_getopt", code),
    })
}

pub fn setopt(call: &mut Call<'_, '_>, _json: bool) -> Outcome {
    let (name, value) = (&call.words[1], leading_number(&call.words[2]));
    let Some(option) = options::find(name) else { return unknown_option(call) };
    let (text, error) = options::change(call.control, name, option, value);
    if let Some(code) = error {
        call.report("pvm_setopt", code)?;
    }
    go(call.print(&text))
}

fn unknown_option(call: &mut Call<'_, '_>) -> Outcome {
    let text = format!("PVM Option \"{}\" Unknown.\n", call.words[1]);
    go(call.print(&text))
}

pub fn halt(_call: &mut Call<'_, '_>, _json: bool) -> Outcome {
    Ok(Flow::Halt)
}

pub fn quit(_call: &mut Call<'_, '_>, _json: bool) -> Outcome {
    Ok(Flow::Quit)
}

pub fn id(call: &mut Call<'_, '_>, _json: bool) -> Outcome {
    let text = format!("{}\n", call.control.tid());
    go(call.print(&text))
}

pub fn idump(_call: &mut Call<'_, '_>, _json: bool) -> Outcome {
    Ok(Flow::Continue)
}

pub fn version(call: &mut Call<'_, '_>, _json: bool) -> Outcome {
    go(call.print(&format!("{}\n", codes::PVM_VERSION)))
}

/// Sends a signal. If the tid cannot be that of a task, reports the same error as `pvm_sendsig`.
fn signal(call: &mut Call<'_, '_>, tid: Tid, signal: i32) -> io::Result<bool> {
    let result = match tid.is_task() {
        true => call.control.ask(Request::Signal { tid, signal }),
        false => Err(Code::BadParam),
    };
    match result {
        Ok(_) => Ok(true),
        Err(code) => call.report("pvm_sendsig", code).map(|()| false),
    }
}

fn terminate(call: &mut Call<'_, '_>, tid: Tid) -> io::Result<()> {
    if tid == call.control.tid() {
        return call.print(&format!("{tid}: that's me.\n"));
    }
    match signal(call, tid, TERMINATE)? {
        true => Ok(()),
        false => call.report("pvm_kill", Code::BadParam),
    }
}

pub fn kill(call: &mut Call<'_, '_>, _json: bool) -> Outcome {
    let mut words = &call.words[1..];
    let mut children = false;
    while let Some(option) = words.first().and_then(|word| word.strip_prefix('-')) {
        for flag in option.chars() {
            match flag {
                'c' => children = true,
                other => call.print(&format!("unknown flag -{other}\n"))?,
            }
        }
        words = &words[1..];
    }
    if words.is_empty() {
        return go(call.print("incorrect arg count\n"));
    }
    for word in words {
        let tid = shape::parse_tid(word);
        match children {
            false => terminate(call, tid)?,
            true => terminate_children(call, tid)?,
        }
    }
    Ok(Flow::Continue)
}

fn terminate_children(call: &mut Call<'_, '_>, parent: Tid) -> io::Result<()> {
    match control::tasks(call.control, Tid::NONE) {
        Ok(tasks) => {
            for task in tasks.iter().filter(|task| task.parent > 0 && task.parent as u32 == parent.0) {
                terminate(call, task.tid)?;
            }
            Ok(())
        }
        Err(code) => call.report("pvm_tasks", code),
    }
}

pub fn sig(call: &mut Call<'_, '_>, _json: bool) -> Outcome {
    let word = call.words[1].as_str();
    let number = signals::by_name(word).unwrap_or_else(|| leading_number(word));
    for word in &call.words[2..] {
        signal(call, shape::parse_tid(word), number)?;
    }
    Ok(Flow::Continue)
}

pub fn mstat(call: &mut Call<'_, '_>, _json: bool) -> Outcome {
    for name in &expanded(call.arguments()) {
        let code = match call.control.ask(Request::HostStatus(ByteBuf::from(name.as_bytes()))) {
            Ok(Reply::Code(code)) => code,
            Ok(_) => 0,
            Err(code) => code.number(),
        };
        if code == Code::BadParam.number() {
            call.report("pvm_mstat", Code::BadParam)?;
        }
        call.note(&[code]);
        call.print(&shape::host_status(name, code))?;
    }
    Ok(Flow::Continue)
}

pub fn pstat(call: &mut Call<'_, '_>, _json: bool) -> Outcome {
    for word in &call.words[1..] {
        let tid = shape::parse_tid(word);
        let result = match tid.is_task() {
            true => call.control.ask(Request::TaskStatus(tid)),
            false => Err(Code::BadParam),
        };
        let code = match result {
            Ok(Reply::Code(code)) => code,
            Ok(_) => 0,
            Err(code) => code.number(),
        };
        if code == Code::BadParam.number() {
            call.report("pvm_pstat", Code::BadParam)?;
        }
        call.note(&[code]);
        call.print(&shape::task_status(tid, code))?;
    }
    Ok(Flow::Continue)
}

pub fn put(call: &mut Call<'_, '_>, _json: bool) -> Outcome {
    let (name, flags, text) = (&call.words[1], leading_number(&call.words[2]), &call.words[3]);
    let body = encoding::Writer::new().string(text.as_bytes()).finish();
    let result = match name.is_empty() {
        true => Err(Code::BadParam),
        false => call.control.ask(Request::PutInfo {
            name: ByteBuf::from(name.as_bytes()),
            flags,
            message: own_message(call.control.tid(), body),
        }),
    };
    match result {
        Ok(_) => Ok(Flow::Continue),
        Err(code) => {
            call.note(&[code.number()]);
            if !matches!(code, Code::Denied | Code::Exists) {
                call.report("pvm_putinfo", code)?;
            }
            go(call.print(&format!("{code}\n")))
        }
    }
}

pub fn reset(call: &mut Call<'_, '_>, _json: bool) -> Outcome {
    match &call.words[1..] {
        [] => go(reset_all(call)),
        [info, rest @ ..] if info == "info" => {
            let name = rest.first().map(|name| ByteBuf::from(name.as_bytes()));
            let index = rest.get(1).map(|index| leading_number(index));
            go(reset_mailboxes(call, Request::ResetInfo { name, index }))
        }
        [other, ..] => {
            let text = format!("\"{other}\" arg to reset not valid\n");
            go(call.print(&text))
        }
    }
}

fn reset_mailboxes(call: &mut Call<'_, '_>, request: Request) -> io::Result<()> {
    match call.control.ask(request) {
        Ok(_) => Ok(()),
        Err(code) => call.report("pvm_delinfo", code),
    }
}

/// Returns the tasks that a reset ends.
fn not_spared(call: &mut Call<'_, '_>) -> Result<Vec<TaskInfo>, Code> {
    let pattern = ByteBuf::from(control::NO_RESET_CLASS);
    let spared: Vec<Tid> = match call.control.ask(Request::MailboxInfo { pattern })? {
        Reply::Mailboxes(classes) => classes
            .iter()
            .filter(|class| *class.name == *control::NO_RESET_CLASS.as_bytes())
            .flat_map(|class| class.entries.iter().map(|(_, owner, _)| *owner))
            .collect(),
        _ => Vec::new(),
    };
    let own = call.control.tid();
    let mut tasks = control::tasks(call.control, Tid::NONE)?;
    tasks.retain(|task| task.tid != own && !spared.contains(&task.tid));
    Ok(tasks)
}

fn reset_all(call: &mut Call<'_, '_>) -> io::Result<()> {
    let tasks = match not_spared(call) {
        Ok(tasks) => tasks,
        Err(code) => return call.report("pvm_tasks", code),
    };
    for task in &tasks {
        terminate(call, task.tid)?;
    }
    let end = Instant::now() + RESET_WAIT;
    let remains = |left: Vec<TaskInfo>| left.iter().any(|task| tasks.iter().any(|ended| ended.tid == task.tid));
    while Instant::now() < end && not_spared(call).is_ok_and(remains) {
        std::thread::sleep(RESET_PAUSE);
    }
    reset_mailboxes(call, Request::ResetInfo { name: None, index: None })
}

pub fn tickle(call: &mut Call<'_, '_>, _json: bool) -> Outcome {
    let arguments = call.words[1..].iter().map(|word| number_of_any_base(word)).collect();
    go(match call.control.ask(Request::Tickle(arguments)) {
        Ok(reply) => {
            let mut text = "( ".to_owned();
            if let Reply::Ints(results) = reply {
                text.extend(results.iter().map(|result| format!("{result} ")));
            }
            call.print(&(text + ")\n"))
        }
        Err(code) => call.report("pvm_tickle", code),
    })
}

/// Reads a decimal, octal (`0...`) or hexadecimal (`0x...`) number; 0 for anything else.
fn number_of_any_base(text: &str) -> i32 {
    let number = match (text.strip_prefix("0x"), text.strip_prefix('0')) {
        (Some(digits), _) => u32::from_str_radix(digits, 16).map(|number| number as i32),
        (None, Some(digits)) if !digits.is_empty() => i32::from_str_radix(digits, 8),
        _ => text.parse(),
    };
    number.unwrap_or(0)
}

pub fn trace(call: &mut Call<'_, '_>, _json: bool) -> Outcome {
    match call.words.get(1).map(String::as_str) {
        None => {
            let table = call.console.mask.table();
            go(call.print(&table))
        }
        Some("buf") => go(trace_buffer(call)),
        Some("opt") => go(trace_options(call)),
        Some(_) => go(trace_events(call, 1)),
    }
}

fn trace_events(call: &mut Call<'_, '_>, from: usize) -> io::Result<()> {
    let text = call.console.mask.change(&call.words[from..]);
    call.print(&text)?;
    match call.control.set_child_trace_mask(call.console.mask.characters()) {
        Ok(()) => Ok(()),
        Err(code) => call.report("pvm_settmask", code),
    }
}

fn set_trace_option(call: &mut Call<'_, '_>, option: OptionNumber, value: i32) -> io::Result<()> {
    match call.control.set_option(option as i32, value) {
        Ok(_) => Ok(()),
        Err(code) => call.report("pvm_setopt", code),
    }
}

fn trace_buffer(call: &mut Call<'_, '_>) -> io::Result<()> {
    match call.words.get(2) {
        Some(bytes) => set_trace_option(call, OptionNumber::TraceBuffer, leading_number(bytes)),
        None => {
            let bytes = call.control.option(OptionNumber::TraceBuffer as i32).unwrap_or(0);
            call.print(&format!("\nTrace Buffering set to {bytes} bytes\n\n"))
        }
    }
}

fn trace_options(call: &mut Call<'_, '_>) -> io::Result<()> {
    let Some(name) = call.words.get(2) else {
        let value = call.control.option(OptionNumber::TraceOptions as i32).unwrap_or(0);
        return call.print(&format!("\nTrace Options set to \"{}\"\n\n", trace::option_name(value)));
    };
    match trace::option_value(name) {
        Some(value) => set_trace_option(call, OptionNumber::TraceOptions, value),
        None => call.print(&format!("\nError:  Unknown Trace Option \"{name}\"\n\n")),
    }
    .and_then(|()| match call.words.len() > 3 {
        true => trace_events(call, 3),
        false => Ok(()),
    })
}
