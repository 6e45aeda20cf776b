//! The files of the page, and the page as one file with a timeline inside.
use std::io::{self, Write};
use std::sync::Arc;

/// The media types.
pub const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";

const INDEX: &str = include_str!("page/index.html");
const STYLE: &str = concat!(include_str!("page/uplot.css"), include_str!("page/monitor.css"));
/// In the order in which they use each other.
const SCRIPTS: &str = concat!(
    include_str!("page/uplot.js"),
    "\n",
    include_str!("page/record.js"),
    include_str!("page/parts.js"),
    include_str!("page/waits.js"),
    include_str!("page/spacetime.js"),
    include_str!("page/tables.js"),
    include_str!("page/main.js"),
);
/// What the page says in place of the files.
const STYLE_LINK: &str = "<link rel=\"stylesheet\" href=\"monitor.css\">";
const SCRIPT_LINK: &str = "<script src=\"monitor.js\" defer></script>";

/// Returns media type and content of a file of the page.
pub fn part(path: &str) -> Option<(&'static str, &'static str)> {
    match path {
        "/" => Some((HTML, INDEX)),
        "/monitor.css" => Some((CSS, STYLE)),
        "/monitor.js" => Some((SCRIPT, SCRIPTS)),
        _ => None,
    }
}

/// Writes the page with these events as one file, which needs nothing else.
pub fn save(lines: &[Arc<str>], out: &mut impl Write) -> io::Result<()> {
    let (head, rest) = INDEX.split_once(STYLE_LINK).unwrap_or((INDEX, ""));
    let (middle, rest) = rest.split_once(SCRIPT_LINK).unwrap_or((rest, ""));
    let (body, end) = rest.split_once("</body>").unwrap_or((rest, ""));
    writeln!(out, "{head}<style>{STYLE}</style>{middle}{body}<script type=\"application/x-ndjson\" id=\"record\">")?;
    for line in lines {
        // Names of tasks may hold anything, also the end of a script.
        writeln!(out, "{}", line.replace('<', "\\u003c"))?;
    }
    write!(out, "</script>\n<script>{SCRIPTS}</script>\n</body>{end}")?;
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_saved_page_needs_no_other_file_and_obeys_no_name_of_a_task() {
        let line = "{\"name\":\"</script><script>alert(1)</script>\"}";
        let mut out = Vec::new();
        save(&[line.into()], &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(!text.contains("href=\"monitor.css\"") && !text.contains("src="), "files are named");
        let (_, rest) = text.split_once("id=\"record\">\n").unwrap();
        let (record, scripts) = rest.split_once("</script>").unwrap();
        let value: serde_json::Value = serde_json::from_str(record).unwrap();
        assert_eq!(value["name"], "</script><script>alert(1)</script>");
        // Nothing in the scripts ends them.
        assert_eq!(scripts.matches("</script>").count(), 1);
        assert!(text.ends_with("</html>\n"));
    }
}
