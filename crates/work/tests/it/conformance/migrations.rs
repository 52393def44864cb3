//! Migrations of a Postgres store that other processes use.

use std::sync::Arc;
use std::time::Duration;

use holdoff_sql::{Component, Migration, SchemaChange, postgres};
use holdoff_testbed::CONDITION_TIMEOUT;
use holdoff_work::{Task, Work};
use sqlx::{Connection, Executor, PgConnection};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::Instant;

use crate::conformance::test_store::{TestStore, eventually, submit};

const fn component(migrations: &'static [Migration]) -> Component {
    Component { table: "holdoff.test_migrations", migrations }
}

const fn statements(version: i32, statements: &'static str) -> Migration {
    Migration { version, breaks_before: 1, change: SchemaChange::Statements(statements) }
}

const fn index(version: i32) -> Migration {
    let change = SchemaChange::Index { name: "steps_worker", on: "holdoff.steps (worker)" };
    Migration { version, breaks_before: 1, change }
}

const COLUMN: &str = "alter table holdoff.steps add column extra integer";
const SLOW: Component = component(&[statements(1, "select pg_sleep(0.3)")]);
const NEW_COLUMN: Component = component(&[statements(1, COLUMN)]);
const NEW_INDEX: Component = component(&[index(1)]);
const BOTH: Component = component(&[index(1), statements(2, COLUMN)]);

async fn connect(store: &TestStore) -> PgConnection {
    PgConnection::connect(&store.url).await.unwrap()
}

async fn value<T>(connection: &mut PgConnection, query: &'static str) -> T
where
    T: for<'r> sqlx::Decode<'r, sqlx::Postgres> + sqlx::Type<sqlx::Postgres> + Send + Unpin,
{
    sqlx::query_scalar(query).fetch_one(connection).await.unwrap()
}

/// Migrates in the background, by a connection with this setting. Returns the process of the connection, too.
async fn migrating(
    store: &TestStore,
    settings: &'static str,
    component: &'static Component,
) -> (i32, JoinHandle<()>) {
    let mut connection = connect(store).await;
    connection.execute(settings).await.unwrap();
    let process = value(&mut connection, "select pg_backend_pid()").await;
    let migrating = async move { postgres::migrate(&mut connection, component).await.unwrap() };
    (process, tokio::spawn(migrating))
}

/// Waits until the process is in this state, a condition on `pg_stat_activity`.
async fn until(store: &TestStore, process: i32, condition: &'static str) {
    let query = format!("select exists (select from pg_stat_activity where pid = {process} and {condition})");
    let mut connection = connect(store).await;
    eventually(condition, async || {
        let query = sqlx::query_scalar(sqlx::AssertSqlSafe(query.clone()));
        query.fetch_one(&mut connection).await.unwrap_or(false).then_some(())
    })
    .await;
}

async fn ended(migrating: JoinHandle<()>) {
    tokio::time::timeout(CONDITION_TIMEOUT, migrating).await.expect("the migration ends").unwrap();
}

/// Submits a task, although a migration waits.
async fn accepts(work: &Work) {
    let submitted = tokio::time::timeout(CONDITION_TIMEOUT, submit(work, Task::new("mail"))).await;
    submitted.expect("a task is accepted while a migration waits");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_migration_has_no_time_limit() {
    let store = TestStore::postgres();
    let (_, slow) = migrating(&store, "set statement_timeout = '100ms'", &SLOW).await;
    ended(slow).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_migration_waits_for_that_of_another_process() {
    let store = TestStore::postgres();
    let mut other = connect(&store).await;
    other.execute("select pg_advisory_lock(x'686f6c646f6666'::bigint)").await.unwrap();
    let (process, waiting) = migrating(&store, "set lock_timeout = '50ms'", &SLOW).await;
    // It waits outside a transaction, so that the build of an index does not wait for it.
    until(&store, process, "state = 'idle' and query ilike 'rollback'").await;
    other.execute("select pg_advisory_unlock_all()").await.unwrap();
    ended(waiting).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tasks_are_accepted_while_a_migration_waits_for_a_lock() {
    let store = TestStore::postgres();
    let work = store.open().await;
    let mut reader = connect(&store).await;
    reader.execute("begin; select count(*) from holdoff.steps").await.unwrap();
    let (process, waiting) = migrating(&store, "", &NEW_COLUMN).await;
    until(&store, process, "wait_event_type = 'Lock'").await;
    accepts(&work).await;
    reader.execute("commit").await.unwrap();
    ended(waiting).await;
    assert_eq!(
        value::<i64>(&mut reader, "select count(*) filter (where extra is null) from holdoff.steps").await,
        1
    );
}

/// A build that was interrupted has left an index that is not valid, and two processes migrate.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tasks_are_accepted_while_an_index_is_built() {
    let store = TestStore::postgres();
    let work = store.open().await;
    let mut writer = connect(&store).await;
    for _ in 0..2 {
        submit(&work, Task::new("mail")).await;
    }
    let interrupted = "create unique index concurrently steps_worker on holdoff.steps (step)";
    writer.execute(interrupted).await.unwrap_err();
    let valid =
        "select count(*) from pg_index where indexrelid = to_regclass('holdoff.steps_worker') and indisvalid
        and not indisunique";
    assert_eq!(value::<i64>(&mut writer, valid).await, 0);
    writer.execute("begin; update holdoff.steps set name = 'x'").await.unwrap();
    let limits = "set statement_timeout = '100ms'; set lock_timeout = '50ms'";
    let (process, first) = migrating(&store, limits, &NEW_INDEX).await;
    let (_, second) = migrating(&store, limits, &NEW_INDEX).await;
    until(&store, process, "wait_event_type = 'Lock'").await;
    accepts(&work).await;
    writer.execute("commit").await.unwrap();
    tokio::join!(ended(first), ended(second));
    assert_eq!(value::<i64>(&mut writer, valid).await, 1);
}

/// Prints the longest time that a submission took, while a table of a million steps is migrated and a reader holds
/// locks for seconds. `HOLDOFF_MIGRATION_STEPS` sets the number of steps.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_table_is_migrated_under_load() {
    const EVERY: Duration = Duration::from_millis(2);
    let steps: i64 = std::env::var("HOLDOFF_MIGRATION_STEPS").map_or(1_000_000, |text| text.parse().unwrap());
    let store = TestStore::postgres();
    let work = Arc::new(store.open().await);
    submit(&work, Task::new("mail").delay(Duration::from_secs(86_400))).await;
    let mut reader = connect(&store).await;
    let fill = "insert into holdoff.steps (task, step, lane, policy, state, index_state, format, due_at, created_at)
        select gen_random_uuid(), 0, s.lane, s.policy, s.state, s.index_state, s.format, s.due_at, s.created_at
        from (select * from holdoff.steps limit 1) s, generate_series(1, $1)";
    sqlx::query(fill).bind(steps).execute(&mut reader).await.unwrap();

    let migrated = tokio_util::sync::CancellationToken::new();
    let load = tokio::spawn({
        let (work, migrated) = (Arc::clone(&work), migrated.clone());
        async move {
            let (mut sending, mut longest, mut accepted) = (JoinSet::new(), Duration::ZERO, 0_u32);
            let mut ticks = tokio::time::interval(EVERY);
            while !migrated.is_cancelled() {
                // A submission that was due earlier counts from then.
                let due = ticks.tick().await;
                let work = Arc::clone(&work);
                sending.spawn(async move {
                    work.submit(Task::new("mail")).await.unwrap();
                    Instant::now() - due
                });
                while let Some(took) = sending.try_join_next() {
                    (longest, accepted) = (longest.max(took.unwrap()), accepted + 1);
                }
            }
            for took in sending.join_all().await {
                (longest, accepted) = (longest.max(took), accepted + 1);
            }
            (longest, accepted)
        }
    });
    let began = Instant::now();
    reader.execute("begin; select count(*) from holdoff.lanes, holdoff.steps where false").await.unwrap();
    let (process, migrating) = migrating(&store, "", &BOTH).await;
    // The index is complete when it is valid; then the column waits for the reader's lock.
    let valid =
        "select count(*) from pg_index where indexrelid = to_regclass('holdoff.steps_worker') and indisvalid";
    while value::<i64>(&mut connect(&store).await, valid).await == 0 {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let built = began.elapsed();
    until(&store, process, "wait_event_type = 'Lock' and query like 'alter%'").await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    reader.execute("commit").await.unwrap();
    ended(migrating).await;
    let took = began.elapsed();
    migrated.cancel();
    let (longest, accepted) = load.await.unwrap();
    assert_eq!(
        value::<i64>(&mut reader, "select count(*) from holdoff.steps").await,
        1 + steps + i64::from(accepted)
    );
    println!(
        "migrated {steps} steps in {took:.1?} (index in {built:.1?}, then a reader of five seconds); accepted {accepted} \
         tasks meanwhile, the longest submission took {longest:.0?}"
    );
}
