//! The hosts that broadcasts leave out for a time: those that do not hear them, and those that hold up the others.
//!
//! A round of a broadcast lasts until the last listener has reported. So a listener that always reports late, because
//! it is slow or hostile, makes each broadcast last longer for all. Each listener therefore has an account of the time
//! for which the others have waited for it alone. A part of the time that passes is forgiven, so that losses and busy
//! moments have no consequence.
use crate::tid::Tid;
use std::collections::HashMap;
use std::time::Duration;

/// How long a listener may hold up the others, beyond what is forgiven. A host that gets no processor for a moment stays
/// below this, and so does one that loses the requests for reports in some rounds in succession.
pub const HOLD_UP_MAX: Duration = Duration::from_secs(1);
/// This part of the time that passes is forgiven. So in the long run one host makes broadcasts last a third longer at
/// most. A host that loses a fifth of the datagrams, as all others do, stays below it.
const FORGIVEN_PART: u32 = 4;
/// How long broadcasts do without a host, at first and at most. The time doubles, unless the host was a listener without
/// fault for as long as it was left out.
pub const ABSENCE_FIRST: Duration = Duration::from_secs(10);
const ABSENCE_MAX: Duration = Duration::from_secs(1280);

/// An answer is late after this multiple of the median time. Answers that arrive evenly, one after another, are all there
/// after twice the median time.
pub const LATE_FACTOR: u32 = 2;

/// How long the listeners took to answer one request.
#[derive(Default)]
pub struct Answers {
    /// The number of listeners.
    expected: usize,
    /// In ascending order.
    times: Vec<Duration>,
}

impl Answers {
    /// Returns the state before the first answer.
    pub fn of(listeners: usize) -> Answers {
        Answers { expected: listeners, times: Vec::new() }
    }

    /// Notes that a listener has answered after this time. Returns for how long the others have waited for it alone.
    pub fn note(&mut self, time: Duration) -> Duration {
        self.times.push(time);
        self.lateness(time)
    }

    /// Returns for how long the others have waited after this time for a listener alone.
    pub fn lateness(&self, time: Duration) -> Duration {
        self.median().map_or(Duration::ZERO, |median| time.saturating_sub(LATE_FACTOR * median))
    }

    /// Returns the median time, as soon as half of the listeners have answered.
    pub fn median(&self) -> Option<Duration> {
        self.times.get(self.expected.saturating_sub(1) / 2).copied()
    }
}

/// What is known about a host.
#[derive(Default)]
struct Record {
    /// For how long it has held up others and was not forgiven, at the time `noted`.
    held_up: Duration,
    noted: Duration,
    /// Until when it is left out, and for how long this is.
    until: Duration,
    absence: Duration,
    /// Whether it is left out because it did not seem to hear anything.
    is_deaf: bool,
}

impl Record {
    fn leave_out(&mut self, now: Duration) {
        let is_again = !self.absence.is_zero() && now < self.until + self.absence;
        self.absence = if is_again { (2 * self.absence).min(ABSENCE_MAX) } else { ABSENCE_FIRST };
        self.until = now + self.absence;
    }
}

/// The hosts about which something is known.
#[derive(Default)]
pub struct LeftOut {
    hosts: HashMap<Tid, Record>,
}

impl LeftOut {
    /// Returns whether a host is left out.
    pub fn contains(&self, now: Duration, host: Tid) -> bool {
        self.hosts.get(&host).is_some_and(|record| now < record.until)
    }

    /// Notes that a host has not answered any request of a broadcast.
    pub fn note_deaf(&mut self, now: Duration, host: Tid) {
        let record = self.hosts.entry(host).or_default();
        record.leave_out(now);
        record.is_deaf = true;
    }

    /// Notes that a host has heard a broadcast.
    pub fn note_heard(&mut self, host: Tid) {
        if let Some(record) = self.hosts.get_mut(&host).filter(|record| record.is_deaf) {
            (record.until, record.absence, record.is_deaf) = (Duration::ZERO, Duration::ZERO, false);
        }
    }

    /// Notes for how long the other listeners have waited for a host alone.
    pub fn note_hold_up(&mut self, now: Duration, host: Tid, time: Duration) {
        if time.is_zero() {
            return;
        }
        let record = self.hosts.entry(host).or_default();
        let forgiven = now.saturating_sub(record.noted) / FORGIVEN_PART;
        (record.held_up, record.noted) = (record.held_up.saturating_sub(forgiven) + time, now);
        if record.held_up > HOLD_UP_MAX && now >= record.until {
            record.leave_out(now);
            (record.held_up, record.is_deaf) = (Duration::ZERO, false);
        }
    }

    /// Forgets a host that has gone.
    pub fn forget(&mut self, host: Tid) {
        self.hosts.remove(&host);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOST: Tid = Tid(0x80000);

    fn ms(number: u64) -> Duration {
        Duration::from_millis(number)
    }

    /// Holds up others for `time` in each period, for ten minutes at most. Returns when the host is left out.
    fn left_out_after(left_out: &mut LeftOut, from: Duration, time: Duration, period: Duration) -> Option<Duration> {
        let mut now = from;
        while now < from + Duration::from_secs(600) {
            now += period;
            left_out.note_hold_up(now, HOST, time);
            if left_out.contains(now, HOST) {
                return Some(now);
            }
        }
        None
    }

    #[test]
    fn an_answer_is_late_after_twice_the_median_time() {
        let mut answers = Answers::of(4);
        assert_eq!([1, 4].map(|time| answers.note(ms(time))), [ms(0); 2]);
        assert_eq!(answers.median(), Some(ms(4)), "the lower one of the two in the middle");
        assert_eq!([8, 20].map(|time| answers.note(ms(time))), [ms(0), ms(12)]);
        assert_eq!(Answers::of(3).lateness(ms(500)), ms(0), "nobody has answered");
    }

    #[test]
    fn who_holds_up_others_for_long_is_left_out_for_a_while() {
        let mut left_out = LeftOut::default();
        let at = left_out_after(&mut left_out, ms(0), ms(50), ms(100)).unwrap();
        assert_eq!(at, ms(4000), "25 of each 100 ms are forgiven");
        left_out.note_heard(HOST);
        assert!(left_out.contains(at + ABSENCE_FIRST - ms(1), HOST), "it does hear");
        assert!(!left_out.contains(at + ABSENCE_FIRST, HOST));
        // At once again, so for longer; a long time later, as at first.
        let again = left_out_after(&mut left_out, at + ABSENCE_FIRST, ms(50), ms(100)).unwrap();
        assert!(left_out.contains(again + 2 * ABSENCE_FIRST - ms(1), HOST));
        let later = left_out_after(&mut left_out, again + 5 * ABSENCE_FIRST, ms(50), ms(100)).unwrap();
        assert!(!left_out.contains(later + ABSENCE_FIRST, HOST));
    }

    #[test]
    fn what_is_forgiven_has_no_consequence() {
        assert_eq!(left_out_after(&mut LeftOut::default(), ms(0), ms(24), ms(100)), None);
        assert_eq!(left_out_after(&mut LeftOut::default(), ms(0), HOLD_UP_MAX, 4 * HOLD_UP_MAX), None);
    }

    #[test]
    fn who_hears_nothing_is_left_out_until_it_hears_something() {
        let mut left_out = LeftOut::default();
        left_out.note_deaf(ms(0), HOST);
        assert!(left_out.contains(ABSENCE_FIRST - ms(1), HOST) && !left_out.contains(ABSENCE_FIRST, HOST));
        left_out.note_deaf(ABSENCE_FIRST, HOST);
        assert!(left_out.contains(3 * ABSENCE_FIRST - ms(1), HOST), "for twice as long");
        left_out.note_heard(HOST);
        assert!(!left_out.contains(ABSENCE_FIRST, HOST));
        left_out.note_hold_up(ABSENCE_FIRST, HOST, HOLD_UP_MAX);
        left_out.note_deaf(ABSENCE_FIRST, HOST);
        left_out.note_heard(HOST);
        left_out.note_hold_up(ABSENCE_FIRST, HOST, ms(1));
        assert!(left_out.contains(ABSENCE_FIRST, HOST), "deafness is no excuse");
        left_out.forget(HOST);
        assert!(!left_out.contains(ABSENCE_FIRST, HOST));
    }
}
