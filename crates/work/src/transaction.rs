//! Work inside the caller's own transaction: a submission or completion takes effect if and only if that transaction
//! commits.

use std::time::Duration;

use crate::store::{Exit, Report, Result, StepOutput};
use crate::{ClaimedStep, Completion, Context, Error, IntoOutput, Payload, StepId, clock};

/// A held step, from a handler's [`Context`] or a [`ClaimedStep`].
#[derive(Clone, Copy, Debug)]
pub struct HeldStep {
    pub(crate) step: StepId,
    pub(crate) lease: i64,
    has_children: bool,
    since: Duration,
}

impl HeldStep {
    pub(crate) fn success(&self, output: Payload) -> Report {
        Report {
            step: self.step,
            lease: self.lease,
            has_children: self.has_children,
            took: clock::now().saturating_sub(self.since),
            ctid_hint: None,
            attempt: 0,
            destination: None,
            trace: None,
            exit: Exit::Succeeded(StepOutput::whole(output)),
        }
    }

    pub(crate) fn fenced(&self) -> Error {
        Error::Fenced { step: self.step, lease: u64::try_from(self.lease).unwrap_or(0) }
    }
}

impl From<&Context> for HeldStep {
    fn from(context: &Context) -> Self {
        Self {
            step: context.step,
            lease: i64::try_from(context.token).unwrap_or(i64::MAX),
            has_children: context.has_children,
            since: context.since,
        }
    }
}

impl From<&ClaimedStep> for HeldStep {
    fn from(claim: &ClaimedStep) -> Self {
        Self {
            step: claim.row.step,
            lease: claim.row.lease,
            has_children: claim.row.has_children,
            since: claim.since,
        }
    }
}

/// Returns the output to store.
pub(crate) fn output_of(output: impl IntoOutput) -> Result<Payload> {
    match output.into_output() {
        Ok(Completion(output)) => Ok(output.unwrap_or_default().payload),
        Err(fault) => Err(Error::NotPossible(fault.to_string())),
    }
}

#[cfg(feature = "postgres")]
pub mod postgres {
    //! Work inside a Postgres transaction of your own, also through a pooler: no statement has a name.
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
    //! work.wake(); // or the workers find the task at their next poll
    //! # Ok(()) }
    //! ```

    use holdoff_sql::postgres::Session;
    use sqlx::PgConnection;

    use super::{HeldStep, output_of};
    use crate::engine::postgres::{notify_due, submit, succeed, unblock};
    use crate::store::{Exit, Result};
    use crate::{Completion, Error, IntoOutput, PreparedTasks, Submitted, Work};

    /// Submits tasks as part of the caller's transaction. The transaction must be on the database of the store. Call
    /// [`Work::wake`] after its commit.
    pub async fn submit_in(
        work: &Work,
        connection: &mut PgConnection,
        prepared: &PreparedTasks,
    ) -> Result<Vec<Submitted>> {
        let mut submitted = submit(&mut Session::of(connection), &prepared.tasks, false).await;
        if matches!(submitted, Err(Error::LaneRemoved)) {
            let renewed = work.with_renewed_lanes(&prepared.tasks).await?;
            submitted = submit(&mut Session::of(connection), &renewed, false).await;
        }
        let submitted = submitted?;
        work.count_submitted(&prepared.tasks, &submitted);
        Ok(submitted)
    }

    /// Wakes the workers of all nodes when the caller's transaction commits.
    ///
    /// Postgres takes a lock over the whole database when a transaction with a notification commits, so that such
    /// transactions commit one after the other. [`Work::wake`] after the commit does not need this lock.
    pub async fn notify_in(connection: &mut PgConnection) -> Result<()> {
        notify_due(&mut Session::of(connection)).await
    }

    /// Completes a step as part of the caller's transaction. The handler returns the value that this function returns.
    ///
    /// If the step no longer runs under this lease number, it fails with [`Error::Fenced`](crate::Error::Fenced). The
    /// caller then rolls back, and no effects of a stale worker remain.
    pub async fn complete_in(
        connection: &mut PgConnection,
        step: impl Into<HeldStep>,
        output: impl IntoOutput,
    ) -> Result<Completion> {
        let holding: HeldStep = step.into();
        let report = holding.success(output_of(output)?);
        let Exit::Succeeded(output) = &report.exit else { return Err(holding.fenced()) };
        let mut tx = Session::of(connection);
        let accepted = succeed(&mut tx, &[(&report, output)]).await?;
        if accepted.is_empty() {
            return Err(holding.fenced());
        }
        if report.has_children {
            unblock(&mut tx, &[report.step]).await?;
        }
        Ok(Completion(None))
    }
}

#[cfg(feature = "sqlite")]
pub mod sqlite {
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
    //! work.wake(); // or the workers find the task at their next poll
    //! # Ok(()) }
    //! ```

    use sqlx::SqliteConnection;

    use super::{HeldStep, output_of};
    use crate::engine::sqlite::{lane_ids, now_in, submit, succeed, unblock};
    use crate::store::{Exit, LaneLimits, Result};
    use crate::work::{Shared, lane_numbers, renumbered};
    use crate::{Completion, Error, IntoOutput, PreparedTasks, Submitted, Work};

    /// Submits tasks as part of the caller's transaction. The transaction must be on the database of the store. Call
    /// [`Work::wake`] after its commit.
    pub async fn submit_in(
        work: &Work,
        connection: &mut SqliteConnection,
        prepared: &PreparedTasks,
    ) -> Result<Vec<Submitted>> {
        let now = now_in(connection).await?;
        let mut submitted = submit(connection, now, &prepared.tasks, false).await;
        if matches!(submitted, Err(Error::LaneRemoved)) {
            // Another connection could not write now.
            let Shared { store, names, settings, .. } = &*work.shared;
            let old = lane_numbers(&prepared.tasks);
            let lanes = names.forget_lanes(&**store, &old).await?;
            let new = lane_ids(connection, &lanes, LaneLimits::of(settings)).await?;
            submitted = submit(connection, now, &renumbered(&prepared.tasks, old, new), false).await;
        }
        let submitted = submitted?;
        work.count_submitted(&prepared.tasks, &submitted);
        Ok(submitted)
    }

    /// Completes a step as part of the caller's transaction. The handler returns the value that this function returns.
    ///
    /// If the step no longer runs under this lease number, it fails with [`Error::Fenced`](crate::Error::Fenced). The
    /// caller then rolls back, and no effects of a stale worker remain.
    pub async fn complete_in(
        connection: &mut SqliteConnection,
        step: impl Into<HeldStep>,
        output: impl IntoOutput,
    ) -> Result<Completion> {
        let holding: HeldStep = step.into();
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
        Ok(Completion(None))
    }
}
