//! `POST /v1/locks/acquire | renew | release | force-release`

use axum::body::Bytes;
use axum::extract::State;
use axum::extract::rejection::BytesRejection;
use axum::http::HeaderMap;
use axum::response::Response;
use axum::{Extension, Json};
use serde_json::{Value, json};

use super::super::body;
use super::super::forms::Wait;
use super::MAX_BODY;
use super::form::{self, AcquireForm, HeldForm, Named, Place};
use super::handing::Handing;
use crate::access::Access;
use crate::app::App;
use crate::keep::Deed;
use crate::problem::Problem;
use crate::show::{seconds, show_holder};

type Sent = Result<Bytes, BytesRejection>;

pub(super) async fn acquire(
    State(app): State<App>,
    access: Access,
    headers: HeaderMap,
    sent: Sent,
) -> Result<Response, Problem> {
    let mut form: AcquireForm = form::read(&body::read(&headers, sent, MAX_BODY)?)?;
    let Place { namespace, bytes } = form.place(&access)?;
    let lease = form.lease.as_ref().map_or(app.locks.settings().lease(), |Wait(lease)| *lease);
    let mut acquire = app.locks.acquire(bytes).namespace(namespace).lease(lease).wait(form.wait()?);
    if let Some(name) = form.name.take() {
        acquire = acquire.name(name);
    }
    let handover = acquire.hand_over().await?;
    let held = handover.lease();
    let answer = json!({
        "namespace": held.key().namespace(),
        "key": held.key().readable(),
        "token": held.token(),
        "lock": held.nonce(),
        "expires_in": seconds(handover.valid_for()),
    });
    Ok(Handing::answer(answer.to_string(), handover))
}

pub(super) async fn renew(
    State(app): State<App>,
    access: Access,
    headers: HeaderMap,
    sent: Sent,
) -> Result<Json<Value>, Problem> {
    let mut form: HeldForm = form::read(&body::read(&headers, sent, MAX_BODY)?)?;
    let lasts = form.lease.as_ref().map_or(app.locks.settings().lease(), |Wait(lease)| *lease);
    let valid_for = app.locks.renew(&form.lease(&access)?, lasts).await?;
    Ok(Json(json!({ "expires_in": seconds(valid_for) })))
}

pub(super) async fn release(
    State(app): State<App>,
    access: Access,
    headers: HeaderMap,
    sent: Sent,
) -> Result<Json<Value>, Problem> {
    let mut form: HeldForm = form::read(&body::read(&headers, sent, MAX_BODY)?)?;
    app.locks.release(&form.lease(&access)?).await?;
    Ok(Json(json!({ "released": true })))
}

pub(super) async fn force_release(
    State(app): State<App>,
    access: Access,
    headers: HeaderMap,
    sent: Sent,
) -> Result<(Extension<Deed>, Json<Value>), Problem> {
    let form: Named = form::read(&body::read(&headers, sent, MAX_BODY)?)?;
    let Place { namespace, bytes } = form.place(&access)?;
    let deed = Deed::new("lock.force-release", String::from_utf8_lossy(&bytes)).within(&namespace);
    let holder = app.locks.with_namespace(namespace)?.force_release(bytes).await?;
    let deed = Extension(deed.times(u64::from(holder.is_some())));
    Ok((deed, Json(json!({ "released": holder.is_some(), "holder": holder.as_ref().map(show_holder) }))))
}
