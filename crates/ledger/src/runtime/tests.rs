//! Tests of running nodes, over loopback and on real files; and the cluster of nodes in one process that they use.

mod ledgers;
mod storing;
mod unknown_nodes;

use holdoff_testbed::CONDITION_TIMEOUT;
use std::net::SocketAddr;
use std::time::Duration;

use tempfile::TempDir;

use crate::machine::{Command, Either, Key};
use crate::runtime::{DefaultMachine, Error, Host, LedgerMember, Node, NodeStatus, PeerAddress, Settings};
use crate::{Consistency, Outcome, Slot};

const NAME: &str = "default";
/// The directory and the address of a node, whether it runs or not.
struct TestNode {
    folder: TempDir,
    host: Option<Host<DefaultMachine>>,
    listen: SocketAddr,
}

struct Cluster {
    nodes: Vec<TestNode>,
}

fn settings(folder: &TempDir, listen: SocketAddr) -> Settings {
    let mut settings = Settings { listen, ..Settings::new(folder.path()) };
    settings.ledger.result_us = 3_000_000;
    settings
}

impl TestNode {
    async fn new() -> Self {
        let folder = TempDir::new().unwrap();
        let host = Host::start(settings(&folder, "127.0.0.1:0".parse().unwrap())).await.unwrap();
        let listen = host.address();
        Self { folder, host: Some(host), listen }
    }

    fn host(&self) -> &Host<DefaultMachine> {
        self.host.as_ref().unwrap()
    }

    async fn node(&self) -> Node<DefaultMachine> {
        self.host().joined(NAME, CONDITION_TIMEOUT).await.unwrap()
    }

    /// Drops the host without stopping it.
    fn kill(&mut self) {
        drop(self.host.take());
    }

    /// Restarts the node at another address.
    async fn move_elsewhere(&mut self) {
        self.kill();
        self.listen.set_port(0);
        self.start().await;
        self.listen = self.host().address();
    }

    async fn start(&mut self) {
        // The store of a killed node is closed with a delay.
        let mut attempts = 0;
        self.host = loop {
            match Host::start(settings(&self.folder, self.listen)).await {
                Ok(host) => break Some(host),
                Err(error) if attempts == 400 => panic!("{error}"),
                Err(_) => attempts += 1,
            }
            tokio::time::sleep(Duration::from_millis(25)).await;
        };
    }
}

impl Cluster {
    /// Creates nodes of one ledger, all of which vote.
    async fn new(count: usize) -> Self {
        let first = TestNode::new().await;
        let founder = first.host().create(NAME).unwrap();
        let contact = first.host().contact();
        let mut nodes = vec![first];
        for number in 1..count {
            let test_node = TestNode::new().await;
            admit(&founder, test_node.host().contact(), &format!("node {number}"), true).await;
            test_node.host().join(NAME, std::slice::from_ref(&contact)).unwrap();
            nodes.push(test_node);
        }
        let cluster = Self { nodes };
        cluster.until_all_vote(count).await;
        cluster
    }

    async fn until_all_vote(&self, count: usize) {
        let node = self.nodes[0].node().await;
        let all = until("all nodes vote", || async {
            let status = node.status().await.unwrap();
            let votes = status.members.iter().filter(|member| member.votes).count();
            if votes == count { Ok(()) } else { Err(status) }
        });
        all.await.unwrap();
    }

    /// Returns the index of the node that leads.
    async fn leader(&self) -> usize {
        let mut found = None;
        until("a node leads", || async {
            for (at, test_node) in self.nodes.iter().enumerate() {
                if let Some(node) = test_node.host.as_ref().and_then(|host| host.ledger(NAME))
                    && node.watch_status().borrow().leads
                {
                    return Some(at);
                }
            }
            None
        })
        .await
        .inspect(|at| found = Some(*at));
        found.unwrap()
    }

    /// Waits until all running nodes have the same head, and returns their status.
    async fn until_equal(&self) -> NodeStatus {
        let mut handles = Vec::new();
        for test_node in self.nodes.iter().filter(|test_node| test_node.host.is_some()) {
            handles.push(test_node.node().await);
        }
        until("all nodes have the same head", || async {
            let heads: Vec<_> = handles.iter().map(|node| *node.watch_status().borrow()).collect();
            let is_level = heads.iter().all(|status| status.head == heads[0].head && status.leader.is_some());
            is_level.then_some(heads[0])
        })
        .await
        .unwrap()
    }
}

async fn admit(node: &Node<DefaultMachine>, contact: PeerAddress, name: &str, votes: bool) {
    let member = LedgerMember { name: name.to_owned(), address: contact.address, votes, incarnation: None };
    let outcome = node.add_member(contact.key, member, CONDITION_TIMEOUT).await.unwrap();
    assert!(matches!(outcome, Outcome::Committed { .. }), "{outcome:?}");
}

/// A condition that a test waits for.
trait Holds {
    fn holds(&self) -> bool;
}

impl Holds for bool {
    fn holds(&self) -> bool {
        *self
    }
}

impl<E: std::fmt::Debug> Holds for Result<(), E> {
    fn holds(&self) -> bool {
        self.is_ok()
    }
}

impl<T> Holds for Option<T> {
    fn holds(&self) -> bool {
        self.is_some()
    }
}

async fn until<T: Holds + std::fmt::Debug, F: Future<Output = T>>(
    what: &str,
    mut look: impl FnMut() -> F,
) -> T {
    let end = tokio::time::Instant::now() + CONDITION_TIMEOUT;
    loop {
        let found = look().await;
        if found.holds() {
            return found;
        }
        assert!(tokio::time::Instant::now() < end, "timed out waiting until {what}: {found:#?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

fn add(by: i64) -> Either<crate::machine::Goal, Vec<Command>> {
    Either::Second(vec![Command::Increment(Key::new("sum").unwrap(), by)])
}

/// Submits an increment, and returns the index of its entry.
async fn submit(node: &Node<DefaultMachine>, by: i64) -> Slot {
    let tx = node.new_tx().unwrap();
    let until = tokio::time::Instant::now() + CONDITION_TIMEOUT;
    loop {
        match node.submit(tx, add(by), CONDITION_TIMEOUT).await.unwrap() {
            Outcome::Committed { index, .. } => return index,
            Outcome::Unknown { .. } | Outcome::NoQuorum if tokio::time::Instant::now() < until => {}
            other => panic!("{other:?}"),
        }
    }
}

/// Reads the sum.
async fn sum(node: &Node<DefaultMachine>, consistency: Consistency) -> Result<i64, Error> {
    let goal = Either::Second(vec![Command::Get(Key::new("sum").unwrap())]);
    let (_, answer) = node.read(goal, consistency, CONDITION_TIMEOUT).await?;
    match answer.unwrap() {
        Either::Second(values) => Ok(values[0].clone().map_or(0, |value| value.to_string().parse().unwrap())),
        Either::First(other) => panic!("{other:?}"),
    }
}
