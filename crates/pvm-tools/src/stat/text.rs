//! The numbers as text.
use super::rows::{HostRow, Rates, Stat, TaskRow};
use pvm_core::host_look::{Count, ROUTE_NAMES};
use std::fmt::Write as _;

/// The most characters of a host's or a program's name that are shown.
const NAME_LEN: usize = 15;

/// Returns the numbers as lines of at most 80 characters.
pub fn text(stat: &Stat) -> String {
    let mut text = format!(
        "{:<NAME_LEN$} {:>6} {:>5} {:>9} {:>9} {:>6} {:>7}\n",
        "HOST", "LOAD", "CORES", "MEMORY", "FREE", "TASKS", "WAITING"
    );
    stat.hosts.iter().for_each(|host| text.push_str(&host_line(host)));
    for name in &stat.silent {
        let _ = writeln!(text, "{} does not answer", short(name));
    }
    let unit = if stat.interval.is_some() {
        ["%CPU", "%WAIT", "SENT/s", "BYTES/s", "RECV/s", "BYTES/s"]
    } else {
        ["CPU", "MEMORY", "SENT", "BYTES", "RECV", "BYTES"]
    };
    let [cpu, wait, sent, sent_bytes, received, received_bytes] = unit;
    let _ = writeln!(
        text,
        "\n{:<9} {:<NAME_LEN$} {:<8} {cpu:>6} {wait:>6} {sent:>7} {sent_bytes:>6} {received:>7} {received_bytes:>6}",
        "TASK", "PROGRAM", "STATE"
    );
    stat.tasks.iter().for_each(|task| text.push_str(&task_line(stat, task)));
    if stat.tasks.is_empty() {
        text.push_str("no tasks (pvm run starts a program)\n");
    }
    let sent = stat.sent_by_route();
    let by_route = ROUTE_NAMES.iter().zip(&sent).filter(|(_, count)| count.messages > 0);
    let by_route: Vec<String> = by_route
        .map(|(name, count)| {
            format!("{name} {} messages, {} bytes", number(count.messages as f64), number(count.bytes as f64))
        })
        .collect();
    if !by_route.is_empty() {
        let _ = writeln!(text, "\nsent by route: {}", by_route.join("; "));
    }
    text
}

fn task_line(stat: &Stat, task: &TaskRow) -> String {
    let numbers = match (stat.interval, &task.rates) {
        (Some(_), Some(rates)) => of_rates(rates),
        (Some(_), None) => std::array::from_fn(|_| "-".to_owned()),
        (None, _) => totals(task),
    };
    let [cpu, wait, sent, sent_bytes, received, received_bytes] = numbers;
    let program = short(&task.program());
    format!(
        "{:<9} {program:<NAME_LEN$} {:<8} {cpu:>6} {wait:>6} {sent:>7} {sent_bytes:>6} {received:>7} {received_bytes:>6}\n",
        task.info.tid.to_string(),
        task.state_shown()
    )
}

fn host_line(host: &HostRow) -> String {
    let load = host.load;
    format!(
        "{:<NAME_LEN$} {:>6.2} {:>5} {:>9} {:>9} {:>6} {:>7}\n",
        short(&host.name),
        f64::from(load.running_hundredths) / 100.0,
        load.cores,
        number(load.memory_bytes as f64),
        number(load.memory_available_bytes as f64),
        host.tasks,
        host.waiting
    )
}

fn totals(task: &TaskRow) -> [String; 6] {
    let process = task.process.as_ref();
    let [sent, received] = [&task.traffic.sent, &task.traffic.received].map(|counts| Count::sum(counts));
    let unknown = || "-".to_owned();
    [
        process.map_or_else(unknown, |process| format!("{:.2}", process.cpu_seconds)),
        process.map_or_else(unknown, |process| number(process.memory_bytes as f64)),
        number(sent.messages as f64),
        number(sent.bytes as f64),
        number(received.messages as f64),
        number(received.bytes as f64),
    ]
}

fn of_rates(rates: &Rates) -> [String; 6] {
    [
        format!("{:.0}", rates.cpu * 100.0),
        format!("{:.0}", rates.waiting * 100.0),
        number(rates.sent[0]),
        number(rates.sent[1]),
        number(rates.received[0]),
        number(rates.received[1]),
    ]
}

/// Returns the first characters of a name, without those that a terminal would not print.
fn short(name: &str) -> String {
    name.chars().filter(|letter| !letter.is_control()).take(NAME_LEN).collect()
}

/// Returns a number with at most five characters: thousands have a letter.
pub fn number(number: f64) -> String {
    let mut number = number;
    for unit in ["", "k", "M", "G", "T", "P"] {
        if number < 999.5 {
            return match unit {
                "" => format!("{number:.0}"),
                _ if number < 9.95 => format!("{number:.1}{unit}"),
                _ => format!("{number:.0}{unit}"),
            };
        }
        number /= 1000.0;
    }
    format!("{number:.0}E")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        let cases = [
            (0.0, "0"),
            (999.4, "999"),
            (999.6, "1.0k"),
            (1_050.0, "1.1k"),
            (9_949.0, "9.9k"),
            (12_345.0, "12k"),
            (5e6, "5.0M"),
            (2.5e10, "25G"),
            (1e19, "10E"),
        ];
        for (given, expected) in cases {
            assert_eq!(number(given), expected);
        }
    }

    #[test]
    fn names_show_nothing_that_controls_a_terminal() {
        assert_eq!(short("a\x1b[31mb\n"), "a[31mb");
    }
}
