//! `pvmd`: the daemon of a host.
#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    pvmd::main()
}
