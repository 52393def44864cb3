//! Tasks that are refused, and that nothing of them is stored.

use std::time::Duration;

use holdoff_work::{Error, InvalidTask, Payload, Settings, Step, Task, Work};

use crate::conformance::test_store::{
    TestStore, claim, claimer, filter, list, on_every_store, settings, submit, submit_many,
};

async fn refused(work: &Work, task: Task) -> InvalidTask {
    // A valid task in the same call is not stored either.
    match work.submit_all(vec![Task::new("mail").dedup("good"), task]).await {
        Err(Error::Invalid(invalid)) => invalid,
        other => panic!("{other:?}"),
    }
}

async fn one_invalid_task_rejects_its_batch(store: TestStore) {
    let mut settings = settings();
    (settings.max_payload, settings.max_steps) = (10, 2);
    let work = store.open_with(settings).await;
    let long = "x".repeat(201);
    assert_eq!(refused(&work, Task::graph()).await, InvalidTask::NoSteps);
    let three =
        ["a", "b", "c"].into_iter().fold(Task::graph(), |task, name| task.step(name, Step::new("mail")));
    assert!(matches!(refused(&work, three).await, InvalidTask::TooManySteps { count: 3, limit: 2 }));
    let large = refused(&work, Task::new("mail").bytes(vec![0; 11])).await;
    assert!(matches!(large, InvalidTask::PayloadTooLarge { size: 11, limit: 10, .. }));
    for task in [
        Task::new(""),
        Task::new(&long),
        Task::new("a\nb"),
        Task::new("mail").queue(""),
        Task::new("mail").namespace(&long),
        Task::new("mail").dedup(""),
        Task::new("mail").trace("a\0b"),
        Task::graph().step(&long, Step::new("mail")),
    ] {
        assert!(matches!(refused(&work, task).await, InvalidTask::BadName { .. }));
    }
    assert!(matches!(refused(&work, Task::new("mail").priority(10)).await, InvalidTask::Priority { .. }));
    let unknown = refused(&work, Task::new("mail").policy("none")).await;
    assert!(matches!(unknown, InvalidTask::NoSuchPolicy { .. }));
    let misspelt = refused(&work, Task::new("mail").policy("standart")).await.to_string();
    assert!(misspelt.ends_with("did you mean `standard`?"), "{misspelt}");
    let year = Duration::from_secs(366 * 24 * 3600);
    assert!(matches!(refused(&work, Task::new("mail").delay(year)).await, InvalidTask::TooLong { .. }));
    for task in [Task::new("mail").expires_in(year), Task::new("mail").delay(year).expires_in(year)] {
        assert!(matches!(refused(&work, task).await, InvalidTask::TooLong { .. }));
    }
    for (delay, expires_in) in [(0, 0), (5, 5)] {
        let task =
            Task::new("mail").delay(Duration::from_secs(delay)).expires_in(Duration::from_secs(expires_in));
        assert!(matches!(refused(&work, task).await, InvalidTask::ExpiresTooSoon { .. }));
    }
    let kept = refused(&work, Task::new("mail").dedup("x").dedup_retention(year)).await;
    assert!(matches!(kept, InvalidTask::TooLong { .. }));
    assert!(list(&work, &filter(|_| ())).await.is_empty());
    submit(&work, Task::new("mail").dedup("good")).await;
}

async fn a_cycle_is_rejected_with_its_path(store: TestStore) {
    let work = store.open().await;
    let circle = Task::graph()
        .step("a", Step::new("mail").after("c"))
        .step("b", Step::new("mail").after("a"))
        .step("c", Step::new("mail").after("b"));
    assert_eq!(refused(&work, circle).await, InvalidTask::Cycle { path: "a → b → c → a".to_owned() });
    let nowhere = Task::graph().step("a", Step::new("mail").after("z"));
    assert!(matches!(refused(&work, nowhere).await, InvalidTask::NoSuchParent { .. }));
    let twice = Task::graph().step("a", Step::new("mail")).step("a", Step::new("mail"));
    assert!(matches!(refused(&work, twice).await, InvalidTask::SameName { .. }));
    assert!(list(&work, &filter(|_| ())).await.is_empty());
}

fn ten_at_most() -> Settings {
    let mut settings = settings();
    settings.max_depth = 10;
    settings
}

async fn a_full_queue_rejects_tasks_with_retry_after(store: TestStore) {
    let work = store.open_with(ten_at_most()).await;
    submit_many(&work, 10, || Task::new("mail")).await;
    let Err(error) = work.submit(Task::new("mail")).await else { panic!("a full queue accepted a task") };
    assert!(error.is_transient());
    let Error::QueueFull { queue, depth, limit, retry_after } = error else { panic!("{error}") };
    assert_eq!((queue.as_str(), depth, limit), ("default", 10, 10));
    assert!(retry_after >= Duration::from_secs(1) && retry_after <= Duration::from_secs(60));
    submit(&work, Task::new("mail").queue("other")).await;
    submit(&work, Task::new("mail").namespace("eu")).await;
    assert_eq!(list(&work, &filter(|filter| filter.queue = Some("default".to_owned()))).await.len(), 11);
}

async fn finished_steps_free_queue_capacity(store: TestStore) {
    let work = store.open_with(ten_at_most()).await;
    submit_many(&work, 10, || Task::new("mail")).await;
    let claimer = claimer(&work, &["mail"]).await;
    for _ in 0..10 {
        claimer.complete(&claim(&claimer).await, Payload::empty()).await.unwrap();
    }
    submit_many(&work, 10, || Task::new("mail")).await;
}

async fn queues_of_one_batch_are_counted_separately(store: TestStore) {
    let work = store.open_with(ten_at_most()).await;
    let batch = (0..12).map(|number| Task::new("mail").queue(format!("{}", number % 2)));
    work.submit_all(batch.collect()).await.unwrap();
}

on_every_store!(
    one_invalid_task_rejects_its_batch,
    a_cycle_is_rejected_with_its_path,
    a_full_queue_rejects_tasks_with_retry_after,
    finished_steps_free_queue_capacity,
    queues_of_one_batch_are_counted_separately,
);
