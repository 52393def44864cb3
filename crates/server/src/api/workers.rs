//! `/v1/workers`: workers in other processes that claim steps with a long poll, run them, and report their outcomes. Any
//! daemon on the store accepts the reports.

use std::collections::HashMap;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use holdoff_policy::{Class, Failure};
use holdoff_work::{AttemptOutcome, ClaimedStep, Claimer, Error, Fault, Payload, Receipt, StepId, Work};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tokio::sync::{Semaphore, SemaphorePermit};
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::input::{HumanDuration, JsonBody, check_text};
use crate::access::Caller;
use crate::app::App;
use crate::events::TokenWatch;
use crate::problem::{Kind, Problem, ProblemBody, jittered_retry_after};
use crate::schema::{ClassWord, DurationText, OutcomeWord, StepIdText};
use crate::view::encode;

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(claim))
        .routes(routes!(heartbeat))
        .routes(routes!(complete))
        .routes(routes!(fail))
        .routes(routes!(snooze))
}

/// The permitted range of a lease.
const LEASE: std::ops::RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(24 * 60 * 60);

/// Returns the requested lease of a step, or the lease of the settings.
fn lease(app: &App, wanted: Option<&HumanDuration>) -> Result<Duration, Problem> {
    let lease = wanted.map_or(app.work.settings().lease, |HumanDuration(lease)| *lease);
    if LEASE.contains(&lease) { Ok(lease) } else { Err(invalid("lease: expected 1s to 24h")) }
}

fn invalid(why: impl Into<String>) -> Problem {
    Problem::new(Kind::InvalidBody, why)
}

/// The maximum number of requests that wait for steps.
const MAX_WAITING: usize = 512;
/// The maximum number of cached names. A worker whose name was evicted is registered again.
const MAX_CACHED_NAMES: usize = 1000;
/// The worker name of reports. The claim itself identifies the worker that had the step.
const REPORTER: &str = "api";

/// Workers that pull steps over HTTP.
#[derive(Debug)]
pub(crate) struct PullWorkers {
    work: Work,
    claimers: Mutex<HashMap<String, Claimer>>,
    permits: Semaphore,
}

impl PullWorkers {
    pub(crate) fn new(work: Work) -> Self {
        Self { work, claimers: Mutex::default(), permits: Semaphore::new(MAX_WAITING) }
    }

    /// Returns the claimer of a worker name. The store is told of a name once, as long as the name is cached here.
    pub(crate) async fn claimer(&self, name: &str) -> Result<Claimer, Problem> {
        if let Some(claimer) = self.claimers.lock().get(name) {
            return Ok(claimer.clone());
        }
        let claimer = self.work.claimer(name, &[], &[]).await?;
        let mut claimers = self.claimers.lock();
        if claimers.len() >= MAX_CACHED_NAMES {
            claimers.clear();
        }
        claimers.insert(name.to_owned(), claimer.clone());
        Ok(claimer)
    }

    /// Returns the claimer for reports.
    pub(crate) async fn reporter(&self) -> Result<Claimer, Problem> {
        self.claimer(REPORTER).await
    }

    /// Acquires a permit to wait for steps.
    pub(crate) fn acquire_permit(&self) -> Result<SemaphorePermit<'_>, Problem> {
        self.permits.try_acquire().map_err(|_| {
            let detail = format!("{MAX_WAITING} requests already wait for steps in this daemon");
            Problem::new(Kind::TooManyWaiters, detail).retry_after(jittered_retry_after())
        })
    }
}

/// The maximum wait. A response takes little longer than that.
const MAX_WAIT: Duration = Duration::from_secs(20);
/// The maximum number of steps in one claim.
const MAX_STEPS: u32 = 100;
/// The maximum number of names in a list.
const MAX_LIST_NAMES: usize = 100;
const MAX_NAME_CHARS: usize = 200;

/// A claim: the operations that the worker handles, and the number of steps that it wants.
#[derive(Deserialize, ToSchema)]
#[schema(as = ClaimSteps)]
#[serde(deny_unknown_fields)]
struct ClaimForm {
    /// The name of the worker, shown with its attempts.
    #[schema(min_length = 1, max_length = 200)]
    worker: String,
    #[schema(min_length = 1, max_length = 200)]
    namespace: Option<String>,
    /// The operations that the worker handles.
    #[schema(min_items = 1, max_items = 100)]
    operations: Vec<String>,
    /// Only steps of these queues; of all queues if empty.
    #[schema(max_items = 100)]
    #[serde(default)]
    queues: Vec<String>,
    /// The maximum number of steps.
    #[schema(minimum = 1, maximum = 100, default = 1)]
    limit: Option<u32>,
    /// The lease of the steps. A heartbeat renews it.
    #[schema(value_type = Option<DurationText>)]
    lease: Option<HumanDuration>,
    /// How long to wait for a due step: at most `20s`; by default the request does not wait.
    #[schema(value_type = Option<DurationText>)]
    wait: Option<HumanDuration>,
}

/// The claimed steps.
#[derive(Serialize, ToSchema)]
#[schema(as = ClaimedSteps)]
struct ClaimedSteps<'a> {
    items: Vec<ClaimedStepView<'a>>,
}

/// A claimed step.
#[derive(Serialize, ToSchema)]
#[schema(as = ClaimedStep)]
struct ClaimedStepView<'a> {
    #[schema(value_type = StepIdText)]
    step: StepId,
    operation: &'a str,
    /// The fencing token. It increases with every claim of the step, and every report carries it.
    token: u64,
    /// The number of this attempt, from 1.
    #[schema(minimum = 1)]
    attempt: u32,
    #[schema(value_type = serde_json::Value, required = false)]
    #[serde(skip_serializing_if = "Option::is_none")]
    payload: Option<&'a RawValue>,
    #[schema(nullable = false, content_encoding = "base64")]
    #[serde(skip_serializing_if = "Option::is_none")]
    payload_base64: Option<String>,
    /// The outputs of the steps that this one depends on.
    inputs: Vec<StepInput<'a>>,
}

/// The output of a step that the claimed one depends on.
#[derive(Serialize, ToSchema)]
#[schema(as = StepInput)]
struct StepInput<'a> {
    /// The name of the step.
    name: &'a str,
    #[schema(value_type = serde_json::Value, required = false)]
    #[serde(skip_serializing_if = "Option::is_none")]
    output: Option<&'a RawValue>,
    #[schema(nullable = false, content_encoding = "base64")]
    #[serde(skip_serializing_if = "Option::is_none")]
    output_base64: Option<String>,
}

impl<'a> ClaimedStepView<'a> {
    fn new(claim: &'a ClaimedStep) -> Self {
        let (payload, payload_base64) = encode(Some(claim.payload()));
        let input = |(name, output): (&'a String, &'a Payload)| {
            let (output, output_base64) = encode(Some(output));
            StepInput { name, output, output_base64 }
        };
        Self {
            step: claim.step(),
            operation: claim.operation(),
            token: claim.token(),
            attempt: claim.attempt(),
            payload,
            payload_base64,
            inputs: claim.inputs().iter().map(input).collect(),
        }
    }
}

/// Claims due steps. If none is due, the request waits for up to `wait`.
///
/// HTTP steps are not dispatched to pull workers: the daemon sends those requests itself. If the client disconnects
/// before the response arrives, the claimed steps become due again when their leases expire.
#[utoipa::path(post, path = "/v1/workers/claim", tag = "workers", security(("token" = ["work", "namespace"])),
    request_body = ClaimForm,
    responses(
        (status = 200, description = "The claimed steps, possibly none.", body = ClaimedSteps<'static>),
        (status = 429, description = "Too many requests wait; retry after `Retry-After`.", body = ProblemBody,
            content_type = "application/problem+json"),
    ))]
async fn claim(
    State(app): State<App>,
    caller: Caller,
    JsonBody(form): JsonBody<ClaimForm>,
) -> Result<Response, Problem> {
    form.check().map_err(invalid)?;
    let lease = lease(&app, form.lease.as_ref())?;
    let wait = form.wait.as_ref().map_or(Duration::ZERO, |HumanDuration(wait)| *wait);
    let limit = form.limit.unwrap_or(1);
    let claimer = form.claimer(&app, &caller).await?;
    let claims = if wait.is_zero() {
        claimer.claim(limit, lease).await?
    } else {
        let _permit = app.pull_workers.acquire_permit()?;
        let mut token = TokenWatch::of(&app, &caller);
        // A stopping daemon and the end of the token end the long poll, which then claims no step.
        let is_over = async {
            tokio::select! {
                () = app.stopping.cancelled() => {}
                () = token.ended() => {}
            }
        };
        claimer.claim_until(limit, lease, wait, is_over).await?
    };
    Ok(Json(ClaimedSteps { items: claims.iter().map(ClaimedStepView::new).collect() }).into_response())
}

impl ClaimForm {
    fn check(&self) -> Result<(), String> {
        let names = [("worker", &self.worker)].into_iter();
        let names = names.chain(self.namespace.iter().map(|name| ("namespace", name)));
        let names = names.chain(self.operations.iter().map(|name| ("operations", name)));
        for (what, name) in names.chain(self.queues.iter().map(|name| ("queues", name))) {
            check_text(what, name, MAX_NAME_CHARS)?;
            if name.is_empty() {
                return Err(format!("{what}: a name must not be empty"));
            }
        }
        if self.operations.is_empty() || self.operations.len().max(self.queues.len()) > MAX_LIST_NAMES {
            return Err(format!(
                "expected 1 to {MAX_LIST_NAMES} operations, and at most {MAX_LIST_NAMES} queues"
            ));
        }
        if !(1..=MAX_STEPS).contains(&self.limit.unwrap_or(1)) {
            return Err(format!("limit: expected 1 to {MAX_STEPS}"));
        }
        match &self.wait {
            Some(HumanDuration(wait)) if *wait > MAX_WAIT => Err(format!(
                "wait: expected at most {}s; repeat the request to wait longer",
                MAX_WAIT.as_secs()
            )),
            _ => Ok(()),
        }
    }

    async fn claimer(self, app: &App, caller: &Caller) -> Result<Claimer, Problem> {
        let namespace = caller.namespace(self.namespace)?;
        let claimer = app.pull_workers.claimer(&self.worker).await?;
        Ok(claimer.with_selection(vec![namespace], self.queues, self.operations))
    }
}

/// The maximum time that a step can be postponed.
const MAX_POSTPONEMENT: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// The result of a report.
#[derive(Serialize, ToSchema)]
#[schema(as = ReportReceipt)]
struct ReportReceipt {
    /// Whether this report changed the step. If not, an earlier report under the same token did.
    accepted: bool,
    /// The outcome that the earlier report recorded.
    #[schema(value_type = OutcomeWord, required = false)]
    #[serde(skip_serializing_if = "Option::is_none")]
    recorded: Option<AttemptOutcome>,
}

/// The renewed lease of a step.
#[derive(Serialize, ToSchema)]
#[schema(as = StepLease)]
struct StepLease {
    /// The remaining validity, in seconds.
    #[schema(minimum = 0)]
    expires_in: f64,
}

/// A heartbeat of a worker for one step.
#[derive(Deserialize, ToSchema)]
#[schema(as = StepHeartbeat)]
#[serde(deny_unknown_fields)]
struct HeartbeatForm {
    #[schema(value_type = StepIdText)]
    step: String,
    /// The fencing token of the claim.
    token: u64,
    /// The new lease, from now.
    #[schema(value_type = Option<DurationText>)]
    lease: Option<HumanDuration>,
}

/// A report of success.
#[derive(Deserialize, ToSchema)]
#[schema(as = StepSuccess)]
#[serde(deny_unknown_fields)]
struct CompleteForm {
    #[schema(value_type = StepIdText)]
    step: String,
    token: u64,
    /// The output as JSON. If it exceeds `work.max_output`, it is dropped, and a note on the step says so.
    #[schema(value_type = Option<serde_json::Value>)]
    output: Option<Box<RawValue>>,
    /// The alternative for other bytes, in base64.
    output_base64: Option<String>,
    /// The size in bytes of an output that the worker has dropped, because this request was answered with 413.
    dropped_bytes: Option<u64>,
}

/// A report of failure.
#[derive(Deserialize, ToSchema)]
#[schema(as = StepFailure)]
#[serde(deny_unknown_fields)]
struct FailForm {
    #[schema(value_type = StepIdText)]
    step: String,
    token: u64,
    /// The class of the failure; `transient` by default.
    #[schema(value_type = Option<ClassWord>)]
    class: Option<String>,
    /// The error message. It is truncated, and likely secrets are redacted.
    message: Option<String>,
    /// The minimum delay that the other side asked for. It is a floor for the policy's delay.
    #[schema(value_type = Option<DurationText>)]
    retry_after: Option<HumanDuration>,
}

/// A request to postpone the step.
#[derive(Deserialize, ToSchema)]
#[schema(as = StepSnooze)]
#[serde(deny_unknown_fields)]
struct SnoozeForm {
    #[schema(value_type = StepIdText)]
    step: String,
    token: u64,
    /// The time until the step is due again.
    #[schema(value_type = DurationText)]
    wait: HumanDuration,
    reason: Option<String>,
}

/// Renews the lease of a claimed step.
#[utoipa::path(post, path = "/v1/workers/heartbeat", tag = "workers", security(("token" = ["work", "namespace"])),
    request_body = HeartbeatForm,
    responses(
        (status = 200, description = "The worker still holds the step.", body = StepLease),
        (status = 409, description = "The worker no longer holds the step.", body = ProblemBody,
            content_type = "application/problem+json"),
    ))]
async fn heartbeat(
    State(app): State<App>,
    caller: Caller,
    JsonBody(form): JsonBody<HeartbeatForm>,
) -> Result<Json<StepLease>, Problem> {
    let lease = lease(&app, form.lease.as_ref())?;
    let (claimer, claim) = find_claim(&app, &caller, &form.step, form.token).await?;
    claimer.heartbeat(&claim, lease).await?;
    Ok(Json(StepLease { expires_in: lease.as_secs_f64() }))
}

/// Reports that a step has succeeded.
#[utoipa::path(post, path = "/v1/workers/complete", tag = "workers", security(("token" = ["work", "namespace"])),
    request_body = CompleteForm,
    responses(
        (status = 200, description = "The report is recorded.", body = ReportReceipt),
        (status = 409, description = "The worker no longer holds the step; nothing changed.", body = ProblemBody,
            content_type = "application/problem+json"),
    ))]
async fn complete(
    State(app): State<App>,
    caller: Caller,
    JsonBody(form): JsonBody<CompleteForm>,
) -> Result<Json<ReportReceipt>, Problem> {
    let output = output(form.output, form.output_base64)?;
    let (claimer, claim) = find_claim(&app, &caller, &form.step, form.token).await?;
    let completed = match form.dropped_bytes {
        Some(size) => claimer.complete_without_output(&claim, size).await,
        None => claimer.complete(&claim, output).await,
    };
    respond(&claim, completed?)
}

/// Reports that a step has failed. The policy decides about a retry.
#[utoipa::path(post, path = "/v1/workers/fail", tag = "workers", security(("token" = ["work", "namespace"])),
    request_body = FailForm,
    responses(
        (status = 200, description = "The report is recorded.", body = ReportReceipt),
        (status = 409, description = "The worker no longer holds the step; nothing changed.", body = ProblemBody,
            content_type = "application/problem+json"),
    ))]
async fn fail(
    State(app): State<App>,
    caller: Caller,
    JsonBody(form): JsonBody<FailForm>,
) -> Result<Json<ReportReceipt>, Problem> {
    let class = form.class.as_deref().unwrap_or(Class::Transient.name());
    let class: Class = class.parse().map_err(|_| invalid("class: expected a class such as `transient`"))?;
    let mut failure = Failure::new(class);
    if let Some(wait) = &form.retry_after {
        failure = failure.with_retry_after(at_most_a_year("retry_after", wait)?);
    }
    let fault = Fault::new(failure, form.message.unwrap_or_default());
    let (claimer, claim) = find_claim(&app, &caller, &form.step, form.token).await?;
    respond(&claim, claimer.fail(&claim, fault).await?)
}

/// Postpones a step. It does not count as an attempt.
#[utoipa::path(post, path = "/v1/workers/snooze", tag = "workers", security(("token" = ["work", "namespace"])),
    request_body = SnoozeForm,
    responses(
        (status = 200, description = "The report is recorded.", body = ReportReceipt),
        (status = 409, description = "The worker no longer holds the step; nothing changed.", body = ProblemBody,
            content_type = "application/problem+json"),
    ))]
async fn snooze(
    State(app): State<App>,
    caller: Caller,
    JsonBody(form): JsonBody<SnoozeForm>,
) -> Result<Json<ReportReceipt>, Problem> {
    let wait = at_most_a_year("wait", &form.wait)?;
    let (claimer, claim) = find_claim(&app, &caller, &form.step, form.token).await?;
    respond(&claim, claimer.snooze(&claim, wait, form.reason.as_deref().unwrap_or_default()).await?)
}

async fn find_claim(
    app: &App,
    caller: &Caller,
    step: &str,
    token: u64,
) -> Result<(Claimer, ClaimedStep), Problem> {
    let step: StepId = step.parse().map_err(|_| invalid("step: expected `TASK/NUMBER`"))?;
    let claimer = app.pull_workers.reporter().await?;
    let claim = claimer.held(step, token).await?;
    let is_visible = match claim.namespace() {
        Some(namespace) => caller.may_see(namespace),
        // The lease is no longer held, so the claim has no namespace. A lookup of the step finds it.
        None if caller.namespace_filter(None)?.is_some() => {
            let task = app.work.task_outline(step.task).await?;
            let steps = task.iter().flat_map(|task| &task.steps);
            steps.into_iter().any(|one| one.id == step && caller.may_see(&one.namespace))
        }
        None => true,
    };
    if !is_visible {
        return Err(Error::Fenced { step, lease: token }.into());
    }
    Ok((claimer, claim))
}

fn respond(claim: &ClaimedStep, receipt: Receipt) -> Result<Json<ReportReceipt>, Problem> {
    match receipt {
        Receipt::Accepted => Ok(Json(ReportReceipt { accepted: true, recorded: None })),
        Receipt::Recorded(outcome) => Ok(Json(ReportReceipt { accepted: false, recorded: Some(outcome) })),
        _ => Err(Error::Fenced { step: claim.step(), lease: claim.token() }.into()),
    }
}

fn output(json: Option<Box<RawValue>>, base64: Option<String>) -> Result<Payload, Problem> {
    match (json, base64) {
        (None, None) => Ok(Payload::empty()),
        (Some(json), None) => Payload::json(&json).map_err(|why| invalid(why.to_string())),
        (None, Some(text)) => {
            let bytes = STANDARD
                .decode(text)
                .map_err(|why| invalid(format!("output_base64 is not base64: {why}")))?;
            Ok(Payload::bytes(bytes))
        }
        (Some(_), Some(_)) => Err(invalid("expected `output` or `output_base64`, got both")),
    }
}

fn at_most_a_year(what: &str, HumanDuration(wait): &HumanDuration) -> Result<Duration, Problem> {
    if *wait <= MAX_POSTPONEMENT { Ok(*wait) } else { Err(invalid(format!("{what}: expected at most 365d"))) }
}
