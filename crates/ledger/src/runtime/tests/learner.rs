//! Who does not vote.

use super::cluster::{Cluster, NAME, Place, admit, submit, sum, until};
use crate::How;
use crate::runtime::Role;

#[tokio::test(flavor = "multi_thread")]
async fn who_only_learns_finds_whoever_leads() {
    let cluster = Cluster::new(3).await;
    let (founder, reader) = (&cluster.places[0], Place::new().await);
    admit(&founder.node().await, reader.host().contact(), "reader", false).await;
    reader.host().join(NAME, &[founder.host().contact()]).unwrap();
    let node = reader.node().await;
    submit(&node, 7).await;
    for how in [How::Quorum, How::Lease] {
        assert_eq!(sum(&node, how).await.unwrap(), 7);
    }
    until("it knows who leads", || async { node.status().await.unwrap().leader.is_some() }).await;
    assert_eq!(node.status().await.unwrap().role, Role::Learns);
    let leader = cluster.leader().await;
    let next = cluster.places[(leader + 1) % 3].node().await.key();
    assert_eq!(node.hand_over(Some(next)).await.unwrap(), next);
}
