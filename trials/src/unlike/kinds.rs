//! The kinds of hosts.

use crate::common::{dist, root};
use std::path::PathBuf;

/// A kind of host.
pub struct Kind {
    /// Debian's name of the architecture.
    pub name: &'static str,
    /// Rust's name of the target; `None` for the machine on which this command runs.
    pub target: Option<&'static str>,
    /// The prefix in the names of this kind's compiler tools, and also the name of the folder with its libraries.
    pub tools: &'static str,
    /// The dynamic linker of its programs, in that folder.
    pub loader: &'static str,
    /// qemu's name of the architecture; `None` if this processor can run its programs.
    pub emulator: Option<&'static str>,
    /// PVM's name of the architecture.
    pub arch: &'static str,
    /// The data signature, as PVM shows it.
    pub signature: u32,
}

/// The first kind is that of the machine on which this command runs, and of the first host of the virtual machine. The
/// short form has the first three: both byte orders, and both sizes of a `long`. `tests/unlike` has the same kinds in
/// the same order.
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

/// How much is built and tested.
#[derive(Clone, Copy)]
pub struct Extent {
    /// The kinds of hosts; the first ones of [`KINDS`].
    pub kinds: &'static [Kind],
    /// The number of hosts on which the console is tested. Compiling the console takes as long as compiling the daemon,
    /// so the short form tests only the console of the first host, which needs no compiling for another architecture.
    pub consoles: usize,
}

/// The whole test.
pub const WHOLE: Extent = Extent { kinds: KINDS, consoles: KINDS.len() };
/// The short form for `cargo xtask test`.
pub const SHORT: Extent = Extent { kinds: KINDS.split_at(3).0, consoles: 1 };

impl Extent {
    /// Returns the kinds for which everything has to be built, and Rust's names of them.
    pub fn foreign(&self) -> impl Iterator<Item = (&'static Kind, &'static str)> {
        self.kinds.iter().filter_map(|kind| Some((kind, kind.target?)))
    }
}

/// Returns the folder for the files of this command.
pub fn folder() -> PathBuf {
    root().join("target/unlike")
}

impl Kind {
    /// Returns the folder with the files that are built for this kind: bin and lib.
    pub fn folder(&self) -> PathBuf {
        folder().join(self.name)
    }

    /// Returns the folder with the `pvmd` and `pvm` of this kind.
    pub fn programs(&self) -> PathBuf {
        match self.target {
            Some(target) => folder().join("build").join(target).join("unlike"),
            None => dist().join("bin"),
        }
    }

    /// Returns the folder with the `libpvm3.so` of this kind.
    pub fn libraries(&self) -> PathBuf {
        if self.target.is_some() { self.folder().join("lib") } else { dist().join("lib") }
    }

    /// Returns the command that compiles and links for this kind. (Its name must not end in `ld`: rustc would assume
    /// that it is a linker and no compiler.)
    pub fn compiler(&self) -> PathBuf {
        if self.target.is_some() { folder().join(format!("{}-cc", self.name)) } else { "cc".into() }
    }
}
