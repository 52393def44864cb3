//! `/v1/locks`: locks for clients that renew and release them themselves.

mod grant_body;

use std::time::Duration;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use holdoff_lock::{Lease, LockFilter, LockKey, LockRecord, Nonce, Token};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use uuid::Uuid;

use super::input::{BodyRules, HumanDuration, JsonBody, Query};
use super::list::{self, ListPage};
use crate::access::Caller;
use crate::app::App;
use crate::events::TokenWatch;
use crate::problem::{Kind, Problem, ProblemBody};
use crate::schema::{DurationText, TokenText};
use crate::token_store::AuditEvent;
use crate::view::{HolderView, LockView, seconds};
use grant_body::GrantBody;

/// A body holds the longest key in base64, and a reserve.
const BODY_RULES: BodyRules = BodyRules { max_bytes: 128 * 1024, invalid: Kind::InvalidLock };

pub(super) fn routes() -> OpenApiRouter<App> {
    let routes = OpenApiRouter::new()
        .routes(routes!(list))
        .routes(routes!(show))
        .routes(routes!(acquire))
        .routes(routes!(renew))
        .routes(routes!(release))
        .routes(routes!(force_release))
        .routes(routes!(raise_floor));
    BODY_RULES.apply(routes)
}

/// The maximum wait. A response takes little longer than that.
const MAX_WAIT: Duration = Duration::from_secs(25);

/// A reference to a lock.
#[derive(Deserialize, IntoParams, ToSchema)]
#[into_params(parameter_in = Query)]
#[schema(as = LockRef)]
#[serde(deny_unknown_fields)]
struct LockRef {
    /// The key as text.
    key: Option<String>,
    /// The key as base64, for keys that are not text.
    key_base64: Option<String>,
    namespace: Option<String>,
}

/// A request for a lock.
#[derive(Deserialize, ToSchema)]
#[schema(as = AcquireLock)]
#[serde(deny_unknown_fields)]
struct AcquireForm {
    /// The key as text.
    key: Option<String>,
    /// The key as base64, for keys that are not text.
    key_base64: Option<String>,
    namespace: Option<String>,
    /// The lease: the validity of the lock unless it is renewed.
    #[schema(value_type = Option<DurationText>)]
    lease: Option<HumanDuration>,
    /// How long to wait for the lock; at most `25s`.
    #[schema(value_type = Option<DurationText>)]
    wait: Option<HumanDuration>,
    /// The name of the holder, for display.
    name: Option<String>,
}

/// A lock that the caller holds.
#[derive(Deserialize, ToSchema)]
#[schema(as = HeldLock)]
#[serde(deny_unknown_fields)]
struct HeldLockForm {
    /// The key as text.
    key: Option<String>,
    /// The key as base64, for keys that are not text.
    key_base64: Option<String>,
    namespace: Option<String>,
    #[schema(value_type = TokenText)]
    token: Token,
    /// The secret from the response to `acquire`.
    #[schema(value_type = String, format = "uuid")]
    lock: Uuid,
    /// For a renewal: the new lease, from now.
    #[schema(value_type = Option<DurationText>)]
    lease: Option<HumanDuration>,
}

/// A floor of fencing tokens: every later token is above it.
#[derive(Deserialize, Serialize, ToSchema)]
#[schema(as = TokenFloor)]
#[serde(deny_unknown_fields)]
struct TokenFloor {
    #[schema(value_type = TokenText)]
    floor: Token,
}

/// The bytes of a key, in a namespace.
struct LockTarget {
    namespace: String,
    bytes: Vec<u8>,
}

impl LockRef {
    fn target(self, caller: &Caller) -> Result<LockTarget, Problem> {
        let bytes = match (self.key, self.key_base64) {
            (Some(key), None) => key.into_bytes(),
            (None, Some(key)) => {
                STANDARD.decode(key).map_err(|why| invalid(format!("key_base64 is not base64: {why}")))?
            }
            (Some(_), Some(_)) => return Err(invalid("expected `key` or `key_base64`, got both")),
            (None, None) => return Err(invalid("expected `key` (a text) or `key_base64` (any bytes)")),
        };
        let namespace = caller.namespace(self.namespace)?;
        // The key is validated before any request to the store.
        LockKey::new(&namespace, &bytes).map_err(|why| invalid(why.to_string()))?;
        Ok(LockTarget { namespace, bytes })
    }
}

impl AcquireForm {
    fn target(&mut self, caller: &Caller) -> Result<LockTarget, Problem> {
        let (key, key_base64, namespace) = (self.key.take(), self.key_base64.take(), self.namespace.take());
        LockRef { key, key_base64, namespace }.target(caller)
    }

    /// Returns the time to wait; zero unless the request sets it.
    fn wait(&self) -> Result<Duration, Problem> {
        let wait = self.wait.as_ref().map_or(Duration::ZERO, |HumanDuration(wait)| *wait);
        if wait > MAX_WAIT {
            let max = MAX_WAIT.as_secs();
            return Err(invalid(format!("wait: expected at most {max}s; repeat the request to wait longer")));
        }
        Ok(wait)
    }
}

impl HeldLockForm {
    fn lease(&mut self, caller: &Caller) -> Result<Lease, Problem> {
        let (key, key_base64, namespace) = (self.key.take(), self.key_base64.take(), self.namespace.take());
        let LockTarget { namespace, bytes } = LockRef { key, key_base64, namespace }.target(caller)?;
        let key = LockKey::new(&namespace, bytes).map_err(|why| invalid(why.to_string()))?;
        Ok(Lease::new(key, Nonce::new(self.lock), self.token))
    }
}

fn invalid(why: impl Into<String>) -> Problem {
    Problem::new(Kind::InvalidLock, why)
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
struct LocksQuery {
    namespace: Option<String>,
    /// Only locks whose readable key has this prefix.
    prefix: Option<String>,
    /// Only locks that have a holder.
    #[serde(default)]
    held: bool,
    /// The maximum number of items on the page.
    #[param(minimum = 1, maximum = 1000, default = 100)]
    limit: Option<u32>,
    /// The `next` of the previous page.
    cursor: Option<String>,
}

/// Lists locks by namespace and key.
#[utoipa::path(get, path = "/v1/locks", tag = "locks", security(("token" = ["read", "namespace"])), params(LocksQuery),
    responses((status = 200, description = "A page of the list.", body = ListPage<LockView<'static>>)))]
async fn list(
    State(app): State<App>,
    caller: Caller,
    Query(query): Query<LocksQuery>,
) -> Result<Response, Problem> {
    let limit = list::limit(query.limit)?;
    let mut filter = LockFilter::default().limit(limit);
    if let Some((namespace, key, digest)) = list::parse_cursor(query.cursor.as_deref(), parse_position)? {
        filter = filter.after(&namespace, &key, &digest);
    }
    if let Some(namespace) = caller.namespace_filter(query.namespace)? {
        filter = filter.namespace(namespace);
    }
    if let Some(prefix) = query.prefix {
        filter = filter.prefix(prefix);
    }
    if query.held {
        filter = filter.held();
    }
    let records = app.locking.locks().await?.list(&filter).await?;
    let is_full = records.len() >= limit as usize;
    let end = records.last().filter(|_| is_full).map(position_of);
    let shown: Vec<LockView<'_>> = records.iter().map(LockView::new).collect();
    Ok(Json(ListPage::new(shown, end)).into_response())
}

/// Returns the cursor of a lock in the list.
fn position_of(lock: &LockRecord) -> String {
    serde_json::json!([lock.namespace, lock.key, lock.digest]).to_string()
}

fn parse_position(text: &str) -> Option<(String, String, String)> {
    serde_json::from_str(text).ok()
}

/// Returns one lock.
#[utoipa::path(get, path = "/v1/locks/show", operation_id = "lock", tag = "locks",
    security(("token" = ["read", "namespace"])), params(LockRef),
    responses(
        (status = 200, description = "The lock.", body = LockView<'static>),
        (status = 404, description = "The lock was never held, or has been pruned.", body = ProblemBody,
            content_type = "application/problem+json"),
    ))]
async fn show(
    State(app): State<App>,
    caller: Caller,
    Query(lock): Query<LockRef>,
) -> Result<Response, Problem> {
    let LockTarget { namespace, bytes } = lock.target(&caller)?;
    let Some(record) = app.locking.locks().await?.with_namespace(namespace)?.inspect(bytes).await? else {
        let detail = "the lock was never held, or was idle for so long that it has been pruned";
        return Err(Problem::new(Kind::NoSuchLock, detail));
    };
    Ok(Json(LockView::new(&record)).into_response())
}

/// A lock that the caller holds until it expires.
#[derive(Serialize, ToSchema)]
#[schema(as = GrantedLock)]
struct GrantedLock<'a> {
    namespace: &'a str,
    /// The key, in readable form.
    key: &'a str,
    /// The fencing token. It increases monotonically for a key.
    #[schema(value_type = TokenText)]
    token: Token,
    /// The secret that proves ownership of the lock.
    #[schema(value_type = String, format = "uuid")]
    lock: Nonce,
    /// The remaining validity, in seconds.
    #[schema(minimum = 0)]
    expires_in: f64,
}

/// The new validity of a lock.
#[derive(Serialize, ToSchema)]
#[schema(as = RenewedLock)]
struct RenewedLock {
    /// The remaining validity, in seconds.
    #[schema(minimum = 0)]
    expires_in: f64,
}

/// A released lock.
#[derive(Serialize, ToSchema)]
#[schema(as = ReleasedLock)]
struct ReleasedLock {
    released: bool,
}

/// A lock that was released by force.
#[derive(Serialize, ToSchema)]
#[schema(as = ForceReleasedLock)]
struct ForceReleasedLock {
    /// Whether the lock had a holder.
    released: bool,
    holder: Option<HolderView>,
}

/// Acquires a lock.
///
/// If another client holds the lock, the request waits for up to `wait`; by default it does not wait.
#[utoipa::path(post, path = "/v1/locks/acquire", tag = "locks", security(("token" = ["work", "namespace"])),
    request_body = AcquireForm,
    responses(
        (status = 200, description = "The caller holds the lock.", body = GrantedLock<'static>),
        (status = 409, description = "Another client holds the lock.", body = ProblemBody, content_type = "application/problem+json"),
        (status = 429, description = "Too many requests wait; retry after `Retry-After`.", body = ProblemBody,
            content_type = "application/problem+json"),
    ))]
async fn acquire(
    State(app): State<App>,
    caller: Caller,
    JsonBody(mut form): JsonBody<AcquireForm>,
) -> Result<Response, Problem> {
    let LockTarget { namespace, bytes } = form.target(&caller)?;
    let lease = form.lease.as_ref().map_or(app.locking.settings().lease(), |HumanDuration(lease)| *lease);
    let mut acquire =
        app.locking.locks().await?.acquire(bytes).namespace(namespace).lease(lease).wait(form.wait()?);
    if let Some(name) = form.name.take() {
        acquire = acquire.name(name);
    }
    let mut token = TokenWatch::of(&app, &caller);
    let handover = tokio::select! {
        granted = acquire.acquire_detached() => granted?,
        () = token.ended() => return Err(Problem::new(Kind::Unauthorized, "the API token ended while the request waited")),
    };
    let lease = handover.lease();
    let granted = GrantedLock {
        namespace: lease.key().namespace(),
        key: lease.key().readable(),
        token: lease.token(),
        lock: lease.nonce(),
        expires_in: seconds(handover.valid_for()),
    };
    let text =
        serde_json::to_string(&granted).map_err(|why| Problem::new(Kind::Internal, why.to_string()))?;
    Ok(GrantBody::response(text, handover))
}

/// Renews a lock.
#[utoipa::path(post, path = "/v1/locks/renew", tag = "locks", security(("token" = ["work", "namespace"])), request_body = HeldLockForm,
    responses(
        (status = 200, description = "The caller still holds the lock.", body = RenewedLock),
        (status = 409, description = "Another client holds the lock.", body = ProblemBody, content_type = "application/problem+json"),
    ))]
async fn renew(
    State(app): State<App>,
    caller: Caller,
    JsonBody(mut form): JsonBody<HeldLockForm>,
) -> Result<Json<RenewedLock>, Problem> {
    let lasts = form.lease.as_ref().map_or(app.locking.settings().lease(), |HumanDuration(lease)| *lease);
    let valid_for = app.locking.locks().await?.renew(&form.lease(&caller)?, lasts).await?;
    Ok(Json(RenewedLock { expires_in: seconds(valid_for) }))
}

/// Releases a lock.
#[utoipa::path(post, path = "/v1/locks/release", tag = "locks", security(("token" = ["work", "namespace"])), request_body = HeldLockForm,
    responses(
        (status = 200, description = "The lock is free.", body = ReleasedLock),
        (status = 409, description = "Another client holds the lock.", body = ProblemBody, content_type = "application/problem+json"),
    ))]
async fn release(
    State(app): State<App>,
    caller: Caller,
    JsonBody(mut form): JsonBody<HeldLockForm>,
) -> Result<Json<ReleasedLock>, Problem> {
    app.locking.locks().await?.release(&form.lease(&caller)?).await?;
    Ok(Json(ReleasedLock { released: true }))
}

/// Releases a lock of any holder by force.
///
/// The fencing token is increased, so that a resource that checks tokens rejects the former holder.
#[utoipa::path(post, path = "/v1/locks/force-release", tag = "locks", security(("token" = ["admin", "namespace"])),
    request_body = LockRef,
    responses((status = 200, description = "The lock is free.", body = ForceReleasedLock)))]
async fn force_release(
    State(app): State<App>,
    caller: Caller,
    JsonBody(lock): JsonBody<LockRef>,
) -> Result<(Extension<AuditEvent>, Json<ForceReleasedLock>), Problem> {
    let LockTarget { namespace, bytes } = lock.target(&caller)?;
    let event =
        AuditEvent::new("lock.force-release", String::from_utf8_lossy(&bytes)).in_namespace(&namespace);
    let holder = app.locking.locks().await?.with_namespace(namespace)?.force_release(bytes).await?;
    let event = Extension(event.with_count(u64::from(holder.is_some())));
    let released =
        ForceReleasedLock { released: holder.is_some(), holder: holder.as_ref().map(HolderView::new) };
    Ok((event, Json(released)))
}

/// Raises the floor of the fencing tokens.
///
/// Every later token of every key is above the floor. A floor below the present one changes nothing. Call it if a resource
/// has seen a higher token than the store grants, because the resource has seen tokens of another store, or because the
/// clock of the store was wrong.
#[utoipa::path(post, path = "/v1/locks/raise-floor", tag = "locks", security(("token" = ["admin"])), request_body = TokenFloor,
    responses((status = 200, description = "The floor from now on.", body = TokenFloor)))]
async fn raise_floor(
    State(app): State<App>,
    JsonBody(TokenFloor { floor }): JsonBody<TokenFloor>,
) -> Result<(Extension<AuditEvent>, Json<TokenFloor>), Problem> {
    let floor = app.locking.locks().await?.raise_floor(floor).await?;
    Ok((Extension(AuditEvent::new("lock.raise-floor", floor.to_string())), Json(TokenFloor { floor })))
}
