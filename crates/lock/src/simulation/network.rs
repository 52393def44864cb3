//! The store, the resource, and the network to them.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{Mutant, Violation};
use crate::notify::Notification;
use crate::row::{Row, TokenBase};
use crate::store::AcquireOutcome;
use crate::{Nonce, Owner, Token};

const TOKEN_BASE: TokenBase = TokenBase { epoch: 0, floor: Token::new(0) };

/// A contender's request to the store.
#[derive(Clone, Debug)]
pub(super) enum StoreRequest {
    Acquire { owner: Owner, waits_for: Duration },
    Granted(Nonce),
    Renew(Nonce, Token),
    Release(Nonce, Token),
    Withdraw(Nonce),
}

/// The store's response.
#[derive(Clone, Debug)]
pub(super) enum Response {
    Acquire(AcquireOutcome),
    Granted(Option<Token>),
    Renewed(bool),
    Done,
}

/// The store: a row, and the record of its grants.
#[derive(Debug)]
pub(super) struct SimulatedStore {
    pub(super) row: Row,
    lease: Duration,
    mutant: Mutant,
    granted: BTreeMap<Token, Nonce>,
}

impl SimulatedStore {
    pub(super) fn new(lease: Duration, mutant: Mutant) -> Self {
        Self { row: Row::new(Duration::ZERO), lease, mutant, granted: BTreeMap::new() }
    }

    /// Executes a request. Returns the response, and the notification to the other contenders.
    pub(super) fn serve(
        &mut self,
        request: &StoreRequest,
        now: Duration,
    ) -> Result<(Response, Option<Notification>), Violation> {
        match request {
            StoreRequest::Acquire { owner, waits_for } => {
                let outcome = self.row.try_acquire(owner, self.lease, Some(*waits_for), TOKEN_BASE, now);
                self.record(owner.nonce, &outcome)?;
                Ok((Response::Acquire(outcome), None))
            }
            StoreRequest::Granted(nonce) => Ok((Response::Granted(self.row.granted(*nonce)), None)),
            StoreRequest::Renew(nonce, token) => {
                Ok((Response::Renewed(self.row.renew(*nonce, *token, self.lease, now)), None))
            }
            StoreRequest::Release(nonce, token) => Ok((Response::Done, self.release(*nonce, *token, now))),
            StoreRequest::Withdraw(nonce) => Ok((Response::Done, self.row.withdraw(*nonce, now))),
        }
    }

    /// Executes an acquisition on an earlier state of the row, and overwrites the current state with the result.
    pub(super) fn overwrite(
        &mut self,
        mut before: Row,
        request: &StoreRequest,
        now: Duration,
    ) -> Result<Response, Violation> {
        let StoreRequest::Acquire { owner, waits_for } = request else { return Ok(Response::Done) };
        let outcome = before.try_acquire(owner, self.lease, Some(*waits_for), TOKEN_BASE, now);
        if let AcquireOutcome::Granted(_) = outcome {
            self.row = before;
        }
        self.record(owner.nonce, &outcome)?;
        Ok(Response::Acquire(outcome))
    }

    fn release(&mut self, nonce: Nonce, token: Token, now: Duration) -> Option<Notification> {
        let (nonce, token) = match self.row.holder(now) {
            Some(holder) if self.mutant == Mutant::ReleaseWithoutOwner => (holder.owner.nonce, holder.token),
            _ => (nonce, token),
        };
        let notification = self.row.release(nonce, token, now);
        if notification.is_some() && self.mutant == Mutant::TokenReset {
            self.row = Row::new(now);
        }
        notification
    }

    fn record(&mut self, nonce: Nonce, outcome: &AcquireOutcome) -> Result<(), Violation> {
        let AcquireOutcome::Granted(token) = *outcome else { return Ok(()) };
        match self.granted.get(&token) {
            Some(known) if *known == nonce => return Ok(()),
            Some(_) => return Err(Violation::TokenGrantedTwice(token)),
            None => {}
        }
        if let Some((old, _)) = self.granted.last_key_value().filter(|(old, _)| **old > token) {
            return Err(Violation::TokenDecreased { old: *old, new: token });
        }
        self.granted.insert(token, nonce);
        Ok(())
    }
}

/// The protected resource: it stores the highest token, and every write.
#[derive(Debug, Default)]
pub(super) struct SimulatedResource {
    seen: Option<Token>,
    pub(super) writes: Vec<(Token, Nonce)>,
    pub(super) refused: u32,
}

impl SimulatedResource {
    /// Returns whether the write was accepted.
    pub(super) fn write(&mut self, token: Token, nonce: Nonce) -> bool {
        if self.seen.is_some_and(|seen| token < seen) {
            self.refused += 1;
            return false;
        }
        self.seen = Some(token);
        self.writes.push((token, nonce));
        true
    }

    /// Checks the recorded writes, independently of the code that accepted them.
    pub(super) fn audit(&self) -> Result<(), Violation> {
        for pair in self.writes.windows(2) {
            let [(seen, one), (late, other)] = [pair[0], pair[1]];
            if late < seen {
                return Err(Violation::LateWriteAccepted { late, seen });
            }
            if late == seen && one != other {
                return Err(Violation::TwoWritersWithOneToken(late));
            }
        }
        Ok(())
    }
}
