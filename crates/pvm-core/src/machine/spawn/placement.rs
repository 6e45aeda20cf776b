//! On which hosts the tasks of a spawn are placed: pure functions of the host table and the request.
use crate::codes::{HOST_COMPL, TASK_ARCH, TASK_HOST};
use crate::machine::host_table::HostTable;
use crate::proto::Spawn;
use crate::tid::Tid;
use std::collections::BTreeMap;

/// The host or architecture, and the directory, of a spawn's `where`.
pub(super) fn split_place(flags: i32, place: &[u8]) -> (&[u8], Option<&[u8]>) {
    if flags & (TASK_HOST | TASK_ARCH) == 0 && place.first() != Some(&b':') {
        return (b"", None);
    }
    match place.iter().position(|byte| *byte == b':') {
        Some(at) => (&place[..at], Some(&place[at + 1..]).filter(|directory| !directory.is_empty())),
        None => (place, None),
    }
}

/// The hosts among which a spawn of a task is dealt out, in the order of the tasks' numbers, and where the next spawn
/// begins.
pub(super) fn hosts_for(hosts: &HostTable, next: Tid, request: &Spawn) -> (Vec<Tid>, Tid) {
    let (place, _) = split_place(request.flags, &request.place);
    if request.flags & (TASK_HOST | TASK_ARCH | HOST_COMPL) == TASK_HOST && place.contains(&b',') {
        // A list says in which order, and a name that stands there twice counts twice.
        return (place.split(|byte| *byte == b',').filter_map(|name| hosts.find(name)).collect(), next);
    }
    let mut chosen = candidates(hosts, next, request);
    if chosen.is_empty() {
        return (chosen, next);
    }
    // Behind the last one that gets a task.
    let used = chosen.len().min(request.count as usize);
    let next = chosen[used % chosen.len()];
    chosen.truncate(used);
    (chosen, next)
}

/// The hosts on which tasks of a spawn may be started, in turn from `next` on: no more than can get one, and the
/// one after them.
fn candidates(hosts: &HostTable, next: Tid, request: &Spawn) -> Vec<Tid> {
    let flags = request.flags;
    let (place, directory) = split_place(flags, &request.place);
    let any = place.is_empty() && directory.is_some();
    let named = hosts.find(place);
    if flags & (TASK_HOST | TASK_ARCH | HOST_COMPL) == TASK_HOST && !any {
        return named.into_iter().collect();
    }
    let chosen = |tid: Tid| match flags & (TASK_HOST | TASK_ARCH) {
        0 => true,
        _ if any => true,
        TASK_ARCH => hosts.is_arch(tid, place),
        _ => named == Some(tid),
    };
    let complement = flags & HOST_COMPL != 0;
    let in_turn = hosts.tids_from(next);
    in_turn.filter(|tid| chosen(*tid) != complement).take(request.count as usize + 1).collect()
}

/// How many of `count` tasks each of the hosts gets: contiguous blocks, each of which ends where its even share
/// would, rounded up.
fn blocks(count: usize, hosts: usize) -> impl Iterator<Item = usize> {
    let end = move |hosts_done: usize| (count * hosts_done).div_ceil(hosts);
    (0..hosts).map(move |host| end(host + 1) - end(host))
}

/// How many of `count` tasks each of the hosts gets; one that stands there more than once gets as many shares.
pub(super) fn shares(count: usize, hosts: &[Tid]) -> Vec<(Tid, usize)> {
    let (mut shares, mut places): (Vec<(Tid, usize)>, _) = (Vec::new(), BTreeMap::new());
    for (host, count) in hosts.iter().zip(blocks(count, hosts.len())).filter(|(_, count)| *count > 0) {
        let place = *places.entry(*host).or_insert(shares.len());
        match shares.get_mut(place) {
            Some((_, share)) => *share += count,
            None => shares.push((*host, count)),
        }
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_are_dealt_in_blocks() {
        let blocks = |count, hosts| blocks(count, hosts).collect::<Vec<_>>();
        assert_eq!(blocks(5, 2), [3, 2]);
        assert_eq!(blocks(6, 4), [2, 1, 2, 1]);
        assert_eq!(blocks(9, 4), [3, 2, 2, 2]);
        assert_eq!(blocks(7, 1), [7]);
    }

    #[test]
    fn a_host_that_is_listed_twice_gets_two_shares() {
        let [a, b] = [1, 2].map(Tid::host_number);
        assert_eq!(shares(6, &[a, b, a]), [(a, 4), (b, 2)]);
        assert_eq!(shares(1, &[b, a]), [(b, 1)]);
    }

    #[test]
    fn a_place_is_a_name_and_a_directory() {
        assert_eq!(split_place(TASK_HOST, b"alfa:/tmp"), (&b"alfa"[..], Some(&b"/tmp"[..])));
        assert_eq!(split_place(TASK_HOST, b"alfa"), (&b"alfa"[..], None));
        assert_eq!(split_place(TASK_ARCH, b"LINUX64:"), (&b"LINUX64"[..], None));
        assert_eq!(split_place(0, b":/tmp"), (&b""[..], Some(&b"/tmp"[..])));
        assert_eq!(split_place(0, b"any:thing"), (&b""[..], None));
        assert_eq!(split_place(0, b"*"), (&b""[..], None));
    }
}
