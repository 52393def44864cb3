//! The overhead of a retry for a call that succeeds: ours compared with backon, tokio-retry2 and tryhard; of a breaker compared
//! with failsafe's; and of a layer compared with tower's and tower-resilience's.

use std::future::Future;
use std::hint::black_box;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use backon::Retryable;
use failsafe::futures::CircuitBreaker as _;
use holdoff_policy::{ClassMap, Failure, Policy};
use holdoff_retry::{Classify, Retry, RetryLayer, retry};
use tower::{Layer as _, Service as _, service_fn};

use crate::measure::{CALLS, Contestant, contest};
use crate::row::Row;

/// An error that never occurs.
struct Never;

impl Classify for Never {
    fn classify(&self, _: &ClassMap) -> Failure {
        Failure::permanent()
    }
}

/// A call that succeeds at once. The compiler cannot see through its poll, as with a real call.
struct Call;

impl Future for Call {
    type Output = Result<u64, Never>;

    #[inline(never)]
    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        Poll::Ready(black_box(Ok(7)))
    }
}

pub(crate) fn rows() -> Vec<Row> {
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_time().build() else {
        return Vec::new();
    };
    let policy = Policy::standard();
    let named = Retry::new(&policy).operation("bench");
    let counted = counted(&runtime, &policy);
    let broken = Retry::new(&policy).breaker(Arc::default());
    let failsafe = failsafe::Config::new().build();
    let backon = backon::ExponentialBuilder::default().with_jitter();
    let delays = tokio_retry2::strategy::ExponentialBackoff::from_millis(10);
    let base = std::time::Duration::from_millis(10);
    let service = service_fn(|(): ()| Call);
    let judge = |result: &Result<u64, Never>| result.as_ref().err().map(|_| Failure::permanent());
    let layered = RetryLayer::new(Retry::new(&policy), judge).layer(service);
    let resilient = tower_resilience_retry::RetryLayer::<(), u64, Never>::builder()
        .max_attempts(5)
        .build()
        .layer(service);
    let tower = tower::retry::Retry::new(Attempts(5), service);
    // The compiler must not know values that a program reads from its configuration.
    let figures = contest(vec![
        contestant(&runtime, "plain", || Call),
        contestant(&runtime, "holdoff", || retry(black_box(&policy), || Call)),
        contestant(&runtime, "holdoff, named", || black_box(&named).run(|| Call)),
        contestant(&runtime, "holdoff, counted", || black_box(&counted).run(|| Call)),
        contestant(&runtime, "holdoff, breaker", || black_box(&broken).run(|| Call)),
        contestant(&runtime, "holdoff, layer", || layered.clone().call(())),
        contestant(&runtime, "failsafe", || failsafe.call(Call)),
        contestant(&runtime, "tower", || tower.clone().call(())),
        contestant(&runtime, "tower-resilience", || resilient.clone().call(())),
        contestant(&runtime, "backon", || (|| Call).retry(black_box(backon))),
        contestant(&runtime, "tokio-retry2", || {
            let call = || async { Call.await.map_err(tokio_retry2::RetryError::transient) };
            tokio_retry2::Retry::spawn(black_box(delays.clone()).take(4), call)
        }),
        contestant(&runtime, "tryhard", || {
            tryhard::retry_fn(|| Call).retries(4).exponential_backoff(black_box(base))
        }),
    ]);
    let figure =
        |wanted: &str| figures.iter().find(|(name, _)| *name == wanted).map_or(f64::NAN, |(_, ns)| *ns);
    let added = |name: &str| (figure(name) - figure("plain")).max(0.0);
    let (ours, named, theirs) = (added("holdoff"), added("holdoff, named"), added("backon"));
    let row = |name, ours, peer: &'static str| Row::beside(name, "ns", added(ours), (peer, added(peer)));
    vec![
        row("retry of a success, added", "holdoff", "backon")
            .bar("≤ 6 ns or ≤ ½", ours <= 6.0 || ours <= theirs / 2.0),
        row("retry of a success, added", "holdoff", "tokio-retry2"),
        row("retry of a success, added", "holdoff", "tryhard"),
        row("the same, named", "holdoff, named", "backon")
            .bar("≤ 10 ns or ≤ ½", named <= 10.0 || named <= theirs / 2.0),
        row("the same, with a recorder", "holdoff, counted", "backon"),
        row("the same, with a breaker", "holdoff, breaker", "failsafe"),
        row("the same, as a tower layer", "holdoff, layer", "tower"),
        row("the same, as a tower layer", "holdoff, layer", "tower-resilience"),
    ]
}

/// Returns a named set-up whose counter is that of a recorder.
fn counted(runtime: &tokio::runtime::Runtime, policy: &Policy) -> Retry {
    let retry = Retry::new(policy).operation("bench");
    let recorder = metrics_util::debugging::DebuggingRecorder::new();
    metrics::with_local_recorder(&recorder, || runtime.block_on(retry.run(|| Call)).is_ok());
    retry
}

/// Tower's own layer with a number of attempts.
#[derive(Clone)]
struct Attempts(u32);

impl tower::retry::Policy<(), u64, Never> for Attempts {
    type Future = std::future::Ready<()>;

    fn retry(&mut self, (): &mut (), result: &mut Result<u64, Never>) -> Option<Self::Future> {
        self.0 = self.0.saturating_sub(u32::from(result.is_err()));
        (result.is_err() && self.0 > 0).then(|| std::future::ready(()))
    }

    fn clone_request(&mut self, (): &()) -> Option<()> {
        Some(())
    }
}

fn contestant<'a, F, Fut, T, E>(
    runtime: &'a tokio::runtime::Runtime,
    name: &'static str,
    make: F,
) -> Contestant<'a>
where
    F: Fn() -> Fut + 'a,
    Fut: Future<Output = Result<T, E>>,
{
    let run = move || {
        runtime.block_on(async {
            for _ in 0..CALLS {
                let _ = black_box(make().await);
            }
        });
    };
    (name, Box::new(run))
}
