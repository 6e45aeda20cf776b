//! `getopt` and `setopt`: the options of the console's own task.
use crate::control::Control;
use pvm_core::codes::Code;
use pvm_task::OptionNumber::{self, *};

/// The options that the console shows, in this order.
const OPTIONS: [(&str, OptionNumber); 23] = [
    ("PvmRoute", Route),
    ("PvmDebugMask", DebugMask),
    ("PvmAutoErr", AutoErr),
    ("PvmOutputTid", OutputTid),
    ("PvmOutputCode", OutputCode),
    ("PvmTraceTid", TraceTid),
    ("PvmTraceCode", TraceCode),
    ("PvmTraceBuffer", TraceBuffer),
    ("PvmTraceOptions", TraceOptions),
    ("PvmFragSize", FragSize),
    ("PvmResvTids", ResvTids),
    ("PvmSelfOutputTid", SelfOutputTid),
    ("PvmSelfOutputCode", SelfOutputCode),
    ("PvmSelfTraceTid", SelfTraceTid),
    ("PvmSelfTraceCode", SelfTraceCode),
    ("PvmSelfTraceBuffer", SelfTraceBuffer),
    ("PvmSelfTraceOptions", SelfTraceOptions),
    ("PvmShowTids", ShowTids),
    ("PvmOutputContext", OutputContext),
    ("PvmTraceContext", TraceContext),
    ("PvmSelfOutputContext", SelfOutputContext),
    ("PvmSelfTraceContext", SelfTraceContext),
    ("PvmNoReset", NoReset),
];
/// The value that the console shows for an option that names a receiver of output or traces, if there is no receiver.
const NOWHERE: i32 = -1;

/// The options that a console sets at its start: no direct routes, reserved tids allowed, full traces, not ended by a
/// reset.
pub const AT_START: [(OptionNumber, i32); 4] = [(Route, 1), (ResvTids, 1), (TraceOptions, 1), (NoReset, 1)];

/// Returns the option with this name.
pub fn find(name: &str) -> Option<OptionNumber> {
    OPTIONS.iter().find(|(known, _)| *known == name).map(|(_, option)| *option)
}

/// Returns all names, for completion.
pub fn names() -> impl Iterator<Item = &'static str> {
    OPTIONS.iter().map(|(name, _)| *name)
}

/// Returns the value as the console shows it: -1 if no receiver of output or traces is set.
fn shown(option: OptionNumber, value: i32) -> i32 {
    match option {
        OutputTid | TraceTid | SelfOutputTid | SelfTraceTid if value == 0 => NOWHERE,
        _ => value,
    }
}

/// Returns the text of `getopt` for one option or for all.
pub fn describe(control: &mut dyn Control, wanted: Option<OptionNumber>) -> Result<String, Code> {
    let mut text = String::new();
    for (name, option) in OPTIONS.iter().filter(|(_, option)| wanted.is_none_or(|wanted| wanted == *option)) {
        let value = control.option(*option as i32)?;
        text.push_str(&format!("{name} Currently Set to {}\n", shown(*option, value)));
    }
    Ok(text)
}

/// Runs `setopt`. Returns the text to print, and the error to report, if any.
pub fn change(control: &mut dyn Control, name: &str, option: OptionNumber, value: i32) -> (String, Option<Code>) {
    let (before, error) = match control.set_option(option as i32, value) {
        Ok(before) => (shown(option, before), None),
        Err(code) => (code.number(), Some(code)),
    };
    (format!("{name} Changed from {before} to {value}\n"), error)
}
