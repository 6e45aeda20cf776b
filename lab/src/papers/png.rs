//! Draws figures as PNG. The letters come from a font of the system.

use ab_glyph::{Font, FontVec, ScaleFont, point};
use anyhow::{Context, Result};
use plotters_backend::text_anchor::{HPos, VPos};
use plotters_backend::{BackendColor, BackendCoord, BackendStyle, BackendTextStyle, DrawingBackend, DrawingErrorKind};
use std::convert::Infallible;
use std::fs::File;
use std::io::BufWriter;
use std::path::Path;

/// The font of the package `fonts-dejavu-core`.
const FONT: &str = "/usr/share/fonts/truetype/dejavu/DejaVuSans.ttf";
/// The size that a text style names is that of a line. The letters are smaller by this factor, as in SVG.
const LINE_HEIGHT: f64 = 1.24;
/// The height of a capital letter as a part of the size of the letters.
const CAPITAL: f32 = 0.73;
/// Each pixel of a drawing becomes this number of pixels in each direction.
const SCALE: u32 = 2;
/// The number of lines in a pixel at which the border of a polygon is computed.
const LINES: u32 = 4;
/// A circle is drawn as a polygon with this number of corners.
const CIRCLE_CORNERS: u32 = 16;

/// Returns the font; `None` if it is not installed.
pub fn font() -> Option<FontVec> {
    FontVec::try_from_vec(std::fs::read(FONT).ok()?).ok()
}

/// A picture in memory. All coordinates are those of the drawing, before the scale.
pub struct Canvas<'a> {
    size: (u32, u32),
    pixels: &'a mut Vec<u8>,
    font: &'a FontVec,
}

impl<'a> Canvas<'a> {
    /// Makes a white picture.
    pub fn new(size: (u32, u32), pixels: &'a mut Vec<u8>, font: &'a FontVec) -> Canvas<'a> {
        *pixels = vec![255; (size.0 * size.1 * SCALE * SCALE * 3) as usize];
        Canvas { size, pixels, font }
    }

    /// Mixes a color into one pixel of the picture.
    fn mix(&mut self, x: i32, y: i32, color: BackendColor, share: f64) {
        let (width, height) = ((self.size.0 * SCALE) as i32, (self.size.1 * SCALE) as i32);
        if !(0..width).contains(&x) || !(0..height).contains(&y) {
            return;
        }
        let at = ((y * width + x) * 3) as usize;
        let alpha = (color.alpha * share).clamp(0.0, 1.0);
        let parts = [color.rgb.0, color.rgb.1, color.rgb.2];
        for (old, new) in self.pixels[at..at + 3].iter_mut().zip(parts) {
            *old = (f64::from(*old) * (1.0 - alpha) + f64::from(new) * alpha).round() as u8;
        }
    }

    /// Fills a rectangle of whole pixels of the picture.
    fn fill_block(&mut self, left: i32, top: i32, right: i32, bottom: i32, color: BackendColor) {
        let (width, height) = ((self.size.0 * SCALE) as i32, (self.size.1 * SCALE) as i32);
        let (left, right) = (left.clamp(0, width), right.clamp(0, width));
        let line = [color.rgb.0, color.rgb.1, color.rgb.2].repeat((right - left).max(0) as usize);
        for y in top.clamp(0, height)..bottom.clamp(0, height) {
            if color.alpha < 1.0 {
                (left..right).for_each(|x| self.mix(x, y, color, 1.0));
            } else {
                let at = ((y * width + left) * 3) as usize;
                self.pixels[at..at + line.len()].copy_from_slice(&line);
            }
        }
    }

    /// Fills a convex polygon whose corners are in pixels of the picture. Pixels at the border get a part of the color.
    fn fill(&mut self, corners: &[(f64, f64)], color: BackendColor) {
        let top = corners.iter().map(|corner| corner.1).fold(f64::INFINITY, f64::min).floor() as i32;
        let bottom = corners.iter().map(|corner| corner.1).fold(f64::NEG_INFINITY, f64::max).ceil() as i32;
        let mut shares: Vec<f64> = Vec::new();
        for y in top..bottom {
            let lines = (0..LINES).map(|line| f64::from(y) + (f64::from(line) + 0.5) / f64::from(LINES));
            let spans: Vec<(f64, f64)> = lines.filter_map(|line| span(corners, line)).collect();
            let Some(left) = spans.iter().map(|span| span.0).reduce(f64::min) else { continue };
            let left = left.floor() as i32;
            shares.clear();
            for (from, to) in spans {
                let last = to.ceil() as i32 - left;
                shares.resize(shares.len().max(last.max(0) as usize), 0.0);
                for x in from.floor() as i32 - left..last {
                    let pixel = f64::from(x + left);
                    let part = to.min(pixel + 1.0) - from.max(pixel);
                    shares[x as usize] += part / f64::from(LINES);
                }
            }
            for (x, share) in shares.iter().enumerate() {
                self.mix(left + x as i32, y, color, *share);
            }
        }
    }

    /// Draws a stroke between two points of the drawing.
    fn stroke(&mut self, from: BackendCoord, to: BackendCoord, color: BackendColor, width: u32) {
        let (x, y, to_x, to_y) = (place(from.0), place(from.1), place(to.0), place(to.1));
        let length = (to_x - x).hypot(to_y - y).max(1e-9);
        let half = f64::from(width * SCALE) / 2.0;
        let (dx, dy) = ((to_x - x) / length * half, (to_y - y) / length * half);
        // Each end is half a stroke longer, so that the corners of a path are closed.
        let (x, y, to_x, to_y) = (x - dx * 0.5, y - dy * 0.5, to_x + dx * 0.5, to_y + dy * 0.5);
        self.fill(&[(x - dy, y + dx), (x + dy, y - dx), (to_x + dy, to_y - dx), (to_x - dy, to_y + dx)], color);
    }

    /// Writes the picture.
    pub fn save(size: (u32, u32), pixels: &[u8], path: &Path) -> Result<()> {
        let file = BufWriter::new(File::create(path).with_context(|| format!("cannot make {}", path.display()))?);
        let mut encoder = png::Encoder::new(file, size.0 * SCALE, size.1 * SCALE);
        encoder.set_color(png::ColorType::Rgb);
        encoder.set_depth(png::BitDepth::Eight);
        encoder.set_filter(png::Filter::Up);
        Ok(encoder.write_header()?.write_image_data(pixels)?)
    }
}

/// Returns where a coordinate of the drawing is in the picture.
fn place(coordinate: i32) -> f64 {
    f64::from(coordinate * SCALE as i32) + f64::from(SCALE) / 2.0
}

/// Returns where a horizontal line enters and leaves a convex polygon.
fn span(corners: &[(f64, f64)], y: f64) -> Option<(f64, f64)> {
    let mut crossings = corners.iter().enumerate().filter_map(|(index, one)| {
        let other = corners[(index + 1) % corners.len()];
        ((one.1 > y) != (other.1 > y)).then(|| one.0 + (other.0 - one.0) * (y - one.1) / (other.1 - one.1))
    });
    let first = crossings.next()?;
    Some(crossings.fold((first, first), |(left, right), x| (left.min(x), right.max(x))))
}

type Drawn = Result<(), DrawingErrorKind<Infallible>>;

impl DrawingBackend for Canvas<'_> {
    type ErrorType = Infallible;

    fn get_size(&self) -> (u32, u32) {
        self.size
    }

    fn ensure_prepared(&mut self) -> Drawn {
        Ok(())
    }

    fn present(&mut self) -> Drawn {
        Ok(())
    }

    fn draw_pixel(&mut self, at: BackendCoord, color: BackendColor) -> Drawn {
        let (x, y) = (at.0 * SCALE as i32, at.1 * SCALE as i32);
        self.fill_block(x, y, x + SCALE as i32, y + SCALE as i32, color);
        Ok(())
    }

    fn draw_rect<S: BackendStyle>(
        &mut self,
        from: BackendCoord,
        to: BackendCoord,
        style: &S,
        is_filled: bool,
    ) -> Drawn {
        if !is_filled {
            return self.draw_path([from, (to.0, from.1), to, (from.0, to.1), from], style);
        }
        let scaled = |place: i32| place * SCALE as i32;
        let (left, right) = (from.0.min(to.0), from.0.max(to.0));
        let (top, bottom) = (from.1.min(to.1), from.1.max(to.1));
        self.fill_block(scaled(left), scaled(top), scaled(right + 1), scaled(bottom + 1), style.color());
        Ok(())
    }

    fn draw_line<S: BackendStyle>(&mut self, from: BackendCoord, to: BackendCoord, style: &S) -> Drawn {
        self.stroke(from, to, style.color(), style.stroke_width());
        Ok(())
    }

    fn draw_path<S: BackendStyle, I: IntoIterator<Item = BackendCoord>>(&mut self, path: I, style: &S) -> Drawn {
        let points: Vec<BackendCoord> = path.into_iter().collect();
        for pair in points.windows(2) {
            self.stroke(pair[0], pair[1], style.color(), style.stroke_width());
        }
        Ok(())
    }

    fn draw_circle<S: BackendStyle>(&mut self, at: BackendCoord, radius: u32, style: &S, is_filled: bool) -> Drawn {
        let (center_x, center_y) = (place(at.0), place(at.1));
        let corner = |number: u32, radius: f64| {
            let angle = std::f64::consts::TAU * f64::from(number) / f64::from(CIRCLE_CORNERS);
            (center_x + radius * angle.cos(), center_y + radius * angle.sin())
        };
        let radius = f64::from(radius * SCALE);
        let inner = if is_filled { 0.0 } else { radius - f64::from(style.stroke_width() * SCALE) };
        for number in 0..CIRCLE_CORNERS {
            let next = number + 1;
            let corners = [corner(number, inner), corner(number, radius), corner(next, radius), corner(next, inner)];
            self.fill(&corners, style.color());
        }
        Ok(())
    }

    fn draw_text<S: BackendTextStyle>(&mut self, text: &str, style: &S, at: BackendCoord) -> Drawn {
        let size = (style.size() / LINE_HEIGHT * f64::from(SCALE)) as f32;
        let font = self.font.as_scaled(size);
        let mut glyphs = Vec::new();
        let mut end = 0.0;
        for letter in text.chars() {
            let id = font.glyph_id(letter);
            glyphs.push(id.with_scale_and_position(font.scale(), point(end, 0.0)));
            end += font.h_advance(id);
        }
        let dx = match style.anchor().h_pos {
            HPos::Left => 0.0,
            HPos::Center => -end / 2.0,
            HPos::Right => -end,
        };
        // From the anchor down to the base line of the letters.
        let dy = match style.anchor().v_pos {
            VPos::Top => CAPITAL * size,
            VPos::Center => CAPITAL * size / 2.0,
            VPos::Bottom => -0.2 * size,
        };
        let (color, turn) = (style.color(), style.transform());
        for outline in glyphs.into_iter().filter_map(|glyph| font.outline_glyph(glyph)) {
            let corner = outline.px_bounds().min;
            outline.draw(|x, y, share| {
                let (x, y) = ((corner.x + x as f32 + dx) as i32, (corner.y + y as f32 + dy) as i32);
                let (x, y) = turn.transform(x, y);
                self.mix(at.0 * SCALE as i32 + x, at.1 * SCALE as i32 + y, color, f64::from(share));
            });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_crosses_a_polygon_between_two_of_its_sides() {
        let square = [(1.0, 1.0), (4.0, 1.0), (4.0, 4.0), (1.0, 4.0)];
        assert_eq!(span(&square, 2.0), Some((1.0, 4.0)));
        assert_eq!(span(&square, 5.0), None);
    }

    #[test]
    fn a_stroke_colors_what_it_covers() {
        let (Some(font), mut pixels) = (font(), Vec::new()) else { return };
        let mut canvas = Canvas::new((4, 2), &mut pixels, &font);
        let black = BackendColor { alpha: 1.0, rgb: (0, 0, 0) };
        canvas.fill(&[(2.0, 0.0), (4.5, 0.0), (4.5, 1.0), (2.0, 1.0)], black);
        let row: Vec<u8> = pixels.iter().step_by(3).take(6).copied().collect();
        assert_eq!(row, [255, 255, 0, 0, 128, 255]);
    }
}
