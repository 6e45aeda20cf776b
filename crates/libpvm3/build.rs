//! Compiles the C part of the library: the functions with variable arguments, which cannot be written in Rust.
fn main() {
    println!("cargo:rerun-if-changed=shim/format.c");
    println!("cargo:rerun-if-changed=shim/threads.c");
    println!("cargo:rerun-if-env-changed=HPVM_FUZZ_CC");
    let mut build = cc::Build::new();
    // `cargo xtask fuzz` sets this variable to a compiler and options that measure the coverage of the C code.
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
