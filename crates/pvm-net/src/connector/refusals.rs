//! Limits the log lines about refused connections: the first refusals of an address are logged one by one, later
//! refusals only as a count.
use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// The number of refusals of one address that are logged one by one; every 10 s, one more is allowed.
///
/// * Filled by: whoever reaches the port
/// * Setting: none, further refusals are counted
/// * Reached: one later line says how many there were
/// * Test: `ten_thousand_refusals_make_few_lines_and_all_are_counted`
const LINES_MAX: u32 = 16;
/// The number of refusals of all addresses that are logged one by one; every 10 s, one more is allowed.
///
/// * Filled by: whoever reaches the port
/// * Setting: none, further refusals are counted
/// * Reached: one later line says how many there were
/// * Test: `many_addresses_are_bounded_too`
const ALL_LINES_MAX: u32 = 128;
/// The time after which one more line is allowed.
const LINE_TIME: Duration = Duration::from_secs(10);
/// Addresses whose refusals are counted.
///
/// * Filled by: whoever reaches the port
/// * Setting: none, the counts serve only the log
/// * Reached: refusals of further addresses are neither counted nor logged
/// * Test: `many_addresses_are_bounded_too`
const ADDRESSES_MAX: usize = 256;

/// The number of log lines that may be written now. This number grows again with time.
struct Allowance {
    left: u32,
    max: u32,
    since: Instant,
}

impl Allowance {
    fn full(max: u32, now: Instant) -> Allowance {
        Allowance { left: max, max, since: now }
    }

    fn refill(&mut self, now: Instant) {
        while self.left < self.max && now.saturating_duration_since(self.since) >= LINE_TIME {
            self.left += 1;
            self.since += LINE_TIME;
        }
        if self.left == self.max {
            self.since = now;
        }
    }
}

/// What is known about an address.
struct Record {
    allowance: Allowance,
    /// Refusals that were not logged.
    unlogged: u32,
}

/// Recent refusals.
#[derive(Default)]
pub struct Refusals {
    all: Option<Allowance>,
    addresses: HashMap<IpAddr, Record>,
}

impl Refusals {
    /// Counts a refusal. If a log line is allowed now, returns the number of refusals that this line reports.
    pub fn count(&mut self, address: IpAddr, now: Instant) -> Option<u32> {
        let all = self.all.get_or_insert_with(|| Allowance::full(ALL_LINES_MAX, now));
        all.refill(now);
        if !self.addresses.contains_key(&address) && self.addresses.len() >= ADDRESSES_MAX {
            self.addresses.retain(|_, record| {
                record.allowance.refill(now);
                record.unlogged > 0 || record.allowance.left < record.allowance.max
            });
            if self.addresses.len() >= ADDRESSES_MAX {
                return None;
            }
        }
        let fresh = || Record { allowance: Allowance::full(LINES_MAX, now), unlogged: 0 };
        let record = self.addresses.entry(address).or_insert_with(fresh);
        record.allowance.refill(now);
        if record.allowance.left == 0 || all.left == 0 {
            record.unlogged = record.unlogged.saturating_add(1);
            return None;
        }
        record.allowance.left -= 1;
        all.left -= 1;
        Some(1 + std::mem::take(&mut record.unlogged))
    }

    /// Returns the addresses whose unlogged refusals may be logged now, with the number of these refusals.
    pub fn poll_unlogged(&mut self, now: Instant) -> Vec<(IpAddr, u32)> {
        let Some(all) = &mut self.all else { return Vec::new() };
        let mut logged = Vec::new();
        for (address, record) in self.addresses.iter_mut().filter(|(_, record)| record.unlogged > 0) {
            record.allowance.refill(now);
            all.refill(now);
            if record.allowance.left > 0 && all.left > 0 {
                record.allowance.left -= 1;
                all.left -= 1;
                logged.push((*address, std::mem::take(&mut record.unlogged)));
            }
        }
        logged
    }

    /// Returns the time from which the unlogged refusals may be logged.
    pub fn next_wakeup(&self) -> Option<Instant> {
        let all = self.all.as_ref()?;
        let records = self.addresses.values().filter(|record| record.unlogged > 0);
        let wait = |allowance: &Allowance| allowance.since + LINE_TIME;
        records
            .map(|record| wait(&record.allowance))
            .min()
            .map(|when| if all.left == 0 { when.max(wait(all)) } else { when })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(last: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, last])
    }

    #[test]
    fn ten_thousand_refusals_make_few_lines_and_all_are_counted() {
        let mut refusals = Refusals::default();
        let start = Instant::now();
        let logged: u32 = (0..10_000).filter_map(|_| refusals.count(address(1), start)).sum();
        assert_eq!(logged, LINES_MAX);
        assert_eq!(refusals.next_wakeup(), Some(start + LINE_TIME));
        assert!(refusals.poll_unlogged(start + LINE_TIME / 2).is_empty());
        assert_eq!(refusals.poll_unlogged(start + LINE_TIME), [(address(1), 10_000 - LINES_MAX)]);
        assert_eq!(refusals.next_wakeup(), None);
        assert_eq!(refusals.count(address(2), start), Some(1), "another address");
    }

    #[test]
    fn many_addresses_are_bounded_too() {
        let mut refusals = Refusals::default();
        let start = Instant::now();
        let addresses = (0..10_000_u32).map(|number| IpAddr::from(number.to_be_bytes()));
        let logged = addresses.filter_map(|address| refusals.count(address, start)).count();
        assert_eq!(logged, ALL_LINES_MAX as usize);
        assert!(refusals.addresses.len() <= ADDRESSES_MAX);
        // After some time each address may be logged again.
        let later = start + LINE_TIME * ALL_LINES_MAX;
        refusals.poll_unlogged(later);
        assert_eq!(refusals.count(address(9), later + LINE_TIME), Some(1));
    }
}
