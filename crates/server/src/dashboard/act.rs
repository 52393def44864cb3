//! Actions on every step that matches a filter: a confirmation with the number of steps, then the result.

use askama::Template;
use axum::Extension;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use holdoff_work::{Action, Filter};

use super::chrome::{Chrome, Visitor, render};
use super::query::Query;
use super::words;
use crate::api;
use crate::app::App;
use crate::problem::{Kind, Problem};

#[derive(Template)]
#[template(path = "confirm.html")]
struct Confirm {
    chrome: Chrome,
    action: &'static str,
    question: String,
    consequence: &'static str,
    count: u64,
    query: Query,
    back: String,
}

/// Returns the action that `word` names, its title, and its consequence in words.
fn action(word: &str) -> Result<(Action, &'static str, &'static str), Problem> {
    Ok(match word {
        "retry" => (
            Action::Retry,
            "Retry",
            "Failed and conflicted ones become ready at once, with a fresh set of tries. Others are left alone.",
        ),
        "cancel" => (
            Action::Cancel,
            "Cancel the tasks of",
            "Everything of these tasks that is not finished is cancelled. What runs is not interrupted, but its report \
             changes nothing any more. This cannot be undone.",
        ),
        "discard" => (
            Action::Discard,
            "Discard",
            "Failed and conflicted ones are given up for good; what depends on them stays blocked. This cannot be undone.",
        ),
        _ => return Err(Problem::new(Kind::InvalidQuery, "action: expected retry, cancel or discard")),
    })
}

/// Returns the filter of the steps to act on. An empty filter, which matches all steps, is refused.
fn meant(visitor: &Visitor, query: &Query) -> Result<Filter, Problem> {
    let mut filter = query.filters().filter(&visitor.access)?;
    let step = query.get("step");
    if !step.is_empty() {
        let wrong = |_| Problem::new(Kind::InvalidQuery, "step: expected TASK/NUMBER");
        filter.step = Some(step.parse().map_err(wrong)?);
    }
    if filter == Filter::default() {
        let detail = "no filter is set, so that all steps there are would be meant: choose at least a state";
        return Err(Problem::new(Kind::InvalidQuery, detail));
    }
    Ok(filter)
}

fn word_of(word: &str) -> &'static str {
    match word {
        "cancel" => "cancel",
        "discard" => "discard",
        _ => "retry",
    }
}

/// Asks whether it is meant, and says to how many steps it would be done.
#[utoipa::path(get, path = "/steps/act", tag = "pages", security(("token" = ["admin", "namespace"])),
    responses((status = 200, description = "The page.")))]
pub(super) async fn confirm(State(app): State<App>, visitor: Visitor) -> Result<Response, Problem> {
    let query = visitor.query.clone();
    let (action, verb, consequence) = action(query.get("action"))?;
    let filter = meant(&visitor, &query)?;
    let count = app.work.affected(&filter, &action).await?;
    let question = match count {
        0 => "There is nothing that this could be done to".to_owned(),
        _ => format!("{verb} {}?", words::many(count, "step", "steps")),
    };
    let chrome = visitor.page("/steps", question.clone()).still();
    let back = back(&query);
    render(&Confirm {
        chrome,
        action: word_of(query.get("action")),
        question,
        consequence,
        count,
        query,
        back,
    })
}

/// Does it.
#[utoipa::path(post, path = "/steps/act", tag = "pages", security(("token" = ["admin", "namespace"])),
    responses((status = 303, description = "It is done.")))]
pub(super) async fn act(State(app): State<App>, visitor: Visitor, form: String) -> Result<Response, Problem> {
    let form = Query::form(&form);
    let word = word_of(form.get("action"));
    let (action, ..) = action(form.get("action"))?;
    let filter = meant(&visitor, &form)?;
    let (count, deed) = api::carry_out(&app, filter, &action).await?;
    let back = back(&form);
    let separator = if back.contains('?') { '&' } else { '?' };
    Ok((Extension(deed), visitor.send(&format!("{back}{separator}done={word}&count={count}")))
        .into_response())
}

/// Returns the page to go back to: the page of one step, or the list with its filters.
fn back(query: &Query) -> String {
    match query.get("step") {
        "" => format!("/steps{}", query.filters().link()),
        step => format!("/steps/{}", step.replace(['?', '#', '%'], "")),
    }
}
