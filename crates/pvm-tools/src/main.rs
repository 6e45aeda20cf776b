//! `pvm`: the console of the virtual machine, and its commands.
#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    pvm_tools::main()
}
