//! The model of an Ethernet: events in simulated time, without devices and without a clock.
//!
//! A user calls [`Ether::advance`] up to the present, then [`Ether::poll_delivery`] until there is nothing left, then
//! [`Ether::send`] for new frames, and waits until [`Ether::next_event`]. The same calls and the same seed have the
//! same result.

use super::hub::{Contention, Hub};
use super::switch::Switch;
use super::wire::{Counters, Delivery, Frame, Rate, Time};

/// The default for [`Medium::Switch`]: the bytes that a port of a small switch buffers.
pub const PORT_BYTES_MAX: usize = 64 << 10;
/// The time from one host of a hub to another, as the number of bits that are sent meanwhile: at 10 Mbit/s 5 us, as on
/// some hundred metres of cable with repeaters.
pub const PROPAGATION_BITS: u64 = 50;

/// The smallest room, in bytes, for frames that wait in a host: about what computers had when wires were slow.
const HOST_QUEUE_BYTES_LEAST: usize = 256 << 10;
/// At higher rates, a host has room for the frames of this number of milliseconds, so that it can still fill the wire
/// if the program with the devices gets no processor for some milliseconds.
const HOST_QUEUE_MS: u64 = 10;

/// What connects the hosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Medium {
    /// A hub, half duplex: all hosts share one wire.
    Hub,
    /// A switch, full duplex.
    Switch {
        /// The bytes that the switch buffers for each port.
        port_bytes_max: usize,
    },
}

/// The parameters of an Ethernet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Config {
    /// The speed of the wire.
    pub rate: Rate,
    /// What connects the hosts.
    pub medium: Medium,
    /// The most bytes that wait in a host; further frames are dropped. On real hosts such frames would wait in the
    /// buffers of sockets, but a TAP device cannot make its host wait.
    pub host_queue_bytes_max: usize,
    /// Decides about each backoff.
    pub seed: u64,
    /// How many times slower the devices run than the model.
    pub slowdown: u32,
}

impl Config {
    /// Returns the usual parameters for a rate and a medium.
    pub fn new(rate: Rate, medium: Medium) -> Config {
        let bytes = (rate.megabits() * 1000 / 8 * HOST_QUEUE_MS) as usize;
        Config { rate, medium, host_queue_bytes_max: bytes.max(HOST_QUEUE_BYTES_LEAST), seed: 1, slowdown: 1 }
    }
}

/// An Ethernet with its hosts.
#[derive(Debug)]
pub enum Ether {
    /// With a hub.
    Hub(Hub),
    /// With a switch.
    Switch(Switch),
}

impl Ether {
    /// Makes an Ethernet with this number of hosts.
    pub fn new(config: &Config, hosts: usize) -> Ether {
        let (rate, queue) = (config.rate, config.host_queue_bytes_max);
        match config.medium {
            Medium::Hub => {
                let propagation = rate.bits(PROPAGATION_BITS);
                Ether::Hub(Hub::new(rate, hosts, propagation, Contention::Backoff, queue, config.seed))
            }
            Medium::Switch { port_bytes_max } => Ether::Switch(Switch::new(rate, hosts, port_bytes_max, queue)),
        }
    }

    /// Adds a frame to the queue of a host. `now` is not before the time of the last call.
    pub fn send(&mut self, now: Time, from: usize, frame: Frame) {
        match self {
            Ether::Hub(hub) => hub.send(now, from, frame),
            Ether::Switch(switch) => switch.send(now, from, frame),
        }
    }

    /// Returns the time of the next event; `None` if nothing happens until a host sends.
    pub fn next_event(&self) -> Option<Time> {
        match self {
            Ether::Hub(hub) => hub.next_event(),
            Ether::Switch(switch) => switch.next_event(),
        }
    }

    /// Executes all events up to this time.
    pub fn advance(&mut self, now: Time) {
        match self {
            Ether::Hub(hub) => hub.advance(now),
            Ether::Switch(switch) => switch.advance(now),
        }
    }

    /// Returns the next frame that has arrived at a host.
    pub fn poll_delivery(&mut self) -> Option<Delivery> {
        match self {
            Ether::Hub(hub) => hub.poll_delivery(),
            Ether::Switch(switch) => switch.poll_delivery(),
        }
    }

    /// Returns the counters of all ports since the start.
    pub fn counters(&self) -> Counters {
        let ports = match self {
            Ether::Hub(hub) => hub.counters(),
            Ether::Switch(switch) => switch.counters(),
        };
        Counters { ports, ..Counters::default() }
    }
}
