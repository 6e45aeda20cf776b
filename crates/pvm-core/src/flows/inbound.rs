//! The receiving daemon: messages put together from their chunks, and credit returned.
use super::{FLOW_QUANTUM_BYTES, FLOW_WINDOW_BYTES, Meta, cost};
use crate::tid::Tid;
use std::collections::{BTreeMap, HashMap, VecDeque};

/// A message between hosts, without its body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MessageHeader {
    /// Who sent it.
    pub src: Tid,
    /// Who gets it.
    pub dst: Tid,
    /// Who gets it too, on the same host.
    pub others: Vec<Tid>,
    /// The words that travel with it.
    pub meta: Meta,
    /// Bytes of its body.
    pub bytes: usize,
}

impl MessageHeader {
    /// All who get it.
    pub fn receivers(&self) -> impl Iterator<Item = Tid> + '_ {
        std::iter::once(self.dst).chain(self.others.iter().copied())
    }
}

/// The other daemon does not keep to the rules; nothing more of it can be believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProtocolViolation;

/// Credit to be sent to a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Credit {
    /// The host.
    pub host: Tid,
    /// The task of which it tells.
    pub dst: Tid,
    /// How much.
    pub bytes: u64,
}

/// Where a chunk belongs.
pub struct Chunk<'a, B> {
    /// The memory for the body.
    pub block: &'a B,
    /// Where in it.
    pub at: usize,
}

struct Reassembly<B> {
    header: MessageHeader,
    block: B,
    at: usize,
}

/// A message that a task was given and has not taken yet.
struct Delivered {
    /// Nobody when the host is gone.
    from: Tid,
    cost: u64,
    /// How far the task must have come to have taken it.
    mark: u64,
}

/// What a task was given and has not taken, in order.
#[derive(Default)]
struct Unconsumed {
    messages: VecDeque<Delivered>,
    cost: u64,
}

/// What arrives from other hosts. `B` is memory for a body.
pub struct InboundFlows<B> {
    arriving: HashMap<(Tid, u32), Reassembly<B>>,
    delivered: HashMap<Tid, Unconsumed>,
    /// By task: what each host is unsent_credit for it.
    unsent_credit: BTreeMap<(Tid, Tid), u64>,
    /// What each host has begun to send to each task and has not been given credit for.
    begun: BTreeMap<(Tid, Tid), u64>,
    credits: VecDeque<Credit>,
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
        }
    }
}

impl<B> InboundFlows<B> {
    /// Nothing has come yet.
    pub fn new() -> InboundFlows<B> {
        InboundFlows::default()
    }

    // ----- messages

    /// A host begins to send a message. Its flows may hold no more than their windows: one that does not
    /// keep to that could fill this host's memory.
    pub fn admit(&mut self, from: Tid, header: &MessageHeader) -> Result<(), ProtocolViolation> {
        let cost = cost(header.bytes);
        for dst in header.receivers() {
            let begun = self.begun.entry((from, dst)).or_default();
            if *begun > FLOW_QUANTUM_BYTES && *begun + cost > FLOW_WINDOW_BYTES {
                return Err(ProtocolViolation);
            }
            *begun += cost;
        }
        Ok(())
    }

    /// A message has begun of which more chunks will come; `there` bytes of it are in its memory.
    pub fn begin(
        &mut self,
        from: Tid,
        transfer: u32,
        header: MessageHeader,
        block: B,
        there: usize,
    ) -> Result<(), ProtocolViolation> {
        if there >= header.bytes || self.arriving.contains_key(&(from, transfer)) {
            return Err(ProtocolViolation);
        }
        self.arriving.insert((from, transfer), Reassembly { header, block, at: there });
        Ok(())
    }

    /// A chunk of so many bytes comes: where it belongs.
    pub fn chunk_place(&self, from: Tid, transfer: u32, bytes: usize) -> Result<Chunk<'_, B>, ProtocolViolation> {
        let arriving = self.arriving.get(&(from, transfer)).ok_or(ProtocolViolation)?;
        if bytes == 0 || bytes > arriving.header.bytes - arriving.at {
            return Err(ProtocolViolation);
        }
        Ok(Chunk { block: &arriving.block, at: arriving.at })
    }

    /// So many bytes of that chunk are in their place. Gives the message when it is whole.
    pub fn chunk_placed(&mut self, from: Tid, transfer: u32, bytes: usize) -> Option<(MessageHeader, B)> {
        let arriving = self.arriving.get_mut(&(from, transfer))?;
        arriving.at += bytes;
        if arriving.at < arriving.header.bytes {
            return None;
        }
        let Reassembly { header, block, .. } = self.arriving.remove(&(from, transfer))?;
        Some((header, block))
    }

    /// The host is no more: what has come of messages that are not whole is dropped.
    pub fn host_gone(&mut self, host: Tid) {
        self.arriving.retain(|(from, _), _| *from != host);
        self.unsent_credit.retain(|(_, to), _| *to != host);
        self.begun.retain(|(from, _), _| *from != host);
        self.credits.retain(|credit| credit.host != host);
        // What tasks have not taken of it is still to be heard of: its memory is free then.
        let delivered = self.delivered.values_mut().flat_map(|waiting| waiting.messages.iter_mut());
        delivered.filter(|delivered| delivered.from == host).for_each(|delivered| delivered.from = Tid::NONE);
    }

    /// Messages of which chunks are still to come.
    pub fn arriving(&self) -> usize {
        self.arriving.len()
    }

    // ----- credit

    /// The task was given a message from that host; it has taken it when it has come to `mark`.
    /// Marks grow from call to call.
    pub fn delivered(&mut self, dst: Tid, from: Tid, bytes: usize, mark: u64) {
        let waiting = self.delivered.entry(dst).or_default();
        waiting.cost += cost(bytes);
        waiting.messages.push_back(Delivered { from, cost: cost(bytes), mark });
    }

    /// The message was for nobody.
    pub fn dropped(&mut self, dst: Tid, from: Tid, bytes: usize) {
        self.add_credit(from, dst, cost(bytes));
        self.issue_credit(from, dst);
    }

    /// The task has come so far. Says how many messages it has taken since the last time.
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

    /// The mark of which the daemon should hear at once when the task comes there; `None` while
    /// what the task has not taken is too little to hold anybody up.
    pub fn wakeup_mark(&self, dst: Tid) -> Option<u64> {
        let waiting = self.delivered.get(&dst).filter(|waiting| waiting.cost >= FLOW_QUANTUM_BYTES / 2)?;
        let mut total = 0;
        waiting.messages.iter().find_map(|delivered| {
            total += delivered.cost;
            (total >= FLOW_QUANTUM_BYTES / 2).then_some(delivered.mark)
        })
    }

    /// Tasks that have messages which they have not taken.
    pub fn holders(&self) -> impl Iterator<Item = Tid> + '_ {
        self.delivered.keys().copied()
    }

    /// The task is no more: all that it was given counts as taken.
    pub fn task_gone(&mut self, dst: Tid) {
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
        // Half of what may be kept back: the rest is for what the task has taken unheard.
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

    /// Credit to send.
    pub fn poll_credit(&mut self) -> Option<Credit> {
        self.credits.pop_front()
    }
}
