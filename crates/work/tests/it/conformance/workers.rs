//! Workers that run handlers: how they stop, and which errors they must not make.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use holdoff_work::{
    Action, AttemptOutcome, Context, Fault, Payload, Step, StepFilter, StepState, Submitted, Task, TaskId,
    TaskState, Work, WorkerBuilder,
};
use tokio::sync::{Barrier, mpsc};

use crate::conformance::test_store::{
    SECOND, TestStore, attempts, ends, eventually, execute, filter, ids, on_every_store, on_shared_stores,
    settings, step, submit, submit_many,
};

/// The events of a handler that never ends by itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum HandlerEvent {
    Begun,
    /// The context was cancelled.
    Cancelled,
    /// The handler was dropped.
    Stopped,
}

/// Reports that the handler was stopped, when it is dropped.
struct Dropped(mpsc::UnboundedSender<HandlerEvent>);

impl Drop for Dropped {
    fn drop(&mut self) {
        let _ = self.0.send(HandlerEvent::Stopped);
    }
}

/// Returns a worker whose only handler never ends by itself, and which watches its context from a spawned task.
fn endless(work: &Work) -> (WorkerBuilder, mpsc::UnboundedReceiver<HandlerEvent>) {
    let (sender, events) = mpsc::unbounded_channel();
    let builder = work.worker().handle("endless", move |context: Context, (): ()| {
        let sender = sender.clone();
        async move {
            let (on_cancel, dropped) = (sender.clone(), Dropped(sender.clone()));
            tokio::spawn(async move {
                context.cancelled().await;
                let _ = on_cancel.send(HandlerEvent::Cancelled);
            });
            let _ = sender.send(HandlerEvent::Begun);
            std::future::pending::<()>().await;
            drop(dropped);
            Ok::<_, Fault>(())
        }
    });
    (builder, events)
}

async fn next_event(events: &mut mpsc::UnboundedReceiver<HandlerEvent>) -> HandlerEvent {
    tokio::time::timeout(20 * SECOND, events.recv()).await.expect("an event within the timeout").unwrap()
}

/// Waits for both events, in any order: the handler was stopped, and its context was cancelled.
async fn expect_stop_events(from: &mut mpsc::UnboundedReceiver<HandlerEvent>) {
    let both = [next_event(from).await, next_event(from).await];
    assert!(both.contains(&HandlerEvent::Cancelled) && both.contains(&HandlerEvent::Stopped), "{both:?}");
}

async fn shutdown_requeues_steps_that_do_not_end(store: TestStore) {
    let work = store.open().await;
    let (builder, mut events) = endless(&work);
    let worker = builder.start().await.unwrap();
    let task = submit(&work, Task::new("endless")).await;
    assert_eq!(next_event(&mut events).await, HandlerEvent::Begun);
    assert_eq!(worker.held(), 1);
    worker.shutdown_within(Duration::from_millis(50)).await;
    // When the shutdown returns, the report is durable.
    let record = step(&work, task.step(0)).await;
    assert_eq!((record.state, record.failures, record.snoozes), (StepState::Ready, 0, 1));
    let kept = attempts(&work, task.step(0)).await;
    assert_eq!(
        (kept.len(), kept[0].outcome, kept[0].delay),
        (1, AttemptOutcome::Shutdown, Some(Duration::ZERO))
    );
    expect_stop_events(&mut events).await;
    let claimed = crate::conformance::test_store::claim(
        &crate::conformance::test_store::claimer(&work, &["endless"]).await,
    )
    .await;
    assert_eq!(claimed.attempt(), 1);
}

async fn shutdown_waits_for_running_steps(store: TestStore) {
    let work = store.open().await;
    let (begun, mut begins) = mpsc::unbounded_channel();
    let worker = work.worker().handle("slow", move |_: Context, (): ()| {
        let begun = begun.clone();
        async move {
            begun.send(()).unwrap();
            tokio::time::sleep(Duration::from_millis(300)).await;
            Ok::<_, Fault>(())
        }
    });
    let worker = worker.start().await.unwrap();
    let task = submit(&work, Task::new("slow")).await;
    begins.recv().await.unwrap();
    worker.shutdown().await;
    assert_eq!(step(&work, task.step(0)).await.state, StepState::Succeeded);
    let late = submit(&work, Task::new("slow")).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(
        step(&work, late.step(0)).await.state,
        StepState::Ready,
        "a worker that has shut down claims no step"
    );
}

async fn a_dropped_worker_stops_immediately(store: TestStore) {
    let work = store.open().await;
    let (builder, mut events) = endless(&work);
    let worker = builder.start().await.unwrap();
    let task = submit(&work, Task::new("endless")).await;
    assert_eq!(next_event(&mut events).await, HandlerEvent::Begun);
    drop(worker);
    expect_stop_events(&mut events).await;
    // The dropped worker sent no report: the step is rescued when its lease expires.
    assert_eq!(step(&work, task.step(0)).await.state, StepState::Running);
}

async fn a_lost_lease_stops_the_handler(store: TestStore) {
    let mut settings = settings();
    settings.lease = Duration::from_millis(400);
    let work = store.open_with(settings).await;
    let (builder, mut events) = endless(&work);
    let worker = builder.start().await.unwrap();
    let task = submit(&work, Task::new("endless")).await;
    assert_eq!(next_event(&mut events).await, HandlerEvent::Begun);
    work.act(&StepFilter::task(task), &Action::Cancel).await.unwrap();
    expect_stop_events(&mut events).await;
    eventually("the worker holds no step", || async { (worker.held() == 0).then_some(()) }).await;
    worker.shutdown().await;
    assert_eq!(step(&work, task.step(0)).await.state, StepState::Cancelled);
}

async fn a_panic_is_a_transient_failure(store: TestStore) {
    let work = store.open().await;
    // The handler panics both in creating its future, which is not asynchronous yet, and in running it.
    let worker = work.worker().handle("bad", |context: Context, (): ()| {
        assert!(context.attempt() > 1, "panic in creating the future");
        async move {
            assert!(context.attempt() == 3, "panic in running the future");
            Ok::<_, Fault>(context.attempt())
        }
    });
    let worker = worker.start().await.unwrap();
    let task = submit(&work, Task::new("bad")).await;
    ends(&work, task, TaskState::Succeeded).await;
    let kept = attempts(&work, task.step(0)).await;
    assert_eq!(kept.iter().map(|attempt| attempt.outcome).collect::<Vec<_>>(), [AttemptOutcome::Retried; 2]);
    assert!(kept.iter().all(|attempt| attempt.message.as_deref() == Some("the handler panicked")));
    worker.shutdown().await;
}

async fn an_unreadable_payload_is_a_permanent_failure(store: TestStore) {
    let work = store.open().await;
    let worker =
        work.worker().handle("number", |_: Context, number: u32| async move { Ok::<_, Fault>(number) });
    let worker = worker.start().await.unwrap();
    let task = submit(&work, Task::new("number").json("seven")).await;
    ends(&work, task, TaskState::Failed).await;
    let record = step(&work, task.step(0)).await;
    assert_eq!(record.failures, 1);
    assert!(record.message.unwrap().contains("the handler cannot read the payload"));
    worker.shutdown().await;
}

/// The handler has done its work, so neither a failure nor a repetition would be right.
async fn a_handler_with_an_output_above_the_limit_succeeds(store: TestStore) {
    let mut settings = settings();
    settings.max_output = 100;
    let work = store.open_with(settings).await;
    let worker = work
        .worker()
        .handle("large", |_: Context, (): ()| async { Ok::<_, Fault>(Payload::bytes(vec![0; 101])) });
    let worker = worker.start().await.unwrap();
    let task = submit(&work, Task::new("large")).await;
    ends(&work, task, TaskState::Succeeded).await;
    let record = step(&work, task.step(0)).await;
    assert_eq!((record.failures, record.output), (0, Some(Payload::empty())));
    assert!(record.message.unwrap().starts_with("the output of 101 bytes was dropped"));
    worker.shutdown().await;
}

/// The worker polls once an hour, and nothing notifies it.
async fn steps_start_when_they_are_due(store: TestStore) {
    let mut settings = settings();
    settings.poll = Duration::from_secs(3600);
    let work = store.open_with(settings).await;
    let worker = work.worker().handle("flaky", |context: Context, (): ()| async move {
        match context.attempt() {
            1 => Err(Fault::transient("first")),
            2 => Err(Fault::transient("asked to wait").retry_after(Duration::from_millis(300))),
            _ => Ok(()),
        }
    });
    let worker = worker.start().await.unwrap();
    let flaky = || Step::new("flaky").policy("quick");
    let delayed = || flaky().delay(Duration::from_millis(500));
    let behind = Task::graph().step("first", flaky()).step("behind", delayed().after("first"));
    for (task, last) in [(Task::of(flaky()), 0), (Task::of(delayed()), 0), (behind, 1)] {
        let task = submit(&work, task).await;
        ends(&work, task, TaskState::Succeeded).await;
        assert_eq!(step(&work, task.step(last)).await.failures, 2);
    }
    worker.shutdown().await;
}

async fn a_worker_runs_only_its_operations_and_queues(store: TestStore) {
    let work = store.open().await;
    let wanted = submit(&work, Task::new("mail").queue("a").namespace("eu")).await;
    for other in [
        Task::new("print").queue("a").namespace("eu"),
        Task::new("mail").queue("b").namespace("eu"),
        Task::new("mail").queue("a"),
    ] {
        submit(&work, other).await;
    }
    let seen = Arc::new(Mutex::new(BTreeSet::new()));
    let log = Arc::clone(&seen);
    let worker = work.worker().queue("a").namespace("eu").handle("mail", move |context: Context, (): ()| {
        log.lock().unwrap().insert(context.step());
        async { Ok::<_, Fault>(()) }
    });
    let worker = worker.start().await.unwrap();
    ends(&work, wanted, TaskState::Succeeded).await;
    // The worker polls again after that, and finds no matching step.
    tokio::time::sleep(Duration::from_millis(200)).await;
    worker.shutdown().await;
    assert_eq!(*seen.lock().unwrap(), BTreeSet::from([wanted.step(0)]));
    let untouched = ids(&work, &filter(|filter| filter.states = vec![StepState::Ready])).await;
    assert_eq!(untouched.len(), 3);
}

async fn concurrency_is_limited_by_slots(store: TestStore) {
    let work = store.open().await;
    let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let count = (Arc::clone(&now), Arc::clone(&most));
    let worker = work.worker().concurrency(7).handle("mail", move |_: Context, (): ()| {
        let (now, most) = (Arc::clone(&count.0), Arc::clone(&count.1));
        async move {
            most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            tokio::time::sleep(Duration::from_millis(3)).await;
            now.fetch_sub(1, Ordering::SeqCst);
            Ok::<_, Fault>(())
        }
    });
    submit_many(&work, 300, || Task::new("mail")).await;
    let worker = worker.start().await.unwrap();
    let done = filter(|filter| filter.states = vec![StepState::Succeeded]);
    eventually("all steps have succeeded", || async { (ids(&work, &done).await.len() == 300).then_some(()) })
        .await;
    assert_eq!(most.load(Ordering::SeqCst), 7, "the worker uses its whole concurrency and never exceeds it");
    worker.shutdown().await;
}

async fn a_handler_snoozes_fails_and_succeeds(store: TestStore) {
    let work = store.open().await;
    let runs = Arc::new(AtomicUsize::new(0));
    let worker = work.worker().name("node nine").handle("moody", move |context: Context, (): ()| {
        let run = runs.fetch_add(1, Ordering::SeqCst);
        async move {
            match run {
                0 => Err(Fault::snooze(Duration::from_millis(5), "not yet")),
                1 => Err(Fault::transient("busy").retry_after(Duration::from_millis(100))),
                _ => Ok((context.attempt(), context.token(), context.lane().queue.clone())),
            }
        }
    });
    let worker = worker.start().await.unwrap();
    let task = submit(&work, Task::new("moody")).await;
    ends(&work, task, TaskState::Succeeded).await;
    let record = step(&work, task.step(0)).await;
    let output: (u32, u64, String) = record.output.unwrap().read().unwrap();
    assert_eq!(output, (2, 5, "default".to_owned()));
    let kept = attempts(&work, task.step(0)).await;
    assert_eq!((kept[0].outcome, kept[1].outcome), (AttemptOutcome::Snoozed, AttemptOutcome::Retried));
    assert_eq!(kept[1].delay, Some(Duration::from_millis(100)));
    assert!(kept.iter().all(|attempt| attempt.worker == "node nine"));
    worker.shutdown().await;
}

async fn a_run_beyond_the_timeout_of_its_operation_is_a_failure(store: TestStore) {
    let work = store.open().await;
    let (builder, mut events) = endless(&work);
    let worker = builder.timeout("endless", Duration::from_millis(100)).start().await.unwrap();
    let task = submit(&work, Task::new("endless")).await;
    ends(&work, task, TaskState::Failed).await;
    let record = step(&work, task.step(0)).await;
    assert_eq!((record.failures, record.class.as_deref()), (3, Some("timeout")));
    assert_eq!(record.message.as_deref(), Some("the handler did not end within 100ms"));
    let seen: Vec<HandlerEvent> = std::iter::from_fn(|| events.try_recv().ok()).collect();
    let stopped = seen.iter().filter(|event| **event == HandlerEvent::Stopped).count();
    assert_eq!(stopped, 3, "{seen:?}");
    worker.shutdown().await;
}

/// The store rejects one report of a batch for good.
async fn one_bad_report_does_not_lose_its_neighbours(store: TestStore) {
    let work = store.open().await;
    let reject = if store.is_postgres() {
        "alter table holdoff.attempts add check (message <> 'poison')"
    } else {
        "create trigger poison before insert on holdoff_attempts when new.message = 'poison'
            begin select raise(abort, 'poison'); end"
    };
    execute(&store, reject).await;
    let tasks = (0..100).map(|number| Task::new("mail").json(&number)).collect();
    let tasks: Vec<TaskId> = work.submit_all(tasks).await.unwrap().iter().map(Submitted::task).collect();
    // All runs end at once, so that the bad report has neighbours in its batch.
    let barrier = Arc::new(Barrier::new(100));
    let worker = work.worker().concurrency(100).handle("mail", move |_: Context, number: u32| {
        let barrier = Arc::clone(&barrier);
        async move {
            barrier.wait().await;
            if number == 70 { Err(Fault::permanent("poison")) } else { Ok(()) }
        }
    });
    let worker = worker.start().await.unwrap();
    for (number, task) in tasks.iter().enumerate().filter(|(number, _)| *number != 70) {
        ends(&work, *task, TaskState::Succeeded).await;
        let record = step(&work, task.step(0)).await;
        assert_eq!((record.failures, record.rescues), (0, 0), "{number}");
    }
    assert_eq!(step(&work, tasks[70].step(0)).await.state, StepState::Running, "it waits for its rescue");
    worker.shutdown().await;
}

mod shared {
    use super::{on_shared_stores, one_bad_report_does_not_lose_its_neighbours};

    on_shared_stores!(one_bad_report_does_not_lose_its_neighbours);
}

on_every_store!(
    shutdown_requeues_steps_that_do_not_end,
    shutdown_waits_for_running_steps,
    a_dropped_worker_stops_immediately,
    a_lost_lease_stops_the_handler,
    a_panic_is_a_transient_failure,
    an_unreadable_payload_is_a_permanent_failure,
    a_handler_with_an_output_above_the_limit_succeeds,
    steps_start_when_they_are_due,
    a_run_beyond_the_timeout_of_its_operation_is_a_failure,
    a_worker_runs_only_its_operations_and_queues,
    concurrency_is_limited_by_slots,
    a_handler_snoozes_fails_and_succeeds,
);
