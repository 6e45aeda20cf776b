//! Invariant: causal order in each pair of hosts. What has caused a message by a chain of messages and mailbox entries
//! between tasks of two hosts is received before it.
use super::Checks;
use pvm_core::tid::Tid;
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};

/// For each task, the number of its last send that is known.
type Clock = BTreeMap<Tid, u64>;

/// What a task knows of the sends of others, or a message carries.
#[derive(Default, Clone)]
struct Past {
    /// The sends of tasks of its host, by chains of messages within the host.
    local: Clock,
    /// For each other host: the sends of tasks of both hosts, by other chains between tasks of these hosts.
    shared: BTreeMap<Tid, Clock>,
}

impl Past {
    /// Returns what a message takes to these tasks. An entry of a mailbox is for anybody.
    fn for_tasks(&self, src: Tid, dsts: &[Tid]) -> Past {
        let is_for_all = dsts.is_empty() || dsts.iter().any(|dst| dst.host() == src.host());
        let is_carried = |host: &Tid| is_for_all || dsts.iter().any(|dst| dst.host() == *host);
        let shared = self.shared.iter().filter(|(host, _)| is_carried(host));
        Past { local: self.local.clone(), shared: shared.map(|(host, clock)| (*host, clock.clone())).collect() }
    }
}

/// Takes what one clock knows into another.
fn merge(into: &mut Clock, from: &Clock) {
    for (task, number) in from {
        let known = into.entry(*task).or_default();
        *known = (*known).max(*number);
    }
}

/// What a message carries.
struct Carried {
    src: Tid,
    number: u64,
    /// How often the master had moved when it was sent.
    moves: u64,
    past: Past,
}

/// What each task knows of the sends of others.
#[derive(Default)]
pub struct Order {
    /// How often each task has sent. A multicast is one send.
    sends: HashMap<Tid, u64>,
    pasts: HashMap<Tid, Past>,
    /// The numbers of the sends to each task that it has not received, by sender.
    outstanding: HashMap<Tid, BTreeMap<Tid, VecDeque<u64>>>,
    /// Hosts that have forgotten another host for good: its tasks may live, and nothing that they send arrives.
    forgotten: HashSet<(Tid, Tid)>,
    /// How often the master has moved.
    moves: u64,
    /// What was sent, by the number of the message.
    carried: HashMap<u64, Carried>,
}

impl Order {
    fn sent(&mut self, src: Tid, dsts: &[Tid], message: u64) {
        let number = self.sends.entry(src).or_default();
        *number += 1;
        let number = *number;
        let past = self.pasts.entry(src).or_default();
        past.local.insert(src, number);
        for dst in dsts.iter().filter(|dst| !self.forgotten.contains(&(dst.host(), src.host()))) {
            self.outstanding.entry(*dst).or_default().entry(src).or_default().push_back(number);
        }
        self.carried.insert(message, Carried { src, number, moves: self.moves, past: past.for_tasks(src, dsts) });
    }

    fn received(&mut self, dst: Tid, message: u64) -> Result<(), String> {
        let Some(Carried { src, number, past, .. }) = self.carried.get(&message) else { return Ok(()) };
        if let Some(numbers) = self.outstanding.get_mut(&dst).and_then(|senders| senders.get_mut(src)) {
            numbers.retain(|other| other != number);
        }
        let (src, past) = (*src, past.clone());
        self.learn(dst, src, &past)
    }

    /// Notes that a task receives something that another one has sent: the messages that the sender knew of must be there.
    fn learn(&mut self, dst: Tid, src: Tid, past: &Past) -> Result<(), String> {
        let is_local = src.host() == dst.host();
        let shared = past.shared.iter().filter(|(host, _)| is_local || **host == dst.host());
        for clock in shared.map(|(_, clock)| clock).chain([&past.local]) {
            for (sender, numbers) in self.outstanding.get(&dst).into_iter().flatten() {
                let first = numbers.front().copied().unwrap_or(u64::MAX);
                if clock.get(sender).is_some_and(|known| first <= *known) {
                    return Err(format!("{dst} gets something of {src} before send {first} of {sender}"));
                }
            }
        }
        self.note(dst, src, past);
        Ok(())
    }

    /// Notes that a task knows what another one knew.
    fn note(&mut self, dst: Tid, src: Tid, past: &Past) {
        let own = self.pasts.entry(dst).or_default();
        if src.host() == dst.host() {
            merge(&mut own.local, &past.local);
            past.shared.iter().for_each(|(host, clock)| merge(own.shared.entry(*host).or_default(), clock));
        } else {
            let shared = own.shared.entry(src.host()).or_default();
            merge(shared, &past.local);
            past.shared.get(&dst.host()).into_iter().for_each(|clock| merge(shared, clock));
        }
    }
}

impl Checks {
    /// Notes that a task has sent a message, with a number among all messages.
    pub fn ordered_send(&mut self, src: Tid, dsts: &[Tid], message: u64) {
        self.order.sent(src, dsts, message);
    }

    /// Notes that a task has received a message.
    pub fn ordered_receive(&mut self, dst: Tid, message: u64) {
        let result = self.order.received(dst, message);
        self.take("order", result, &[dst]);
    }

    /// Notes that a task has found a mailbox entry with that number among all messages. `keeper`: the host of the mailboxes.
    pub fn ordered_entry(&mut self, dst: Tid, entry: u64, keeper: Tid) {
        let Some(Carried { src, past, moves, .. }) = self.order.carried.get(&entry) else { return };
        let (src, past) = (*src, past.clone());
        // By way of a third host there is no order.
        if *moves != self.order.moves {
            return;
        }
        if src.host() == dst.host() || keeper == src.host() || keeper == dst.host() {
            self.order.note(dst, src, &past);
        }
    }

    /// Notes that the master, which keeps the mailboxes, has moved.
    pub fn keeper_moved(&mut self) {
        self.order.moves += 1;
    }

    /// Notes that a task has learnt of the end of another: all that this one knew is in its past.
    pub fn ordered_end(&mut self, dst: Tid, ended: Tid) {
        let Some(past) = self.order.pasts.get(&ended).cloned() else { return };
        let result = self.order.learn(dst, ended, &past);
        self.take("order", result, &[dst, ended]);
    }

    /// Notes that a host waits for the messages of another no more: they may be lost, or come late.
    pub fn order_forgets(&mut self, by: Tid, host: Tid) {
        for (_, senders) in self.order.outstanding.iter_mut().filter(|(dst, _)| dst.host() == by) {
            senders.retain(|src, _| src.host() != host);
        }
    }

    /// Notes that a host has forgotten another one, which is not in the machine any more.
    pub fn order_forgets_for_good(&mut self, by: Tid, host: Tid) {
        self.order_forgets(by, host);
        self.order.forgotten.insert((by, host));
    }

    /// Notes that a host has forgotten a task.
    pub fn order_forgets_task(&mut self, task: Tid) {
        self.order.outstanding.remove(&task);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Tid = Tid(0x40001);
    const B: Tid = Tid(0x80001);
    const C: Tid = Tid(0x80002);

    #[test]
    fn an_effect_before_its_cause_is_found() {
        for sends_locally in [false, true] {
            let mut order = Order::default();
            // The cause goes from another host, or stays on the host.
            let first = if sends_locally { C } else { A };
            order.sent(first, &[B], 1);
            order.sent(first, &[A, C], 2);
            order.received(C, 2).unwrap();
            order.sent(C, &[B], 3);
            assert!(order.received(B, 3).is_err());
            order.received(B, 1).unwrap();
        }
    }

    #[test]
    fn what_a_task_of_a_removed_host_sends_is_not_awaited() {
        let mut order = Order::default();
        order.sent(A, &[B], 1);
        order.forgotten.insert((B.host(), A.host()));
        order.sent(A, &[B], 2);
        order.received(B, 1).unwrap();
        let past = order.pasts[&A].clone();
        order.learn(B, A, &past).unwrap();
    }

    #[test]
    fn what_is_not_caused_may_come_in_any_order() {
        let mut order = Order::default();
        order.sent(A, &[B], 1);
        order.sent(C, &[B], 2);
        order.received(B, 2).unwrap();
        order.received(B, 1).unwrap();
    }
}
