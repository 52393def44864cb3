//! Both executors: the async one under paused time, and the blocking one.

use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Barrier};
use std::time::Duration;

use holdoff_policy::{
    BreakerOptions, BreakerState, Budget, BudgetOptions, Class, ClassMap, Failure, GiveUpReason, Growth,
    Jitter, Policy, PolicySet, RetryAfter, retry_after_from_headers,
};
use holdoff_retry::{
    Classify, Refresher, Requeue, Retry, RetryError, Retryable, Retrying, SharedBreaker, StopReason,
    blocking, requeue_after, retry,
};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

const SECOND: Duration = Duration::from_secs(1);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Fault(&'static str, Failure);

impl Classify for Fault {
    fn classify(&self, _: &ClassMap) -> Failure {
        self.1
    }
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for Fault {}

fn fault(class: Class) -> Fault {
    Fault("fault", Failure::new(class))
}

/// Waits exactly one second between attempts.
fn steady(attempts: u32) -> Policy {
    Policy::builder(Growth::constant(SECOND)).jitter(Jitter::None).attempts(attempts).build().unwrap()
}

/// A call that fails with these faults in order, then succeeds.
struct Script {
    faults: RefCell<Vec<Fault>>,
    calls: Cell<u32>,
}

impl Script {
    fn new(faults: impl IntoIterator<Item = Fault>) -> Self {
        let mut faults: Vec<_> = faults.into_iter().collect();
        faults.reverse();
        Self { faults: RefCell::new(faults), calls: Cell::new(0) }
    }

    fn call(&self) -> std::future::Ready<Result<&'static str, Fault>> {
        self.calls.set(self.calls.get() + 1);
        std::future::ready(self.faults.borrow_mut().pop().map_or(Ok("done"), Err))
    }
}

#[tokio::test(start_paused = true)]
async fn attempts_repeat_until_success_with_the_policys_waits() {
    let script = Script::new([fault(Class::Transient), fault(Class::Timeout)]);
    let start = Instant::now();
    assert_eq!(retry(&steady(5), || script.call()).await, Ok("done"));
    assert_eq!((script.calls.get(), start.elapsed()), (3, SECOND * 2));
}

#[tokio::test(start_paused = true)]
async fn an_exhausted_policy_returns_the_last_error_and_the_count() {
    let script = Script::new((0..9).map(|_| Fault("the last one", Failure::transient())));
    let failed = Retry::new(steady(4)).run(|| script.call()).await.unwrap_err();
    assert_eq!(failed.stopped(), StopReason::Refused(GiveUpReason::Exhausted));
    assert_eq!(failed.error().map(|fault| fault.0), Some("the last one"));
    assert_eq!((failed.attempts(), failed.elapsed()), (4, SECOND * 3));
    assert_eq!(failed.to_string(), "gave up after 4 attempts in 3s: all attempts are used up");
    let source = std::error::Error::source(&failed).unwrap();
    assert_eq!(source.to_string(), "the last one");
}

#[tokio::test(start_paused = true)]
async fn permanent_failures_are_not_retried() {
    let script = Script::new([fault(Class::Permanent)]);
    let failed = Retry::new(steady(4)).run(|| script.call()).await.unwrap_err();
    assert_eq!((failed.stopped(), failed.attempts()), (StopReason::Refused(GiveUpReason::Permanent), 1));
}

#[tokio::test(start_paused = true)]
async fn a_conflict_is_not_retried() {
    let script = Script::new([fault(Class::Conflict)]);
    let failed = Retry::new(steady(4)).run(|| script.call()).await.unwrap_err();
    assert_eq!((failed.stopped(), failed.attempts()), (StopReason::Conflict, 1));
    assert_eq!(failed.into_error(), Some(fault(Class::Conflict)));
}

#[tokio::test(start_paused = true)]
async fn a_401_is_refreshed_and_retried_without_a_wait() {
    let refresher = Arc::new(Refresher::new(|| async { Ok(()) }));
    let script = Script::new([fault(Class::Unauthorized)]);
    let (policy, start) = (steady(4), Instant::now());
    let done = Retry::new(&policy).refresh(Arc::clone(&refresher)).run(|| script.call()).await;
    assert_eq!((done, script.calls.get(), refresher.generation()), (Ok("done"), 2, 1));
    assert_eq!(start.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_second_401_backs_off() {
    let refresher = Arc::new(Refresher::new(|| async { Ok(()) }));
    let script = Script::new([fault(Class::Unauthorized), fault(Class::Unauthorized)]);
    let (policy, start) = (steady(4), Instant::now());
    let done = Retry::new(&policy).refresh(Arc::clone(&refresher)).run(|| script.call()).await;
    assert_eq!((done, script.calls.get(), refresher.generation()), (Ok("done"), 3, 1));
    assert_eq!(start.elapsed(), SECOND);
}

#[tokio::test(start_paused = true)]
async fn a_401_without_a_refresher_stops_at_once() {
    let script = Script::new([fault(Class::Unauthorized)]);
    let failed = Retry::new(steady(4)).run(|| script.call()).await.unwrap_err();
    assert_eq!((failed.stopped(), failed.attempts()), (StopReason::Unauthorized, 1));
}

/// A hundred tasks share one expired credential.
#[tokio::test(start_paused = true)]
async fn a_hundred_concurrent_401s_refresh_once() {
    let (valid, refreshes) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let refresher = Arc::new(Refresher::new({
        let (valid, refreshes) = (Arc::clone(&valid), Arc::clone(&refreshes));
        move || {
            let (valid, refreshes) = (Arc::clone(&valid), Arc::clone(&refreshes));
            async move {
                refreshes.fetch_add(1, Ordering::SeqCst);
                tokio::time::sleep(SECOND).await;
                valid.store(1, Ordering::SeqCst);
                Ok(())
            }
        }
    }));
    let tasks: Vec<_> = (0..100)
        .map(|_| {
            let (refresher, valid) = (Arc::clone(&refresher), Arc::clone(&valid));
            tokio::spawn(async move {
                let call = || async {
                    let token = valid.load(Ordering::SeqCst);
                    tokio::time::sleep(Duration::from_millis(10)).await;
                    if token == 1 { Ok(()) } else { Err(fault(Class::Unauthorized)) }
                };
                Retry::new(steady(4)).refresh(Arc::clone(&refresher)).run(call).await
            })
        })
        .collect();
    let start = Instant::now();
    for task in tasks {
        assert_eq!(task.await.unwrap(), Ok(()));
    }
    assert_eq!(refreshes.load(Ordering::SeqCst), 1);
    assert!(
        start.elapsed() < SECOND * 3 / 2,
        "no caller waits longer than the refresh: {:?}",
        start.elapsed()
    );
    assert!(refresher.refresh(0).await.is_ok(), "a newer generation needs no refresh");
    assert_eq!(refreshes.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn callers_that_waited_for_a_failed_refresh_share_its_failure() {
    let refreshes = Arc::new(AtomicU32::new(0));
    let refresher = Refresher::new({
        let refreshes = Arc::clone(&refreshes);
        move || {
            refreshes.fetch_add(1, Ordering::SeqCst);
            async {
                tokio::time::sleep(SECOND).await;
                Err("no key".into())
            }
        }
    });
    let (one, two) = tokio::join!(refresher.refresh(0), refresher.refresh(0));
    assert!(one.is_err() && two.is_err());
    assert_eq!(refreshes.load(Ordering::SeqCst), 1);
    assert!(refresher.refresh(0).await.is_err(), "a later caller refreshes again");
    assert_eq!(refreshes.load(Ordering::SeqCst), 2);
}

#[tokio::test(start_paused = true)]
async fn a_failed_refresh_backs_off() {
    let refresher = Arc::new(Refresher::new(|| async { Err("invalid_grant".into()) }));
    let script = Script::new([fault(Class::Unauthorized)]);
    let (policy, start) = (steady(4), Instant::now());
    let done = Retry::new(&policy).refresh(Arc::clone(&refresher)).run(|| script.call()).await;
    assert_eq!((done, script.calls.get(), start.elapsed()), (Ok("done"), 2, SECOND));
}

#[tokio::test(start_paused = true)]
async fn the_deadline_ends_a_hanging_refresh() {
    let refresher = Arc::new(Refresher::new(std::future::pending));
    let script = Script::new([fault(Class::Unauthorized)]);
    let (policy, start) = (steady(4), Instant::now());
    let retry = Retry::new(&policy).refresh(refresher.clone()).deadline(SECOND * 5);
    let failed = retry.run(|| script.call()).await.unwrap_err();
    assert_eq!(
        (failed.stopped(), start.elapsed()),
        (StopReason::Refused(GiveUpReason::Deadline), SECOND * 5)
    );
    assert!(failed.error().is_some());
}

#[tokio::test]
async fn the_executor_uses_the_classes_of_the_file() {
    let set = PolicySet::from_toml("[classes.io]\nconnection_reset = \"permanent\"\n").unwrap();
    let call = || async { Err::<(), _>(std::io::Error::from(std::io::ErrorKind::ConnectionReset)) };
    let failed = Retry::for_operation(&set, "default", "a").run(call).await.unwrap_err();
    assert_eq!((failed.stopped(), failed.attempts()), (StopReason::Refused(GiveUpReason::Permanent), 1));
}

#[tokio::test(start_paused = true)]
async fn a_retry_that_the_breaker_refuses_is_not_charged_to_the_budget() {
    let breaker = Arc::new(SharedBreaker::new(BreakerOptions { min_calls: 1, ..BreakerOptions::default() }));
    let budget = Arc::new(Budget::new(BudgetOptions { ratio: 0.0, burst: 5 }));
    let (policy, script) = (steady(4), Script::new((0..9).map(|_| fault(Class::Transient))));
    let policy = policy.to_builder().growth(Growth::constant(Duration::from_millis(1))).build().unwrap();
    let failed = Retry::new(&policy)
        .breaker(Arc::clone(&breaker))
        .budget(Arc::clone(&budget))
        .run(|| script.call())
        .await
        .unwrap_err();
    assert!(matches!(failed.stopped(), StopReason::BreakerOpen { .. }), "{failed}");
    assert_eq!((failed.attempts(), budget.left()), (1, 5));
    assert!(failed.error().is_some(), "the error of the only attempt is returned");
}

/// A retry that is charged but not made, for any reason, returns to the budget.
#[tokio::test(start_paused = true)]
async fn a_retry_that_is_not_made_is_not_charged_to_the_budget() {
    let budget = Arc::new(Budget::new(BudgetOptions { ratio: 0.0, burst: 5 }));
    let (policy, token) = (steady(4), CancellationToken::new());
    let script = Script::new((0..9).map(|_| fault(Class::Transient)));
    let retry = Retry::new(&policy).budget(Arc::clone(&budget));
    let dropped = retry.run(|| script.call());
    assert!(tokio::time::timeout(SECOND / 2, dropped).await.is_err());
    assert_eq!(budget.left(), 5, "dropped in the wait");

    let cancelled = retry.run(|| script.call()).cancel(token.cancelled());
    let cancel = async {
        tokio::time::sleep(SECOND / 2).await;
        token.cancel();
    };
    assert_eq!(tokio::join!(cancelled, cancel).0.unwrap_err().stopped(), StopReason::Cancelled);
    assert_eq!(budget.left(), 5, "cancelled in the wait");

    let refresher = Arc::new(Refresher::new(std::future::pending));
    let refused = Script::new([fault(Class::Unauthorized)]);
    let retry = retry.clone().refresh(refresher).deadline(SECOND);
    retry.run(|| refused.call()).await.unwrap_err();
    assert_eq!(budget.left(), 5, "the refresh used up the deadline, so no retry was withdrawn");
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_token_prevents_the_first_attempt() {
    let (policy, token) = (steady(4), CancellationToken::new());
    token.cancel();
    let script = Script::new([]);
    let failed = Retry::new(&policy).run(|| script.call()).cancel(token.cancelled()).await.unwrap_err();
    assert_eq!((failed.stopped(), failed.attempts(), script.calls.get()), (StopReason::Cancelled, 0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_failed_refresh_is_reported_once() {
    let refresher = Arc::new(Refresher::new(|| async { Err("invalid_grant".into()) }));
    let (policy, script, mut delays) = (steady(4), Script::new([fault(Class::Unauthorized)]), Vec::new());
    let hook = |retrying: &Retrying<'_, Fault>| delays.push((retrying.attempt, retrying.delay));
    Retry::new(&policy).refresh(refresher).run(|| script.call()).on_retry(hook).await.unwrap();
    assert_eq!(delays, [(1, SECOND)]);
}

#[test]
fn a_controller_does_not_spin_on_refused_credentials() {
    let unauthorized = Failure::new(Class::Unauthorized);
    assert_eq!(requeue_after(&steady(9), 1, &unauthorized), Some(Duration::ZERO));
    assert_eq!(requeue_after(&steady(9), 2, &unauthorized), Some(SECOND));
    let mut requeue = Requeue::new();
    assert_eq!(requeue.failed(&steady(9), &unauthorized), Some(Duration::ZERO));
    assert_eq!(requeue.failed(&steady(9), &unauthorized), Some(SECOND));
    requeue.succeeded();
    assert_eq!(requeue.failed(&steady(9), &unauthorized), Some(Duration::ZERO));
}

/// Returns the executor's wait after a 429 with this header.
async fn wait_after(header: &str, date: Option<&str>) -> Result<Duration, StopReason> {
    let now = httpdate::parse_http_date("Sun, 06 Nov 1994 08:49:37 GMT").unwrap();
    let failure = Failure::new(Class::RateLimited);
    let asked = retry_after_from_headers(header, date, now);
    let failure = asked.map_or(failure, |wait| failure.with_retry_after(wait));
    let script = Script::new([Fault("429", failure)]);
    let start = Instant::now();
    let done = Retry::new(Policy::standard()).run(|| script.call()).await;
    done.map(|_| start.elapsed()).map_err(|failed| failed.stopped())
}

fn within(wait: Result<Duration, StopReason>, low_ms: u64, high_ms: u64) -> bool {
    // The timer rounds up to the next millisecond.
    (Duration::from_millis(low_ms)..=Duration::from_millis(high_ms + 2)).contains(&wait.unwrap())
}

#[tokio::test(start_paused = true)]
async fn retry_after_120_waits_between_120_and_125_seconds() {
    for _ in 0..200 {
        assert!(within(wait_after("120", None).await, 120_000, 125_000));
    }
}

#[tokio::test(start_paused = true)]
async fn an_http_date_is_measured_by_the_servers_own_clock() {
    let (date, then) = ("Thu, 01 Jan 2026 00:00:00 GMT", "Thu, 01 Jan 2026 00:02:00 GMT");
    assert!(within(wait_after(then, Some(date)).await, 120_000, 125_000), "31 years ahead of ours");
    let (date, then) = ("Sun, 01 Jan 1984 00:00:00 GMT", "Sun, 01 Jan 1984 00:02:00 GMT");
    assert!(within(wait_after(then, Some(date)).await, 120_000, 125_000), "ten years behind ours");
    assert!(
        within(wait_after("Sun, 06 Nov 1994 08:51:37 GMT", None).await, 120_000, 125_000),
        "without a Date"
    );
}

#[tokio::test(start_paused = true)]
async fn a_past_zero_or_invalid_retry_after_is_ignored_and_a_huge_one_gives_up() {
    assert!(within(wait_after("Sun, 06 Nov 1994 08:00:00 GMT", None).await, 500, 5_000), "past");
    assert!(within(wait_after("0", None).await, 500, 5_000), "zero");
    assert!(within(wait_after("-5", None).await, 500, 1_500), "negative");
    assert!(within(wait_after("soon", None).await, 500, 1_500), "nonsense");
    let absurd = wait_after("99999999999999999999", None).await;
    assert_eq!(absurd, Err(StopReason::Refused(GiveUpReason::RetryAfter)));
}

#[tokio::test(start_paused = true)]
async fn a_delay_past_the_deadline_is_not_slept() {
    let policy = steady(9).to_builder().deadline(SECOND * 5 / 2).build().unwrap();
    let script = Script::new((0..9).map(|_| fault(Class::Transient)));
    let start = Instant::now();
    let failed = Retry::new(policy).run(|| script.call()).await.unwrap_err();
    assert_eq!(failed.stopped(), StopReason::Refused(GiveUpReason::Deadline));
    assert_eq!((failed.attempts(), start.elapsed()), (3, SECOND * 2));
}

#[tokio::test(start_paused = true)]
async fn the_callers_deadline_cuts_off_an_attempt_that_hangs() {
    let (policy, start) = (steady(9), Instant::now());
    let hang = || std::future::pending::<Result<(), Fault>>();
    let failed = Retry::new(&policy).deadline(SECOND * 3).run(hang).await.unwrap_err();
    assert_eq!((failed.stopped(), failed.error()), (StopReason::Refused(GiveUpReason::Deadline), None));
    assert_eq!((failed.attempts(), start.elapsed(), failed.timed_out()), (1, SECOND * 3, true));
    assert!(failed.to_string().ends_with("the last attempt was cut off"), "{failed}");
}

/// For every sequence of waits: the error survives, and no attempt begins after the deadline.
#[tokio::test(start_paused = true)]
async fn with_a_deadline_the_last_error_survives_and_no_attempt_comes_late() {
    let policy = Policy::builder(Growth::constant(SECOND)).attempts(Policy::UNLIMITED).build().unwrap();
    for seed in 0..300 {
        let (start, latest) = (Instant::now(), Cell::new(Duration::ZERO));
        let call = || async {
            latest.set(start.elapsed());
            tokio::time::sleep(Duration::from_millis(10)).await;
            Err::<(), _>(fault(Class::Transient))
        };
        let failed = Retry::new(&policy).seed(seed).deadline(SECOND * 3).run(call).await.unwrap_err();
        assert_eq!(failed.stopped(), StopReason::Refused(GiveUpReason::Deadline), "seed {seed}");
        assert!(failed.error().is_some() && latest.get() < SECOND * 3, "seed {seed}: {failed:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_earlier_error_is_kept_when_the_last_attempt_is_cut_off() {
    let (policy, calls) = (steady(2), Cell::new(0));
    let call = || async {
        calls.set(calls.get() + 1);
        if calls.get() == 2 {
            std::future::pending::<()>().await;
        }
        Err::<(), _>(fault(Class::Transient))
    };
    let failed = Retry::new(&policy).attempt_timeout(SECOND).run(call).await.unwrap_err();
    assert_eq!((failed.timed_out(), failed.error()), (true, Some(&fault(Class::Transient))));
}

#[tokio::test(start_paused = true)]
async fn a_slow_attempt_times_out_and_is_retried() {
    let (policy, calls) = (steady(9), Cell::new(0));
    let start = Instant::now();
    let call = || async {
        calls.set(calls.get() + 1);
        tokio::time::sleep(if calls.get() < 3 { SECOND * 60 } else { SECOND }).await;
        Ok::<_, Fault>("in time")
    };
    let done = Retry::new(&policy).attempt_timeout(SECOND * 2).run(call).await;
    assert_eq!((done, start.elapsed()), (Ok("in time"), SECOND * (2 + 1 + 2 + 1 + 1)));
}

#[tokio::test(start_paused = true)]
async fn dropping_the_future_stops_the_attempt_and_the_wait() {
    let (calls, alive) = (Arc::new(AtomicU32::new(0)), Arc::new(()));
    let policy = steady(1000);
    {
        let (calls, alive) = (Arc::clone(&calls), Arc::clone(&alive));
        let endless = retry(&policy, move || {
            calls.fetch_add(1, Ordering::SeqCst);
            let alive = Arc::clone(&alive);
            async move {
                drop(alive);
                Err::<(), _>(fault(Class::Transient))
            }
        });
        assert!(tokio::time::timeout(SECOND * 5 / 2, endless).await.is_err());
    }
    assert_eq!((calls.load(Ordering::SeqCst), Arc::strong_count(&alive)), (3, 1));
    tokio::time::sleep(SECOND * 60).await;
    assert_eq!(calls.load(Ordering::SeqCst), 3);
}

#[tokio::test(start_paused = true)]
async fn a_token_cancels_in_the_middle_of_a_wait_and_of_an_attempt() {
    let (policy, token) = (steady(1000), CancellationToken::new());
    let script = Script::new((0..9).map(|_| fault(Class::Transient)));
    let cancel_later = async {
        tokio::time::sleep(SECOND * 5 / 2).await;
        token.cancel();
    };
    let retry = Retry::new(&policy);
    let (failed, ()) = tokio::join!(retry.run(|| script.call()).cancel(token.cancelled()), cancel_later);
    let failed = failed.unwrap_err();
    assert_eq!((failed.stopped(), failed.attempts()), (StopReason::Cancelled, 3));
    assert!(failed.error().is_some(), "the last error is kept");

    let (token, hang) = (CancellationToken::new(), || std::future::pending::<Result<(), Fault>>());
    let cancel = async {
        tokio::time::sleep(SECOND).await;
        token.cancel();
    };
    let (failed, ()) = tokio::join!(retry.run(hang).cancel(token.cancelled()), cancel);
    let failed = failed.unwrap_err();
    assert_eq!((failed.stopped(), failed.error(), failed.attempts()), (StopReason::Cancelled, None, 1));
}

#[tokio::test(start_paused = true)]
async fn an_empty_budget_stops_and_a_success_refills_it() {
    let budget = Arc::new(Budget::new(BudgetOptions { ratio: 1.0, burst: 2 }));
    let policy = steady(9);
    let run = |faults: usize| {
        let script = Script::new((0..faults).map(|_| fault(Class::Transient)));
        let retry = Retry::new(&policy).budget(Arc::clone(&budget));
        async move { retry.run(|| script.call()).await }
    };
    let failed: RetryError<Fault> = run(9).await.unwrap_err();
    assert_eq!((failed.stopped(), failed.attempts()), (StopReason::Budget, 3));
    assert_eq!(run(0).await, Ok("done"));
    assert_eq!(run(1).await, Ok("done"), "the success has earned a retry");
}

#[tokio::test(start_paused = true)]
async fn an_open_breaker_refuses_without_calling_and_lets_a_probe_through() {
    let options = BreakerOptions { min_calls: 3, cool_down: steady(5), ..BreakerOptions::default() };
    let breaker = Arc::new(SharedBreaker::new(options));
    let policy = steady(3);
    let script = Script::new((0..3).map(|_| fault(Class::Transient)));
    let failed = Retry::new(&policy).breaker(Arc::clone(&breaker)).run(|| script.call()).await.unwrap_err();
    assert_eq!((failed.attempts(), breaker.state()), (3, BreakerState::Open));

    let refused = Retry::new(&policy).breaker(Arc::clone(&breaker)).run(|| script.call()).await.unwrap_err();
    assert_eq!(refused.stopped(), StopReason::BreakerOpen { retry_in: SECOND });
    assert_eq!((refused.attempts(), script.calls.get()), (0, 3));

    tokio::time::sleep(SECOND).await;
    assert_eq!(Retry::new(&policy).breaker(Arc::clone(&breaker)).run(|| script.call()).await, Ok("done"));
    assert_eq!(breaker.state(), BreakerState::Closed);
}

#[tokio::test(start_paused = true)]
async fn hooks_see_every_retry_with_its_error() {
    let script = Script::new([
        fault(Class::Transient),
        Fault("later", Failure::transient().with_retry_after(SECOND * 2)),
    ]);
    let (policy, mut seen) = (steady(9), Vec::new());
    let retry = Retry::new(&policy).operation("hooked");
    let report = retry
        .run(|| script.call())
        .on_retry(|retrying| {
            assert_eq!(retrying.operation, Some("hooked"));
            seen.push((retrying.attempt, retrying.delay, retrying.error.map(|error| error.0)));
        })
        .report()
        .await
        .unwrap();
    assert_eq!((report.value, report.attempts, report.elapsed), ("done", 3, SECOND * 3));
    assert_eq!(seen, [(1, SECOND, Some("fault")), (2, SECOND * 2, Some("later"))]);
}

#[tokio::test(start_paused = true)]
async fn one_seed_gives_the_same_delays_every_time() {
    let elapsed = |seed| async move {
        let script = Script::new((0..4).map(|_| fault(Class::Transient)));
        let start = Instant::now();
        Retry::new(Policy::standard()).seed(seed).run(|| script.call()).await.unwrap();
        start.elapsed()
    };
    assert_eq!(elapsed(7).await, elapsed(7).await);
    assert_ne!(elapsed(7).await, elapsed(8).await);
}

#[tokio::test(start_paused = true)]
async fn a_zero_delay_takes_no_time_but_lets_others_run() {
    let policy =
        Policy::builder(Growth::constant(Duration::ZERO)).attempts(Policy::UNLIMITED).build().unwrap();
    let stop = Arc::new(AtomicU32::new(0));
    let other = tokio::spawn({
        let stop = Arc::clone(&stop);
        async move { stop.store(1, Ordering::SeqCst) }
    });
    let start = Instant::now();
    let call =
        || async { if stop.load(Ordering::SeqCst) == 1 { Ok(()) } else { Err(fault(Class::Contended)) } };
    assert_eq!(retry(&policy, call).await, Ok(()));
    assert_eq!(start.elapsed(), Duration::ZERO);
    other.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn operations_find_their_policy_in_the_set() {
    let text = "[policies.thrice]\ngrowth = \"constant\"\ndelay = \"1s\"\njitter = \"none\"\nattempts = 3\n\
                [operations]\n\"user.*\" = \"thrice\"\n";
    let set = PolicySet::from_toml(text).unwrap();
    let script = Script::new((0..9).map(|_| fault(Class::Transient)));
    let retry = Retry::for_operation(&set, PolicySet::DEFAULT_NAMESPACE, "user.login");
    assert_eq!(retry.run(|| script.call()).await.unwrap_err().attempts(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_judge_decides_about_returned_values() {
    let statuses = RefCell::new(vec![200, 503, 503]);
    let call = || async { statuses.borrow_mut().pop().unwrap() };
    let judge = |status: &u16| (*status == 503).then(Failure::transient);
    let policy = steady(2);
    let ended = Retry::new(&policy).run(call).judge(judge).await;
    assert_eq!(
        (ended.outcome, ended.stopped),
        (Some(503), Some(StopReason::Refused(GiveUpReason::Exhausted)))
    );
    let ended = Retry::new(&policy).run(call).judge(judge).await;
    assert_eq!((ended.outcome, ended.stopped, ended.attempts), (Some(200), None, 1));
    statuses.borrow_mut().extend([503, 503]);
    assert_eq!(call.retry(&policy).judge(judge).await, 503, "with a policy alone, the last outcome itself");
}

#[tokio::test(start_paused = true)]
async fn retry_after_beyond_the_limit_can_be_clipped_on_purpose() {
    let rule =
        RetryAfter { limit: SECOND * 60, beyond: holdoff_policy::Beyond::Clip, ..RetryAfter::default() };
    let policy = steady(3).to_builder().retry_after(rule).build().unwrap();
    let script =
        Script::new([Fault("429", Failure::new(Class::RateLimited).with_retry_after(SECOND * 3600))]);
    let start = Instant::now();
    assert_eq!(retry(&policy, || script.call()).await, Ok("done"));
    assert_eq!(start.elapsed(), SECOND * 60);
}

/// The futures can be spawned: they are not bound to a thread.
#[tokio::test]
async fn the_future_is_send() {
    fn assert_send<T: Send>(value: T) -> T {
        value
    }
    let policy = steady(1);
    let future = assert_send(retry(&policy, || async { Ok::<_, Fault>(1) }));
    assert_eq!(future.await, Ok(1));
    let token = CancellationToken::new();
    let call = || async { Ok::<_, Fault>(2) };
    let future = assert_send(call.retry(Retry::new(&policy)).cancel(token.cancelled()));
    assert_eq!(future.await, Ok(2));
}

/// One test on the real timer, in addition to those under paused time.
#[tokio::test]
async fn the_real_timer_waits_at_least_as_long_as_it_should() {
    let policy =
        Policy::builder(Growth::constant(Duration::from_millis(30))).jitter(Jitter::None).build().unwrap();
    let script = Script::new([fault(Class::Transient), fault(Class::Transient)]);
    let start = Instant::now();
    assert_eq!(retry(&policy, || script.call()).await, Ok("done"));
    assert!(start.elapsed() >= Duration::from_millis(60), "{:?}", start.elapsed());
}

fn quick(attempts: u32) -> Policy {
    let growth = Growth::constant(Duration::from_millis(1));
    Policy::builder(growth).jitter(Jitter::None).attempts(attempts).build().unwrap()
}

#[test]
fn the_blocking_executor_retries_until_success() {
    let calls = Cell::new(0);
    let call = || {
        calls.set(calls.get() + 1);
        if calls.get() < 3 {
            Err(std::io::ErrorKind::TimedOut.into())
        } else {
            Ok::<_, std::io::Error>(calls.get())
        }
    };
    assert_eq!(blocking::retry(&quick(5), call).call().unwrap(), 3);
}

#[test]
fn the_blocking_executor_returns_the_last_error_and_the_count() {
    let call = || Err::<(), _>(std::io::Error::from(std::io::ErrorKind::ConnectionReset));
    let failed = blocking::retry(Retry::new(quick(3)), call).call().unwrap_err();
    assert_eq!((failed.stopped(), failed.attempts()), (StopReason::Refused(GiveUpReason::Exhausted), 3));
    assert_eq!(failed.error().map(std::io::Error::kind), Some(std::io::ErrorKind::ConnectionReset));
    assert!(failed.elapsed() >= Duration::from_millis(2));
}

#[test]
fn the_blocking_executor_does_not_sleep_past_the_deadline() {
    let policy =
        Policy::builder(Growth::constant(Duration::from_secs(3600))).jitter(Jitter::None).build().unwrap();
    let retry = Retry::new(&policy).deadline(Duration::from_secs(1));
    let failed = blocking::retry(&retry, || Err::<(), _>(())).when(|()| true).call().unwrap_err();
    assert_eq!((failed.stopped(), failed.attempts()), (StopReason::Refused(GiveUpReason::Deadline), 1));
}

#[test]
fn concurrent_threads_refresh_once() {
    let (valid, refreshes) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let refresher = Arc::new(blocking::Refresher::new({
        let (valid, refreshes) = (Arc::clone(&valid), Arc::clone(&refreshes));
        move || {
            refreshes.fetch_add(1, Ordering::SeqCst);
            valid.store(1, Ordering::SeqCst);
            Ok(())
        }
    }));
    let (policy, barrier) = (quick(5), Barrier::new(16));
    std::thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| {
                let first = Cell::new(true);
                let call = || {
                    let token = valid.load(Ordering::SeqCst);
                    // All threads read the expired token before the first refusal.
                    if first.replace(false) {
                        barrier.wait();
                    }
                    if token == 1 { Ok(()) } else { Err(()) }
                };
                let retry = Retry::new(&policy).refresh_blocking(Arc::clone(&refresher));
                blocking::retry(&retry, call).classify(|()| Class::Unauthorized).call().unwrap();
            });
        }
    });
    assert_eq!(refreshes.load(Ordering::SeqCst), 1);
}

#[test]
fn the_blocking_executor_ignores_the_async_refresher() {
    let refresher = Arc::new(Refresher::new(|| async { Ok(()) }));
    let policy = quick(5);
    let retry = Retry::new(&policy).refresh(refresher);
    let call = blocking::retry(&retry, || Err::<(), _>(())).classify(|()| Class::Unauthorized);
    let failed = call.call().unwrap_err();
    assert_eq!((failed.stopped(), failed.attempts()), (StopReason::Unauthorized, 1));
}

#[test]
fn the_blocking_executor_checks_the_token_between_attempts() {
    let (policy, token) = (quick(5), tokio_util::sync::CancellationToken::new());
    let call = || {
        token.cancel();
        Err::<(), _>(())
    };
    let retry = Retry::new(&policy);
    let call = blocking::retry(&retry, call).cancel(token.cancelled()).when(|()| true);
    let failed = call.call().unwrap_err();
    assert_eq!((failed.stopped(), failed.attempts()), (StopReason::Cancelled, 1));
}
