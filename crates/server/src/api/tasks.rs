//! `GET /v1/tasks/{id}`

use axum::Json;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::response::{IntoResponse, Response};
use holdoff_work::TaskId;
use serde::Deserialize;
use utoipa::IntoParams;

use crate::app::App;
use crate::problem::{Kind, Problem};
use crate::schema;
use crate::show::{ShownTask, show};

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct Wish {
    /// Whether payloads are shown.
    #[serde(default)]
    payloads: bool,
}

/// A task with its steps and their attempts.
#[utoipa::path(get, path = "/v1/tasks/{id}", tag = "tasks", security(("token" = ["read"])),
    params(("id" = inline(schema::TaskIdText), Path, description = "The task."), Wish),
    responses((status = 200, description = "The task.", body = ShownTask<'static>)))]
pub(crate) async fn task(
    State(app): State<App>,
    id: Result<Path<String>, PathRejection>,
    wish: Result<Query<Wish>, QueryRejection>,
) -> Result<Response, Problem> {
    let Path(id) = id.map_err(|wrong| Problem::new(Kind::InvalidId, wrong.body_text()))?;
    let id: TaskId = id.parse().map_err(|_| Problem::new(Kind::InvalidId, "expected a UUID"))?;
    let Query(wish) = wish.map_err(|wrong| Problem::new(Kind::InvalidQuery, wrong.body_text()))?;
    let Some(record) = app.work.task(id).await? else {
        let detail =
            format!("there is no task {id}: it was never submitted here, or is forgotten (work.history)");
        return Err(Problem::new(Kind::NoSuchTask, detail));
    };
    Ok(Json(show(&record, wish.payloads)).into_response())
}
