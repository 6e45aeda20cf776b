//! Replies and trace events that carry the time of day.
use pvm_core::proto::{Message, Reply};
use pvm_core::tid::Tid;
use pvm_core::trace::{Record, Stamp, write_data_list};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// Returns the answer to `pvm_hostsync`.
pub fn time_of_day() -> Reply {
    let now = now();
    Reply::Clock { seconds: now.as_secs() as i64, microseconds: now.subsec_micros() as i32 }
}

/// Returns the messages that report a trace event to its collector. If `introduce` is true, the first message is the
/// list of all kinds of data.
pub fn trace(
    to: (Tid, i32, i32),
    mut record: Record,
    describe: bool,
    introduce: bool,
) -> impl Iterator<Item = Message> {
    let list = introduce.then(|| {
        let mut list = Vec::new();
        write_data_list(&mut list);
        list
    });
    record.stamp = Stamp::since_epoch(now());
    let mut body = Vec::new();
    record.write(describe, &mut body);
    let (dst, ctx, tag) = to;
    list.into_iter().chain([body]).map(move |body| Message::new(Tid::DAEMON, dst, ctx, tag, body))
}
