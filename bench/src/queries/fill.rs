//! A million steps: 600 000 finished, 250 000 waiting, 100 000 failed, 50 000 in conflict, within the last
//! ten days; 960 lanes, 200 hosts, 8 classes. Also a day's statistics at the highest density, 20 000 signals,
//! 20 nodes.

use std::time::UNIX_EPOCH;

use holdoff_work::{StepId, TaskId};
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection, SqliteConnection};

const STEPS: i64 = 1_000_000;

/// The milliseconds between two steps.
const EVERY: i64 = 864;

/// The SQL dialect of an engine.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Engine {
    Sqlite,
    Postgres,
}

impl Engine {
    fn table(self, name: &str) -> String {
        match self {
            Self::Sqlite => format!("holdoff_{name}"),
            Self::Postgres => format!("holdoff.{name}"),
        }
    }

    /// Returns a query for the numbers from 0, as column `n`.
    fn numbers(self, count: i64) -> String {
        match self {
            Self::Sqlite => format!(
                "(with recursive c(n) as (select 0 union all select n + 1 from c where n < {}) select n from c)",
                count - 1
            ),
            Self::Postgres => format!("(select n from generate_series(0::bigint, {}) n)", count - 1),
        }
    }

    /// Returns the SQL of a time in milliseconds since 1970.
    fn time(self, ms: &str) -> String {
        match self {
            Self::Sqlite => format!("1000 * ({ms})"),
            Self::Postgres => format!("to_timestamp(({ms}) / 1000.0)"),
        }
    }

    /// Returns the SQL of the id of task number `n`.
    const fn id(self) -> &'static str {
        match self {
            Self::Sqlite => "unhex(printf('%012x70008%015x', ms, n))",
            Self::Postgres => "(lpad(to_hex(ms), 12, '0') || '70008' || lpad(to_hex(n), 15, '0'))::uuid",
        }
    }

    const fn fingerprint(self) -> &'static str {
        match self {
            Self::Sqlite => "unhex(printf('%064x', n))",
            Self::Postgres => "decode(lpad(to_hex(n), 64, '0'), 'hex')",
        }
    }

    const fn payload(self) -> &'static str {
        match self {
            Self::Sqlite => "zeroblob(120)",
            Self::Postgres => "decode(repeat('00', 120), 'hex')",
        }
    }

    /// Returns a column that only one engine has, and its value.
    const fn index_state(self) -> (&'static str, &'static str) {
        match self {
            Self::Sqlite => ("", ""),
            Self::Postgres => {
                (", index_state", ", case when kind < 14 then 0 when kind < 17 then 1 else 2 end")
            }
        }
    }

    /// Returns the SQL that selects one of these names by a number.
    fn one_of(names: &[&str], number: &str) -> String {
        let cases: Vec<String> =
            names.iter().enumerate().map(|(index, name)| format!("when {index} then '{name}'")).collect();
        format!("case {number} % {} {} end", names.len(), cases.join(" "))
    }

    /// Returns the SQL of step number `n`.
    fn steps(self, base: i64) -> String {
        let classes = [
            "timeout",
            "transient",
            "permanent",
            "throttled",
            "overloaded",
            "unauthorized",
            "conflict",
            "unavailable",
        ];
        let (class, numbers) = (Self::one_of(&classes, "n / 20"), self.numbers(STEPS));
        format!(
            "(select n, {base} + n * {EVERY} as ms, n % 20 as kind,
                case when n % 200003 = 7 then 961 else 1 + n * 7919 % 960 end as lane,
                case when n % 2 = 0 then 'host-' || (n * 31 % 200) || '.example' end as destination,
                case when n % 20 >= 15 then n / 20 % 12 + 1 when n % 20 = 14 then 2 else 0 end as failures,
                case when n % 20 >= 14 then {class} end as class,
                case when n % 333333 = 5 then 'a needle in number ' || n
                    when n % 20 >= 14 and n % 3 = 0 then 'connection to 10.0.' || (n % 256) || '.7 refused'
                    when n % 20 >= 14 then 'answered with 503 after ' || (n % 9000) || ' ms: try again later'
                    end as message,
                case when n % 5 = 0 then 'step number ' || (n % 7) end as name
            from {numbers} numbers) s"
        )
    }

    fn statements(self, newest: i64) -> Vec<String> {
        let base = newest - STEPS * EVERY;
        let namespace = |number: &str| Self::one_of(&["default", "eu", "us"], number);
        let (id, at, steps) = (self.id(), self.time("ms"), self.steps(base));
        let (column, value) = self.index_state();
        let mut statements = vec![
            format!(
                "insert into {} (namespace, queue, operation, kind, priority)
                select {}, 'queue-' || (n / 3 % 8), 'op.' || (n / 240) || (n / 24 % 10), 0, 5 from {} x order by n",
                self.table("lanes"),
                namespace("n"),
                self.numbers(960)
            ),
            format!(
                "insert into {} (namespace, queue, operation, kind, priority) values ('default', 'queue-1', 'rare', 0, 5)",
                self.table("lanes")
            ),
            format!(
                "insert into {} (task, step, lane, policy, state{column}, format, due_at, created_at, ended_at, failures,
                    destination, class, message, name, payload)
                select {id}, 0, lane, 1,
                    case when kind < 14 then 0 when kind < 17 then 1 when kind < 19 then 4 else 5 end{value}, 1, {at}, {at},
                    case when kind >= 17 then {at} end, failures, destination, class, message, name, {}
                from {steps} where kind >= 12 order by n",
                self.table("steps"),
                self.payload()
            ),
            format!(
                "insert into {} (task, step, lane, policy, state, format, lease, created_at, claimed_at, ended_at, failures,
                    rescues, snoozes, destination, message, name)
                select {id}, 0, lane, 1, 3, 0, 2, {at}, {at}, {at}, n % 3, 0, 0, destination, message, name
                from {steps} where kind < 12 order by n",
                self.table("done")
            ),
            format!(
                "insert into {} (namespace, fingerprint, task, occurrences, first_at, last_at)
                select {}, {}, {id}, n % 100 + 1, {at}, {at} from {steps} where n % 50 = 0",
                self.table("signals"),
                namespace("n"),
                self.fingerprint()
            ),
            format!(
                "insert into {} (id, name, version, started_at, seen_at, policies, running, slots, finished)
                select {id}, 'host-' || n, '0.1.0', {at}, {at}, '', 1, 16, 1 from {steps} where n < 20",
                self.table("nodes")
            ),
        ];
        statements.extend(STATS_ROWS.map(|row| self.stats(newest, row)));
        statements
    }

    /// Returns the SQL that inserts the largest possible number of statistics rows.
    fn stats(self, newest: i64, [level, what, width, buckets, names]: [i64; 5]) -> String {
        let at = self.time(&format!("{} - b.n * {width}", newest - newest % width));
        format!(
            "insert into {} (resolution, kind, at, namespace, name, outcome, count, class)
            select {level}, {what}, {at}, {}, 'name ' || (k.n / 6), k.n / 3 % 2, 1 + k.n, 'timeout' from {} b, {} k",
            self.table("stats"),
            Self::one_of(&["default", "eu", "us"], "k.n"),
            self.numbers(buckets),
            self.numbers(names)
        )
    }
}

/// Level, counted quantity, milliseconds of a bucket, buckets, rows in each.
const STATS_ROWS: [[i64; 5]; 10] = [
    [0, 0, 5_000, 180, 18],
    [0, 1, 60_000, 16, 24],
    [0, 2, 60_000, 16, 30],
    [0, 3, 60_000, 16, 100],
    [0, 4, 60_000, 16, 100],
    [1, 0, 60_000, 1440, 18],
    [1, 1, 900_000, 97, 24],
    [1, 2, 900_000, 97, 30],
    [1, 3, 900_000, 97, 100],
    [1, 4, 900_000, 97, 100],
];

/// Fills an empty store; returns a step in the middle.
pub(super) async fn fill(url: &str) -> Result<StepId, String> {
    let newest = now_ms();
    let why = |error: sqlx::Error| error.to_string();
    let start = crate::measure::now();
    if url.starts_with("sqlite") {
        let mut store = SqliteConnection::connect(url).await.map_err(why)?;
        store.execute("pragma synchronous = off").await.map_err(why)?;
        for statement in Engine::Sqlite.statements(newest) {
            store.execute(AssertSqlSafe(statement)).await.map_err(why)?;
        }
        // No real store receives a million steps at once, so the log is truncated to its usual length.
        store.execute("pragma wal_checkpoint(truncate)").await.map_err(why)?;
    } else {
        let mut store = PgConnection::connect(url).await.map_err(why)?;
        for statement in Engine::Postgres.statements(newest) {
            store.execute(AssertSqlSafe(statement)).await.map_err(why)?;
        }
        store.execute("vacuum analyze").await.map_err(why)?;
    }
    eprintln!("queries: a million steps were written in {:.0} s", start.elapsed().as_secs_f64());
    let (ms, number) = (newest - STEPS / 2 * EVERY, STEPS / 2);
    let task: TaskId = format!("{ms:012x}70008{number:015x}").parse().map_err(|_| "not an id".to_owned())?;
    Ok(task.step(0))
}

#[expect(clippy::disallowed_methods, reason = "a benchmark looks at the clock")]
fn now_ms() -> i64 {
    let now = std::time::SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(now.as_millis()).unwrap_or(0)
}
