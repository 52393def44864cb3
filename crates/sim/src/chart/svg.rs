//! Renders a chart as SVG.

use std::fmt::Write;

use super::axis::Frame;
use super::{Chart, ChartMark, Point, Range, Shape};

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 400.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 20.0;
const BOTTOM: f64 = 52.0;
const STYLE: &str = include_str!("chart.css");
/// The number of colours in the style sheet.
const COLOURS: usize = 8;
/// The height of one line of the legend.
const LEGEND_LINE: f64 = 20.0;
/// The approximate width of a letter.
const LETTER: f64 = 7.0;

impl Chart {
    /// Returns the picture as self-contained SVG.
    pub fn svg(&self) -> String {
        let (legend, legend_height) = legend(&self.marks);
        let extent = || self.marks.iter().flat_map(|mark| mark.shape.extent());
        // A long legend increases the height of the picture and leaves the size of the chart unchanged.
        let height = HEIGHT + legend_height - LEGEND_LINE;
        let canvas = Canvas {
            x: self.x.frame(extent().map(|(x, _)| x)),
            y: self.y.frame(extent().map(|(_, y)| y)),
            top: 44.0 + legend_height,
            bottom: height - BOTTOM,
        };
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"{title}\">\
             <style>{STYLE}</style><rect class=\"paper\" width=\"{WIDTH}\" height=\"{height}\" rx=\"8\"/>\
             <text class=\"title\" x=\"{LEFT}\" y=\"28\">{title}</text>{legend}",
            title = escaped(&self.title)
        );
        canvas.draw_axes(&mut svg, self);
        for (index, mark) in self.marks.iter().enumerate() {
            canvas.draw(&mut svg, mark, index);
        }
        svg.push_str("</svg>\n");
        svg
    }
}

/// Returns the legend below the title, and its height.
fn legend(marks: &[ChartMark]) -> (String, f64) {
    let (mut svg, mut x, mut y) = (String::new(), LEFT, 48.0);
    for (index, mark) in marks.iter().enumerate() {
        let width = 26.0 + LETTER * number(mark.name.chars().count());
        if x + width > WIDTH - RIGHT && x > LEFT {
            (x, y) = (LEFT, y + LEGEND_LINE);
        }
        let colour = index % COLOURS;
        let _ = write!(
            svg,
            "<rect class=\"f{colour}\" x=\"{x:.2}\" y=\"{:.2}\" width=\"10\" height=\"10\" rx=\"2\"/>\
             <text x=\"{:.2}\" y=\"{y:.2}\">{}</text>",
            y - 9.0,
            x + 15.0,
            escaped(&mark.name)
        );
        x += width;
    }
    (svg, y - 48.0 + LEGEND_LINE)
}

/// Maps values to coordinates.
struct Canvas {
    x: Frame,
    y: Frame,
    top: f64,
    bottom: f64,
}

impl Canvas {
    fn across(&self, value: f64) -> f64 {
        LEFT + self.x.place(value) * (WIDTH - LEFT - RIGHT)
    }

    fn up(&self, value: f64) -> f64 {
        self.bottom - self.y.place(value) * (self.bottom - self.top)
    }

    fn draw_axes(&self, svg: &mut String, chart: &Chart) {
        let bottom = self.bottom;
        for (tick, label) in self.y.labels(chart.y.unit) {
            let y = self.up(tick);
            let _ = write!(
                svg,
                "<path class=\"grid\" d=\"M{LEFT} {y:.2}H{:.2}\"/><text class=\"end\" x=\"{:.2}\" y=\"{:.2}\">{label}</text>",
                WIDTH - RIGHT,
                LEFT - 8.0,
                y + 4.0
            );
        }
        for (tick, label) in self.x.labels(chart.x.unit) {
            let x = self.across(tick);
            let _ = write!(
                svg,
                "<path class=\"grid\" d=\"M{x:.2} {bottom:.2}v5\"/><text class=\"mid\" x=\"{x:.2}\" y=\"{:.2}\">{label}</text>",
                bottom + 19.0
            );
        }
        let middle = f64::midpoint(LEFT, WIDTH - RIGHT);
        let _ = write!(
            svg,
            "<path class=\"axis\" d=\"M{LEFT} {bottom:.2}H{:.2}\"/>\
             <text class=\"mid faint\" x=\"{middle:.2}\" y=\"{:.2}\">{}</text>\
             <text class=\"mid faint\" transform=\"translate(16 {:.2}) rotate(-90)\">{}</text>",
            WIDTH - RIGHT,
            bottom + BOTTOM - 12.0,
            escaped(&chart.x.label),
            f64::midpoint(self.top, bottom),
            escaped(&chart.y.label)
        );
    }

    fn draw(&self, svg: &mut String, mark: &ChartMark, index: usize) {
        let colour = index % COLOURS;
        match &mark.shape {
            Shape::Line(points) => self.draw_line(svg, points, colour),
            Shape::Steps(points) => self.draw_steps(svg, points, colour),
            Shape::Ranges(ranges) => self.draw_ranges(svg, ranges, colour),
        }
    }

    fn draw_line(&self, svg: &mut String, points: &[Point], colour: usize) {
        // Values without a logarithm are not drawn.
        let points: Vec<&Point> =
            points.iter().filter(|point| self.x.can_place(point.x) && self.y.can_place(point.y)).collect();
        let joined: Vec<String> = points
            .iter()
            .map(|point| format!("{:.2} {:.2}", self.across(point.x), self.up(point.y)))
            .collect();
        if !joined.is_empty() {
            let _ = write!(svg, "<path class=\"line s{colour}\" d=\"M{}\"/>", joined.join("L"));
        }
        for point in points {
            let (x, low, high) = (self.across(point.x), point.y - point.error, point.y + point.error);
            if point.error > 0.0 {
                let _ = write!(
                    svg,
                    "<path class=\"s{colour}\" d=\"M{x:.2} {:.2}V{:.2}\"/>",
                    self.up(low),
                    self.up(high)
                );
            }
            let _ = write!(
                svg,
                "<circle class=\"f{colour}\" cx=\"{x:.2}\" cy=\"{:.2}\" r=\"3\"/>",
                self.up(point.y)
            );
        }
    }

    fn draw_steps(&self, svg: &mut String, points: &[Point], colour: usize) {
        let Some(first) = points.first() else { return };
        let mut path = format!("M{:.2} {:.2}", self.across(first.x), self.up(first.y));
        for point in points.iter().skip(1) {
            let _ = write!(path, "H{:.2}V{:.2}", self.across(point.x), self.up(point.y));
        }
        let _ = write!(svg, "<path class=\"steps s{colour}\" d=\"{path}\"/>");
    }

    fn draw_ranges(&self, svg: &mut String, ranges: &[Range], colour: usize) {
        let room = (WIDTH - LEFT - RIGHT) / (number(ranges.len()) + 1.0);
        let width = (room * 0.6).clamp(3.0, 40.0);
        for range in ranges {
            let (low, high) = (self.up(range.low), self.up(range.high));
            let _ = write!(
                svg,
                "<rect class=\"f{colour}\" x=\"{:.2}\" y=\"{high:.2}\" width=\"{width:.2}\" height=\"{:.2}\" rx=\"2\"/>",
                self.across(range.x) - width / 2.0,
                (low - high).max(2.0)
            );
        }
    }
}

/// Escapes text for element content and attributes.
pub(crate) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[expect(clippy::cast_precision_loss, reason = "a few letters, a few acceptance")]
fn number(count: usize) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::super::{Axis, Unit};
    use super::*;

    fn chart(shape: Shape) -> String {
        let marks = vec![ChartMark { name: "<a & b>".to_owned(), shape }];
        let (x, y) = (Axis::linear("x", Unit::Count), Axis::log("y", Unit::Micros));
        Chart { title: "\"title\"".to_owned(), x, y, marks }.svg()
    }

    #[test]
    fn names_are_escaped() {
        let svg = chart(Shape::Line(vec![Point::new(1.0, 2.0)]));
        assert!(svg.contains("&lt;a &amp; b&gt;") && svg.contains("&quot;title&quot;"));
        assert!(!svg.contains("<a & b>"));
    }

    #[test]
    fn values_that_are_not_finite_are_drawn() {
        for value in [0.0, -5.0, 1e300, f64::MIN_POSITIVE] {
            let svg = chart(Shape::Line(vec![Point { x: value, y: value, error: 1.0 }]));
            assert!(!svg.contains("NaN") && !svg.contains("inf"), "{value}");
        }
        let empty = chart(Shape::Steps(Vec::new()));
        assert!(!empty.contains("NaN"));
    }
}
