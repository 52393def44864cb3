//! The executor on another runtime than tokio.

use std::io::{Error, ErrorKind};
use std::time::Duration;

use holdoff_policy::{Growth, Jitter, Policy};
use holdoff_retry::testing::Script;
use holdoff_retry::{Backoff, Retry, Retryable, StopReason};

const MS: Duration = Duration::from_millis(1);

#[test]
fn the_executor_runs_on_smol() {
    let policy = Policy::builder(Growth::constant(MS)).jitter(Jitter::None).attempts(3).build().unwrap();
    let reset = || Err(Error::from(ErrorKind::ConnectionReset));
    let retry = Retry::new(&policy).attempt_timeout(MS).sleeper(smol::Timer::after);
    smol::block_on(async {
        let script = Script::new([reset(), reset(), Ok("done")]);
        assert_eq!((|| script.call()).retry((&policy, smol::Timer::after)).await.unwrap(), "done");

        let hang = || std::future::pending::<Result<(), Error>>();
        let failed = retry.run(hang).await.unwrap_err();
        assert!(failed.timed_out() && failed.attempts() == 3 && failed.elapsed() >= MS * 5, "{failed}");

        let later = async {
            smol::Timer::after(MS).await;
        };
        let cancelled = hang.retry(Retry::new(&policy).sleeper(smol::Timer::after)).cancel(later).await;
        assert_eq!(cancelled.unwrap_err().stopped(), StopReason::Cancelled);

        Backoff::new(policy.clone()).sleeper(smol::Timer::after).wait().await;
        let spawned = smol::spawn(async move { retry.run(|| async { Ok::<_, Error>(7) }).await.unwrap() });
        assert_eq!(spawned.await, 7);
    });
}
