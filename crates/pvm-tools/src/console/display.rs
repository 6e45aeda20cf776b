//! Displays output while a person types.
//!
//! The line editor can print text while a line is being edited, but if several keys arrive at once, it then handles
//! some of them only when the next key is pressed. So the console redraws the line itself: it clears the line, prints
//! the output, and shows prompt and line again with the cursor where it was. The editor counts columns from the prompt,
//! so the redrawing does not confuse the editor.
use std::time::{Duration, Instant};
use unicode_width::UnicodeWidthStr;

/// How long the console waits after a key before it redraws the line: the editor reports a key shortly before it shows
/// the key.
const SETTLE_TIME: Duration = Duration::from_millis(5);

/// The line that is being typed.
#[derive(Debug, Default)]
pub struct Typing {
    line: String,
    /// The position of the cursor in the line, in bytes.
    position: usize,
    noted: Option<Instant>,
    accepted: bool,
}

impl Typing {
    /// Records the current line and the position of the cursor.
    pub fn note(&mut self, line: &str, position: usize) {
        line.clone_into(&mut self.line);
        self.position = position;
        self.noted = Some(Instant::now());
    }

    /// Records that the line is accepted: the editor is about to print the line feed.
    pub fn accept(&mut self) {
        self.accepted = true;
    }

    /// Returns how long to wait until the terminal shows the recorded line; `None` if it already does.
    pub fn unsettled(&self) -> Option<Duration> {
        let left = self.noted.map_or(Duration::ZERO, |noted| SETTLE_TIME.saturating_sub(noted.elapsed()));
        match (self.accepted, left.is_zero()) {
            (true, _) => Some(SETTLE_TIME),
            (false, false) => Some(left),
            (false, true) => None,
        }
    }

    /// Returns the bytes that show `text` above the line on a terminal of this width (0: unknown).
    pub fn with_text_above(&self, prompt: &str, text: &[u8], columns: usize) -> Vec<u8> {
        let columns = if columns == 0 { usize::MAX } else { columns };
        let cursor = prompt.width() + self.line.get(..self.position).map_or(0, UnicodeWidthStr::width);
        let end = prompt.width() + self.line.width();
        let mut shown = up(cursor / columns);
        shown.extend_from_slice(b"\r\x1b[J");
        for line in text.split_inclusive(|byte| *byte == b'\n') {
            shown.extend_from_slice(line.strip_suffix(b"\n").unwrap_or(line));
            // In raw mode a line feed does not return to the first column.
            shown.extend_from_slice(b"\r\n");
        }
        shown.extend_from_slice(prompt.as_bytes());
        shown.extend_from_slice(self.line.as_bytes());
        if cursor < end {
            shown.append(&mut up(end / columns - cursor / columns));
            shown.push(b'\r');
            if cursor % columns > 0 {
                shown.extend_from_slice(format!("\x1b[{}C", cursor % columns).as_bytes());
            }
        }
        shown
    }
}

/// Returns the bytes that move the cursor up.
fn up(rows: usize) -> Vec<u8> {
    match rows {
        0 => Vec::new(),
        rows => format!("\x1b[{rows}A").into_bytes(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(line: &str, position: usize, columns: usize) -> String {
        let mut typing = Typing::default();
        typing.note(line, position);
        String::from_utf8(typing.with_text_above("pvm> ", b"[1:t40002] a\n[1:t40002] b\n", columns)).unwrap()
    }

    #[test]
    fn the_line_is_shown_again_below_the_text() {
        assert_eq!(shown("echo", 4, 80), "\r\x1b[J[1:t40002] a\r\n[1:t40002] b\r\npvm> echo");
        assert_eq!(shown("", 0, 0), "\r\x1b[J[1:t40002] a\r\n[1:t40002] b\r\npvm> ");
    }

    #[test]
    fn the_cursor_returns_to_its_place() {
        assert!(shown("echo", 2, 80).ends_with("pvm> echo\r\x1b[7C"));
        // The line fills two rows of ten columns; the cursor is in the first row, then in the second.
        assert!(shown("0123456789", 2, 10).starts_with("\r\x1b[J"));
        assert!(shown("0123456789", 2, 10).ends_with("0123456789\x1b[1A\r\x1b[7C"));
        assert!(shown("0123456789", 10, 10).starts_with("\x1b[1A\r\x1b[J"));
    }
}
