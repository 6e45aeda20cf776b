//! All orders in which a few hosts can lose each other: there are never two masters that decide, no answered change is lost, and a
//! master comes as long as a majority can have one. Who may act is decided by `machine/council.rs` itself; what leads to the
//! questions is a model. The fields of a
//! `Model` limit how many hosts die, and how many changes and deputies there are.
mod rules;
mod search;

use rules::{Hole, LOST, Mistake, Model, Step, TWO};
use search::Search;

/// Visits all states, in which nothing must be wrong.
fn check(model: &Model) {
    let search = Search::run(model, |state| state.violation.is_some());
    let states = search.states();
    if let Some(place) = search.wrong {
        panic!("a wrong state of {model:?}: {}", shown(&search.trace(place)));
    }
    // The hosts that say nothing could agree, as far as a master knows.
    let (ends, broken) = search.without_master();
    if let Some(place) = broken.filter(|_| model.mutes == 0) {
        panic!("no master comes in {model:?}: {}", shown(&search.trace(place)));
    }
    println!("{states} states, {ends} of them without a master that can act: {model:?}");
}

/// Returns the steps to the first state with that violation, which there must be.
fn find(model: &Model, violation: &str) -> Vec<Step> {
    let search = Search::run(model, |state| state.violation == Some(violation));
    let states = search.states();
    let place = search.wrong.unwrap_or_else(|| panic!("{states} states, and not {violation:?} in {model:?}"));
    let steps = search.trace(place);
    println!("{violation} in one of {states} states of {model:?}: {}", shown(&steps));
    steps
}

fn shown(steps: &[Step]) -> String {
    steps.iter().map(|step| format!("\n    {step:?}")).collect()
}

fn three() -> Model {
    Model { hosts: 3, mutes: 0, deaths: 1, changes: 2, deputies: 2, replaced: 0, moves: 0, mistake: None, hole: None }
}

#[test]
fn three_hosts_never_have_two_masters_that_decide() {
    check(&three());
}

#[test]
fn three_hosts_that_end_or_are_replaced_never_have_two_masters_that_decide() {
    check(&Model { deaths: 2, changes: 1, replaced: 1, ..three() });
}

#[test]
fn three_hosts_never_have_two_masters_that_decide_although_one_hands_over() {
    check(&Model { changes: 1, moves: 1, ..three() });
}

#[test]
fn four_hosts_never_have_two_masters_that_decide() {
    check(&Model { hosts: 4, deaths: 0, changes: 1, deputies: 1, ..three() });
}

#[test]
#[ignore = "13 million states: four minutes with optimization"]
fn hosts_never_have_two_masters_that_decide() {
    check(&Model { deaths: 2, deputies: 3, replaced: 1, moves: 2, ..three() });
    check(&Model { hosts: 4, changes: 1, ..three() });
    check(&Model { hosts: 4, deaths: 0, changes: 1, moves: 1, ..three() });
    let five = Model { hosts: 5, deaths: 0, changes: 1, deputies: 1, ..three() };
    check(&five);
    // The council has five members, until two hosts are lost.
    check(&Model { mutes: 12, ..five });
}

/// What the decision names as left (`docs/decisions/0061-council-after-silence-of-the-master.md`).
#[test]
fn two_masters_decide_if_one_of_two_ends_before_the_other_one_has_given_it_up() {
    for (hole, order) in [(Hole::DeposedDeputyFindsProof, 0), (Hole::FormerMasterFindsProof, 1)] {
        let model = Model { hole: Some(hole), changes: 1, ..three() };
        for violation in [LOST, TWO] {
            let steps = find(&model, violation);
            let died = steps.iter().position(|step| *step == Step::Dies(order)).expect("a death");
            assert!(steps[died..].iter().any(|step| matches!(step, Step::Proof { of, .. } if *of == order)));
        }
    }
}

#[test]
fn each_mistake_in_the_rules_is_found() {
    let mistakes = [
        (Mistake::AMinoritySuffices, TWO),
        (Mistake::TheMasterDoesNotAsk, TWO),
        (Mistake::OnlyTheNewestCouncilCounts, TWO),
        (Mistake::AHostAgreesAndStillSupports, TWO),
        (Mistake::AHostThatHasFollowedStillAgrees, TWO),
        (Mistake::TheLoserStillAnswers, TWO),
        (Mistake::AnswersBeforeTheDeputyKeeps, LOST),
    ];
    let nobody_ends = Model { deaths: 0, ..three() };
    for (mistake, violation) in mistakes {
        find(&Model { mistake: Some(mistake), ..nobody_ends }, violation);
    }
    find(&Model { mistake: Some(Mistake::LateAnswersCount), changes: 1, replaced: 2, ..nobody_ends }, TWO);
}
