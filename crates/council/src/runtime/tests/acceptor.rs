//! An acceptor that can be stopped, started again and wiped.

use std::path::PathBuf;
use std::time::Duration;

use holdoff_net::{LinkOptions, SecretKey};
use holdoff_paxos::Slot;

use super::super::acceptor_link::link;
use crate::acceptor::{AcceptorLimits, AcceptorService, LinkReply, LinkRequest, Settings};
use crate::{AcceptorReply, AcceptorRequest, CouncilId, PublicKey};
use holdoff_net::PeerAddress;

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
        Self::with(AcceptorLimits::default()).await
    }

    pub(super) async fn with(limits: AcceptorLimits) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let settings = Settings { listen: "127.0.0.1:0".parse().unwrap(), limits, ..Settings::default() };
        let service = AcceptorService::start(directory.path(), &settings).await.unwrap();
        let (address, key) = (service.address().to_string(), service.key());
        Self { directory, address, key, service: Some(service) }
    }

    pub(super) fn key(&self) -> PublicKey {
        self.key
    }

    pub(super) fn address(&self) -> PeerAddress {
        PeerAddress { key: self.key, address: self.address.clone() }
    }

    /// Returns whether the first slot is only in the snapshot, as the acceptor reports to this member.
    pub(super) async fn has_compacted(&self, council: CouncilId, member: &SecretKey) -> bool {
        let (link, _) = link(member, self.key, &self.address, &LinkOptions::default()).unwrap();
        let request = AcceptorRequest::Fetch { after: Slot(0) };
        let reply: LinkReply =
            link.call_value(&LinkRequest::Council { incarnation: 0, council, request }).await.unwrap();
        matches!(reply.replies.as_slice(), [AcceptorReply::Report(_)])
    }

    /// Returns the last slot in which the acceptor has accepted a value, as it reports to this member.
    pub(super) async fn latest(&self, council: CouncilId, member: &SecretKey) -> Slot {
        let (link, _) = link(member, self.key, &self.address, &LinkOptions::default()).unwrap();
        let request = AcceptorRequest::Fetch { after: Slot(0) };
        let reply: LinkReply =
            link.call_value(&LinkRequest::Council { incarnation: 0, council, request }).await.unwrap();
        let latest = reply.replies.iter().find_map(|reply| match reply {
            AcceptorReply::History { latest, .. } => Some(*latest),
            _ => None,
        });
        latest.unwrap_or_default()
    }

    /// Returns the number of mail messages for this key.
    pub(super) async fn mail(&self, council: CouncilId, to: &SecretKey) -> usize {
        let (link, _) = link(to, self.key, &self.address, &LinkOptions::default()).unwrap();
        let reply: LinkReply = link
            .call_value(&LinkRequest::Council { incarnation: 0, council, request: AcceptorRequest::Collect })
            .await
            .unwrap();
        match reply.replies.as_slice() {
            [AcceptorReply::Mail(mail)] => mail.len(),
            other => panic!("{other:?}"),
        }
    }

    pub(super) async fn start(&mut self) {
        // The stopped service may still use the port for a moment.
        while self.service.is_none() {
            let settings = Settings { listen: self.address.parse().unwrap(), ..Settings::default() };
            self.service = AcceptorService::start(self.directory.path(), &settings).await.ok();
            tokio::task::yield_now().await;
        }
    }

    /// Restarts at another address with the same store.
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
