//! Links the extension to a `libpvm3.so.3` in `$HPVM_LIB`. It looks for that library in `$HPVM_RPATH` when it is loaded;
//! without that variable in `hpvm/lib`, where the wheel carries it; if the variable is empty, where every program looks.
#![forbid(unsafe_code)]

fn main() {
    println!("cargo:rerun-if-env-changed=HPVM_LIB");
    // `cargo check` and clippy link nothing and need no library.
    if let Ok(directory) = std::env::var("HPVM_LIB") {
        println!("cargo:rustc-link-search=native={directory}");
        println!("cargo:rustc-link-lib=dylib:+verbatim=libpvm3.so.3");
    }
    println!("cargo:rerun-if-env-changed=HPVM_RPATH");
    let rpath = std::env::var("HPVM_RPATH").unwrap_or_else(|_| "$ORIGIN/lib".to_owned());
    if !rpath.is_empty() {
        println!("cargo:rustc-link-arg-cdylib=-Wl,-rpath,{rpath}");
    }
}
