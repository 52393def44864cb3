//! Who was away for long.

use super::cluster::{Cluster, NAME, Place, admit, submit, sum, until};
use crate::How;
use crate::runtime::Role;

/// The founder's vote is all that a new node knows of; by then the founder is gone, and so are the entries.
#[tokio::test(flavor = "multi_thread")]
async fn a_new_node_finds_its_way_when_the_first_ones_are_gone() {
    let mut cluster = Cluster::new(3).await;
    let [founder, other] = [0, 1].map(|at| cluster.places[at].host().key());
    submit(&cluster.places[1].node().await, 5).await;
    let node = cluster.places[1].node().await;
    node.dismiss(founder, super::cluster::CONDITION_TIMEOUT).await.unwrap();
    until("two vote", || async {
        let status = node.status().await.unwrap();
        let votes: Vec<_> =
            status.members.iter().filter(|member| member.votes).map(|member| member.key).collect();
        votes.len() == 2 && votes.contains(&other)
    })
    .await;
    cluster.places[0].kill();
    submit(&node, 1).await;
    for at in [1, 2] {
        cluster.places[at].node().await.compact().await.unwrap();
    }
    let place = Place::new().await;
    admit(&node, place.host().contact(), "new", true).await;
    place.host().join(NAME, &[cluster.places[1].host().contact()]).unwrap();
    let new = place.node().await;
    until("it votes", || async { new.status().await.unwrap().role != Role::Learns }).await;
    submit(&new, 1).await;
    assert_eq!(sum(&new, How::Quorum).await.unwrap(), 7);
}
