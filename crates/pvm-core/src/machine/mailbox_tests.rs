use super::*;

/// The limit on the size of all mailboxes of a test, in bytes.
const BYTES_MAX: usize = 1 << 20;
const ONE: Tid = Tid(0x40001);
const OTHER: Tid = Tid(0x40002);

fn message(tag: i32) -> Message {
    Message::new(ONE, Tid::DAEMON, 0, tag, ByteBuf::new())
}

#[test]
fn patterns_are_searched_for_anywhere() {
    for pattern in ["", "*", "b", "abc", "a*c", "*c", "a\\**"] {
        let name = if pattern.contains('\\') { "xa*y" } else { "xabcx" };
        assert!(matches(pattern.as_bytes(), name.as_bytes()), "{pattern}");
    }
    for pattern in ["cb", "c*a", "a\\*c", "xx", "abcxx"] {
        assert!(!matches(pattern.as_bytes(), b"xabcx"), "{pattern}");
    }
}

#[test]
fn a_plain_entry_is_replaced_by_its_owner_alone() {
    let mut boxes = Mailboxes::new(BYTES_MAX);
    assert_eq!(boxes.put(ONE, b"x", 0, message(1)), Ok(0));
    assert_eq!(boxes.put(OTHER, b"x", 0, message(2)), Err(Code::Denied));
    assert_eq!(boxes.put(ONE, b"x", MBOX_OVER_WRITABLE, message(3)), Ok(0));
    assert_eq!(boxes.put(OTHER, b"x", 0, message(4)), Ok(0));
    assert_eq!(boxes.get(ONE, b"x", 0, 0).unwrap().tag, 4);
}

#[test]
fn many_instances_take_the_lowest_free_index() {
    let mut boxes = Mailboxes::new(BYTES_MAX);
    let multi = MBOX_MULTI_INSTANCE;
    assert_eq!(boxes.put(ONE, b"x", 0, message(0)), Ok(0));
    assert_eq!(boxes.put(OTHER, b"x", multi, message(1)), Ok(1));
    assert_eq!(boxes.put(OTHER, b"x", multi | 1 << 10 | 4 << 10, message(5)), Ok(5));
    assert_eq!(boxes.put(OTHER, b"x", multi | 5 << 10, message(6)), Ok(6));
    assert_eq!(boxes.delete(OTHER, b"x", 1, 0), Ok(Reply::Int(1)));
    assert_eq!(boxes.put(ONE, b"x", multi, message(7)), Ok(1));
    assert_eq!(boxes.put(ONE, b"y", 7 << 10, message(8)), Ok(7));
}

#[test]
fn the_first_available_entry_is_the_lowest_from_the_index_on() {
    let mut boxes = Mailboxes::new(BYTES_MAX);
    for index in [2, 5] {
        boxes.put(ONE, b"x", index << 10, message(index)).unwrap();
    }
    assert_eq!(boxes.get(OTHER, b"x", 0, 0), Err(Code::NotFound));
    assert_eq!(boxes.get(OTHER, b"x", 0, MBOX_FIRST_AVAIL).unwrap().tag, 2);
    assert_eq!(boxes.get(OTHER, b"x", 3, MBOX_FIRST_AVAIL).unwrap().tag, 5);
    assert_eq!(boxes.get(OTHER, b"x", 6, MBOX_FIRST_AVAIL), Err(Code::NotFound));
    assert_eq!(boxes.get(OTHER, b"x", -1, 0), Err(Code::BadParam));
}

#[test]
fn reading_away_needs_the_owner_or_an_entry_that_all_may_write() {
    let mut boxes = Mailboxes::new(BYTES_MAX);
    boxes.put(ONE, b"x", 0, message(1)).unwrap();
    boxes.put(ONE, b"y", MBOX_OVER_WRITABLE, message(2)).unwrap();
    assert_eq!(boxes.get(OTHER, b"x", 0, MBOX_READ_AND_DELETE), Err(Code::Denied));
    assert!(boxes.get(OTHER, b"y", 0, MBOX_READ_AND_DELETE).is_ok());
    assert!(boxes.get(ONE, b"x", 0, MBOX_READ_AND_DELETE).is_ok());
    assert!(boxes.list(b"").is_empty());
    assert_eq!(boxes.delete(ONE, b"x", 0, 0), Err(Code::NotFound));
}

#[test]
fn what_outlives_its_owner_belongs_to_everybody() {
    let mut boxes = Mailboxes::new(BYTES_MAX);
    boxes.put(ONE, b"gone", 0, message(1)).unwrap();
    boxes.put(ONE, b"kept", MBOX_PERSISTENT, message(2)).unwrap();
    boxes.forget(ONE);
    let list = boxes.list(b"*");
    assert_eq!((list.len(), list[0].entries.clone()), (1, vec![(0, Tid::NONE, MBOX_PERSISTENT)]));
    assert_eq!(boxes.put(OTHER, b"kept", MBOX_PERSISTENT, message(3)), Ok(0));
    boxes.forget(OTHER);
    assert_eq!(boxes.delete(ONE, b"kept", 0, 0), Ok(Reply::Int(0)));
}

#[test]
fn a_reset_removes_only_what_has_no_owner() {
    let mut boxes = Mailboxes::new(BYTES_MAX);
    let multi = MBOX_PERSISTENT | MBOX_MULTI_INSTANCE;
    for _ in 0..2 {
        boxes.put(ONE, b"x", multi, message(0)).unwrap();
    }
    boxes.put(ONE, b"y", multi, message(0)).unwrap();
    boxes.forget(ONE);
    boxes.put(OTHER, b"x", multi, message(0)).unwrap();
    boxes.reset(Some(b"x"), Some(1));
    assert_eq!(boxes.list(b"x")[0].entries.len(), 2);
    boxes.reset(None, None);
    let list = boxes.list(b"");
    assert_eq!((list.len(), list[0].entries.clone()), (1, vec![(2, OTHER, multi)]));
}

#[test]
fn empty_names_are_refused_and_the_last_index_is_followed_by_none() {
    let mut boxes = Mailboxes::new(BYTES_MAX);
    assert_eq!(boxes.put(ONE, b"", 0, message(0)), Err(Code::BadParam));
    let last = (INDEX_MAX - 1) << MBOX_DIRECT_INDEX_SHIFT;
    assert_eq!(boxes.put(ONE, b"x", last, message(0)), Ok(INDEX_MAX - 1));
    assert_eq!(boxes.put(ONE, b"x", last | MBOX_MULTI_INSTANCE, message(0)), Err(Code::OutOfRes));
}

#[test]
fn the_sign_of_the_flags_is_no_part_of_the_index() {
    let mut boxes = Mailboxes::new(BYTES_MAX);
    assert_eq!(boxes.put(ONE, b"x", i32::MIN, message(0)), Ok(0));
    assert_eq!(boxes.put(ONE, b"x", i32::MIN | 5 << MBOX_DIRECT_INDEX_SHIFT, message(0)), Ok(5));
    assert_eq!(boxes.put(ONE, b"x", !MBOX_MULTI_INSTANCE, message(0)), Ok(INDEX_MAX - 1));
    assert_eq!(boxes.get(ONE, b"x", 5, 0), Ok(message(0)));
}

#[test]
fn entries_of_many_owners_take_the_first_gap() {
    let mut boxes = Mailboxes::new(BYTES_MAX);
    let put = |boxes: &mut Mailboxes, from: i32| {
        boxes.put(ONE, b"x", MBOX_MULTI_INSTANCE | from << MBOX_DIRECT_INDEX_SHIFT, message(1)).unwrap()
    };
    assert_eq!([0; 4].map(|from| put(&mut boxes, from)), [0, 1, 2, 3]);
    assert_eq!((put(&mut boxes, 7), put(&mut boxes, 2), put(&mut boxes, 7)), (7, 4, 8));
    for index in [3, 1] {
        assert_eq!(boxes.delete(ONE, b"x", index, 0), Ok(Reply::Int(index)));
    }
    assert_eq!([2, 0, 0, 0, 0, 0].map(|from| put(&mut boxes, from)), [3, 1, 5, 6, 9, 10]);
}

#[test]
fn nothing_is_remembered_of_owners_and_waiters_that_have_gone() {
    let mut boxes = Mailboxes::new(BYTES_MAX);
    boxes.put(ONE, b"x", 0, message(1)).unwrap();
    boxes.put(ONE, b"y", MBOX_PERSISTENT, message(1)).unwrap();
    boxes.put(OTHER, b"y", MBOX_MULTI_INSTANCE, message(1)).unwrap();
    for name in [b"a", b"a", b"b"] {
        boxes.wait(PendingReceive { task: ONE, wait: 1, name: name.to_vec(), index: 0, flags: 0 });
    }
    boxes.wait(PendingReceive { task: OTHER, wait: 1, name: b"a".to_vec(), index: 0, flags: 0 });
    boxes.forget(ONE);
    assert_eq!((boxes.list(b"x").len(), boxes.list(b"y")[0].entries.len()), (0, 2));
    assert!(!boxes.is_idle());
    assert_eq!(boxes.take_pending_receives(b"a").len(), 1);
    assert!(!boxes.is_idle());
    boxes.forget(OTHER);
    boxes.reset(Some(b"x"), None);
    // Persistent entries do not count.
    assert_eq!((boxes.is_idle(), boxes.list(b"").len()), (true, 1));
    boxes.reset(Some(b"y"), Some(0));
    assert_eq!((boxes.is_idle(), boxes.list(b"").len(), boxes.bytes, boxes.owned.len()), (true, 0, 0, 0));
}

#[test]
fn the_size_of_all_mailboxes_is_limited() {
    let mut boxes = Mailboxes::new(BYTES_MAX);
    let put = |boxes: &mut Mailboxes| boxes.put(ONE, b"flood", MBOX_MULTI_INSTANCE, message(1));
    let count = std::iter::from_fn(|| put(&mut boxes).ok()).count();
    assert!(count > 1000 && count * ENTRY_BYTES <= BYTES_MAX);
    assert_eq!(put(&mut boxes), Err(Code::NoMem));
    let long = Message { body: ByteBuf::from(vec![0; BYTES_MAX]), ..message(1) };
    assert_eq!(boxes.put(OTHER, b"x", 0, long), Err(Code::NoMem));
    boxes.delete(ONE, b"flood", 7, 0).unwrap();
    assert_eq!(put(&mut boxes), Ok(7));
    boxes.forget(ONE);
    assert_eq!((boxes.bytes, boxes.is_idle()), (0, true));
}

#[test]
fn an_entry_makes_room_for_the_one_that_replaces_it() {
    let mut boxes = Mailboxes::new(BYTES_MAX);
    let long = |bytes: usize| Message::new(ONE, Tid::DAEMON, 0, 1, ByteBuf::from(vec![0; bytes]));
    assert_eq!(boxes.put(ONE, b"x", 0, long(BYTES_MAX / 2)), Ok(0));
    for bytes in [BYTES_MAX * 3 / 4, BYTES_MAX / 2] {
        assert_eq!(boxes.put(ONE, b"x", 0, long(bytes)), Ok(0));
    }
    assert_eq!(boxes.put(ONE, b"y", 0, long(BYTES_MAX / 2)), Err(Code::NoMem));
    assert_eq!(boxes.put(ONE, b"x", 0, long(BYTES_MAX)), Err(Code::NoMem));
    assert_eq!(boxes.get(ONE, b"x", 0, 0).unwrap().body.len(), BYTES_MAX / 2);
}
