//! How much more memory this process may take under its control groups, in versions 1 and 2 of `cgroups(7)`.
//!
//! A process is bound by the limit of its own group and by the limits of all groups above it.
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// A limit, and how much is still available under it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    pub limit_bytes: u64,
    pub available_bytes: u64,
}

/// A value of this many bytes or more means that there is no limit: version 1 reports a large number in this case.
const NO_LIMIT_BYTES: u64 = 1 << 60;

/// The names of the files, and of a line of `memory.stat`, in one version of `cgroups(7)`.
struct Names {
    limits: &'static [&'static str],
    usage: &'static str,
    /// The name of a line of `memory.stat`: the size of the file pages in this group and the groups below it. The
    /// system drops such pages when it needs memory.
    reclaimable: &'static str,
    /// The name of the file whose content says whether the limit of a group binds the groups below it.
    hierarchy: Option<&'static str>,
}

const FIRST: Names = Names {
    limits: &["memory.limit_in_bytes"],
    usage: "memory.usage_in_bytes",
    reclaimable: "total_inactive_file ",
    hierarchy: Some("memory.use_hierarchy"),
};
/// The names in version 2. `memory.high` counts as a limit: above it, the system slows a process down so much that the
/// process seems to hang.
const SECOND: Names = Names {
    limits: &["memory.max", "memory.high"],
    usage: "memory.current",
    reclaimable: "inactive_file ",
    hierarchy: None,
};

/// Returns the room under each limit that binds this process. `root` is the directory that holds `proc` and the mounted
/// groups.
pub fn rooms(root: &Path) -> Vec<Room> {
    let read = |name| fs::read_to_string(root.join("proc/self").join(name)).unwrap_or_default();
    let (groups, mounts) = (read("cgroup"), read("mountinfo"));
    let mut rooms = Vec::new();
    for line in groups.lines() {
        let mut words = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(group)) = (words.next(), words.next()) else { continue };
        let names = match controllers {
            "" => &SECOND,
            _ if controllers.split(',').any(|name| name == "memory") => &FIRST,
            _ => continue,
        };
        if let Some((folder, top)) = folder_of(&mounts, controllers.is_empty(), group) {
            add_rooms(root, names, &folder, &top, &mut rooms);
        }
    }
    rooms
}

/// Returns the folder of a group, and the folder of the highest group that this process can see.
fn folder_of(mounts: &str, second: bool, group: &str) -> Option<(PathBuf, PathBuf)> {
    let mount = |line: &str| {
        let (place, kind) = line.split_once(" - ")?;
        let kind: Vec<&str> = kind.split(' ').collect();
        let serves = match second {
            true => kind.first() == Some(&"cgroup2"),
            false => kind.first() == Some(&"cgroup") && kind.last()?.split(',').any(|name| name == "memory"),
        };
        let mut place = place.split(' ').skip(3);
        let (from, at) = (unescaped(place.next()?), unescaped(place.next()?));
        serves.then_some((from, at))
    };
    let mounted: Vec<(PathBuf, PathBuf)> = mounts.lines().filter_map(mount).collect();
    // A container may have only a part of the tree mounted; then it cannot see the groups above that part.
    let below = |(from, at): &(PathBuf, PathBuf)| {
        let rest = Path::new(group).strip_prefix(from).ok()?;
        let plain = rest.components().all(|part| matches!(part, std::path::Component::Normal(_)));
        plain.then(|| (at.join(rest), at.clone()))
    };
    let found = mounted.iter().find_map(below);
    found.or_else(|| mounted.first().map(|(_, at)| (at.clone(), at.clone())))
}

/// Decodes a path in which the system has written blanks as octal numbers (`\040`).
fn unescaped(path: &str) -> PathBuf {
    let (mut bytes, mut rest) = (Vec::new(), path.as_bytes());
    while let [first, tail @ ..] = rest {
        let number = tail.get(..3).and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());
        match number.filter(|_| *first == b'\\') {
            Some(byte) => {
                bytes.push(byte);
                rest = &tail[3..];
            }
            None => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    PathBuf::from(OsString::from_vec(bytes))
}

fn add_rooms(root: &Path, names: &Names, folder: &Path, top: &Path, rooms: &mut Vec<Room>) {
    for level in folder.ancestors().take_while(|level| level.starts_with(top)) {
        let level_here = root.join(level.strip_prefix("/").unwrap_or(level));
        let text = |name: &str| fs::read_to_string(level_here.join(name)).ok();
        let binds = |name| level == folder || text(name).is_none_or(|text| text.trim() != "0");
        if !names.hierarchy.is_none_or(binds) {
            continue;
        }
        let number = |name: &str| text(name)?.trim().parse::<u64>().ok();
        let limit = names.limits.iter().filter_map(|name| number(name)).min();
        let Some(limit_bytes) = limit.filter(|limit| *limit < NO_LIMIT_BYTES) else { continue };
        let Some(used) = number(names.usage) else { continue };
        let reclaimable = text("memory.stat").and_then(|stat| {
            stat.lines().find_map(|line| line.strip_prefix(names.reclaimable)?.trim().parse::<u64>().ok())
        });
        let available_bytes = limit_bytes.saturating_sub(used.saturating_sub(reclaimable.unwrap_or(0)));
        rooms.push(Room { limit_bytes, available_bytes });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A tree of files, which is removed when the value is dropped.
    struct Tree(PathBuf);

    impl Tree {
        fn new(files: &[(&str, &str)]) -> Tree {
            static NUMBER: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
            let number = NUMBER.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            let tree = Tree(std::env::temp_dir().join(format!("hpvm-groups-{}-{number}", std::process::id())));
            for (name, text) in files {
                let path = tree.0.join(name);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, text).unwrap();
            }
            tree
        }
        /// Returns limit and available memory of each group, from the group of this process upwards.
        fn rooms(&self) -> Vec<(u64, u64)> {
            rooms(&self.0).iter().map(|room| (room.limit_bytes, room.available_bytes)).collect()
        }
    }

    impl Drop for Tree {
        fn drop(&mut self) {
            fs::remove_dir_all(&self.0).unwrap();
        }
    }

    #[test]
    fn limits_of_the_groups_above_count_in_the_second_version() {
        let tree = Tree::new(&[
            ("proc/self/cgroup", "0::/job/step/task\n"),
            ("proc/self/mountinfo", "25 20 0:22 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"),
            ("sys/fs/cgroup/job/step/task/memory.max", "max\n"),
            ("sys/fs/cgroup/job/step/task/memory.current", "10\n"),
            ("sys/fs/cgroup/job/step/memory.max", "3000\n"),
            ("sys/fs/cgroup/job/step/memory.high", "2000\n"),
            ("sys/fs/cgroup/job/step/memory.current", "1500\n"),
            ("sys/fs/cgroup/job/memory.max", "4000\n"),
            ("sys/fs/cgroup/job/memory.current", "3900\n"),
            ("sys/fs/cgroup/job/memory.stat", "anon 5\nfile 700\nactive_file 100\ninactive_file 600\n"),
        ]);
        assert_eq!(tree.rooms(), [(2000, 500), (4000, 700)]);
    }

    #[test]
    fn the_first_version_is_read_where_its_controller_is_mounted() {
        let mounts = "\
            30 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n\
            31 30 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
            32 30 0:30 / /cg\\040x/mem rw shared:9 - cgroup cgroup rw,hugetlb,memory\n\
            33 30 0:31 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
        let mut files = vec![
            ("proc/self/cgroup", "5:cpu:/other\n4:hugetlb,memory:/a/b\n0::/a/b\n"),
            ("proc/self/mountinfo", mounts),
            ("cg x/mem/a/b/memory.limit_in_bytes", "200000000\n"),
            ("cg x/mem/a/b/memory.usage_in_bytes", "150000000\n"),
            ("cg x/mem/a/b/memory.stat", "inactive_file 1\ntotal_inactive_file 30000000\n"),
            ("cg x/mem/a/memory.limit_in_bytes", "100000000\n"),
            ("cg x/mem/a/memory.usage_in_bytes", "99000000\n"),
            ("cg x/mem/memory.limit_in_bytes", "9223372036854771712\n"),
            ("cg x/mem/memory.usage_in_bytes", "999000000\n"),
        ];
        assert_eq!(Tree::new(&files).rooms(), [(200_000_000, 80_000_000), (100_000_000, 1_000_000)]);
        // A group whose `use_hierarchy` is 0 does not bind the groups below it.
        files.push(("cg x/mem/a/memory.use_hierarchy", "0\n"));
        assert_eq!(Tree::new(&files).rooms(), [(200_000_000, 80_000_000)]);
    }

    #[test]
    fn containers_see_a_part_of_the_tree() {
        // Without a namespace for control groups, the path of the group is the host's, but the mounted tree is the
        // container's.
        let without = Tree::new(&[
            ("proc/self/cgroup", "4:memory:/docker/abc/inner\n"),
            ("proc/self/mountinfo", "32 30 0:30 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n"),
            ("sys/fs/cgroup/memory/inner/memory.limit_in_bytes", "70\n"),
            ("sys/fs/cgroup/memory/inner/memory.usage_in_bytes", "30\n"),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "100\n"),
            ("sys/fs/cgroup/memory/memory.usage_in_bytes", "130\n"),
        ]);
        assert_eq!(without.rooms(), [(70, 40), (100, 0)]);
        // With such a namespace, the process may even be in a group outside of the namespace.
        for group in ["/", "/../..", "/elsewhere/../.."] {
            let within = Tree::new(&[
                ("proc/self/cgroup", &format!("0::{group}\n")),
                ("proc/self/mountinfo", "25 20 0:22 / /sys/fs/cgroup rw - cgroup2 cgroup rw\n"),
                ("sys/fs/cgroup/memory.max", "100\n"),
                ("sys/fs/cgroup/memory.current", "25\n"),
            ]);
            assert_eq!(within.rooms(), [(100, 75)], "{group}");
        }
    }

    #[test]
    fn without_groups_there_is_no_limit() {
        assert_eq!(Tree::new(&[("proc/self/stat", "")]).rooms(), []);
    }
}
