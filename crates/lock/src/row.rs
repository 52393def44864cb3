//! The state machine of one key in a store, as a pure model: every engine behaves like it. Time is an input.
//!
//! ```text
//!        acquire                    release, withdraw, force            acquire by the nonce of the reservation
//!   free ────────▶ held by a nonce ─────────────────────────▶ reserved ────────────────────────────────────────▶ held
//!     ▲                │  ▲                                     │
//!     │ lease expired  │  └─ renew, acquire by the same nonce   │ reservation ended, or no waiter
//!     └────────────────┴────────────────────────────────────────┘
//! ```

use std::time::Duration;

use crate::notify::Notification;
use crate::store::{AcquireOutcome, AcquireRefusal, RESERVATION};
use crate::token::TokenBase;
use crate::{Holder, LockKey, LockRecord, Nonce, Owner, Token};

/// The maximum number of recorded waiters. A waiter beyond it asks again like the others, but gets no reservation.
const MAX_WAITERS: usize = 4096;

/// A key: its holder, its waiters, and its reservation.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) token: Token,
    pub(crate) lease: Option<LeaseRow>,
    /// The waiters, in the order of their first request.
    pub(crate) waiters: Vec<Waiter>,
    pub(crate) reserved: Option<Waiter>,
    pub(crate) touched: Duration,
}

/// The holder, the time of the grant, and the expiry.
#[derive(Clone, Debug)]
pub(crate) struct LeaseRow {
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

impl Row {
    /// Returns the row of a key that was never held.
    pub(crate) fn new(now: Duration) -> Self {
        Self { token: Token::new(0), lease: None, waiters: Vec::new(), reserved: None, touched: now }
    }

    /// Grants the lock, or records the contender as a waiter.
    pub(crate) fn try_acquire(
        &mut self,
        owner: &Owner,
        lease: Duration,
        waits_for: Option<Duration>,
        token_base: TokenBase,
        now: Duration,
    ) -> AcquireOutcome {
        self.touched = now;
        self.waiters.retain(|waiter| waiter.until > now);
        let until = now.saturating_add(lease);
        if let Some(mine) = self.lease.as_mut().filter(|held| held.owner.nonce == owner.nonce) {
            mine.until = mine.until.max(until);
            return AcquireOutcome::Granted(mine.token);
        }
        if let Some(held) = self.refusal(owner.nonce, now) {
            return AcquireOutcome::Refused(self.register(held, owner.nonce, waits_for, now));
        }
        self.waiters.retain(|waiter| waiter.nonce != owner.nonce);
        self.reserved = None;
        self.token = self.token.next(token_base);
        self.lease = Some(LeaseRow { owner: owner.clone(), token: self.token, since: now, until });
        AcquireOutcome::Granted(self.token)
    }

    /// Returns the reason why the lock cannot be granted now, if there is one.
    fn refusal(&self, nonce: Nonce, now: Duration) -> Option<AcquireRefusal> {
        if let Some(holder) = self.holder(now) {
            return Some(AcquireRefusal { free_in: holder.ends_in, holder: Some(holder), waiting: 0 });
        }
        let reserved = self.reserved.filter(|reserved| reserved.until > now && reserved.nonce != nonce)?;
        Some(AcquireRefusal { holder: None, free_in: reserved.until.saturating_sub(now), waiting: 0 })
    }

    fn register(
        &mut self,
        held: AcquireRefusal,
        nonce: Nonce,
        waits_for: Option<Duration>,
        now: Duration,
    ) -> AcquireRefusal {
        let has_room = self.waiters.len() < MAX_WAITERS;
        if let Some(until) = waits_for.map(|waits_for| now.saturating_add(waits_for)) {
            match self.waiters.iter_mut().find(|waiter| waiter.nonce == nonce) {
                Some(mine) => mine.until = mine.until.max(until),
                None if has_room => self.waiters.push(Waiter { nonce, until }),
                None => {}
            }
        }
        AcquireRefusal { waiting: self.waiting(now), ..held }
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
    pub(crate) fn release(&mut self, nonce: Nonce, token: Token, now: Duration) -> Option<Notification> {
        let is_mine = |held: &LeaseRow| held.owner.nonce == nonce && held.token == token;
        self.lease.as_ref().is_some_and(is_mine).then(|| self.free(now))
    }

    /// Removes all state of a nonce. Returns the notification to send if that freed the lock.
    pub(crate) fn withdraw(&mut self, nonce: Nonce, now: Duration) -> Option<Notification> {
        self.waiters.retain(|waiter| waiter.nonce != nonce);
        let has_it = self.lease.as_ref().is_some_and(|held| held.owner.nonce == nonce);
        let was_next = self.reserved.is_some_and(|reserved| reserved.nonce == nonce);
        (has_it || was_next).then(|| self.free(now))
    }

    /// Takes the lock from its holder, and raises the token above all of the holder's.
    pub(crate) fn force_release(
        &mut self,
        token_base: TokenBase,
        now: Duration,
    ) -> Option<(Option<Holder>, Notification)> {
        self.lease.as_ref()?;
        let holder = self.holder(now);
        self.token = self.token.next(token_base);
        Some((holder, self.free(now)))
    }

    /// Frees the lock, and reserves it for the longest-waiting contender.
    fn free(&mut self, now: Duration) -> Notification {
        self.touched = now;
        self.lease = None;
        self.waiters.retain(|waiter| waiter.until > now);
        self.reserved = self
            .waiters
            .first()
            .map(|first| Waiter { nonce: first.nonce, until: now.saturating_add(RESERVATION) });
        self.reserved.map_or(Notification::MayBeFree, |reserved| Notification::ReservedFor(reserved.nonce))
    }

    /// Recovers the row of a store that may have lost later changes. If the lease has expired, the lock may have been
    /// granted again, and that grant lost: the earlier holder must not renew it. Waiters ask again.
    #[cfg(test)]
    pub(crate) fn recover(&mut self, now: Duration) {
        self.lease = self.lease.take().filter(|held| held.until > now);
        self.waiters.clear();
        self.reserved = None;
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
        let live = self.waiters.iter().filter(|waiter| waiter.until > now).count();
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
    pub(crate) fn record(&self, key: &LockKey, now: Duration) -> LockRecord {
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

    /// The clock stands at zero, so that tokens count the grants.
    const TOKEN_BASE: TokenBase = TokenBase { floor: Token::new(0), wall: Duration::ZERO };
    const SECOND: Duration = Duration::from_secs(1);

    fn nonce(number: u128) -> Nonce {
        Nonce::new(Uuid::from_u128(number))
    }

    fn acquire(row: &mut Row, number: u128, now: Duration) -> AcquireOutcome {
        let owner = Owner { nonce: nonce(number), name: number.to_string() };
        row.try_acquire(&owner, SECOND, Some(SECOND * 2), TOKEN_BASE, now)
    }

    fn granted(answer: AcquireOutcome) -> u64 {
        match answer {
            AcquireOutcome::Granted(token) => token.get(),
            AcquireOutcome::Refused(held) => panic!("{held:?}"),
        }
    }

    fn held(answer: AcquireOutcome) -> AcquireRefusal {
        match answer {
            AcquireOutcome::Granted(token) => panic!("granted with {token}"),
            AcquireOutcome::Refused(held) => held,
        }
    }

    #[test]
    fn a_repeated_request_keeps_the_token_and_extends_the_lease() {
        let mut row = Row::new(Duration::ZERO);
        assert_eq!(granted(acquire(&mut row, 1, Duration::ZERO)), 1);
        assert_eq!(granted(acquire(&mut row, 1, SECOND / 2)), 1);
        let held = held(acquire(&mut row, 2, SECOND));
        assert_eq!((held.free_in, held.waiting), (SECOND / 2, 1));
    }

    #[test]
    fn an_expired_lease_can_be_renewed_before_the_next_grant() {
        let mut row = Row::new(Duration::ZERO);
        let token = Token::new(granted(acquire(&mut row, 1, Duration::ZERO)));
        assert!(row.renew(nonce(1), token, SECOND, SECOND * 5));
        assert_eq!(granted(acquire(&mut row, 2, SECOND * 7)), 2);
        for stale in [token, row.token()] {
            assert!(!row.renew(nonce(1), stale, SECOND, SECOND * 7));
            assert_eq!(row.release(nonce(1), stale, SECOND * 7), None, "another nonce holds the lock");
        }
        assert!(!row.renew(nonce(2), token, SECOND, SECOND * 7), "the token is of an earlier grant");
        assert_eq!(row.release(nonce(2), token, SECOND * 7), None);
        assert_eq!(row.granted(nonce(2)), Some(Token::new(2)));
    }

    #[test]
    fn a_late_renewal_does_not_shorten_the_lease() {
        let mut row = Row::new(Duration::ZERO);
        let token = Token::new(granted(acquire(&mut row, 1, SECOND)));
        assert!(row.renew(nonce(1), token, SECOND / 4, SECOND));
        assert_eq!(row.holder(SECOND).map(|holder| holder.ends_in), Some(SECOND));
    }

    #[test]
    fn a_released_lock_is_reserved_for_the_longest_waiting_contender_for_a_limited_time() {
        let mut row = Row::new(Duration::ZERO);
        let token = Token::new(granted(acquire(&mut row, 1, Duration::ZERO)));
        for number in [2, 3] {
            held(acquire(&mut row, number, Duration::ZERO));
        }
        assert_eq!(row.release(nonce(1), token, SECOND / 2), Some(Notification::ReservedFor(nonce(2))));
        let reserved = held(acquire(&mut row, 1, SECOND / 2));
        assert!(
            reserved.holder.is_none() && reserved.free_in == RESERVATION,
            "the previous holder must not overtake"
        );
        held(acquire(&mut row, 3, SECOND / 2));
        assert_eq!(
            granted(acquire(&mut row.clone(), 3, SECOND / 2 + RESERVATION)),
            2,
            "the reservation has ended"
        );
        assert_eq!(granted(acquire(&mut row, 2, SECOND / 2)), 2);
    }

    #[test]
    fn a_waiter_that_stopped_asking_is_passed_over() {
        let mut row = Row::new(Duration::ZERO);
        let token = Token::new(granted(acquire(&mut row, 1, Duration::ZERO)));
        held(acquire(&mut row, 2, Duration::ZERO));
        held(acquire(&mut row, 3, SECOND / 2));
        let after = SECOND * 9 / 4;
        assert_eq!(row.release(nonce(1), token, after), Some(Notification::ReservedFor(nonce(3))));
        assert_eq!(row.withdraw(nonce(3), after), Some(Notification::MayBeFree), "no waiter is left");
        assert_eq!(granted(acquire(&mut row, 9, after)), 2);
    }

    #[test]
    fn leases_and_waiters_end_exactly_at_their_time() {
        let mut row = Row::new(Duration::ZERO);
        granted(acquire(&mut row, 1, Duration::ZERO));
        assert!(row.holder(Duration::from_nanos(999_999_999)).is_some() && row.holder(SECOND).is_none());
        for (number, at) in [(2, 0), (3, 1)] {
            row.renew(nonce(1), Token::new(1), SECOND * 2, SECOND);
            held(acquire(&mut row, number, SECOND * at));
        }
        assert_eq!((row.waiting(SECOND), row.waiting(SECOND * 2)), (2, 1));
        assert!(row.is_idle(SECOND, SECOND * 4) && !row.is_idle(SECOND * 2, SECOND * 4));
        held(acquire(&mut row, 2, SECOND * 2));
        assert_eq!(row.clone().withdraw(nonce(1), SECOND * 3), Some(Notification::ReservedFor(nonce(2))));
        assert_eq!(
            row.withdraw(nonce(1), SECOND * 2),
            Some(Notification::ReservedFor(nonce(3))),
            "the wait of 2 had ended"
        );
        granted(acquire(&mut row, 3, SECOND * 2));
        let next = row.withdraw(nonce(3), SECOND * 2);
        assert_eq!(next, Some(Notification::ReservedFor(nonce(2))), "a grant keeps the other waiters");
    }

    #[test]
    fn a_limited_number_of_waiters_is_recorded() {
        let mut row = Row::new(Duration::ZERO);
        granted(acquire(&mut row, 0, Duration::ZERO));
        row.waiters =
            (1..MAX_WAITERS as u128).map(|number| Waiter { nonce: nonce(number), until: SECOND }).collect();
        for number in [1, 2].map(|beyond| (MAX_WAITERS + beyond) as u128) {
            let waiting = held(acquire(&mut row, number, Duration::ZERO)).waiting;
            assert_eq!(usize::try_from(waiting), Ok(MAX_WAITERS));
        }
    }

    #[test]
    fn a_withdrawn_grant_or_reservation_passes_to_the_next_waiter() {
        let mut row = Row::new(Duration::ZERO);
        granted(acquire(&mut row, 1, Duration::ZERO));
        for number in [2, 3] {
            held(acquire(&mut row, number, Duration::ZERO));
        }
        assert_eq!(row.withdraw(nonce(1), SECOND / 2), Some(Notification::ReservedFor(nonce(2))));
        assert_eq!(row.withdraw(nonce(2), SECOND / 2), Some(Notification::ReservedFor(nonce(3))));
        assert_eq!(row.withdraw(nonce(7), SECOND / 2), None);
    }

    #[test]
    fn a_forced_release_raises_the_token_above_the_holders() {
        let mut row = Row::new(Duration::ZERO);
        let token = Token::new(granted(acquire(&mut row, 1, Duration::ZERO)));
        let (holder, notification) = row.force_release(TOKEN_BASE, Duration::ZERO).expect("the lock is held");
        assert_eq!((holder.map(|holder| holder.token), notification), (Some(token), Notification::MayBeFree));
        assert_eq!(row.token(), Token::new(2));
        assert!(!row.renew(nonce(1), token, SECOND, Duration::ZERO));
        assert!(row.force_release(TOKEN_BASE, Duration::ZERO).is_none());
        assert_eq!(granted(acquire(&mut row, 1, Duration::ZERO)), 3);
    }

    #[test]
    fn a_contender_that_does_not_wait_is_not_recorded() {
        let mut row = Row::new(Duration::ZERO);
        granted(acquire(&mut row, 1, Duration::ZERO));
        let owner = Owner { nonce: nonce(2), name: String::new() };
        let answer = row.try_acquire(&owner, SECOND, None, TOKEN_BASE, Duration::ZERO);
        assert_eq!(held(answer).waiting, 0);
        assert!(!row.is_idle(SECOND, SECOND) && row.is_idle(SECOND, SECOND * 2));
    }
}
