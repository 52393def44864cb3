//! Lists and bounded scans of steps.

use std::collections::BTreeSet;
use std::time::Duration;

use holdoff_policy::matches_pattern;
use holdoff_work::{
    Action, Error, Fault, HttpStep, PageRequest, Payload, QueueStats, Step, StepCount, StepFilter, StepId,
    StepRecord, StepState, Task, TaskId, Work,
};
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;

use crate::conformance::test_store::{
    HOUR, SECOND, TestStore, claim, claim_many, claimer, eventually, filter, ids, on_every_store, settings,
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
    work.act(&StepFilter::task(cancelled), &Action::Cancel).await.unwrap();
    let (discarded, claimed) = next(Task::new("mail")).await;
    c.fail(&claimed, Fault::permanent("no")).await.unwrap();
    work.act(&StepFilter::task(discarded), &Action::Discard).await.unwrap();
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

async fn every_filter_finds_exactly_its_matches(store: TestStore) {
    let work = store.open().await;
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
    let all = ids(&work, &StepFilter::default()).await;
    assert_eq!(all.len(), 10);
    assert_eq!(ids(&work, &StepFilter::states(StepState::ALL)).await, all);
    let text = |text: &str| filter(|filter| filter.text = Some(text.to_owned()));
    let operation = |name: &str| filter(|filter| filter.operation = Some(name.to_owned()));
    let queries = [
        (StepFilter::task(zoo.failed), vec![zoo.failed]),
        (StepFilter::step(zoo.running.step(0)), vec![zoo.running]),
        (StepFilter::step(zoo.running.step(1)), vec![]),
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

async fn combined_filters_intersect(store: TestStore) {
    let work = store.open().await;
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

async fn stale_steps_are_found(store: TestStore) {
    let mut settings = settings();
    settings.stale_after = SECOND;
    // No policy may wait longer than `stale_after`.
    let work = Work::open_with(&store.url, holdoff_policy::PolicySet::default(), settings.clone()).await;
    assert!(matches!(work, Err(Error::Policies(_))), "{work:?}");
    let mut impatient = holdoff_policy::PolicySet::default();
    impatient.root_mut().default = Some("contended".to_owned());
    settings.stale_after = 2 * SECOND;
    let work = Work::open_with(&store.url, impatient, settings).await.unwrap();
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

async fn paging_covers_everything_exactly_once(store: TestStore) {
    let work = store.open().await;
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
        let mut page = PageRequest::first(limit);
        loop {
            let steps = work.list(&StepFilter::default(), &page).await.unwrap();
            assert!(steps.len() <= limit as usize);
            let Some(last) = steps.last() else { break };
            page = page.after(last.id);
            seen.extend(steps.iter().map(|step| step.id));
        }
        assert_eq!(seen.len(), 79, "{limit} a page");
        assert!(seen.windows(2).all(|pair| pair[0] > pair[1]), "steps are listed newest first and only once");
    }
}

async fn payloads_are_read_only_on_request(store: TestStore) {
    let work = store.open().await;
    submit(&work, Task::new("mail").json(&1)).await;
    let without = work.list(&StepFilter::default(), &PageRequest::first(1)).await.unwrap();
    let with = work.list(&StepFilter::default(), &PageRequest::first(1).with_payloads()).await.unwrap();
    assert_eq!((&without[0].payload, with[0].payload.clone()), (&None, Some(Payload::json(&1).unwrap())));
}

async fn queue_stats_add_up(store: TestStore) {
    let work = store.open().await;
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
    assert_eq!(cards.len(), 1, "the statistics sum up all priorities");
    assert_eq!((cards[0].due, cards[0].waiting), (1, 1));
    let _ = zoo.ready;
}

/// With this many steps, the store does not count at every call.
async fn large_counts_are_cached(store: TestStore) {
    let work = store.open().await;
    let due = || async { work.stats().await.unwrap().iter().map(|lane| lane.due).sum::<u64>() };
    for _ in 0..3 {
        submit_many(&work, 7000, || Task::new("mail")).await;
    }
    assert_eq!(due().await, 21_000);
    submit(&work, Task::new("mail")).await;
    let counted = || async { Some(due().await).filter(|due| *due != 21_000) };
    assert_eq!(eventually("the cached count is updated", counted).await, 21_001);
}

async fn an_unknown_task_returns_none(store: TestStore) {
    let work = store.open().await;
    let unknown: TaskId = "01890a5d-ac96-774b-bcce-b302099a8057".parse().unwrap();
    assert!(work.task(unknown).await.unwrap().is_none());
    assert!(work.wait(unknown).await.is_err());
    assert!(ids(&work, &StepFilter::task(unknown)).await.is_empty());
    assert_eq!(work.act(&StepFilter::task(unknown), &Action::Cancel).await.unwrap(), 0);
}

/// Creates steps of many kinds, in every state.
async fn many_steps(work: &Work) -> Vec<StepRecord> {
    let operations = ["card.charge", "card.refund", "mail"];
    for number in 0..24 {
        let namespace = ["default", "eu"][number % 2];
        let queue = ["cards", "default", "slow"][number % 3];
        let task = Task::graph()
            .step("First", Step::new(operations[number % 3]).queue(queue))
            .step("second", Step::new("mail").queue(queue).after("First"))
            .step(
                "call",
                Step::http("call", &HttpStep::get(["http://a.example/", "http://b.example/"][number % 2])),
            );
        submit(work, task.namespace(namespace)).await;
    }
    let c = claimer(work, &operations).await;
    let claims = claim_many(&c, 24, HOUR).await;
    for (number, claimed) in claims.iter().enumerate() {
        let fault = match number % 6 {
            0 => None,
            1 => Some(Fault::permanent("card 17 is gone")),
            2 => Some(Fault::conflict("100% taken")),
            3 => Some(Fault::transient("busy")),
            4 => continue,
            _ => Some(Fault::permanent("discarded")),
        };
        match fault {
            None => drop(c.complete(claimed, Payload::empty()).await.unwrap()),
            Some(fault) => drop(c.fail(claimed, fault).await.unwrap()),
        }
    }
    let discarded = filter(|filter| filter.text = Some("discarded".to_owned()));
    work.act(&discarded, &Action::Discard).await.unwrap();
    let one = claims.iter().find(|claim| claim.namespace() == Some("eu")).unwrap();
    work.act(&StepFilter::task(one.step().task), &Action::Cancel).await.unwrap();
    let all = work.list(&StepFilter::default(), &PageRequest::first(PageRequest::MAX_LIMIT)).await.unwrap();
    let states: BTreeSet<_> = all.iter().map(|step| step.state).collect();
    assert_eq!((all.len(), states.len()), (72, StepState::ALL.len()), "{states:?}");
    all
}

fn filters() -> impl Strategy<Value = StepFilter> {
    let word = |words: &'static [&'static str]| {
        proptest::option::weighted(0.3, proptest::sample::select(words).prop_map(str::to_owned))
    };
    let states = proptest::collection::vec(proptest::sample::select(&StepState::ALL[..]), 0..3);
    let failures = || proptest::option::weighted(0.2, 0..3_u32);
    let words = (
        word(&["default", "eu", "us"]),
        word(&["cards", "slow", "none"]),
        word(&["card.*", "*", "mail", "*.refund", "nothing*"]),
        word(&["a.example", "b.example", "c.example"]),
        word(&["permanent", "conflict", "transient", "timeout"]),
        word(&["FIRST", "17", "100%", "_", "nothing"]),
    );
    let ages = proptest::sample::select(&[0_u8, 0, 0, 1, 2][..]);
    (states, words, failures(), failures(), ages).prop_map(|(states, words, least, most, age)| {
        filter(|filter| {
            filter.states = states;
            (filter.namespace, filter.queue, filter.operation) = (words.0, words.1, words.2);
            (filter.destination, filter.class, filter.text) = (words.3, words.4, words.5);
            (filter.min_failures, filter.max_failures) = (least, most);
            filter.newer_than = (age == 1).then_some(HOUR);
            filter.older_than = (age == 2).then_some(HOUR);
        })
    })
}

/// The reference implementation of a filter.
fn matches(filter: &StepFilter, step: &StepRecord) -> bool {
    let is = |wanted: &Option<String>, name: Option<&str>| {
        wanted.as_deref().is_none_or(|wanted| name == Some(wanted))
    };
    let has = |text: &str, within: &Option<String>| {
        within.as_deref().is_some_and(|within| within.to_lowercase().contains(&text.to_lowercase()))
    };
    (filter.states.is_empty() || filter.states.contains(&step.state))
        && is(&filter.namespace, Some(&step.namespace))
        && is(&filter.queue, Some(&step.queue))
        && filter.operation.as_deref().is_none_or(|pattern| matches_pattern(pattern, &step.operation))
        && is(&filter.destination, step.destination.as_deref())
        && is(&filter.class, step.class.as_deref())
        && filter.min_failures.is_none_or(|least| step.failures >= least)
        && filter.max_failures.is_none_or(|most| step.failures <= most)
        && filter.older_than.is_none()
        && filter.text.as_deref().is_none_or(|text| has(text, &step.name) || has(text, &step.message))
}

/// Collects all steps that consecutive looks find.
async fn walk(work: &Work, filter: &StepFilter, mut page: PageRequest) -> Vec<StepId> {
    let mut seen = Vec::new();
    loop {
        let looked = work.scan(filter, &page).await.unwrap();
        assert!(looked.steps.len() <= page.limit as usize);
        assert!(!looked.is_truncated || looked.next.is_some());
        seen.extend(looked.steps.iter().map(|step| step.id));
        let Some(next) = looked.next else { return seen };
        assert!(page.after.is_none_or(|after| next < after), "the cursor advances");
        assert!(looked.steps.last().is_none_or(|last| next <= last.id));
        page = page.after(next);
    }
}

async fn scans_find_every_match_exactly_once(store: TestStore) {
    let work = store.open().await;
    let all = many_steps(&work).await;
    let mut runner = TestRunner::deterministic();
    let (mut found, mut cut) = (0, 0);
    for _ in 0..150 {
        let asked = (filters(), 1..40_u32, 1..40_u32).new_tree(&mut runner).unwrap().current();
        let (filter, limit, scan_limit) = asked;
        let expected: Vec<StepId> =
            all.iter().filter(|step| matches(&filter, step)).map(|step| step.id).collect();
        let page = PageRequest::first(limit).with_scan_limit(scan_limit);
        cut += u32::from(work.scan(&filter, &page).await.unwrap().is_truncated);
        assert_eq!(walk(&work, &filter, page).await, expected, "{filter:?} by {limit} of {scan_limit}");
        let listed =
            work.list(&filter, &PageRequest::first(limit).with_scan_limit(scan_limit)).await.unwrap();
        let listed: Vec<StepId> = listed.iter().map(|step| step.id).collect();
        assert_eq!(
            listed,
            expected[..expected.len().min(limit as usize)],
            "{filter:?}: a page is filled up to its limit"
        );
        let count = expected.len() as u64;
        assert_eq!(work.count(&filter, 1000).await.unwrap(), StepCount::Exactly(count), "{filter:?}");
        assert_eq!(work.count(&filter, count).await.unwrap(), StepCount::Exactly(count), "{filter:?}");
        if count > 0 {
            assert_eq!(
                work.count(&filter, count - 1).await.unwrap(),
                StepCount::AtLeast(count - 1),
                "{filter:?}"
            );
            found += 1;
        }
    }
    assert!(
        found > 30 && cut > 30,
        "the filters cover all cases: {found} matched steps, {cut} were truncated"
    );
}

async fn the_last_full_page_has_no_next(store: TestStore) {
    let work = store.open().await;
    submit_many(&work, 5, || Task::new("mail")).await;
    let five = work.scan(&StepFilter::default(), &PageRequest::first(5)).await.unwrap();
    assert_eq!((five.steps.len(), five.next, five.is_truncated), (5, None, false));
    let four = work.scan(&StepFilter::default(), &PageRequest::first(4)).await.unwrap();
    assert_eq!((four.steps.len(), four.next, four.is_truncated), (4, Some(four.steps[3].id), false));
    let mails = filter(|filter| filter.operation = Some("mail".to_owned()));
    let two = work.scan(&mails, &PageRequest::first(4).with_scan_limit(2)).await.unwrap();
    assert_eq!((two.steps.len(), two.next, two.is_truncated), (2, Some(two.steps[1].id), true));
    assert_eq!(work.count(&StepFilter::default(), 0).await.unwrap(), StepCount::AtLeast(0));
}

on_every_store!(
    every_filter_finds_exactly_its_matches,
    combined_filters_intersect,
    stale_steps_are_found,
    paging_covers_everything_exactly_once,
    payloads_are_read_only_on_request,
    queue_stats_add_up,
    large_counts_are_cached,
    an_unknown_task_returns_none,
    scans_find_every_match_exactly_once,
    the_last_full_page_has_no_next,
);
