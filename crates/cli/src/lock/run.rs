//! `holdoff lock run`

use std::process::ExitCode;

use holdoff_lock::{Error, Guard};
use tokio_util::sync::CancellationToken;

use super::Desk;
use super::child::Child;
use super::signals::{Came, Signals};
use crate::args::LockRunArgs;
use crate::failure::Failure;
use crate::output::{style, time};

/// The lock was not free in time.
const CONTENDED: u8 = 75;
/// The lock was lost while the command ran.
const LOST: u8 = 76;

pub(super) async fn run(desk: &Desk, args: &LockRunArgs) -> Result<ExitCode, Failure> {
    let mut signals = Signals::new()?;
    let guard = match acquire(desk, args, &mut signals).await? {
        Ok(guard) => guard,
        Err(came) => return Ok(ExitCode::from(came.code())),
    };
    let ended = attend(&guard, args, &mut signals).await;
    let token = guard.token();
    let lost = || {
        let key = &args.key;
        Failure::Coded(LOST, format!("the lock on {key} with token {token} was lost while the command ran"))
    };
    let released = guard.release().await;
    match (ended?, released) {
        (None, _) | (_, Err(Error::Lost { .. })) => Err(lost()),
        (Some(code), released) => {
            if let Err(error) = released {
                warn(&format!("the lock was not let go, and ends with its lease: {error}"));
            }
            Ok(ExitCode::from(code))
        }
    }
}

/// The lock, or the signal that came first. Nothing is left behind that waits.
async fn acquire(
    desk: &Desk,
    args: &LockRunArgs,
    signals: &mut Signals,
) -> Result<Result<Guard, Came>, Failure> {
    let mut settings = desk.settings.clone();
    if let Some(lease) = args.lease {
        settings = settings.with_lease(lease);
    }
    if let Some(wait) = args.wait {
        settings = settings.with_wait(wait);
    }
    if let Some(wait) = settings.short_wait().filter(|wait| !wait.is_zero()) {
        let (wait, lease) = (time(wait), time(settings.lease()));
        warn(&format!(
            "waiting {wait} for a lease of {lease}: whoever waits for a holder that was killed waits in vain"
        ));
    }
    let cancel = CancellationToken::new();
    let locks = desk.locks.with_settings(settings)?;
    let mut acquiring = locks.acquire(&args.key).cancel(cancel.clone()).into_future();
    let acquired = tokio::select! {
        biased;
        came = signals.next() => {
            cancel.cancel();
            // It may have been granted at the last moment; dropping the guard would not wait for the store.
            if let Ok(guard) = acquiring.await {
                _ = guard.release().await;
            }
            return Ok(Err(came));
        }
        acquired = &mut acquiring => acquired,
    };
    acquired.map(Ok).map_err(|error| match error {
        Error::Contended { .. } | Error::DeadlineExceeded { .. } => {
            Failure::Coded(CONTENDED, format!("{}: {error}", args.key))
        }
        error => error.into(),
    })
}

/// Runs the command to its end; answers with its code, or nothing if the lock was lost before.
async fn attend(guard: &Guard, args: &LockRunArgs, signals: &mut Signals) -> Result<Option<u8>, Failure> {
    let mut child = Child::start(args, guard)?;
    let lost = guard.lost();
    tokio::pin!(lost);
    loop {
        tokio::select! {
            biased;
            code = child.ended() => return Ok(Some(code?)),
            () = &mut lost => break,
            came = signals.next() => child.tell(came),
        }
    }
    warn(&format!("the lock is lost: the command has {} to end", time(args.grace)));
    child.tell(Came::Terminate);
    if tokio::time::timeout(args.grace, child.ended()).await.is_err() {
        child.kill();
        child.ended().await?;
    }
    // What the command has started may have outlived it.
    child.kill();
    Ok(None)
}

fn warn(what: &str) {
    let mark = style::WARNING;
    anstream::eprintln!("{mark}warning:{mark:#} {what}");
}
