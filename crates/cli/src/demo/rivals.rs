//! Contenders for one lock, and a long-term holder of another.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use holdoff_lock::{Locks, Token};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::task::BILLING;

/// The key of the contended lock.
pub(super) const DEPLOY: &str = "deploy/production";
/// The key of the lock with a long-term holder, in the other namespace.
const STOCKTAKING: &str = "stocktaking";

const RIVALS: u64 = 4;
const LEASE: Duration = Duration::from_secs(5);
const PATIENCE: Duration = Duration::from_secs(60);
/// The pause after a failed acquisition.
const BREATHER: Duration = Duration::from_secs(1);

/// The grants of the contended lock.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Grants {
    pub(super) granted: u64,
    pub(super) highest: Option<Token>,
    /// The number of grants whose fencing token was not above all earlier tokens. It must be 0.
    pub(super) out_of_order: u64,
}

impl Grants {
    fn note(&mut self, token: Token) {
        self.granted += 1;
        if self.highest.is_some_and(|highest| token <= highest) {
            self.out_of_order += 1;
        }
        self.highest = self.highest.max(Some(token));
    }
}

pub(super) struct Rivals {
    grants: Arc<Mutex<Grants>>,
    stop: CancellationToken,
    running: JoinSet<()>,
}

impl Rivals {
    /// Starts the contenders. Each opens its own connection to the store, as a separate process would.
    pub(super) async fn start(store: &str, seed: u64) -> Result<Self, holdoff_lock::Error> {
        let (grants, stop) = (Arc::<Mutex<Grants>>::default(), CancellationToken::new());
        let mut running = JoinSet::new();
        for number in 1..=RIVALS {
            let locks = Locks::open(store).await?;
            let chance = fastrand::Rng::with_seed(seed.wrapping_add(number));
            running.spawn(contend(locks, number, chance, Arc::clone(&grants), stop.clone()));
        }
        running.spawn(keep(Locks::open(store).await?, stop.clone()));
        Ok(Self { grants, stop, running })
    }

    /// Stops all participants and returns the grants.
    pub(super) async fn stop(self) -> Grants {
        self.stop.cancel();
        self.running.join_all().await;
        *lock(&self.grants)
    }
}

/// Ignores poisoning: a panic in another task cannot leave a partial count.
fn lock(grants: &Mutex<Grants>) -> MutexGuard<'_, Grants> {
    grants.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn contend(
    locks: Locks,
    number: u64,
    mut chance: fastrand::Rng,
    grants: Arc<Mutex<Grants>>,
    stop: CancellationToken,
) {
    while !stop.is_cancelled() {
        let acquire = locks.acquire(DEPLOY).name(format!("ci-runner-{number}"));
        match acquire.lease(LEASE).wait(PATIENCE).cancel(stop.clone()).await {
            Ok(guard) => {
                // While this contender holds the lock, no other contender records a grant.
                lock(&grants).note(guard.token());
                pause(chance.u64(1_000..3_000), &stop).await;
                // If the lease was lost, the lock belongs to another contender and the release may fail.
                let _ = guard.release().await;
            }
            Err(_) => pause(u64::try_from(BREATHER.as_millis()).unwrap_or(u64::MAX), &stop).await,
        }
        pause(chance.u64(300..1_500), &stop).await;
    }
}

/// Holds the lock for as long as possible.
async fn keep(locks: Locks, stop: CancellationToken) {
    while !stop.is_cancelled() {
        let acquire = locks.acquire(STOCKTAKING).namespace(BILLING).name("night-batch");
        let Ok(guard) = acquire.lease(LEASE).wait(PATIENCE).cancel(stop.clone()).await else { continue };
        tokio::select! {
            () = guard.lost() => {}
            () = stop.cancelled() => {}
        }
        let _ = guard.release().await;
    }
}

async fn pause(ms: u64, stop: &CancellationToken) {
    let _ = stop.run_until_cancelled(tokio::time::sleep(Duration::from_millis(ms))).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_that_does_not_rise_is_noticed() {
        let mut grants = Grants::default();
        for token in [1, 2, 5, 4, 6, 6] {
            grants.note(Token::new(token));
        }
        assert_eq!((grants.granted, grants.highest, grants.out_of_order), (6, Some(Token::new(6)), 2));
    }
}
