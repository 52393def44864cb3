//! Transactions a second: ours on disk and in memory, at the leader and at a follower, and openraft's at its
//! leader, alternately.
//!
//! openraft runs in memory, because its project has no store on disk. The best turn of each counts.

use std::time::Duration;

use holdoff_ledger::Options;

use super::clients::rate;
use super::cluster::Cluster;
use super::raft::Three;
use crate::row::Row;

const CLIENTS: [usize; 3] = [1, 64, 1024];
const TURNS: usize = 2;
const ROUND_MS: u64 = 1000;
const ROUND_VARIABLE: &str = "HOLDOFF_BENCH_ROUND_MS";
const PEER: &str = "openraft, in memory";

/// The measured clusters.
struct Contestants {
    durable: Cluster,
    memory: Cluster,
    peer: Three,
}

/// The measured rates.
#[derive(Clone, Copy, Default)]
struct Rates {
    /// At the leader, and at a follower.
    durable: [f64; 2],
    memory: [f64; 2],
    peer: f64,
}

pub(super) async fn rows() -> Result<Vec<Row>, String> {
    let contestants = Contestants {
        durable: Cluster::start(false, Options::default()).await?,
        memory: Cluster::start(true, Options::default()).await?,
        peer: Three::start().await?,
    };
    let mut rows = Vec::new();
    for clients in CLIENTS {
        let best = contestants.best(clients).await;
        rows.extend(super::measured(&crowd(clients), best.map(|best| best.rows(clients))));
    }
    contestants.peer.stop().await;
    Ok(rows)
}

impl Contestants {
    async fn best(&self, clients: usize) -> Result<Rates, String> {
        let mut best = Rates::default();
        for _ in 0..TURNS {
            best = best.or(self.turn(clients).await?);
        }
        Ok(best)
    }

    async fn turn(&self, clients: usize) -> Result<Rates, String> {
        let who = crowd(clients);
        let durable = ours(&self.durable, clients).await?;
        let memory = ours(&self.memory, clients).await?;
        let peer = rate(&self.peer.leader().await?, clients, round()).await?;
        let [leader, follower] = durable;
        eprintln!("ledger: {who}: durable {leader:.0}/s at the leader, {follower:.0}/s at a follower");
        let [leader, follower] = memory;
        eprintln!("ledger: {who}: in memory {leader:.0}/s and {follower:.0}/s, openraft {peer:.0}/s");
        Ok(Rates { durable, memory, peer })
    }
}

/// Measures at the leader, and at a follower.
async fn ours(cluster: &Cluster, clients: usize) -> Result<[f64; 2], String> {
    let leader = rate(&cluster.leader().await?, clients, round()).await?;
    let (_, follower) = cluster.follower().await?;
    Ok([leader, rate(&follower, clients, round()).await?])
}

impl Rates {
    fn or(self, other: Self) -> Self {
        let better = |[leader, follower]: [f64; 2], [other_leader, other_follower]: [f64; 2]| {
            [leader.max(other_leader), follower.max(other_follower)]
        };
        Self {
            durable: better(self.durable, other.durable),
            memory: better(self.memory, other.memory),
            peer: self.peer.max(other.peer),
        }
    }

    fn rows(self, clients: usize) -> Vec<Row> {
        let who = crowd(clients);
        let pair = |what: &str, [leader, follower]: [f64; 2]| {
            [("leader", leader), ("follower", follower)].map(|(place, figure)| {
                Row::beside(&format!("{what}, {who}, {place}"), "/s", figure, (PEER, self.peer))
            })
        };
        [pair("durable", self.durable), pair("in memory", self.memory)].concat()
    }
}

fn crowd(clients: usize) -> String {
    if clients == 1 { "1 client".to_owned() } else { format!("{clients} clients") }
}

/// Returns the duration of each measurement.
fn round() -> Duration {
    let said = std::env::var(ROUND_VARIABLE).ok().and_then(|round| round.parse().ok());
    Duration::from_millis(said.unwrap_or(ROUND_MS))
}
