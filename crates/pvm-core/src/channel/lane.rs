//! One lane to a task of another host, as this side of it decides.
//!
//! Each side says hello on the lane. A side that has got the peer's hello knows that the peer reads the lane. It sends one
//! last message by the default route, the *route switch*, and all later messages on the lane. The peer takes messages from
//! the lane once the route switch has come. So no message overtakes an earlier one, and neither side waits.
//!
//! A side that falls back sends a fallback message by the default route, which says how many messages the peer has
//! acknowledged. Then it sends all others again there, and new ones behind them.
use super::fallback::Fallback;
use super::unacknowledged::Unacknowledged;
use std::cell::Cell;
use std::rc::Rc;

/// A side that has left the lane for a multicast returns to it after this many messages to the peer alone.
const MESSAGES_TO_RETURN: u32 = 4;

/// Why a side falls back from a lane that has not broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GivenUp {
    /// The peer does not read.
    Unread,
    /// The peer has not acknowledged anything since this side switched to the lane. It may not have taken in the route
    /// switch, for instance while it waits itself until its own message is read.
    Unheard,
    /// This side sends a long burst of short messages.
    Burst,
    /// The peer may be reached on a fabric again, as before.
    ForFabric,
    /// No program has asked for the lane, and one of the two tasks is no longer alone on its host.
    Company,
    /// The peer has given the lane up for one of these reasons.
    ByPeer,
}

/// Which way the messages of this side take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outbound {
    /// The default route: the peer's hello has not come, so the peer may never read the lane.
    Opening,
    /// The default route, until the route switch is sent.
    Open,
    /// The lane. This side had sent `at` messages on it when it switched.
    Switched { at: u32 },
    /// The default route, because a multicast took it. This side has sent `messages` messages to the peer alone since then.
    Left { messages: u32 },
    /// This side falls back, and has not announced it. `holds`: whether messages wait behind those that are sent again;
    /// otherwise none were on the lane, and they take the default route. `why`: `None` if the lane has broken.
    FallingBack { holds: bool, why: Option<GivenUp> },
    /// The fallback is announced, and messages are sent again.
    Repeating { holds: bool },
    /// The default route, for good.
    FallenBack,
}

/// What is known of the peer's messages on the lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Inbound {
    /// Neither the peer's hello nor anything else has come.
    Opening,
    /// The hello has come.
    Open,
    /// Nothing more is read from the lane.
    Closed,
    /// Nothing is read, and the hello had not come.
    ClosedEarly,
}

/// What a side has to do next on the default route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Send the fallback message.
    Announce(Fallback),
    /// Send the oldest unacknowledged message again, and remove it from the queue.
    Repeat,
}

/// What becomes of a lane on which nothing more can be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LaneEnd {
    /// The peer has exited, and all its messages have come: the lane is removed.
    PeerGone,
    /// The lane was never made, and the peer knows that: it is removed.
    NeverMade,
    /// The lane has broken: this side falls back.
    FallsBack,
}

/// The state of one side of a lane.
#[derive(Debug)]
pub struct Lane {
    outbound: Outbound,
    inbound: Inbound,
    /// Whether this side has said hello, so that the peer may have switched to the lane.
    said_hello: bool,
    /// How often the peer has switched to the lane, less how often it has left it: if 1, the peer sends its messages on
    /// the lane. A route switch may come before the leaving that the peer announced earlier on the lane, or before its hello.
    switches: i32,
    /// How many messages of the lane the task has taken over. What was only read does not count.
    received: Rc<Cell<u32>>,
}

impl Default for Lane {
    fn default() -> Lane {
        Lane {
            outbound: Outbound::Opening,
            inbound: Inbound::Opening,
            said_hello: false,
            switches: 0,
            received: Rc::default(),
        }
    }
}

/// The way of this side's messages.
impl Lane {
    /// Returns whether messages to the peer go on the lane, or wait behind those that are sent again.
    #[inline]
    pub fn carries(&self) -> bool {
        match self.outbound {
            Outbound::Switched { .. } => true,
            Outbound::FallingBack { holds, .. } | Outbound::Repeating { holds } => holds,
            Outbound::Opening | Outbound::Open | Outbound::Left { .. } | Outbound::FallenBack => false,
        }
    }

    /// Returns whether this side can switch its messages to the lane, because the peer reads from it.
    pub fn may_switch(&self) -> bool {
        self.outbound == Outbound::Open
    }

    /// Returns whether this side does not use the lane yet, but may do so later.
    pub fn is_pending(&self) -> bool {
        matches!(self.outbound, Outbound::Opening | Outbound::Open)
    }

    /// Returns whether this side falls back, or has done so.
    #[inline]
    pub fn falls_back(&self) -> bool {
        matches!(self.outbound, Outbound::FallingBack { .. } | Outbound::Repeating { .. } | Outbound::FallenBack)
    }

    /// Returns whether the fallback has still to be announced to the peer.
    fn owes_announcement(&self) -> bool {
        matches!(self.outbound, Outbound::FallingBack { .. })
    }

    /// Returns whether the fallback is complete: later messages take the default route.
    pub fn has_fallen_back(&self) -> bool {
        self.outbound == Outbound::FallenBack
    }

    /// Returns why this side gives the lane up, if it has not broken and that is not announced yet.
    pub fn given_up(&self) -> Option<GivenUp> {
        if let Outbound::FallingBack { why, .. } = self.outbound { why } else { None }
    }

    /// Returns whether acknowledgements still count. After the announcement, all other messages are sent again.
    pub fn takes_acknowledgements(&self) -> bool {
        !matches!(self.outbound, Outbound::Repeating { .. } | Outbound::FallenBack)
    }

    /// Returns whether the peer is known to have taken in the last route switch: it has `acknowledged` a message since.
    pub fn has_heard_switch(&self, acknowledged: u32) -> bool {
        self.outbound != Outbound::Switched { at: acknowledged }
    }

    /// Notes that the route switch was sent: later messages take the lane. `sent_count`: how many went on it before.
    pub fn handle_switched(&mut self, sent_count: u32) {
        self.outbound = Outbound::Switched { at: sent_count };
    }

    /// Returns whether this side may leave the lane. `is_idle`: whether the peer has acknowledged all that was sent on it.
    pub fn may_leave(&self, is_idle: bool) -> bool {
        is_idle && matches!(self.outbound, Outbound::Switched { .. })
    }

    /// Notes that this side has announced on the lane that it leaves it.
    pub fn handle_left(&mut self) {
        self.outbound = Outbound::Left { messages: 0 };
    }

    /// Returns whether this side has left the lane, and may return.
    pub fn is_left(&self) -> bool {
        matches!(self.outbound, Outbound::Left { .. })
    }

    /// Lets this side return to the lane.
    pub fn return_to_lane(&mut self) {
        if self.is_left() {
            self.outbound = Outbound::Open;
        }
    }

    /// Counts a message to the peer by the default route. After some of them, this side returns to the lane.
    pub fn count_by_default_route(&mut self) {
        if let Outbound::Left { messages } = self.outbound {
            let messages = messages + 1;
            self.outbound = if messages < MESSAGES_TO_RETURN { Outbound::Left { messages } } else { Outbound::Open };
        }
    }

    /// Begins the fallback because the lane has broken, or the task leaves.
    pub fn handle_break(&mut self) {
        self.fall_back(None);
    }

    /// Begins the fallback from a lane that has not broken.
    pub fn give_up(&mut self, why: GivenUp) {
        self.fall_back(Some(why));
    }

    fn fall_back(&mut self, why: Option<GivenUp>) {
        if !self.falls_back() {
            self.outbound = Outbound::FallingBack { holds: self.carries(), why };
        }
    }

    /// Returns what the fallback needs next on the default route. Completes the fallback if that is nothing.
    pub fn next_step<M>(&mut self, queue: &Unacknowledged<M>) -> Option<Step> {
        match self.outbound {
            Outbound::FallingBack { why, .. } => {
                let is_given_up = why.is_some_and(|why| why != GivenUp::ByPeer);
                Some(Step::Announce(Fallback { acknowledged: queue.acknowledged(), answers: false, is_given_up }))
            }
            Outbound::Repeating { .. } if !queue.is_empty() => Some(Step::Repeat),
            Outbound::Repeating { .. } => {
                self.outbound = Outbound::FallenBack;
                None
            }
            _ => None,
        }
    }

    /// Notes that the fallback was announced.
    pub fn handle_announced(&mut self) {
        if let Outbound::FallingBack { holds, .. } = self.outbound {
            self.outbound = Outbound::Repeating { holds };
        }
    }
}

/// The peer's messages.
impl Lane {
    /// Handles the peer's hello.
    pub fn handle_hello(&mut self) {
        if self.inbound == Inbound::Opening {
            self.inbound = Inbound::Open;
        }
        if self.outbound == Outbound::Opening {
            self.outbound = Outbound::Open;
        }
    }

    /// Notes that this side says hello. Returns whether it had not done so before.
    pub fn say_hello(&mut self) -> bool {
        !std::mem::replace(&mut self.said_hello, true)
    }

    /// Returns whether this side has said hello.
    pub fn has_said_hello(&self) -> bool {
        self.said_hello
    }

    /// Returns whether the peer's hello has come. Before that, the peer can neither have sent nor read messages.
    #[inline]
    pub fn is_established(&self) -> bool {
        matches!(self.inbound, Inbound::Open | Inbound::Closed)
    }

    /// Handles the peer's route switch, which has come by the default route.
    pub fn handle_route_switch(&mut self) {
        self.switches = self.switches.saturating_add(1);
    }

    /// Handles the announcement on the lane that the peer leaves it: later messages take the default route.
    pub fn handle_leaving(&mut self) {
        self.switches = self.switches.saturating_sub(1);
    }

    /// Returns whether the peer sends its messages on the lane, and all earlier ones have come.
    #[inline]
    pub fn peer_has_switched(&self) -> bool {
        self.switches > 0
    }

    /// Returns whether messages are read from the lane, and passed on.
    pub fn is_reading(&self) -> bool {
        self.peer_has_switched() && !self.is_read_closed()
    }

    /// Returns whether nothing more is read from the lane.
    #[inline]
    pub fn is_read_closed(&self) -> bool {
        matches!(self.inbound, Inbound::Closed | Inbound::ClosedEarly)
    }

    fn close_reading(&mut self) {
        self.inbound = if self.is_established() { Inbound::Closed } else { Inbound::ClosedEarly };
    }

    /// Handles the fallback message of the peer, which sends again by the default route what this side has not received.
    /// Returns whether this side's own announcement follows, which is the answer. If it was sent before the peer had its end of
    /// the lane, the peer has answered it without one, and needs an answer itself.
    pub fn handle_fallback(&mut self, is_given_up: bool) -> bool {
        self.fall_back(is_given_up.then_some(GivenUp::ByPeer));
        self.close_reading();
        self.owes_announcement()
    }

    /// Handles the end of the lane, behind which nothing can be read. `is_clean`: whether the peer has closed it, and this side
    /// has lost nothing.
    pub fn handle_end(&mut self, is_clean: bool) -> LaneEnd {
        self.close_reading();
        if self.falls_back() {
            return LaneEnd::FallsBack;
        }
        match self.is_established() {
            false if !self.said_hello => LaneEnd::NeverMade,
            // A peer that has not switched to the lane, or has left it, may have lost it: then it lives, and its messages
            // take the default route.
            true if is_clean && self.peer_has_switched() => LaneEnd::PeerGone,
            _ => {
                self.handle_break();
                LaneEnd::FallsBack
            }
        }
    }

    /// Counts a message that the task has taken over.
    #[inline]
    pub fn count_received(&self) {
        self.received.set(self.received.get().wrapping_add(1));
    }

    /// Returns how many messages the task has taken over.
    #[inline]
    pub fn received(&self) -> u32 {
        self.received.get()
    }

    /// Returns the counter of these messages, for the receipt that outlives the lane.
    pub fn received_counter(&self) -> Rc<Cell<u32>> {
        self.received.clone()
    }
}
