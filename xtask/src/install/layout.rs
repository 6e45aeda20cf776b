//! Where the files of the distribution tree go: distributions have libraries in other directories, such as
//! `lib/x86_64-linux-gnu` (Debian) or `lib64` (Fedora).
use crate::build::CLASSIC_ROOT;
use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::{Component, Path, PathBuf};

/// The directory of the libraries in the distribution tree.
pub const LIBRARIES: &str = "lib";

/// The prefix under which the tree will be used, and the directory of its libraries.
pub struct Layout {
    /// An absolute path.
    pub prefix: PathBuf,
    /// Relative to the prefix.
    libraries: PathBuf,
}

impl Layout {
    /// Returns an error if the directory of the libraries is not below the prefix.
    pub fn new(prefix: &Path, libraries: &str) -> Result<Layout> {
        let given = Path::new(libraries);
        let relative = given.strip_prefix(prefix).unwrap_or(given);
        ensure!(
            !libraries.is_empty() && relative.components().all(|part| matches!(part, Component::Normal(_))),
            "the directory of the libraries must be below {}: {libraries}",
            prefix.display()
        );
        Ok(Layout { prefix: prefix.to_path_buf(), libraries: relative.to_path_buf() })
    }

    /// Returns where a file of the tree goes. Both paths are relative. `PVM_ROOT` stays in its place.
    pub fn place(&self, file: &Path) -> PathBuf {
        match file.strip_prefix(LIBRARIES) {
            Ok(rest) if !file.starts_with(CLASSIC_ROOT) => self.libraries.join(rest),
            _ => file.to_path_buf(),
        }
    }

    /// Returns the target of a link of the tree at its new place.
    pub fn link_target(&self, file: &Path, target: &Path) -> PathBuf {
        let directory = |path: &Path| path.parent().unwrap_or(Path::new("")).to_path_buf();
        let mut meant = directory(file);
        for part in target.components() {
            match part {
                Component::ParentDir => drop(meant.pop()),
                part => meant.push(part),
            }
        }
        relative(&directory(&self.place(file)), &self.place(&meant))
    }

    /// Returns the text of a file that must name its place, or `None` if the file is copied as it is. A file for
    /// pkg-config or CMake finds the tree relative to itself. So a tree can be moved, unless it is the system's own.
    pub fn adapted(&self, file: &Path, source: &Path) -> Result<Option<String>> {
        let is_for_pkg_config = file.extension().is_some_and(|ending| ending == "pc");
        let is_for_cmake = file.file_name().is_some_and(|name| name == "pvm3-config.cmake");
        let is_system = self.prefix == Path::new("/usr");
        if !(is_for_pkg_config || is_for_cmake) || (self.libraries == Path::new(LIBRARIES) && !is_system) {
            return Ok(None);
        }
        let text = fs::read_to_string(source).with_context(|| format!("cannot read {}", source.display()))?;
        let (libraries, up) = (self.libraries.display(), "/..".repeat(self.libraries.components().count() + 1));
        let mut pairs: Vec<(String, String)> = Vec::new();
        if is_for_pkg_config {
            let prefix = if is_system { self.prefix.display().to_string() } else { format!("${{pcfiledir}}{up}") };
            pairs.push(("prefix=${pcfiledir}/../..\n".into(), format!("prefix={prefix}\n")));
            pairs.push(("libdir=${prefix}/lib\n".into(), format!("libdir=${{prefix}}/{libraries}\n")));
            if is_system {
                pairs.push(("# Moves with the tree in which it lies.\n".into(), String::new()));
                // The system's own libraries are found without it.
                pairs.push((" -Wl,-rpath,${libdir}".into(), String::new()));
            }
        } else {
            pairs.push(("${CMAKE_CURRENT_LIST_DIR}/../../..".into(), format!("${{CMAKE_CURRENT_LIST_DIR}}{up}/..")));
            pairs.push(("${_pvm3_prefix}/lib/".into(), format!("${{_pvm3_prefix}}/{libraries}/")));
        }
        let mut adapted = text;
        for (old, new) in &pairs {
            ensure!(adapted.contains(old), "{} has no longer the text {old:?}", source.display());
            adapted = adapted.replace(old, new);
        }
        Ok(Some(adapted))
    }
}

/// Returns the path to `to` as seen from the directory `from`. Both are relative to the same directory.
fn relative(from: &Path, to: &Path) -> PathBuf {
    let common = from.components().zip(to.components()).take_while(|(a, b)| a == b).count();
    let up = from.components().skip(common).map(|_| Component::ParentDir);
    up.chain(to.components().skip(common)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn debian() -> Layout {
        Layout::new(Path::new("/usr"), "/usr/lib/x86_64-linux-gnu").unwrap()
    }

    #[test]
    fn libraries_move_and_the_classic_root_stays() {
        let place = |file: &str| debian().place(Path::new(file)).display().to_string();
        assert_eq!(place("lib/libpvm3.so.3"), "lib/x86_64-linux-gnu/libpvm3.so.3");
        assert_eq!(place("lib/pvm3/conf/LINUX64.def"), "lib/pvm3/conf/LINUX64.def");
        assert_eq!(place("bin/pvm"), "bin/pvm");
    }

    #[test]
    fn links_into_the_libraries_follow_them() {
        let target = |file: &str, to: &str| debian().link_target(Path::new(file), Path::new(to)).display().to_string();
        assert_eq!(
            target("lib/pvm3/lib/LINUX64/libpvm3.a", "../../../libpvm3.a"),
            "../../../x86_64-linux-gnu/libpvm3.a"
        );
        assert_eq!(target("lib/pvm3/lib/pvm", "../../../bin/pvm"), "../../../bin/pvm");
        assert_eq!(target("lib/libpvm3.so", "libpvm3.so.3"), "libpvm3.so.3");
        assert_eq!(target("lib/pvm3/include", "../../include"), "../../include");
        let fedora = Layout::new(Path::new("/usr"), "lib64").unwrap();
        let target = fedora.link_target(Path::new("lib/pvm3/lib/LINUX64/libpvm3.a"), Path::new("../../../libpvm3.a"));
        assert_eq!(target, Path::new("../../../../lib64/libpvm3.a"));
    }

    #[test]
    fn files_for_tools_name_the_new_place() {
        let root = crate::common::root();
        let adapted = |layout: &Layout, file: &str, source: &str| layout.adapted(Path::new(file), &root.join(source));
        let text = adapted(&debian(), "lib/pkgconfig/pvm3.pc", "dist/pvm3.pc").unwrap().unwrap();
        assert!(text.contains("prefix=/usr\n") && text.contains("libdir=${prefix}/lib/x86_64-linux-gnu\n"), "{text}");
        assert!(!text.contains("rpath"), "{text}");
        let cmake = "dist/cmake/pvm3-config.cmake";
        let text = adapted(&debian(), "lib/cmake/pvm3/pvm3-config.cmake", cmake).unwrap().unwrap();
        assert!(
            text.contains("LIST_DIR}/../../../..\"") && text.contains("}/lib/x86_64-linux-gnu/libpvm3.a"),
            "{text}"
        );
        let plain = Layout::new(Path::new("/opt/hpvm"), "lib").unwrap();
        assert!(adapted(&plain, "lib/pkgconfig/fmp.pc", "dist/fmp.pc").unwrap().is_none());
        let fedora = Layout::new(Path::new("/opt/hpvm"), "lib64").unwrap();
        let text = adapted(&fedora, "lib/pkgconfig/fmp.pc", "dist/fmp.pc").unwrap().unwrap();
        assert!(text.contains("prefix=${pcfiledir}/../..\n") && text.contains("rpath,${libdir}"), "{text}");
    }

    #[test]
    fn libraries_outside_the_prefix_are_refused() {
        assert!(Layout::new(Path::new("/usr"), "/lib64").is_err() && Layout::new(Path::new("/usr"), "../lib").is_err());
    }
}
