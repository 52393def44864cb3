//! Tests that Rust, Postgres and SQLite agree to the microsecond, over policies of every kind and edge-case inputs.
//!
//! The tests are seeded. `HOLDOFF_SEED=… HOLDOFF_SEEDS=… cargo test -p holdoff-work next_due` replays a seed
//! or runs more cases.

mod cases;

use cases::{CASES_PER_ROUND, Round};
use holdoff_policy::{Compiled, Policy};
use holdoff_testbed::{Postgres, Seeds};
use sqlx::{AssertSqlSafe, Connection, PgConnection, Row, SqliteConnection};

use super::{POSTGRES, sqlite};

fn rounds() -> impl Iterator<Item = Round> {
    let rounds = 120_000_u64.div_ceil(CASES_PER_ROUND);
    Seeds::new(rounds, rounds).into_iter().map(Round::new)
}

/// The number of compared answers, by kind.
#[derive(Default)]
struct Comparison {
    delays: usize,
    refusals: usize,
}

impl Comparison {
    fn compare(&mut self, engine: &str, round: &Round, answers: &[Option<i64>]) {
        assert_eq!(answers.len(), round.cases.len(), "{engine} answers each case");
        for (case, answer) in round.cases.iter().zip(answers) {
            let policy = &round.policies[usize::try_from(case.policy).unwrap()];
            assert_eq!(
                *answer,
                case.expected(policy),
                "{engine} (left) and Rust (right) disagree about {case:?} under {}; {}",
                policy.canonical(),
                round.replay(),
            );
            *(if answer.is_some() { &mut self.delays } else { &mut self.refusals }) += 1;
        }
    }

    fn report(&self, engine: &str) {
        println!("{engine}: {} delays and {} refusals, all as in Rust", self.delays, self.refusals);
        assert!(self.delays > 0 && self.refusals > 0, "the comparison must cover both delays and refusals");
    }
}

async fn postgres() -> PgConnection {
    let url = Postgres::shared().create_database("next_due");
    let mut connection = PgConnection::connect(&url).await.unwrap();
    let schema =
        "create schema holdoff; create table holdoff.policies (id integer primary key, compiled jsonb)";
    sqlx::raw_sql(schema).execute(&mut connection).await.unwrap();
    sqlx::raw_sql(POSTGRES).execute(&mut connection).await.unwrap();
    connection
}

#[tokio::test]
async fn postgres_computes_the_same_delays() {
    let mut connection = postgres().await;
    let mut tally = Comparison::default();
    for round in rounds() {
        sqlx::raw_sql("truncate holdoff.policies").execute(&mut connection).await.unwrap();
        let policies: Vec<String> = round.policies.iter().map(Compiled::canonical).collect();
        sqlx::query(
            "insert into holdoff.policies
             select ordinality - 1, text::jsonb from unnest($1::text[]) with ordinality as given (text)",
        )
        .bind(policies)
        .execute(&mut connection)
        .await
        .unwrap();
        let answers = sqlx::query_scalar::<_, Option<i64>>(
            "select holdoff.next_due(policy, attempt, last_delay, roll, retry_after)
             from unnest($1::integer[], $2::integer[], $3::bigint[], $4::bigint[], $5::bigint[]) with ordinality
                as given (policy, attempt, last_delay, roll, retry_after, place)
             order by place",
        )
        .bind(round.cases.iter().map(|case| case.policy).collect::<Vec<_>>())
        .bind(round.cases.iter().map(|case| case.attempt).collect::<Vec<_>>())
        .bind(round.cases.iter().map(|case| case.last_delay_us).collect::<Vec<_>>())
        .bind(round.cases.iter().map(|case| i64::from(case.roll)).collect::<Vec<_>>())
        .bind(round.cases.iter().map(|case| case.retry_after_us).collect::<Vec<_>>())
        .fetch_all(&mut connection)
        .await
        .unwrap_or_else(|error| panic!("Postgres: {error}; {}", round.replay()));
        tally.compare("Postgres", &round, &answers);
    }
    tally.report("Postgres");
}

async fn in_memory() -> SqliteConnection {
    let mut connection = SqliteConnection::connect("sqlite::memory:").await.unwrap();
    // The delay has no declared type: an integer column would silently convert a float back to an integer.
    let schema = "create table policies (id integer primary key, compiled text);
        create table cases (place integer primary key, policy, attempt, last_delay, roll, retry_after, delay)";
    sqlx::raw_sql(schema).execute(&mut connection).await.unwrap();
    connection
}

#[tokio::test]
async fn sqlite_computes_the_same_delays() {
    let mut connection = in_memory().await;
    let mut tally = Comparison::default();
    // The statement has the form of a rescue: many rows, each with a policy of its own.
    let compiled = "(select compiled from policies where id = cases.policy)";
    let delay = sqlite(compiled, "cases.attempt", "cases.last_delay", "cases.roll", "cases.retry_after");
    let update = format!("update cases set delay = {delay}");
    for round in rounds() {
        let empty = "delete from policies; delete from cases";
        sqlx::raw_sql(empty).execute(&mut connection).await.unwrap();
        let policies: Vec<String> = round.policies.iter().map(Compiled::canonical).collect();
        sqlx::query("insert into policies select key, value from json_each($1)")
            .bind(serde_json::to_string(&policies).unwrap())
            .execute(&mut connection)
            .await
            .unwrap();
        sqlx::query(
            "insert into cases (place, policy, attempt, last_delay, roll, retry_after)
             select key, value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4 from json_each($1)",
        )
        .bind(round.as_json())
        .execute(&mut connection)
        .await
        .unwrap();
        let updated = sqlx::query(AssertSqlSafe(update.as_str())).execute(&mut connection).await;
        updated.unwrap_or_else(|error| panic!("SQLite: {error}; {}", round.replay()));
        let rows = sqlx::query("select delay, typeof(delay) from cases order by place")
            .fetch_all(&mut connection)
            .await
            .unwrap();
        for row in &rows {
            let kind: &str = row.get(1);
            assert!(matches!(kind, "integer" | "null"), "a delay is {kind}; {}", round.replay());
        }
        let answers: Vec<Option<i64>> = rows.iter().map(|row| row.get(0)).collect();
        tally.compare("SQLite", &round, &answers);
    }
    tally.report("SQLite");
}

/// With the same roll for all rows, all steps would be retried at the same moment.
#[tokio::test]
async fn a_roll_drawn_in_the_statement_is_drawn_for_each_row() {
    let policy = Policy::preset("standard").unwrap().canonical();
    let delay = sqlite("$1", "cases.attempt", "0", "random() & 4294967295", "null");
    let mut connection = in_memory().await;
    let rows = "insert into cases (place, attempt) select value, 1 from json_each($1)";
    let places = serde_json::to_string(&(0..1000).collect::<Vec<_>>()).unwrap();
    sqlx::query(rows).bind(places).execute(&mut connection).await.unwrap();
    let update = format!("update cases set delay = {delay}");
    sqlx::query(AssertSqlSafe(update)).bind(policy).execute(&mut connection).await.unwrap();
    let different = sqlx::query_scalar::<_, i64>("select count(distinct delay) from cases");
    assert!(different.fetch_one(&mut connection).await.unwrap() > 900);
}

/// Null means that there is no further attempt, so an unreadable policy must not yield null.
#[tokio::test]
async fn an_unknown_policy_version_is_an_error() {
    let known = Policy::preset("standard").unwrap().canonical();
    let newer = known.replace("\"version\":1", "\"version\":2");
    assert_ne!(newer, known);
    let mut connections = (postgres().await, in_memory().await);
    let delay = sqlite("$1", "1", "0", "7", "null");
    let select = format!("select {delay}");
    for (policy, is_known) in
        [(Some(known), true), (Some(newer), false), (Some("{}".to_owned()), false), (None, false)]
    {
        let answer = sqlx::query("select holdoff.delay_us($1::text::jsonb, 1, 0, 7, null)").bind(&policy);
        assert_eq!(answer.fetch_one(&mut connections.0).await.is_ok(), is_known, "Postgres: {policy:?}");
        let answer = sqlx::query(AssertSqlSafe(select.as_str())).bind(&policy);
        assert_eq!(answer.fetch_one(&mut connections.1).await.is_ok(), is_known, "SQLite: {policy:?}");
    }
    let stored =
        sqlx::query("select holdoff.next_due(404, 1, 0, 7, null)").fetch_one(&mut connections.0).await;
    assert!(stored.unwrap_err().to_string().contains("there is no policy 404"));
}
