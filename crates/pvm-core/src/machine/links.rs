//! The links to other daemons: made when needed, watched, lost.
use super::{Machine, Time};
use crate::proto::ByteBuf;
use crate::tid::Tid;
use crate::wire::{Frame, StartFailure, Started};

impl Machine {
    /// A frame of another daemon, from its control link or out of a flow.
    pub fn handle_host_frame(&mut self, _now: Time, _from: Tid, _frame: Frame) {}

    /// Bytes came on the control link, though perhaps no whole frame.
    pub fn handle_heard(&mut self, _now: Time, _host: Tid) {}

    /// Both links to the host stand.
    pub fn handle_link_up(&mut self, _now: Time, _host: Tid) {}

    /// A link to the host could not be made, or is gone.
    pub fn handle_link_down(&mut self, _now: Time, _host: Tid) {}

    /// There is something for the host: if there is no link, it is to be made.
    pub fn want_link(&mut self, _now: Time, _host: Tid) {}

    /// What became of the start of a host's daemon.
    pub fn handle_host_started(
        &mut self,
        _now: Time,
        _request: u32,
        _index: usize,
        result: Result<Started, StartFailure>,
    ) {
        drop(result);
    }

    /// By which commands the hoster is to start the daemons: the index of each host, the command.
    pub fn handle_start_commands(&mut self, _request: u32, commands: Vec<(usize, ByteBuf)>) {
        drop(commands);
    }
}
