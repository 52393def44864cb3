//! Concurrent callers: their tasks share transactions, and the error of one caller does not affect the others.

use std::collections::BTreeSet;

use holdoff_testbed::Postgres;
use holdoff_work::{Error, InvalidTask, Step, Submitted, Task, TaskId, Work};
use sqlx::{Connection, Executor, PgConnection};
use tokio::task::JoinSet;

use crate::conformance::place::{Place, eventually, filter, list, on_every_store, submit};

const CALLERS: usize = 200;

type Answers = Vec<(usize, Result<Submitted, Error>)>;

/// All callers submit a task at once.
async fn all_at_once(work: &Work, task: impl Fn(usize) -> Task) -> Answers {
    let mut calls = JoinSet::new();
    for number in 0..CALLERS {
        let (work, task) = (work.clone(), task(number));
        calls.spawn(async move { (number, work.submit(task).await) });
    }
    calls.join_all().await
}

async fn each_caller_gets_its_own_answer(place: Place) {
    let work = place.open().await;
    let answers = all_at_once(&work, |number| match number % 4 {
        0 => Task::new("mail").dedup("the same"),
        1 => Task::new("mail").queue(""),
        2 => Task::new("mail").dedup(format!("key {number}")),
        _ => Task::graph().step("a", Step::new("mail")).step("b", Step::new("mail").after("a")),
    })
    .await;
    let (mut same, mut created): (BTreeSet<TaskId>, BTreeSet<TaskId>) = Default::default();
    let mut firsts = 0;
    for (number, answer) in answers {
        match (number % 4, answer) {
            (0, Ok(fate)) => {
                firsts += usize::from(matches!(fate, Submitted::Created(_)));
                same.insert(fate.task());
            }
            (1, Err(Error::Invalid(InvalidTask::BadName { .. }))) => {}
            (2 | 3, Ok(Submitted::Created(task))) => assert!(created.insert(task)),
            (_, other) => panic!("{number}: {other:?}"),
        }
    }
    assert_eq!((same.len(), firsts, created.len()), (1, 1, CALLERS / 2));
    assert_eq!(list(&work, &filter(|_| ())).await.len(), 1 + CALLERS / 4 + 2 * CALLERS / 4);
}

async fn who_goes_away_leaves_the_others_alone(place: Place) {
    let work = place.open().await;
    let mut calls = JoinSet::new();
    for number in 0..CALLERS {
        let work = work.clone();
        let call = calls.spawn(async move { work.submit(Task::new("mail")).await.unwrap().task() });
        if number % 2 == 0 {
            call.abort();
        }
    }
    let mut answered = BTreeSet::new();
    while let Some(call) = calls.join_next().await {
        answered.extend(call.ok());
    }
    assert!(answered.len() >= CALLERS / 2);
    let stored: BTreeSet<TaskId> =
        list(&work, &filter(|_| ())).await.iter().map(|step| step.id.task).collect();
    assert!(stored.is_superset(&answered), "what was answered is stored");
    work.submit(Task::new("mail")).await.unwrap();
}

on_every_store!(each_caller_gets_its_own_answer, who_goes_away_leaves_the_others_alone);

/// While one transaction is being written, further tasks queue up and are then written together. The test runs on one
/// thread, so that it knows when all are queued.
#[tokio::test]
async fn many_callers_share_a_transaction() {
    let place = Place::postgres();
    let work = place.open().await;
    // Names are looked up once; from now on no submission queries the store before it queues up.
    submit(&work, Task::new("mail")).await;
    let mut other = PgConnection::connect(&place.url).await.unwrap();
    let mut lock = other.begin().await.unwrap();
    lock.execute("lock table holdoff.steps in exclusive mode").await.unwrap();
    // A connection of its own, because inside a transaction Postgres shows the activity of others as it was at the
    // first look.
    let mut watcher = PgConnection::connect(&place.url).await.unwrap();
    let first = tokio::spawn({
        let work = work.clone();
        async move { work.submit(Task::new("mail")).await }
    });
    let waiting = "select count(*) from pg_stat_activity where datname = current_database()
        and wait_event_type = 'Lock' and query like 'insert into holdoff.steps%'";
    eventually("the first one waits", async || {
        let waiting: i64 = sqlx::query_scalar(waiting).fetch_one(&mut watcher).await.unwrap();
        (waiting == 1).then_some(())
    })
    .await;
    let mut calls = JoinSet::new();
    for _ in 0..CALLERS {
        let work = work.clone();
        calls.spawn(async move { work.submit(Task::new("mail")).await });
    }
    // All calls queue up before this task runs again.
    tokio::task::yield_now().await;
    lock.rollback().await.unwrap();
    first.await.unwrap().unwrap();
    for answer in calls.join_all().await {
        answer.unwrap();
    }
    let transactions = "select count(distinct xmin::text) from holdoff.steps";
    let transactions: i64 = sqlx::query_scalar(transactions).fetch_one(&mut other).await.unwrap();
    assert_eq!(transactions, 3, "the one before, the first, and all {CALLERS} callers");
}

/// A task that the store refuses, and that no check rejected before, does not affect the other tasks.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_stored_is_refused_alone() {
    let place = Place::postgres();
    let work = place.open().await;
    let refuse = "create function refuse() returns trigger language plpgsql as
            $$ begin raise exception 'not this one'; end $$;
        create trigger refuse before insert on holdoff.steps for each row when (new.name = 'poison') execute function refuse()";
    Postgres::shared().psql(place.url.rsplit('/').next().unwrap(), refuse);
    let poison = |number| number % 50 == 7;
    let answers = all_at_once(&work, |number| {
        let name = if poison(number) { "poison" } else { "good" };
        Task::graph().step(name, Step::new("mail"))
    })
    .await;
    for (number, answer) in answers {
        let is_refused = matches!(answer, Err(Error::Store { transient: false, .. }));
        assert!(is_refused == poison(number) && answer.is_ok() != poison(number), "{number}: {answer:?}");
    }
    assert_eq!(list(&work, &filter(|_| ())).await.len(), CALLERS - 4);
}
