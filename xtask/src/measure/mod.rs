//! What the demo and the benchmark share.
pub mod programs;
pub mod tables;

use std::time::Duration;

/// How long to check for other work on the machine.
const LOAD_SAMPLE_TIME: Duration = Duration::from_millis(500);
/// The share of all cores that other work may take, in percent.
const BUSY_PERCENT: f64 = 3.0;
/// If hpvm needs less than this share of the time of two processes without any message system, the two were not measured
/// under the same conditions.
const DISTURBED_BELOW: f64 = 0.9;

/// Warns if other work on the machine makes the figures worthless.
pub fn warn_when_busy() {
    let before = processor_ticks();
    std::thread::sleep(LOAD_SAMPLE_TIME);
    let after = processor_ticks();
    if let (Some((busy_before, all_before)), Some((busy_after, all_after))) = (before, after) {
        let share = 100.0 * (busy_after - busy_before) / (all_after - all_before).max(1.0);
        if share > BUSY_PERCENT {
            println!("WARNING: other work uses {share:.0} % of the machine: do not trust the figures");
        }
    }
}

/// Warns if a message seems faster than the limit of the machine: then the limit was measured while other work ran.
pub fn warn_when_faster_than_the_limit(ours: Option<f64>, limit: Option<f64>) {
    if ours.zip(limit).is_some_and(|(ours, limit)| ours < limit * DISTURBED_BELOW) {
        println!("\nWARNING: faster than the limit: other work disturbed the measurement, try again without it");
    }
}

/// Returns two numbers of clock ticks since the machine started: those in which the cores worked, and all.
fn processor_ticks() -> Option<(f64, f64)> {
    let text = std::fs::read_to_string("/proc/stat").ok()?;
    let ticks: Vec<f64> =
        text.lines().next()?.split_whitespace().skip(1).filter_map(|word| word.parse().ok()).collect();
    // The fourth number is the idle time; the fifth is the time in which a core waited for a disk.
    let idle = ticks.get(3)? + ticks.get(4)?;
    let all: f64 = ticks.iter().take(8).sum();
    Some((all - idle, all))
}

/// Returns the middle value, or the mean of the two middle ones.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        even if even % 2 == 0 => Some((sorted[middle - 1] + sorted[middle]) / 2.0),
        _ => Some(sorted[middle]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle_of_the_sorted_values() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(median(&[]), None);
    }
}
