//! holdoff over HTTP: durable work for any language, and a dashboard.
//!
//! [`serve`] runs a daemon until a signal ends it; [`Server`] is the same without the signals. A daemon accepts tasks,
//! sends the requests of HTTP steps, and shows their state. It accepts signals, of which many create one task, and
//! grants locks to clients that renew and release them themselves. Any number of daemons may share one store.
//!
//! # Invariants
//!
//! - The daemon sends `201` only after the task is durable.
//! - A caller with access can make the daemon send requests. Therefore the daemon listens on loopback only, unless
//!   tokens are required. Without tokens it accepts only the host names of loopback, and only bodies that a browser
//!   cannot be tricked into sending: those that declare themselves as JSON.
//! - A route without a declared requirement needs a token of scope `admin` for all namespaces. A token of one namespace
//!   neither sees nor changes anything of another.
//! - The store keeps only the hash of a token. No log, error, page or metric contains the token.
//! - Every response that is not a success is a problem (RFC 9457) with a stable `type`.
//! - Every connection, head, body, list and wait has a limit. When all connections are taken, the daemon closes the one
//!   that has been idle for longest.
//! - One document is the only definition of each route's responses and of the scope that it requires.
//! - A client that disconnects while it waits leaves no waiter behind.
//! - Payloads are shown only on request, and no log, page or metric contains them.

mod acceptor;
mod access;
mod api;
mod app;
mod claims;
mod clock;
mod connection_limit;
mod dashboard;
mod error;
mod events;
mod gateway;
mod guard;
mod health;
mod lab;
mod ledgers;
mod listen;
mod locking;
mod metrics;
mod options;
#[cfg(feature = "otlp")]
pub mod otlp;
mod problem;
mod rate;
mod schema;
mod server;
mod settings;
mod stop;
mod store_url;
mod tls;
mod token_store;
mod view;

pub use error::Error;
pub use options::{Options, Reload};
pub use rate::{InvalidRate, Rate};
pub use server::Server;
pub use settings::{LogFormat, RunSettings, Settings, TlsFiles};
pub use stop::{Shutdown, serve};
pub use store_url::StoreUrl;
pub use token_store::{
    AuditEntry, AuditEvent, AuditPage, InvalidToken, IssuedToken, NewToken, TokenRecord, TokenScope,
    TokenStore, UnknownScope,
};
pub use view::{HolderView, LockView, TaskView};

/// The access requirement of a page or of one of its forms.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct PageRoute {
    /// The method.
    pub method: &'static str,
    /// The path, with names in braces.
    pub route: &'static str,
    /// The required scope; `None` if no token is needed.
    pub scope: Option<TokenScope>,
    /// Whether a token of one namespace suffices.
    pub namespaced: bool,
}

/// Returns all pages with their requirements, for the documentation. The API's document has those of the operations.
pub fn pages() -> Vec<PageRoute> {
    let page = |(method, route, requirement)| match requirement {
        access::Requirement::Public | access::Requirement::OptionalToken => {
            PageRoute { method, route, scope: None, namespaced: false }
        }
        access::Requirement::Scope { scope, namespaced } => {
            PageRoute { method, route, scope: Some(scope), namespaced }
        }
    };
    let mut pages: Vec<_> = api::pages().map(page).collect();
    pages.sort_by_key(|page| (page.route, page.method));
    pages
}
