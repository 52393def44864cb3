//! `holdoff policy explain`

use std::io::Write;
use std::time::Duration;

use holdoff_policy::{Explanation, Policy, Wait};
use serde_json::json;

use super::describe;
use crate::failure::Failure;
use crate::output::{self, Table, bar, human, range, style, time};

/// The maximum number of printed rows. The waits after that are all equal.
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
    if explanation.possible == 0 {
        writeln!(out, "It never tries again: its deadline leaves no time for the first wait.")?;
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
    // Waits that do not fit the deadline are not printed.
    let most = usize::try_from(explanation.possible).unwrap_or(usize::MAX);
    let possible: Vec<&Wait> = explanation.waits.iter().take(most).collect();
    let end = possible.iter().map(|wait| wait.window.high_us()).max().unwrap_or(1);
    let fill = |picture_width: Option<usize>| {
        let mut table = Table::new(["after try", "waits", "mean", "in all", "window"]);
        for wait in possible.iter().take(MOST_ROWS) {
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
    let ends_with_deadline = possible.len() < explanation.waits.len();
    if possible.len() > MOST_ROWS || (explanation.more && !ends_with_deadline) {
        writeln!(out, " …")?;
    }
    Ok(())
}

/// Summarises the total wait and the end of the attempts.
fn verdict(policy: &Policy, explanation: &Explanation) -> String {
    let deadline = policy.deadline();
    let Some(total) = explanation.total else {
        return match deadline {
            Some(deadline) => format!("Tries until its deadline of {} is over.", time(deadline)),
            None => "Tries for ever: set attempts or a deadline.".to_owned(),
        };
    };
    let (tries, mean) = (policy.attempts(), human(total.mean_us));
    let waits = range(total.low_us, total.high_us);
    let verdict =
        format!("Gives up after try {tries}, having waited {waits} ({mean} on average), calls apart.");
    let Some(deadline) = deadline else { return verdict };
    if explanation.possible + 1 < tries {
        let possible = explanation.possible + 1;
        return format!(
            "Its deadline of {} comes before its {tries} tries: {possible} at best.",
            time(deadline)
        );
    }
    if deadline <= Duration::from_micros(total.high_us) {
        return format!("{verdict} Its deadline of {} may come first.", time(deadline));
    }
    verdict
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
    let total = explanation
        .total
        .map(|total| json!({ "low_us": total.low_us, "high_us": total.high_us, "mean_us": total.mean_us }));
    json!({ "policy": name, "attempts": attempts, "more": explanation.more, "total": total })
}
