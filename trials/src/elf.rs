//! Names in programs, libraries and archives (ELF).
use anyhow::{Context, Result, bail};
use object::read::archive::ArchiveFile;
use object::read::elf::{Dyn, ElfFile, FileHeader};
use object::{Endianness, File, Object, ObjectSymbol, SymbolKind, elf};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// A symbol of a dynamic symbol table.
#[derive(Debug)]
pub struct Symbol {
    pub kind: SymbolKind,
    /// The size of the object in bytes.
    pub bytes: u64,
    pub is_defined: bool,
}

fn read(path: &Path) -> Result<Vec<u8>> {
    std::fs::read(path).with_context(|| path.display().to_string())
}

/// Returns the dynamic symbols of a program or library, by name.
pub fn dynamic_symbols(path: &Path) -> Result<BTreeMap<String, Symbol>> {
    let data = read(path)?;
    let file = File::parse(&*data).with_context(|| path.display().to_string())?;
    let mut symbols = BTreeMap::new();
    for symbol in file.dynamic_symbols() {
        let one = Symbol { kind: symbol.kind(), bytes: symbol.size(), is_defined: !symbol.is_undefined() };
        symbols.insert(symbol.name()?.to_owned(), one);
    }
    Ok(symbols)
}

/// Returns the names of the dynamic symbols that a program or library defines.
pub fn defined(path: &Path) -> Result<BTreeSet<String>> {
    let symbols = dynamic_symbols(path)?.into_iter();
    Ok(symbols.filter(|(_, symbol)| symbol.is_defined).map(|(name, _)| name).collect())
}

/// Returns whether a library defines versions of its symbols.
pub fn defines_versions(path: &Path) -> Result<bool> {
    Ok(File::parse(&*read(path)?)?.section_by_name(".gnu.version_d").is_some())
}

/// Returns the names of the global symbols that the members of an archive define.
pub fn defined_in_archive(path: &Path) -> Result<BTreeSet<String>> {
    let data = read(path)?;
    let archive = ArchiveFile::parse(&*data).with_context(|| path.display().to_string())?;
    let mut names = BTreeSet::new();
    for member in archive.members() {
        let object = File::parse(member?.data(&*data)?)?;
        let symbols = object.symbols().filter(|symbol| symbol.is_global() && !symbol.is_undefined());
        for symbol in symbols {
            names.insert(symbol.name()?.to_owned());
        }
    }
    Ok(names)
}

/// Returns the libraries that a program or library needs.
pub fn needed(path: &Path) -> Result<Vec<String>> {
    dynamic_entries(path, elf::DT_NEEDED)
}

/// Returns a library's SONAME, the name under which programs search for the library.
pub fn soname(path: &Path) -> Result<String> {
    dynamic_entries(path, elf::DT_SONAME)?.pop().with_context(|| format!("{} has no SONAME", path.display()))
}

fn dynamic_entries(path: &Path, tag: elf::DynamicTag) -> Result<Vec<String>> {
    let data = read(path)?;
    match File::parse(&*data).with_context(|| path.display().to_string())? {
        File::Elf32(file) => entries_of(&file, tag),
        File::Elf64(file) => entries_of(&file, tag),
        _ => bail!("{} is not an ELF file", path.display()),
    }
}

/// Returns the strings of all entries in the dynamic section that have this tag.
fn entries_of<Header: FileHeader<Endian = Endianness>>(
    file: &ElfFile<'_, Header>,
    tag: elf::DynamicTag,
) -> Result<Vec<String>> {
    let (endian, data, sections) = (file.endian(), file.data(), file.elf_section_table());
    let Some((entries, strings)) = sections.dynamic(endian, data)? else { return Ok(Vec::new()) };
    let strings = sections.strings(endian, data, strings)?;
    let of_tag = entries.iter().filter(|entry| entry.tag(endian) == tag);
    of_tag.map(|entry| Ok(String::from_utf8(entry.string(endian, strings)?.to_vec())?)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_needs_the_c_library_and_refers_to_its_functions() {
        let own = std::env::current_exe().unwrap();
        assert!(needed(&own).unwrap().iter().any(|name| name.starts_with("libc.")));
        let symbols = dynamic_symbols(&own).unwrap();
        assert!(symbols.get("malloc").is_some_and(|symbol| !symbol.is_defined));
        assert!(!defined(&own).unwrap().contains("malloc") && !defines_versions(&own).unwrap());
    }

    #[test]
    fn a_text_is_an_error() {
        let text = crate::common::root().join("Cargo.toml");
        assert!(dynamic_symbols(&text).is_err() && needed(&text).is_err() && defined_in_archive(&text).is_err());
    }
}
