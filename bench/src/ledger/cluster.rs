//! Three nodes of a ledger, and clients that each submit the next transaction after the last is acknowledged.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use holdoff_ledger::machine::{Command, Either, Key, Value};
use holdoff_ledger::runtime::{DefaultMachine, Host, LedgerMember, Node, Settings};
use holdoff_ledger::{Options, Outcome};
use tempfile::TempDir;
use tokio::task::JoinSet;

use crate::measure::now;

const NAME: &str = "bench";
const NODES: usize = 3;
/// The timeout of every operation.
pub(super) const SOON: Duration = Duration::from_secs(30);

/// Three voting nodes.
pub(super) struct Cluster {
    slots: Vec<NodeSlot>,
    _folder: TempDir,
}

/// The slot of a node, whether the node runs or not.
struct NodeSlot {
    settings: Settings,
    host: Option<Host<DefaultMachine>>,
}

impl Cluster {
    pub(super) async fn start(in_memory: bool, options: Options) -> Result<Self, String> {
        let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
        let mut slots = Vec::new();
        for number in 0..NODES {
            let mut settings = Settings::new(folder.path().join(number.to_string()));
            settings.listen.set_port(0);
            settings.in_memory = in_memory;
            settings.ledger = options.clone();
            let host = Host::start(settings.clone()).await.map_err(|error| error.to_string())?;
            // After a restart the node has the same address.
            settings.listen = host.address();
            slots.push(NodeSlot { settings, host: Some(host) });
        }
        let cluster = Self { slots, _folder: folder };
        cluster.join_nodes().await?;
        Ok(cluster)
    }

    /// Creates the ledger at the first node, and joins the others to it.
    async fn join_nodes(&self) -> Result<(), String> {
        let hosts: Vec<_> = self.slots.iter().filter_map(|slot| slot.host.as_ref()).collect();
        let [first, others @ ..] = hosts.as_slice() else { return Err("there is no node".to_owned()) };
        let founder = first.create(NAME).map_err(|error| error.to_string())?;
        for host in others {
            let contact = host.contact();
            let name = contact.address.clone();
            let member = LedgerMember { name, address: contact.address, votes: true, incarnation: None };
            let admitted = founder.add_member(contact.key, member, SOON).await;
            let admitted = admitted.map_err(|error| error.to_string())?;
            if !matches!(admitted, Outcome::Committed { .. }) {
                return Err(format!("a node was not admitted: {admitted:?}"));
            }
            host.join(NAME, &[first.contact()]).map_err(|error| error.to_string())?;
        }
        until("all nodes vote", async || {
            let status = founder.status().await.ok()?;
            let voters = status.members.iter().filter(|member| member.votes && member.is_reachable).count();
            (voters == NODES).then_some(())
        })
        .await
    }

    /// Returns the leader.
    pub(super) async fn leader(&self) -> Result<Node<DefaultMachine>, String> {
        until("a node leads", async || self.nodes().map(|(_, node)| node).find(leads)).await
    }

    /// Returns a follower and its index.
    pub(super) async fn follower(&self) -> Result<(usize, Node<DefaultMachine>), String> {
        until("a node follows", async || {
            let leader = self.nodes().map(|(_, node)| node).find(leads)?.key();
            self.nodes()
                .find(|(_, node)| node.watch_status().borrow().leader == Some(leader) && node.key() != leader)
        })
        .await
    }

    fn nodes(&self) -> impl Iterator<Item = (usize, Node<DefaultMachine>)> {
        let node = |slot: &NodeSlot| slot.host.as_ref()?.ledger(NAME);
        self.slots.iter().enumerate().filter_map(move |(at, slot)| Some((at, node(slot)?)))
    }

    /// Stops the node at an index.
    pub(super) async fn stop(&mut self, at: usize) {
        if let Some(host) = self.slots.get_mut(at).and_then(|slot| slot.host.take()) {
            host.stop(SOON).await;
        }
    }

    /// Restarts the node at an index.
    pub(super) async fn restart(&mut self, at: usize) -> Result<Node<DefaultMachine>, String> {
        let slot = self.slots.get_mut(at).ok_or("there is no such node")?;
        let host = Host::start(slot.settings.clone()).await.map_err(|error| error.to_string())?;
        let node = host.joined(NAME, SOON).await;
        slot.host = Some(host);
        node.map_err(|error| error.to_string())
    }
}

fn leads(node: &Node<DefaultMachine>) -> bool {
    node.watch_status().borrow().leads
}

/// Polls every few milliseconds until `look` returns a value.
pub(super) async fn until<T>(what: &str, look: impl AsyncFn() -> Option<T>) -> Result<T, String> {
    let end = now() + SOON;
    loop {
        if let Some(found) = look().await {
            return Ok(found);
        }
        if now() >= end {
            return Err(format!("timed out while waiting for: {what}"));
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

impl SubmitTarget for Node<DefaultMachine> {
    async fn put(&self, client: usize, turn: u64) -> Result<u64, String> {
        let tx = self.new_tx().map_err(|error| error.to_string())?;
        let key = Key::new(format!("client {client}")).map_err(|error| error.to_string())?;
        let value = Value::text(format!("request-{turn}")).map_err(|error| error.to_string())?;
        let goal = Either::Second(vec![Command::Put(key, value)]);
        let end = now() + SOON;
        for again in 0.. {
            let outcome = self.submit(tx, goal.clone(), SOON).await.map_err(|error| error.to_string())?;
            match outcome {
                Outcome::Committed { .. } => return Ok(again),
                Outcome::Unknown { .. } | Outcome::NoQuorum | Outcome::TooMany if now() < end => {}
                other => return Err(format!("a transaction was not committed: {other:?}")),
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        Err("a transaction was not committed".to_owned())
    }
}

/// The node at which a client submits transactions.
pub(super) trait SubmitTarget: Clone + Send + Sync + 'static {
    /// Sets the client's own row to another value, and returns when the transaction is acknowledged. The
    /// result is the number of resubmissions.
    fn put(&self, client: usize, turn: u64) -> impl Future<Output = Result<u64, String>> + Send;
}

/// Returns the transactions a second of this many clients, after a warm-up.
///
/// Transactions that were submitted before the end count, and the measured time includes their
/// acknowledgement: with many clients one response may take longer than a round.
pub(super) async fn rate(target: &impl SubmitTarget, clients: usize, round: Duration) -> Result<f64, String> {
    let begin = now() + round / 4;
    let end = begin + round;
    let mut all = JoinSet::new();
    for client in 0..clients {
        let target = target.clone();
        all.spawn(async move {
            let (mut acknowledged, mut again) = (0_u32, 0);
            for turn in 0.. {
                again += target.put(client, turn).await?;
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
        eprintln!("ledger: {again} submissions of {clients} clients were repeated");
    }
    Ok(f64::from(acknowledged) / begin.elapsed().as_secs_f64())
}

/// Executes this many transactions with this many clients.
pub(super) async fn fill(target: &impl SubmitTarget, clients: usize, count: u64) -> Result<(), String> {
    let next = Arc::new(AtomicU64::new(0));
    let mut all = JoinSet::new();
    for client in 0..clients {
        let (target, next) = (target.clone(), next.clone());
        all.spawn(async move {
            loop {
                let turn = next.fetch_add(1, Ordering::Relaxed);
                if turn >= count {
                    return Ok::<_, String>(());
                }
                target.put(client, turn).await?;
            }
        });
    }
    while let Some(ended) = all.join_next().await {
        ended.map_err(|error| error.to_string())??;
    }
    Ok(())
}
