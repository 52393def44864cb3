//! Prints results on the terminal.

use std::io::Write;

use holdoff_sim::report::{answer, columns, rounded};
use holdoff_sim::{Plan, Row, Summary};

use crate::failure::Failure;
use crate::output::{Table, style};

pub(super) fn json(rows: &[Row]) -> Result<(), Failure> {
    let shown: Vec<_> = rows.iter().map(without_plots).collect();
    Ok(writeln!(std::io::stdout(), "{}", serde_json::json!(shown))?)
}

/// Returns a row without its plot data, hundreds of numbers that `--out` writes.
pub(super) fn without_plots(row: &Row) -> serde_json::Value {
    let mut shown = serde_json::json!(row);
    if let Some(row) = shown.as_object_mut() {
        for plot in ["calls_over_time", "delays", "done_over_time", "thoughts"] {
            row.remove(plot);
        }
    }
    shown
}

pub(super) fn table(plan: &Plan, rows: &[Row]) -> Result<(), Failure> {
    let mut out = anstream::stdout();
    let (bold, faint) = (style::HEADING, style::FAINT);
    writeln!(out, "{bold}{}{bold:#}: {}\n", plan.scenario.name(), plan.scenario.about())?;
    let columns = columns(rows);
    let own = columns.iter().skip(2).map(|column| column.heading.clone());
    let fixed =
        ["policy", "clients", "failed", "time", "p50", "p99", "calls", "p50", "p99"].map(str::to_owned);
    let mut table = Table::new(fixed.into_iter().chain(own));
    for (index, row) in rows.iter().enumerate() {
        let mut cells = vec![row.policy.clone(), row.clients.to_string(), number(row.failed)];
        cells.extend([time(row.time_ms), ms(row.time_ms.p50), ms(row.time_ms.p99)]);
        cells.extend([number(row.calls), rounded(row.calls.p50), rounded(row.calls.p99)]);
        for column in columns.iter().skip(2) {
            let figure = column.figures.get(index).copied().unwrap_or_default();
            cells.push(if column.is_time { time(figure) } else { number(figure) });
        }
        table.row(cells);
    }
    table.print(&mut out)?;
    if let Some(answer) = answer(rows) {
        writeln!(out, "\n{answer}")?;
    }
    writeln!(
        out,
        "{faint}Means over {} runs from seed {}; ± is one standard error.{faint:#}",
        plan.runs, plan.seed
    )?;
    ranks(rows, &mut out)
}

/// The maximum number of ids in the printed table of ranks.
const MOST_RANKED: u32 = 32;

/// Prints the mean finishing rank of each id for the largest number of clients, which shows whether any id is
/// favoured.
fn ranks(rows: &[Row], out: &mut impl Write) -> Result<(), Failure> {
    let ranked = rows.iter().filter(|row| !row.ranks.is_empty());
    let Some(most) = ranked.clone().map(|row| row.clients).max() else { return Ok(()) };
    let (bold, faint) = (style::HEADING, style::FAINT);
    if most > MOST_RANKED {
        writeln!(out, "{faint}--json and --out tell the mean finishing rank of each id.{faint:#}")?;
        return Ok(());
    }
    let ranked: Vec<&Row> = ranked.filter(|row| row.clients == most).collect();
    let middle = ranked.first().map_or(0.0, |row| row.ranks.middle());
    writeln!(out, "\n{bold}Mean finishing rank by id{bold:#}; the middle is {middle:.1}\n")?;
    let mut table =
        Table::new(["id".to_owned()].into_iter().chain(ranked.iter().map(|row| row.policy.clone())));
    for id in 1..=most as usize {
        let rank = |row: &&Row| row.ranks.iter().find(|rank| rank.id == id);
        let cell = |row| rank(row).map_or_else(|| "–".to_owned(), |rank| format!("{:.1}", rank.mean));
        table.row([id.to_string()].into_iter().chain(ranked.iter().map(cell)).collect::<Vec<_>>());
    }
    table.print(out)?;
    writeln!(out, "{faint}Who was not done shares the last places with all others who were not.{faint:#}")?;
    Ok(())
}

fn time(Summary { mean, se, .. }: Summary) -> String {
    let (unit, name) = if mean >= 1000.0 { (1000.0, "s") } else { (1.0, "ms") };
    let error = if se > 0.0 { format!(" ± {}", two_digits(se / unit)) } else { String::new() };
    format!("{}{error} {name}", rounded(mean / unit))
}

fn number(Summary { mean, se, .. }: Summary) -> String {
    if se > 0.0 { format!("{} ± {}", rounded(mean), two_digits(se)) } else { rounded(mean) }
}

/// Formats an error with two significant digits.
fn two_digits(value: f64) -> String {
    let decimals = match value {
        large if large >= 10.0 => 0,
        large if large >= 1.0 => 1,
        large if large >= 0.1 => 2,
        large if large >= 0.01 => 3,
        _ => 4,
    };
    format!("{value:.decimals$}")
}

pub(super) fn ms(milliseconds: f64) -> String {
    time(Summary { mean: milliseconds, ..Summary::default() })
}
