//! `/v1/tasks`

mod cancel;
mod look;

use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub(crate) use cancel::cancel;

use super::submit;
use crate::app::App;

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(look::tasks, submit::submit))
        .routes(routes!(look::task))
        .routes(routes!(cancel::cancel_task))
}
