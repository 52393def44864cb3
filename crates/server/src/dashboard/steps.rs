//! The list of steps with its filters, and actions on all steps that match.

use askama::Template;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use holdoff_policy::Class;
use holdoff_work::{Count, Page, StepRecord, StepState};

use super::chrome::{Chrome, Visitor, render};
use super::query::{FILTERS, Query};
use super::words;
use crate::app::App;
use crate::problem::{Kind, Problem};

/// The number of steps on a page.
const ON_A_PAGE: u32 = 50;
/// The maximum up to which matching steps are counted.
const COUNTED: u64 = 10_000;
/// Rarely used filters, which the page hides unless one is set.
const SELDOM: [&str; 6] = ["queue", "namespace", "destination", "min_failures", "older_than", "newer_than"];

#[derive(Template)]
#[template(path = "steps.html")]
struct StepsPage {
    chrome: Chrome,
    /// The text of an empty list.
    nothing: &'static str,
    at: &'static str,
    query: Query,
    states: Vec<(StepState, bool)>,
    classes: Vec<(&'static str, bool)>,
    namespaces: Vec<String>,
    queues: Vec<String>,
    operations: Vec<String>,
    /// Whether one of the hidden filters is set.
    has_more: bool,
    /// Every active filter: name, value, and the URL without it.
    set: Vec<(String, String, String)>,
    wrong: Option<String>,
    count: String,
    steps: Vec<StepRecord>,
    is_first: bool,
    first: String,
    next: Option<String>,
    /// The actions on matching steps: the word, and its label.
    actions: Vec<(&'static str, &'static str)>,
    acting: String,
}

/// Steps, newest first.
#[utoipa::path(get, path = "/steps", tag = "pages", security(("token" = ["read", "namespace"])),
    responses((status = 200, description = "The page.")))]
pub(super) async fn steps(State(app): State<App>, visitor: Visitor) -> Result<Response, Problem> {
    list(&app, &visitor, "/steps", "Steps", None).await
}

/// Steps that were given up.
#[utoipa::path(get, path = "/failed", tag = "pages", security(("token" = ["read", "namespace"])),
    responses((status = 200, description = "The page.")))]
pub(super) async fn failed(State(app): State<App>, visitor: Visitor) -> Result<Response, Problem> {
    list(&app, &visitor, "/failed", "Failed", Some(StepState::Failed)).await
}

/// Steps about which somebody must decide.
#[utoipa::path(get, path = "/conflicts", tag = "pages", security(("token" = ["read", "namespace"])),
    responses((status = 200, description = "The page.")))]
pub(super) async fn in_conflict(State(app): State<App>, visitor: Visitor) -> Result<Response, Problem> {
    list(&app, &visitor, "/conflicts", "Conflicts", Some(StepState::Conflicted)).await
}

async fn list(
    app: &App,
    visitor: &Visitor,
    at: &'static str,
    title: &'static str,
    only: Option<StepState>,
) -> Result<Response, Problem> {
    let query = match only {
        Some(state) => visitor.query.with("state", state.name()),
        None => visitor.query.clone(),
    };
    let lanes = app.work.stats().await?;
    let lanes = lanes.iter().filter(|lane| visitor.access.sees(&lane.namespace));
    let mut names: [Vec<String>; 3] = Default::default();
    for lane in lanes {
        for (names, name) in names.iter_mut().zip([&lane.namespace, &lane.queue, &lane.operation]) {
            if !names.contains(name) {
                names.push(name.clone());
            }
        }
    }
    for names in &mut names {
        names.sort_unstable();
    }
    let [namespaces, queues, operations] = names;
    let filters = query.filters();
    let mut page = StepsPage {
        chrome: visitor.page(at, title),
        nothing: nothing(only, visitor.query.filters().pairs().is_empty()),
        at,
        states: StepState::ALL.into_iter().map(|state| (state, query.has("state", state.name()))).collect(),
        classes: Class::ALL
            .into_iter()
            .map(|class| (class.name(), query.has("class", class.name())))
            .collect(),
        namespaces,
        queues,
        operations,
        has_more: SELDOM.iter().any(|key| !query.get(key).is_empty()),
        set: set(&filters, at, only.is_some()),
        wrong: None,
        count: String::new(),
        steps: Vec::new(),
        is_first: query.get("after").is_empty(),
        first: format!("{at}{}", visitor.query.filters().link()),
        next: None,
        actions: ACTIONS.into(),
        acting: filters.link(),
        query: query.clone(),
    };
    let known = |key: &str| FILTERS.contains(&key) || ["after", "done", "count"].contains(&key);
    let strange = visitor.query.pairs().iter().find(|(key, _)| !known(key)).map(|(key, _)| {
        Problem::new(
            Kind::InvalidQuery,
            format!("there is no filter `{key}`, so that more would match than is meant"),
        )
    });
    let asked = strange.map_or(Ok(()), Err).and_then(|()| filters.filter(&visitor.access));
    let asked = asked.and_then(|filter| Ok((filter, query.after()?)));
    let (filter, after) = match asked {
        Ok(asked) => asked,
        Err(wrong) => {
            page.wrong = Some(wrong.detail().to_owned());
            return Ok((axum::http::StatusCode::BAD_REQUEST, render(&page)?).into_response());
        }
    };
    let paging = Page::first(ON_A_PAGE);
    let paging = after.into_iter().fold(paging, Page::after);
    let (found, count) = tokio::try_join!(app.work.look(&filter, &paging), app.work.count(&filter, COUNTED))?;
    page.count = match count {
        Count::Exactly(count) => words::many(count, "step", "steps"),
        Count::AtLeast(count) => format!("{} or more", words::many(count, "step", "steps")),
        _ => String::new(),
    };
    let next = found.next.map(|step| visitor.query.filters().with("after", &step.to_string()).link());
    page.next = next.map(|link| format!("{at}{link}"));
    page.steps = found.steps;
    render(&page)
}

/// Returns every active filter, with the URL of the page without it.
fn set(filters: &Query, at: &str, has_state: bool) -> Vec<(String, String, String)> {
    let is_shown = |(key, _): &&(String, String)| !(has_state && key == "state");
    let one = |(key, value): &(String, String)| {
        (key.replace('_', " "), value.clone(), format!("{at}{}", filters.without(key).link()))
    };
    filters.pairs().iter().filter(is_shown).map(one).collect()
}

/// The actions on matching steps, in their order on every page.
const ACTIONS: [(&str, &str); 3] = [("retry", "Retry"), ("discard", "Discard"), ("cancel", "Cancel tasks")];

fn nothing(only: Option<StepState>, is_bare: bool) -> &'static str {
    match only {
        _ if !is_bare => "No step matches. Take a filter away, or look at another state.",
        Some(StepState::Failed) => {
            "Nothing has been given up. A step comes here when its policy grants no further try, or when trying again \
             cannot help; from here it can be retried, with a fresh set of tries."
        }
        Some(StepState::Conflicted) => {
            "Nothing waits for a decision. A step comes here when the other side says that it knows better (409, 412): \
             look at it, change what is sent, and resolve it."
        }
        _ => "No work yet. Submit some: POST /v1/tasks, or `holdoff work submit`.",
    }
}
