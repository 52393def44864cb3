//! The waits of a policy as bars, from the earliest to the latest next attempt. Pure: positions are in per cent.

use holdoff_policy::Policy;

use super::words;

/// The maximum number of waits in the picture.
const MOST: usize = 12;

/// A wait.
pub(super) struct Bar {
    pub(super) attempt: u32,
    pub(super) x: String,
    pub(super) width: String,
    pub(super) mean: String,
    pub(super) label: String,
}

/// The waits of a policy.
pub(super) struct Windows {
    pub(super) bars: Vec<Bar>,
    pub(super) total: String,
    pub(super) left_out: bool,
}

/// Draws the waits of a policy on one scale.
pub(super) fn draw(policy: &Policy) -> Windows {
    let explained = policy.explain();
    let most = explained.waits.iter().take(MOST).map(|wait| wait.window.high_us()).max().unwrap_or(1).max(1);
    let percent = |us: u64| share(us, most);
    let bar = |wait: &holdoff_policy::Wait| {
        let (low, high) = (wait.window.low_us(), wait.window.high_us());
        let x = percent(low).min(99.2);
        let width = (percent(high) - x).max(0.8);
        let [from, to] = [wait.window.low(), wait.window.high()].map(words::time);
        Bar {
            attempt: wait.attempt.get(),
            x: format!("{x:.2}"),
            width: format!("{width:.2}"),
            mean: format!("{:.2}", percent(wait.mean_us).min(99.6)),
            label: if low == high { to } else { format!("{from} – {to}") },
        }
    };
    let micros = |us: u64| words::time(std::time::Duration::from_micros(us));
    let total = match &explained.total {
        Some(total) => format!(
            "{} to {} in all, {} on average",
            micros(total.low_us),
            micros(total.high_us),
            micros(total.mean_us)
        ),
        None => "It goes on until its deadline, or for good.".to_owned(),
    };
    let left_out = explained.more || explained.waits.len() > MOST;
    Windows { bars: explained.waits.iter().take(MOST).map(bar).collect(), total, left_out }
}

#[expect(clippy::cast_precision_loss, reason = "a picture has fewer points than 2^52")]
fn share(part: u64, whole: u64) -> f64 {
    part as f64 / whole as f64 * 100.0
}
