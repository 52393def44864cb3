//! The output formats.

mod ask;
mod bar;
mod table;
mod time;

pub(crate) use ask::is_wanted;
pub(crate) use bar::bar;
pub(crate) use table::Table;
pub(crate) use time::{human, range, time};

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

/// Returns the width of the terminal, or 80 without one.
pub(crate) fn width() -> usize {
    terminal_size::terminal_size().map_or(80, |(width, _)| usize::from(width.0)).clamp(60, 140)
}
