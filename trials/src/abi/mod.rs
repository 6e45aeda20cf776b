//! `cargo xtask abi`: checks that the libraries keep the binary interface of PVM 3.4.6.
use crate::build::{FMP_SONAME, GROUP_SONAME, SONAME, build_unless_told, exported, files_of, fmp_exports};
use crate::common::{Checks, dist, in_path, output, root};
use crate::contract::{DATA, FMP, FORTRAN, FUNCTIONS};
use crate::counts::Counts;
use crate::debian_pvm;
use crate::elf::{self, Symbol};
use crate::scratch;
use anyhow::{Context, Result, bail, ensure};
use object::SymbolKind;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

mod fortran;

/// The libraries on which hpvm's shared libraries may depend: those that come with the system's C compiler.
const NEEDED_MAY_BE: &[&str] =
    &["libc.so.6", "libgcc_s.so.1", "libm.so.6", "libpthread.so.0", "libdl.so.2", "librt.so.1", "ld-linux"];
/// Debian's packages with programs that use PVM; hpvm does not replace these programs.
const PACKAGES: &[&str] = &["netpipe-pvm", "slang-pvm", "pvm-examples", "pvm-dev", "tablix2"];
/// The compilers and standards with which the headers must compile, at the strictest settings.
const LANGUAGES: &[(&str, &str)] =
    &[("cc", "c89"), ("cc", "c99"), ("cc", "c17"), ("c++", "c++98"), ("c++", "c++17"), ("c++", "c++20")];

/// Runs the command.
pub fn run(arguments: &[String]) -> Result<()> {
    build_unless_told(arguments)?;
    counted(arguments)?.report()
}

/// Runs the command as a part of `cargo xtask test`.
pub fn counted(_arguments: &[String]) -> Result<Counts> {
    let lib = dist().join("lib");
    let mut checks = Checks::default();
    let library = lib.join(SONAME);
    let symbols = elf::dynamic_symbols(&library)?;
    check_symbols(&mut checks, &symbols);
    checks.check("no symbol has a version", has_no_versions(&library));
    check_libraries(&mut checks, &lib);
    check_headers(&mut checks)?;
    check_programs(&mut checks, &lib)?;
    check_users(&mut checks, &symbols)?;
    fortran::check(&mut checks, &lib)?;
    checks.check("sources of pvm-examples compile with our headers as with theirs", sources_compile());
    Ok(checks.counts())
}

type Symbols = BTreeMap<String, Symbol>;

fn check_symbols(checks: &mut Checks, symbols: &Symbols) {
    let defined = |name: &str| -> Result<&Symbol> {
        symbols.get(name).filter(|symbol| symbol.is_defined).with_context(|| format!("{SONAME} has no {name}"))
    };
    for name in FUNCTIONS.iter().chain(FORTRAN) {
        let result = defined(name).and_then(|symbol| {
            ensure!(symbol.kind == SymbolKind::Text, "is {:?}", symbol.kind);
            Ok(())
        });
        checks.check(&format!("function {name}"), result);
    }
    for &(name, bytes) in DATA {
        let result = defined(name).and_then(|symbol| {
            ensure!(symbol.kind == SymbolKind::Data, "is {:?}", symbol.kind);
            ensure!(symbol.bytes == bytes, "has {} bytes, not {bytes}", symbol.bytes);
            Ok(())
        });
        checks.check(&format!("data {name}"), result);
    }
}

fn has_no_versions(library: &Path) -> Result<()> {
    ensure!(!elf::defines_versions(library)?, "it defines versions");
    Ok(())
}

fn is_none(what: &str, names: &[&str]) -> Result<()> {
    ensure!(names.is_empty(), "{what}: {}", names.join(" "));
    Ok(())
}

fn check_libraries(checks: &mut Checks, lib: &Path) {
    let (main, group) = (lib.join(SONAME), lib.join(GROUP_SONAME));
    let fmp = lib.join(FMP_SONAME);
    for (file, soname) in [(&main, SONAME), (&group, GROUP_SONAME), (&fmp, FMP_SONAME)] {
        let result = elf::soname(file).and_then(|name| {
            ensure!(name == soname, "SONAME is {name}");
            Ok(())
        });
        checks.check(&format!("the name in {soname}"), result);
    }
    checks.check("libpvm3 needs nothing but the system's C library", needs_only(&main, &[]));
    checks.check("libfmp needs nothing but libpvm3 and the system's C library", needs_only(&fmp, &[SONAME]));
    let fmp_names = || -> Result<()> {
        let functions = FMP.iter().map(|name| name.to_string()).collect();
        differences(&exported(&fmp_exports())?.into_iter().collect(), &functions)?;
        differences(&elf::defined(&fmp)?, &functions)?;
        differences(&elf::defined_in_archive(&lib.join("libfmp.a"))?, &functions)
    };
    checks.check("libfmp exports the functions of fmp.h and nothing else", fmp_names());
    let group_needs = elf::needed(&group).and_then(|names| {
        ensure!(names == [SONAME], "needs {names:?}");
        let own = elf::defined(&group)?;
        ensure!(own.is_empty(), "has symbols of its own: {own:?}");
        Ok(())
    });
    checks.check("libgpvm3 only refers to libpvm3", group_needs);
    checks.check("libpvm3.so.3 exports exactly the names in exports.map", shows_only_the_map(&main));
    checks.check(
        "libpvm3.a exports exactly the names in exports.map",
        archive_shows_only_the_map(&lib.join("libpvm3.a")),
    );
}

/// Checks that a library depends only on `own` and on libraries of the system.
fn needs_only(library: &Path, own: &[&str]) -> Result<()> {
    let names = elf::needed(library)?;
    let is_known = |name: &str| own.contains(&name) || NEEDED_MAY_BE.iter().any(|known| name.starts_with(known));
    is_none("needs", &names.iter().map(String::as_str).filter(|name| !is_known(name)).collect::<Vec<_>>())
}

fn map() -> Result<BTreeSet<String>> {
    Ok(exported(&root().join("crates/libpvm3/exports.map"))?.into_iter().collect())
}

fn differences(has: &BTreeSet<String>, should_have: &BTreeSet<String>) -> Result<()> {
    let more: Vec<_> = has.difference(should_have).collect();
    let less: Vec<_> = should_have.difference(has).collect();
    ensure!(more.is_empty() && less.is_empty(), "too many: {more:?}, missing: {less:?}");
    Ok(())
}

fn shows_only_the_map(library: &Path) -> Result<()> {
    differences(&elf::defined(library)?, &map()?)
}

fn archive_shows_only_the_map(archive: &Path) -> Result<()> {
    differences(&elf::defined_in_archive(archive)?, &map()?)
}

fn check_headers(checks: &mut Checks) -> Result<()> {
    let scratch = scratch::directory("headers")?;
    let include = root().join("include");
    for &(compiler, standard) in LANGUAGES {
        for (what, source) in [("headers, layouts and numbers", "layout.c"), ("fmp.h", "fmp.c")] {
            let strict = ["-pedantic", "-Wall", "-Wextra", "-Werror", "-c"];
            let result = output(
                Command::new(compiler)
                    .args(["-x", if compiler == "cc" { "c" } else { "c++" }])
                    .arg(format!("-std={standard}"))
                    .args(strict)
                    .arg(format!("-I{}", include.display()))
                    .arg(root().join("tests/abi").join(source))
                    .arg("-o")
                    .arg(scratch.path().join("layout.o")),
            );
            checks.check(&format!("{what} in {standard}"), result.map(drop));
        }
    }
    for header in files_of(&include)?.into_iter().filter(|header| !fortran::is_header(header)) {
        let alone = scratch.path().join("alone.c");
        std::fs::write(&alone, format!("#include \"{}\"\nint nothing;\n", header.display()))?;
        let result = output(
            Command::new("cc")
                .args(["-std=c89", "-pedantic", "-Werror", "-c"])
                .arg(&alone)
                .arg("-o")
                .arg(scratch.path().join("alone.o")),
        );
        checks.check(&format!("{} needs no other header before it", header.display()), result.map(drop));
    }
    Ok(())
}

fn check_programs(checks: &mut Checks, lib: &Path) -> Result<()> {
    let scratch = scratch::directory("programs")?;
    let archive = lib.join("libpvm3.a");
    let with_static: Vec<&str> = vec!["-Wl,-Bstatic", "-lgpvm3", "-lpvm3", "-Wl,-Bdynamic"];
    let whole_path = archive.to_string_lossy();
    let ways: &[(&str, &str, Vec<&str>)] = &[
        ("position independent, shared library", "cc", vec!["-fPIE", "-pie", "-lpvm3"]),
        ("copy relocations, shared library", "cc", vec!["-fno-pic", "-no-pie", "-lpvm3"]),
        ("copy relocations, both shared libraries", "cc", vec!["-fno-pic", "-no-pie", "-lgpvm3", "-lpvm3"]),
        ("libpvm3.a by its path and nothing else", "cc", vec![&whole_path]),
        ("-lgpvm3 -lpvm3, static", "cc", with_static),
        ("a program without shared libraries", "cc", vec!["-static", &whole_path]),
    ];
    for (number, (name, compiler, options)) in ways.iter().enumerate() {
        let program = scratch.path().join(format!("values{number}"));
        checks.check(name, values_are_right(("values.c", compiler), options, lib, &program, scratch.path()));
    }
    let with_fmp: &[(&str, &[&str])] = &[
        ("libfmp alone, shared library", &["-lfmp"]),
        ("libfmp and libpvm3, shared libraries", &["-lfmp", "-lpvm3"]),
        ("libfmp, static", &["-Wl,-Bstatic", "-lfmp", "-lpvm3", "-Wl,-Bdynamic"]),
    ];
    for (number, (name, options)) in with_fmp.iter().enumerate() {
        let program = scratch.path().join(format!("fmp{number}"));
        checks.check(name, values_are_right(("fmp.c", "cc"), options, lib, &program, scratch.path()));
    }
    checks.check("pvm run starts tasks that know libfmp alone", siblings_meet(lib, scratch.path()));
    // A program that is not position independent contains copies of the library's variables; then the program itself
    // defines their names.
    let copied = elf::defined(&scratch.path().join("values1")).and_then(|defined| {
        for name in ["pvm_errno", "pvmctrc", "pvmtevinfo"] {
            ensure!(defined.contains(name), "the program has no copy of {name}: the check above says nothing");
        }
        Ok(())
    });
    checks.check("the program with copy relocations has some", copied);
    for (package, source) in [("pvm3", "values.c"), ("fmp", "fmp.c")] {
        let found = package_config(package, source, lib, scratch.path());
        checks.check(&format!("{package}.pc finds headers and library"), found);
    }
    checks.check("CMake finds headers and libraries", cmake(lib, scratch.path()));
    Ok(())
}

/// Compiles a program of `tests/abi`, given with the compiler, and runs it.
fn values_are_right(
    (source, compiler): (&str, &str),
    options: &[&str],
    lib: &Path,
    program: &Path,
    scratch: &Path,
) -> Result<()> {
    output(
        Command::new(compiler)
            .arg(format!("-I{}", root().join("include").display()))
            .arg(root().join("tests/abi").join(source))
            .arg(format!("-L{}", lib.display()))
            .args(options)
            .arg("-o")
            .arg(program),
    )?;
    run_values(program, lib, scratch)
}

/// Compiles a program and links it to libfmp alone; starts three tasks of it on a machine of their own.
fn siblings_meet(lib: &Path, scratch: &Path) -> Result<()> {
    let program = scratch.join("fmp_siblings");
    output(
        Command::new("cc")
            .arg(format!("-I{}", root().join("include").display()))
            .arg(root().join("tests/abi/fmp_siblings.c"))
            .arg(format!("-L{}", lib.display()))
            .args(["-lfmp", "-o"])
            .arg(&program),
    )?;
    let folder = scratch.join("machine");
    std::fs::create_dir(&folder)?;
    let mut pvm = Command::new(dist().join("bin/pvm"));
    pvm.args(["run", "-np", "3"]).arg(&program);
    pvm.env("LD_LIBRARY_PATH", lib).env("PVM_TMP", &folder).env("HOME", &folder).env_remove("PVMSOCK");
    let printed = output(&mut pvm)?;
    ensure!(printed == "3 tasks, sum 3\n", "it printed {printed:?}");
    Ok(())
}

fn run_values(program: &Path, lib: &Path, scratch: &Path) -> Result<()> {
    let ended =
        Command::new(program).env("LD_LIBRARY_PATH", lib).env("PVM_TMP", scratch).env_remove("PVMSOCK").output()?;
    ensure!(ended.status.success(), "{}: {}", ended.status, String::from_utf8_lossy(&ended.stdout).trim_end());
    let complaint = String::from_utf8_lossy(&ended.stderr);
    ensure!(complaint.is_empty(), "it complains: {complaint}");
    Ok(())
}

fn package_config(package: &str, source: &str, lib: &Path, scratch: &Path) -> Result<()> {
    if !in_path("pkg-config") {
        bail!("pkg-config is missing: cargo xtask setup test");
    }
    let flags = output(
        Command::new("pkg-config").env("PKG_CONFIG_PATH", lib.join("pkgconfig")).args(["--cflags", "--libs", package]),
    )?;
    let program = scratch.join(format!("{package}-by-package-config"));
    output(
        Command::new("cc")
            .arg(root().join("tests/abi").join(source))
            .args(flags.split_whitespace())
            .arg("-o")
            .arg(&program),
    )?;
    // The program finds the library by a path in its own file, not through the environment.
    run_values(&program, Path::new(""), scratch)
}

fn cmake(lib: &Path, scratch: &Path) -> Result<()> {
    if !in_path("cmake") || !in_path("gfortran") {
        bail!("cmake or gfortran is missing: cargo xtask setup test");
    }
    let built = scratch.join("cmake");
    let found = format!("-Dpvm3_DIR={}", lib.join("cmake/pvm3").display());
    output(Command::new("cmake").arg(found).arg("-S").arg(root().join("tests/abi")).arg("-B").arg(&built))?;
    output(Command::new("cmake").arg("--build").arg(&built))?;
    for program in ["c_shared", "c_static", "fortran_fpvm3", "fortran_static"] {
        // The program finds the library by a path in its own file, not through the environment.
        run_values(&built.join(program), Path::new(""), scratch).with_context(|| program.to_owned())?;
    }
    Ok(())
}

/// Checks that our libraries define every PVM name that Debian's programs need.
fn check_users(checks: &mut Checks, symbols: &Symbols) -> Result<()> {
    let Some(theirs) = debian_symbols()? else {
        checks.check("programs of Debian", Err(anyhow::anyhow!("not installed: cargo xtask setup test")));
        return Ok(());
    };
    for package in PACKAGES {
        let mut asked = BTreeSet::new();
        for file in elf_files(package)? {
            let wanted = elf::dynamic_symbols(&file)?.into_iter().filter(|(_, symbol)| !symbol.is_defined);
            asked.extend(wanted.map(|(name, _)| name).filter(|name| theirs.contains(name)));
        }
        let missing: Vec<&str> = asked
            .iter()
            .map(String::as_str)
            .filter(|name| !symbols.get(*name).is_some_and(|symbol| symbol.is_defined))
            .collect();
        checks
            .check(&format!("{} names that programs of {package} ask for", asked.len()), is_none("missing", &missing));
    }
    Ok(())
}

/// Checks that old C sources which compile with Debian's headers also compile with ours.
fn sources_compile() -> Result<()> {
    let archives: Vec<PathBuf> = debian_pvm::files("pvm-examples")
        .context("pvm-examples is missing: cargo xtask setup test")?
        .into_iter()
        .filter(|path| path.to_string_lossy().ends_with("examples.tar.gz"))
        .collect();
    let scratch = scratch::directory("sources")?;
    for archive in &archives {
        output(Command::new("tar").arg("-xzf").arg(archive).arg("-C").arg(scratch.path()))?;
    }
    let mut refused = Vec::new();
    for source in sources_below(scratch.path())? {
        let compiles = |include: &Path| {
            let mut cc = Command::new("cc");
            cc.args(["-std=gnu89", "-w", "-fsyntax-only", "-I"]).arg(include).arg(&source);
            output(&mut cc).is_ok()
        };
        if compiles(&debian_pvm::headers()) && !compiles(&root().join("include")) {
            refused.push(source.display().to_string());
        }
    }
    ensure!(refused.is_empty(), "refused: {}", refused.join(" "));
    Ok(())
}

fn sources_below(directory: &Path) -> Result<Vec<PathBuf>> {
    let mut sources = Vec::new();
    for entry in directory.read_dir()? {
        let path = entry?.path();
        if path.is_dir() {
            sources.extend(sources_below(&path)?);
        } else if path.extension().is_some_and(|ending| ending == "c") {
            sources.push(path);
        }
    }
    Ok(sources)
}

/// Returns the names that Debian's two libraries define, or `None` if the libraries have not been unpacked.
fn debian_symbols() -> Result<Option<BTreeSet<String>>> {
    let Ok(files) = debian_pvm::files("libpvm3") else { return Ok(None) };
    let mut names = BTreeSet::new();
    for file in files.iter().filter(|file| file.to_string_lossy().ends_with(".so.3")) {
        names.extend(elf::defined(file)?);
    }
    Ok(Some(names))
}

fn elf_files(package: &str) -> Result<Vec<PathBuf>> {
    use std::io::Read;
    let is_elf = |path: &PathBuf| {
        let mut magic = [0; 4];
        std::fs::File::open(path).and_then(|mut file| file.read_exact(&mut magic)).is_ok() && magic == *b"\x7fELF"
    };
    let files = debian_pvm::files(package).with_context(|| format!("{package} is missing: cargo xtask setup test"))?;
    // The package of headers also contains Debian's own libraries. hpvm replaces these libraries, so hpvm need not
    // define the names that they use.
    let is_old = |path: &PathBuf| ["libpvm3.so", "libgpvm3.so"].iter().any(|old| path.ends_with(old));
    Ok(files.into_iter().filter(|path| is_elf(path) && !is_old(path)).collect())
}
