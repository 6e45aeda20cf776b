//! Binomial trees: the root has position 0, and the parent of a position is that position without its highest bit. So
//! the root has the children 1, 2, 4, …, and news reaches n positions in about log2(n) steps.

/// Returns the parent of a position. The root has none.
pub fn parent(position: usize) -> Option<usize> {
    position.checked_ilog2().map(|highest| position & !(1 << highest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parent_of_a_position_lacks_its_highest_bit() {
        assert_eq!(parent(0), None);
        assert_eq!((1..9).filter_map(parent).collect::<Vec<_>>(), [0, 0, 1, 0, 1, 2, 3, 0]);
    }
}
