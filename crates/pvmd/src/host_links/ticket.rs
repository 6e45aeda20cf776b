//! What a call of the connector is for. The connector knows it as a number.
use pvm_core::tid::{DAEMON_BIT, Tid};

/// What a call, or the expectation of one, is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ticket {
    /// The control link to a host, with its data link if there was none before.
    Control(Tid),
    /// A new data link to a host.
    Data(Tid),
    /// A direct link, whose number needs more than 32 bits.
    Direct(u64),
}

impl Ticket {
    /// Returns the number. Those of two tickets differ: a host and its daemon have different tids.
    pub fn number(self) -> u64 {
        match self {
            Ticket::Control(host) => u64::from(DAEMON_BIT | host.0),
            Ticket::Data(host) => u64::from(host.0),
            Ticket::Direct(number) => number,
        }
    }

    /// Returns the ticket with that number.
    pub fn of(number: u64) -> Ticket {
        match u32::try_from(number) {
            Ok(number) if number & DAEMON_BIT != 0 => Ticket::Control(Tid(number & !DAEMON_BIT)),
            Ok(number) => Ticket::Data(Tid(number)),
            Err(_) => Ticket::Direct(number),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ticket_is_known_by_its_number() {
        let host = Tid::host_number(3);
        for ticket in [Ticket::Control(host), Ticket::Data(host), Ticket::Direct(1 << 32)] {
            assert_eq!(Ticket::of(ticket.number()), ticket);
        }
    }
}
