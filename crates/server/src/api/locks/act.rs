//! `POST /v1/locks/acquire | renew | release | force-release | raise-era`

use axum::body::Bytes;
use axum::extract::State;
use axum::extract::rejection::BytesRejection;
use axum::http::HeaderMap;
use axum::response::Response;
use axum::{Extension, Json};
use holdoff_lock::{Nonce, Token};
use serde::Serialize;
use utoipa::ToSchema;

use super::super::body;
use super::super::forms::Wait;
use super::MAX_BODY;
use super::form::{self, AcquireForm, HeldForm, Named, Nothing, Place};
use super::handing::Handing;
use crate::access::Access;
use crate::app::App;
use crate::keep::Deed;
use crate::problem::{Kind, Problem, ProblemBody};
use crate::show::{ShownHolder, seconds, show_holder};

type Sent = Result<Bytes, BytesRejection>;

/// A lock that is yours for a while.
#[derive(Serialize, ToSchema)]
#[schema(as = GrantedLock)]
struct Granted<'a> {
    namespace: &'a str,
    /// Its key, as far as people can read it.
    key: &'a str,
    /// The fencing token: it only grows for a key.
    #[schema(value_type = u64)]
    token: Token,
    /// What proves that it is yours. Keep it to yourself.
    #[schema(value_type = String, format = "uuid")]
    lock: Nonce,
    /// For how long, in seconds.
    #[schema(minimum = 0)]
    expires_in: f64,
}

/// For how much longer a lock is yours.
#[derive(Serialize, ToSchema)]
#[schema(as = RenewedLock)]
pub(super) struct Renewed {
    /// In seconds.
    #[schema(minimum = 0)]
    expires_in: f64,
}

/// A lock that was let go.
#[derive(Serialize, ToSchema)]
#[schema(as = ReleasedLock)]
pub(super) struct Released {
    released: bool,
}

/// A lock that was taken from whoever had it.
#[derive(Serialize, ToSchema)]
#[schema(as = SeizedLock)]
pub(super) struct Seized {
    /// Whether anybody had it.
    released: bool,
    holder: Option<ShownHolder>,
}

/// Acquires a lock.
///
/// If it is another's, this waits for it as long as `wait` says, and not at all unless it is said.
#[utoipa::path(post, path = "/v1/locks/acquire", tag = "locks", security(("token" = ["work", "namespace"])),
    request_body = AcquireForm,
    responses(
        (status = 200, description = "It is yours.", body = Granted<'static>),
        (status = 409, description = "It is another's.", body = ProblemBody, content_type = "application/problem+json"),
        (status = 429, description = "Too many wait; come back after `Retry-After`.", body = ProblemBody,
            content_type = "application/problem+json"),
    ))]
pub(super) async fn acquire(
    State(app): State<App>,
    access: Access,
    headers: HeaderMap,
    sent: Sent,
) -> Result<Response, Problem> {
    let mut form: AcquireForm = form::read(&body::read(&headers, sent, MAX_BODY)?)?;
    let Place { namespace, bytes } = form.place(&access)?;
    let lease = form.lease.as_ref().map_or(app.locking.settings().lease(), |Wait(lease)| *lease);
    let mut acquire =
        app.locking.here().await?.acquire(bytes).namespace(namespace).lease(lease).wait(form.wait()?);
    if let Some(name) = form.name.take() {
        acquire = acquire.name(name);
    }
    let handover = acquire.hand_over().await?;
    let held = handover.lease();
    let granted = Granted {
        namespace: held.key().namespace(),
        key: held.key().readable(),
        token: held.token(),
        lock: held.nonce(),
        expires_in: seconds(handover.valid_for()),
    };
    let text =
        serde_json::to_string(&granted).map_err(|why| Problem::new(Kind::Internal, why.to_string()))?;
    Ok(Handing::answer(text, handover))
}

/// Makes a lock last longer.
#[utoipa::path(post, path = "/v1/locks/renew", tag = "locks", security(("token" = ["work", "namespace"])), request_body = HeldForm,
    responses(
        (status = 200, description = "It is still yours.", body = Renewed),
        (status = 409, description = "It is another's.", body = ProblemBody, content_type = "application/problem+json"),
    ))]
pub(super) async fn renew(
    State(app): State<App>,
    access: Access,
    headers: HeaderMap,
    sent: Sent,
) -> Result<Json<Renewed>, Problem> {
    let mut form: HeldForm = form::read(&body::read(&headers, sent, MAX_BODY)?)?;
    let lasts = form.lease.as_ref().map_or(app.locking.settings().lease(), |Wait(lease)| *lease);
    let valid_for = app.locking.here().await?.renew(&form.lease(&access)?, lasts).await?;
    Ok(Json(Renewed { expires_in: seconds(valid_for) }))
}

/// Lets go of a lock.
#[utoipa::path(post, path = "/v1/locks/release", tag = "locks", security(("token" = ["work", "namespace"])), request_body = HeldForm,
    responses(
        (status = 200, description = "It is nobody's.", body = Released),
        (status = 409, description = "It is another's.", body = ProblemBody, content_type = "application/problem+json"),
    ))]
pub(super) async fn release(
    State(app): State<App>,
    access: Access,
    headers: HeaderMap,
    sent: Sent,
) -> Result<Json<Released>, Problem> {
    let mut form: HeldForm = form::read(&body::read(&headers, sent, MAX_BODY)?)?;
    app.locking.here().await?.release(&form.lease(&access)?).await?;
    Ok(Json(Released { released: true }))
}

/// Takes a lock from whoever has it.
///
/// The token is raised, so that a resource that looks at tokens refuses the holder from now on.
#[utoipa::path(post, path = "/v1/locks/force-release", tag = "locks", security(("token" = ["admin", "namespace"])),
    request_body = Named,
    responses((status = 200, description = "It is nobody's.", body = Seized)))]
pub(super) async fn force_release(
    State(app): State<App>,
    access: Access,
    headers: HeaderMap,
    sent: Sent,
) -> Result<(Extension<Deed>, Json<Seized>), Problem> {
    let form: Named = form::read(&body::read(&headers, sent, MAX_BODY)?)?;
    let Place { namespace, bytes } = form.place(&access)?;
    let deed = Deed::new("lock.force-release", String::from_utf8_lossy(&bytes)).within(&namespace);
    let holder = app.locking.here().await?.with_namespace(namespace)?.force_release(bytes).await?;
    let deed = Extension(deed.times(u64::from(holder.is_some())));
    let seized = Seized { released: holder.is_some(), holder: holder.as_ref().map(show_holder) };
    Ok((deed, Json(seized)))
}

/// An era of locks.
#[derive(Serialize, ToSchema)]
#[schema(as = LockEra)]
pub(super) struct Era {
    era: u64,
}

/// Begins another era of locks.
///
/// Every token from now on is above all before. To be done when what keeps the locks was restored from a copy, before anybody
/// asks for one.
#[utoipa::path(post, path = "/v1/locks/raise-era", tag = "locks", security(("token" = ["admin"])), request_body = Nothing,
    responses((status = 200, description = "It has begun.", body = Era)))]
pub(super) async fn raise_era(
    State(app): State<App>,
    headers: HeaderMap,
    sent: Sent,
) -> Result<(Extension<Deed>, Json<Era>), Problem> {
    let Nothing {} = form::read(&body::read(&headers, sent, MAX_BODY)?)?;
    let era = app.locking.here().await?.raise_era().await?;
    Ok((Extension(Deed::new("lock.raise-era", era.to_string())), Json(Era { era })))
}
