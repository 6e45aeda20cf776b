//! The kinds of hosts.

use crate::common::{dist, root};
use std::path::PathBuf;

/// A kind of host.
pub struct Kind {
    /// Debian's name for it.
    pub name: &'static str,
    /// Rust's name for it; none for the machine that this runs on.
    pub target: Option<&'static str>,
    /// In front of the names of the tools that make programs for it; also the folder of its libraries.
    pub tools: &'static str,
    /// What loads its programs, in that folder.
    pub loader: &'static str,
    /// qemu's name for it, where the processor cannot run its programs.
    pub emulator: Option<&'static str>,
    /// PVM's name for it.
    pub arch: &'static str,
    /// How it writes numbers, as PVM shows it.
    pub signature: u32,
}

/// The first is the machine that this runs on, and the host where machines begin. The first three are what the
/// short form has: both orders of bytes, and both sizes of a `long`. `tests/unlike` has the same kinds in the
/// same order.
pub const KINDS: &[Kind] = &[
    Kind {
        name: "amd64",
        target: None,
        tools: "x86_64-linux-gnu",
        loader: "ld-linux-x86-64.so.2",
        emulator: None,
        arch: "LINUX64",
        signature: 0x0040_8c41,
    },
    Kind {
        name: "i386",
        target: Some("i686-unknown-linux-gnu"),
        tools: "i686-linux-gnu",
        loader: "ld-linux.so.2",
        emulator: None,
        arch: "LINUX",
        signature: 0x0040_8841,
    },
    Kind {
        name: "s390x",
        target: Some("s390x-unknown-linux-gnu"),
        tools: "s390x-linux-gnu",
        loader: "ld64.so.1",
        emulator: Some("s390x"),
        arch: "LINUXS390X",
        signature: 0x0658_ef59,
    },
    Kind {
        name: "arm64",
        target: Some("aarch64-unknown-linux-gnu"),
        tools: "aarch64-linux-gnu",
        loader: "ld-linux-aarch64.so.1",
        emulator: Some("aarch64"),
        arch: "LINUX64",
        signature: 0x0040_8c41,
    },
];

/// How much is built and run.
#[derive(Clone, Copy)]
pub struct Extent {
    /// The kinds of hosts; the first ones of [`KINDS`].
    pub kinds: &'static [Kind],
    /// On how many of them the console is tried. It is as much work to compile as the daemon.
    pub consoles: usize,
}

/// All of it.
pub const WHOLE: Extent = Extent { kinds: KINDS, consoles: KINDS.len() };
/// What `cargo xtask test` has time for.
pub const SHORT: Extent = Extent { kinds: KINDS.split_at(3).0, consoles: 1 };

impl Extent {
    /// The kinds for which everything has to be built, and Rust's names for them.
    pub fn foreign(&self) -> impl Iterator<Item = (&'static Kind, &'static str)> {
        self.kinds.iter().filter_map(|kind| Some((kind, kind.target?)))
    }
}

/// Where everything of this command lies.
pub fn folder() -> PathBuf {
    root().join("target/unlike")
}

impl Kind {
    /// What is made for it: bin and lib.
    pub fn folder(&self) -> PathBuf {
        folder().join(self.name)
    }

    /// Where its `pvmd` and `pvm` are.
    pub fn programs(&self) -> PathBuf {
        match self.target {
            Some(target) => folder().join("build").join(target).join("unlike"),
            None => dist().join("bin"),
        }
    }

    /// Where its `libpvm3.so` is.
    pub fn libraries(&self) -> PathBuf {
        if self.target.is_some() { self.folder().join("lib") } else { dist().join("lib") }
    }

    /// The command that compiles and links for it. (To rustc a linker whose name ends in `ld` is no compiler.)
    pub fn compiler(&self) -> PathBuf {
        if self.target.is_some() { folder().join(format!("{}-cc", self.name)) } else { "cc".into() }
    }
}
