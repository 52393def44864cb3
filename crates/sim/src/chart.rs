//! Small charts as SVG text: pure, deterministic, readable in light and dark mode.
//!
//! A chart is data. [`Chart::svg`] turns it into a self-contained picture that includes its styles. Numbers have two
//! decimals, so the same data gives the same bytes on every machine.

mod axis;
mod svg;

pub use axis::{Axis, Scale, Unit};
pub(crate) use svg::escaped;

/// A picture of a few lines over two axes.
#[derive(Clone, PartialEq, Debug)]
pub struct Chart {
    /// The title.
    pub title: String,
    /// The horizontal axis.
    pub x: Axis,
    /// The vertical axis.
    pub y: Axis,
    /// The marks, each in its own colour.
    pub marks: Vec<ChartMark>,
}

/// A named shape in the chart.
#[derive(Clone, PartialEq, Debug)]
pub struct ChartMark {
    /// The name in the legend.
    pub name: String,
    /// The shape.
    pub shape: Shape,
}

/// The shape of a mark.
#[derive(Clone, PartialEq, Debug)]
pub enum Shape {
    /// Points joined by a line, each with its standard error.
    Line(Vec<Point>),
    /// A step function: each value holds until the next.
    Steps(Vec<Point>),
    /// Vertical acceptance from a low to a high end.
    Ranges(Vec<Range>),
}

/// A point and its standard error.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Point {
    /// The horizontal position.
    pub x: f64,
    /// The value.
    pub y: f64,
    /// The standard error; 0 draws nothing.
    pub error: f64,
}

/// A vertical bar.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Range {
    /// The horizontal position.
    pub x: f64,
    /// The lower end.
    pub low: f64,
    /// The upper end.
    pub high: f64,
}

impl Point {
    /// Creates a point without a standard error.
    pub const fn new(x: f64, y: f64) -> Self {
        Self { x, y, error: 0.0 }
    }
}

impl Shape {
    /// Returns every x and y that must lie inside the picture.
    fn extent(&self) -> impl Iterator<Item = (f64, f64)> {
        let (points, ranges): (&[Point], &[Range]) = match self {
            Self::Line(points) | Self::Steps(points) => (points, &[]),
            Self::Ranges(ranges) => (&[], ranges),
        };
        let points = points.iter().map(|point| (point.x, point.y + point.error));
        let ranges = ranges.iter().flat_map(|range| [(range.x, range.low), (range.x, range.high)]);
        points.chain(ranges).collect::<Vec<_>>().into_iter()
    }
}
