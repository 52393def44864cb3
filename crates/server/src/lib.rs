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
mod crowd;
mod dashboard;
mod docs;
mod error;
mod events;
mod gateway;
mod guard;
mod health;
mod keep;
mod lab;
mod ledgers;
mod listen;
mod locking;
mod metrics;
mod options;
#[cfg(feature = "otlp")]
pub mod otlp;
mod place;
mod prefix;
mod problem;
mod pull;
mod rate;
mod reach;
mod reload;
mod retire;
mod schema;
mod server;
mod settings;
mod show;
mod stop;
mod tidy;
mod tls;

pub use error::Error;
pub use keep::{
    AuditEntry, AuditPage, Deed, InvalidToken, Issued, Keep, NewToken, Scope, TokenRecord, UnknownScope,
};
pub use options::Options;
pub use place::Place;
pub use rate::{InvalidRate, Rate};
pub use reload::Reload;
pub use server::Server;
pub use settings::{LogFormat, Running, Settings, TlsFiles};
pub use show::{ShownHolder, ShownLock, ShownTask, show, show_lock};
pub use stop::{Stopped, serve};

/// The access requirement of a page or of one of its forms.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct PageRoute {
    /// The method.
    pub method: &'static str,
    /// The path, with names in braces.
    pub route: &'static str,
    /// The required scope; `None` if no token is needed.
    pub scope: Option<Scope>,
    /// Whether a token of one namespace suffices.
    pub narrowed: bool,
}

/// Returns all pages with their requirements, for the documentation. The API's document has those of the operations.
pub fn pages() -> Vec<PageRoute> {
    let page = |(method, route, need)| match need {
        access::Need::Nothing | access::Need::Offered => {
            PageRoute { method, route, scope: None, narrowed: false }
        }
        access::Need::Scope { scope, narrowed } => PageRoute { method, route, scope: Some(scope), narrowed },
    };
    let mut pages: Vec<_> = api::pages().map(page).collect();
    pages.sort_by_key(|page| (page.route, page.method));
    pages
}
