//! `holdoff lock run`

use std::process::ExitCode;

use tokio_util::sync::CancellationToken;

use super::Desk;
use super::child::Child;
use super::held::{Held, Released};
use super::keeper::Keeper;
use super::signals::{Came, Signals};
use crate::args::LockRunArgs;
use crate::failure::Failure;
use crate::output::{style, time};

/// Exit code if the lock was not granted in time.
pub(super) const CONTENDED: u8 = 75;
/// Exit code if the lease was lost while the command ran.
const LOST: u8 = 76;

pub(super) async fn run(desk: &Desk, args: &LockRunArgs) -> Result<ExitCode, Failure> {
    let mut signals = Signals::new()?;
    let held = match acquire(desk, args, &mut signals).await? {
        Ok(held) => held,
        Err(came) => return Ok(ExitCode::from(came.code())),
    };
    let ended = attend(&held, args, &mut signals).await;
    let token = held.token();
    let lost = || {
        let key = &args.key;
        Failure::Coded(LOST, format!("the lock on {key} with token {token} was lost while the command ran"))
    };
    let released = held.release().await;
    match (ended?, released) {
        (None, _) | (_, Released::Lost) => Err(lost()),
        (Some(code), released) => {
            if let Released::Not(why) = released {
                warn(&format!("the lock was not let go, and ends with its lease: {why}"));
            }
            Ok(ExitCode::from(code))
        }
    }
}

/// Acquires the lock, or returns the signal that arrived first. In both cases it leaves no waiter behind.
async fn acquire(
    desk: &Desk,
    args: &LockRunArgs,
    signals: &mut Signals,
) -> Result<Result<Held, Came>, Failure> {
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
    let (key, cancel) = (&args.key, CancellationToken::new());
    let acquiring = async {
        match &desk.keeper {
            Keeper::Store { locks, .. } => Held::own(locks, settings, key, cancel.clone()).await,
            Keeper::Daemon(address) => Held::lent(address, &settings, &desk.namespace, key).await,
        }
    };
    tokio::pin!(acquiring);
    tokio::select! {
        biased;
        came = signals.next() => {
            cancel.cancel();
            // The store may have granted the lock at the last moment, and dropping the guard does not wait for its
            // release.
            if let Keeper::Store { .. } = &desk.keeper && let Ok(held) = acquiring.await {
                _ = held.release().await;
            }
            Ok(Err(came))
        }
        acquired = &mut acquiring => acquired.map(Ok),
    }
}

/// Runs the command to its end. Returns its exit code, or `None` if the lease was lost first.
async fn attend(held: &Held, args: &LockRunArgs, signals: &mut Signals) -> Result<Option<u8>, Failure> {
    let mut child = Child::start(args, held)?;
    let lost = held.lost();
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
    // Kills child processes that outlived the command.
    child.kill();
    Ok(None)
}

fn warn(what: &str) {
    let mark = style::WARNING;
    anstream::eprintln!("{mark}warning:{mark:#} {what}");
}
