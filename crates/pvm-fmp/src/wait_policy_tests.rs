//! Models of machines on which two tasks answer each other beside other processes.
use super::*;
use std::cell::Cell;
use std::collections::VecDeque;

const fn us(count: u64) -> Duration {
    Duration::from_micros(count)
}
/// The time from the store of a message to its receipt on another core, and of one watch.
const MESSAGE: Duration = Duration::from_nanos(100);
const WATCH: Duration = Duration::from_nanos(200);
/// A yield that returns at once, and a change to another process.
const YIELD: Duration = Duration::from_nanos(300);
const SWITCH: Duration = us(2);
const SLICE: Duration = us(1500);

/// Where the kernel puts a task that is woken while no core is idle.
#[derive(Clone, Copy)]
enum Placement {
    /// On the core of the process that wakes it.
    Waker,
    /// Where it was before.
    Before,
}

#[derive(Clone)]
struct Machine {
    cores: usize,
    /// The core of each busy process.
    busy: Vec<usize>,
    wake_up: Duration,
    placement: Placement,
    /// The cores on which the tasks may run.
    allowed: Vec<usize>,
    /// How long a task computes before it answers.
    work: Duration,
    /// The share of each 100 ms in which the tasks may run (`cpu.max`), in ms.
    quota_ms: u64,
}

fn machine(cores: usize, busy: &[usize]) -> Machine {
    Machine {
        cores,
        busy: busy.to_vec(),
        wake_up: us(5),
        placement: Placement::Waker,
        allowed: (0..cores).collect(),
        work: Duration::ZERO,
        quota_ms: 100,
    }
}

/// What a core runs: a task by its number, or a busy process.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Process {
    Task(usize),
    Busy,
}

enum Doing {
    Working(Duration),
    Waiting(Spinner),
    Asleep,
}

struct Task {
    doing: Doing,
    waits: Waits,
    core: usize,
    published: Cell<Option<u32>>,
    ran: Duration,
    /// Cleared for a task that sleeps in a call of its own.
    is_ready: bool,
    /// When the message arrives that the task waits for.
    message: Option<Duration>,
}

/// The view of a waiting task.
struct View<'a> {
    now: Duration,
    own: &'a Task,
    peer: &'a Task,
}

impl Surroundings for View<'_> {
    fn now(&self) -> Duration {
        self.now
    }
    fn core(&self) -> u32 {
        self.own.published.set(Some(self.own.core as u32));
        self.own.core as u32
    }
    fn peer(&self) -> Peer {
        match (&self.peer.doing, self.peer.published.get()) {
            (Doing::Asleep, _) => Peer::Asleep,
            (_, core) => Peer::Awake { core },
        }
    }
    fn peer_ran(&self) -> Option<Duration> {
        Some(self.peer.ran)
    }
    fn peer_is_ready(&self) -> bool {
        self.peer.is_ready
    }
}

struct Core {
    now: Duration,
    queue: VecDeque<Process>,
    /// How much of the slice is left.
    slice: Duration,
    /// How many slices there were.
    slices: u64,
}

/// The result of a run.
struct Run {
    messages: u64,
    sleeps: u64,
    parts: u64,
    time: Duration,
    /// How long the tasks ran without work.
    waited: Duration,
}

impl Run {
    fn per_message(&self) -> Duration {
        self.time / self.messages.max(1) as u32
    }
}

struct Model {
    machine: Machine,
    cores: Vec<Core>,
    tasks: [Task; 2],
    run: Run,
}

impl Model {
    fn new(machine: &Machine, places: [usize; 2]) -> Model {
        let core = |_| Core { now: Duration::ZERO, queue: VecDeque::new(), slice: SLICE, slices: 0 };
        let mut cores: Vec<Core> = (0..machine.cores).map(core).collect();
        for (task, place) in places.into_iter().enumerate() {
            cores[place].queue.push_back(Process::Task(task));
        }
        for &place in &machine.busy {
            cores[place].queue.push_back(Process::Busy);
        }
        let task = |at: usize| Task {
            doing: if at == 0 { Doing::Working(machine.work) } else { Doing::Waiting(Spinner::of(Kind::Ordinary)) },
            waits: Waits::default(),
            core: places[at],
            published: Cell::new(None),
            ran: Duration::ZERO,
            is_ready: true,
            message: None,
        };
        let run = Run { messages: 0, sleeps: 0, parts: 0, time: Duration::ZERO, waited: Duration::ZERO };
        Model { machine: machine.clone(), cores, tasks: [task(0), task(1)], run }
    }

    fn run(mut self, time: Duration) -> Run {
        loop {
            let at = (0..self.cores.len()).min_by_key(|at| self.cores[*at].now).expect("a core");
            if self.cores[at].now >= time {
                self.run.time = time;
                return self.run;
            }
            let before = self.cores[at].now;
            let spent = self.step(at);
            let core = &mut self.cores[at];
            core.now = before + spent;
            core.slice = core.slice.saturating_sub(spent);
            if core.slice.is_zero() && core.queue.len() > 1 {
                self.switch(at);
            }
        }
    }

    /// Lets the next process of a core run.
    fn switch(&mut self, at: usize) {
        let core = &mut self.cores[at];
        core.queue.rotate_left(1);
        core.now += SWITCH;
        core.slices += 1;
        // Slices of different length, so that no two cores stay in step.
        core.slice = SLICE.mul_f64(0.7 + 0.1 * ((core.slices * 7 + 3 * at as u64) % 8) as f64);
    }

    /// Runs the first process of a core for a moment. Returns how long that took.
    fn step(&mut self, at: usize) -> Duration {
        match self.cores[at].queue.front() {
            None => {
                self.pull(at);
                us(20)
            }
            Some(Process::Busy) => us(1),
            Some(&Process::Task(_)) if self.is_throttled(at) => us(1),
            Some(&Process::Task(task)) => {
                let works = matches!(self.tasks[task].doing, Doing::Working(left) if !left.is_zero());
                let spent = self.step_task(at, task);
                self.tasks[task].ran += spent;
                self.run.waited += if works { Duration::ZERO } else { spent };
                spent
            }
        }
    }

    fn is_throttled(&self, at: usize) -> bool {
        self.cores[at].now.as_millis() as u64 % 100 >= self.machine.quota_ms
    }

    /// An idle core takes a process that waits for another core, as the kernel does.
    fn pull(&mut self, at: usize) {
        let allowed = self.machine.allowed.contains(&at);
        for other in 0..self.cores.len() {
            let movable = |process: &Process| allowed || *process == Process::Busy;
            let found = self.cores[other].queue.iter().skip(1).position(movable);
            if let Some(place) = found {
                let process = self.cores[other].queue.remove(place + 1).expect("found");
                if let Process::Task(task) = process {
                    self.tasks[task].core = at;
                }
                self.cores[at].queue.push_back(process);
                return;
            }
        }
    }

    fn step_task(&mut self, at: usize, task: usize) -> Duration {
        let now = self.cores[at].now;
        if let Doing::Working(left) = &mut self.tasks[task].doing {
            if !left.is_zero() {
                let spent = (*left).min(us(10));
                *left -= spent;
                return spent;
            }
            self.send(task, now);
            self.tasks[task].doing = Doing::Waiting(Spinner::new(false, &mut self.tasks[task].waits));
            return MESSAGE;
        }
        let has_come = self.tasks[task].message.is_some_and(|arrives| arrives <= now);
        if has_come {
            let own = &mut self.tasks[task];
            if let Doing::Waiting(spinner) = &own.doing {
                own.waits.learn(spinner, false);
            }
            own.message = None;
            own.doing = Doing::Working(self.machine.work);
            self.run.messages += 1;
            return MESSAGE;
        }
        self.wait(at, task)
    }

    fn wait(&mut self, at: usize, task: usize) -> Duration {
        let now = self.cores[at].now;
        let (mut waits, mut doing) = (
            std::mem::take(&mut self.tasks[task].waits),
            std::mem::replace(&mut self.tasks[task].doing, Doing::Asleep),
        );
        let Doing::Waiting(spinner) = &mut doing else {
            // It has been woken, and the message is about to arrive.
            self.tasks[task].waits = waits;
            self.tasks[task].doing = Doing::Waiting(Spinner::none());
            return WATCH;
        };
        let next = spinner.next(&mut waits, &View { now, own: &self.tasks[task], peer: &self.tasks[1 - task] });
        if next == Wait::Sleep {
            waits.learn(spinner, true);
        }
        let spent = match next {
            Wait::Watch => WATCH,
            Wait::Yield => {
                let others = self.cores[at].queue.len() > 1;
                spinner.yielded(if others { SLICE } else { YIELD });
                if others {
                    self.switch(at);
                    // `run` adds what this returns to the time before.
                }
                YIELD
            }
            Wait::Part => {
                self.part(at, task);
                us(10)
            }
            Wait::Sleep => {
                self.run.sleeps += 1;
                self.cores[at].queue.pop_front();
                doing = Doing::Asleep;
                SWITCH
            }
        };
        self.tasks[task].waits = waits;
        self.tasks[task].doing = doing;
        spent
    }

    fn part(&mut self, at: usize, task: usize) {
        let Some(&other) = self.machine.allowed.iter().find(|core| **core != at) else { return };
        self.run.parts += 1;
        self.tasks[task].published.set(None);
        self.cores[at].queue.pop_front();
        self.cores[other].queue.push_back(Process::Task(task));
        self.tasks[task].core = other;
    }

    /// Sends a message to the peer, and wakes the peer if it sleeps.
    fn send(&mut self, task: usize, now: Duration) {
        let peer = 1 - task;
        if !matches!(self.tasks[peer].doing, Doing::Asleep) {
            self.tasks[peer].message = Some(now + MESSAGE);
            return;
        }
        self.tasks[peer].message = Some(now + self.machine.wake_up);
        let allowed = &self.machine.allowed;
        let idle = allowed.iter().copied().find(|core| self.cores[*core].queue.is_empty());
        let place = idle.unwrap_or(match self.machine.placement {
            Placement::Waker => self.tasks[task].core,
            Placement::Before => self.tasks[peer].core,
        });
        self.tasks[peer].core = place;
        let behind = 1.min(self.cores[place].queue.len());
        self.cores[place].queue.insert(behind, Process::Task(peer));
    }
}

/// Runs a pair for 60 ms, from each pair of the first two cores.
fn run(machine: &Machine) -> Vec<Run> {
    let first = || machine.allowed.iter().take(2);
    let places = first().flat_map(|one| first().map(move |two| [*one, *two]));
    places.map(|places| Model::new(machine, places).run(us(60_000))).collect()
}

/// Checks how long a message takes at most, wherever the tasks begin.
fn takes_at_most(machine: &Machine, limit: Duration, what: &str) {
    for (at, run) in run(machine).iter().enumerate() {
        let each = run.per_message();
        assert!(each <= limit, "{what}, places {at}: {each:?}, {} sleeps, {} parts", run.sleeps, run.parts);
    }
}

#[test]
fn alone_a_pair_never_sleeps() {
    for cores in [2, 4, 16] {
        takes_at_most(&machine(cores, &[]), Duration::from_nanos(700), "alone");
        for run in run(&machine(cores, &[])).iter().skip(1).take(1) {
            assert_eq!(run.sleeps, 0);
        }
    }
}

#[test]
fn beside_a_busy_process_a_pair_has_half_a_core_at_least() {
    // The pair runs at the same time for half of the time, so a message takes twice as long as alone.
    for placement in [Placement::Waker, Placement::Before] {
        for wake_up in [us(5), us(50)] {
            for busy in [0, 1] {
                let machine = Machine { placement, wake_up, ..machine(2, &[busy]) };
                takes_at_most(&machine, Duration::from_nanos(1500), "beside one");
            }
        }
    }
}

#[test]
fn beside_a_busy_process_on_each_core_a_pair_runs_for_a_part_of_the_time() {
    for placement in [Placement::Waker, Placement::Before] {
        let machine = Machine { placement, ..machine(2, &[0, 1]) };
        takes_at_most(&machine, us(4), "beside two");
    }
}

#[test]
fn on_one_core_a_pair_takes_turns() {
    for busy in [&[][..], &[0]] {
        let machine = Machine { allowed: vec![1], ..machine(2, busy) };
        takes_at_most(&machine, us(6), "on one core");
    }
}

#[test]
fn with_a_quota_a_pair_loses_only_the_time_without_cores() {
    let machine = Machine { quota_ms: 75, ..machine(2, &[]) };
    takes_at_most(&machine, us(1), "with a quota");
}

#[test]
fn a_peer_that_computes_is_awaited_asleep() {
    // A peer that computes and loses its core to another process cannot be told from one that is about to answer.
    for (busy, limit) in [(&[][..], us(400)), (&[1], us(400) + 2 * SLICE)] {
        let machine = Machine { work: us(20_000), ..machine(2, busy) };
        for run in run(&machine) {
            // Beside the work, each wait of 20 ms costs little of a core.
            assert!(run.waited < limit * (run.messages as u32 + 2), "{:?} of {}", run.waited, run.messages);
        }
    }
}

#[test]
fn every_wait_ends_in_sleep() {
    let mut now = Duration::ZERO;
    let around = |now, doing| Task {
        doing,
        waits: Waits::default(),
        core: 0,
        published: Cell::new(Some(1)),
        ran: now,
        is_ready: true,
        message: None,
    };
    for mut spinner in [Kind::Ordinary, Kind::Patient, Kind::Crowded, Kind::AtOnce].map(Spinner::of) {
        let (own, peer) = (around(now, Doing::Asleep), around(us(0), Doing::Working(us(1))));
        let mut waits = Waits::default();
        let start = now;
        while spinner.next(&mut waits, &View { now, own: &own, peer: &peer }) != Wait::Sleep {
            now += us(1);
        }
        assert!(now - start <= PREEMPTED_MAX + us(10));
    }
}

#[test]
fn a_peer_that_sleeps_in_a_call_of_its_own_is_not_awaited_for_long() {
    let task = |is_ready, core| Task {
        doing: Doing::Working(us(1)),
        waits: Waits::default(),
        core: 0,
        published: Cell::new(Some(core)),
        ran: Duration::ZERO,
        is_ready,
        message: None,
    };
    for core in [0, 1] {
        let (own, peer, mut waits, mut now) = (task(true, 0), task(false, core), Waits::default(), us(0));
        let mut spinner = Spinner::new(false, &mut waits);
        loop {
            match spinner.next(&mut waits, &View { now, own: &own, peer: &peer }) {
                Wait::Sleep => break,
                next => assert_eq!(next, Wait::Watch),
            }
            now += us(1);
        }
        assert!(now <= BUDGET + us(20));
    }
}

#[test]
fn a_wait_is_extended_unless_others_want_the_core() {
    let mut spinner = Spinner::of(Kind::Ordinary);
    assert_eq!((0..100).filter(|_| spinner.extend()).count(), EXTENSIONS_MAX as usize);
    let mut spinner = Spinner::of(Kind::Ordinary);
    (0..YIELDS_TO_OTHERS_MAX).for_each(|_| spinner.yielded(SLICE));
    assert!(!spinner.extend());
    assert!(!Spinner::of(Kind::Crowded).extend());
}

#[test]
fn waits_in_vain_become_shorter_and_are_tried_again() {
    let mut waits = Waits::default();
    for _ in 0..5 {
        let mut spinner = Spinner::new(false, &mut waits);
        spinner.yielded(SLICE);
        waits.learn(&spinner, true);
    }
    let budgets: Vec<Duration> = (0..PROBE_EVERY).map(|_| waits.next_budget()).collect();
    assert_eq!(budgets.iter().filter(|budget| **budget == BUDGET).count(), 1);
    assert_eq!(budgets[0], BUDGET / 32);
    let spinner = Spinner { waited: us(20), ..Spinner::of(Kind::Ordinary) };
    waits.learn(&spinner, false);
    assert_eq!(waits.budget, us(40));
}
