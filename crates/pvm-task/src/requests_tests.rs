use super::*;
use crate::message::OWN_DSIG;
use crate::test_daemon::enrolled;
use crate::types::Source;
use crate::{ANY, Environment, Task};
use pvm_core::codes::{DATA_DEFAULT, DATA_IN_PLACE, DATA_RAW, ENC_XDR};
use pvm_core::machine::BESIDE_VARIABLE;
use pvm_core::proto::{ByteBuf, Request};

const PEER: Tid = Tid(0x40002);

/// Adds a request to the table, as if it had been sent. Returns the request's number.
fn add(requests: &mut Requests, purpose: Purpose) -> u32 {
    let number = requests.next_number();
    requests.add(number, purpose);
    number
}

#[test]
fn each_caller_gets_its_own_reply_once() {
    let mut requests = Requests::default();
    let [one, two, three] = [(); 3].map(|()| add(&mut requests, Purpose::Caller));
    assert_eq!(requests.on_reply(three, Reply::Int(3)), None);
    assert_eq!(requests.on_reply(one, Reply::Error(Code::NoTask)), None);
    assert_eq!(requests.poll(two), None, "it has no reply yet");
    assert_eq!(requests.poll(three), Some(Ok(Reply::Int(3))));
    assert_eq!(requests.poll(three), Some(Err(Code::SysErr)), "its reply was fetched");
    assert_eq!(requests.on_reply(two, Reply::Int(2)), None);
    assert_eq!(requests.poll(one), Some(Err(Code::NoTask)));
    assert_eq!(requests.poll(two), Some(Ok(Reply::Int(2))));
    assert_eq!(requests.len(), 0);
}

#[test]
fn a_pending_number_is_not_given_again_when_the_numbers_wrap() {
    let mut requests = Requests::default();
    let [one, two] = [(); 2].map(|()| add(&mut requests, Purpose::Caller));
    requests.last_number = u32::MAX - 1;
    let later = [(); 3].map(|()| add(&mut requests, Purpose::Caller));
    assert_eq!(later, [u32::MAX, 0, two + 1]);
    assert_eq!((one, two), (1, 2));
}

#[test]
fn unknown_and_second_replies_are_ignored() {
    let mut requests = Requests::default();
    let number = add(&mut requests, Purpose::Caller);
    assert_eq!(requests.on_reply(number + 1, Reply::Int(1)), None);
    assert_eq!(requests.on_reply(number, Reply::Int(2)), None);
    assert_eq!(requests.on_reply(number, Reply::Int(3)), None);
    assert_eq!(requests.poll(number), Some(Ok(Reply::Int(2))));
    assert_eq!(requests.len(), 0);
}

#[test]
fn an_abandoned_request_leaves_nothing_behind() {
    let mut requests = Requests::default();
    let [early, late] = [(); 2].map(|()| add(&mut requests, Purpose::Caller));
    requests.abandon(early);
    assert_eq!(requests.len(), 2, "its reply still comes");
    assert_eq!(requests.on_reply(early, Reply::Done), None);
    assert_eq!(requests.len(), 1);
    assert_eq!(requests.on_reply(late, Reply::Done), None);
    requests.abandon(late);
    assert_eq!(requests.len(), 0);
    let ignored = add(&mut requests, Purpose::Ignored);
    assert_eq!(requests.on_reply(ignored, Reply::Error(Code::NoMem)), None);
    assert_eq!(requests.len(), 0);
}

#[test]
fn replies_for_the_task_itself_are_returned_with_their_purpose() {
    let mut requests = Requests::default();
    let introduction = add(&mut requests, Purpose::Introduction(PEER));
    let link = add(&mut requests, Purpose::DirectLink(Tid(0x80001)));
    assert!(requests.is_introducing(PEER) && !requests.is_introducing(Tid(0x80001)));
    assert_eq!(requests.on_reply(link, Reply::Done), Some((Purpose::DirectLink(Tid(0x80001)), Reply::Done)));
    assert!(requests.is_introducing(PEER));
    assert_eq!(requests.on_reply(introduction, Reply::Done), Some((Purpose::Introduction(PEER), Reply::Done)));
    assert!(!requests.is_introducing(PEER));
    assert_eq!(requests.on_reply(introduction, Reply::Done), None, "it was answered");
}

#[test]
fn a_reply_instead_of_the_awaited_one_ends_the_wait_once() {
    let mut requests = Requests::default();
    assert_eq!(requests.awaited_info(), None);
    let [call, awaited] = [Purpose::Caller, Purpose::AwaitedInfo].map(|purpose| add(&mut requests, purpose));
    assert_eq!(requests.awaited_info(), Some(awaited), "the other call gets its own reply");
    let instead = add(&mut requests, Purpose::InsteadOf(awaited));
    assert_eq!(requests.on_reply(instead, Reply::Error(Code::NotFound)), None);
    assert_eq!(requests.awaited_info(), None);
    assert_eq!(requests.on_reply(awaited, Reply::Int(1)), None, "it comes too late");
    assert_eq!(requests.poll(awaited), Some(Err(Code::NotFound)));
    assert_eq!(requests.poll(call), None);
    let late = add(&mut requests, Purpose::InsteadOf(awaited));
    assert_eq!(requests.on_reply(late, Reply::Done), None, "nothing waits any more");
    assert_eq!(requests.len(), 1);
}

#[test]
fn of_a_lost_daemon_only_the_replies_that_have_come_remain() {
    let mut requests = Requests::default();
    let [answered, open] = [(); 2].map(|()| add(&mut requests, Purpose::Caller));
    add(&mut requests, Purpose::Introduction(PEER));
    assert_eq!(requests.on_reply(answered, Reply::Int(1)), None);
    requests.on_daemon_lost();
    assert!(!requests.is_introducing(PEER));
    assert_eq!(requests.poll(open), Some(Err(Code::SysErr)));
    assert_eq!(requests.poll(answered), Some(Ok(Reply::Int(1))));
}

#[test]
fn a_request_waits_for_its_reply_or_for_the_end_of_the_daemon() {
    let (mut task, mut daemon) = enrolled(Tid(0x40001));
    let config = task.begin(Request::Config).unwrap();
    let context = task.begin(Request::NewContext).unwrap();
    let siblings = task.begin(Request::Siblings).unwrap();
    let sent = daemon.requests();
    assert_eq!(
        sent.iter().map(|(_, request)| request).collect::<Vec<_>>(),
        [&Request::Config, &Request::NewContext, &Request::Siblings]
    );
    assert_eq!(task.poll_reply(&context), None);
    daemon.reply(&mut task, sent[1].0, Reply::Int(7));
    daemon.reply(&mut task, sent[0].0, Reply::Error(Code::NoHost));
    assert_eq!(task.poll_reply(&context), Some(Ok(Reply::Int(7))));
    assert_eq!(task.poll_reply(&config), Some(Err(Code::NoHost)));
    assert_eq!(task.poll_reply(&siblings), None);
    daemon.die(&mut task);
    assert_eq!(task.poll_reply(&siblings), Some(Err(Code::SysErr)));
    assert_eq!(task.begin(Request::Config), Err(Code::SysErr));
}

#[test]
fn a_forgotten_request_is_answered_in_vain() {
    let (mut task, mut daemon) = enrolled(Tid(0x40001));
    let ticket = task.begin(Request::Config).unwrap();
    task.forget(ticket);
    let number = daemon.requests()[0].0;
    daemon.reply(&mut task, number, Reply::Done);
    assert_eq!(task.member.as_ref().unwrap().requests.len(), 0);
}

#[test]
fn a_handler_cannot_wait_for_the_daemon() {
    let (mut task, _daemon) = enrolled(Tid(0x40001));
    task.add_handler(ANY, 5, ANY, 1).unwrap();
    assert!(task.psend(0x40001, 5, b"").is_ok());
    assert!(task.next_handler_call().is_some());
    assert_eq!(task.begin(Request::Config), Err(Code::NotImpl));
    task.handler_done();
    assert!(task.begin(Request::Config).is_ok());
}

#[test]
fn a_spawn_carries_what_children_inherit() {
    let mut task = Task::new(&Environment::from_lookup(|name| (name == "PVMSPAWNPATH").then(|| "/opt".into())));
    task.set_context(0x1f);
    task.set_trace_mask(true, b"mask").unwrap();
    let spawn =
        |task: &Task, count| task.spawn_request(b"worker", &[b"-n", b"2"], 1, b"host", count, &[b"A=b".to_vec()]);
    assert_eq!(spawn(&task, 0), Err(Code::BadParam));
    let Ok(Request::Spawn(request)) = spawn(&task, 3) else { panic!("no spawn") };
    assert_eq!(
        (&request.file[..], request.flags, &request.place[..], request.count),
        (&b"worker"[..], 1, &b"host"[..], 3)
    );
    assert_eq!(request.arguments, [ByteBuf::from("-n"), ByteBuf::from("2")]);
    let has = |variable: &[u8]| request.environment.iter().any(|other| other.as_slice() == variable);
    assert!(has(b"PVMCTX=0x1f") && has(b"PVMTMASK=mask") && has(b"A=b"), "{:?}", request.environment);
    assert!(has(&[BESIDE_VARIABLE, b"/opt"].concat()));
}

#[test]
fn a_message_goes_to_the_daemon_and_comes_back_as_it_was() {
    struct Piece;
    impl Source for Piece {
        fn bytes(&self) -> &[u8] {
            b"in place"
        }
    }
    let mut task = Task::new(&Environment::from_lookup(|_| None));
    for (encoding, enc) in [(DATA_DEFAULT, ENC_XDR), (DATA_RAW, OWN_DSIG), (DATA_IN_PLACE, OWN_DSIG)] {
        let mid = task.init_send(encoding).unwrap();
        match encoding {
            DATA_IN_PLACE => task.pack_in_place(Box::new(Piece)).unwrap(),
            _ => task.pack(crate::Kind::Int, &[1; 8]).unwrap(),
        }
        let info = crate::MessageInfo { ctx: 3, tag: 4, wid: 5, src: 6, dst: 7, ..Default::default() };
        task.set_message_info(mid, &info).unwrap();
        let exported = task.export_message(mid).unwrap();
        assert_eq!(exported.enc, enc, "in-place data become raw data");
        let copy = task.import_message(exported.clone());
        assert_ne!(copy, mid);
        assert_eq!(task.export_message(copy).unwrap(), exported);
        assert_eq!((task.send_buffer(), task.receive_buffer()), (mid, 0), "the copy is not active");
        let copied = task.message_info(copy).unwrap();
        assert_eq!((copied.ctx, copied.tag, copied.wid, copied.src, copied.dst, copied.len), (3, 4, 5, 6, 7, 8));
    }
    assert_eq!(task.export_message(0), Err(Code::BadParam));
    assert_eq!(task.export_message(99), Err(Code::NoSuchBuf));
}
