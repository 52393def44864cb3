//! What operators do to many steps at once.

use axum::Json;
use axum::extract::State;
use holdoff_work::{Action, Filter};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::super::input::Sent;
use super::super::wish::FilterForm;
use crate::app::App;
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
#[utoipa::path(post, path = "/v1/steps/retry", tag = "steps", security(("token" = ["admin"])), request_body = Order,
    responses((status = 200, description = "How many.", body = Done)))]
pub(super) async fn retry(State(app): State<App>, Sent(order): Sent<Order>) -> Result<Json<Done>, Problem> {
    carry_out(&app, order, &Action::Retry).await
}

/// Cancels the tasks of these steps: everything of them that is not finished.
#[utoipa::path(post, path = "/v1/steps/cancel", tag = "steps", security(("token" = ["admin"])), request_body = Order,
    responses((status = 200, description = "How many.", body = Done)))]
pub(super) async fn cancel(State(app): State<App>, Sent(order): Sent<Order>) -> Result<Json<Done>, Problem> {
    carry_out(&app, order, &Action::Cancel).await
}

/// Gives failed and conflicted steps up for good; what depends on them stays blocked.
#[utoipa::path(post, path = "/v1/steps/discard", tag = "steps", security(("token" = ["admin"])), request_body = Order,
    responses((status = 200, description = "How many.", body = Done)))]
pub(super) async fn discard(State(app): State<App>, Sent(order): Sent<Order>) -> Result<Json<Done>, Problem> {
    carry_out(&app, order, &Action::Discard).await
}

async fn carry_out(app: &App, order: Order, action: &Action) -> Result<Json<Done>, Problem> {
    let refused = |why: String| Problem::new(Kind::InvalidBody, why);
    let filter = order.filter.filter().map_err(|why| refused(format!("filter.{why}")))?;
    if filter == Filter::default() {
        return Err(refused(
            "filter: say which steps; all of a namespace is `\"namespace\": \"default\"`".to_owned(),
        ));
    }
    let count = if order.dry_run {
        app.work.affected(&filter, action).await?
    } else {
        app.work.act(&filter, action).await?
    };
    Ok(Json(Done { count, dry_run: order.dry_run }))
}
