//! Tables as text.
use super::samples::Samples;
use super::systems::{MPIS, System};
use super::verdicts::best_mpi_bandwidth;
use crate::measure::tables::{COPY_WAYS, line};
pub use crate::measure::tables::{FORMS, LONG_SIZES, SHORT_SIZES, digits, form_text, size_text};
use std::collections::BTreeSet;

/// Those of packed messages.
pub const PACKED_SIZES: [usize; 5] = [64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20];
/// The sizes of the message that travels around a ring of tasks, in bytes.
pub const RING_SIZES: [usize; 2] = [8, 4096];

/// The sizes of NetPIPE's messages, in bytes.
pub const NETPIPE_SIZES: [usize; 5] = [8, 64, 4096, 65536, 1 << 20];

/// The sizes of messages while other processes use the cores, in bytes.
pub const LOADED_SIZES: [usize; 4] = [8, 64, 4096, 64 << 10];
/// The measures of such messages, and their titles.
pub const LOADED: [(&str, &str); 5] = [
    ("loaded1", "One way beside one busy process"),
    ("loaded2", "One way beside two busy processes"),
    ("loadedpart", "One way beside a process that runs for 1 ms of every 5"),
    ("loadedpair", "One way beside a second pair of tasks"),
    ("loadedquota", "One way with the time of 1.5 cores"),
];
/// The numbers of tasks whose memory is measured.
pub const MEMORY_TASKS: [usize; 3] = [1, 32, 1000];

/// The number of tasks of `/bin/true` that one call starts.
pub const STARTS: usize = 1000;

/// The numbers of members of the groups.
pub const GROUP_TASKS: [usize; 5] = [2, 4, 8, 16, 32];
/// The group calls that are measured, and their names in tables.
pub const GROUP_CALLS: [(&str, &str); 9] = [
    ("barrier", "pvm_barrier"),
    ("barrier_frozen", "pvm_barrier in a frozen group"),
    ("reduce_8", "pvm_reduce, sum of a double each"),
    ("reduce_1048576", "pvm_reduce, sum of 1 MiB of doubles each"),
    ("gather_8", "pvm_gather, 8 B each"),
    ("gather_65536", "pvm_gather, 64 KiB each"),
    ("bcast_65536", "pvm_bcast of 64 KiB, then gather of 8 B"),
    ("bcast_1048576", "pvm_bcast of 1 MiB, then gather of 8 B"),
    ("scatter_65536", "pvm_scatter, 64 KiB each, then gather of 8 B"),
];

/// Returns whether the sizes of a measure are numbers of tasks; otherwise they are bytes.
pub fn counts_tasks(measure: &str) -> bool {
    measure.starts_with("spawn")
        || measure.starts_with("memory")
        || ["starts", "idle"].contains(&measure)
        || GROUP_CALLS.iter().any(|(call, _)| *call == measure)
}

/// A table: one row for each system and measure, one column for each size.
struct Table<'a> {
    title: &'a str,
    sizes: &'a [usize],
    measures: Vec<String>,
    /// Converts the median for a size to the value that is shown.
    value: fn(usize, f64) -> f64,
    /// Returns the reference for the values of a size; the table shows the ratio to this reference after each value.
    reference: &'a dyn Fn(usize) -> Option<f64>,
}

impl Table<'_> {
    /// Adds the table to `text`, unless it is empty.
    fn add_to(&self, text: &mut String, samples: &Samples) {
        let rows: BTreeSet<(System, usize)> = samples
            .all
            .keys()
            .filter_map(|key| {
                let place = self.measures.iter().position(|measure| *measure == key.measure)?;
                self.sizes.contains(&key.size).then_some((key.system, place))
            })
            .collect();
        if rows.is_empty() {
            return;
        }
        let counts = counts_tasks(&self.measures[0]);
        let head = self.sizes.iter().map(|size| if counts { format!("{size} tasks") } else { size_text(*size) });
        *text += &format!("\n{}\n{}\n", self.title, line("", head));
        for (system, place) in rows {
            let measure = &self.measures[place];
            let name = format!("  {} {}", system.name(), form_text(measure));
            let cells = self.sizes.iter().map(|size| self.cell(samples, system, measure, *size));
            *text += &format!("{}\n", line(name.trim_end(), cells));
        }
    }

    fn cell(&self, samples: &Samples, system: System, measure: &str, size: usize) -> String {
        let Some(median) = samples.median(system, measure, size) else { return String::new() };
        let value = (self.value)(size, median);
        match (self.reference)(size) {
            Some(reference) => format!("{} ({:5.2})", digits(value), value / reference),
            None => digits(value),
        }
    }
}

fn names(prefix: &str, forms: &[&str]) -> Vec<String> {
    forms.iter().map(|form| format!("{prefix}_{form}")).collect()
}

fn plain(_size: usize, median: f64) -> f64 {
    median
}

/// Returns all tables.
pub fn all(samples: &Samples) -> String {
    let mut text = pair(samples);
    add_many(&mut text, samples);
    text
}

/// Returns the tables of latency and bandwidth between two tasks.
pub fn pair(samples: &Samples) -> String {
    let mut text = String::new();
    let limit = |size| {
        let measure = if size == 8 { "pingpong_line" } else { "pingpong_copy" };
        samples.median(System::Limit, measure, size)
    };
    let mut eight = vec!["line", "copy", "psend"];
    eight.extend(FORMS);
    eight.push("mpi");
    let latency = Table {
        title: "One way between two tasks, us (in brackets: times the limit)",
        sizes: &SHORT_SIZES,
        measures: names("pingpong", &eight),
        value: plain,
        reference: &limit,
    };
    latency.add_to(&mut text, samples);
    let mut measures = names("pingpong", &["copy", "psend", "raw_byte", "raw_double", "default_double", "mpi"]);
    measures.insert(0, "memcpy".into());
    let has_mpi = LONG_SIZES.iter().any(|size| best_mpi_bandwidth(samples, *size).is_some());
    let bandwidth = Table {
        title: if has_mpi {
            "Bandwidth of ping-pong between two tasks, GB/s (in brackets: times the best MPI)"
        } else {
            "Bandwidth of ping-pong between two tasks, GB/s"
        },
        sizes: &LONG_SIZES,
        measures,
        value: |size, median| size as f64 / median * 1e-3,
        reference: &|size| best_mpi_bandwidth(samples, size),
    };
    bandwidth.add_to(&mut text, samples);
    add_copy_ways(&mut text, samples);
    text
}

/// Adds how the last long messages of `pvm_psend` were copied.
fn add_copy_ways(text: &mut String, samples: &Samples) {
    let way_of = |size: usize| {
        let way = samples.median(System::Hpvm, "copy_way", size)?;
        Some((size_text(size), *COPY_WAYS.get((way.round() as usize).checked_sub(1)?)?))
    };
    let ways: Vec<_> = LONG_SIZES.iter().filter_map(|size| way_of(*size)).collect();
    if !ways.is_empty() {
        text.push_str("Copies of the last messages of hpvm psend (median of the rounds)\n");
        ways.iter().for_each(|(size, way)| text.push_str(&format!("  {size:34}{way}\n")));
    }
}

fn add_many(tables: &mut String, samples: &Samples) {
    let of_mpis =
        |measure: &str, size| MPIS.iter().filter_map(|mpi| samples.median(*mpi, measure, size)).collect::<Vec<f64>>();
    let best_rate = |_| ["rate_window", "rate_blocking"].iter().flat_map(|form| of_mpis(form, 8)).reduce(f64::max);
    let none = |_| None;
    fn table<'a>(
        title: &'a str,
        sizes: &'a [usize],
        measures: Vec<String>,
        reference: &'a dyn Fn(usize) -> Option<f64>,
    ) -> Table<'a> {
        Table { title, sizes, measures, value: plain, reference }
    }
    let rate = ["line", "psend", "raw_byte", "default_int", "window", "blocking"];
    table(
        "Messages of one sender, window of 64, million a second (in brackets: times the best MPI in its better form)",
        &[8],
        names("rate", &rate),
        &best_rate,
    )
    .add_to(tables, samples);
    let ring = ["psend", "raw_byte", "default_int", "mpi"];
    table("32 tasks in a ring on all cores, one token, us a hop", &RING_SIZES, names("ring", &ring), &none)
        .add_to(tables, samples);
    table("32 tasks in a ring, all send and receive at once, us a round", &RING_SIZES, names("ringall", &ring), &none)
        .add_to(tables, samples);
    table("pvm_mcast to 31 tasks and an answer from each, us", &[64 << 10], vec!["mcast".into()], &none)
        .add_to(tables, samples);
    table("pvm_spawn, ms", &[32], names("spawn", &["call", "all"]), &none).add_to(tables, samples);
    let bare = |tasks| samples.median(System::Limit, "starts", tasks);
    table(
        "pvm_spawn of /bin/true, ms (in brackets: times a bare loop of posix_spawn)",
        &[STARTS],
        vec!["starts".into()],
        &bare,
    )
    .add_to(tables, samples);
    for (call, text) in GROUP_CALLS {
        let best_time = |tasks| of_mpis(call, tasks).into_iter().reduce(f64::min);
        let title = format!("{text}, us (in brackets: times the best MPI)");
        table(&title, &GROUP_TASKS, vec![call.into()], &best_time).add_to(tables, samples);
    }
    let loaded = ["psend", "raw_byte", "mpi"];
    for (measure, title) in LOADED {
        table(&format!("{title}, us"), &LOADED_SIZES, names(measure, &loaded), &none).add_to(tables, samples);
    }
    table(
        "Resident memory, KiB (alone: pages that no other process has; otherwise shared pages by parts)",
        &MEMORY_TASKS,
        names("memory", &["daemon", "task", "alone"]),
        &none,
    )
    .add_to(tables, samples);
    table("CPU use of tasks that wait in pvm_recv, percent", &[2, 32], vec!["idle".into()], &none)
        .add_to(tables, samples);
    table(
        "Debian's NPpvm, the unmodified binary, one way, us (not pinned by itself; for information)",
        &NETPIPE_SIZES,
        vec!["netpipe".into()],
        &none,
    )
    .add_to(tables, samples);
}
