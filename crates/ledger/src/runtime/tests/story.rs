//! What happens to ledgers.

use std::time::Duration;

use super::cluster::{CONDITION_TIMEOUT, Cluster, NAME, Place, add, submit, sum, until};
use crate::machine::Either;
use crate::runtime::{Books, Error, Host, Node, Role, found, join};
use crate::{How, Outcome, Slot};

#[tokio::test(flavor = "multi_thread")]
async fn one_node_leads_itself() {
    let place = Place::new().await;
    let node = place.host().found(NAME).unwrap();
    assert!(submit(&node, 2).await > Slot(0));
    submit(&node, 3).await;
    for how in [How::Local, How::Quorum, How::Lease] {
        assert_eq!(sum(&node, how).await.unwrap(), 5);
    }
    until("it is a member", || async { node.status().await.unwrap().members.len() == 1 }).await;
    let status = node.status().await.unwrap();
    assert_eq!(status.role, Role::Leads);
    let verified = node.verify().await.unwrap();
    assert_eq!((verified.broken, verified.last), (None, status.head.index));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_acknowledged_is_there_after_a_restart() {
    let mut place = Place::new().await;
    submit(&place.host().found(NAME).unwrap(), 7).await;
    place.kill();
    place.start().await;
    let node = place.node().await;
    assert_eq!(sum(&node, How::Quorum).await.unwrap(), 7);
    place.host.take().unwrap().stop(CONDITION_TIMEOUT).await;
    place.start().await;
    assert_eq!(sum(&place.node().await, How::Quorum).await.unwrap(), 7);
}

#[tokio::test(flavor = "multi_thread")]
async fn three_nodes_have_one_history_wherever_it_is_written() {
    let cluster = Cluster::new(3).await;
    for place in &cluster.places {
        submit(&place.node().await, 1).await;
    }
    let glance = cluster.until_equal().await;
    assert!(glance.head.index > Slot(3));
    for place in &cluster.places {
        let node = place.node().await;
        for how in [How::Local, How::Quorum, How::Lease] {
            assert_eq!(sum(&node, how).await.unwrap(), 3);
        }
        assert_eq!(node.verify().await.unwrap().broken, None);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_is_killed_is_replaced_and_nothing_is_lost() {
    let mut cluster = Cluster::new(3).await;
    let first = cluster.leader().await;
    submit(&cluster.places[first].node().await, 1).await;
    cluster.places[first].kill();
    let second = (first + 1) % 3;
    submit(&cluster.places[second].node().await, 10).await;
    assert_eq!(sum(&cluster.places[second].node().await, How::Quorum).await.unwrap(), 11);
    cluster.places[first].start().await;
    submit(&cluster.places[first].node().await, 100).await;
    cluster.until_equal().await;
    for place in &cluster.places {
        assert_eq!(sum(&place.node().await, How::Local).await.unwrap(), 111);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_hands_over_and_nothing_is_lost() {
    let cluster = Cluster::new(3).await;
    let first = cluster.leader().await;
    let (node, other) = (cluster.places[first].node().await, cluster.places[(first + 1) % 3].node().await);
    submit(&node, 1).await;
    // Whoever is asked passes it on to the one that leads.
    let next = other.hand_over(Some(other.key())).await.unwrap();
    assert_eq!(next, other.key());
    // Whether it comes to lead, the voters decide: on a busy machine another may be faster.
    until("somebody else leads", || async {
        let glance = *node.glance().borrow();
        glance.leader.is_some_and(|leader| leader != node.key())
    })
    .await;
    submit(&node, 2).await;
    assert_eq!(sum(&node, How::Quorum).await.unwrap(), 3);
    let stranger = holdoff_net::Key::generate().unwrap().public();
    assert!(matches!(node.hand_over(Some(stranger)).await, Err(Error::NotNow(_))));
}

#[tokio::test(flavor = "multi_thread")]
async fn two_nodes_of_which_one_is_down_refuse_writes_and_say_so() {
    let mut cluster = Cluster::new(2).await;
    cluster.places[1].kill();
    let node = cluster.places[0].node().await;
    until("it has noticed", || async { node.status().await.unwrap().role == Role::Looks }).await;
    let outcome = node.submit(Node::<Books>::new_tx_id().unwrap(), add(1), CONDITION_TIMEOUT).await.unwrap();
    assert_eq!(outcome, Outcome::NoQuorum);
    let why = node.read(add(0), How::Quorum, Duration::from_millis(500)).await.unwrap_err();
    assert!(matches!(why, Error::NoLeader(_)), "{why}");
    assert_eq!(sum(&node, How::Local).await.unwrap(), 0);
    cluster.places[1].start().await;
    submit(&node, 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_lost_its_disk_comes_back_as_somebody_else_and_votes_again() {
    let mut cluster = Cluster::new(3).await;
    submit(&cluster.places[0].node().await, 5).await;
    let contact = cluster.places[0].host().contact();
    cluster.places[2].kill();
    let path = cluster.places[2].folder.path().join(format!("{NAME}.redb"));
    until("the disk is free", || async { std::fs::remove_file(&path).is_ok() }).await;
    cluster.places[2].start().await;
    cluster.places[2].host().join(NAME, &[contact]).unwrap();
    let node = cluster.places[2].node().await;
    until("it votes", || async {
        let status = node.status().await.unwrap();
        let mine = status.members.iter().find(|member| member.key == node.key());
        status.role != Role::Learns && mine.is_some_and(|member| member.votes)
    })
    .await;
    submit(&node, 1).await;
    cluster.until_equal().await;
    assert_eq!(sum(&node, How::Local).await.unwrap(), 6);
}

#[tokio::test(flavor = "multi_thread")]
async fn entries_can_be_followed_from_any_place() {
    let place = Place::new().await;
    let node = place.host().found(NAME).unwrap();
    let first = submit(&node, 1).await;
    let mut subscription = node.subscribe(Slot(first.0 - 1));
    let second = submit(&node, 2).await;
    let (mut expected, mut sums) = (first, Vec::new());
    while expected <= second {
        let page = subscription.next().await.unwrap().unwrap();
        assert_eq!(page.index, expected);
        if let Some(Either::Second(diff)) = page.diff() {
            sums.extend(diff.iter().filter_map(|change| change.after.clone()));
        }
        expected = expected.next();
    }
    assert_eq!(sums, [1.into(), 3.into()], "each says what it changed");
}

#[tokio::test(flavor = "multi_thread")]
async fn ledgers_of_one_process_know_nothing_of_each_other() {
    let place = Place::new().await;
    let (one, other) = (place.host().found("one").unwrap(), place.host().found("other").unwrap());
    submit(&one, 1).await;
    assert_eq!((sum(&one, How::Quorum).await.unwrap(), sum(&other, How::Quorum).await.unwrap()), (1, 0));
    assert_ne!(one.ledger(), other.ledger());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_is_said() {
    let folder = tempfile::TempDir::new().unwrap();
    let (key, _) = found(folder.path(), NAME).unwrap();
    assert!(matches!(found(folder.path(), NAME), Err(Error::IsThere(_))));
    assert!(matches!(join(folder.path(), NAME, &[]), Err(Error::IsThere(_))));
    for wrong in ["", "a/b", "..", "a.b", &"x".repeat(65)] {
        assert!(matches!(found(folder.path(), wrong), Err(Error::BadNamespace(_))), "{wrong}");
    }
    let start = || Host::<Books>::start(super::cluster::settings(&folder, "127.0.0.1:0".parse().unwrap()));
    let host = start().await.unwrap();
    assert_eq!(host.key(), key);
    assert!(matches!(start().await, Err(Error::InUse(_))));
}
