//! Nodes of a ledger: some are a cluster in this process, and others join it from processes of their own.

use holdoff_testbed::CONDITION_TIMEOUT;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use holdoff_ledger::Outcome;
use holdoff_ledger::runtime::{Books, Contact, Host, Member, Node, Role, Settings, join};
use tempfile::TempDir;

const NAME: &str = "default";
/// Some nodes with their disks. All of them vote.
pub(crate) struct Cluster {
    seats: Vec<Seat>,
    turn: AtomicUsize,
    guests: AtomicUsize,
    folder: TempDir,
}

/// The state of a node, whether it runs or not.
struct Seat {
    host: Mutex<Option<Host<Books>>>,
    folder: TempDir,
    listen: SocketAddr,
}

/// A node that is a member of another cluster.
pub(crate) struct Guest(Seat);

impl Guest {
    pub(crate) fn node(&self) -> Node<Books> {
        self.0.node().unwrap()
    }
}

impl Seat {
    async fn new() -> Self {
        let folder = TempDir::new().unwrap();
        let host = start(folder.path(), (Ipv4Addr::LOCALHOST, 0).into()).await.unwrap();
        let listen = host.address();
        Self { host: Mutex::new(Some(host)), folder, listen }
    }

    fn node(&self) -> Option<Node<Books>> {
        self.host.lock().unwrap().as_ref().and_then(|host| host.ledger(NAME))
    }

    fn contact(&self) -> Option<Contact> {
        self.host.lock().unwrap().as_ref().map(Host::contact)
    }
}

async fn start(data: &Path, listen: SocketAddr) -> Result<Host<Books>, holdoff_ledger::runtime::Error> {
    let mut settings = Settings::new(data);
    settings.listen = listen;
    Host::start(settings).await
}

/// Starts a killed node again. Its disk closes a moment after the kill.
async fn start_again(data: &Path, listen: SocketAddr) -> Host<Books> {
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
        let mut seats = Vec::new();
        for _ in 0..count {
            seats.push(Seat::new().await);
        }
        let founder = seats[0].host.lock().unwrap().as_ref().unwrap().found(NAME).unwrap();
        let contact = seats[0].contact().unwrap();
        for seat in &seats[1..] {
            admit(&founder, seat.contact().unwrap(), true).await;
            seat.host.lock().unwrap().as_ref().unwrap().join(NAME, std::slice::from_ref(&contact)).unwrap();
        }
        let folder = TempDir::new().unwrap();
        let cluster = Self { seats, turn: AtomicUsize::new(0), guests: AtomicUsize::new(0), folder };
        for at in 0..cluster.seats.len() {
            until_it_votes(&cluster.until_here(at).await).await;
        }
        cluster
    }

    /// Returns the running nodes in turn.
    pub(crate) fn next(&self) -> Node<Books> {
        let running: Vec<_> = self.seats.iter().filter_map(Seat::node).collect();
        running[self.turn.fetch_add(1, Ordering::Relaxed) % running.len()].clone()
    }

    pub(crate) fn at(&self, seat: usize) -> Node<Books> {
        self.seats[seat].node().unwrap()
    }

    /// Waits for a leader, and returns its seat.
    pub(crate) async fn leader(&self) -> usize {
        until(|| self.leads_here()).await
    }

    /// Returns the seat of the leader, if it is one of these nodes.
    pub(crate) fn leads_here(&self) -> Option<usize> {
        self.seats.iter().position(|seat| seat.node().is_some_and(|node| node.glance().borrow().leads))
    }

    /// Stops a node without notice.
    pub(crate) fn kill(&self, seat: usize) {
        drop(self.seats[seat].host.lock().unwrap().take());
    }

    /// Starts a node again, with the data on its disk.
    pub(crate) async fn start(&self, seat: usize) {
        let seat = &self.seats[seat];
        let host = start_again(seat.folder.path(), seat.listen).await;
        *seat.host.lock().unwrap() = Some(host);
    }

    /// Prepares a node that a separate process will run. Returns the invitation for that process.
    pub(crate) async fn invite(&self, votes: bool) -> String {
        let number = self.guests.fetch_add(1, Ordering::Relaxed);
        let data = self.folder.path().join(number.to_string());
        let contacts: Vec<_> = self.seats.iter().filter_map(Seat::contact).collect();
        let key = join(&data, NAME, &contacts).unwrap();
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap();
        admit(&self.next(), Contact { key, address: free.to_string() }, votes).await;
        format!("ledger:{free}:{}", data.display())
    }

    /// Returns a member that does not vote.
    pub(crate) async fn learner(&self) -> Guest {
        let seat = Seat::new().await;
        let contacts: Vec<_> = self.seats.iter().filter_map(Seat::contact).collect();
        admit(&self.next(), seat.contact().unwrap(), false).await;
        seat.host.lock().unwrap().as_ref().unwrap().join(NAME, &contacts).unwrap();
        until(|| seat.node()).await;
        Guest(seat)
    }

    async fn until_here(&self, seat: usize) -> Node<Books> {
        until(|| self.seats[seat].node()).await
    }
}

/// Returns the node that this process was invited to run. It runs as long as the process.
pub(crate) async fn accept(invitation: &str) -> Node<Books> {
    let mut parts = invitation.splitn(3, ':');
    let (host, port, data) = (parts.next().unwrap(), parts.next().unwrap(), parts.next().unwrap());
    let host = start_again(Path::new(data), format!("{host}:{port}").parse().unwrap()).await;
    let node = host.joined(NAME, CONDITION_TIMEOUT).await.unwrap();
    std::mem::forget(host);
    node
}

async fn admit(node: &Node<Books>, contact: Contact, votes: bool) {
    let member = Member { name: String::new(), address: contact.address, votes, life: None };
    let outcome = node.admit(contact.key, member, CONDITION_TIMEOUT).await.unwrap();
    assert!(matches!(outcome, Outcome::Committed { .. }), "{outcome:?}");
}

async fn until_it_votes(node: &Node<Books>) {
    let end = tokio::time::Instant::now() + CONDITION_TIMEOUT;
    while !matches!(node.status().await.unwrap().role, Role::Leads | Role::Follows) {
        assert!(tokio::time::Instant::now() < end, "it never votes: {:?}", node.status().await);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

async fn until<T>(mut look: impl FnMut() -> Option<T>) -> T {
    let end = tokio::time::Instant::now() + CONDITION_TIMEOUT;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(tokio::time::Instant::now() < end, "it never happens");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
