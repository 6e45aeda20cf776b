//! The variables that set something, their defaults, and where the values in force come from.
use std::ffi::OsString;

/// The variables for users, as in hpvm(7), each with its default.
pub const VARIABLES: &[(&str, &str)] = &[
    ("PVM_TMP", "/tmp"),
    ("PVM_VMID", "none"),
    ("PVM_ROOT", "lib/pvm3 where hpvm is installed"),
    ("PVM_PATH", "~/pvm3/bin/$PVM_ARCH:$PVM_ROOT/bin/$PVM_ARCH"),
    ("PVM_WD", "$HOME"),
    ("PVM_EXPORT", "none"),
    ("PVM_DEBUGGER", "$PVM_ROOT/lib/debugger"),
    ("PVM_MAX_TASKS", "65535"),
    ("PVMHOSTFILE", "none"),
    ("PVM_RM", "none"),
    ("PVM_TASKER", "none"),
    ("PVM_HOSTER", "none"),
    ("PVM_TRACER", "none"),
    ("PVMDLOGMAX", "1000000"),
    ("PVMDDEBUG", "0"),
    ("PVMTASKDEBUG", "0"),
    ("PVMTASK", "0"),
    ("PVM_RSH", "ssh"),
    ("PVM_DPATH", "pvmd, and usual places"),
    ("PVMNETSOCKPORT", "any"),
    ("PVM_TRUSTED_NET", "0"),
    ("PVM_PACING", "when several hosts lose packets at once"),
    ("PVM_BROADCAST", "a random group"),
    ("PVM_FABRIC", "auto"),
    ("PVM_FABRIC_CLEAR", "on trusted networks"),
    ("HPVM_STARTS_MAX", "64, or 16 per processor"),
    ("HPVM_HOST_TIMEOUT", "10"),
    ("HPVM_HALT_GRACE", "2"),
    ("HPVM_HEAP_MAX", "the free memory"),
    ("HPVM_BACKLOG_MAX", "67108864"),
    ("HPVM_MAILBOX_MAX", "1073741824"),
    ("HPVM_TASK_WATCHES_MAX", "262144"),
    ("HPVM_HOST_WATCHES_MAX", "1048576"),
    ("HPVM_GROUPS_MAX", "65536"),
    ("HPVM_MEMBERS_MAX", "4194304"),
    ("HPVM_TASK_REQUESTS_MAX", "4096"),
    ("HPVM_HOST_REQUESTS_MAX", "131072"),
    ("HPVM_OFFER_MIN", "33554432"),
    ("HPVM_DIRECT_AFTER", "32"),
    ("HPVM_ORDER", "hosts"),
    ("HPVM_BARRIER_PATIENCE", "30"),
    ("HPVM_BARRIER_BROADCAST", "3"),
];

/// Where a value comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// The environment of this process.
    Environment,
    /// The job of a batch system.
    Job,
    /// Nothing sets it.
    Default,
}

impl Source {
    /// Returns the source in one word.
    pub fn name(self) -> &'static str {
        match self {
            Source::Environment => "environment",
            Source::Job => "job",
            Source::Default => "default",
        }
    }
}

/// A setting in force.
#[derive(Debug, PartialEq, Eq)]
pub struct Setting {
    pub name: &'static str,
    pub value: String,
    pub source: Source,
}

/// Returns all settings. `variable` returns the value of an environment variable, `job_machine` is the name of the
/// machine of the job in which this process runs, and `in_slurm` says whether that is one of Slurm.
pub fn all(variable: impl Fn(&str) -> Option<OsString>, job_machine: Option<String>, in_slurm: bool) -> Vec<Setting> {
    let setting = |(name, default): &(&'static str, &str)| {
        let set = variable(name).filter(|value| !value.is_empty());
        let (value, source) = match (set, *name) {
            (Some(value), _) => (value.to_string_lossy().into_owned(), Source::Environment),
            (None, "PVM_VMID") if job_machine.is_some() => (job_machine.clone().unwrap_or_default(), Source::Job),
            (None, "PVM_RSH") if in_slurm => ("srun".into(), Source::Job),
            (None, _) => ((*default).to_owned(), Source::Default),
        };
        Setting { name, value, source }
    };
    VARIABLES.iter().map(setting).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_manual_and_this_list_name_the_same_variables() {
        let page = std::fs::read_to_string("../../man/hpvm.7").unwrap();
        let part = page.split(".Ss For users").nth(1).unwrap().split(".Ss Set for tasks").next().unwrap();
        let heads = part.lines().filter_map(|line| line.strip_prefix(".It Ev "));
        let mut named: Vec<&str> = heads.flat_map(|line| line.split(" , ")).collect();
        let mut known: Vec<&str> = VARIABLES.iter().map(|(name, _)| *name).collect();
        named.sort_unstable();
        known.sort_unstable();
        assert_eq!(named, known);
    }

    #[test]
    fn a_value_has_a_source() {
        let variable = |name: &str| (name == "PVM_TMP").then(|| "/x".into());
        let of = |settings: &[Setting], name: &str| {
            let setting = settings.iter().find(|setting| setting.name == name).unwrap();
            (setting.value.clone(), setting.source)
        };
        let settings = all(variable, Some("slurm-7".into()), true);
        assert_eq!(of(&settings, "PVM_TMP"), ("/x".into(), Source::Environment));
        assert_eq!(of(&settings, "PVM_VMID"), ("slurm-7".into(), Source::Job));
        assert_eq!(of(&settings, "PVM_RSH"), ("srun".into(), Source::Job));
        assert_eq!(of(&settings, "PVM_WD"), ("$HOME".into(), Source::Default));
        assert_eq!(of(&all(variable, None, false), "PVM_VMID"), ("none".into(), Source::Default));
    }
}
