//! Mailboxes (contract 2.10).
use super::Machine;
use crate::codes::{
    Code, MBOX_DIRECT_INDEX_SHIFT, MBOX_FIRST_AVAIL, MBOX_MULTI_INSTANCE, MBOX_OVER_WRITABLE, MBOX_PERSISTENT,
    MBOX_READ_AND_DELETE, MBOX_WAIT_FOR_INFO,
};
use crate::proto::{ByteBuf, Mailbox, Message, Reply};
use crate::tid::Tid;
use std::collections::BTreeMap;

/// Indices go from 0 to this, less one.
const INDEX_MAX: i32 = 1 << 21;

struct Entry {
    /// `Tid::NONE` for an entry that outlived its owner.
    owner: Tid,
    /// As they were given, with the direct index: programs see them so.
    flags: i32,
    message: Message,
}

impl Entry {
    /// Whether `task` may replace or delete it. What has no owner any more is everybody's (D21).
    fn yields_to(&self, task: Tid) -> bool {
        self.owner == task || self.owner == Tid::NONE || self.flags & MBOX_OVER_WRITABLE != 0
    }
}

struct Class {
    name: Vec<u8>,
    entries: BTreeMap<i32, Entry>,
}

/// A `pvm_recvinfo` that waits for its entry.
struct Waiting {
    task: Tid,
    wait: u32,
    name: Vec<u8>,
    index: i32,
    flags: i32,
}

/// All mailboxes, classes in the order of their creation.
#[derive(Default)]
pub(super) struct Mailboxes {
    classes: Vec<Class>,
    waiting: Vec<Waiting>,
}

impl Mailboxes {
    pub fn is_idle(&self) -> bool {
        self.classes.is_empty() && self.waiting.is_empty()
    }
    fn class(&mut self, name: &[u8]) -> Option<&mut Class> {
        self.classes.iter_mut().find(|class| class.name == name)
    }

    fn put(&mut self, owner: Tid, name: &[u8], flags: i32, message: Message) -> Result<i32, Code> {
        if name.is_empty() || flags < 0 {
            return Err(Code::BadParam);
        }
        let mut index = flags >> MBOX_DIRECT_INDEX_SHIFT;
        let entry = Entry { owner, flags, message };
        let Some(class) = self.class(name) else {
            let entries = BTreeMap::from([(index, entry)]);
            self.classes.push(Class { name: name.to_vec(), entries });
            return Ok(index);
        };
        if flags & MBOX_MULTI_INSTANCE != 0 {
            while class.entries.contains_key(&index) {
                index += 1;
            }
            if index >= INDEX_MAX {
                return Err(Code::OutOfRes);
            }
        } else if class.entries.get(&index).is_some_and(|old| !old.yields_to(owner)) {
            return Err(Code::Denied);
        }
        class.entries.insert(index, entry);
        Ok(index)
    }

    /// The index of the entry that is meant.
    fn find(class: &Class, index: i32, flags: i32) -> Option<i32> {
        match flags & MBOX_FIRST_AVAIL {
            0 => class.entries.contains_key(&index).then_some(index),
            _ => class.entries.range(index..).next().map(|(found, _)| *found),
        }
    }

    fn get(&mut self, task: Tid, name: &[u8], index: i32, flags: i32) -> Result<Message, Code> {
        if name.is_empty() || index < 0 {
            return Err(Code::BadParam);
        }
        let class = self.class(name).ok_or(Code::NotFound)?;
        let index = Mailboxes::find(class, index, flags).ok_or(Code::NotFound)?;
        let entry = &class.entries[&index];
        if flags & MBOX_READ_AND_DELETE == 0 {
            return Ok(entry.message.clone());
        }
        if !entry.yields_to(task) {
            return Err(Code::Denied);
        }
        let entry = class.entries.remove(&index).expect("found just now");
        self.drop_empty();
        Ok(entry.message)
    }

    pub fn delete(&mut self, task: Tid, name: &[u8], index: i32, flags: i32) -> Result<Reply, Code> {
        if name.is_empty() || index < 0 {
            return Err(Code::BadParam);
        }
        let class = self.class(name).ok_or(Code::NotFound)?;
        let index = Mailboxes::find(class, index, flags).ok_or(Code::NotFound)?;
        if !class.entries[&index].yields_to(task) {
            return Err(Code::Denied);
        }
        class.entries.remove(&index);
        self.drop_empty();
        Ok(Reply::Int(index))
    }

    fn drop_empty(&mut self) {
        self.classes.retain(|class| !class.entries.is_empty());
    }

    pub fn list(&self, pattern: &[u8]) -> Vec<Mailbox> {
        let matching = self.classes.iter().filter(|class| matches(pattern, &class.name));
        matching
            .map(|class| Mailbox {
                name: ByteBuf::from(class.name.clone()),
                entries: class.entries.iter().map(|(index, entry)| (*index, entry.owner, entry.flags)).collect(),
            })
            .collect()
    }

    /// Removes entries that have outlived their owner: all, or those of a class, or one.
    pub fn reset(&mut self, name: Option<&[u8]>, index: Option<i32>) {
        for class in self.classes.iter_mut().filter(|class| name.is_none_or(|name| name == class.name)) {
            class
                .entries
                .retain(|number, entry| entry.owner != Tid::NONE || index.is_some_and(|index| index != *number));
        }
        self.drop_empty();
    }

    /// The task waits no more.
    pub fn stop_waiting(&mut self, task: Tid) {
        self.waiting.retain(|waiting| waiting.task != task);
    }

    /// A task has ended: what it kept here goes, or stays without owner; it waits no more.
    pub fn forget(&mut self, task: Tid) {
        self.stop_waiting(task);
        for class in &mut self.classes {
            class.entries.retain(|_, entry| entry.owner != task || entry.flags & MBOX_PERSISTENT != 0);
            for entry in class.entries.values_mut().filter(|entry| entry.owner == task) {
                entry.owner = Tid::NONE;
            }
        }
        self.drop_empty();
    }

    /// Removes the entry of a task in a class that the daemon itself made.
    pub fn withdraw(&mut self, task: Tid, name: &str) {
        if let Some(class) = self.class(name.as_bytes()) {
            class.entries.retain(|_, entry| entry.owner != task);
        }
        self.drop_empty();
    }

    /// A line for each class, for the log.
    pub fn summary(&self) -> impl Iterator<Item = String> + '_ {
        self.classes
            .iter()
            .map(|class| format!("mailbox {}: {} entries", String::from_utf8_lossy(&class.name), class.entries.len()))
    }
}

/// PVM's patterns: found anywhere in the name; `*` stands for anything, `\*` for itself.
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

impl Machine {
    pub(super) fn put_info(&mut self, from: Tid, name: ByteBuf, flags: i32, message: Message) -> Result<Reply, Code> {
        let index = self.mailboxes.put(from, &name, flags, message)?;
        self.wake_waiting(&name);
        Ok(Reply::Int(index))
    }

    /// Serves those who wait for an entry of the class.
    fn wake_waiting(&mut self, name: &[u8]) {
        let (ours, others) = std::mem::take(&mut self.mailboxes.waiting).into_iter().partition(|one| one.name == name);
        self.mailboxes.waiting = others;
        for one in ours {
            self.receive_info(one.task, one.wait, ByteBuf::from(one.name), one.index, one.flags);
        }
    }

    pub(super) fn receive_info(&mut self, from: Tid, wait: u32, name: ByteBuf, index: i32, flags: i32) {
        match self.mailboxes.get(from, &name, index, flags) {
            Err(Code::NotFound) if flags & MBOX_WAIT_FOR_INFO != 0 => {
                let name = name.into_vec();
                self.mailboxes.waiting.push(Waiting { task: from, wait, name, index, flags });
            }
            result => self.reply(from, wait, result.map(Reply::Info)),
        }
    }
}

#[cfg(test)]
#[path = "mailbox_tests.rs"]
mod tests;
