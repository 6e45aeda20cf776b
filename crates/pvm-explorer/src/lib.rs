//! Learns by trial which of several ways costs the least: a multi-armed bandit that knows no cost beforehand, and whose
//! costs may change at any time.
//!
//! The user makes one [`Explorer`] for each class of things whose costs are alike, such as messages of similar lengths, and
//! numbers the ways: they are the *arms*. It maps what it has measured to costs of any unit, and a preference to a weight of
//! these costs. There is no clock here: what counts is the number of *pulls*, that is of things that went one way.
//!
//! [`CircuitBreaker`] is for a choice that only succeeds or fails.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

mod circuit_breaker;
#[cfg(test)]
mod tests;

pub use circuit_breaker::CircuitBreaker;

/// What differs from user to user.
#[derive(Debug)]
pub struct Rules {
    /// The number of trials of each arm before the first decision.
    pub trials_min: u16,
    /// The number of trials of one that may be the best.
    pub trials_max: u16,
    /// The part of the costs that may be lost by trying one other arm again, as a divisor.
    pub loss_divisor: f32,
    /// The least number of pulls between two trials of an arm, for each pull of a trial.
    pub pause_min: u32,
}

impl Rules {
    /// The usual rules: other arms cost a third of a percent.
    pub const USUAL: Rules = Rules { trials_min: 1, trials_max: 2, loss_divisor: 300.0, pause_min: 16 };
}

/// After this number of pulls of the best arm at the latest, costs that have changed are looked at.
const EXPLOITS_MAX: u32 = 16;
/// The largest number of pulls between two trials of an arm.
const PAUSE_MAX: u32 = 7000;
/// The same for each pull of a trial, while a single trial has shown the cost: an interruption may have made it high.
const UNCONFIRMED_PAUSE_MAX: u32 = 256;
/// An arm that costs less than this multiple of the best one may be the best: an interruption may hide it.
pub const CLOSE_RATIO: f32 = 2.0;
/// The trial of an arm that costs more than this multiple of the best one was probably interrupted, unless it had one pull:
/// a single pull is so long that no interruption adds as much.
const DOUBTED_RATIO: f32 = 8.0;
/// A pull that costs more than this multiple of what is expected may have been interrupted. After this number of such pulls
/// in a row, the cheapest of them is believed.
const SLOW_RATIO: f32 = 1.5;
const SLOW_PULLS: u8 = 3;

/// How well the cost of an arm is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Certainty {
    /// At most one trial has shown it.
    Unconfirmed,
    Confirmed,
    /// A much higher cost was believed, and no pull since then has confirmed it: the arm is tried at once.
    Questioned,
}

/// What is known of an arm.
#[derive(Debug, Clone, Copy)]
struct Arm {
    /// Infinite before it was measured.
    cost: f32,
    /// The number of pulls in a row that cost much more, and the cost of the cheapest of them.
    slow_pulls: u8,
    slow_cost: f32,
    trials: u16,
    certainty: Certainty,
    /// The number of the last pull, the number of pulls in a row until then while another arm was the best, and about the
    /// largest number of them in the last trials.
    last: u32,
    run: u16,
    trial_pulls: u16,
}

impl Arm {
    const NEW: Arm = Arm {
        cost: f32::INFINITY,
        slow_pulls: 0,
        slow_cost: f32::INFINITY,
        trials: 0,
        certainty: Certainty::Unconfirmed,
        last: 0,
        run: 0,
        trial_pulls: 1,
    };

    fn begin_trial(&mut self, run: u16) {
        self.certainty = if self.trials > 0 { Certainty::Confirmed } else { Certainty::Unconfirmed };
        // A trial that ends early counts as a whole one, since the pull after it costs more, too.
        self.trial_pulls = self.trial_pulls.max(run);
        self.trials = self.trials.saturating_add(1);
    }

    /// Notes the cost of a pull. A lower one counts at once, and one that is a little higher by an eighth.
    fn record(&mut self, cost: f32) {
        if cost > self.cost * SLOW_RATIO {
            self.slow_pulls += 1;
            // On some processors, `f32::min` would need the C library's libm in programs.
            if cost < self.slow_cost {
                self.slow_cost = cost;
            }
            if self.slow_pulls < SLOW_PULLS {
                return;
            }
            (self.cost, self.certainty) = (self.slow_cost, Certainty::Questioned);
        } else {
            self.cost = if cost < self.cost { cost } else { self.cost + (cost - self.cost) / 8.0 };
            if self.certainty == Certainty::Questioned {
                self.certainty = Certainty::Unconfirmed;
            }
        }
        (self.slow_pulls, self.slow_cost) = (0, f32::INFINITY);
    }
}

/// What [`Explorer::choose`] does.
#[derive(Debug, Clone, Copy)]
enum State {
    /// The next `left` pulls are of the best arm.
    Exploit { left: u32 },
    /// The next `left` pulls are of this arm.
    Trial { arm: usize, left: u16 },
}

/// Chooses among `ARMS` arms.
///
/// A user that decides itself calls [`Explorer::choose`] for each pull, and [`Explorer::record`] for each measured one. A user that
/// only wishes, and learns later what was pulled, calls [`Explorer::next`] and [`Explorer::observe`].
#[derive(Debug, Clone, Copy)]
pub struct Explorer<const ARMS: usize> {
    rules: &'static Rules,
    arms: [Arm; ARMS],
    best: usize,
    pulls: u32,
    state: State,
}

impl<const ARMS: usize> Explorer<ARMS> {
    /// Returns an explorer that knows nothing, and prefers the first arm.
    pub const fn new(rules: &'static Rules) -> Explorer<ARMS> {
        Explorer { rules, arms: [Arm::NEW; ARMS], best: 0, pulls: 0, state: State::Exploit { left: 0 } }
    }

    /// Returns an explorer for a similar class: it tries the best arm of this one first, and an arm that costs much more
    /// only when it would be tried again.
    pub fn similar(&self) -> Explorer<ARMS> {
        let mut similar = Explorer { best: self.best, ..Explorer::new(self.rules) };
        for (assumed, known) in similar.arms.iter_mut().zip(&self.arms) {
            if known.cost > self.arms[self.best].cost * CLOSE_RATIO {
                *assumed = Arm { last: 0, run: 0, ..*known };
            }
        }
        similar
    }

    /// Returns whether nothing was pulled.
    pub fn is_new(&self) -> bool {
        self.pulls == 0
    }

    /// Returns whether each of the first `arms` arms was tried as often as it is before the first decision.
    pub fn is_settled(&self, arms: usize) -> bool {
        self.untried(arms).is_none()
    }

    /// Returns what a pull of the arm costs; infinite before one was measured.
    pub fn cost(&self, arm: usize) -> f32 {
        self.arms[arm].cost
    }

    /// Returns whether the last pull of the arm that was measured cost much more than expected.
    pub fn is_doubted(&self, arm: usize) -> bool {
        self.arms[arm].slow_pulls > 0
    }

    /// Returns the best of the first `arms` arms; the other ones are not possible now.
    pub fn best(&self, arms: usize) -> usize {
        if self.best < arms { self.best } else { self.cheapest(arms) }
    }

    /// Chooses one of the first `arms` arms, which is pulled then. Returns it, and whether to measure its cost. A trial has
    /// `run` pulls, or fewer if it shows that the arm is clearly worse. The first one is not measured if there are others,
    /// since what was pulled before still has its effect. Of the pulls of the best arm, one in `one_in` is measured, which is
    /// a power of two.
    #[inline]
    pub fn choose(&mut self, arms: usize, run: u16, one_in: u32) -> (usize, bool) {
        match &mut self.state {
            State::Exploit { left } if *left > 0 => {
                *left -= 1;
                self.exploit(arms, one_in)
            }
            _ => self.explore(arms, run, one_in),
        }
    }

    #[inline]
    fn exploit(&mut self, arms: usize, one_in: u32) -> (usize, bool) {
        let best = self.best(arms);
        self.pulls = self.pulls.wrapping_add(1);
        self.arms[best].last = self.pulls;
        (best, self.pulls & (one_in - 1) == 0)
    }

    #[inline(never)]
    fn explore(&mut self, arms: usize, run: u16, one_in: u32) -> (usize, bool) {
        let (arm, left) = match self.state {
            State::Trial { arm, left } if left > 0 && !(left + 1 < run && self.is_clearly_worse(arms, arm)) => {
                (arm, left)
            }
            _ => match self.due(arms) {
                Some(arm) => {
                    self.arms[arm].begin_trial(run);
                    (arm, run)
                }
                None => {
                    let wait = (0..arms).map(|arm| self.wait(arm)).min().unwrap_or(1);
                    self.state = State::Exploit { left: wait.min(EXPLOITS_MAX) - 1 };
                    return self.exploit(arms, one_in);
                }
            },
        };
        self.state = State::Trial { arm, left: left - 1 };
        self.pull(arms, arm);
        (arm, left < run || run == 1)
    }

    fn is_clearly_worse(&self, arms: usize, arm: usize) -> bool {
        let cost = self.arms[arm].cost;
        cost.is_finite() && cost > self.arms[self.best(arms)].cost * SLOW_RATIO
    }

    /// Returns which of the first `arms` arms should be pulled next.
    pub fn next(&self, arms: usize) -> usize {
        self.due(arms).unwrap_or_else(|| self.best(arms))
    }

    /// Notes the cost of a pull that [`Explorer::choose`] has chosen.
    pub fn record(&mut self, arm: usize, cost: f32) {
        self.arms[arm].record(cost);
        self.best = self.cheapest(ARMS);
    }

    /// Notes a pull of one of the first `arms` arms, and its cost. Pulls that were under way when another arm was wished for
    /// belong to the trial.
    pub fn observe(&mut self, arms: usize, arm: usize, cost: f32) {
        self.arms[arm].begin_trial(1);
        self.pull(arms, arm);
        self.record(arm, cost);
    }

    /// Assumes the cost of an arm. It need not be tried before the first decision.
    pub fn assume(&mut self, arm: usize, cost: f32) {
        let arm = &mut self.arms[arm];
        (arm.cost, arm.certainty, arm.trials) = (cost, Certainty::Confirmed, arm.trials.max(self.rules.trials_max));
        self.best = self.cheapest(ARMS);
    }

    fn pull(&mut self, arms: usize, arm: usize) {
        let (is_best, pulled) = (arm == self.best(arms), &mut self.arms[arm]);
        if is_best || pulled.last != self.pulls {
            pulled.run = 0;
        }
        if !is_best {
            if pulled.run == 0 {
                pulled.trial_pulls -= pulled.trial_pulls / 8;
            }
            pulled.run = pulled.run.saturating_add(1);
            pulled.trial_pulls = pulled.trial_pulls.max(pulled.run);
        }
        self.pulls = self.pulls.wrapping_add(1);
        pulled.last = self.pulls;
    }

    fn cheapest(&self, arms: usize) -> usize {
        (0..arms).min_by(|one, other| self.arms[*one].cost.total_cmp(&self.arms[*other].cost)).unwrap_or_default()
    }

    /// Returns an arm that should be tried now.
    fn due(&self, arms: usize) -> Option<usize> {
        self.untried(arms).or_else(|| (0..arms).find(|arm| self.wait(*arm) == 0))
    }

    /// Returns the arm that should be tried next before the first decision.
    fn untried(&self, arms: usize) -> Option<usize> {
        let best = self.best(arms);
        if self.arms[best].trials == 0 {
            return Some(best);
        }
        let open = |arm| {
            let Arm { cost, trials, trial_pulls, certainty, .. } = self.arms[arm];
            let ratio = cost / self.arms[best].cost;
            let count = match certainty {
                Certainty::Questioned => 0,
                // The first trial was probably interrupted, and does not count.
                Certainty::Unconfirmed if ratio > DOUBTED_RATIO && trial_pulls > 1 => trials.saturating_sub(1),
                _ => trials,
            };
            let trials_min = if ratio < CLOSE_RATIO { self.rules.trials_max } else { self.rules.trials_min };
            (count < trials_min).then_some((count, arm))
        };
        (0..arms).filter_map(open).min().map(|(_, arm)| arm)
    }

    /// Returns how many pulls come before the arm is tried again. The more it costs, the more: each arm takes the same part
    /// of the costs.
    fn wait(&self, arm: usize) -> u32 {
        let Arm { cost, last, trial_pulls, certainty, .. } = self.arms[arm];
        if arm == self.best {
            return u32::MAX;
        }
        let ratio = cost / self.arms[self.best].cost;
        let pause = if ratio.is_nan() { PAUSE_MAX } else { ((ratio - 1.0) * self.rules.loss_divisor) as u32 };
        let is_uncertain = certainty != Certainty::Confirmed && ratio < DOUBTED_RATIO;
        let pause = if is_uncertain { pause.min(UNCONFIRMED_PAUSE_MAX) } else { pause }.max(self.rules.pause_min);
        pause.saturating_mul(trial_pulls.into()).min(PAUSE_MAX).saturating_sub(self.pulls.wrapping_sub(last))
    }
}
