//! Fuzz target: datagrams with releases of barriers, which anybody on the network may send.
use crate::groups::HeardReleases;
use pvm_core::release::Release;
use pvm_core::wire::{ReleaseDatagram, encode};
use pvm_fuzz::{Source, Unstructured, part};
use rustix::net::{AddressFamily, SocketFlags, SocketType};

/// The functions that decode this input.
pub const DECODER: &[Source] = &[
    part("crates/pvm-core/src/wire/mod.rs", &["read"]),
    part("crates/pvm-core/src/release.rs", &["accept", "told"]),
    part("crates/pvm-task/src/groups/releases.rs", &["hear", "told", "begin_chain"]),
];

const GROUP: u64 = 5;
/// The length of each chain, in releases.
const CHAIN_RELEASES: u32 = 24;
/// The number of chains. The last one is not told to the task.
const CHAINS: u32 = 3;

/// The releases that the master of the machine makes, by chain, and what the task must know of them.
struct Master {
    chains: Vec<Vec<Release>>,
    /// The last release that the task knows, if it hears the group.
    last: Option<Release>,
    is_awaited: bool,
    has_come: bool,
}

impl Master {
    fn new() -> Master {
        let chains = (0..CHAINS).map(chain).collect();
        Master { chains, last: None, is_awaited: false, has_come: false }
    }

    fn is_true(&self, release: &Release) -> bool {
        let chain = self.chains.get(release.chain as usize);
        chain.and_then(|chain| chain.get(release.index as usize)) == Some(release)
    }

    /// Returns whether a datagram is the next true release, for which the task waits.
    fn is_next(&self, datagram: &ReleaseDatagram) -> bool {
        let ReleaseDatagram { group, release } = datagram;
        let follows = |last: &Release| last.chain == release.chain && last.index + 1 == release.index;
        *group == GROUP && self.is_open() && self.last.as_ref().is_some_and(follows) && self.is_true(release)
    }

    /// Returns whether the task waits and has heard nothing yet.
    fn is_open(&self) -> bool {
        self.is_awaited && !self.has_come
    }
}

/// Returns a chain of releases, the anchor first: each value is the image of the next one.
fn chain(number: u32) -> Vec<Release> {
    let values = std::iter::successors(Some([number as u8; 32]), |value| Some(pvm_net::one_way(value)));
    let mut values: Vec<_> = values.take(CHAIN_RELEASES as usize).collect();
    values.reverse();
    (0..).zip(values).map(|(index, value)| Release { chain: number, index, value }).collect()
}

/// Lets a task hear datagrams while it waits, and not. Only a true release that is newer than the last one may end a
/// wait, and the next true one must end it.
pub fn releases(bytes: &[u8]) {
    // An error only means that no bytes are left.
    let _ = hearing(&mut Unstructured::new(bytes));
}

fn hearing(from: &mut Unstructured<'_>) -> pvm_fuzz::Result<()> {
    let (mut task, mut master) = (HeardReleases::default(), Master::new());
    let (socket, _far) =
        rustix::net::socketpair(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::CLOEXEC, None).expect("sockets");
    task.set_socket(socket);
    while !from.is_empty() {
        match from.arbitrary::<u8>()? % 8 {
            0 => {
                let anchor = Some(true_release(&master, from, CHAINS - 1)?).filter(|release| release.index % 4 != 3);
                task.begin_chain(GROUP, anchor.clone());
                (master.last, master.is_awaited, master.has_come) = (anchor, false, false);
            }
            1 => {
                let news = task.begin_wait(GROUP);
                assert!(news.is_none() || news == master.last);
                (master.is_awaited, master.has_come) = (master.last.is_some(), false);
            }
            2 => {
                task.end_wait(GROUP);
                master.is_awaited = false;
            }
            3 => {
                // The daemon tells the truth.
                let release = true_release(&master, from, CHAINS - 1)?;
                task.told(GROUP, release.clone());
                if let Some(last) = &mut master.last {
                    if last.chain == release.chain && last.index < release.index {
                        *last = release;
                    }
                }
            }
            4 => heard(&mut task, &mut master, from.bytes_of_some_length()?),
            _ => {
                let release = true_release(&master, from, CHAINS)?;
                let datagram = changed(encode(&ReleaseDatagram { group: GROUP, release }), from)?;
                heard(&mut task, &mut master, &datagram);
            }
        }
    }
    Ok(())
}

/// Returns a true release of one of the first chains.
fn true_release(master: &Master, from: &mut Unstructured<'_>, chains: u32) -> pvm_fuzz::Result<Release> {
    let (chain, index) = (u32::from(from.arbitrary::<u8>()?) % chains, u32::from(from.arbitrary::<u8>()?));
    Ok(master.chains[chain as usize][(index % CHAIN_RELEASES) as usize].clone())
}

/// Truncates, lengthens or changes a datagram, or leaves it as it is.
fn changed(mut datagram: Vec<u8>, from: &mut Unstructured<'_>) -> pvm_fuzz::Result<Vec<u8>> {
    match from.arbitrary::<u8>()? % 8 {
        0 => datagram.truncate(from.arbitrary::<u8>()?.into()),
        1 => datagram.extend_from_slice(from.bytes_of_some_length()?),
        2 => {
            let place = usize::from(from.arbitrary::<u8>()?) % datagram.len();
            datagram[place] ^= from.arbitrary::<u8>()?;
        }
        _ => {}
    }
    Ok(datagram)
}

/// Lets the task hear a datagram, and checks what it concludes.
fn heard(task: &mut HeardReleases, master: &mut Master, datagram: &[u8]) {
    let read = ReleaseDatagram::read(datagram).ok();
    let must_end = read.as_ref().is_some_and(|read| master.is_next(read));
    let has_ended = task.hear(datagram);
    assert!(has_ended || !must_end, "the next true release is refused");
    if !has_ended {
        return;
    }
    let release = read.expect("it was read").release;
    let is_newer = master.last.as_ref().is_some_and(|last| last.chain == release.chain && last.index < release.index);
    assert!(master.is_open() && is_newer && master.is_true(&release), "a false release: {release:?}");
    assert!(task.has_come(GROUP));
    (master.last, master.has_come) = (Some(release), true);
}
