//! The compared systems and their settings.
use crate::common::dist;
use crate::debian_pvm;
use std::path::{Path, PathBuf};

/// The paths of the MPI programs in Debian.
const OPEN_MPI_RUN: &str = "/usr/bin/mpirun.openmpi";
const MPICH_RUN: &str = "/usr/bin/mpiexec.hydra";

/// The best settings for Open MPI's point-to-point messages inside a host.
const OPEN_MPI_BEST: &str = "--allow-run-as-root --oversubscribe --bind-to none --mca pml ob1 \
     --mca btl self,vader --mca btl_vader_eager_limit 32768";

/// A system; the tables list the systems in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum System {
    /// Two processes that share memory, without any message system.
    Limit,
    /// hpvm.
    Hpvm,
    /// Debian's PVM 3.4.6 with its default route, through the daemon.
    Pvm,
    /// Debian's PVM 3.4.6 with `PvmRouteDirect`.
    PvmDirect,
    /// Open MPI with single copies by the kernel.
    OpenMpi,
    /// Open MPI with copies through shared memory.
    OpenMpiCopy,
    /// MPICH with single copies by the kernel.
    Mpich,
    /// MPICH with copies through shared memory.
    MpichCopy,
}

/// The four MPI settings.
pub const MPIS: [System; 4] = [System::OpenMpi, System::OpenMpiCopy, System::Mpich, System::MpichCopy];

/// The virtual machine on which a PVM program runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Vm {
    /// hpvm's daemon and library from `target/dist`.
    Ours,
    /// Debian's daemon and library.
    Debian,
}

/// How the ranks of an MPI program are started: the launcher, its arguments, its environment.
pub type Launch = (&'static str, Vec<String>, Vec<(&'static str, &'static str)>);

impl System {
    /// Returns the name in tables.
    pub fn name(self) -> &'static str {
        match self {
            System::Limit => "limit",
            System::Hpvm => "hpvm",
            System::Pvm => "PVM 3.4.6",
            System::PvmDirect => "PVM 3.4.6 direct",
            System::OpenMpi => "Open MPI",
            System::OpenMpiCopy => "Open MPI no-CMA",
            System::Mpich => "MPICH",
            System::MpichCopy => "MPICH no-CMA",
        }
    }

    /// Returns the settings, so that readers can check that they are fair.
    pub fn settings(self) -> String {
        match self {
            System::Limit => "two pinned processes spin on cache lines in shared memory; memcpy".into(),
            System::Hpvm => "no settings (route as pvm_getopt(PvmRoute) reports it: 2)".into(),
            System::Pvm => "PvmRoute PvmAllowDirect (its default): through the daemon".into(),
            System::PvmDirect => "PvmRoute PvmRouteDirect in all tasks".into(),
            mpi => match mpi.mpi_run(2) {
                Some((_, arguments, environment)) => {
                    let environment: Vec<String> =
                        environment.iter().map(|(name, value)| format!("{name}={value}")).collect();
                    let many = if mpi == System::OpenMpi { " (more than 2 ranks: mpi_yield_when_idle 1)" } else { "" };
                    format!("{} {}{many}", environment.join(" "), arguments.join(" ")).trim().to_owned()
                }
                None => String::new(),
            },
        }
    }

    /// Returns the virtual machine that the system's programs need.
    pub fn vm(self) -> Option<Vm> {
        match self {
            System::Hpvm => Some(Vm::Ours),
            System::Pvm | System::PvmDirect => Some(Vm::Debian),
            _ => None,
        }
    }

    /// Returns whether the system is installed.
    pub fn is_there(self) -> bool {
        match self {
            System::Limit => true,
            System::Hpvm => Vm::Ours.pvmd().exists(),
            System::Pvm | System::PvmDirect => Vm::Debian.library_directory().is_some(),
            mpi => mpi.mpi_run(2).is_some_and(|(program, _, _)| Path::new(program).exists()),
        }
    }

    /// Returns how to start this number of ranks; `None` for a system that is no MPI.
    pub fn mpi_run(self, ranks: usize) -> Option<Launch> {
        let open_mpi = |more: &str| {
            // With more ranks than cores, a waiting rank must yield its core; otherwise no rank makes progress. With as
            // many ranks as cores, yielding would make every message slower.
            let yields = if ranks > 2 { 1 } else { 0 };
            let words = format!("{OPEN_MPI_BEST} --mca mpi_yield_when_idle {yields} {more} -n {ranks}");
            Some((OPEN_MPI_RUN, words.split_whitespace().map(str::to_owned).collect(), vec![]))
        };
        let mpich = |transports| {
            let words = format!("-bind-to none -n {ranks}");
            let words = words.split_whitespace().map(str::to_owned).collect();
            Some((MPICH_RUN, words, vec![("UCX_TLS", transports)]))
        };
        match self {
            System::OpenMpi => open_mpi("--mca btl_vader_single_copy_mechanism cma"),
            System::OpenMpiCopy => open_mpi("--mca btl_vader_single_copy_mechanism none"),
            System::Mpich => mpich("self,posix,cma"),
            System::MpichCopy => mpich("self,posix"),
            _ => None,
        }
    }

    /// Returns the compiler wrapper of an MPI, and the name of the compiled program.
    pub fn mpi_compiler(self) -> Option<(&'static str, &'static str)> {
        match self {
            System::OpenMpi | System::OpenMpiCopy => Some(("mpicc.openmpi", "openmpi_bench")),
            System::Mpich | System::MpichCopy => Some(("mpicc.mpich", "mpich_bench")),
            _ => None,
        }
    }
}

impl Vm {
    /// Returns the path of the daemon.
    pub fn pvmd(self) -> PathBuf {
        match self {
            Vm::Ours => dist().join("bin/pvmd"),
            Vm::Debian => debian_pvm::programs().join("pvmd"),
        }
    }

    /// Returns the directory of `libpvm3.so.3`; `None` if the system is not installed.
    pub fn library_directory(self) -> Option<PathBuf> {
        let has_library = |directory: &PathBuf| directory.join("libpvm3.so.3").exists();
        if !self.pvmd().exists() {
            return None;
        }
        match self {
            Vm::Ours => Some(dist().join("lib")).filter(has_library),
            Vm::Debian => Some(debian_pvm::libraries()).filter(has_library),
        }
    }

    /// Returns the name in messages.
    pub fn name(self) -> &'static str {
        match self {
            Vm::Ours => "hpvm",
            Vm::Debian => "Debian's PVM",
        }
    }
}
