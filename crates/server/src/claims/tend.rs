//! Background loops of the daemon: one renews the lock that shows that the daemon is alive, and one releases claims
//! whose task has ended.

use std::time::Duration;

use holdoff_lock::{Error, Key, Lease};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::pauses::Pauses;
use super::row::{self, Row, Said};
use super::{Claims, Inner, NAMESPACE, Own};
use crate::clock;
use crate::ledgers::Node;
use crate::problem::Problem;

/// The interval between checks for ended tasks.
const LOOK: Duration = Duration::from_millis(250);
/// After a check the loop sleeps this many times as long as the check took, so that checks use little of the store's
/// time. The sleep is at most [`PAUSE`].
const SHARE: u32 = 10;
/// The loop reads all claims of the ledger once in this many checks, to find those of an earlier run of this daemon.
const LOOKS: u32 = 20;
/// The maximum interval between checks, and the interval after an error.
const PAUSE: Duration = Duration::from_secs(1);

impl Claims {
    /// Starts both loops. They run until the daemon stops.
    pub(crate) fn start(&self, stopping: &CancellationToken) -> [JoinHandle<()>; 2] {
        let (live, tend) = (self.clone().live(stopping.clone()), self.clone().tend(stopping.clone()));
        [tokio::spawn(live), tokio::spawn(tend)]
    }

    /// Holds the daemon's lock until the daemon stops. The lock is not released but expires: a daemon that restarts
    /// within the lease keeps its claims.
    async fn live(self, stopping: CancellationToken) {
        let living = async {
            let mut pauses = Pauses::up_to(super::PAUSE);
            loop {
                match self.0.begin_to_live().await {
                    Ok(lease) => self.0.go_on(&lease).await,
                    Err(_) => pauses.wait().await,
                }
            }
        };
        stopping.run_until_cancelled(living).await;
    }

    /// Releases claims whose task has ended, until the daemon stops.
    async fn tend(self, stopping: CancellationToken) {
        let tending = async {
            let mut pause = LOOK;
            for look in 0_u32.. {
                tokio::time::sleep(pause).await;
                let since = clock::now();
                let tended = self.0.tend(look % LOOKS == 0).await;
                pause = (clock::now().saturating_sub(since) * SHARE).clamp(LOOK, PAUSE);
                if let Err(why) = tended {
                    tracing::debug!(?why, "claims of signals cannot be looked after now");
                    pause = PAUSE;
                }
            }
        };
        stopping.run_until_cancelled(tending).await;
    }
}

impl Inner {
    /// Returns the lease of the daemon's lock. No other process uses this lock, so a lease of an earlier run is this
    /// daemon's own.
    async fn begin_to_live(&self) -> Result<Lease, Error> {
        // Before the node has joined the ledger, there is no store to ask.
        let Ok(node) = self.node() else {
            return Err(Error::Settings("this node has not joined yet".to_owned()));
        };
        let lock = row::lock_of(&node.key().to_string());
        if let Some(holder) = self.locks.inspect(&lock).await?.and_then(|lock| lock.holder) {
            return Ok(Lease::new(Key::new(NAMESPACE, lock)?, holder.owner.nonce, holder.token));
        }
        Ok(self.locks.acquire(lock).name("signals").wait(PAUSE).hand_over().await?.accept())
    }

    /// Renews the lease until it is lost.
    async fn go_on(&self, lease: &Lease) {
        let lasts = self.locks.settings().lease();
        let mut pauses = Pauses::up_to(lasts / 20);
        loop {
            match self.locks.renew(lease, lasts).await {
                Ok(_) => {
                    pauses.end();
                    tokio::time::sleep(lasts / 3).await;
                }
                Err(Error::Lost { .. }) => return,
                Err(_) => pauses.wait().await,
            }
        }
    }

    async fn tend(&self, looks_at_all: bool) -> Result<(), Problem> {
        let node = self.node()?;
        if looks_at_all {
            for (row, claim) in row::own(&node).await? {
                let Some(fingerprint) = claim.fingerprint() else { continue };
                let own = Own { namespace: claim.namespace, fingerprint, making: 0, is_made: false };
                self.own().entry(row).or_insert(own);
            }
        }
        let own: Vec<_> = self.own().iter().map(|(row, own)| (row.clone(), own.clone())).collect();
        for (row, own) in own.into_iter().filter(|(_, own)| own.making == 0) {
            self.tend_one(&node, &row, &own).await?;
        }
        Ok(())
    }

    async fn tend_one(&self, node: &Node, row: &Row, own: &Own) -> Result<(), Problem> {
        let lives = self.work.signal_task(&own.namespace, own.fingerprint).await?;
        if lives.is_some() && own.is_made {
            return Ok(());
        }
        let claim = row.at_hand(node).await?.map(|(_, claim)| claim).filter(|claim| claim.is_of(node));
        let Some(claim) = claim else {
            self.forget(row);
            return Ok(());
        };
        // A request is creating the task: it updates the claim, or leaves that to the next check.
        if self.is_being_made(row) {
            return Ok(());
        }
        match lives {
            Some(_) if claim.is_made() => self.is_made(row),
            Some(task) => {
                row.change(node, &claim, Some(&claim.with(task))).await?;
            }
            None => {
                if row.change(node, &claim, None).await? != Said::Differs {
                    self.forget(row);
                }
            }
        }
        Ok(())
    }

    fn is_made(&self, row: &Row) {
        if let Some(own) = self.own().get_mut(row) {
            own.is_made = true;
        }
    }

    fn is_being_made(&self, row: &Row) -> bool {
        self.own().get(row).is_some_and(|own| own.making > 0)
    }

    fn forget(&self, row: &Row) {
        let mut own = self.own();
        if own.get(row).is_some_and(|own| own.making == 0) {
            own.remove(row);
        }
    }
}
