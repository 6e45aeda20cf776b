//! A whole installation by Spack: `packages --only spack`, for whoever has Spack.
use super::{checks, release, source, versions};
use crate::common::{Checks, in_path, output};
use crate::counts::Counts;
use crate::{python, scratch};
use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The package in the repository that the check makes, so that a package of that name elsewhere is not meant.
const PACKAGE: &str = "hpvm_checked.hpvm";
const NAMESPACE: &str = "hpvm_checked";

/// Installs the recipe's package from the source tarball, runs the farm and the demo of Python with it, and removes it.
/// What the package needs is Spack's as it is configured: its externals, its compilers and its earlier installations.
pub fn counted() -> Result<Counts> {
    if !in_path("spack") {
        return Ok(Counts::skip("packages --only spack: spack is not in PATH"));
    }
    let place = scratch::directory("spack")?;
    let spack = Spack::prepare(place.path())?;
    let mut checks = Checks::default();
    let installed = spack.install();
    let prefix = installed.as_ref().ok().cloned();
    checks.check("Spack installs the recipe's package", installed.map(drop));
    if let Some(prefix) = prefix {
        checks.check("the farm runs with what Spack has installed", checks::farm_runs(&prefix, "lib"));
        checks.check("the demo of Python runs after `spack load`", spack.demo(place.path()));
        checks.check("Spack removes it", spack.remove());
    }
    Ok(checks.counts())
}

/// Spack with a scope of configuration that names a repository with the recipe.
struct Spack {
    scope: PathBuf,
}

impl Spack {
    /// Makes the source tarball, and a repository with the recipe and the tarball, as `docs/packaging.md` says.
    fn prepare(place: &Path) -> Result<Spack> {
        let spack = Spack { scope: place.join("scope") };
        fs::create_dir(&spack.scope)?;
        let repository = place.join("repository");
        output(spack.command(&["repo", "create"]).arg(&repository).arg(NAMESPACE))?;
        let repository = repository.join("spack_repo").join(NAMESPACE);
        let package = repository.join("packages/hpvm");
        fs::create_dir_all(&package)?;
        let version = versions::version()?;
        let tarball = source::make(&package, &version)?;
        release::recipe(&package, &tarball, &version)?;
        let repositories = format!("repos:\n  {NAMESPACE}: \"{}\"\n", repository.display());
        fs::write(spack.scope.join("repos.yaml"), repositories)?;
        Ok(spack)
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new("spack");
        command.arg("-C").arg(&self.scope).args(words);
        command
    }

    /// Returns the prefix.
    fn install(&self) -> Result<PathBuf> {
        output(&mut self.command(&["install", &format!("{PACKAGE}+python")]))?;
        let prefix = output(&mut self.command(&["location", "--install-dir", PACKAGE]))?;
        Ok(PathBuf::from(prefix.trim()))
    }

    fn demo(&self, home: &Path) -> Result<()> {
        let load = output(&mut self.command(&["load", "--sh", PACKAGE]))?;
        let mut shell = Command::new("sh");
        shell.arg("-c").arg(format!("{load}\nexec python3 -m hpvm.demo"));
        python::runs_demo(&mut shell, home).context("python3 -m hpvm.demo")
    }

    fn remove(&self) -> Result<()> {
        output(&mut self.command(&["uninstall", "--yes-to-all", PACKAGE])).map(drop)
    }
}
