//! All developer commands: `cargo xtask COMMAND`.
#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    xtask::commands::main()
}
