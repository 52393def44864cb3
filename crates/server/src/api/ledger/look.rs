//! `GET /v1/ledgers`, `/v1/ledger`, `/v1/ledger/values/{key}` and `/v1/ledger/verify`, and `POST /v1/ledger/read`

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use holdoff_ledger::machine::{Command, Either};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::super::input::Asked;
use super::form::{HowWord, Named, NamedKey, ReadForm, Sent, usual_wait};
use super::{ledgers as ledgers_of, node};
use crate::access::Access;
use crate::app::App;
use crate::ledgers::status;
use crate::problem::{Kind, Problem, ProblemBody};
use crate::show::{ShownLedger, ShownResult, ShownValue, read_key};

/// How long the result of a verification is reused, so that many requests cause one verification.
const VERIFIED_FOR: Duration = Duration::from_secs(1);

/// The ledgers there are.
#[derive(Serialize, ToSchema)]
#[schema(as = Ledgers)]
pub(super) struct ShownLedgers {
    items: Vec<ShownName>,
}

/// A ledger's name, and whether this node has joined it.
#[derive(Serialize, ToSchema)]
#[schema(as = LedgerName)]
struct ShownName {
    namespace: String,
    joined: bool,
}

/// The ledgers that this daemon has a node of.
#[utoipa::path(get, path = "/v1/ledgers", operation_id = "ledgers", tag = "ledger",
    security(("token" = ["read", "namespace"])),
    responses((status = 200, description = "Their names.", body = ShownLedgers)))]
pub(super) async fn ledgers(State(app): State<App>, access: Access) -> Json<ShownLedgers> {
    let mut names = app.ledgers.as_ref().map(|ledgers| ledgers.names()).unwrap_or_default();
    names.retain(|(namespace, _)| access.sees(namespace));
    let shown = |(namespace, joined)| ShownName { namespace, joined };
    Json(ShownLedgers { items: names.into_iter().map(shown).collect() })
}

/// How this daemon's node of a ledger is doing.
#[utoipa::path(get, path = "/v1/ledger", operation_id = "ledger", tag = "ledger",
    security(("token" = ["read", "namespace"])), params(Named),
    responses(
        (status = 200, description = "How it is doing.", body = ShownLedger),
        (status = 404, description = "This daemon has no such ledger.", body = ProblemBody,
            content_type = "application/problem+json"),
    ))]
pub(super) async fn show(
    State(app): State<App>,
    access: Access,
    Asked(named): Asked<Named>,
) -> Result<Json<ShownLedger>, Problem> {
    let namespace = access.namespace(named.namespace)?;
    let ledgers = ledgers_of(&app, &namespace)?;
    Ok(Json(match ledgers.find(&namespace)? {
        Some(node) => ShownLedger::joined(ledgers, &status(&node).await?),
        None => ShownLedger::joining(ledgers, &namespace),
    }))
}

/// What a look has found, or why it found nothing; and the last entry that it knows of.
#[derive(Serialize, ToSchema)]
#[schema(as = LedgerFound)]
pub(super) struct Found {
    index: u64,
    #[schema(inline)]
    #[serde(flatten)]
    result: ShownResult,
}

/// Looks something up in a ledger.
#[utoipa::path(post, path = "/v1/ledger/read", operation_id = "ledger_read", tag = "ledger",
    security(("token" = ["read", "namespace"])),
    request_body = ReadForm,
    responses(
        (status = 200, description = "What was found.", body = Found),
        (status = 404, description = "This daemon has no such ledger.", body = ProblemBody,
            content_type = "application/problem+json"),
        (status = 503, description = "Nobody leads; come back after `Retry-After`, or read what is `local`.",
            body = ProblemBody, content_type = "application/problem+json"),
    ))]
pub(super) async fn read(
    State(app): State<App>,
    access: Access,
    Sent(mut form): Sent<ReadForm>,
) -> Result<Json<Found>, Problem> {
    let node = node(&app, &access.namespace(form.namespace.take())?)?;
    let (wanted, timeout) = (form.wanted()?, form.timeout()?);
    let (index, answer) = node.read(wanted, form.how.into(), timeout).await?;
    let result = match &answer {
        Ok(answer) => ShownResult::answered(answer),
        Err(why) => ShownResult::failed(why),
    };
    Ok(Json(Found { index: index.0, result }))
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct ValueWish {
    namespace: Option<String>,
    #[serde(default)]
    #[param(inline)]
    how: HowWord,
}

/// A value, and the last entry that is in it.
#[derive(Serialize, ToSchema)]
#[schema(as = LedgerValueFound)]
pub(super) struct ValueFound {
    key: String,
    value: ShownValue,
    index: u64,
}

/// The value of a key.
#[utoipa::path(get, path = "/v1/ledger/values/{key}", operation_id = "ledger_value", tag = "ledger",
    security(("token" = ["read", "namespace"])),
    params(("key" = String, Path, description = "The key."), ValueWish),
    responses(
        (status = 200, description = "The value.", body = ValueFound),
        (status = 404, description = "There is none.", body = ProblemBody, content_type = "application/problem+json"),
    ))]
pub(super) async fn value(
    State(app): State<App>,
    access: Access,
    NamedKey(key): NamedKey,
    Asked(wish): Asked<ValueWish>,
) -> Result<Json<ValueFound>, Problem> {
    let node = node(&app, &access.namespace(wish.namespace)?)?;
    let strange = |why: String| Problem::new(Kind::InvalidQuery, why);
    let get = Either::Second(vec![Command::Get(read_key(key.clone()).map_err(strange)?)]);
    let (index, answer) = node.read(get, wish.how.into(), usual_wait()).await?;
    let value = match answer {
        Ok(Either::Second(values)) => values.into_iter().next().flatten(),
        _ => None,
    };
    let none = || Problem::new(Kind::NoSuchValue, format!("up to entry {index} nothing was put there"));
    Ok(Json(ValueFound { value: (&value.ok_or_else(none)?).into(), key, index: index.0 }))
}

/// What came of going over the history that a node keeps.
#[derive(Serialize, ToSchema)]
#[schema(as = LedgerVerified)]
pub(super) struct ShownVerified {
    /// The first entry that was looked at.
    first: u64,
    /// The last one.
    last: u64,
    /// Up to where the signatures of a majority were found to be theirs.
    certified: u64,
    /// What does not fit, if anything.
    broken: Option<String>,
}

/// Goes over the history that this daemon's node keeps.
#[utoipa::path(get, path = "/v1/ledger/verify", operation_id = "ledger_verify", tag = "ledger",
    security(("token" = ["read", "namespace"])), params(Named),
    responses(
        (status = 200, description = "Whether it holds together.", body = ShownVerified),
        (status = 404, description = "This daemon has no such ledger.", body = ProblemBody,
            content_type = "application/problem+json"),
    ))]
pub(super) async fn verify(
    State(app): State<App>,
    access: Access,
    Asked(named): Asked<Named>,
) -> Result<Json<ShownVerified>, Problem> {
    let namespace = access.namespace(named.namespace)?;
    let ledgers = ledgers_of(&app, &namespace)?;
    let verified = ledgers.verified(&ledgers.node(&namespace)?, VERIFIED_FOR).await?;
    let (first, last, certified) = (verified.first.0, verified.last.0, verified.certified.0);
    Ok(Json(ShownVerified { first, last, certified, broken: verified.broken }))
}
