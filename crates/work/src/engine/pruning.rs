//! Tests that every engine removes activity counts and nodes when they are too old.

use std::time::Duration;

use sqlx::{AssertSqlSafe, Connection as _, Executor as _, PgConnection, SqliteConnection};
use uuid::Uuid;

use crate::stats::{NodeReport, Resolution, StatsKind, StatsQuery, StatsRow};
use crate::store::Store;

const AGES_S: [u32; 3] = [20 * 60, 23 * 3600, 25 * 3600];

/// Migrates the store, and writes one success and one node.
async fn begin(store: &dyn Store) {
    store.migrate().await.unwrap();
    let (namespace, name) = ("eu".to_owned(), String::new());
    let row = StatsRow { kind: StatsKind::Steps, namespace, name, outcome: 0, count: 1, class: None };
    let node = NodeReport {
        id: Uuid::now_v7(),
        name: "here".to_owned(),
        version: "0",
        policies: String::new(),
        drift: None,
        running: 3,
        slots: 4,
        finished: 5,
    };
    store.add_stats(&[row], Some(&node)).await.unwrap();
}

/// Returns the successes of the last minutes, those of the last day, and the nodes.
async fn seen(store: &dyn Store) -> (i64, i64, Vec<(bool, u64)>) {
    let within = async |seconds: u64| {
        let window = Duration::from_secs(seconds);
        let query = StatsQuery { namespace: None, resolution: Resolution::covering(window), window };
        store.recent_stats(&query).await.unwrap().buckets.iter().map(|bucket| bucket.succeeded).sum::<i64>()
    };
    let nodes = store.nodes().await.unwrap();
    let nodes = nodes.iter().map(|node| (node.is_alive, node.running)).collect();
    (within(15 * 60).await, within(24 * 3600).await, nodes)
}

fn copies(stats: &str, nodes: &str, id: &str, back: impl Fn(&str, u32) -> String) -> Vec<String> {
    let copy = |age: &u32| {
        let (at, seen) = (back("at", *age), back("seen_at", *age));
        [
            format!(
                "insert into {stats} select resolution, kind, {at}, 'us', name, outcome, count, class from {stats}
                where namespace = 'eu'"
            ),
            format!(
                "insert into {nodes} select {id}, 'there', version, started_at, {seen}, policies, drift, running, slots,
                    finished from {nodes} where name = 'here'"
            ),
        ]
    };
    AGES_S.iter().flat_map(copy).collect()
}

#[tokio::test]
async fn sqlite_prunes_old_stats_and_nodes() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", folder.path().join("work.db").display());
    let store = super::open(&url).await.unwrap();
    begin(&*store).await;
    let mut file = SqliteConnection::connect(&url).await.unwrap();
    let back = |column: &str, age: u32| format!("{column} - {age} * 1000000");
    for statement in copies("holdoff_stats", "holdoff_nodes", "randomblob(16)", back) {
        file.execute(AssertSqlSafe(statement)).await.unwrap();
    }
    let rows = async |file: &mut SqliteConnection| {
        let query = "select count(*) from holdoff_stats";
        sqlx::query_scalar::<_, i64>(query).fetch_one(file).await.unwrap()
    };
    assert_eq!(rows(&mut file).await, 8);
    store.prune_stats().await.unwrap();
    assert_eq!(rows(&mut file).await, 4, "one row of the finest resolution and three of the others are left");
    assert_eq!(seen(&*store).await, (1, 3, vec![(true, 3), (false, 0), (false, 0)]));
}

#[tokio::test]
async fn postgres_prunes_old_stats_and_nodes() {
    let url = holdoff_testbed::Postgres::shared().create_database("forgetting");
    let store = super::open(&url).await.unwrap();
    begin(&*store).await;
    let mut server = PgConnection::connect(&url).await.unwrap();
    let back = |column: &str, age: u32| format!("{column} - interval '{age} s'");
    for statement in copies("holdoff.stats", "holdoff.nodes", "gen_random_uuid()", back) {
        server.execute(AssertSqlSafe(statement)).await.unwrap();
    }
    let rows = async |server: &mut PgConnection| {
        let query = "select count(*) from holdoff.stats";
        sqlx::query_scalar::<_, i64>(query).fetch_one(server).await.unwrap()
    };
    assert_eq!(rows(&mut server).await, 8);
    store.prune_stats().await.unwrap();
    assert_eq!(
        rows(&mut server).await,
        4,
        "one row of the finest resolution and three of the others are left"
    );
    assert_eq!(seen(&*store).await, (1, 3, vec![(true, 3), (false, 0), (false, 0)]));
}
