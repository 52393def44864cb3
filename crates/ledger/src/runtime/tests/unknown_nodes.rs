//! Nodes that are not members, and members that send forged messages.

use bytes::Bytes;
use holdoff_net::{CloseReason, SecretKey};
use holdoff_paxos::log::{self, Term, VoteRequest};

use super::{NAME, TestNode, add, admit, submit, sum, until};
use crate::certificate::{Certificate, Head, HeadSignature, SignatureShare};
use crate::ledger::{Message, MessageOf};

use crate::runtime::peers::Peers;
use crate::runtime::wire::{self, Envelope, Packet, Reply, Request};
use crate::runtime::{DefaultMachine, Node, NodeState, PeerAddress};
use crate::{Consistency, NodeId, Slot, TxId};

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_not_a_member_is_disconnected() {
    let test_node = TestNode::new().await;
    let node = test_node.host().create(NAME).unwrap();
    submit(&node, 1).await;
    let peers = Peers::new(SecretKey::generate().unwrap());
    let PeerAddress { key, address } = test_node.host().contact();
    let link = peers.link(&key, &address).unwrap();
    let why = link.call_value::<Reply>(&Request::DescribeLedger(NAME.to_owned())).await.unwrap_err();
    assert!(matches!(why, holdoff_net::Error::Refused { reason: CloseReason::NotAllowed, .. }), "{why:?}");
    // A joining node is disconnected, too, until a member has added it.
    let other = TestNode::new().await;
    other.host().join(NAME, &[test_node.host().contact()]).unwrap();
    assert!(other.host().joined(NAME, std::time::Duration::from_millis(500)).await.is_err());
    admit(&node, other.host().contact(), "other", false).await;
    other.node().await;
}

/// A learner that sends forged messages.
struct Liar {
    peers: Peers,
    victim: PeerAddress,
    node: Node<DefaultMachine>,
    id: NodeId,
    incarnation: u64,
}

impl Liar {
    async fn new(test_node: &TestNode, node: &Node<DefaultMachine>) -> Self {
        let (key, incarnation) = (SecretKey::generate().unwrap(), 77);
        let contact = PeerAddress { key: key.public(), address: "127.0.0.1:1".to_owned() };
        admit(node, contact.clone(), "liar", false).await;
        let (peers, id) = (Peers::new(key), NodeId::derive(contact.key.as_bytes(), incarnation));
        let liar = Self { peers, victim: test_node.host().contact(), node: node.clone(), id, incarnation };
        let (address, head) = (contact.address, wire::AppliedHead::default());
        liar.send(Envelope::PeerStatus { address, head, refounded: None });
        until("the roster has its incarnation", || async {
            let status = node.status().await.unwrap();
            status
                .members
                .iter()
                .any(|member| member.key == contact.key && member.member.incarnation == Some(incarnation))
        })
        .await;
        liar
    }

    fn send(&self, envelope: Envelope) {
        let packet = Packet { ledger: self.node.ledger(), incarnation: self.incarnation, envelope };
        self.peers.send(&self.victim.key, &self.victim.address, packet);
    }

    fn send_message(&self, message: &MessageOf<NodeState<DefaultMachine>>) {
        self.send(Envelope::Message(holdoff_net::encode(message).unwrap()));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn forged_messages_are_rejected_and_counted() {
    let test_node = TestNode::new().await;
    let node = test_node.host().create(NAME).unwrap();
    submit(&node, 1).await;
    let liar = Liar::new(&test_node, &node).await;
    let before = node.status().await.unwrap();
    let head = Head {
        index: Slot(before.head.index.0 + 1000),
        hash: before.head.hash,
        term: Term::new(Slot(1), 9, liar.id),
        start: Slot(1),
        voters: crate::runtime::LedgerInfo { ledger: node.ledger(), founder: before.node, refounded: None }
            .voters()
            .unwrap(),
        machine: before.state_hash,
        done: before.state_hash,
        bytes: 0,
        written: 0,
    };
    let signature = HeadSignature(vec![1; 100]);
    let certificate = Certificate { head: head.clone(), signatures: vec![(before.node, signature.clone())] };
    liar.send_message(&Message::Certificate(certificate.clone()));
    liar.send_message(&Message::History {
        first: before.head.index.next(),
        entries: Vec::new(),
        rest: Vec::new(),
        certificate,
    });
    liar.send_message(&Message::SignatureShare(SignatureShare {
        head,
        signature,
        latest_configuration: Slot(1),
    }));
    let term = Term::new(Slot(1), 1 << 40, liar.id);
    let candidacy = VoteRequest { is_pre_vote: false, term, accepted: term, last: Slot(u64::MAX) };
    liar.send_message(&Message::Log(log::Message::RequestVote(candidacy)));
    liar.send(Envelope::Message(Bytes::from_static(b"\xff\xff\xff")));
    liar.send(Envelope::Gossip(Bytes::from_static(b"\xff\xff\xff")));
    liar.send(Envelope::Fragment(true, Bytes::from_static(b"\xff")));
    until("the message is counted", || async {
        let status = node.status().await.unwrap();
        let is_garbage = status.counts.malformed >= 2;
        if is_garbage && status.core.forged_certificates >= 1 { Ok(()) } else { Err(status) }
    })
    .await
    .unwrap();
    let after = node.status().await.unwrap();
    assert_eq!((after.role, after.leader), (before.role, before.leader));
    assert_eq!(after.head, before.head);
    assert!(after.certified <= after.head.index, "{after:?}");
    submit(&node, 1).await;
    assert_eq!(sum(&node, Consistency::Quorum).await.unwrap(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_of_an_unregistered_incarnation_are_rejected() {
    let test_node = TestNode::new().await;
    let node = test_node.host().create(NAME).unwrap();
    submit(&node, 1).await;
    let liar = Liar { incarnation: 78, ..Liar::new(&test_node, &node).await };
    let submitted = |tx_id| Message::Submit {
        tx_id,
        birth: Slot(0),
        goal: crate::machine::Either::Second(add(100)),
        relayed_for: None,
    };
    liar.send_message(&submitted(TxId(1)));
    until("the message is counted", || async { node.status().await.unwrap().counts.unknown_senders > 0 })
        .await;
    assert_eq!(sum(&node, Consistency::Quorum).await.unwrap(), 1);
    // A member of one ledger is not a member of another.
    let other = test_node.host().create("other").unwrap();
    submit(&other, 1).await;
    let packet = Packet {
        ledger: other.ledger(),
        incarnation: 77,
        envelope: Envelope::Message(holdoff_net::encode(&submitted(TxId(2))).unwrap()),
    };
    liar.peers.send(&liar.victim.key, &liar.victim.address, packet);
    until("the message is counted", || async { other.status().await.unwrap().counts.unknown_senders > 0 })
        .await;
    assert_eq!(sum(&other, Consistency::Quorum).await.unwrap(), 1);
}
