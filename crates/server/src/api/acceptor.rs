//! `GET /v1/acceptor` and `GET /v1/acceptor/councils`

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use holdoff_council::acceptor::{CouncilQuery, Sort};
use serde::Deserialize;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::input::Query;
use super::list::{self, ListPage};
use crate::acceptor::{AcceptorView, CouncilView, LocalAcceptor, parse_sort};
use crate::app::App;
use crate::problem::{Kind, Problem, ProblemBody};

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(show)).routes(routes!(councils))
}

/// Returns the acceptor of councils in this daemon: its contact and its activity.
#[utoipa::path(get, path = "/v1/acceptor", operation_id = "acceptor", tag = "councils", security(("token" = ["read"])),
    responses(
        (status = 200, description = "The acceptor, running or stopped.", body = AcceptorView),
        (status = 404, description = "This daemon runs no acceptor.", body = ProblemBody,
            content_type = "application/problem+json"),
    ))]
pub(super) async fn show(State(app): State<App>) -> Result<Json<AcceptorView>, Problem> {
    Ok(Json(AcceptorView::new(local_acceptor(&app)?)))
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct CouncilsQuery {
    /// The sort order: `last_request` (the default), `short_id`, `latest`, `compacted`, `slots`, `bytes` or `mail`; the
    /// largest first.
    #[param(schema_with = sort_schema)]
    sort: Option<String>,
    /// The maximum number of items on the page.
    #[param(minimum = 1, maximum = 1000, default = 100)]
    limit: Option<u32>,
    /// The `next` of the previous page, which must have the same sort order.
    cursor: Option<String>,
}

fn sort_schema() -> utoipa::openapi::schema::Object {
    use utoipa::openapi::schema::{ObjectBuilder, SchemaType, Type};
    let words = ObjectBuilder::new().schema_type(SchemaType::new(Type::String));
    words.enum_values(Some(Sort::ALL.map(Sort::name))).build()
}

/// Lists the councils that the acceptor in this daemon stores, and the space that each uses.
#[utoipa::path(get, path = "/v1/acceptor/councils", tag = "councils", security(("token" = ["read"])), params(CouncilsQuery),
    responses(
        (status = 200, description = "A page of the list.", body = ListPage<CouncilView>),
        (status = 404, description = "This daemon runs no acceptor.", body = ProblemBody,
            content_type = "application/problem+json"),
        (status = 503, description = "The acceptor has stopped, or its disk is busy.", body = ProblemBody,
            content_type = "application/problem+json"),
    ))]
pub(super) async fn councils(
    State(app): State<App>,
    Query(query): Query<CouncilsQuery>,
) -> Result<Response, Problem> {
    let query = CouncilQuery {
        sort: query.sort.as_deref().map(parse_sort).transpose()?.unwrap_or_default(),
        after: list::parse_cursor(query.cursor.as_deref(), |end| end.parse().ok())?,
        limit: list::limit(query.limit)? as usize,
    };
    let found = local_acceptor(&app)?.councils(query).await?;
    let shown: Vec<CouncilView> = found.councils.iter().map(CouncilView::new).collect();
    Ok(Json(ListPage::new(shown, found.next.map(|next| next.to_string()))).into_response())
}

fn local_acceptor(app: &App) -> Result<&LocalAcceptor, Problem> {
    let detail = "this daemon runs no acceptor; set `[acceptor] data` in its configuration file to run one";
    app.acceptor.as_deref().ok_or_else(|| Problem::new(Kind::NoAcceptor, detail))
}
