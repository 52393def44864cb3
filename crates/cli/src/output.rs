//! Output: escaped text, styles, tables, bars and human-readable times.
//!
//! All text from stores, daemons and files passes through [`Output`], which escapes the characters that would act on the
//! user's terminal.

use std::fmt::Write as _;
use std::io::Write;
use std::time::Duration;

use holdoff_policy::{as_micros_u64, is_unprintable};

use self::style::{BAR, FAINT, HEADING};

/// The styles of the output. `anstream` removes them where the output does not support colours.
pub(crate) mod style {
    use anstyle::{AnsiColor, Style};

    pub(crate) const ERROR: Style = AnsiColor::Red.on_default().bold();
    pub(crate) const WARNING: Style = AnsiColor::Yellow.on_default().bold();
    pub(crate) const NOTE: Style = AnsiColor::Cyan.on_default().bold();
    pub(crate) const HEADING: Style = Style::new().bold();
    pub(crate) const FAINT: Style = Style::new().dimmed();
    pub(crate) const BAR: Style = AnsiColor::Cyan.on_default();
}

/// The escape sequences of [`style`]. All others come from outside.
const STYLES: [&str; 6] = ["\u{1b}[0m", "\u{1b}[1m", "\u{1b}[2m", "\u{1b}[31m", "\u{1b}[33m", "\u{1b}[36m"];

/// A stream that escapes unprintable characters, except line feeds, tabs and the sequences of [`style`].
pub(crate) struct Output<S: anstream::stream::RawStream>(anstream::AutoStream<S>);

pub(crate) fn stdout() -> Output<std::io::Stdout> {
    Output(anstream::AutoStream::auto(std::io::stdout()))
}

pub(crate) fn stderr() -> Output<std::io::Stderr> {
    Output(anstream::AutoStream::auto(std::io::stderr()))
}

impl<S: anstream::stream::RawStream + anstream::stream::AsLockedWrite> Write for Output<S> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let text = String::from_utf8_lossy(bytes);
        let (mut rest, mut escaped_text) = (&*text, String::with_capacity(text.len()));
        while let Some(character) = rest.chars().next() {
            let style = STYLES.into_iter().find(|style| rest.starts_with(style));
            let (unchanged, after) = rest.split_at(style.map_or(character.len_utf8(), str::len));
            if style.is_some() || matches!(character, '\n' | '\t') {
                escaped_text.push_str(unchanged);
            } else {
                push_escaped(character, &mut escaped_text);
            }
            rest = after;
        }
        self.0.write_all(escaped_text.as_bytes())?;
        Ok(bytes.len())
    }

    /// Writes the text as a whole, so that no sequence is split.
    fn write_fmt(&mut self, text: std::fmt::Arguments<'_>) -> std::io::Result<()> {
        self.write_all(text.to_string().as_bytes())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.0.flush()
    }
}

/// Returns a text from outside on one line and without effect on a terminal. The escapes are those of JSON, so that JSON
/// stays the same value.
pub(crate) fn escaped(text: &str) -> String {
    let mut escaped_text = String::with_capacity(text.len());
    text.chars().for_each(|character| push_escaped(character, &mut escaped_text));
    escaped_text
}

fn push_escaped(character: char, into: &mut String) {
    if is_unprintable(character) {
        // Writing to a string cannot fail.
        _ = write!(into, "\\u{:04x}", u32::from(character));
    } else {
        into.push(character);
    }
}

/// Prints a line to stderr. Like `eprintln!`, but a closed stderr is no panic, and text from outside is escaped.
macro_rules! note {
    ($($text:tt)*) => {{
        use std::io::Write as _;
        _ = writeln!($crate::output::stderr(), $($text)*);
    }};
}

/// Prints a warning to stderr.
pub(crate) fn warn(message: &str) {
    let style = style::WARNING;
    note!("{style}warning:{style:#} {message}");
}

/// Returns the width of the terminal, or 80 without one.
pub(crate) fn width() -> usize {
    terminal_size::terminal_size().map_or(80, |(width, _)| usize::from(width.0)).clamp(60, 140)
}

/// A table whose columns fit their widest cell.
pub(crate) struct Table {
    head: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new(head: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self { head: head.into_iter().map(Into::into).collect(), rows: Vec::new() }
    }

    /// Adds a row. Its cells may contain text from outside.
    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().map(|cell| escaped(&cell)).collect());
    }

    /// Adds a row whose cells contain styles.
    pub(crate) fn styled_row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }

    /// Returns the width of all columns except the last, gaps included.
    pub(crate) fn width_before_last(&self) -> usize {
        let widths = self.widths();
        let before: usize = widths.iter().rev().skip(1).map(|width| width + 2).sum();
        before + 1
    }

    pub(crate) fn print(&self, out: &mut impl Write) -> std::io::Result<()> {
        let widths = self.widths();
        writeln!(out, " {HEADING}{}{HEADING:#}", line(&self.head, &widths).trim_end())?;
        writeln!(
            out,
            " {FAINT}{}{FAINT:#}",
            "─".repeat(widths.iter().map(|width| width + 2).sum::<usize>() - 2)
        )?;
        for row in &self.rows {
            writeln!(out, " {}", line(row, &widths).trim_end())?;
        }
        Ok(())
    }

    fn widths(&self) -> Vec<usize> {
        let column = |index: usize| self.rows.iter().filter_map(move |row| row.get(index));
        let widest = |(index, name): (usize, &String)| {
            column(index).map(|cell| shown(cell)).max().unwrap_or(0).max(shown(name))
        };
        self.head.iter().enumerate().map(widest).collect()
    }
}

fn line(cells: &[String], widths: &[usize]) -> String {
    let padded = |(cell, width): (&String, &usize)| {
        format!("{cell}{}  ", " ".repeat(width.saturating_sub(shown(cell))))
    };
    cells.iter().zip(widths).map(padded).collect()
}

/// Returns the displayed width of a text, without its colour codes.
fn shown(text: &str) -> usize {
    anstream::adapter::strip_str(text).to_string().chars().count()
}

/// Draws a window `[low, high]` on an axis from 0 to `end`, `width` characters wide.
pub(crate) fn bar(low: u64, high: u64, end: u64, width: usize) -> String {
    let position = |value: u64| -> usize {
        let scaled = u128::from(value) * width as u128 / u128::from(end.max(1));
        usize::try_from(scaled).unwrap_or(width).min(width)
    };
    // A window of zero width stays visible.
    let start = position(low).min(width.saturating_sub(1));
    let length = position(high).saturating_sub(start).max(1);
    let rest = width.saturating_sub(start + length);
    let dots = |count| format!("{FAINT}{}{FAINT:#}", "·".repeat(count));
    format!("{}{BAR}{}{BAR:#}{}", dots(start), "█".repeat(length), dots(rest))
}

/// Formats a time in microseconds to three or four digits: `750µs`, `1.5s`, `2m 5s`, `3h 20m`.
pub(crate) fn human(us: u64) -> String {
    match us {
        0 => "0".to_owned(),
        1..1_000 => format!("{us}µs"),
        1_000..1_000_000 => format!("{}ms", decimal(us, 1_000)),
        1_000_000..60_000_000 => format!("{}s", decimal(us, 1_000_000)),
        60_000_000..3_600_000_000 => two_units(us / 1_000_000, 60, "m", "s"),
        3_600_000_000..86_400_000_000 => two_units(us / 60_000_000, 60, "h", "m"),
        _ => two_units(us / 3_600_000_000, 24, "d", "h"),
    }
}

/// Formats a duration.
pub(crate) fn time(duration: Duration) -> String {
    human(as_micros_u64(duration))
}

/// Formats a range of times: `500ms – 1.5s`, or a single time if both ends are equal.
pub(crate) fn range(low_us: u64, high_us: u64) -> String {
    let (low, high) = (human(low_us), human(high_us));
    if low == high { low } else { format!("{low} – {high}") }
}

/// Formats a number with at most three decimals, and with fewer for larger numbers.
fn decimal(us: u64, unit: u64) -> String {
    let (whole, rest) = (us / unit, us % unit * 1_000 / unit);
    let digits = match whole {
        0..10 => 3,
        10..100 => 2,
        _ => 1,
    };
    let fraction: String = format!("{rest:03}").chars().take(digits).collect();
    let fraction = fraction.trim_end_matches('0');
    if fraction.is_empty() { whole.to_string() } else { format!("{whole}.{fraction}") }
}

fn two_units(small: u64, per_large: u64, large_name: &str, small_name: &str) -> String {
    let (large, small) = (small / per_large, small % per_large);
    if small == 0 {
        format!("{large}{large_name}")
    } else {
        format!("{large}{large_name} {small}{small_name}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(low: u64, high: u64) -> String {
        anstream::adapter::strip_str(&bar(low, high, 10, 10)).to_string()
    }

    #[test]
    fn foreign_text_is_escaped_and_styles_are_kept() {
        let (mut written, style) = (Vec::new(), style::ERROR);
        let foreign = "\u{1b}]52;c;eA==\u{7}\u{1b}[8m";
        let mut out = Output(anstream::AutoStream::always(&mut written));
        writeln!(out, "{style}a{style:#}\tß {foreign} \u{202e}\u{9b}8m\r").unwrap();
        assert_eq!(
            String::from_utf8(written).unwrap(),
            format!("{style}a{style:#}\tß \\u001b]52;c;eA==\\u0007\\u001b[8m \\u202e\\u009b8m\\u000d\n")
        );
        assert_eq!(escaped("a\n\u{1b}[1mb"), "a\\u000a\\u001b[1mb");
    }

    #[test]
    fn a_bar_covers_its_window() {
        assert_eq!(plain(0, 10), "██████████");
        assert_eq!(plain(2, 6), "··████····");
        assert_eq!(plain(0, 0), "█·········");
        assert_eq!(plain(10, 10), "·········█");
    }

    #[test]
    fn times_have_at_most_four_digits() {
        let shown = [0, 750, 1_500, 787_500, 1_500_000, 12_345_678, 59_000_000, 125_000_000, 86_400_000_000];
        let words = shown.map(human);
        assert_eq!(words, ["0", "750µs", "1.5ms", "787.5ms", "1.5s", "12.34s", "59s", "2m 5s", "1d"]);
        assert_eq!(range(500_000, 1_500_000), "500ms – 1.5s");
        assert_eq!(range(1_000_000, 1_000_000), "1s");
    }
}
