//! Clients, each of which submits the next transaction when the last is acknowledged.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::task::JoinSet;

use crate::measure::now;

/// Where a client can have something done.
pub(super) trait Door: Clone + Send + Sync + 'static {
    /// A client's own row gets another value. When this returns it is acknowledged; says how often it had to be submitted
    /// again.
    fn put(&self, client: usize, turn: u64) -> impl Future<Output = Result<u64, String>> + Send;
}

/// Transactions a second of so many clients, after a while to find their pace.
///
/// What was submitted in time counts, and the time until the last of it is acknowledged: with many clients one answer may
/// take longer than a round.
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

/// Has so many transactions done by so many clients.
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
