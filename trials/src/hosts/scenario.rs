//! The scenarios of `tests/hosts`: conformance cases on a machine of several hosts.

use super::machine::Machine;
use super::network::Network;
use crate::common::root;
use crate::conform::case::{self, Case, Kind};
use crate::conform::compile;
use crate::conform::execute::{End, Outcome, Runner, console_input, program_of, wait};
use crate::conform::machine::Side;
use crate::conform::normalise;
use anyhow::{Context, Result};
use regex::{Captures, Regex};
use std::collections::HashMap;
use std::fs::File;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::LazyLock;

/// The number of hosts of the machine, unless a directive says otherwise.
pub const HOSTS: usize = 4;

/// Returns the folder of the compiled cases, which is on the daemons' search path.
pub fn programs() -> PathBuf {
    root().join("target/hosts/bin")
}

/// Returns the folder of the scenarios.
pub fn folder() -> PathBuf {
    root().join("tests/hosts")
}

/// Scripts of `tests/conform` that are scenarios, too; as scenarios, their tasks run on all hosts.
const SHARED: &[&str] = &[
    "groups_barrier",
    "groups_bandwidth",
    "groups_collective",
    "groups_members",
    "hello",
    "hitc",
    "inherit",
    "mailbox",
    "master1",
    "slang",
    "spmd",
    "tablix",
    "timing",
];

/// Scenarios that take long, mostly on PVM 3.4.
const LONG: &[&str] =
    &["hosts_flood", "hosts_sizes", "script/groups_bandwidth", "script/groups_members", "script/tablix"];

/// Programs of `tests/conform` that run on several hosts with `--short`: they are fast, and their results may differ on
/// several hosts.
const SHORT_FORM: &[&str] = &[
    "d8_scatter_buffer",
    "group_barrier",
    "group_errors",
    "mcast",
    "notify",
    "order_causes",
    "order_hosts",
    "order_senders",
    "output_raw",
    "small_stack",
    "tasker",
    "tasks",
    "trace_family",
];

/// Returns whether `--short` leaves a scenario out.
pub fn is_for_later(case: &Case) -> bool {
    match case.source.starts_with(folder()) || case.kind != Kind::Program {
        true => LONG.contains(&case.name.as_str()),
        false => !SHORT_FORM.contains(&case.name.as_str()),
    }
}

/// Returns all scenarios.
pub fn all() -> Result<Vec<Case>> {
    let mut cases = case::find(&folder())?;
    for name in SHARED {
        cases.extend(case::script(&root().join("tests/conform/programs").join(name).with_extension("sh"))?);
    }
    Ok(cases)
}

/// Returns the programs of `tests/conform`, to run them on machines of several hosts.
pub fn conformance() -> Result<Vec<Case>> {
    let mut cases = case::find(&root().join("tests/conform"))?;
    cases.retain(|case| case.kind == Kind::Program);
    compile::all(&cases)?;
    Ok(cases)
}

/// Returns the program of a case.
fn program(case: &Case) -> PathBuf {
    if !case.source.starts_with(folder()) {
        return compile::program(case, Side::Theirs);
    }
    programs().join(case.source.file_stem().unwrap_or_default())
}

/// Compiles every case whose program is older than its source.
pub fn compile(cases: &[Case]) -> Result<()> {
    std::fs::create_dir_all(programs())?;
    let helpers = root().join("tests/conform");
    let helper_headers =
        [helpers.join("case.h"), folder().join("hosts.h"), folder().join("numbered.h"), folder().join("fabric.h")];
    for case in cases.iter().filter(|case| case.kind == Kind::Program) {
        // The source of a case for a trusted network or a fabric includes the source of the ordinary case.
        let stem = ["_trusted", "_fabric"].iter().find_map(|suffix| case.name.strip_suffix(suffix));
        let included = stem.map(|name| case.source.with_file_name(format!("{name}.c"))).filter(|path| path.exists());
        let inputs: Vec<PathBuf> = helper_headers.iter().cloned().chain(included).collect();
        let mut command = compile::c(&helpers);
        command.arg("-I").arg(folder()).arg(&case.source);
        if std::fs::read_to_string(&case.source)?.contains("<fmp.h>") {
            // PVM 3.4 has no FMP.
            let headers = Side::Ours.headers();
            command.arg("-I").arg(&headers).arg("-L").arg(headers.with_file_name("lib")).arg("-lfmp");
        }
        command.args(["-Wl,--as-needed", "-lgpvm3", "-Wl,--no-as-needed", "-lpvm3", "-lpthread"]);
        compile::make(&mut command, &case.source, &program(case), &inputs)?;
    }
    Ok(())
}

/// Runs scenarios one after the other. Keeps the last machine for the next case, if that case can use it.
pub struct Stage<'a> {
    network: &'a Network,
    kept: Option<Machine<'a>>,
    /// Variables of all daemons and tasks, in addition to those of a case.
    environment: Vec<(String, String)>,
}

impl<'a> Stage<'a> {
    /// Makes a stage without a machine.
    pub fn new(network: &'a Network, environment: Vec<(String, String)>) -> Stage<'a> {
        Stage { network, kept: None, environment }
    }
}

impl Runner for Stage<'_> {
    fn run(&mut self, case: &Case, side: Side) -> Result<Outcome> {
        let whole = case.hosts.unwrap_or(HOSTS) == HOSTS && !case.fresh;
        // Only one machine runs at a time: a process on a host cannot be assigned to one of several machines.
        let kept = self.kept.take().filter(|machine| whole && machine.side == side);
        let mut machine = match kept {
            Some(machine) => machine,
            None => {
                // A case that says which host has which fabric is about that, and the variable would override it.
                let names_fabrics = case.hostfile.iter().any(|line| line.contains("fabric="));
                let mut environment = self.environment.clone();
                environment.retain(|(name, _)| !(names_fabrics && name == "PVM_FABRIC"));
                environment.extend_from_slice(&case.daemon_env);
                let mut machine = Machine::new(side, self.network, &environment)?;
                if case.daemon {
                    // The network of a script may have fewer hosts.
                    let hosts = case.hosts.unwrap_or(HOSTS).min(self.network.hosts().len());
                    machine.start(hosts, &case.hostfile)?;
                }
                machine
            }
        };
        let outcome = execute(case, &machine)?;
        machine.tidy();
        // A machine on which a case failed is not used again.
        if whole && outcome.end == End::Exit(0) && machine.is_alive() && machine.daemons() == HOSTS {
            self.kept = Some(machine);
        }
        Ok(outcome)
    }
}

fn execute(case: &Case, machine: &Machine) -> Result<Outcome> {
    let first = machine.first();
    let (program, arguments) = program_of(case, machine.side, program(case));
    let mut command = machine.command(first, &program);
    command.args(arguments);
    let input = match case.kind {
        Kind::Console => Stdio::from(console_input(case, &machine.folder)?),
        _ => Stdio::null(),
    };
    let path = machine.folder.join("output");
    let output = File::create(&path)?;
    command.envs(case.env.iter().map(|(name, value)| (name, value)));
    command.env("HOSTS_FOLDER", &machine.folder);
    command.stdin(input).stderr(output.try_clone()?).stdout(output);
    let end = wait(&mut command, case.timeout).with_context(|| case.name.clone())?;
    let mut text = String::from_utf8_lossy(&std::fs::read(&path)?).into_owned();
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    if case.log {
        text += &machine.log(first);
    }
    text = normal(&text, machine, !case.unordered);
    if case.unordered {
        text = normalise::sorted(&text);
    }
    text += &end.last_line();
    Ok(Outcome { end, text })
}

/// Matches a context in the output of Debian's examples. The number of the context varies, since consoles take
/// contexts, too.
static CONTEXT: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"(context:?) [0-9]{6,7}\b").expect("a right pattern"));
static TID: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"\bt([0-9a-f]{5,7})\b").expect("a right pattern"));
/// The number of bits of a tid below the number of the host.
const LOCAL_BITS: u32 = 18;

/// Removes what may differ between two correct runs: dates, folders, tids. A task is named by its host and, if the
/// order of lines matters, by the order of its first appearance.
fn normal(raw: &str, machine: &Machine, numbered: bool) -> String {
    let mut text = raw.to_owned();
    for host in machine.network.hosts() {
        let folder = machine.folder.join(&host.name);
        text = text.replace(&folder.join("home").display().to_string(), "HOME");
        text = text.replace(&folder.join("tmp").display().to_string(), "TMP");
    }
    text = text.replace(&machine.folder.display().to_string(), "FOLDER");
    text = text.replace(&root().display().to_string(), "ROOT");
    text = normalise::dates(normalise::user(&text));
    text = CONTEXT.replace_all(&text, "$1 N").into_owned();
    let mut seen: HashMap<u32, usize> = HashMap::new();
    let replaced = TID.replace_all(&text, |found: &Captures| {
        let Ok(tid) = u32::from_str_radix(&found[1], 16) else { return found[0].to_owned() };
        let next = seen.len() + 1;
        let number = seen.entry(tid).or_insert(next);
        let number = if numbered { number.to_string() } else { String::new() };
        format!("t#{number}@{}", tid >> LOCAL_BITS)
    });
    replaced.into_owned()
}
