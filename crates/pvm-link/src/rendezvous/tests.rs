use super::*;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::sync::atomic::{AtomicU32, Ordering};

/// A directory for one test, which is removed at the end.
struct Directory(PathBuf);

impl Directory {
    fn new() -> Directory {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("pvm-link-test-{}-{number}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        Directory(path)
    }
    fn places(&self) -> Places {
        let home = self.0.join("home");
        let _ = std::fs::create_dir(&home);
        let user = rustix::process::geteuid().as_raw();
        Places::new(user, OsStr::new("host"), |name| match name {
            "PVM_TMP" => Some(self.0.clone().into()),
            "HOME" => Some(home.clone().into()),
            _ => None,
        })
    }
    fn listen(&self, name: &str) -> (PathBuf, UnixListener) {
        let path = self.0.join(name);
        let listener = UnixListener::bind(&path).unwrap();
        (path, listener)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn names_are_those_of_the_contract() {
    let set = |name: &str| match name {
        "PVM_VMID" => Some("a/b".into()),
        "XDG_RUNTIME_DIR" => Some("/run/user/7".into()),
        "HOME" => Some("/home/me".into()),
        "PVMSOCK" => Some("7f000001:1234".into()),
        _ => None,
    };
    let places = Places::new(7, OsStr::new("alfa"), set);
    let names: Vec<_> = places.files.iter().map(|file| file.to_str().unwrap()).collect();
    assert_eq!(names, ["/tmp/pvmd.7.a_b", "/run/user/7/pvmd.7.a_b", "/home/me/.pvmd.7.alfa.a_b"]);
    assert_eq!(places.socket, None);
    let places = Places::new(0, OsStr::new("alfa"), |_| None);
    assert_eq!(places.files, [Path::new("/tmp/pvmd.0")]);
}

#[test]
fn a_published_daemon_is_found_and_its_file_private() {
    let directory = Directory::new();
    let places = directory.places();
    assert_eq!(places.connect().err(), Some(FindError::Absent));
    let (path, _listener) = directory.listen("s");
    let published = places.publish(&path).unwrap();
    assert_eq!(published.file(), places.files[0]);
    let status = std::fs::metadata(published.file()).unwrap();
    assert_eq!((status.permissions().mode() & 0o7777, status.uid()), (0o600, rustix::process::geteuid().as_raw()));
    assert_eq!(std::fs::read(published.file()).unwrap(), path.as_os_str().as_bytes());
    assert!(places.connect().is_ok() && published.is_current());
    drop(published);
    assert!(!places.files[0].exists());
}

#[test]
fn a_second_daemon_is_refused() {
    let directory = Directory::new();
    let (path, _listener) = directory.listen("s");
    let _published = directory.places().publish(&path).unwrap();
    let (other, _other_listener) = directory.listen("t");
    assert!(matches!(directory.places().publish(&other), Err(PublishError::Running(..))));
}

#[test]
fn of_many_daemons_that_start_at_once_one_wins() {
    for stale in [false, true] {
        let directory = Directory::new();
        if stale {
            std::fs::write(&directory.places().files[0], "/nowhere/socket").unwrap();
        }
        let sockets: Vec<_> = (0..8).map(|number| directory.listen(&number.to_string())).collect();
        let wins = std::thread::scope(|scope| {
            let starts: Vec<_> =
                sockets.iter().map(|(path, _)| scope.spawn(|| directory.places().publish(path).ok())).collect();
            let results: Vec<_> = starts.into_iter().map(|start| start.join().unwrap()).collect();
            results.iter().flatten().count()
        });
        assert_eq!(wins, 1);
    }
}

#[test]
fn a_stale_file_is_dead_at_once_for_tasks_and_replaced_by_the_next_daemon() {
    let directory = Directory::new();
    let places = directory.places();
    let (path, listener) = directory.listen("s");
    drop(listener);
    std::fs::write(&places.files[0], path.as_os_str().as_bytes()).unwrap();
    let start = Instant::now();
    assert_eq!(places.connect().err(), Some(FindError::Dead));
    assert!(start.elapsed() < STARTING_WAIT_MAX / 2);
    let (fresh, _listener) = directory.listen("t");
    let published = places.publish(&fresh).unwrap();
    assert_eq!(published.stale_socket(), Some(path.as_path()));
    assert!(places.connect().is_ok());
}

#[test]
fn a_daemon_that_is_just_starting_is_waited_for() {
    let directory = Directory::new();
    let places = directory.places();
    let (path, listener) = directory.listen("s");
    drop(listener);
    std::fs::remove_file(&path).unwrap();
    let _published = places.publish(&path).unwrap();
    std::thread::scope(|scope| {
        let task = scope.spawn(|| places.connect().is_ok());
        std::thread::sleep(Duration::from_millis(100));
        let _listener = directory.listen("s");
        assert!(task.join().unwrap());
    });
}

#[test]
fn names_that_are_links_or_pipes_are_passed_over() {
    let directory = Directory::new();
    let places = directory.places();
    let (path, _listener) = directory.listen("s");
    std::os::unix::fs::symlink(directory.0.join("target"), &places.files[0]).unwrap();
    assert_eq!(places.connect().err(), Some(FindError::Absent));
    let published = places.publish(&path).unwrap();
    assert_eq!(published.file(), places.files[1]);
    assert!(places.connect().is_ok());
    assert!(!directory.0.join("target").exists());
}

#[test]
fn a_dead_pvmsock_does_not_keep_a_task_from_the_daemon() {
    let directory = Directory::new();
    let mut places = directory.places();
    let (path, _listener) = directory.listen("s");
    let _published = places.publish(&path).unwrap();
    places.socket = Some(directory.0.join("gone"));
    assert!(places.connect().is_ok());
}

#[test]
fn a_file_of_a_stranger_is_not_believed() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let directory = Directory::new();
    let places = directory.places();
    let (path, _listener) = directory.listen("s");
    std::fs::write(&places.files[0], path.as_os_str().as_bytes()).unwrap();
    std::os::unix::fs::chown(&places.files[0], Some(12345), None).unwrap();
    assert_eq!(places.connect().err(), Some(FindError::Absent));
    let published = places.publish(&path).unwrap();
    assert_eq!(published.file(), places.files[1]);
    assert!(places.connect().is_ok());
}

#[test]
fn a_daemon_of_pvm_3_4_6_is_named_at_once_and_not_replaced() {
    let directory = Directory::new();
    let places = directory.places();
    let (path, listener) = directory.listen("pvmtmp004711.0");
    let network = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("7f000001:{:04x}", network.local_addr().unwrap().port());
    let (own, _own_listener) = directory.listen("s");
    for text in [path.to_str().unwrap(), &address] {
        std::fs::write(&places.files[0], text).unwrap();
        let Err(FindError::Legacy(legacy)) = places.connect() else { panic!("not known by {text}") };
        let process = if text == address { String::new() } else { format!(" (pid {})", std::process::id()) };
        assert_eq!(legacy.to_string(), format!("PVM 3.4.6 runs here{process}: halt it, or set PVM_VMID"));
        assert!(matches!(places.publish(&own), Err(PublishError::Legacy(same)) if same == legacy));
    }
    // A task that a daemon of PVM 3.4.6 has started finds the daemon's socket in its environment.
    let _ = std::fs::remove_file(&places.files[0]);
    let started = Places { socket: Some(path.clone()), ..places.clone() };
    assert!(matches!(started.connect(), Err(FindError::Legacy(_))));
    // What a dead daemon of PVM 3.4.6 has left (socket, rendezvous file) does not matter.
    drop((listener, network));
    assert_eq!(started.connect().err(), Some(FindError::Absent));
    for text in [path.to_str().unwrap(), &address] {
        std::fs::write(&places.files[0], text).unwrap();
        assert_eq!(places.connect().err(), Some(FindError::Dead), "{text}");
        assert!(places.publish(&own).is_ok_and(|published| published.is_current()));
    }
}

#[test]
fn a_hard_link_to_a_file_of_the_user_is_passed_over() {
    let directory = Directory::new();
    let places = directory.places();
    let (socket, _listener) = directory.listen("s");
    let precious = directory.0.join("precious");
    std::fs::write(&precious, "all that I have written").unwrap();
    std::fs::hard_link(&precious, &places.files[0]).unwrap();
    let published = places.publish(&socket).unwrap();
    assert_eq!(published.file(), places.files[1]);
    assert_eq!(std::fs::read_to_string(&precious).unwrap(), "all that I have written");
    assert!(places.connect().is_ok(), "tasks pass it over as well");
    drop(published);
    assert!(places.files[0].exists());
}

#[test]
fn a_job_of_a_batch_system_has_a_machine_of_its_own() {
    let of = |variables: &[(&str, &str)]| {
        let set = |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).into());
        machine_id(set).map(|id| id.into_string().unwrap())
    };
    assert_eq!(of(&[("SLURM_JOB_ID", "7")]).as_deref(), Some("slurm-7"));
    assert_eq!(of(&[("PBS_JOBID", "7[3].server")]).as_deref(), Some("pbs-7[3].server"));
    assert_eq!(of(&[("LSB_JOBID", "7"), ("LSB_JOBINDEX", "0")]).as_deref(), Some("lsf-7"));
    assert_eq!(of(&[("LSB_JOBID", "7"), ("LSB_JOBINDEX", "3")]).as_deref(), Some("lsf-7-3"));
    let grid_engine = ("PE_HOSTFILE", "/spool/hosts");
    assert_eq!(of(&[grid_engine, ("JOB_ID", "7"), ("SGE_TASK_ID", "undefined")]).as_deref(), Some("sge-7"));
    assert_eq!(of(&[grid_engine, ("JOB_ID", "7"), ("SGE_TASK_ID", "2")]).as_deref(), Some("sge-7-2"));
    assert_eq!(of(&[("FLUX_ENCLOSING_ID", "f2")]).as_deref(), Some("flux-f2"));
    assert_eq!(of(&[("SLURM_JOB_ID", "7"), ("PVM_VMID", "mine")]).as_deref(), Some("mine"));
    // Other programs also set `JOB_ID`.
    for none in [&[("JOB_ID", "7")][..], &[("SLURM_JOB_ID", ""), ("PVM_VMID", "")], &[]] {
        assert_eq!(of(none), None);
    }
}
