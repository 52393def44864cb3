//! The store, the resource, and the network to them.

use std::collections::BTreeMap;
use std::time::Duration;

use holdoff_policy::as_micros_u64;
use holdoff_sim::kernel::SimRng;

use super::run::SimulationPlan;
use super::{Mutant, Violation};
use crate::notify::Notification;
use crate::row::Row;
use crate::store::{AcquireOutcome, AcquireRefusal};
use crate::token::TokenBase;
use crate::{Nonce, Owner, Token};

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

/// The store: a row, its state on the disk, a backup, and the record of its grants.
///
/// Like Postgres, it measures leases by a wall clock. It writes a renewal to the disk before it responds, and grants and
/// releases some time later.
#[derive(Debug)]
pub(super) struct SimulatedStore {
    pub(super) row: Row,
    disk: Disk,
    backup: Disk,
    /// How far the wall clock is ahead.
    ahead_us: u64,
    /// Before this time the store grants no lock: leases that it has lost may still be valid.
    grants_from: Duration,
    lease: Duration,
    mutant: Mutant,
    rng: SimRng,
    granted: BTreeMap<Token, Nonce>,
    /// The nonces that have released the lock. A late renewal by one of them is harmless.
    released: Vec<Nonce>,
    /// The violation by the last request, if it was a renewal below a granted token.
    pub(super) renewed_stale: Option<Violation>,
}

/// How far the ceiling is above the token that raises it.
const RESERVE: Duration = Duration::from_secs(3);

/// The state that survives a crash.
#[derive(Clone, Debug)]
struct Disk {
    row: Row,
    floor: Token,
    /// A grant that does not wait for the disk has a token below it.
    ceiling: Token,
}

impl SimulatedStore {
    pub(super) fn new(plan: &SimulationPlan, mutant: Mutant) -> Self {
        let row = Row::new(Duration::from_micros(plan.store_ahead_us));
        let disk = Disk { row: row.clone(), floor: Token::new(0), ceiling: Token::new(0) };
        let (backup, ahead_us) = (disk.clone(), plan.store_ahead_us);
        Self {
            row,
            disk,
            backup,
            ahead_us,
            grants_from: Duration::ZERO,
            lease: plan.lease,
            mutant,
            rng: SimRng::of(plan.seed, 1 << 33),
            granted: BTreeMap::new(),
            released: Vec::new(),
            renewed_stale: None,
        }
    }

    /// Returns the time on the wall clock.
    pub(super) fn time(&self, now_us: u64) -> Duration {
        Duration::from_micros(now_us + self.ahead_us)
    }

    /// Sets the wall clock.
    pub(super) fn set_clock(&mut self, ahead_us: u64) {
        self.ahead_us = ahead_us;
    }

    /// Copies the disk, as a base backup does.
    pub(super) fn back_up(&mut self) {
        self.backup = self.disk.clone();
    }

    /// Returns whether a crash would lose a grant now.
    pub(super) fn has_unwritten_grant(&self) -> bool {
        self.row.token() > self.disk.row.token()
    }

    /// Loses all changes that are not on the disk, and recovers. Returns whether a grant was lost.
    pub(super) fn crash(&mut self, now: Duration) -> bool {
        let known = std::mem::replace(&mut self.row, self.disk.row.clone()).token();
        self.disk.floor = match self.mutant {
            Mutant::NoCeiling => self.disk.floor,
            _ => self.disk.floor.max(self.disk.ceiling),
        };
        let floor_in = Duration::from_micros(self.disk.floor.get()).saturating_sub(now).min(RESERVE);
        self.grants_from = match self.mutant {
            Mutant::NoWaitAfterCrash => now,
            Mutant::TokensAheadOfClock => now + self.lease,
            _ => now + self.lease.max(floor_in),
        };
        if self.mutant != Mutant::ExpiredHolderKept {
            self.row.recover(now);
        }
        self.disk.row = self.row.clone();
        known > self.row.token()
    }

    /// Replaces the disk by the backup, and recovers. Returns whether a grant was lost.
    pub(super) fn restore(&mut self, now: Duration) -> bool {
        self.disk = self.backup.clone();
        self.crash(now)
    }

    fn token_base(&self, now: Duration) -> TokenBase {
        let wall = if self.mutant == Mutant::CountedTokens { Duration::ZERO } else { now };
        TokenBase { floor: self.disk.floor, wall }
    }

    /// Executes a request. Returns the response, and the notification to the other contenders.
    pub(super) fn serve(
        &mut self,
        request: &StoreRequest,
        now: Duration,
    ) -> Result<(Response, Option<Notification>), Violation> {
        match request {
            StoreRequest::Acquire { .. } if now < self.grants_from => {
                let free_in = self.grants_from.saturating_sub(now);
                let refusal = AcquireRefusal { free_in, ..AcquireRefusal::default() };
                Ok((Response::Acquire(AcquireOutcome::Refused(refusal)), None))
            }
            StoreRequest::Acquire { owner, waits_for } => {
                let token_base = self.token_base(now);
                let outcome = self.row.try_acquire(owner, self.lease, Some(*waits_for), token_base, now);
                self.record(owner.nonce, &outcome)?;
                self.write_later();
                Ok((Response::Acquire(outcome), None))
            }
            StoreRequest::Granted(nonce) => Ok((Response::Granted(self.row.granted(*nonce)), None)),
            StoreRequest::Renew(nonce, token) => {
                let renewed = self.row.renew(*nonce, *token, self.lease, now);
                if renewed {
                    self.disk.row = self.row.clone();
                    self.renewed_stale = self.granted.last_key_value().and_then(|(highest, _)| {
                        let is_stale = highest > token && !self.released.contains(nonce);
                        is_stale.then_some(Violation::StaleRenewal { token: *token, highest: *highest })
                    });
                }
                Ok((Response::Renewed(renewed), None))
            }
            StoreRequest::Release(nonce, token) => {
                self.released.push(*nonce);
                let notification = self.release(*nonce, *token, now);
                self.write_later();
                Ok((Response::Done, notification))
            }
            StoreRequest::Withdraw(nonce) => {
                let notification = self.row.withdraw(*nonce, now);
                self.write_later();
                Ok((Response::Done, notification))
            }
        }
    }

    /// Writes a change to the disk, or leaves it in memory until a later change is written.
    fn write_later(&mut self) {
        if self.rng.happens(0.2) {
            self.disk.row = self.row.clone();
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
        let outcome = before.try_acquire(owner, self.lease, Some(*waits_for), self.token_base(now), now);
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
        if token >= self.disk.ceiling {
            let ceiling = Token::new(token.get() + as_micros_u64(RESERVE));
            self.disk = Disk { row: self.row.clone(), ceiling, ..self.disk };
        }
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
