//! What a retry adds to a call that succeeds: ours beside backon, tokio-retry2 and tryhard.

use std::future::Future;
use std::hint::black_box;

use backon::Retryable;
use holdoff_policy::{ClassMap, Failure, Policy};
use holdoff_retry::{Classify, Retry};

use crate::measure::{CALLS, Contestant, contest};
use crate::row::Row;

/// An error that is never made.
struct Never;

impl Classify for Never {
    fn classify(&self, _: &ClassMap) -> Failure {
        Failure::permanent()
    }
}

async fn call() -> Result<u64, Never> {
    black_box(Ok(7))
}

pub(crate) fn rows() -> Vec<Row> {
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_time().build() else {
        return Vec::new();
    };
    let policy = Policy::standard();
    let figures = contest(vec![
        contestant(&runtime, "plain", call),
        contestant(&runtime, "holdoff", || holdoff_retry::retry(&policy, call)),
        contestant(&runtime, "holdoff, named", || Retry::new(&policy).operation("bench").run(call)),
        contestant(&runtime, "backon", || call.retry(backon::ExponentialBuilder::default().with_jitter())),
        contestant(&runtime, "tokio-retry2", || {
            let delays = tokio_retry2::strategy::ExponentialBackoff::from_millis(10).take(4);
            tokio_retry2::Retry::spawn(delays, || async {
                call().await.map_err(tokio_retry2::RetryError::transient)
            })
        }),
        contestant(&runtime, "tryhard", || {
            let retry = tryhard::retry_fn(call).retries(4);
            async move { retry.exponential_backoff(std::time::Duration::from_millis(10)).await }
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
