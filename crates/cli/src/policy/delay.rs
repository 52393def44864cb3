//! `holdoff policy delay`

use std::io::Write;
use std::time::{Duration, SystemTime};

use holdoff_policy::{
    Attempt, Class, Decision, Failure, Policy, PolicySet, SoFar, as_micros_u64, parse_duration,
    retry_after_from_headers,
};
use serde_json::json;

use crate::config::find_policy;
use crate::error::CommandError;
use crate::output::{self, human, range, style};

#[derive(clap::Args, Debug)]
pub(crate) struct DelayArgs {
    /// Name of the policy
    name: String,

    /// Number of the failed attempt, from 1
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    attempt: u32,

    /// Delay before this attempt, which decorrelated jitter depends on
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    last: Option<Duration>,

    /// Retry-After of the response: seconds, an HTTP date, or a duration such as 2m
    #[arg(long, value_name = "V", allow_hyphen_values = true)]
    retry_after: Option<String>,

    /// Number of contenders
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    contenders: Option<u32>,

    /// Random number that selects the delay within its window [default: a new one]
    #[arg(long, value_name = "R")]
    roll: Option<u32>,

    /// Failure class
    #[arg(long, value_name = "CLASS", default_value_t = Class::Transient)]
    class: Class,
}

pub(super) fn run(args: &DelayArgs, set: &PolicySet, json: bool) -> Result<(), CommandError> {
    let policy = find_policy(set, &args.name)?;
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
        .or(granted.map(|((low, high), delay)| [low, high, delay].map(as_micros_u64)))
        .or_else(|| asked.map(|window| [window.low(), window.high(), window.pick(roll)].map(as_micros_u64)));
    let mut out = output::stdout();
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

fn failure(args: &DelayArgs) -> Result<Failure, CommandError> {
    let failure = Failure::new(args.class).with_contenders(args.contenders.unwrap_or(0));
    let Some(value) = &args.retry_after else { return Ok(failure) };
    let wait = retry_after_from_headers(value, None, now()).or_else(|| parse_duration(value).ok());
    let invalid = || {
        CommandError::Usage(format!(
            "--retry-after {value}: expected seconds, an HTTP date, or a duration such as 2m"
        ))
    };
    Ok(failure.with_retry_after(wait.ok_or_else(invalid)?))
}

#[expect(clippy::disallowed_methods, reason = "a date is measured from now; a command has no other clock")]
fn now() -> SystemTime {
    SystemTime::now()
}

fn reason(policy: &Policy, decision: Decision) -> String {
    let attempts = policy.attempts();
    match decision.name() {
        "exhausted" => format!(": all {attempts} attempts are used"),
        "permanent" => ": the failure is not transient".to_owned(),
        "deadline" => ": the delay exceeds the remaining time".to_owned(),
        "retry_after_too_long" => {
            format!(": Retry-After exceeds the limit of {}", human(as_micros_u64(policy.retry_after().limit)))
        }
        "hand_off" => ": an operator must resolve the conflict".to_owned(),
        "refresh" => ": refresh the credentials and retry at once".to_owned(),
        _ => String::new(),
    }
}

/// Formats microseconds as milliseconds, without a fraction of zero.
fn ms(us: u64) -> String {
    if us.is_multiple_of(1000) { (us / 1000).to_string() } else { format!("{}.{:03}", us / 1000, us % 1000) }
}
