//! The root of the source tree. `xtask` compiles this file too, and nothing else of this crate.
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// Returns the root of the source tree in which this process was started: a program in a tree that was copied or moved
/// must not use the tree in which it was compiled.
pub fn root() -> &'static Path {
    static ROOT: OnceLock<PathBuf> = OnceLock::new();
    ROOT.get_or_init(|| {
        let current = std::env::current_dir().unwrap_or_default();
        // A daemon in the process of a test may have changed the directory; cargo sets the variable when it runs a test.
        let of_cargo = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from).unwrap_or_default();
        let mut above = current.ancestors().chain(of_cargo.ancestors());
        let root = above.find(|directory| directory.join("xtask/Cargo.toml").is_file());
        root.unwrap_or_else(|| panic!("{} is not in the source tree of hpvm", current.display())).to_path_buf()
    })
}
