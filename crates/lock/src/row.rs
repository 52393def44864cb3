//! The state machine of one key in a store, as a pure model: every engine behaves like it. Time is an input.
//!
//! ```text
//!            bid                       release, withdraw, force          bid of the one it is kept for
//!   free ─────────▶ held by a nonce ──────────────────────────▶ kept ──────────────────────────────▶ held
//!     ▲                 │  ▲                                     │
//!     │   lease over    │  └─ renew, bid of the same nonce       │ headstart over, or nobody waits
//!     └─────────────────┴────────────────────────────────────────┘
//! ```

use std::time::Duration;

use crate::store::{Answer, HEADSTART, Held};
use crate::wakes::Heard;
use crate::{Holder, Key, LockRecord, Nonce, Owner, Token};

/// The maximum number of recorded waiters. A waiter beyond it asks again like the others, but gets no reservation.
const MOST_WAITERS: usize = 4096;

/// A key: its holder, its waiters, and its reservation.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) token: Token,
    pub(crate) lease: Option<Lease>,
    /// The waiters, in the order of their first request.
    pub(crate) line: Vec<Waiter>,
    pub(crate) kept: Option<Waiter>,
    pub(crate) touched: Duration,
}

/// The holder, the time of the grant, and the expiry.
#[derive(Clone, Debug)]
pub(crate) struct Lease {
    pub(crate) owner: Owner,
    pub(crate) token: Token,
    pub(crate) since: Duration,
    pub(crate) until: Duration,
}

/// A waiter, and the time until which it counts as waiting.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiter {
    pub(crate) nonce: Nonce,
    pub(crate) until: Duration,
}

/// The base of the tokens of a whole store.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ground {
    pub(crate) era: u64,
    /// The highest token of all pruned locks.
    pub(crate) floor: Token,
}

impl Row {
    /// Returns the row of a key that was never held.
    pub(crate) fn new(now: Duration) -> Self {
        Self { token: Token::new(0), lease: None, line: Vec::new(), kept: None, touched: now }
    }

    /// Grants the lock, or records the contender as a waiter.
    pub(crate) fn bid(
        &mut self,
        owner: &Owner,
        lease: Duration,
        waits: Option<Duration>,
        ground: Ground,
        now: Duration,
    ) -> Answer {
        self.touched = now;
        self.line.retain(|waiter| waiter.until > now);
        let until = now.saturating_add(lease);
        if let Some(mine) = self.lease.as_mut().filter(|held| held.owner.nonce == owner.nonce) {
            mine.until = mine.until.max(until);
            return Answer::Granted(mine.token);
        }
        if let Some(held) = self.obstacle(owner.nonce, now) {
            return Answer::Held(self.noted(held, owner.nonce, waits, now));
        }
        self.line.retain(|waiter| waiter.nonce != owner.nonce);
        self.kept = None;
        self.token = self.token.next(ground.era, ground.floor);
        self.lease = Some(Lease { owner: owner.clone(), token: self.token, since: now, until });
        Answer::Granted(self.token)
    }

    /// Returns the reason why the lock cannot be granted now, if there is one.
    fn obstacle(&self, nonce: Nonce, now: Duration) -> Option<Held> {
        if let Some(holder) = self.holder(now) {
            return Some(Held { free_in: holder.ends_in, holder: Some(holder), waiting: 0 });
        }
        let kept = self.kept.filter(|kept| kept.until > now && kept.nonce != nonce)?;
        Some(Held { holder: None, free_in: kept.until.saturating_sub(now), waiting: 0 })
    }

    fn noted(&mut self, held: Held, nonce: Nonce, waits: Option<Duration>, now: Duration) -> Held {
        let has_room = self.line.len() < MOST_WAITERS;
        if let Some(until) = waits.map(|waits| now.saturating_add(waits)) {
            match self.line.iter_mut().find(|waiter| waiter.nonce == nonce) {
                Some(mine) => mine.until = mine.until.max(until),
                None if has_room => self.line.push(Waiter { nonce, until }),
                None => {}
            }
        }
        Held { waiting: self.waiting(now), ..held }
    }

    /// Extends the lease. Returns false if this nonce and token do not hold the lock.
    pub(crate) fn renew(&mut self, nonce: Nonce, token: Token, lease: Duration, now: Duration) -> bool {
        let mine = self.lease.as_mut().filter(|held| held.owner.nonce == nonce && held.token == token);
        let Some(mine) = mine else { return false };
        // A delayed renewal must not shorten the lease.
        mine.until = mine.until.max(now.saturating_add(lease));
        self.touched = now;
        true
    }

    /// Releases the lock if this nonce and token hold it. Returns the notification to send.
    pub(crate) fn release(&mut self, nonce: Nonce, token: Token, now: Duration) -> Option<Heard> {
        let is_mine = |held: &Lease| held.owner.nonce == nonce && held.token == token;
        self.lease.as_ref().is_some_and(is_mine).then(|| self.let_go(now))
    }

    /// Removes all state of a nonce. Returns the notification to send if that freed the lock.
    pub(crate) fn withdraw(&mut self, nonce: Nonce, now: Duration) -> Option<Heard> {
        self.line.retain(|waiter| waiter.nonce != nonce);
        let has_it = self.lease.as_ref().is_some_and(|held| held.owner.nonce == nonce);
        let was_next = self.kept.is_some_and(|kept| kept.nonce == nonce);
        (has_it || was_next).then(|| self.let_go(now))
    }

    /// Takes the lock from its holder, and raises the token above all of the holder's.
    pub(crate) fn force_release(&mut self, ground: Ground, now: Duration) -> Option<(Option<Holder>, Heard)> {
        self.lease.as_ref()?;
        let holder = self.holder(now);
        self.token = self.token.next(ground.era, ground.floor);
        Some((holder, self.let_go(now)))
    }

    /// Frees the lock, and reserves it for the longest-waiting contender.
    fn let_go(&mut self, now: Duration) -> Heard {
        self.touched = now;
        self.lease = None;
        self.line.retain(|waiter| waiter.until > now);
        self.kept = self
            .line
            .first()
            .map(|first| Waiter { nonce: first.nonce, until: now.saturating_add(HEADSTART) });
        self.kept.map_or(Heard::Maybe, |kept| Heard::Next(kept.nonce))
    }

    /// Returns the token with which this nonce holds the lock, also after its lease has expired, until the next grant.
    pub(crate) fn granted(&self, nonce: Nonce) -> Option<Token> {
        self.lease.as_ref().filter(|held| held.owner.nonce == nonce).map(|held| held.token)
    }

    /// Returns the holder, unless its lease has expired.
    pub(crate) fn holder(&self, now: Duration) -> Option<Holder> {
        self.lease.as_ref().filter(|held| held.until > now).map(|held| Holder {
            owner: held.owner.clone(),
            token: held.token,
            held_for: now.saturating_sub(held.since),
            ends_in: held.until.saturating_sub(now),
        })
    }

    /// Returns the number of waiters.
    pub(crate) fn waiting(&self, now: Duration) -> u32 {
        let live = self.line.iter().filter(|waiter| waiter.until > now).count();
        u32::try_from(live).unwrap_or(u32::MAX)
    }

    /// Returns the highest token ever granted.
    pub(crate) fn token(&self) -> Token {
        self.token
    }

    /// Returns whether the lock was neither held nor requested for `idle_for`.
    pub(crate) fn is_idle(&self, idle_for: Duration, now: Duration) -> bool {
        let held_until = self.lease.as_ref().map_or(Duration::ZERO, |held| held.until);
        let last = self.touched.max(held_until);
        self.waiting(now) == 0 && last.saturating_add(idle_for) <= now
    }

    /// Returns the state of the lock for display.
    pub(crate) fn record(&self, key: &Key, now: Duration) -> LockRecord {
        LockRecord {
            namespace: key.namespace().to_owned(),
            key: key.readable().to_owned(),
            digest: key.hex(),
            token: self.token,
            holder: self.holder(now),
            waiting: self.waiting(now),
        }
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    const GROUND: Ground = Ground { era: 0, floor: Token::new(0) };
    const SECOND: Duration = Duration::from_secs(1);

    fn nonce(number: u128) -> Nonce {
        Nonce::new(Uuid::from_u128(number))
    }

    fn bid(row: &mut Row, number: u128, now: Duration) -> Answer {
        let owner = Owner { nonce: nonce(number), name: number.to_string() };
        row.bid(&owner, SECOND, Some(SECOND * 2), GROUND, now)
    }

    fn granted(answer: Answer) -> u64 {
        match answer {
            Answer::Granted(token) => token.get(),
            Answer::Held(held) => panic!("{held:?}"),
        }
    }

    fn held(answer: Answer) -> Held {
        match answer {
            Answer::Granted(token) => panic!("granted with {token}"),
            Answer::Held(held) => held,
        }
    }

    #[test]
    fn asking_twice_with_one_nonce_is_granted_once_and_lasts_longer() {
        let mut row = Row::new(Duration::ZERO);
        assert_eq!(granted(bid(&mut row, 1, Duration::ZERO)), 1);
        assert_eq!(granted(bid(&mut row, 1, SECOND / 2)), 1);
        let held = held(bid(&mut row, 2, SECOND));
        assert_eq!((held.free_in, held.waiting), (SECOND / 2, 1));
    }

    #[test]
    fn a_lease_that_is_over_may_be_renewed_until_somebody_takes_it() {
        let mut row = Row::new(Duration::ZERO);
        let token = Token::new(granted(bid(&mut row, 1, Duration::ZERO)));
        assert!(row.renew(nonce(1), token, SECOND, SECOND * 5));
        assert_eq!(granted(bid(&mut row, 2, SECOND * 7)), 2);
        assert!(!row.renew(nonce(1), token, SECOND, SECOND * 7));
        assert_eq!(row.release(nonce(1), token, SECOND * 7), None, "it is another's");
        assert_eq!(row.granted(nonce(2)), Some(Token::new(2)));
    }

    #[test]
    fn a_late_renewal_does_not_shorten_the_lease() {
        let mut row = Row::new(Duration::ZERO);
        let token = Token::new(granted(bid(&mut row, 1, SECOND)));
        assert!(row.renew(nonce(1), token, SECOND / 4, SECOND));
        assert_eq!(row.holder(SECOND).map(|holder| holder.ends_in), Some(SECOND));
    }

    #[test]
    fn it_is_kept_for_the_one_that_waits_longest_and_only_for_a_moment() {
        let mut row = Row::new(Duration::ZERO);
        let token = Token::new(granted(bid(&mut row, 1, Duration::ZERO)));
        for number in [2, 3] {
            held(bid(&mut row, number, Duration::ZERO));
        }
        assert_eq!(row.release(nonce(1), token, SECOND / 2), Some(Heard::Next(nonce(2))));
        let kept = held(bid(&mut row, 1, SECOND / 2));
        assert!(kept.holder.is_none() && kept.free_in == HEADSTART, "the one that let go must not barge in");
        held(bid(&mut row, 3, SECOND / 2));
        assert_eq!(granted(bid(&mut row.clone(), 3, SECOND / 2 + HEADSTART)), 2, "the moment is over");
        assert_eq!(granted(bid(&mut row, 2, SECOND / 2)), 2);
    }

    #[test]
    fn one_that_stopped_asking_is_passed_over() {
        let mut row = Row::new(Duration::ZERO);
        let token = Token::new(granted(bid(&mut row, 1, Duration::ZERO)));
        held(bid(&mut row, 2, Duration::ZERO));
        held(bid(&mut row, 3, SECOND / 2));
        let after = SECOND * 9 / 4;
        assert_eq!(row.release(nonce(1), token, after), Some(Heard::Next(nonce(3))));
        assert_eq!(row.withdraw(nonce(3), after), Some(Heard::Maybe), "nobody is left");
        assert_eq!(granted(bid(&mut row, 9, after)), 2);
    }

    #[test]
    fn a_withdrawn_grant_and_a_withdrawn_turn_are_handed_on() {
        let mut row = Row::new(Duration::ZERO);
        granted(bid(&mut row, 1, Duration::ZERO));
        for number in [2, 3] {
            held(bid(&mut row, number, Duration::ZERO));
        }
        assert_eq!(row.withdraw(nonce(1), SECOND / 2), Some(Heard::Next(nonce(2))));
        assert_eq!(row.withdraw(nonce(2), SECOND / 2), Some(Heard::Next(nonce(3))));
        assert_eq!(row.withdraw(nonce(7), SECOND / 2), None);
    }

    #[test]
    fn force_raises_the_token_so_that_the_old_one_is_refused() {
        let mut row = Row::new(Duration::ZERO);
        let token = Token::new(granted(bid(&mut row, 1, Duration::ZERO)));
        let (holder, heard) = row.force_release(GROUND, Duration::ZERO).expect("it is held");
        assert_eq!((holder.map(|holder| holder.token), heard), (Some(token), Heard::Maybe));
        assert_eq!(row.token(), Token::new(2));
        assert!(!row.renew(nonce(1), token, SECOND, Duration::ZERO));
        assert!(row.force_release(GROUND, Duration::ZERO).is_none());
        assert_eq!(granted(bid(&mut row, 1, Duration::ZERO)), 3);
    }

    #[test]
    fn one_that_will_not_wait_is_not_noted() {
        let mut row = Row::new(Duration::ZERO);
        granted(bid(&mut row, 1, Duration::ZERO));
        let owner = Owner { nonce: nonce(2), name: String::new() };
        let answer = row.bid(&owner, SECOND, None, GROUND, Duration::ZERO);
        assert_eq!(held(answer).waiting, 0);
        assert!(!row.is_idle(SECOND, SECOND) && row.is_idle(SECOND, SECOND * 2));
    }
}
