//! Transactions a second: ours on disk and in memory, at the leader and at a follower, and openraft's at its
//! leader, alternately.
//!
//! openraft runs in memory, because its project has no store on disk. The best turn of each counts.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use holdoff_ledger::Options;
use openraft::error::{InstallSnapshotError, RPCError, RaftError, RemoteError, Unreachable};
use openraft::network::RPCOption;
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, InstallSnapshotRequest, InstallSnapshotResponse,
    VoteRequest, VoteResponse,
};
use openraft::storage::Adaptor;
use openraft::{Config, Raft, RaftNetwork, RaftNetworkFactory};
use openraft_memstore::{ClientRequest, MemNodeId, MemStore, TypeConfig};
use parking_lot::RwLock;

use super::cluster::{Cluster, SOON, SubmitTarget, rate};
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
    peer: RaftCluster,
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
        peer: RaftCluster::start().await?,
    };
    let mut rows = Vec::new();
    for clients in CLIENTS {
        let best = contestants.best(clients).await;
        rows.extend(super::measured(&clients_label(clients), best.map(|best| best.rows(clients))));
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
        let who = clients_label(clients);
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
        let who = clients_label(clients);
        let pair = |what: &str, [leader, follower]: [f64; 2]| {
            [("leader", leader), ("follower", follower)].map(|(role, figure)| {
                Row::beside(&format!("{what}, {who}, {role}"), "/s", figure, (PEER, self.peer))
            })
        };
        [pair("durable", self.durable), pair("in memory", self.memory)].concat()
    }
}

fn clients_label(clients: usize) -> String {
    if clients == 1 { "1 client".to_owned() } else { format!("{clients} clients") }
}

/// Returns the duration of each measurement.
fn round() -> Duration {
    let configured = std::env::var(ROUND_VARIABLE).ok().and_then(|round| round.parse().ok());
    Duration::from_millis(configured.unwrap_or(ROUND_MS))
}

type RaftNode = Raft<TypeConfig>;
type CallFailed<E = openraft::error::Infallible> = RPCError<MemNodeId, (), RaftError<MemNodeId, E>>;

/// Three voting nodes of openraft, with the in-memory store from its project.
///
/// There is no network between its nodes: they call each other, and no byte is encoded, encrypted or sent.
/// That is an advantage for openraft. Its store keeps each entry as JSON and parses it to send it. That is a
/// disadvantage.
#[derive(Clone, Default)]
struct RaftCluster(Arc<RwLock<BTreeMap<MemNodeId, RaftNode>>>);

impl RaftCluster {
    /// Starts three nodes with the election timeout and heartbeat of a ledger, so that neither loses its
    /// leader on a busy machine; otherwise with the defaults.
    async fn start() -> Result<Self, String> {
        let log = Options::default().log;
        let config = Config {
            election_timeout_min: log.election_us / 1000,
            election_timeout_max: 2 * log.election_us / 1000,
            heartbeat_interval: log.heartbeat_us / 1000,
            ..Config::default()
        };
        let config = Arc::new(config.validate().map_err(|error| error.to_string())?);
        let cluster = Self::default();
        let ids = [1, 2, 3];
        for id in ids {
            let (log, machine) = Adaptor::new(Arc::new(MemStore::new()));
            let node = Raft::new(id, config.clone(), cluster.clone(), log, machine).await;
            let node = node.map_err(|error| error.to_string())?;
            cluster.0.write().insert(id, node);
        }
        let first = cluster.node(1).ok_or("there is no node")?;
        first.initialize(BTreeSet::from(ids)).await.map_err(|error| error.to_string())?;
        cluster.leader().await?;
        Ok(cluster)
    }

    /// Returns the leader.
    async fn leader(&self) -> Result<RaftNode, String> {
        let first = self.node(1).ok_or("there is no node")?;
        let leads = |metrics: &openraft::RaftMetrics<MemNodeId, ()>| metrics.current_leader.is_some();
        let metrics = first.wait(Some(SOON)).metrics(leads, "a node leads").await;
        let leader = metrics.map_err(|error| error.to_string())?.current_leader;
        leader.and_then(|leader| self.node(leader)).ok_or_else(|| "no node leads".to_owned())
    }

    /// Stops all nodes.
    async fn stop(self) {
        let nodes = std::mem::take(&mut *self.0.write());
        for node in nodes.into_values() {
            // An error means that the node has already stopped.
            drop(node.shutdown().await);
        }
    }

    fn node(&self, id: MemNodeId) -> Option<RaftNode> {
        self.0.read().get(&id).cloned()
    }
}

impl SubmitTarget for RaftNode {
    async fn put(&self, client: usize, turn: u64) -> Result<u64, String> {
        let request = ClientRequest {
            client: format!("client {client}"),
            serial: turn,
            status: format!("request-{turn}"),
        };
        let written = tokio::time::timeout(SOON, self.client_write(request)).await;
        written.map_err(|error| error.to_string())?.map_err(|error| error.to_string())?;
        Ok(0)
    }
}

/// The connection to one node: a function call.
struct DirectCall {
    cluster: RaftCluster,
    to: MemNodeId,
}

impl DirectCall {
    fn node(&self) -> Result<RaftNode, Unreachable> {
        let unknown = || Unreachable::new(&std::io::Error::from(std::io::ErrorKind::NotFound));
        self.cluster.node(self.to).ok_or_else(unknown)
    }
}

impl RaftNetworkFactory<TypeConfig> for RaftCluster {
    type Network = DirectCall;

    async fn new_client(&mut self, to: MemNodeId, (): &()) -> DirectCall {
        DirectCall { cluster: self.clone(), to }
    }
}

impl RaftNetwork<TypeConfig> for DirectCall {
    async fn append_entries(
        &mut self,
        request: AppendEntriesRequest<TypeConfig>,
        _: RPCOption,
    ) -> Result<AppendEntriesResponse<MemNodeId>, CallFailed> {
        let appended = self.node()?.append_entries(request).await;
        appended.map_err(|error| RemoteError::new(self.to, error).into())
    }

    async fn install_snapshot(
        &mut self,
        request: InstallSnapshotRequest<TypeConfig>,
        _: RPCOption,
    ) -> Result<InstallSnapshotResponse<MemNodeId>, CallFailed<InstallSnapshotError>> {
        let installed = self.node()?.install_snapshot(request).await;
        installed.map_err(|error| RemoteError::new(self.to, error).into())
    }

    async fn vote(
        &mut self,
        request: VoteRequest<MemNodeId>,
        _: RPCOption,
    ) -> Result<VoteResponse<MemNodeId>, CallFailed> {
        let voted = self.node()?.vote(request).await;
        voted.map_err(|error| RemoteError::new(self.to, error).into())
    }
}
