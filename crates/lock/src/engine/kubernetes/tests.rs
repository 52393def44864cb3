//! Tests of the engine on the stand-in API server; those without faults also on a real cluster, if one is configured.

mod faults;
mod promises;
mod races;
mod tokens;
mod wakes;

use std::time::Duration;

use holdoff_testbed::kubernetes::{Kubernetes as Server, real_cluster};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::jiff::Timestamp;
use kube::{Api, Client};
use uuid::Uuid;

use super::{Arc, Kubernetes, entry};
use crate::store::{Answer, Bid, Held, LeaseStore};
use crate::{Key, Nonce, Owner, Token};

/// Longer than any test runs.
const LONG: Duration = Duration::from_secs(60);

/// A cluster to test in.
struct World {
    client: Client,
    namespace: String,
    // Ends with the test.
    _server: Option<Server>,
}

impl World {
    async fn stand_in() -> (Server, Self) {
        let server = Server::start().await;
        let world = Self { client: server.client(), namespace: "default".to_owned(), _server: None };
        (server, world)
    }

    /// Returns the stand-in, and the real cluster if there is one.
    async fn all() -> Vec<Self> {
        let (server, world) = Self::stand_in().await;
        let mut worlds = vec![Self { _server: Some(server), ..world }];
        if let Some((client, namespace)) = real_cluster().await {
            worlds.push(Self { client, namespace, _server: None });
        }
        worlds
    }

    fn engine(&self) -> Kubernetes {
        Kubernetes::open(self.client.clone(), &self.namespace)
    }

    /// Returns an engine whose host has a wrong wall clock.
    fn engine_at(&self, wall: fn() -> Timestamp) -> Kubernetes {
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
fn fresh_key() -> Key {
    Key::new("tests", Uuid::new_v4().to_string()).unwrap()
}

fn bid(key: &Key, lease: Duration) -> Bid {
    let owner = Owner { nonce: Nonce::fresh(), name: "somebody".to_owned() };
    Bid { key: key.clone(), owner, lease, waits: None }
}

async fn acquire(engine: &Kubernetes, bid: &Bid) -> Token {
    match engine.try_acquire(bid).await.unwrap() {
        Answer::Granted(token) => token,
        Answer::Held(held) => panic!("not granted: {held:?}"),
    }
}

async fn refused(engine: &Kubernetes, bid: &Bid) -> Held {
    match engine.try_acquire(bid).await.unwrap() {
        Answer::Granted(token) => panic!("granted with {token}"),
        Answer::Held(held) => held,
    }
}

/// Acquires and releases the lock.
async fn pass(engine: &Kubernetes, key: &Key) -> Token {
    let bid = bid(key, LONG);
    let token = acquire(engine, &bid).await;
    assert!(engine.release(key, bid.owner.nonce, token).await.unwrap());
    token
}
