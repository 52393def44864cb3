//! One figure beside a peer's.

use serde::Serialize;

/// One figure beside a peer's, and the bar it has to clear.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) unit: &'static str,
    /// Not a number where nothing was measured.
    pub(crate) ours: f64,
    pub(crate) peer: f64,
    pub(crate) peer_name: String,
    /// `None` where the peer's figure is nothing to divide by, or ours is missing.
    pub(crate) ratio: Option<f64>,
    pub(crate) bar: String,
    pub(crate) holds: bool,
}

impl Row {
    /// A row that shows a peer without a bar of its own.
    pub(crate) fn beside(name: &str, unit: &'static str, ours: f64, (peer_name, peer): (&str, f64)) -> Self {
        Self {
            name: name.to_owned(),
            unit,
            ours,
            peer,
            peer_name: peer_name.to_owned(),
            ratio: (peer > 0.1 && ours.is_finite()).then_some(ours / peer),
            bar: String::new(),
            holds: true,
        }
    }

    /// A row that shows our own figure beside that of a smaller case; the ratio is the growth.
    pub(crate) fn grown(name: &str, unit: &'static str, ours: f64, smaller: (&str, f64)) -> Self {
        Self {
            ratio: (smaller.1 > 0.0).then_some(ours / smaller.1),
            ..Self::beside(name, unit, ours, smaller)
        }
    }

    /// The same row with a bar.
    pub(crate) fn bar(self, bar: &str, holds: bool) -> Self {
        Self { bar: bar.to_owned(), holds, ..self }
    }
}

/// Prints the rows as a table.
pub(crate) fn print(rows: &[Row]) {
    println!("{:<34} {:>13} {:>13} {:>8}  {:<28} bar", "", "ours", "peer", "ratio", "peer");
    for row in rows {
        let Row { name, unit, ours, peer, peer_name, ratio, bar, holds } = row;
        let verdict = match (bar.is_empty(), holds) {
            (true, _) => String::new(),
            (false, true) => format!("{bar}: holds"),
            (false, false) => format!("{bar}: MISSED"),
        };
        let ratio = ratio.map_or_else(|| "–".to_owned(), |ratio| format!("{ratio:.2}"));
        let [ours, peer] = [*ours, *peer].map(|value| figure(value, unit));
        println!("{name:<34} {ours:>13} {peer:>13} {ratio:>8}  {peer_name:<28} {verdict}");
    }
}

/// Two decimals, or more where two would show nothing.
fn figure(value: f64, unit: &str) -> String {
    match value {
        _ if value.is_nan() => "not measured".to_owned(),
        _ if value > 0.0 && value < 0.1 => format!("{value:.4} {unit}"),
        _ => format!("{value:.2} {unit}"),
    }
}
