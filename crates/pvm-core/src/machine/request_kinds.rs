//! Who decides a request of a task.
use crate::proto::{Request, Role};
use crate::tid::Tid;

/// The first argument of a `pvm_tickle` that declares a host to have failed.
pub(super) const DECLARE_FAILED: i32 = 8;

/// Returns the host that a `pvm_tickle` declares to have failed. Only the master executes such a request, just as only
/// the master deletes hosts.
pub(super) fn declared_failed(arguments: &[i32]) -> Option<Tid> {
    match arguments {
        [DECLARE_FAILED, host, ..] => Some(Tid(*host as u32)),
        _ => None,
    }
}

/// Returns whether the master alone decides the request of a task, wherever the task lives.
pub(super) fn is_of_master(request: &Request) -> bool {
    match request {
        Request::Tasks(place) => *place == Tid::NONE,
        Request::AddHosts(_)
        | Request::AwaitHosts
        | Request::DeleteHosts(_)
        | Request::DrainHosts { .. }
        | Request::PutInfo { .. }
        | Request::RecvInfo { .. }
        | Request::DeleteInfo { .. }
        | Request::MailboxInfo { .. }
        | Request::ResetInfo { .. }
        | Request::SetTracer(_)
        | Request::JoinGroup(_)
        | Request::LeaveGroup(_)
        | Request::Group(_)
        | Request::FreezeGroup { .. }
        | Request::SetGroupHost(_)
        | Request::GroupPlaces
        | Request::LostHosts
        | Request::Halt => true,
        Request::Register { role, .. } => *role != Role::Tasker,
        Request::Tickle(arguments) => declared_failed(arguments).is_some(),
        _ => false,
    }
}
