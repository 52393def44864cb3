//! Three nodes of openraft, with the in-memory store from its project.
//!
//! There is no network between its nodes: they call each other, and no byte is encoded, encrypted or sent.
//! That is an advantage for openraft. Its store keeps each entry as JSON and parses it to send it. That is a
//! disadvantage.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, PoisonError, RwLock};

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

use super::clients::Door;
use super::cluster::SOON;

type Node = Raft<TypeConfig>;
type Failed<E = openraft::error::Infallible> = RPCError<MemNodeId, (), RaftError<MemNodeId, E>>;

/// Three voting nodes.
#[derive(Clone, Default)]
pub(super) struct Three(Arc<RwLock<BTreeMap<MemNodeId, Node>>>);

impl Three {
    /// Starts three nodes with the election timeout and heartbeat of a ledger, so that neither loses its
    /// leader on a busy machine; otherwise with the defaults.
    pub(super) async fn start() -> Result<Self, String> {
        let log = Options::default().log;
        let config = Config {
            election_timeout_min: log.election_us / 1000,
            election_timeout_max: 2 * log.election_us / 1000,
            heartbeat_interval: log.heartbeat_us / 1000,
            ..Config::default()
        };
        let config = Arc::new(config.validate().map_err(|error| error.to_string())?);
        let three = Self::default();
        let ids = [1, 2, 3];
        for id in ids {
            let (log, machine) = Adaptor::new(Arc::new(MemStore::new()));
            let node = Raft::new(id, config.clone(), three.clone(), log, machine).await;
            let node = node.map_err(|error| error.to_string())?;
            three.0.write().unwrap_or_else(PoisonError::into_inner).insert(id, node);
        }
        let first = three.node(1).ok_or("there is no node")?;
        first.initialize(BTreeSet::from(ids)).await.map_err(|error| error.to_string())?;
        three.leader().await?;
        Ok(three)
    }

    /// Returns the leader.
    pub(super) async fn leader(&self) -> Result<Node, String> {
        let first = self.node(1).ok_or("there is no node")?;
        let leads = |metrics: &openraft::RaftMetrics<MemNodeId, ()>| metrics.current_leader.is_some();
        let metrics = first.wait(Some(SOON)).metrics(leads, "somebody leads").await;
        let leader = metrics.map_err(|error| error.to_string())?.current_leader;
        leader.and_then(|leader| self.node(leader)).ok_or_else(|| "nobody leads".to_owned())
    }

    /// Stops all nodes.
    pub(super) async fn stop(self) {
        let nodes = std::mem::take(&mut *self.0.write().unwrap_or_else(PoisonError::into_inner));
        for node in nodes.into_values() {
            // An error means that the node has already stopped.
            drop(node.shutdown().await);
        }
    }

    fn node(&self, id: MemNodeId) -> Option<Node> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).get(&id).cloned()
    }
}

impl Door for Node {
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
pub(super) struct Way {
    three: Three,
    to: MemNodeId,
}

impl Way {
    fn end(&self) -> Result<Node, Unreachable> {
        let unknown = || Unreachable::new(&std::io::Error::from(std::io::ErrorKind::NotFound));
        self.three.node(self.to).ok_or_else(unknown)
    }
}

impl RaftNetworkFactory<TypeConfig> for Three {
    type Network = Way;

    async fn new_client(&mut self, to: MemNodeId, (): &()) -> Way {
        Way { three: self.clone(), to }
    }
}

impl RaftNetwork<TypeConfig> for Way {
    async fn append_entries(
        &mut self,
        request: AppendEntriesRequest<TypeConfig>,
        _: RPCOption,
    ) -> Result<AppendEntriesResponse<MemNodeId>, Failed> {
        let appended = self.end()?.append_entries(request).await;
        appended.map_err(|error| RemoteError::new(self.to, error).into())
    }

    async fn install_snapshot(
        &mut self,
        request: InstallSnapshotRequest<TypeConfig>,
        _: RPCOption,
    ) -> Result<InstallSnapshotResponse<MemNodeId>, Failed<InstallSnapshotError>> {
        let installed = self.end()?.install_snapshot(request).await;
        installed.map_err(|error| RemoteError::new(self.to, error).into())
    }

    async fn vote(
        &mut self,
        request: VoteRequest<MemNodeId>,
        _: RPCOption,
    ) -> Result<VoteResponse<MemNodeId>, Failed> {
        let voted = self.end()?.vote(request).await;
        voted.map_err(|error| RemoteError::new(self.to, error).into())
    }
}
