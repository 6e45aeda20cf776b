//! A graph of needs: each node that waits goes on as soon as enough of certain others do.
//!
//! A node that waits for one of several needs one of them, and is stuck only if all of them are. A node that waits for all of
//! several needs each of them. In a graph with both, deadlocks are not cycles but **knots**: sets of nodes that nobody outside
//! can free.
use std::collections::BTreeSet;

/// What a node needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Need {
    /// Nothing: it goes on.
    Nothing,
    /// That this many of these nodes go on.
    Some { count: usize, of: Vec<usize> },
}

/// Returns the nodes that can never go on: the largest set in which no node can be freed by nodes outside it.
pub(super) fn stuck(needs: &[Need]) -> BTreeSet<usize> {
    // For each node that waits, how many more must go on; and for each node, who counts on it.
    let mut missing = vec![0; needs.len()];
    let mut counts_on: Vec<Vec<usize>> = vec![Vec::new(); needs.len()];
    let mut free = Vec::new();
    for (node, need) in needs.iter().enumerate() {
        match need {
            Need::Some { count, of } if *count > 0 => {
                missing[node] = *count;
                of.iter().for_each(|other| counts_on[*other].push(node));
            }
            _ => free.push(node),
        }
    }
    let mut is_free = vec![false; needs.len()];
    while let Some(node) = free.pop() {
        if std::mem::replace(&mut is_free[node], true) {
            continue;
        }
        for waiter in &counts_on[node] {
            missing[*waiter] = missing[*waiter].saturating_sub(1);
            if missing[*waiter] == 0 {
                free.push(*waiter);
            }
        }
    }
    (0..needs.len()).filter(|node| !is_free[*node]).collect()
}

/// Returns the causes among the stuck nodes: the sets of nodes that hold each other up and wait for no others, or single nodes
/// that wait for nobody who is there. Each other stuck node waits for one of them.
pub(super) fn causes(needs: &[Need], stuck: &BTreeSet<usize>) -> Vec<Vec<usize>> {
    let components = components(needs, stuck);
    let mut of = vec![usize::MAX; needs.len()];
    for (number, component) in components.iter().enumerate() {
        component.iter().for_each(|node| of[*node] = number);
    }
    let is_last = |component: &Vec<usize>| {
        component.iter().all(|node| successors(needs, stuck, *node).all(|next| of[next] == of[*node]))
    };
    let mut causes: Vec<Vec<usize>> = components.iter().filter(|component| is_last(component)).cloned().collect();
    causes.iter_mut().for_each(|cause| in_order(needs, stuck, cause));
    causes.sort_by_key(|cause| cause.iter().min().copied());
    causes
}

/// Returns the stuck nodes on which a stuck node counts.
fn successors<'a>(needs: &'a [Need], stuck: &'a BTreeSet<usize>, node: usize) -> impl Iterator<Item = usize> + 'a {
    let of: &[usize] = match &needs[node] {
        Need::Nothing => &[],
        Need::Some { of, .. } => of,
    };
    of.iter().copied().filter(|other| stuck.contains(other))
}

/// Orders the members of a cause: if each waits for one other, along the cycle from the lowest one on.
fn in_order(needs: &[Need], stuck: &BTreeSet<usize>, cause: &mut Vec<usize>) {
    cause.sort_unstable();
    let (mut cycle, mut seen) = (Vec::new(), BTreeSet::new());
    let mut node = cause[0];
    while seen.insert(node) {
        cycle.push(node);
        let mut next = successors(needs, stuck, node);
        match (next.next(), next.next()) {
            (Some(only), None) => node = only,
            _ => break,
        }
    }
    if cycle.len() == cause.len() {
        *cause = cycle;
    }
}

/// Returns the strongly connected components of the stuck nodes (Tarjan's algorithm, without recursion).
fn components(needs: &[Need], stuck: &BTreeSet<usize>) -> Vec<Vec<usize>> {
    const UNSEEN: usize = usize::MAX;
    let (mut index, mut low) = (vec![UNSEEN; needs.len()], vec![0; needs.len()]);
    let (mut stack, mut is_on_stack, mut components) = (Vec::new(), vec![false; needs.len()], Vec::new());
    let mut next_index = 0;
    for root in stuck {
        if index[*root] != UNSEEN {
            continue;
        }
        let mut work: Vec<(usize, Vec<usize>)> = Vec::new();
        let mut enter = Some(*root);
        loop {
            if let Some(node) = enter.take() {
                (index[node], low[node]) = (next_index, next_index);
                next_index += 1;
                stack.push(node);
                is_on_stack[node] = true;
                work.push((node, successors(needs, stuck, node).collect()));
            }
            let Some((node, left)) = work.last_mut() else { break };
            let node = *node;
            match left.pop() {
                Some(next) if index[next] == UNSEEN => enter = Some(next),
                Some(next) if is_on_stack[next] => low[node] = low[node].min(index[next]),
                Some(_) => {}
                None => {
                    work.pop();
                    if let Some((parent, _)) = work.last() {
                        low[*parent] = low[*parent].min(low[node]);
                    }
                    if low[node] == index[node] {
                        let from = stack.iter().rposition(|other| *other == node).expect("it was pushed");
                        let component = stack.split_off(from);
                        component.iter().for_each(|member| is_on_stack[*member] = false);
                        components.push(component);
                    }
                }
            }
        }
    }
    components
}
