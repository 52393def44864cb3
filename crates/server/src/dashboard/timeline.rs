//! The attempts of a step on a timeline, over the windows that its policy allowed. Pure: positions are in per cent.

use std::time::Duration;

use holdoff_policy::{Explanation, Policy, as_micros_i64};
use holdoff_work::{AttemptOutcome, AttemptRecord, Moment, StepRecord, StepState};

use super::formatting;

/// The attempts of a step on a timeline.
pub(super) struct Timeline {
    pub(super) attempts: Vec<AttemptBar>,
    pub(super) windows: Vec<TimelineSpan>,
    pub(super) now: Option<String>,
    pub(super) next: Option<NextEvent>,
    pub(super) ticks: Vec<Tick>,
}

impl Timeline {
    /// Returns whether there is more to show than a single attempt.
    pub(super) fn is_worth_it(&self) -> bool {
        self.attempts.len() > 1 || self.next.is_some()
    }
}

/// The start and the width of a span, in per cent of the timeline.
pub(super) struct TimelineSpan {
    pub(super) x: String,
    pub(super) width: String,
    pub(super) about: String,
}

/// An attempt.
pub(super) struct AttemptBar {
    pub(super) span: TimelineSpan,
    pub(super) outcome: &'static str,
}

/// The time of the next attempt, or of the end of a lease.
pub(super) struct NextEvent {
    pub(super) x: String,
    pub(super) about: String,
}

pub(super) struct Tick {
    pub(super) x: String,
    pub(super) label: String,
    /// The text anchor `start`, `middle` or `end`, which keeps the label within the picture.
    pub(super) anchor: &'static str,
}

/// The minimum width of an attempt in per cent, so that it is visible.
const MIN_WIDTH: f64 = 0.6;

/// Draws the attempts of a step. `policy` is the active policy of the step's policy name, if it still exists.
pub(super) fn draw(
    step: &StepRecord,
    attempts: &[&AttemptRecord],
    policy: Option<&Policy>,
    now: Moment,
) -> Option<Timeline> {
    let start = attempts.iter().map(|attempt| attempt.started_at).chain(step.last_attempted_at).min()?;
    let is_over = step.ended_at.is_some();
    let due = step.due_at.filter(|_| matches!(step.state, StepState::Ready | StepState::Running));
    let end_of = |attempt: &&AttemptRecord| later(attempt.started_at, attempt.took);
    let last = attempts.iter().map(end_of).chain(step.ended_at).chain(due);
    let last = last.chain((!is_over).then_some(now)).max()?;
    let scale = Scale { start, micros: last.since(start).as_micros().max(1_000) };
    let mut bars: Vec<AttemptBar> = attempts.iter().map(|attempt| scale.attempt(attempt)).collect();
    bars.extend(scale.current(step, attempts, now));
    let windows = policy.map(|policy| scale.windows(attempts, &policy.explain())).unwrap_or_default();
    let next = due.map(|due| NextEvent {
        x: scale.at(due),
        about: match step.state {
            StepState::Running => {
                format!("the lease of its worker expires in {}", formatting::coarse(due.since(now)))
            }
            _ if due <= now => "due now".to_owned(),
            _ => format!("next attempt {}", formatting::relative(now, due)),
        },
    });
    let now = (!is_over && now > start).then(|| scale.at(now));
    Some(Timeline { attempts: bars, windows, now, next, ticks: scale.ticks() })
}

struct Scale {
    start: Moment,
    micros: u128,
}

impl Scale {
    fn share(&self, at: Moment) -> f64 {
        ratio(at.since(self.start).as_micros(), self.micros)
    }

    fn at(&self, at: Moment) -> String {
        percent(self.share(at))
    }

    fn span(&self, from: Moment, to: Moment, about: String) -> TimelineSpan {
        let x = self.share(from).min(100.0 - MIN_WIDTH);
        let width = (self.share(to) - x).max(MIN_WIDTH).min(100.0 - x);
        TimelineSpan { x: percent(x), width: percent(width), about }
    }

    fn attempt(&self, attempt: &AttemptRecord) -> AttemptBar {
        let end = later(attempt.started_at, attempt.took);
        let class = attempt.class.as_deref().map_or_else(String::new, |class| format!(", {class}"));
        let about = format!("{}{class}, took {}", attempt.outcome.name(), formatting::time(attempt.took));
        AttemptBar { span: self.span(attempt.started_at, end, about), outcome: attempt.outcome.name() }
    }

    /// Returns the attempt that is running or that succeeded, which the store does not record among the attempts.
    fn current(&self, step: &StepRecord, attempts: &[&AttemptRecord], now: Moment) -> Option<AttemptBar> {
        let began = step.last_attempted_at?;
        let is_known = attempts.iter().any(|attempt| attempt.started_at >= began);
        let (end, outcome) = match step.state {
            StepState::Running => (now, "running"),
            StepState::Succeeded if !is_known => (step.ended_at?, AttemptOutcome::Succeeded.name()),
            _ => return None,
        };
        Some(AttemptBar { span: self.span(began, end, outcome.to_owned()), outcome })
    }

    /// Returns the windows in which the next attempt could begin, one after each retried attempt.
    fn windows(&self, attempts: &[&AttemptRecord], explained: &Explanation) -> Vec<TimelineSpan> {
        let window = |attempt: &&&AttemptRecord| {
            let index = usize::try_from(attempt.attempt).ok()?.checked_sub(1)?;
            let wait = explained.waits.get(index).or(explained.waits.last().filter(|_| explained.more))?;
            let end = later(attempt.started_at, attempt.took);
            let (low, high) = (later(end, wait.window.low()), later(end, wait.window.high()));
            let [from, to] = [wait.window.low(), wait.window.high()].map(formatting::time);
            Some(self.span(
                low,
                high,
                format!("after attempt {}: a delay from {from} to {to}", attempt.attempt),
            ))
        };
        let is_retried = |attempt: &&&AttemptRecord| attempt.outcome == AttemptOutcome::Retried;
        attempts.iter().filter(is_retried).filter_map(|attempt| window(&attempt)).collect()
    }

    fn ticks(&self) -> Vec<Tick> {
        let tick = |(quarter, anchor): (u32, &'static str)| {
            let micros = u64::try_from(self.micros * u128::from(quarter) / 4).unwrap_or(u64::MAX);
            let label = match quarter {
                0 => "first attempt".to_owned(),
                _ => format!("+{}", formatting::time(Duration::from_micros(micros))),
            };
            Tick { x: percent(f64::from(quarter) * 25.0), label, anchor }
        };
        [(0, "start"), (1, "middle"), (2, "middle"), (3, "middle"), (4, "end")]
            .map(tick)
            .into_iter()
            .collect()
    }
}

fn later(moment: Moment, by: Duration) -> Moment {
    Moment::from_micros(moment.as_micros().saturating_add(as_micros_i64(by)))
}

#[expect(clippy::cast_precision_loss, reason = "a picture has fewer points than 2^52")]
fn ratio(part: u128, whole: u128) -> f64 {
    (part as f64 / whole as f64 * 100.0).clamp(0.0, 100.0)
}

fn percent(share: f64) -> String {
    format!("{share:.2}")
}
