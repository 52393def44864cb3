//! `/v1/policies`: the set in force, one policy explained, decisions, and the lint.

mod decide;
mod explain;
mod lint;
mod set;

use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::App;

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(set::policies))
        .routes(routes!(explain::policy))
        .routes(routes!(decide::decide))
        .routes(routes!(lint::lint_file))
}
