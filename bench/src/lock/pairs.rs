//! Uncontended acquisitions and releases, one after the other.

use std::time::Duration;

use holdoff_lock::Locks;
use sqlx::{Connection, Executor, PgConnection};
use tokio::task::JoinSet;

use super::{LockStore, open};
use crate::measure::now;
use crate::row::Row;

const ROUNDS: usize = 31;
const TURNS: u32 = 20;
const PAIRS: u32 = 20;
/// The number of keys in the concurrent measurement, which has no bar.
const KEYS: u32 = 16;

pub(super) async fn rows(store: &LockStore) -> Result<Vec<Row>, String> {
    let (name, url) = (store.name(), store.fresh());
    let locks = open(&url).await?;
    let mut bare = match store {
        LockStore::Postgres(_) => Some(BareConnection::connect(&url).await?),
        LockStore::Memory | LockStore::Sqlite(_) => None,
    };
    let mut rounds = Vec::with_capacity(ROUNDS);
    for _ in 0..ROUNDS {
        let round = round(&locks, bare.as_mut()).await?;
        let Round { ours, advisory, durable, many } = round;
        eprintln!(
            "lock: {name}: {ours:.0} pairs/s; {many:.0} on many keys; advisory {advisory:.0}, durable {durable:.0}"
        );
        rounds.push(round);
    }
    let pairs = format!("{name}: acquire, release");
    let one = middle(&mut rounds, |round| round.ours).ours;
    let many = middle(&mut rounds, |round| round.many).many;
    let concurrent = Row::beside(&format!("{pairs}, {KEYS} keys"), "/s", many, ("one key", one));
    if bare.is_none() {
        return Ok(vec![Row::beside(&pairs, "/s", one, ("", f64::NAN)), concurrent]);
    }
    // Neither waits for the disk: if a crash loses one of our locks, later holders wait for its lease and
    // have a larger token.
    let Round { ours, advisory, .. } = middle(&mut rounds, |round| round.ours / round.advisory);
    let beside_advisory = Row::beside(&pairs, "/s", ours, ("bare advisory lock", advisory));
    let beside_advisory = beside_advisory.bar("≥ 0.4 ×", ours >= 0.4 * advisory);
    let Round { ours, durable, .. } = middle(&mut rounds, |round| round.ours / round.durable);
    let beside_durable = Row::beside(&pairs, "/s", ours, ("bare update, and select 1", durable));
    Ok(vec![beside_advisory, beside_durable, concurrent])
}

/// Pairs a second.
#[derive(Clone, Copy)]
struct Round {
    ours: f64,
    advisory: f64,
    durable: f64,
    many: f64,
}

/// Returns the median round by this measure. Figures that are compared were measured alternately in the same
/// round.
fn middle(rounds: &mut [Round], by: impl Fn(&Round) -> f64) -> Round {
    rounds.sort_by(|one, other| by(one).total_cmp(&by(other)));
    let unmeasured = Round { ours: f64::NAN, advisory: f64::NAN, durable: f64::NAN, many: f64::NAN };
    rounds.get(rounds.len() / 2).copied().unwrap_or(unmeasured)
}

/// Measures pairs a second: ours and the bare ones alternately, a few of each, so that disturbances of the
/// machine affect all of them; then ours on many keys.
async fn round(locks: &Locks, mut bare: Option<&mut BareConnection>) -> Result<Round, String> {
    let [mut ours, mut advisory, mut durable] = [Duration::ZERO; 3];
    for _ in 0..TURNS {
        if let Some(bare) = &mut bare {
            advisory += bare.advisory().await?;
            durable += bare.durable().await?;
        }
        ours += one_by_one(locks, 0).await?;
    }
    let [ours, advisory, durable] =
        [ours, advisory, durable].map(|time| f64::from(TURNS * PAIRS) / time.as_secs_f64());
    Ok(Round { ours, advisory, durable, many: concurrent(locks).await? })
}

/// Returns the duration of a few pairs on one key.
async fn one_by_one(locks: &Locks, number: u32) -> Result<Duration, String> {
    let key = format!("key {number}");
    let start = now();
    for _ in 0..PAIRS {
        let guard = locks.acquire(&key).await.map_err(|error| error.to_string())?;
        guard.release().await.map_err(|error| error.to_string())?;
    }
    Ok(start.elapsed())
}

/// Returns the pairs a second on many keys concurrently.
async fn concurrent(locks: &Locks) -> Result<f64, String> {
    let mut keys = JoinSet::new();
    let start = now();
    for number in 0..KEYS {
        let locks = locks.clone();
        keys.spawn(async move { one_by_one(&locks, number).await });
    }
    for done in keys.join_all().await {
        done?;
    }
    Ok(f64::from(KEYS * PAIRS) / start.elapsed().as_secs_f64())
}

/// One connection without any other layer.
struct BareConnection(PgConnection);

impl BareConnection {
    async fn connect(url: &str) -> Result<Self, String> {
        let mut connection = PgConnection::connect(url).await.map_err(|error| error.to_string())?;
        let least = "create table least (n bigint) with (fillfactor = 50); insert into least values (0)";
        connection.execute(least).await.map_err(|error| error.to_string())?;
        Ok(Self(connection))
    }

    /// Measures the server's own locks, which do not survive a crash.
    async fn advisory(&mut self) -> Result<Duration, String> {
        self.pairs("select pg_advisory_lock($1)", "select pg_advisory_unlock($1)").await
    }

    /// Measures the best case of a durable lock: a round trip that waits for the disk, and one that does not.
    async fn durable(&mut self) -> Result<Duration, String> {
        self.pairs("update least set n = n + $1", "select $1").await
    }

    async fn pairs(&mut self, one: &'static str, other: &'static str) -> Result<Duration, String> {
        let start = now();
        for _ in 0..PAIRS {
            for query in [one, other] {
                sqlx::query(query)
                    .bind(1_i64)
                    .execute(&mut self.0)
                    .await
                    .map_err(|error| error.to_string())?;
            }
        }
        Ok(start.elapsed())
    }
}
