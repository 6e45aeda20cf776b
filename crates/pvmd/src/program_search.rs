//! Where tasks find their programs and where they run (contract 5.3: ep=, wd=, bx=).
use crate::architecture::ARCHITECTURE;
use pvm_core::codes::Code;
use pvm_core::machine::Found;
use pvm_core::proto::ByteBuf;
use pvm_core::wire::HostOptions;
use rustix::fs::FileType;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The search path if neither the hostfile nor a variable sets another.
const SEARCH: &str = "$HOME/pvm3/bin/$PVM_ARCH:$PVM_ROOT/bin/$PVM_ARCH";

/// The mode bit that lets the owner of a file execute it.
const OWNER_EXECUTES: u32 = 0o100;

/// Where tasks of this host find their programs and where they run.
#[derive(Debug, Clone)]
pub struct ProgramSearch {
    /// `PVM_ROOT`.
    pub root: PathBuf,
    /// `ep=`: the directories that are searched for programs.
    pub search: Vec<PathBuf>,
    /// `wd=`: the directory in which tasks run.
    pub directory: PathBuf,
    /// `bx=`.
    pub debugger: PathBuf,
}

impl ProgramSearch {
    /// Takes each setting from the hostfile's options, else from this host's environment.
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

    /// Returns the directory in which a task runs. The path `wanted` is relative to the directory of this host's tasks.
    pub fn task_directory(&self, wanted: Option<&ByteBuf>) -> PathBuf {
        match wanted {
            Some(path) => self.directory.join(OsStr::from_bytes(path)),
            None => self.directory.clone(),
        }
    }

    /// Looks for a program. A name with a slash is a path. Any other name is looked for in each directory of `ep=`, and
    /// then in each directory of `beside`, a list like `PATH`, in which `pvm run` passes the directory of its first
    /// program. `wanted`: the directory in which the task is to run.
    pub fn find(
        &self,
        file: &ByteBuf,
        wanted: Option<&ByteBuf>,
        beside: Option<&ByteBuf>,
        debug: bool,
    ) -> Result<Found, Code> {
        let directory = self.task_directory(wanted);
        if file.is_empty() || !directory.is_dir() {
            return Err(Code::NoFile);
        }
        let name = Path::new(OsStr::from_bytes(file));
        let path = match file.contains(&b'/') {
            true => Some(name.to_owned()).filter(|path| is_executable(&directory.join(path))),
            false => self
                .search
                .iter()
                .cloned()
                .chain(beside.into_iter().flat_map(|places| std::env::split_paths(OsStr::from_bytes(places))))
                .map(|place| place.join(name))
                .find(|path| is_executable(&directory.join(path))),
        };
        let path = path.ok_or(Code::NoFile)?;
        if debug && !is_executable(&self.debugger) {
            return Err(Code::NoFile);
        }
        let bytes = |path: &Path| ByteBuf::from(path.as_os_str().as_bytes().to_vec());
        Ok(Found { path: bytes(&path), debugger: debug.then(|| bytes(&self.debugger)) })
    }
}

/// Returns whether a file is a regular file that its owner may execute.
fn is_executable(path: &Path) -> bool {
    rustix::fs::stat(path).is_ok_and(|status| {
        FileType::from_raw_mode(status.st_mode) == FileType::RegularFile && status.st_mode & OWNER_EXECUTES != 0
    })
}

fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

/// Returns the default of `PVM_ROOT`: the directory of the installation to which this program belongs.
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

/// Replaces `$NAME` and `${NAME}`. Unknown variables stay as they are.
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
