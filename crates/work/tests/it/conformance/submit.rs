//! Submission of tasks.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use holdoff_work::{Context, Fault, Format, Payload, Step, StepState, Submitted, Task, TaskState};

use crate::conformance::place::{
    HOUR, MINUTE, Place, claim, claim_many, claimer, ends, filter, ids, list, nothing_is_due, on_every_store,
    on_shared_stores, step, submit, submit_many,
};

async fn what_is_submitted_can_be_seen_and_claimed(place: Place) {
    let work = place.open().await;
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

async fn thousands_are_taken_in_at_once(place: Place) {
    let work = place.open().await;
    let tasks = submit_many(&work, 5000, || Task::new("mail")).await;
    assert!(tasks.windows(2).all(|pair| pair[0] < pair[1]), "later tasks sort after earlier ones");
    assert_eq!(list(&work, &filter(|_| ())).await.len(), 5000);
    claim_many(&claimer(&work, &["mail"]).await, 5000, MINUTE).await;
    assert!(work.submit_all(Vec::new()).await.unwrap().is_empty());
}

async fn a_graph_is_taken_in_whole(place: Place) {
    let work = place.open().await;
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

async fn a_key_is_taken_in_once(place: Place) {
    let work = place.open().await;
    let first = submit(&work, Task::new("mail").dedup("welcome")).await;
    let again = work.submit(Task::new("mail").dedup("welcome")).await.unwrap();
    assert_eq!(again, Submitted::Duplicate(first));
    let elsewhere = work.submit(Task::new("mail").dedup("welcome").namespace("eu")).await.unwrap();
    assert!(matches!(elsewhere, Submitted::Created(_)), "another namespace has keys of its own");
    assert_eq!(list(&work, &filter(|_| ())).await.len(), 2);
}

async fn a_key_twice_in_one_batch_is_one_task(place: Place) {
    let work = place.open().await;
    let keyed = |key: &str| Task::new("mail").dedup(key);
    let fates = work.submit_all(vec![keyed("a"), keyed("b"), keyed("a"), Task::new("mail")]).await.unwrap();
    assert_eq!(fates[2], Submitted::Duplicate(fates[0].task()));
    assert!([0, 1, 3].iter().all(|place| matches!(fates[*place], Submitted::Created(_))), "{fates:?}");
    assert_eq!(list(&work, &filter(|_| ())).await.len(), 3);
}

async fn a_key_is_free_when_its_time_is_over_and_its_task_too(place: Place) {
    let work = place.open().await;
    let keyed = || Task::new("mail").dedup("welcome").dedup_retention(Duration::from_millis(1));
    let first = submit(&work, keyed()).await;
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert_eq!(work.submit(keyed()).await.unwrap(), Submitted::Duplicate(first), "it lives beyond its time");
    let claimer = claimer(&work, &["mail"]).await;
    claimer.complete(&claim(&claimer).await, Payload::empty()).await.unwrap();
    let second = work.submit(keyed().dedup_retention(HOUR)).await.unwrap();
    assert!(matches!(second, Submitted::Created(_)), "{second:?}");
    claimer.complete(&claim(&claimer).await, Payload::empty()).await.unwrap();
    assert_eq!(
        work.submit(keyed()).await.unwrap(),
        Submitted::Duplicate(second.task()),
        "its time is not over"
    );
}

async fn ten_nodes_submit_one_key_and_one_task_is_made(place: Place) {
    let mut nodes = Vec::new();
    for _ in 0..10 {
        nodes.push(place.open().await);
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

async fn a_delayed_step_waits(place: Place) {
    let work = place.open().await;
    let task = submit(&work, Task::new("mail").delay(Duration::from_millis(600))).await;
    let claimer = claimer(&work, &["mail"]).await;
    nothing_is_due(&claimer).await;
    let record = step(&work, task.step(0)).await;
    assert_eq!(record.due_at.unwrap().since(record.created_at), Duration::from_millis(600));
    claim(&claimer).await;
    let record = step(&work, task.step(0)).await;
    assert!(record.last_attempted_at.unwrap().since(record.created_at) >= Duration::from_millis(600));
}

async fn urgent_steps_go_first_and_older_ones_before_younger(place: Place) {
    let work = place.open().await;
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

async fn a_trace_is_handed_on_to_every_step(place: Place) {
    let work = place.open().await;
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

async fn payloads_arrive_as_they_were(place: Place) {
    let work = place.open().await;
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
async fn a_step_remembers_its_policy_by_name(place: Place) {
    let work = place.open().await;
    for name in ["twin", "quick"] {
        let task = submit(&work, Task::new("mail").policy(name)).await;
        assert_eq!(step(&work, task.step(0)).await.policy, name);
    }
}

async fn odd_names_are_kept_as_they_are(place: Place) {
    let work = place.open().await;
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

on_every_store!(
    what_is_submitted_can_be_seen_and_claimed,
    thousands_are_taken_in_at_once,
    a_graph_is_taken_in_whole,
    a_key_is_taken_in_once,
    a_key_twice_in_one_batch_is_one_task,
    a_key_is_free_when_its_time_is_over_and_its_task_too,
    a_delayed_step_waits,
    urgent_steps_go_first_and_older_ones_before_younger,
    a_trace_is_handed_on_to_every_step,
    payloads_arrive_as_they_were,
    a_step_remembers_its_policy_by_name,
    odd_names_are_kept_as_they_are,
);

mod shared {
    use super::{on_shared_stores, ten_nodes_submit_one_key_and_one_task_is_made};

    on_shared_stores!(ten_nodes_submit_one_key_and_one_task_is_made);
}
