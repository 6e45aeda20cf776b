//! The targets of all crates.
use pvm_fuzz::Target;

pub fn all() -> impl Iterator<Item = &'static Target> {
    [
        #[cfg(target_arch = "x86_64")]
        pvm3::fuzz::TARGETS,
        pvm_core::fuzz::TARGETS,
        pvm_fmp::fuzz::TARGETS,
        pvm_link::fuzz::TARGETS,
        pvm_net::fuzz::TARGETS,
        pvm_task::fuzz::TARGETS,
        pvm_tools::fuzz::TARGETS,
        pvmd::fuzz::TARGETS,
    ]
    .into_iter()
    .flatten()
}

pub fn find(name: &str) -> Option<&'static Target> {
    all().find(|target| target.name == name)
}
