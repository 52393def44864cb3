//! `holdoff policy explain`

use std::io::Write;
use std::time::Duration;

use holdoff_policy::{Explanation, Policy};
use serde_json::json;

use super::describe;
use crate::failure::Failure;
use crate::output::{self, Table, bar, human, range, style};

/// The most rows that are printed; the waits after that are all alike.
const MOST_ROWS: usize = 20;

pub(super) fn run(name: &str, policy: &Policy, json: bool) -> Result<(), Failure> {
    let mut out = anstream::stdout();
    let explanation = policy.explain();
    if json {
        return Ok(writeln!(out, "{}", as_json(name, &explanation))?);
    }
    let (bold, faint) = (style::HEADING, style::FAINT);
    writeln!(out, "{bold}{name}{bold:#}: {}\n", describe::sentence(policy))?;
    if explanation.waits.is_empty() {
        writeln!(out, "One try, no wait: what fails has failed.")?;
        return Ok(());
    }
    print_waits(&mut out, &explanation)?;
    writeln!(out, "\n{}", verdict(policy, &explanation))?;
    for rule in describe::rules(policy) {
        writeln!(out, "{faint}{rule}{faint:#}")?;
    }
    Ok(())
}

fn print_waits(out: &mut impl Write, explanation: &Explanation) -> std::io::Result<()> {
    let end = explanation.waits.iter().map(|wait| wait.window.high_us()).max().unwrap_or(1);
    let fill = |picture_width: Option<usize>| {
        let mut table = Table::new(["after try", "waits", "mean", "in all", "window"]);
        for wait in explanation.waits.iter().take(MOST_ROWS) {
            let window = wait.window;
            let picture = picture_width
                .map_or_else(String::new, |width| bar(window.low_us(), window.high_us(), end, width));
            table.row([
                wait.attempt.to_string(),
                range(window.low_us(), window.high_us()),
                human(wait.mean_us),
                range(wait.total_low_us, wait.total_high_us),
                picture,
            ]);
        }
        table
    };
    let room = output::width().saturating_sub(fill(None).width_before_last() + 1);
    fill(Some(room.clamp(12, 48))).print(out)?;
    if explanation.more || explanation.waits.len() > MOST_ROWS {
        writeln!(out, " …")?;
    }
    Ok(())
}

/// What it all comes to.
fn verdict(policy: &Policy, explanation: &Explanation) -> String {
    if explanation.more {
        return match policy.deadline() {
            Some(_) => "Tries until its deadline.".to_owned(),
            None => "Tries for ever: set attempts or a deadline.".to_owned(),
        };
    }
    let (low, high) = explanation.total_us();
    let mean = human(explanation.total_mean_us());
    let tries = policy.attempts();
    let verdict = format!(
        "Gives up after try {tries}, having waited {} ({mean} on average), calls apart.",
        range(low, high)
    );
    let deadline = policy.deadline().filter(|deadline| *deadline < Duration::from_micros(high));
    let sooner = deadline.map_or_else(String::new, |deadline| {
        format!(
            " Its deadline of {} may come first.",
            human(u64::try_from(deadline.as_micros()).unwrap_or(u64::MAX))
        )
    });
    verdict + &sooner
}

fn as_json(name: &str, explanation: &Explanation) -> serde_json::Value {
    let attempts: Vec<_> = explanation
        .waits
        .iter()
        .map(|wait| {
            json!({
                "attempt": wait.attempt.get(),
                "low_us": wait.window.low_us(),
                "high_us": wait.window.high_us(),
                "mean_us": wait.mean_us,
                "total_low_us": wait.total_low_us,
                "total_high_us": wait.total_high_us,
            })
        })
        .collect();
    json!({ "policy": name, "attempts": attempts, "more": explanation.more })
}
