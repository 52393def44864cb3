//! A device that sends requests directly to the acceptor in a daemon.

use std::time::Duration;

use holdoff_council::acceptor::{ROLE, Reply, Request};
use holdoff_council::{Ask, CouncilId, NodeId, Slot, Tell, node_id};
use holdoff_net::{Hearing, Key, Link, LinkOptions, Remote};
use holdoff_paxos::Ballot;

/// A device. It is connected from its first request until it is dropped.
pub(crate) struct Device {
    link: Link,
    node: NodeId,
    _hearing: Hearing,
}

impl Device {
    /// Creates a device for the acceptor with this name.
    pub(crate) fn to(acceptor: &str) -> Self {
        let key = Key::from_secret(&[7; 32]);
        let (peer, address) = acceptor.split_once('@').unwrap();
        let remote = Remote { key: peer.parse().unwrap(), address: address.to_owned() };
        let call_timeout = Duration::from_secs(20);
        let options = LinkOptions { role: ROLE.to_owned(), call_timeout, ..LinkOptions::default() };
        let (link, hearing) = Link::new(&key, remote, options).unwrap();
        Self { link, node: node_id(&key.public(), 1), _hearing: hearing }
    }

    async fn prepare(&self, council: u8, slot: Slot, node: NodeId) -> Tell {
        let ask = Ask::Prepare { slot, ballot: Ballot::new(slot, 1, node), announce: Vec::new() };
        let request = Request::Ask { life: 1, council: CouncilId([council; 16]), ask };
        let mut reply: Reply = self.link.ask(&request).await.unwrap();
        reply.tells.remove(0)
    }

    /// Has the acceptor promise this number of slots of a council.
    pub(crate) async fn promise(&self, council: u8, slots: u8) {
        for slot in (1..=u64::from(slots)).map(Slot) {
            let told = self.prepare(council, slot, self.node).await;
            assert!(matches!(told, Tell::Promise { .. }), "{told:?}");
        }
    }

    /// Sends a request with the id of another node, which the acceptor refuses.
    pub(crate) async fn pretend(&self) {
        let told = self.prepare(1, Slot(1), NodeId(5)).await;
        assert!(matches!(told, Tell::Refused { .. }), "{told:?}");
    }
}
