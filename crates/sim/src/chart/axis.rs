//! Axes, their scales and their ticks.

/// One axis of a chart.
#[derive(Clone, PartialEq, Debug)]
pub struct Axis {
    /// The label.
    pub label: String,
    /// The mapping of values to lengths.
    pub scale: Scale,
    /// The number format.
    pub unit: Unit,
    /// A value that the axis always includes.
    pub includes: Option<f64>,
}

/// The mapping of values to lengths.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scale {
    /// Linear, from zero.
    Linear,
    /// Logarithmic; values that are not positive are not drawn.
    Log,
}

/// The number format of an axis.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unit {
    /// Numbers: `1500`, `20k`, `3M`.
    Count,
    /// Times, from microseconds: `15ms`, `2s`, `3m`.
    Micros,
}

impl Axis {
    /// Creates a linear axis.
    pub fn linear(label: impl Into<String>, unit: Unit) -> Self {
        Self { label: label.into(), scale: Scale::Linear, unit, includes: None }
    }

    /// Creates a logarithmic axis.
    pub fn log(label: impl Into<String>, unit: Unit) -> Self {
        Self { label: label.into(), scale: Scale::Log, unit, includes: None }
    }

    /// Returns the axis extended to include this value.
    #[must_use]
    pub fn including(self, value: f64) -> Self {
        Self { includes: Some(value), ..self }
    }

    /// Returns the frame that holds all of these values.
    pub(super) fn frame(&self, values: impl Iterator<Item = f64>) -> Frame {
        let is_usable = |value: &f64| value.is_finite() && (self.scale == Scale::Linear || *value > 0.0);
        let usable = values.chain(self.includes).filter(is_usable);
        let (low, high) =
            usable.fold((f64::MAX, f64::MIN), |(low, high), value| (low.min(value), high.max(value)));
        match self.scale {
            Scale::Linear => linear_frame(high),
            Scale::Log => log_frame(low, high),
        }
    }
}

/// A range of values on an axis, with its ticks.
pub(super) struct Frame {
    low: f64,
    high: f64,
    scale: Scale,
    ticks: Vec<f64>,
}

impl Frame {
    /// Returns the labels of the ticks. On a linear axis all labels have the same unit.
    pub(super) fn labels(&self, unit: Unit) -> Vec<(f64, String)> {
        let step = self.ticks.iter().copied().find(|tick| *tick > 0.0).unwrap_or(1.0);
        let size = |tick: f64| if self.scale == Scale::Linear { step } else { tick };
        self.ticks.iter().map(|tick| (*tick, unit.label(*tick, size(*tick)))).collect()
    }

    /// Returns whether the value can be placed on the axis.
    pub(super) fn can_place(&self, value: f64) -> bool {
        value.is_finite() && (self.scale == Scale::Linear || value > 0.0)
    }

    /// Returns the position of a value, from 0 to 1. Values outside the range are moved to the edge.
    pub(super) fn place(&self, value: f64) -> f64 {
        let share = match self.scale {
            Scale::Linear => (value - self.low) / (self.high - self.low),
            Scale::Log => (value.max(self.low) / self.low).log10() / (self.high / self.low).log10(),
        };
        share.clamp(0.0, 1.0)
    }
}

/// Returns the frame from zero to a round number above the highest value, in four to ten round steps.
fn linear_frame(highest: f64) -> Frame {
    let highest = if highest > 0.0 { highest } else { 1.0 };
    let decade = 10_f64.powf((highest / 5.0).log10().floor());
    let step =
        [1.0, 2.0, 5.0, 10.0].map(|round| round * decade).into_iter().find(|step| highest / step <= 6.0);
    let step = step.unwrap_or(decade * 10.0);
    let steps = (highest / step).ceil().max(1.0);
    let ticks =
        (0..=12_u32).map(|tick| f64::from(tick) * step).take_while(|tick| *tick < (steps + 0.5) * step);
    Frame { low: 0.0, high: steps * step, scale: Scale::Linear, ticks: ticks.collect() }
}

/// Returns whole decades context the values, or 1-2-5 steps if there are few decades.
fn log_frame(lowest: f64, highest: f64) -> Frame {
    if lowest > highest {
        return log_frame(1.0, 10.0);
    }
    let all: Vec<f64> =
        (-9..15).flat_map(|decade| [1.0, 2.0, 5.0].map(|step| step * 10_f64.powi(decade))).collect();
    let low = all.iter().rev().find(|tick| **tick <= lowest * 1.0001).copied().unwrap_or(lowest);
    let high = all.iter().find(|tick| **tick >= highest * 0.9999).copied().unwrap_or(highest);
    // A single value is placed at the top of a decade.
    let low = if high > low { low } else { high / 10.0 };
    let inside: Vec<f64> =
        all.into_iter().filter(|tick| (low * 0.999..=high * 1.001).contains(tick)).collect();
    let few = inside.len() <= 8;
    let is_decade = |tick: &f64| (tick.log10() - tick.log10().round()).abs() < 1e-9;
    let ticks = inside.into_iter().filter(|tick| few || is_decade(tick)).collect();
    Frame { low, high, scale: Scale::Log, ticks }
}

impl Unit {
    /// Returns the label of a tick, in the unit that suits `size`.
    pub(super) fn label(self, value: f64, size: f64) -> String {
        match self {
            Self::Count => count(value),
            Self::Micros => time(value, size),
        }
    }
}

fn count(value: f64) -> String {
    match value.abs() {
        size if size >= 1e9 => format!("{}G", trimmed(value / 1e9)),
        size if size >= 1e6 => format!("{}M", trimmed(value / 1e6)),
        size if size >= 1e4 => format!("{}k", trimmed(value / 1e3)),
        _ => trimmed(value),
    }
}

fn time(us: f64, size: f64) -> String {
    let (name, unit) = match size.abs() {
        size if size >= 3.6e9 => ("h", 3.6e9),
        size if size >= 1.2e8 => ("m", 6e7),
        size if size >= 1e6 => ("s", 1e6),
        size if size >= 1e3 => ("ms", 1e3),
        _ => ("µs", 1.0),
    };
    if us == 0.0 { "0".to_owned() } else { format!("{}{name}", trimmed(us / unit)) }
}

/// Formats with at most two decimals and no trailing zeros.
fn trimmed(value: f64) -> String {
    let text = format!("{value:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn linear_ticks_are_round_and_cover_the_values() {
        for highest in [0.003, 0.7, 1.0, 7.3, 99.0, 1234.0, 5e9] {
            let frame = linear_frame(highest);
            assert!((3..=8).contains(&frame.ticks.len()), "{highest}: {:?}", frame.ticks);
            assert!(frame.high >= highest && frame.high <= highest * 2.1, "{highest}: {}", frame.high);
        }
        assert_eq!(linear_frame(0.0).ticks.first(), Some(&0.0));
    }

    #[test]
    fn log_ticks_are_round_and_cover_the_values() {
        let frame = log_frame(13.0, 850.0);
        assert_eq!(frame.ticks, [10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0]);
        assert!((frame.place(100.0) - 0.5).abs() < 1e-9);
        assert!(log_frame(1.0, 1e9).ticks.len() <= 10);
        assert!(log_frame(5.0, 5.0).ticks.len() >= 2);
        assert!(log_frame(f64::MAX, f64::MIN).ticks.len() >= 2, "no values at all");
    }

    #[test]
    fn an_axis_can_include_a_value() {
        let frame = Axis::log("share", Unit::Count).including(0.1).frame([20.0, 30.0].into_iter());
        assert_eq!(frame.ticks.first(), Some(&0.1));
    }

    #[test]
    fn labels_are_short() {
        let frame = linear_frame(150e6);
        let labels: Vec<String> = frame.labels(Unit::Micros).into_iter().map(|(_, label)| label).collect();
        assert_eq!(labels, ["0", "50s", "100s", "150s"]);
        let counts = [0.0, 950.0, 1500.0, 20_000.0, 2.5e6].map(|value| Unit::Count.label(value, value));
        assert_eq!(counts, ["0", "950", "1500", "20k", "2.5M"]);
        let times = [0.0, 50.0, 1500.0, 2e6, 1.8e8, 7.2e9].map(|value| Unit::Micros.label(value, value));
        assert_eq!(times, ["0", "50µs", "1.5ms", "2s", "3m", "2h"]);
    }
}
