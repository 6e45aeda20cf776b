//! The task: enrolling and leaving.
use crate::backlog::Backlog;
use crate::buffers::Store;
use crate::channel::RouteSwitches;
use crate::control::{Loss, Member};
use crate::handlers::Handlers;
use crate::local_notify::LocalNotifies;
use crate::options::Settings;
use crate::output::Output;
use crate::trace::Tracer;
use crate::wait::Parker;
use crate::{EnrollError, Environment};
use pvm_core::codes::{Code, native_dsig};
use pvm_core::tid::Tid;
use pvm_fmp::Waits;
use std::os::fd::BorrowedFd;

/// One task: its buffers, its message queue, its membership of the machine.
///
/// [`Task::new`] needs no daemon. Buffers, options, contexts and handlers work at once (the calls that the
/// contract marks NE), everything else after [`Task::enroll`].
pub struct Task {
    pub(crate) state: State,
    pub(crate) member: Option<Member>,
    /// The value of `PVMEPID`, until it has been used. With this value the task can claim, once, the tid that a spawn
    /// has reserved.
    cookie: Option<u32>,
}

/// The part of a task that needs no machine.
pub(crate) struct State {
    pub store: Store,
    pub handlers: Handlers,
    pub context: i32,
    pub settings: Settings,
    pub output: Output,
    pub notifies: LocalNotifies,
    pub tracer: Tracer,
    /// Route switches of direct links that have arrived on the default route.
    pub route_switches: RouteSwitches,
    /// What has arrived behind gaps.
    pub backlog: Backlog,
    /// The sender of the last message that has arrived by the default route, until links on the fabric are told.
    pub heard: Option<Tid>,
    /// Whether messages or events have arrived since the last [`Task::take_news`].
    pub news: bool,
    /// See [`Task::note_synchronized`].
    pub synchronized: bool,
    /// How long a wait for a message or an answer spins and yields before the thread sleeps.
    pub waits: Waits,
}

/// Enrolling and leaving.
impl Task {
    /// Returns a task that is not enrolled.
    pub fn new(environment: &Environment) -> Task {
        let mut settings = Settings::new(environment.debug_mask.unwrap_or(0));
        settings.inherit_environment(environment);
        let state = State {
            store: Store::new(),
            handlers: Handlers::default(),
            context: environment.context.unwrap_or(0),
            settings,
            output: Output::default(),
            notifies: LocalNotifies::default(),
            tracer: Tracer::default(),
            route_switches: RouteSwitches::default(),
            backlog: Backlog::default(),
            heard: None,
            news: false,
            synchronized: false,
            waits: Waits::default(),
        };
        Task { state, member: None, cookie: environment.cookie }
    }

    /// Joins the machine; tries once and waits for the daemon's welcome. Buffers stay as they are. A task
    /// that has left can enroll again and gets a new tid.
    pub fn enroll(&mut self, environment: &Environment) -> Result<Tid, EnrollError> {
        if let Some(member) = &self.member {
            return Ok(member.tid);
        }
        let (member, own) = Member::enroll(environment, self.cookie)?;
        self.cookie = None;
        let tid = member.tid;
        self.member = Some(member);
        // Trace settings of the daemon are newer than those in the environment.
        let has_settings = !own.mask.is_empty();
        self.state.settings.inherit(own);
        if !has_settings {
            self.state.settings.inherit_environment(environment);
        }
        self.state.handlers.enter_system();
        self.tell_route();
        Ok(tid)
    }

    /// Returns whether the task has a tid (also while the daemon is gone).
    pub fn is_enrolled(&self) -> bool {
        self.member.is_some()
    }

    /// Returns whether the task is enrolled and connected to its daemon.
    pub fn is_connected(&self) -> bool {
        self.member.as_ref().is_some_and(|member| member.daemon.is_some())
    }

    /// Looks whether the program has closed descriptors of the library.
    pub fn note_closed_descriptors(&mut self) {
        if let Some(member) = self.member.as_mut().filter(|member| member.has_closed_descriptors()) {
            member.lose_daemon();
        }
    }

    /// Returns whether it is known that the program has closed descriptors of the library. The task can only leave, and enroll
    /// again.
    pub fn has_lost_descriptors(&self) -> bool {
        self.member.as_ref().is_some_and(|member| member.loss == Some(Loss::DescriptorsClosed))
    }

    /// Returns whether a message that may be from the task `source` ([`ANY`](crate::ANY): from any) has come and cannot
    /// be received now for lack of address space (`ulimit -v`). Every call of the library tries again to receive it, so
    /// the caller may go on waiting for it.
    #[inline]
    pub fn is_starved(&mut self, source: i32) -> bool {
        self.member.as_mut().is_some_and(|member| member.is_starved(&mut self.state, source))
    }

    /// Lets the next tries of a call that waits look for messages on direct links each time, for a call that may try only
    /// a few times.
    pub fn expect_messages(&mut self) {
        if let Some(member) = &mut self.member {
            member.direct.expect_messages();
        }
    }

    /// Returns whether the daemon has announced that the machine halts.
    pub fn is_halting(&self) -> bool {
        self.member.as_ref().is_some_and(|member| member.halting.is_some())
    }

    /// Returns why the machine ends or has ended, if nobody has asked for it.
    pub fn why_halting(&self) -> Option<&str> {
        self.member.as_ref()?.halting.as_deref().filter(|why| !why.is_empty())
    }

    /// Returns the tid of this task.
    pub fn tid(&self) -> Option<Tid> {
        self.member.as_ref().map(|member| member.tid)
    }

    /// Returns the tid of this task as messages carry it, 0 for none.
    pub(crate) fn own_tid(&self) -> i32 {
        self.member.as_ref().map_or(0, |member| member.tid.0 as i32)
    }

    /// `pvm_parent`: returns the spawner's tid, or the error `NoParent` or `ParentNotSet`. Fails with `SysErr` if the
    /// task is not enrolled.
    pub fn parent(&self) -> Result<Tid, Code> {
        match self.member.as_ref().ok_or(Code::SysErr)?.parent {
            0 => Err(Code::NoParent),
            parent if parent == Code::ParentNotSet.number() => Err(Code::ParentNotSet),
            parent => Ok(Tid(parent as u32)),
        }
    }

    /// Returns the data signature of the host.
    pub fn dsig(&self) -> i32 {
        self.member.as_ref().map_or(native_dsig(), |member| member.dsig)
    }

    /// Begins `pvm_exit`: turns the notifies that report the task's own exit into handler calls
    /// ([`Task::next_handler_call`]).
    pub fn begin_leave(&mut self) {
        let own = self.own_tid();
        for (ctx, tag) in self.state.notifies.take_own_exit() {
            self.state.notify_locally(ctx, tag, &[own]);
        }
        self.reveal_all();
    }

    /// Ends `pvm_exit`: drops queued messages and handlers, notifies the daemon, disconnects. Afterwards the task is
    /// not enrolled, whatever the result. Fails with `SysErr` if the daemon was gone before.
    pub fn leave(&mut self) -> Result<(), Code> {
        let Some(mut member) = self.member.take() else { return Ok(()) };
        member.hand_over_links(&mut self.state);
        self.state.clear_backlog();
        self.state.store.clear_queue();
        for message in &mut self.state.store.table {
            message.detach();
        }
        self.state.handlers = Handlers::default();
        self.state.output = Output::default();
        self.state.notifies = LocalNotifies::default();
        self.state.route_switches = RouteSwitches::default();
        self.state.settings.no_reset = None;
        self.state.settings.own.trace_tid = 0;
        self.state.news = true;
        member.leave()
    }

    /// In a child of `fork()`, takes over the parent's task, and notifies the daemon. The parent must have ended
    /// without using the task after the fork. Returns `false`, with nothing changed, if that is not possible.
    pub fn inherit(&mut self) -> bool {
        self.member.as_mut().is_some_and(Member::inherit)
    }

    /// Ends what a call has begun that the program has left by `longjmp`.
    pub fn left_by_jump(&mut self) {
        if let Some(member) = &mut self.member {
            member.endpoint.withdraw_open_stream();
        }
    }

    /// In a child of `fork()`, drops the copy of the parent's task, without touching the memory that the parent shares
    /// with other tasks.
    pub fn abandon(mut self) {
        if let Some(member) = &mut self.member {
            // This closes the child's copies only. The daemon notices the end of the parent once all
            // copies are closed.
            drop(member.daemon.take());
            member.parker = Parker::default();
            drop(std::mem::take(&mut member.direct));
            member.fabric.abandon();
        }
        // Dropping the other fields would write to the parent's segment.
        std::mem::forget(self);
    }
}

/// Descriptors.
impl Task {
    /// Returns the control socket, the doorbell and the descriptor for all direct links, for `pvm_getfds` and
    /// `poll(2)`.
    pub fn descriptors(&mut self) -> Option<[BorrowedFd<'_>; 3]> {
        self.note_closed_descriptors();
        let member = self.member.as_mut()?;
        let links = member.direct.descriptor()?;
        Some([member.daemon.as_ref()?.as_fd(), member.endpoint.bell(), links])
    }
}
