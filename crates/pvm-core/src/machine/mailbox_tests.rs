use super::*;
use crate::codes::ENC_XDR;

const ONE: Tid = Tid(0x40001);
const OTHER: Tid = Tid(0x40002);

fn message(tag: i32) -> Message {
    Message { src: ONE, dst: Tid::DAEMON, ctx: 0, tag, wid: 0, enc: ENC_XDR, body: ByteBuf::new() }
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
    let mut boxes = Mailboxes::default();
    assert_eq!(boxes.put(ONE, b"x", 0, message(1)), Ok(0));
    assert_eq!(boxes.put(OTHER, b"x", 0, message(2)), Err(Code::Denied));
    assert_eq!(boxes.put(ONE, b"x", MBOX_OVER_WRITABLE, message(3)), Ok(0));
    assert_eq!(boxes.put(OTHER, b"x", 0, message(4)), Ok(0));
    assert_eq!(boxes.get(ONE, b"x", 0, 0).unwrap().tag, 4);
}

#[test]
fn many_instances_take_the_lowest_free_index() {
    let mut boxes = Mailboxes::default();
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
    let mut boxes = Mailboxes::default();
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
    let mut boxes = Mailboxes::default();
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
    let mut boxes = Mailboxes::default();
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
    let mut boxes = Mailboxes::default();
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
fn empty_names_and_the_last_index_are_refused() {
    let mut boxes = Mailboxes::default();
    assert_eq!(boxes.put(ONE, b"", 0, message(0)), Err(Code::BadParam));
    assert_eq!(boxes.put(ONE, b"x", -1, message(0)), Err(Code::BadParam));
    let last = (INDEX_MAX - 1) << MBOX_DIRECT_INDEX_SHIFT;
    assert_eq!(boxes.put(ONE, b"x", last, message(0)), Ok(INDEX_MAX - 1));
    assert_eq!(boxes.put(ONE, b"x", last | MBOX_MULTI_INSTANCE, message(0)), Err(Code::OutOfRes));
}
