//! Compares the formats of the protocols with the files in `formats/`. If a format changes, its protocol needs a new
//! version, because each side compares versions before anything else.
//!
//! The names of types are not part of the frames. So after a pure rename, change the files by hand and keep the
//! version.
use crate::codes::Code;
use crate::flows::multicast::datagram::{DatagramHead, NAME_BYTES};
use crate::flows::multicast::{Announcement, BodyKey, BodyRequest, McastRoute};
use crate::flows::pacing::Pacing;
use crate::flows::{Credit, DataFrame, MessageHeader, frames};
use crate::host_look::{Activity, Presence};
use crate::master_state::MasterState;
use crate::proto::{self, LinkCause, Office, Order, Reply, Request, Role, TaskKind, ToDaemon, ToTask};
use crate::state_line::Call;
use crate::tid::Tid;
use crate::wire::{self, Backup, Frame, GroupChange, LinkAnswer, Refusal, StartNews, StartOrder};
use serde_reflection::{ContainerFormat, Samples, Tracer, TracerConfig};
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::rc::Rc;

/// Returns the formats of the listed types and of the types inside them. Enumerations must be listed even if they are
/// inside another listed type.
macro_rules! formats {
    ($($type:ty),*) => {{
        let (mut tracer, samples) = (Tracer::new(TracerConfig::default()), Samples::new());
        $(tracer.trace_type::<$type>(&samples).unwrap();)*
        tracer.registry().unwrap().iter().map(|(name, format)| text(name, format)).collect::<String>()
    }};
}

/// Returns a line for a type, or for an enumeration a line for each variant.
fn text(name: &str, format: &ContainerFormat) -> String {
    let lines = match format {
        ContainerFormat::Enum(variants) => {
            variants.iter().map(|(number, variant)| format!("{name} {number}: {variant:?}\n")).collect()
        }
        format => format!("{name}: {format:?}\n"),
    };
    lines.replace("Named { name: \"", "").replace("\", value:", "").replace(" }", "")
}

/// Returns one frame of each kind on data links, in hexadecimal. The code that encodes these frames is written by hand.
fn frames_on_data_links() -> String {
    let header = MessageHeader {
        src: Tid(0x8_0001),
        dst: Tid(0xc_0002),
        others: vec![Tid(0xc_0003)],
        meta: [1, 2, 3, 4, 5],
        bytes: 7,
    };
    let key = BodyKey { origin: Tid(0x4_0000), secret: [10; 16] };
    let announcement = Announcement { key, digest: [11; 32], parent: Tid(0x8_0000), children: 12, part_bytes: None };
    let broadcast = Announcement { part_bytes: Some(1400), ..announcement };
    let frames_of_each_kind: [DataFrame<()>; 12] = [
        DataFrame::Announce { header: header.clone(), announcement },
        DataFrame::Announce { header: header.clone(), announcement: broadcast },
        DataFrame::Request { key, request: BodyRequest::Fetch { at: 13 } },
        DataFrame::Request { key, request: BodyRequest::Cancel },
        DataFrame::Request { key, request: BodyRequest::Received },
        DataFrame::Request { key, request: BodyRequest::Unavailable },
        DataFrame::Request { key, request: BodyRequest::Ready },
        DataFrame::Request { key, request: BodyRequest::Report { round: 14, missing: vec![15..17, 19..20] } },
        DataFrame::Part { key, range: 16..32, body: Rc::new(()) },
        DataFrame::Start { transfer: 6, header, first: 7, body: Rc::new(()) },
        DataFrame::Chunk { transfer: 6, range: 16..32, body: Rc::new(()) },
        DataFrame::InBand { dst: Tid(0xc_0002), payload: vec![8, 9] },
    ];
    let mut heads: Vec<_> =
        frames_of_each_kind.iter().map(|frame| written(|out| frames::write_header(frame, out))).collect();
    heads.push(written(|out| frames::write_credit(&Credit { host: Tid(1), dst: Tid(0xc_0002), bytes: 0x1234 }, out)));
    heads.push(written(|out| frames::write_acknowledged(0x1234, out)));
    heads.push(written(|out| frames::write_grant(0x1234, out)));
    let head = DatagramHead { name: [16; NAME_BYTES], serial: 17, part: 18, sent: 19, round: 20 };
    heads.push(written(|out| head.write(out)));
    heads
        .iter()
        .map(|head| format!("frame {}\n", head.iter().map(|byte| format!("{byte:02x}")).collect::<String>()))
        .collect()
}

fn written(write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    write(&mut out);
    out
}

/// Compares formats with the file `name`. If the version differs, rewrites the file and fails.
fn compare(name: &str, number: &str, version: u32, formats: &str) {
    let file = Path::new("formats").join(name);
    let text = format!("{number} {version}\n{formats}");
    let before = std::fs::read_to_string(&file).unwrap_or_default();
    if before == text {
        return;
    }
    let same_number = before.lines().next() == text.lines().next();
    assert!(!same_number, "{name}: the format has changed, and older programs do not understand it: raise {number}");
    std::fs::write(&file, &text).unwrap();
    panic!("{number} has changed: {} has been written anew; review it and commit it", file.display());
}

#[test]
fn the_formats_of_daemons_change_with_their_version() {
    let types = formats!(
        Frame,
        Activity,
        Backup,
        Call,
        Code,
        GroupChange,
        IpAddr,
        LinkAnswer,
        LinkCause,
        MasterState,
        McastRoute,
        Office,
        Order,
        Pacing,
        Presence,
        Refusal,
        Reply,
        Request,
        Role,
        SocketAddr,
        StartNews,
        StartOrder,
        TaskKind
    );
    compare("daemons.txt", "wire::VERSION", wire::VERSION, &(types + &frames_on_data_links()));
}

#[test]
fn the_formats_of_tasks_and_daemons_change_with_their_version() {
    let types = formats!(
        ToDaemon, Activity, Call, Code, LinkCause, Office, Order, Pacing, Presence, ToTask, Reply, Request, Role,
        TaskKind
    );
    compare("tasks.txt", "proto::VERSION", proto::VERSION, &types);
}
