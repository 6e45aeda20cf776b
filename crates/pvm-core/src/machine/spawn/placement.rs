//! Placement of a spawn's tasks on hosts: pure functions of the host table and the request.
use crate::codes::{HOST_COMPL, TASK_ARCH, TASK_HOST};
use crate::machine::host_table::HostTable;
use crate::proto::Spawn;
use crate::tid::Tid;
use std::collections::BTreeMap;

/// Splits the `where` of a spawn into the host or architecture, and the directory.
pub(super) fn split_place(flags: i32, place: &[u8]) -> (&[u8], Option<&[u8]>) {
    if flags & (TASK_HOST | TASK_ARCH) == 0 && place.first() != Some(&b':') {
        return (b"", None);
    }
    match place.iter().position(|byte| *byte == b':') {
        Some(at) => (&place[..at], Some(&place[at + 1..]).filter(|directory| !directory.is_empty())),
        None => (place, None),
    }
}

/// Returns the hosts over which a task's spawn is distributed, in the order of the instance numbers, and the host at
/// which the next spawn starts.
pub(super) fn hosts_for(hosts: &HostTable, next: Tid, request: &Spawn) -> (Vec<Tid>, Tid) {
    let (place, _) = split_place(request.flags, &request.place);
    if request.flags & (TASK_HOST | TASK_ARCH | HOST_COMPL) == TASK_HOST && place.contains(&b',') {
        // A list fixes the order; a name that is listed twice counts twice.
        return (place.split(|byte| *byte == b',').filter_map(|name| hosts.find_for_tasks(name)).collect(), next);
    }
    let mut chosen = candidates(hosts, next, request);
    if chosen.is_empty() {
        return (chosen, next);
    }
    // The next spawn starts after the last host that gets a task.
    let used = chosen.len().min(request.count as usize);
    let next = chosen[used % chosen.len()];
    chosen.truncate(used);
    (chosen, next)
}

/// Returns the allowed hosts in cyclic order from `next` on, at most one more than there are tasks: the next spawn may
/// start at that last host.
fn candidates(hosts: &HostTable, next: Tid, request: &Spawn) -> Vec<Tid> {
    let flags = request.flags;
    let (place, directory) = split_place(flags, &request.place);
    let any = place.is_empty() && directory.is_some();
    let named = hosts.find_for_tasks(place);
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
    let in_turn = hosts.for_tasks_from(next);
    in_turn.filter(|tid| chosen(*tid) != complement).take(request.count as usize + 1).collect()
}

/// Splits `count` tasks into one contiguous block for each host, and returns the sizes of the blocks. The first n
/// blocks together have n / `hosts` of the tasks, rounded up.
fn block_sizes(count: usize, hosts: usize) -> impl Iterator<Item = usize> {
    let end = move |hosts_done: usize| (count * hosts_done).div_ceil(hosts);
    (0..hosts).map(move |host| end(host + 1) - end(host))
}

/// Returns how many of `count` tasks each host gets; a host that is listed several times gets one block each time.
pub(super) fn counts_by_host(count: usize, hosts: &[Tid]) -> Vec<(Tid, usize)> {
    let (mut counts, mut places): (Vec<(Tid, usize)>, _) = (Vec::new(), BTreeMap::new());
    for (host, count) in hosts.iter().zip(block_sizes(count, hosts.len())).filter(|(_, count)| *count > 0) {
        let place = *places.entry(*host).or_insert(counts.len());
        match counts.get_mut(place) {
            Some((_, share)) => *share += count,
            None => counts.push((*host, count)),
        }
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_are_dealt_in_blocks() {
        let block_sizes = |count, hosts| block_sizes(count, hosts).collect::<Vec<_>>();
        assert_eq!(block_sizes(5, 2), [3, 2]);
        assert_eq!(block_sizes(6, 4), [2, 1, 2, 1]);
        assert_eq!(block_sizes(9, 4), [3, 2, 2, 2]);
        assert_eq!(block_sizes(7, 1), [7]);
    }

    #[test]
    fn a_host_that_is_listed_twice_gets_two_shares() {
        let [a, b] = [1, 2].map(Tid::host_number);
        assert_eq!(counts_by_host(6, &[a, b, a]), [(a, 4), (b, 2)]);
        assert_eq!(counts_by_host(1, &[b, a]), [(b, 1)]);
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
