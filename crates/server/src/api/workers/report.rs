//! Reports of workers about claimed steps. Any daemon on the store accepts them.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use holdoff_policy::{Class, Failure};
use holdoff_work::{Claim, Claimer, Error, Fault, Outcome, Payload, Receipt, StepId};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::super::forms::Wait;
use super::super::input::Sent;
use super::{invalid, lease};
use crate::access::Access;
use crate::app::App;
use crate::problem::{Kind, Problem, ProblemBody};
use crate::schema::{ClassWord, OutcomeWord, StepIdText, WaitText};

/// The maximum time that a step can be postponed.
const LONGEST_WAIT: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// What became of a report.
#[derive(Serialize, ToSchema)]
#[schema(as = ReportReceipt)]
pub(super) struct Received {
    /// Whether this report changed the step. If not, it was reported on before under the same token.
    accepted: bool,
    /// What was recorded then.
    #[schema(value_type = OutcomeWord, required = false)]
    #[serde(skip_serializing_if = "Option::is_none")]
    recorded: Option<Outcome>,
}

/// For how long a step is the worker's.
#[derive(Serialize, ToSchema)]
#[schema(as = HeldStep)]
pub(super) struct Held {
    /// In seconds.
    #[schema(minimum = 0)]
    expires_in: f64,
}

/// The worker is alive and works on the step.
#[derive(Deserialize, ToSchema)]
#[schema(as = StepHeartbeat)]
#[serde(deny_unknown_fields)]
pub(super) struct HeartbeatForm {
    #[schema(value_type = StepIdText)]
    step: String,
    /// The token that the claim gave.
    token: u64,
    /// How long the step is the worker's from now.
    #[schema(value_type = Option<WaitText>)]
    lease: Option<Wait>,
}

/// The step has succeeded.
#[derive(Deserialize, ToSchema)]
#[schema(as = StepSuccess)]
#[serde(deny_unknown_fields)]
pub(super) struct CompleteForm {
    #[schema(value_type = StepIdText)]
    step: String,
    token: u64,
    /// What came out of it, as JSON.
    #[schema(value_type = Option<serde_json::Value>)]
    output: Option<Box<RawValue>>,
    /// The same, any bytes, in base64.
    output_base64: Option<String>,
}

/// The step has failed.
#[derive(Deserialize, ToSchema)]
#[schema(as = StepFailure)]
#[serde(deny_unknown_fields)]
pub(super) struct FailForm {
    #[schema(value_type = StepIdText)]
    step: String,
    token: u64,
    /// What kind of failure it is; `transient` unless it is said.
    #[schema(value_type = Option<ClassWord>)]
    class: Option<String>,
    /// What is said about it; cut, and without what looks like a secret.
    message: Option<String>,
    /// The other side asked to be left alone for so long: a floor for the policy's own delay.
    #[schema(value_type = Option<WaitText>)]
    retry_after: Option<Wait>,
}

/// The step does not want to run yet.
#[derive(Deserialize, ToSchema)]
#[schema(as = StepSnooze)]
#[serde(deny_unknown_fields)]
pub(super) struct SnoozeForm {
    #[schema(value_type = StepIdText)]
    step: String,
    token: u64,
    /// When it is to be given out again.
    #[schema(value_type = WaitText)]
    wait: Wait,
    reason: Option<String>,
}

/// Says that the worker is alive, so that the step stays its own.
#[utoipa::path(post, path = "/v1/workers/heartbeat", tag = "workers", security(("token" = ["work", "namespace"])),
    request_body = HeartbeatForm,
    responses(
        (status = 200, description = "It is still the worker's.", body = Held),
        (status = 409, description = "It is not the worker's any more.", body = ProblemBody,
            content_type = "application/problem+json"),
    ))]
pub(super) async fn heartbeat(
    State(app): State<App>,
    access: Access,
    Sent(form): Sent<HeartbeatForm>,
) -> Result<Json<Held>, Problem> {
    let lease = lease(&app, form.lease.as_ref())?;
    let (claimer, claim) = held(&app, &access, &form.step, form.token).await?;
    claimer.heartbeat(&claim, lease).await?;
    Ok(Json(Held { expires_in: lease.as_secs_f64() }))
}

/// Says that a step has succeeded.
#[utoipa::path(post, path = "/v1/workers/complete", tag = "workers", security(("token" = ["work", "namespace"])),
    request_body = CompleteForm,
    responses(
        (status = 200, description = "It is recorded.", body = Received),
        (status = 409, description = "It was not the worker's any more; nothing changed.", body = ProblemBody,
            content_type = "application/problem+json"),
    ))]
pub(super) async fn complete(
    State(app): State<App>,
    access: Access,
    Sent(form): Sent<CompleteForm>,
) -> Result<Json<Received>, Problem> {
    let output = output(form.output, form.output_base64)?;
    let (size, limit) = (output.as_bytes().len(), app.work.settings().max_output);
    if size > limit {
        let detail = format!("the output has {size} bytes, and may have {limit} (work.max_output)");
        return Err(Problem::new(Kind::TooLarge, detail));
    }
    let (claimer, claim) = held(&app, &access, &form.step, form.token).await?;
    received(&claim, claimer.complete(&claim, output).await?)
}

/// Says that a step has failed. Its policy decides what becomes of it.
#[utoipa::path(post, path = "/v1/workers/fail", tag = "workers", security(("token" = ["work", "namespace"])),
    request_body = FailForm,
    responses(
        (status = 200, description = "It is recorded.", body = Received),
        (status = 409, description = "It was not the worker's any more; nothing changed.", body = ProblemBody,
            content_type = "application/problem+json"),
    ))]
pub(super) async fn fail(
    State(app): State<App>,
    access: Access,
    Sent(form): Sent<FailForm>,
) -> Result<Json<Received>, Problem> {
    let class = form.class.as_deref().unwrap_or(Class::Transient.name());
    let class: Class = class.parse().map_err(|_| invalid("class: expected a class such as `transient`"))?;
    let mut failure = Failure::new(class);
    if let Some(wait) = &form.retry_after {
        failure = failure.with_retry_after(at_most_a_year("retry_after", wait)?);
    }
    let fault = Fault::new(failure, form.message.unwrap_or_default());
    let (claimer, claim) = held(&app, &access, &form.step, form.token).await?;
    received(&claim, claimer.fail(&claim, fault).await?)
}

/// Puts a step off. No attempt is burnt.
#[utoipa::path(post, path = "/v1/workers/snooze", tag = "workers", security(("token" = ["work", "namespace"])),
    request_body = SnoozeForm,
    responses(
        (status = 200, description = "It is recorded.", body = Received),
        (status = 409, description = "It was not the worker's any more; nothing changed.", body = ProblemBody,
            content_type = "application/problem+json"),
    ))]
pub(super) async fn snooze(
    State(app): State<App>,
    access: Access,
    Sent(form): Sent<SnoozeForm>,
) -> Result<Json<Received>, Problem> {
    let wait = at_most_a_year("wait", &form.wait)?;
    let (claimer, claim) = held(&app, &access, &form.step, form.token).await?;
    received(&claim, claimer.snooze(&claim, wait, form.reason.as_deref().unwrap_or_default()).await?)
}

async fn held(app: &App, access: &Access, step: &str, token: u64) -> Result<(Claimer, Claim), Problem> {
    let step: StepId = step.parse().map_err(|_| invalid("step: expected `TASK/NUMBER`"))?;
    let claimer = app.pull.reporter().await?;
    let claim = claimer.held(step, token).await?;
    let is_theirs = match claim.namespace() {
        Some(namespace) => access.sees(namespace),
        // The lease is no longer held, so the claim has no namespace. A lookup of the step finds it.
        None if access.only(None)?.is_some() => {
            let task = app.work.task_outline(step.task).await?;
            let steps = task.iter().flat_map(|task| &task.steps);
            steps.into_iter().any(|one| one.id == step && access.sees(&one.namespace))
        }
        None => true,
    };
    if !is_theirs {
        return Err(Error::Fenced { step, lease: token }.into());
    }
    Ok((claimer, claim))
}

fn received(claim: &Claim, receipt: Receipt) -> Result<Json<Received>, Problem> {
    match receipt {
        Receipt::Accepted => Ok(Json(Received { accepted: true, recorded: None })),
        Receipt::Recorded(outcome) => Ok(Json(Received { accepted: false, recorded: Some(outcome) })),
        _ => Err(Error::Fenced { step: claim.step(), lease: claim.token() }.into()),
    }
}

fn output(json: Option<Box<RawValue>>, base64: Option<String>) -> Result<Payload, Problem> {
    match (json, base64) {
        (None, None) => Ok(Payload::empty()),
        (Some(json), None) => Payload::json(&json).map_err(|why| invalid(why.to_string())),
        (None, Some(text)) => {
            let bytes =
                STANDARD.decode(text).map_err(|why| invalid(format!("output_base64 is no base64: {why}")))?;
            Ok(Payload::bytes(bytes))
        }
        (Some(_), Some(_)) => Err(invalid("expected `output` or `output_base64`, and there are both")),
    }
}

fn at_most_a_year(what: &str, Wait(wait): &Wait) -> Result<Duration, Problem> {
    if *wait <= LONGEST_WAIT { Ok(*wait) } else { Err(invalid(format!("{what}: expected at most 365d"))) }
}
