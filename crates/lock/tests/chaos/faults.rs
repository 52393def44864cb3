//! What happens to the processes, and to Postgres.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fastrand::Rng;
use holdoff_testbed::Postgres;
use rustix::process::Signal;
use sqlx::{Connection as _, PgConnection};
use tokio::time::{Instant, sleep};

use crate::fleet::{Fleet, SIZE};
use crate::worker::LEASE;

pub(crate) type Shared = Arc<Mutex<Fleet>>;

pub(crate) fn lock(fleet: &Shared) -> MutexGuard<'_, Fleet> {
    fleet.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A time between half and one and a half of this.
fn about(rng: &mut Rng, time: Duration) -> Duration {
    time.mul_f64(0.5 + rng.f64())
}

/// The slot that is paused; the others may be killed.
const PAUSED: usize = 0;

/// Kills processes until the time is over; answers how many.
pub(crate) async fn kill(fleet: Shared, mut rng: Rng, until: Instant) -> u64 {
    let mut kills = 0;
    while Instant::now() < until {
        sleep(about(&mut rng, Duration::from_millis(900))).await;
        lock(&fleet).replace(rng.usize(PAUSED + 1..SIZE));
        kills += 1;
    }
    kills
}

/// Pauses one for longer than its lease, and lets it go on with what it thinks is its own; answers how often.
pub(crate) async fn pause(fleet: Shared, mut rng: Rng, until: Instant) -> u64 {
    let mut pauses = 0;
    while Instant::now() < until {
        sleep(about(&mut rng, Duration::from_millis(200))).await;
        while !lock(&fleet).first_holds() && Instant::now() < until {
            sleep(Duration::from_millis(1)).await;
        }
        lock(&fleet).signal(PAUSED, Signal::STOP);
        sleep(LEASE + about(&mut rng, Duration::from_millis(400))).await;
        lock(&fleet).signal(PAUSED, Signal::CONT);
        pauses += 1;
    }
    pauses
}

/// Cuts off some connections, again and again; answers how many.
pub(crate) async fn terminate(url: String, mut rng: Rng, until: Instant) -> u64 {
    let mut terminated = 0;
    while Instant::now() < until {
        sleep(about(&mut rng, Duration::from_millis(200))).await;
        let query = "select count(*) filter (where pg_terminate_backend(pid)) from (
                select pid from pg_stat_activity where application_name = 'holdoff'
                order by md5(pid::text || $1) limit 2
            ) unlucky";
        // The server may just be away.
        let Ok(mut connection) = PgConnection::connect(&url).await else { continue };
        let cut = sqlx::query_scalar::<_, i64>(query).bind(rng.u64(..).to_string());
        terminated += u64::try_from(cut.fetch_one(&mut connection).await.unwrap_or(0)).unwrap();
    }
    terminated
}

/// Crashes the server, and now and then lets it stay away for longer than a lease; answers how often.
pub(crate) async fn crash(server: Arc<Postgres>, until: Instant) -> u64 {
    const TIMES: u64 = 4;
    let pause = until.saturating_duration_since(Instant::now()) / 5;
    for time in 0..TIMES {
        sleep(pause.saturating_sub(if time % 2 == 0 { Duration::ZERO } else { LEASE })).await;
        let server = Arc::clone(&server);
        if time % 2 == 0 {
            tokio::task::spawn_blocking(move || server.restart_immediately()).await.unwrap();
        } else {
            let away = Arc::clone(&server);
            tokio::task::spawn_blocking(move || away.stop_immediately()).await.unwrap();
            sleep(LEASE).await;
            tokio::task::spawn_blocking(move || server.restart_immediately()).await.unwrap();
        }
    }
    TIMES
}
