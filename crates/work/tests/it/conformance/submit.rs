//! Submission: single tasks, batches, deduplication keys, and concurrent callers.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use holdoff_testbed::Postgres;
use holdoff_work::{
    Context, Error, Fault, Fingerprint, Format, InvalidTask, Payload, Step, StepFilter, StepState, Submitted,
    Task, TaskId, TaskRecord, TaskState, Work,
};
use sqlx::{Connection, Executor, PgConnection};
use tokio::task::JoinSet;

use crate::conformance::test_store::{
    HOUR, MINUTE, TestStore, claim, claim_many, claimer, ends, eventually, filter, ids, list, nothing_is_due,
    on_every_store, on_shared_stores, step, submit, submit_many,
};

async fn a_submitted_task_is_listed_and_claimed(store: TestStore) {
    let work = store.open().await;
    let task = submit(&work, Task::new("mail").json(&["ada"]).queue("slow").priority(3)).await;
    let record = step(&work, task.step(0)).await;
    assert_eq!(
        (record.state, record.queue.as_str(), record.operation.as_str()),
        (StepState::Ready, "slow", "mail")
    );
    assert_eq!((record.priority, record.policy.as_str(), record.failures), (3, "quick", 0));
    assert_eq!(record.namespace, "default");
    let claimed = claim(&claimer(&work, &["mail"]).await).await;
    assert_eq!(claimed.step(), task.step(0));
    assert_eq!(claimed.payload().read::<Vec<String>>().unwrap(), ["ada"]);
    assert_eq!((claimed.attempt(), claimed.token(), claimed.operation()), (1, 1, "mail"));
}

async fn thousands_of_tasks_are_accepted_at_once(store: TestStore) {
    let work = store.open().await;
    let tasks = submit_many(&work, 5000, || Task::new("mail")).await;
    assert!(tasks.windows(2).all(|pair| pair[0] < pair[1]), "later tasks sort after earlier ones");
    assert_eq!(list(&work, &filter(|_| ())).await.len(), 5000);
    claim_many(&claimer(&work, &["mail"]).await, 5000, MINUTE).await;
    assert!(work.submit_all(Vec::new()).await.unwrap().is_empty());
}

async fn a_graph_is_accepted_whole(store: TestStore) {
    let work = store.open().await;
    let graph = Task::graph()
        .step("charge", Step::new("card.charge"))
        .step("pack", Step::new("parcel.pack").queue("floor"))
        .step("ship", Step::new("parcel.ship").after("charge").after("pack").after("pack"));
    let task = submit(&work, graph).await;
    let record = work.task(task).await.unwrap().unwrap();
    assert_eq!(record.state, TaskState::Running);
    let states: Vec<_> = record.steps.iter().map(|step| (step.state, step.waiting_for)).collect();
    assert_eq!(states, [(StepState::Ready, 0), (StepState::Ready, 0), (StepState::Blocked, 2)]);
    assert_eq!(record.steps[2].name.as_deref(), Some("ship"));
}

async fn a_dedup_key_is_accepted_once(store: TestStore) {
    let work = store.open().await;
    let first = submit(&work, Task::new("mail").dedup("welcome")).await;
    let again = work.submit(Task::new("mail").dedup("welcome")).await.unwrap();
    assert_eq!(again, Submitted::Duplicate(first));
    let elsewhere = work.submit(Task::new("mail").dedup("welcome").namespace("eu")).await.unwrap();
    assert!(matches!(elsewhere, Submitted::Created(_)), "another namespace has its own keys");
    assert_eq!(list(&work, &filter(|_| ())).await.len(), 2);
}

async fn a_repeated_key_in_one_batch_is_one_task(store: TestStore) {
    let work = store.open().await;
    let keyed = |key: &str| Task::new("mail").dedup(key);
    let fates = work.submit_all(vec![keyed("a"), keyed("b"), keyed("a"), Task::new("mail")]).await.unwrap();
    assert_eq!(fates[2], Submitted::Duplicate(fates[0].task()));
    assert!([0, 1, 3].iter().all(|index| matches!(fates[*index], Submitted::Created(_))), "{fates:?}");
    assert_eq!(list(&work, &filter(|_| ())).await.len(), 3);
}

async fn a_key_is_free_after_its_retention_and_task(store: TestStore) {
    let work = store.open().await;
    let keyed = || Task::new("mail").dedup("welcome").dedup_retention(Duration::from_millis(1));
    let first = submit(&work, keyed()).await;
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert_eq!(
        work.submit(keyed()).await.unwrap(),
        Submitted::Duplicate(first),
        "a live task keeps its key beyond the retention"
    );
    let claimer = claimer(&work, &["mail"]).await;
    claimer.complete(&claim(&claimer).await, Payload::empty()).await.unwrap();
    let second = work.submit(keyed().dedup_retention(HOUR)).await.unwrap();
    assert!(matches!(second, Submitted::Created(_)), "{second:?}");
    claimer.complete(&claim(&claimer).await, Payload::empty()).await.unwrap();
    assert_eq!(
        work.submit(keyed()).await.unwrap(),
        Submitted::Duplicate(second.task()),
        "the retention has not expired"
    );
}

async fn one_key_submitted_by_ten_nodes_is_one_task(store: TestStore) {
    let mut nodes = Vec::new();
    for _ in 0..10 {
        nodes.push(store.open().await);
    }
    let calls = nodes.iter().cloned().map(|node| {
        let keyed = |key: usize| Task::new("mail").dedup(format!("key {key}"));
        tokio::spawn(async move { node.submit_all((0..50).map(keyed).collect()).await.unwrap() })
    });
    let mut fates = Vec::new();
    for call in calls.collect::<Vec<_>>() {
        fates.push(call.await.unwrap());
    }
    for key in 0..50 {
        let created = fates.iter().filter(|fates| matches!(fates[key], Submitted::Created(_))).count();
        assert_eq!(created, 1);
        assert!(fates.iter().all(|fate| fate[key].task() == fates[0][key].task()));
    }
    assert_eq!(list(&nodes[0], &filter(|_| ())).await.len(), 50);
}

async fn a_delayed_step_is_not_due_early(store: TestStore) {
    let work = store.open().await;
    let task = submit(&work, Task::new("mail").delay(Duration::from_millis(600))).await;
    let claimer = claimer(&work, &["mail"]).await;
    nothing_is_due(&claimer).await;
    let record = step(&work, task.step(0)).await;
    assert_eq!(record.due_at.unwrap().since(record.created_at), Duration::from_millis(600));
    claim(&claimer).await;
    let record = step(&work, task.step(0)).await;
    assert!(record.last_attempted_at.unwrap().since(record.created_at) >= Duration::from_millis(600));
}

async fn steps_are_claimed_by_priority_then_age(store: TestStore) {
    let work = store.open().await;
    let mut expected = Vec::new();
    for priority in [7, 0, 5, 5, 9, 0] {
        expected.push((priority, submit(&work, Task::new("mail").priority(priority)).await));
    }
    expected.sort();
    let claimer = claimer(&work, &["mail"]).await;
    for (priority, task) in expected {
        assert_eq!(claim(&claimer).await.step().task, task, "priority {priority}");
    }
}

async fn every_step_receives_the_trace(store: TestStore) {
    let work = store.open().await;
    let seen = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&seen);
    let worker = work.worker().handle("note", move |context: Context, (): ()| {
        log.lock().unwrap().push(context.trace().map(str::to_owned));
        async { Ok::<_, Fault>(()) }
    });
    let worker = worker.start().await.unwrap();
    let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let graph =
        Task::graph().step("a", Step::new("note")).step("b", Step::new("note").after("a")).trace(trace);
    let task = submit(&work, graph).await;
    ends(&work, task, TaskState::Succeeded).await;
    assert_eq!(*seen.lock().unwrap(), vec![Some(trace.to_owned()); 2]);
    worker.shutdown().await;
}

async fn payloads_arrive_unchanged(store: TestStore) {
    let work = store.open().await;
    let bytes: Vec<u8> = (0..=255).collect();
    let payloads = [
        Payload::bytes(bytes),
        Payload::empty(),
        Payload::bytes(Vec::new()),
        Payload::json("\0 \u{1F980} \"'\\").unwrap(),
        Payload::bytes(vec![b'x'; 256 * 1024]),
    ];
    let claimer = claimer(&work, &["mail"]).await;
    for payload in payloads {
        let task = submit(&work, Task::of(Step::new("mail").payload(payload.clone()))).await;
        assert_eq!(step(&work, task.step(0)).await.payload, Some(payload.clone()));
        let claimed = claim(&claimer).await;
        assert_eq!(*claimed.payload(), payload);
        claimer.complete(&claimed, payload.clone()).await.unwrap();
        let record = step(&work, task.step(0)).await;
        assert_eq!(record.output, Some(payload.clone()));
        assert_eq!(record.output.unwrap().format() == Format::Empty, payload.format() == Format::Empty);
    }
}

/// Two policies with the same content keep their own names.
async fn a_step_record_names_its_policy(store: TestStore) {
    let work = store.open().await;
    for name in ["twin", "quick"] {
        let task = submit(&work, Task::new("mail").policy(name)).await;
        assert_eq!(step(&work, task.step(0)).await.policy, name);
    }
}

async fn unusual_names_are_kept_unchanged(store: TestStore) {
    let work = store.open().await;
    let odd = "a'b\"c\\d%e_f[g]*h?i {1,2} \u{fc}\u{1F980} 123 null";
    let task =
        submit(&work, Task::graph().step(odd, Step::new(odd).queue(odd)).namespace(odd).dedup(odd)).await;
    let record = step(&work, task.step(0)).await;
    let names =
        [record.name.as_deref(), Some(&record.operation), Some(&record.queue), Some(&record.namespace)];
    assert!(names.iter().all(|name| *name == Some(odd)), "{names:?}");
    assert_eq!(claim(&claimer(&work, &[odd]).await).await.step(), task.step(0));
    for alone in [
        filter(|filter| filter.namespace = Some(odd.to_owned())),
        filter(|filter| filter.queue = Some(odd.to_owned())),
        filter(|filter| filter.operation = Some(odd.to_owned())),
        filter(|filter| filter.text = Some(odd.to_owned())),
    ] {
        assert_eq!(ids(&work, &alone).await.len(), 1, "{alone:?}");
    }
}

mod shared {
    use super::{on_shared_stores, one_key_submitted_by_ten_nodes_is_one_task};

    on_shared_stores!(one_key_submitted_by_ten_nodes_is_one_task);
}

/// Returns all tasks, by pages of this size.
async fn all(work: &Work, filter: &StepFilter, state: Option<TaskState>, limit: u32) -> Vec<TaskId> {
    let (mut all, mut before) = (Vec::new(), None);
    loop {
        let page = work.tasks(filter, state, before, limit).await.unwrap();
        assert!(page.tasks.len() <= limit as usize);
        all.extend(page.tasks.iter().map(|task| task.id));
        before = page.next;
        if before.is_none() {
            return all;
        }
    }
}

async fn tasks_are_listed_once_by_the_state_of_their_steps(store: TestStore) {
    let work = store.open().await;
    let claimer = claimer(&work, &["mail"]).await;
    let mut done = Vec::new();
    for _ in 0..7 {
        done.push(submit(&work, Task::new("mail")).await);
        claimer.complete(&claim(&claimer).await, Payload::empty()).await.unwrap();
    }
    let failed = submit(&work, Task::new("mail").namespace("elsewhere")).await;
    claimer.fail(&claim(&claimer).await, Fault::permanent("no")).await.unwrap();
    let graph =
        Task::graph().step("x", Step::new("first").delay(HOUR)).step("y", Step::new("mail").after("x"));
    let running = submit(&work, graph).await;

    let newest_first: Vec<TaskId> = [running, failed].into_iter().chain(done.iter().rev().copied()).collect();
    for limit in [1, 2, 100] {
        assert_eq!(all(&work, &StepFilter::default(), None, limit).await, newest_first);
        assert_eq!(
            all(&work, &StepFilter::default(), Some(TaskState::Succeeded), limit).await,
            newest_first[2..]
        );
        assert_eq!(all(&work, &StepFilter::default(), Some(TaskState::Running), limit).await, [running]);
    }
    let elsewhere = filter(|filter| filter.namespace = Some("elsewhere".to_owned()));
    let page = work.tasks(&elsewhere, None, None, 10).await.unwrap();
    assert_eq!((page.tasks.len(), page.next), (1, None));
    let task = &page.tasks[0];
    assert_eq!(
        (task.id, task.state, &*task.namespace, &*task.operation),
        (failed, TaskState::Failed, "elsewhere", "mail")
    );
    assert!(task.ended_at.is_some_and(|ended| ended >= task.created_at));

    let page = work.tasks(&StepFilter::task(running), None, None, 10).await.unwrap();
    let task = &page.tasks[0];
    assert_eq!((&*task.operation, task.state, task.ended_at), ("first", TaskState::Running, None));
    assert_eq!(task.steps, [(StepState::Blocked, 1), (StepState::Ready, 1)]);
}

async fn a_request_fingerprint_is_recognised_under_its_key(store: TestStore) {
    let work = store.open().await;
    let [one, other] = ["one", "other"].map(|body| Fingerprint::of(["key", body]));
    let first = work.submit(Task::new("mail").dedup("key").request_fingerprint(one)).await.unwrap();
    assert!(matches!(first, Submitted::Created(_)) && first.task().has_fingerprint(one));
    for (mark, is_same) in [(one, true), (other, false)] {
        let again = work.submit(Task::new("mail").dedup("key").request_fingerprint(mark)).await.unwrap();
        assert_eq!(again, Submitted::Duplicate(first.task()));
        assert_eq!(again.task().has_fingerprint(mark), is_same);
    }
}

async fn a_task_outline_has_no_payloads(store: TestStore) {
    let work = store.open().await;
    let graph =
        Task::graph().step("a", Step::new("mail").json(&1)).step("b", Step::new("mail").after("a").json(&2));
    let task = submit(&work, graph).await;
    let claimer = claimer(&work, &["mail"]).await;
    claimer.complete(&claim(&claimer).await, Payload::json(&3).unwrap()).await.unwrap();
    let whole = work.task(task).await.unwrap().unwrap();
    assert!(whole.steps[0].output.is_some() && whole.steps[1].payload.is_some());
    let outline = work.task_outline(task).await.unwrap().unwrap();
    assert!(outline.steps.iter().all(|step| step.output.is_none() && step.payload.is_none()), "{outline:?}");
    let states = |task: &TaskRecord| task.steps.iter().map(|step| step.state).collect::<Vec<_>>();
    assert_eq!((outline.state, states(&outline)), (whole.state, states(&whole)));
    assert!(work.task_outline(TaskId::from_uuid(uuid::Uuid::nil())).await.unwrap().is_none());
}

const CALLERS: usize = 200;

type CallerResults = Vec<(usize, Result<Submitted, Error>)>;

/// All callers submit a task at once.
async fn all_at_once(work: &Work, task: impl Fn(usize) -> Task) -> CallerResults {
    let mut calls = JoinSet::new();
    for number in 0..CALLERS {
        let (work, task) = (work.clone(), task(number));
        calls.spawn(async move { (number, work.submit(task).await) });
    }
    calls.join_all().await
}

async fn each_caller_gets_its_own_result(store: TestStore) {
    let work = store.open().await;
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

async fn a_dropped_caller_does_not_affect_others(store: TestStore) {
    let work = store.open().await;
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
    assert!(stored.is_superset(&answered), "every acknowledged task is stored");
    work.submit(Task::new("mail")).await.unwrap();
}

/// While one transaction is being written, further tasks queue up and are then written together. The test runs on one
/// thread, so that it knows when all are queued.
#[tokio::test]
async fn many_callers_share_a_transaction() {
    let store = TestStore::postgres();
    let work = store.open().await;
    // Names are looked up once; from now on no submission queries the store before it queues up.
    submit(&work, Task::new("mail")).await;
    let mut other = PgConnection::connect(&store.url).await.unwrap();
    let mut lock = other.begin().await.unwrap();
    lock.execute("lock table holdoff.steps in exclusive mode").await.unwrap();
    // A connection of its own, because inside a transaction Postgres shows the activity of others as it was at the
    // first look.
    let mut watcher = PgConnection::connect(&store.url).await.unwrap();
    let first = tokio::spawn({
        let work = work.clone();
        async move { work.submit(Task::new("mail")).await }
    });
    let waiting = "select count(*) from pg_stat_activity where datname = current_database()
        and wait_event_type = 'Lock' and query like 'insert into holdoff.steps%'";
    eventually("the first insert waits for the lock", async || {
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
    assert_eq!(
        transactions, 3,
        "one transaction for the earlier task, one for the first caller, one for all {CALLERS} callers"
    );
}

/// A task that the store refuses, and that no check rejected before, does not affect the other tasks.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_that_cannot_be_stored_is_rejected_alone() {
    let store = TestStore::postgres();
    let work = store.open().await;
    let refuse = "create function refuse() returns trigger language plpgsql as
            $$ begin raise exception 'not this one'; end $$;
        create trigger refuse before insert on holdoff.steps for each row when (new.name = 'poison') execute function refuse()";
    Postgres::shared().psql(store.url.rsplit('/').next().unwrap(), refuse);
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

on_every_store!(
    a_submitted_task_is_listed_and_claimed,
    thousands_of_tasks_are_accepted_at_once,
    a_graph_is_accepted_whole,
    a_dedup_key_is_accepted_once,
    a_repeated_key_in_one_batch_is_one_task,
    a_key_is_free_after_its_retention_and_task,
    a_delayed_step_is_not_due_early,
    steps_are_claimed_by_priority_then_age,
    every_step_receives_the_trace,
    payloads_arrive_unchanged,
    a_step_record_names_its_policy,
    unusual_names_are_kept_unchanged,
    a_task_outline_has_no_payloads,
    tasks_are_listed_once_by_the_state_of_their_steps,
    a_request_fingerprint_is_recognised_under_its_key,
    each_caller_gets_its_own_result,
    a_dropped_caller_does_not_affect_others,
);
