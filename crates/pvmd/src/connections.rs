//! The daemon's end of each task: its connection, its descriptors, what waits for it.
use crate::settings::BACKLOG_BYTES_MAX;
use pvm_core::machine::Connection;
use pvm_core::proto::{ToTask, Welcome};
use pvm_core::tid::Tid;
use pvm_fmp::ports::PortTable;
use pvm_fmp::{Endpoint, PreallocatedEndpoint};
use pvm_link::{Link, LinkError};
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;

/// A task's segment (read-only) and doorbell.
pub struct Descriptors {
    /// The segment.
    pub segment: OwnedFd,
    /// The doorbell.
    pub bell: OwnedFd,
}

/// A connection; a task once it has been welcomed.
pub struct Client {
    /// The socket with its queue.
    pub link: Link,
    /// The task.
    pub tid: Option<Tid>,
    /// What came with the greeting.
    pub offered: Option<Descriptors>,
    /// Whether `epoll` tells when the socket can be written.
    pub watches_write: bool,
    /// Readable when the process has ended. The socket alone would not tell while a child of the
    /// process holds it open.
    pub process: Option<OwnedFd>,
    /// Nothing can be sent any more; what the task has sent before is still to be read.
    pub mute: bool,
    /// Where what waited ended, see [`Client::has_taken_what_waited`].
    mark: Option<u64>,
}

impl Client {
    /// Whether the socket has taken all that waited for it when this was first asked since it last had. So
    /// it comes true though more and more waits.
    pub fn has_taken_what_waited(&mut self) -> bool {
        let taken = self.link.taken_bytes();
        let mark = *self.mark.get_or_insert(taken + self.link.queued_bytes() as u64);
        let has = taken >= mark;
        if has {
            self.mark = None;
        }
        has
    }
}

/// A task as the daemon's edge sees it.
#[derive(Default)]
struct Place {
    connection: Option<Connection>,
    descriptors: Option<Rc<Descriptors>>,
    /// What was made for a task which has not come yet: the writable segment, its own doorbell.
    blank: Option<[OwnedFd; 2]>,
    /// Frames for it, and the bytes of messages in them.
    waiting: Vec<(ToTask, Option<Rc<Descriptors>>)>,
    waiting_bytes: usize,
}

/// All connections and tasks.
pub struct Connections {
    clients: HashMap<Connection, Client>,
    places: HashMap<Tid, Place>,
    ports: PortTable,
    last: Connection,
    /// Whose queue has changed since the last look.
    touched: Vec<Connection>,
    connected: u32,
    /// Those that take nothing of what is sent to them.
    overrun: Vec<Connection>,
    backlog_bytes_max: usize,
    /// The own host, and the daemon's descriptors as a peer of its tasks.
    host: Tid,
    daemon: Option<Rc<Descriptors>>,
}

impl Connections {
    /// None yet; on that host.
    pub fn new(host: Tid) -> io::Result<Connections> {
        let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get() as u32);
        let ports = PortTable::new(cores)?;
        ports.set(host.0);
        Ok(Connections {
            clients: HashMap::new(),
            places: HashMap::new(),
            ports,
            last: 0,
            touched: Vec::new(),
            overrun: Vec::new(),
            backlog_bytes_max: BACKLOG_BYTES_MAX,
            connected: 0,
            host,
            daemon: None,
        })
    }

    /// So many bytes may wait for a task.
    pub fn limit_backlog(&mut self, bytes: usize) {
        self.backlog_bytes_max = bytes;
    }

    /// Bytes that wait for a task.
    pub fn backlog_of(&self, tid: Tid) -> usize {
        let Some(place) = self.places.get(&tid) else { return 0 };
        let client = place.connection.and_then(|connection| self.clients.get(&connection));
        client.map_or(place.waiting_bytes, |client| client.link.queued_bytes())
    }

    /// Connections for which too much waits: to be closed.
    pub fn take_overrun(&mut self) -> Vec<Connection> {
        std::mem::take(&mut self.overrun)
    }

    /// A descriptor of the port table.
    pub fn ports(&self) -> io::Result<OwnedFd> {
        self.ports.descriptor().try_clone_to_owned()
    }

    /// How tasks reach the daemon in shared memory.
    pub fn set_daemon(&mut self, [segment, bell]: [OwnedFd; 2]) {
        self.daemon = Some(Rc::new(Descriptors { segment, bell }));
    }

    /// A new connection.
    pub fn add(&mut self, link: Link) -> Connection {
        self.last += 1;
        let client =
            Client { link, tid: None, offered: None, watches_write: false, process: None, mute: false, mark: None };
        self.clients.insert(self.last, client);
        self.last
    }

    /// The connection of that number.
    pub fn get_mut(&mut self, connection: Connection) -> Option<&mut Client> {
        self.clients.get_mut(&connection)
    }

    /// The connection of a task.
    pub fn of_task(&self, tid: Tid) -> Option<Connection> {
        self.places.get(&tid)?.connection
    }

    /// Closes a connection; gives the task that it was.
    pub fn close(&mut self, connection: Connection) -> Option<Tid> {
        let tid = self.clients.remove(&connection)?.tid?;
        if let Some(place) = self.places.get_mut(&tid).filter(|place| place.connection == Some(connection)) {
            (place.connection, place.descriptors) = (None, None);
        }
        self.count(-1);
        Some(tid)
    }

    fn count(&mut self, change: i32) {
        self.connected = self.connected.saturating_add_signed(change);
        self.ports.set_tasks(self.connected);
    }

    /// Connections whose queue may have begun or ceased to wait for the socket.
    pub fn take_touched(&mut self) -> Vec<Connection> {
        std::mem::take(&mut self.touched)
    }

    // ----- what the machine wants

    /// The task's number is in use.
    pub fn born(&mut self, tid: Tid) {
        self.places.insert(tid, Place::default());
        self.ports.set(tid.0);
    }

    /// The task is gone. Gives the connection that is to be closed.
    pub fn forget(&mut self, tid: Tid) -> Option<Connection> {
        self.ports.clear(tid.0);
        self.places.remove(&tid)?.connection
    }

    /// Lets a task in and gives it what has waited for it.
    pub fn welcome(&mut self, connection: Connection, tid: Tid, welcome: Welcome) {
        let (Some(client), Some(place)) = (self.clients.get_mut(&connection), self.places.get_mut(&tid)) else {
            return;
        };
        client.tid = Some(tid);
        place.connection = Some(connection);
        let offered = client.offered.take();
        let table = self.ports.descriptor();
        let frame = ToTask::Welcome(welcome);
        let result = match place.blank.take() {
            Some([segment, bell]) => client.link.send_to_task(&frame, &[table, segment.as_fd(), bell.as_fd()]),
            None => {
                place.descriptors = offered.map(Rc::new);
                client.link.send_to_task(&frame, &[table])
            }
        };
        let waiting = std::mem::take(&mut place.waiting);
        place.waiting_bytes = 0;
        self.sent(connection, tid, result);
        self.count(1);
        for (frame, descriptors) in waiting {
            self.deliver(tid, frame, descriptors);
        }
    }

    /// Sends a frame to a task, or keeps it until the task has come.
    pub fn send(&mut self, tid: Tid, frame: ToTask) {
        self.deliver(tid, frame, None);
    }

    /// Introduces two tasks to each other.
    pub fn introduce(&mut self, one: Tid, other: Tid) -> io::Result<()> {
        let (ones, others) = (self.descriptors(one)?, self.descriptors(other)?);
        self.deliver(one, ToTask::Peer(other), others);
        if one != other {
            self.deliver(other, ToTask::Peer(one), ones);
        }
        Ok(())
    }

    /// Introduces a task and the daemon, which has that endpoint, to each other.
    pub fn introduce_daemon(&mut self, task: Tid, endpoint: &mut Endpoint) -> io::Result<()> {
        let Some(own) = self.descriptors(task)? else { return Ok(()) };
        endpoint.connect(task.0, own.segment.try_clone()?, own.bell.try_clone()?)?;
        let daemon = self.daemon.clone();
        self.deliver(task, ToTask::Peer(self.host), daemon);
        Ok(())
    }

    /// The descriptors of a task; for one that has not come yet they are made.
    fn descriptors(&mut self, tid: Tid) -> io::Result<Option<Rc<Descriptors>>> {
        let Some(place) = self.places.get_mut(&tid) else { return Ok(None) };
        if place.descriptors.is_none() && place.connection.is_none() {
            let PreallocatedEndpoint { own, shown: [segment, bell] } = PreallocatedEndpoint::new()?;
            place.blank = Some(own);
            place.descriptors = Some(Rc::new(Descriptors { segment, bell }));
        }
        Ok(place.descriptors.clone())
    }

    fn deliver(&mut self, tid: Tid, frame: ToTask, descriptors: Option<Rc<Descriptors>>) {
        let Some(place) = self.places.get_mut(&tid) else { return };
        let Some(connection) = place.connection else {
            if let ToTask::Message(message) = &frame {
                if place.waiting_bytes > self.backlog_bytes_max {
                    return;
                }
                place.waiting_bytes += message.body.len() + size_of_val(message);
            }
            return place.waiting.push((frame, descriptors));
        };
        let Some(client) = self.clients.get_mut(&connection).filter(|client| !client.mute) else { return };
        if client.link.lets_wait_more_than(self.backlog_bytes_max) {
            client.mute = true;
            return self.overrun.push(connection);
        }
        let carried: Vec<BorrowedFd<'_>> = match &descriptors {
            Some(own) => vec![own.segment.as_fd(), own.bell.as_fd()],
            None => Vec::new(),
        };
        let result = client.link.send_to_task(&frame, &carried);
        self.sent(connection, tid, result);
    }

    /// Sends a frame with descriptors to a task that has come.
    pub fn send_with(&mut self, tid: Tid, frame: &ToTask, descriptors: &[BorrowedFd<'_>]) {
        let Some(connection) = self.of_task(tid) else { return };
        let Some(client) = self.clients.get_mut(&connection).filter(|client| !client.mute) else { return };
        let result = client.link.send_to_task(frame, descriptors);
        self.sent(connection, tid, result);
    }

    fn sent(&mut self, connection: Connection, tid: Tid, result: Result<(), LinkError>) {
        if let (Err(error), Some(client)) = (result, self.clients.get_mut(&connection)) {
            client.mute = true;
            // It would wait for ever for what it is not told.
            if error != LinkError::Closed {
                self.overrun.push(connection);
            }
        }
        self.ports.frame_sent(tid.0);
        self.touched.push(connection);
    }

    /// Rings a task's doorbell.
    pub fn ring(&self, tid: Tid) {
        if let Some(own) = self.places.get(&tid).and_then(|place| place.descriptors.as_ref()) {
            pvm_fmp::doorbell::pull(own.bell.as_fd());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pvm_core::proto::{ByteBuf, Message};

    #[test]
    fn what_waited_is_taken_though_more_and_more_waits() {
        let (mut reader, link) = Link::pair().unwrap();
        let mut connections = Connections::new(Tid(0x40000)).unwrap();
        let number = connections.add(link);
        let client = connections.get_mut(number).unwrap();
        assert!(client.has_taken_what_waited(), "nothing waits");
        let message = |tag| Message::new(Tid::DAEMON, Tid(0x40001), 0, tag, vec![0; 100_000]);
        for tag in 0..40 {
            client.link.send_to_task(&ToTask::Message(message(tag)), &[]).unwrap();
        }
        assert!(!client.has_taken_what_waited());
        for tag in 40..100 {
            client.link.send_to_task(&ToTask::Message(message(tag)), &[]).unwrap();
            while reader.receive_from_daemon().unwrap().is_none() {
                client.link.flush().unwrap();
            }
            client.link.flush().unwrap();
            if client.has_taken_what_waited() {
                assert!(tag < 80 && client.link.queued_bytes() > 1_000_000, "{tag}");
                return;
            }
        }
        panic!("what waited was never taken");
    }

    #[test]
    fn what_waits_for_a_task_that_has_not_come_is_bounded() {
        let (host, tid) = (Tid(0x40000), Tid(0x40001));
        let mut connections = Connections::new(host).unwrap();
        connections.limit_backlog(100_000);
        connections.born(tid);
        for _ in 0..1000 {
            let body = ByteBuf::from(vec![0; 1000]);
            let message = Message { src: host, dst: tid, ctx: 0, tag: 1, wid: 0, enc: 0, format: 0, body };
            connections.send(tid, ToTask::Message(message));
        }
        assert!((100_000..110_000).contains(&connections.backlog_of(tid)), "{}", connections.backlog_of(tid));
        assert!(connections.places[&tid].waiting.len() < 100);
    }
}
