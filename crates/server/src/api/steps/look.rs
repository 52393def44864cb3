//! Queries of steps and their attempts.

use axum::Json;
use axum::extract::State;
use axum::http::header::ETAG;
use axum::response::{IntoResponse, Response};
use holdoff_work::{Filter, StepId, StepRecord, StepState, TaskRecord};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::super::forms::Wait;
use super::super::input::{Asked, NamedStep};
use super::super::page::{self, Page};
use super::super::wish::{FilterForm, States};
use crate::access::Access;
use crate::app::App;
use crate::problem::{Kind, Problem};
use crate::schema::{ClassWord, StepIdText, StepStateWord, TaskIdText, WaitText};
use crate::show::{ShownAttempt, ShownStep};

/// The maximum number of steps on a page with payloads, each of which may be large.
const MOST_WITH_PAYLOADS: u32 = 50;

/// A filter and a page: one flat form, because numbers in a query cannot be read through `flatten`.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct StepsWish {
    /// In one of these states, with commas between them.
    #[param(value_type = Option<Vec<StepStateWord>>, style = Form, explode = false)]
    state: Option<States>,
    #[param(value_type = Option<TaskIdText>)]
    task: Option<String>,
    #[param(value_type = Option<StepIdText>)]
    step: Option<String>,
    namespace: Option<String>,
    queue: Option<String>,
    /// Of this operation; `*` stands for any run of characters.
    operation: Option<String>,
    /// Calling this host.
    destination: Option<String>,
    /// Whose last failure was of this class.
    #[param(value_type = Option<ClassWord>)]
    class: Option<String>,
    /// That have failed at least so often.
    min_failures: Option<u32>,
    /// Submitted at least so long ago.
    #[param(value_type = Option<WaitText>)]
    older_than: Option<Wait>,
    /// Submitted at most so long ago.
    #[param(value_type = Option<WaitText>)]
    newer_than: Option<Wait>,
    /// Ready or running for longer than this.
    #[param(value_type = Option<WaitText>)]
    stale_after: Option<Wait>,
    /// With this text in the step's name or its last message.
    text: Option<String>,
    /// Whether payloads are shown; then at most 50 steps are on a page.
    #[serde(default)]
    payloads: bool,
    /// The most on a page.
    #[param(minimum = 1, maximum = 1000, default = 100)]
    limit: Option<u32>,
    /// The `next` of the page before.
    cursor: Option<String>,
}

impl StepsWish {
    fn filter(self, access: &Access) -> Result<Filter, Problem> {
        let form = FilterForm {
            state: self.state,
            task: self.task,
            step: self.step,
            namespace: access.only(self.namespace)?,
            queue: self.queue,
            operation: self.operation,
            destination: self.destination,
            class: self.class,
            min_failures: self.min_failures,
            older_than: self.older_than,
            newer_than: self.newer_than,
            stale_after: self.stale_after,
            text: self.text,
        };
        form.filter().map_err(|why| Problem::new(Kind::InvalidQuery, why))
    }
}

/// A step with its attempts.
#[derive(Serialize, ToSchema)]
struct StepWithAttempts<'a> {
    step: ShownStep<'a>,
    /// Attempts that did not succeed, the oldest first.
    attempts: Vec<ShownAttempt<'a>>,
}

/// Steps, newest first.
#[utoipa::path(get, path = "/v1/steps", tag = "steps", security(("token" = ["read", "namespace"])), params(StepsWish),
    responses((status = 200, description = "A page of them.", body = Page<ShownStep<'static>>)))]
pub(super) async fn steps(
    State(app): State<App>,
    access: Access,
    Asked(wish): Asked<StepsWish>,
) -> Result<Response, Problem> {
    list(&app, &access, wish, None).await
}

/// Steps that were given up, newest first.
#[utoipa::path(get, path = "/v1/failed", tag = "steps", security(("token" = ["read", "namespace"])), params(StepsWish),
    responses((status = 200, description = "A page of them.", body = Page<ShownStep<'static>>)))]
pub(super) async fn failed(
    State(app): State<App>,
    access: Access,
    Asked(wish): Asked<StepsWish>,
) -> Result<Response, Problem> {
    list(&app, &access, wish, Some(StepState::Failed)).await
}

/// Steps about which somebody must decide, newest first.
#[utoipa::path(get, path = "/v1/conflicts", tag = "steps", security(("token" = ["read", "namespace"])), params(StepsWish),
    responses((status = 200, description = "A page of them.", body = Page<ShownStep<'static>>)))]
pub(super) async fn conflicts(
    State(app): State<App>,
    access: Access,
    Asked(wish): Asked<StepsWish>,
) -> Result<Response, Problem> {
    list(&app, &access, wish, Some(StepState::Conflicted)).await
}

async fn list(
    app: &App,
    access: &Access,
    wish: StepsWish,
    only: Option<StepState>,
) -> Result<Response, Problem> {
    if only.is_some() && wish.state.is_some() {
        return Err(Problem::new(Kind::InvalidQuery, "state: the path says it already"));
    }
    let limit = page::limit(wish.limit)?;
    let limit = if wish.payloads { limit.min(MOST_WITH_PAYLOADS) } else { limit };
    let mut paging = holdoff_work::Page::first(limit);
    if let Some(after) = page::after(wish.cursor.as_deref(), |end| end.parse::<StepId>().ok())? {
        paging = paging.after(after);
    }
    let payloads = wish.payloads;
    if payloads {
        paging = paging.with_payloads();
    }
    let mut filter = wish.filter(access)?;
    filter.states.extend(only);
    let steps = app.work.list(&filter, &paging).await?;
    let is_full = steps.len() >= limit as usize;
    let end = steps.last().filter(|_| is_full).map(|step| step.id.to_string());
    let shown = steps.iter().map(|step| ShownStep::new(step, payloads)).collect();
    Ok(Json(Page::new(shown, end)).into_response())
}

/// One step, with its payload and its attempts.
///
/// Its `ETag` is what `If-Match` wants when a conflict is resolved.
#[utoipa::path(get, path = "/v1/steps/{task}/{number}", tag = "steps", security(("token" = ["read", "namespace"])),
    params(("task" = inline(TaskIdText), Path, description = "Its task."),
        ("number" = u32, Path, description = "Its number in the task, from 0.", maximum = 2_147_483_647)),
    responses((status = 200, description = "The step.", body = StepWithAttempts<'static>,
        headers(("etag" = String, description = "It changes whenever the step does.")))))]
pub(super) async fn step(
    State(app): State<App>,
    access: Access,
    NamedStep(id): NamedStep,
) -> Result<Response, Problem> {
    let (task, step) = find(&app, &access, id).await?;
    let attempts = task.attempts.iter().filter(|attempt| attempt.step == id).map(ShownAttempt::new).collect();
    let shown = StepWithAttempts { step: ShownStep::new(&step, true), attempts };
    Ok(([(ETAG, etag(&step))], Json(shown)).into_response())
}

/// The attempts of a step that did not succeed, the oldest first.
#[utoipa::path(get, path = "/v1/steps/{task}/{number}/attempts", tag = "steps", security(("token" = ["read", "namespace"])),
    params(("task" = inline(TaskIdText), Path, description = "Its task."),
        ("number" = u32, Path, description = "Its number in the task, from 0.", maximum = 2_147_483_647)),
    responses((status = 200, description = "The attempts.", body = Page<ShownAttempt<'static>>)))]
pub(super) async fn attempts(
    State(app): State<App>,
    access: Access,
    NamedStep(id): NamedStep,
) -> Result<Response, Problem> {
    let (task, _) = find(&app, &access, id).await?;
    let attempts = task.attempts.iter().filter(|attempt| attempt.step == id).map(ShownAttempt::new).collect();
    Ok(Json(Page::new(attempts, None)).into_response())
}

/// Returns a step and the record of its task. A step of another namespace is not found.
pub(crate) async fn find(
    app: &App,
    access: &Access,
    id: StepId,
) -> Result<(TaskRecord, StepRecord), Problem> {
    let unknown = || {
        let detail =
            format!("there is no step {id}: it was never submitted here, or is forgotten (work.history)");
        Problem::new(Kind::NoSuchStep, detail)
    };
    let is_seen = |step: &StepRecord| step.id == id && access.sees(&step.namespace);
    let task = app.work.task_outline(id.task).await?.ok_or_else(unknown)?;
    if !task.steps.iter().any(is_seen) {
        return Err(unknown());
    }
    // Reads the payload of this step only, not those of the whole task.
    let one = holdoff_work::Page::first(1).with_payloads();
    let step = app.work.list(&Filter::step(id), &one).await?.pop().ok_or_else(unknown)?;
    Ok((task, step))
}

/// Returns the `ETag` of a step: its fencing token and its state. Every change of a step changes one of them.
pub(crate) fn etag(step: &StepRecord) -> String {
    format!("\"{}-{}\"", step.token, step.state)
}
