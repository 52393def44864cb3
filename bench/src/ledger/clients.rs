//! Clients that each submit the next transaction after the last is acknowledged.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::task::JoinSet;

use crate::measure::now;

/// The node at which a client submits transactions.
pub(super) trait Door: Clone + Send + Sync + 'static {
    /// Sets the client's own row to another value, and returns when the transaction is acknowledged. The
    /// result is the number of resubmissions.
    fn put(&self, client: usize, turn: u64) -> impl Future<Output = Result<u64, String>> + Send;
}

/// Returns the transactions a second of this many clients, after a warm-up.
///
/// Transactions that were submitted before the end count, and the measured time includes their
/// acknowledgement: with many clients one response may take longer than a round.
pub(super) async fn rate(door: &impl Door, clients: usize, round: Duration) -> Result<f64, String> {
    let begin = now() + round / 4;
    let end = begin + round;
    let mut all = JoinSet::new();
    for client in 0..clients {
        let door = door.clone();
        all.spawn(async move {
            let (mut acknowledged, mut again) = (0_u32, 0);
            for turn in 0.. {
                again += door.put(client, turn).await?;
                let done = now();
                acknowledged += u32::from(done >= begin);
                if done >= end {
                    break;
                }
            }
            Ok::<_, String>((acknowledged, again))
        });
    }
    let (mut acknowledged, mut again) = (0, 0);
    while let Some(ended) = all.join_next().await {
        let (more, retried) = ended.map_err(|error| error.to_string())??;
        (acknowledged, again) = (acknowledged + more, again + retried);
    }
    if again > 0 {
        eprintln!("ledger: {again} submissions of {clients} clients had to be made again");
    }
    Ok(f64::from(acknowledged) / begin.elapsed().as_secs_f64())
}

/// Executes this many transactions with this many clients.
pub(super) async fn fill(door: &impl Door, clients: usize, count: u64) -> Result<(), String> {
    let next = Arc::new(AtomicU64::new(0));
    let mut all = JoinSet::new();
    for client in 0..clients {
        let (door, next) = (door.clone(), next.clone());
        all.spawn(async move {
            loop {
                let turn = next.fetch_add(1, Ordering::Relaxed);
                if turn >= count {
                    return Ok::<_, String>(());
                }
                door.put(client, turn).await?;
            }
        });
    }
    while let Some(ended) = all.join_next().await {
        ended.map_err(|error| error.to_string())??;
    }
    Ok(())
}
