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

struct Arriving<B> {
    header: MessageHeader,
    block: B,
    at: usize,
}

/// A message that a task was given and has not taken yet.
struct Handed {
    /// Nobody when the host is gone.
    from: Tid,
    cost: u64,
    /// How far the task must have come to have taken it.
    mark: u64,
}

/// What a task was given and has not taken, in order.
#[derive(Default)]
struct Waiting {
    messages: VecDeque<Handed>,
    cost: u64,
}

/// What arrives from other hosts. `B` is memory for a body.
pub struct Intake<B> {
    arriving: HashMap<(Tid, u32), Arriving<B>>,
    handed: HashMap<Tid, Waiting>,
    /// By task: what each host is owed for it.
    owed: BTreeMap<(Tid, Tid), u64>,
    /// What each host has begun to send to each task and has not been given credit for.
    begun: BTreeMap<(Tid, Tid), u64>,
    credits: VecDeque<Credit>,
}

impl<B> Default for Intake<B> {
    fn default() -> Self {
        let (arriving, handed) = (HashMap::new(), HashMap::new());
        Intake { arriving, handed, owed: BTreeMap::new(), begun: BTreeMap::new(), credits: VecDeque::new() }
    }
}

impl<B> Intake<B> {
    /// Nothing has come yet.
    pub fn new() -> Intake<B> {
        Intake::default()
    }

    // ----- messages

    /// A host begins to send a message. Its flows may hold no more than their windows: one that does not
    /// keep to that could fill this host's memory.
    pub fn expect(&mut self, from: Tid, header: &MessageHeader) -> Result<(), ProtocolViolation> {
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
        self.arriving.insert((from, transfer), Arriving { header, block, at: there });
        Ok(())
    }

    /// A chunk of so many bytes comes: where it belongs.
    pub fn place(&self, from: Tid, transfer: u32, bytes: usize) -> Result<Chunk<'_, B>, ProtocolViolation> {
        let arriving = self.arriving.get(&(from, transfer)).ok_or(ProtocolViolation)?;
        if bytes == 0 || bytes > arriving.header.bytes - arriving.at {
            return Err(ProtocolViolation);
        }
        Ok(Chunk { block: &arriving.block, at: arriving.at })
    }

    /// So many bytes of that chunk are in their place. Gives the message when it is whole.
    pub fn placed(&mut self, from: Tid, transfer: u32, bytes: usize) -> Option<(MessageHeader, B)> {
        let arriving = self.arriving.get_mut(&(from, transfer))?;
        arriving.at += bytes;
        if arriving.at < arriving.header.bytes {
            return None;
        }
        let Arriving { header, block, .. } = self.arriving.remove(&(from, transfer))?;
        Some((header, block))
    }

    /// The host is no more: what has come of messages that are not whole is dropped.
    pub fn host_gone(&mut self, host: Tid) {
        self.arriving.retain(|(from, _), _| *from != host);
        self.owed.retain(|(_, to), _| *to != host);
        self.begun.retain(|(from, _), _| *from != host);
        self.credits.retain(|credit| credit.host != host);
        // What tasks have not taken of it is still to be heard of: its memory is free then.
        let handed = self.handed.values_mut().flat_map(|waiting| waiting.messages.iter_mut());
        handed.filter(|handed| handed.from == host).for_each(|handed| handed.from = Tid::NONE);
    }

    /// Messages of which chunks are still to come.
    pub fn arriving(&self) -> usize {
        self.arriving.len()
    }

    // ----- credit

    /// The task was given a message from that host; it has taken it when it has come to `mark`.
    /// Marks grow from call to call.
    pub fn handed(&mut self, dst: Tid, from: Tid, bytes: usize, mark: u64) {
        let waiting = self.handed.entry(dst).or_default();
        waiting.cost += cost(bytes);
        waiting.messages.push_back(Handed { from, cost: cost(bytes), mark });
    }

    /// The message was for nobody.
    pub fn dropped(&mut self, dst: Tid, from: Tid, bytes: usize) {
        self.owe(from, dst, cost(bytes));
        self.settle(from, dst);
    }

    /// The task has come so far. Says how many messages it has taken since the last time.
    pub fn came_to(&mut self, dst: Tid, mark: u64) -> usize {
        let mut count = 0;
        while let Some(waiting) = self.handed.get_mut(&dst) {
            if waiting.messages.front().is_none_or(|handed| handed.mark > mark) {
                break;
            }
            let Some(Handed { from, cost, .. }) = waiting.messages.pop_front() else { break };
            waiting.cost -= cost;
            if waiting.messages.is_empty() {
                self.handed.remove(&dst);
            }
            self.owe(from, dst, cost);
            count += 1;
        }
        count
    }

    /// The mark of which the daemon should hear at once when the task comes there; `None` while
    /// what the task has not taken is too little to hold anybody up.
    pub fn mark_of_interest(&self, dst: Tid) -> Option<u64> {
        let waiting = self.handed.get(&dst).filter(|waiting| waiting.cost >= FLOW_QUANTUM_BYTES / 2)?;
        let mut total = 0;
        waiting.messages.iter().find_map(|handed| {
            total += handed.cost;
            (total >= FLOW_QUANTUM_BYTES / 2).then_some(handed.mark)
        })
    }

    /// Tasks that have messages which they have not taken.
    pub fn holders(&self) -> impl Iterator<Item = Tid> + '_ {
        self.handed.keys().copied()
    }

    /// The task is no more: all that it was given counts as taken.
    pub fn task_gone(&mut self, dst: Tid) {
        let handed = self.handed.remove(&dst).unwrap_or_default();
        for Handed { from, cost, .. } in handed.messages {
            self.owe(from, dst, cost);
        }
        let owed = self.owed.range((dst, Tid(0))..=(dst, Tid(u32::MAX)));
        let hosts: Vec<Tid> = owed.map(|((_, host), _)| *host).collect();
        hosts.into_iter().for_each(|host| self.settle(host, dst));
    }

    fn owe(&mut self, from: Tid, dst: Tid, cost: u64) {
        if from == Tid::NONE {
            return;
        }
        let owed = self.owed.entry((dst, from)).or_default();
        *owed += cost;
        // Half of what may be kept back: the rest is for what the task has taken unheard.
        if *owed >= FLOW_QUANTUM_BYTES / 2 {
            self.settle(from, dst);
        }
    }

    fn settle(&mut self, host: Tid, dst: Tid) {
        if let Some(bytes) = self.owed.remove(&(dst, host)) {
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
