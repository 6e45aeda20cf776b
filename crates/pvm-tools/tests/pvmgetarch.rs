//! Compares `pvmgetarch` with Debian's.
#![forbid(unsafe_code)]
use std::process::Command;

#[test]
fn the_name_of_this_machine_is_the_one_of_pvm() {
    let ours = Command::new(env!("CARGO_BIN_EXE_pvmgetarch")).output().unwrap();
    assert!(ours.status.success());
    if let Ok(theirs) =
        Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/debian-pvm/usr/bin/pvmgetarch")).output()
    {
        assert_eq!(String::from_utf8_lossy(&ours.stdout), String::from_utf8_lossy(&theirs.stdout));
    }
}
