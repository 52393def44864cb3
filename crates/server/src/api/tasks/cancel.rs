//! Cancellation of a task.

use axum::extract::State;
use axum::{Extension, Json};
use holdoff_work::{Action, Filter, TaskId, TaskRecord};
use serde::Serialize;
use utoipa::ToSchema;

use super::super::input::NamedTask;
use super::look::unknown;
use crate::access::Access;
use crate::app::App;
use crate::keep::Deed;
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
#[utoipa::path(post, path = "/v1/tasks/{id}/cancel", tag = "tasks", security(("token" = ["admin", "namespace"])),
    params(("id" = inline(TaskIdText), Path, description = "The task.")),
    responses((status = 200, description = "It is cancelled.", body = Cancelled)))]
pub(super) async fn cancel_task(
    State(app): State<App>,
    access: Access,
    NamedTask(id): NamedTask,
) -> Result<(Extension<Deed>, Json<Cancelled>), Problem> {
    let (count, deed) = cancel(&app, &access, id).await?;
    Ok((Extension(deed), Json(Cancelled { count })))
}

/// Cancels a task. Returns the number of cancelled steps and the audit event.
pub(crate) async fn cancel(app: &App, access: &Access, id: TaskId) -> Result<(u64, Deed), Problem> {
    let mut filter = Filter::task(id);
    filter.namespace = access.only(None)?;
    let count = app.work.act(&filter, &Action::Cancel).await?;
    let is_seen = |task: &TaskRecord| task.steps.iter().all(|step| access.sees(&step.namespace));
    let task = app.work.task_outline(id).await?.filter(is_seen);
    if count == 0 && task.is_none() {
        return Err(unknown(id));
    }
    let mut deed = Deed::new("task.cancel", id.to_string()).times(count);
    let namespace = task.and_then(|task| task.steps.into_iter().next()).map(|step| step.namespace);
    deed.namespace = filter.namespace.or(namespace);
    Ok((count, deed))
}
