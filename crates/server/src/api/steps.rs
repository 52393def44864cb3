//! `/v1/steps`, `/v1/failed` and `/v1/conflicts`: queries of steps and their attempts. [`act`] has the actions of operators.

mod act;

use axum::Json;
use axum::extract::State;
use axum::http::header::ETAG;
use axum::response::{IntoResponse, Response};
use holdoff_work::{StepFilter, StepId, StepRecord, StepState, TaskRecord};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::input::{HumanDuration, Query, StepPath};
use super::list::{self, FilterForm, ListPage, States};
use crate::access::Caller;
use crate::app::App;
use crate::problem::{Kind, Problem};
use crate::schema::{ClassWord, DurationText, StepIdText, StepStateWord, TaskIdText};
use crate::view::{AttemptView, StepView};

pub(crate) use act::{apply_action, resolve_conflict};

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(steps))
        .routes(routes!(step))
        .routes(routes!(attempts))
        .routes(routes!(failed))
        .routes(routes!(conflicts))
        .routes(routes!(act::retry))
        .routes(routes!(act::cancel))
        .routes(routes!(act::discard))
        .routes(routes!(act::resolve))
}

/// The maximum number of steps in a response with payloads, each of which may be large.
pub(super) const MAX_WITH_PAYLOADS: u32 = 50;

/// A filter and a page: one flat form, because numbers in a query cannot be read through `flatten`.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
struct StepsQuery {
    /// Only steps in one of these states, separated by commas.
    #[param(value_type = Option<Vec<StepStateWord>>, style = Form, explode = false)]
    state: Option<States>,
    #[param(value_type = Option<TaskIdText>)]
    task: Option<String>,
    #[param(value_type = Option<StepIdText>)]
    step: Option<String>,
    namespace: Option<String>,
    queue: Option<String>,
    /// Only steps of this operation; `*` matches any characters.
    operation: Option<String>,
    /// Only steps that call this host.
    destination: Option<String>,
    /// Only steps whose last failure had this class.
    #[param(value_type = Option<ClassWord>)]
    class: Option<String>,
    /// Only steps with at least this many failures.
    min_failures: Option<u32>,
    /// Only those submitted at least this long ago.
    #[param(value_type = Option<DurationText>)]
    older_than: Option<HumanDuration>,
    /// Only those submitted at most this long ago.
    #[param(value_type = Option<DurationText>)]
    newer_than: Option<HumanDuration>,
    /// Only steps that have been ready or running for longer than this.
    #[param(value_type = Option<DurationText>)]
    stale_after: Option<HumanDuration>,
    /// Only steps with this text in the name or the last message.
    text: Option<String>,
    /// Whether to include payloads and outputs. A page then has at most 50 steps.
    #[serde(default)]
    payloads: bool,
    /// The maximum number of items on the page.
    #[param(minimum = 1, maximum = 1000, default = 100)]
    limit: Option<u32>,
    /// The `next` of the previous page.
    cursor: Option<String>,
}

impl StepsQuery {
    fn filter(self, caller: &Caller) -> Result<StepFilter, Problem> {
        let form = FilterForm {
            state: self.state,
            task: self.task,
            step: self.step,
            namespace: caller.namespace_filter(self.namespace)?,
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
    step: StepView<'a>,
    /// The failed attempts, oldest first.
    attempts: Vec<AttemptView<'a>>,
}

/// Lists steps, newest first.
#[utoipa::path(get, path = "/v1/steps", tag = "steps", security(("token" = ["read", "namespace"])), params(StepsQuery),
    responses((status = 200, description = "A page of the list.", body = ListPage<StepView<'static>>)))]
async fn steps(
    State(app): State<App>,
    caller: Caller,
    Query(query): Query<StepsQuery>,
) -> Result<Response, Problem> {
    list(&app, &caller, query, None).await
}

/// Lists steps that have failed for good, newest first.
#[utoipa::path(get, path = "/v1/failed", tag = "steps", security(("token" = ["read", "namespace"])), params(StepsQuery),
    responses((status = 200, description = "A page of the list.", body = ListPage<StepView<'static>>)))]
async fn failed(
    State(app): State<App>,
    caller: Caller,
    Query(query): Query<StepsQuery>,
) -> Result<Response, Problem> {
    list(&app, &caller, query, Some(StepState::Failed)).await
}

/// Lists steps that wait for an operator's decision, newest first.
#[utoipa::path(get, path = "/v1/conflicts", tag = "steps", security(("token" = ["read", "namespace"])), params(StepsQuery),
    responses((status = 200, description = "A page of the list.", body = ListPage<StepView<'static>>)))]
async fn conflicts(
    State(app): State<App>,
    caller: Caller,
    Query(query): Query<StepsQuery>,
) -> Result<Response, Problem> {
    list(&app, &caller, query, Some(StepState::Conflicted)).await
}

async fn list(
    app: &App,
    caller: &Caller,
    query: StepsQuery,
    only: Option<StepState>,
) -> Result<Response, Problem> {
    if only.is_some() && query.state.is_some() {
        return Err(Problem::new(
            Kind::InvalidQuery,
            "state: not allowed, because the path implies the state",
        ));
    }
    let limit = list::limit(query.limit)?;
    let limit = if query.payloads { limit.min(MAX_WITH_PAYLOADS) } else { limit };
    let mut page_request = holdoff_work::PageRequest::first(limit);
    if let Some(after) = list::parse_cursor(query.cursor.as_deref(), |end| end.parse::<StepId>().ok())? {
        page_request = page_request.after(after);
    }
    if query.payloads {
        page_request = page_request.with_payloads();
    }
    let mut filter = query.filter(caller)?;
    filter.states.extend(only);
    let steps = app.work.list(&filter, &page_request).await?;
    let is_full = steps.len() >= limit as usize;
    let end = steps.last().filter(|_| is_full).map(|step| step.id.to_string());
    let shown = steps.iter().map(StepView::new).collect();
    Ok(Json(ListPage::new(shown, end)).into_response())
}

/// Returns one step with its payload and its attempts.
///
/// The resolution of a conflict sends the step's `ETag` in `If-Match`.
#[utoipa::path(get, path = "/v1/steps/{task}/{number}", tag = "steps", security(("token" = ["read", "namespace"])),
    params(("task" = inline(TaskIdText), Path, description = "The id of the task."),
        ("number" = u32, Path, description = "The number of the step in the task, from 0.", maximum = 2_147_483_647)),
    responses((status = 200, description = "The step.", body = StepWithAttempts<'static>,
        headers(("etag" = String, description = "Changes whenever the step changes.")))))]
async fn step(State(app): State<App>, caller: Caller, StepPath(id): StepPath) -> Result<Response, Problem> {
    let (task, step) = find_step(&app, &caller, id).await?;
    let attempts = task.attempts.iter().filter(|attempt| attempt.step == id).map(AttemptView::new).collect();
    let shown = StepWithAttempts { step: StepView::new(&step), attempts };
    Ok(([(ETAG, etag(&step))], Json(shown)).into_response())
}

/// Lists the failed attempts of a step, oldest first.
#[utoipa::path(get, path = "/v1/steps/{task}/{number}/attempts", tag = "steps", security(("token" = ["read", "namespace"])),
    params(("task" = inline(TaskIdText), Path, description = "The id of the task."),
        ("number" = u32, Path, description = "The number of the step in the task, from 0.", maximum = 2_147_483_647)),
    responses((status = 200, description = "The attempts.", body = ListPage<AttemptView<'static>>)))]
async fn attempts(
    State(app): State<App>,
    caller: Caller,
    StepPath(id): StepPath,
) -> Result<Response, Problem> {
    let (task, _) = find_step(&app, &caller, id).await?;
    let attempts = task.attempts.iter().filter(|attempt| attempt.step == id).map(AttemptView::new).collect();
    Ok(Json(ListPage::new(attempts, None)).into_response())
}

/// Returns a step and the record of its task. A step of another namespace is not found.
pub(crate) async fn find_step(
    app: &App,
    caller: &Caller,
    id: StepId,
) -> Result<(TaskRecord, StepRecord), Problem> {
    let no_such_step = || {
        let detail = format!(
            "step {id} does not exist: it was never submitted here, or has been pruned (work.history)"
        );
        Problem::new(Kind::NoSuchStep, detail)
    };
    let is_visible = |step: &StepRecord| step.id == id && caller.may_see(&step.namespace);
    let task = app.work.task_outline(id.task).await?.ok_or_else(no_such_step)?;
    if !task.steps.iter().any(is_visible) {
        return Err(no_such_step());
    }
    // Reads the payload of this step only, not those of the whole task.
    let one = holdoff_work::PageRequest::first(1).with_payloads();
    let step = app.work.list(&StepFilter::step(id), &one).await?.pop().ok_or_else(no_such_step)?;
    Ok((task, step))
}

/// Returns the `ETag` of a step: its fencing token and its state. Every change of a step changes one of them.
pub(crate) fn etag(step: &StepRecord) -> String {
    format!("\"{}-{}\"", step.token, step.state)
}
