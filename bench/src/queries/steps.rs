//! The queries of the measurement.

use std::time::Duration;

use holdoff_work::{Action, Error, PageRequest, StepFilter, StepId, StepState, Work};

use super::QueryTimes;
use crate::measure::now;

const HOUR: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(24 * 3600);

/// The number of rounds of all queries, and of all pairs of filters.
const ROUNDS: usize = 5;
const PAIR_ROUNDS: usize = 1;

/// A filter by one property: the property, a name, and the function that sets it.
struct Part(&'static str, &'static str, fn(&mut StepFilter));

/// Filters by every property, with many, few and no matches.
const PARTS: [Part; 32] = [
    Part("state", "ready", |it| it.states = vec![StepState::Ready]),
    Part("state", "running", |it| it.states = vec![StepState::Running]),
    Part("state", "succeeded", |it| it.states = vec![StepState::Succeeded]),
    Part("state", "failed", |it| it.states = vec![StepState::Failed]),
    Part("state", "failed or conflicted", |it| it.states = vec![StepState::Failed, StepState::Conflicted]),
    Part("state", "cancelled", |it| it.states = vec![StepState::Cancelled]),
    Part("operation", "one", |it| it.operation = Some("op.07".to_owned())),
    Part("operation", "op.1*", |it| it.operation = Some("op.1*".to_owned())),
    Part("operation", "*", |it| it.operation = Some("*".to_owned())),
    Part("operation", "rare", |it| it.operation = Some("rare".to_owned())),
    Part("operation", "none", |it| it.operation = Some("none*".to_owned())),
    Part("queue", "one", |it| it.queue = Some("queue-3".to_owned())),
    Part("queue", "none", |it| it.queue = Some("none".to_owned())),
    Part("namespace", "one", |it| it.namespace = Some("eu".to_owned())),
    Part("namespace", "none", |it| it.namespace = Some("none".to_owned())),
    Part("class", "timeout", |it| it.class = Some("timeout".to_owned())),
    Part("class", "none", |it| it.class = Some("none".to_owned())),
    Part("failures", "≥ 1", |it| it.min_failures = Some(1)),
    Part("failures", "≥ 12", |it| it.min_failures = Some(12)),
    Part("failures", "≥ 99", |it| it.min_failures = Some(99)),
    Part("failures", "≤ 0", |it| it.max_failures = Some(0)),
    Part("destination", "one", |it| it.destination = Some("host-7.example".to_owned())),
    Part("destination", "none", |it| it.destination = Some("none.example".to_owned())),
    Part("older", "1 h", |it| it.older_than = Some(HOUR)),
    Part("older", "9 d", |it| it.older_than = Some(9 * DAY)),
    Part("older", "30 d", |it| it.older_than = Some(30 * DAY)),
    Part("newer", "9 d", |it| it.newer_than = Some(9 * DAY)),
    Part("newer", "1 h", |it| it.newer_than = Some(HOUR)),
    Part("newer", "1 s", |it| it.newer_than = Some(Duration::from_secs(1))),
    Part("text", "refused", |it| it.text = Some("refused".to_owned())),
    Part("text", "needle", |it| it.text = Some("needle".to_owned())),
    Part("text", "none", |it| it.text = Some("nowhere".to_owned())),
];

fn filter(parts: &[&Part]) -> (StepFilter, String) {
    let mut filter = StepFilter::default();
    let words: Vec<String> = parts
        .iter()
        .map(|Part(what, how, say)| {
            say(&mut filter);
            format!("{what} {how}")
        })
        .collect();
    (filter, words.join(", "))
}

fn pairs() -> impl Iterator<Item = (StepFilter, String)> {
    let second = |(index, first): (usize, &'static Part)| {
        let others = PARTS.iter().skip(index + 1).filter(|second| second.0 != first.0);
        others.map(|second| filter(&[first, second])).collect::<Vec<_>>()
    };
    PARTS.iter().enumerate().flat_map(second)
}

/// Runs all queries, and returns their durations.
pub(super) async fn measure_all(work: &Work, half_way: StepId) -> Result<Vec<QueryTimes>, Error> {
    let mut all = list_times(work, half_way).await?;
    all.extend(others(work).await?);
    Ok(all)
}

async fn list_times(work: &Work, half: StepId) -> Result<Vec<QueryTimes>, Error> {
    let [mut plain, mut deep, mut one, mut one_deep, mut two] = [
        "list",
        "list, half way down",
        "list, one filter",
        "list, one filter, half way down",
        "list, two filters",
    ]
    .map(QueryTimes::new);
    let [mut count_all, mut count_one, mut count_two] =
        ["count", "count, one filter", "count, two filters"].map(QueryTimes::new);
    let [mut tasks, mut tasks_one, mut tasks_two] =
        ["tasks", "tasks, one filter", "tasks, two filters"].map(QueryTimes::new);
    let page = PageRequest::first(100);
    let singles = || PARTS.iter().map(|part| filter(&[part]));
    for _ in 0..8 * ROUNDS {
        let all = StepFilter::default();
        let start = now();
        work.scan(&all, &page).await?;
        plain.add(start.elapsed(), "");
        let start = now();
        work.scan(&all, &page.clone().after(half)).await?;
        deep.add(start.elapsed(), "");
        let start = now();
        work.count(&all, 10_000).await?;
        count_all.add(start.elapsed(), "");
        let start = now();
        work.tasks(&all, None, None, 100).await?;
        tasks.add(start.elapsed(), "");
    }
    for _ in 0..ROUNDS {
        for (filter, words) in singles() {
            let start = now();
            work.scan(&filter, &page).await?;
            one.add(start.elapsed(), &words);
            let start = now();
            work.scan(&filter, &page.clone().after(half)).await?;
            one_deep.add(start.elapsed(), &words);
            let start = now();
            work.count(&filter, 10_000).await?;
            count_one.add(start.elapsed(), &words);
            let start = now();
            work.tasks(&filter, None, None, 100).await?;
            tasks_one.add(start.elapsed(), &words);
        }
    }
    for _ in 0..PAIR_ROUNDS {
        for (filter, words) in pairs() {
            let start = now();
            work.scan(&filter, &page).await?;
            two.add(start.elapsed(), &words);
            let start = now();
            work.count(&filter, 10_000).await?;
            count_two.add(start.elapsed(), &words);
            let start = now();
            work.tasks(&filter, None, None, 100).await?;
            tasks_two.add(start.elapsed(), &words);
        }
    }
    Ok(vec![plain, deep, one, one_deep, two, count_all, count_one, count_two, tasks, tasks_one, tasks_two])
}

async fn others(work: &Work) -> Result<Vec<QueryTimes>, Error> {
    let windows = [("stats, 5 min", HOUR / 12), ("stats, 15 min", HOUR / 4), ("stats, 24 h", DAY)];
    let mut all = Vec::new();
    for (name, window) in windows {
        let mut times = QueryTimes::new(name);
        for _ in 0..4 * ROUNDS {
            for namespace in [None, Some("eu")] {
                let start = now();
                work.recent_stats(namespace, window).await?;
                times.add(start.elapsed(), namespace.unwrap_or("everywhere"));
            }
        }
        all.push(times);
    }
    let [mut signals, mut nodes, mut first, mut stats, mut states, mut affected] =
        ["signals", "nodes", "stats, the first time", "stats", "tasks by state", "affected"]
            .map(QueryTimes::new);
    let start = now();
    work.stats().await?;
    first.add(start.elapsed(), "not bounded");
    for _ in 0..8 * ROUNDS {
        let start = now();
        work.signals(None, 100).await?;
        signals.add(start.elapsed(), "");
        let start = now();
        work.nodes().await?;
        nodes.add(start.elapsed(), "");
        let start = now();
        work.stats().await?;
        stats.add(start.elapsed(), "");
        let start = now();
        work.tasks(&StepFilter::default(), Some(holdoff_work::TaskState::Cancelled), None, 100).await?;
        states.add(start.elapsed(), "none is in it");
    }
    for (parts, words) in PARTS.iter().map(|part| filter(&[part])) {
        let start = now();
        work.affected(&parts, &Action::Retry).await?;
        affected.add(start.elapsed(), &words);
    }
    let mut act = QueryTimes::new("act, nothing matches");
    for (parts, words) in PARTS.iter().filter(|part| part.1 == "none").map(|part| filter(&[part])) {
        let start = now();
        work.act(&parts, &Action::Retry).await?;
        act.add(start.elapsed(), &words);
    }
    all.extend([signals, nodes, first, stats, states, affected, act]);
    Ok(all)
}
