//! Tests of the engine on the stand-in API server; those without faults also on a real cluster, if one is configured.

mod faults;
mod tokens;

use std::time::Duration;

use holdoff_testbed::kubernetes::{Kubernetes as Server, real_cluster};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::jiff::Timestamp;
use kube::{Api, Client};
use tokio::task::JoinSet;
use tokio::time::Instant;
use uuid::Uuid;

use super::{Arc, KubernetesStore, lease_object};
use crate::store::{AcquireOutcome, AcquireRefusal, AcquireRequest, LeaseStore, ListQuery};
use crate::{LockKey, Nonce, Owner, Token};

/// Longer than any test runs.
const LONG: Duration = Duration::from_secs(60);

/// A cluster to test in.
struct TestCluster {
    client: Client,
    namespace: String,
    // Ends with the test.
    _server: Option<Server>,
}

impl TestCluster {
    async fn stand_in() -> (Server, Self) {
        let server = Server::start().await;
        let cluster = Self { client: server.client(), namespace: "default".to_owned(), _server: None };
        (server, cluster)
    }

    /// Returns the stand-in, and the real cluster if there is one.
    async fn all() -> Vec<Self> {
        let (server, cluster) = Self::stand_in().await;
        let mut clusters = vec![Self { _server: Some(server), ..cluster }];
        if let Some((client, namespace)) = real_cluster().await {
            clusters.push(Self { client, namespace, _server: None });
        }
        clusters
    }

    fn engine(&self) -> KubernetesStore {
        KubernetesStore::open(self.client.clone(), &self.namespace)
    }

    /// Returns an engine whose host has a wrong wall clock.
    fn engine_at(&self, wall: fn() -> Timestamp) -> KubernetesStore {
        let mut engine = self.engine();
        Arc::get_mut(&mut engine.inner).unwrap().wall = wall;
        engine
    }

    /// Returns the API as another client uses it.
    fn leases(&self) -> Api<Lease> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }
}

/// Returns an unused key, also in a cluster that outlives the test.
fn fresh_key() -> LockKey {
    LockKey::new("tests", Uuid::new_v4().to_string()).unwrap()
}

fn request(key: &LockKey, lease: Duration) -> AcquireRequest {
    let owner = Owner { nonce: Nonce::random(), name: "a client".to_owned() };
    AcquireRequest { key: key.clone(), owner, lease, waits_for: None }
}

async fn acquire(engine: &KubernetesStore, request: &AcquireRequest) -> Token {
    match engine.try_acquire(request).await.unwrap() {
        AcquireOutcome::Granted(token) => token,
        AcquireOutcome::Refused(held) => panic!("not granted: {held:?}"),
    }
}

async fn refused(engine: &KubernetesStore, request: &AcquireRequest) -> AcquireRefusal {
    match engine.try_acquire(request).await.unwrap() {
        AcquireOutcome::Granted(token) => panic!("granted with {token}"),
        AcquireOutcome::Refused(held) => held,
    }
}

/// Acquires and releases the lock.
async fn pass(engine: &KubernetesStore, key: &LockKey) -> Token {
    let request = request(key, LONG);
    let token = acquire(engine, &request).await;
    assert!(engine.release(key, request.owner.nonce, token).await.unwrap());
    token
}

#[tokio::test]
async fn a_lock_is_held_until_its_release() {
    for cluster in TestCluster::all().await {
        let (one, other, key) = (cluster.engine(), cluster.engine(), fresh_key());
        assert!(one.read(&key).await.unwrap().is_none(), "the lock was never held");
        let (first, second) = (request(&key, LONG), request(&key, LONG));
        let token = acquire(&one, &first).await;
        let held = refused(&other, &second).await;
        let holder = held.holder.unwrap();
        assert_eq!((&holder.owner, holder.token), (&first.owner, token));
        assert!(held.free_in > LONG / 2 && held.free_in <= LONG, "{:?}", held.free_in);
        assert_eq!(held.waiting, 0);

        let nonce = first.owner.nonce;
        assert!(!other.release(&key, second.owner.nonce, token).await.unwrap(), "another's nonce");
        assert!(!other.release(&key, nonce, Token::new(token.get() + 1)).await.unwrap(), "another token");
        assert!(!other.renew(&key, second.owner.nonce, token, LONG).await.unwrap());
        assert!(one.renew(&key, nonce, token, LONG).await.unwrap());
        assert!(one.release(&key, nonce, token).await.unwrap());
        assert!(!one.release(&key, nonce, token).await.unwrap(), "a released lease cannot be released again");
        assert!(!one.renew(&key, nonce, token, LONG).await.unwrap(), "a released lease cannot be renewed");

        let record = one.read(&key).await.unwrap().unwrap();
        assert_eq!((record.token, record.holder), (token, None), "the token stays");
        assert!(acquire(&other, &second).await > token);
    }
}

#[tokio::test]
async fn repeated_requests_with_one_nonce_are_granted_once() {
    for cluster in TestCluster::all().await {
        let (engine, key) = (cluster.engine(), fresh_key());
        let request = request(&key, LONG);
        let token = acquire(&engine, &request).await;
        assert_eq!(acquire(&engine, &request).await, token);
        assert_eq!(engine.granted(&key, request.owner.nonce).await.unwrap(), Some(token));
        assert_eq!(engine.granted(&key, Nonce::random()).await.unwrap(), None);
        engine.withdraw(&key, Nonce::random()).await.unwrap();
        assert_eq!(
            engine.granted(&key, request.owner.nonce).await.unwrap(),
            Some(token),
            "another nonce was withdrawn"
        );
        engine.withdraw(&key, request.owner.nonce).await.unwrap();
        assert_eq!(engine.granted(&key, request.owner.nonce).await.unwrap(), None);
        assert!(pass(&engine, &key).await > token);
    }
}

/// Regardless of the wall clocks of the holder and of the observer.
#[tokio::test]
async fn a_lease_expires_after_it_was_observed_unrenewed_for_its_duration() {
    let hour = Duration::from_secs(3600);
    let walls: [fn() -> Timestamp; 3] = [
        Timestamp::now,
        || Timestamp::now() - Duration::from_secs(3600),
        || Timestamp::now() + Duration::from_secs(3600),
    ];
    let (_server, cluster) = TestCluster::stand_in().await;
    let lease = Duration::from_millis(400);
    for wall in walls {
        let (holder, observer, key) = (cluster.engine_at(wall), cluster.engine(), fresh_key());
        let first = request(&key, lease);
        let token = acquire(&holder, &first).await;
        let first_seen = Instant::now();
        let registration = request(&key, lease);
        let held = refused(&observer, &registration).await;
        assert!(held.free_in <= lease && held.holder.unwrap().held_for <= hour + lease);
        // The observer sees a renewal, and counts from that time.
        tokio::time::sleep(lease / 2).await;
        assert!(holder.renew(&key, first.owner.nonce, token, lease).await.unwrap());
        let renewed = Instant::now();
        let next = loop {
            match observer.try_acquire(&registration).await.unwrap() {
                AcquireOutcome::Granted(next) => break next,
                AcquireOutcome::Refused(held) => tokio::time::sleep(held.free_in).await,
            }
        };
        assert!(renewed.elapsed() >= lease && first_seen.elapsed() >= lease + lease / 2);
        assert!(next > token);
        assert!(
            !holder.renew(&key, first.owner.nonce, token, lease).await.unwrap(),
            "another client holds the lock"
        );
    }
}

#[tokio::test]
async fn an_expired_lease_can_be_renewed_before_the_next_grant() {
    for cluster in TestCluster::all().await {
        let (engine, key) = (cluster.engine(), fresh_key());
        let request = request(&key, Duration::from_millis(1));
        let token = acquire(&engine, &request).await;
        assert!(
            engine.read(&key).await.unwrap().unwrap().holder.is_some(),
            "the lease was just observed for the first time"
        );
        tokio::time::sleep(Duration::from_millis(2)).await;
        assert_eq!(engine.read(&key).await.unwrap().unwrap().holder, None, "the lease has expired");
        assert!(engine.renew(&key, request.owner.nonce, token, LONG).await.unwrap());
        assert!(engine.read(&key).await.unwrap().unwrap().holder.is_some());
    }
}

#[tokio::test]
async fn a_forced_release_raises_the_token() {
    for cluster in TestCluster::all().await {
        let (engine, key) = (cluster.engine(), fresh_key());
        assert_eq!(engine.force_release(&key).await.unwrap(), None);
        let request = request(&key, LONG);
        let token = acquire(&engine, &request).await;
        let had = engine.force_release(&key).await.unwrap().unwrap();
        assert_eq!((had.owner.nonce, had.token), (request.owner.nonce, token));
        assert!(!engine.renew(&key, request.owner.nonce, token, LONG).await.unwrap());
        assert!(engine.read(&key).await.unwrap().unwrap().token > token);
        assert_eq!(engine.force_release(&key).await.unwrap(), None, "the lock was free");
        assert!(pass(&engine, &key).await.get() > token.get() + 1);
    }
}

#[tokio::test]
async fn keys_are_any_bytes() {
    for cluster in TestCluster::all().await {
        let engine = cluster.engine();
        let salt = Uuid::new_v4();
        for bytes in [&[0, 255, 10][..], "ключ/🔑 _A-".as_bytes(), &[b'a'; 10_000], b"-", b"Lock_A"] {
            let key = LockKey::new(&format!("Ünder_scores/{salt}"), bytes).unwrap();
            let mut request = request(&key, LONG);
            request.owner.name = "a long name ".repeat(500);
            let token = acquire(&engine, &request).await;
            let record = engine.read(&key).await.unwrap().unwrap();
            assert_eq!((record.namespace.as_str(), record.key.as_str()), (key.namespace(), key.readable()));
            assert_eq!(record.holder.unwrap().owner, request.owner);
            assert!(engine.release(&key, request.owner.nonce, token).await.unwrap());
        }
    }
}

#[tokio::test]
async fn locks_are_listed_by_namespace_and_key() {
    for cluster in TestCluster::all().await {
        let (engine, salt) = (cluster.engine(), Uuid::new_v4());
        let namespace = format!("list {salt}");
        let mut held = None;
        for name in ["b", "a2", "a1"] {
            let key = LockKey::new(&namespace, name).unwrap();
            if name == "a2" {
                held = Some(acquire(&engine, &request(&key, LONG)).await);
            } else {
                pass(&engine, &key).await;
            }
        }
        let list = |held: bool, prefix: &str, limit: u32| {
            let listing = ListQuery {
                namespace: Some(namespace.clone()),
                held,
                prefix: prefix.to_owned(),
                limit,
                after: None,
            };
            let engine = &engine;
            async move {
                let records = engine.list(&listing).await.unwrap();
                records.into_iter().map(|record| record.key).collect::<Vec<_>>()
            }
        };
        assert_eq!(list(false, "", 10).await, ["a1", "a2", "b"]);
        assert_eq!(list(false, "", 2).await, ["a1", "a2"]);
        assert_eq!(list(false, "a", 10).await, ["a1", "a2"]);
        assert_eq!(list(true, "", 10).await, ["a2"]);
        let everywhere =
            engine.list(&ListQuery { held: true, limit: 1000, ..ListQuery::default() }).await.unwrap();
        assert!(everywhere.iter().any(|record| Some(record.token) == held && record.namespace == namespace));
    }
}

#[tokio::test]
async fn a_url_without_a_valid_namespace_is_rejected() {
    for url in ["kubernetes:Not_One", "kubernetes:-a", "postgres:a", "kubernetes"] {
        assert!(matches!(KubernetesStore::connect(url).await, Err(crate::Error::Settings(_))), "{url}");
    }
}

const ROUNDS: usize = 100;
const RACERS: usize = 16;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_of_sixteen_concurrent_requests_is_granted() {
    for cluster in TestCluster::all().await {
        let engines: Vec<Arc<KubernetesStore>> = (0..4).map(|_| Arc::new(cluster.engine())).collect();
        let mut key = fresh_key();
        let mut highest = Token::new(0);
        for round in 0..ROUNDS {
            // In some rounds the lock does not exist yet, so that its creation is raced for, too.
            if round % 10 == 0 {
                (key, highest) = (fresh_key(), Token::new(0));
            }
            let mut race = JoinSet::new();
            for racer in 0..RACERS {
                let (engine, request) = (Arc::clone(&engines[racer % engines.len()]), request(&key, LONG));
                race.spawn(async move { (request.owner.nonce, engine.try_acquire(&request).await.unwrap()) });
            }
            let answers = race.join_all().await;
            let won = answers.iter().filter_map(|(nonce, answer)| match answer {
                AcquireOutcome::Granted(token) => Some((*nonce, *token)),
                AcquireOutcome::Refused(_) => None,
            });
            let won: Vec<(Nonce, Token)> = won.collect();
            let [(nonce, token)] = won[..] else { panic!("round {round}: {won:?}") };
            assert!(token > highest, "round {round}: {token} after {highest}");
            highest = token;
            assert!(engines[0].release(&key, nonce, token).await.unwrap());
        }
    }
}

/// Each holder releases at once: no token is granted twice, and none is below an earlier one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_of_a_busy_lock_are_distinct_and_increasing() {
    let (_server, cluster) = TestCluster::stand_in().await;
    let key = fresh_key();
    let mut busy = JoinSet::new();
    for _ in 0..8 {
        let (engine, key) = (cluster.engine(), key.clone());
        busy.spawn(async move {
            let mut tokens = Vec::new();
            while tokens.len() < 20 {
                let request = request(&key, LONG);
                if let AcquireOutcome::Granted(token) = engine.try_acquire(&request).await.unwrap() {
                    assert!(engine.release(&key, request.owner.nonce, token).await.unwrap());
                    tokens.push(token);
                }
            }
            assert!(tokens.is_sorted());
            tokens
        });
    }
    let mut tokens: Vec<Token> = busy.join_all().await.into_iter().flatten().collect();
    let all = tokens.len();
    tokens.sort_unstable();
    tokens.dedup();
    assert_eq!(tokens.len(), all);
}
