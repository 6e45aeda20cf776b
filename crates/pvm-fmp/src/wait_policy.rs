//! How to wait (`docs/decisions/0053-spin-then-park-beside-other-processes.md`): spin while the peer can
//! run at the same time, yield if it needs this core, leave a core that both share, then sleep.
use std::time::Duration;

/// The number of watches without a system call, of some hundred nanoseconds to two microseconds each: an answer from another core arrives
/// within that time. More watches would delay the answer of a task that has to run on the same core.
const SPINS: u32 = 8;
/// How long a wait spins or yields before it sleeps, unless earlier waits have shown that this is in vain; and for how long
/// a peer may run after that without an answer.
const BUDGET: Duration = Duration::from_micros(100);
/// How long a wait spins for a peer that can run and does not, since another process has its core: a few time slices.
const PREEMPTED_MAX: Duration = Duration::from_millis(10);
/// The time between two questions how long the peer has run.
const MEASURE_EVERY: Duration = Duration::from_micros(10);
/// The time between two questions whether the peer could run.
const READY_EVERY: Duration = Duration::from_millis(1);
/// A yield that takes longer than this has let another task run.
const OTHERS_RAN: Duration = Duration::from_micros(3);
/// After this number of yields that have let other processes run, in vain, the waiting task sleeps.
const YIELDS_TO_OTHERS_MAX: u32 = 16;
/// The number of yields of a waiting task before it sleeps, if tasks outnumber cores: another task on the same core may
/// answer during a yield, without a wake-up. More yields would take time from tasks that have work.
const CROWDED_YIELDS: u32 = 1;
/// The number of yields of a patient wait before the clock is first read: most waits end before that.
const FREE_YIELDS: u32 = 4;
/// How often the budget may begin anew while a long message arrives: in all 2 ms, in which 4 MB arrive at 2 GB/s.
const EXTENSIONS_MAX: u32 = 20;
/// The least time between two moves to another core.
const PART_EVERY: Duration = Duration::from_millis(5);
/// One in this number of waits has the whole budget although earlier ones were in vain.
const PROBE_EVERY: u32 = 32;

/// What to do next while nothing has arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// Watch ([`crate::Endpoint::watch`]), then poll again.
    Watch,
    /// Let others run on this core, say how long that took ([`Spinner::yielded`]), then poll again.
    Yield,
    /// Move to another core, if the task may run on another one, then poll again.
    Part,
    /// Sleep on the doorbell: `prepare_park`, `poll`, `poll(2)`, `unpark`.
    Sleep,
}

/// Where the peer is from which the next message is expected: the one that has sent last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Peer {
    /// Not known, or on another host.
    Unknown,
    /// It sleeps, or wakes up.
    Asleep,
    /// It is awake. It was on that core when it last waited for long, if it ever has.
    Awake { core: Option<u32> },
}

/// What a wait sees of its surroundings.
pub trait Surroundings {
    /// Returns the time since any fixed moment.
    fn now(&self) -> Duration;
    /// Returns the core of this task, and publishes it.
    fn core(&self) -> u32;
    /// Returns where the peer is.
    fn peer(&self) -> Peer;
    /// Returns for how long the peer has run since it began; `None` if it is gone.
    fn peer_ran(&self) -> Option<Duration>;
    /// Returns whether the peer could run now, or does. This takes some microseconds.
    fn peer_is_ready(&self) -> bool;
}

/// What a task remembers from wait to wait.
#[derive(Debug)]
pub struct Waits {
    /// How long a wait spins or yields, learned from earlier waits.
    budget: Duration,
    /// The waits since the last one with the whole budget.
    waits: u32,
    /// Whether the peer ended the last wait on this task's core.
    shares_core: bool,
    parted_at: Option<Duration>,
}

impl Default for Waits {
    fn default() -> Waits {
        Waits { budget: BUDGET, waits: 0, shares_core: false, parted_at: None }
    }
}

impl Waits {
    /// Returns the budget of a wait that begins.
    fn next_budget(&mut self) -> Duration {
        self.waits += 1;
        if self.waits < PROBE_EVERY {
            return self.budget;
        }
        self.waits = 0;
        BUDGET
    }

    /// Learns from a wait that is over, or that is about to sleep (`slept`).
    #[inline]
    pub fn learn(&mut self, spinner: &Spinner, slept: bool) {
        match slept {
            // If no other process wants the core, a wait that sleeps does not show whether it was in vain.
            true if spinner.others_ran > 0 => self.budget /= 2,
            false if self.budget < BUDGET => self.budget = (2 * self.budget.max(spinner.waited)).min(BUDGET),
            _ => {}
        }
        self.shares_core = !slept && spinner.yields_here > 0;
    }

    /// Returns whether the task should leave the core, and notes that it does.
    fn parts(&mut self, now: Duration) -> bool {
        let parts = self.parted_at.is_none_or(|at| now - at >= PART_EVERY);
        if parts {
            (self.shares_core, self.parted_at) = (false, Some(now));
        }
        parts
    }
}

/// How a wait ends that nothing has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// It learns, and other waits learn from it.
    Ordinary,
    /// It yields where others sleep, because another task would first have to wake a sleeping one before both could go on.
    Patient,
    /// Tasks outnumber the cores.
    Crowded,
    AtOnce,
}

/// How long the peer runs.
#[derive(Clone, Copy)]
struct Measured {
    /// When it was measured first, and how long it had run by then.
    since: Duration,
    before: Duration,
    /// When it was measured last, and how long it had run since the first time.
    at: Duration,
    ran: Duration,
}

/// One wait.
pub struct Spinner {
    kind: Kind,
    budget: Duration,
    /// The number of further yields that are made without reading the clock.
    free_yields: u32,
    spins: u32,
    yields: u32,
    /// The yields to a peer on the same core.
    yields_here: u32,
    others_ran: u32,
    since: Option<Duration>,
    waited: Duration,
    measured: Option<Measured>,
    /// When the peer was last found ready to run.
    ready_at: Option<Duration>,
    extensions: u32,
}

impl Spinner {
    /// Begins a wait.
    pub fn new(crowded: bool, waits: &mut Waits) -> Spinner {
        let kind = if crowded { Kind::Crowded } else { Kind::Ordinary };
        let mut spinner = Spinner { budget: waits.next_budget(), ..Spinner::of(kind) };
        if waits.shares_core {
            // The peer needs this core.
            spinner.spins = SPINS;
        }
        spinner
    }

    fn of(kind: Kind) -> Spinner {
        Spinner {
            kind,
            budget: BUDGET,
            free_yields: 0,
            spins: if matches!(kind, Kind::Ordinary | Kind::Patient) { 0 } else { SPINS },
            yields: 0,
            yields_here: 0,
            others_ran: 0,
            since: None,
            waited: Duration::ZERO,
            measured: None,
            ready_at: None,
            extensions: 0,
        }
    }

    /// Begins a wait that neither spins nor yields.
    pub fn none() -> Spinner {
        Spinner::of(Kind::AtOnce)
    }

    /// Begins a wait in which tasks wait for one another, as in a barrier.
    pub fn patient(crowded: bool) -> Spinner {
        let spins = if crowded { SPINS } else { 0 };
        Spinner { spins, free_yields: FREE_YIELDS, budget: 2 * BUDGET, ..Spinner::of(Kind::Patient) }
    }

    /// Begins the budget anew, since a long message is arriving. Returns false if others want the core, or
    /// if that was done so often that the caller had better sleep: it holds a lock for which other threads may wait.
    pub fn extend(&mut self) -> bool {
        let may = matches!(self.kind, Kind::Ordinary | Kind::Patient);
        let extends = may && self.others_ran < YIELDS_TO_OTHERS_MAX && self.extensions < EXTENSIONS_MAX;
        if extends {
            self.extensions += 1;
            self.since = None;
        }
        extends
    }

    /// Returns what to do next.
    #[inline]
    pub fn next(&mut self, waits: &mut Waits, around: &impl Surroundings) -> Wait {
        if self.spins < SPINS {
            self.spins += 1;
            return Wait::Watch;
        }
        self.next_long(waits, around)
    }

    /// Notes how long a yield took.
    pub fn yielded(&mut self, took: Duration) {
        self.others_ran += u32::from(took > OTHERS_RAN);
    }

    #[cold]
    fn next_long(&mut self, waits: &mut Waits, around: &impl Surroundings) -> Wait {
        if self.free_yields > 0 {
            self.free_yields -= 1;
            return Wait::Yield;
        }
        let now = around.now();
        self.waited = now - *self.since.get_or_insert(now);
        match self.kind {
            Kind::AtOnce => Wait::Sleep,
            Kind::Crowded if self.yields >= CROWDED_YIELDS => Wait::Sleep,
            Kind::Crowded => {
                self.yields += 1;
                Wait::Yield
            }
            Kind::Patient => self.yield_for_a_while(),
            Kind::Ordinary => self.wait_for_peer(now, waits, around),
        }
    }

    fn wait_for_peer(&mut self, now: Duration, waits: &mut Waits, around: &impl Surroundings) -> Wait {
        let here = around.core();
        match around.peer() {
            Peer::Awake { core } if core == Some(here) && self.needs_this_core(now, waits, around) => {
                if waits.parts(now) {
                    return Wait::Part;
                }
                self.yields_here += 1;
                self.yield_for_a_while()
            }
            Peer::Awake { .. } if self.waited < self.budget || self.peer_waits_for_core(now, around) => Wait::Watch,
            // A yield to a busy process would take longer than the peer's way out of its sleep.
            Peer::Asleep if self.waited < self.budget => Wait::Watch,
            Peer::Awake { .. } | Peer::Asleep => Wait::Sleep,
            Peer::Unknown => self.yield_for_a_while(),
        }
    }

    /// Returns whether the peer, which was on this core when it last waited, still is: then it could run, and does not while
    /// this task does.
    fn needs_this_core(&mut self, now: Duration, waits: &Waits, around: &impl Surroundings) -> bool {
        if waits.shares_core || self.yields_here > 0 {
            return true;
        }
        let Some(measured) = self.measure(now, around) else { return false };
        let time = measured.at - measured.since;
        !time.is_zero() && measured.ran < time / 4 && self.peer_is_ready(now, around)
    }

    /// Returns whether the peer could run, but has no core: it has run for less than the budget since it was first measured.
    fn peer_waits_for_core(&mut self, now: Duration, around: &impl Surroundings) -> bool {
        let budget = self.budget;
        self.waited <= PREEMPTED_MAX
            && self.measure(now, around).is_some_and(|measured| measured.ran < budget)
            && self.peer_is_ready(now, around)
    }

    /// Asks once in a while whether the peer could run. Otherwise it sleeps in a call of its own, and will not answer soon.
    fn peer_is_ready(&mut self, now: Duration, around: &impl Surroundings) -> bool {
        if self.ready_at.is_none_or(|at| now - at >= READY_EVERY) {
            self.ready_at = around.peer_is_ready().then_some(now);
        }
        self.ready_at.is_some()
    }

    /// Returns how long the peer has run since it was first measured in this wait; `None` if it is gone.
    fn measure(&mut self, now: Duration, around: &impl Surroundings) -> Option<Measured> {
        let measured = match self.measured {
            Some(last) if now - last.at < MEASURE_EVERY => last,
            Some(last) => Measured { at: now, ran: around.peer_ran()?.saturating_sub(last.before), ..last },
            None => Measured { since: now, before: around.peer_ran()?, at: now, ran: Duration::ZERO },
        };
        self.measured = Some(measured);
        Some(measured)
    }

    fn yield_for_a_while(&self) -> Wait {
        if self.waited > self.budget || self.others_ran >= YIELDS_TO_OTHERS_MAX { Wait::Sleep } else { Wait::Yield }
    }
}

#[cfg(test)]
#[path = "wait_policy_tests.rs"]
mod tests;
