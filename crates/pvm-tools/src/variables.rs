//! The environment variables of the console. Spawned tasks receive those that are exported.
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// The variable that lists the names of the exported variables, separated by colons.
const EXPORT_LIST: &str = "PVM_EXPORT";

/// The variable that names the directory where programs to spawn are searched for last, after the search path of the
/// host.
pub const BESIDE: &str = "PVMSPAWNPATH";
/// Variables that identify a task: the started tasks must not inherit those of `pvm run`.
pub const IDENTITY: [&str; 16] = [
    "PVMLINES",
    "PVMSOCK",
    "PVMEPID",
    "PVMCTX",
    "PVMTMASK",
    "PVMTRCBUF",
    "PVMTRCOPT",
    "PVMSPAWNWD",
    "PVMTASK",
    "HPVM_RUN",
    "HPVM_BIND",
    "HPVM_TASK_INDEX",
    "HPVM_TASK_COUNT",
    "HPVM_LOCAL_INDEX",
    "HPVM_LOCAL_COUNT",
    BESIDE,
];

/// Names and values, in the order in which they were set.
#[derive(Debug, Clone, Default)]
pub struct Variables(Vec<(OsString, OsString)>);

impl Variables {
    /// Returns the variables of this process.
    pub fn of_this_process() -> Variables {
        Variables(std::env::vars_os().collect())
    }

    /// Returns the value of a variable. Bytes that are not valid UTF-8 are replaced.
    pub fn get(&self, name: &str) -> Option<String> {
        let (_, value) = self.0.iter().find(|(known, _)| known == name)?;
        Some(value.to_string_lossy().into_owned())
    }

    /// Sets a variable.
    pub fn set(&mut self, name: &str, value: impl AsRef<OsStr>) {
        let value = value.as_ref();
        match self.0.iter_mut().find(|(known, _)| known == name) {
            Some((_, old)) => *old = value.into(),
            None => self.0.push((name.into(), value.into())),
        }
    }

    /// Returns `NAME=value` lines.
    pub fn list(&self) -> String {
        self.0.iter().map(|(name, value)| format!("{}={}\n", name.to_string_lossy(), value.to_string_lossy())).collect()
    }

    /// Returns the value of `PVM_EXPORT`.
    pub fn export_list(&self) -> String {
        self.get(EXPORT_LIST).unwrap_or_default()
    }

    /// Adds a name to `PVM_EXPORT`.
    pub fn export(&mut self, name: &str) {
        let mut names = self.exported_names();
        if !names.iter().any(|known| known == name) {
            names.push(name.to_owned());
            self.set(EXPORT_LIST, names.join(":"));
        }
    }

    /// Removes a name from `PVM_EXPORT`.
    pub fn unexport(&mut self, name: &str) {
        let mut names = self.exported_names();
        if let Some(place) = names.iter().position(|known| known == name) {
            names.remove(place);
        }
        self.set(EXPORT_LIST, names.join(":"));
    }

    /// Returns the names in `PVM_EXPORT`. Between two colons, a name is empty.
    fn exported_names(&self) -> Vec<String> {
        match self.export_list() {
            list if list.is_empty() => Vec::new(),
            list => list.split(':').map(str::to_owned).collect(),
        }
    }

    /// Returns the variables for spawned tasks: the list `PVM_EXPORT` itself, then each variable in it that is set.
    pub fn exported(&self) -> Vec<Vec<u8>> {
        let names = self.exported_names();
        if names.is_empty() {
            return Vec::new();
        }
        let listed = |name: &String| self.0.iter().find(|(known, _)| known.as_os_str() == name.as_str()).map(pair);
        let list = format!("{EXPORT_LIST}={}", self.export_list()).into_bytes();
        std::iter::once(list).chain(names.iter().filter_map(listed)).collect()
    }

    /// Returns `NAME=value` of all variables whose name `wanted` accepts.
    pub fn pairs(&self, wanted: impl Fn(&str) -> bool) -> Vec<Vec<u8>> {
        self.0.iter().filter(|(name, _)| name.to_str().is_none_or(&wanted)).map(pair).collect()
    }
}

fn pair((name, value): &(OsString, OsString)) -> Vec<u8> {
    let mut text = name.clone().into_vec();
    text.push(b'=');
    text.extend_from_slice(value.as_bytes());
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_exported_once_until_they_are_taken_out() {
        let mut variables = Variables::default();
        for name in ["A", "A", "B"] {
            variables.export(name);
        }
        assert_eq!(variables.export_list(), "A:B");
        variables.unexport("ZZ");
        variables.unexport("A");
        assert_eq!(variables.export_list(), "B");
        assert_eq!(variables.get("PVM_EXPORT").as_deref(), Some("B"));
    }

    #[test]
    fn empty_names_stay_in_the_list() {
        let mut variables = Variables::default();
        variables.set("PVM_EXPORT", "A::A:B");
        variables.export("C");
        assert_eq!(variables.export_list(), "A::A:B:C");
        variables.unexport("A");
        assert_eq!(variables.export_list(), ":A:B:C");
    }

    #[test]
    fn tasks_get_the_list_and_the_variables_that_are_set() {
        let mut variables = Variables::default();
        assert!(variables.exported().is_empty());
        variables.set("B", "1 2");
        variables.export("A");
        variables.export("B");
        assert_eq!(variables.exported(), [&b"PVM_EXPORT=A:B"[..], b"B=1 2"]);
        assert_eq!(variables.pairs(|name| name == "B"), [b"B=1 2"]);
    }
}
