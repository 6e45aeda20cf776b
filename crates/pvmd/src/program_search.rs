//! Where tasks find their programs and where they run (contract 5.3: ep=, wd=, bx=).
use crate::settings::ARCHITECTURE;
use pvm_core::wire::HostOptions;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

/// Where programs are looked for unless somebody says otherwise.
const SEARCH: &str = "$HOME/pvm3/bin/$PVM_ARCH:$PVM_ROOT/bin/$PVM_ARCH";

/// What tasks of this host need.
#[derive(Debug, Clone)]
pub struct ProgramSearch {
    /// `PVM_ROOT`.
    pub root: PathBuf,
    /// `ep=`: where programs are looked for.
    pub search: Vec<PathBuf>,
    /// `wd=`: where tasks run.
    pub directory: PathBuf,
    /// `bx=`.
    pub debugger: PathBuf,
}

impl ProgramSearch {
    /// As the hostfile says, else as the environment does. Variables are those of this host.
    pub fn new(options: &HostOptions, complaints: &mut Vec<String>) -> ProgramSearch {
        let root = variable("PVM_ROOT").map_or_else(default_root, PathBuf::from);
        let home = variable("HOME").unwrap_or_else(|| {
            complaints.push("HOME is not set, / is used".into());
            "/".into()
        });
        let either = |option: &Option<String>, name: &str, default: &str| {
            let text = option.clone().or_else(|| variable(name).map(|text| text.to_string_lossy().into_owned()));
            expand(text.as_deref().unwrap_or(default), &|name| lookup(name, &root, &home))
        };
        let search = either(&options.path, "PVM_PATH", SEARCH);
        let mut directory = PathBuf::from(either(&options.directory, "PVM_WD", "$HOME"));
        if !directory.is_dir() {
            complaints.push(format!("{} is no directory, / is used", directory.display()));
            directory = "/".into();
        }
        let debugger = PathBuf::from(either(&options.debugger, "PVM_DEBUGGER", "$PVM_ROOT/lib/debugger"));
        let search = std::env::split_paths(&search).filter(|path| !path.as_os_str().is_empty()).collect();
        ProgramSearch { root, search, directory, debugger }
    }
}

fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

/// `PVM_ROOT` where it is not set: what belongs to the installation in which this program lies.
fn default_root() -> PathBuf {
    let program = std::env::current_exe().unwrap_or_default();
    let prefix = program.parent().and_then(Path::parent).unwrap_or(Path::new("/"));
    let root = prefix.join("lib/pvm3");
    if root.is_dir() { root } else { prefix.to_owned() }
}

fn lookup(name: &str, root: &Path, home: &OsStr) -> Option<String> {
    match name {
        "PVM_ARCH" => Some(ARCHITECTURE.into()),
        "PVM_ROOT" => Some(root.to_string_lossy().into_owned()),
        "HOME" => Some(home.to_string_lossy().into_owned()),
        _ => std::env::var(name).ok(),
    }
}

/// Replaces `$NAME` and `${NAME}`; unknown ones stay as they are.
pub(crate) fn expand(text: &str, lookup: &dyn Fn(&str) -> Option<String>) -> String {
    let mut result = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        result.push_str(&rest[..at]);
        let after = &rest[at + 1..];
        let braced = after.strip_prefix('{').and_then(|inner| inner.split_once('}')).map(|(name, _)| name);
        let plain_end = after.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(after.len());
        let (name, length) = match braced {
            Some(name) => (name, name.len() + 2),
            None => (&after[..plain_end], plain_end),
        };
        match lookup(name) {
            Some(value) => result.push_str(&value),
            None => result.push_str(&rest[at..at + 1 + length]),
        }
        rest = &after[length..];
    }
    result + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_expanded_and_unknown_ones_stay() {
        let lookup = |name: &str| (name == "A_1").then(|| "x/y".to_owned());
        assert_eq!(expand("$A_1/b:${A_1}z:$B:${C}:$", &lookup), "x/y/b:x/yz:$B:${C}:$");
        assert_eq!(expand("plain", &lookup), "plain");
    }
}
