//! `GET /v1/tasks/{id}`

use axum::Json;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::response::{IntoResponse, Response};
use holdoff_work::{TaskId, TaskRecord};
use serde::Deserialize;

use crate::access::Access;
use crate::app::App;
use crate::problem::{Kind, Problem};
use crate::show;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Wish {
    #[serde(default)]
    payloads: bool,
}

pub(crate) async fn task(
    State(app): State<App>,
    access: Access,
    id: Result<Path<String>, PathRejection>,
    wish: Result<Query<Wish>, QueryRejection>,
) -> Result<Response, Problem> {
    let Path(id) = id.map_err(|wrong| Problem::new(Kind::InvalidId, wrong.body_text()))?;
    let id: TaskId = id.parse().map_err(|_| Problem::new(Kind::InvalidId, "expected a UUID"))?;
    let Query(wish) = wish.map_err(|wrong| Problem::new(Kind::InvalidQuery, wrong.body_text()))?;
    // What is another namespace's is not there at all.
    let is_seen = |task: &TaskRecord| task.steps.iter().all(|step| access.sees(&step.namespace));
    let Some(record) = app.work.task(id).await?.filter(is_seen) else {
        let detail =
            format!("there is no task {id}: it was never submitted here, or is forgotten (work.history)");
        return Err(Problem::new(Kind::NoSuchTask, detail));
    };
    Ok(Json(show(&record, wish.payloads)).into_response())
}
