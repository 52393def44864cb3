//! `holdoff policy delay`

use std::io::Write;
use std::time::{Duration, SystemTime};

use holdoff_policy::{
    Attempt, Decision, Failure as Failed, Policy, SoFar, parse_duration, retry_after_from_headers,
};
use serde_json::json;

use crate::args::DelayArgs;
use crate::failure::Failure;
use crate::output::{human, range, style};

pub(super) fn run(args: &DelayArgs, policy: &Policy, json: bool) -> Result<(), Failure> {
    let failure = failure(args)?;
    let attempt = Attempt::new(args.attempt);
    let last_delay = args.last.unwrap_or_default();
    let roll = args.roll.unwrap_or_else(|| fastrand::Rng::new().u32(..));
    let so_far = SoFar { attempt, last_delay, ..SoFar::default() };
    let decide = |roll| policy.decide(&so_far, &failure, roll);
    let decision = decide(roll);
    // A granted delay comes from the window that the deadline leaves. For a delay that is not granted, the output
    // shows the value that the roll would have picked.
    let granted = decide(0).delay().zip(decide(u32::MAX).delay()).zip(decision.delay());
    let asked = policy.window_for(attempt, last_delay, &failure);
    let at_once = (decision == Decision::Refresh).then_some([0; 3]);
    let shown = at_once
        .or(granted.map(|((low, high), delay)| [low, high, delay].map(micros)))
        .or_else(|| asked.map(|window| [window.low(), window.high(), window.pick(roll)].map(micros)));
    let mut out = anstream::stdout();
    if json {
        let answer = json!({
            "policy": args.name,
            "attempt": args.attempt,
            "roll": roll,
            "low_us": shown.map(|[low, _, _]| low),
            "high_us": shown.map(|[_, high, _]| high),
            "delay_us": shown.map(|[_, _, delay]| delay),
            "decision": decision.name(),
            "retries": matches!(decision, Decision::Retry { .. } | Decision::Refresh),
        });
        return Ok(writeln!(out, "{answer}")?);
    }
    let bold = style::HEADING;
    if let Some([low, high, delay]) = shown {
        writeln!(out, "window    {bold}{}{bold:#}  ({} – {} ms)", range(low, high), ms(low), ms(high))?;
        if granted.is_some() {
            writeln!(out, "delay     {} with roll {roll}", human(delay))?;
        }
    }
    writeln!(out, "decision  {bold}{}{bold:#}{}", decision.name(), reason(policy, decision))?;
    Ok(())
}

fn failure(args: &DelayArgs) -> Result<Failed, Failure> {
    let failure = Failed::new(args.class).with_crowd(args.crowd.unwrap_or(0));
    let Some(value) = &args.retry_after else { return Ok(failure) };
    let wait = retry_after_from_headers(value, None, now()).or_else(|| parse_duration(value).ok());
    let nonsense = || {
        Failure::Usage(format!("--retry-after {value}: expected seconds, an HTTP date, or a time such as 2m"))
    };
    Ok(failure.with_retry_after(wait.ok_or_else(nonsense)?))
}

#[expect(clippy::disallowed_methods, reason = "a date is measured from now; a command has no other clock")]
fn now() -> SystemTime {
    SystemTime::now()
}

fn reason(policy: &Policy, decision: Decision) -> String {
    let tries = policy.attempts();
    match decision.name() {
        "exhausted" => format!(": gives up, for {tries} tries have {} waits", tries - 1),
        "permanent" => ": gives up, for it will not pass by itself".to_owned(),
        "deadline" => ": gives up, for there is not enough time left".to_owned(),
        "retry_after_too_long" => {
            format!(
                ": gives up, for more than its limit of {} was asked for",
                human(micros(policy.retry_after().limit))
            )
        }
        "hand_off" => ": a conflict needs somebody to decide".to_owned(),
        "refresh" => ": new credentials, then at once".to_owned(),
        _ => String::new(),
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// Formats microseconds as milliseconds, without a fraction of zero.
fn ms(us: u64) -> String {
    if us.is_multiple_of(1000) { (us / 1000).to_string() } else { format!("{}.{:03}", us / 1000, us % 1000) }
}
