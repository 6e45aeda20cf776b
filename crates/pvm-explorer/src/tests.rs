//! Explorers on models of what they choose among.
use super::*;
use std::collections::VecDeque;

static RULES: Rules = Rules::USUAL;
static CAREFUL: Rules = Rules { trials_min: 8, trials_max: 8, ..Rules::USUAL };

/// The costs of the arms.
type Model = [f32; 3];

const MODELS: [Model; 4] = [[1.0, 1.2, 1.5], [4.0, 1.0, 2.0], [1.1, 5.0, 1.0], [20.0, 1.0, 9.0]];

/// A small generator of numbers below 1, always the same ones.
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> f32 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 40) as f32 / (1 << 24) as f32
    }

    /// Returns a cost that is up to a tenth higher, and one time in 20 interrupted.
    fn disturb(&mut self, cost: f32) -> f32 {
        let cost = cost * (1.0 + self.next() / 10.0);
        if self.next() < 0.05 { 4.0 * cost } else { cost }
    }
}

/// Pulls arms, and measures costs. Returns how many times as much as the best arm it has cost without the noise.
fn pulled(explorer: &mut Explorer<3>, model: Model, run: u16, count: u32, mut measure: impl FnMut(f32) -> f32) -> f32 {
    let mut total = 0.0;
    for _ in 0..count {
        let (arm, is_measured) = explorer.choose(3, run, 4);
        total += model[arm];
        if is_measured {
            explorer.record(arm, measure(model[arm]));
        }
    }
    total / (count as f32 * model.iter().copied().fold(f32::INFINITY, f32::min))
}

/// Wishes for arms; what is pulled was wished for `lag` pulls before. Returns what [`pulled`] returns.
fn wished(explorer: &mut Explorer<3>, model: Model, noise: &mut Noise, lag: usize, count: u32) -> f32 {
    let (mut under_way, mut total) = (VecDeque::from(vec![explorer.best(3); lag]), 0.0);
    for _ in 0..count {
        under_way.push_back(explorer.next(3));
        let arm = under_way.pop_front().unwrap();
        total += model[arm];
        explorer.observe(3, arm, noise.disturb(model[arm]));
    }
    total / (count as f32 * model.iter().copied().fold(f32::INFINITY, f32::min))
}

#[test]
fn trials_cost_at_most_what_the_rules_say_while_nothing_changes() {
    for model in MODELS {
        for run in [1, 2, 4] {
            let mut explorer: Explorer<3> = Explorer::new(&RULES);
            pulled(&mut explorer, model, run, 2000, |cost| cost);
            let cost = pulled(&mut explorer, model, run, 100_000, |cost| cost);
            // The two other arms; costs of more than 15 times the best one are tried no more rarely.
            assert!(
                cost <= 1.0 + 2.0 / RULES.loss_divisor + 0.005 && cost > 1.0,
                "{model:?}, {run} pulls a trial: {cost}"
            );
        }
    }
}

#[test]
fn the_best_arm_is_found_in_spite_of_noise_and_interruptions() {
    for (model, run) in MODELS.into_iter().flat_map(|model| [(model, 1), (model, 4)]) {
        let mean = (1..=20).map(|seed| {
            let (mut explorer, mut noise) = (Explorer::new(&RULES), Noise(seed));
            pulled(&mut explorer, model, run, 500, |cost| noise.disturb(cost));
            pulled(&mut explorer, model, run, 20_000, |cost| noise.disturb(cost)) / 20.0
        });
        let mean: f32 = mean.sum();
        assert!(mean <= 1.02, "{model:?}, {run} pulls a trial: {mean}");
    }
}

#[test]
fn a_change_of_the_costs_is_noticed() {
    for seed in 1..=20 {
        let (mut explorer, mut noise) = (Explorer::new(&RULES), Noise(seed));
        for model in MODELS.into_iter().cycle().take(9) {
            pulled(&mut explorer, model, 1, PAUSE_MAX + 100, |cost| noise.disturb(cost));
            let cost = pulled(&mut explorer, model, 1, 10_000, |cost| noise.disturb(cost));
            assert!(cost <= 1.03, "{model:?}, seed {seed}: {cost}");
        }
    }
}

#[test]
fn wishes_that_lag_lead_to_the_best_arm_too() {
    for (lag, seed) in (1..=10).flat_map(|seed| [(0, seed), (1, seed), (64, seed)]) {
        let (mut explorer, mut noise) = (Explorer::new(&CAREFUL), Noise(seed));
        for model in &MODELS[..3] {
            wished(&mut explorer, *model, &mut noise, lag, PAUSE_MAX + 1000);
            let cost = wished(&mut explorer, *model, &mut noise, lag, 20_000);
            assert!(cost <= 1.04, "{model:?}, {lag} under way, seed {seed}: {cost}");
        }
    }
}

#[test]
fn an_arm_that_is_not_possible_is_not_chosen() {
    let (mut explorer, mut noise) = (Explorer::new(&RULES), Noise(1));
    let model = MODELS[2];
    pulled(&mut explorer, model, 1, 1000, |cost| noise.disturb(cost));
    assert_eq!((explorer.best(3), explorer.best(2)), (2, 0));
    let tried = (0..20_000).filter(|_| {
        let arm = explorer.next(2);
        assert!(arm < 2);
        explorer.observe(2, arm, model[arm]);
        arm == 1
    });
    assert!((1..50).contains(&tried.count()));
    assert_eq!(explorer.next(3), 2, "it is possible again");
}

#[test]
fn an_arm_that_is_not_possible_is_not_chosen_though_it_seems_the_cheapest() {
    for run in [1, 4] {
        let mut explorer: Explorer<3> = Explorer::new(&RULES);
        let (mut pulls, mut of_best) = (0, 0);
        for (model, best) in [([1.0, 2.0], 0), ([3.0, 2.0], 1), ([3.0, 9.0], 0)] {
            for number in 0..20_000 {
                let (arm, is_measured) = explorer.choose(2, run, 4);
                assert!(arm < 2);
                if is_measured {
                    explorer.record(arm, model[arm]);
                    explorer.assume(2, 0.5);
                }
                pulls += u32::from(number >= 10_000);
                of_best += u32::from(number >= 10_000 && arm == best);
            }
        }
        assert!(of_best * 100 >= pulls * 97, "{of_best} of {pulls}");
        assert_eq!(explorer.best(3), 2);
    }
}

#[test]
fn an_interruption_changes_nothing_and_three_in_a_row_are_checked_at_once() {
    let mut explorer: Explorer<2> = Explorer::new(&CAREFUL);
    while explorer.pulls < 100 {
        let arm = explorer.next(2);
        explorer.observe(2, arm, [1.0, 2.0][arm]);
    }
    for _ in 0..2 {
        explorer.observe(2, 0, 10.0);
        assert!(explorer.is_doubted(0) && explorer.best(2) == 0 && explorer.cost(0) == 1.0);
    }
    explorer.observe(2, 0, 12.0);
    assert_eq!((explorer.best(2), explorer.cost(0), explorer.next(2)), (1, 10.0, 0));
    explorer.observe(2, 0, 1.0);
    assert_eq!((explorer.best(2), explorer.cost(0), explorer.next(2)), (0, 1.0, 0));
}

#[test]
fn what_was_never_measured_is_seldom_tried() {
    let mut explorer: Explorer<3> = Explorer::new(&RULES);
    let others = (0..10_000).filter(|_| explorer.choose(3, 4, 4).0 != 0).count();
    assert!(others <= 100, "{others}");
}

#[test]
fn a_similar_class_does_not_try_at_once_what_costs_much_more() {
    let (mut explorer, mut noise) = (Explorer::new(&RULES), Noise(1));
    assert!(!explorer.is_settled(3) && explorer.is_new());
    pulled(&mut explorer, MODELS[3], 1, 100, |cost| noise.disturb(cost));
    assert!(explorer.is_settled(3) && !explorer.is_new());
    let mut similar = explorer.similar();
    assert_eq!(pulled(&mut similar, MODELS[3], 1, 100, |cost| noise.disturb(cost)), 1.0);
}

#[test]
fn an_assumed_cost_saves_the_first_trial() {
    let mut explorer: Explorer<2> = Explorer::new(&RULES);
    let (first, _) = explorer.choose(2, 1, 1);
    explorer.record(first, 1.0);
    explorer.assume(1, 3.0);
    assert!((0..500).all(|_| explorer.choose(2, 1, 1).0 == first));
    assert!((0..200).any(|_| explorer.choose(2, 1, 1).0 == 1));
}
