//! Bounded queries over many steps, one page at a time.

use std::collections::BTreeSet;

use holdoff_policy::matches_pattern;
use holdoff_work::{
    Action, Count, Fault, Filter, HttpStep, Page, Payload, Step, StepId, StepRecord, StepState, Task, Work,
};
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;

use crate::conformance::place::{
    HOUR, Place, claim_many, claimer, filter, on_every_store, submit, submit_many,
};

/// Creates steps of many kinds, in every state.
async fn crowd(work: &Work) -> Vec<StepRecord> {
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
    work.act(&Filter::task(one.step().task), &Action::Cancel).await.unwrap();
    let all = work.list(&Filter::default(), &Page::first(Page::MOST)).await.unwrap();
    let states: BTreeSet<_> = all.iter().map(|step| step.state).collect();
    assert_eq!((all.len(), states.len()), (72, StepState::ALL.len()), "{states:?}");
    all
}

fn filters() -> impl Strategy<Value = Filter> {
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
fn matches(filter: &Filter, step: &StepRecord) -> bool {
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
async fn walk(work: &Work, filter: &Filter, mut page: Page) -> Vec<StepId> {
    let mut seen = Vec::new();
    loop {
        let looked = work.look(filter, &page).await.unwrap();
        assert!(looked.steps.len() <= page.limit as usize);
        assert!(!looked.is_cut || looked.next.is_some());
        seen.extend(looked.steps.iter().map(|step| step.id));
        let Some(next) = looked.next else { return seen };
        assert!(page.after.is_none_or(|after| next < after), "it goes on");
        assert!(looked.steps.last().is_none_or(|last| next <= last.id));
        page = page.after(next);
    }
}

async fn looks_come_upon_everything_once_whatever_is_asked(place: Place) {
    let work = place.open().await;
    let all = crowd(&work).await;
    let mut runner = TestRunner::deterministic();
    let (mut found, mut cut) = (0, 0);
    for _ in 0..150 {
        let asked = (filters(), 1..40_u32, 1..40_u32).new_tree(&mut runner).unwrap().current();
        let (filter, limit, looked_at) = asked;
        let expected: Vec<StepId> =
            all.iter().filter(|step| matches(&filter, step)).map(|step| step.id).collect();
        let page = Page::first(limit).looking_at(looked_at);
        cut += u32::from(work.look(&filter, &page).await.unwrap().is_cut);
        assert_eq!(walk(&work, &filter, page).await, expected, "{filter:?} by {limit} of {looked_at}");
        let listed = work.list(&filter, &Page::first(limit).looking_at(looked_at)).await.unwrap();
        let listed: Vec<StepId> = listed.iter().map(|step| step.id).collect();
        assert_eq!(listed, expected[..expected.len().min(limit as usize)], "{filter:?}: a list is full");
        let count = expected.len() as u64;
        assert_eq!(work.count(&filter, 1000).await.unwrap(), Count::Exactly(count), "{filter:?}");
        assert_eq!(work.count(&filter, count).await.unwrap(), Count::Exactly(count), "{filter:?}");
        if count > 0 {
            assert_eq!(
                work.count(&filter, count - 1).await.unwrap(),
                Count::AtLeast(count - 1),
                "{filter:?}"
            );
            found += 1;
        }
    }
    assert!(
        found > 30 && cut > 30,
        "the questions are of all kinds: {found} found something, {cut} were cut"
    );
}

async fn a_page_that_is_full_to_the_last_has_no_next(place: Place) {
    let work = place.open().await;
    submit_many(&work, 5, || Task::new("mail")).await;
    let five = work.look(&Filter::default(), &Page::first(5)).await.unwrap();
    assert_eq!((five.steps.len(), five.next, five.is_cut), (5, None, false));
    let four = work.look(&Filter::default(), &Page::first(4)).await.unwrap();
    assert_eq!((four.steps.len(), four.next, four.is_cut), (4, Some(four.steps[3].id), false));
    let mails = filter(|filter| filter.operation = Some("mail".to_owned()));
    let two = work.look(&mails, &Page::first(4).looking_at(2)).await.unwrap();
    assert_eq!((two.steps.len(), two.next, two.is_cut), (2, Some(two.steps[1].id), true));
    assert_eq!(work.count(&Filter::default(), 0).await.unwrap(), Count::AtLeast(0));
}

on_every_store!(
    looks_come_upon_everything_once_whatever_is_asked,
    a_page_that_is_full_to_the_last_has_no_next,
);
