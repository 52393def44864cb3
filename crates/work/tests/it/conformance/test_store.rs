//! The stores, and the functions that all subjects use.

use holdoff_testbed::CONDITION_TIMEOUT;
use std::collections::BTreeSet;
use std::time::Duration;

use holdoff_policy::{Growth, Jitter, Policy, PolicySet, RetryAfter};
use holdoff_testbed::Postgres;
use holdoff_work::{
    AttemptRecord, ClaimedStep, Claimer, PageRequest, Settings, StepFilter, StepId, StepRecord, Submitted,
    Task, TaskId, TaskState, Work,
};
use sqlx::{Connection, Executor, PgConnection, SqliteConnection};
use tempfile::TempDir;
use tokio::time::Instant;

pub(crate) const SECOND: Duration = Duration::from_secs(1);
pub(crate) const MINUTE: Duration = Duration::from_secs(60);
pub(crate) const HOUR: Duration = Duration::from_secs(3600);

/// A separate store for one test.
pub(crate) struct TestStore {
    pub(crate) url: String,
    directory: Option<TempDir>,
}

impl TestStore {
    pub(crate) fn sqlite_file() -> Self {
        let directory = TempDir::new().unwrap();
        let url = format!("sqlite:{}", directory.path().join("work.db").display());
        Self { url, directory: Some(directory) }
    }

    pub(crate) fn sqlite_memory() -> Self {
        Self { url: "sqlite::memory:".to_owned(), directory: None }
    }

    pub(crate) fn postgres() -> Self {
        Self { url: Postgres::shared().create_database("work"), directory: None }
    }

    pub(crate) fn is_postgres(&self) -> bool {
        self.url.starts_with("postgres")
    }

    /// Returns the size of the store's file, in bytes.
    pub(crate) fn size(&self) -> u64 {
        let file = self.directory.as_ref().unwrap().path().join("work.db");
        std::fs::metadata(file).unwrap().len()
    }

    /// Opens a node with its own connections. A store in memory belongs to one node.
    pub(crate) async fn open(&self) -> Work {
        self.open_with(settings()).await
    }

    pub(crate) async fn open_with(&self, settings: Settings) -> Work {
        Work::open_with(&self.url, policies(), settings).await.unwrap()
    }
}

/// Executes a statement directly on the store.
pub(crate) async fn execute(store: &TestStore, statement: &'static str) {
    if store.is_postgres() {
        PgConnection::connect(&store.url).await.unwrap().execute(statement).await.unwrap();
    } else {
        SqliteConnection::connect(&store.url).await.unwrap().execute(statement).await.unwrap();
    }
}

/// Runs a query directly on the store.
pub(crate) async fn count(store: &TestStore, query: &'static str) -> i64 {
    if store.is_postgres() {
        let mut connection = PgConnection::connect(&store.url).await.unwrap();
        sqlx::query_scalar(query).fetch_one(&mut connection).await.unwrap()
    } else {
        let mut connection = SqliteConnection::connect(&store.url).await.unwrap();
        sqlx::query_scalar(query).fetch_one(&mut connection).await.unwrap()
    }
}

/// Instantiates tests for every store.
macro_rules! on_every_store {
    ($($test:ident),* $(,)?) => {
        mod sqlite_memory {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                super::$test(crate::conformance::test_store::TestStore::sqlite_memory()).await;
            })*
        }
        $crate::conformance::test_store::on_shared_stores!($($test),*);
    };
}

/// Instantiates tests for the stores that several nodes can share.
macro_rules! on_shared_stores {
    ($($test:ident),* $(,)?) => {
        mod sqlite_file {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                super::$test(crate::conformance::test_store::TestStore::sqlite_file()).await;
            })*
        }
        mod postgres {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                super::$test(crate::conformance::test_store::TestStore::postgres()).await;
            })*
        }
    };
}

pub(crate) use {on_every_store, on_shared_stores};

/// The policies of the tests. The default is `quick`: three attempts, 20 ms apart.
pub(crate) fn policies() -> PolicySet {
    let fixed = |wait| Policy::builder(Growth::constant(wait)).cap(wait).jitter(Jitter::None);
    let exactly = RetryAfter { spread: Duration::ZERO, ..RetryAfter::default() };
    let mut set = PolicySet::default();
    let quick = fixed(Duration::from_millis(20)).attempts(3).retry_after(exactly).build().unwrap();
    set.define("quick", quick.clone());
    set.define("twin", quick);
    set.define("hourly", fixed(HOUR).attempts(3).retry_after(exactly).build().unwrap());
    let short = fixed(SECOND / 2).attempts(100).deadline(2 * SECOND);
    set.define("short", short.build().unwrap());
    let spread = Policy::builder(Growth::constant(MINUTE)).cap(MINUTE).jitter(Jitter::Full).attempts(9);
    set.define("spread", spread.build().unwrap());
    set.define("notification", fixed(Duration::from_millis(30)).attempts(4).build().unwrap());
    set.root_mut().default = Some("quick".to_owned());
    set
}

/// The default settings, with a short poll interval.
pub(crate) fn settings() -> Settings {
    let mut settings = Settings::default();
    settings.poll = Duration::from_millis(20);
    settings
}

/// Polls a condition that cannot be awaited until it returns a value.
pub(crate) async fn eventually<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let end = Instant::now() + CONDITION_TIMEOUT;
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(Instant::now() < end, "timed out waiting: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Submits a task, which must be new.
pub(crate) async fn submit(work: &Work, task: Task) -> TaskId {
    match work.submit(task).await.unwrap() {
        Submitted::Created(task) => task,
        other => panic!("{other:?}"),
    }
}

/// Submits many tasks of one step.
pub(crate) async fn submit_many(work: &Work, count: usize, task: impl Fn() -> Task) -> Vec<TaskId> {
    let tasks = (0..count).map(|_| task()).collect();
    work.submit_all(tasks).await.unwrap().iter().map(Submitted::task).collect()
}

pub(crate) async fn claimer(work: &Work, operations: &[&str]) -> Claimer {
    work.claimer("tester", operations, &[]).await.unwrap()
}

/// Claims the next step, as soon as it is due.
pub(crate) async fn claim(claimer: &Claimer) -> ClaimedStep {
    let look = || async { claimer.claim(1, MINUTE).await.unwrap().pop() };
    eventually("a step to claim", look).await
}

/// Claims this number of due steps.
pub(crate) async fn claim_many(claimer: &Claimer, count: usize, lease: Duration) -> Vec<ClaimedStep> {
    let mut claims = Vec::new();
    while claims.len() < count {
        let more = claimer.claim(1000, lease).await.unwrap();
        assert!(!more.is_empty(), "only {} of {count} steps are due", claims.len());
        claims.extend(more);
    }
    assert_eq!(claims.len(), count);
    claims
}

pub(crate) async fn nothing_is_due(claimer: &Claimer) {
    let claims = claimer.claim(10, MINUTE).await.unwrap();
    assert!(claims.is_empty(), "{claims:?}");
}

/// Returns the record of one step, including payload and output.
pub(crate) async fn step(work: &Work, id: StepId) -> StepRecord {
    work.list(&StepFilter::step(id), &PageRequest::first(1).with_payloads()).await.unwrap().pop().unwrap()
}

/// Returns the attempts of one step that did not succeed, oldest first.
pub(crate) async fn attempts(work: &Work, id: StepId) -> Vec<AttemptRecord> {
    let task = work.task(id.task).await.unwrap().unwrap();
    task.attempts.into_iter().filter(|attempt| attempt.step == id).collect()
}

/// Returns every matching step, from all pages.
pub(crate) async fn list(work: &Work, filter: &StepFilter) -> Vec<StepRecord> {
    let mut page = PageRequest::first(PageRequest::MAX_LIMIT);
    let mut all = Vec::new();
    loop {
        let more = work.list(filter, &page).await.unwrap();
        let Some(last) = more.last() else { return all };
        page = page.after(last.id);
        all.extend(more);
    }
}

pub(crate) async fn ids(work: &Work, filter: &StepFilter) -> BTreeSet<StepId> {
    list(work, filter).await.into_iter().map(|step| step.id).collect()
}

/// Returns a filter with these conditions.
pub(crate) fn filter(set_fields: impl FnOnce(&mut StepFilter)) -> StepFilter {
    let mut filter = StepFilter::default();
    set_fields(&mut filter);
    filter
}

/// Waits until the task ends, and checks its state.
pub(crate) async fn ends(work: &Work, task: TaskId, state: TaskState) {
    let ended = tokio::time::timeout(CONDITION_TIMEOUT, work.wait(task)).await;
    let ended = ended.unwrap_or_else(|_| panic!("task {task} does not end")).unwrap();
    assert_eq!(ended.state, state, "{ended:?}");
}
