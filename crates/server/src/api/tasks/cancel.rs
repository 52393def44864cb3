//! Cancelling a task.

use axum::Json;
use axum::extract::State;
use holdoff_work::{Action, Filter};
use serde::Serialize;
use utoipa::ToSchema;

use super::super::input::NamedTask;
use super::look::unknown;
use crate::app::App;
use crate::problem::Problem;
use crate::schema::TaskIdText;

/// What was cancelled.
#[derive(Serialize, ToSchema)]
#[schema(as = CancelledTask)]
pub(super) struct Cancelled {
    /// How many steps of it had not finished; none if it was over already.
    count: u64,
}

/// Cancels a task: everything of it that is not finished.
///
/// What runs is not interrupted, but its report changes nothing any more.
#[utoipa::path(post, path = "/v1/tasks/{id}/cancel", tag = "tasks", security(("token" = ["admin"])),
    params(("id" = inline(TaskIdText), Path, description = "The task.")),
    responses((status = 200, description = "It is cancelled.", body = Cancelled)))]
pub(super) async fn cancel_task(
    State(app): State<App>,
    NamedTask(id): NamedTask,
) -> Result<Json<Cancelled>, Problem> {
    let count = app.work.act(&Filter::task(id), &Action::Cancel).await?;
    if count == 0 && app.work.task(id).await?.is_none() {
        return Err(unknown(id));
    }
    Ok(Json(Cancelled { count }))
}
