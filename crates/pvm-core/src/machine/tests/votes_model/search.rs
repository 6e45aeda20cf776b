//! A search in all states that can be reached, the nearest first. A state is known by a hash of 64 bits: of ten million states, two
//! have the same one with a probability of three in a million.
use super::rules::{Model, State, Step};
use std::collections::{HashMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};

#[derive(Default)]
pub(super) struct Search {
    /// The step that has led to each state, and from which one.
    came: Vec<Option<(u32, Step)>>,
    /// Steps without a fault: the states before and after each.
    calm: Vec<(u32, u32)>,
    /// Whether a master can act in each state, and whether one must come to act.
    acts: Vec<bool>,
    promises: Vec<bool>,
    /// The first state that must not be.
    pub wrong: Option<u32>,
}

impl Search {
    /// Visits all states, or those before the first one that is wrong.
    pub fn run(model: &Model, is_wrong: impl Fn(&State) -> bool) -> Search {
        let mut search = Search { came: vec![None], ..Search::default() };
        let (mut open, mut known) = (VecDeque::from([model.first()]), HashMap::from([(hash(&model.first()), 0)]));
        while let Some(state) = open.pop_front().filter(|_| search.wrong.is_none()) {
            let at = search.acts.len() as u32;
            search.acts.push(state.acts());
            search.promises.push(state.promises_a_master(model));
            for (step, is_calm) in state.steps(model) {
                let next = state.after(model, step);
                let new = search.came.len() as u32;
                let place = *known.entry(hash(&next)).or_insert(new);
                search.calm.extend(is_calm.then_some((at, place)));
                if place == new {
                    search.wrong = search.wrong.or(is_wrong(&next).then_some(new));
                    search.came.push(Some((at, step)));
                    open.push_back(next);
                }
            }
        }
        search
    }

    pub fn states(&self) -> usize {
        self.came.len()
    }

    /// Returns the steps to a state.
    pub fn trace(&self, mut place: u32) -> Vec<Step> {
        let mut steps = Vec::new();
        while let Some((before, step)) = self.came[place as usize] {
            steps.push(step);
            place = before;
        }
        steps.reverse();
        steps
    }

    /// Returns how many states have no master that can act, and get none without a fault, and the first of them that must get one.
    pub fn without_master(&self) -> (usize, Option<u32>) {
        let mut before = vec![Vec::new(); self.states()];
        self.calm.iter().for_each(|(first, second)| before[*second as usize].push(*first));
        let mut reached = self.acts.clone();
        let mut open: Vec<usize> = (0..reached.len()).filter(|place| reached[*place]).collect();
        while let Some(place) = open.pop() {
            for one in before[place].iter().map(|one| *one as usize) {
                if !std::mem::replace(&mut reached[one], true) {
                    open.push(one);
                }
            }
        }
        let ends = (0..reached.len()).filter(|place| !reached[*place]);
        (ends.clone().count(), ends.clone().find(|place| self.promises[*place]).map(|place| place as u32))
    }
}

fn hash(state: &State) -> u64 {
    let mut hasher = DefaultHasher::new();
    state.hash(&mut hasher);
    hasher.finish()
}
