//! Changes of a ledger: transactions, members, the transfer of leadership, and snapshots.

use axum::extract::State;
use axum::{Extension, Json};
use holdoff_ledger::machine::GoalError;
use holdoff_ledger::{Outcome, Slot};
use serde::Serialize;
use utoipa::ToSchema;

use super::super::input::{JsonBody, Query};
use super::form::{KeyPath, LedgerRef, MemberForm, StepDownForm, TransactionForm, default_wait, read_key};
use super::{ledger_name, node};
use crate::access::Caller;
use crate::app::App;
use crate::ledgers::with_timeout;
use crate::problem::{Kind, Problem, ProblemBody, jittered_retry_after};
use crate::token_store::AuditEvent;
use crate::view::ResultView;

/// The outcome of a transaction that is in the history: it took effect, or failed and changed nothing.
#[derive(Serialize, ToSchema)]
#[schema(as = TransactionOutcome)]
pub(super) struct TransactionOutcome {
    #[schema(pattern = "^[0-9a-f]{32}$")]
    tx_id: String,
    /// `committed` or `failed`.
    outcome: &'static str,
    /// The index of its entry in the history.
    index: u64,
    #[schema(inline)]
    #[serde(flatten)]
    result: ResultView,
}

/// Submits a transaction to the leader and returns its outcome.
///
/// A transaction that is submitted again under the same `tx_id` takes effect at most once. A client that submits it again
/// names its `birth`: an index of the history that the client knew before the first submission, or the `birth` of an
/// earlier response.
#[utoipa::path(post, path = "/v1/ledger/transactions", operation_id = "ledger_submit", tag = "ledger",
    security(("token" = ["work", "namespace"])),
    request_body = TransactionForm,
    responses(
        (status = 200, description = "The transaction is in the history.", body = TransactionOutcome),
        (status = 404, description = "This daemon has no such ledger.", body = ProblemBody,
            content_type = "application/problem+json"),
        (status = 409, description = "The ledger no longer remembers all transactions since `birth`. This submission has no effect; \
            an earlier one may have: the history from `birth` on shows it.", body = ProblemBody,
            content_type = "application/problem+json"),
        (status = 413, description = "The transaction is larger than the daemon's limit.", body = ProblemBody,
            content_type = "application/problem+json"),
        (status = 507, description = "The ledger is full: the transaction would add to its state, and failed. Delete values first.",
            body = ProblemBody, content_type = "application/problem+json"),
        (status = 503, description = "This submission has no effect: there is no leader, or too many transactions are pending. If \
            an earlier submission ended with 504, its outcome is still unknown. Submit the transaction again after `Retry-After`, \
            with the `tx_id` and the `birth` of this response.", body = ProblemBody,
            content_type = "application/problem+json"),
        (status = 504, description = "The transaction may have taken effect, or may still. Submit it again with the `tx_id` and the \
            `birth` of this response.",
            body = ProblemBody, content_type = "application/problem+json"),
    ))]
pub(super) async fn submit(
    State(app): State<App>,
    caller: Caller,
    JsonBody(mut form): JsonBody<TransactionForm>,
) -> Result<Json<TransactionOutcome>, Problem> {
    let node = node(&app, &ledger_name(&app, &caller, form.namespace.take())?)?;
    let (goal, timeout) = (form.goal()?, form.timeout()?);
    let tx = form.tx(node.new_tx()?)?;
    let (outcome, index, result) = match node.submit(tx, goal, timeout).await? {
        Outcome::Committed { index, result } => ("committed", index, ResultView::answered(&result)),
        Outcome::Failed { index, why: full @ GoalError::Full { .. } } => {
            let problem = Problem::new(Kind::LedgerFull, full.to_string()).with("index", index.0.into());
            return Err(problem.with("tx_id", tx.id.to_string().into()));
        }
        Outcome::Failed { index, why } => ("failed", index, ResultView::failed(&why)),
        other => {
            let again = "with the `tx_id` and the `birth` of this response: it takes effect at most once";
            let problem = unresolved(&other, again);
            let birth = match other {
                Outcome::Unknown { absent_through } | Outcome::Overtaken { absent_through } => absent_through,
                _ => tx.birth,
            };
            return Err(problem.with("tx_id", tx.id.to_string().into()).with("birth", birth.0.into()));
        }
    };
    Ok(Json(TransactionOutcome { tx_id: tx.id.to_string(), outcome, index: index.0, result }))
}

/// Returns the problem for a transaction that has no index in the history, as far as the node knows.
pub(super) fn unresolved<A>(outcome: &Outcome<A>, again: &str) -> Problem {
    match outcome {
        Outcome::NoQuorum => {
            let detail = format!(
                "the ledger has no leader, so this submission has no effect. An earlier submission of the transaction may have. When a \
                 majority of voters can reach each other, submit it again {again}"
            );
            Problem::new(Kind::NoQuorum, detail).retry_after(jittered_retry_after())
        }
        Outcome::TooMany => {
            let detail = format!(
                "this node has too many pending transactions, so this submission has no effect. An earlier submission of the \
                 transaction may have. Submit it again later {again}"
            );
            Problem::new(Kind::TooManyTransactions, detail).retry_after(jittered_retry_after())
        }
        Outcome::Overtaken { .. } => {
            let detail = format!(
                "the ledger is overloaded: the leader did not receive the transaction in time, so it has not taken effect and will \
                 not under this `birth`. Submit it again {again}"
            );
            Problem::new(Kind::TooManyTransactions, detail).retry_after(jittered_retry_after())
        }
        Outcome::Expired { through } => {
            let detail = format!(
                "the ledger no longer remembers all transactions since the birth of this one. This submission has no effect, but an \
                 earlier one may have: look for its `tx_id` in the history from `birth` up to index {through}"
            );
            Problem::new(Kind::TransactionExpired, detail).with("through", through.0.into())
        }
        _ => {
            let detail =
                format!("the transaction may have taken effect, or may still. Submit it again {again}");
            Problem::new(Kind::OutcomeUnknown, detail)
        }
    }
}

/// The new leader.
#[derive(Serialize, ToSchema)]
#[schema(as = NewLeader)]
pub(super) struct NewLeader {
    #[schema(pattern = "^[0-9a-f]{64}$")]
    leader: String,
}

/// Transfers the leadership to another voter.
#[utoipa::path(post, path = "/v1/ledger/step-down", operation_id = "ledger_step_down", tag = "ledger",
    security(("token" = ["admin"])),
    request_body = StepDownForm,
    responses(
        (status = 200, description = "The new leader.", body = NewLeader),
        (status = 404, description = "This daemon has no such ledger.", body = ProblemBody,
            content_type = "application/problem+json"),
        (status = 409, description = "The leader rejects the transfer; `detail` gives the reason.", body = ProblemBody,
            content_type = "application/problem+json"),
    ))]
pub(super) async fn step_down(
    State(app): State<App>,
    caller: Caller,
    JsonBody(mut form): JsonBody<StepDownForm>,
) -> Result<(Extension<AuditEvent>, Json<NewLeader>), Problem> {
    let namespace = caller.namespace(form.namespace.take())?;
    let leader = node(&app, &namespace)?.transfer_leadership(form.to()?).await?.to_string();
    let event = AuditEvent::new("ledger.step-down", &leader).in_namespace(namespace);
    Ok((Extension(event), Json(NewLeader { leader })))
}

/// The last index that a snapshot covers.
#[derive(Serialize, ToSchema)]
#[schema(as = LedgerSnapshot)]
pub(super) struct SnapshotView {
    through: u64,
}

/// Replaces all entries so far by a snapshot, on this node's disk.
#[utoipa::path(post, path = "/v1/ledger/snapshot", operation_id = "ledger_snapshot", tag = "ledger",
    security(("token" = ["admin"])),
    request_body = LedgerRef,
    responses(
        (status = 200, description = "The snapshot is on disk.", body = SnapshotView),
        (status = 404, description = "This daemon has no such ledger.", body = ProblemBody,
            content_type = "application/problem+json"),
    ))]
pub(super) async fn snapshot(
    State(app): State<App>,
    caller: Caller,
    JsonBody(ledger): JsonBody<LedgerRef>,
) -> Result<(Extension<AuditEvent>, Json<SnapshotView>), Problem> {
    let namespace = caller.namespace(ledger.namespace)?;
    let through = with_timeout(node(&app, &namespace)?.compact()).await?.0;
    let event = AuditEvent::new("ledger.snapshot", format!("through {through}")).in_namespace(namespace);
    Ok((Extension(event), Json(SnapshotView { through })))
}

/// The index of the change in the history.
#[derive(Serialize, ToSchema)]
#[schema(as = MembershipChanged)]
pub(super) struct MembershipChanged {
    index: u64,
}

type ChangeResponse = (Extension<AuditEvent>, Json<MembershipChanged>);

/// Adds a member, or changes the attributes of one.
#[utoipa::path(post, path = "/v1/ledger/members", operation_id = "ledger_add_member", tag = "ledger",
    security(("token" = ["admin"])),
    request_body = MemberForm,
    responses(
        (status = 200, description = "The node is a member.", body = MembershipChanged),
        (status = 404, description = "This daemon has no such ledger.", body = ProblemBody,
            content_type = "application/problem+json"),
        (status = 409, description = "The ledger has the maximum number of members.", body = ProblemBody,
            content_type = "application/problem+json"),
    ))]
pub(super) async fn add_member(
    State(app): State<App>,
    caller: Caller,
    JsonBody(mut form): JsonBody<MemberForm>,
) -> Result<ChangeResponse, Problem> {
    let namespace = caller.namespace(form.namespace.take())?;
    let node = node(&app, &namespace)?;
    let (key, member) = form.member()?;
    let index = committed_index(node.add_member(key, member, default_wait()).await?)?;
    Ok(respond("ledger.add-member", &key.to_string(), namespace, index))
}

/// Removes a member.
#[utoipa::path(delete, path = "/v1/ledger/members/{key}", operation_id = "ledger_remove_member", tag = "ledger",
    security(("token" = ["admin"])),
    params(("key" = String, Path, description = "The member's key."), LedgerRef),
    responses(
        (status = 200, description = "The node is no longer a member.", body = MembershipChanged),
        (status = 404, description = "This daemon has no such ledger, or the ledger has no such member.", body = ProblemBody,
            content_type = "application/problem+json"),
        (status = 409, description = "The ledger rejects the change; `detail` gives the reason.", body = ProblemBody,
            content_type = "application/problem+json"),
    ))]
pub(super) async fn remove_member(
    State(app): State<App>,
    caller: Caller,
    KeyPath(key): KeyPath,
    Query(ledger): Query<LedgerRef>,
) -> Result<ChangeResponse, Problem> {
    let namespace = caller.namespace(ledger.namespace)?;
    let node = node(&app, &namespace)?;
    let key = read_key("key", &key)?;
    let index = committed_index(node.remove_member(key, default_wait()).await?)?;
    Ok(respond("ledger.remove-member", &key.to_string(), namespace, index))
}

fn respond(action: &str, key: &str, namespace: String, index: Slot) -> ChangeResponse {
    let event = AuditEvent::new(action, key).in_namespace(namespace);
    (Extension(event), Json(MembershipChanged { index: index.0 }))
}

fn committed_index(outcome: Outcome<()>) -> Result<Slot, Problem> {
    match outcome {
        Outcome::Committed { index, .. } => Ok(index),
        Outcome::Failed { why: GoalError::NotThere(_), .. } => {
            let detail = "no member has this key; nothing has changed. `GET /v1/ledger` lists the members";
            Err(Problem::new(Kind::NoSuchMember, detail))
        }
        Outcome::Failed { why, .. } => Err(Problem::new(Kind::NotNow, why.to_string())),
        other => Err(unresolved(&other, "if `GET /v1/ledger` does not show it; a repetition does no harm")),
    }
}
