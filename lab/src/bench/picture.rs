//! Draws everything that was measured, with the machine, the day and the version.
use super::samples::Samples;
use super::systems::{ALL, MPIS, System};
use super::tables::{
    self, GROUP_CALLS, GROUP_TASKS, LOADED, LONG_SIZES, NETPIPE_SIZES, SHORT_SIZES, form_text, size_text,
};
use anyhow::{Result, anyhow};
use plotters::coord::Shift;
use plotters::prelude::*;
use std::collections::BTreeMap;
use std::path::Path;

const WIDTH: u32 = 1280;
/// The heights of the head, of the large charts and of the small charts, in pixels.
const HEAD_HEIGHT: u32 = 86;
const LARGE_HEIGHT: u32 = 520;
const SMALL_HEIGHT: u32 = 340;
/// The height of a bar, and the width of the name before the bar, in pixels.
const BAR_HEIGHT: i32 = 17;
const BAR_NAME_WIDTH: i32 = 215;
/// The number of small charts side by side.
const SMALL_ABREAST: usize = 3;

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// A line of a chart.
struct Line {
    label: String,
    color: RGBColor,
    points: Vec<(f64, f64)>,
}

/// A chart of values against sizes or numbers of tasks.
struct Chart {
    title: String,
    x_title: &'static str,
    y_title: &'static str,
    x_text: fn(f64) -> String,
    /// Whether the axis is logarithmic; otherwise it begins at 0.
    y_log: bool,
    lines: Vec<Line>,
}

/// A list of bars.
struct Bars {
    title: String,
    rows: Vec<(String, System, f64)>,
}

/// Returns the color of a system.
fn color(system: System) -> RGBColor {
    match system {
        System::Limit => BLACK,
        System::Hpvm => RGBColor(200, 30, 30),
        System::Pvm => RGBColor(120, 120, 120),
        System::PvmDirect => RGBColor(170, 170, 170),
        System::OpenMpi => RGBColor(40, 90, 180),
        System::OpenMpiCopy => RGBColor(120, 160, 225),
        System::NewestOpenMpi => RGBColor(20, 50, 130),
        System::NewestOpenMpiCopy => RGBColor(90, 120, 200),
        System::Mpich => RGBColor(60, 150, 90),
        System::MpichCopy => RGBColor(140, 205, 160),
        System::NewestMpich => RGBColor(20, 100, 50),
        System::IntelMpi => RGBColor(150, 60, 170),
    }
}

fn bytes(value: f64) -> String {
    size_text(value as usize)
}

fn number(value: f64) -> String {
    format!("{value}")
}

/// Returns the lines of the two large charts: times in one direction, in us. If a size has several values, the smallest
/// is shown.
fn message_lines(samples: &Samples) -> Vec<Line> {
    let mpi = |settings: &[System]| settings.iter().map(|system| (*system, "pingpong_mpi")).collect::<Vec<_>>();
    let psend = |system| vec![(system, "pingpong_psend")];
    let limit = vec![(System::Limit, "pingpong_line"), (System::Limit, "pingpong_copy")];
    let packed = vec![(System::Hpvm, "pingpong_raw_byte")];
    let lines = [
        ("hpvm psend/precv", color(System::Hpvm), psend(System::Hpvm)),
        ("hpvm pack, send, recv, unpack", RGBColor(235, 140, 60), packed),
        ("PVM 3.4.6 psend/precv", color(System::Pvm), psend(System::Pvm)),
        ("PVM 3.4.6 direct", color(System::PvmDirect), psend(System::PvmDirect)),
        ("Open MPI (best version and setting)", color(System::OpenMpi), mpi(&MPIS[..4])),
        ("MPICH (best version and setting)", color(System::Mpich), mpi(&MPIS[4..7])),
        ("Intel MPI", color(System::IntelMpi), mpi(&MPIS[7..])),
        ("limit", BLACK, limit),
    ];
    let points = |sources: &[(System, &str)]| {
        let fastest = |size: &usize| {
            let times = sources.iter().filter_map(|(system, measure)| samples.median(*system, measure, *size));
            Some((*size as f64, times.reduce(f64::min)?))
        };
        SHORT_SIZES.iter().chain(&LONG_SIZES).filter_map(fastest).collect()
    };
    lines
        .into_iter()
        .map(|(label, color, sources)| Line { label: label.into(), color, points: points(&sources) })
        .collect()
}

/// Returns the charts of latency and bandwidth.
fn large_charts(samples: &Samples) -> Vec<Chart> {
    let lines = message_lines(samples);
    let speed = |line: &Line| Line {
        label: line.label.clone(),
        color: line.color,
        points: line.points.iter().map(|(size, time)| (*size, size / time * 1e-3)).collect(),
    };
    let chart = |title: &str, y_title, y_log, lines| Chart {
        title: title.into(),
        x_title: "bytes of a message",
        y_title,
        x_text: bytes,
        y_log,
        lines,
    };
    let bandwidths = lines.iter().map(speed).collect();
    vec![
        chart("One way between two tasks", "us (less is better)", true, lines),
        chart("Bandwidth", "GB/s (more is better)", false, bandwidths),
    ]
}

/// Returns the chart of one measure, with a line for each system.
fn chart_of(samples: &Samples, title: &str, measure: &str, sizes: &[usize], tasks: bool) -> Chart {
    let points = |system| {
        let point = |size: &usize| Some((*size as f64, samples.median(system, measure, *size)?));
        sizes.iter().filter_map(point).collect()
    };
    let line = |system: System| Line { label: system.name().into(), color: color(system), points: points(system) };
    Chart {
        title: title.into(),
        x_title: if tasks { "tasks" } else { "bytes of a message" },
        y_title: "us (less is better)",
        x_text: if tasks { number } else { bytes },
        y_log: true,
        lines: ALL.into_iter().map(line).collect(),
    }
}

/// Returns the lists of bars. Each list has a row for each form of message and each system.
fn all_bars(samples: &Samples) -> Vec<Bars> {
    let mut bars: BTreeMap<String, Vec<(String, System, f64)>> = BTreeMap::new();
    for (key, values) in &samples.all {
        let Some(median) = super::samples::median(&values.values) else { continue };
        let (family, better) = match key.measure.split('_').next().unwrap_or_default() {
            "pingpong" if key.size == SHORT_SIZES[0] => ("One way, all forms", "less"),
            "rate" => ("Messages of one sender", "more"),
            "ring" => ("32 tasks in a ring, one token, a hop", "less"),
            "ringall" => ("32 tasks in a ring, all at once, a round", "less"),
            "mcast" => ("pvm_mcast to 31 tasks, and answers", "less"),
            "spawn" => ("pvm_spawn", "less"),
            "idle" => ("CPU use of tasks that wait", "less"),
            "memory" => ("Resident memory", "less"),
            other => match LOADED.iter().find(|(measure, _)| *measure == other) {
                Some((_, title)) => (*title, "less"),
                None => continue,
            },
        };
        let size = if tables::counts_tasks(&key.measure) { format!("{} tasks", key.size) } else { size_text(key.size) };
        let name = format!("{} {} {size}", key.system.name(), form_text(&key.measure)).replace("  ", " ");
        let title = format!("{family}, {} ({better} is better)", values.unit);
        bars.entry(title).or_default().push((name, key.system, median));
    }
    bars.into_iter().map(|(title, rows)| Bars { title, rows }).collect()
}

/// Draws the values. Above them is the text `about`: where and when they were measured. Returns false if there are no
/// values.
pub fn draw(samples: &Samples, about: &[String], path: &Path) -> Result<bool> {
    let is_full = |chart: &Chart| chart.lines.iter().any(|line| !line.points.is_empty());
    let large: Vec<Chart> = large_charts(samples).into_iter().filter(is_full).collect();
    let groups = GROUP_CALLS.iter().map(|(call, text)| chart_of(samples, text, call, &GROUP_TASKS, true));
    let netpipe = chart_of(samples, "Debian's NPpvm, one way", "netpipe", &NETPIPE_SIZES, false);
    let small: Vec<Chart> = groups.chain([netpipe]).filter(is_full).collect();
    let bars = all_bars(samples);
    if large.is_empty() && small.is_empty() && bars.is_empty() {
        return Ok(false);
    }
    let bar_rows: Vec<&[Bars]> = bars.chunks(SMALL_ABREAST).collect();
    let bar_height =
        |row: &[Bars]| 60 + BAR_HEIGHT as u32 * row.iter().map(|bars| bars.rows.len()).max().unwrap_or(0) as u32;
    let large_height = if large.is_empty() { 0 } else { LARGE_HEIGHT };
    let small_height = SMALL_HEIGHT * small.len().div_ceil(SMALL_ABREAST) as u32;
    let height = HEAD_HEIGHT + large_height + small_height + bar_rows.iter().map(|row| bar_height(row)).sum::<u32>();
    let area = SVGBackend::new(path, (WIDTH, height)).into_drawing_area();
    area.fill(&WHITE).map_err(fail)?;
    for (place, line) in about.iter().enumerate() {
        area.draw_text(line, &("sans-serif", 16).into_text_style(&area), (12, 10 + 22 * place as i32)).map_err(fail)?;
    }
    let (_, rest) = area.split_vertically(HEAD_HEIGHT);
    let (above, mut rest) = rest.split_vertically(large_height);
    for (chart, area) in large.iter().zip(above.split_evenly((1, large.len().max(1)))) {
        chart.draw(&area)?;
    }
    for row in small.chunks(SMALL_ABREAST) {
        let (above, below) = rest.split_vertically(SMALL_HEIGHT);
        for (chart, area) in row.iter().zip(above.split_evenly((1, SMALL_ABREAST))) {
            chart.draw(&area)?;
        }
        rest = below;
    }
    for row in bar_rows {
        let (above, below) = rest.split_vertically(bar_height(row));
        for (bars, area) in row.iter().zip(above.split_evenly((1, SMALL_ABREAST))) {
            bars.draw(&area)?;
        }
        rest = below;
    }
    area.present().map_err(fail)?;
    Ok(true)
}

fn fail(error: impl std::fmt::Display) -> anyhow::Error {
    anyhow!("cannot draw: {error}")
}

impl Bars {
    fn draw(&self, area: &Area<'_>) -> Result<()> {
        let text = |size: u32| ("sans-serif", size).into_text_style(area);
        area.draw_text(&self.title, &text(16), (12, 12)).map_err(fail)?;
        let most = self.rows.iter().map(|row| row.2).fold(f64::MIN_POSITIVE, f64::max);
        let room = area.dim_in_pixel().0 as i32 - BAR_NAME_WIDTH - 80;
        for (place, (name, system, value)) in self.rows.iter().enumerate() {
            let top = 38 + BAR_HEIGHT * place as i32;
            let end = BAR_NAME_WIDTH + 1 + (f64::from(room) * value / most) as i32;
            area.draw_text(name, &text(13), (12, top)).map_err(fail)?;
            let corners = [(BAR_NAME_WIDTH, top), (end, top + BAR_HEIGHT - 4)];
            area.draw(&Rectangle::new(corners, color(*system).filled())).map_err(fail)?;
            area.draw_text(&format!("{value:.3}"), &text(13), (end + 6, top)).map_err(fail)?;
        }
        Ok(())
    }
}

impl Chart {
    fn draw(&self, area: &Area<'_>) -> Result<()> {
        let all = || self.lines.iter().flat_map(|line| &line.points);
        let (low, high) =
            all().fold((f64::INFINITY, 0.0_f64), |(low, high), point| (low.min(point.1), high.max(point.1)));
        let (first, last) =
            all().fold((f64::INFINITY, 0.0_f64), |(low, high), point| (low.min(point.0), high.max(point.0)));
        let mut builder = ChartBuilder::on(area);
        builder.caption(&self.title, ("sans-serif", 18)).margin(12).x_label_area_size(44).y_label_area_size(64);
        // The axis needs a range, even if there is only one size.
        let sizes = (first..last.max(first * 2.0)).log_scale().base(2.0);
        // The logarithmic and the linear scale have different types, so a macro draws the chart with either.
        macro_rules! draw {
            ($chart:expr) => {{
                let mut chart = $chart.map_err(fail)?;
                let (x_text, y_text) = (|size: &f64| (self.x_text)(*size), |value: &f64| format!("{value}"));
                let mut mesh = chart.configure_mesh();
                mesh.x_desc(self.x_title).y_desc(self.y_title).x_labels(12);
                mesh.x_label_formatter(&x_text).y_label_formatter(&y_text);
                mesh.bold_line_style(RGBColor(215, 215, 215)).light_line_style(RGBColor(243, 243, 243));
                mesh.draw().map_err(fail)?;
                for line in self.lines.iter().filter(|line| !line.points.is_empty()) {
                    let style = line.color.stroke_width(2);
                    let drawn = chart.draw_series(LineSeries::new(line.points.iter().copied(), style).point_size(3));
                    let legend = move |(x, y)| PathElement::new(vec![(x, y), (x + 18, y)], style);
                    drawn.map_err(fail)?.label(&line.label).legend(legend);
                }
                let mut legend = chart.configure_series_labels();
                legend.position(SeriesLabelPosition::UpperLeft).background_style(WHITE.mix(0.8)).border_style(BLACK);
                legend.draw().map_err(fail)
            }};
        }
        match self.y_log {
            true => draw!(builder.build_cartesian_2d(sizes, (low / 2.0..high * 4.0).log_scale())),
            false => draw!(builder.build_cartesian_2d(sizes, 0.0..high * 1.2)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_that_was_measured_is_in_the_picture_with_where_and_when() {
        let mut samples = Samples::default();
        for (measure, size, unit) in [
            ("pingpong_psend", 8, "us"),
            ("pingpong_psend", 1 << 20, "us"),
            ("rate_window", 8, "M/s"),
            ("ring_psend", 8, "us"),
            ("ringall_psend", 8, "us"),
            ("mcast", 64 << 10, "us"),
            ("spawn_call", 32, "ms"),
            ("barrier", 2, "us"),
            ("barrier", 32, "us"),
            ("idle", 2, "%"),
            ("netpipe", 64, "us"),
        ] {
            samples.add(System::Hpvm, measure, size, 1.5, unit);
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("picture.svg");
        assert!(draw(&samples, &["a processor, 2026-01-31, version 9".into()], &path).unwrap());
        let text = std::fs::read_to_string(&path).unwrap();
        for part in [
            "2026-01-31",
            "bytes of a message",
            "us (less is better)",
            "GB/s (more is better)",
            "One way, all forms",
            "Messages of one sender, M/s",
            "one token",
            "all at once",
            "pvm_mcast",
            "pvm_spawn, ms",
            "pvm_barrier",
            "CPU use",
            "NPpvm",
        ] {
            assert!(text.contains(part), "no {part:?}");
        }
        assert!(!draw(&Samples::default(), &[], &path).unwrap());
    }
}
