//! `POST /v1/ledger/members` and `DELETE /v1/ledger/members/{key}`

use axum::extract::State;
use axum::{Extension, Json};
use holdoff_ledger::machine::Failed;
use holdoff_ledger::{Outcome, Slot};
use serde::Serialize;
use utoipa::ToSchema;

use super::super::input::Asked;
use super::act::not_ended;
use super::form::{MemberForm, Named, NamedKey, Sent, read_key, usual_wait};
use super::node;
use crate::access::Access;
use crate::app::App;
use crate::keep::Deed;
use crate::problem::{Kind, Problem, ProblemBody};

/// Where the change stands in the history.
#[derive(Serialize, ToSchema)]
#[schema(as = MembersChanged)]
pub(super) struct Changed {
    index: u64,
}

type Answer = (Extension<Deed>, Json<Changed>);

/// Makes somebody a member, or changes what is said of one.
#[utoipa::path(post, path = "/v1/ledger/members", operation_id = "ledger_admit", tag = "ledger",
    security(("token" = ["admin", "namespace"])),
    request_body = MemberForm,
    responses(
        (status = 200, description = "It is a member.", body = Changed),
        (status = 404, description = "This daemon has no such ledger.", body = ProblemBody,
            content_type = "application/problem+json"),
        (status = 409, description = "There are as many members as there may be.", body = ProblemBody,
            content_type = "application/problem+json"),
    ))]
pub(super) async fn admit(
    State(app): State<App>,
    access: Access,
    Sent(mut form): Sent<MemberForm>,
) -> Result<Answer, Problem> {
    let namespace = access.namespace(form.namespace.take())?;
    let node = node(&app, &namespace)?;
    let (key, member) = form.member()?;
    let index = changed(node.admit(key, member, usual_wait()).await?)?;
    Ok(answer("ledger.admit", &key.to_string(), namespace, index))
}

/// Makes somebody a member no longer.
#[utoipa::path(delete, path = "/v1/ledger/members/{key}", operation_id = "ledger_dismiss", tag = "ledger",
    security(("token" = ["admin", "namespace"])),
    params(("key" = String, Path, description = "The member's key."), Named),
    responses(
        (status = 200, description = "It is a member no longer.", body = Changed),
        (status = 404, description = "This daemon has no such ledger, or that has no such member.", body = ProblemBody,
            content_type = "application/problem+json"),
        (status = 409, description = "The ledger does not do it now, and says why.", body = ProblemBody,
            content_type = "application/problem+json"),
    ))]
pub(super) async fn dismiss(
    State(app): State<App>,
    access: Access,
    NamedKey(key): NamedKey,
    Asked(named): Asked<Named>,
) -> Result<Answer, Problem> {
    let namespace = access.namespace(named.namespace)?;
    let node = node(&app, &namespace)?;
    let key = read_key("key", &key)?;
    let index = changed(node.dismiss(key, usual_wait()).await?)?;
    Ok(answer("ledger.dismiss", &key.to_string(), namespace, index))
}

fn answer(action: &str, key: &str, namespace: String, index: Slot) -> Answer {
    let deed = Deed::new(action, key).within(namespace);
    (Extension(deed), Json(Changed { index: index.0 }))
}

fn changed(outcome: Outcome<()>) -> Result<Slot, Problem> {
    match outcome {
        Outcome::Committed { index, .. } => Ok(index),
        Outcome::Failed { why: Failed::NotThere(_), .. } => {
            let detail = "nobody of this key is a member; nothing has changed. `GET /v1/ledger` shows who is";
            Err(Problem::new(Kind::NoSuchMember, detail))
        }
        Outcome::Failed { why, .. } => Err(Problem::new(Kind::NotNow, why.to_string())),
        other => Err(not_ended(&other, "if `GET /v1/ledger` does not show it: twice does no harm")),
    }
}
