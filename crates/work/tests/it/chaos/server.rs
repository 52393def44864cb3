//! The faults of Postgres.

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use holdoff_testbed::Postgres;
use sqlx::{Connection, Executor, PgConnection};
use tokio::time::{Instant, sleep};

use crate::chaos::counts::Counts;
use crate::chaos::faults::about;

/// Terminates some of holdoff's connections, repeatedly.
pub(crate) async fn terminate(url: String, counts: Arc<Counts>, mut rng: Rng, until: Instant) {
    const EVERY: Duration = Duration::from_millis(400);
    while Instant::now() < until {
        sleep(about(&mut rng, EVERY)).await;
        let salt = rng.u64(..).to_string();
        let query = "select count(*) filter (where pg_terminate_backend(pid)) from (
                select pid from pg_stat_activity where application_name = 'holdoff'
                order by md5(pid::text || $1) limit 3
            ) unlucky";
        // The server may be down at this moment.
        let Ok(mut connection) = PgConnection::connect(&url).await else { continue };
        let cut: Result<i64, _> = sqlx::query_scalar(query).bind(salt).fetch_one(&mut connection).await;
        counts.terminations.add(u64::try_from(cut.unwrap_or(0)).unwrap_or(0));
    }
}

/// Crashes the server a few times, at even intervals.
pub(crate) async fn crash(server: Arc<Postgres>, counts: Arc<Counts>, until: Instant) {
    const TIMES: u32 = 3;
    let pause = until.saturating_duration_since(Instant::now()) / (TIMES + 1);
    for _ in 0..TIMES {
        sleep(pause).await;
        let server = Arc::clone(&server);
        tokio::task::spawn_blocking(move || server.restart_immediately()).await.unwrap();
        counts.restarts.add(1);
    }
}

/// Keeps an old snapshot open, so that Postgres can remove no dead row.
pub(crate) async fn pin(url: String, counts: Arc<Counts>, until: Instant) {
    const LOOK_EVERY: Duration = Duration::from_millis(100);
    while Instant::now() < until {
        let Ok(mut connection) = PgConnection::connect(&url).await else {
            sleep(LOOK_EVERY).await;
            continue;
        };
        let begin = "begin isolation level repeatable read; select count(*) from holdoff.lanes";
        let mut is_pinned = connection.execute(begin).await.is_ok();
        let mut since = Instant::now();
        while is_pinned && Instant::now() < until {
            sleep(LOOK_EVERY).await;
            is_pinned = connection.execute("select 1").await.is_ok();
            if is_pinned {
                counts.pinned_millis.add(u64::try_from(since.elapsed().as_millis()).unwrap());
                since = Instant::now();
            }
        }
    }
}
