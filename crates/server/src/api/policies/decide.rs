//! `POST /v1/policies/decide`: the retry decision for any caller.

use axum::Json;
use axum::extract::State;
use holdoff_policy::{Attempt, Class, Decision, Failure, PolicySet, SoFar, as_micros_u64};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::super::input::HumanDuration;
use super::super::input::JsonBody;
use super::no_such_policy;
use crate::app::App;
use crate::problem::{Kind, Problem, ProblemBody};
use crate::schema::{ClassWord, DurationText};

/// The attempts so far, and the last failure.
#[derive(Deserialize, ToSchema)]
#[schema(as = DecisionRequest)]
#[serde(deny_unknown_fields)]
pub(super) struct DecisionRequest {
    /// The policy that decides. The alternative is `operation`, whose policy then decides.
    policy: Option<String>,
    operation: Option<String>,
    namespace: Option<String>,
    /// The number of attempts so far, including the failed one.
    #[schema(minimum = 1, default = 1)]
    attempt: Option<u32>,
    /// The time since the first attempt began.
    #[schema(value_type = Option<DurationText>)]
    elapsed: Option<HumanDuration>,
    /// The delay before the failed attempt.
    #[schema(value_type = Option<DurationText>)]
    last_delay: Option<HumanDuration>,
    /// The caller's own deadline, from the first attempt.
    #[schema(value_type = Option<DurationText>)]
    deadline: Option<HumanDuration>,
    /// Whether the credentials have been refreshed already.
    #[serde(default)]
    refreshed: bool,
    /// The class of the failure; `transient` by default.
    #[schema(value_type = Option<ClassWord>)]
    class: Option<String>,
    /// The `Retry-After` of the other side.
    #[schema(value_type = Option<DurationText>)]
    retry_after: Option<HumanDuration>,
    /// The number of contenders, if it is known.
    contenders: Option<u32>,
    /// The random number of the decision; the same roll gives the same decision. Random by default.
    roll: Option<u32>,
}

/// The decision.
#[derive(Serialize, ToSchema)]
#[schema(as = Decision)]
pub(super) struct DecisionResponse {
    /// The policy that decided.
    policy: String,
    /// `retry`, `refresh`, `hand_off`, or the reason to give up.
    decision: &'static str,
    /// Whether to retry.
    retry: bool,
    /// The delay before the next attempt in microseconds, if there is one.
    #[schema(nullable = false)]
    #[serde(skip_serializing_if = "Option::is_none")]
    delay_us: Option<u64>,
    /// The minimum delay of any roll. `high_us` is the maximum.
    #[schema(nullable = false)]
    #[serde(skip_serializing_if = "Option::is_none")]
    low_us: Option<u64>,
    #[schema(nullable = false)]
    #[serde(skip_serializing_if = "Option::is_none")]
    high_us: Option<u64>,
    roll: u32,
}

/// Decides whether and when to retry. The daemon stores nothing.
#[utoipa::path(post, path = "/v1/policies/decide", tag = "policies", security(("token" = ["read"])),
    request_body = DecisionRequest,
    responses(
        (status = 200, description = "The decision.", body = DecisionResponse),
        (status = 404, description = "The policy does not exist.", body = ProblemBody,
            content_type = "application/problem+json"),
    ))]
pub(super) async fn decide(
    State(app): State<App>,
    JsonBody(request): JsonBody<DecisionRequest>,
) -> Result<Json<DecisionResponse>, Problem> {
    let set = app.work.policies();
    let namespace = request.namespace.as_deref().unwrap_or(PolicySet::DEFAULT_NAMESPACE);
    let (name, policy) = match (request.policy.as_deref(), request.operation.as_deref()) {
        (Some(name), None) => (name, set.policy(name).ok_or_else(|| no_such_policy(&app, name))?),
        (None, Some(operation)) => set.policy_for(namespace, operation),
        _ => return Err(invalid("expected `policy` or `operation`")),
    };
    let class = request.class.as_deref().unwrap_or(Class::Transient.name());
    let class: Class = class.parse().map_err(|_| invalid("class: expected a class such as `transient`"))?;
    let mut failure = Failure::new(class).with_contenders(request.contenders.unwrap_or(0));
    if let Some(HumanDuration(wait)) = request.retry_after {
        failure = failure.with_retry_after(wait);
    }
    let time = |wait: Option<HumanDuration>| wait.map(|HumanDuration(wait)| wait);
    let so_far = SoFar {
        attempt: Attempt::new(request.attempt.unwrap_or(1)),
        elapsed: time(request.elapsed).unwrap_or_default(),
        last_delay: time(request.last_delay).unwrap_or_default(),
        refreshed: request.refreshed,
        deadline: time(request.deadline),
    };
    let roll = request.roll.unwrap_or_else(|| fastrand::Rng::new().u32(..));
    let [decision, low, high] = [roll, 0, u32::MAX].map(|roll| policy.decide(&so_far, &failure, roll));
    let micros = |decision: Decision| decision.delay().map(as_micros_u64);
    Ok(Json(DecisionResponse {
        policy: name.to_owned(),
        decision: decision.name(),
        retry: matches!(decision, Decision::Retry { .. } | Decision::Refresh),
        delay_us: micros(decision),
        low_us: micros(low),
        high_us: micros(high),
        roll,
    }))
}

fn invalid(why: &str) -> Problem {
    Problem::new(Kind::InvalidBody, why)
}
