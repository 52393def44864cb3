//! Three nodes of a ledger.

use std::time::Duration;

use holdoff_ledger::machine::{Command, Either, Key, Value};
use holdoff_ledger::runtime::{Books, Host, Member, Node, Settings};
use holdoff_ledger::{Options, Outcome};
use tempfile::TempDir;

use super::clients::Door;
use crate::measure::now;

const NAME: &str = "bench";
const NODES: usize = 3;
/// The timeout of every operation.
pub(super) const SOON: Duration = Duration::from_secs(30);

/// Three voting nodes.
pub(super) struct Cluster {
    places: Vec<Place>,
    _folder: TempDir,
}

/// The slot of a node, whether the node runs or not.
struct Place {
    settings: Settings,
    host: Option<Host<Books>>,
}

impl Cluster {
    pub(super) async fn start(in_memory: bool, options: Options) -> Result<Self, String> {
        let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
        let mut places = Vec::new();
        for number in 0..NODES {
            let mut settings = Settings::new(folder.path().join(number.to_string()));
            settings.listen.set_port(0);
            settings.in_memory = in_memory;
            settings.ledger = options.clone();
            let host = Host::start(settings.clone()).await.map_err(|error| error.to_string())?;
            // After a restart the node has the same address.
            settings.listen = host.address();
            places.push(Place { settings, host: Some(host) });
        }
        let cluster = Self { places, _folder: folder };
        cluster.meet().await?;
        Ok(cluster)
    }

    /// Founds the ledger at the first node, and joins the others to it.
    async fn meet(&self) -> Result<(), String> {
        let hosts: Vec<_> = self.places.iter().filter_map(|place| place.host.as_ref()).collect();
        let [first, others @ ..] = hosts.as_slice() else { return Err("there is no node".to_owned()) };
        let founder = first.found(NAME).map_err(|error| error.to_string())?;
        for host in others {
            let contact = host.contact();
            let name = contact.address.clone();
            let member = Member { name, address: contact.address, votes: true, life: None };
            let admitted = founder.admit(contact.key, member, SOON).await;
            let admitted = admitted.map_err(|error| error.to_string())?;
            if !matches!(admitted, Outcome::Committed { .. }) {
                return Err(format!("a node was not admitted: {admitted:?}"));
            }
            host.join(NAME, &[first.contact()]).map_err(|error| error.to_string())?;
        }
        until("all vote", async || {
            let status = founder.status().await.ok()?;
            let voters = status.members.iter().filter(|member| member.votes && member.is_here).count();
            (voters == NODES).then_some(())
        })
        .await
    }

    /// Returns the leader.
    pub(super) async fn leader(&self) -> Result<Node<Books>, String> {
        until("somebody leads", async || self.nodes().map(|(_, node)| node).find(leads)).await
    }

    /// Returns a follower and its index.
    pub(super) async fn follower(&self) -> Result<(usize, Node<Books>), String> {
        until("somebody follows", async || {
            let leader = self.nodes().map(|(_, node)| node).find(leads)?.key();
            self.nodes()
                .find(|(_, node)| node.glance().borrow().leader == Some(leader) && node.key() != leader)
        })
        .await
    }

    fn nodes(&self) -> impl Iterator<Item = (usize, Node<Books>)> {
        let node = |place: &Place| place.host.as_ref()?.ledger(NAME);
        self.places.iter().enumerate().filter_map(move |(at, place)| Some((at, node(place)?)))
    }

    /// Stops the node at an index.
    pub(super) async fn stop(&mut self, at: usize) {
        if let Some(host) = self.places.get_mut(at).and_then(|place| place.host.take()) {
            host.stop(SOON).await;
        }
    }

    /// Restarts the node at an index.
    pub(super) async fn start_again(&mut self, at: usize) -> Result<Node<Books>, String> {
        let place = self.places.get_mut(at).ok_or("there is no such node")?;
        let host = Host::start(place.settings.clone()).await.map_err(|error| error.to_string())?;
        let node = host.joined(NAME, SOON).await;
        place.host = Some(host);
        node.map_err(|error| error.to_string())
    }
}

fn leads(node: &Node<Books>) -> bool {
    node.glance().borrow().leads
}

/// Polls every few milliseconds until `look` returns a value.
pub(super) async fn until<T>(what: &str, look: impl AsyncFn() -> Option<T>) -> Result<T, String> {
    let end = now() + SOON;
    loop {
        if let Some(found) = look().await {
            return Ok(found);
        }
        if now() >= end {
            return Err(format!("never: {what}"));
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

impl Door for Node<Books> {
    async fn put(&self, client: usize, turn: u64) -> Result<u64, String> {
        let tx_id = Node::<Books>::new_tx_id().map_err(|error| error.to_string())?;
        let key = Key::new(format!("client {client}")).map_err(|error| error.to_string())?;
        let value = Value::text(format!("request-{turn}")).map_err(|error| error.to_string())?;
        let goal = Either::Second(vec![Command::Put(key, value)]);
        let end = now() + SOON;
        for again in 0.. {
            let outcome = self.submit(tx_id, goal.clone(), SOON).await.map_err(|error| error.to_string())?;
            match outcome {
                Outcome::Committed { .. } => return Ok(again),
                Outcome::Unknown | Outcome::NoQuorum | Outcome::TooMany if now() < end => {}
                other => return Err(format!("a transaction was not committed: {other:?}")),
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        Err("a transaction was not committed".to_owned())
    }
}
