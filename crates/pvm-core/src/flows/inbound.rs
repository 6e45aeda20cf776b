//! The receiving daemon: reassembly of messages from their chunks, and return of credit.
use super::multicast::Fetches;
use super::{Arrivals, Chunk, FLOW_QUANTUM_BYTES, FLOW_WINDOW_BYTES, MessageHeader, ProtocolViolation, cost};
use crate::tid::Tid;
use std::collections::{BTreeMap, HashMap, VecDeque};

/// Credit to be sent to a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Credit {
    /// The host.
    pub host: Tid,
    /// The receiving task of the flow.
    pub dst: Tid,
    /// The number of bytes.
    pub bytes: u64,
}

struct Reassembly<B> {
    header: MessageHeader,
    block: B,
    at: usize,
}

/// A message that was delivered to a task, but not yet consumed by the task.
struct Delivered {
    /// The sending host, or [`Tid::NONE`] if that host is gone.
    from: Tid,
    cost: u64,
    /// The read position that the task reaches by consuming the message.
    mark: u64,
}

/// The messages that were delivered to a task, but not yet consumed by the task, in order.
#[derive(Default)]
struct Unconsumed {
    messages: VecDeque<Delivered>,
    cost: u64,
}

/// The flows from tasks of other hosts. `B` is the type of the memory for a body.
pub struct InboundFlows<B> {
    arriving: HashMap<(Tid, u32), Reassembly<B>>,
    delivered: HashMap<Tid, Unconsumed>,
    /// The credit that has not been sent yet, by receiving task and sending host.
    unsent_credit: BTreeMap<(Tid, Tid), u64>,
    /// The cost of the messages that have begun to arrive and whose credit has not been returned yet, by sending host
    /// and receiving task.
    begun: BTreeMap<(Tid, Tid), u64>,
    credits: VecDeque<Credit>,
    /// The bodies of announced messages that this host fetches.
    pub fetches: Fetches<B>,
    /// The order of what arrives.
    pub arrivals: Arrivals,
}

impl<B> Default for InboundFlows<B> {
    fn default() -> Self {
        let (arriving, delivered) = (HashMap::new(), HashMap::new());
        InboundFlows {
            arriving,
            delivered,
            unsent_credit: BTreeMap::new(),
            begun: BTreeMap::new(),
            credits: VecDeque::new(),
            fetches: Fetches::default(),
            arrivals: Arrivals::default(),
        }
    }
}

impl<B> InboundFlows<B> {
    /// Makes an empty set of flows.
    pub fn new() -> InboundFlows<B> {
        InboundFlows::default()
    }

    // ----- messages

    /// Admits a message that a host begins to send. A message that exceeds the window of its flow is a violation,
    /// because such messages could fill this host's memory.
    pub fn admit(&mut self, from: Tid, header: &MessageHeader) -> Result<(), ProtocolViolation> {
        let cost = cost(header.bytes);
        for dst in header.receivers() {
            let begun = self.begun.entry((from, dst)).or_default();
            if *begun > FLOW_QUANTUM_BYTES && *begun + cost > FLOW_WINDOW_BYTES {
                return Err(ProtocolViolation);
            }
            *begun += cost;
        }
        self.arrivals.begin(from, header);
        Ok(())
    }

    /// Begins the reassembly of a message. The caller has already stored the first `received` bytes of the body.
    pub fn begin(
        &mut self,
        from: Tid,
        transfer: u32,
        header: MessageHeader,
        block: B,
        received: usize,
    ) -> Result<(), ProtocolViolation> {
        if received >= header.bytes || self.arriving.contains_key(&(from, transfer)) {
            return Err(ProtocolViolation);
        }
        self.arriving.insert((from, transfer), Reassembly { header, block, at: received });
        Ok(())
    }

    /// Returns the place for the next chunk of a message. The chunk has `bytes` bytes.
    pub fn chunk_place(&self, from: Tid, transfer: u32, bytes: usize) -> Result<Chunk<'_, B>, ProtocolViolation> {
        let arriving = self.arriving.get(&(from, transfer)).ok_or(ProtocolViolation)?;
        if bytes == 0 || bytes > arriving.header.bytes - arriving.at {
            return Err(ProtocolViolation);
        }
        Ok(Chunk { block: &arriving.block, at: arriving.at })
    }

    /// Records that `bytes` bytes of the next chunk are in their place. Returns the message if it is complete now.
    pub fn chunk_placed(&mut self, from: Tid, transfer: u32, bytes: usize) -> Option<(MessageHeader, B)> {
        let arriving = self.arriving.get_mut(&(from, transfer))?;
        arriving.at += bytes;
        if arriving.at < arriving.header.bytes {
            return None;
        }
        let Reassembly { header, block, .. } = self.arriving.remove(&(from, transfer))?;
        Some((header, block))
    }

    /// Drops the incomplete messages and the credit of a host that has gone. Returns the tasks that have gaps for them.
    pub fn host_gone(&mut self, host: Tid) -> Vec<Tid> {
        self.arriving.retain(|(from, _), _| *from != host);
        self.fetches.host_gone(host);
        self.unsent_credit.retain(|(_, to), _| *to != host);
        self.begun.retain(|(from, _), _| *from != host);
        self.credits.retain(|credit| credit.host != host);
        // Delivered messages stay listed: their memory is free only when the tasks have consumed them.
        let delivered = self.delivered.values_mut().flat_map(|waiting| waiting.messages.iter_mut());
        delivered.filter(|delivered| delivered.from == host).for_each(|delivered| delivered.from = Tid::NONE);
        self.arrivals.host_gone(host)
    }

    /// Returns the number of incomplete messages.
    pub fn arriving(&self) -> usize {
        self.arriving.len() + self.fetches.count()
    }

    // ----- credit

    /// Records that a message from the host `from` was delivered to a task. The task has consumed the message when its
    /// read position reaches `mark`. The mark grows from call to call.
    pub fn delivered(&mut self, dst: Tid, from: Tid, bytes: usize, mark: u64) {
        let waiting = self.delivered.entry(dst).or_default();
        waiting.cost += cost(bytes);
        waiting.messages.push_back(Delivered { from, cost: cost(bytes), mark });
        self.arrivals.done(from, dst);
    }

    /// Returns the credit of a message to the sending host at once, because the receiver does not exist.
    pub fn dropped(&mut self, dst: Tid, from: Tid, bytes: usize) {
        self.arrivals.dropped(from, dst);
        self.add_credit(from, dst, cost(bytes));
        self.issue_credit(from, dst);
    }

    /// Records the read position of a task. Returns how many messages the task has consumed since the last call.
    pub fn consumed_to(&mut self, dst: Tid, mark: u64) -> usize {
        let mut count = 0;
        while let Some(waiting) = self.delivered.get_mut(&dst) {
            if waiting.messages.front().is_none_or(|delivered| delivered.mark > mark) {
                break;
            }
            let Some(Delivered { from, cost, .. }) = waiting.messages.pop_front() else { break };
            waiting.cost -= cost;
            if waiting.messages.is_empty() {
                self.delivered.remove(&dst);
            }
            self.add_credit(from, dst, cost);
            count += 1;
        }
        count
    }

    /// Returns the read position at which the task should wake the daemon, or `None` while the unconsumed messages
    /// are too few to block a sender.
    pub fn wakeup_mark(&self, dst: Tid) -> Option<u64> {
        let waiting = self.delivered.get(&dst).filter(|waiting| waiting.cost >= FLOW_QUANTUM_BYTES / 2)?;
        let mut total = 0;
        waiting.messages.iter().find_map(|delivered| {
            total += delivered.cost;
            (total >= FLOW_QUANTUM_BYTES / 2).then_some(delivered.mark)
        })
    }

    /// Returns the tasks with unconsumed messages.
    pub fn holders(&self) -> impl Iterator<Item = Tid> + '_ {
        self.delivered.keys().copied()
    }

    /// Handles the end of a task: returns the credit of all its messages to the sending hosts.
    pub fn task_gone(&mut self, dst: Tid) {
        self.arrivals.task_gone(dst);
        let delivered = self.delivered.remove(&dst).unwrap_or_default();
        for Delivered { from, cost, .. } in delivered.messages {
            self.add_credit(from, dst, cost);
        }
        let unsent_credit = self.unsent_credit.range((dst, Tid(0))..=(dst, Tid(u32::MAX)));
        let hosts: Vec<Tid> = unsent_credit.map(|((_, host), _)| *host).collect();
        hosts.into_iter().for_each(|host| self.issue_credit(host, dst));
    }

    fn add_credit(&mut self, from: Tid, dst: Tid, cost: u64) {
        if from == Tid::NONE {
            return;
        }
        let unsent_credit = self.unsent_credit.entry((dst, from)).or_default();
        *unsent_credit += cost;
        // Send the credit as soon as it reaches half of the quantum. Up to half of the quantum more may be due for
        // messages that the task has consumed without waking the daemon.
        if *unsent_credit >= FLOW_QUANTUM_BYTES / 2 {
            self.issue_credit(from, dst);
        }
    }

    fn issue_credit(&mut self, host: Tid, dst: Tid) {
        if let Some(bytes) = self.unsent_credit.remove(&(dst, host)) {
            if let Some(begun) = self.begun.get_mut(&(host, dst)) {
                *begun = begun.saturating_sub(bytes);
                if *begun == 0 {
                    self.begun.remove(&(host, dst));
                }
            }
            self.credits.push_back(Credit { host, dst, bytes });
        }
    }

    /// Returns the next credit to send.
    pub fn poll_credit(&mut self) -> Option<Credit> {
        self.credits.pop_front()
    }
}
