//! What the daemon holds for each task: its connection, its descriptors, the frames that wait for it.
use crate::settings::BACKLOG_BYTES_MAX;
use pvm_core::machine::{Company, Connection};
use pvm_core::proto::{ToTask, Welcome};
use pvm_core::tid::Tid;
use pvm_fmp::ports::{ADVICE_WORDS, PortTable};
use pvm_fmp::{Endpoint, PreallocatedEndpoint};
use pvm_link::{ControlError, ControlSocket};
use std::collections::{BTreeMap, HashMap, VecDeque};
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

/// A connection. The connection belongs to a task once the daemon has welcomed the task.
pub struct Client {
    /// The socket with its queue.
    pub socket: ControlSocket,
    /// The task.
    pub tid: Option<Tid>,
    /// The descriptors that arrived with the `Hello` frame.
    pub offered: Option<Descriptors>,
    /// Whether the loop waits until the socket can take more.
    pub watches_write: bool,
    /// The pidfd, readable when the process has ended. The socket does not show the end while a child of the process
    /// holds the socket open.
    pub process: Option<OwnedFd>,
    /// Whether the task sleeps, and has said so.
    is_idle: bool,
    /// Whether nothing can be sent any more; frames that the task has sent are still read.
    pub write_closed: bool,
    /// The backlog of [`Client::has_sent_backlog`] has been sent when the socket has taken this number of bytes in
    /// total.
    backlog_end: Option<u64>,
}

impl Client {
    /// Returns whether the socket has taken the backlog, which is everything that waited at the first call. Bytes added
    /// after the first call do not delay the answer `true`. After a `true`, the next call counts as the first call
    /// again.
    pub fn has_sent_backlog(&mut self) -> bool {
        let taken = self.socket.written_bytes();
        let backlog_end = *self.backlog_end.get_or_insert(taken + self.socket.queued_bytes() as u64);
        let has = taken >= backlog_end;
        if has {
            self.backlog_end = None;
        }
        has
    }
}

/// Dead peers of a task that has not enrolled whose memory is kept, since it may hold messages to the task.
///
/// * Filled by: tasks of the host
/// * Setting: none, since a program that is started enrolls soon or is no task
/// * Reached: the messages of the peer that died first are lost, and its frames are no longer kept
/// * Test: `of_the_dead_peers_of_a_task_that_never_enrolls_not_all_are_kept`
const DEAD_PEERS_MAX: usize = 4096;

/// What the daemon holds for a task.
#[derive(Default)]
struct TaskRecord {
    connection: Option<Connection>,
    descriptors: Option<Rc<Descriptors>>,
    /// The writable segment and the doorbell, made for a task that has not enrolled.
    blank: Option<[OwnedFd; 2]>,
    /// Frames that wait until the task has enrolled, by their numbers, and the number of bytes of the messages among
    /// them.
    waiting: BTreeMap<u64, (ToTask, Option<Rc<Descriptors>>)>,
    waiting_bytes: usize,
    /// How many frames there were for the task, with those that are no longer kept.
    numbered: u64,
    /// The numbers of the introductions of living peers among the frames that wait; and the numbers of introduction and
    /// end of the dead peers whose memory is kept, in the order of their ends.
    introductions: HashMap<Tid, u64>,
    dead: VecDeque<[u64; 2]>,
    /// Whether the task has a socket on which it hears releases of barriers.
    hears_releases: bool,
}

impl TaskRecord {
    /// Keeps a frame until the task has enrolled. The memory of a dead peer is kept, too, since it may hold messages.
    fn keep(&mut self, frame: ToTask, descriptors: Option<Rc<Descriptors>>) {
        let number = self.numbered;
        self.numbered += 1;
        match &frame {
            ToTask::Peer(peer) => drop(self.introductions.insert(*peer, number)),
            ToTask::PeerGone(peer) => {
                self.dead.extend(self.introductions.remove(peer).map(|introduction| [introduction, number]));
            }
            _ => {}
        }
        self.waiting.insert(number, (frame, descriptors));
        if self.dead.len() > DEAD_PEERS_MAX {
            let forgotten = self.dead.pop_front().into_iter().flatten();
            forgotten.for_each(|number| drop(self.waiting.remove(&number)));
        }
    }

    /// Takes the frames that wait. Frames are counted, so a frame that means nothing is in the place of each one that is
    /// no longer kept.
    fn take_waiting(&mut self) -> impl Iterator<Item = (ToTask, Option<Rc<Descriptors>>)> + use<> {
        let mut waiting = std::mem::take(&mut self.waiting);
        let numbered = std::mem::take(&mut self.numbered);
        (self.introductions, self.dead, self.waiting_bytes) = Default::default();
        (0..numbered).map(move |number| waiting.remove(&number).unwrap_or((ToTask::PeerGone(Tid::NONE), None)))
    }
}

/// All connections and tasks.
pub struct Connections {
    clients: HashMap<Connection, Client>,
    tasks: HashMap<Tid, TaskRecord>,
    ports: PortTable,
    last: Connection,
    /// Connections whose queue has changed since the last [`Connections::take_touched`].
    touched: Vec<Connection>,
    /// The number of tasks that are connected, and how many of them sleep.
    connected: u32,
    idle: u32,
    /// Connections that are to be closed: their backlog exceeds the limit, or a send to them has failed.
    to_close: Vec<Connection>,
    backlog_bytes_max: usize,
    /// This host, and the descriptors by which its tasks reach the daemon as a peer.
    host: Tid,
    daemon: Option<Rc<Descriptors>>,
}

impl Connections {
    /// Starts without connections, on the given host.
    pub fn new(host: Tid) -> io::Result<Connections> {
        let ports = PortTable::new(cores())?;
        ports.set(host.0);
        Ok(Connections {
            clients: HashMap::new(),
            tasks: HashMap::new(),
            ports,
            last: 0,
            touched: Vec::new(),
            to_close: Vec::new(),
            backlog_bytes_max: BACKLOG_BYTES_MAX,
            connected: 0,
            idle: 0,
            host,
            daemon: None,
        })
    }

    /// Sets how many bytes may wait for a task.
    pub fn limit_backlog(&mut self, bytes: usize) {
        self.backlog_bytes_max = bytes;
    }

    /// Returns how many bytes wait for a task.
    pub fn backlog_of(&self, tid: Tid) -> usize {
        let Some(task) = self.tasks.get(&tid) else { return 0 };
        let client = task.connection.and_then(|connection| self.clients.get(&connection));
        client.map_or(task.waiting_bytes, |client| client.socket.queued_bytes())
    }

    /// Takes the connections that are to be closed because their backlog exceeds the limit or a send to them has
    /// failed.
    pub fn take_to_close(&mut self) -> Vec<Connection> {
        std::mem::take(&mut self.to_close)
    }

    /// Returns a descriptor of the port table.
    pub fn ports(&self) -> io::Result<OwnedFd> {
        self.ports.descriptor().try_clone_to_owned()
    }

    /// Sets the descriptors through which tasks reach the daemon in shared memory.
    pub fn set_daemon(&mut self, [segment, bell]: [OwnedFd; 2]) {
        self.daemon = Some(Rc::new(Descriptors { segment, bell }));
    }

    /// Adds a connection.
    pub fn add(&mut self, socket: ControlSocket) -> Connection {
        self.last += 1;
        let client = Client {
            socket,
            tid: None,
            offered: None,
            watches_write: false,
            process: None,
            is_idle: false,
            write_closed: false,
            backlog_end: None,
        };
        self.clients.insert(self.last, client);
        self.last
    }

    /// Returns the connection with the given number.
    pub fn get_mut(&mut self, connection: Connection) -> Option<&mut Client> {
        self.clients.get_mut(&connection)
    }

    /// Returns the pidfd of a task's process, if this daemon has not started that process.
    pub fn process_of(&self, tid: Tid) -> Option<BorrowedFd<'_>> {
        self.clients.get(&self.of_task(tid)?)?.process.as_ref().map(AsFd::as_fd)
    }

    /// Returns the connection of a task.
    pub fn of_task(&self, tid: Tid) -> Option<Connection> {
        self.tasks.get(&tid)?.connection
    }

    /// Closes a connection. Returns its task.
    pub fn close(&mut self, connection: Connection) -> Option<Tid> {
        let client = self.clients.remove(&connection)?;
        let tid = client.tid?;
        if let Some(task) = self.tasks.get_mut(&tid).filter(|task| task.connection == Some(connection)) {
            (task.connection, task.descriptors) = (None, None);
        }
        self.count(-1, -i32::from(client.is_idle));
        Some(tid)
    }

    /// Notes that a task sleeps, or is awake again.
    pub fn set_idle(&mut self, connection: Connection, is_idle: bool) {
        let Some(client) = self.clients.get_mut(&connection).filter(|client| client.tid.is_some()) else { return };
        let was_idle = std::mem::replace(&mut client.is_idle, is_idle);
        self.count(0, i32::from(is_idle) - i32::from(was_idle));
    }

    fn count(&mut self, connected: i32, idle: i32) {
        self.connected = self.connected.saturating_add_signed(connected);
        self.idle = self.idle.saturating_add_signed(idle);
        self.ports.set_tasks(self.connected, self.connected - self.idle);
    }

    /// Tells all tasks about multicasts.
    pub fn tell_advice(&self, words: [u64; ADVICE_WORDS]) {
        self.ports.set_advice(words);
    }

    /// Tells all tasks whether they are several.
    pub fn tell_company(&self, company: Company) {
        self.ports.set_company(company == Company::Several);
    }

    /// Takes the connections whose queues have changed: a queue may now wait for the socket, or wait no more.
    pub fn take_touched(&mut self) -> Vec<Connection> {
        std::mem::take(&mut self.touched)
    }

    // ----- what the machine wants

    /// Adds a task whose tid is in use from now on.
    pub fn add_task(&mut self, tid: Tid) {
        self.tasks.insert(tid, TaskRecord::default());
        self.ports.set(tid.0);
    }

    /// Removes a task that is gone. Returns its connection, which is to be closed.
    pub fn forget(&mut self, tid: Tid) -> Option<Connection> {
        self.ports.clear(tid.0);
        self.tasks.remove(&tid)?.connection
    }

    /// Lets a task enroll and sends the frames that have waited for it. Returns false if its connection has ended.
    #[must_use]
    pub fn welcome(&mut self, connection: Connection, tid: Tid, welcome: Welcome) -> bool {
        let (Some(client), Some(task)) = (self.clients.get_mut(&connection), self.tasks.get_mut(&tid)) else {
            return false;
        };
        client.tid = Some(tid);
        task.connection = Some(connection);
        let offered = client.offered.take();
        let table = self.ports.descriptor();
        let frame = ToTask::Welcome(welcome);
        let result = match task.blank.take() {
            Some([segment, bell]) => client.socket.send_to_task(&frame, &[table, segment.as_fd(), bell.as_fd()]),
            None => {
                task.descriptors = offered.map(Rc::new);
                client.socket.send_to_task(&frame, &[table])
            }
        };
        let waiting = task.take_waiting();
        self.ports.frame_sent(tid.0);
        self.sent(connection, result);
        self.count(1, 0);
        for (frame, descriptors) in waiting {
            self.deliver(tid, frame, descriptors);
        }
        true
    }

    /// Sends a frame to a task, or keeps it until the task has enrolled.
    pub fn send(&mut self, tid: Tid, frame: ToTask) {
        self.deliver(tid, frame, None);
    }

    /// Introduces two tasks to each other.
    pub fn introduce(&mut self, one: Tid, other: Tid) -> io::Result<()> {
        let (ones, others) = (self.descriptors(one)?, self.descriptors(other)?);
        // Neither may send before the other has to read this frame first: a message that the first message has caused
        // must not be received before the queue is known.
        [one, other].into_iter().for_each(|tid| self.announce_message(tid));
        self.deliver(one, ToTask::Peer(other), others);
        if one != other {
            self.deliver(other, ToTask::Peer(one), ones);
        }
        Ok(())
    }

    /// Introduces a task and the daemon to each other. `endpoint` is the daemon's.
    pub fn introduce_daemon(&mut self, task: Tid, endpoint: &mut Endpoint) -> io::Result<()> {
        let Some(own) = self.descriptors(task)? else { return Ok(()) };
        endpoint.connect(task.0, own.segment.try_clone()?, own.bell.try_clone()?)?;
        let daemon = self.daemon.clone();
        self.deliver(task, ToTask::Peer(self.host), daemon);
        Ok(())
    }

    /// Returns the descriptors of a task. Makes them for a task that has not enrolled.
    fn descriptors(&mut self, tid: Tid) -> io::Result<Option<Rc<Descriptors>>> {
        let Some(task) = self.tasks.get_mut(&tid) else { return Ok(None) };
        if task.descriptors.is_none() && task.connection.is_none() {
            let PreallocatedEndpoint { own, shown: [segment, bell] } = PreallocatedEndpoint::new()?;
            task.blank = Some(own);
            task.descriptors = Some(Rc::new(Descriptors { segment, bell }));
        }
        Ok(task.descriptors.clone())
    }

    fn deliver(&mut self, tid: Tid, frame: ToTask, descriptors: Option<Rc<Descriptors>>) {
        let Some(task) = self.tasks.get_mut(&tid) else { return };
        let Some(connection) = task.connection else {
            if let ToTask::Message(message) = &frame {
                if task.waiting_bytes > self.backlog_bytes_max {
                    return;
                }
                task.waiting_bytes += message.body.len() + size_of_val(message);
            }
            if is_ordered(&frame) {
                self.announce_message(tid);
            }
            if let Some(task) = self.tasks.get_mut(&tid) {
                task.keep(frame, descriptors);
            }
            return;
        };
        let Some(client) = self.clients.get_mut(&connection).filter(|client| !client.write_closed) else { return };
        if client.socket.has_backlog_over(self.backlog_bytes_max) {
            client.write_closed = true;
            return self.to_close.push(connection);
        }
        let carried: Vec<BorrowedFd<'_>> = match &descriptors {
            Some(own) => vec![own.segment.as_fd(), own.bell.as_fd()],
            None => Vec::new(),
        };
        let result = client.socket.send_to_task(&frame, &carried);
        match frame {
            frame if is_ordered(&frame) => self.ports.message_sent(tid.0),
            _ => self.ports.frame_sent(tid.0),
        }
        self.sent(connection, result);
    }

    /// Notes that the next frame to a task is one for which messages of other tasks have to wait.
    fn announce_message(&mut self, tid: Tid) {
        let Some(task) = self.tasks.get(&tid) else { return };
        // If the task has not enrolled, the welcome goes before the frames that wait.
        let before = if task.connection.is_some() { 0 } else { 1 + task.numbered as u32 };
        self.ports.message_queued(tid.0, before + 1);
    }

    /// Sends a frame with descriptors to a task that has enrolled.
    pub fn send_with(&mut self, tid: Tid, frame: &ToTask, descriptors: &[BorrowedFd<'_>]) {
        let Some(connection) = self.of_task(tid) else { return };
        let Some(client) = self.clients.get_mut(&connection).filter(|client| !client.write_closed) else { return };
        let result = client.socket.send_to_task(frame, descriptors);
        self.ports.frame_sent(tid.0);
        self.sent(connection, result);
    }

    /// Returns whether a task hears releases of barriers itself.
    pub fn hears_releases(&self, tid: Tid) -> bool {
        self.tasks.get(&tid).is_some_and(|task| task.hears_releases)
    }

    /// Passes a task the socket on which it hears releases of barriers.
    pub fn give_release_socket(&mut self, tid: Tid, socket: BorrowedFd<'_>) {
        if let Some(task) = self.tasks.get_mut(&tid) {
            task.hears_releases = true;
            self.send_with(tid, &ToTask::ReleaseSocket, &[socket]);
        }
    }

    fn sent(&mut self, connection: Connection, result: Result<(), ControlError>) {
        self.note_write(connection, result);
        self.touched.push(connection);
    }

    /// Closes a connection after a failed write, since the task would wait for ever for the frame that was not sent.
    fn note_write(&mut self, connection: Connection, result: Result<(), ControlError>) {
        if let (Err(error), Some(client)) = (result, self.clients.get_mut(&connection)) {
            client.write_closed = true;
            // A connection that the task has closed is closed when its last frames are read.
            if error != ControlError::Closed {
                self.to_close.push(connection);
            }
        }
    }

    /// Writes the frames that wait for the socket of a connection.
    pub fn flush(&mut self, connection: Connection) {
        let Some(client) = self.clients.get_mut(&connection) else { return };
        let result = client.socket.flush();
        self.note_write(connection, result);
    }

    /// Returns the segment and the doorbell of a task.
    pub fn memory_of(&self, tid: Tid) -> Option<&Descriptors> {
        self.tasks.get(&tid)?.descriptors.as_deref()
    }

    /// Returns how many frames were sent to a task; wraps.
    pub fn frames_to(&self, tid: Tid) -> u32 {
        self.ports.frames_to(tid.0)
    }

    /// Rings a task's doorbell.
    pub fn ring(&self, tid: Tid) {
        if let Some(own) = self.tasks.get(&tid).and_then(|task| task.descriptors.as_ref()) {
            pvm_fmp::doorbell::ring(own.bell.as_fd());
        }
    }
}

/// Returns whether what tasks of this host send to a task after this frame must not be received before it: a message, or
/// the introduction of a peer that may have sent one.
fn is_ordered(frame: &ToTask) -> bool {
    matches!(frame, ToTask::Message(_) | ToTask::Peer(_))
}

/// Returns how many tasks can run at once. A control group's quota is a share of time: with one of 1.5 cores, two tasks run at
/// once for three quarters of the time.
pub fn cores() -> u32 {
    let by_time = std::thread::available_parallelism().map_or(1, |cores| cores.get() as u32);
    let allowed = rustix::thread::sched_getaffinity(None).map_or(by_time, |allowed| allowed.count());
    if allowed > by_time { by_time + 1 } else { by_time }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pvm_core::fabric::Wish;
    use pvm_core::proto::{ByteBuf, Message, Order, TraceSettings};
    use pvm_fmp::ports::PortView;

    #[test]
    fn of_the_dead_peers_of_a_task_that_never_enrolls_not_all_are_kept() {
        let mut connections = Connections::new(Tid(0x40000)).unwrap();
        let task = Tid(0x40001);
        connections.add_task(task);
        let file = || OwnedFd::from(std::fs::File::open("/dev/null").unwrap());
        let descriptors = Rc::new(Descriptors { segment: file(), bell: file() });
        let peer = |number: usize| Tid(0x40002 + number as u32);
        for number in 0..DEAD_PEERS_MAX + 3 {
            connections.deliver(task, ToTask::Peer(peer(number)), Some(descriptors.clone()));
            // Who lives is kept.
            if number > 0 {
                connections.send(task, ToTask::PeerGone(peer(number)));
            }
        }
        let task = connections.tasks.get_mut(&task).unwrap();
        assert_eq!(task.waiting.len(), 1 + 2 * DEAD_PEERS_MAX);
        let frames: Vec<ToTask> = task.take_waiting().map(|(frame, _)| frame).collect();
        assert_eq!(frames.len(), 2 * (DEAD_PEERS_MAX + 3) - 1, "frames are counted");
        let nothing = ToTask::PeerGone(Tid::NONE);
        assert_eq!(frames[..2], [ToTask::Peer(peer(0)), nothing.clone()]);
        assert_eq!(frames[3..6], [nothing.clone(), nothing, ToTask::Peer(peer(3))]);
        assert_eq!(frames[6], ToTask::PeerGone(peer(3)));
    }

    #[test]
    fn a_backlog_counts_as_sent_although_more_is_added() {
        let (mut reader, link) = ControlSocket::pair().unwrap();
        let mut connections = Connections::new(Tid(0x40000)).unwrap();
        let number = connections.add(link);
        let client = connections.get_mut(number).unwrap();
        assert!(client.has_sent_backlog(), "nothing waits");
        let message = |tag| Message::new(Tid::DAEMON, Tid(0x40001), 0, tag, vec![0; 100_000]);
        for tag in 0..40 {
            client.socket.send_to_task(&ToTask::Message(message(tag)), &[]).unwrap();
        }
        assert!(!client.has_sent_backlog());
        for tag in 40..100 {
            client.socket.send_to_task(&ToTask::Message(message(tag)), &[]).unwrap();
            while reader.receive_from_daemon().unwrap().is_none() {
                client.socket.flush().unwrap();
            }
            client.socket.flush().unwrap();
            if client.has_sent_backlog() {
                assert!(tag < 80 && client.socket.queued_bytes() > 1_000_000, "{tag}");
                return;
            }
        }
        panic!("what waited was never taken");
    }

    #[test]
    fn tasks_that_sleep_or_are_gone_do_not_crowd_the_cores() {
        let mut connections = Connections::new(Tid(0x40000)).unwrap();
        let view = PortView::new(connections.ports().unwrap()).unwrap();
        let cores = cores();
        let tasks: Vec<_> = (1..=cores + 1)
            .map(|slot| {
                let (peer, link) = ControlSocket::pair().unwrap();
                let (number, tid) = (connections.add(link), Tid(0x40000 + slot));
                connections.set_idle(number, true);
                connections.add_task(tid);
                let (own, fabric) = (TraceSettings::default(), Wish::default());
                let welcome =
                    Welcome { tid, parent: 0, dsig: 0, own, resource_manager: Tid::NONE, fabric, order: Order::Hosts };
                assert!(connections.welcome(number, tid, welcome.clone()));
                assert!(!connections.welcome(number + 9, tid, welcome), "its connection has ended");
                (number, peer)
            })
            .collect();
        assert!(view.crowded(), "reports before the welcome are ignored");
        let (first, last) = (tasks[0].0, tasks[cores as usize].0);
        for _ in 0..2 {
            connections.set_idle(first, true);
            assert!(!view.crowded() && view.may_be_crowded());
        }
        connections.set_idle(first, false);
        assert!(view.crowded());
        connections.set_idle(first, true);
        connections.close(first);
        assert!(!view.crowded() && !view.may_be_crowded());
        connections.close(last);
        assert_eq!((connections.connected, connections.idle), (cores - 1, 0));
    }

    #[test]
    fn messages_to_a_task_that_has_not_come_keep_the_order_of_all_senders() {
        let (sender, tid) = (Tid(0x40001), Tid(0x40002));
        let mut connections = Connections::new(Tid(0x40000)).unwrap();
        let ports = connections.ports().unwrap();
        let view = || PortView::new(ports.try_clone().unwrap()).unwrap();
        connections.add_task(sender);
        connections.add_task(tid);
        let mut from = Endpoint::new().unwrap();
        from.enrolled(sender.0, view());
        let shown = connections.descriptors(tid).unwrap().unwrap();
        from.connect(tid.0, shown.segment.try_clone().unwrap(), shown.bell.try_clone().unwrap()).unwrap();

        for tag in 0..3 {
            connections.send(tid, ToTask::Message(Message::new(Tid::DAEMON, tid, 0, tag, Vec::new())));
        }
        assert_eq!(from.send_bytes(tid.0, [1; 6], b"after them"), Ok(pvm_fmp::Sent::Done));
        let [segment, bell] = connections.tasks.get_mut(&tid).unwrap().blank.take().unwrap();
        let mut to = Endpoint::adopt(segment, bell).unwrap();
        to.enrolled(tid.0, view());
        let [segment, bell] = from.descriptors().unwrap();
        to.connect(sender.0, segment, bell).unwrap();
        // The welcome, and the three.
        for _ in 0..4 {
            to.frame_taken();
            let last = to.next_frame() == 5;
            assert_eq!(to.poll(&mut Taken(0)), usize::from(last));
        }
    }

    /// A sink that counts.
    struct Taken(usize);

    impl pvm_fmp::Sink for Taken {
        fn arrived(&mut self, _from: u32, _meta: pvm_fmp::Meta, _body: pvm_fmp::Arrival<'_>) {
            self.0 += 1;
        }
    }

    #[test]
    fn what_waits_for_a_task_that_has_not_come_is_bounded() {
        let (host, tid) = (Tid(0x40000), Tid(0x40001));
        let mut connections = Connections::new(host).unwrap();
        connections.limit_backlog(100_000);
        connections.add_task(tid);
        for _ in 0..1000 {
            let body = ByteBuf::from(vec![0; 1000]);
            let message = Message { src: host, dst: tid, ctx: 0, tag: 1, wid: 0, enc: 0, format: 0, body };
            connections.send(tid, ToTask::Message(message));
        }
        assert!((100_000..110_000).contains(&connections.backlog_of(tid)), "{}", connections.backlog_of(tid));
        assert!(connections.tasks[&tid].waiting.len() < 100);
    }
}
