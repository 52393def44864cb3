//! `POST /v1/ledger/transactions | step-down | snapshot`

use axum::extract::State;
use axum::{Extension, Json};
use holdoff_ledger::Outcome;
use serde::Serialize;
use utoipa::ToSchema;

use super::form::{Named, Sent, StepDownForm, TransactionForm};
use super::node;
use crate::access::Access;
use crate::app::App;
use crate::keep::Deed;
use crate::ledgers::{Node, within};
use crate::problem::{Kind, Problem, ProblemBody, spread};
use crate::show::ShownResult;

/// What became of a transaction: it is in the history, and has done what it should, or has changed nothing.
#[derive(Serialize, ToSchema)]
#[schema(as = TransactionOutcome)]
pub(super) struct ShownOutcome {
    #[schema(pattern = "^[0-9a-f]{32}$")]
    tx_id: String,
    /// `committed` or `failed`.
    outcome: &'static str,
    /// Its place in the history.
    index: u64,
    #[schema(inline)]
    #[serde(flatten)]
    result: ShownResult,
}

/// Has something done, wherever the leader is, and says what became of it.
///
/// A transaction that is submitted again under the same `tx_id` happens once at most.
#[utoipa::path(post, path = "/v1/ledger/transactions", operation_id = "ledger_submit", tag = "ledger",
    security(("token" = ["work", "namespace"])),
    request_body = TransactionForm,
    responses(
        (status = 200, description = "It stands in the history.", body = ShownOutcome),
        (status = 404, description = "This daemon has no such ledger.", body = ProblemBody,
            content_type = "application/problem+json"),
        (status = 503, description = "It has not happened, and of this submission nothing will come: nobody leads, or too \
            many are under way. Submit it again after `Retry-After`.", body = ProblemBody,
            content_type = "application/problem+json"),
        (status = 504, description = "It may have happened, or happen yet. Submit it again under the same `tx_id`.",
            body = ProblemBody, content_type = "application/problem+json"),
    ))]
pub(super) async fn submit(
    State(app): State<App>,
    access: Access,
    Sent(mut form): Sent<TransactionForm>,
) -> Result<Json<ShownOutcome>, Problem> {
    let node = node(&app, &access.namespace(form.namespace.take())?)?;
    let (wanted, timeout) = (form.wanted()?, form.timeout()?);
    let tx_id = form.tx_id()?.map_or_else(Node::new_tx_id, Ok)?;
    let (outcome, index, result) = match node.submit(tx_id, wanted, timeout).await? {
        Outcome::Committed { index, result } => ("committed", index, ShownResult::answered(&result)),
        Outcome::Failed { index, why } => ("failed", index, ShownResult::failed(&why)),
        other => {
            let problem = not_ended(&other, "under the same tx_id: it happens once at most");
            return Err(problem.with("tx_id", tx_id.to_string().into()));
        }
    };
    Ok(Json(ShownOutcome { tx_id: tx_id.to_string(), outcome, index: index.0, result }))
}

/// Returns the problem for a transaction that has no index in the history, as far as the node knows.
pub(super) fn not_ended<A>(outcome: &Outcome<A>, again: &str) -> Problem {
    match outcome {
        Outcome::NoQuorum => {
            let detail = format!(
                "nobody was found to lead, so nobody was asked, and of this submission nothing will come. A majority of \
                 voters must be there and reach each other; then submit it again, {again}"
            );
            Problem::new(Kind::NoQuorum, detail).retry_after(spread())
        }
        Outcome::TooMany => {
            let detail = "as many are under way here as there may be; it has not happened, and will not. Submit it later";
            Problem::new(Kind::TooManyTransactions, detail).retry_after(spread())
        }
        _ => {
            let detail = format!("it may have happened, or happen yet. Submit it again {again}");
            Problem::new(Kind::OutcomeUnknown, detail)
        }
    }
}

/// Who leads then.
#[derive(Serialize, ToSchema)]
#[schema(as = NewLeader)]
pub(super) struct ShownLeader {
    #[schema(pattern = "^[0-9a-f]{64}$")]
    leader: String,
}

/// Lets another voter lead.
#[utoipa::path(post, path = "/v1/ledger/step-down", operation_id = "ledger_step_down", tag = "ledger",
    security(("token" = ["admin", "namespace"])),
    request_body = StepDownForm,
    responses(
        (status = 200, description = "Another leads.", body = ShownLeader),
        (status = 404, description = "This daemon has no such ledger.", body = ProblemBody,
            content_type = "application/problem+json"),
        (status = 409, description = "The leader does not do it now, and says why.", body = ProblemBody,
            content_type = "application/problem+json"),
    ))]
pub(super) async fn step_down(
    State(app): State<App>,
    access: Access,
    Sent(mut form): Sent<StepDownForm>,
) -> Result<(Extension<Deed>, Json<ShownLeader>), Problem> {
    let namespace = access.namespace(form.namespace.take())?;
    let leader = node(&app, &namespace)?.hand_over(form.to()?).await?.to_string();
    let deed = Deed::new("ledger.step-down", &leader).within(namespace);
    Ok((Extension(deed), Json(ShownLeader { leader })))
}

/// Up to where a snapshot reaches.
#[derive(Serialize, ToSchema)]
#[schema(as = LedgerSnapshot)]
pub(super) struct ShownSnapshot {
    through: u64,
}

/// Puts a snapshot in the place of all entries so far, on this node's disk.
#[utoipa::path(post, path = "/v1/ledger/snapshot", operation_id = "ledger_snapshot", tag = "ledger",
    security(("token" = ["admin", "namespace"])),
    request_body = Named,
    responses(
        (status = 200, description = "It is made.", body = ShownSnapshot),
        (status = 404, description = "This daemon has no such ledger.", body = ProblemBody,
            content_type = "application/problem+json"),
    ))]
pub(super) async fn snapshot(
    State(app): State<App>,
    access: Access,
    Sent(named): Sent<Named>,
) -> Result<(Extension<Deed>, Json<ShownSnapshot>), Problem> {
    let namespace = access.namespace(named.namespace)?;
    let through = within(node(&app, &namespace)?.compact()).await?.0;
    let deed = Deed::new("ledger.snapshot", format!("through {through}")).within(namespace);
    Ok((Extension(deed), Json(ShownSnapshot { through })))
}
