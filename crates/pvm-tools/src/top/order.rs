//! In which order tasks are shown.
use crate::cli::Sort;
use crate::stat::{Rates, TaskRow};
use clap::ValueEnum;
use pvm_core::tid::Tid;
use std::collections::BTreeMap;

/// Returns what follows in the list of what tasks can be sorted by, or what is before.
pub fn step(sort: Sort, forward: bool) -> Sort {
    let all = Sort::value_variants();
    let place = all.iter().position(|other| *other == sort).unwrap_or(0);
    let step = if forward { 1 } else { all.len() - 1 };
    all[(place + step) % all.len()]
}

/// Returns the word of the option `--sort`.
pub fn name(sort: Sort) -> String {
    sort.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
}

/// Returns the number by which a task is sorted.
fn number(sort: Sort, task: &TaskRow) -> f64 {
    let rate = |get: fn(&Rates) -> f64| task.rates.as_ref().map_or(-1.0, get);
    match sort {
        Sort::Task => 0.0,
        Sort::Cpu => rate(|rates| rates.cpu),
        Sort::Wait => rate(|rates| rates.waiting),
        Sort::Memory => task.process.as_ref().map_or(-1.0, |process| process.memory_bytes as f64),
        Sort::Unread => f64::from(task.unread),
        Sort::Sent => rate(|rates| rates.sent[0]),
        Sort::Received => rate(|rates| rates.received[0]),
    }
}

/// Returns the places of the tasks in the order in which they are shown, each with its depth in the tree.
pub fn rows(tasks: &[TaskRow], sort: Sort, is_tree: bool) -> impl Iterator<Item = (usize, usize)> {
    let mut places: Vec<usize> = (0..tasks.len()).collect();
    // Tasks with equal numbers stay in the order of their tids.
    places.sort_by(|one, other| number(sort, &tasks[*other]).total_cmp(&number(sort, &tasks[*one])));
    let rows = if is_tree { tree(tasks, &places) } else { places.into_iter().map(|place| (place, 0)).collect() };
    rows.into_iter()
}

/// Puts each task behind its parent; brothers stay in the given order.
fn tree(tasks: &[TaskRow], places: &[usize]) -> Vec<(usize, usize)> {
    let known: BTreeMap<Tid, usize> = tasks.iter().enumerate().map(|(place, task)| (task.info.tid, place)).collect();
    let parent = |place: usize| known.get(&Tid(tasks[place].info.parent as u32)).copied();
    let mut children: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for place in places {
        if let Some(parent) = parent(*place) {
            children.entry(parent).or_default().push(*place);
        }
    }
    let roots = places.iter().filter(|place| parent(**place).is_none());
    let (mut rows, mut is_shown) = (Vec::with_capacity(places.len()), vec![false; tasks.len()]);
    // A tid that was given again can make a task its own ancestor: such tasks come last.
    for first in roots.chain(places) {
        let mut open = vec![(*first, 0)];
        while let Some((place, depth)) = open.pop() {
            if !std::mem::replace(&mut is_shown[place], true) {
                rows.push((place, depth));
                let own = children.get(&place).into_iter().flatten();
                open.extend(own.rev().map(|child| (*child, depth + 1)));
            }
        }
    }
    rows
}
