//! `pvm info`: versions, places, features, limits and settings, without a machine.
mod settings;

use crate::{architecture, batch, cli, json, machine};
use pvm_core::{codes, proto, wire};
use pvm_task::Environment;
use rustix::process::{Resource, getrlimit};
use serde_json::{Map, Value, json};
use settings::{Setting, Source};
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

/// What is compiled in.
const FEATURES: [(&str, &str); 6] = [
    ("messages inside a host", "shared memory"),
    ("messages between hosts", "daemons (TCP), direct links, multicast"),
    ("encryption between hosts", "on, unless PVM_TRUSTED_NET is set"),
    ("interfaces", "C, Fortran, FMP"),
    ("job systems", "Slurm, PBS, LSF, Grid Engine, Flux"),
    ("binding of tasks", "core"),
];
/// The limits of the system that matter to a machine, each with its unit.
const SYSTEM_LIMITS: [(&str, &str, Resource); 4] = [
    ("open files", "", Resource::Nofile),
    ("processes", "", Resource::Nproc),
    ("file size", "bytes", Resource::Fsize),
    ("address space", "bytes", Resource::As),
];
/// The limits of hpvm that no setting changes.
const OWN_LIMITS: [(&str, &str, u64); 4] = [
    ("hosts of a machine", "", 4095),
    ("tasks of a host", "", 65_535),
    ("one message", "bytes", 2 << 30),
    ("entries of a mailbox", "", 2_097_152),
];

/// Prints the information.
pub fn run(arguments: &cli::Info) -> ExitCode {
    let info = Info::collect();
    let text = if arguments.json { json::text(&info.json()) } else { info.text() };
    match std::io::stdout().write_all(text.as_bytes()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

/// A limit: its name, its unit, and its value; `None`: unlimited.
type Limit = (&'static str, &'static str, Option<u64>);

struct Info {
    versions: Vec<(&'static str, String)>,
    places: Vec<(&'static str, String)>,
    limits: Vec<Limit>,
    settings: Vec<Setting>,
}

impl Info {
    fn collect() -> Info {
        let own = SYSTEM_LIMITS.map(|(name, unit, resource)| (name, unit, getrlimit(resource).current));
        let fixed = OWN_LIMITS.map(|(name, unit, value)| (name, unit, Some(value)));
        let job_machine = machine::name().filter(|_| std::env::var_os("PVM_VMID").is_none_or(|name| name.is_empty()));
        let in_slurm = batch::source() == Some(batch::SLURM_HOSTS);
        Info {
            versions: vec![
                ("hpvm", env!("CARGO_PKG_VERSION").into()),
                ("interface of PVM", codes::PVM_VERSION.into()),
                ("protocol of tasks", proto::VERSION.to_string()),
                ("protocol of hosts", wire::VERSION.to_string()),
                ("architecture", architecture::name().unwrap_or("unknown").into()),
            ],
            places: places(),
            limits: own.into_iter().chain(fixed).collect(),
            settings: settings::all(|name| std::env::var_os(name), job_machine, in_slurm),
        }
    }

    fn text(&self) -> String {
        let mut text = String::new();
        let mut part = |title: &str, lines: Vec<(String, String)>| {
            let width = lines.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
            let _ = writeln!(text, "{title}");
            for (name, value) in lines {
                let _ = writeln!(text, "  {name:<width$}  {value}");
            }
        };
        let pairs = |pairs: &[(&str, String)]| pairs.iter().map(|(a, b)| ((*a).to_owned(), b.clone())).collect();
        part("Versions", pairs(&self.versions));
        part("Places", pairs(&self.places));
        part("Features", pairs(&FEATURES.map(|(name, value)| (name, value.to_owned()))));
        let limit = |(name, unit, value): &Limit| {
            let value = value.map_or("unlimited".to_owned(), |value| format!("{value} {unit}"));
            ((*name).to_owned(), value.trim_end().to_owned())
        };
        part("Limits", self.limits.iter().map(limit).collect());
        let setting = |setting: &Setting| {
            let note = match setting.source {
                Source::Default => String::new(),
                source => format!("  (from the {})", source.name()),
            };
            (setting.name.to_owned(), format!("{}{note}", setting.value))
        };
        part("Settings", self.settings.iter().map(setting).collect());
        text
    }

    fn json(&self) -> Value {
        let object = |pairs: Vec<(&str, Value)>| -> Value {
            pairs.into_iter().map(|(name, value)| (name.replace(' ', "_"), value)).collect::<Map<_, _>>().into()
        };
        let strings = |pairs: &[(&'static str, String)]| object(pairs.iter().map(|(a, b)| (*a, json!(b))).collect());
        let setting =
            |setting: &Setting| (setting.name, json!({ "value": setting.value, "source": setting.source.name() }));
        json!({
            "versions": strings(&self.versions),
            "places": strings(&self.places),
            "features": object(FEATURES.iter().map(|(name, value)| (*name, json!(value))).collect()),
            "limits": object(self.limits.iter().map(|(name, _, value)| (*name, json!(value))).collect()),
            "settings": object(self.settings.iter().map(setting).collect()),
        })
    }
}

/// Returns the places of programs and files.
fn places() -> Vec<(&'static str, String)> {
    let shown = |path: Option<PathBuf>| path.map_or("not found".to_owned(), |path| path.display().to_string());
    let environment = Environment::from_process();
    let rendezvous = environment.places.files.first().cloned();
    let log = rendezvous.as_ref().and_then(|file| {
        let name = file.file_name()?.to_string_lossy().strip_prefix("pvmd.")?.to_owned();
        Some(file.with_file_name(format!("pvml.{name}")))
    });
    vec![
        ("pvm", shown(std::env::current_exe().ok())),
        ("pvmd", shown(machine::daemon_program())),
        ("hosts of the job", batch::source().unwrap_or("no job").to_owned()),
        ("socket directory", environment.places.temporary.display().to_string()),
        ("file of the machine", shown(rendezvous)),
        ("log", shown(log)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_document_say_the_same() {
        let info = Info::collect();
        let (text, value) = (info.text(), info.json());
        for (part, name) in
            [("versions", "protocol_of_hosts"), ("places", "socket_directory"), ("limits", "tasks_of_a_host")]
        {
            let value = match &value[part][name] {
                Value::String(text) => text.clone(),
                other => other.to_string(),
            };
            let line = text.lines().find(|line| line.trim_start().starts_with(&name.replace('_', " "))).unwrap();
            assert!(line.contains(&value), "{line}: {value}");
        }
        assert_eq!(value["settings"].as_object().map(Map::len), Some(settings::VARIABLES.len()));
    }
}
