//! What the receiving side measures: how fast bytes arrive, and how long a grant takes to have an effect.
use crate::time::Time;
use std::time::Duration;

/// The least and the most paced bytes that may be under way from all hosts together. A switch of today buffers 64 KiB
/// or more for each port; the least value leaves room there for short messages.
pub(super) const UNDER_WAY_BYTES_MIN: u64 = 32 << 10;
pub(super) const UNDER_WAY_BYTES_MAX: u64 = 4 << 20;
/// What arrives in this time may be under way: so long can a daemon on a busy machine be without a processor, and
/// meanwhile the wire should not be idle.
const ROOM: Duration = Duration::from_millis(6);
/// After packets were lost, fewer bytes are under way. They double again in this time.
const RECOVERY: Duration = Duration::from_secs(4);
/// Packets that are lost within this time are one loss.
const LOSS_INTERVAL: Duration = Duration::from_millis(50);
/// The limit of a host that alone sends long messages is ahead by what arrives in this many delays, and by this number
/// of bytes. Such a host cannot overflow a port more than a single connection always can, but what it has sent delays
/// hosts that begin to send.
const LEAD_DELAYS: f64 = 8.0;
const LEAD_BYTES_MIN: u64 = UNDER_WAY_BYTES_MIN;
const LEAD_BYTES_MAX: u64 = 8 << 20;
/// A rate is measured over at least this many bytes and this time. In a shorter time, bytes that had waited in the
/// socket would count.
const SAMPLE_BYTES_MIN: u64 = 16 << 10;
const SAMPLE_TIME_MIN: Duration = Duration::from_micros(100);
/// A sample of this length would replace the rate, if it is higher, or if it is lower; shorter samples count less, and
/// none counts more than half.
const RISE: Duration = Duration::from_millis(5);
const FALL: Duration = Duration::from_millis(10);
/// The delay before anything was measured.
const FIRST_DELAY: Duration = Duration::from_millis(1);
/// The mean delay counts as at most this many times the least delay: a lost packet is sent again after 200 ms, and that
/// says nothing about the path.
const DELAY_SPREAD_MAX: f64 = 4.0;

/// The measured properties of the path to this host.
#[derive(Debug)]
pub(super) struct Path {
    /// Bytes in a second; 0 if not measured.
    rate: f64,
    /// The least and the mean time, in seconds, from a grant to the first bytes that it allowed, without the time that
    /// the bytes ahead of them took.
    least: Option<f64>,
    mean: f64,
    /// The beginning of the current sample of the rate, and the bytes that have arrived since. Absent while nothing is
    /// under way.
    sample: Option<(Time, u64)>,
    /// The bytes that may be under way after a loss; infinite before.
    ceiling: f64,
    last_loss: Option<Time>,
    last_time: Time,
}

impl Default for Path {
    fn default() -> Self {
        Path {
            rate: 0.0,
            least: None,
            mean: 0.0,
            sample: None,
            ceiling: f64::INFINITY,
            last_loss: None,
            last_time: Time::ZERO,
        }
    }
}

impl Path {
    /// Returns how many bytes should be under way: what arrives in twice the delay of a grant, since hosts and daemons
    /// may be late, and what arrives in [`ROOM`]; but less after a loss.
    pub fn target_bytes(&self) -> u64 {
        let bytes = self.rate * larger(2.0 * self.delay(), ROOM.as_secs_f64());
        (smaller(bytes, self.ceiling) as u64).clamp(UNDER_WAY_BYTES_MIN, UNDER_WAY_BYTES_MAX)
    }

    /// Handles the loss of packets.
    pub fn handle_loss(&mut self, now: Time) {
        if self.last_loss.is_none_or(|last| now > last + LOSS_INTERVAL) {
            self.ceiling = 0.7 * self.target_bytes() as f64;
            self.last_loss = Some(now);
        }
    }

    /// Returns how many bytes a host that sends alone may be ahead of what has arrived.
    pub fn lead_bytes(&self) -> u64 {
        let bytes = LEAD_DELAYS * self.rate * self.delay();
        (bytes as u64).clamp(LEAD_BYTES_MIN, LEAD_BYTES_MAX).max(self.target_bytes())
    }

    fn delay(&self) -> f64 {
        let least = self.least.unwrap_or(FIRST_DELAY.as_secs_f64());
        self.mean.clamp(least, DELAY_SPREAD_MAX * least)
    }

    /// Returns the time in which this number of bytes should arrive after a grant.
    pub fn expected(&self, bytes: u64) -> Duration {
        let bytes_time = if self.rate > 0.0 { bytes as f64 / self.rate } else { 0.1 };
        Duration::from_secs_f64(smaller(self.delay() + bytes_time, 1.0))
    }

    /// Counts bytes that have arrived.
    pub fn count(&mut self, bytes: u64) {
        if let Some((_, arrived)) = &mut self.sample {
            *arrived += bytes;
        }
    }

    /// Ends the current sample if it is long enough, and begins a sample if bytes are under way.
    pub fn handle_time(&mut self, now: Time, is_busy: bool) {
        let passed = now.saturating_sub(std::mem::replace(&mut self.last_time, now));
        // In many small steps this doubles in the recovery time. `exp2` would need the C library's libm in programs.
        self.ceiling *= 1.0 + std::f64::consts::LN_2 * passed.as_secs_f64() / RECOVERY.as_secs_f64();
        if let Some((since, bytes)) = self.sample {
            let time = now.saturating_sub(since);
            if bytes >= SAMPLE_BYTES_MIN && time >= SAMPLE_TIME_MIN {
                let rate = bytes as f64 / time.as_secs_f64();
                // A sample is often too low, because the senders have paused. A short one may be too high: after a pause
                // of this daemon, bytes that had waited in the socket are read at once.
                let memory = if rate > self.rate { RISE } else { FALL };
                let weight = if self.rate > 0.0 { time.as_secs_f64() / memory.as_secs_f64() } else { 0.5 };
                self.rate += smaller(weight, 0.5) * (rate - self.rate);
                self.sample = None;
            }
        }
        match is_busy {
            true => drop(self.sample.get_or_insert((now, 0))),
            false => self.sample = None,
        }
    }

    /// Takes the time from a grant, to a host that waited for it, to the first bytes that it allowed. `ahead` is how many
    /// bytes were under way before it.
    pub fn grant_took(&mut self, time: Duration, ahead: u64) {
        let time = time.as_secs_f64();
        let ahead = if self.rate > 0.0 { ahead as f64 / self.rate } else { 0.0 };
        let own = larger(time - ahead, time / 8.0);
        // The least time rises slowly, because the path may change.
        let least = self.least.map_or(own, |least| smaller(own, least * (1.0 + 1.0 / 64.0)));
        self.least = Some(least);
        self.mean += (smaller(own, 2.0 * DELAY_SPREAD_MAX * least) - self.mean) / 8.0;
    }
}

/// Returns the larger number. On some processors, `f64::max` would need the C library's libm in programs.
fn larger(one: f64, other: f64) -> f64 {
    if one > other { one } else { other }
}

/// Returns the smaller number, as [`larger`] does.
fn smaller(one: f64, other: f64) -> f64 {
    if one < other { one } else { other }
}
