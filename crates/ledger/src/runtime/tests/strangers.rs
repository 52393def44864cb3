//! Who does not belong here, and who says what is not so.

use bytes::Bytes;
use holdoff_net::{Key, Refusal};
use holdoff_paxos::log::{Candidacy, Message, Term};

use super::cluster::{NAME, Place, add, admit, submit, sum, until};
use crate::certificate::{Certificate, Head, Seal, Signature};
use crate::ledger::{Letter, LetterOf};
use crate::runtime::identity::node_id;
use crate::runtime::lines::Lines;
use crate::runtime::wire::{self, Packet, Reply, Request, Said};
use crate::runtime::{Books, Contact, Estate, Node};
use crate::{How, NodeId, Slot, TxId};

#[tokio::test(flavor = "multi_thread")]
async fn whoever_is_not_a_member_gets_no_further_than_the_door() {
    let place = Place::new().await;
    let node = place.host().found(NAME).unwrap();
    submit(&node, 1).await;
    let lines = Lines::new(Key::generate().unwrap()).unwrap();
    let Contact { key, address } = place.host().contact();
    let link = lines.link(&key, &address).unwrap();
    let why = link.ask::<Reply>(&Request::Who(NAME.to_owned())).await.unwrap_err();
    assert!(matches!(why, holdoff_net::Error::Refused { reason: Refusal::NotAllowed, .. }), "{why:?}");
    // Nor does one that means to join, until somebody has admitted it.
    let other = Place::new().await;
    other.host().join(NAME, &[place.host().contact()]).unwrap();
    assert!(other.host().joined(NAME, std::time::Duration::from_millis(500)).await.is_err());
    admit(&node, other.host().contact(), "other", false).await;
    other.node().await;
}

/// A member that does not vote, and says whatever it likes.
struct Liar {
    lines: Lines,
    victim: Contact,
    node: Node<Books>,
    id: NodeId,
    life: u64,
}

impl Liar {
    async fn new(place: &Place, node: &Node<Books>) -> Self {
        let (key, life) = (Key::generate().unwrap(), 77);
        let contact = Contact { key: key.public(), address: "127.0.0.1:1".to_owned() };
        admit(node, contact.clone(), "liar", false).await;
        let (lines, id) = (Lines::new(key).unwrap(), node_id(&contact.key, life));
        let liar = Self { lines, victim: place.host().contact(), node: node.clone(), id, life };
        let head = wire::Head::default();
        liar.say(Said::Here(head));
        until("it is known", || async {
            let status = node.status().await.unwrap();
            status.members.iter().any(|member| member.key == contact.key && member.member.life == Some(life))
        })
        .await;
        liar
    }

    fn say(&self, said: Said) {
        let packet = Packet { ledger: self.node.ledger(), life: self.life, said };
        self.lines.send(&self.victim.key, &self.victim.address, packet);
    }

    fn write(&self, letter: &LetterOf<Estate<Books>>) {
        self.say(Said::Letter(holdoff_net::encode(letter).unwrap()));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_forged_is_refused_and_counted() {
    let place = Place::new().await;
    let node = place.host().found(NAME).unwrap();
    submit(&node, 1).await;
    let liar = Liar::new(&place, &node).await;
    let before = node.status().await.unwrap();
    let head = Head {
        index: Slot(before.head.index.0 + 1000),
        hash: before.head.hash,
        term: Term::new(Slot(1), 9, liar.id),
        start: Slot(1),
        voters: crate::runtime::About { ledger: node.ledger(), founder: before.node }.voters().unwrap(),
        machine: before.state_hash,
        done: before.state_hash,
    };
    let signature = Signature(vec![1; 100]);
    let certificate = Certificate { head: head.clone(), seals: vec![(before.node, signature.clone())] };
    liar.write(&Letter::Certified(certificate.clone()));
    liar.write(&Letter::History {
        first: before.head.index.next(),
        entries: Vec::new(),
        rest: Vec::new(),
        certificate,
    });
    liar.write(&Letter::Seal(Seal { head, signature, stone: Slot(1) }));
    let term = Term::new(Slot(1), 1 << 40, liar.id);
    let candidacy = Candidacy { trial: false, term, accepted: term, last: Slot(u64::MAX) };
    liar.write(&Letter::Log(Message::Vote(candidacy)));
    liar.say(Said::Letter(Bytes::from_static(b"\xff\xff\xff")));
    liar.say(Said::Gossip(Bytes::from_static(b"\xff\xff\xff")));
    liar.say(Said::Part(true, Bytes::from_static(b"\xff")));
    until("it is counted", || async {
        let status = node.status().await.unwrap();
        let is_garbage = status.counts.garbage >= 2;
        if is_garbage && status.core.forged_certificates >= 1 { Ok(()) } else { Err(status) }
    })
    .await
    .unwrap();
    let after = node.status().await.unwrap();
    assert_eq!((after.role, after.leader), (before.role, before.leader));
    assert_eq!(after.head, before.head);
    assert!(after.certified <= after.head.index, "{after:?}");
    submit(&node, 1).await;
    assert_eq!(sum(&node, How::Quorum).await.unwrap(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_lost_its_storage_is_nobody_until_it_is_made_known() {
    let place = Place::new().await;
    let node = place.host().found(NAME).unwrap();
    submit(&node, 1).await;
    let liar = Liar { life: 78, ..Liar::new(&place, &node).await };
    let submitted =
        |tx_id| Letter::Submit { tx_id, goal: crate::machine::Either::Second(add(100)), relayed: false };
    liar.write(&submitted(TxId(1)));
    until("it is counted", || async { node.status().await.unwrap().counts.strangers > 0 }).await;
    assert_eq!(sum(&node, How::Quorum).await.unwrap(), 1);
    // Nor does a member of one ledger belong to another.
    let other = place.host().found("other").unwrap();
    submit(&other, 1).await;
    let packet = Packet {
        ledger: other.ledger(),
        life: 77,
        said: Said::Letter(holdoff_net::encode(&submitted(TxId(2))).unwrap()),
    };
    liar.lines.send(&liar.victim.key, &liar.victim.address, packet);
    until("it is counted", || async { other.status().await.unwrap().counts.strangers > 0 }).await;
    assert_eq!(sum(&other, How::Quorum).await.unwrap(), 1);
}
