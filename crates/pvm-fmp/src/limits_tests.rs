//! Tests under limits of the process, and in sandboxes that forbid calls. A limit binds a whole process, so each test
//! runs itself again in a separate process, which alone has the limit.
use crate::tests::{A, B, Host, Kept, body, introduce};
use crate::*;
use std::process::{Command, Output};

/// The environment variable that is set in the process with the limits; its value says which limits these are.
const INSIDE: &str = "HPVM_TEST_INSIDE";

/// Runs a test again, in a process that a shell starts after it has run `commands`.
fn inside(test: &str, commands: &str, word: &str) -> Output {
    let mut command = Command::new("bash");
    command.args(["-c", &format!("{commands}; exec \"$@\""), "bash"]).arg(std::env::current_exe().unwrap());
    command.args(["--exact", &format!("limits_tests::{test}"), "--nocapture", "--test-threads=1"]);
    command.env(INSIDE, word).output().unwrap()
}

fn word() -> Option<String> {
    std::env::var(INSIDE).ok()
}

fn limit_address_space(current: Option<u64>) {
    let limit = rustix::process::Rlimit { current, maximum: None };
    rustix::process::setrlimit(rustix::process::Resource::As, limit).unwrap();
}

/// Returns how many MiB can be allocated, piece by piece. Afterwards checks that messages still arrive.
fn mebibytes_to_be_had() -> usize {
    let host = Host::new();
    let (mut a, mut b) = host.pair();
    let long = vec![0; 20 << 20];
    let mut blocks = Vec::new();
    while let Ok(block) = a.allocate(1 << 18) {
        blocks.push(block);
        assert!(blocks.len() < 4000, "there is no limit");
    }
    let count = blocks.len() / 4;
    assert_eq!(a.send_bytes(B, [1; 6], &long), Err(SendError::NoMemory));
    blocks.truncate(2);
    drop(blocks);
    // The receiver is in the same process here, and needs address space too.
    limit_address_space(None);
    exchange(&mut a, &mut b);
    count
}

/// Checks that messages of several lengths arrive.
#[track_caller]
fn exchange(a: &mut Endpoint, b: &mut Endpoint) {
    let mut kept = Kept::default();
    while b.poll_all(&mut kept) > 0 {}
    kept.messages.clear();
    for bytes in [0, 10, 500, 5000, 200_000] {
        a.send_bytes(b.tid(), [bytes as u32; 6], &body(bytes, 3)).map(|_| ()).unwrap();
        while b.poll_all(&mut kept) > 0 {}
        a.poll(&mut Kept::default());
    }
    let whole = |(_, meta, bytes): &(u32, Meta, Vec<u8>)| *bytes == body(meta[0] as usize, 3);
    let got: Vec<(u32, bool)> = kept.messages.iter().map(|one| (one.1[0], whole(one))).collect();
    assert_eq!(got, [0, 10, 500, 5000, 200_000].map(|bytes| (bytes, true)));
}

#[test]
fn a_limit_of_address_space_is_an_error_for_what_is_beyond_it_alone() {
    if word().is_some() {
        // Many neighbours fit within the limit.
        let host = Host::new();
        let mut one = host.endpoint(A);
        let mut others: Vec<Endpoint> = (2..60).map(|number| host.endpoint(0x40000 + number)).collect();
        for (other, number) in others.iter_mut().zip(2..) {
            host.table.set(0x40000 + number);
            introduce(&mut one, 0x40000 + number, other);
            introduce(other, A, &one);
        }
        others.iter_mut().for_each(|other| exchange(other, &mut one));
        others.iter_mut().for_each(|other| exchange(&mut one, other));
        drop((one, others));
        let count = mebibytes_to_be_had();
        return assert!((50..400).contains(&count), "{count} MiB");
    }
    let output = inside("a_limit_of_address_space_is_an_error_for_what_is_beyond_it_alone", "ulimit -S -v 400000", "1");
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn a_limit_of_file_size_is_an_error_and_no_signal() {
    if word().is_some() {
        let count = mebibytes_to_be_had();
        return assert!(count == 1, "{count} MiB");
    }
    let output = inside("a_limit_of_file_size_is_an_error_and_no_signal", "ulimit -f 2000", "1");
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn too_small_a_limit_of_file_size_is_named() {
    if word().is_some() {
        let error = Endpoint::new().err().unwrap().to_string();
        return assert!(error.contains("ulimit -f") && error.contains("10240"), "{error}");
    }
    let output = inside("too_small_a_limit_of_file_size_is_named", "ulimit -f 10", "1");
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn what_cannot_be_mapped_is_told_and_had_when_there_is_room() {
    if word().is_some() {
        let host = Host::new();
        let (mut a, mut b) = host.pair();
        a.send_bytes(B, [1; 6], &body(100, 1)).map(|_| ()).unwrap();
        b.poll(&mut Kept::default());
        let block = a.allocate(8 << 20).unwrap();
        block.write(0, b"found");
        a.send_blocks(B, [2; 6], &[(block, 5)]).map(|_| ()).unwrap();
        a.send_bytes(B, [3; 6], &body(100, 1)).map(|_| ()).unwrap();
        // No further page can be mapped.
        limit_address_space(Some(4096));
        let mut kept = Kept::default();
        let (count, starved) = (b.poll(&mut kept), b.take_starved());
        let again = b.take_starved();
        limit_address_space(None);
        assert_eq!((count, starved, again), (0, vec![A], vec![]));
        while b.poll(&mut kept) > 0 {}
        let tags: Vec<u32> = kept.messages.iter().map(|(_, meta, _)| meta[0]).collect();
        assert_eq!((tags, &kept.messages[0].2[..]), (vec![2, 3], &b"found"[..]));
        return;
    }
    let output = inside("what_cannot_be_mapped_is_told_and_had_when_there_is_room", "true", "1");
    assert!(output.status.success(), "{output:?}");
}

// ----- forbidden calls

/// Makes the system refuse `calls` of this thread with `errno`.
fn forbid(calls: &[libc::c_long], errno: i32) {
    let statement = |code: u32, jump_true: u8, jump_false: u8, k: u32| libc::sock_filter {
        code: code as u16,
        jt: jump_true,
        jf: jump_false,
        k,
    };
    let mut program = vec![statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0)];
    for call in calls {
        program.push(statement(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, *call as u32));
        program.push(statement(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ERRNO | errno as u32));
    }
    program.push(statement(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW));
    let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: the filter is a whole program that lives during the call; it binds this thread alone.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        assert_eq!(libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const filter), 0);
    }
}

/// Calls that sandboxes forbid. Without `memfd_create`, segments are nameless files that cannot be sealed.
const FORBIDDEN: &[(&str, &[libc::c_long])] = &[
    ("fallocate", &[libc::SYS_fallocate]),
    ("getrandom", &[libc::SYS_getrandom]),
    ("membarrier", &[libc::SYS_membarrier]),
    ("copies", &[libc::SYS_process_vm_readv, libc::SYS_process_vm_writev]),
    ("madvise", &[libc::SYS_madvise]),
    ("mremap", &[libc::SYS_mremap]),
    ("vmsplice", &[libc::SYS_vmsplice]),
    ("memfd_create", &[libc::SYS_memfd_create]),
    (
        "all",
        &[
            libc::SYS_fallocate,
            libc::SYS_getrandom,
            libc::SYS_membarrier,
            libc::SYS_process_vm_readv,
            libc::SYS_process_vm_writev,
            libc::SYS_madvise,
            libc::SYS_mremap,
            libc::SYS_vmsplice,
            libc::SYS_memfd_create,
        ],
    ),
];

#[test]
fn what_a_sandbox_forbids_is_done_by_other_means() {
    if let Some(word) = word() {
        let (name, errno) = word.split_once(' ').unwrap();
        let calls = FORBIDDEN.iter().find(|(other, _)| *other == name).unwrap().1;
        forbid(calls, errno.parse().unwrap());
        let host = Host::new();
        let (mut a, mut b) = host.pair();
        exchange(&mut a, &mut b);
        a.send_bytes(B, [4; 6], &body(3_000_000, 4)).map(|_| ()).unwrap();
        let mut kept = Kept::default();
        while b.poll(&mut kept) > 0 {}
        assert!(kept.messages[0].2 == body(3_000_000, 4));
        let group = GroupMemory::new().unwrap();
        group.set(0, A);
        let list = group.membership_page().try_clone_to_owned().unwrap();
        let barrier_page = group.barrier_page().try_clone_to_owned().unwrap();
        assert_eq!(GroupView::open(list, Some(barrier_page)).unwrap().tid_of(0), Some(A));
        assert!(PreallocatedEndpoint::new().is_ok());
        return;
    }
    for (name, _) in FORBIDDEN {
        for errno in [libc::EPERM, libc::ENOSYS] {
            let word = format!("{name} {errno}");
            let output = inside("what_a_sandbox_forbids_is_done_by_other_means", "true", &word);
            assert!(output.status.success(), "{word}: {output:?}");
        }
    }
}

#[test]
fn without_fcntl_the_call_is_named() {
    if word().is_some() {
        forbid(&[libc::SYS_fcntl], libc::EPERM);
        let error = Endpoint::new().err().unwrap().to_string();
        return assert!(error.contains("fcntl"), "{error}");
    }
    let output = inside("without_fcntl_the_call_is_named", "true", "1");
    assert!(output.status.success(), "{output:?}");
}
