//! An acceptor that keeps everything in memory, and can be stopped, started again and wiped.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use holdoff_net::{Allow, Fault, Handler, Key, Peer, PeerId, Server, ServerOptions};
use holdoff_paxos::Slot;

use super::AcceptorAddress;
use crate::acceptor::{Push, Reply, Request};
use crate::{Asker, CouncilId, Ed25519, PublicKey, Quota, Seat, To, node_id};

pub(super) struct StandIn {
    key: Key,
    address: String,
    seats: Arc<Mutex<Seats>>,
    server: Option<Server>,
}

#[derive(Default)]
struct Seats {
    life: u64,
    seats: HashMap<CouncilId, Seat>,
    watching: HashMap<PeerId, Peer>,
}

struct Desk(Arc<Mutex<Seats>>);

pub(super) async fn three() -> Vec<StandIn> {
    let mut all = Vec::new();
    for life in 1..=3 {
        all.push(StandIn::new(life).await);
    }
    all
}

impl StandIn {
    async fn new(life: u64) -> Self {
        let key = Key::generate().unwrap();
        let seats = Arc::new(Mutex::new(Seats { life, ..Seats::default() }));
        let mut made = Self { key, address: "127.0.0.1:0".to_owned(), seats, server: None };
        made.start().await;
        made.address = made.server.as_ref().unwrap().address().to_string();
        made
    }

    pub(super) fn key(&self) -> PublicKey {
        self.key.public()
    }

    pub(super) fn address(&self) -> AcceptorAddress {
        AcceptorAddress { key: self.key.public(), address: self.address.clone() }
    }

    pub(super) fn floor(&self) -> Slot {
        self.seats.lock().unwrap().seats.values().map(Seat::floor).max().unwrap_or_default()
    }

    pub(super) async fn start(&mut self) {
        let options = ServerOptions { allow: Allow::anyone(), ..ServerOptions::default() };
        // The port may still be in use for a moment by who was stopped.
        while self.server.is_none() {
            let desk = Desk(self.seats.clone());
            self.server = Server::start(&self.key, &self.address, desk, options.clone()).await.ok();
            tokio::task::yield_now().await;
        }
    }

    pub(super) async fn stop(&mut self) {
        if let Some(server) = self.server.take() {
            server.shutdown(Duration::ZERO).await;
        }
        self.seats.lock().unwrap().watching.clear();
    }

    pub(super) async fn wipe(&mut self) {
        self.stop().await;
        {
            let mut seats = self.seats.lock().unwrap();
            *seats = Seats { life: seats.life + 100, ..Seats::default() };
        }
        self.start().await;
    }
}

#[async_trait::async_trait]
impl Handler for Desk {
    async fn call(&self, peer: &Peer, request: Bytes) -> Result<Bytes, Fault> {
        let request = holdoff_net::decode(&request).map_err(|error| Fault::permanent(error.to_string()))?;
        let mut desk = self.0.lock().unwrap();
        let life = desk.life;
        let mut tells = Vec::new();
        match request {
            Request::Who => {}
            Request::Ask { life: theirs, council, ask } => {
                desk.watching.insert(peer.id(), peer.clone());
                let asker = Asker { key: peer.key(), node: node_id(&peer.key(), theirs) };
                let seat = desk.seats.entry(council).or_insert_with(|| Seat::new(council, Quota::default()));
                let answers = seat.answer(&asker, ask, &Ed25519).release(|_| Ok::<_, ()>(())).unwrap();
                for answer in answers {
                    match answer.to {
                        To::Asker => tells.push(answer.tell),
                        To::Watchers => {
                            let news = Push { life, council, tell: answer.tell };
                            for other in desk.watching.values().filter(|other| other.id() != peer.id()) {
                                let _ = other.push_value(&news);
                            }
                        }
                    }
                }
            }
        }
        holdoff_net::encode(&Reply { life, tells }).map_err(|error| Fault::permanent(error.to_string()))
    }

    fn left(&self, peer: &Peer) {
        self.0.lock().unwrap().watching.remove(&peer.id());
    }
}
