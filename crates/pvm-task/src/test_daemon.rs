//! The daemon's side of a task in unit tests. It has no process and no thread; the test decides what it sends.
use crate::member::Member;
use crate::{Environment, Task};
use pvm_core::fabric::Wish;
use pvm_core::proto::{Message, Order, Reply, Request, ToDaemon, ToTask, TraceSettings, Welcome};
use pvm_core::tid::Tid;
use pvm_fmp::Endpoint;
use pvm_fmp::ports::{ADVICE_WORDS, PortTable, PortView};
use pvm_link::ControlSocket;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// The daemon of one task.
pub(crate) struct TestDaemon {
    socket: Option<ControlSocket>,
    ports: PortTable,
    /// Segment and doorbell of the task.
    shown: [OwnedFd; 2],
}

/// Returns an enrolled task with this tid, and the task's daemon.
pub(crate) fn enrolled(tid: Tid) -> (Task, TestDaemon) {
    let (near, mut socket) = ControlSocket::pair().unwrap();
    let welcome = Welcome {
        tid,
        parent: 0,
        dsig: 1,
        own: TraceSettings::default(),
        resource_manager: Tid::NONE,
        fabric: Wish::default(),
        order: Order::Hosts,
    };
    let ports = PortTable::new(16).unwrap();
    ports.set(tid.0);
    socket.send_to_task(&ToTask::Welcome(welcome), &[ports.descriptor()]).unwrap();
    ports.frame_sent(tid.0);
    let environment = Environment::from_lookup(|_| None);
    let (member, _) = Member::enter(near, &environment, None).ok().unwrap();
    let mut task = Task::new(&environment);
    task.enter(member);
    let Some((ToDaemon::Hello(_), shown)) = socket.receive_from_task().unwrap() else { panic!("no hello") };
    let shown = shown.try_into().unwrap();
    (task, TestDaemon { socket: Some(socket), ports, shown })
}

impl TestDaemon {
    /// Sends a frame to the task, which does not take it in yet.
    pub fn queue(&mut self, frame: &ToTask, descriptors: &[BorrowedFd<'_>]) {
        self.socket.as_mut().unwrap().send_to_task(frame, descriptors).unwrap();
    }

    /// Sends a frame to the task and makes the task take it in.
    pub fn send(&mut self, task: &mut Task, frame: &ToTask, descriptors: &[BorrowedFd<'_>]) {
        self.queue(frame, descriptors);
        self.ports.frame_sent(task.tid().unwrap().0);
        task.progress();
    }

    /// Sends a message of its own to the task, which does not take it in yet.
    pub fn queue_message(&mut self, message: Message) {
        let task = message.dst;
        self.queue(&ToTask::Message(message), &[]);
        self.ports.message_sent(task.0);
    }

    /// Tells the task about multicasts.
    pub fn tell_advice(&mut self, word: u64) {
        self.ports.set_advice([word; ADVICE_WORDS]);
    }

    /// Writes the frames that did not fit the socket.
    pub fn flush(&mut self) {
        self.socket.as_mut().unwrap().flush().unwrap();
    }

    /// Counts a message to the task that does not reach it.
    pub fn count_lost_message(&mut self, task: Tid) {
        self.ports.message_sent(task.0);
    }

    /// Returns an endpoint of the daemon, to which the task is connected.
    pub fn introduce_itself(&mut self, task: &mut Task) -> Endpoint {
        let tid = task.tid().unwrap();
        let endpoint = self.introduce(tid, tid.host());
        task.progress();
        endpoint
    }

    /// Returns an endpoint of a peer, to which the task is connected. The task does not take in the introduction yet.
    pub fn introduce(&mut self, task: Tid, peer: Tid) -> Endpoint {
        self.ports.set(peer.0);
        let mut endpoint = Endpoint::new().unwrap();
        endpoint.enrolled(peer.0, PortView::new(self.ports.descriptor().try_clone_to_owned().unwrap()).unwrap());
        let [segment, bell] = self.shown.each_ref().map(|descriptor| descriptor.try_clone().unwrap());
        endpoint.connect(task.0, segment, bell).unwrap();
        let [segment, bell] = endpoint.descriptors().unwrap();
        self.queue(&ToTask::Peer(peer), &[segment.as_fd(), bell.as_fd()]);
        self.ports.frame_sent(task.0);
        endpoint
    }

    /// Tells the task whether there are other tasks on its host.
    pub fn set_company(&mut self, several: bool) {
        self.ports.set_company(several);
    }

    /// Answers a request.
    pub fn reply(&mut self, task: &mut Task, number: u32, reply: Reply) {
        self.send(task, &ToTask::Reply { wait: number, reply }, &[]);
    }

    /// Returns the frames that have arrived from the task.
    pub fn frames(&mut self) -> Vec<ToDaemon> {
        let socket = self.socket.as_mut().unwrap();
        std::iter::from_fn(|| socket.receive_from_task().unwrap()).map(|(frame, _)| frame).collect()
    }

    /// Returns the requests among the frames that have arrived, with their numbers.
    pub fn requests(&mut self) -> Vec<(u32, Request)> {
        let request = |frame| match frame {
            ToDaemon::Request { wait, request } => Some((wait, request)),
            _ => None,
        };
        self.frames().into_iter().filter_map(request).collect()
    }

    /// Ends the daemon and lets the task notice.
    pub fn die(&mut self, task: &mut Task) {
        self.socket = None;
        task.member.as_mut().unwrap().request_socket_poll();
        task.progress();
        assert!(!task.is_connected());
    }
}
