//! The overhead of a retry for a call that succeeds: ours compared with backon, tokio-retry2 and tryhard.

use std::future::Future;
use std::hint::black_box;
use std::pin::Pin;
use std::task::{Context, Poll};

use backon::Retryable;
use holdoff_policy::{ClassMap, Failure, Policy};
use holdoff_retry::{Classify, Retry};

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
    let backon = backon::ExponentialBuilder::default().with_jitter();
    let delays = tokio_retry2::strategy::ExponentialBackoff::from_millis(10);
    let base = std::time::Duration::from_millis(10);
    // The compiler must not know values that a program reads from its configuration.
    let figures = contest(vec![
        contestant(&runtime, "plain", || Call),
        contestant(&runtime, "holdoff", || holdoff_retry::retry(black_box(&policy), || Call)),
        contestant(&runtime, "holdoff, named", || {
            Retry::new(black_box(&policy)).operation(black_box("bench")).run(|| Call)
        }),
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
    let (ours, theirs) = (added("holdoff"), added("backon"));
    let holds = ours <= 6.0 || ours <= theirs / 2.0;
    vec![
        Row::beside("retry of a success, added", "ns", ours, ("backon", theirs)).bar("≤ 6 ns or ≤ ½", holds),
        Row::beside("retry of a success, added", "ns", ours, ("tokio-retry2", added("tokio-retry2"))),
        Row::beside("retry of a success, added", "ns", ours, ("tryhard", added("tryhard"))),
        Row::beside("the same, named (counts success)", "ns", added("holdoff, named"), ("backon", theirs)),
    ]
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
