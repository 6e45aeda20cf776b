//! Binomial trees: the root has position 0, and the parent of a position is that position without its highest bit. So
//! the root has the children 1, 2, 4, …, and news reaches n positions in about log2(n) steps.

/// Returns the parent of a position. The root has none.
pub fn parent(position: usize) -> Option<usize> {
    position.checked_ilog2().map(|highest| position & !(1 << highest))
}

/// Returns the children of a position in a tree of `count` positions.
pub fn children(position: usize, count: usize) -> impl Iterator<Item = usize> {
    let bits = (0..usize::BITS).map(|bit| 1 << bit);
    bits.skip_while(move |bit| *bit <= position).map(move |bit| position | bit).take_while(move |child| *child < count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_position_but_the_root_is_the_child_of_its_parent() {
        assert_eq!(parent(0), None);
        for count in 1..70 {
            let mut found: Vec<usize> = (0..count).flat_map(|position| children(position, count)).collect();
            found.sort_unstable();
            assert_eq!(found, (1..count).collect::<Vec<_>>());
            for child in 1..count {
                assert!(children(parent(child).unwrap(), count).any(|other| other == child));
            }
        }
        assert_eq!(children(0, 9).collect::<Vec<_>>(), [1, 2, 4, 8]);
        assert_eq!(children(1, 9).collect::<Vec<_>>(), [3, 5]);
    }
}
