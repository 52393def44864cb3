//! The store, the resource, and the network to them.

use std::collections::BTreeMap;
use std::time::Duration;

use super::Mutant;
use super::verdict::Broken;
use crate::row::{Ground, Row};
use crate::store::Answer;
use crate::wakes::Heard;
use crate::{Nonce, Owner, Token};

const GROUND: Ground = Ground { era: 0, floor: Token::new(0) };

/// A contender's request to the store.
#[derive(Clone, Debug)]
pub(super) enum Request {
    Bid { owner: Owner, waits: Duration },
    Granted(Nonce),
    Renew(Nonce, Token),
    Release(Nonce, Token),
    Withdraw(Nonce),
}

/// The store's response.
#[derive(Clone, Debug)]
pub(super) enum Said {
    Bid(Answer),
    Granted(Option<Token>),
    Renewed(bool),
    Done,
}

/// The store: a row, and the record of its grants.
#[derive(Debug)]
pub(super) struct Store {
    pub(super) row: Row,
    lease: Duration,
    mutant: Mutant,
    granted: BTreeMap<Token, Nonce>,
}

impl Store {
    pub(super) fn new(lease: Duration, mutant: Mutant) -> Self {
        Self { row: Row::new(Duration::ZERO), lease, mutant, granted: BTreeMap::new() }
    }

    /// Executes a request. Returns the response, and the notification to the other contenders.
    pub(super) fn serve(
        &mut self,
        request: &Request,
        now: Duration,
    ) -> Result<(Said, Option<Heard>), Broken> {
        match request {
            Request::Bid { owner, waits } => {
                let answer = self.row.bid(owner, self.lease, Some(*waits), GROUND, now);
                self.note(owner.nonce, &answer)?;
                Ok((Said::Bid(answer), None))
            }
            Request::Granted(nonce) => Ok((Said::Granted(self.row.granted(*nonce)), None)),
            Request::Renew(nonce, token) => {
                Ok((Said::Renewed(self.row.renew(*nonce, *token, self.lease, now)), None))
            }
            Request::Release(nonce, token) => Ok((Said::Done, self.release(*nonce, *token, now))),
            Request::Withdraw(nonce) => Ok((Said::Done, self.row.withdraw(*nonce, now))),
        }
    }

    /// Executes a bid on an earlier state of the row, and overwrites the current state with the result.
    pub(super) fn overwrite(
        &mut self,
        mut before: Row,
        request: &Request,
        now: Duration,
    ) -> Result<Said, Broken> {
        let Request::Bid { owner, waits } = request else { return Ok(Said::Done) };
        let answer = before.bid(owner, self.lease, Some(*waits), GROUND, now);
        if let Answer::Granted(_) = answer {
            self.row = before;
        }
        self.note(owner.nonce, &answer)?;
        Ok(Said::Bid(answer))
    }

    fn release(&mut self, nonce: Nonce, token: Token, now: Duration) -> Option<Heard> {
        let (nonce, token) = match self.row.holder(now) {
            Some(holder) if self.mutant == Mutant::ReleaseWithoutOwner => (holder.owner.nonce, holder.token),
            _ => (nonce, token),
        };
        let heard = self.row.release(nonce, token, now);
        if heard.is_some() && self.mutant == Mutant::TokenReset {
            self.row = Row::new(now);
        }
        heard
    }

    fn note(&mut self, nonce: Nonce, answer: &Answer) -> Result<(), Broken> {
        let Answer::Granted(token) = *answer else { return Ok(()) };
        match self.granted.get(&token) {
            Some(known) if *known == nonce => return Ok(()),
            Some(_) => return Err(Broken::OneTokenForTwo(token)),
            None => {}
        }
        if let Some((old, _)) = self.granted.last_key_value().filter(|(old, _)| **old > token) {
            return Err(Broken::TokenFell { old: *old, new: token });
        }
        self.granted.insert(token, nonce);
        Ok(())
    }
}

/// The protected resource: it stores the highest token, and every write.
#[derive(Debug, Default)]
pub(super) struct Resource {
    seen: Option<Token>,
    pub(super) writes: Vec<(Token, Nonce)>,
    pub(super) refused: u32,
}

impl Resource {
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
    pub(super) fn audit(&self) -> Result<(), Broken> {
        for pair in self.writes.windows(2) {
            let [(seen, one), (late, other)] = [pair[0], pair[1]];
            if late < seen {
                return Err(Broken::LateWriteAccepted { late, seen });
            }
            if late == seen && one != other {
                return Err(Broken::TwoWroteWithOneToken(late));
            }
        }
        Ok(())
    }
}
