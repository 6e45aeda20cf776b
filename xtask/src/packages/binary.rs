//! The relocatable tarball of binaries: unpacked anywhere, its programs run.
use super::{notices, source};
use crate::build::SONAME;
use crate::common::{dist, files_under, output, root};
use crate::install::copy_tree;
use crate::scratch;
use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The files of the distribution tree whose needs decide on which systems the tarball runs.
const CODE: &[&str] = &["bin/pvm", "bin/pvmd", "bin/pvmgetarch", "bin/pvmbench", "lib/libpvm3.so.3", "lib/libfmp.so.1"];

/// The libraries that every Linux with glibc has, and the tarball's own.
const KNOWN_LIBRARIES: &[&str] = &["libc.so.6", "libm.so.6", "libgcc_s.so.1", SONAME];

/// Makes `hpvm-VERSION-ARCHITECTURE-linux.tar.gz` in the directory `to`, and returns its path.
pub fn make(to: &Path, version: &str) -> Result<PathBuf> {
    let tree = dist();
    let name = format!("hpvm-{version}-{}-linux", std::env::consts::ARCH);
    let stage = scratch::directory("binaries")?;
    let place = stage.path().join(&name);
    copy_tree(&tree, &place)?;
    fs::copy(root().join("LICENSE"), place.join("LICENSE"))?;
    examples(&place.join("examples"))?;
    notices::write(&place.join("THIRD-PARTY-LICENSES.txt"))?;
    fs::write(place.join("README"), readme(version, oldest_glibc(&tree)?)?)?;
    source::pack(stage.path(), &name, &to.join(format!("{name}.tar.gz")))
}

/// Copies the sources of the examples, without what somebody has built there.
fn examples(to: &Path) -> Result<()> {
    for source in files_under(&["examples"], &["c", "f", "md"])?.into_iter().chain([root().join("examples/Makefile")]) {
        let at = to.join(source.strip_prefix(root().join("examples"))?);
        fs::create_dir_all(at.parent().context("a file lies in a directory")?)?;
        fs::copy(&source, &at)?;
    }
    Ok(())
}

/// Returns the text for whoever unpacks the tarball.
fn readme(version: &str, glibc: (u32, u32)) -> Result<String> {
    let template = root().join("dist/binary/README");
    let text = fs::read_to_string(&template).with_context(|| template.display().to_string())?;
    let glibc = format!("{}.{}", glibc.0, glibc.1);
    let text = text.replace("@VERSION@", version).replace("@GLIBC@", &glibc);
    let text = text.replace("@ARCHITECTURE@", std::env::consts::ARCH);
    ensure!(!text.contains('@'), "a placeholder of {} is unknown", template.display());
    Ok(text)
}

/// Returns the oldest version of the GNU C library with which the tree runs. Returns an error if the tree needs a
/// library that a system may lack.
pub fn oldest_glibc(tree: &Path) -> Result<(u32, u32)> {
    let mut oldest = (0, 0);
    for file in CODE {
        let needs = needs_of(&tree.join(file))?;
        for library in needs.lines().filter_map(|line| line.trim().strip_prefix("NEEDED")).map(str::trim) {
            let is_loader = library.starts_with("ld-linux") || library.starts_with("ld64.so");
            ensure!(is_loader || KNOWN_LIBRARIES.contains(&library), "{file} needs {library}");
        }
        oldest = needs.split_whitespace().filter_map(glibc).fold(oldest, Ord::max);
    }
    ensure!(oldest > (0, 0), "no program needs the C library");
    Ok(oldest)
}

/// Returns the libraries that a program or library needs, and the versions of their symbols, as objdump lists them.
fn needs_of(path: &Path) -> Result<String> {
    output(Command::new("objdump").arg("-p").arg(path))
}

/// Returns the two first numbers in `GLIBC_2.34`; a third one does not matter.
fn glibc(version: &str) -> Option<(u32, u32)> {
    let mut numbers = version.strip_prefix("GLIBC_")?.split('.');
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_glibc_are_ordered_as_numbers() {
        assert!(glibc("GLIBC_2.34") > glibc("GLIBC_2.4") && glibc("GLIBC_2.2.5") == Some((2, 2)));
        assert_eq!((glibc("GLIBC_PRIVATE"), glibc("GCC_3.0")), (None, None));
    }

    #[test]
    fn this_program_needs_some_version_of_glibc() {
        let needs = needs_of(&std::env::current_exe().unwrap()).unwrap();
        assert!(needs.contains("NEEDED") && needs.split_whitespace().any(|word| glibc(word).is_some()), "{needs}");
    }
}
