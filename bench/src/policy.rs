//! One decision with jitter, including the draw of the roll, compared with the delay iterators of the retry crates; and a
//! budgeted call (a success refunds, a retry withdraws) compared with tower's.

use std::hint::black_box;
use std::time::{Duration, SystemTime};

use backon::BackoffBuilder;
use holdoff_policy::{Attempt, Budget, BudgetOptions, Failure, Growth, Jitter, Policy, SoFar};
use retry_policies::RetryPolicy;
use tower::retry::backoff::{Backoff, ExponentialBackoffMaker, MakeBackoff};
use tower::retry::budget::{Budget as _, TpsBudget};
use tower_resilience_retry::RetryBudgetBuilder;

use crate::measure::{CALLS, Contestant, contest};
use crate::row::Row;

const BASE: Duration = Duration::from_millis(100);
const CAP: Duration = Duration::from_secs(30);

pub(crate) fn decide_rows() -> Vec<Row> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
    let Ok(runtime) = runtime else { return Vec::new() };
    let _context = runtime.enter();
    let figures = contest(
        vec![
            ("holdoff", ours()),
            ("backon", backon()),
            ("tokio-retry2", tokio_retry()),
            ("retry-policies", retry_policies()),
            ("exponential-backoff", exponential_backoff()),
            ("tower (makes the timer too)", tower()),
            ("tryhard (no jitter)", tryhard()),
            ("tower-resilience", tower_resilience()),
            ("failsafe", failsafe()),
        ]
        .into_iter()
        .collect::<Vec<Contestant<'_>>>(),
    );
    let ours = figures.iter().find(|(name, _)| *name == "holdoff").map_or(f64::MAX, |(_, ns)| *ns);
    let peers: Vec<_> = figures.into_iter().filter(|(name, _)| *name != "holdoff").collect();
    let with_jitter = peers.iter().filter(|(name, _)| !name.contains("no jitter"));
    let best = with_jitter.map(|(_, ns)| *ns).fold(f64::MAX, f64::min);
    let holds = ours <= 4.5 || ours <= best / 3.0;
    let row = |peer: (&str, f64)| {
        let row = Row::beside("decide, jitter and roll", "ns", ours, peer);
        if (peer.1 - best).abs() < f64::EPSILON {
            row.bar("≤ 4.5 ns or ≤ ⅓ of the best", holds)
        } else {
            row
        }
    };
    peers.into_iter().map(row).collect()
}

fn ours() -> Box<dyn FnMut()> {
    let growth = Growth::exponential(BASE, 2.0);
    let policy = Policy::builder(growth).cap(CAP).jitter(Jitter::Full).attempts(u32::MAX).build();
    let mut rng = fastrand::Rng::with_seed(1);
    Box::new(move || {
        let Ok(policy) = black_box(&policy) else { return };
        let failure = black_box(Failure::transient());
        let mut so_far = SoFar::default();
        for call in 0..CALLS {
            so_far.attempt = Attempt::new(call & 15);
            black_box(policy.decide(black_box(&so_far), &failure, rng.u32(..)));
        }
    })
}

fn backon() -> Box<dyn FnMut()> {
    let builder = backon::ExponentialBuilder::default()
        .with_jitter()
        .with_min_delay(BASE)
        .with_max_delay(CAP)
        .without_max_times();
    let mut delays = builder.build();
    Box::new(move || {
        for _ in 0..CALLS {
            black_box(delays.next());
        }
    })
}

fn tokio_retry() -> Box<dyn FnMut()> {
    use tokio_retry2::strategy::{ExponentialBackoff, jitter};
    let mut delays = ExponentialBackoff::from_millis(2).factor(50).max_delay(CAP).map(jitter);
    Box::new(move || {
        for _ in 0..CALLS {
            black_box(delays.next());
        }
    })
}

fn retry_policies() -> Box<dyn FnMut()> {
    let policy = retry_policies::policies::ExponentialBackoff::builder()
        .retry_bounds(BASE, CAP)
        .jitter(retry_policies::Jitter::Full)
        .build_with_max_retries(u32::MAX);
    Box::new(move || {
        for call in 0..CALLS {
            black_box(policy.should_retry(SystemTime::UNIX_EPOCH, black_box(call & 15)));
        }
    })
}

fn exponential_backoff() -> Box<dyn FnMut()> {
    let backoff = exponential_backoff::Backoff::new(u32::MAX, BASE, CAP);
    let mut delays = backoff.iter();
    Box::new(move || {
        for _ in 0..CALLS {
            black_box(delays.next());
        }
    })
}

fn tower() -> Box<dyn FnMut()> {
    let maker = ExponentialBackoffMaker::new(BASE, CAP, 0.99, tower::util::rng::HasherRng::default());
    let Ok(mut maker) = maker else { return Box::new(|| {}) };
    let mut backoff = maker.make_backoff();
    Box::new(move || {
        for _ in 0..CALLS {
            drop(black_box(backoff.next_backoff()));
        }
    })
}

fn tryhard() -> Box<dyn FnMut()> {
    use tryhard::backoff_strategies::{BackoffStrategy, ExponentialBackoff};
    let mut backoff = ExponentialBackoff::new(BASE);
    let mut left = 0;
    Box::new(move || {
        for _ in 0..CALLS {
            if left == 0 {
                (backoff, left) = (ExponentialBackoff::new(BASE), 16);
            }
            left -= 1;
            black_box(BackoffStrategy::<()>::delay(&mut backoff, black_box(1), &()));
        }
    })
}

fn tower_resilience() -> Box<dyn FnMut()> {
    use tower_resilience_retry::{ExponentialRandomBackoff, IntervalFunction as _};
    let Ok(backoff) = ExponentialRandomBackoff::new(BASE, 0.5) else { return Box::new(|| {}) };
    let backoff = backoff.max_interval(CAP);
    Box::new(move || {
        for call in 0..CALLS as usize {
            black_box(backoff.next_interval(black_box(call & 15)));
        }
    })
}

/// It panics if the base is shorter than a second.
fn failsafe() -> Box<dyn FnMut()> {
    let mut delays = failsafe::backoff::full_jittered(Duration::from_secs(1), CAP);
    Box::new(move || {
        for _ in 0..CALLS {
            black_box(delays.next());
        }
    })
}

pub(crate) fn budget_rows() -> Vec<Row> {
    let ours = Budget::new(BudgetOptions { ratio: 0.2, burst: 1000 });
    let tower = TpsBudget::new(Duration::from_secs(10), 100, 0.2);
    let resilient = RetryBudgetBuilder::new().token_bucket().max_tokens(1000).build();
    let Ok(resilient) = resilient else { return Vec::new() };
    let figures = contest(vec![
        ("ours", Box::new(|| budgeted_calls(|| ours.refund(), || ours.withdraw()))),
        ("tower", Box::new(|| budgeted_calls(|| tower.deposit(), || tower.withdraw()))),
        ("resilient", Box::new(|| budgeted_calls(|| resilient.deposit(), || resilient.try_withdraw()))),
    ]);
    let figure =
        |wanted: &str| figures.iter().find(|(name, _)| *name == wanted).map_or(f64::NAN, |(_, ns)| *ns);
    let (ours, tower) = (figure("ours"), figure("tower"));
    vec![
        Row::beside("a budgeted call", "ns", ours, ("tower TpsBudget", tower))
            .bar("≤ 3 ns or ≤ ¼", ours <= 3.0 || ours <= tower / 4.0),
        Row::beside("a budgeted call", "ns", ours, ("tower-resilience", figure("resilient"))),
    ]
}

/// Runs calls of which nine succeed and the tenth is retried.
fn budgeted_calls(refund: impl Fn(), withdraw: impl Fn() -> bool) {
    for call in 0..CALLS {
        if call % 10 == 9 {
            black_box(withdraw());
        } else {
            refund();
        }
    }
}
