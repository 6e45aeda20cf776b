//! Bodies that this host broadcasts: each datagram reaches all listeners at once.
//!
//! The listeners report that they have memory for the body. Then the sender broadcasts in **rounds**: parts that were
//! reported missing, then new ones, as many as the window allows. The last datagram of a round asks for reports, which
//! travel on the data links and name the parts that are missing. So each listener acknowledges, nobody needs to
//! suppress reports, and the window adapts to the listener that loses most. A listener that does not answer, or falls
//! behind for too long, is dropped: it fetches the body on its data link. One for which the others have waited for too
//! long in all is not a listener of further bodies for a time ([`LeftOut`]). A broadcast that takes longer than another way
//! would have taken ends, and the listeners fetch what they lack.
use super::BodyKey;
use super::left_out::{Answers, LATE_FACTOR, LeftOut};
use super::parts::{count_of, range_of};
use crate::tid::Tid;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;
use std::time::Duration;

/// The first window and its bounds, in parts.
const WINDOW_FIRST: u32 = 16;
const WINDOW_MIN: u32 = 8;
const WINDOW_MAX: u32 = 1024;
/// The window halves after a round in which a listener misses more than one datagram in [`MUCH_PART`], and doubles after a
/// round in which each listener misses less than one in [`LITTLE_PART`].
const MUCH_PART: u32 = 4;
const LITTLE_PART: u32 = 16;
/// How long the sender waits for further listeners after the first one is ready.
const GATHER: Duration = Duration::from_millis(50);
/// The first time after which missing reports are requested again, and the bounds of this time. It doubles with each
/// request.
const PATIENCE_FIRST: Duration = Duration::from_millis(50);
const PATIENCE_MIN: Duration = Duration::from_millis(20);
const PATIENCE_MAX: Duration = Duration::from_millis(500);
/// The patience as a multiple of the usual time until all reports are there.
const PATIENCE_FACTOR: u32 = 4;
/// A listener that leaves this number of requests unanswered is dropped.
const REQUESTS_MAX: u32 = 3;
/// A listener that lacks more than half of a round, this number of rounds in succession, is dropped.
const BAD_ROUNDS_MAX: u32 = 4;
/// After this number of rounds with repairs only, the listeners that still lack parts are dropped.
const REPAIR_ROUNDS_MAX: u32 = 16;

/// A host that hears a broadcast.
#[derive(Default)]
struct Listener {
    is_ready: bool,
    /// Whether it has reported in this round.
    has_reported: bool,
    /// Whether it has ever reported.
    has_heard: bool,
    /// The number of requests for reports in this round.
    requests: u32,
    /// How many parts it lacked at the end of the last round.
    missing: u32,
    bad_rounds: u32,
}

enum Phase {
    /// Listeners get memory. The broadcast begins when all of them are ready, or at this time.
    Gathering(Option<Duration>),
    /// These parts of the round are left to be sent.
    Sending(VecDeque<u32>),
    /// All parts of the round are sent, and listeners report.
    Waiting { since: Duration, until: Duration },
}

struct Broadcast {
    key: BodyKey,
    bytes: usize,
    part_bytes: usize,
    listeners: BTreeMap<Tid, Listener>,
    phase: Phase,
    /// How many parts were sent at least once.
    sent: u32,
    repairs: BTreeSet<u32>,
    round: u32,
    /// The number of parts in this round, and the last one of them.
    round_parts: u32,
    last: u32,
    /// When this round began, and when reports were requested for the first time.
    begun: Duration,
    requested: Option<Duration>,
    /// The reports of this round; before the first round, the listeners that are ready.
    answers: Answers,
    repair_rounds: u32,
    patience: Duration,
    /// When the broadcast ends, because another way would have been faster.
    end: Option<Duration>,
    /// By how long the end can be put off, once.
    extension: Option<Duration>,
}

impl Broadcast {
    /// Returns how long ago reports were requested in this round for the first time.
    fn waited(&self, now: Duration) -> Duration {
        self.requested.map_or(Duration::ZERO, |requested| now.saturating_sub(requested))
    }

    /// Notes that a listener has answered in this round. Returns for how long the others have waited for it alone.
    fn note_answer(&mut self, now: Duration) -> Duration {
        self.answers.note(self.waited(now))
    }
}

/// A part of a body that is to be broadcast.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartToSend {
    /// The body.
    pub key: BodyKey,
    /// The number of the part.
    pub part: u32,
    /// Where the part lies in the body, in bytes.
    pub range: Range<usize>,
    /// How many parts were sent at least once, with this one.
    pub sent: u32,
    /// The round that ends with this part, or 0 within a round.
    pub round: u32,
}

/// The broadcasts of this host.
pub struct Broadcasts {
    queue: VecDeque<Broadcast>,
    window: u32,
    /// The usual time until all listeners have reported.
    report_time: Option<Duration>,
    left_out: LeftOut,
    /// The listeners that were dropped.
    dropped: Vec<(Tid, BodyKey)>,
    /// Whether a broadcast was given up because it took too long.
    gave_up: bool,
}

impl Default for Broadcasts {
    fn default() -> Self {
        let (queue, left_out, dropped) = (VecDeque::new(), LeftOut::default(), Vec::new());
        Broadcasts { queue, window: WINDOW_FIRST, report_time: None, left_out, dropped, gave_up: false }
    }
}

impl Broadcasts {
    // ----- input

    /// Begins to broadcast a body of the sender `key.origin` to these hosts. The broadcast ends after `time_limit`, if
    /// there is one.
    pub fn begin(
        &mut self,
        key: BodyKey,
        bytes: usize,
        part_bytes: usize,
        hosts: impl Iterator<Item = Tid>,
        now: Duration,
        time_limit: Option<Duration>,
    ) {
        let listeners: BTreeMap<Tid, Listener> = hosts.map(|host| (host, Listener::default())).collect();
        self.queue.push_back(Broadcast {
            key,
            bytes,
            part_bytes,
            answers: Answers::of(listeners.len()),
            listeners,
            phase: Phase::Gathering(None),
            sent: 0,
            repairs: BTreeSet::new(),
            round: 0,
            round_parts: 0,
            last: 0,
            begun: Duration::ZERO,
            requested: None,
            repair_rounds: 0,
            patience: PATIENCE_FIRST,
            end: time_limit.map(|limit| now + limit),
            extension: time_limit,
        });
    }

    /// Handles the report that a host has memory for a body. A host that is too late is dropped.
    pub fn ready(&mut self, now: Duration, host: Tid, key: BodyKey) {
        let is_late = match self.queue.iter_mut().find(|one| one.key == key) {
            Some(Broadcast { phase: Phase::Gathering(until), listeners, answers, .. }) => {
                let until = *until.get_or_insert(now + GATHER);
                if let Some(listener) = listeners.get_mut(&host).filter(|listener| !listener.is_ready) {
                    listener.is_ready = true;
                    self.left_out.note_hold_up(now, host, answers.note((now + GATHER).saturating_sub(until)));
                }
                !listeners.contains_key(&host)
            }
            Some(one) => !one.listeners.contains_key(&host),
            None => true,
        };
        if is_late {
            self.dropped.push((host, key));
        }
    }

    /// Handles the report of a host about the parts that it lacks at the end of a round.
    pub fn report(&mut self, now: Duration, host: Tid, key: BodyKey, round: u32, missing: &[Range<u32>]) {
        let Some(place) = self.queue.iter().position(|one| one.key == key && one.round == round) else { return };
        let one = &mut self.queue[place];
        let Some(listener) = one.listeners.get_mut(&host).filter(|listener| !listener.has_reported) else { return };
        (listener.has_reported, listener.has_heard, listener.missing) = (true, true, 0);
        for range in missing {
            // A host can only lack what was sent.
            let range = range.start.min(one.sent)..range.end.min(one.sent);
            listener.missing += range.len() as u32;
            one.repairs.extend(range);
        }
        self.left_out.note_heard(host);
        let late = one.note_answer(now);
        self.left_out.note_hold_up(now, host, late);
        self.end_round_if_reported(now, place);
    }

    /// Notes that a host has a body.
    pub fn received(&mut self, now: Duration, host: Tid, key: BodyKey) {
        if self.leave(now, host, key) {
            self.left_out.note_heard(host);
        }
    }

    /// Notes that a host needs no part of a body any more: it has the body, fetches it, or has gone. Returns whether it
    /// was a listener.
    pub fn leave(&mut self, now: Duration, host: Tid, key: BodyKey) -> bool {
        let Some(place) = self.queue.iter().position(|one| one.key == key) else { return false };
        let one = &mut self.queue[place];
        let Some(listener) = one.listeners.remove(&host) else { return false };
        if one.round > 0 && !listener.has_reported {
            let late = one.note_answer(now);
            self.left_out.note_hold_up(now, host, late);
        }
        self.end_round_if_reported(now, place);
        true
    }

    /// Forgets a host that has gone.
    pub fn host_gone(&mut self, now: Duration, host: Tid) {
        let keys: Vec<BodyKey> = self.queue.iter().map(|one| one.key).collect();
        for key in keys {
            self.leave(now, host, key);
        }
        self.left_out.forget(host);
        self.dropped.retain(|(other, _)| *other != host);
    }

    /// Drops all listeners: this host cannot broadcast.
    pub fn fail(&mut self) {
        let keys = self.queue.drain(..).flat_map(|one| one.listeners.into_keys().map(move |host| (host, one.key)));
        self.dropped.extend(keys);
    }

    // ----- output

    /// Returns whether broadcasts are likely to reach a host, and the host does not hold up others.
    pub fn reaches(&self, now: Duration, host: Tid) -> bool {
        !self.left_out.contains(now, host)
    }

    /// Returns a listener that was dropped, and the body that it must fetch.
    pub fn poll_dropped(&mut self) -> Option<(Tid, BodyKey)> {
        self.dropped.pop()
    }

    /// Returns when [`Broadcasts::next`] must be called next, even if nothing arrives.
    pub fn next_wakeup(&self) -> Option<Duration> {
        let deadline = |one: &Broadcast| match one.phase {
            Phase::Gathering(until) => until,
            Phase::Sending(_) => None,
            Phase::Waiting { until, .. } => Some(until),
        };
        let next = match self.active() {
            Some(place) => deadline(&self.queue[place]),
            None => self.queue.iter().filter_map(deadline).min(),
        };
        self.queue.iter().filter_map(|one| one.end).chain(next).min()
    }

    /// Returns the body whose rounds are under way. There is one at most.
    fn active(&self) -> Option<usize> {
        self.queue.iter().position(|one| !matches!(one.phase, Phase::Gathering(_)))
    }

    /// Returns the next part to send, if one can be sent now.
    pub fn next(&mut self, now: Duration) -> Option<PartToSend> {
        while let Some(place) = self.queue.iter().position(|one| one.end.is_some_and(|end| now >= end)) {
            self.end_overdue(now, place);
        }
        loop {
            let Some(place) = self.active() else {
                self.begin_gathered(now)?;
                continue;
            };
            match &mut self.queue[place].phase {
                Phase::Sending(_) => return Some(self.send_part(now, place)),
                Phase::Waiting { until, .. } if now >= *until => self.request_reports(now, place),
                Phase::Waiting { .. } | Phase::Gathering(_) => return None,
            }
        }
    }

    /// Begins the first body whose listeners are ready. The other listeners are dropped when they are ready.
    fn begin_gathered(&mut self, now: Duration) -> Option<()> {
        let is_gathered = |one: &Broadcast| match one.phase {
            Phase::Gathering(Some(until)) => now >= until || one.listeners.values().all(|listener| listener.is_ready),
            _ => false,
        };
        let place = self.queue.iter().position(is_gathered)?;
        let one = &mut self.queue[place];
        one.listeners.retain(|host, listener| {
            if !listener.is_ready {
                self.left_out.note_hold_up(now, *host, one.answers.lateness(GATHER));
            }
            listener.is_ready
        });
        one.patience = self.report_time.map_or(PATIENCE_FIRST, |time| time * PATIENCE_FACTOR);
        self.drop_left_out(now, place);
        self.begin_round(now, place);
        Some(())
    }

    fn send_part(&mut self, now: Duration, place: usize) -> PartToSend {
        let one = &mut self.queue[place];
        let Phase::Sending(parts) = &mut one.phase else { unreachable!("the caller has looked") };
        let part = parts.pop_front().expect("a round has parts");
        one.sent = one.sent.max(part + 1);
        let is_last = parts.is_empty();
        if is_last {
            one.requested.get_or_insert(now);
            let patience = one.patience.clamp(PATIENCE_MIN, PATIENCE_MAX);
            one.phase = Phase::Waiting { since: now, until: now + patience };
        }
        let range = range_of(one.bytes, one.part_bytes, part).expect("the body has this part");
        PartToSend { key: one.key, part, range, sent: one.sent, round: if is_last { one.round } else { 0 } }
    }

    /// Ends a broadcast that takes too long. If it waits for a few listeners only, these are dropped, and the others get
    /// the same time once more.
    fn end_overdue(&mut self, now: Duration, place: usize) {
        let one = &mut self.queue[place];
        let is_gathering = matches!(one.phase, Phase::Gathering(_));
        let is_awaited = |listener: &Listener| if is_gathering { !listener.is_ready } else { !listener.has_reported };
        let awaited = one.listeners.values().filter(|listener| is_awaited(listener)).count();
        let are_few = 0 < awaited && 2 * awaited <= one.listeners.len() && !matches!(one.phase, Phase::Sending(_));
        let Some(extension) = one.extension.take().filter(|_| are_few) else {
            self.drop_listeners(place, |_, _| true);
            self.queue.remove(place);
            self.gave_up = true;
            return;
        };
        one.end = Some(now + extension);
        if is_gathering {
            // The next step drops those that are not ready.
            one.phase = Phase::Gathering(Some(now));
            return;
        }
        let waited = one.waited(now);
        for (host, listener) in one.listeners.iter().filter(|(_, listener)| is_awaited(listener)) {
            if !listener.has_heard {
                self.left_out.note_deaf(now, *host);
            }
            self.left_out.note_hold_up(now, *host, one.answers.lateness(waited));
        }
        self.drop_listeners(place, |_, listener| is_awaited(listener));
        self.end_round_if_reported(now, place);
    }

    /// Returns whether a broadcast was given up since the last call.
    pub fn take_gave_up(&mut self) -> bool {
        std::mem::take(&mut self.gave_up)
    }

    // ----- rounds

    /// Begins a round. Drops the body if nothing is left to be sent.
    fn begin_round(&mut self, now: Duration, place: usize) {
        let one = &mut self.queue[place];
        let count = count_of(one.bytes, one.part_bytes);
        let window = self.window as usize;
        let mut parts: VecDeque<u32> = one.repairs.iter().copied().take(window).collect();
        one.repairs.retain(|part| !parts.contains(part));
        one.repair_rounds = if one.sent == count { one.repair_rounds + 1 } else { 0 };
        parts.extend((one.sent..count).take(window - parts.len()));
        let Some(last) = parts.back().copied().filter(|_| !one.listeners.is_empty()) else {
            self.queue.remove(place);
            return;
        };
        one.round += 1;
        (one.round_parts, one.last) = (parts.len() as u32, last);
        (one.begun, one.requested, one.answers) = (now, None, Answers::of(one.listeners.len()));
        for listener in one.listeners.values_mut() {
            (listener.has_reported, listener.requests) = (false, 0);
        }
        one.phase = Phase::Sending(parts);
    }

    /// Ends the round if all listeners have reported.
    fn end_round_if_reported(&mut self, now: Duration, place: usize) {
        let one = &mut self.queue[place];
        if one.listeners.is_empty() {
            self.queue.remove(place);
            return;
        }
        let Phase::Waiting { since, .. } = one.phase else { return };
        if !one.listeners.values().all(|listener| listener.has_reported) {
            return;
        }
        if let Some(median) = one.answers.median() {
            // A late listener must not make the patience grow.
            let time = now.saturating_sub(since).min(LATE_FACTOR * median + PATIENCE_MIN);
            self.report_time = Some(self.report_time.map_or(time, |usual| (7 * usual + time) / 8));
        }
        one.patience = self.report_time.map_or(PATIENCE_FIRST, |usual| usual * PATIENCE_FACTOR);
        let worst = one.listeners.values().map(|listener| listener.missing).max().unwrap_or(0);
        if MUCH_PART * worst > one.round_parts {
            self.window = (self.window / 2).max(WINDOW_MIN);
        } else if LITTLE_PART * worst < one.round_parts {
            self.window = (self.window * 2).min(WINDOW_MAX);
        }
        self.note_losses(now, place);
        let one = &self.queue[place];
        let (is_overdue, round_parts) = (one.repair_rounds >= REPAIR_ROUNDS_MAX, one.round_parts);
        self.drop_listeners(place, |_, listener| {
            let is_bad = 2 * listener.missing > round_parts;
            listener.bad_rounds = if is_bad { listener.bad_rounds + 1 } else { 0 };
            listener.bad_rounds >= BAD_ROUNDS_MAX || (is_overdue && listener.missing > 0)
        });
        self.drop_left_out(now, place);
        self.begin_round(now, place);
    }

    /// Notes which listeners have lost so much more of the round than the others that these get the body later.
    fn note_losses(&mut self, now: Duration, place: usize) {
        let one = &self.queue[place];
        let mut missing: Vec<u32> = one.listeners.values().map(|listener| listener.missing).collect();
        missing.sort_unstable();
        let median = missing.get(missing.len().saturating_sub(1) / 2).copied().unwrap_or(0);
        if one.round_parts < WINDOW_MIN || LITTLE_PART * median > one.round_parts {
            return;
        }
        let time = now.saturating_sub(one.begun);
        for (host, listener) in &one.listeners {
            // The window stays small in proportion.
            let part = (MUCH_PART * listener.missing).min(one.round_parts);
            self.left_out.note_hold_up(now, *host, time * part / one.round_parts);
        }
    }

    /// Requests the missing reports once more, by sending the last part of the round again. Drops the listeners that
    /// have not answered for long.
    fn request_reports(&mut self, now: Duration, place: usize) {
        let one = &mut self.queue[place];
        let waited = one.waited(now);
        for (host, listener) in one.listeners.iter_mut().filter(|(_, listener)| !listener.has_reported) {
            listener.requests += 1;
            if listener.requests >= REQUESTS_MAX {
                if !listener.has_heard {
                    self.left_out.note_deaf(now, *host);
                }
                self.left_out.note_hold_up(now, *host, one.answers.lateness(waited));
            }
        }
        one.patience = (2 * one.patience).clamp(PATIENCE_MIN, PATIENCE_MAX);
        one.phase = Phase::Sending(VecDeque::from([one.last]));
        self.drop_listeners(place, |_, listener| !listener.has_reported && listener.requests >= REQUESTS_MAX);
        let one = &mut self.queue[place];
        if one.listeners.values().all(|listener| listener.has_reported) {
            one.phase = Phase::Waiting { since: now, until: now };
            self.end_round_if_reported(now, place);
        }
    }

    /// Drops the listeners that have held up the others for too long.
    fn drop_left_out(&mut self, now: Duration, place: usize) {
        let left_out = std::mem::take(&mut self.left_out);
        self.drop_listeners(place, |host, _| left_out.contains(now, host));
        self.left_out = left_out;
    }

    /// Drops the listeners for which `is_dropped` returns true.
    fn drop_listeners(&mut self, place: usize, mut is_dropped: impl FnMut(Tid, &mut Listener) -> bool) {
        let one = &mut self.queue[place];
        let (key, dropped) = (one.key, &mut self.dropped);
        one.listeners.retain(|host, listener| {
            let is_dropped = is_dropped(*host, listener);
            if is_dropped {
                dropped.push((*host, key));
            }
            !is_dropped
        });
    }

    /// Returns whether nothing is broadcast.
    pub fn is_idle(&self) -> bool {
        self.queue.is_empty()
    }

    /// Returns whether there is nothing to send, and no dropped listener to be told.
    pub fn is_done(&self) -> bool {
        self.queue.is_empty() && self.dropped.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::super::left_out::{ABSENCE_FIRST, HOLD_UP_MAX};
    use super::*;

    const KEY: BodyKey = BodyKey { origin: Tid(0x40000), secret: [1; 16] };
    const PART: usize = 1000;

    fn hosts() -> [Tid; 3] {
        [2, 3, 4].map(Tid::host_number)
    }

    fn ms(number: u64) -> Duration {
        Duration::from_millis(number)
    }

    /// Begins to broadcast a body of this number of parts to hosts that are ready.
    fn begun(parts: usize) -> Broadcasts {
        let mut broadcasts = Broadcasts::default();
        broadcasts.begin(KEY, parts * PART, PART, hosts().into_iter(), ms(0), None);
        hosts().into_iter().for_each(|host| broadcasts.ready(ms(0), host, KEY));
        broadcasts
    }

    /// Sends a round. Returns its parts and its number.
    fn round(broadcasts: &mut Broadcasts, now: Duration) -> (Vec<u32>, u32) {
        let sent: Vec<PartToSend> = std::iter::from_fn(|| broadcasts.next(now)).collect();
        let round = sent.last().map_or(0, |part| part.round);
        assert!(sent.iter().rev().skip(1).all(|part| part.round == 0), "only the last part ends the round");
        (sent.iter().map(|part| part.part).collect(), round)
    }

    fn report_all(broadcasts: &mut Broadcasts, now: Duration, round: u32) {
        hosts().into_iter().for_each(|host| broadcasts.report(now, host, KEY, round, &[]));
    }

    #[test]
    fn the_window_grows_without_losses_and_shrinks_with_them() {
        let mut broadcasts = begun(1000);
        let (parts, number) = round(&mut broadcasts, ms(0));
        assert_eq!((parts, number), ((0..WINDOW_FIRST).collect(), 1));
        report_all(&mut broadcasts, ms(1), 1);
        assert_eq!(round(&mut broadcasts, ms(1)).0.len() as u32, 2 * WINDOW_FIRST);
        let [one, two, three] = hosts();
        broadcasts.report(ms(2), one, KEY, 2, &[]);
        broadcasts.report(ms(2), two, KEY, 2, &[20..25, 25..30]);
        assert_eq!(broadcasts.next(ms(2)), None, "a report is missing");
        broadcasts.report(ms(2), three, KEY, 2, &[25..31, 5000..6000]);
        let (parts, _) = round(&mut broadcasts, ms(2));
        assert_eq!(parts, (20..31).chain(48..53).collect::<Vec<u32>>(), "repairs come first");
    }

    #[test]
    fn a_host_that_hears_nothing_is_dropped_and_left_out_for_a_while() {
        let mut broadcasts = begun(10);
        let [one, two, deaf] = hosts();
        assert_eq!(round(&mut broadcasts, ms(0)).0.len(), 10);
        [one, two].into_iter().for_each(|host| broadcasts.received(ms(1), host, KEY));
        for _ in 1..REQUESTS_MAX {
            let now = broadcasts.next_wakeup().unwrap();
            assert_eq!(round(&mut broadcasts, now), (vec![9], 1), "the report is requested again");
        }
        assert_eq!(broadcasts.poll_dropped(), None);
        let now = broadcasts.next_wakeup().unwrap();
        assert_eq!((broadcasts.next(now), broadcasts.poll_dropped()), (None, Some((deaf, KEY))));
        assert!(broadcasts.is_idle() && broadcasts.reaches(now, one) && !broadcasts.reaches(now, deaf));
        assert!(broadcasts.reaches(now + ABSENCE_FIRST, deaf));
    }

    #[test]
    fn who_is_ready_too_late_or_lags_behind_must_fetch() {
        let mut broadcasts = Broadcasts::default();
        let [one, two, three] = hosts();
        broadcasts.begin(KEY, 1000 * PART, PART, hosts().into_iter(), ms(0), None);
        broadcasts.ready(ms(0), one, KEY);
        broadcasts.ready(ms(1), two, KEY);
        assert_eq!((broadcasts.next(ms(1)), broadcasts.next_wakeup()), (None, Some(GATHER)));
        assert!(broadcasts.next(GATHER).is_some());
        broadcasts.ready(GATHER, three, KEY);
        assert_eq!(broadcasts.poll_dropped(), Some((three, KEY)));
        for number in 1..=BAD_ROUNDS_MAX {
            assert_eq!(broadcasts.poll_dropped(), None);
            round(&mut broadcasts, GATHER);
            broadcasts.report(GATHER, one, KEY, number, &[]);
            broadcasts.report(GATHER, two, KEY, number, &[0..1, 1..16 * number]);
        }
        assert_eq!(broadcasts.poll_dropped(), Some((two, KEY)));
        assert!(broadcasts.reaches(GATHER, two), "it has heard something");
        broadcasts.leave(GATHER, one, KEY);
        assert!(broadcasts.is_idle());
    }

    #[test]
    fn a_second_body_waits_for_the_first_one() {
        let mut broadcasts = begun(10);
        let other = BodyKey { secret: [2; 16], ..KEY };
        broadcasts.begin(other, PART, PART, hosts().into_iter(), ms(0), None);
        hosts().into_iter().for_each(|host| broadcasts.ready(ms(0), host, other));
        assert_eq!(round(&mut broadcasts, ms(0)).0.len(), 10);
        hosts().into_iter().for_each(|host| broadcasts.received(ms(1), host, KEY));
        assert_eq!(broadcasts.next(ms(1)).map(|part| part.key), Some(other));
        broadcasts.fail();
        assert_eq!(std::iter::from_fn(|| broadcasts.poll_dropped()).count(), 3);
        assert!(broadcasts.is_idle());
    }

    /// Returns how long after the others the last listener of [`until_left_out`] reports.
    type Delay = fn(&Broadcasts, Duration) -> Duration;

    /// Broadcasts bodies of one round. The last listener reports `delay` after the others. Returns for how long
    /// the broadcasts lasted, and how long the longest one took, until that listener is left out.
    fn until_left_out(delay: Delay) -> (Duration, Duration) {
        let mut broadcasts = Broadcasts::default();
        let [one, two, late] = hosts();
        let (mut now, mut longest) = (ms(0), ms(0));
        for number in 0..1000u32 {
            let mut key = KEY;
            key.secret[..4].copy_from_slice(&number.to_le_bytes());
            let begun = now;
            broadcasts.begin(key, 10 * PART, PART, hosts().into_iter(), ms(0), None);
            hosts().into_iter().for_each(|host| broadcasts.ready(now, host, key));
            let (_, round) = round(&mut broadcasts, now);
            now += ms(1);
            [one, two].into_iter().for_each(|host| broadcasts.received(now, host, key));
            let answered = now + delay(&broadcasts, now);
            while let Some(until) = broadcasts.next_wakeup().filter(|until| *until < answered) {
                now = until;
                assert_eq!(broadcasts.next(now).map_or(round, |part| part.round), round);
            }
            now = now.max(answered);
            broadcasts.received(now, late, key);
            longest = longest.max(now - begun);
            while broadcasts.poll_dropped().is_some() {}
            if !broadcasts.reaches(now, late) {
                return (now, longest);
            }
            assert!(broadcasts.reaches(now, one) && broadcasts.reaches(now, two));
        }
        (now, longest)
    }

    #[test]
    fn who_reports_just_before_the_patience_ends_is_left_out() {
        // Just before the next request, so that no request is repeated.
        let just_before: Delay = |broadcasts, now| {
            let until = broadcasts.next_wakeup().unwrap();
            until.saturating_sub(now + Duration::from_micros(100))
        };
        let (lasted, longest) = until_left_out(just_before);
        assert!(lasted < 2 * HOLD_UP_MAX && longest < ms(100), "{lasted:?} {longest:?}");
        // After as many requests as possible.
        let (lasted, longest) = until_left_out(|_, _| ms(250));
        assert!(lasted < 2 * HOLD_UP_MAX && longest < ms(500), "{lasted:?} {longest:?}");
        // Who is a little slower than the others stays.
        assert!(until_left_out(|_, _| ms(1)).0 >= ms(1000));
    }

    #[test]
    fn who_lets_others_wait_until_it_is_ready_or_has_lost_much_alone_is_left_out() {
        let [one, two, slow] = hosts();
        let mut broadcasts = Broadcasts::default();
        let mut now = ms(0);
        while broadcasts.reaches(now, slow) {
            broadcasts.begin(KEY, PART, PART, hosts().into_iter(), ms(0), None);
            [one, two].into_iter().for_each(|host| broadcasts.ready(now, host, KEY));
            now = broadcasts.next_wakeup().unwrap();
            assert!(broadcasts.next(now).is_some() && now < 3 * HOLD_UP_MAX);
            [one, two].into_iter().for_each(|host| broadcasts.received(now, host, KEY));
        }
        let mut broadcasts = begun(100_000);
        for number in 1.. {
            round(&mut broadcasts, now);
            now += ms(10);
            [one, two].into_iter().for_each(|host| broadcasts.report(now, host, KEY, number, &[]));
            // Not as much that it is dropped for that.
            broadcasts.report(now, slow, KEY, number, &[0..2, 2..4]);
            if let Some(dropped) = broadcasts.poll_dropped() {
                assert!(dropped == (slow, KEY) && !broadcasts.reaches(now, slow));
                return;
            }
            assert!(number < 1000);
        }
    }

    #[test]
    fn a_broadcast_that_takes_longer_than_other_ways_ends() {
        let mut broadcasts = Broadcasts::default();
        broadcasts.begin(KEY, 100 * PART, PART, hosts().into_iter(), ms(0), Some(ms(30)));
        hosts().into_iter().for_each(|host| broadcasts.ready(ms(1), host, KEY));
        assert!(broadcasts.next(ms(2)).is_some() && broadcasts.next_wakeup() == Some(ms(30)));
        assert_eq!(broadcasts.next(ms(30)), None);
        let dropped: BTreeSet<_> = std::iter::from_fn(|| broadcasts.poll_dropped()).collect();
        assert_eq!(dropped, hosts().map(|host| (host, KEY)).into());
        assert!(broadcasts.is_done() && hosts().iter().all(|host| broadcasts.reaches(ms(30), *host)));
        assert!(broadcasts.take_gave_up() && !broadcasts.take_gave_up());
    }

    #[test]
    fn a_broadcast_that_takes_too_long_goes_on_without_the_few_that_do_not_answer() {
        let [one, two, deaf] = hosts();
        let mut broadcasts = Broadcasts::default();
        broadcasts.begin(KEY, 20 * PART, PART, hosts().into_iter(), ms(0), Some(ms(10)));
        hosts().into_iter().for_each(|host| broadcasts.ready(ms(1), host, KEY));
        let sent = |broadcasts: &mut Broadcasts, now| std::iter::from_fn(|| broadcasts.next(now)).last();
        let round = sent(&mut broadcasts, ms(2)).unwrap().round;
        [one, two].into_iter().for_each(|host| broadcasts.report(ms(3), host, KEY, round, &[]));
        let next = sent(&mut broadcasts, ms(10)).unwrap();
        assert!(next.round == round + 1 && next.sent == 20, "the other two get the rest");
        assert_eq!((broadcasts.poll_dropped(), broadcasts.reaches(ms(10), deaf)), (Some((deaf, KEY)), false));
        assert_eq!((broadcasts.next(ms(20)), broadcasts.poll_dropped().is_some()), (None, true), "once more is enough");
        assert!(broadcasts.reaches(ms(20), one) && broadcasts.take_gave_up());
    }
}
