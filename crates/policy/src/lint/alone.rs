//! Checks of a single policy.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use super::{Finding, Severity};
use crate::{Beyond, Growth, Policy};

/// Checks one policy on its own.
pub fn lint_policy(name: &str, policy: &Policy) -> Vec<Finding> {
    let subject = format!("policy {name}");
    let find = |code, severity, message: String, remedy: &str| Finding {
        code,
        severity,
        subject: subject.clone(),
        message,
        remedy: remedy.to_owned(),
    };
    let mut findings = Vec::new();
    if policy.attempts() == Policy::UNLIMITED && policy.deadline().is_none() {
        let message = "tries for ever: attempts are unlimited and there is no deadline".to_owned();
        findings.push(find("never-ends", Severity::Error, message, "set attempts or a deadline"));
    }
    if waits_alike(policy) {
        let message = "has no jitter: callers that fail together try again together".to_owned();
        let remedy = "use jitter = \"full\", or keep it if there is only ever one caller";
        findings.push(find("no-jitter", Severity::Warning, message, remedy));
    }
    if let Some(made) = tries_before_deadline(policy) {
        let (attempts, deadline) = (policy.attempts(), policy.deadline().unwrap_or_default());
        let message = format!(
            "grants {attempts} tries, but only {made} can be made within its deadline of {deadline:?}"
        );
        let remedy = "lower attempts, shorten the waits or raise the deadline";
        findings.push(find("attempts-beyond-deadline", Severity::Warning, message, remedy));
    }
    if policy.retry_after().beyond == Beyond::Clip {
        let limit = policy.retry_after().limit;
        let message = format!("calls again after {limit:?} even when the server asked for more");
        findings.push(find(
            "clips-retry-after",
            Severity::Note,
            message,
            "use beyond = \"wait\" or \"give_up\"",
        ));
    }
    if let Some(longest) = longest_below_cap(policy) {
        let message = format!("never reaches its cap of {:?}: its longest wait is {longest:?}", policy.cap());
        findings.push(find(
            "cap-never-binds",
            Severity::Note,
            message,
            "lower the cap, or know that it is only a guard",
        ));
    }
    findings
}

/// Returns whether all callers wait for exactly the same time.
fn waits_alike(policy: &Policy) -> bool {
    let explanation = policy.explain();
    let no_choice = explanation.waits.iter().all(|wait| wait.window.low_us() == wait.window.high_us());
    no_choice && explanation.waits.iter().any(|wait| wait.window.high_us() > 0)
}

/// Returns the largest number of attempts that fit before the deadline, if the policy grants more.
fn tries_before_deadline(policy: &Policy) -> Option<u32> {
    let waits = policy.attempts().saturating_sub(1);
    let possible = policy.explain().possible;
    (policy.attempts() != Policy::UNLIMITED && possible < waits).then_some(possible + 1)
}

/// Returns the longest wait, if it stays below a declared cap.
fn longest_below_cap(policy: &Policy) -> Option<Duration> {
    let declared = policy.declared_cap()?;
    let grows = !matches!(policy.growth(), Growth::Constant { .. } | Growth::List { .. });
    let explanation = policy.explain();
    let longest = explanation.waits.iter().map(|wait| wait.window.high()).max()?;
    // Shares are rounded down, so a window that ends a microsecond below the cap has reached it.
    let is_below = longest + Duration::from_micros(2) < declared;
    (grows && !explanation.more && is_below).then_some(longest)
}
