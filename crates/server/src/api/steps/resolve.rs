//! Resolution of a conflict.

use axum::extract::State;
use axum::http::HeaderMap;
use axum::http::header::{ETAG, IF_MATCH};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use holdoff_work::{Action, Filter, HttpStep, Payload, StepRecord, StepState};
use serde::Deserialize;
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::super::input::{NamedStep, Sent};
use super::look::{etag, find};
use crate::access::Access;
use crate::app::App;
use crate::keep::Deed;
use crate::problem::{Kind, Problem, ProblemBody};
use crate::schema::TaskIdText;
use crate::show::ShownStep;

/// How a conflict is decided: the step is tried again, as it is or with another payload.
#[derive(Deserialize, ToSchema)]
#[schema(as = Resolution)]
#[serde(deny_unknown_fields)]
pub(super) struct Resolution {
    /// What goes into it from now on, as JSON; of an HTTP step, the request.
    #[schema(value_type = Option<serde_json::Value>)]
    payload: Option<Box<RawValue>>,
    /// The same, any bytes, in base64.
    payload_base64: Option<String>,
}

/// Decides a conflict: the step becomes ready again.
///
/// Whoever changes the payload must have seen the step as it is: `If-Match` must be its `ETag`.
#[utoipa::path(post, path = "/v1/conflicts/{task}/{number}/resolve", tag = "steps", security(("token" = ["admin", "namespace"])),
    params(("task" = inline(TaskIdText), Path, description = "Its task."),
        ("number" = u32, Path, description = "Its number in the task, from 0.", maximum = 2_147_483_647),
        ("if-match" = Option<String>, Header, description = "The `ETag` of the step when it was looked at.")),
    request_body = Resolution,
    responses(
        (status = 200, description = "It is tried again.", body = ShownStep<'static>,
            headers(("etag" = String, description = "It changes whenever the step does."))),
        (status = 409, description = "It is not in conflict.", body = ProblemBody,
            content_type = "application/problem+json"),
        (status = 412, description = "It has changed since it was looked at.", body = ProblemBody,
            content_type = "application/problem+json"),
        (status = 428, description = "A changed payload needs `If-Match`.", body = ProblemBody,
            content_type = "application/problem+json"),
    ))]
pub(super) async fn resolve(
    State(app): State<App>,
    access: Access,
    NamedStep(id): NamedStep,
    headers: HeaderMap,
    Sent(resolution): Sent<Resolution>,
) -> Result<Response, Problem> {
    let (_, step) = find(&app, &access, id).await?;
    let payload = resolution.payload()?;
    let seen = headers.get(IF_MATCH).map(|seen| seen.to_str().unwrap_or_default());
    let deed = decide(&app, &step, payload, seen).await?;
    // The conflict is resolved, even if the current state of the step can no longer be read.
    let step = find(&app, &access, id).await.map_or(step, |(_, step)| step);
    Ok((Extension(deed), [(ETAG, etag(&step))], Json(ShownStep::new(&step, true))).into_response())
}

/// Resolves a conflict of a step, on the condition that the step is unchanged since it was read. Returns the audit
/// event.
pub(crate) async fn decide(
    app: &App,
    step: &StepRecord,
    payload: Option<Payload>,
    seen: Option<&str>,
) -> Result<Deed, Problem> {
    let id = step.id;
    if let Some(payload) = &payload {
        check(step, payload)?;
    }
    let mut filter = Filter::step(id);
    match (seen, &payload) {
        (None, Some(_)) => {
            let detail = "send the step's ETag as If-Match, so that nobody else's decision is overwritten";
            return Err(Problem::new(Kind::IfMatchRequired, detail));
        }
        (Some(seen), _) if !is_match(seen, &etag(step)) => return Err(changed()),
        (Some(_), _) => filter.token = Some(step.token),
        (None, None) => {}
    }
    if step.state != StepState::Conflicted {
        let detail = format!("step {id} is {}; only a conflict can be decided", step.state);
        return Err(Problem::new(Kind::NotInConflict, detail));
    }
    if app.work.act(&filter, &Action::Resolve(payload)).await? == 0 {
        return Err(changed());
    }
    Ok(Deed::new("step.resolve", id.to_string()).within(&step.namespace))
}

impl Resolution {
    fn payload(self) -> Result<Option<Payload>, Problem> {
        let wrong = |why: String| Problem::new(Kind::InvalidBody, why);
        Ok(Some(match (self.payload, self.payload_base64) {
            (None, None) => return Ok(None),
            (Some(json), None) => Payload::json(&json).map_err(|why| wrong(why.to_string()))?,
            (None, Some(text)) => {
                let bytes = STANDARD
                    .decode(text)
                    .map_err(|why| wrong(format!("payload_base64 is no base64: {why}")))?;
                Payload::bytes(bytes)
            }
            (Some(_), Some(_)) => {
                return Err(wrong("expected `payload` or `payload_base64`, and there are both".to_owned()));
            }
        }))
    }
}

/// Rejects a payload that is not a valid HTTP request: the step would only fail again.
fn check(step: &StepRecord, payload: &Payload) -> Result<(), Problem> {
    let wrong = |why: String| Problem::new(Kind::InvalidBody, why);
    if step.destination.is_some() {
        let request: HttpStep = payload.read().map_err(|why| wrong(format!("payload: no request: {why}")))?;
        request.check().map_err(|why| wrong(format!("payload: {why}")))?;
    }
    Ok(())
}

fn is_match(seen: &str, etag: &str) -> bool {
    seen == "*" || seen.split(',').any(|one| one.trim() == etag)
}

fn changed() -> Problem {
    Problem::new(
        Kind::Changed,
        "look at the step again, and decide about what it is now; nothing was changed",
    )
}
