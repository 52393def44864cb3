//! An acceptor that can be stopped, started again and wiped.

use std::path::PathBuf;
use std::time::Duration;

use holdoff_net::{Key, LinkOptions};
use holdoff_paxos::Slot;

use super::super::line::link;
use super::AcceptorAddress;
use crate::acceptor::{AcceptorService, Limits, Reply, Request, Settings};
use crate::{Ask, CouncilId, PublicKey, Tell};

pub(super) struct Acceptor {
    directory: tempfile::TempDir,
    address: String,
    key: PublicKey,
    service: Option<AcceptorService>,
}

pub(super) async fn three() -> Vec<Acceptor> {
    let mut all = Vec::new();
    for _ in 0..3 {
        all.push(Acceptor::new().await);
    }
    all
}

impl Acceptor {
    async fn new() -> Self {
        Self::with(Limits::default()).await
    }

    pub(super) async fn with(limits: Limits) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let settings = Settings { listen: "127.0.0.1:0".parse().unwrap(), limits, ..Settings::default() };
        let service = AcceptorService::start(directory.path(), &settings).await.unwrap();
        let (address, key) = (service.address().to_string(), service.key());
        Self { directory, address, key, service: Some(service) }
    }

    pub(super) fn key(&self) -> PublicKey {
        self.key
    }

    pub(super) fn address(&self) -> AcceptorAddress {
        AcceptorAddress { key: self.key, address: self.address.clone() }
    }

    /// Whether it has only a snapshot of the first slot.
    pub(super) async fn has_compacted(&self, council: CouncilId) -> bool {
        let stranger = Key::generate().unwrap();
        let (link, _) = link(&stranger, self.key, &self.address, &LinkOptions::default()).unwrap();
        let ask = Ask::Fetch { after: Slot(0) };
        let reply: Reply = link.ask(&Request::Ask { life: 0, council, ask }).await.unwrap();
        matches!(reply.tells.as_slice(), [Tell::Compacted { .. }])
    }

    /// How many letters it keeps for somebody.
    pub(super) async fn letters(&self, council: CouncilId, to: &Key) -> usize {
        let (link, _) = link(to, self.key, &self.address, &LinkOptions::default()).unwrap();
        let reply: Reply = link.ask(&Request::Ask { life: 0, council, ask: Ask::Collect }).await.unwrap();
        match reply.tells.as_slice() {
            [Tell::Mail(letters)] => letters.len(),
            other => panic!("{other:?}"),
        }
    }

    pub(super) async fn start(&mut self) {
        // The port may still be in use for a moment by who was stopped.
        while self.service.is_none() {
            let settings = Settings { listen: self.address.parse().unwrap(), ..Settings::default() };
            self.service = AcceptorService::start(self.directory.path(), &settings).await.ok();
            tokio::task::yield_now().await;
        }
    }

    /// Stops, and starts again at another address: the same one, in the same life.
    pub(super) async fn move_elsewhere(&mut self) {
        self.stop().await;
        self.address = "127.0.0.1:0".to_owned();
        self.start().await;
        self.address = self.service.as_ref().unwrap().address().to_string();
    }

    pub(super) async fn stop(&mut self) {
        if let Some(service) = self.service.take() {
            service.stop(Duration::ZERO).await;
        }
    }

    pub(super) async fn wipe(&mut self) {
        self.stop().await;
        let store: PathBuf = self.directory.path().join("acceptor.redb");
        std::fs::remove_file(store).unwrap();
        self.start().await;
    }
}
