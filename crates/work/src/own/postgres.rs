//! Work inside a Postgres transaction of your own.
//!
//! ```no_run
//! use holdoff_policy::PolicySet;
//! use holdoff_work::{Task, Work, postgres};
//!
//! # async fn order(pool: &sqlx::PgPool, work: &Work) -> Result<(), Box<dyn std::error::Error>> {
//! let confirm = work.prepare(vec![Task::new("order.confirm").json(&7)]).await?;
//! let mut tx = pool.begin().await?;
//! sqlx::query("insert into orders (id) values (7)").execute(&mut *tx).await?;
//! postgres::submit_in(work, &mut tx, &confirm).await?;
//! tx.commit().await?; // both, or neither
//! # Ok(()) }
//! ```

use sqlx::PgConnection;

use crate::engine::postgres::{submit, succeed, unblock};
use crate::own::{Holding, output_of};
use crate::store::{Exit, Result};
use crate::{IntoOutput, Prepared, Ran, Submitted, Work};

/// Submits tasks as part of the caller's transaction. The transaction must be on the database of the store.
pub async fn submit_in(
    work: &Work,
    connection: &mut PgConnection,
    prepared: &Prepared,
) -> Result<Vec<Submitted>> {
    let submitted = submit(connection, &prepared.tasks, false).await?;
    work.count_in(&prepared.tasks, &submitted);
    Ok(submitted)
}

/// Completes a step as part of the caller's transaction. The handler returns the value that this function returns.
///
/// If the lease is no longer valid, it fails with [`Error::Fenced`](crate::Error::Fenced). The caller then rolls back,
/// and no effects of a stale worker remain.
pub async fn complete_in(
    connection: &mut PgConnection,
    step: impl Into<Holding>,
    output: impl IntoOutput,
) -> Result<Ran> {
    let holding: Holding = step.into();
    let report = holding.success(output_of(output)?);
    let Exit::Succeeded(output) = &report.exit else { return Err(holding.fenced()) };
    let accepted = succeed(connection, &[(&report, output)]).await?;
    if accepted.is_empty() {
        return Err(holding.fenced());
    }
    if report.has_children {
        unblock(connection, &[report.step]).await?;
    }
    Ok(Ran::Reported)
}
