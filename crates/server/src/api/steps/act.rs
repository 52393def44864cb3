//! Actions of operators on all steps that match a filter.

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use holdoff_policy::format_duration;
use holdoff_work::{Action, Filter};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::super::input::Sent;
use super::super::wish::FilterForm;
use crate::access::{Access, NothingDone};
use crate::app::App;
use crate::keep::Deed;
use crate::problem::{Kind, Problem};

/// Which steps, and whether it is meant.
#[derive(Deserialize, ToSchema)]
#[schema(as = BulkAction)]
#[serde(deny_unknown_fields)]
pub(super) struct Order {
    /// Which steps. It must say something: an empty filter would mean all there are.
    filter: FilterForm,
    /// Only counts them.
    #[serde(default)]
    dry_run: bool,
}

/// To how many steps it was done, or would be.
#[derive(Serialize, ToSchema)]
#[schema(as = BulkResult)]
pub(super) struct Done {
    count: u64,
    dry_run: bool,
}

/// Makes failed and conflicted steps ready again, with all their tries before them.
#[utoipa::path(post, path = "/v1/steps/retry", tag = "steps", security(("token" = ["admin", "namespace"])), request_body = Order,
    responses((status = 200, description = "How many.", body = Done)))]
pub(super) async fn retry(
    State(app): State<App>,
    access: Access,
    Sent(order): Sent<Order>,
) -> Result<Response, Problem> {
    order.carry_out(&app, &access, &Action::Retry).await
}

/// Cancels the tasks of these steps: everything of them that is not finished.
#[utoipa::path(post, path = "/v1/steps/cancel", tag = "steps", security(("token" = ["admin", "namespace"])), request_body = Order,
    responses((status = 200, description = "How many.", body = Done)))]
pub(super) async fn cancel(
    State(app): State<App>,
    access: Access,
    Sent(order): Sent<Order>,
) -> Result<Response, Problem> {
    order.carry_out(&app, &access, &Action::Cancel).await
}

/// Gives failed and conflicted steps up for good; what depends on them stays blocked.
#[utoipa::path(post, path = "/v1/steps/discard", tag = "steps", security(("token" = ["admin", "namespace"])), request_body = Order,
    responses((status = 200, description = "How many.", body = Done)))]
pub(super) async fn discard(
    State(app): State<App>,
    access: Access,
    Sent(order): Sent<Order>,
) -> Result<Response, Problem> {
    order.carry_out(&app, &access, &Action::Discard).await
}

impl Order {
    async fn carry_out(self, app: &App, access: &Access, action: &Action) -> Result<Response, Problem> {
        let refused = |why: String| Problem::new(Kind::InvalidBody, why);
        let mut filter = self.filter.filter().map_err(|why| refused(format!("filter.{why}")))?;
        if filter == Filter::default() {
            return Err(refused(
                "filter: say which steps; all of a namespace is `\"namespace\": \"default\"`".to_owned(),
            ));
        }
        filter.namespace = access.only(filter.namespace)?;
        let dry_run = self.dry_run;
        if dry_run {
            let count = app.work.affected(&filter, action).await?;
            return Ok((Extension(NothingDone), Json(Done { count, dry_run })).into_response());
        }
        let (count, deed) = carry_out(app, filter, action).await?;
        Ok((Extension(deed), Json(Done { count, dry_run })).into_response())
    }
}

/// Performs the action on every step that matches the filter. Returns the number of steps and the audit event.
pub(crate) async fn carry_out(app: &App, filter: Filter, action: &Action) -> Result<(u64, Deed), Problem> {
    let count = app.work.act(&filter, action).await?;
    let mut deed = Deed::new(format!("steps.{}", name(action)), about(&filter)).times(count);
    deed.namespace = filter.namespace;
    Ok((count, deed))
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
fn about(filter: &Filter) -> String {
    let states = filter.states.iter().map(|state| state.name()).collect::<Vec<_>>().join(",");
    let states = (!states.is_empty()).then_some(states);
    let said = [
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
    let said = said.into_iter().filter_map(|(what, value)| Some(format!("{what}={}", value?)));
    said.collect::<Vec<_>>().join(" ")
}
