//! A switch: full duplex, store and forward, with a small buffer for each port that drops what does not fit.

use super::schedule::Schedule;
use super::wire::{Delivery, Frame, GAP_BITS, PREAMBLE_BITS, PortCounters, Queue, Rate, Time};
use std::collections::VecDeque;

/// Events. If two have the same time, they happen in this order: a frame leaves the buffer before another one arrives.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// The last bit of a frame has left a port of the switch, and is at the host.
    Leaves { port: usize },
    /// The last bit of a frame has arrived in the switch.
    Arrives { port: usize },
    /// The gap behind a frame from the switch to a host is over.
    PortFree { port: usize },
    /// The gap behind a frame from a host to the switch is over.
    HostFree { port: usize },
}

impl Event {
    fn rank(&self) -> u8 {
        match self {
            Event::Leaves { .. } => 0,
            Event::Arrives { .. } => 1,
            Event::PortFree { .. } => 2,
            Event::HostFree { .. } => 3,
        }
    }
}

#[derive(Debug)]
struct Port {
    /// The frames that the host wants to send.
    host: Queue,
    host_is_busy: bool,
    /// The buffer of the switch for the host.
    buffer: Queue,
    is_busy: bool,
    counters: PortCounters,
}

/// The switch and the hosts at its ports.
#[derive(Debug)]
pub struct Switch {
    rate: Rate,
    ports: Vec<Port>,
    events: Schedule<Event>,
    deliveries: VecDeque<Delivery>,
}

impl Switch {
    /// Makes a switch whose buffers hold this number of bytes for each port.
    pub fn new(rate: Rate, ports: usize, buffer_bytes_max: usize, host_queue_bytes_max: usize) -> Switch {
        let port = |_| Port {
            host: Queue::new(host_queue_bytes_max),
            host_is_busy: false,
            buffer: Queue::new(buffer_bytes_max),
            is_busy: false,
            counters: PortCounters::default(),
        };
        Switch { rate, ports: (0..ports).map(port).collect(), events: Schedule::default(), deliveries: VecDeque::new() }
    }

    /// Adds a frame to the queue of a host.
    pub fn send(&mut self, now: Time, from: usize, frame: Frame) {
        self.ports[from].host.push(frame);
        self.start_host(from, now);
    }

    /// Returns the time of the next event.
    pub fn next_event(&self) -> Option<Time> {
        self.events.next()
    }

    /// Executes all events up to this time.
    pub fn advance(&mut self, now: Time) {
        while let Some((at, event)) = self.events.take_due(now) {
            match event {
                Event::Leaves { port } => self.leave(port, at),
                Event::Arrives { port } => self.arrive(port, at),
                Event::PortFree { port } => {
                    self.ports[port].is_busy = false;
                    self.start_port(port, at);
                }
                Event::HostFree { port } => {
                    self.ports[port].host_is_busy = false;
                    self.start_host(port, at);
                }
            }
        }
    }

    /// Returns the next frame that has arrived.
    pub fn poll_delivery(&mut self) -> Option<Delivery> {
        self.deliveries.pop_front()
    }

    /// Returns the counters of each port.
    pub fn counters(&self) -> Vec<PortCounters> {
        let counters = |port: &Port| PortCounters {
            host_dropped: port.host.dropped(),
            host_queue_bytes: port.host.longest_bytes(),
            port_dropped: port.buffer.dropped(),
            port_queue_bytes: port.buffer.longest_bytes(),
            ..port.counters
        };
        self.ports.iter().map(counters).collect()
    }

    fn add(&mut self, at: Time, event: Event) {
        self.events.add(at, event.rank(), event);
    }

    /// Returns the time from the first bit of the preamble to the last bit of the frame.
    fn time_of(&self, frame: &Frame) -> Time {
        self.rate.bits(PREAMBLE_BITS) + self.rate.bytes(frame.stored_bytes())
    }

    fn start_host(&mut self, port: usize, now: Time) {
        let Some(frame) = self.ports[port].host.first().filter(|_| !self.ports[port].host_is_busy) else { return };
        let end = now + self.time_of(frame);
        self.ports[port].host_is_busy = true;
        self.add(end, Event::Arrives { port });
        self.add(end + self.rate.bits(GAP_BITS), Event::HostFree { port });
    }

    fn start_port(&mut self, port: usize, now: Time) {
        let Some(frame) = self.ports[port].buffer.first().filter(|_| !self.ports[port].is_busy) else { return };
        let end = now + self.time_of(frame);
        self.ports[port].is_busy = true;
        self.add(end, Event::Leaves { port });
        self.add(end + self.rate.bits(GAP_BITS), Event::PortFree { port });
    }

    fn arrive(&mut self, from: usize, now: Time) {
        let frame = self.ports[from].host.pop().expect("the frame on the wire is in the queue");
        self.ports[from].counters.sent += 1;
        let others = (0..self.ports.len()).filter(|to| *to != from);
        for to in others.filter(|to| frame.to.is_none_or(|only| only == *to)) {
            self.ports[to].buffer.push(frame.clone());
            self.start_port(to, now);
        }
    }

    fn leave(&mut self, to: usize, now: Time) {
        let port = &mut self.ports[to];
        let frame = port.buffer.pop().expect("the frame on the wire is in the buffer");
        port.counters.received += 1;
        port.counters.received_bytes += frame.stored_bytes() as u64;
        self.deliveries.push_back(Delivery { at: now, to, frame });
    }
}
