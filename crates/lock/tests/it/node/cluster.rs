//! Nodes of a ledger: some are a cluster in this process, and others join it from processes of their own.

use holdoff_testbed::CONDITION_TIMEOUT;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use holdoff_ledger::Outcome;
use holdoff_ledger::runtime::{DefaultMachine, Host, LedgerMember, Node, PeerAddress, Role, Settings, join};
use tempfile::TempDir;

const NAME: &str = "default";

/// Some nodes with their disks. All of them vote.
pub(crate) struct Cluster {
    nodes: Vec<TestNode>,
    turn: AtomicUsize,
    invited: AtomicUsize,
    folder: TempDir,
}

/// The state of a node, whether it runs or not.
struct TestNode {
    host: Mutex<Option<Host<DefaultMachine>>>,
    folder: TempDir,
    listen: SocketAddr,
}

/// A node that is a member of another cluster.
pub(crate) struct Learner(TestNode);

impl Learner {
    pub(crate) fn node(&self) -> Node<DefaultMachine> {
        self.0.node().unwrap()
    }
}

impl TestNode {
    async fn new() -> Self {
        let folder = TempDir::new().unwrap();
        let host = start(folder.path(), (Ipv4Addr::LOCALHOST, 0).into()).await.unwrap();
        let listen = host.address();
        Self { host: Mutex::new(Some(host)), folder, listen }
    }

    fn node(&self) -> Option<Node<DefaultMachine>> {
        self.host.lock().unwrap().as_ref().and_then(|host| host.ledger(NAME))
    }

    fn contact(&self) -> Option<PeerAddress> {
        self.host.lock().unwrap().as_ref().map(Host::contact)
    }
}

async fn start(
    data: &Path,
    listen: SocketAddr,
) -> Result<Host<DefaultMachine>, holdoff_ledger::runtime::Error> {
    let mut settings = Settings::new(data);
    settings.listen = listen;
    Host::start(settings).await
}

/// Starts a killed node again. Its disk closes a moment after the kill.
async fn start_again(data: &Path, listen: SocketAddr) -> Host<DefaultMachine> {
    let end = tokio::time::Instant::now() + CONDITION_TIMEOUT;
    loop {
        match start(data, listen).await {
            Ok(host) => return host,
            Err(error) => assert!(tokio::time::Instant::now() < end, "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

impl Cluster {
    pub(crate) async fn new(count: usize) -> Self {
        let mut nodes = Vec::new();
        for _ in 0..count {
            nodes.push(TestNode::new().await);
        }
        let founder = nodes[0].host.lock().unwrap().as_ref().unwrap().create(NAME).unwrap();
        let contact = nodes[0].contact().unwrap();
        for node in &nodes[1..] {
            admit(&founder, node.contact().unwrap(), true).await;
            node.host.lock().unwrap().as_ref().unwrap().join(NAME, std::slice::from_ref(&contact)).unwrap();
        }
        let folder = TempDir::new().unwrap();
        let cluster = Self { nodes, turn: AtomicUsize::new(0), invited: AtomicUsize::new(0), folder };
        for at in 0..cluster.nodes.len() {
            until_it_votes(&cluster.until_joined(at).await).await;
        }
        cluster
    }

    /// Returns the running nodes in turn.
    pub(crate) fn next(&self) -> Node<DefaultMachine> {
        let running: Vec<_> = self.nodes.iter().filter_map(TestNode::node).collect();
        running[self.turn.fetch_add(1, Ordering::Relaxed) % running.len()].clone()
    }

    pub(crate) fn at(&self, node: usize) -> Node<DefaultMachine> {
        self.nodes[node].node().unwrap()
    }

    /// Waits for a leader, and returns its index.
    pub(crate) async fn leader(&self) -> usize {
        until(|| self.leading_node()).await
    }

    /// Returns the index of the leader, if it is one of these nodes.
    pub(crate) fn leading_node(&self) -> Option<usize> {
        self.nodes.iter().position(|node| node.node().is_some_and(|node| node.watch_status().borrow().leads))
    }

    /// Stops a node without notice.
    pub(crate) fn kill(&self, node: usize) {
        drop(self.nodes[node].host.lock().unwrap().take());
    }

    /// Starts a node again, with the data on its disk.
    pub(crate) async fn start(&self, node: usize) {
        let node = &self.nodes[node];
        let host = start_again(node.folder.path(), node.listen).await;
        *node.host.lock().unwrap() = Some(host);
    }

    /// Prepares a node that a separate process will run. Returns the invitation for that process.
    pub(crate) async fn invite(&self, votes: bool) -> String {
        let number = self.invited.fetch_add(1, Ordering::Relaxed);
        let data = self.folder.path().join(number.to_string());
        let contacts: Vec<_> = self.nodes.iter().filter_map(TestNode::contact).collect();
        let key = join(&data, NAME, &contacts).unwrap();
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap();
        admit(&self.next(), PeerAddress { key, address: free.to_string() }, votes).await;
        format!("ledger:{free}:{}", data.display())
    }

    /// Returns a member that does not vote.
    pub(crate) async fn learner(&self) -> Learner {
        let node = TestNode::new().await;
        let contacts: Vec<_> = self.nodes.iter().filter_map(TestNode::contact).collect();
        admit(&self.next(), node.contact().unwrap(), false).await;
        node.host.lock().unwrap().as_ref().unwrap().join(NAME, &contacts).unwrap();
        until(|| node.node()).await;
        Learner(node)
    }

    async fn until_joined(&self, node: usize) -> Node<DefaultMachine> {
        until(|| self.nodes[node].node()).await
    }
}

/// Returns the node that this process was invited to run. It runs as long as the process.
pub(crate) async fn accept(invitation: &str) -> Node<DefaultMachine> {
    let mut parts = invitation.splitn(3, ':');
    let (host, port, data) = (parts.next().unwrap(), parts.next().unwrap(), parts.next().unwrap());
    let host = start_again(Path::new(data), format!("{host}:{port}").parse().unwrap()).await;
    let node = host.joined(NAME, CONDITION_TIMEOUT).await.unwrap();
    std::mem::forget(host);
    node
}

async fn admit(node: &Node<DefaultMachine>, contact: PeerAddress, votes: bool) {
    let member = LedgerMember { name: String::new(), address: contact.address, votes, incarnation: None };
    let outcome = node.add_member(contact.key, member, CONDITION_TIMEOUT).await.unwrap();
    assert!(matches!(outcome, Outcome::Committed { .. }), "{outcome:?}");
}

async fn until_it_votes(node: &Node<DefaultMachine>) {
    let end = tokio::time::Instant::now() + CONDITION_TIMEOUT;
    while !matches!(node.status().await.unwrap().role, Role::Leader | Role::Follower) {
        assert!(tokio::time::Instant::now() < end, "the node never votes: {:?}", node.status().await);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

async fn until<T>(mut look: impl FnMut() -> Option<T>) -> T {
    let end = tokio::time::Instant::now() + CONDITION_TIMEOUT;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(tokio::time::Instant::now() < end, "the condition never holds");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
