//! The sources of the loop's events.
use pvm_core::machine::Connection;
use pvm_core::tid::Tid;
use rustix::event::epoll::EventData;

/// The stream on which a task prints.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Stream {
    /// Standard output, and also standard error unless standard error is read separately.
    Output,
    /// Standard error.
    Errors,
}

impl Stream {
    /// All streams.
    pub const ALL: [Stream; 2] = [Stream::Output, Stream::Errors];
}

/// The source of a readiness event. The lower part of the event's data is the number of the source, the upper part its
/// kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// The listening socket for tasks.
    Listener,
    /// A signal.
    Signals,
    /// The connection of a task.
    Client(Connection),
    /// The process at the other end of a connection.
    Peer(Connection),
    /// A pipe that a task prints to.
    Output(Tid, Stream),
    /// The pipe to the standard input of a task. It is ready when it has room.
    Input(Tid),
    /// The process of a task.
    Process(Tid),
    /// A look-up of host names.
    NameLookup(u32),
    /// Daemons that are being started on other hosts.
    Starts,
    /// Remote starts that this host runs for the master.
    RemoteStarts,
    /// Searches for programs.
    Searches,
    /// Processes of tasks that were started.
    Started,
    /// Connections of other daemons that are not links yet.
    Connector,
    /// The control link to a host.
    Control(Tid),
    /// The daemon's own doorbell.
    Bell,
    /// The data link to a host.
    Data(Tid),
    /// A direct link of a task.
    Direct(u32),
    /// Datagrams to all hosts.
    Datagrams,
    /// The socket that sends such datagrams. It is ready when it has room.
    DatagramRoom,
    /// Releases of barriers.
    Releases,
}

/// The position of the kind of a source in an event's data.
const KIND_SHIFT: u32 = 56;

impl Source {
    /// Returns the data of this source's events.
    pub fn data(self) -> EventData {
        let (kind, number) = match self {
            Source::Listener => (0, 0),
            Source::Signals => (1, 0),
            Source::Client(connection) => (2, connection),
            Source::Output(tid, Stream::Output) => (3, u64::from(tid.0)),
            Source::Output(tid, Stream::Errors) => (14, u64::from(tid.0)),
            Source::Input(tid) => (15, u64::from(tid.0)),
            Source::Process(tid) => (4, u64::from(tid.0)),
            Source::NameLookup(request) => (5, u64::from(request)),
            Source::Peer(connection) => (6, connection),
            Source::Starts => (7, 0),
            Source::Connector => (8, 0),
            Source::Control(host) => (9, u64::from(host.0)),
            Source::Bell => (10, 0),
            Source::Data(host) => (11, u64::from(host.0)),
            Source::Direct(number) => (12, u64::from(number)),
            Source::RemoteStarts => (13, 0),
            Source::Datagrams => (16, 0),
            Source::DatagramRoom => (17, 0),
            Source::Releases => (18, 0),
            Source::Searches => (19, 0),
            Source::Started => (20, 0),
        };
        EventData::new_u64(kind << KIND_SHIFT | number)
    }

    /// Returns the source of an event.
    pub fn of(data: EventData) -> Source {
        let number = data.u64() & ((1 << KIND_SHIFT) - 1);
        match data.u64() >> KIND_SHIFT {
            0 => Source::Listener,
            1 => Source::Signals,
            2 => Source::Client(number),
            3 => Source::Output(Tid(number as u32), Stream::Output),
            14 => Source::Output(Tid(number as u32), Stream::Errors),
            15 => Source::Input(Tid(number as u32)),
            4 => Source::Process(Tid(number as u32)),
            6 => Source::Peer(number),
            7 => Source::Starts,
            8 => Source::Connector,
            9 => Source::Control(Tid(number as u32)),
            10 => Source::Bell,
            11 => Source::Data(Tid(number as u32)),
            12 => Source::Direct(number as u32),
            13 => Source::RemoteStarts,
            16 => Source::Datagrams,
            17 => Source::DatagramRoom,
            18 => Source::Releases,
            19 => Source::Searches,
            20 => Source::Started,
            5 => Source::NameLookup(number as u32),
            kind => unreachable!("the daemon watches nothing of kind {kind}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_source_is_recognised_by_the_data_of_its_events() {
        let tid = Tid(0x7fff_ffff);
        let sources = [
            Source::Listener,
            Source::Signals,
            Source::Client((1 << KIND_SHIFT) - 1),
            Source::Peer(7),
            Source::Output(tid, Stream::Output),
            Source::Output(tid, Stream::Errors),
            Source::Input(tid),
            Source::Process(tid),
            Source::NameLookup(u32::MAX),
            Source::Starts,
            Source::RemoteStarts,
            Source::Searches,
            Source::Started,
            Source::Connector,
            Source::Control(tid),
            Source::Bell,
            Source::Data(tid),
            Source::Direct(u32::MAX),
            Source::Datagrams,
            Source::DatagramRoom,
            Source::Releases,
        ];
        for source in sources {
            assert_eq!(Source::of(source.data()), source);
            // The list above must contain every source. As a reminder, this `match` does not compile after a source was
            // added.
            match source {
                Source::Listener | Source::Signals | Source::Client(_) | Source::Peer(_) => {}
                Source::Output(..) | Source::Input(_) | Source::Process(_) | Source::NameLookup(_) => {}
                Source::Starts | Source::RemoteStarts | Source::Connector | Source::Control(_) => {}
                Source::Bell | Source::Data(_) | Source::Direct(_) | Source::Datagrams | Source::DatagramRoom => {}
                Source::Releases | Source::Searches | Source::Started => {}
            }
        }
    }
}
