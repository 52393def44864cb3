//! The faults of the processes, of Postgres, and of a ledger.

use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fastrand::Rng;
use holdoff_testbed::Postgres;
use rustix::process::Signal;
use sqlx::{Connection as _, PgConnection};
use tokio::time::{Instant, sleep};

use crate::chaos::fleet::{Fleet, SIZE};
use crate::chaos::resource::Resource;
use crate::chaos::worker::LEASE;
use crate::node::ledger::Cluster;

pub(crate) type Shared = Arc<Mutex<Fleet>>;

pub(crate) fn lock(fleet: &Shared) -> MutexGuard<'_, Fleet> {
    fleet.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns a time between half and one and a half of this.
fn about(rng: &mut Rng, time: Duration) -> Duration {
    time.mul_f64(0.5 + rng.f64())
}

/// The slot that is paused. The other slots may be killed.
const PAUSED: usize = 0;

/// Waits until a process in these slots holds a lock. Returns its slot, the lock, and the token; `None` at the end.
async fn holder(
    fleet: &Shared,
    slots: RangeInclusive<usize>,
    until: Instant,
) -> Option<(usize, String, i64)> {
    while Instant::now() < until {
        let held = |slot| lock(fleet).held_by(slot).map(|(key, token)| (slot, key, token));
        if let Some(found) = slots.clone().find_map(held) {
            return Some(found);
        }
        sleep(Duration::from_millis(1)).await;
    }
    None
}

/// Kills processes until the end, and returns the number of kills.
pub(crate) async fn kill(fleet: Shared, mut rng: Rng, until: Instant) -> u64 {
    let mut kills = 0;
    while Instant::now() < until {
        sleep(about(&mut rng, Duration::from_millis(900))).await;
        lock(&fleet).replace(rng.usize(PAUSED + 1..SIZE));
        kills += 1;
    }
    kills
}

/// Pauses a holder until another process has written with a higher token, and then resumes it while it still considers
/// the lock its own. Returns the number of pauses.
pub(crate) async fn pause(fleet: Shared, resource: Arc<Resource>, mut rng: Rng, until: Instant) -> u64 {
    let mut pauses = 0;
    while Instant::now() < until {
        sleep(about(&mut rng, Duration::from_millis(200))).await;
        let Some((_, key, token)) = holder(&fleet, PAUSED..=PAUSED, until).await else { return pauses };
        lock(&fleet).signal(PAUSED, Signal::STOP);
        let paused = Instant::now();
        // Possibly no other process wants the lock.
        while paused.elapsed() < 4 * LEASE && resource.highest(&key).await.is_none_or(|seen| seen <= token) {
            sleep(Duration::from_millis(10)).await;
        }
        lock(&fleet).signal(PAUSED, Signal::CONT);
        pauses += u64::from(paused.elapsed() > LEASE);
    }
    pauses
}

/// Repeatedly terminates some connections, and returns their number.
pub(crate) async fn terminate(url: String, mut rng: Rng, until: Instant) -> u64 {
    let mut terminated = 0;
    while Instant::now() < until {
        sleep(about(&mut rng, Duration::from_millis(200))).await;
        let query = "select count(*) filter (where pg_terminate_backend(pid)) from (
                select pid from pg_stat_activity where application_name = 'holdoff'
                order by md5(pid::text || $1) limit 2
            ) unlucky";
        // The server may be down at the moment.
        let Ok(mut connection) = PgConnection::connect(&url).await else { continue };
        let cut = sqlx::query_scalar::<_, i64>(query).bind(rng.u64(..).to_string());
        terminated += u64::try_from(cut.fetch_one(&mut connection).await.unwrap_or(0)).unwrap();
    }
    terminated
}

/// Crashes the server while a process holds a lock, and keeps it down for longer than a lease every second time.
/// Returns the number of crashes.
pub(crate) async fn crash(fleet: Shared, server: Arc<Postgres>, until: Instant) -> u64 {
    let mut crashes = 0;
    loop {
        sleep(LEASE / 10).await;
        let Some((slot, key, token)) = holder(&fleet, PAUSED + 1..=SIZE - 1, until).await else {
            return crashes;
        };
        // A process that still holds the lock now will hold it for long.
        sleep(LEASE / 10).await;
        if lock(&fleet).held_by(slot) != Some((key, token)) {
            continue;
        }
        let away = Arc::clone(&server);
        if crashes % 2 == 0 {
            tokio::task::spawn_blocking(move || away.stop_immediately()).await.unwrap();
            sleep(LEASE).await;
        }
        let back = Arc::clone(&server);
        tokio::task::spawn_blocking(move || back.restart_immediately()).await.unwrap();
        crashes += 1;
        sleep(LEASE).await;
    }
}

/// The ledger's node that is never killed, because the witness runs on it. The other is made the leader, and then
/// killed.
pub(crate) const SPARED: usize = 0;
const DEPOSED: usize = 1;

/// Kills a leader of a ledger, and starts it again. Returns how often. A process that leads is killed like all others.
pub(crate) async fn depose(cluster: Arc<Cluster>, until: Instant) -> u64 {
    let mut killed = 0;
    while Instant::now() < until {
        sleep(LEASE / 2).await;
        if cluster.leads_here() == Some(DEPOSED) {
            cluster.kill(DEPOSED);
            killed += 1;
            sleep(LEASE).await;
            cluster.start(DEPOSED).await;
        } else {
            // The leader may be down, or reject the leadership transfer.
            drop(cluster.at(SPARED).hand_over(Some(cluster.at(DEPOSED).key())).await);
        }
    }
    killed
}
