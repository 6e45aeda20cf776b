//! How long this daemon has run, and how long it has waited for a processor, as the kernel counts it.
use std::time::Duration;

/// The kernel's counters of the calling thread: nanoseconds that it has run, nanoseconds that it was ready to run and
/// waited, and how often it was given a processor.
const COUNTERS: &str = "/proc/thread-self/schedstat";

/// Reads the counters: how long this thread has run, and how long it has waited. Returns `None` if the kernel does not
/// count.
pub fn read() -> Option<(Duration, Duration)> {
    parse(&std::fs::read_to_string(COUNTERS).ok()?)
}

fn parse(text: &str) -> Option<(Duration, Duration)> {
    let mut numbers = text.split_whitespace().map(|word| word.parse().map(Duration::from_nanos));
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counters_are_read() {
        let expected = (Duration::from_nanos(2_000_000_001), Duration::from_nanos(77));
        assert_eq!(parse("2000000001 77 5\n"), Some(expected));
        assert_eq!(parse("12"), None);
        assert_eq!(parse("a b c"), None);
    }

    #[test]
    fn what_this_thread_runs_is_counted() {
        let Some((before, _)) = read() else { return };
        while read().is_some_and(|(ran, _)| ran < before + Duration::from_millis(2)) {}
        assert!(read().is_some_and(|(ran, _)| ran > before));
    }
}
