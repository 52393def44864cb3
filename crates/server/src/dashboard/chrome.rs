//! The frame of every page: the visitor, the navigation, and the result of the last action.

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

/// Permits styles, scripts, images and forms of this origin only, and nothing inline.
const CONTENT_POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self' data:; \
                              connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

/// The pages in the order of the navigation: path, name, and whether they need a token for all namespaces.
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

/// The visitor of a page.
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
    /// Returns the frame of the page at this path.
    pub(super) fn page(&self, place: &'static str, title: impl Into<String>) -> Chrome {
        let is_admin = self.access.is_admin();
        let sees = |(at, _, all): &(&str, &str, bool)| {
            // Only administrators see the pages *Audit* and *Settings*.
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

    /// Redirects the visitor to another page.
    pub(super) fn send(&self, to: &str) -> Redirect {
        Redirect::to(&format!("{}{to}", self.base))
    }
}

/// The frame of a page.
pub(super) struct Chrome {
    pub(super) base: Arc<str>,
    pub(super) place: &'static str,
    pub(super) title: String,
    pub(super) places: Vec<(&'static str, &'static str)>,
    /// The name of the visitor's token; `None` if no token is needed.
    pub(super) who: Option<String>,
    /// The namespace that the visitor is confined to.
    pub(super) only: Option<String>,
    /// Whether the visitor may perform the actions of operators.
    pub(super) is_admin: bool,
    /// Whether the page updates itself.
    pub(super) is_live: bool,
    /// The result of the last action.
    pub(super) said: Option<String>,
    pub(super) now: Moment,
}

#[expect(
    clippy::unused_self,
    clippy::trivially_copy_pass_by_ref,
    reason = "templates call these on what they have, by reference"
)]
impl Chrome {
    /// Turns off updates, for a page with a form that the visitor edits.
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

/// Returns the result of the last action from the query of a redirect.
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

/// Renders a page as a response.
pub(super) fn render(page: &impl Template) -> Result<Response, Problem> {
    let text = page.render().map_err(|error| Problem::new(Kind::Internal, error.to_string()))?;
    Ok(sent(text))
}

pub(crate) fn sent(text: String) -> Response {
    let headers = [
        (CONTENT_TYPE, "text/html; charset=utf-8"),
        (CONTENT_SECURITY_POLICY, CONTENT_POLICY),
        // With this policy, browsers send the origin of a form.
        (REFERRER_POLICY, "same-origin"),
    ];
    (headers, text).into_response()
}
