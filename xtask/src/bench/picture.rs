//! The picture: latency and bandwidth against the size of the message.
use super::samples::Samples;
use super::systems::{MPIS, System};
use super::tables::{LONG_SIZES, SHORT_SIZES, size_text};
use anyhow::{Result, anyhow};
use plotters::coord::Shift;
use plotters::prelude::*;
use std::path::Path;

const WIDTH: u32 = 1280;
const HEIGHT: u32 = 560;

/// A line of the picture.
struct Series {
    label: &'static str,
    color: RGBColor,
    /// System and measure; where several were measured at a size, the fastest counts.
    sources: Vec<(System, &'static str)>,
}

fn series() -> Vec<Series> {
    let series = |label, color, sources| Series { label, color, sources };
    let mpi = |one, other| vec![(one, "pingpong_mpi"), (other, "pingpong_mpi")];
    vec![
        series("hpvm psend/precv", RGBColor(200, 30, 30), vec![(System::Hpvm, "pingpong_psend")]),
        series("hpvm pack, send, recv, unpack", RGBColor(235, 140, 60), vec![(System::Hpvm, "pingpong_raw_byte")]),
        series("PVM 3.4.6 psend/precv", RGBColor(120, 120, 120), vec![(System::Pvm, "pingpong_psend")]),
        series("PVM 3.4.6 direct", RGBColor(170, 170, 170), vec![(System::PvmDirect, "pingpong_psend")]),
        series("Open MPI (best setting)", RGBColor(40, 90, 180), mpi(MPIS[0], MPIS[1])),
        series("MPICH (best setting)", RGBColor(60, 150, 90), mpi(MPIS[2], MPIS[3])),
        series("limit", BLACK, vec![(System::Limit, "pingpong_line"), (System::Limit, "pingpong_copy")]),
    ]
}

impl Series {
    /// Size and time one way in us.
    fn points(&self, samples: &Samples) -> Vec<(f64, f64)> {
        let sizes = SHORT_SIZES.iter().chain(&LONG_SIZES);
        let fastest = |size: usize| {
            let times = self.sources.iter().filter_map(|(system, measure)| samples.median(*system, measure, size));
            Some((size as f64, times.reduce(f64::min)?))
        };
        sizes.filter_map(|size| fastest(*size)).collect()
    }
}

/// Draws what was measured of latency and bandwidth; `false` when nothing was.
pub fn draw(samples: &Samples, path: &Path) -> Result<bool> {
    let lines: Vec<(Series, Vec<(f64, f64)>)> = series()
        .into_iter()
        .map(|series| {
            let points = series.points(samples);
            (series, points)
        })
        .collect();
    if lines.iter().all(|(_, points)| points.is_empty()) {
        return Ok(false);
    }
    let area = SVGBackend::new(path, (WIDTH, HEIGHT)).into_drawing_area();
    area.fill(&WHITE).map_err(|error| anyhow!("{error}"))?;
    let (left, right) = area.split_horizontally(WIDTH / 2);
    let bandwidths: Vec<(Series, Vec<(f64, f64)>)> = series()
        .into_iter()
        .zip(&lines)
        .map(|(series, (_, points))| (series, points.iter().map(|(size, time)| (*size, size / time * 1e-3)).collect()))
        .collect();
    panel(&left, "One way between two tasks, us", &lines, true)?;
    panel(&right, "Bandwidth, GB/s", &bandwidths, false)?;
    area.present().map_err(|error| anyhow!("{error}"))?;
    Ok(true)
}

type Lines = [(Series, Vec<(f64, f64)>)];

fn panel(area: &DrawingArea<SVGBackend<'_>, Shift>, title: &str, lines: &Lines, log: bool) -> Result<()> {
    let all = || lines.iter().flat_map(|(_, points)| points);
    let low = all().map(|point| point.1).fold(f64::INFINITY, f64::min);
    let high = all().map(|point| point.1).fold(0.0, f64::max);
    let (first, last) = (SHORT_SIZES[0] as f64, LONG_SIZES[LONG_SIZES.len() - 1] as f64);
    let mut builder = ChartBuilder::on(area);
    builder.caption(title, ("sans-serif", 20)).margin(12).x_label_area_size(36).y_label_area_size(56);
    let sizes = (first..last).log_scale().base(2.0);
    let fail = |error: &dyn std::fmt::Display| anyhow!("cannot draw: {error}");
    // The two scales are different types, so the rest is written as a macro.
    macro_rules! draw {
        ($chart:expr, $legend:expr) => {{
            let mut chart = $chart.map_err(|error| fail(&error))?;
            chart
                .configure_mesh()
                .x_labels(12)
                .x_label_formatter(&|size| size_text(*size as usize))
                .y_label_formatter(&|value| format!("{value}"))
                .bold_line_style(RGBColor(215, 215, 215))
                .light_line_style(RGBColor(243, 243, 243))
                .draw()
                .map_err(|error| fail(&error))?;
            for (series, points) in lines {
                let (color, label) = (series.color, series.label);
                let style = color.stroke_width(2);
                let drawn = chart.draw_series(LineSeries::new(points.iter().copied(), style).point_size(3));
                drawn
                    .map_err(|error| fail(&error))?
                    .label(label)
                    .legend(move |(x, y)| PathElement::new(vec![(x, y), (x + 18, y)], color.stroke_width(2)));
            }
            if $legend {
                chart
                    .configure_series_labels()
                    .position(SeriesLabelPosition::UpperLeft)
                    .background_style(WHITE.mix(0.8))
                    .border_style(BLACK)
                    .draw()
                    .map_err(|error| fail(&error))?;
            }
        }};
    }
    if log {
        draw!(builder.build_cartesian_2d(sizes, (low / 2.0..high * 2.0).log_scale()), true)
    } else {
        draw!(builder.build_cartesian_2d(sizes, 0.0..high * 1.1), false)
    }
    Ok(())
}
