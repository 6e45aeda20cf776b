//! The timeline that the page shows: the newest events, and the state of the machine before the oldest of them.
use crate::timeline::{looks, patch};
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How many bytes of events are kept.
///
/// * Filled by: tasks that change what they do
/// * Setting: none, `pvm run --record` keeps all
/// * Reached: the oldest events go, and the page says from when on it knows the machine
/// * Test: `old_events_become_the_state_before_the_first_event`
pub const BYTES_MAX: usize = 64 << 20;

/// The events of a machine.
pub struct Feed {
    bytes_max: usize,
    kept: Mutex<Kept>,
    news: Condvar,
}

struct Kept {
    /// When the timeline starts.
    start: Arc<str>,
    lines: VecDeque<Arc<str>>,
    /// The number of the oldest line.
    first: u64,
    bytes: usize,
    /// The state before the oldest line, and its time.
    before: Value,
    at: i64,
    metrics: Arc<str>,
    end: Option<Arc<str>>,
    readers: usize,
}

/// What a reader gets.
#[derive(Debug, PartialEq, Eq)]
pub enum News {
    /// The first lines. All that the reader knows is void. The number is that of the next line.
    Anew(Vec<Arc<str>>, u64),
    /// Lines that follow, and the number of the next one.
    Lines(Vec<Arc<str>>, u64),
    /// Nothing has come.
    Nothing,
    /// No line will follow, for this reason.
    End(Arc<str>),
}

/// Somebody who reads the events, as long as this is there.
pub struct Reader<'a>(&'a Feed);

impl Feed {
    /// Makes a feed whose timeline starts with this event.
    pub fn new(start: &Value) -> Feed {
        Feed::with_limit(start, BYTES_MAX)
    }

    /// Makes a feed that keeps all events.
    pub fn unlimited(start: &Value) -> Feed {
        Feed::with_limit(start, usize::MAX)
    }

    fn with_limit(start: &Value, bytes_max: usize) -> Feed {
        let kept = Kept {
            start: start.to_string().into(),
            lines: VecDeque::new(),
            first: 0,
            bytes: 0,
            before: json!({}),
            at: 0,
            metrics: "# EOF\n".into(),
            end: None,
            readers: 0,
        };
        Feed { bytes_max, kept: Mutex::new(kept), news: Condvar::new() }
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an event.
    pub fn push(&self, event: &Value) {
        self.push_line(event.to_string());
    }

    /// Adds the line of an event.
    pub fn push_line(&self, line: String) {
        let mut kept = self.kept();
        kept.bytes += line.len();
        kept.lines.push_back(line.into());
        while kept.bytes > self.bytes_max {
            let Some(line) = kept.lines.pop_front() else { break };
            kept.first += 1;
            kept.bytes -= line.len();
            let mut event: Value = serde_json::from_str(&line).unwrap_or_default();
            if let Some(told) = looks::told(&mut event) {
                patch::apply(&mut kept.before, told);
                kept.at = event["ts"].as_i64().unwrap_or(kept.at);
            }
        }
        self.news.notify_all();
    }

    /// Says that no event will follow.
    pub fn end(&self, why: &str) {
        self.kept().end = Some(why.into());
        self.news.notify_all();
    }

    pub fn set_metrics(&self, text: String) {
        self.kept().metrics = text.into();
    }

    pub fn metrics(&self) -> Arc<str> {
        self.kept().metrics.clone()
    }

    /// Returns how many read.
    pub fn readers(&self) -> usize {
        self.kept().readers
    }

    pub fn reader(&self) -> Reader<'_> {
        self.kept().readers += 1;
        Reader(self)
    }

    /// Returns all lines that are kept.
    pub fn lines(&self) -> Vec<Arc<str>> {
        self.kept().since_the_begin()
    }
}

impl Kept {
    fn since_the_begin(&self) -> Vec<Arc<str>> {
        let before = (self.first > 0).then(|| looks::state_event(self.before.clone(), self.at).to_string().into());
        [self.start.clone()].into_iter().chain(before).chain(self.lines.iter().cloned()).collect()
    }
}

impl Reader<'_> {
    /// Returns the lines from number `next` on; `None` for a reader who knows nothing. Waits for them for some time.
    pub fn news(&self, next: Option<u64>, patience: Duration) -> News {
        let deadline = Instant::now() + patience;
        let mut kept = self.0.kept();
        loop {
            let end = kept.first + kept.lines.len() as u64;
            let Some(next) = next.filter(|next| (kept.first..=end).contains(next)) else {
                return News::Anew(kept.since_the_begin(), end);
            };
            if next < end {
                let skipped = (next - kept.first) as usize;
                return News::Lines(kept.lines.iter().skip(skipped).cloned().collect(), end);
            }
            if let Some(why) = &kept.end {
                return News::End(why.clone());
            }
            let rest = deadline.saturating_duration_since(Instant::now());
            if rest.is_zero() {
                return News::Nothing;
            }
            kept = self.0.news.wait_timeout(kept, rest).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl Drop for Reader<'_> {
    fn drop(&mut self) {
        self.0.kept().readers -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timeline::looks::event;

    fn look(task: &str, state: &str, at: i64) -> Value {
        event(json!({ "tasks": { task: { "state": state } } }), at)
    }

    fn text(lines: &[Arc<str>]) -> Vec<Value> {
        lines.iter().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    #[test]
    fn a_reader_gets_what_follows_and_all_if_that_is_gone() {
        let start = json!({ "start": 1 });
        let feed = Feed::new(&start);
        let reader = feed.reader();
        assert_eq!(feed.readers(), 1);
        feed.push(&look("a", "waits", 1));
        let News::Anew(lines, next) = reader.news(None, Duration::ZERO) else { panic!() };
        assert_eq!((text(&lines), next), (vec![start, look("a", "waits", 1)], 1));
        assert_eq!(reader.news(Some(1), Duration::ZERO), News::Nothing);
        feed.push(&look("a", "computes", 2));
        let News::Lines(lines, next) = reader.news(Some(1), Duration::ZERO) else { panic!() };
        assert_eq!((text(&lines), next), (vec![look("a", "computes", 2)], 2));
        // A number of another feed.
        assert!(matches!(reader.news(Some(77), Duration::ZERO), News::Anew(..)));
        feed.end("it is over");
        assert_eq!(reader.news(Some(2), Duration::ZERO), News::End("it is over".into()));
        drop(reader);
        assert_eq!(feed.readers(), 0);
    }

    #[test]
    fn old_events_become_the_state_before_the_first_event() {
        let room = look("a", "waits", 1).to_string().len() * 2;
        let feed = Feed::with_limit(&json!({}), room);
        for (task, state, at) in [("a", "waits", 1), ("b", "waits", 2), ("a", "stuck", 3), ("c", "waits", 4)] {
            feed.push(&look(task, state, at));
        }
        let reader = feed.reader();
        let News::Anew(lines, 4) = reader.news(Some(1), Duration::ZERO) else { panic!() };
        let state = json!({ "tasks": { "a": { "state": "waits" }, "b": { "state": "waits" } } });
        let before = looks::state_event(state, 2);
        assert_eq!(text(&lines), [json!({}), before, look("a", "stuck", 3), look("c", "waits", 4)]);
    }
}
