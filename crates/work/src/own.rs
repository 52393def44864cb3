//! Work inside the caller's own transaction: a submission or completion takes effect if and only if that transaction
//! commits.

#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(feature = "sqlite")]
pub mod sqlite;

use std::time::Duration;

use crate::store::{Exit, Report, Result};
use crate::work::Claim;
use crate::{Context, Error, IntoOutput, Payload, Ran, StepId, clock};

/// A held step, from a handler's [`Context`] or a [`Claim`].
#[derive(Clone, Copy, Debug)]
pub struct Holding {
    pub(crate) step: StepId,
    pub(crate) lease: i64,
    has_children: bool,
    since: Duration,
}

impl Holding {
    pub(crate) fn success(&self, output: Payload) -> Report {
        Report {
            step: self.step,
            lease: self.lease,
            has_children: self.has_children,
            took: clock::now().saturating_sub(self.since),
            whereabouts: None,
            attempt: 0,
            destination: None,
            exit: Exit::Succeeded(output),
        }
    }

    pub(crate) fn fenced(&self) -> Error {
        Error::Fenced { step: self.step, lease: u64::try_from(self.lease).unwrap_or(0) }
    }
}

impl From<&Context> for Holding {
    fn from(context: &Context) -> Self {
        Self {
            step: context.step,
            lease: i64::try_from(context.token).unwrap_or(i64::MAX),
            has_children: context.has_children,
            since: context.since,
        }
    }
}

impl From<&Claim> for Holding {
    fn from(claim: &Claim) -> Self {
        Self {
            step: claim.claimed.step,
            lease: claim.claimed.lease,
            has_children: claim.claimed.has_children,
            since: claim.since,
        }
    }
}

/// Returns the output to store.
pub(crate) fn output_of(output: impl IntoOutput) -> Result<Payload> {
    match output.into_output() {
        Ok(Ran::Output(output)) => Ok(output),
        Ok(Ran::Reported) => Ok(Payload::empty()),
        Err(fault) => Err(Error::NotPossible(fault.to_string())),
    }
}
