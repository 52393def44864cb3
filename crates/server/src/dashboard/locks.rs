//! Locks: their holders, their expiry, and their waiters.

use askama::Template;
use axum::Extension;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use holdoff_lock::{Filter, Key, LockRecord};

use super::chrome::{Chrome, Visitor, render};
use super::query::Query;
use crate::app::App;
use crate::keep::{Deed, hex};
use crate::problem::{Kind, Problem};

const MOST: u32 = 200;

#[derive(Template)]
#[template(path = "locks.html")]
struct LocksPage {
    chrome: Chrome,
    query: Query,
    locks: Vec<Lock>,
    is_full: bool,
}

struct Lock {
    record: LockRecord,
    /// Whether the key is text, so that a form can name it.
    is_readable: bool,
}

/// Locks, by namespace and key.
#[utoipa::path(get, path = "/locks", tag = "pages", security(("token" = ["read", "namespace"])),
    responses((status = 200, description = "The page.")))]
pub(super) async fn locks(State(app): State<App>, visitor: Visitor) -> Result<Response, Problem> {
    let mut filter = Filter::default().limit(MOST).prefix(visitor.query.get("prefix").to_owned());
    if let Some(own) = visitor.access.own() {
        filter = filter.namespace(own);
    }
    if visitor.query.get("free") != "too" {
        filter = filter.held();
    }
    let found = app.locking.here().await?.list(&filter).await?;
    let is_full = found.len() >= MOST as usize;
    let lock = |record: LockRecord| {
        let key = Key::new(&record.namespace, &record.key);
        let is_readable = key.is_ok_and(|key| hex(key.digest()) == record.digest);
        Lock { record, is_readable }
    };
    let locks = found.into_iter().map(lock).collect();
    render(&LocksPage {
        chrome: visitor.page("/locks", "Locks"),
        query: visitor.query.clone(),
        locks,
        is_full,
    })
}

/// Takes a lock from whoever has it.
#[utoipa::path(post, path = "/locks/release", tag = "pages", security(("token" = ["admin", "namespace"])),
    responses((status = 303, description = "It is nobody's.")))]
pub(super) async fn release(
    State(app): State<App>,
    visitor: Visitor,
    form: String,
) -> Result<Response, Problem> {
    let form = Query::form(&form);
    let namespace = visitor.access.namespace(form.text("namespace"))?;
    let key = form.get("key");
    let named = Key::new(&namespace, key).map_err(holdoff_lock::Error::from)?;
    if form.get("digest") != hex(named.digest()) {
        return Err(Problem::new(
            Kind::InvalidLock,
            "this form names another lock than the one it stood beside",
        ));
    }
    let holder = app.locking.here().await?.with_namespace(&namespace)?.force_release(key).await?;
    let count = u64::from(holder.is_some());
    let deed = Deed::new("lock.force-release", key).within(namespace).times(count);
    Ok((Extension(deed), visitor.send(&format!("/locks?done=release&count={count}"))).into_response())
}
