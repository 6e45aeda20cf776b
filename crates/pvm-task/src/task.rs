//! The task: coming and going.
use crate::buffers::Store;
use crate::control::Member;
use crate::direct::fallback::RouteSwitches;
use crate::handlers::Handlers;
use crate::local_notify::LocalNotifies;
use crate::options::Settings;
use crate::output::Output;
use crate::trace::Tracer;
use crate::wait::Parker;
use crate::{EnrollError, Environment};
use pvm_core::codes::{Code, native_dsig};
use pvm_core::tid::Tid;
use std::os::fd::BorrowedFd;
use std::path::PathBuf;

/// One task: its buffers, its queue of messages, its place in the machine.
///
/// Made without a daemon by [`Task::new`]; buffers, options, contexts and handlers work at once
/// (the calls that the contract marks NE), the rest after [`Task::enroll`].
pub struct Task {
    pub(crate) state: State,
    pub(crate) member: Option<Member>,
    /// `PVMEPID` names a place that can be taken once.
    cookie: Option<u32>,
}

/// What a task is without the machine.
pub(crate) struct State {
    pub store: Store,
    pub handlers: Handlers,
    pub context: i32,
    pub settings: Settings,
    pub output: Output,
    pub notifies: LocalNotifies,
    pub tracer: Tracer,
    /// What is said on the default route of direct links.
    pub route_switches: RouteSwitches,
    /// Something came since somebody last asked.
    pub news: bool,
    /// See [`Task::note_synchronized`].
    pub synchronized: bool,
}

/// Coming and going.
impl Task {
    /// A task that is not enrolled yet.
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
            news: false,
            synchronized: false,
        };
        Task { state, member: None, cookie: environment.cookie }
    }

    /// Joins the machine. One try; waits for the daemon's welcome. Buffers stay as they are.
    /// After [`Task::leave`] it can be called again and gives a new tid.
    pub fn enroll(&mut self, environment: &Environment) -> Result<Tid, EnrollError> {
        if let Some(member) = &self.member {
            return Ok(member.tid);
        }
        let (member, own) = Member::enroll(environment, self.cookie)?;
        self.cookie = None;
        let tid = member.tid;
        self.member = Some(member);
        // What the daemon says about traces was said later than what stands in the environment.
        let said = !own.mask.is_empty();
        self.state.settings.inherit(own);
        if !said {
            self.state.settings.inherit_environment(environment);
        }
        self.state.handlers.enter_system();
        self.tell_route();
        Ok(tid)
    }

    /// Whether it has a tid (also while the daemon is gone).
    pub fn is_enrolled(&self) -> bool {
        self.member.is_some()
    }

    /// Whether it is enrolled and the daemon is there.
    pub fn is_connected(&self) -> bool {
        self.member.as_ref().is_some_and(|member| member.daemon.is_some())
    }

    /// Whether something that was sent cannot be had for want of address space (`ulimit -v`), as far as was seen
    /// since the last call. It can be waited for: every call tries again.
    #[inline]
    pub fn take_starved(&mut self) -> bool {
        self.member.as_mut().is_some_and(|member| member.take_starved(&mut self.state))
    }

    /// Whether the daemon has said that the machine halts.
    pub fn is_halting(&self) -> bool {
        self.member.as_ref().is_some_and(|member| member.halting)
    }

    /// The own tid.
    pub fn tid(&self) -> Option<Tid> {
        self.member.as_ref().map(|member| member.tid)
    }

    /// The own tid as messages carry it, 0 for none.
    pub(crate) fn own_tid(&self) -> i32 {
        self.member.as_ref().map_or(0, |member| member.tid.0 as i32)
    }

    /// `pvm_parent`: the spawner, `NoParent` or `ParentNotSet`. `SysErr` when not enrolled.
    pub fn parent(&self) -> Result<Tid, Code> {
        match self.member.as_ref().ok_or(Code::SysErr)?.parent {
            0 => Err(Code::NoParent),
            parent if parent == Code::ParentNotSet.number() => Err(Code::ParentNotSet),
            parent => Ok(Tid(parent as u32)),
        }
    }

    /// The host's data signature.
    pub fn dsig(&self) -> i32 {
        self.member.as_ref().map_or(native_dsig(), |member| member.dsig)
    }

    /// The socket of the daemon with which the task talks (for `PVMSOCK`, messages).
    pub fn daemon_socket(&self) -> Option<PathBuf> {
        self.member.as_ref()?.daemon_socket()
    }

    /// The first half of `pvm_exit`: own-exit notifies become handler calls ([`Task::next_handler_call`]).
    pub fn begin_leave(&mut self) {
        let own = self.own_tid();
        for (ctx, tag) in self.state.notifies.take_own_exit() {
            self.state.notify_locally(ctx, tag, &[own]);
        }
        self.reveal_all();
    }

    /// `pvm_exit`: drops queued messages and handlers, says goodbye, disconnects. `SysErr` when the
    /// daemon was gone already (the task is not enrolled afterwards either way).
    pub fn leave(&mut self) -> Result<(), Code> {
        let Some(mut member) = self.member.take() else { return Ok(()) };
        member.hand_over_links(&mut self.state);
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

    /// For a child of `fork()` that takes the place of its parent, which has ended and has done nothing as a task
    /// since: tells the daemon. `false` where that cannot be done; then nothing has happened.
    pub fn inherit(&mut self) -> bool {
        self.member.as_mut().is_some_and(Member::inherit)
    }

    /// For a child of `fork()`: throws away what belongs to the parent without touching it.
    pub fn abandon(mut self) {
        if let Some(member) = &mut self.member {
            // Only the child's copies are closed. While one is open the daemon would not see the
            // parent's end.
            drop(member.daemon.take());
            member.parker = Parker::default();
            drop(std::mem::take(&mut member.direct));
        }
        // Dropping the rest would write to the parent's segment, which is not the child's to touch.
        std::mem::forget(self);
    }
}

/// Descriptors.
impl Task {
    /// The control socket, the doorbell and what stands for direct links, for `pvm_getfds` and
    /// `poll(2)`.
    pub fn descriptors(&mut self) -> Option<[BorrowedFd<'_>; 3]> {
        let member = self.member.as_mut()?;
        let links = member.direct.descriptor()?;
        Some([member.daemon.as_ref()?.as_fd(), member.endpoint.bell(), links])
    }
}
