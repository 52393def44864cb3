//! Listing steps page by page, and counting them.

use std::collections::BTreeSet;
use std::time::Duration;

use holdoff_work::{
    Action, Error, Fault, Filter, HttpStep, Page, Payload, QueueStats, Step, StepId, StepState, Task, TaskId,
    Work,
};

use crate::conformance::place::{
    HOUR, Place, SECOND, claim, claim_many, claimer, eventually, filter, ids, on_every_store, settings,
    submit, submit_many,
};

/// One step of every kind and state, in this order.
struct Zoo {
    ready: TaskId,
    failed: TaskId,
    conflicted: TaskId,
    succeeded: TaskId,
    cancelled: TaskId,
    discarded: TaskId,
    running: TaskId,
    graph: TaskId,
    http: TaskId,
}

async fn zoo(work: &Work) -> Zoo {
    let c = claimer(work, &["card.charge", "card%charge", "mail"]).await;
    let next = async |task: Task| {
        let task = submit(work, task).await;
        (task, claim(&c).await)
    };
    let (failed, claimed) = next(Task::new("card.charge").queue("cards")).await;
    c.fail(&claimed, Fault::permanent("50%_off is no price")).await.unwrap();
    let (conflicted, claimed) = next(Task::new("card%charge").queue("cards").namespace("eu")).await;
    c.fail(&claimed, Fault::transient("busy")).await.unwrap();
    c.fail(&claim(&c).await, Fault::conflict("it is there")).await.unwrap();
    let (succeeded, claimed) = next(Task::new("mail")).await;
    c.complete(&claimed, Payload::empty()).await.unwrap();
    let (cancelled, _) = next(Task::new("mail")).await;
    work.act(&Filter::task(cancelled), &Action::Cancel).await.unwrap();
    let (discarded, claimed) = next(Task::new("mail")).await;
    c.fail(&claimed, Fault::permanent("no")).await.unwrap();
    work.act(&Filter::task(discarded), &Action::Discard).await.unwrap();
    let (running, _) = next(Task::new("mail").namespace("eu")).await;
    let graph =
        Task::graph().step("First", Step::new("other")).step("second", Step::new("other").after("First"));
    let http = Task::http("call", &HttpStep::get("http://api.example.com/x"));
    Zoo {
        ready: submit(work, Task::new("card").delay(HOUR)).await,
        failed,
        conflicted,
        succeeded,
        cancelled,
        discarded,
        running,
        graph: submit(work, graph).await,
        http: submit(work, http).await,
    }
}

fn of(tasks: &[TaskId]) -> BTreeSet<StepId> {
    tasks.iter().map(|task| task.step(0)).collect()
}

async fn every_filter_finds_exactly_what_it_says(place: Place) {
    let work = place.open().await;
    let zoo = zoo(&work).await;
    let state = |state| filter(|filter| filter.states = vec![state]);
    for (state_, tasks) in [
        (StepState::Failed, vec![zoo.failed]),
        (StepState::Conflicted, vec![zoo.conflicted]),
        (StepState::Succeeded, vec![zoo.succeeded]),
        (StepState::Cancelled, vec![zoo.cancelled]),
        (StepState::Discarded, vec![zoo.discarded]),
        (StepState::Running, vec![zoo.running]),
        (StepState::Ready, vec![zoo.ready, zoo.graph, zoo.http]),
    ] {
        assert_eq!(ids(&work, &state(state_)).await, of(&tasks), "{state_}");
    }
    assert_eq!(ids(&work, &state(StepState::Blocked)).await, BTreeSet::from([zoo.graph.step(1)]));
    let all = ids(&work, &Filter::default()).await;
    assert_eq!(all.len(), 10);
    assert_eq!(ids(&work, &Filter::states(StepState::ALL)).await, all);
    let text = |text: &str| filter(|filter| filter.text = Some(text.to_owned()));
    let operation = |name: &str| filter(|filter| filter.operation = Some(name.to_owned()));
    let queries = [
        (Filter::task(zoo.failed), vec![zoo.failed]),
        (Filter::step(zoo.running.step(0)), vec![zoo.running]),
        (Filter::step(zoo.running.step(1)), vec![]),
        (filter(|filter| filter.namespace = Some("eu".to_owned())), vec![zoo.conflicted, zoo.running]),
        (filter(|filter| filter.queue = Some("cards".to_owned())), vec![zoo.failed, zoo.conflicted]),
        (operation("card.charge"), vec![zoo.failed]),
        (operation("card*"), vec![zoo.failed, zoo.conflicted, zoo.ready]),
        (operation("*charge"), vec![zoo.failed, zoo.conflicted]),
        (operation("card%charge"), vec![zoo.conflicted]),
        (operation("CARD*"), vec![]),
        (operation("car"), vec![]),
        (filter(|filter| filter.destination = Some("api.example.com".to_owned())), vec![zoo.http]),
        (filter(|filter| filter.class = Some("permanent".to_owned())), vec![zoo.failed, zoo.discarded]),
        (filter(|filter| filter.class = Some("conflict".to_owned())), vec![zoo.conflicted]),
        (filter(|filter| filter.min_failures = Some(2)), vec![zoo.conflicted]),
        (text("50%_off"), vec![zoo.failed]),
        (text("50__off"), vec![]),
        (text("first"), vec![zoo.graph]),
        (text("IS THERE"), vec![zoo.conflicted]),
    ];
    for (query, tasks) in queries {
        assert_eq!(ids(&work, &query).await, of(&tasks), "{query:?}");
    }
    let old = |age| filter(|filter| filter.older_than = Some(age));
    let new = |age| filter(|filter| filter.newer_than = Some(age));
    assert_eq!(ids(&work, &old(Duration::ZERO)).await, all);
    assert_eq!(ids(&work, &new(HOUR)).await, all);
    assert!(ids(&work, &old(HOUR)).await.is_empty());
    assert!(ids(&work, &new(Duration::ZERO)).await.is_empty());
}

async fn filters_together_narrow(place: Place) {
    let work = place.open().await;
    let zoo = zoo(&work).await;
    let both = filter(|filter| {
        filter.namespace = Some("eu".to_owned());
        filter.queue = Some("cards".to_owned());
        filter.operation = Some("card*".to_owned());
        filter.states = vec![StepState::Failed, StepState::Conflicted];
        filter.min_failures = Some(1);
        filter.class = Some("conflict".to_owned());
        filter.text = Some("there".to_owned());
        filter.newer_than = Some(HOUR);
    });
    assert_eq!(ids(&work, &both).await, of(&[zoo.conflicted]));
    let mut none = both.clone();
    none.task = Some(zoo.failed);
    assert!(ids(&work, &none).await.is_empty());
}

async fn stale_steps_are_found(place: Place) {
    let mut settings = settings();
    settings.stale_after = SECOND;
    // No policy may wait longer than `stale_after`.
    let work = Work::open_with(&place.url, holdoff_policy::PolicySet::default(), settings.clone()).await;
    assert!(matches!(work, Err(Error::Policies(_))), "{work:?}");
    let mut impatient = holdoff_policy::PolicySet::default();
    impatient.root_mut().default = Some("contended".to_owned());
    settings.stale_after = 2 * SECOND;
    let work = Work::open_with(&place.url, impatient, settings).await.unwrap();
    let c = claimer(&work, &["mail"]).await;
    let tasks = submit_many(&work, 4, || Task::new("mail")).await;
    claim(&c).await;
    c.complete(&claim(&c).await, Payload::empty()).await.unwrap();
    c.fail(&claim(&c).await, Fault::permanent("no")).await.unwrap();
    let stale = |age| filter(|filter| filter.stale_after = Some(age));
    assert!(ids(&work, &stale(HOUR)).await.is_empty());
    // Only steps that are ready or running are stale.
    let expected = of(&[tasks[0], tasks[3]]);
    let found = ids(&work, &stale(Duration::ZERO)).await;
    assert_eq!(found, expected);
    let counted = || async {
        let stats = work.stats().await.unwrap();
        Some(stats[0].stale).filter(|stale| *stale > 0)
    };
    assert_eq!(eventually("stale steps", counted).await, 2);
}

async fn paging_covers_everything_exactly_once(place: Place) {
    let work = place.open().await;
    let c = claimer(&work, &["mail"]).await;
    let wide = |count: i32| {
        (0..count).fold(Task::graph(), |task, number| task.step(format!("{number}"), Step::new("mail")))
    };
    for count in [1, 30, 1, 40, 7] {
        submit(&work, wide(count)).await;
    }
    // Half of the steps are finished, and are in the history.
    for claimed in claim_many(&c, 79, HOUR).await.iter().step_by(2) {
        c.complete(claimed, Payload::empty()).await.unwrap();
    }
    for limit in [1, 7, 79, 80] {
        let mut seen = Vec::new();
        let mut page = Page::first(limit);
        loop {
            let steps = work.list(&Filter::default(), &page).await.unwrap();
            assert!(steps.len() <= limit as usize);
            let Some(last) = steps.last() else { break };
            page = page.after(last.id);
            seen.extend(steps.iter().map(|step| step.id));
        }
        assert_eq!(seen.len(), 79, "{limit} a page");
        assert!(seen.windows(2).all(|pair| pair[0] > pair[1]), "newest first, none twice");
    }
}

async fn payloads_are_read_only_when_asked_for(place: Place) {
    let work = place.open().await;
    submit(&work, Task::new("mail").json(&1)).await;
    let without = work.list(&Filter::default(), &Page::first(1)).await.unwrap();
    let with = work.list(&Filter::default(), &Page::first(1).with_payloads()).await.unwrap();
    assert_eq!((&without[0].payload, with[0].payload.clone()), (&None, Some(Payload::json(&1).unwrap())));
}

async fn the_numbers_add_up(place: Place) {
    let work = place.open().await;
    let zoo = zoo(&work).await;
    let stats = work.stats().await.unwrap();
    let sum = |field: fn(&QueueStats) -> u64| stats.iter().map(field).sum::<u64>();
    assert_eq!(sum(|lane| lane.blocked), 1);
    assert_eq!(sum(|lane| lane.due), 2);
    assert_eq!(sum(|lane| lane.waiting), 1);
    assert_eq!(sum(|lane| lane.running), 1);
    assert_eq!(sum(|lane| lane.failed), 1);
    assert_eq!(sum(|lane| lane.conflicted), 1);
    assert_eq!(sum(|lane| lane.succeeded), 1);
    assert_eq!(sum(|lane| lane.stale), 0);
    let lane = |namespace: &str, operation: &str| {
        let is = |lane: &&QueueStats| lane.namespace == namespace && lane.operation == operation;
        stats.iter().find(is).unwrap()
    };
    assert_eq!((lane("eu", "mail").running, lane("default", "mail").running), (1, 0));
    assert_eq!((lane("default", "card").waiting, lane("default", "card").oldest_due), (1, Duration::ZERO));
    assert!(lane("default", "other").oldest_due > Duration::ZERO);
    submit(&work, Task::new("card").priority(1)).await;
    let stats = work.stats().await.unwrap();
    let cards: Vec<_> = stats.iter().filter(|lane| lane.operation == "card").collect();
    assert_eq!(cards.len(), 1, "priorities are put together");
    assert_eq!((cards[0].due, cards[0].waiting), (1, 1));
    let _ = zoo.ready;
}

/// With this many steps, the store does not count at every call.
async fn a_crowd_is_counted_now_and_then(place: Place) {
    let work = place.open().await;
    let due = || async { work.stats().await.unwrap().iter().map(|lane| lane.due).sum::<u64>() };
    for _ in 0..3 {
        submit_many(&work, 7000, || Task::new("mail")).await;
    }
    assert_eq!(due().await, 21_000);
    submit(&work, Task::new("mail")).await;
    let counted = || async { Some(due().await).filter(|due| *due != 21_000) };
    assert_eq!(eventually("another count", counted).await, 21_001);
}

async fn an_unknown_task_is_none(place: Place) {
    let work = place.open().await;
    let unknown: TaskId = "01890a5d-ac96-774b-bcce-b302099a8057".parse().unwrap();
    assert!(work.task(unknown).await.unwrap().is_none());
    assert!(work.wait(unknown).await.is_err());
    assert!(ids(&work, &Filter::task(unknown)).await.is_empty());
    assert_eq!(work.act(&Filter::task(unknown), &Action::Cancel).await.unwrap(), 0);
}

on_every_store!(
    every_filter_finds_exactly_what_it_says,
    filters_together_narrow,
    stale_steps_are_found,
    paging_covers_everything_exactly_once,
    payloads_are_read_only_when_asked_for,
    the_numbers_add_up,
    a_crowd_is_counted_now_and_then,
    an_unknown_task_is_none,
);
