//! The page for people: how much waits where, and what went wrong lately.

mod docs;

use std::time::Duration;

use askama::Template;
use axum::extract::State;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::{Html, IntoResponse, Response};
pub(crate) use docs::{__path_docs, docs};
use holdoff_work::{Filter, Page, QueueStats, StepRecord, StepState};

use crate::app::App;
use crate::problem::{Kind, Problem};

/// The most rows that are shown of anything.
const MOST_LANES: usize = 200;
const MOST_FAILURES: u32 = 20;
/// Locks are counted no further.
const MOST_LOCKS: u32 = 1000;

const STYLE: &str = include_str!("../templates/style.css");

/// askama escapes everything that stands in `{{ }}`, because the file is called `.html`.
#[derive(Template)]
#[template(path = "overview.html")]
struct Overview<'a> {
    version: &'a str,
    place: &'a str,
    totals: [(&'static str, u64); 6],
    lanes: &'a [QueueStats],
    left_out: usize,
    failures: &'a [StepRecord],
    locks: String,
}

/// A page to look at: how much waits where, and what went wrong lately.
#[utoipa::path(get, path = "/", tag = "daemon", security(("token" = ["read"])),
    responses((status = 200, description = "The page.", body = String, content_type = "text/html")))]
pub(crate) async fn overview(State(app): State<App>) -> Result<Html<String>, Problem> {
    let lanes = app.work.stats().await?;
    let filter = Filter::states([StepState::Failed, StepState::Conflicted]);
    let failures = app.work.list(&filter, &Page::first(MOST_FAILURES)).await?;
    let held = app.locks.list(&holdoff_lock::Filter::default().held().limit(MOST_LOCKS)).await?;
    let page = Overview {
        version: env!("CARGO_PKG_VERSION"),
        place: &app.place,
        totals: totals(&lanes),
        lanes: lanes.get(..MOST_LANES).unwrap_or(&lanes),
        left_out: lanes.len().saturating_sub(MOST_LANES),
        failures: &failures,
        locks: counted(held.len()),
    };
    let page = page.render().map_err(|error| Problem::new(Kind::Internal, error.to_string()))?;
    Ok(Html(page))
}

/// How pages look.
#[utoipa::path(get, path = "/style.css", tag = "daemon", security(()),
    responses((status = 200, description = "The stylesheet.", body = String, content_type = "text/css")))]
pub(crate) async fn style() -> Response {
    let headers = [(CONTENT_TYPE, "text/css; charset=utf-8"), (CACHE_CONTROL, "max-age=3600")];
    (headers, STYLE).into_response()
}

fn counted(locks: usize) -> String {
    match locks {
        0 => "No lock is held".to_owned(),
        1 => "1 lock is held".to_owned(),
        count if count >= MOST_LOCKS as usize => format!("{count} locks or more are held"),
        count => format!("{count} locks are held"),
    }
}

fn totals(lanes: &[QueueStats]) -> [(&'static str, u64); 6] {
    let sum = |count: fn(&QueueStats) -> u64| lanes.iter().map(count).sum();
    [
        ("due", sum(|lane| lane.due)),
        ("waiting", sum(|lane| lane.waiting)),
        ("running", sum(|lane| lane.running)),
        ("blocked", sum(|lane| lane.blocked)),
        ("failed", sum(|lane| lane.failed)),
        ("conflicted", sum(|lane| lane.conflicted)),
    ]
}

/// A time for people, in its two largest units.
fn time(time: &Duration) -> String {
    let seconds = time.as_secs();
    let two = |large: u64, small: u64, [larger, smaller]: [&str; 2]| match small {
        0 => format!("{large}{larger}"),
        _ => format!("{large}{larger} {small}{smaller}"),
    };
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => two(seconds / 60, seconds % 60, ["m", "s"]),
        3600..86_400 => two(seconds / 3600, seconds % 3600 / 60, ["h", "m"]),
        _ => two(seconds / 86_400, seconds % 86_400 / 3600, ["d", "h"]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_read_well() {
        let shown = [0, 59, 60, 125, 7200, 90_000].map(|seconds| time(&Duration::from_secs(seconds)));
        assert_eq!(shown, ["0s", "59s", "1m", "2m 5s", "2h", "1d 1h"]);
    }
}
