//! Claims and leases: which worker gets a step, for how long, and that a report under an old lease changes nothing.

use std::collections::BTreeSet;
use std::time::Duration;

use holdoff_work::{
    Action, AttemptOutcome, Error, Fault, Payload, Receipt, Step, StepFilter, StepState, Task,
};
use sqlx::{Connection as _, PgConnection};
use tokio::task::JoinSet;

use crate::conformance::test_store::{
    HOUR, MINUTE, TestStore, attempts, claim, claim_many, claimer, count, eventually, execute, filter, ids,
    nothing_is_due, on_every_store, on_shared_stores, settings, step, submit, submit_many,
};

async fn a_claimer_claims_only_matching_steps(store: TestStore) {
    let work = store.open().await;
    submit(&work, Task::new("mail").queue("a")).await;
    submit(&work, Task::new("mail").queue("b")).await;
    submit(&work, Task::new("print").queue("a")).await;
    let of = async |operations: &[&str], queues: &[&str]| {
        let claimer = work.claimer("tester", operations, queues).await.unwrap();
        let mut count = 0;
        while let Some(claimed) = claimer.claim(1, MINUTE).await.unwrap().pop() {
            assert!(operations.contains(&claimed.operation()));
            count += 1;
        }
        count
    };
    assert_eq!(of(&["other"], &[]).await, 0);
    assert_eq!(of(&[], &[]).await, 0, "no operation named is none");
    assert_eq!(of(&["mail", "print"], &["c"]).await, 0);
    assert_eq!(of(&["mail", "print"], &["b"]).await, 1);
    assert_eq!(of(&["print"], &["a", "b"]).await, 1);
    assert_eq!(of(&["print", "mail"], &[]).await, 1);
}

async fn two_claimers_never_claim_the_same_step(store: TestStore) {
    let work = store.open().await;
    submit_many(&work, 2000, || Task::new("mail")).await;
    let mut claiming = Vec::new();
    for _ in 0..8 {
        let claimer = claimer(&work, &["mail"]).await;
        claiming.push(tokio::spawn(async move {
            let mut mine = Vec::new();
            // Other claimers may have locked the due steps at this moment, so only three empty claims in a row mean
            // the end.
            let mut empty = 0;
            while empty < 3 {
                let more = claimer.claim(17, MINUTE).await.unwrap();
                empty = if more.is_empty() { empty + 1 } else { 0 };
                mine.extend(more.iter().map(|claimed| (claimed.step(), claimed.token())));
            }
            mine
        }));
    }
    let mut all = Vec::new();
    for claimer in claiming {
        all.extend(claimer.await.unwrap());
    }
    assert_eq!(all.len(), 2000);
    assert!(all.iter().all(|(_, token)| *token == 1));
    assert_eq!(all.iter().map(|(step, _)| *step).collect::<BTreeSet<_>>().len(), 2000);
}

async fn nodes_share_due_steps(store: TestStore) {
    let nodes = [store.open().await, store.open().await, store.open().await, store.open().await];
    submit_many(&nodes[0], 2000, || Task::new("mail")).await;
    let mut claiming = Vec::new();
    for node in nodes {
        let claimer = claimer(&node, &["mail"]).await;
        claiming.push(tokio::spawn(async move {
            let (mut mine, mut empty) = (Vec::new(), 0);
            while empty < 3 {
                let more = claimer.claim(50, MINUTE).await.unwrap();
                empty = if more.is_empty() { empty + 1 } else { 0 };
                for claimed in more.iter().take(5) {
                    let receipt = claimer.complete(claimed, Payload::empty()).await.unwrap();
                    assert_eq!(receipt, Receipt::Accepted);
                }
                mine.extend(more.iter().map(holdoff_work::ClaimedStep::step));
            }
            mine
        }));
    }
    let mut all = Vec::new();
    for claimer in claiming {
        all.extend(claimer.await.unwrap());
    }
    assert_eq!(all.len(), 2000);
    assert_eq!(all.into_iter().collect::<BTreeSet<_>>().len(), 2000);
}

async fn a_report_under_an_old_lease_changes_nothing(store: TestStore) {
    let work = store.open().await;
    let task = submit(&work, Task::new("mail")).await;
    let claimer = claimer(&work, &["mail"]).await;
    let zombie = claim(&claimer).await;
    claimer.fail(&zombie, Fault::conflict("who is right?")).await.unwrap();
    work.act(&StepFilter::task(task), &Action::Resolve(None)).await.unwrap();
    let owner = claim(&claimer).await;
    let before = step(&work, task.step(0)).await;
    // The store answers with the outcome recorded under the old lease, whatever the new report contains.
    let recorded = Receipt::Recorded(AttemptOutcome::Conflicted);
    assert_eq!(claimer.complete(&zombie, Payload::empty()).await.unwrap(), recorded);
    assert_eq!(claimer.fail(&zombie, Fault::permanent("late")).await.unwrap(), recorded);
    assert_eq!(claimer.snooze(&zombie, MINUTE, "late").await.unwrap(), recorded);
    assert!(matches!(claimer.heartbeat(&zombie, MINUTE).await, Err(Error::Fenced { .. })));
    let after = step(&work, task.step(0)).await;
    assert_eq!(format!("{before:?}"), format!("{after:?}"));
    assert_eq!(claimer.complete(&owner, Payload::empty()).await.unwrap(), Receipt::Accepted);
    assert_eq!(claimer.complete(&zombie, Payload::empty()).await.unwrap(), recorded);
}

async fn a_report_after_cancellation_is_fenced(store: TestStore) {
    let work = store.open().await;
    let task = submit(&work, Task::new("mail")).await;
    let claimer = claimer(&work, &["mail"]).await;
    let claimed = claim(&claimer).await;
    assert_eq!(work.act(&StepFilter::task(task), &Action::Cancel).await.unwrap(), 1);
    assert_eq!(claimer.complete(&claimed, Payload::empty()).await.unwrap(), Receipt::Fenced);
    assert_eq!(claimer.fail(&claimed, Fault::transient("x")).await.unwrap(), Receipt::Fenced);
    assert!(matches!(claimer.heartbeat(&claimed, MINUTE).await, Err(Error::Fenced { .. })));
    assert_eq!(step(&work, task.step(0)).await.state, StepState::Cancelled);
    assert!(attempts(&work, task.step(0)).await.is_empty());
}

async fn a_repeated_report_returns_the_recorded_outcome(store: TestStore) {
    let work = store.open().await;
    let task = submit(&work, Task::new("mail")).await;
    let claimer = claimer(&work, &["mail"]).await;
    let first = claim(&claimer).await;
    assert_eq!(claimer.snooze(&first, Duration::ZERO, "not yet").await.unwrap(), Receipt::Accepted);
    assert_eq!(
        claimer.snooze(&first, Duration::ZERO, "not yet").await.unwrap(),
        Receipt::Recorded(AttemptOutcome::Snoozed)
    );
    let second = claim(&claimer).await;
    assert_eq!(claimer.fail(&second, Fault::transient("x")).await.unwrap(), Receipt::Accepted);
    assert_eq!(
        claimer.fail(&second, Fault::transient("x")).await.unwrap(),
        Receipt::Recorded(AttemptOutcome::Retried)
    );
    let third = claim(&claimer).await;
    let output = Payload::json(&1).unwrap();
    assert_eq!(claimer.complete(&third, output.clone()).await.unwrap(), Receipt::Accepted);
    for late in [output.clone(), Payload::json(&2).unwrap()] {
        let receipt = claimer.complete(&third, late).await.unwrap();
        assert_eq!(receipt, Receipt::Recorded(AttemptOutcome::Succeeded));
    }
    let late = claimer.fail(&third, Fault::permanent("late")).await.unwrap();
    assert_eq!(late, Receipt::Recorded(AttemptOutcome::Succeeded));
    let record = step(&work, task.step(0)).await;
    assert_eq!((record.state, record.failures, record.snoozes), (StepState::Succeeded, 1, 1));
    assert_eq!(record.output, Some(output));
    assert_eq!(attempts(&work, task.step(0)).await.len(), 2);
}

async fn the_token_grows_with_every_claim_and_every_exit(store: TestStore) {
    let work = store.open().await;
    let task = submit(&work, Task::new("mail")).await;
    let claimer = claimer(&work, &["mail"]).await;
    let mut tokens = Vec::new();
    for round in 0..6 {
        let claimed = claim(&claimer).await;
        tokens.push(claimed.token());
        match round {
            0 | 1 => drop(claimer.fail(&claimed, Fault::transient("x")).await.unwrap()),
            2 => drop(claimer.snooze(&claimed, Duration::ZERO, "x").await.unwrap()),
            3 => {
                claimer.fail(&claimed, Fault::permanent("x")).await.unwrap();
                work.act(&StepFilter::task(task), &Action::Retry).await.unwrap();
            }
            4 => {
                claimer.fail(&claimed, Fault::conflict("x")).await.unwrap();
                work.act(&StepFilter::task(task), &Action::Resolve(None)).await.unwrap();
            }
            _ => drop(claimer.complete(&claimed, Payload::empty()).await.unwrap()),
        }
    }
    // From one claim to the next the token grows by at least two: one for the exit, and one for the claim.
    assert!(tokens.windows(2).all(|pair| pair[1] >= pair[0] + 2), "{tokens:?}");
}

async fn a_heartbeat_extends_the_lease(store: TestStore) {
    let work = store.open().await;
    let task = submit(&work, Task::new("mail")).await;
    let claimer = claimer(&work, &["mail"]).await;
    let claimed = claim(&claimer).await;
    let until = step(&work, task.step(0)).await.due_at.unwrap();
    claimer.heartbeat(&claimed, 10 * MINUTE).await.unwrap();
    let later = step(&work, task.step(0)).await.due_at.unwrap();
    let longer = later.since(until);
    assert!(longer > 8 * MINUTE && longer < 11 * MINUTE, "{longer:?}");
    claimer.complete(&claimed, Payload::empty()).await.unwrap();
    assert!(matches!(claimer.heartbeat(&claimed, MINUTE).await, Err(Error::Fenced { .. })));
}

async fn an_output_above_the_limit_is_dropped_and_the_step_succeeds(store: TestStore) {
    let work = store.open().await;
    let task = submit(&work, Task::new("mail")).await;
    let claimer = claimer(&work, &["mail"]).await;
    let claimed = claim(&claimer).await;
    let large = Payload::bytes(vec![0; work.settings().max_output + 1]);
    assert_eq!(claimer.complete(&claimed, large).await.unwrap(), Receipt::Accepted);
    let record = step(&work, task.step(0)).await;
    assert_eq!((record.state, record.output), (StepState::Succeeded, Some(Payload::empty())));
    let note = "the output of 262145 bytes was dropped: the limit is 262144 (work.max_output)";
    assert_eq!((record.message.as_deref(), record.class), (Some(note), None));
}

async fn a_busy_operation_does_not_starve_others_of_its_priority(store: TestStore) {
    let work = store.open().await;
    submit_many(&work, 50, || Task::new("mail")).await;
    let print = submit(&work, Task::new("print")).await;
    submit_many(&work, 50, || Task::new("mail")).await;
    let claimer = claimer(&work, &["mail", "print"]).await;
    let mut order = Vec::new();
    for _ in 0..60 {
        order.push(claim(&claimer).await.step().task);
    }
    assert!(order.contains(&print), "the oldest due step decides which lane is next");
    nothing_is_due(&crate::conformance::test_store::claimer(&work, &["print"]).await).await;
    assert_eq!(ids(&work, &filter(|filter| filter.states = vec![StepState::Running])).await.len(), 60);
}

async fn inputs_come_with_the_claim(store: TestStore) {
    let work = store.open().await;
    let graph = Task::graph().step("a", Step::new("one")).step("b", Step::new("two").after("a"));
    submit(&work, graph).await;
    let (one, two) = (claimer(&work, &["one"]).await, claimer(&work, &["two"]).await);
    nothing_is_due(&two).await;
    one.complete(&claim(&one).await, Payload::json(&41).unwrap()).await.unwrap();
    let child =
        eventually("the dependent step is due", || async { two.claim(1, MINUTE).await.unwrap().pop() }).await;
    assert_eq!(child.inputs().len(), 1);
    assert_eq!(child.inputs()["a"].read::<i32>().unwrap(), 41);
}

/// The stores cannot represent every time.
async fn snoozes_and_leases_last_at_most_a_year(store: TestStore) {
    let year = 365 * 24 * HOUR;
    let work = store.open().await;
    let task = submit(&work, Task::new("mail")).await;
    let claimer = claimer(&work, &["mail"]).await;
    let lasts_a_year = async || {
        let record = step(&work, task.step(0)).await;
        let lasts = record.due_at.unwrap().since(record.last_attempted_at.unwrap());
        assert!(lasts + HOUR > year && lasts < year + HOUR, "{lasts:?}");
    };
    let claimed = claimer.claim(1, Duration::MAX).await.unwrap().pop().unwrap();
    lasts_a_year().await;
    claimer.heartbeat(&claimed, Duration::MAX).await.unwrap();
    lasts_a_year().await;
    claimer.snooze(&claimed, Duration::MAX, "not now").await.unwrap();
    lasts_a_year().await;
}

/// The lease is long: nothing is rescued here.
async fn a_claim_whose_inputs_cannot_be_read_goes_back_at_once(store: TestStore) {
    let work = store.open().await;
    let graph = Task::graph().step("a", Step::new("one")).step("b", Step::new("two").after("a"));
    let task = submit(&work, graph).await;
    let (one, two) = (claimer(&work, &["one"]).await, claimer(&work, &["two"]).await);
    one.complete(&claim(&one).await, Payload::json(&41).unwrap()).await.unwrap();
    let (hide, show) = if store.is_postgres() {
        ("alter table holdoff.done rename to hidden", "alter table holdoff.hidden rename to done")
    } else {
        ("alter table holdoff_done rename to hidden", "alter table hidden rename to holdoff_done")
    };
    execute(&store, hide).await;
    let refused = two.claim(1, HOUR).await.unwrap_err();
    execute(&store, show).await;
    let record = step(&work, task.step(1)).await;
    assert_eq!((record.state, record.failures, record.snoozes), (StepState::Ready, 0, 1), "{refused}");
    assert_eq!(attempts(&work, task.step(1)).await[0].outcome, AttemptOutcome::Busy);
    assert_eq!(claim(&two).await.inputs()["a"].read::<i32>().unwrap(), 41);
}

/// A trigger counts the claims, also those that find nothing. The node polls once an hour.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiting_claimers_share_their_looks_at_the_store() {
    let store = TestStore::postgres();
    let mut settings = settings();
    settings.poll = HOUR;
    let work = store.open_with(settings).await;
    let count_looks = "create table looks (at timestamptz default now());
        create function look() returns trigger language plpgsql as
            $$ begin insert into looks default values; return null; end $$;
        create trigger looks before update on holdoff.steps for each statement execute function look()";
    execute(&store, count_looks).await;
    let claimer = claimer(&work, &["mail"]).await;
    let mut waiting = JoinSet::new();
    for _ in 0..100 {
        let claimer = claimer.clone();
        waiting.spawn(async move { claimer.claim_within(1, MINUTE, MINUTE).await.unwrap() });
    }
    for _ in 0..3 {
        submit(&work, Task::new("print")).await;
        submit(&work, Task::new("mail")).await;
        assert_eq!(waiting.join_next().await.unwrap().unwrap().len(), 1);
    }
    // A look that finds nothing is two statements.
    let looks = count(&store, "select count(*) from looks").await;
    assert!(looks < 50, "{looks} statements for 100 claimers and six notifications");
}

async fn many_steps_are_claimed_at_once(store: TestStore) {
    let work = store.open().await;
    submit_many(&work, 1500, || Task::new("mail")).await;
    claim_many(&claimer(&work, &["mail"]).await, 1500, MINUTE).await;
}

/// The test covers all indexes of the table.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_changes_no_index_of_postgres() {
    let store = TestStore::postgres();
    let work = store.open().await;
    submit_many(&work, 500, || Task::new("mail")).await;
    claim_many(&claimer(&work, &["mail"]).await, 500, MINUTE).await;
    // Postgres updates its statistics with a delay.
    let look = async || {
        let query = "select n_tup_upd, n_tup_hot_upd from pg_stat_user_tables where relname = 'steps'";
        let mut server = PgConnection::connect(&store.url).await.unwrap();
        let counted: (i64, i64) = sqlx::query_as(query).fetch_one(&mut server).await.unwrap();
        Some(counted).filter(|counted| counted.0 >= 500)
    };
    let counted = eventually("the server's statistics", look).await;
    assert_eq!(counted, (500, 500), "all updates are HOT updates, which change no index");
}

on_every_store!(
    a_claimer_claims_only_matching_steps,
    two_claimers_never_claim_the_same_step,
    a_report_under_an_old_lease_changes_nothing,
    a_report_after_cancellation_is_fenced,
    a_repeated_report_returns_the_recorded_outcome,
    the_token_grows_with_every_claim_and_every_exit,
    a_heartbeat_extends_the_lease,
    an_output_above_the_limit_is_dropped_and_the_step_succeeds,
    a_busy_operation_does_not_starve_others_of_its_priority,
    inputs_come_with_the_claim,
    many_steps_are_claimed_at_once,
    snoozes_and_leases_last_at_most_a_year,
);

mod shared {
    use super::{
        a_claim_whose_inputs_cannot_be_read_goes_back_at_once, nodes_share_due_steps, on_shared_stores,
    };

    on_shared_stores!(nodes_share_due_steps, a_claim_whose_inputs_cannot_be_read_goes_back_at_once);
}
