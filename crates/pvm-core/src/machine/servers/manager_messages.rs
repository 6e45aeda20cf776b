//! The messages between the daemon and a resource manager (contract 2.12).
use crate::codes::{
    Code, HOST_COMPL, SM_ADDHOST, SM_CONFIG, SM_DELHOST, SM_NOTIFY, SM_SPAWN, SM_TASK, TASK_ARCH, TASK_HOST,
};
use crate::encoding::{Reader, Writer};
use crate::proto::{ByteBuf, Host, Office, Reply, Request, Spawn, TaskInfo, TraceSettings};
use crate::tid::Tid;

/// Writes a count and that many strings.
fn write_strings(body: Writer, list: &[ByteBuf]) -> Writer {
    list.iter().fold(body.int(list.len() as i32), |body, one| body.string(one))
}

/// Reads a count and that many strings.
pub(super) fn strings(body: &mut Reader<'_>) -> Option<Vec<ByteBuf>> {
    let count = body.int()?;
    (0..count).map(|_| body.string().map(|text| ByteBuf::from(text.to_vec()))).collect()
}

/// Encodes a request for a manager; returns `None` if managers do not decide such requests.
pub(super) fn manager_request(request: &Request) -> Option<(i32, Writer)> {
    let body = Writer::new();
    Some(match request {
        Request::Spawn(spawn) => {
            let body = body.string(&spawn.file).int(spawn.flags).string(&spawn.place).int(spawn.count);
            let traces = &spawn.children;
            let body = write_strings(body, &spawn.arguments);
            let body = body.int(traces.output_tid).int(traces.output_ctx).int(traces.output_tag);
            let body = body.int(traces.trace_tid).int(traces.trace_ctx).int(traces.trace_tag);
            (SM_SPAWN, write_strings(body, &spawn.environment))
        }
        Request::Tasks(place) => (SM_TASK, body.int(place.0 as i32)),
        Request::Config => (SM_CONFIG, body),
        Request::AddHosts(names) => (SM_ADDHOST, write_strings(body, names)),
        Request::DeleteHosts(names) => (SM_DELHOST, write_strings(body, names)),
        Request::Notify { what, ctx, tag, count, tids } => {
            let count = if tids.is_empty() { *count } else { tids.len() as i32 };
            let body = body.int(*what).int(*ctx).int(*tag).int(count);
            (SM_NOTIFY, tids.iter().fold(body, |body, tid| body.int(tid.0 as i32)))
        }
        _ => return None,
    })
}

/// Decodes the answer of a manager.
pub(super) fn manager_reply(tag: i32, body: &mut Reader<'_>) -> Option<Reply> {
    let count = body.int()?;
    if count < 0 {
        let code = Code::from_number(count)?;
        return Some(Reply::Error(code));
    }
    match tag {
        SM_SPAWN => Some(Reply::Tids((0..count).map(|_| body.int()).collect::<Option<_>>()?)),
        SM_DELHOST => Some(Reply::Codes((0..count).map(|_| body.int()).collect::<Option<_>>()?)),
        SM_TASK => {
            let mut tasks = Vec::new();
            while !body.rest().is_empty() {
                tasks.push(read_task(body)?);
            }
            Some(Reply::Tasks(tasks))
        }
        SM_CONFIG => {
            let formats = body.int()?;
            let hosts = (0..count).map(|_| read_host(body)).collect::<Option<_>>()?;
            Some(Reply::Hosts { hosts, formats })
        }
        SM_ADDHOST => {
            body.int()?;
            let hosts: Vec<i32> = (0..count).map(|_| Some(read_host(body)?.tid.0 as i32)).collect::<Option<_>>()?;
            let count = hosts.iter().filter(|tid| **tid > 0).count() as i32;
            Some(Reply::AddedHosts { count, reasons: vec![String::new(); hosts.len()], hosts })
        }
        _ => None,
    }
}

fn read_task(body: &mut Reader<'_>) -> Option<TaskInfo> {
    Some(TaskInfo {
        tid: Tid(body.int()? as u32),
        parent: body.int()?,
        host: Tid(body.int()? as u32),
        flags: body.int()? as u32,
        name: ByteBuf::from(body.string()?.to_vec()),
        pid: body.int()?,
        output: (0, 0, 0),
    })
}

fn read_host(body: &mut Reader<'_>) -> Option<Host> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Some(Host {
        tid: Tid(body.int()? as u32),
        name: text(body.string()?),
        arch: text(body.string()?),
        speed: body.int()?,
        dsig: body.int()?,
        is_draining: false,
        office: Office::None,
    })
}

/// Decodes `SM_EXEC`: parent, spawn, first instance number, total.
pub(super) fn read_exec(body: &mut Reader<'_>) -> Option<(i32, Spawn, i32, i32)> {
    let parent = body.int()?;
    let file = ByteBuf::from(body.string()?.to_vec());
    let (flags, count) = (body.int()?, body.int()?);
    let arguments = strings(body)?;
    let mut words = [0; 6];
    for word in &mut words {
        *word = body.int()?;
    }
    let [output_tid, output_ctx, output_tag, trace_tid, trace_ctx, trace_tag] = words;
    let environment = strings(body)?;
    let first = body.int().unwrap_or(0);
    let total = body.int().unwrap_or(count);
    let children =
        TraceSettings { output_tid, output_ctx, output_tag, trace_tid, trace_ctx, trace_tag, ..Default::default() };
    // The manager has chosen this host, so these flags no longer apply.
    let flags = flags & !(TASK_HOST | TASK_ARCH | HOST_COMPL);
    Some((parent, Spawn { file, arguments, flags, place: ByteBuf::new(), count, environment, children }, first, total))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_manager_gets_it_can_pass_on() {
        let spawn = Spawn {
            file: ByteBuf::from(b"prog".to_vec()),
            arguments: vec![ByteBuf::from(b"a b".to_vec())],
            flags: 0,
            place: ByteBuf::new(),
            count: 3,
            environment: vec![ByteBuf::from(b"X=1".to_vec())],
            children: TraceSettings { output_tid: 0x40001, output_tag: 7, ..Default::default() },
        };
        let (tag, _) = manager_request(&Request::Spawn(spawn.clone())).unwrap();
        assert_eq!(tag, SM_SPAWN);
        let body = Writer::new().int(0x40001).string(&spawn.file).int(0).int(3);
        let body = write_strings(body, &spawn.arguments).int(0x40001).int(0).int(7).int(0).int(0).int(0);
        let body = write_strings(body, &spawn.environment).int(0).int(3).finish();
        assert_eq!(read_exec(&mut Reader::new(&body)), Some((0x40001, spawn, 0, 3)));
        assert_eq!(read_exec(&mut Reader::new(&body[..20])), None);
    }

    #[test]
    fn the_answers_of_a_manager_become_replies() {
        let body = Writer::new().int(2).int(0x40001).int(-7).finish();
        assert_eq!(manager_reply(SM_SPAWN, &mut Reader::new(&body)), Some(Reply::Tids(vec![0x40001, -7])));
        assert_eq!(manager_reply(SM_SPAWN, &mut Reader::new(&body[..8])), None);
        let body = Writer::new().int(-27).finish();
        assert_eq!(manager_reply(SM_SPAWN, &mut Reader::new(&body)), Some(Reply::Error(Code::OutOfRes)));
        let body = Writer::new().int(0).int(0x40001).int(0).int(0x40000).int(4).string(b"p").int(9).finish();
        assert!(
            matches!(manager_reply(SM_TASK, &mut Reader::new(&body)), Some(Reply::Tasks(list)) if list[0].pid == 9)
        );
        let body = Writer::new().int(1).int(1).int(0x40000).string(b"alfa").string(b"LINUX64").int(1000).int(7);
        assert!(matches!(
            manager_reply(SM_CONFIG, &mut Reader::new(&body.finish())),
            Some(Reply::Hosts { formats: 1, .. })
        ));
    }
}
