//! The commands that print lists.
use super::{Call, Flow};
use crate::control;
use crate::{json, shape, why};
use pvm_core::codes::Code;
use pvm_core::proto::{Host, Reply, Request, TaskInfo};
use pvm_core::tid::Tid;
use serde_bytes::ByteBuf;
use std::io;

type Outcome = io::Result<Flow>;

fn finish(call: &mut Call<'_, '_>, function: &str, result: Result<String, Code>) -> Outcome {
    match result {
        Ok(text) => call.print(&text)?,
        Err(code) => call.report(function, code)?,
    }
    Ok(Flow::Continue)
}

pub fn conf(call: &mut Call<'_, '_>, as_json: bool) -> Outcome {
    let shows_offices = match call.words.get(1).map(String::as_str) {
        None => false,
        Some("-v") => true,
        Some("-g") => return groups(call, as_json),
        Some(_) => {
            call.print("conf: wrong #args\n")?;
            return Ok(Flow::Continue);
        }
    };
    let result = control::hosts(call.control).map(|(hosts, formats)| match as_json {
        true => json::text(&json::configuration(&hosts, formats)),
        false => shape::configuration(&hosts, formats, shows_offices),
    });
    finish(call, "pvm_config", result)
}

/// Prints the groups, and where their barriers meet.
fn groups(call: &mut Call<'_, '_>, as_json: bool) -> Outcome {
    let result = control::hosts(call.control).and_then(|(hosts, _)| {
        let places = control::group_places(call.control)?;
        Ok(match as_json {
            true => json::text(&json::group_places(&places, &hosts)),
            false => shape::group_places(&places, &hosts),
        })
    });
    finish(call, "pvm_config", result)
}

/// The options of `ps`.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct PsOptions {
    /// Show tasks on all hosts.
    pub all_hosts: bool,
    /// Show parent and process id.
    pub long: bool,
    /// Show the asking task too.
    pub every_task: bool,
    /// Show tasks on the host with this tid.
    pub host: Option<Tid>,
    /// Show tasks on the host with this name.
    pub host_name: Option<String>,
    /// Flags that do not exist.
    pub unknown: Vec<char>,
}

impl PsOptions {
    /// Reads the flags of one word; the characters after `h` or `n` are the value of that flag.
    fn parse(word: &str) -> PsOptions {
        let mut options = PsOptions::default();
        let flags = word.strip_prefix('-').unwrap_or(word);
        for (place, flag) in flags.char_indices() {
            let rest = &flags[place + flag.len_utf8()..];
            match flag {
                'a' => options.all_hosts = true,
                'l' => options.long = true,
                'x' => options.every_task = true,
                'h' => {
                    options.host = Some(shape::parse_tid(rest));
                    break;
                }
                'n' => {
                    options.host_name = Some(rest.to_owned());
                    break;
                }
                other => options.unknown.push(other),
            }
        }
        options
    }
}

/// Returns the tasks that `options` select, and the hosts, which supply the host names.
pub fn select(
    control: &mut dyn control::Control,
    options: &PsOptions,
    place: Tid,
) -> Result<(Vec<TaskInfo>, Vec<Host>), Code> {
    let (hosts, _) = control::hosts(control)?;
    let own = control.tid();
    let mut tasks = control::tasks(control, place)?;
    tasks.retain(|task| options.every_task || task.tid != own);
    Ok((tasks, hosts))
}

pub fn ps(call: &mut Call<'_, '_>, as_json: bool) -> Outcome {
    let options = PsOptions::parse(call.words.get(1).map_or("", String::as_str));
    for flag in &options.unknown {
        call.print(&format!("unknown flag -{flag}\n"))?;
    }
    let own = call.control.tid();
    let mut place = options.host.filter(|tid| tid.is_host()).unwrap_or(own.host());
    if let Some(name) = &options.host_name {
        let hosts = control::hosts(call.control).unwrap_or_default().0;
        match hosts.iter().find(|host| host.name == *name) {
            Some(host) => place = host.tid,
            None => call.print(&format!("unknown host {name}\n"))?,
        }
    }
    if options.all_hosts {
        place = Tid::NONE;
    }
    let result = select(call.control, &options, place).map(|(tasks, hosts)| match as_json {
        true => json::text(&json::tasks(&tasks, &hosts)),
        false => table(&tasks, &hosts, own, options.long),
    });
    finish(call, "pvm_tasks", result)
}

/// Returns the table of `ps`.
pub fn table(tasks: &[TaskInfo], hosts: &[Host], own: Tid, long: bool) -> String {
    let rows = tasks.iter().map(|task| shape::task_row(task, hosts, own, long));
    shape::task_head(long) + &rows.collect::<String>()
}

pub fn jobs(call: &mut Call<'_, '_>, as_json: bool) -> Outcome {
    if as_json {
        let text = json::text(&json::jobs(call.console.jobs.running()));
        return finish(call, "pvm_tasks", Ok(text));
    }
    let long = call.words.get(1).is_some_and(|word| word == "-l");
    let result = match long {
        false => Ok(call.console.jobs.short_list()),
        true => long_jobs(call),
    };
    finish(call, "pvm_tasks", result)
}

fn long_jobs(call: &mut Call<'_, '_>) -> Result<String, Code> {
    let (hosts, _) = control::hosts(call.control)?;
    let tasks = control::tasks(call.control, Tid::NONE)?;
    Ok(call.console.jobs.long_list(&tasks, &hosts, call.control.tid()))
}

pub fn why(call: &mut Call<'_, '_>, as_json: bool) -> Outcome {
    let of = call.words.get(1).cloned();
    match why::examine(call.control, of.as_deref()) {
        Ok(found) => {
            call.note(&[if found.has_deadlock() { -1 } else { 0 }]);
            call.print(&if as_json { json::text(&found.value()) } else { found.text() })?;
            Ok(Flow::Continue)
        }
        Err(why::Error::Code(code)) => finish(call, "pvm_tasks", Err(code)),
        Err(error) => {
            call.note(&[-1]);
            call.print(&format!("why: {error}\n"))?;
            Ok(Flow::Continue)
        }
    }
}

pub fn names(call: &mut Call<'_, '_>, _json: bool) -> Outcome {
    let pattern = call.words.get(1).map_or("", String::as_str);
    let request = Request::MailboxInfo { pattern: ByteBuf::from(pattern.as_bytes()) };
    let result = call.control.ask(request).and_then(|reply| match reply {
        Reply::Mailboxes(classes) => Ok(shape::mailboxes(&classes)),
        _ => Err(Code::BadMsg),
    });
    finish(call, "pvm_getmboxinfo", result)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_of_ps_stand_in_one_word() {
        let options = PsOptions::parse("-axl");
        assert!(options.all_hosts && options.every_task && options.long);
        assert!(PsOptions::parse("x").every_task);
        let options = PsOptions::parse("-lxh40000");
        assert_eq!((options.long, options.every_task, options.host), (true, true, Some(Tid(0x40000))));
        assert_eq!(PsOptions::parse("-nvmx").host_name.as_deref(), Some("vmx"));
        assert_eq!(PsOptions::parse("-xq").unknown, ['q']);
        assert_eq!(PsOptions::parse(""), PsOptions::default());
    }
}
