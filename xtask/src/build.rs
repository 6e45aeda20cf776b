//! `cargo xtask build`: compiles everything and makes the distribution tree (`target/dist`).
//!
//! The libraries are linked here and not by cargo: a shared library linked by cargo hides the symbols of C sources, and
//! a static library made by cargo exports all symbols of Rust.
use crate::common::{cargo, dist, output, root, sh};
use crate::contract::FORTRAN;
use crate::scratch;
use anyhow::{Context, Result, bail};
use std::fs;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

/// The shared library; its number is that of PVM 3.4's library.
pub const SONAME: &str = "libpvm3.so.3";
/// The library that contains the group functions in PVM 3.4; in hpvm, [`SONAME`] contains them.
pub const GROUP_SONAME: &str = "libgpvm3.so.3";
/// The shared library of FMP. It contains only jumps to functions of [`SONAME`].
pub const FMP_SONAME: &str = "libfmp.so.1";
/// The thread functions to which the runtime libraries of Fortran and C++ have weak references. If a program contains
/// one of these functions, the runtime libraries assume that the program has threads, and call all of the functions.
/// Our library contains some of them. So a statically linked program must contain all of them; otherwise it would crash
/// when the runtime libraries call one that is missing.
#[rustfmt::skip]
const THREAD_FUNCTIONS: &[&str] = &[
    "pthread_cancel", "pthread_cond_broadcast", "pthread_cond_destroy", "pthread_cond_init", "pthread_cond_signal",
    "pthread_cond_timedwait", "pthread_cond_wait", "pthread_create", "pthread_detach", "pthread_equal",
    "pthread_getspecific", "pthread_join", "pthread_key_create", "pthread_key_delete", "pthread_mutex_destroy",
    "pthread_mutex_init", "pthread_mutex_lock", "pthread_mutex_timedlock", "pthread_mutex_trylock",
    "pthread_mutex_unlock", "pthread_mutexattr_destroy", "pthread_mutexattr_init", "pthread_mutexattr_settype",
    "pthread_once", "pthread_rwlock_rdlock", "pthread_rwlock_trywrlock", "pthread_rwlock_unlock",
    "pthread_rwlock_wrlock", "pthread_self", "pthread_setspecific", "sched_yield",
];
/// The programs, by cargo's names.
const PROGRAMS: &[&str] = &["pvm", DAEMON, "pvmgetarch"];
const DAEMON: &str = "pvmd";
/// The program in C whose tasks `pvm bench` starts.
const TASKS_OF_BENCH: &str = "pvmbench";

/// `PVM_ROOT`, relative to the prefix.
pub const CLASSIC_ROOT: &str = "lib/pvm3";

/// The option with which commands use the distribution tree as it is, and build nothing.
pub const AS_IT_IS: &str = "--as-it-is";

/// Makes the distribution tree, unless the arguments contain [`AS_IT_IS`].
pub fn build_unless_told(arguments: &[String]) -> Result<()> {
    if arguments.iter().any(|argument| argument == AS_IT_IS) { Ok(()) } else { build() }
}

/// Runs the command.
pub fn run(_arguments: &[String]) -> Result<()> {
    build()
}

/// Makes the distribution tree; fast if nothing has changed.
pub fn build() -> Result<()> {
    let began = SystemTime::now();
    let (built, tree) = (compile(&["--lib", "--bins"])?, dist());
    place_core(&built, PROGRAMS, &tree)?;
    fmp_libraries(&built.join("libfmp.a"), &tree.join("lib"))?;
    tasks_of_bench(&tree)?;
    for page in files_of(&root().join("man"))? {
        let section = page.extension().context("a man page ends in its section")?.to_string_lossy().into_owned();
        let directory = tree.join("share/man").join(format!("man{section}"));
        fs::create_dir_all(&directory)?;
        place(&page, &directory.join(name_of(&page)), 0o644)?;
    }
    crate::man::write(&tree.join("share/man/man3"))?;
    for file in ["pvm3.pc", "fmp.pc"] {
        place(&root().join("dist").join(file), &tree.join("lib/pkgconfig").join(file), 0o644)?;
    }
    let cmake = tree.join("lib/cmake/pvm3");
    fs::create_dir_all(&cmake)?;
    for file in files_of(&root().join("dist/cmake"))? {
        place(&file, &cmake.join(name_of(&file)), 0o644)?;
    }
    place(&root().join("dist/aimk"), &tree.join("bin/aimk"), 0o755)?;
    completions(&tree)?;
    classic_tree(&tree)?;
    note(began)
}

/// Makes the part of the distribution tree that a program needs: the library, the headers and the daemon. The console is
/// not among it: to link it takes as long as to link the daemon.
pub fn build_core() -> Result<()> {
    place_core(&compile(&["--lib", "--bin", DAEMON])?, &[DAEMON], &dist())
}

/// Compiles these targets for the distribution, and returns the directory with them. The packages are always the same:
/// so are the features of what they use, and nothing is compiled twice.
fn compile(targets: &[&str]) -> Result<PathBuf> {
    let mut cargo = cargo();
    // The first build takes minutes, so its progress is shown; later, only to a person at a terminal.
    if !std::io::stderr().is_terminal() && dist().join("lib").join(SONAME).exists() {
        cargo.arg("--quiet");
    }
    cargo.args(["build", "--release", "--package", "libpvm3", "--package", "libfmp"]);
    sh(cargo.args(["--package", "pvmd", "--package", "pvm-tools"]).args(targets))?;
    Ok(target_directory()?.join("release"))
}

/// Puts these programs, the library and the headers into the tree.
fn place_core(built: &Path, names: &[&str], tree: &Path) -> Result<()> {
    for directory in ["bin", "lib/pkgconfig", "include", "share"] {
        fs::create_dir_all(tree.join(directory))
            .with_context(|| format!("cannot make {directory} in {}", tree.display()))?;
    }
    programs(built, names, &tree.join("bin"))?;
    libraries(&built.join("libpvm3.a"), &tree.join("lib"))?;
    for header in files_of(&root().join("include"))? {
        place(&header, &tree.join("include").join(name_of(&header)), 0o644)?;
    }
    Ok(())
}

/// Writes for `dist/install.sh`, which calls no cargo as root, when the build began and which program installs it.
fn note(began: SystemTime) -> Result<()> {
    let note = root().join("target/built");
    if dist() != root().join("target/dist") {
        return Ok(());
    }
    // Further commands build too, in programs beside this one, which do not install.
    let program = std::env::current_exe()?.with_file_name("xtask");
    fs::write(&note, program.as_os_str().as_encoded_bytes())?;
    Ok(fs::File::options().write(true).open(&note)?.set_modified(began)?)
}

/// Writes the completions of `pvm` to the directories where the packages of the shells look for them.
fn completions(tree: &Path) -> Result<()> {
    for (shell, file) in [
        ("bash", "share/bash-completion/completions/pvm"),
        ("zsh", "share/zsh/site-functions/_pvm"),
        ("fish", "share/fish/vendor_completions.d/pvm.fish"),
    ] {
        let path = tree.join(file);
        fs::create_dir_all(path.parent().context("a file is in a directory")?)?;
        fs::write(path, output(Command::new(tree.join("bin/pvm")).args(["completions", shell]))?)?;
    }
    Ok(())
}

/// Makes the directories that old makefiles and host files expect below `PVM_ROOT`. The directories contain no shared
/// libraries: a program that is linked to a library there would not find the library when the program starts.
fn classic_tree(tree: &Path) -> Result<()> {
    let architecture = output(&mut Command::new(tree.join("bin/pvmgetarch")))?;
    let architecture = architecture.trim();
    let classic = tree.join(CLASSIC_ROOT);
    let libraries = classic.join("lib").join(architecture);
    for directory in [&classic.join("bin").join(architecture), &classic.join("conf"), &libraries] {
        fs::create_dir_all(directory)?;
    }
    for program in ["aimk", "pvm", "pvmd", "pvmgetarch"] {
        link(format!("../../../bin/{program}"), &classic.join("lib").join(program))?;
    }
    for (name, program) in [("pvm", "pvm"), ("pvmd3", "pvmd")] {
        link(format!("../../../../bin/{program}"), &libraries.join(name))?;
    }
    for archive in ["libpvm3.a", "libgpvm3.a", "libfpvm3.a"] {
        link(format!("../../../{archive}"), &libraries.join(archive))?;
    }
    link("../../include", &classic.join("include"))?;
    link("../../share/man", &classic.join("man"))?;
    // A host whose installation has another prefix looks for programs to spawn here.
    link(format!("../../../../bin/{TASKS_OF_BENCH}"), &classic.join("bin").join(architecture).join(TASKS_OF_BENCH))?;
    let settings = fs::read_to_string(root().join("dist/arch.def"))?.replace("@PVM_ARCH@", architecture);
    Ok(fs::write(classic.join("conf").join(format!("{architecture}.def")), settings)?)
}

/// Returns cargo's target directory.
pub fn target_directory() -> Result<PathBuf> {
    let metadata = output(cargo().args(["metadata", "--no-deps", "--offline", "--format-version", "1"]))?;
    let start = metadata.split_once("\"target_directory\":\"").context("cargo metadata names no target directory")?.1;
    Ok(PathBuf::from(start.split('"').next().unwrap_or_default()))
}

/// Returns the major version of the compiler's LLVM.
pub fn llvm_version() -> Result<String> {
    let version = compiler()?;
    let llvm = version.lines().find_map(|line| line.strip_prefix("LLVM version: "));
    Ok(llvm.and_then(|llvm| llvm.split('.').next()).context("rustc names no LLVM")?.to_owned())
}

/// Returns the output of `rustc -vV`.
pub fn compiler() -> Result<String> {
    output(Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into())).arg("-vV"))
}

fn programs(built: &Path, names: &[&str], bin: &Path) -> Result<()> {
    for program in names {
        let (from, to) = (built.join(program), bin.join(program));
        if is_newer(&from, &to) {
            let stripped = to.with_extension("new");
            sh(Command::new("objcopy").arg("--strip-debug").arg(&from).arg(&stripped))?;
            fs::rename(&stripped, &to)?;
        }
    }
    Ok(())
}

/// Compiles the tasks of `pvm bench`. They always use the library of their own installation, whatever
/// `LD_LIBRARY_PATH` says.
fn tasks_of_bench(tree: &Path) -> Result<()> {
    let source = |name: &str| root().join("bench").join(name);
    let inputs = [source("pvmbench.c"), source("pvmbench.h"), source("bench.h"), root().join("xtask/src/build.rs")];
    let program = tree.join("bin").join(TASKS_OF_BENCH);
    if !inputs.iter().any(|input| is_newer(input, &program)) {
        return Ok(());
    }
    compile_tasks_of_bench("cc", &tree.join("include"), tree)
}

/// Compiles that program for a tree, whose library it uses, with headers from another place.
pub fn compile_tasks_of_bench(compiler: &str, include: &Path, tree: &Path) -> Result<()> {
    let program = tree.join("bin").join(TASKS_OF_BENCH);
    let scratch = scratch::directory("pvmbench")?;
    let made = scratch.path().join(TASKS_OF_BENCH);
    let mut cc = Command::new(compiler);
    cc.args(["-std=gnu99", "-O2", "-Wall", "-Wextra", "-Wl,--strip-debug", "-o"]).arg(&made);
    cc.arg(root().join("bench/pvmbench.c")).arg("-I").arg(include).arg(tree.join("lib").join(SONAME));
    sh(cc.args(["-Wl,--disable-new-dtags", "-Wl,-rpath,$ORIGIN/../lib"]))?;
    place(&made, &program, 0o755)
}

/// Returns the file with the exported symbols of libpvm3.
fn exports() -> PathBuf {
    root().join("crates/libpvm3/exports.map")
}

/// Returns the file with the exported symbols of libfmp.
pub fn fmp_exports() -> PathBuf {
    root().join("crates/libfmp/exports.map")
}

fn libraries(archive: &Path, lib: &Path) -> Result<()> {
    let map = exports();
    let this_file = root().join("xtask/src/build.rs");
    let inputs = [archive, &map, &this_file];
    if inputs.iter().any(|input| is_newer(input, &lib.join(SONAME))) {
        static_library(archive, &exported(&map)?, lib)?;
        // The shared library is made last, so its modification time shows that all libraries have been made.
        shared_library("cc", archive, lib, &[])?;
    }
    link(SONAME, &lib.join("libpvm3.so"))?;
    link(GROUP_SONAME, &lib.join("libgpvm3.so"))
}

fn fmp_libraries(archive: &Path, lib: &Path) -> Result<()> {
    let map = fmp_exports();
    let this_file = root().join("xtask/src/build.rs");
    let inputs = [archive, &map, &this_file];
    if inputs.iter().any(|input| is_newer(input, &lib.join(FMP_SONAME))) {
        let scratch = scratch::directory("archive")?;
        let (object, made) = (scratch.path().join("fmp.o"), scratch.path().join("libfmp.a"));
        one_object(archive, &exported(&map)?, &[], &object)?;
        sh(Command::new("ar").arg("rcs").arg(&made).arg(&object))?;
        place(&made, &lib.join("libfmp.a"), 0o644)?;
        fmp_shared_library("cc", archive, lib)?;
    }
    link(FMP_SONAME, &lib.join("libfmp.so"))
}

/// Links the shared library of FMP, which needs the one of PVM in the same directory.
pub fn fmp_shared_library(compiler: &str, archive: &Path, lib: &Path) -> Result<()> {
    let scratch = scratch::directory("link")?;
    let made = scratch.path().join(FMP_SONAME);
    sh(shared(compiler, FMP_SONAME, &made)
        .args(["-static-libgcc", "-Wl,--gc-sections", "-Wl,--as-needed", "-Wl,--whole-archive"])
        .arg(archive)
        .args(["-Wl,--no-whole-archive", "-Wl,-rpath,$ORIGIN"])
        .arg(lib.join(SONAME))
        .arg(format!("-Wl,--version-script={}", fmp_exports().display())))?;
    place(&made, &lib.join(FMP_SONAME), 0o644)
}

/// Returns a linker command with the options of all our shared libraries.
fn shared(compiler: &str, soname: &str, to: &Path) -> Command {
    let mut cc = Command::new(compiler);
    cc.args(["-shared", "-Wl,-z,now", "-Wl,-z,relro", "-Wl,-z,noexecstack", "-Wl,-z,defs", "-Wl,--strip-debug"]);
    cc.arg(format!("-Wl,-soname,{soname}")).arg("-o").arg(to);
    cc
}

/// Links the shared libraries with a C compiler for the machine on which they will run, and with these further options.
pub fn shared_library(compiler: &str, archive: &Path, lib: &Path, options: &[&str]) -> Result<()> {
    let map = exports();
    let scratch = scratch::directory("link")?;
    let main = scratch.path().join(SONAME);
    sh(shared(compiler, SONAME, &main)
        // The library includes the compiler's helper functions, so that each task loads one library less.
        .args(["-static-libgcc", "-Wl,--gc-sections", "-Wl,--whole-archive"])
        .arg(archive)
        .arg("-Wl,--no-whole-archive")
        .arg(format!("-Wl,--version-script={}", map.display()))
        .args(options))?;
    // All of PVM is in one library: with two copies of PVM's state, a process could become two tasks. The other library
    // contains nothing, and exists because programs refer to its name. (zig links nothing that has no source.)
    let (group, nothing) = (scratch.path().join(GROUP_SONAME), scratch.path().join("nothing.c"));
    fs::write(&nothing, "")?;
    sh(shared(compiler, GROUP_SONAME, &group)
        .args(["-nostdlib", "-Wl,--no-as-needed", "-Wl,-rpath,$ORIGIN"])
        .args([&nothing, &main]))?;
    place(&group, &lib.join(GROUP_SONAME), 0o644)?;
    place(&main, &lib.join(SONAME), 0o644)
}

/// Makes the static libraries. They contain one object, which exports only PVM's names, so that it conflicts with no
/// other library, such as one in Rust.
fn static_library(archive: &Path, exported: &[String], lib: &Path) -> Result<()> {
    let scratch = scratch::directory("archive")?;
    let kept = scratch.path().join("pvm3.o");
    one_object(archive, exported, THREAD_FUNCTIONS, &kept)?;
    // A program may define Fortran's symbols itself, since they are in a separate library in PVM 3.4.
    let weak = scratch.path().join("weak");
    fs::write(&weak, FORTRAN.join("\n"))?;
    sh(Command::new("objcopy").arg(format!("--weaken-symbols={}", weak.display())).arg(&kept))?;
    // The first archive contains everything; the others are empty, and exist because makefiles refer to their names.
    let archives = [("libpvm3.a", Some(&kept)), ("libgpvm3.a", None), ("libfpvm3.a", None)];
    for (name, object) in archives {
        let made = scratch.path().join(name);
        sh(Command::new("ar").arg("rcs").arg(&made).args(object))?;
        place(&made, &lib.join(name), 0o644)?;
    }
    Ok(())
}

/// Makes one object of an archive, with the code that the exported functions need. The object exports only these
/// functions, and contains `also` from the C library.
fn one_object(archive: &Path, exported: &[String], also: &[&str], to: &Path) -> Result<()> {
    let scratch = scratch::directory("object")?;
    let (all, names) = (scratch.path().join("all.o"), scratch.path().join("names"));
    fs::write(&names, exported.join("\n"))?;
    let mut ld = Command::new("ld");
    // Without `--force-group-allocation`, the object would share symbols with the user's Rust program.
    ld.args(["-r", "--gc-sections", "--force-group-allocation"]).arg("-o").arg(&all);
    for name in exported.iter().map(String::as_str).chain(also.iter().copied()) {
        ld.arg(format!("--undefined={name}"));
    }
    sh(ld.arg("--whole-archive").arg(archive))?;
    sh(Command::new("objcopy")
        .args(["--strip-debug", "--remove-section=.llvmbc", "--remove-section=.llvmcmd"])
        .arg(format!("--keep-global-symbols={}", names.display()))
        .arg(&all)
        .arg(to))
}

/// Returns the names in the `global:` part of the linker's version script.
pub fn exported(map: &Path) -> Result<Vec<String>> {
    let text = fs::read_to_string(map).with_context(|| format!("cannot read {}", map.display()))?;
    let names = names_of_map(&text);
    if names.is_empty() {
        bail!("{} names nothing", map.display());
    }
    Ok(names)
}

fn names_of_map(text: &str) -> Vec<String> {
    let without_comments: String = text.lines().map(|line| line.split('#').next().unwrap_or_default()).collect();
    let mut rest = without_comments.as_str();
    let mut bare = String::new();
    while let Some((before, comment)) = rest.split_once("/*") {
        bare.push_str(before);
        rest = comment.split_once("*/").map_or("", |(_, after)| after);
    }
    bare.push_str(rest);
    let Some((_, global)) = bare.split_once("global:") else { return Vec::new() };
    let global = global.split("local:").next().unwrap_or_default();
    global.split(';').map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

/// Replaces a file atomically with a copy of another one, so that a running program keeps the old file.
pub fn place(from: &Path, to: &Path, mode: u32) -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    let new = to.with_file_name(format!(".{}.new", name_of(to)));
    let copied = fs::copy(from, &new).and_then(|_| fs::set_permissions(&new, fs::Permissions::from_mode(mode)));
    let placed = copied.and_then(|()| fs::rename(&new, to));
    if placed.is_err() {
        // A part of a file, on a disk that is full.
        let _ = fs::remove_file(&new);
    }
    placed.with_context(|| format!("cannot copy {} to {}", from.display(), to.display()))
}

/// Makes a symbolic link, and replaces an existing file of that name.
pub fn link(target: impl AsRef<Path>, at: &Path) -> Result<()> {
    let new = at.with_file_name(format!(".{}.new", name_of(at)));
    match fs::remove_file(&new) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error.into()),
        _ => {}
    }
    std::os::unix::fs::symlink(target, &new)?;
    fs::rename(&new, at).with_context(|| format!("cannot make {}", at.display()))
}

/// Returns whether `made` is missing or older than `input`.
pub fn is_newer(input: &Path, made: &Path) -> bool {
    let time = |path: &Path| path.metadata().and_then(|data| data.modified()).ok();
    match (time(input), time(made)) {
        (Some(input), Some(made)) => input >= made,
        _ => true,
    }
}

/// Returns the files of a directory, without its directories, sorted.
pub fn files_of(directory: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in directory.read_dir().with_context(|| format!("cannot read {}", directory.display()))? {
        let path = entry?.path();
        if path.is_file() {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

fn name_of(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_of_a_version_script_are_its_globals_without_comments() {
        let text =
            "# head\n{\n  global:\n    pvm_send; # to a task\n    /* data; of sizes */ pvm_errno;\n  local: *;\n};\n";
        assert_eq!(names_of_map(text), ["pvm_send", "pvm_errno"]);
    }
}
