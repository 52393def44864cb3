//! Work inside a SQLite transaction of your own, on the same file.
//!
//! Begin the transaction with `begin immediate`: a transaction that reads first finds the database locked when it
//! writes.
//!
//! ```no_run
//! use holdoff_policy::PolicySet;
//! use holdoff_work::{Task, Work, sqlite};
//!
//! # async fn order(pool: &sqlx::SqlitePool, work: &Work) -> Result<(), Box<dyn std::error::Error>> {
//! let confirm = work.prepare(vec![Task::new("order.confirm").json(&7)]).await?;
//! let mut tx = pool.begin_with("begin immediate").await?;
//! sqlx::query("insert into orders (id) values (7)").execute(&mut *tx).await?;
//! sqlite::submit_in(work, &mut tx, &confirm).await?;
//! tx.commit().await?; // both, or neither
//! # Ok(()) }
//! ```

use sqlx::SqliteConnection;

use crate::engine::sqlite::{now_in, submit, succeed, unblock};
use crate::own::{Holding, output_of};
use crate::store::{Exit, Result};
use crate::{IntoOutput, Prepared, Ran, Submitted, Work};

/// Submits tasks as part of the caller's transaction. The transaction must be on the database of the store.
pub async fn submit_in(
    work: &Work,
    connection: &mut SqliteConnection,
    prepared: &Prepared,
) -> Result<Vec<Submitted>> {
    let now = now_in(connection).await?;
    let submitted = submit(connection, now, &prepared.tasks, false).await?;
    work.count_in(&prepared.tasks, &submitted);
    Ok(submitted)
}

/// Completes a step as part of the caller's transaction. The handler returns the value that this function returns.
///
/// If the lease is no longer valid, it fails with [`Error::Fenced`](crate::Error::Fenced). The caller then rolls back,
/// and no effects of a stale worker remain.
pub async fn complete_in(
    connection: &mut SqliteConnection,
    step: impl Into<Holding>,
    output: impl IntoOutput,
) -> Result<Ran> {
    let holding: Holding = step.into();
    let report = holding.success(output_of(output)?);
    let Exit::Succeeded(output) = &report.exit else { return Err(holding.fenced()) };
    let now = now_in(connection).await?;
    let accepted = succeed(connection, now, &[(&report, output)]).await?;
    if accepted.is_empty() {
        return Err(holding.fenced());
    }
    if report.has_children {
        unblock(connection, now, &[report.step]).await?;
    }
    Ok(Ran::Reported)
}
