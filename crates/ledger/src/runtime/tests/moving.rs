//! Who has another address than before.
//!
//! Others look for it where it was, so it hears of nobody, nor who leads: it must say where it is by itself.

use super::cluster::{CONDITION_TIMEOUT, Cluster, NAME, Place, admit, submit, until};
use crate::runtime::{Books, Node};

/// Goes on at another address, and is found there.
async fn moves(place: &mut Place, other: &Node<Books>) {
    let before = place.host().contact();
    place.move_elsewhere().await;
    let now = place.host().contact();
    assert_ne!(now.address, before.address);
    until("others know where it is", || async {
        let status = other.status().await.unwrap();
        let found = status.members.into_iter().find(|member| member.key == now.key).unwrap();
        if found.member.address == now.address { Ok(()) } else { Err(found) }
    })
    .await
    .unwrap();
    let index = submit(other, 1).await;
    let mut glance = place.node().await.glance();
    let heard =
        tokio::time::timeout(CONDITION_TIMEOUT, glance.wait_for(|glance| glance.head.index >= index)).await;
    assert!(heard.is_ok(), "it goes on where it was");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_only_learns_is_found_where_it_has_gone() {
    let cluster = Cluster::new(3).await;
    let (founder, mut reader) = (&cluster.places[0], Place::new().await);
    let node = founder.node().await;
    admit(&node, reader.host().contact(), "reader", false).await;
    reader.host().join(NAME, &[founder.host().contact()]).unwrap();
    submit(&reader.node().await, 7).await;
    moves(&mut reader, &node).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_votes_is_found_where_it_has_gone() {
    let mut cluster = Cluster::new(3).await;
    for at in [1, 2] {
        let other = cluster.places[0].node().await;
        moves(&mut cluster.places[at], &other).await;
    }
}
