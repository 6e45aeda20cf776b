//! Compares `pvmgetarch` with Debian's.
#![forbid(unsafe_code)]
use std::path::Path;
use std::process::Command;

#[test]
fn the_name_of_this_machine_is_the_one_of_pvm() {
    let test = std::env::current_exe().unwrap();
    let profile = test.parent().and_then(Path::parent).unwrap();
    let ours = Command::new(profile.join("pvmgetarch")).output().unwrap();
    assert!(ours.status.success());
    if let Ok(theirs) = Command::new("../../target/debian-pvm/usr/bin/pvmgetarch").output() {
        assert_eq!(String::from_utf8_lossy(&ours.stdout), String::from_utf8_lossy(&theirs.stdout));
    }
}
