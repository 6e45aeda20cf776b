//! Tests `pvm info`, and `pvm doctor` in set-ups that are broken on purpose.
#![forbid(unsafe_code)]

mod common;

use common::{Sandbox, err, out, pvm};
use serde_json::Value;
use std::process::{Command, Output, Stdio};

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {}{}", out(output), err(output)))
}

/// Returns the checks that found a fault or a warning, and what all of them said.
/// `own_name`: also those about the name of this host, which in a container may lead anywhere.
fn complaints(output: &Output, own_name: bool) -> (Vec<String>, String) {
    let value = json(output);
    let hosts = value["hosts"].as_array().unwrap().iter();
    let findings = hosts.flat_map(|host| host["findings"].as_array().unwrap());
    let bad: Vec<&Value> = findings
        .filter(|finding| {
            finding["state"] != "ok" && (own_name || !is_own_name(finding)) && finding["check"] != "ptrace"
        })
        .collect();
    let names = bad.iter().map(|finding| finding["check"].as_str().unwrap().to_owned()).collect();
    for finding in &bad {
        assert_ne!(finding["cure"], "", "{finding}");
    }
    (names, format!("{bad:?} {}", err(output)))
}

fn is_own_name(finding: &Value) -> bool {
    finding["what"].as_str().unwrap().starts_with("the name of this host")
}

/// Runs the doctor with these arguments after `prepare`, a line of shell.
fn doctor(sandbox: &Sandbox, prepare: &str, arguments: &str) -> Output {
    let mut command = sandbox.command(&[]);
    let program = pvm().display();
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("{prepare}\nexec {program} doctor --json {arguments}")]);
    shell.current_dir(sandbox.path()).stdin(Stdio::null());
    let variables =
        command.stdin(Stdio::null()).get_envs().map(|(name, value)| (name.to_owned(), value.map(ToOwned::to_owned)));
    for (name, value) in variables.collect::<Vec<_>>() {
        match value {
            Some(value) => shell.env(name, value),
            None => shell.env_remove(name),
        };
    }
    shell.output().unwrap()
}

/// Runs the doctor, and requires that the only fault or warning is of this check, and that its text has this word.
fn requires(prepare: &str, arguments: &str, check: &str, word: &str) {
    let sandbox = Sandbox::new();
    sandbox.remote_shell();
    let output = doctor(&sandbox, prepare, arguments);
    let (found, text) = complaints(&output, false);
    assert_eq!(found, [check], "{prepare}: {text}");
    let is_fault = json(&output)["state"] == "fault";
    assert_eq!(output.status.code(), Some(is_fault.into()), "{prepare}: {text}");
    assert!(text.contains(word), "{prepare}: {text}");
}

/// Returns a shell line that makes a replacement for `ssh` which prints what ssh prints, and fails.
fn ssh_says(text: &str, status: u8) -> String {
    format!("printf '#!/bin/sh\\necho \"{text}\" >&2; exit {status}\\n' >ssh; chmod +x ssh; export PVM_RSH=$PWD/ssh")
}

#[test]
fn a_good_host_is_in_order() {
    let sandbox = Sandbox::new();
    sandbox.remote_shell();
    let output = doctor(&sandbox, ":", "127.0.0.2");
    let value = json(&output);
    let findings = value["hosts"][1]["findings"].as_array().unwrap();
    for check in ["login", "version", "clock", "disk", "port", "port-back", "memory", "descriptors"] {
        assert!(
            findings.iter().any(|finding| finding["check"] == check && finding["state"] == "ok"),
            "{check} {value}"
        );
    }
    assert!(!sandbox.has_daemon() && !sandbox.has_daemon_on("127.0.0.2"));
    let text = out(&sandbox.run(&["doctor", "-v"]));
    assert!(text.contains("  ok: memory: shared memory can be made\n"), "{text}");
}

#[test]
fn logins_that_fail_have_their_causes() {
    requires(&ssh_says("joe@h: Permission denied (publickey).", 255), "127.0.0.2", "key", "ssh-copy-id 127.0.0.2");
    requires(&ssh_says("This account is currently not available.", 1), "127.0.0.2", "login", "no login on 127.0.0.2");
    let changed = "@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @";
    requires(&ssh_says(changed, 255), "127.0.0.2", "hostkey", "another ssh key");
    requires(&ssh_says("ssh: connect to host h port 22: Connection refused", 255), "127.0.0.2", "reach", "sshd");
    requires("export PVM_RSH=/no/such/shell", "127.0.0.2", "rsh", "/no/such/shell");
    requires(
        "printf '#!/bin/sh\\nexec sleep 60\\n' >ssh; chmod +x ssh; export PVM_RSH=$PWD/ssh",
        "--timeout 1 127.0.0.2",
        "answer",
        "in time",
    );
    requires(":", "nosuch.invalid", "name", "no address");
    requires(":", "localhost", "name", "which is this host");
}

#[test]
fn a_host_needs_a_daemon_of_this_version() {
    requires("export PVM_DPATH=$PWD/nosuch/pvmd", "127.0.0.2", "pvmd", "not found on 127.0.0.2");
    let other = |text: &str| {
        format!("printf '#!/bin/sh\\nprintf \"{text}\"\\n' >pvmd; chmod +x pvmd; export PVM_DPATH=$PWD/pvmd")
    };
    let future = "pvmd 9.9 (hpvm, interface of PVM 3.4.6)\\\\ncontrol protocol 3\\\\nhost protocol 999\\\\n";
    requires(&other(future), "127.0.0.2", "version", "999 (hosts)");
    requires(&other("3.4.6\\\\n"), "127.0.0.2", "version", "PVM 3.4.6");
    // A console without its daemon.
    let sandbox = Sandbox::new();
    std::fs::create_dir(sandbox.path().join("alone")).unwrap();
    let own = sandbox.path().join("alone/pvm");
    common::copy_program(pvm(), &own);
    let output =
        Command::new(own).args(["doctor", "--json"]).env("PATH", "/nosuch").env_remove("PVM_ROOT").output().unwrap();
    let (found, text) = complaints(&output, false);
    assert!(found.contains(&"pvmd".to_owned()) && text.contains("not installed"), "{text}");
}

#[test]
fn limits_and_directories_that_are_too_small_are_named() {
    requires("ulimit -Hn 64; ulimit -n 64", "", "descriptors", "limit of open files is 64");
    requires("ulimit -f 4096", "", "filesize", "shared memory");
    requires("ulimit -f 0", "", "filesize", "no daemon can make its files");
    requires("ulimit -v 3000000", "", "addresses", "ulimit -v unlimited");
    requires("export PVM_TMP=$PWD/nosuch", "", "directory", "cannot be written");
    let long = "d=$(printf 'x%.0s' $(seq 100)); mkdir $d; export PVM_TMP=$PWD/$d";
    requires(long, "", "directory", "too long for a socket");
}

/// Returns a command that runs a script in new namespaces; `None`, with a message, if none can be made here.
fn namespaces(script: &str) -> Option<Command> {
    let unshare = || {
        let mut command = Command::new("unshare");
        if !rustix::process::geteuid().is_root() {
            command.args(["--user", "--map-root-user"]);
        }
        command.args(["--mount", "--net", "--uts", "--pid", "--fork", "--kill-child=KILL", "--mount-proc", "sh", "-c"]);
        command
    };
    let probe = unshare().arg("mount -t tmpfs none /mnt && ip link add a type veth peer name b").output();
    if !probe.as_ref().is_ok_and(|output| output.status.success()) {
        println!("skipped: no namespaces can be made here");
        return None;
    }
    let mut command = unshare();
    command.arg(script);
    Some(command)
}

/// Runs the doctor in namespaces after `prepare`.
fn doctor_in_namespaces(sandbox: &Sandbox, prepare: &str, arguments: &str) -> Option<Output> {
    let program = pvm().display();
    let mut command = namespaces(&format!("{prepare}\n{program} doctor --json {arguments}"))?;
    let own = sandbox.command(&[]);
    for (name, value) in own.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    Some(command.current_dir(sandbox.path()).stdin(Stdio::null()).output().unwrap())
}

#[test]
fn a_full_disk_and_a_loopback_name_are_named() {
    let name = "hostname h1; echo 10.9.0.1 h1 >names; mount --bind names /etc/hosts; ";
    let sandbox = Sandbox::new();
    let small = format!(
        "{name}mkdir small; mount -t tmpfs -o size=64k none small; head -c 65536 /dev/zero >small/x 2>/dev/null; \
         export PVM_TMP=$PWD/small"
    );
    let Some(output) = doctor_in_namespaces(&sandbox, &small, "") else { return };
    let (found, text) = complaints(&output, true);
    assert_eq!(found, ["disk"], "{text}");
    assert!(text.contains("is full: 0 bytes"), "{text}");
    let loopback = "hostname h1; echo 127.0.1.1 h1 >names; echo 127.0.0.1 localhost >>names; mount --bind names /etc/hosts; \
                    ip link set lo up";
    sandbox.remote_shell();
    let output = doctor_in_namespaces(&sandbox, loopback, "127.0.0.2").unwrap();
    let (found, text) = complaints(&output, true);
    // Here and on the other host, which has the same name.
    assert_eq!(found, ["name", "name"], "{text}");
    assert!(text.contains("h1, leads to 127.0.1.1"), "{text}");
}

/// Makes two hosts, h1 and h2, and a remote shell from the first to the second.
const TWO_HOSTS: &str = "
    printf '10.9.0.1 h1\\n10.9.0.2 h2\\n' >names; mount --bind names /etc/hosts; hostname h1; ip link set lo up
    unshare --net --uts sh -c 'hostname h2; ip link set lo up; echo $$ >pid; exec sleep 100' &
    while [ ! -s pid ]; do sleep 0.02; done
    h2() { nsenter -t $(cat pid) --net --uts \"$@\"; }
    ip link add v1 type veth peer name v2 netns $(cat pid)
    ip addr add 10.9.0.1/24 dev v1; ip link set v1 up
    h2 ip addr add 10.9.0.2/24 dev v2; h2 ip link set v2 up
    mkdir tmp2
    printf '#!/bin/sh\\nshift; export PVM_TMP=%s PVMNETSOCKPORT=4000\\n' $PWD/tmp2 >ssh
    printf 'exec nsenter -t %s --net --uts sh -c \"$*\"\\n' $(cat pid) >>ssh
    chmod +x ssh; export PVM_RSH=$PWD/ssh
";

#[test]
fn blocked_ports_are_named_by_their_direction() {
    let of = |rules: &str| {
        let output = doctor_in_namespaces(&Sandbox::new(), &format!("{TWO_HOSTS}{rules}"), "h2")?;
        Some(complaints(&output, true))
    };
    let Some((found, text)) = of("") else { return };
    assert!(found.is_empty(), "{text}");
    let (found, text) = of("ip rule add pref 1 ipproto tcp dport 4000-4200 prohibit").unwrap();
    assert_eq!(found, ["port"], "{text}");
    assert!(text.contains("from this host to a port of h2") && text.contains("PVMNETSOCKPORT"), "{text}");
    let back = "h2 ip rule add pref 1 ipproto tcp sport 4000-4200 lookup main
                h2 ip rule add pref 2 ipproto tcp dport 1024-65535 prohibit";
    let (found, text) = of(back).unwrap();
    assert_eq!(found, ["port-back"], "{text}");
    assert!(text.contains("from h2 to a port of this host"), "{text}");
}

#[test]
fn info_names_versions_and_where_settings_come_from() {
    let sandbox = Sandbox::new();
    let mut command = sandbox.command(&["info", "--json"]);
    let value = json(&command.env("PBS_JOBID", "7.server").env("HPVM_GROUPS_MAX", "9").output().unwrap());
    let setting = |name: &str| (value["settings"][name]["value"].clone(), value["settings"][name]["source"].clone());
    assert_eq!(setting("PVM_TMP"), (sandbox.path().to_str().unwrap().into(), "environment".into()));
    assert_eq!(setting("HPVM_GROUPS_MAX"), ("9".into(), "environment".into()));
    assert_eq!(setting("PVM_VMID"), ("pbs-7.server".into(), "job".into()));
    assert_eq!(setting("HPVM_HOST_TIMEOUT"), ("10".into(), "default".into()));
    assert_eq!(value["versions"]["hpvm"], env!("CARGO_PKG_VERSION"));
    let daemon = value["places"]["pvmd"].as_str().unwrap();
    assert!(std::path::Path::new(daemon).is_file(), "{daemon}");
    let text = out(&sandbox.run(&["info"]));
    for line in ["Versions\n", "Places\n", "Features\n", "Limits\n", "Settings\n", "(from the environment)"] {
        assert!(text.contains(line), "{text}");
    }
}
