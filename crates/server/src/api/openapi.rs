//! The API's document: the handlers' own descriptions, the parts common to all operations, and its HTML page.
//!
//! This document is the only definition of the scope that a route requires.

use std::collections::{HashMap, HashSet};
use std::sync::LazyLock;

use askama::Template;
use axum::http::Method;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response as HttpResponse};
use utoipa::openapi::path::{Operation, PathItem};
use utoipa::openapi::schema::{AdditionalProperties, AllOf, Array, Object, Schema};
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::openapi::tag::TagBuilder;
use utoipa::openapi::{
    Components, ContentBuilder, InfoBuilder, OpenApi, Ref, RefOr, Response, ResponseBuilder,
};
use utoipa::{PartialSchema, ToSchema};

use crate::access::Requirement;
use crate::dashboard;
use crate::problem::{Kind, Problem, ProblemBody};
use crate::token_store::TokenScope;

/// The name of the security scheme for API tokens.
const TOKEN: &str = "token";

const ABOUT: &str = "Durable work, locks and signals for any language, and the policies that decide about \
    retries. Every error response is a problem (RFC 9457, `application/problem+json`) with a stable `type`. \
    Every response has an `x-request-id`.";

/// The tags of operations and their descriptions, in the order of the document.
const TAGS: [(&str, &str); 13] = [
    ("tasks", "Durable work: graphs of steps."),
    ("steps", "Steps, their attempts, and the actions of operators."),
    ("workers", "Workers that claim steps, run them in another process, and report the results."),
    ("queues", "The backlog of queues and operations; pause and resume."),
    ("locks", "Leases with fencing tokens."),
    ("signals", "Deduplicated alerts: many equal signals create one task."),
    ("councils", "The acceptor of councils in this daemon."),
    ("ledger", "Replicated ledgers: transactions, history and members."),
    ("policies", "Retry policies."),
    ("lab", "Simulation of retry policies."),
    ("events", "Changes as server-sent events."),
    ("audit", "The actions of operators."),
    ("daemon", "Monitoring of the daemon."),
];

/// Returns the whole document.
pub(crate) fn document() -> OpenApi {
    let mut document = super::routes().into_openapi();
    document.info = InfoBuilder::new().title("holdoff").version("1").description(Some(ABOUT)).build();
    let tag = |(name, about)| TagBuilder::new().name(name).description(Some(about)).build();
    document.tags = Some(TAGS.into_iter().map(tag).collect());
    for (path, item) in &mut document.paths.paths {
        for operation in operations(item) {
            add_problems(operation, path);
        }
    }
    let components = document.components.get_or_insert_default();
    let token = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).description(Some("An API token."));
    components.add_security_scheme(TOKEN, SecurityScheme::Http(token.build()));
    components.schemas.insert(ProblemBody::name().into_owned(), ProblemBody::schema());
    close_schemas(components);
    document
}

/// Returns the document as JSON text, as it is stored in the repository and served.
pub(crate) fn text() -> String {
    let mut text = document().to_pretty_json().unwrap_or_default();
    text.push('\n');
    text
}

/// Returns the scope that an operation requires, or `None` if it needs no token.
pub(crate) fn scope(operation: &Operation) -> Option<String> {
    scope_words(operation)?.into_iter().next()
}

fn scope_words(operation: &Operation) -> Option<Vec<String>> {
    let requirements = serde_json::to_value(operation.security.as_ref()?).ok()?;
    serde_json::from_value(requirements.get(0)?.get(TOKEN)?.clone()).ok()
}

/// Returns whether a token is optional: the operation lists it as its second security alternative.
fn is_token_optional(operation: &Operation) -> bool {
    let requirements = operation.security.as_ref().and_then(|ways| serde_json::to_value(ways).ok());
    requirements.is_some_and(|ways| ways.get(1).is_some_and(|way| way.get(TOKEN).is_some()))
}

/// Returns the access requirement of every route. The second word `namespace` means that a token of one namespace
/// suffices, because the handler confines itself to that namespace.
fn requirements(document: OpenApi) -> HashMap<(String, String), Requirement> {
    let mut requirements = HashMap::new();
    for (path, mut item) in document.paths.paths {
        let methods = [
            ("GET", item.get.take()),
            ("PUT", item.put.take()),
            ("POST", item.post.take()),
            ("DELETE", item.delete.take()),
            ("PATCH", item.patch.take()),
        ];
        for (method, operation) in methods {
            let Some(operation) = operation else { continue };
            let need = match scope_words(&operation) {
                None if is_token_optional(&operation) => Requirement::OptionalToken,
                None => Requirement::Public,
                Some(words) => Requirement::Scope {
                    scope: words.first().and_then(|word| word.parse().ok()).unwrap_or(TokenScope::Admin),
                    namespaced: words.iter().any(|word| word == "namespace"),
                },
            };
            requirements.insert((method.to_owned(), path.clone()), need);
        }
    }
    requirements
}

static OPERATIONS: LazyLock<HashMap<(String, String), Requirement>> =
    LazyLock::new(|| requirements(document()));

/// The requirements of the dashboard's pages. They are declared like those of operations, in a document that is not
/// served.
static PAGES: LazyLock<HashMap<(String, String), Requirement>> =
    LazyLock::new(|| requirements(crate::dashboard::routes().into_openapi()));

/// Returns whether a route belongs to the dashboard.
pub(crate) fn is_page(route: &str) -> bool {
    static ROUTES: LazyLock<HashSet<&str>> =
        LazyLock::new(|| PAGES.keys().map(|(_, route)| route.as_str()).collect());
    ROUTES.contains(route)
}

/// Returns the method, route and requirement of every page and form.
pub(crate) fn pages() -> impl Iterator<Item = (&'static str, &'static str, Requirement)> {
    PAGES.iter().map(|((method, route), need)| (method.as_str(), route.as_str(), *need))
}

/// Returns the access requirement of a request. A route that is not in the document requires scope `admin` for all
/// namespaces. An unknown path, or a method that the path does not support, requires any token: a caller can then tell
/// a typing error from a missing permission. The router and the document have the same methods, because one is
/// generated from the other.
pub(crate) fn requirement_of(method: &Method, route: Option<&str>) -> Requirement {
    let Some(route) = route else { return Requirement::Scope { scope: TokenScope::Read, namespaced: true } };
    let method = if method == Method::HEAD { "GET" } else { method.as_str() };
    let operation = (method.to_owned(), route.to_owned());
    if let Some(need) = OPERATIONS.get(&operation).or_else(|| PAGES.get(&operation)) {
        return *need;
    }
    let all = OPERATIONS.iter().chain(&*PAGES);
    let mut others = all.filter(|((_, other), _)| other == route).map(|(_, need)| need);
    match others.next() {
        None => Requirement::Scope { scope: TokenScope::Admin, namespaced: false },
        Some(Requirement::Scope { .. }) => Requirement::Scope { scope: TokenScope::Read, namespaced: true },
        Some(Requirement::Public | Requirement::OptionalToken) => Requirement::Public,
    }
}

fn operations(item: &mut PathItem) -> impl Iterator<Item = &mut Operation> {
    [&mut item.get, &mut item.put, &mut item.post, &mut item.delete, &mut item.patch].into_iter().flatten()
}

/// Adds the problem responses that are common to all operations of this kind.
fn add_problems(operation: &mut Operation, path: &str) {
    let has_body = operation.request_body.is_some();
    let needs_token = scope_words(operation).is_some();
    let has_parameters = operation.parameters.as_ref().is_some_and(|parameters| !parameters.is_empty());
    let problems = [
        (400, "The request is invalid.", has_body || has_parameters),
        (401, "The API token is missing or invalid.", needs_token),
        (403, "The API token does not permit this request.", needs_token),
        (404, "The object does not exist.", path.contains('{')),
        (413, "The body is too large.", has_body),
        (415, "The `Content-Type` is not `application/json`.", has_body),
        (421, "The daemon does not serve the request's `Host`.", true),
        (429, "Too many requests; retry after `Retry-After`.", needs_token),
        (500, "Internal error; the log has the details.", true),
        (503, "The store does not answer; retry after `Retry-After`.", true),
        (504, "The request timed out.", true),
    ];
    for (status, about, applies) in problems {
        if applies {
            let problem = || RefOr::T(problem(about));
            operation.responses.responses.entry(status.to_string()).or_insert_with(problem);
        }
    }
}

fn problem(about: &str) -> Response {
    let schema = Ref::from_schema_name(ProblemBody::name());
    let content = ContentBuilder::new().schema(Some(schema)).build();
    ResponseBuilder::new().description(about).content("application/problem+json", content).build()
}

/// Merges the parts of an `allOf` into one object with all their properties.
fn merge_all_of(parts: &AllOf) -> Option<Object> {
    let mut whole = Object::new();
    whole.description.clone_from(&parts.description);
    for part in &parts.items {
        let RefOr::T(Schema::Object(part)) = part else { return None };
        whole.properties.extend(part.properties.clone());
        whole.required.extend(part.required.clone());
    }
    Some(whole)
}

/// Forbids properties that a schema does not name, and lets a page refer to the schema of its items by name.
fn close_schemas(components: &mut Components) {
    for (name, schema) in &mut components.schemas {
        if let RefOr::T(Schema::AllOf(parts)) = schema
            && let Some(whole) = merge_all_of(parts)
        {
            *schema = RefOr::T(Schema::Object(whole));
        }
        let RefOr::T(Schema::Object(object)) = schema else { continue };
        if let (Some(item), Some(items)) =
            (name.strip_prefix("ListPage_"), object.properties.get_mut("items"))
        {
            *items = RefOr::T(Schema::Array(Array::new(Ref::from_schema_name(item))));
        }
        if !object.properties.is_empty() && object.additional_properties.is_none() {
            object.additional_properties = Some(Box::new(AdditionalProperties::FreeForm(false)));
        }
    }
}

/// Returns this document, in OpenAPI 3.1.
#[utoipa::path(get, path = "/openapi.json", tag = "daemon", security(()),
    responses((status = 200, description = "The document.", body = Object)))]
pub(crate) async fn openapi_json() -> HttpResponse {
    static TEXT: LazyLock<String> = LazyLock::new(text);
    ([(CONTENT_TYPE, "application/json")], TEXT.as_str()).into_response()
}

#[derive(Template)]
#[template(path = "docs.html")]
struct Docs {
    edition: &'static str,
    about: String,
    groups: Vec<OperationGroup>,
}

/// The operations of one tag.
struct OperationGroup {
    name: String,
    about: String,
    operations: Vec<OperationRow>,
}

struct OperationRow {
    method: &'static str,
    path: String,
    scope: String,
    summary: String,
    description: String,
}

/// Renders this document as a page.
#[utoipa::path(get, path = "/docs", tag = "daemon", security(()),
    responses((status = 200, description = "The page.", body = String, content_type = "text/html")))]
pub(crate) async fn docs() -> Result<HttpResponse, Problem> {
    let document = document();
    let page = Docs {
        edition: dashboard::edition(),
        about: document.info.description.clone().unwrap_or_default(),
        groups: groups(&document),
    };
    let page = page.render().map_err(|error| Problem::new(Kind::Internal, error.to_string()))?;
    Ok(dashboard::html_response(page))
}

fn groups(document: &OpenApi) -> Vec<OperationGroup> {
    let mut groups: Vec<OperationGroup> = (document.tags.iter().flatten())
        .map(|tag| OperationGroup {
            name: tag.name.clone(),
            about: tag.description.clone().unwrap_or_default(),
            operations: Vec::new(),
        })
        .collect();
    for (path, item) in &document.paths.paths {
        for (method, operation) in methods(item) {
            let tags = operation.tags.iter().flatten();
            let is_its = |group: &&mut OperationGroup| tags.clone().any(|tag| *tag == group.name);
            if let Some(group) = groups.iter_mut().find(is_its) {
                group.operations.push(row(method, path, operation));
            }
        }
    }
    groups.retain(|group| !group.operations.is_empty());
    groups
}

fn methods(item: &PathItem) -> impl Iterator<Item = (&'static str, &Operation)> {
    let all = [
        ("GET", &item.get),
        ("PUT", &item.put),
        ("POST", &item.post),
        ("DELETE", &item.delete),
        ("PATCH", &item.patch),
    ];
    all.into_iter().filter_map(|(method, operation)| Some((method, operation.as_ref()?)))
}

fn row(method: &'static str, path: &str, operation: &Operation) -> OperationRow {
    OperationRow {
        method,
        path: path.to_owned(),
        scope: scope(operation).unwrap_or_else(|| "open".to_owned()),
        summary: operation.summary.clone().unwrap_or_default(),
        description: operation.description.clone().unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The operations that need no token.
    const OPEN: [&str; 4] = ["/docs", "/healthz", "/openapi.json", "/readyz"];

    #[test]
    fn every_operation_declares_a_scope_or_is_public() {
        let mut document = document();
        let mut open = Vec::new();
        for (path, item) in &mut document.paths.paths {
            for operation in operations(item) {
                match scope(operation) {
                    Some(scope) => assert!(["read", "work", "admin"].contains(&&*scope), "{path}"),
                    None => open.push(path.clone()),
                }
                assert!(operation.tags.is_some() && operation.summary.is_some(), "{path}");
            }
        }
        assert_eq!(open, OPEN);
    }

    #[test]
    fn operation_ids_are_unique() {
        let mut document = document();
        let mut ids = HashMap::new();
        for (path, item) in &mut document.paths.paths {
            for operation in operations(item) {
                let id = operation.operation_id.clone().unwrap_or_default();
                assert!(!id.is_empty(), "{path}");
                if let Some(other) = ids.insert(id.clone(), path.clone()) {
                    panic!("`{id}` is the id of the operations at {other} and {path}");
                }
            }
        }
    }

    #[test]
    fn an_undeclared_route_requires_admin() {
        let everything = Requirement::Scope { scope: TokenScope::Admin, namespaced: false };
        assert_eq!(requirement_of(&Method::GET, Some("/v1/new")), everything);
        assert_eq!(requirement_of(&Method::DELETE, Some("/v1/new")), everything);
        assert_eq!(requirement_of(&Method::GET, Some("/readyz")), Requirement::OptionalToken);
        assert_eq!(requirement_of(&Method::HEAD, Some("/healthz")), Requirement::Public);
        assert_eq!(
            requirement_of(&Method::GET, Some("/v1/tasks/{id}")),
            Requirement::Scope { scope: TokenScope::Read, namespaced: true }
        );
    }

    #[test]
    fn the_openapi_file_is_up_to_date() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/openapi.json");
        if std::env::var_os("UPDATE_OPENAPI").is_some() {
            std::fs::write(file, text()).unwrap();
        }
        let stored = std::fs::read_to_string(file).unwrap_or_default();
        assert!(stored == text(), "docs/openapi.json is stale: run `cargo xtask openapi`");
    }
}
