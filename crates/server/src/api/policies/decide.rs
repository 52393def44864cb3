//! `POST /v1/policies/decide`: the retry decision for any caller.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use holdoff_policy::{Attempt, Class, Decision, Failure, PolicySet, SoFar};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::super::forms::Wait;
use super::super::input::Sent;
use super::explain::unknown;
use crate::app::App;
use crate::problem::{Kind, Problem, ProblemBody};
use crate::schema::{ClassWord, WaitText};

/// What has happened so far, and what went wrong.
#[derive(Deserialize, ToSchema)]
#[schema(as = DecisionInput)]
#[serde(deny_unknown_fields)]
pub(super) struct Question {
    /// The policy that decides; or else `operation`, which has one.
    policy: Option<String>,
    operation: Option<String>,
    namespace: Option<String>,
    /// The tries so far, the failed one included.
    #[schema(minimum = 1, default = 1)]
    attempt: Option<u32>,
    /// Since the first try began.
    #[schema(value_type = Option<WaitText>)]
    elapsed: Option<Wait>,
    /// The delay before the failed try.
    #[schema(value_type = Option<WaitText>)]
    last_delay: Option<Wait>,
    /// The caller's own deadline, from the first try.
    #[schema(value_type = Option<WaitText>)]
    deadline: Option<Wait>,
    /// Whether credentials were refreshed already.
    #[serde(default)]
    refreshed: bool,
    /// What kind of failure it was; `transient` unless it is said.
    #[schema(value_type = Option<ClassWord>)]
    class: Option<String>,
    /// What the other side asked for.
    #[schema(value_type = Option<WaitText>)]
    retry_after: Option<Wait>,
    /// How many contend, if that is known.
    crowd: Option<u32>,
    /// The same roll gives the same answer; drawn at random unless it is given.
    roll: Option<u32>,
}

/// What to do next.
#[derive(Serialize, ToSchema)]
#[schema(as = Decision)]
pub(super) struct Answer {
    /// The policy that decided.
    policy: String,
    /// `retry`, `refresh`, `hand_off`, or why to give up.
    decision: &'static str,
    /// Whether to try again.
    retry: bool,
    /// When, in microseconds from now, if it is to be tried again.
    #[schema(nullable = false)]
    #[serde(skip_serializing_if = "Option::is_none")]
    delay_us: Option<u64>,
    /// The earliest and the latest that another roll would give.
    #[schema(nullable = false)]
    #[serde(skip_serializing_if = "Option::is_none")]
    low_us: Option<u64>,
    #[schema(nullable = false)]
    #[serde(skip_serializing_if = "Option::is_none")]
    high_us: Option<u64>,
    roll: u32,
}

/// Decides whether and when to try again. Nothing is remembered.
#[utoipa::path(post, path = "/v1/policies/decide", tag = "policies", security(("token" = ["read"])),
    request_body = Question,
    responses(
        (status = 200, description = "The decision.", body = Answer),
        (status = 404, description = "There is no such policy.", body = ProblemBody,
            content_type = "application/problem+json"),
    ))]
pub(super) async fn decide(
    State(app): State<App>,
    Sent(question): Sent<Question>,
) -> Result<Json<Answer>, Problem> {
    let set = app.work.policies();
    let namespace = question.namespace.as_deref().unwrap_or(PolicySet::DEFAULT_NAMESPACE);
    let (name, policy) = match (question.policy.as_deref(), question.operation.as_deref()) {
        (Some(name), None) => (name, set.policy(name).ok_or_else(|| unknown(&app, name))?),
        (None, Some(operation)) => set.policy_for(namespace, operation),
        _ => return Err(invalid("expected `policy` or `operation`")),
    };
    let class = question.class.as_deref().unwrap_or(Class::Transient.name());
    let class: Class = class.parse().map_err(|_| invalid("class: expected a class such as `transient`"))?;
    let mut failure = Failure::new(class).with_crowd(question.crowd.unwrap_or(0));
    if let Some(Wait(wait)) = question.retry_after {
        failure = failure.with_retry_after(wait);
    }
    let time = |wait: Option<Wait>| wait.map(|Wait(wait)| wait);
    let so_far = SoFar {
        attempt: Attempt::new(question.attempt.unwrap_or(1)),
        elapsed: time(question.elapsed).unwrap_or_default(),
        last_delay: time(question.last_delay).unwrap_or_default(),
        refreshed: question.refreshed,
        deadline: time(question.deadline),
    };
    let roll = question.roll.unwrap_or_else(|| fastrand::Rng::new().u32(..));
    let [decision, low, high] = [roll, 0, u32::MAX].map(|roll| policy.decide(&so_far, &failure, roll));
    let micros = |decision: Decision| decision.delay().map(micros);
    Ok(Json(Answer {
        policy: name.to_owned(),
        decision: decision.name(),
        retry: matches!(decision, Decision::Retry { .. } | Decision::Refresh),
        delay_us: micros(decision),
        low_us: micros(low),
        high_us: micros(high),
        roll,
    }))
}

fn micros(delay: Duration) -> u64 {
    u64::try_from(delay.as_micros()).unwrap_or(u64::MAX)
}

fn invalid(why: &str) -> Problem {
    Problem::new(Kind::InvalidBody, why)
}
