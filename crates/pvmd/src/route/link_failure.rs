//! Why a data link has failed.
use pvm_core::flows::ProtocolViolation;
use pvm_net::LinkError;

/// Why a data link has failed.
pub(super) enum LinkFailure {
    Link(LinkError),
    ProtocolViolation,
}

impl From<LinkError> for LinkFailure {
    fn from(error: LinkError) -> LinkFailure {
        LinkFailure::Link(error)
    }
}

impl From<ProtocolViolation> for LinkFailure {
    fn from(_: ProtocolViolation) -> LinkFailure {
        LinkFailure::ProtocolViolation
    }
}

impl std::fmt::Display for LinkFailure {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            LinkFailure::Link(error) => write!(formatter, "{error}"),
            LinkFailure::ProtocolViolation => formatter.write_str("protocol violation"),
        }
    }
}
