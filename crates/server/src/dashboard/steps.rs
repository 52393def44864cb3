//! The list of steps with its filters, and actions on all steps that match: a confirmation with the number of steps, then
//! the result.

use askama::Template;
use axum::Extension;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use holdoff_policy::Class;
use holdoff_work::{Action, PageRequest, StepCount, StepFilter, StepRecord, StepState};

use super::chrome::{Chrome, Visitor, render};
use super::formatting;
use super::query::{FILTERS, PageQuery};
use crate::api;
use crate::app::App;
use crate::problem::{Kind, Problem};

/// The number of steps on a page.
const ON_A_PAGE: u32 = 50;
/// The maximum up to which matching steps are counted.
const MAX_COUNTED: u64 = 10_000;
/// Rarely used filters, which the page hides unless one is set.
const ADVANCED_FILTERS: [&str; 6] =
    ["queue", "namespace", "destination", "min_failures", "older_than", "newer_than"];

#[derive(Template)]
#[template(path = "steps.html")]
struct StepsPage {
    chrome: Chrome,
    /// The text of an empty list.
    empty_text: &'static str,
    at: &'static str,
    query: PageQuery,
    states: Vec<(StepState, bool)>,
    classes: Vec<(&'static str, bool)>,
    namespaces: Vec<String>,
    queues: Vec<String>,
    operations: Vec<String>,
    /// Whether one of the hidden filters is set.
    has_more: bool,
    /// Every active filter: name, value, and the URL without it.
    active_filters: Vec<(String, String, String)>,
    error: Option<String>,
    count: String,
    steps: Vec<StepRecord>,
    is_first: bool,
    first: String,
    next: Option<String>,
    /// The actions on matching steps: the word, and its label.
    actions: Vec<(&'static str, &'static str)>,
    acting: String,
}

/// Lists steps, newest first.
#[utoipa::path(get, path = "/steps", tag = "pages", security(("token" = ["read", "namespace"])),
    responses((status = 200, description = "The page.")))]
pub(super) async fn steps(State(app): State<App>, visitor: Visitor) -> Result<Response, Problem> {
    list(&app, &visitor, "/steps", "Steps", None).await
}

/// Lists steps that have failed for good.
#[utoipa::path(get, path = "/failed", tag = "pages", security(("token" = ["read", "namespace"])),
    responses((status = 200, description = "The page.")))]
pub(super) async fn failed(State(app): State<App>, visitor: Visitor) -> Result<Response, Problem> {
    list(&app, &visitor, "/failed", "Failed", Some(StepState::Failed)).await
}

/// Lists steps that wait for an operator's decision.
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
    let queues_seen = app.work.stats().await?;
    let queues_seen = queues_seen.iter().filter(|queue| visitor.caller.may_see(&queue.namespace));
    let mut names: [Vec<String>; 3] = Default::default();
    for queue in queues_seen {
        for (names, name) in names.iter_mut().zip([&queue.namespace, &queue.queue, &queue.operation]) {
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
        empty_text: empty_text(only, visitor.query.filters().pairs().is_empty()),
        at,
        states: StepState::ALL.into_iter().map(|state| (state, query.has("state", state.name()))).collect(),
        classes: Class::ALL
            .into_iter()
            .map(|class| (class.name(), query.has("class", class.name())))
            .collect(),
        namespaces,
        queues,
        operations,
        has_more: ADVANCED_FILTERS.iter().any(|key| !query.get(key).is_empty()),
        active_filters: active_filters(&filters, at, only.is_some()),
        error: None,
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
    let unknown_filter = visitor
        .query
        .pairs()
        .iter()
        .find(|(key, _)| !known(key))
        .map(|(key, _)| Problem::new(Kind::InvalidQuery, format!("unknown filter `{key}`")));
    let requested = unknown_filter.map_or(Ok(()), Err).and_then(|()| filters.filter(&visitor.caller));
    let requested = requested.and_then(|filter| Ok((filter, query.after()?)));
    let (filter, after) = match requested {
        Ok(requested) => requested,
        Err(error) => {
            page.error = Some(error.detail().to_owned());
            return Ok((axum::http::StatusCode::BAD_REQUEST, render(&page)?).into_response());
        }
    };
    let paging = PageRequest::first(ON_A_PAGE);
    let paging = after.into_iter().fold(paging, PageRequest::after);
    let (found, count) =
        tokio::try_join!(app.work.scan(&filter, &paging), app.work.count(&filter, MAX_COUNTED))?;
    page.count = match count {
        StepCount::Exactly(count) => formatting::many(count, "step", "steps"),
        StepCount::AtLeast(count) => format!("{} or more", formatting::many(count, "step", "steps")),
        _ => String::new(),
    };
    let next = found.next.map(|step| visitor.query.filters().with("after", &step.to_string()).link());
    page.next = next.map(|link| format!("{at}{link}"));
    page.steps = found.steps;
    render(&page)
}

/// Returns every active filter, with the URL of the page without it.
fn active_filters(filters: &PageQuery, at: &str, has_state: bool) -> Vec<(String, String, String)> {
    let is_shown = |(key, _): &&(String, String)| !(has_state && key == "state");
    let one = |(key, value): &(String, String)| {
        (key.replace('_', " "), value.clone(), format!("{at}{}", filters.without(key).link()))
    };
    filters.pairs().iter().filter(is_shown).map(one).collect()
}

/// The actions on matching steps, in their order on every page.
const ACTIONS: [(&str, &str); 3] = [("retry", "Retry"), ("discard", "Discard"), ("cancel", "Cancel tasks")];

fn empty_text(only: Option<StepState>, is_bare: bool) -> &'static str {
    match only {
        _ if !is_bare => "No step matches. Remove a filter, or select another state.",
        Some(StepState::Failed) => {
            "No step has failed. A step is listed here when its policy allows no further attempt, or when a retry cannot help. \
             An operator can retry it with a fresh set of attempts."
        }
        Some(StepState::Conflicted) => {
            "No step is in conflict. A step is listed here when the other side reports a conflict (409, 412): inspect it, edit \
             its payload, and resolve it."
        }
        _ => "No steps yet. Submit a task with POST /v1/tasks or `holdoff work submit`.",
    }
}

#[derive(Template)]
#[template(path = "confirm.html")]
struct Confirm {
    chrome: Chrome,
    action: &'static str,
    question: String,
    consequence: &'static str,
    count: u64,
    query: PageQuery,
    back: String,
}

/// Returns the action that `word` names, its title, and its consequence in words.
fn action(word: &str) -> Result<(Action, &'static str, &'static str), Problem> {
    Ok(match word {
        "retry" => (
            Action::Retry,
            "Retry",
            "Failed and conflicted steps become ready at once, with a fresh set of attempts. Other steps are not changed.",
        ),
        "cancel" => (
            Action::Cancel,
            "Cancel the tasks of",
            "All unfinished steps of these tasks are cancelled. Running steps are not interrupted, but their reports are \
             rejected. This cannot be undone.",
        ),
        "discard" => (
            Action::Discard,
            "Discard",
            "Failed and conflicted steps are discarded for good. Steps that depend on them stay blocked. This cannot be undone.",
        ),
        _ => return Err(Problem::new(Kind::InvalidQuery, "action: expected retry, cancel or discard")),
    })
}

/// Returns the filter of the steps to act on. An empty filter, which matches all steps, is refused.
fn filter_to_act_on(visitor: &Visitor, query: &PageQuery) -> Result<StepFilter, Problem> {
    let mut filter = query.filters().filter(&visitor.caller)?;
    let step = query.get("step");
    if !step.is_empty() {
        let wrong = |_| Problem::new(Kind::InvalidQuery, "step: expected TASK/NUMBER");
        filter.step = Some(step.parse().map_err(wrong)?);
    }
    // A token of one namespace limits the filter; that is not a choice of the visitor.
    let mut chosen = filter.clone();
    if query.get("namespace").is_empty() {
        chosen.namespace = None;
    }
    if chosen == StepFilter::default() {
        let detail = "no filter is set, so that all steps would match; select at least a state";
        return Err(Problem::new(Kind::InvalidQuery, detail));
    }
    Ok(filter)
}

fn action_word(word: &str) -> &'static str {
    match word {
        "cancel" => "cancel",
        "discard" => "discard",
        _ => "retry",
    }
}

/// Asks for confirmation and shows the number of affected steps.
#[utoipa::path(get, path = "/steps/act", tag = "pages", security(("token" = ["admin", "namespace"])),
    responses((status = 200, description = "The page.")))]
pub(super) async fn confirm(State(app): State<App>, visitor: Visitor) -> Result<Response, Problem> {
    let query = visitor.query.clone();
    let (action, verb, consequence) = action(query.get("action"))?;
    let filter = filter_to_act_on(&visitor, &query)?;
    let count = app.work.affected(&filter, &action).await?;
    let question = match count {
        0 => "No step matches".to_owned(),
        _ => format!("{verb} {}?", formatting::many(count, "step", "steps")),
    };
    let chrome = visitor.page("/steps", question.clone()).still();
    let back = back(&query);
    render(&Confirm {
        chrome,
        action: action_word(query.get("action")),
        question,
        consequence,
        count,
        query,
        back,
    })
}

/// Performs the action.
#[utoipa::path(post, path = "/steps/act", tag = "pages", security(("token" = ["admin", "namespace"])),
    responses((status = 303, description = "Succeeded.")))]
pub(super) async fn act(State(app): State<App>, visitor: Visitor, form: String) -> Result<Response, Problem> {
    let form = PageQuery::form(&form);
    let word = action_word(form.get("action"));
    let (action, ..) = action(form.get("action"))?;
    let filter = filter_to_act_on(&visitor, &form)?;
    let (count, event) = api::apply_action(&app, filter, &action).await?;
    let back = back(&form);
    let separator = if back.contains('?') { '&' } else { '?' };
    Ok((Extension(event), visitor.redirect(&format!("{back}{separator}done={word}&count={count}")))
        .into_response())
}

/// Returns the page to go back to: the page of one step, or the list with its filters.
fn back(query: &PageQuery) -> String {
    match query.get("step") {
        "" => format!("/steps{}", query.filters().link()),
        step => format!("/steps/{}", step.replace(['?', '#', '%'], "")),
    }
}
