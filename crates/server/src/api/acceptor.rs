//! `GET /v1/acceptor` and `GET /v1/acceptor/councils`

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use holdoff_council::acceptor::{Sort, Wish};
use serde::Deserialize;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::input::Asked;
use super::page::{self, Page};
use crate::acceptor::{Acceptor, sort};
use crate::app::App;
use crate::problem::{Kind, Problem, ProblemBody};
use crate::show::{ShownAcceptor, ShownCouncil, show_acceptor, show_council};

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(show)).routes(routes!(councils))
}

/// The acceptor of councils in this daemon: who it is, and what it has done.
#[utoipa::path(get, path = "/v1/acceptor", operation_id = "acceptor", tag = "councils", security(("token" = ["read"])),
    responses(
        (status = 200, description = "The acceptor, whether it has stopped or not.", body = ShownAcceptor),
        (status = 404, description = "This daemon runs none.", body = ProblemBody,
            content_type = "application/problem+json"),
    ))]
pub(super) async fn show(State(app): State<App>) -> Result<Json<ShownAcceptor>, Problem> {
    Ok(Json(show_acceptor(here(&app)?)))
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct CouncilsWish {
    /// `asked` (the default), `mark`, `latest`, `compacted`, `slots`, `bytes` or `letters`: the most first.
    #[param(schema_with = sorts)]
    sort: Option<String>,
    /// The most on a page.
    #[param(minimum = 1, maximum = 1000, default = 100)]
    limit: Option<u32>,
    /// The `next` of the page before, which was sorted in the same way.
    cursor: Option<String>,
}

fn sorts() -> utoipa::openapi::schema::Object {
    use utoipa::openapi::schema::{ObjectBuilder, SchemaType, Type};
    let words = ObjectBuilder::new().schema_type(SchemaType::new(Type::String));
    words.enum_values(Some(Sort::ALL.map(Sort::name))).build()
}

/// The councils that the acceptor in this daemon keeps, and how much of each.
#[utoipa::path(get, path = "/v1/acceptor/councils", tag = "councils", security(("token" = ["read"])), params(CouncilsWish),
    responses(
        (status = 200, description = "A page of them.", body = Page<ShownCouncil>),
        (status = 404, description = "This daemon runs no acceptor.", body = ProblemBody,
            content_type = "application/problem+json"),
        (status = 503, description = "The acceptor has stopped, or its disk is busy.", body = ProblemBody,
            content_type = "application/problem+json"),
    ))]
pub(super) async fn councils(
    State(app): State<App>,
    Asked(wish): Asked<CouncilsWish>,
) -> Result<Response, Problem> {
    let wish = Wish {
        sort: wish.sort.as_deref().map(sort).transpose()?.unwrap_or_default(),
        after: page::after(wish.cursor.as_deref(), |end| end.parse().ok())?,
        limit: page::limit(wish.limit)? as usize,
    };
    let found = here(&app)?.councils(wish).await?;
    let shown: Vec<ShownCouncil> = found.lines.iter().map(show_council).collect();
    Ok(Json(Page::new(shown, found.next.map(|next| next.to_string()))).into_response())
}

fn here(app: &App) -> Result<&Acceptor, Problem> {
    let detail =
        "this daemon runs no acceptor; `[acceptor] data` in its file says where one keeps its things";
    app.acceptor.as_deref().ok_or_else(|| Problem::new(Kind::NoAcceptor, detail))
}
