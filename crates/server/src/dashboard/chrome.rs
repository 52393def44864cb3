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

use super::query::PageQuery;
use super::{assets, formatting};
use crate::access::Caller;
use crate::app::App;
use crate::clock;
use crate::problem::{Kind, Problem};

/// Permits styles, scripts, images and forms of this origin only, and nothing inline.
const CONTENT_POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self' data:; \
                              connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

/// The pages in the order of the navigation: path, name, and whether they need a token for all namespaces.
const NAV_PAGES: [(&str, &str, bool); 14] = [
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
    pub(super) caller: Caller,
    pub(super) query: PageQuery,
    pub(super) base: Arc<str>,
}

impl FromRequestParts<App> for Visitor {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Infallible> {
        let caller = parts.extensions.get::<Caller>().cloned().unwrap_or(Caller::Anonymous);
        let query = PageQuery::read(parts.uri.query().unwrap_or_default());
        Ok(Self { caller, query, base: Arc::clone(&app.base) })
    }
}

impl Visitor {
    /// Returns the frame of the page at this path.
    pub(super) fn page(&self, path: &'static str, title: impl Into<String>) -> Chrome {
        let is_admin = self.caller.is_admin();
        let sees = |(at, _, all): &(&str, &str, bool)| {
            // Only administrators see the pages *Audit* and *Settings*.
            (!all || self.caller.own_namespace().is_none())
                && (is_admin || !matches!(*at, "/audit" | "/settings"))
        };
        Chrome {
            base: Arc::clone(&self.base),
            path,
            title: title.into(),
            nav: NAV_PAGES.into_iter().filter(sees).map(|(at, name, _)| (at, name)).collect(),
            token_name: self.caller.name().map(str::to_owned),
            namespace: self.caller.own_namespace().map(str::to_owned),
            is_admin,
            is_live: true,
            notice: notice(&self.query),
            now: clock::wall(),
        }
    }

    /// Redirects the visitor to another page.
    pub(super) fn redirect(&self, to: &str) -> Redirect {
        Redirect::to(&format!("{}{to}", self.base))
    }
}

/// The frame of a page.
pub(super) struct Chrome {
    pub(super) base: Arc<str>,
    pub(super) path: &'static str,
    pub(super) title: String,
    pub(super) nav: Vec<(&'static str, &'static str)>,
    /// The name of the visitor's token; `None` if no token is needed.
    pub(super) token_name: Option<String>,
    /// The namespace that the visitor is confined to.
    pub(super) namespace: Option<String>,
    /// Whether the visitor may perform the actions of operators.
    pub(super) is_admin: bool,
    /// Whether the page updates itself.
    pub(super) is_live: bool,
    /// The result of the last action.
    pub(super) notice: Option<String>,
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
        formatting::relative(self.now, *then)
    }

    pub(super) fn time(&self, span: &Duration) -> String {
        formatting::time(*span)
    }

    pub(super) fn number(&self, count: &u64) -> String {
        formatting::number(*count)
    }
}

/// Returns the result of the last action from the query of a redirect.
fn notice(query: &PageQuery) -> Option<String> {
    let count: u64 = query.get("count").parse().unwrap_or(0);
    let what: String = query.get("what").chars().take(200).collect();
    let steps = || formatting::many(count, "step", "steps");
    Some(match query.get("done") {
        "retry" => format!("{}: ready for another attempt.", steps()),
        "cancel" => format!("{}: cancelled, with their tasks.", steps()),
        "discard" => format!("{}: discarded for good.", steps()),
        "resolve" => "Resolved: the step is ready for another attempt.".to_owned(),
        "pause" => format!("{what}: paused. Running steps continue; no further steps are dispatched."),
        "resume" => format!("{what}: resumed."),
        "release" if count == 0 => "The lock had no holder any more.".to_owned(),
        "release" => "Released by force; the fencing token was increased.".to_owned(),
        "deploy" => "Deployed: active on every node within seconds.".to_owned(),
        "unchanged" => "Nothing was changed: these are the active values.".to_owned(),
        "revoke" => {
            "Revoked: every daemon rejects it within two seconds, and its sessions have ended.".to_owned()
        }
        _ => return None,
    })
}

/// Renders a page as a response.
pub(super) fn render(page: &impl Template) -> Result<Response, Problem> {
    let text = page.render().map_err(|error| Problem::new(Kind::Internal, error.to_string()))?;
    Ok(html_response(text))
}

pub(crate) fn html_response(text: String) -> Response {
    let headers = [
        (CONTENT_TYPE, "text/html; charset=utf-8"),
        (CONTENT_SECURITY_POLICY, CONTENT_POLICY),
        // With this policy, browsers send the origin of a form.
        (REFERRER_POLICY, "same-origin"),
    ];
    (headers, text).into_response()
}
