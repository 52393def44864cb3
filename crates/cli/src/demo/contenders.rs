//! Contenders for one lock, and a long-term holder of another.

use std::sync::Arc;
use std::time::Duration;

use holdoff_lock::{Locks, Token};
use parking_lot::Mutex;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::traffic::BILLING;

/// The key of the contended lock.
pub(super) const DEPLOY: &str = "deploy/production";
/// The key of the lock with a long-term holder, in the other namespace.
const STOCKTAKING: &str = "stocktaking";

const COUNT: u64 = 4;
const LEASE: Duration = Duration::from_secs(5);
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(60);
/// The pause after a failed acquisition.
const PAUSE_AFTER_FAILURE: Duration = Duration::from_secs(1);

/// The grants of the contended lock.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Grants {
    pub(super) granted: u64,
    pub(super) highest: Option<Token>,
    /// The number of grants whose fencing token was not above all earlier tokens. It must be 0.
    pub(super) out_of_order: u64,
}

impl Grants {
    fn record(&mut self, token: Token) {
        self.granted += 1;
        if self.highest.is_some_and(|highest| token <= highest) {
            self.out_of_order += 1;
        }
        self.highest = self.highest.max(Some(token));
    }
}

pub(super) struct Contenders {
    grants: Arc<Mutex<Grants>>,
    stop: CancellationToken,
    running: JoinSet<()>,
}

impl Contenders {
    /// Starts the contenders. Each opens its own connection to the store, as a separate process would.
    pub(super) async fn start(store: &str, seed: u64) -> Result<Self, holdoff_lock::Error> {
        let (grants, stop) = (Arc::<Mutex<Grants>>::default(), CancellationToken::new());
        let mut running = JoinSet::new();
        for number in 1..=COUNT {
            let locks = Locks::open(store).await?;
            let chance = fastrand::Rng::with_seed(seed.wrapping_add(number));
            running.spawn(contend(locks, number, chance, Arc::clone(&grants), stop.clone()));
        }
        running.spawn(hold(Locks::open(store).await?, stop.clone()));
        Ok(Self { grants, stop, running })
    }

    /// Stops all participants and returns the grants.
    pub(super) async fn stop(self) -> Grants {
        self.stop.cancel();
        self.running.join_all().await;
        *self.grants.lock()
    }
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
        match acquire.lease(LEASE).wait(ACQUIRE_TIMEOUT).cancel(stop.clone()).await {
            Ok(guard) => {
                // While this contender holds the lock, no other contender records a grant.
                grants.lock().record(guard.token());
                pause(chance.u64(1_000..3_000), &stop).await;
                // If the lease was lost, the lock belongs to another contender and the release may fail.
                let _ = guard.release().await;
            }
            Err(_) => pause(u64::try_from(PAUSE_AFTER_FAILURE.as_millis()).unwrap_or(u64::MAX), &stop).await,
        }
        pause(chance.u64(300..1_500), &stop).await;
    }
}

/// Holds the lock for as long as possible.
async fn hold(locks: Locks, stop: CancellationToken) {
    while !stop.is_cancelled() {
        let acquire = locks.acquire(STOCKTAKING).namespace(BILLING).name("night-batch");
        let Ok(guard) = acquire.lease(LEASE).wait(ACQUIRE_TIMEOUT).cancel(stop.clone()).await else {
            continue;
        };
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
    fn tokens_that_do_not_increase_are_counted() {
        let mut grants = Grants::default();
        for token in [1, 2, 5, 4, 6, 6] {
            grants.record(Token::new(token));
        }
        assert_eq!((grants.granted, grants.highest, grants.out_of_order), (6, Some(Token::new(6)), 2));
    }
}
