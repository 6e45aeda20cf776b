//! Counts and times of events that are not traced one by one.
use pvm_core::events::{EVENTS, Event, all};
use pvm_core::trace::{Stamp, Value};
use std::time::Duration;

/// The count and time of one kind of event.
#[derive(Clone, Copy, Default)]
struct Sum {
    count: i32,
    time: Duration,
}

/// Counts and times, by event.
pub struct Tally([Sum; EVENTS.len()]);

impl Default for Tally {
    fn default() -> Tally {
        Tally([Sum::default(); EVENTS.len()])
    }
}

impl Tally {
    /// Counts an event. `time`: how long its function took. The begin and the end of a function count as two events, as
    /// in PVM 3.4.
    pub fn add(&mut self, event: Event, time: Option<Duration>) {
        let sum = &mut self.0[event as usize];
        sum.count = sum.count.saturating_add(1);
        sum.time += time.unwrap_or_default();
    }

    /// Returns the values of a record of counts.
    pub fn counts(&self) -> Vec<Value> {
        let [number, names, _, _, counts] = self.values();
        vec![number, names, counts]
    }

    /// Returns the values of a record of times.
    pub fn times(&self) -> Vec<Value> {
        self.values().into()
    }

    /// Returns the number of events, their names, seconds, microseconds and counts.
    fn values(&self) -> [Value; 5] {
        let seen: Vec<(Event, Sum)> =
            all().map(|event| (event, self.0[event as usize])).filter(|(_, sum)| sum.count > 0).collect();
        let ints = |value: fn(&Sum) -> i32| Value::Ints(seen.iter().map(|(_, sum)| value(sum)).collect());
        [
            Value::Int(seen.len() as i32),
            Value::Texts(seen.iter().map(|(event, _)| event.name().as_bytes().to_vec()).collect()),
            ints(|sum| Stamp::since_epoch(sum.time).seconds),
            ints(|sum| Stamp::since_epoch(sum.time).microseconds),
            ints(|sum| sum.count),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_that_came_are_counted_and_timed() {
        let mut tally = Tally::default();
        tally.add(Event::Send, None);
        tally.add(Event::Send, Some(Duration::from_micros(1_500_000)));
        tally.add(Event::Exit, None);
        let names = Value::Texts(vec![b"exit".to_vec(), b"send".to_vec()]);
        let ints = |ints: &[i32]| Value::Ints(ints.to_vec());
        assert_eq!(tally.counts(), [Value::Int(2), names.clone(), ints(&[1, 2])]);
        let times = [Value::Int(2), names, ints(&[0, 1]), ints(&[0, 500_000]), ints(&[1, 2])];
        assert_eq!(tally.times(), times);
    }
}
