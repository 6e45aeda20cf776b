//! Mailboxes (contract 2.10).
use super::core::{Core, SubMachine};
use super::event::Event;
use super::index::tids_of;
use super::limits::NAME_BYTES_MAX;
use super::roles::mailbox_class;
use crate::codes::{
    Code, MBOX_DIRECT_INDEX_SHIFT, MBOX_FIRST_AVAIL, MBOX_MULTI_INSTANCE, MBOX_OVER_WRITABLE, MBOX_PERSISTENT,
    MBOX_READ_AND_DELETE, MBOX_WAIT_FOR_INFO,
};
use crate::encoding::Writer;
use crate::master_state::{MailboxEntry, MasterState};
use crate::proto::{ByteBuf, Mailbox, Message, Reply, Request};
use crate::tid::Tid;
use crate::wire::Backup;
use std::collections::{BTreeMap, BTreeSet};

/// Entries of one class of mailboxes; all indices are below this number.
///
/// * Filled by: all tasks of the machine
/// * Setting: none, the flags of `pvm_putinfo` have room for no higher index
/// * Reached: `pvm_putinfo` says `PvmOutOfRes`
/// * Test: `empty_names_are_refused_and_the_last_index_is_followed_by_none`
const INDEX_MAX: i32 = 1 << 21;

/// The bytes that count for each entry in addition to its name and body.
const ENTRY_BYTES: usize = 256;

/// An entry of a mailbox.
struct Entry {
    /// The owner; `Tid::NONE` if the entry has outlived its owner.
    owner: Tid,
    /// The flags that the owner gave, including the direct index. Other programs receive the flags unchanged.
    flags: i32,
    message: Message,
}

impl Entry {
    /// Returns whether `task` may replace or delete this entry. If the entry has no owner, every task may (D21).
    fn yields_to(&self, task: Tid) -> bool {
        self.owner == task || self.owner == Tid::NONE || self.flags & MBOX_OVER_WRITABLE != 0
    }
}

/// Returns an entry for another master.
fn described(name: &[u8], index: i32, entry: &Entry) -> MailboxEntry {
    let Entry { owner, flags, message } = entry;
    MailboxEntry { name: ByteBuf::from(name.to_vec()), index, owner: *owner, flags: *flags, message: message.clone() }
}

/// Returns how many bytes count for an entry.
fn cost(name: &[u8], entry: &Entry) -> usize {
    ENTRY_BYTES + name.len() + entry.message.body.len()
}

/// The entries under one name.
#[derive(Default)]
struct Class {
    name: Vec<u8>,
    entries: BTreeMap<i32, Entry>,
    /// All indices below this one are taken.
    filled: i32,
}

impl Class {
    /// Returns the first free index that is not below `from`.
    fn gap(&mut self, from: i32) -> i32 {
        let mut gap = from.max(self.filled);
        for taken in self.entries.range(gap..).map(|(taken, _)| *taken) {
            if taken != gap {
                break;
            }
            gap += 1;
        }
        if from <= self.filled {
            self.filled = gap;
        }
        gap
    }
}

/// A `pvm_recvinfo` that waits for its entry.
struct PendingReceive {
    task: Tid,
    wait: u32,
    name: Vec<u8>,
    index: i32,
    flags: i32,
}

/// All mailboxes. A large machine stores many entries, and tasks end all the time. So the entries of one task are found
/// without a search through all entries.
pub(super) struct Mailboxes {
    /// The limit on the bytes of all entries.
    bytes_max: usize,
    /// The classes by number, in the order of their creation.
    classes: BTreeMap<u64, Class>,
    /// The numbers of the classes, by name.
    numbers: BTreeMap<Vec<u8>, u64>,
    /// The number assigned last to a class.
    last: u64,
    /// The bytes of all entries.
    bytes: usize,
    /// Class and index of each task's entries.
    owned: BTreeMap<Tid, BTreeSet<(u64, i32)>>,
    /// The pending receives, by the name of the class.
    pending_receives: BTreeMap<Vec<u8>, Vec<PendingReceive>>,
    /// By task: the names of the classes in which the task waits for an entry.
    awaited_names: BTreeMap<Tid, BTreeSet<Vec<u8>>>,
    /// At a master with a deputy: what has changed.
    changes: Option<Vec<Backup>>,
}

impl SubMachine for Mailboxes {
    fn name(&self) -> &'static str {
        "mailboxes"
    }
    /// Returns whether only persistent entries without an owner are left.
    fn is_idle(&self) -> bool {
        let kept = self.owned.get(&Tid::NONE).map_or(0, BTreeSet::len);
        let entries: usize = self.classes.values().map(|class| class.entries.len()).sum();
        let all_kept = entries == kept && self.owned.keys().all(|owner| *owner == Tid::NONE);
        all_kept && self.pending_receives.is_empty() && self.awaited_names.is_empty()
    }
    fn on_event(&mut self, core: &mut Core, event: &Event) {
        match event {
            Event::TaskLeft { tid, .. } | Event::ClientLeft { tid, ended: false } => self.stop_waiting(*tid),
            Event::TaskGone { tid, .. } | Event::ClientLeft { tid, ended: true } => self.forget(*tid),
            Event::HostGone(host) => self.forget_host(*host),
            Event::RoleTaken { role, tid } => {
                let (name, message) = (mailbox_class(*role), Writer::new().int(tid.0 as i32).finish());
                let message = Message::new(*tid, Tid::DAEMON, 0, 0, message);
                // If another task has an entry under that name, both entries stay.
                let _ = self.put_info(core, *tid, name.as_bytes(), MBOX_MULTI_INSTANCE, message);
            }
            Event::RoleLeft { role, tid } => self.withdraw(*tid, mailbox_class(*role)),
            _ => {}
        }
    }
}

impl Mailboxes {
    pub fn new(bytes_max: usize) -> Mailboxes {
        Mailboxes {
            bytes_max,
            classes: BTreeMap::new(),
            numbers: BTreeMap::new(),
            last: 0,
            bytes: 0,
            owned: BTreeMap::new(),
            pending_receives: BTreeMap::new(),
            awaited_names: BTreeMap::new(),
            changes: None,
        }
    }
    fn class(&self, name: &[u8]) -> Option<(u64, &Class)> {
        let number = *self.numbers.get(name)?;
        Some((number, &self.classes[&number]))
    }

    // ----- only these functions add and remove entries

    fn insert(&mut self, name: &[u8], index: i32, entry: Entry) {
        let number = match self.numbers.get(name) {
            Some(number) => *number,
            None => {
                self.last += 1;
                self.numbers.insert(name.to_vec(), self.last);
                self.classes.insert(self.last, Class { name: name.to_vec(), ..Class::default() });
                self.last
            }
        };
        let owner = entry.owner;
        if let Some(changes) = &mut self.changes {
            changes.push(Backup::State(Box::new(MasterState::Entry(described(name, index, &entry)))));
        }
        self.bytes += cost(name, &entry);
        let old = self.classes.get_mut(&number).and_then(|class| class.entries.insert(index, entry));
        if let Some(old) = old {
            self.bytes -= cost(name, &old);
            self.disown(old.owner, number, index);
        }
        self.owned.entry(owner).or_default().insert((number, index));
    }

    fn remove(&mut self, number: u64, index: i32) -> Option<Entry> {
        let class = self.classes.get_mut(&number)?;
        let entry = class.entries.remove(&index)?;
        class.filled = class.filled.min(index);
        if let Some(changes) = &mut self.changes {
            changes.push(Backup::EntryGone { name: ByteBuf::from(class.name.clone()), index });
        }
        self.bytes -= cost(&class.name, &entry);
        if class.entries.is_empty() {
            self.numbers.remove(&class.name);
            self.classes.remove(&number);
        }
        self.disown(entry.owner, number, index);
        Some(entry)
    }

    /// Removes an entry from the list of its owner's entries.
    fn disown(&mut self, owner: Tid, number: u64, index: i32) {
        let Some(owned) = self.owned.get_mut(&owner) else { return };
        owned.remove(&(number, index));
        if owned.is_empty() {
            self.owned.remove(&owner);
        }
    }

    // ----- what tasks ask

    /// Adds an entry; returns its index.
    fn put(&mut self, owner: Tid, name: &[u8], flags: i32, message: Message) -> Result<i32, Code> {
        if name.is_empty() {
            return Err(Code::BadParam);
        }
        let (mut index, mut replaced) = (flags >> MBOX_DIRECT_INDEX_SHIFT & (INDEX_MAX - 1), 0);
        let class = self.numbers.get(name).and_then(|number| self.classes.get_mut(number));
        if let Some(class) = class {
            if flags & MBOX_MULTI_INSTANCE != 0 {
                index = class.gap(index);
                if index >= INDEX_MAX {
                    return Err(Code::OutOfRes);
                }
            } else if let Some(old) = class.entries.get(&index) {
                if !old.yields_to(owner) {
                    return Err(Code::Denied);
                }
                replaced = cost(name, old);
            }
        }
        let entry = Entry { owner, flags, message };
        if self.bytes - replaced + cost(name, &entry) > self.bytes_max {
            return Err(Code::NoMem);
        }
        self.insert(name, index, entry);
        Ok(index)
    }

    /// Finds an entry; returns the number of its class, its index and the entry.
    fn find(&self, name: &[u8], index: i32, flags: i32) -> Result<(u64, i32, &Entry), Code> {
        if name.is_empty() || index < 0 {
            return Err(Code::BadParam);
        }
        let (number, class) = self.class(name).ok_or(Code::NotFound)?;
        let last = if flags & MBOX_FIRST_AVAIL == 0 { index } else { i32::MAX };
        let (index, entry) = class.entries.range(index..=last).next().ok_or(Code::NotFound)?;
        Ok((number, *index, entry))
    }

    /// Returns the message of an entry, and removes the entry if the flags ask for it.
    fn get(&mut self, task: Tid, name: &[u8], index: i32, flags: i32) -> Result<Message, Code> {
        let (number, index, entry) = self.find(name, index, flags)?;
        if flags & MBOX_READ_AND_DELETE == 0 {
            return Ok(entry.message.clone());
        }
        if !entry.yields_to(task) {
            return Err(Code::Denied);
        }
        let entry = self.remove(number, index).expect("found just now");
        Ok(entry.message)
    }

    /// Handles `pvm_delinfo`.
    pub fn delete(&mut self, task: Tid, name: &[u8], index: i32, flags: i32) -> Result<Reply, Code> {
        let (number, index, entry) = self.find(name, index, flags)?;
        if !entry.yields_to(task) {
            return Err(Code::Denied);
        }
        self.remove(number, index);
        Ok(Reply::Int(index))
    }

    /// Returns the classes that match a pattern, with their entries.
    pub fn list(&self, pattern: &[u8]) -> Vec<Mailbox> {
        let matching = self.classes.values().filter(|class| matches(pattern, &class.name));
        matching
            .map(|class| Mailbox {
                name: ByteBuf::from(class.name.clone()),
                entries: class.entries.iter().map(|(index, entry)| (*index, entry.owner, entry.flags)).collect(),
            })
            .collect()
    }

    /// Removes entries that have outlived their owner: all of them, those of a class, or a single one.
    pub fn reset(&mut self, name: Option<&[u8]>, index: Option<i32>) {
        let meant = |(number, other): &(u64, i32)| {
            name.is_none_or(|name| self.classes[number].name == name) && index.is_none_or(|index| index == *other)
        };
        let without_owner = self.owned.get(&Tid::NONE).into_iter().flatten();
        let left: Vec<(u64, i32)> = without_owner.filter(|entry| meant(entry)).copied().collect();
        for (number, index) in left {
            self.remove(number, index);
        }
    }

    // ----- tasks that end

    /// Drops the pending receives of a task.
    fn stop_waiting(&mut self, task: Tid) {
        for name in self.awaited_names.remove(&task).unwrap_or_default() {
            let Some(waiting) = self.pending_receives.get_mut(&name) else { continue };
            waiting.retain(|waiting| waiting.task != task);
            if waiting.is_empty() {
                self.pending_receives.remove(&name);
            }
        }
    }

    /// Handles the end of a task: removes its pending receives and its entries, except persistent entries, which stay
    /// without an owner.
    fn forget(&mut self, task: Tid) {
        self.stop_waiting(task);
        let mut orphans = Vec::new();
        for (number, index) in self.owned.remove(&task).unwrap_or_default() {
            let entry = self.classes.get_mut(&number).and_then(|class| class.entries.get_mut(&index));
            match entry {
                Some(entry) if entry.flags & MBOX_PERSISTENT != 0 => {
                    entry.owner = Tid::NONE;
                    orphans.push((number, index));
                    self.owned.entry(Tid::NONE).or_default().insert((number, index));
                }
                _ => drop(self.remove(number, index)),
            }
        }
        for (number, index) in orphans {
            let (Some(changes), Some(class)) = (&mut self.changes, self.classes.get(&number)) else { return };
            let entry = described(&class.name, index, &class.entries[&index]);
            changes.push(Backup::State(Box::new(MasterState::Entry(entry))));
        }
    }

    /// Handles the end of all tasks of a host.
    fn forget_host(&mut self, host: Tid) {
        let awaited_names = self.awaited_names.range(tids_of(host)).map(|(task, _)| *task);
        let tasks: BTreeSet<Tid> =
            awaited_names.chain(self.owned.range(tids_of(host)).map(|(task, _)| *task)).collect();
        tasks.into_iter().for_each(|task| self.forget(task));
    }

    /// Removes the entries of a task in a class that the daemons themselves maintain.
    fn withdraw(&mut self, task: Tid, name: &str) {
        let Some((number, _)) = self.class(name.as_bytes()) else { return };
        let of_class =
            self.owned.get(&task).into_iter().flat_map(|owned| owned.range((number, i32::MIN)..=(number, i32::MAX)));
        let theirs: Vec<i32> = of_class.map(|(_, index)| *index).collect();
        for index in theirs {
            self.remove(number, index);
        }
    }

    /// Adds a pending receive.
    fn wait(&mut self, one: PendingReceive) {
        self.awaited_names.entry(one.task).or_default().insert(one.name.clone());
        self.pending_receives.entry(one.name.clone()).or_default().push(one);
    }

    /// Removes the pending receives for a class, and returns them.
    fn take_pending_receives(&mut self, name: &[u8]) -> Vec<PendingReceive> {
        let all = self.pending_receives.remove(name).unwrap_or_default();
        for one in &all {
            let Some(names) = self.awaited_names.get_mut(&one.task) else { continue };
            names.remove(name);
            if names.is_empty() {
                self.awaited_names.remove(&one.task);
            }
        }
        all
    }

    // ----- another master

    /// Returns all entries; classes in the order in which they were made.
    pub fn entries(&self) -> impl Iterator<Item = MailboxEntry> + '_ {
        self.classes
            .values()
            .flat_map(|class| class.entries.iter().map(|(index, entry)| described(&class.name, *index, entry)))
    }

    /// Takes over an entry of the former master.
    pub fn take_entry(&mut self, entry: MailboxEntry) {
        let MailboxEntry { name, index, owner, flags, message } = entry;
        self.insert(&name, index, Entry { owner, flags, message });
    }

    /// Removes an entry, as the master has done.
    pub fn drop_entry(&mut self, name: &[u8], index: i32) {
        if let Some(number) = self.numbers.get(name).copied() {
            self.remove(number, index);
        }
    }

    /// Takes the entries of the former master, as the deputy has kept them. Receives that wait here are asked again.
    pub fn succeed(&mut self, kept: Mailboxes) {
        *self = Mailboxes { bytes_max: self.bytes_max, ..kept };
    }

    /// Notes changes from now on, or no more.
    pub fn note_changes(&mut self, are_kept: bool) {
        self.changes = are_kept.then(Vec::new);
    }

    /// Takes what has changed.
    pub fn take_changes(&mut self) -> Vec<Backup> {
        self.changes.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Returns the owners of entries.
    pub fn owners(&self) -> impl Iterator<Item = Tid> + '_ {
        self.owned.keys().copied().filter(|owner| *owner != Tid::NONE)
    }

    /// Drops everything. Returns the pending receives as requests.
    pub fn resign(&mut self) -> Vec<(Tid, u32, Request)> {
        let pending = std::mem::replace(self, Mailboxes::new(self.bytes_max)).pending_receives;
        let request = |one: PendingReceive| {
            let PendingReceive { task, wait, name, index, flags } = one;
            (task, wait, Request::RecvInfo { name: ByteBuf::from(name), index, flags })
        };
        pending.into_values().flatten().map(request).collect()
    }

    /// Returns whether a task has an entry in that class.
    pub fn is_published(&self, task: Tid, name: &str) -> bool {
        let Some((number, _)) = self.class(name.as_bytes()) else { return false };
        let owned = self.owned.get(&task);
        owned.is_some_and(|owned| owned.range((number, i32::MIN)..=(number, i32::MAX)).next().is_some())
    }

    /// Returns a line for each class, for the log.
    pub fn summary(&self) -> impl Iterator<Item = String> + '_ {
        self.classes
            .values()
            .map(|class| format!("mailbox {}: {} entries", String::from_utf8_lossy(&class.name), class.entries.len()))
    }
}

/// Returns whether a name matches a pattern of PVM. The pattern may match any part of the name; `*` stands for any
/// text, `\*` for an asterisk.
fn matches(pattern: &[u8], name: &[u8]) -> bool {
    let mut pieces: Vec<Vec<u8>> = vec![Vec::new()];
    let mut bytes = pattern.iter().copied().peekable();
    while let Some(byte) = bytes.next() {
        match byte {
            b'*' => pieces.push(Vec::new()),
            b'\\' if bytes.peek() == Some(&b'*') => {
                bytes.next();
                pieces.last_mut().expect("never empty").push(b'*');
            }
            other => pieces.last_mut().expect("never empty").push(other),
        }
    }
    let mut rest = name;
    pieces.iter().filter(|piece| !piece.is_empty()).all(|piece| {
        let Some(at) = rest.windows(piece.len()).position(|window| window == piece.as_slice()) else { return false };
        rest = &rest[at + piece.len()..];
        true
    })
}

impl Mailboxes {
    /// Handles `pvm_putinfo`.
    pub fn put_info(
        &mut self,
        core: &mut Core,
        from: Tid,
        name: &[u8],
        flags: i32,
        message: Message,
    ) -> Result<Reply, Code> {
        let index = self.put(from, name, flags, message)?;
        self.serve_pending_receives(core, name);
        Ok(Reply::Int(index))
    }

    /// Retries the pending receives for a class that has a new entry.
    fn serve_pending_receives(&mut self, core: &mut Core, name: &[u8]) {
        for one in self.take_pending_receives(name) {
            self.receive_info(core, one.task, one.wait, ByteBuf::from(one.name), one.index, one.flags);
        }
    }

    /// Handles `pvm_recvinfo`.
    pub fn receive_info(&mut self, core: &mut Core, from: Tid, wait: u32, name: ByteBuf, index: i32, flags: i32) {
        match self.get(from, &name, index, flags) {
            Err(Code::NotFound) if flags & MBOX_WAIT_FOR_INFO != 0 && name.len() > NAME_BYTES_MAX => {
                core.reply(from, wait, Err(Code::OutOfRes));
            }
            Err(Code::NotFound) if flags & MBOX_WAIT_FOR_INFO != 0 => {
                let name = name.into_vec();
                self.wait(PendingReceive { task: from, wait, name, index, flags });
            }
            result => core.reply(from, wait, result.map(Reply::Info)),
        }
    }
}

#[cfg(test)]
#[path = "mailbox_tests.rs"]
mod tests;
