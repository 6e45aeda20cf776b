//! Links the extension to the `libpvm3.so.3` that the wheel carries in `hpvm/lib`.
#![forbid(unsafe_code)]

fn main() {
    println!("cargo:rerun-if-env-changed=HPVM_LIB");
    // `cargo check` and clippy link nothing and need no library.
    if let Ok(directory) = std::env::var("HPVM_LIB") {
        println!("cargo:rustc-link-search=native={directory}");
        println!("cargo:rustc-link-lib=dylib:+verbatim=libpvm3.so.3");
    }
    println!("cargo:rustc-link-arg-cdylib=-Wl,-rpath,$ORIGIN/lib");
}
