//! Small charts as SVG text: pure, deterministic, readable in light and dark.
//!
//! A chart is data: [`Chart::svg`] turns it into a picture that stands alone, with its styles inside.
//! Numbers are written with two decimals, so the same data gives the same bytes everywhere.

mod axis;
mod svg;

pub use axis::{Axis, Scale, Unit};
pub(crate) use svg::escaped;

/// A picture of a few lines over two axes.
#[derive(Clone, PartialEq, Debug)]
pub struct Chart {
    /// What it shows, in a few words.
    pub title: String,
    /// From left to right.
    pub x: Axis,
    /// From bottom to top.
    pub y: Axis,
    /// What is drawn, each in a colour of its own.
    pub marks: Vec<Mark>,
}

/// One thing that is drawn, under a name.
#[derive(Clone, PartialEq, Debug)]
pub struct Mark {
    /// The name in the legend.
    pub name: String,
    /// What is drawn.
    pub shape: Shape,
}

/// What is drawn.
#[derive(Clone, PartialEq, Debug)]
pub enum Shape {
    /// Points joined by a line, each with its standard error.
    Line(Vec<Point>),
    /// A staircase: each value holds until the next.
    Steps(Vec<Point>),
    /// Upright bars from a low to a high end.
    Ranges(Vec<Range>),
}

/// A point and how sure it is.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Point {
    /// Where it lies.
    pub x: f64,
    /// What it is.
    pub y: f64,
    /// Its standard error; 0 draws nothing.
    pub error: f64,
}

/// An upright bar.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Range {
    /// Where it stands.
    pub x: f64,
    /// Where it begins.
    pub low: f64,
    /// Where it ends.
    pub high: f64,
}

impl Point {
    /// A point that is certain.
    pub const fn new(x: f64, y: f64) -> Self {
        Self { x, y, error: 0.0 }
    }
}

impl Shape {
    /// Every x and y that must be inside the picture.
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
