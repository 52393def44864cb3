//! `/v1/policies`: the active policy set and its earlier versions, the explanation of a policy, decisions, and the
//! linter.

mod decide;
mod explain;
mod lint;
mod publish;
mod set;

pub(crate) use publish::{check as check_policies, put_in_force};

use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::App;

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(set::policies, publish::publish))
        .routes(routes!(publish::versions))
        .routes(routes!(explain::policy))
        .routes(routes!(decide::decide))
        .routes(routes!(lint::lint_file))
}
