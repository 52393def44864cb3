//! What is done as long as the daemon runs: it says that it lives, and lets go of claims whose task is over.

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

/// How often is looked whether a task is over.
const LOOK: Duration = Duration::from_millis(250);
/// Looking may take one part in so many of the store's time, as long as the next look is not later than a pause.
const SHARE: u32 = 10;
/// How many looks there are between two at the whole ledger, for claims of a life before.
const LOOKS: u32 = 20;
/// How long after something failed it is tried again.
const PAUSE: Duration = Duration::from_secs(1);

impl Claims {
    /// Does so until the daemon stops.
    pub(crate) fn start(&self, stopping: &CancellationToken) -> [JoinHandle<()>; 2] {
        let (live, tend) = (self.clone().live(stopping.clone()), self.clone().tend(stopping.clone()));
        [tokio::spawn(live), tokio::spawn(tend)]
    }

    /// Says that this daemon lives, until it stops. The lock is left to end by itself: who starts again soon has its claims as
    /// they were.
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

    /// Lets go of claims whose task is over, until the daemon stops.
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
    /// The lock that says so. Of all processes only this one can hold it, so one that it held in a life before is its own.
    async fn begin_to_live(&self) -> Result<Lease, Error> {
        // As long as it is not known which ledger it is, nobody is asked.
        let Ok(node) = self.node() else {
            return Err(Error::Settings("this node has not joined yet".to_owned()));
        };
        let lock = row::lock_of(&node.key().to_string());
        if let Some(holder) = self.locks.inspect(&lock).await?.and_then(|lock| lock.holder) {
            return Ok(Lease::new(Key::new(NAMESPACE, lock)?, holder.owner.nonce, holder.token));
        }
        Ok(self.locks.acquire(lock).name("signals").wait(PAUSE).hand_over().await?.accept())
    }

    /// Renews it until it is lost.
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
        // Whoever makes a task just now brings the claim to its end, or leaves it to the next look.
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
