//! Clusters of daemons as in production: separate processes on one real Postgres, under load, killed and restarted.
//!
//! The tests run one at a time, so that each has the machine and its measurements to itself.

mod backup;
mod earlier;
mod faults;
mod hung;
mod node;
mod policies;

use holdoff_testbed::CONDITION_TIMEOUT;
use std::time::{Duration, Instant};

use holdoff_policy::PolicySet;
use holdoff_work::{Settings, TaskState, Work};

/// Serialises the tests.
static TURN: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

/// Short leases and poll intervals, so that tests do not wait, and a policy with unlimited attempts.
const FILE: &str = r#"
[work]
lease = "2s"
poll = "100ms"
[policies.quick]
extends = "standard"
base = "50ms"
cap = "1s"
attempts = "unlimited"
[operations]
"*" = "quick"
"#;

/// Instantiates tests for a store on Postgres itself, and for one behind a pooler in transaction mode.
macro_rules! on_each_way_to_postgres {
    ($($test:ident),* $(,)?) => {
        mod postgres {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                super::$test(&holdoff_testbed::Postgres::shared().create_database("cluster")).await;
            })*
        }
        mod pgbouncer {
            use holdoff_testbed::{PgBouncer, Postgres};

            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                let pooler = PgBouncer::start(Postgres::shared());
                super::$test(&pooler.url(&Postgres::shared().create_database("pooled"))).await;
            })*
        }
    };
}

use on_each_way_to_postgres;

/// Polls until the condition holds, or panics after the timeout.
async fn until<F: Future<Output = bool>>(what: &str, mut is_so: impl FnMut() -> F) {
    let end = Instant::now() + CONDITION_TIMEOUT;
    while !is_so().await {
        assert!(Instant::now() < end, "timed out after {CONDITION_TIMEOUT:?}: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Waits until all of these tasks have succeeded.
async fn all_succeed(store: &str, tasks: &[String]) {
    let work = Work::attach(store, PolicySet::default(), Settings::default()).await.unwrap();
    for task in tasks {
        let id = task.parse().unwrap();
        until(&format!("task {task} succeeds"), async || {
            work.task_outline(id).await.unwrap().expect("an accepted task is stored").state
                == TaskState::Succeeded
        })
        .await;
    }
}

/// Asserts that no step was called more often than it was granted: once, plus once for each recorded attempt that did
/// not succeed.
async fn no_more_calls_than_grants(store: &str, target: &node::Target, tasks: &[String]) {
    let work = Work::attach(store, PolicySet::default(), Settings::default()).await.unwrap();
    for task in tasks {
        let record = work.task_outline(task.parse().unwrap()).await.unwrap().expect("the task is stored");
        let (calls, grants) = (target.calls_for(task), 1 + record.attempts.len());
        assert!(calls <= grants, "{task}: {calls} calls, {grants} grants: {:?}", record.attempts);
    }
}
