//! Steps that depend on other steps.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use holdoff_work::{
    Action, Context, Fault, Payload, Step, StepFilter, StepState, Task, TaskState, Work, Worker,
    WorkerBuilder,
};

use crate::conformance::test_store::{
    SECOND, TestStore, claim, claimer, ends, nothing_is_due, on_every_store, on_shared_stores, settings,
    step, submit,
};

/// The number of runs of each step.
type Runs = Arc<Mutex<BTreeMap<String, u32>>>;

/// A worker that counts runs and returns the step's number.
fn counting(work: &Work, runs: &Runs) -> WorkerBuilder {
    let runs = Arc::clone(runs);
    work.worker().concurrency(100).handle("count", move |context: Context, (): ()| {
        *runs.lock().unwrap().entry(context.idempotency_key()).or_default() += 1;
        async move { Ok::<_, Fault>(context.step().number) }
    })
}

fn each_ran_once(runs: &Runs, steps: usize) {
    let runs = runs.lock().unwrap();
    assert_eq!(runs.len(), steps);
    let twice: Vec<_> = runs.iter().filter(|(_, count)| **count != 1).collect();
    assert!(twice.is_empty(), "{twice:?}");
}

/// Creates a task in which one step precedes a thousand steps, which precede one step.
fn wide() -> Task {
    let mut task = Task::graph().step("first", Step::new("count"));
    let mut last = Step::new("count");
    for number in 0..1000 {
        task = task.step(format!("{number}"), Step::new("count").after("first"));
        last = last.after(format!("{number}"));
    }
    task.step("last", last)
}

async fn a_graph_with_thousand_children_and_parents_completes(store: TestStore) {
    let work = store.open().await;
    finish_wide(vec![work.clone(), work.clone(), work.clone(), work]).await;
}

async fn four_nodes_finish_a_thousand_parents_of_one_child(store: TestStore) {
    let mut nodes = Vec::new();
    for _ in 0..4 {
        nodes.push(store.open().await);
    }
    finish_wide(nodes).await;
}

async fn finish_wide(nodes: Vec<Work>) {
    let runs = Runs::default();
    let mut workers: Vec<Worker> = Vec::new();
    for node in &nodes {
        workers.push(counting(node, &runs).start().await.unwrap());
    }
    let tasks = [submit(&nodes[0], wide()).await, submit(&nodes[0], wide()).await];
    for task in tasks {
        ends(&nodes[0], task, TaskState::Succeeded).await;
    }
    each_ran_once(&runs, 2 * 1002);
    for worker in workers {
        worker.shutdown().await;
    }
}

async fn outputs_of_parents_are_inputs_of_children(store: TestStore) {
    let work = store.open().await;
    let add = |context: Context, own: i64| async move {
        let mut sum = own;
        for name in context.inputs().keys() {
            sum += context.input::<i64>(name)?;
        }
        assert!(context.input::<i64>("stranger").is_err());
        Ok::<_, Fault>(sum)
    };
    let worker = work.worker().handle("add", add).start().await.unwrap();
    let diamond = Task::graph()
        .step("sum", Step::new("add").json(&1000).after("left").after("right"))
        .step("left", Step::new("add").json(&10).after("top"))
        .step("right", Step::new("add").json(&100).after("top"))
        .step("top", Step::new("add").json(&1));
    let task = submit(&work, diamond).await;
    ends(&work, task, TaskState::Succeeded).await;
    let record = work.task(task).await.unwrap().unwrap();
    let outputs: Vec<i64> =
        record.steps.iter().map(|step| step.output.as_ref().unwrap().read().unwrap()).collect();
    assert_eq!(outputs, [1112, 11, 101, 1]);
    worker.shutdown().await;
}

/// Creates a task in which `good` and `bad` precede `end`, and `good` alone precedes `side`.
fn branches() -> Task {
    Task::graph()
        .step("good", Step::new("good"))
        .step("bad", Step::new("bad"))
        .step("side", Step::new("good").after("good"))
        .step("end", Step::new("good").after("good").after("bad"))
}

async fn states(work: &Work, task: holdoff_work::TaskId) -> (TaskState, Vec<StepState>) {
    let record = work.task(task).await.unwrap().unwrap();
    (record.state, record.steps.iter().map(|step| step.state).collect())
}

async fn a_failed_branch_blocks_its_dependents_until_it_is_retried(store: TestStore) {
    use StepState::{Blocked, Failed, Succeeded};
    let work = store.open().await;
    let worker = work.worker().handle("good", |_: Context, (): ()| async { Ok::<_, Fault>(()) });
    let worker = worker.start().await.unwrap();
    let bad = claimer(&work, &["bad"]).await;
    let task = submit(&work, branches()).await;
    bad.fail(&claim(&bad).await, Fault::permanent("no")).await.unwrap();
    ends(&work, task, TaskState::Failed).await;
    assert_eq!(states(&work, task).await.1, [Succeeded, Failed, Succeeded, Blocked]);
    assert_eq!(work.act(&StepFilter::task(task), &Action::Retry).await.unwrap(), 1);
    assert_eq!(states(&work, task).await.0, TaskState::Running);
    let again = claim(&bad).await;
    assert_eq!(again.attempt(), 1, "a retried step starts again with attempt 1");
    bad.complete(&again, Payload::empty()).await.unwrap();
    ends(&work, task, TaskState::Succeeded).await;
    worker.shutdown().await;
}

async fn a_discarded_parent_keeps_its_dependents_blocked(store: TestStore) {
    use StepState::{Blocked, Discarded, Ready, Succeeded};
    let work = store.open().await;
    let (good, bad) = (claimer(&work, &["good"]).await, claimer(&work, &["bad"]).await);
    let task = submit(&work, branches()).await;
    bad.fail(&claim(&bad).await, Fault::conflict("no")).await.unwrap();
    assert_eq!(work.act(&StepFilter::task(task), &Action::Discard).await.unwrap(), 1);
    good.complete(&claim(&good).await, Payload::empty()).await.unwrap();
    assert_eq!(states(&work, task).await, (TaskState::Running, vec![Succeeded, Discarded, Ready, Blocked]));
    good.complete(&claim(&good).await, Payload::empty()).await.unwrap();
    nothing_is_due(&good).await;
    assert_eq!(states(&work, task).await.0, TaskState::Failed);
    assert_eq!(step(&work, task.step(3)).await.waiting_for, 1);
    assert_eq!(
        work.act(&StepFilter::task(task), &Action::Retry).await.unwrap(),
        0,
        "a task with a discarded step cannot be retried"
    );
}

async fn cancelling_ends_all_steps_of_a_task(store: TestStore) {
    use StepState::{Cancelled, Succeeded};
    let work = store.open().await;
    let (good, bad) = (claimer(&work, &["good"]).await, claimer(&work, &["bad"]).await);
    let task = submit(&work, branches()).await;
    good.complete(&claim(&good).await, Payload::json(&7).unwrap()).await.unwrap();
    let running = claim(&bad).await;
    // The filter names one step, and the action cancels the whole task.
    assert_eq!(work.act(&StepFilter::step(task.step(1)), &Action::Cancel).await.unwrap(), 3);
    let (state, steps) = states(&work, task).await;
    assert_eq!((state, steps), (TaskState::Cancelled, vec![Succeeded, Cancelled, Cancelled, Cancelled]));
    assert!(bad.heartbeat(&running, SECOND).await.is_err());
    nothing_is_due(&good).await;
    assert_eq!(work.act(&StepFilter::task(task), &Action::Cancel).await.unwrap(), 0);
}

async fn a_child_delay_begins_with_the_last_parent(store: TestStore) {
    let work = store.open().await;
    let claimer = claimer(&work, &["count"]).await;
    let delay = Duration::from_millis(700);
    let graph =
        Task::graph().step("a", Step::new("count")).step("b", Step::new("count").after("a").delay(delay));
    let task = submit(&work, graph).await;
    let parent = claim(&claimer).await;
    tokio::time::sleep(delay + delay / 4).await;
    claimer.complete(&parent, Payload::empty()).await.unwrap();
    nothing_is_due(&claimer).await;
    let (ended, child) = (step(&work, task.step(0)).await.ended_at.unwrap(), step(&work, task.step(1)).await);
    assert_eq!((child.state, child.waiting_for), (StepState::Ready, 0));
    let wait = child.due_at.unwrap().since(ended);
    assert!(wait >= delay && wait < delay + 5 * SECOND, "{wait:?}");
    assert_eq!(claim(&claimer).await.step(), task.step(1));
}

/// A claim holds the inputs of its steps in memory.
async fn a_join_of_too_large_inputs_fails_with_the_rule(store: TestStore) {
    let work = store.open().await;
    let claimer = claimer(&work, &["part", "join"]).await;
    let names: Vec<String> = (0..17).map(|number| number.to_string()).collect();
    let parts = names.iter().fold(Task::graph(), |task, name| task.step(name, Step::new("part")));
    let join = names.iter().fold(Step::new("join"), Step::after);
    let task = submit(&work, parts.step("join", join)).await;
    for _ in &names {
        let part = claim(&claimer).await;
        claimer.complete(&part, Payload::bytes(vec![7; 256 * 1024])).await.unwrap();
    }
    nothing_is_due(&claimer).await;
    let record = step(&work, task.step(17)).await;
    assert_eq!((record.state, record.class.as_deref()), (StepState::Failed, Some("permanent")));
    let message = record.message.unwrap();
    assert!(message.contains("4456448 bytes") && message.contains("work.max_inputs"), "{message}");
}

async fn a_refused_join_runs_under_a_higher_limit(store: TestStore) {
    let mut settings = settings();
    settings.max_inputs = 7;
    let (strict, work) = (store.open_with(settings).await, store.open().await);
    let task =
        submit(&work, Task::graph().step("a", Step::new("one")).step("b", Step::new("two").after("a"))).await;
    let [one, two] = [claimer(&work, &["one"]).await, claimer(&work, &["two"]).await];
    one.complete(&claim(&one).await, Payload::bytes("12345678")).await.unwrap();
    nothing_is_due(&claimer(&strict, &["two"]).await).await;
    assert_eq!(work.act(&StepFilter::task(task), &Action::Retry).await.unwrap(), 1);
    assert_eq!(claim(&two).await.inputs()["a"], Payload::bytes("12345678"));
}

async fn a_chain_runs_in_order(store: TestStore) {
    let work = store.open().await;
    let order = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&order);
    let worker = work.worker().handle("note", move |context: Context, (): ()| {
        log.lock().unwrap().push(context.step().number);
        async { Ok::<_, Fault>(()) }
    });
    let worker = worker.start().await.unwrap();
    let link = |task: Task, number: i32| {
        let step = Step::new("note");
        let step = if number == 0 { step } else { step.after(format!("{}", number - 1)) };
        task.step(format!("{number}"), step)
    };
    let task = submit(&work, (0..30).fold(Task::graph(), link)).await;
    ends(&work, task, TaskState::Succeeded).await;
    assert_eq!(*order.lock().unwrap(), (0..30).collect::<Vec<_>>());
    worker.shutdown().await;
}

on_every_store!(
    a_graph_with_thousand_children_and_parents_completes,
    outputs_of_parents_are_inputs_of_children,
    a_failed_branch_blocks_its_dependents_until_it_is_retried,
    a_discarded_parent_keeps_its_dependents_blocked,
    cancelling_ends_all_steps_of_a_task,
    a_child_delay_begins_with_the_last_parent,
    a_chain_runs_in_order,
    a_join_of_too_large_inputs_fails_with_the_rule,
);

mod shared {
    use super::{
        a_refused_join_runs_under_a_higher_limit, four_nodes_finish_a_thousand_parents_of_one_child,
        on_shared_stores,
    };

    on_shared_stores!(
        four_nodes_finish_a_thousand_parents_of_one_child,
        a_refused_join_runs_under_a_higher_limit,
    );
}
