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

/// Takes tasks in as part of the caller's transaction. The store must be the same database.
pub async fn submit_in(
    work: &Work,
    connection: &mut PgConnection,
    prepared: &Prepared,
) -> Result<Vec<Submitted>> {
    let submitted = submit(connection, &prepared.tasks, false).await?;
    work.count_in(&prepared.tasks, &submitted);
    Ok(submitted)
}

/// Completes a step as part of the caller's transaction; a handler returns what this returns.
///
/// If somebody else has the step by now, it fails with [`Error::Fenced`](crate::Error::Fenced): roll back, and
/// nothing of a stale worker's effects stays.
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
