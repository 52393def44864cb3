//! Tests that every engine removes activity counts and nodes when they are too old.

use std::time::Duration;

use sqlx::{AssertSqlSafe, Connection as _, Executor as _, PgConnection, SqliteConnection};
use uuid::Uuid;

use crate::node::NodeRow;
use crate::pulse::{Asked, Level, PulseRow, What};
use crate::store::Store;

const AGES_S: [u32; 3] = [20 * 60, 23 * 3600, 25 * 3600];

/// Migrates the store, and writes one success and one node.
async fn begin(store: &dyn Store) {
    store.migrate().await.unwrap();
    let (namespace, name) = ("eu".to_owned(), String::new());
    let row = PulseRow { what: What::Steps, namespace, name, outcome: 0, count: 1, class: None };
    let node = NodeRow {
        id: Uuid::now_v7(),
        name: "here".to_owned(),
        version: "0",
        policies: String::new(),
        drift: None,
        running: 3,
        places: 4,
        finished: 5,
    };
    store.beat(&[row], Some(&node)).await.unwrap();
}

/// Returns the successes of the last minutes, those of the last day, and the nodes.
async fn seen(store: &dyn Store) -> (i64, i64, Vec<(bool, u64)>) {
    let within = async |seconds: u64| {
        let window = Duration::from_secs(seconds);
        let asked = Asked { namespace: None, level: Level::reaching(window), window };
        store.pulse(&asked).await.unwrap().beats.iter().map(|beat| beat.2).sum::<i64>()
    };
    let nodes = store.nodes().await.unwrap();
    let nodes = nodes.iter().map(|node| (node.is_alive, node.running)).collect();
    (within(15 * 60).await, within(24 * 3600).await, nodes)
}

fn copies(pulse: &str, nodes: &str, id: &str, back: impl Fn(&str, u32) -> String) -> Vec<String> {
    let copy = |age: &u32| {
        let (at, seen) = (back("at", *age), back("seen_at", *age));
        [
            format!(
                "insert into {pulse} select level, what, {at}, 'us', name, outcome, count, class from {pulse}
                where namespace = 'eu'"
            ),
            format!(
                "insert into {nodes} select {id}, 'there', version, started_at, {seen}, policies, drift, running, places,
                    finished from {nodes} where name = 'here'"
            ),
        ]
    };
    AGES_S.iter().flat_map(copy).collect()
}

#[tokio::test]
async fn sqlite_forgets_what_is_too_old() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", folder.path().join("work.db").display());
    let store = super::open(&url).await.unwrap();
    begin(&*store).await;
    let mut file = SqliteConnection::connect(&url).await.unwrap();
    let back = |column: &str, age: u32| format!("{column} - {age} * 1000000");
    for statement in copies("holdoff_pulse", "holdoff_nodes", "randomblob(16)", back) {
        file.execute(AssertSqlSafe(statement)).await.unwrap();
    }
    let rows = async |file: &mut SqliteConnection| {
        let query = "select count(*) from holdoff_pulse";
        sqlx::query_scalar::<_, i64>(query).fetch_one(file).await.unwrap()
    };
    assert_eq!(rows(&mut file).await, 8);
    store.forget().await.unwrap();
    assert_eq!(rows(&mut file).await, 4, "one of the fine ones, and three of the others");
    assert_eq!(seen(&*store).await, (1, 3, vec![(true, 3), (false, 0), (false, 0)]));
}

#[tokio::test]
async fn postgres_forgets_what_is_too_old() {
    let url = holdoff_testbed::Postgres::shared().create_database("forgetting");
    let store = super::open(&url).await.unwrap();
    begin(&*store).await;
    let mut server = PgConnection::connect(&url).await.unwrap();
    let back = |column: &str, age: u32| format!("{column} - interval '{age} s'");
    for statement in copies("holdoff.pulse", "holdoff.nodes", "gen_random_uuid()", back) {
        server.execute(AssertSqlSafe(statement)).await.unwrap();
    }
    let rows = async |server: &mut PgConnection| {
        let query = "select count(*) from holdoff.pulse";
        sqlx::query_scalar::<_, i64>(query).fetch_one(server).await.unwrap()
    };
    assert_eq!(rows(&mut server).await, 8);
    store.forget().await.unwrap();
    assert_eq!(rows(&mut server).await, 4, "one of the fine ones, and three of the others");
    assert_eq!(seen(&*store).await, (1, 3, vec![(true, 3), (false, 0), (false, 0)]));
}
