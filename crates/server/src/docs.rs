//! The API's document as an HTML page.

use askama::Template;
use axum::response::Response;
use utoipa::openapi::OpenApi;
use utoipa::openapi::path::{Operation, PathItem};

use crate::problem::{Kind, Problem};
use crate::{api, dashboard};

#[derive(Template)]
#[template(path = "docs.html")]
struct Docs {
    edition: &'static str,
    about: String,
    groups: Vec<Group>,
}

/// The operations of one tag.
struct Group {
    name: String,
    about: String,
    operations: Vec<Row>,
}

struct Row {
    method: &'static str,
    path: String,
    scope: String,
    summary: String,
    description: String,
}

/// This API, for people.
#[utoipa::path(get, path = "/docs", tag = "daemon", security(()),
    responses((status = 200, description = "The page.", body = String, content_type = "text/html")))]
pub(crate) async fn docs() -> Result<Response, Problem> {
    let document = api::document();
    let page = Docs {
        edition: dashboard::edition(),
        about: document.info.description.clone().unwrap_or_default(),
        groups: groups(&document),
    };
    let page = page.render().map_err(|error| Problem::new(Kind::Internal, error.to_string()))?;
    Ok(dashboard::sent(page))
}

fn groups(document: &OpenApi) -> Vec<Group> {
    let mut groups: Vec<Group> = (document.tags.iter().flatten())
        .map(|tag| Group {
            name: tag.name.clone(),
            about: tag.description.clone().unwrap_or_default(),
            operations: Vec::new(),
        })
        .collect();
    for (path, item) in &document.paths.paths {
        for (method, operation) in operations(item) {
            let tags = operation.tags.iter().flatten();
            let is_its = |group: &&mut Group| tags.clone().any(|tag| *tag == group.name);
            if let Some(group) = groups.iter_mut().find(is_its) {
                group.operations.push(row(method, path, operation));
            }
        }
    }
    groups.retain(|group| !group.operations.is_empty());
    groups
}

fn operations(item: &PathItem) -> impl Iterator<Item = (&'static str, &Operation)> {
    let all = [
        ("GET", &item.get),
        ("PUT", &item.put),
        ("POST", &item.post),
        ("DELETE", &item.delete),
        ("PATCH", &item.patch),
    ];
    all.into_iter().filter_map(|(method, operation)| Some((method, operation.as_ref()?)))
}

fn row(method: &'static str, path: &str, operation: &Operation) -> Row {
    Row {
        method,
        path: path.to_owned(),
        scope: api::scope(operation).unwrap_or_else(|| "open".to_owned()),
        summary: operation.summary.clone().unwrap_or_default(),
        description: operation.description.clone().unwrap_or_default(),
    }
}
