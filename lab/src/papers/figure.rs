//! Draws a table of the report as SVG and as PNG.

use super::sheet::{Cells, Column, Plot, Sheet, number_text};
use crate::bench::tables::size_text;
use crate::common::{in_path, output};
use anyhow::{Result, anyhow};
use plotters::coord::Shift;
use plotters::prelude::*;
use std::path::{Path, PathBuf};
use std::process::Command;

const SIZE: (u32, u32) = (960, 600);
/// The program that makes a PNG of an SVG, and the size of the PNG.
const CONVERTER: &str = "rsvg-convert";
const ZOOM: &str = "--zoom=2";
/// The height of a line of the text above a figure, in pixels.
const TEXT_HEIGHT: u32 = 18;
/// The width of a bar of the legend, in pixels.
const LEGEND_WIDTH: i32 = 18;
/// Colors that most people can tell apart; the first rows of a table are hpvm's.
const COLORS: [RGBColor; 10] = [
    RGBColor(200, 30, 30),
    RGBColor(235, 140, 60),
    RGBColor(190, 60, 150),
    RGBColor(140, 80, 20),
    RGBColor(40, 90, 180),
    RGBColor(60, 150, 90),
    RGBColor(90, 170, 200),
    RGBColor(110, 110, 110),
    RGBColor(20, 20, 20),
    RGBColor(170, 150, 60),
];

/// Returns the size of a figure with this text above it.
fn size(about: &[String]) -> (u32, u32) {
    (SIZE.0, SIZE.1 + TEXT_HEIGHT * about.len() as u32)
}

/// Draws a table below the text `about`. Returns the files, without a PNG if no program makes one. Returns no files
/// if the table has no values.
pub fn draw(sheet: &Sheet, cells: &Cells, about: &[String], directory: &Path) -> Result<Vec<PathBuf>> {
    let has_value = |row: &String| sheet.columns.iter().any(|column| cells.median(sheet, row, &column.name).is_some());
    if sheet.plot == Plot::None || !sheet.rows.iter().any(has_value) {
        return Ok(Vec::new());
    }
    let figure = Figure { sheet, cells, about };
    let path = directory.join(&sheet.id);
    let mut files = vec![path.with_extension("svg")];
    figure.draw(&SVGBackend::new(&files[0], size(about)).into_drawing_area())?;
    if makes_png() {
        let picture = path.with_extension("png");
        output(Command::new(CONVERTER).arg(ZOOM).arg("--output").args([&picture, &files[0]]))?;
        files.push(picture);
    }
    Ok(files)
}

/// Returns whether the program is there that makes a PNG of each figure.
pub fn makes_png() -> bool {
    in_path(CONVERTER)
}

fn fail(error: impl std::fmt::Display) -> anyhow::Error {
    anyhow!("cannot draw: {error}")
}

struct Figure<'a> {
    sheet: &'a Sheet,
    cells: &'a Cells,
    about: &'a [String],
}

/// A median with the smallest and the largest value.
struct Point {
    place: f64,
    value: f64,
    low: f64,
    high: f64,
}

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

impl Figure<'_> {
    fn draw(&self, area: &Area<'_>) -> Result<()> {
        area.fill(&WHITE).map_err(fail)?;
        let small = ("sans-serif", 14).into_text_style(area);
        for (place, line) in self.about.iter().enumerate() {
            area.draw_text(line, &small, (12, 8 + (TEXT_HEIGHT as usize * place) as i32)).map_err(fail)?;
        }
        let (_, chart) = area.split_vertically(TEXT_HEIGHT * self.about.len() as u32 + 6);
        match self.sheet.plot {
            Plot::None => {}
            Plot::Lines | Plot::LinesFromZero => self.lines(&chart)?,
            Plot::Bars => self.bars(&chart)?,
        }
        area.present().map_err(fail)
    }

    fn points(&self, row: &str) -> Vec<Point> {
        let point = |(index, column): (usize, &Column)| {
            let value = self.cells.median(self.sheet, row, &column.name)?;
            let (low, high) = self.cells.range(self.sheet, row, &column.name)?;
            // A logarithmic axis has no place for what is not positive.
            let is_drawn = value > 0.0 || self.sheet.plot != Plot::Lines;
            // Groups of bars stand side by side, whatever their numbers are.
            let place = if self.sheet.plot == Plot::Bars { index as f64 } else { column.place };
            is_drawn.then_some(Point { place, value, low, high })
        };
        self.sheet.columns.iter().enumerate().filter_map(point).collect()
    }

    fn color(&self, row: usize) -> RGBColor {
        COLORS[row % COLORS.len()]
    }

    fn lines(&self, area: &Area<'_>) -> Result<()> {
        let rows: Vec<(usize, Vec<Point>)> =
            self.sheet.rows.iter().map(|row| self.points(row)).enumerate().filter(|row| !row.1.is_empty()).collect();
        let all = || rows.iter().flat_map(|row| &row.1);
        let least = |value: fn(&Point) -> f64| all().map(value).fold(f64::INFINITY, f64::min);
        let most = |value: fn(&Point) -> f64| all().map(value).fold(f64::MIN_POSITIVE, f64::max);
        let (low, high) = (least(|point| point.low.max(point.value / 10.0)), most(|point| point.high));
        let places = least(|point| point.place)..most(|point| point.place).max(least(|point| point.place) * 2.0);
        let is_bytes = self.sheet.column_title.contains("bytes");
        let mut builder = ChartBuilder::on(area);
        builder.caption(&self.sheet.title, ("sans-serif", 20)).margin(14).x_label_area_size(44).y_label_area_size(84);
        // The logarithmic and the linear scale have different types, so a macro draws the chart with either.
        macro_rules! draw {
            ($chart:expr) => {{
                let mut chart = $chart.map_err(fail)?;
                let x_text = |place: &f64| if is_bytes { size_text(*place as usize) } else { format!("{place}") };
                let y_text = |value: &f64| number_text(*value);
                let mut mesh = chart.configure_mesh();
                mesh.x_desc(self.sheet.column_title).y_desc(self.sheet.unit).x_labels(13);
                mesh.x_label_formatter(&x_text).y_label_formatter(&y_text);
                mesh.bold_line_style(RGBColor(215, 215, 215)).light_line_style(RGBColor(243, 243, 243));
                mesh.draw().map_err(fail)?;
                for (row, points) in &rows {
                    let style = self.color(*row).stroke_width(2);
                    let line = points.iter().map(|point| (point.place, point.value));
                    let drawn = chart.draw_series(LineSeries::new(line, style).point_size(3)).map_err(fail)?;
                    let key = move |(x, y)| PathElement::new(vec![(x, y), (x + LEGEND_WIDTH, y)], style);
                    drawn.label(&self.sheet.rows[*row]).legend(key);
                    let thin = self.color(*row).stroke_width(1);
                    let spread = |point: &Point| {
                        PathElement::new(vec![(point.place, point.low.max(low)), (point.place, point.high)], thin)
                    };
                    chart.draw_series(points.iter().map(spread)).map_err(fail)?;
                }
                let mut legend = chart.configure_series_labels();
                legend.position(SeriesLabelPosition::UpperLeft).background_style(WHITE.mix(0.8)).border_style(BLACK);
                legend.label_font(("sans-serif", 14)).draw().map_err(fail)
            }};
        }
        let places = places.log_scale().base(2.0);
        match self.sheet.plot {
            Plot::Lines => draw!(builder.build_cartesian_2d(places, (low / 1.5..high * 3.0).log_scale())),
            _ => draw!(builder.build_cartesian_2d(places, 0.0..high * 1.25)),
        }
    }

    /// Draws a group of bars for each column.
    fn bars(&self, area: &Area<'_>) -> Result<()> {
        let rows: Vec<(usize, Vec<Point>)> =
            self.sheet.rows.iter().map(|row| self.points(row)).enumerate().filter(|row| !row.1.is_empty()).collect();
        let high = rows.iter().flat_map(|row| &row.1).map(|point| point.high).fold(f64::MIN_POSITIVE, f64::max);
        let width = 0.8 / rows.len() as f64;
        let mut builder = ChartBuilder::on(area);
        builder.caption(&self.sheet.title, ("sans-serif", 20)).margin(14).x_label_area_size(44).y_label_area_size(84);
        let places = -0.5..self.sheet.columns.len() as f64 - 0.5;
        let mut chart = builder.build_cartesian_2d(places, 0.0..high * 1.25).map_err(fail)?;
        let (x_text, y_text) = (|_: &f64| String::new(), |value: &f64| number_text(*value));
        let mut mesh = chart.configure_mesh();
        mesh.disable_x_mesh()
            .x_labels(0)
            .x_desc(self.sheet.column_title)
            .y_desc(self.sheet.unit)
            .x_label_formatter(&x_text)
            .y_label_formatter(&y_text);
        mesh.light_line_style(RGBColor(243, 243, 243)).draw().map_err(fail)?;
        for (place, (row, points)) in rows.iter().enumerate() {
            let style = self.color(*row);
            let left = |point: &Point| point.place - 0.4 + width * place as f64;
            let bar = |point: &Point| {
                Rectangle::new([(left(point), 0.0), (left(point) + width * 0.9, point.value)], style.filled())
            };
            let drawn = chart.draw_series(points.iter().map(bar)).map_err(fail)?;
            let key = move |(x, y)| Rectangle::new([(x, y - 4), (x + LEGEND_WIDTH, y + 4)], style.filled());
            drawn.label(&self.sheet.rows[*row]).legend(key);
            let middle = |point: &Point| left(point) + width * 0.45;
            let spread = |point: &Point| {
                PathElement::new(vec![(middle(point), point.low), (middle(point), point.high)], BLACK.stroke_width(1))
            };
            chart.draw_series(points.iter().map(spread)).map_err(fail)?;
        }
        let mut legend = chart.configure_series_labels();
        legend.position(SeriesLabelPosition::UpperLeft).background_style(WHITE.mix(0.8)).border_style(BLACK);
        legend.label_font(("sans-serif", 14)).draw().map_err(fail)?;
        let text = ("sans-serif", 14).into_text_style(area);
        for (index, column) in self.sheet.columns.iter().enumerate() {
            let (x, y) = chart.backend_coord(&(index as f64, 0.0));
            let (base_x, base_y) = area.get_base_pixel();
            let wide = (column.name.len() as i32 * 7) / 2;
            area.draw_text(&column.name, &text, (x - base_x - wide, y - base_y + 8)).map_err(fail)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_names_rows_columns_unit_and_machine() {
        let folder = tempfile::tempdir().unwrap();
        for (plot, columns) in [(Plot::Lines, vec!["4 KiB"]), (Plot::Bars, vec!["1", "4096"])] {
            let sheet = Sheet::of_numbers("figure", "A title", "bytes of a message", "us", [1, 4096], plot);
            let sheet = sheet.with_rows(["hpvm", "other"]);
            let mut cells = Cells::default();
            for (column, value) in [("1", 1.0), ("1", 2.0), ("4096", 30.0)] {
                cells.add("figure", "hpvm", column, value);
            }
            let files = draw(&sheet, &cells, &["a machine".into()], folder.path()).unwrap();
            let text = std::fs::read_to_string(&files[0]).unwrap();
            for part in ["A title", "hpvm", "us", "a machine"].iter().chain(&columns) {
                assert!(text.contains(part), "no {part:?}");
            }
            // A row without values is not in the legend.
            assert!(!text.contains("other"));
            assert_eq!(files.len() == 2, makes_png());
            assert!(draw(&sheet, &Cells::default(), &[], folder.path()).unwrap().is_empty());
        }
    }
}
