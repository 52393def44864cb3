//! What stands around every page: who looks, where they are, and what just happened.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use askama::Template;
use axum::extract::FromRequestParts;
use axum::http::header::{CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY};
use axum::http::request::Parts;
use axum::response::{IntoResponse, Redirect, Response};
use holdoff_work::Moment;

use super::query::Query;
use super::{assets, words};
use crate::access::Access;
use crate::app::App;
use crate::clock;
use crate::problem::{Kind, Problem};

/// Styles, scripts, pictures and forms of our own, and nobody else's anything; nothing inline.
const CONTENT_POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self' data:; \
                              connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

/// The pages, in the order in which they stand at the side: address, name, and whether they need a token for all
/// namespaces.
const PLACES: [(&str, &str, bool); 14] = [
    ("/", "Overview", false),
    ("/tasks", "Tasks", false),
    ("/steps", "Steps", false),
    ("/failed", "Failed", false),
    ("/conflicts", "Conflicts", false),
    ("/queues", "Queues", false),
    ("/signals", "Signals", false),
    ("/locks", "Locks", false),
    ("/councils", "Councils", true),
    ("/ledger", "Ledger", false),
    ("/policies", "Policies", true),
    ("/nodes", "Nodes", true),
    ("/audit", "Audit log", false),
    ("/settings", "Settings", true),
];

/// Somebody who looks at a page.
pub(super) struct Visitor {
    pub(super) access: Access,
    pub(super) query: Query,
    pub(super) base: Arc<str>,
}

impl FromRequestParts<App> for Visitor {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Infallible> {
        let access = parts.extensions.get::<Access>().cloned().unwrap_or(Access::Nobody);
        let query = Query::read(parts.uri.query().unwrap_or_default());
        Ok(Self { access, query, base: Arc::clone(&app.base) })
    }
}

impl Visitor {
    /// What stands around the page at this place.
    pub(super) fn page(&self, place: &'static str, title: impl Into<String>) -> Chrome {
        let is_admin = self.access.is_admin();
        let sees = |(at, _, all): &(&str, &str, bool)| {
            // The audit log is for those who can be in it.
            (!all || self.access.own().is_none()) && (is_admin || !matches!(*at, "/audit" | "/settings"))
        };
        Chrome {
            base: Arc::clone(&self.base),
            place,
            title: title.into(),
            places: PLACES.into_iter().filter(sees).map(|(at, name, _)| (at, name)).collect(),
            who: self.access.name().map(str::to_owned),
            only: self.access.own().map(str::to_owned),
            is_admin,
            is_live: true,
            said: said(&self.query),
            now: clock::wall(),
        }
    }

    /// Sends them to another page.
    pub(super) fn send(&self, to: &str) -> Redirect {
        Redirect::to(&format!("{}{to}", self.base))
    }
}

/// What stands around a page.
pub(super) struct Chrome {
    pub(super) base: Arc<str>,
    pub(super) place: &'static str,
    pub(super) title: String,
    pub(super) places: Vec<(&'static str, &'static str)>,
    /// The name of the visitor's token; nothing where none is needed.
    pub(super) who: Option<String>,
    /// The one namespace they see.
    pub(super) only: Option<String>,
    /// Whether they may change anything.
    pub(super) is_admin: bool,
    /// Whether the page changes by itself.
    pub(super) is_live: bool,
    /// What was just done.
    pub(super) said: Option<String>,
    pub(super) now: Moment,
}

#[expect(
    clippy::unused_self,
    clippy::trivially_copy_pass_by_ref,
    reason = "templates call these on what they have, by reference"
)]
impl Chrome {
    /// The same, for a page on which somebody writes.
    pub(super) fn still(self) -> Self {
        Self { is_live: false, ..self }
    }

    pub(super) fn edition(&self) -> &'static str {
        assets::edition()
    }

    pub(super) fn version(&self) -> &'static str {
        env!("CARGO_PKG_VERSION")
    }

    pub(super) fn ago(&self, then: &Moment) -> String {
        words::relative(self.now, *then)
    }

    pub(super) fn time(&self, span: &Duration) -> String {
        words::time(*span)
    }

    pub(super) fn number(&self, count: &u64) -> String {
        words::number(*count)
    }
}

/// What was just done, from where its form sends the browser.
fn said(query: &Query) -> Option<String> {
    let count: u64 = query.get("count").parse().unwrap_or(0);
    let what: String = query.get("what").chars().take(200).collect();
    let steps = || words::many(count, "step", "steps");
    Some(match query.get("done") {
        "retry" => format!("{}: ready to be tried again.", steps()),
        "cancel" => format!("{}: cancelled with their tasks.", steps()),
        "discard" => format!("{}: given up for good.", steps()),
        "resolve" => "Resolved: the step is tried again.".to_owned(),
        "pause" => format!("{what}: paused. What runs goes on, and nothing more is given out."),
        "resume" => format!("{what}: given out again."),
        "release" if count == 0 => "Nobody held the lock any more.".to_owned(),
        "release" => "Taken from its holder; the token was raised.".to_owned(),
        "publish" => "Published: in force on every node within moments.".to_owned(),
        "unchanged" => "Nothing was changed: these are the numbers in force.".to_owned(),
        "revoke" => "Revoked: it opens nothing within two seconds, and its sessions are over.".to_owned(),
        _ => return None,
    })
}

/// A page, as it is sent.
pub(super) fn render(page: &impl Template) -> Result<Response, Problem> {
    let text = page.render().map_err(|error| Problem::new(Kind::Internal, error.to_string()))?;
    Ok(sent(text))
}

pub(crate) fn sent(text: String) -> Response {
    let headers = [
        (CONTENT_TYPE, "text/html; charset=utf-8"),
        (CONTENT_SECURITY_POLICY, CONTENT_POLICY),
        // So that forms say where they stood.
        (REFERRER_POLICY, "same-origin"),
    ];
    (headers, text).into_response()
}
