//! The policy's decision about a step that did not succeed, as an exit from `running`.

use std::time::Duration;

use holdoff_policy::{Attempt, Class, Compiled, Decision, Failure, SoFar};

use crate::fault::{Fault, FaultKind};
use crate::settings::Requeue;
use crate::store::{Claimed, Exit, Reason, Why};

/// The next action.
#[derive(Clone, Debug)]
pub(crate) enum Verdict {
    /// Report this exit.
    Report(Exit),
    /// Refresh the credential of this generation, then report that the step may be retried immediately.
    Refresh { credential: u64, why: Why },
}

/// Returns the verdict on a fault. `ran` is the time since the claim. The earlier attempts are in `claimed`, as the
/// store recorded them.
pub(crate) fn verdict(
    policy: &Compiled,
    claimed: &Claimed,
    ran: Duration,
    fault: &Fault,
    requeue: &Requeue,
    roll: u32,
) -> Verdict {
    let message = crate::scrub::scrub(&fault.message);
    let requeued =
        |delay, reason| Verdict::Report(Exit::Requeued { delay, reason, message: message.clone() });
    let (failure, credential) = match fault.kind {
        FaultKind::Snoozed { wait } => return requeued(wait, Reason::Snoozed),
        FaultKind::Busy { wait } => return requeued(wait.max(requeue.busy), Reason::Busy),
        FaultKind::Failed { failure, credential } => (failure, credential),
    };
    let why = Why { class: failure.class().name(), message };
    // Without a credential nothing can be refreshed, so the policy's wait applies immediately.
    let refreshed = claimed.refreshed || credential.is_none();
    let so_far = so_far(claimed, ran, refreshed);
    match (policy.decide(&so_far, &failure, roll), credential) {
        (Decision::Retry { after }, _) => {
            Verdict::Report(Exit::Retry { delay: after, refreshed: false, why })
        }
        (Decision::Refresh, Some(credential)) => Verdict::Refresh { credential, why },
        (Decision::HandOff, _) => Verdict::Report(Exit::Conflicted(why)),
        _ => Verdict::Report(Exit::Failed(why)),
    }
}

fn so_far(claimed: &Claimed, ran: Duration, refreshed: bool) -> SoFar {
    let failures = u32::try_from(claimed.failures).unwrap_or(0);
    SoFar {
        attempt: Attempt::new(failures.saturating_add(1)),
        elapsed: claimed.elapsed.saturating_add(ran),
        last_delay: claimed.last_delay,
        refreshed,
        deadline: None,
    }
}

/// Returns the fault of a handler that panicked. A panic counts as transient; the policy limits the attempts.
pub(crate) fn panicked() -> Fault {
    Fault::new(Failure::new(Class::Transient), "the handler panicked")
}

#[cfg(test)]
mod tests {
    use holdoff_policy::{Growth, Jitter, Policy};

    use super::*;
    use crate::{Payload, TaskId};

    const SECOND: Duration = Duration::from_secs(1);

    fn policy() -> Policy {
        let builder = Policy::builder(Growth::constant(SECOND)).jitter(Jitter::None).attempts(3);
        builder.deadline(SECOND * 60).build().unwrap()
    }

    fn claimed(failures: i32) -> Claimed {
        Claimed {
            step: TaskId::fresh().step(0),
            lane: 1,
            policy: 1,
            lease: 1,
            failures,
            last_delay: Duration::ZERO,
            elapsed: Duration::ZERO,
            refreshed: false,
            has_parents: false,
            has_children: false,
            trace: None,
            payload: Payload::empty(),
            whereabouts: None,
            destination: None,
        }
    }

    #[expect(clippy::needless_pass_by_value, reason = "reads better where it is called")]
    fn judge(claimed: &Claimed, ran: Duration, fault: Fault) -> Verdict {
        verdict(&policy(), claimed, ran, &fault, &Requeue::default(), 0)
    }

    #[test]
    fn the_policy_grants_and_refuses() {
        let transient = || Fault::transient("busy");
        let Verdict::Report(Exit::Retry { delay, .. }) = judge(&claimed(0), SECOND, transient()) else {
            panic!()
        };
        assert_eq!(delay, SECOND);
        assert!(matches!(judge(&claimed(2), SECOND, transient()), Verdict::Report(Exit::Failed(_))));
        assert!(matches!(
            judge(&claimed(0), SECOND, Fault::permanent("no")),
            Verdict::Report(Exit::Failed(_))
        ));
        assert!(matches!(
            judge(&claimed(0), SECOND, Fault::conflict("no")),
            Verdict::Report(Exit::Conflicted(_))
        ));
    }

    #[test]
    fn the_deadline_counts_from_the_first_attempt() {
        let late = Claimed { elapsed: SECOND * 58, ..claimed(1) };
        assert!(matches!(judge(&late, SECOND * 2, Fault::transient("x")), Verdict::Report(Exit::Failed(_))));
        assert!(matches!(
            judge(&late, SECOND / 2, Fault::transient("x")),
            Verdict::Report(Exit::Retry { .. })
        ));
    }

    #[test]
    fn a_hint_is_a_floor() {
        let told = Fault::transient("later").retry_after(SECOND * 30);
        let Verdict::Report(Exit::Retry { delay, .. }) = judge(&claimed(0), SECOND, told) else { panic!() };
        assert!(delay >= SECOND * 30);
    }

    #[test]
    fn snoozes_and_busy_destinations_are_no_failures() {
        let Verdict::Report(Exit::Requeued { delay, reason, .. }) =
            judge(&claimed(2), SECOND, Fault::snooze(SECOND * 7, "not yet"))
        else {
            panic!()
        };
        assert_eq!((delay, reason), (SECOND * 7, Reason::Snoozed));
        let Verdict::Report(Exit::Requeued { delay, reason, .. }) =
            judge(&claimed(2), SECOND, Fault::busy(Duration::ZERO, "full"))
        else {
            panic!()
        };
        assert_eq!((delay, reason), (Requeue::default().busy, Reason::Busy));
    }

    #[test]
    fn a_refused_credential_is_refreshed_once() {
        let refused = || Fault::new(Class::Unauthorized, "401").with_credential(7);
        assert!(matches!(judge(&claimed(0), SECOND, refused()), Verdict::Refresh { credential: 7, .. }));
        let again = Claimed { refreshed: true, ..claimed(1) };
        assert!(matches!(judge(&again, SECOND, refused()), Verdict::Report(Exit::Retry { .. })));
        let without = Fault::new(Class::Unauthorized, "401");
        assert!(matches!(judge(&claimed(0), SECOND, without), Verdict::Report(Exit::Retry { .. })));
    }
}
