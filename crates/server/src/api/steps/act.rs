//! Actions of operators: retry, cancel and discard all steps that match a filter, and resolve a conflict.

use axum::extract::State;
use axum::http::HeaderMap;
use axum::http::header::{ETAG, IF_MATCH};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use holdoff_policy::format_duration;
use holdoff_work::{Action, HttpStep, Payload, StepFilter, StepRecord, StepState};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::super::input::{JsonBody, StepPath};
use super::super::list::FilterForm;
use super::{etag, find_step};
use crate::access::{Caller, NoChange};
use crate::app::App;
use crate::problem::{Kind, Problem, ProblemBody};
use crate::schema::TaskIdText;
use crate::token_store::AuditEvent;
use crate::view::StepView;

/// The steps to act on, and whether only to count them.
#[derive(Deserialize, ToSchema)]
#[schema(as = BulkAction)]
#[serde(deny_unknown_fields)]
pub(super) struct BulkActionForm {
    /// The filter of the steps. It must not be empty, because an empty filter matches all steps.
    filter: FilterForm,
    /// Whether only to count the steps.
    #[serde(default)]
    dry_run: bool,
}

/// The number of affected steps.
#[derive(Serialize, ToSchema)]
#[schema(as = BulkResult)]
pub(super) struct BulkResult {
    count: u64,
    dry_run: bool,
}

/// Makes failed and conflicted steps ready again, with a fresh set of attempts.
#[utoipa::path(post, path = "/v1/steps/retry", tag = "steps", security(("token" = ["admin", "namespace"])), request_body = BulkActionForm,
    responses((status = 200, description = "The number of steps.", body = BulkResult)))]
pub(super) async fn retry(
    State(app): State<App>,
    caller: Caller,
    JsonBody(form): JsonBody<BulkActionForm>,
) -> Result<Response, Problem> {
    form.apply(&app, &caller, &Action::Retry).await
}

/// Cancels the tasks of these steps: all their unfinished steps.
#[utoipa::path(post, path = "/v1/steps/cancel", tag = "steps", security(("token" = ["admin", "namespace"])), request_body = BulkActionForm,
    responses((status = 200, description = "The number of steps.", body = BulkResult)))]
pub(super) async fn cancel(
    State(app): State<App>,
    caller: Caller,
    JsonBody(form): JsonBody<BulkActionForm>,
) -> Result<Response, Problem> {
    form.apply(&app, &caller, &Action::Cancel).await
}

/// Discards failed and conflicted steps for good. Steps that depend on them stay blocked.
#[utoipa::path(post, path = "/v1/steps/discard", tag = "steps", security(("token" = ["admin", "namespace"])), request_body = BulkActionForm,
    responses((status = 200, description = "The number of steps.", body = BulkResult)))]
pub(super) async fn discard(
    State(app): State<App>,
    caller: Caller,
    JsonBody(form): JsonBody<BulkActionForm>,
) -> Result<Response, Problem> {
    form.apply(&app, &caller, &Action::Discard).await
}

impl BulkActionForm {
    async fn apply(self, app: &App, caller: &Caller, action: &Action) -> Result<Response, Problem> {
        let invalid = |why: String| Problem::new(Kind::InvalidBody, why);
        let mut filter = self.filter.filter().map_err(|why| invalid(format!("filter.{why}")))?;
        if filter == StepFilter::default() {
            return Err(invalid(
                "filter: must not be empty; for all steps of a namespace use `\"namespace\": \"default\"`"
                    .to_owned(),
            ));
        }
        filter.namespace = caller.namespace_filter(filter.namespace)?;
        let dry_run = self.dry_run;
        if dry_run {
            let count = app.work.affected(&filter, action).await?;
            return Ok((Extension(NoChange), Json(BulkResult { count, dry_run })).into_response());
        }
        let (count, event) = apply_action(app, filter, action).await?;
        Ok((Extension(event), Json(BulkResult { count, dry_run })).into_response())
    }
}

/// Performs the action on every step that matches the filter. Returns the number of steps and the audit event.
pub(crate) async fn apply_action(
    app: &App,
    filter: StepFilter,
    action: &Action,
) -> Result<(u64, AuditEvent), Problem> {
    let count = app.work.act(&filter, action).await?;
    let mut event = AuditEvent::new(format!("steps.{}", name(action)), describe(&filter)).with_count(count);
    event.namespace = filter.namespace;
    Ok((count, event))
}

const fn name(action: &Action) -> &'static str {
    match action {
        Action::Retry => "retry",
        Action::Cancel => "cancel",
        Action::Discard => "discard",
        _ => "resolve",
    }
}

/// Returns the filter as text for the audit log.
fn describe(filter: &StepFilter) -> String {
    let states = filter.states.iter().map(|state| state.name()).collect::<Vec<_>>().join(",");
    let states = (!states.is_empty()).then_some(states);
    let fields = [
        ("task", filter.task.map(|task| task.to_string())),
        ("step", filter.step.map(|step| step.to_string())),
        ("state", states),
        ("queue", filter.queue.clone()),
        ("operation", filter.operation.clone()),
        ("destination", filter.destination.clone()),
        ("class", filter.class.clone()),
        ("text", filter.text.clone()),
        ("min_failures", filter.min_failures.map(|count| count.to_string())),
        ("older_than", filter.older_than.map(format_duration)),
        ("newer_than", filter.newer_than.map(format_duration)),
        ("stale_after", filter.stale_after.map(format_duration)),
    ];
    let fields = fields.into_iter().filter_map(|(what, value)| Some(format!("{what}={}", value?)));
    fields.collect::<Vec<_>>().join(" ")
}

/// The resolution of a conflict: the step is retried, with its payload or with another one.
#[derive(Deserialize, ToSchema)]
#[schema(as = Resolution)]
#[serde(deny_unknown_fields)]
pub(super) struct Resolution {
    /// The new payload as JSON; for an HTTP step, the request.
    #[schema(value_type = Option<serde_json::Value>)]
    payload: Option<Box<RawValue>>,
    /// The alternative for other bytes, in base64.
    payload_base64: Option<String>,
}

/// Resolves a conflict: the step becomes ready again.
///
/// A changed payload requires `If-Match` with the step's current `ETag`.
#[utoipa::path(post, path = "/v1/conflicts/{task}/{number}/resolve", tag = "steps", security(("token" = ["admin", "namespace"])),
    params(("task" = inline(TaskIdText), Path, description = "The id of the task."),
        ("number" = u32, Path, description = "The number of the step in the task, from 0.", maximum = 2_147_483_647),
        ("if-match" = Option<String>, Header, description = "The `ETag` of the step when the caller read it.")),
    request_body = Resolution,
    responses(
        (status = 200, description = "The step is retried.", body = StepView<'static>,
            headers(("etag" = String, description = "Changes whenever the step changes."))),
        (status = 409, description = "The step is not in conflict.", body = ProblemBody,
            content_type = "application/problem+json"),
        (status = 412, description = "The step has changed since the caller read it.", body = ProblemBody,
            content_type = "application/problem+json"),
        (status = 428, description = "A changed payload needs `If-Match`.", body = ProblemBody,
            content_type = "application/problem+json"),
    ))]
pub(super) async fn resolve(
    State(app): State<App>,
    caller: Caller,
    StepPath(id): StepPath,
    headers: HeaderMap,
    JsonBody(resolution): JsonBody<Resolution>,
) -> Result<Response, Problem> {
    let (_, step) = find_step(&app, &caller, id).await?;
    let payload = resolution.payload()?;
    let seen = headers.get(IF_MATCH).map(|seen| seen.to_str().unwrap_or_default());
    let event = resolve_conflict(&app, &step, payload, seen).await?;
    // The conflict is resolved, even if the current state of the step can no longer be read.
    let step = find_step(&app, &caller, id).await.map_or(step, |(_, step)| step);
    Ok((Extension(event), [(ETAG, etag(&step))], Json(StepView::new(&step))).into_response())
}

/// Resolves a conflict of a step, on the condition that the step is unchanged since it was read. Returns the audit
/// event.
pub(crate) async fn resolve_conflict(
    app: &App,
    step: &StepRecord,
    payload: Option<Payload>,
    seen: Option<&str>,
) -> Result<AuditEvent, Problem> {
    let id = step.id;
    if let Some(payload) = &payload {
        check_request(step, payload)?;
    }
    let mut filter = StepFilter::step(id);
    match (seen, &payload) {
        (None, Some(_)) => {
            let detail = "send the step's ETag in If-Match, so that the decision of another operator is not overwritten";
            return Err(Problem::new(Kind::IfMatchRequired, detail));
        }
        (Some(seen), _) if !is_match(seen, &etag(step)) => return Err(precondition_failed()),
        (Some(_), _) => filter.token = Some(step.token),
        (None, None) => {}
    }
    if step.state != StepState::Conflicted {
        let detail = format!("step {id} is {}; only a step in conflict can be resolved", step.state);
        return Err(Problem::new(Kind::NotInConflict, detail));
    }
    if app.work.act(&filter, &Action::Resolve(payload)).await? == 0 {
        return Err(precondition_failed());
    }
    Ok(AuditEvent::new("step.resolve", id.to_string()).in_namespace(&step.namespace))
}

impl Resolution {
    fn payload(self) -> Result<Option<Payload>, Problem> {
        let invalid = |why: String| Problem::new(Kind::InvalidBody, why);
        Ok(Some(match (self.payload, self.payload_base64) {
            (None, None) => return Ok(None),
            (Some(json), None) => Payload::json(&json).map_err(|why| invalid(why.to_string()))?,
            (None, Some(text)) => {
                let bytes = STANDARD
                    .decode(text)
                    .map_err(|why| invalid(format!("payload_base64 is not base64: {why}")))?;
                Payload::bytes(bytes)
            }
            (Some(_), Some(_)) => {
                return Err(invalid("expected `payload` or `payload_base64`, got both".to_owned()));
            }
        }))
    }
}

/// Rejects a payload that is not a valid HTTP request: the step would only fail again.
fn check_request(step: &StepRecord, payload: &Payload) -> Result<(), Problem> {
    let invalid = |why: String| Problem::new(Kind::InvalidBody, why);
    if step.destination.is_some() {
        let request: HttpStep =
            payload.read().map_err(|why| invalid(format!("payload: not an HTTP request: {why}")))?;
        request.check().map_err(|why| invalid(format!("payload: {why}")))?;
    }
    Ok(())
}

fn is_match(seen: &str, etag: &str) -> bool {
    seen == "*" || seen.split(',').any(|one| one.trim() == etag)
}

fn precondition_failed() -> Problem {
    Problem::new(
        Kind::PreconditionFailed,
        "the step has changed since it was read; read it again and repeat the decision. Nothing was changed",
    )
}
