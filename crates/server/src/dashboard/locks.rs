//! Locks: their holders, their expiry, and their waiters.

use askama::Template;
use axum::Extension;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use holdoff_lock::{LockFilter, LockKey, LockRecord};

use super::chrome::{Chrome, Visitor, render};
use super::query::PageQuery;
use crate::app::App;
use crate::problem::{Kind, Problem};
use crate::token_store::{AuditEvent, hex};

const MAX_LOCKS: u32 = 200;

#[derive(Template)]
#[template(path = "locks.html")]
struct LocksPage {
    chrome: Chrome,
    query: PageQuery,
    locks: Vec<LockRow>,
    is_full: bool,
}

struct LockRow {
    record: LockRecord,
    /// Whether the key is text, so that a form can name it.
    is_readable: bool,
}

/// Lists locks by namespace and key.
#[utoipa::path(get, path = "/locks", tag = "pages", security(("token" = ["read", "namespace"])),
    responses((status = 200, description = "The page.")))]
pub(super) async fn locks(State(app): State<App>, visitor: Visitor) -> Result<Response, Problem> {
    let mut filter = LockFilter::default().limit(MAX_LOCKS).prefix(visitor.query.get("prefix").to_owned());
    if let Some(own) = visitor.caller.own_namespace() {
        filter = filter.namespace(own);
    }
    if visitor.query.get("free") != "too" {
        filter = filter.held();
    }
    let found = app.locking.locks().await?.list(&filter).await?;
    let is_full = found.len() >= MAX_LOCKS as usize;
    let lock = |record: LockRecord| {
        let key = LockKey::new(&record.namespace, &record.key);
        let is_readable = key.is_ok_and(|key| hex(key.digest()) == record.digest);
        LockRow { record, is_readable }
    };
    let locks = found.into_iter().map(lock).collect();
    render(&LocksPage {
        chrome: visitor.page("/locks", "Locks"),
        query: visitor.query.clone(),
        locks,
        is_full,
    })
}

/// Releases a lock of any holder by force.
#[utoipa::path(post, path = "/locks/release", tag = "pages", security(("token" = ["admin", "namespace"])),
    responses((status = 303, description = "The lock is free.")))]
pub(super) async fn release(
    State(app): State<App>,
    visitor: Visitor,
    form: String,
) -> Result<Response, Problem> {
    let form = PageQuery::form(&form);
    let namespace = visitor.caller.namespace(form.text("namespace"))?;
    let key = form.get("key");
    let named = LockKey::new(&namespace, key).map_err(holdoff_lock::Error::from)?;
    if form.get("digest") != hex(named.digest()) {
        return Err(Problem::new(Kind::InvalidLock, "the digest of the form does not match its lock"));
    }
    let holder = app.locking.locks().await?.with_namespace(&namespace)?.force_release(key).await?;
    let count = u64::from(holder.is_some());
    let event = AuditEvent::new("lock.force-release", key).in_namespace(namespace).with_count(count);
    Ok((Extension(event), visitor.redirect(&format!("/locks?done=release&count={count}"))).into_response())
}
