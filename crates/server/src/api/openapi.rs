//! The API's document: the handlers' own descriptions, and the parts common to all operations.
//!
//! This document is the only definition of the scope that a route requires.

use std::collections::{HashMap, HashSet};
use std::sync::LazyLock;

use axum::http::Method;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response as Answer};
use utoipa::openapi::path::{Operation, PathItem};
use utoipa::openapi::schema::{AdditionalProperties, AllOf, Array, Object, Schema};
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::openapi::tag::TagBuilder;
use utoipa::openapi::{
    Components, ContentBuilder, InfoBuilder, OpenApi, Ref, RefOr, Response, ResponseBuilder,
};
use utoipa::{PartialSchema, ToSchema};

use crate::access::Need;
use crate::keep::Scope;
use crate::problem::ProblemBody;

/// The name of the security scheme for API tokens.
const TOKEN: &str = "token";

const ABOUT: &str = "Durable work, locks and signals for any language, and the policies that decide when to try \
    again. Whatever is not a success is a problem (RFC 9457, `application/problem+json`) whose `type` stays the same. \
    Every answer carries `x-request-id`.";

/// The tags of operations and their descriptions, in the order of the document.
const TAGS: [(&str, &str); 13] = [
    ("tasks", "Work: graphs of steps."),
    ("steps", "Steps and their attempts; what operators do to them."),
    ("workers", "Workers that pull steps, run them elsewhere, and report."),
    ("queues", "How much waits where; pausing and resuming."),
    ("locks", "One at a time: leases with fencing tokens."),
    ("signals", "Many of the same, and one task."),
    ("councils", "Many writers, no leader: the acceptor in this daemon."),
    ("ledger", "One leader, one history: this daemon's node of ledgers."),
    ("policies", "When to try again."),
    ("lab", "See a storm before it happens."),
    ("events", "What changes, as it changes."),
    ("audit", "Who did what."),
    ("daemon", "For those who watch over it."),
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
    close(components);
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
    words(operation)?.into_iter().next()
}

fn words(operation: &Operation) -> Option<Vec<String>> {
    let requirements = serde_json::to_value(operation.security.as_ref()?).ok()?;
    serde_json::from_value(requirements.get(0)?.get(TOKEN)?.clone()).ok()
}

/// Returns whether a token is optional: the operation lists it as its second security alternative.
fn is_offered(operation: &Operation) -> bool {
    let requirements = operation.security.as_ref().and_then(|ways| serde_json::to_value(ways).ok());
    requirements.is_some_and(|ways| ways.get(1).is_some_and(|way| way.get(TOKEN).is_some()))
}

/// Returns the access requirement of every route. The second word `namespace` means that a token of one namespace
/// suffices, because the handler confines itself to that namespace.
fn needs(document: OpenApi) -> HashMap<(String, String), Need> {
    let mut needs = HashMap::new();
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
            let need = match words(&operation) {
                None if is_offered(&operation) => Need::Offered,
                None => Need::Nothing,
                Some(words) => Need::Scope {
                    scope: words.first().and_then(|word| word.parse().ok()).unwrap_or(Scope::Admin),
                    narrowed: words.iter().any(|word| word == "namespace"),
                },
            };
            needs.insert((method.to_owned(), path.clone()), need);
        }
    }
    needs
}

static OPERATIONS: LazyLock<HashMap<(String, String), Need>> = LazyLock::new(|| needs(document()));

/// The requirements of the dashboard's pages. They are declared like those of operations, in a document that is not
/// served.
static PAGES: LazyLock<HashMap<(String, String), Need>> =
    LazyLock::new(|| needs(crate::dashboard::routes().into_openapi()));

/// Returns whether a route belongs to the dashboard.
pub(crate) fn is_page(route: &str) -> bool {
    static ROUTES: LazyLock<HashSet<&str>> =
        LazyLock::new(|| PAGES.keys().map(|(_, route)| route.as_str()).collect());
    ROUTES.contains(route)
}

/// Returns the method, route and requirement of every page and form.
pub(crate) fn pages() -> impl Iterator<Item = (&'static str, &'static str, Need)> {
    PAGES.iter().map(|((method, route), need)| (method.as_str(), route.as_str(), *need))
}

/// Returns the access requirement of a request. A route that is not in the document requires scope `admin` for all
/// namespaces. An unknown path, or a method that the path does not support, requires any token: a caller can then tell
/// a typing error from a missing permission. The router and the document have the same methods, because one is
/// generated from the other.
pub(crate) fn need_of(method: &Method, route: Option<&str>) -> Need {
    let Some(route) = route else { return Need::Scope { scope: Scope::Read, narrowed: true } };
    let method = if method == Method::HEAD { "GET" } else { method.as_str() };
    let asked = (method.to_owned(), route.to_owned());
    if let Some(need) = OPERATIONS.get(&asked).or_else(|| PAGES.get(&asked)) {
        return *need;
    }
    let all = OPERATIONS.iter().chain(&*PAGES);
    let mut others = all.filter(|((_, other), _)| other == route).map(|(_, need)| need);
    match others.next() {
        None => Need::Scope { scope: Scope::Admin, narrowed: false },
        Some(Need::Scope { .. }) => Need::Scope { scope: Scope::Read, narrowed: true },
        Some(Need::Nothing | Need::Offered) => Need::Nothing,
    }
}

fn operations(item: &mut PathItem) -> impl Iterator<Item = &mut Operation> {
    [&mut item.get, &mut item.put, &mut item.post, &mut item.delete, &mut item.patch].into_iter().flatten()
}

/// Adds the problem responses that are common to all operations of this kind.
fn add_problems(operation: &mut Operation, path: &str) {
    let has_body = operation.request_body.is_some();
    let is_guarded = words(operation).is_some();
    let has_parameters = operation.parameters.as_ref().is_some_and(|parameters| !parameters.is_empty());
    let problems = [
        (400, "What was sent is not understood.", has_body || has_parameters),
        (401, "There is no API token that is good for anything here.", is_guarded),
        (403, "The API token is not good for this.", is_guarded),
        (404, "There is no such thing.", path.contains('{')),
        (413, "The body is too large.", has_body),
        (415, "The body does not say that it is JSON.", has_body),
        (421, "The request's `Host` is not served.", true),
        (429, "Too many requests; come back after `Retry-After`.", is_guarded),
        (500, "Something is broken; the log says more.", true),
        (503, "The store does not answer; come back after `Retry-After`.", true),
        (504, "It took too long.", true),
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
fn join(parts: &AllOf) -> Option<Object> {
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
fn close(components: &mut Components) {
    for (name, schema) in &mut components.schemas {
        if let RefOr::T(Schema::AllOf(parts)) = schema
            && let Some(whole) = join(parts)
        {
            *schema = RefOr::T(Schema::Object(whole));
        }
        let RefOr::T(Schema::Object(object)) = schema else { continue };
        if let (Some(item), Some(items)) = (name.strip_prefix("Page_"), object.properties.get_mut("items")) {
            *items = RefOr::T(Schema::Array(Array::new(Ref::from_schema_name(item))));
        }
        if !object.properties.is_empty() && object.additional_properties.is_none() {
            object.additional_properties = Some(Box::new(AdditionalProperties::FreeForm(false)));
        }
    }
}

/// The document of this API, in OpenAPI 3.1.
#[utoipa::path(get, path = "/openapi.json", tag = "daemon", security(()),
    responses((status = 200, description = "The document.", body = Object)))]
pub(crate) async fn served() -> Answer {
    static TEXT: LazyLock<String> = LazyLock::new(text);
    ([(CONTENT_TYPE, "application/json")], TEXT.as_str()).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The operations that need no token.
    const OPEN: [&str; 4] = ["/docs", "/healthz", "/openapi.json", "/readyz"];

    #[test]
    fn every_operation_has_one_scope_or_is_known_to_be_open() {
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
    fn every_operation_has_an_id_of_its_own() {
        let mut document = document();
        let mut ids = HashMap::new();
        for (path, item) in &mut document.paths.paths {
            for operation in operations(item) {
                let id = operation.operation_id.clone().unwrap_or_default();
                assert!(!id.is_empty(), "{path}");
                if let Some(other) = ids.insert(id.clone(), path.clone()) {
                    panic!("`{id}` is the id of operations at {other} and {path}");
                }
            }
        }
    }

    #[test]
    fn what_nobody_thought_of_is_for_administrators() {
        let everything = Need::Scope { scope: Scope::Admin, narrowed: false };
        assert_eq!(need_of(&Method::GET, Some("/v1/new")), everything);
        assert_eq!(need_of(&Method::DELETE, Some("/v1/new")), everything);
        assert_eq!(need_of(&Method::GET, Some("/readyz")), Need::Offered);
        assert_eq!(need_of(&Method::HEAD, Some("/healthz")), Need::Nothing);
        assert_eq!(
            need_of(&Method::GET, Some("/v1/tasks/{id}")),
            Need::Scope { scope: Scope::Read, narrowed: true }
        );
    }

    #[test]
    fn the_file_is_up_to_date() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/openapi.json");
        if std::env::var_os("UPDATE_OPENAPI").is_some() {
            std::fs::write(file, text()).unwrap();
        }
        let kept = std::fs::read_to_string(file).unwrap_or_default();
        assert!(kept == text(), "docs/openapi.json is stale: cargo xtask openapi writes it anew");
    }
}
