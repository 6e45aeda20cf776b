//! Runs libFuzzer on the target that `HPVM_FUZZ_TARGET` names.
#![no_main]

mod targets;

use pvm_fuzz::Target;
use std::sync::OnceLock;

static TARGET: OnceLock<&'static Target> = OnceLock::new();

fn choose() {
    let name = std::env::var("HPVM_FUZZ_TARGET").expect("HPVM_FUZZ_TARGET names a target");
    let target = targets::find(&name).expect("there is a target of that name");
    assert!(TARGET.set(target).is_ok(), "chosen once");
}

libfuzzer_sys::fuzz_target!(init: choose(), |bytes: &[u8]| {
    TARGET.get().expect("set before the first input").feed(bytes);
});
