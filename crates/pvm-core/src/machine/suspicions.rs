//! Which hosts cannot reach which, as they say.
//!
//! Of two hosts between which no link can be had one has to go, though the master reaches both. At first it is
//! the one that the other complains of. But one that complains of many is cut off itself, or lies; then it
//! goes. Hosts are known by their names here: one that breaks its links and comes back under a new
//! number would else have those removed who complain of it each time, and one that lies could begin anew.
use super::Time;
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

/// Others that a host can have removed within ten minutes though the master itself reaches them.
///
/// * Filled by: each other host
/// * Setting: none, two links that break at once are rare already
/// * Reached: the host is removed itself
/// * Test: `who_complains_of_one_time_and_again_is_believed_and_who_complains_of_many_is_not`
const OTHERS_MAX: usize = 2;
/// How long it is remembered: hosts fail now and then, and one of those who miss them first may not be blamed for
/// all of them.
const MEMORY: Duration = Duration::from_secs(600);

/// Complaints, by the name of the host that complains.
#[derive(Default)]
pub(super) struct Suspicions(HashMap<String, BTreeMap<String, Time>>);

impl Suspicions {
    /// A host complains of another. Whether it is believed.
    pub fn believed(&mut self, from: &str, of: &str, now: Time) -> bool {
        self.0.retain(|_, others| {
            others.retain(|_, when| now < *when + MEMORY);
            !others.is_empty()
        });
        let others = self.0.entry(from.to_owned()).or_default();
        if others.len() >= OTHERS_MAX && !others.contains_key(of) {
            return false;
        }
        others.insert(of.to_owned(), now);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_complains_of_one_time_and_again_is_believed_and_who_complains_of_many_is_not() {
        let (mut suspicions, mut now) = (Suspicions::default(), Duration::from_secs(1));
        assert!((0..1000).all(|_| suspicions.believed("good", "evil", now)));
        assert!(suspicions.believed("good", "broken", now));
        assert!(!suspicions.believed("good", "third", now));
        assert!(suspicions.believed("good", "evil", now));
        now += MEMORY;
        assert!(suspicions.believed("good", "third", now));
        assert_eq!(suspicions.0.len(), 1);
    }
}
