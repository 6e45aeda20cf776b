//! The task: what its parts do together. This file: enrolling and leaving. The other modules have the calls of a program.
mod buffers;
mod fast_path;
mod fmp;
mod groups;
mod handlers;
mod options;
mod output;
mod pack;
mod precv;
mod publish;
mod receive;
mod requests;
mod send;
mod trace;
mod unpack;
mod visibility;
mod wait;

pub use fast_path::FastSend;
pub use fmp::{FmpFound, FmpReceived, FmpSide};
pub use groups::{BarrierArrival, Collective, GroupMember};
pub use requests::call_of;
pub use wait::{Step, Waiter};

use crate::member::{Loss, Member};
use crate::state::State;
use crate::{EnrollError, Environment};
use pvm_core::codes::{Code, native_dsig};
use pvm_core::tid::Tid;
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

/// Enrolling and leaving.
impl Task {
    /// Returns a task that is not enrolled.
    pub fn new(environment: &Environment) -> Task {
        Task { state: State::new(environment), member: None, cookie: environment.cookie }
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
        self.enter(member);
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

    /// Notes that the daemon has accepted the task.
    pub(crate) fn enter(&mut self, member: Member) {
        self.state.own = member.tid.0 as i32;
        self.member = Some(member);
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
        debug_assert!(self.member.as_ref().is_none_or(|member| member.tid.0 as i32 == self.state.own));
        self.state.own
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
        self.state.leave();
        member.leave()
    }

    /// Returns whether messages that were sent are still in this process (see [`Task::hand_over`]).
    pub fn holds_back(&self) -> bool {
        let holds = |member: &Member| {
            member.daemon.as_ref().is_some_and(|socket| socket.wants_write()) || member.holds_messages()
        };
        self.member.as_ref().is_some_and(holds)
    }

    /// Hands over to the daemon the sent messages that are still in this process. Called before the process ends, even
    /// if the task has not left the machine.
    pub fn hand_over(&mut self) {
        let Some(member) = &mut self.member else { return };
        member.hand_over_links(&mut self.state);
        member.send_last_frames();
    }

    /// In a child of `fork()`, takes over the parent's task, and notifies the daemon. The parent must have ended
    /// without using the task after the fork. Returns `false`, with nothing changed, if that is not possible.
    pub fn inherit(&mut self) -> bool {
        self.member.as_mut().is_some_and(Member::inherit)
    }

    /// Ends what a call has begun that the program has left by `longjmp`.
    pub fn left_by_jump(&mut self) {
        self.publish_running();
        if let Some(member) = &mut self.member {
            member.endpoint.withdraw_open_stream();
        }
    }

    /// In a child of `fork()`, drops the copy of the parent's task, without touching the memory that the parent shares
    /// with other tasks.
    pub fn abandon(mut self) {
        if let Some(member) = &mut self.member {
            member.abandon();
        }
        // Dropping the other fields would write to the parent's segment.
        std::mem::forget(self);
    }

    /// Returns the control socket, the doorbell and the descriptor for all direct links, for `pvm_getfds` and
    /// `poll(2)`.
    pub fn descriptors(&mut self) -> Option<[BorrowedFd<'_>; 3]> {
        self.note_closed_descriptors();
        let member = self.member.as_mut()?;
        let links = member.direct.descriptor()?;
        Some([member.daemon.as_ref()?.as_fd(), member.endpoint.bell(), links])
    }
}
