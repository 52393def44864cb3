//! Some nodes in one process.

pub(super) use holdoff_testbed::CONDITION_TIMEOUT;
use std::net::SocketAddr;
use std::time::Duration;

use tempfile::TempDir;

use crate::machine::{Command, Either, Key};
use crate::runtime::{Books, Contact, Error, Glance, Host, Member, Node, Settings};
use crate::{How, Outcome, Slot};

pub(super) const NAME: &str = "default";
/// A place for a node, whether it runs or not.
pub(super) struct Place {
    pub(super) folder: TempDir,
    pub(super) host: Option<Host<Books>>,
    listen: SocketAddr,
}

pub(super) struct Cluster {
    pub(super) places: Vec<Place>,
}

pub(super) fn settings(folder: &TempDir, listen: SocketAddr) -> Settings {
    let mut settings = Settings { listen, ..Settings::new(folder.path()) };
    settings.ledger.result_us = 3_000_000;
    settings
}

impl Place {
    pub(super) async fn new() -> Self {
        let folder = TempDir::new().unwrap();
        let host = Host::start(settings(&folder, "127.0.0.1:0".parse().unwrap())).await.unwrap();
        let listen = host.address();
        Self { folder, host: Some(host), listen }
    }

    pub(super) fn host(&self) -> &Host<Books> {
        self.host.as_ref().unwrap()
    }

    pub(super) async fn node(&self) -> Node<Books> {
        self.host().joined(NAME, CONDITION_TIMEOUT).await.unwrap()
    }

    /// Ends it without a word.
    pub(super) fn kill(&mut self) {
        drop(self.host.take());
    }

    /// Goes on at another address.
    pub(super) async fn move_elsewhere(&mut self) {
        self.kill();
        self.listen.set_port(0);
        self.start().await;
        self.listen = self.host().address();
    }

    pub(super) async fn start(&mut self) {
        // The disk of a node that was killed closes a moment later.
        let mut tries = 0;
        self.host = loop {
            match Host::start(settings(&self.folder, self.listen)).await {
                Ok(host) => break Some(host),
                Err(error) if tries == 400 => panic!("{error}"),
                Err(_) => tries += 1,
            }
            tokio::time::sleep(Duration::from_millis(25)).await;
        };
    }
}

impl Cluster {
    /// So many nodes of one ledger, all of which vote.
    pub(super) async fn new(count: usize) -> Self {
        let first = Place::new().await;
        let founder = first.host().found(NAME).unwrap();
        let contact = first.host().contact();
        let mut places = vec![first];
        for number in 1..count {
            let place = Place::new().await;
            admit(&founder, place.host().contact(), &format!("node {number}"), true).await;
            place.host().join(NAME, std::slice::from_ref(&contact)).unwrap();
            places.push(place);
        }
        let cluster = Self { places };
        cluster.until_all_vote(count).await;
        cluster
    }

    pub(super) async fn until_all_vote(&self, count: usize) {
        let node = self.places[0].node().await;
        let all = until("all vote", || async {
            let status = node.status().await.unwrap();
            let votes = status.members.iter().filter(|member| member.votes).count();
            if votes == count { Ok(()) } else { Err(status) }
        });
        all.await.unwrap();
    }

    /// Who leads, by its place.
    pub(super) async fn leader(&self) -> usize {
        let mut found = None;
        until("somebody leads", || async {
            for (at, place) in self.places.iter().enumerate() {
                if let Some(node) = place.host.as_ref().and_then(|host| host.ledger(NAME))
                    && node.glance().borrow().leads
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

    /// Waits until all that run have come equally far, and returns how far.
    pub(super) async fn until_equal(&self) -> Glance {
        let mut nodes = Vec::new();
        for place in self.places.iter().filter(|place| place.host.is_some()) {
            nodes.push(place.node().await);
        }
        until("all are equal", || async {
            let heads: Vec<_> = nodes.iter().map(|node| *node.glance().borrow()).collect();
            let is_level = heads.iter().all(|glance| glance.head == heads[0].head && glance.leader.is_some());
            is_level.then_some(heads[0])
        })
        .await
        .unwrap()
    }
}

pub(super) async fn admit(node: &Node<Books>, contact: Contact, name: &str, votes: bool) {
    let member = Member { name: name.to_owned(), address: contact.address, votes, life: None };
    let outcome = node.admit(contact.key, member, CONDITION_TIMEOUT).await.unwrap();
    assert!(matches!(outcome, Outcome::Committed { .. }), "{outcome:?}");
}

/// Something that is so in the end.
pub(super) trait Holds {
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

pub(super) async fn until<T: Holds + std::fmt::Debug, F: Future<Output = T>>(
    what: &str,
    mut look: impl FnMut() -> F,
) -> T {
    let end = tokio::time::Instant::now() + CONDITION_TIMEOUT;
    loop {
        let found = look().await;
        if found.holds() {
            return found;
        }
        assert!(tokio::time::Instant::now() < end, "never: {what}, but {found:#?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

pub(super) fn add(by: i64) -> Either<crate::machine::Goal, Vec<Command>> {
    Either::Second(vec![Command::Increment(Key::new("sum").unwrap(), by)])
}

/// Adds, and says where that stands.
pub(super) async fn submit(node: &Node<Books>, by: i64) -> Slot {
    let tx_id = Node::<Books>::new_tx_id().unwrap();
    let until = tokio::time::Instant::now() + CONDITION_TIMEOUT;
    loop {
        match node.submit(tx_id, add(by), CONDITION_TIMEOUT).await.unwrap() {
            Outcome::Committed { index, .. } => return index,
            Outcome::Unknown | Outcome::NoQuorum if tokio::time::Instant::now() < until => {}
            other => panic!("{other:?}"),
        }
    }
}

/// The sum, as a majority has it.
pub(super) async fn sum(node: &Node<Books>, how: How) -> Result<i64, Error> {
    let goal = Either::Second(vec![Command::Get(Key::new("sum").unwrap())]);
    let (_, answer) = node.read(goal, how, CONDITION_TIMEOUT).await?;
    match answer.unwrap() {
        Either::Second(values) => Ok(values[0].clone().map_or(0, |value| value.to_string().parse().unwrap())),
        Either::First(other) => panic!("{other:?}"),
    }
}
