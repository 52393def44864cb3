//! Claims steps, with a long poll.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use holdoff_work::{Claim, Claimer, Payload, StepId};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::super::forms::Wait;
use super::super::input::{Sent, check_text};
use super::{invalid, lease};
use crate::access::Access;
use crate::app::App;
use crate::problem::{Problem, ProblemBody};
use crate::schema::{StepIdText, WaitText};
use crate::show::encode;

/// The maximum wait. A response takes little longer than that.
const LONGEST_WAIT: Duration = Duration::from_secs(20);
/// The maximum number of steps in one claim.
const MOST: u32 = 100;
/// The maximum number of names in a list.
const MOST_NAMES: usize = 100;
const LONGEST_NAME: usize = 200;

/// Which steps a worker can run, and how many it wants.
#[derive(Deserialize, ToSchema)]
#[schema(as = ClaimSteps)]
#[serde(deny_unknown_fields)]
pub(super) struct ClaimForm {
    /// What the worker is called; attempts are shown under this name.
    #[schema(min_length = 1, max_length = 200)]
    worker: String,
    #[schema(min_length = 1, max_length = 200)]
    namespace: Option<String>,
    /// The operations it can handle.
    #[schema(min_items = 1, max_items = 100)]
    operations: Vec<String>,
    /// Only in these queues; in all, if none is named.
    #[schema(max_items = 100)]
    #[serde(default)]
    queues: Vec<String>,
    /// The most steps.
    #[schema(minimum = 1, maximum = 100, default = 1)]
    limit: Option<u32>,
    /// How long they are the worker's unless it says that it still works on them.
    #[schema(value_type = Option<WaitText>)]
    lease: Option<Wait>,
    /// How long to wait for there to be any; at most `20s`, and not at all unless it is said.
    #[schema(value_type = Option<WaitText>)]
    wait: Option<Wait>,
}

/// Steps that are the worker's now.
#[derive(Serialize, ToSchema)]
#[schema(as = ClaimedSteps)]
struct Claimed<'a> {
    items: Vec<ClaimedStep<'a>>,
}

/// A step that is the worker's now.
#[derive(Serialize, ToSchema)]
struct ClaimedStep<'a> {
    #[schema(value_type = StepIdText)]
    step: StepId,
    operation: &'a str,
    /// The fencing token: it grows with every claim of the step, and every report names it.
    token: u64,
    /// Which attempt this is, from 1.
    #[schema(minimum = 1)]
    attempt: u32,
    #[schema(value_type = serde_json::Value, required = false)]
    #[serde(skip_serializing_if = "Option::is_none")]
    payload: Option<&'a RawValue>,
    #[schema(nullable = false, content_encoding = "base64")]
    #[serde(skip_serializing_if = "Option::is_none")]
    payload_base64: Option<String>,
    /// What came out of the steps before it.
    inputs: Vec<Input<'a>>,
}

/// What came out of a step before.
#[derive(Serialize, ToSchema)]
#[schema(as = StepInput)]
struct Input<'a> {
    /// The name of that step.
    name: &'a str,
    #[schema(value_type = serde_json::Value, required = false)]
    #[serde(skip_serializing_if = "Option::is_none")]
    output: Option<&'a RawValue>,
    #[schema(nullable = false, content_encoding = "base64")]
    #[serde(skip_serializing_if = "Option::is_none")]
    output_base64: Option<String>,
}

impl<'a> ClaimedStep<'a> {
    fn new(claim: &'a Claim) -> Self {
        let (payload, payload_base64) = encode(Some(claim.payload()));
        let input = |(name, output): &'a (String, Payload)| {
            let (output, output_base64) = encode(Some(output));
            Input { name, output, output_base64 }
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

/// Claims due steps, waiting for some if there are none.
///
/// HTTP steps are not given out: the daemon makes those requests itself. Whoever goes away before the answer comes
/// loses what was claimed until the lease is over.
#[utoipa::path(post, path = "/v1/workers/claim", tag = "workers", security(("token" = ["work", "namespace"])),
    request_body = ClaimForm,
    responses(
        (status = 200, description = "What there was, perhaps nothing.", body = Claimed<'static>),
        (status = 429, description = "Too many wait; come back after `Retry-After`.", body = ProblemBody,
            content_type = "application/problem+json"),
    ))]
pub(super) async fn claim(
    State(app): State<App>,
    access: Access,
    Sent(form): Sent<ClaimForm>,
) -> Result<Response, Problem> {
    form.check().map_err(invalid)?;
    let lease = lease(&app, form.lease.as_ref())?;
    let wait = form.wait.as_ref().map_or(Duration::ZERO, |Wait(wait)| *wait);
    let limit = form.limit.unwrap_or(1);
    let claimer = form.claimer(&app, &access).await?;
    let claims = if wait.is_zero() {
        claimer.claim(limit, lease).await?
    } else {
        let _place = app.pull.place()?;
        // A stopping daemon ends the long poll, and claims no step that it does not deliver.
        claimer.claim_until(limit, lease, wait, app.stopping.cancelled()).await?
    };
    Ok(Json(Claimed { items: claims.iter().map(ClaimedStep::new).collect() }).into_response())
}

impl ClaimForm {
    fn check(&self) -> Result<(), String> {
        let names = [("worker", &self.worker)].into_iter();
        let names = names.chain(self.namespace.iter().map(|name| ("namespace", name)));
        let names = names.chain(self.operations.iter().map(|name| ("operations", name)));
        for (what, name) in names.chain(self.queues.iter().map(|name| ("queues", name))) {
            check_text(what, name, LONGEST_NAME)?;
            if name.is_empty() {
                return Err(format!("{what}: a name is empty"));
            }
        }
        if self.operations.is_empty() || self.operations.len().max(self.queues.len()) > MOST_NAMES {
            return Err(format!("expected 1 to {MOST_NAMES} operations, and at most {MOST_NAMES} queues"));
        }
        if !(1..=MOST).contains(&self.limit.unwrap_or(1)) {
            return Err(format!("limit: expected 1 to {MOST}"));
        }
        match &self.wait {
            Some(Wait(wait)) if *wait > LONGEST_WAIT => {
                Err(format!("wait: at most {}s at once; ask again to wait longer", LONGEST_WAIT.as_secs()))
            }
            _ => Ok(()),
        }
    }

    async fn claimer(self, app: &App, access: &Access) -> Result<Claimer, Problem> {
        let namespace = access.namespace(self.namespace)?;
        let claimer = app.pull.claimer(&self.worker).await?;
        Ok(claimer.wanting(vec![namespace], self.queues, self.operations))
    }
}
