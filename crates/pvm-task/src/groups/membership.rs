//! The members of a group at one moment.

/// The version of a membership that must not be used again. A list has an odd version only while it changes, so this
/// version fits no complete list.
pub(super) const STALE: u32 = 1;

/// The members of a group at one moment.
pub(crate) struct Membership {
    /// The version of the list from which the members were read, or [`STALE`].
    pub version: u32,
    /// Instance and tid of each member, in the order of the instances.
    pub members: Vec<(u32, u32)>,
}

impl Membership {
    /// Returns a membership that has not been read yet.
    pub fn unread() -> Membership {
        Membership { version: STALE, members: Vec::new() }
    }

    /// Returns the lowest instance that no member has.
    pub fn first_free(&self) -> u32 {
        let is_dense = |(index, (instance, _)): &(usize, &(u32, u32))| *index == *instance as usize;
        self.members.iter().enumerate().take_while(is_dense).count() as u32
    }

    /// Returns the tid of an instance. Usually the instances have no holes; then the instance is the index in the list.
    #[inline]
    pub fn tid_of(&self, instance: u32) -> Option<u32> {
        match self.members.get(instance as usize) {
            Some((there, tid)) if *there == instance => Some(*tid),
            _ => {
                let at = self.members.binary_search_by_key(&instance, |(instance, _)| *instance).ok()?;
                Some(self.members[at].1)
            }
        }
    }

    /// Returns the instance of a tid.
    pub fn instance_of(&self, tid: u32) -> Option<u32> {
        self.members.iter().find(|(_, member)| *member == tid).map(|(instance, _)| *instance)
    }

    /// Returns whether a task is a member.
    pub fn contains(&self, tid: i32) -> bool {
        self.instance_of(tid as u32).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn membership(members: &[(u32, u32)]) -> Membership {
        Membership { version: 0, members: members.to_vec() }
    }

    #[test]
    fn members_are_found_beside_holes_too() {
        let whole = membership(&[(0, 40), (1, 41), (2, 42)]);
        assert_eq!([0, 2, 3].map(|instance| whole.tid_of(instance)), [Some(40), Some(42), None]);
        let holed = membership(&[(1, 41), (2, 42), (5, 45)]);
        assert_eq!([0, 1, 2, 5].map(|instance| holed.tid_of(instance)), [None, Some(41), Some(42), Some(45)]);
        assert_eq!([41, 45, 40].map(|tid| holed.instance_of(tid)), [Some(1), Some(5), None]);
        assert!(holed.contains(42) && !holed.contains(40));
        let late = membership(&[(0, 40), (1, 41), (5, 45)]);
        assert_eq!([whole, holed, late, Membership::unread()].map(|membership| membership.first_free()), [3, 0, 2, 0]);
    }
}
