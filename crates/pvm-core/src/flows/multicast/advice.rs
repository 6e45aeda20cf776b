//! What a daemon tells the tasks of its host about multicasts, so that they know when to use their direct links.
//!
//! A message that a task sends on its links wakes no daemon and is copied less. But the body leaves the host once for
//! each receiver, and the task waits while the sockets take it. So links are the better way only where no other way is
//! much better than to send the body to each host, and where that is quick.
use super::MEASURED_BYTES_MIN;
use super::tree::{TREE_BYTES_MAX, TREE_BYTES_MIN, TREE_HOSTS_MIN};

/// The number of words of [`Advice`].
const ADVICE_WORDS: usize = 16;

/// For each number of hosts (the place is its binary logarithm) a word with two bits for each length of a body (its
/// binary logarithm). The bit in the low half says that links suit. The bit in the high half says that another way is
/// clearly better, also for shorter bodies. No bit is set where neither is true, or nothing is known.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Advice(pub [u64; ADVICE_WORDS]);

impl Advice {
    /// For a machine whose hostfile names the way, which is one of the daemons.
    pub const DAEMONS: Advice = Advice([(u32::MAX as u64) << 32; ADVICE_WORDS]);

    /// Sets both bits of a class: the binary logarithms of the length and of the number of hosts.
    pub(super) fn set(&mut self, (bytes, hosts): (u32, u32), links: bool, clearly_other_way: bool) {
        let (Some(word), true) = (self.0.get_mut(hosts as usize), bytes < 32) else { return };
        *word &= !(1 << bytes | 1 << (32 + bytes));
        *word |= u64::from(links) << bytes | u64::from(clearly_other_way) << (32 + bytes);
    }

    /// Returns the place of the word for a number of hosts, and `None` if there is none.
    pub fn place(hosts: usize) -> Option<usize> {
        hosts.checked_ilog2().map(|place| place as usize).filter(|place| *place < ADVICE_WORDS)
    }

    /// Returns whether a task that has links should use them for a body of `bytes` bytes to one task on each of `hosts`
    /// hosts. `word`: the word at [`Advice::place`].
    pub fn prefers_links(word: u64, bytes: usize, hosts: usize) -> bool {
        if bytes > TREE_BYTES_MAX {
            return false;
        }
        // Two hosts have no tree. To send to each of them is what two calls of `pvm_send` would do.
        if hosts < TREE_HOSTS_MIN {
            return true;
        }
        let class = bytes.max(MEASURED_BYTES_MIN).ilog2();
        let (links, clearly_other_way) = (word >> class & 1 != 0, word >> (32 + class) & 1 != 0);
        match bytes {
            ..TREE_BYTES_MIN => true,
            // These are not measured. They take the daemons' way only if it is clearly better for longer ones.
            TREE_BYTES_MIN..MEASURED_BYTES_MIN => !clearly_other_way,
            _ => links,
        }
    }

    /// Returns whether the daemon measures multicasts of this length and number of hosts.
    pub fn is_measured(bytes: usize, hosts: usize) -> bool {
        bytes >= MEASURED_BYTES_MIN && hosts >= TREE_HOSTS_MIN
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: usize = 300 << 10;
    const SHORT: usize = 32 << 10;

    /// Returns whether links are preferred over 15 hosts for a long body, and for one that is not measured.
    fn preferred(advice: &Advice) -> (bool, bool) {
        let word = advice.0[Advice::place(15).unwrap()];
        (Advice::prefers_links(word, LONG, 15), Advice::prefers_links(word, SHORT, 15))
    }

    #[test]
    fn links_are_preferred_as_the_bits_say() {
        let mut advice = Advice::default();
        assert_eq!(preferred(&advice), (false, true), "nothing is known");
        let classes = [LONG, MEASURED_BYTES_MIN].map(|bytes| (bytes.ilog2(), 15_usize.ilog2()));
        for (links, clearly_other_way, expected) in
            [(true, false, (true, true)), (false, true, (false, false)), (false, false, (false, true))]
        {
            classes.iter().for_each(|class| advice.set(*class, links, clearly_other_way));
            assert_eq!(preferred(&advice), expected);
        }
        assert_eq!(preferred(&Advice::DAEMONS), (false, false));
    }

    #[test]
    fn where_daemons_have_no_other_way_links_are_preferred() {
        let word = Advice::DAEMONS.0[0];
        assert!(Advice::prefers_links(word, LONG, TREE_HOSTS_MIN - 1));
        assert!(Advice::prefers_links(word, TREE_BYTES_MIN - 1, 100));
        assert!(
            !Advice::prefers_links(u64::from(u32::MAX), TREE_BYTES_MAX + 1, 2),
            "it would occupy the task for long"
        );
    }

    #[test]
    fn what_no_word_holds_is_ignored() {
        let mut advice = Advice::default();
        advice.set((32, 1), true, true);
        advice.set((20, ADVICE_WORDS as u32), true, true);
        assert_eq!(advice, Advice::default());
        assert_eq!((Advice::place(0), Advice::place(1), Advice::place(1 << ADVICE_WORDS)), (None, Some(0), None));
    }
}
