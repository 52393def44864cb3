//! Prints results on the terminal and writes them to files.

use std::io::Write;
use std::path::Path;

use holdoff_policy::PolicySet;
use holdoff_sim::report::{answer, charts, columns, csv, page, ranks_csv, rounded};
use holdoff_sim::{Plan, ResultRow, Rule, Summary};

use super::params;
use crate::error::CommandError;
use crate::output::{self, Table, style};

pub(super) fn print_json(rows: &[ResultRow]) -> Result<(), CommandError> {
    let shown: Vec<_> = rows.iter().map(without_plots).collect();
    Ok(writeln!(std::io::stdout(), "{}", serde_json::json!(shown))?)
}

/// Returns a row without its plot data, hundreds of numbers that `--out` writes.
pub(super) fn without_plots(row: &ResultRow) -> serde_json::Value {
    let mut shown = serde_json::json!(row);
    if let Some(row) = shown.as_object_mut() {
        for plot in ["calls_over_time", "delays", "done_over_time", "leader_views"] {
            row.remove(plot);
        }
    }
    shown
}

pub(super) fn print_table(plan: &Plan, rows: &[ResultRow]) -> Result<(), CommandError> {
    let mut out = output::stdout();
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
const MAX_RANKED: u32 = 32;

/// Prints the mean finishing rank of each id for the largest number of clients, which shows whether any id is
/// favoured.
fn ranks(rows: &[ResultRow], out: &mut impl Write) -> Result<(), CommandError> {
    let ranked = rows.iter().filter(|row| !row.ranks.is_empty());
    let Some(most) = ranked.clone().map(|row| row.clients).max() else { return Ok(()) };
    let (bold, faint) = (style::HEADING, style::FAINT);
    if most > MAX_RANKED {
        writeln!(out, "{faint}--json and --out contain the mean finishing rank of each id.{faint:#}")?;
        return Ok(());
    }
    let ranked: Vec<&ResultRow> = ranked.filter(|row| row.clients == most).collect();
    let middle = ranked.first().map_or(0.0, |row| row.ranks.middle());
    writeln!(out, "\n{bold}Mean finishing rank by id{bold:#}; the median rank is {middle:.1}\n")?;
    let mut table =
        Table::new(["id".to_owned()].into_iter().chain(ranked.iter().map(|row| row.policy.clone())));
    for id in 1..=most as usize {
        let rank = |row: &&ResultRow| row.ranks.iter().find(|rank| rank.id == id);
        let cell = |row| rank(row).map_or_else(|| "–".to_owned(), |rank| format!("{:.1}", rank.mean));
        table.row([id.to_string()].into_iter().chain(ranked.iter().map(cell)).collect::<Vec<_>>());
    }
    table.print(out)?;
    writeln!(out, "{faint}Clients that did not finish share the last ranks.{faint:#}")?;
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

/// Files that only some runs write.
const STALE: [&str; 15] = [
    "time-against-clients.svg",
    "calls-against-clients.svg",
    "calls-over-time.svg",
    "delays.svg",
    "done-over-time.svg",
    "rank-by-id.svg",
    "ranks.csv",
    "leader-view-baseline.svg",
    "leader-view-baseline-sticky.svg",
    "leader-view-baseline-hysteresis.svg",
    "leader-view-baseline-slow.svg",
    "leader-view-holdoff.svg",
    "recovery.svg",
    "known.svg",
    "healing.svg",
];

/// Writes the report, its charts and its data.
pub(super) fn write_files(folder: &Path, plan: &Plan, rows: &[ResultRow]) -> Result<(), CommandError> {
    let cannot = |error: std::io::Error| {
        CommandError::Failed(format!("cannot write to {}: {error}", folder.display()))
    };
    let (parameters, policies) = (params::text(&plan.scenario)?, policies(plan));
    let command = command(plan);
    let sources = [&command, &parameters, &policies].map(String::as_str);
    let mut files = vec![
        ("report.html".to_owned(), page(plan, rows, &sources)),
        ("results.csv".to_owned(), csv(rows)),
        ("results.json".to_owned(), format!("{:#}\n", serde_json::json!(rows))),
        ("params.toml".to_owned(), parameters.clone()),
        ("policies.toml".to_owned(), policies.clone()),
    ];
    files.extend(charts(rows).into_iter().map(|named| (format!("{}.svg", named.name), named.chart.svg())));
    files.extend(ranks_csv(rows).map(|ranks| ("ranks.csv".to_owned(), ranks)));
    std::fs::create_dir_all(folder).map_err(cannot)?;
    // Removes files of an earlier run that this run does not write, because they would be misleading.
    for stale in STALE {
        if !files.iter().any(|(name, _)| name == stale) && folder.join(stale).exists() {
            std::fs::remove_file(folder.join(stale)).map_err(cannot)?;
        }
    }
    for (name, text) in &files {
        std::fs::write(folder.join(name), text).map_err(cannot)?;
    }
    note!("wrote {} and {} more files", folder.join("report.html").display(), files.len() - 1);
    Ok(())
}

/// Returns the policies of this run, so that a later change of the policy file does not affect the report. The
/// classic strategies are not policies; the lab knows them by name.
fn policies(plan: &Plan) -> String {
    let mut set = PolicySet::default();
    for strategy in &plan.strategies {
        if let Rule::Policy(policy) = strategy.rule() {
            set.define(strategy.name(), (**policy).clone());
        }
    }
    set.to_toml()
}

/// Returns the command that reproduces the results when run in the folder of the report.
fn command(plan: &Plan) -> String {
    let policies: Vec<_> =
        plan.strategies.iter().map(|strategy| format!(" --policy {}", quoted(strategy.name()))).collect();
    let clients: Vec<_> = plan.clients.iter().map(ToString::to_string).collect();
    format!(
        "holdoff sim {} --config policies.toml --params params.toml{} --clients {} --runs {} --seed {}",
        plan.scenario.name(),
        policies.concat(),
        clients.join(","),
        plan.runs,
        plan.seed
    )
}

/// Quotes a word for a shell.
fn quoted(word: &str) -> String {
    let is_plain = word.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c)) && !word.is_empty();
    if is_plain { word.to_owned() } else { format!("'{}'", word.replace('\'', "'\\''")) }
}
