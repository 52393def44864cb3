//! Acquiring and releasing what nobody else wants, one after the other.

use holdoff_lock::Locks;
use sqlx::{Connection, Executor, PgConnection};
use tokio::task::JoinSet;

use super::{Place, open};
use crate::measure::now;
use crate::row::Row;

const ROUNDS: usize = 9;
const PAIRS: u32 = 500;
/// How many keys are wanted at once, for interest.
const KEYS: u32 = 16;

pub(super) async fn rows(place: &Place) -> Result<Vec<Row>, String> {
    let (name, url) = (place.name(), place.fresh());
    let locks = open(&url).await?;
    let mut bare = match place {
        Place::Postgres(_) => Some(Bare::connect(&url).await?),
        Place::Memory | Place::Sqlite(_) => None,
    };
    let [mut ours, mut many, mut advisory, mut durable] = [0.0_f64; 4];
    for _ in 0..ROUNDS {
        if let Some(bare) = &mut bare {
            advisory = advisory.max(bare.advisory().await?);
            durable = durable.max(bare.durable().await?);
        }
        let alone = one_by_one(&locks, 0).await?;
        ours = ours.max(alone);
        many = many.max(at_once(&locks).await?);
        eprintln!("lock: {name}: {alone:.0} pairs/s; best {ours:.0}, advisory {advisory:.0}");
    }
    let pairs = format!("{name}: acquire, release");
    let at_once = Row::beside(&format!("{pairs}, {KEYS} keys"), "/s", many, ("one key", ours));
    if bare.is_none() {
        return Ok(vec![Row::beside(&pairs, "/s", ours, ("", f64::NAN)), at_once]);
    }
    // The advisory lock is nothing on the disk; our grant is there before it is answered.
    let beside_advisory = Row::beside(&pairs, "/s", ours, ("bare advisory lock, no disk", advisory));
    Ok(vec![
        beside_advisory.bar("≥ 0.4 ×", ours >= 0.4 * advisory),
        Row::beside(&pairs, "/s", ours, ("bare update, and select 1", durable)),
        at_once,
    ])
}

/// Pairs a second on one key.
async fn one_by_one(locks: &Locks, number: u32) -> Result<f64, String> {
    let key = format!("key {number}");
    let start = now();
    for _ in 0..PAIRS {
        let guard = locks.acquire(&key).await.map_err(|error| error.to_string())?;
        guard.release().await.map_err(|error| error.to_string())?;
    }
    Ok(f64::from(PAIRS) / start.elapsed().as_secs_f64())
}

/// Pairs a second on many keys together.
async fn at_once(locks: &Locks) -> Result<f64, String> {
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

/// One connection, and nothing around it.
struct Bare(PgConnection);

impl Bare {
    async fn connect(url: &str) -> Result<Self, String> {
        let mut connection = PgConnection::connect(url).await.map_err(|error| error.to_string())?;
        let least = "create table least (n bigint) with (fillfactor = 50); insert into least values (0)";
        connection.execute(least).await.map_err(|error| error.to_string())?;
        Ok(Self(connection))
    }

    /// What the server's own locks give; a crash forgets them.
    async fn advisory(&mut self) -> Result<f64, String> {
        self.pairs("select pg_advisory_lock($1)", "select pg_advisory_unlock($1)").await
    }

    /// What anything durable gives at best: a round trip that waits for the disk, and one that does not.
    async fn durable(&mut self) -> Result<f64, String> {
        self.pairs("update least set n = n + $1", "select $1").await
    }

    async fn pairs(&mut self, one: &'static str, other: &'static str) -> Result<f64, String> {
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
        Ok(f64::from(PAIRS) / start.elapsed().as_secs_f64())
    }
}
