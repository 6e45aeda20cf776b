//! The data link to one host.
use super::inlet::Inlet;
use super::outlet::Outlet;
use pvm_net::Pipe;

/// A pipe with what is on its way in and out.
pub(super) struct Cable {
    pub pipe: Pipe,
    pub inlet: Inlet,
    pub outlet: Outlet,
}

impl Cable {
    pub fn new(pipe: Pipe) -> Cable {
        Cable { pipe, inlet: Inlet::default(), outlet: Outlet::default() }
    }
}
