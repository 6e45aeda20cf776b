//! Networks that a process reaches without the kernel, through libfabric.
//!
//! libfabric is loaded when [`Fabric::open`] is called and never linked. Where it is absent, too old, broken, or without
//! a fitting provider, the error says so in words ([`OpenError`]).
//!
//! * [`Setting`]: which provider to take; [`providers`]: what is known of each provider;
//! * [`Endpoint`]: sends short messages to any peer, reads memory of peers, and reports events. An endpoint is reached by
//!   its address, some bytes that travel by other means;
//! * [`Memory`]: what peers may read, for example the heap of a task, mapped a second time.
//!
//! An endpoint has no thread and never waits: its owner polls it, and may sleep on its descriptor. It carries messages
//! as they are and trusts nobody's: links, credits and the checks of what peers send are in module `fabric` of
//! `pvm-core`.
mod choice;
mod devices;
pub mod providers;
mod raw;

pub use choice::Setting;
pub use devices::has_devices;
pub use raw::{
    Candidate, Counters, Endpoint, Event, Lender, LentRegionId, Library, Memory, MemoryError, Peer, PlaceId, ReadError,
    ReadPart, RegionId, Remote, Room, Rooms, SendError, Slot, SourceLender, SpareBodies, Start, Waits,
};
use std::ffi::OsStr;
use std::fmt;

/// The soname of libfabric.
pub const LIBRARY: &str = "libfabric.so.1";

/// A call of libfabric that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The name of the call.
    pub call: &'static str,
    /// The reason, in libfabric's words.
    pub words: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.call, self.words)
    }
}

impl std::error::Error for Failure {}

/// Why libfabric cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LoadError {
    /// The loader does not find it, or cannot load it; the loader's message.
    Absent(String),
    /// It is older than 1.14.
    TooOld {
        /// The major number of its version.
        major: u32,
        /// The minor number of its version.
        minor: u32,
    },
    /// It lacks this function.
    Broken(String),
}

/// Why there is no endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OpenError {
    /// The library cannot be used.
    Library(LoadError),
    /// The providers could not be listed; libfabric's reason.
    List(String),
    /// No provider fits.
    NoProvider {
        /// What was looked for.
        wanted: Setting,
        /// The providers and domains that libfabric offers, each once.
        offered: Vec<String>,
    },
    /// The provider was chosen but does not work.
    Provider {
        /// The provider and its domain.
        name: String,
        /// What failed.
        failure: Failure,
    },
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OpenError::Library(LoadError::Absent(reason)) => {
                write!(f, "looked for {LIBRARY}, which cannot be loaded ({reason})")
            }
            OpenError::Library(LoadError::TooOld { major, minor }) => {
                write!(f, "looked for {LIBRARY} of version 1.14 or later, found {major}.{minor}")
            }
            OpenError::Library(LoadError::Broken(name)) => {
                write!(f, "found {LIBRARY}, which lacks the function {name}")
            }
            OpenError::List(reason) => write!(f, "{LIBRARY} lists no providers ({reason})"),
            OpenError::NoProvider { wanted, offered } => {
                let offered = if offered.is_empty() { "nothing".into() } else { offered.join(", ") };
                write!(f, "looked for {}; {LIBRARY} offers {offered}", wanted.in_words())
            }
            OpenError::Provider { name, failure } => write!(f, "the provider {name} does not work ({failure})"),
        }
    }
}

impl std::error::Error for OpenError {}

/// Fills bytes with random numbers of the system. Returns `None` if there are none.
pub fn fill_random(bytes: &mut [u8]) -> Option<()> {
    let filled = rustix::rand::getrandom(&mut *bytes, rustix::rand::GetRandomFlags::empty()).ok()?;
    (filled == bytes.len()).then_some(())
}

/// The lengths of an endpoint's queues. They decide its memory: a buffer for each receive and send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Queues {
    /// Receive buffers.
    pub receives: usize,
    /// Send buffers.
    pub sends: usize,
    /// Reads of remote memory that can be under way.
    pub reads: usize,
    /// The length of a buffer, which is that of the longest message.
    pub buffer_bytes: usize,
    /// The most of it if the provider asks for registered buffers: these have all their pages, and count as locked memory.
    pub registered_bytes_max: usize,
}

impl Queues {
    /// The usual queues. Two buffers hold 64 KiB and what each frame adds, or eight registered ones. Registered, they take
    /// 2.6 MiB; others have only the pages that were used. More than 8 MiB of locked memory is often forbidden.
    pub const USUAL: Queues = Queues {
        receives: 256,
        sends: 64,
        reads: 16,
        buffer_bytes: (32 << 10) + 256,
        registered_bytes_max: (8 << 10) + 256,
    };
}

/// An open provider.
pub struct Fabric {
    /// The endpoint.
    pub endpoint: Endpoint,
    /// The provider's name.
    pub provider: String,
    /// The name of its domain, such as a network device.
    pub domain: String,
    /// The name of the fabric. Peers on fabrics of other names cannot be reached.
    pub fabric: String,
    /// The version of libfabric.
    pub version: (u32, u32),
}

impl Fabric {
    /// Opens an endpoint as the setting says. Returns `None` if the setting says `off`, or if it says `auto` and there is
    /// no network that is worth it.
    ///
    /// Loading the library takes some milliseconds and, with some providers' libraries, megabytes of memory.
    pub fn open(setting: &Setting, queues: Queues) -> Result<Option<Fabric>, OpenError> {
        if *setting == Setting::Off {
            return Ok(None);
        }
        let library = Library::load(OsStr::new(LIBRARY)).map_err(OpenError::Library)?;
        Fabric::open_with(&library, setting, queues)
    }

    /// Does the same with a library that is already loaded.
    pub fn open_with(library: &Library, setting: &Setting, queues: Queues) -> Result<Option<Fabric>, OpenError> {
        if *setting == Setting::Off {
            return Ok(None);
        }
        let mut candidates = library.candidates(setting.provider()).map_err(OpenError::List)?;
        let mut chosen = choice::choose(setting, &candidates);
        if let Some(former) = setting.by_former_name().filter(|_| chosen.is_none()) {
            candidates = library.candidates(former.provider()).map_err(OpenError::List)?;
            chosen = choice::choose(&former, &candidates);
        }
        let Some(chosen) = chosen else {
            return if *setting == Setting::Auto { Ok(None) } else { Err(no_provider(library, setting)) };
        };
        let candidate = candidates.swap_remove(chosen);
        let (provider, domain) = (candidate.provider.clone(), candidate.domain.clone());
        let (fabric, version) = (candidate.fabric.clone(), library.version());
        match Endpoint::open(candidate, queues) {
            Ok(endpoint) => Ok(Some(Fabric { endpoint, provider, domain, fabric, version })),
            Err(failure) => Err(OpenError::Provider { name: format!("{provider};{domain}"), failure }),
        }
    }
}

/// Returns the error that says what there is instead.
fn no_provider(library: &Library, wanted: &Setting) -> OpenError {
    let all = match library.candidates(None) {
        Ok(all) => all,
        Err(reason) => return OpenError::List(reason),
    };
    let name = |candidate: &Candidate| format!("{};{}", candidate.provider, candidate.domain);
    let mut offered: Vec<String> = all.iter().map(name).collect();
    offered.sort();
    offered.dedup();
    OpenError::NoProvider { wanted: wanted.clone(), offered }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_lacking_is_said_in_words() {
        let text = |error: OpenError| error.to_string();
        let absent = Library::load(OsStr::new("libfabric-that-is-not-there.so.1")).err().unwrap();
        assert!(matches!(&absent, LoadError::Absent(reason) if reason.contains("not-there")), "{absent:?}");
        // A library, but another one.
        assert_eq!(Library::load(OsStr::new("libc.so.6")).err(), Some(LoadError::Broken("fi_getinfo".into())));
        assert_eq!(
            text(OpenError::Library(LoadError::TooOld { major: 1, minor: 6 })),
            "looked for libfabric.so.1 of version 1.14 or later, found 1.6"
        );
        let wanted: Setting = "verbs;ofi_rxm;mlx5_0".parse().unwrap();
        assert_eq!(
            text(OpenError::NoProvider { wanted, offered: vec!["tcp;eth0".into(), "tcp;lo".into()] }),
            "looked for the provider verbs;ofi_rxm with the domain mlx5_0; libfabric.so.1 offers tcp;eth0, tcp;lo"
        );
    }

    #[test]
    fn without_a_fabric_nothing_is_opened() {
        assert!(matches!(Fabric::open(&Setting::Off, Queues::USUAL), Ok(None)));
    }
}
