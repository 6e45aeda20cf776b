//! Checks of the host on which this process runs.
use super::Finding;
use crate::machine;
use pvm_core::{codes, proto, wire};
use pvm_task::Environment;
use pvm_task::fabric::{Found, look};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create, statvfs};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};
use std::io::Write;
use std::net::{IpAddr, ToSocketAddrs};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

/// Descriptors that the daemon needs for each task, for itself, and the part of all that tasks may take.
const DESCRIPTORS_PER_TASK: u64 = 5;
const OWN_DESCRIPTORS: u64 = 32;
/// The number of tasks that a host should have room for at least.
const TASKS_WANTED: u64 = 16;
/// The largest file, in bytes, that every daemon makes: the table of its host's tasks, in shared memory.
const DAEMON_FILE_BYTES: u64 = (1 << 20) + 4096;
/// The size of shared memory, in bytes, that a task should be able to make.
const SEGMENT_BYTES: u64 = 64 << 20;
/// The address space, in bytes, that a task needs at least: its own segments and those of some others.
const ADDRESS_BYTES: u64 = 4 << 30;
/// Where daemons and tasks open their doorbells and segments again.
const OWN_DESCRIPTORS_PLACE: &str = "/proc/self/fd";
/// Free bytes that sockets and logs need, with a reserve.
const DISK_BYTES: u64 = 4 << 20;
/// The bytes that the check writes to the socket directory.
const PROBE_BYTES: usize = 64 << 10;
/// The longest path of a socket, in bytes.
const SOCKET_PATH_BYTES_MAX: usize = 107;
/// The name of a socket in the socket directory is at most this long, in bytes.
const SOCKET_NAME_BYTES: usize = 32;
/// 1 January 2020, in seconds. A clock that shows an earlier time has not been set.
const YEAR_2020: u64 = 1_577_836_800;
/// The scope of ptrace from which on processes may not read each other.
const PTRACE_SCOPE_CLOSED: u32 = 1;

/// Returns the findings about this host.
pub fn checks() -> Vec<Finding> {
    let mut findings = vec![daemon()];
    findings.push(address());
    findings.push(own_descriptors(Path::new(OWN_DESCRIPTORS_PLACE).is_dir()));
    findings.push(shared_memory());
    findings.extend(limits());
    findings.push(socket_directory());
    findings.push(rendezvous());
    findings.push(clock());
    findings.push(ptrace());
    findings.push(fabric_of(look(&Environment::from_process().fabric)));
    findings
}

/// Returns what was found about the fabric.
fn fabric_of(found: Found) -> Finding {
    let tcp = "messages between hosts take TCP";
    match found {
        Found::Unwanted => Finding::fine("fabric", format!("PVM_FABRIC=off: {tcp}")),
        Found::NoDevice => {
            Finding::fine("fabric", format!("no device of InfiniBand, RoCE, Slingshot or EFA on this host: {tcp}"))
        }
        Found::Works(name, version) => {
            Finding::fine("fabric", format!("{name}, by libfabric {version}, if the other host has it too"))
        }
        Found::Broken(reason, is_named) => {
            let cure = match is_named {
                true => "set PVM_FABRIC to a provider that fi_info lists, or install it; or unset PVM_FABRIC",
                false => "install libfabric (libfabric1) with the provider of this network, or set PVM_FABRIC=off",
            };
            Finding::warning("fabric", format!("{reason}: {tcp}"), cure)
        }
    }
}

/// Checks that there is a daemon, of this version.
fn daemon() -> Finding {
    let Some(program) = machine::daemon_program() else {
        let places: Vec<String> = machine::daemon_places().iter().map(|place| place.display().to_string()).collect();
        let what = format!("pvmd is not installed: it is not in {}, nor in PATH", places.join(", "));
        return Finding::fault("pvmd", what, "install hpvm, or add the directory of pvmd to PATH");
    };
    let output = Command::new(&program).arg("-t").stdin(Stdio::null()).output();
    match output {
        Ok(output) => version(&program.display().to_string(), &String::from_utf8_lossy(&output.stdout)),
        Err(error) => {
            let cure = "make it executable (chmod +x), or install hpvm for this kind of machine";
            Finding::fault("pvmd", format!("{} cannot be started: {error}", program.display()), cure)
        }
    }
}

/// Checks what `pvmd -t` has printed.
pub fn version(program: &str, text: &str) -> Finding {
    let number = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<u32>().ok());
    let first = pvm_core::dialogue::plain(text.lines().next().unwrap_or_default());
    let cure = "install the same hpvm on all hosts, or say where there is one by dx= or PVM_DPATH";
    if !text.contains("(hpvm") {
        let what = format!("{program} is of PVM 3.4.6 or of another program ({first})");
        return Finding::fault("version", what, cure);
    }
    let versions = (number("control protocol "), number("host protocol "));
    if versions != (Some(proto::VERSION), Some(wire::VERSION)) {
        let shown = |number: Option<u32>| number.map_or("unknown".to_owned(), |number| number.to_string());
        let what = format!(
            "{program} speaks versions {} (tasks) and {} (hosts), and this pvm versions {} and {} ({first})",
            shown(versions.0),
            shown(versions.1),
            proto::VERSION,
            wire::VERSION
        );
        return Finding::fault("version", what, cure);
    }
    Finding::fine("version", format!("{program}, {first}, interface of PVM {}", codes::PVM_VERSION))
}

/// Checks that the name of this host leads to an address that other hosts can reach.
fn address() -> Finding {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let found: Vec<IpAddr> =
        (name.as_str(), 0).to_socket_addrs().map(|all| all.map(|one| one.ip()).collect()).unwrap_or_default();
    address_of(&name, &found)
}

fn address_of(name: &str, found: &[IpAddr]) -> Finding {
    let shown = found.iter().map(IpAddr::to_string).collect::<Vec<_>>().join(", ");
    if found.is_empty() {
        let what = format!("the name of this host, {name}, has no address");
        return Finding::warning("name", what, "put it into /etc/hosts or DNS, so that hosts can be added by it");
    }
    if found.iter().all(IpAddr::is_loopback) {
        let what = format!(
            "the name of this host, {name}, leads to {shown}, which is another host on each host; daemons exchange \
             their addresses without it, but a host that has the same entry cannot add this one by its name"
        );
        let cure = "in /etc/hosts, give the name the address of a network, not that of loopback";
        return Finding::warning("name", what, cure);
    }
    Finding::fine("name", format!("{name} is {shown}"))
}

/// Checks whether a process finds its own descriptors.
fn own_descriptors(are_there: bool) -> Finding {
    match are_there {
        true => Finding::fine("proc", "/proc is mounted"),
        false => Finding::fault(
            "proc",
            "/proc is not mounted: neither daemons nor tasks can make their doorbells",
            "mount it (as root: mount -t proc proc /proc), or let the container have one",
        ),
    }
}

/// Checks that shared memory can be made.
fn shared_memory() -> Finding {
    // A file beyond the limit of sizes would end this process by a signal; the check of limits reports that limit.
    let allowed = getrlimit(Resource::Fsize).current.unwrap_or(u64::MAX);
    let bytes = SEGMENT_BYTES.min(allowed);
    let made = memfd_create("hpvm-doctor", MemfdFlags::CLOEXEC).and_then(|file| ftruncate(&file, bytes));
    match made {
        Ok(()) => Finding::fine("memory", "shared memory can be made"),
        Err(errno) => Finding::warning(
            "memory",
            format!("memfd_create fails ({errno}): shared memory is made of files in /dev/shm or the socket directory"),
            "allow memfd_create (a filter of system calls of the container may forbid it)",
        ),
    }
}

/// Checks the limits of processes.
fn limits() -> Vec<Finding> {
    let mut findings = Vec::new();
    let files = getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX);
    let tasks = (files / 4 * 3).saturating_sub(OWN_DESCRIPTORS) / DESCRIPTORS_PER_TASK;
    findings.push(match tasks < TASKS_WANTED {
        true => Finding::fault(
            "descriptors",
            format!("the limit of open files is {files}, which is enough for {tasks} tasks only"),
            "raise it (ulimit -Hn, or nofile in /etc/security/limits.conf) before pvmd is started",
        ),
        false => Finding::fine("descriptors", format!("{files} open files")),
    });
    let below = |resource: Resource, wanted: u64| getrlimit(resource).current.filter(|limit| *limit < wanted);
    findings.push(file_size(getrlimit(Resource::Fsize).current));
    findings.push(match below(Resource::As, ADDRESS_BYTES) {
        Some(limit) => Finding::warning(
            "addresses",
            format!(
                "the limit of the address space is {limit} bytes: tasks that map the memory of many others reach it"
            ),
            "lift it (ulimit -v unlimited) before pvmd is started",
        ),
        None => Finding::fine("addresses", "the address space is large enough"),
    });
    findings
}

/// Checks the limit of the size of files, in bytes.
fn file_size(limit: Option<u64>) -> Finding {
    let cure = "lift it (ulimit -f unlimited) before pvmd is started";
    match limit.filter(|limit| *limit < SEGMENT_BYTES) {
        Some(limit) if limit < DAEMON_FILE_BYTES => Finding::fault(
            "filesize",
            format!("the limit of the size of files is {limit} bytes: no daemon can make its files"),
            cure,
        ),
        Some(limit) => Finding::warning(
            "filesize",
            format!(
                "the limit of the size of files is {limit} bytes, also for shared memory: longer messages fail with PvmNoMem"
            ),
            cure,
        ),
        None => Finding::fine("filesize", "files, and so shared memory, may be large"),
    }
}

/// Checks that sockets and logs can be written.
fn socket_directory() -> Finding {
    let directory = Environment::from_process().places.temporary;
    let shown = directory.display();
    if directory.as_os_str().len() + SOCKET_NAME_BYTES > SOCKET_PATH_BYTES_MAX {
        let what = format!("the path of the socket directory, {shown}, is too long for a socket");
        return Finding::fault("directory", what, "set PVM_TMP to a directory with a short path");
    }
    match probe(&directory) {
        Err(error) if error.raw_os_error() == Some(Errno::NOSPC.raw_os_error()) => full(&directory, 0),
        Err(error) if error.raw_os_error() == Some(Errno::DQUOT.raw_os_error()) => Finding::fault(
            "disk",
            format!("the quota of the socket directory, {shown}, is used up"),
            "remove files there, or set PVM_TMP to a directory with room",
        ),
        Err(error) => Finding::fault(
            "directory",
            format!("the socket directory, {shown}, cannot be written: {error}"),
            "make it, and make it writable for you, or set PVM_TMP to another directory",
        ),
        Ok(()) => match statvfs(&directory) {
            Ok(disk) if disk.f_bavail.saturating_mul(disk.f_frsize) < DISK_BYTES => {
                full(&directory, disk.f_bavail.saturating_mul(disk.f_frsize))
            }
            _ => Finding::fine("disk", format!("{shown} has room")),
        },
    }
}

fn full(directory: &Path, free: u64) -> Finding {
    Finding::fault(
        "disk",
        format!("the disk of the socket directory, {}, is full: {free} bytes are free", directory.display()),
        "remove files there, or set PVM_TMP to a directory with room",
    )
}

/// Writes a file to the directory and removes it.
fn probe(directory: &Path) -> std::io::Result<()> {
    // A file beyond the limit of sizes would end this process by a signal; the check of limits reports that limit.
    let bytes =
        vec![0; getrlimit(Resource::Fsize).current.map_or(PROBE_BYTES, |limit| PROBE_BYTES.min(limit as usize))];
    let path = directory.join(format!(".hpvm-doctor.{}", std::process::id()));
    let result = std::fs::File::create_new(&path).and_then(|mut file| file.write_all(&bytes));
    // If the file was not made, it is not removed either.
    let _ = std::fs::remove_file(&path);
    result
}

/// Checks the file that tells tasks where the daemon is: no file of another user may have its name.
fn rendezvous() -> Finding {
    let own = rustix::process::geteuid().as_raw();
    let files = Environment::from_process().places.files;
    let owner = |file: &Path| std::fs::symlink_metadata(file).ok().map(|data| data.uid()).filter(|uid| *uid != own);
    match files.first().and_then(|file| Some((file, owner(file)?))) {
        Some((file, owner)) => Finding::warning(
            "file",
            format!(
                "{} belongs to user {owner}; hpvm uses another name, and programs of PVM 3.4.6 fail",
                file.display()
            ),
            "let that user or the administrator remove the file, or set PVM_TMP or PVM_VMID",
        ),
        None => Finding::fine("file", "the file of the machine belongs to nobody else"),
    }
}

/// Checks that the clock has been set.
fn clock() -> Finding {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    match now.as_secs() < YEAR_2020 {
        true => Finding::warning("clock", "the clock of this host was never set", "set it (chrony, systemd-timesyncd)"),
        false => Finding::fine("clock", "the clock of this host is set"),
    }
}

/// Checks whether tasks may read each other's memory.
fn ptrace() -> Finding {
    let scope = std::fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope");
    ptrace_scope(scope.ok().and_then(|text| text.trim().parse().ok()))
}

fn ptrace_scope(scope: Option<u32>) -> Finding {
    match scope.filter(|scope| *scope >= PTRACE_SCOPE_CLOSED) {
        Some(scope) => Finding::warning(
            "ptrace",
            format!(
                "kernel.yama.ptrace_scope is {scope}: tasks cannot read each other, so messages of 32 MiB and more are \
                 copied twice"
            ),
            "set it to 0 (sysctl kernel.yama.ptrace_scope=0) if that is worth it: then programs of a user may read each \
             other",
        ),
        None => Finding::fine("ptrace", "tasks may read each other"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::State;
    use super::*;

    #[test]
    fn a_limit_of_file_sizes_at_which_no_daemon_starts_is_a_fault() {
        assert_eq!(file_size(Some(0)).state, State::Fault);
        assert_eq!(file_size(Some(DAEMON_FILE_BYTES)).state, State::Warning);
        assert_eq!((file_size(Some(SEGMENT_BYTES)).state, file_size(None).state), (State::Fine, State::Fine));
    }

    #[test]
    fn a_host_without_proc_is_reported_with_a_cure() {
        let finding = own_descriptors(false);
        assert!(finding.state == State::Fault && finding.cure.contains("mount -t proc proc /proc"), "{finding:?}");
        assert_eq!(own_descriptors(true).state, State::Fine);
    }

    #[test]
    fn a_fabric_that_the_user_has_named_and_that_is_not_there_is_reported_with_a_cure() {
        let named = fabric_of(Found::Broken("looked for the provider psm9".into(), true));
        assert!(named.cure.contains("unset PVM_FABRIC"), "{named:?}");
        assert!(named.what.ends_with("messages between hosts take TCP"), "{}", named.what);
        for found in [Found::Unwanted, Found::NoDevice, Found::Works("tcp;eth0".into(), "1.17".into())] {
            assert!(fabric_of(found).cure.is_empty());
        }
    }

    #[test]
    fn a_daemon_of_another_version_is_named() {
        let (tasks, hosts) = (proto::VERSION, wire::VERSION);
        let of = |text: &str| version("/x/pvmd", text);
        let good =
            format!("pvmd 0.1.0 (hpvm, interface of PVM 3.4.6)\ncontrol protocol {tasks}\nhost protocol {hosts}\n");
        assert_eq!(of(&good).state, State::Fine);
        let other = good.replace(&format!("host protocol {hosts}"), &format!("host protocol {}", hosts + 1));
        let finding = of(&other);
        assert_eq!((finding.state, finding.check.as_str()), (State::Fault, "version"));
        assert!(finding.what.contains(&format!("{} (hosts)", hosts + 1)), "{}", finding.what);
        assert!(of("3.4.6\n1318\n").what.contains("of PVM 3.4.6"));
        assert!(of("").what.contains("of PVM 3.4.6"));
    }

    #[test]
    fn a_loopback_address_is_of_no_use_to_other_hosts() {
        let of =
            |text: &str| address_of("h", &text.split_whitespace().map(|one| one.parse().unwrap()).collect::<Vec<_>>());
        assert_eq!(of("127.0.1.1 ::1").state, State::Warning);
        assert_eq!(of("127.0.1.1 10.0.0.1").state, State::Fine);
        assert!(of("").what.contains("has no address"));
    }

    #[test]
    fn processes_that_may_not_be_read_are_a_loss() {
        assert_eq!([None, Some(0)].map(|scope| ptrace_scope(scope).state), [State::Fine; 2]);
        assert_eq!([Some(1), Some(3)].map(|scope| ptrace_scope(scope).state), [State::Warning; 2]);
    }
}
