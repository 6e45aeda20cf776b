//! Releases of barriers over several hosts that a task hears itself: datagrams to all hosts, which anybody may send. A
//! release that the daemon had to pass on would wake the daemon first, and then the task.
//!
//! Each release is checked against the one before. The task knows that one from its daemon: the anchor of the chain, or
//! the release with which the daemon has answered a barrier. So whatever way the end of a barrier comes, no later
//! datagram that repeats it can end the next one.
use pvm_core::release::Release;
use pvm_core::wire::{RELEASE_DATAGRAM_BYTES_MAX, ReleaseDatagram};
use pvm_descriptor::OwnDescriptor;
use rustix::io::Errno;
use rustix::net::RecvFlags;
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;

/// The most groups whose chains a task remembers.
///
/// * Filled by: the groups that a task joins and leaves
/// * Setting: none, few tasks are in many groups over several hosts
/// * Reached: barriers of further groups are answered by the daemon
/// * Test: `chains_of_few_groups_are_remembered`
const GROUPS_MAX: usize = 256;
/// The most datagrams that are read in a row.
const DATAGRAMS_IN_A_ROW_MAX: usize = 64;

/// What a task knows about the releases of a group's barriers.
struct KnownReleases {
    /// The release that is known last.
    last: Release,
    /// Whether the task has heard it itself, and has not told its daemon.
    is_news: bool,
    /// Whether a thread of the task waits for the next one.
    is_awaited: bool,
    /// Whether the release that was awaited has come.
    has_come: bool,
}

/// The releases that a task hears.
#[derive(Default)]
pub(crate) struct HeardReleases {
    socket: Option<OwnDescriptor>,
    groups: BTreeMap<u64, KnownReleases>,
    /// The number of groups for whose release a thread waits.
    awaited: usize,
}

impl HeardReleases {
    /// Sets the socket that receives releases.
    pub fn set_socket(&mut self, socket: OwnedFd) {
        self.socket = Some(socket.into());
    }

    /// Returns the socket that receives releases.
    pub fn socket(&self) -> Option<&OwnDescriptor> {
        self.socket.as_ref()
    }

    /// Returns whether a thread waits for a release.
    pub fn are_awaited(&self) -> bool {
        self.awaited > 0
    }

    /// Notes the anchor of a new chain, or that the task does not hear the releases of the group.
    pub fn begin_chain(&mut self, group: u64, anchor: Option<Release>) {
        self.end_wait(group);
        match anchor {
            Some(last) if self.groups.len() < GROUPS_MAX || self.groups.contains_key(&group) => {
                let known = KnownReleases { last, is_news: false, is_awaited: false, has_come: false };
                self.groups.insert(group, known);
            }
            _ => drop(self.groups.remove(&group)),
        }
    }

    /// Notes a release with which the daemon has answered a barrier.
    pub fn told(&mut self, group: u64, release: Release) {
        let Some(known) = self.groups.get_mut(&group) else { return };
        known.is_news &= !known.last.told(&release);
    }

    /// Begins to wait for the release of a barrier at which the task arrives now. Returns the release before it that the
    /// task has heard itself, for the daemon.
    pub fn begin_wait(&mut self, group: u64) -> Option<Release> {
        let known = self.groups.get_mut(&group)?;
        if self.socket.is_some() && !std::mem::replace(&mut known.is_awaited, true) {
            self.awaited += 1;
        }
        known.has_come = false;
        std::mem::take(&mut known.is_news).then(|| known.last.clone())
    }

    /// Ends the wait.
    pub fn end_wait(&mut self, group: u64) {
        let known = self.groups.get_mut(&group);
        if known.is_some_and(|known| std::mem::take(&mut known.is_awaited)) {
            self.awaited -= 1;
        }
    }

    /// Returns whether a thread waits for a release of the group.
    pub fn is_awaited(&self, group: u64) -> bool {
        self.groups.get(&group).is_some_and(|known| known.is_awaited)
    }

    /// Returns whether the release that is awaited has come.
    pub fn has_come(&self, group: u64) -> bool {
        self.groups.get(&group).is_some_and(|known| known.has_come)
    }

    /// Reads what has arrived. Returns whether a release has come that a thread awaits.
    pub fn read(&mut self) -> bool {
        let mut has_come = false;
        for _ in 0..DATAGRAMS_IN_A_ROW_MAX {
            let mut bytes = [0; RELEASE_DATAGRAM_BYTES_MAX + 1];
            let Some(socket) = &self.socket else { break };
            let count = match rustix::net::recv(socket, &mut bytes[..], RecvFlags::DONTWAIT) {
                Ok((count, _)) => count,
                Err(Errno::BADF) => {
                    // The program has closed it; the daemon tells the next releases.
                    self.socket = None;
                    break;
                }
                Err(_) => break,
            };
            has_come |= self.hear(&bytes[..count]);
            // Mostly there is only one datagram.
            if has_come {
                break;
            }
        }
        has_come
    }

    /// Handles a datagram. Returns whether it is a release that a thread awaits.
    pub fn hear(&mut self, bytes: &[u8]) -> bool {
        let Ok(ReleaseDatagram { group, release }) = ReleaseDatagram::read(bytes) else { return false };
        let Some(known) = self.groups.get_mut(&group).filter(|known| known.is_awaited && !known.has_come) else {
            return false;
        };
        let is_accepted = known.last.accept(&release, pvm_net::one_way).is_ok();
        if is_accepted {
            (known.is_news, known.has_come) = (true, true);
        }
        is_accepted
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pvm_core::wire::encode;

    const GROUP: u64 = 5;

    /// Returns releases of a chain, the anchor first.
    fn chain(number: u32, count: u32) -> Vec<Release> {
        let values = std::iter::successors(Some([number as u8; 32]), |value| Some(pvm_net::one_way(value)));
        let mut values: Vec<_> = values.take(count as usize).collect();
        values.reverse();
        let release = |(index, value)| Release { chain: number, index: index as u32, value };
        values.into_iter().enumerate().map(release).collect()
    }

    fn datagram(release: &Release) -> Vec<u8> {
        encode(&ReleaseDatagram { group: GROUP, release: release.clone() })
    }

    fn listening() -> HeardReleases {
        let mut releases = HeardReleases::default();
        releases.set_socket(std::net::UdpSocket::bind("127.0.0.1:0").unwrap().into());
        releases
    }

    #[test]
    fn a_release_ends_the_barrier_for_which_it_was_made_and_no_other() {
        let (mut releases, chain) = (listening(), chain(1, 10));
        releases.begin_chain(GROUP, Some(chain[0].clone()));
        assert!(!releases.hear(&datagram(&chain[1])), "nobody waits");
        assert_eq!(releases.begin_wait(GROUP), None);
        let forged = Release { value: [9; 32], ..chain[1].clone() };
        assert!(!releases.hear(&datagram(&forged)) && !releases.hear(b"rubbish") && !releases.has_come(GROUP));
        assert!(releases.hear(&datagram(&chain[1])) && releases.has_come(GROUP));
        releases.end_wait(GROUP);
        assert!(!releases.are_awaited());
        assert_eq!(releases.begin_wait(GROUP).as_ref(), Some(&chain[1]), "the daemon learns it");
        assert!(!releases.hear(&datagram(&chain[1])), "a replay");
        // The daemon answers the second barrier, and the datagram comes late.
        releases.told(GROUP, chain[2].clone());
        releases.end_wait(GROUP);
        assert_eq!(releases.begin_wait(GROUP), None);
        assert!(!releases.hear(&datagram(&chain[2])));
        assert!(releases.hear(&datagram(&chain[3])));
    }

    #[test]
    fn a_new_chain_replaces_the_one_before() {
        let (mut releases, old, new) = (listening(), chain(1, 5), chain(2, 5));
        releases.begin_chain(GROUP, Some(old[0].clone()));
        releases.begin_chain(GROUP, Some(new[0].clone()));
        releases.begin_wait(GROUP);
        releases.told(GROUP, old[3].clone());
        assert!(!releases.hear(&datagram(&old[1])) && !releases.hear(&datagram(&old[4])));
        assert!(releases.hear(&datagram(&new[1])));
        releases.begin_chain(GROUP, None);
        assert!(!releases.are_awaited() && releases.begin_wait(GROUP).is_none() && !releases.are_awaited());
    }

    #[test]
    fn chains_of_few_groups_are_remembered() {
        let (mut releases, chain) = (listening(), chain(1, 2));
        (0..=GROUPS_MAX as u64).for_each(|group| releases.begin_chain(group, Some(chain[0].clone())));
        assert_eq!(releases.groups.len(), GROUPS_MAX);
        releases.begin_wait(GROUPS_MAX as u64);
        assert!(!releases.are_awaited() && !releases.has_come(GROUPS_MAX as u64));
        releases.end_wait(GROUPS_MAX as u64);
    }
}
