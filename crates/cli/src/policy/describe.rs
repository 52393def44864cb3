//! Describes a policy in one sentence.

use holdoff_policy::{Attempt, Beyond, Growth, Jitter, Policy};

use crate::output::time;

/// Describes a policy: `exponential from 1s ×2, jitter scaled 0.5–1.5, cap 30s, 5 attempts`
pub(super) fn sentence(policy: &Policy) -> String {
    // Decorrelated jitter grows by itself, so only the first wait of the growth matters.
    let first = policy.window(Attempt::FIRST, std::time::Duration::ZERO).low();
    let growth = match policy.jitter() {
        Jitter::Decorrelated => format!("decorrelated from {}", time(first)),
        with => format!("{}, {}", growth(policy.growth()), jitter(with)),
    };
    let mut parts = vec![growth, format!("cap {}", time(policy.cap()))];
    parts.push(match policy.attempts() {
        1 => "1 attempt".to_owned(),
        Policy::UNLIMITED => "unlimited attempts".to_owned(),
        attempts => format!("{attempts} attempts"),
    });
    parts.extend(policy.deadline().map(|deadline| format!("deadline {}", time(deadline))));
    parts.join(", ")
}

fn growth(growth: &Growth) -> String {
    match growth {
        Growth::Exponential { base, factor, max_exponent } => {
            let limit =
                max_exponent.map_or_else(String::new, |exponent| format!(" up to ×{factor}^{exponent}"));
            format!("exponential from {} ×{factor}{limit}", time(*base))
        }
        Growth::Linear { base, step } => format!("linear from {} by {}", time(*base), time(*step)),
        Growth::Fibonacci { base } => format!("fibonacci from {}", time(*base)),
        Growth::Constant { delay } => format!("always {}", time(*delay)),
        Growth::List { delays } => {
            let each: Vec<_> = delays.iter().take(8).map(|delay| time(*delay)).collect();
            let more = if delays.len() > 8 { ", …" } else { "" };
            format!("the list {}{more}", each.join(", "))
        }
        other => other.name().to_owned(),
    }
}

fn jitter(jitter: Jitter) -> String {
    match jitter {
        Jitter::Proportional(share) => format!("jitter ±{}%", percent(share)),
        Jitter::Scaled { low, high } => format!("jitter ×{low}–{high}"),
        Jitter::Additive(share) => format!("jitter +{}%", percent(share)),
        Jitter::None => "no jitter".to_owned(),
        plain => format!("{} jitter", plain.name()),
    }
}

/// Describes the rules for `Retry-After` and for contention.
pub(super) fn rules(policy: &Policy) -> Vec<String> {
    let rule = policy.retry_after();
    let spread =
        if rule.spread.is_zero() { String::new() } else { format!(", spread over {}", time(rule.spread)) };
    let beyond = match rule.beyond {
        Beyond::Wait => "waits in full".to_owned(),
        Beyond::GiveUp => "gives up".to_owned(),
        Beyond::Clip => format!("waits {} only", time(rule.limit)),
    };
    let mut rules = vec![format!("Retry-After is obeyed{spread}; beyond {} it {beyond}.", time(rule.limit))];
    rules.extend(policy.contention().map(|contention| {
        let (slot, limit) = (time(contention.slot), time(contention.limit));
        format!("If the number of contenders is known, the window is {slot} per contender, at most {limit}.")
    }));
    rules
}

/// Converts a share to percent and rounds it to three decimals.
fn percent(share: f64) -> f64 {
    (share * 100_000.0).round() / 1000.0
}
