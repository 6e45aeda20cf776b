//! Compiles the part of the library that only C can express: functions with variable arguments.
fn main() {
    println!("cargo:rerun-if-changed=shim/format.c");
    println!("cargo:rerun-if-changed=shim/threads.c");
    cc::Build::new()
        .file("shim/format.c")
        .file("shim/threads.c")
        .warnings(true)
        .extra_warnings(true)
        .flag_if_supported("-fvisibility=hidden")
        .compile("pvm3_shim");
}
