//! In which line of its program a task of this host waits. Reads the stack of the process and unwinds it, which the process does not
//! notice, and asks the debug information of the program; without that, its symbols.
// Elsewhere no stack is unwound: see `frames`.
#![cfg_attr(not(target_arch = "x86_64"), allow(dead_code, unused_imports))]

use addr2line::Context;
use addr2line::gimli::{self, Dwarf, EndianSlice, RunTimeEndian, SectionId};
use framehop::{ExplicitModuleSectionInfo, FrameAddress, Module};
use object::read::{Object, ObjectSection, ObjectSegment, ObjectSymbol, ReadCache};
use object::{CompressionFormat, SymbolKind};
use serde_json::{Value, json};
use std::borrow::Cow;
use std::collections::HashMap;
use std::fs::{self, File};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// The bits of an address inside a page.
const PAGE_MASK: u64 = 0xfff;
/// The most frames that a stack is unwound.
const FRAMES_MAX: usize = 64;
/// How the files of libraries are called that do not belong to a program.
const LIBRARIES: [&str; 8] =
    ["libpvm3.", "libgpvm3.", "libfpvm3.", "libc.", "libc-", "libpthread", "ld-", "libgfortran."];
/// How the files of interpreters begin: the line that counts is none of theirs.
const INTERPRETERS: [&str; 2] = ["python", "libpython"];

/// A place in a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The function.
    function: Option<String>,
    /// The file and the line.
    line: Option<(String, u32)>,
}

impl Place {
    /// Finds the place of an address in a file.
    fn find(path: &Path, address: u64) -> Option<Place> {
        let cache = ReadCache::new(File::open(path).ok()?);
        let file = object::File::parse(&cache).ok()?;
        let functions = file.symbols().chain(file.dynamic_symbols()).filter(|symbol| {
            symbol.kind() == SymbolKind::Text && (symbol.address()..symbol.address() + symbol.size()).contains(&address)
        });
        let function = functions.filter_map(|symbol| Some(symbol.name().ok()?.to_owned())).next();
        let section = |id: SectionId| -> Result<EndianSlice<'_, RunTimeEndian>, gimli::Error> {
            let section = file.section_by_name(id.name());
            // Compressed sections are not read.
            let bytes = section.filter(|section| !is_compressed(section)).and_then(|section| section.data().ok());
            let endian = if file.is_little_endian() { RunTimeEndian::Little } else { RunTimeEndian::Big };
            Ok(EndianSlice::new(bytes.unwrap_or_default(), endian))
        };
        let lines = Dwarf::load(section).and_then(Context::from_dwarf);
        let line = lines.ok().and_then(|lines| {
            let found = lines.find_location(address).ok()??;
            Some((found.file?.to_owned(), found.line?))
        });
        Some(Place { function, line })
    }

    /// Returns the place for a person: `ring.c:42 (solve)`; `None` if nothing is known.
    pub fn text(&self) -> Option<String> {
        let line = self.line.as_ref().map(|(file, line)| {
            let name = file.rsplit('/').next().unwrap_or(file);
            format!("{name}:{line}")
        });
        match (self.function.clone(), line) {
            (Some(function), Some(line)) => Some(format!("{line} ({function})")),
            (Some(one), None) | (None, Some(one)) => Some(one),
            (None, None) => None,
        }
    }

    /// Returns the place for a program.
    pub fn value(&self) -> Value {
        let (file, line) = self.line.as_ref().map_or((None, None), |(file, line)| (Some(file), Some(line)));
        json!({ "function": self.function, "file": file, "line": line })
    }
}

/// Finds places. Files are read once, also if many processes have them.
#[derive(Default)]
pub struct Finder {
    files: HashMap<Key, Option<Rc<Parts>>>,
    places: HashMap<(Key, u64), Option<Place>>,
}

impl Finder {
    /// Returns where in its program a process sleeps; `None` if that cannot be seen: the process runs, is not this user's, may not be
    /// read (`kernel.yama.ptrace_scope`), is of another kind of processor than x86-64, or runs a program in Python.
    pub fn place(&mut self, pid: i32) -> Option<Place> {
        let folder = PathBuf::from(format!("/proc/{pid}"));
        let [stack, program] = registers(&fs::read_to_string(folder.join("syscall")).ok()?)?;
        let mapped = mapped(&fs::read_to_string(folder.join("maps")).ok()?);
        if mapped.iter().any(|file| INTERPRETERS.iter().any(|start| file.name().starts_with(start))) {
            return None;
        }
        let codes: Vec<Code> = mapped.into_iter().filter_map(|file| self.code(&folder, file)).collect();
        let memory = File::open(folder.join("mem")).ok()?;
        let mut read = |address: u64| {
            let mut word = [0; 8];
            memory.read_exact_at(&mut word, address).map(|()| u64::from_le_bytes(word)).map_err(|_| ())
        };
        let frames = frames(&codes, program, stack, &mut read);
        frames.into_iter().find_map(|address| {
            let code = codes.iter().find(|code| code.mapped.range.contains(&address))?;
            let is_library = LIBRARIES.iter().any(|start| code.mapped.name().starts_with(start));
            let place =
                (!is_library).then(|| self.place_in(&folder, code, address.wrapping_sub(code.bias))).flatten()?;
            (!place.function.as_deref().is_some_and(is_of_the_library)).then_some(place)
        })
    }

    /// Returns what unwinding needs of a file.
    fn code(&mut self, process: &Path, mapped: Mapped) -> Option<Code> {
        let read = || Parts::read(&inside(process, &mapped.key.path)).map(Rc::new);
        let parts = self.files.entry(mapped.key.clone()).or_insert_with(read).clone()?;
        let (start, offset) = mapped.code;
        // A mapping begins with a page.
        let is_mapped = |(file, _): &&(Range<u64>, u64)| (file.start & !PAGE_MASK..file.end).contains(&offset);
        let (file, address) = parts.segments.iter().rfind(is_mapped)?;
        let bias = start.wrapping_sub(address.wrapping_add(offset).wrapping_sub(file.start));
        Some(Code { mapped, bias, parts })
    }

    /// Returns the place of an address in a file.
    fn place_in(&mut self, process: &Path, code: &Code, address: u64) -> Option<Place> {
        let find = || Place::find(&inside(process, &code.mapped.key.path), address);
        self.places.entry((code.mapped.key.clone(), address)).or_insert_with(find).clone()
    }
}

/// Returns the stack pointer and the program counter of `/proc/PID/syscall`; `None` if the process runs.
fn registers(text: &str) -> Option<[u64; 2]> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let [.., stack, program] = words[..] else { return None };
    let number = |word: &str| u64::from_str_radix(word.strip_prefix("0x")?, 16).ok();
    Some([number(stack)?, number(program)?])
}

/// A file, as the system knows it: the path may name another one in another container.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Key {
    path: PathBuf,
    /// Device and number.
    file: (String, String),
}

/// A mapped executable file: the program or a library.
struct Mapped {
    key: Key,
    /// From its first to its last byte in memory.
    range: Range<u64>,
    /// Where its code begins in memory, and in the file.
    code: (u64, u64),
}

impl Mapped {
    fn name(&self) -> Cow<'_, str> {
        self.key.path.file_name().unwrap_or_default().to_string_lossy()
    }
}

/// Returns the files in `/proc/PID/maps`.
fn mapped(text: &str) -> Vec<Mapped> {
    let mut files: Vec<Mapped> = Vec::new();
    let mut first: Option<(Key, u64)> = None;
    for line in text.lines() {
        let mut words = line.splitn(6, ' ');
        let mut word = || words.next().unwrap_or_default();
        let (range, rights, offset, device, number, path) = (word(), word(), word(), word(), word(), word());
        let hex = |word: &str| u64::from_str_radix(word, 16).unwrap_or(0);
        let (start, end) = range.split_once('-').map_or((0, 0), |(start, end)| (hex(start), hex(end)));
        let path = PathBuf::from(path.trim_start());
        if !path.is_absolute() {
            continue;
        }
        let key = Key { path, file: (device.to_owned(), number.to_owned()) };
        let begin = match &first {
            Some((other, begin)) if *other == key => *begin,
            _ => start,
        };
        first = Some((key.clone(), begin));
        match files.last_mut().filter(|file| file.key == key) {
            Some(file) => file.range.end = end,
            None if rights.contains('x') => files.push(Mapped { key, range: begin..end, code: (start, hex(offset)) }),
            None => {}
        }
    }
    files
}

/// The addresses of a section, and its bytes.
type Section = Option<(Range<u64>, Rc<[u8]>)>;

/// What unwinding needs of a file.
struct Parts {
    /// Of each segment, the place in the file and the address.
    segments: Vec<(Range<u64>, u64)>,
    text: Option<Range<u64>>,
    table: Option<Range<u64>>,
    frames: Section,
    index: Section,
}

impl Parts {
    fn read(path: &Path) -> Option<Parts> {
        let cache = ReadCache::new(File::open(path).ok()?);
        let file = object::File::parse(&cache).ok()?;
        let segment = |segment: object::Segment<'_, '_, _>| {
            let (begin, length) = segment.file_range();
            (begin..begin + length, segment.address())
        };
        let range = |name: &str| {
            let section = file.section_by_name(name)?;
            Some(section.address()..section.address() + section.size())
        };
        let bytes = |name: &str| Some((range(name)?, Rc::from(file.section_by_name(name)?.data().ok()?)));
        let segments = file.segments().map(segment).collect();
        let (frames, index) = (bytes(".eh_frame"), bytes(".eh_frame_hdr"));
        Some(Parts { segments, text: range(".text"), table: range(".got"), frames, index })
    }
}

/// A mapped file whose frames can be unwound.
struct Code {
    mapped: Mapped,
    /// What is added to the addresses in the file.
    bias: u64,
    parts: Rc<Parts>,
}

impl Code {
    fn module(&self) -> Module<Rc<[u8]>> {
        let Parts { text, table, frames, index, .. } = &*self.parts;
        let split = |part: &Section| part.clone().unzip();
        let ((eh_frame_svma, eh_frame), (eh_frame_hdr_svma, eh_frame_hdr)) = (split(frames), split(index));
        let sections = ExplicitModuleSectionInfo {
            text_svma: text.clone(),
            got_svma: table.clone(),
            eh_frame_svma,
            eh_frame,
            eh_frame_hdr_svma,
            eh_frame_hdr,
            ..ExplicitModuleSectionInfo::default()
        };
        Module::new(self.mapped.name().into_owned(), self.mapped.range.clone(), self.bias, sections)
    }
}

fn is_compressed<'data>(section: &impl ObjectSection<'data>) -> bool {
    section.compressed_file_range().is_ok_and(|range| range.format != CompressionFormat::None)
}

/// Returns a path as the process sees it.
fn inside(process: &Path, path: &Path) -> PathBuf {
    process.join("root").join(path.strip_prefix("/").unwrap_or(path))
}

/// Returns whether a function belongs to the library, which may be part of the program.
fn is_of_the_library(function: &str) -> bool {
    let is_rust = function.starts_with("_R") || function.starts_with("_ZN") && function.contains("17h");
    is_rust || function.starts_with("pvm")
}

/// Returns the addresses of the calls on the stack, the innermost first.
#[cfg(target_arch = "x86_64")]
fn frames(codes: &[Code], program: u64, stack: u64, read: &mut dyn FnMut(u64) -> Result<u64, ()>) -> Vec<u64> {
    use framehop::Unwinder;
    use framehop::x86_64::{CacheX86_64, UnwindRegsX86_64, UnwinderX86_64};
    let mut unwinder = UnwinderX86_64::new();
    codes.iter().for_each(|code| unwinder.add_module(code.module()));
    let mut cache = CacheX86_64::<_>::new();
    let mut read = |address| read(address);
    // The kernel does not show the frame pointer. Functions of the library do not need it.
    let registers = UnwindRegsX86_64::new(program, stack, 0);
    let mut frames = unwinder.iter_frames(program, registers, &mut cache, &mut read);
    let mut found = Vec::new();
    while let (Ok(Some(frame)), true) = (frames.next(), found.len() < FRAMES_MAX) {
        found.push(FrameAddress::address_for_lookup(frame));
    }
    found
}

#[cfg(not(target_arch = "x86_64"))]
fn frames(_: &[Code], _: u64, _: u64, _: &mut dyn FnMut(u64) -> Result<u64, ()>) -> Vec<u64> {
    // Without the other registers nobody can unwind a stack there.
    Vec::new()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registers_and_files_are_read() {
        assert_eq!(registers("202 0x1 0x2 0x3 0x4 0x5 0x6 0x7ffc10 0x7f0a\n"), Some([0x7ffc10, 0x7f0a]));
        assert_eq!(registers("-1 0x7ffc10 0x7f0a\n"), Some([0x7ffc10, 0x7f0a]));
        assert_eq!(registers("running\n"), None);
        let files = mapped(
            "5500-5600 r--p 00000000 08:01 7    /bin/a b\n5600-5700 r-xp 00000100 08:01 7    /bin/a b\n\
             5700-5800 rw-p 00000200 08:01 7    /bin/a b\n7000-8000 rw-p 00000000 00:00 0    [stack]\n\
             9000-9100 rw-p 00000000 00:00 0 \n",
        );
        let [file] = &files[..] else { panic!("{} files", files.len()) };
        assert_eq!(
            (file.key.path.as_path(), file.range.clone(), file.code),
            (Path::new("/bin/a b"), 0x5500..0x5800, (0x5600, 0x100))
        );
    }

    #[test]
    fn a_place_is_named_by_what_is_known() {
        let place = |function: Option<&str>, line: Option<(&str, u32)>| Place {
            function: function.map(str::to_owned),
            line: line.map(|(file, line)| (file.to_owned(), line)),
        };
        assert_eq!(place(Some("solve"), Some(("/src/ring.c", 42))).text().unwrap(), "ring.c:42 (solve)");
        assert_eq!(place(Some("solve"), None).text().unwrap(), "solve");
        assert_eq!(place(None, None).text(), None);
        assert!(is_of_the_library("pvm_recv") && is_of_the_library("pvmfrecv_") && !is_of_the_library("main"));
    }
}
