//! holdoff over HTTP: durable work for any language, and a page to look at it.
//!
//! [`serve`] runs a daemon until a signal ends it; [`Server`] is the same without the signals. A daemon takes tasks
//! in, makes the requests of HTTP steps, and shows what became of them. It takes signals in, of which many make one
//! task, and lends locks to clients who keep them themselves. Any number of daemons may share one store.
//!
//! # Invariants
//!
//! - A `201` is sent when the task is durable, never before.
//! - Whoever is let in can have requests made. So it listens on loopback only, unless everybody needs a token; without
//!   tokens it answers only to the names of loopback, and it takes in only what a browser cannot be tricked into
//!   sending: JSON that says so.
//! - A route that nobody has thought of needs a token that may do everything. A token of one namespace neither sees nor
//!   touches anything of another.
//! - Of a token only its hash is kept, and it stands in no log, error, page or metric.
//! - Every answer that is not a success is a problem (RFC 9457) whose `type` stays the same.
//! - Every connection, head, body, list and wait has a limit. When all connections are taken, the one that has been idle
//!   for longest makes room.
//! - What a route answers, and which scope it asks for, stands in one document, and nowhere else.
//! - A client that goes away while it waits leaves nothing behind that waits.
//! - Payloads are shown to those who ask for them, and stand in no log, page or metric.

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

/// What a page, or what is sent from it, asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct PageRoute {
    /// The method.
    pub method: &'static str,
    /// The path, with names in braces.
    pub route: &'static str,
    /// What a token must be good for; nothing if anybody may look.
    pub scope: Option<Scope>,
    /// Whether a token of one namespace will do.
    pub narrowed: bool,
}

/// The pages there are, for whoever writes down what each needs. The API's operations stand in its document.
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
