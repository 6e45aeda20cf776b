//! Compiles the part of the library that only C can express: functions with variable arguments.
fn main() {
    println!("cargo:rerun-if-changed=shim/format.c");
    println!("cargo:rerun-if-changed=shim/threads.c");
    println!("cargo:rerun-if-env-changed=HPVM_FUZZ_CC");
    let mut build = cc::Build::new();
    // A compiler and its options with which the lines of C that run are counted (`cargo xtask fuzz`).
    if let Ok(words) = std::env::var("HPVM_FUZZ_CC") {
        let mut words = words.split_ascii_whitespace();
        build.compiler(words.next().unwrap_or("cc"));
        for option in words {
            build.flag(option);
        }
    }
    build
        .file("shim/format.c")
        .file("shim/threads.c")
        .warnings(true)
        .extra_warnings(true)
        .flag_if_supported("-fvisibility=hidden")
        .compile("pvm3_shim");
}
