use super::*;
use crate::message::SlotState;

/// A pseudorandom number generator.
struct Prng(u64);

impl Prng {
    fn below(&mut self, bound: u32) -> u32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as u32 % bound
    }
}

fn message(ctx: i32, tag: i32, src: i32) -> Message {
    Message { ctx, tag, src, state: SlotState::Queued, ..Message::vacant() }
}

/// Compares the queue with a plain list.
fn compare(seed: u64, kinds: u32, inserts_of_ten: u32) {
    let mut prng = Prng(seed);
    let (mut table, mut queue, mut list) = (Vec::new(), Queue::new(), Vec::<u32>::new());
    for _ in 0..3000 {
        let mut word = |low: i32| prng.below(kinds) as i32 + low;
        let (ctx, tag, src) = (word(0), word(0), word(0x40001));
        if prng.below(10) < inserts_of_ten {
            table.push(message(ctx, tag, src));
            let slot = table.len() as u32 - 1;
            queue.push(&mut table, slot);
            list.push(slot);
            continue;
        }
        let mut wild = |word: i32| if prng.below(3) == 0 { ANY } else { word };
        let filter = Filter { ctx: wild(ctx), tag: wild(tag), src: wild(src) };
        let expected = list.iter().position(|slot| fits(&table[*slot as usize], &filter));
        assert_eq!(queue.find(&mut table, &filter), expected.map(|at| list[at]), "{filter:?}");
        let is_odd = |slot: &&u32| table[**slot as usize].src % 2 != 0;
        let odd = list.iter().filter(is_odd).find(|slot| fits(&table[**slot as usize], &filter)).copied();
        assert_eq!(queue.find_where(&mut table, &filter, |message| message.src % 2 != 0), odd, "{filter:?}");
        if let Some(at) = expected {
            queue.remove(&mut table, list.remove(at));
        }
        assert_eq!(queue.len(), list.len());
    }
    assert!(queue.walk(&table).eq(list.iter().copied()));
}

#[test]
fn the_queue_finds_what_a_plain_list_finds() {
    for seed in 0..8 {
        compare(seed, 3, 5);
        compare(seed, 5, 6);
        compare(seed, 20, 9);
        compare(seed, 2, 8);
    }
}

#[test]
fn an_index_is_made_only_for_a_long_search_and_dropped_with_the_last_message() {
    let mut table: Vec<Message> = (0..200).map(|tag| message(0, tag, 1)).collect();
    let mut queue = Queue::new();
    for slot in 0..200 {
        queue.push(&mut table, slot);
    }
    assert_eq!(queue.find(&mut table, &Filter { src: ANY, tag: 10, ctx: 0 }), Some(10));
    assert!(queue.index.is_none());
    assert_eq!(queue.find(&mut table, &Filter { src: ANY, tag: 150, ctx: 0 }), Some(150));
    assert!(queue.index.is_some());
    for slot in 0..200 {
        queue.remove(&mut table, slot);
    }
    assert!(queue.index.is_none());
}

#[test]
fn a_message_takes_less_than_200_bytes_beside_its_body() {
    assert!(size_of::<Message>() < 200, "{}", size_of::<Message>());
}
