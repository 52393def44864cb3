//! Tables with aligned columns.

use std::io::Write;

use super::style::{FAINT, HEADING};

/// A table whose columns fit their widest cell.
pub(crate) struct Table {
    head: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new(head: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self { head: head.into_iter().map(Into::into).collect(), rows: Vec::new() }
    }

    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
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
