//! Small graphs whose deadlocks are known, and random ones, compared with a simple reference.
use super::graph::{Need, causes, stuck};
use crate::prng::Prng;
use std::collections::BTreeSet;

fn one_of(of: &[usize]) -> Need {
    Need::Some { count: 1, of: of.to_vec() }
}

fn all_of(of: &[usize]) -> Need {
    Need::Some { count: of.len(), of: of.to_vec() }
}

fn found(needs: &[Need]) -> (Vec<usize>, Vec<Vec<usize>>) {
    let stuck = stuck(needs);
    let causes = causes(needs, &stuck);
    (stuck.into_iter().collect(), causes)
}

#[test]
fn a_cycle_is_stuck_and_so_is_who_waits_for_it() {
    let needs = [one_of(&[2]), one_of(&[0]), one_of(&[1]), one_of(&[1]), Need::Nothing, one_of(&[4])];
    assert_eq!(found(&needs), (vec![0, 1, 2, 3], vec![vec![0, 2, 1]]));
}

#[test]
fn one_that_waits_for_any_is_stuck_only_if_all_are() {
    let waits = [one_of(&[1, 2]), one_of(&[0]), Need::Nothing];
    assert_eq!(found(&waits), (vec![], vec![]));
    let knot = [one_of(&[1, 2]), one_of(&[0]), one_of(&[0])];
    assert_eq!(found(&knot), (vec![0, 1, 2], vec![vec![0, 1, 2]]));
}

#[test]
fn one_that_waits_for_all_is_stuck_if_one_is() {
    let needs = [all_of(&[1, 2]), Need::Nothing, one_of(&[]), Need::Some { count: 1, of: vec![1, 2] }];
    assert_eq!(found(&needs), (vec![0, 2], vec![vec![2]]));
}

#[test]
fn one_that_waits_for_itself_is_a_cycle() {
    assert_eq!(found(&[one_of(&[0]), Need::Nothing]), (vec![0], vec![vec![0]]));
}

#[test]
fn a_long_chain_needs_no_deep_stack() {
    let count = 100_000;
    let mut needs: Vec<Need> = (0..count).map(|node| one_of(&[node + 1])).collect();
    needs.push(one_of(&[0]));
    let (stuck, causes) = found(&needs);
    assert_eq!((stuck.len(), causes.len(), causes[0].len()), (count + 1, 1, count + 1));
}

fn random(prng: &mut Prng) -> Vec<Need> {
    let nodes = 1 + prng.below(9) as usize;
    let mut need = || match prng.below(5) {
        0 => Need::Nothing,
        _ => {
            let of: Vec<usize> = (0..nodes).filter(|_| prng.below(3) == 0).collect();
            Need::Some { count: 1 + prng.below(of.len().max(1) as u64) as usize, of }
        }
    };
    (0..nodes).map(|_| need()).collect()
}

/// Returns the stuck nodes in the simplest way: lets nodes go on until none can.
fn stuck_simply(needs: &[Need]) -> BTreeSet<usize> {
    let mut left: BTreeSet<usize> = (0..needs.len()).collect();
    let goes_on = |node: usize, left: &BTreeSet<usize>| match &needs[node] {
        Need::Nothing => true,
        Need::Some { count, of } => of.iter().filter(|other| !left.contains(other)).count() >= *count,
    };
    while let Some(next) = left.iter().copied().find(|node| goes_on(*node, &left)) {
        left.remove(&next);
    }
    left
}

/// Returns whom a node reaches among the stuck ones.
fn reach(needs: &[Need], stuck: &BTreeSet<usize>, from: usize) -> BTreeSet<usize> {
    let mut reached = BTreeSet::new();
    let mut work = vec![from];
    while let Some(node) = work.pop() {
        if let Need::Some { of, .. } = &needs[node] {
            work.extend(of.iter().filter(|other| stuck.contains(other) && reached.insert(**other)));
        }
    }
    reached
}

#[test]
fn random_graphs_agree_with_the_reference() {
    let mut prng = Prng(11);
    let mut cycles = 0;
    for _ in 0..20_000 {
        let needs = random(&mut prng);
        let stuck = stuck(&needs);
        assert_eq!(stuck, stuck_simply(&needs), "{needs:?}");
        let causes = causes(&needs, &stuck);
        let reach = |node: usize| reach(&needs, &stuck, node);
        // A node is in a cause if all whom it reaches reach it.
        let is_cause = |node: &usize| reach(*node).iter().all(|other| reach(*other).contains(node));
        let expected: BTreeSet<usize> = stuck.iter().copied().filter(is_cause).collect();
        let in_causes: Vec<usize> = causes.iter().flatten().copied().collect();
        assert_eq!(in_causes.iter().copied().collect::<BTreeSet<_>>(), expected, "{needs:?}");
        assert_eq!(in_causes.len(), expected.len(), "each is in one cause: {needs:?}");
        for cause in &causes {
            assert!(cause.len() == 1 || cause.iter().all(|one| cause.iter().all(|other| reach(*one).contains(other))));
            cycles += usize::from(cause.len() > 1);
        }
        assert!(
            stuck
                .iter()
                .all(|node| expected.contains(node) || reach(*node).iter().any(|other| expected.contains(other)))
        );
    }
    assert!(cycles > 1000, "{cycles}");
}
