//! How often the ways of multicasts and their faults occurred. A run that passes without them proves nothing about them.
use std::fmt;

macro_rules! tried {
    ($($(#[doc = $doc:literal])+ $name:ident: $text:literal,)+) => {
        /// The counts.
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
        pub struct Coverage {
            $($(#[doc = $doc])+ pub $name: u64,)+
        }

        impl Coverage {
            /// Returns each count with its description.
            pub fn counts(&self) -> Vec<(&'static str, u64)> {
                vec![$(($text, self.$name),)+]
            }

            /// Adds the counts of another run.
            pub fn add(&mut self, other: &Coverage) {
                $(self.$name += other.$name;)+
            }
        }
    };
}

tried! {
    /// Multicasts whose body went from the sender's host to each host.
    iterative: "multicasts to each host",
    /// Multicasts along a binomial tree.
    binomial: "along a binomial tree",
    /// Multicasts along a hypercube.
    hypercube: "along a hypercube",
    /// Announcements of a body that is broadcast.
    broadcast: "announcements of a broadcast",
    /// Parts of bodies that came from a host which is not the sender's.
    relayed: "relayed parts",
    /// Parts of bodies that were heard.
    heard: "heard parts",
    /// Datagrams that were lost.
    lost: "lost datagrams",
    /// Datagrams that arrived twice.
    doubled: "doubled datagrams",
    /// Reports about broadcast bodies that were withheld for a time.
    withheld: "withheld reports",
    /// Marks of messages that others overtake.
    marks: "marks",
    /// Gaps for messages that are not there yet.
    gaps: "gaps",
    /// Control connections that broke between living hosts.
    control_breaks: "broken control connections",
    /// Control connections that replaced others.
    control_connections: "new control connections",
    /// Fences before frames on control links.
    fences: "fences",
    /// Hosts whose frames went on before their messages.
    fences_given_up: "fences given up",
    /// Tasks with gaps for messages of a host that is lost.
    gaps_given_up: "gaps of lost hosts",
    /// Hosts that were killed while they relayed a body.
    relays_killed: "killed relays",
    /// Moves of the master to another host.
    moves: "moves of the master",
    /// Masters that were lost and have a successor.
    successions: "successions",
    /// Machines that have ended because too many hosts were lost.
    ended: "machines that have ended",
    /// Hosts that told a new master that they follow it before it knew of its office.
    early: "hosts that followed early",
    /// Switches of a task to a lane.
    lanes_used: "switches to lanes",
    /// Fallbacks from lanes.
    fallbacks: "fallbacks",
    /// Messages that came on a lane and again by the default route.
    repeats: "repeats",
    /// Fetches that began again at the sender's host.
    fetched_again: "bodies fetched from the sender's host instead",
}

impl Coverage {
    /// Returns the descriptions of what never occurred.
    pub fn missing(&self) -> Vec<&'static str> {
        self.counts().into_iter().filter(|(_, count)| *count == 0).map(|(text, _)| text).collect()
    }
}

impl fmt::Display for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all: Vec<String> = self.counts().iter().map(|(text, count)| format!("{count} {text}")).collect();
        f.write_str(&all.join(", "))
    }
}
