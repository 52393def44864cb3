//! How fast an uncontended pair is, beside a bare advisory lock on the same server.

use holdoff_testbed::{Options, Postgres as Server};
use sqlx::{Connection, Executor, PgConnection};
use tokio::time::Instant;

use super::place::{bid, granted, key};
use crate::engine::postgres::Postgres;
use crate::engine::sqlite::Sqlite;
use crate::store::LeaseStore;

const PAIRS: u32 = 1000;

async fn pairs(store: &dyn LeaseStore) -> f64 {
    let key = key("a");
    let start = Instant::now();
    for number in 0..PAIRS {
        let bid = bid(&key, u128::from(number));
        let token = granted(store, &bid).await;
        assert!(store.release(&key, bid.owner.nonce, token).await.unwrap());
    }
    f64::from(PAIRS) / start.elapsed().as_secs_f64()
}

async fn advisory(connection: &mut PgConnection) -> f64 {
    let start = Instant::now();
    for _ in 0..PAIRS {
        sqlx::query("select pg_advisory_lock(1)").execute(&mut *connection).await.unwrap();
        sqlx::query("select pg_advisory_unlock(1)").execute(&mut *connection).await.unwrap();
    }
    f64::from(PAIRS) / start.elapsed().as_secs_f64()
}

/// What any durable grant costs at least: a round trip that commits to the disk, and one that does nothing.
async fn floor(connection: &mut PgConnection) -> f64 {
    let start = Instant::now();
    for _ in 0..PAIRS {
        sqlx::query("update least set n = n + 1").execute(&mut *connection).await.unwrap();
        sqlx::query("select 1").execute(&mut *connection).await.unwrap();
    }
    f64::from(PAIRS) / start.elapsed().as_secs_f64()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement"]
async fn uncontended_pairs() {
    let server = Server::start_with(&Options { fsync: true, ..Options::default() });
    let url = server.create_database("speed");
    let store = Postgres::open(&url).await.unwrap();
    let mut connection = PgConnection::connect(&url).await.unwrap();
    let least = "create table least (n bigint) with (fillfactor = 50); insert into least values (0)";
    connection.execute(least).await.unwrap();
    for _ in 0..12 {
        let (bare, ours, least) =
            (advisory(&mut connection).await, pairs(&store).await, floor(&mut connection).await);
        eprintln!(
            "advisory {bare:.0}/s, ours {ours:.0}/s, ratio {:.2}; least durable {least:.0}/s, ratio {:.2}",
            ours / bare,
            least / bare
        );
    }
    let folder = tempfile::tempdir().unwrap();
    let file = Sqlite::open(&format!("sqlite:{}", folder.path().join("a.db").display())).await.unwrap();
    eprintln!("sqlite {:.0}/s", pairs(&file).await);
}
